"""The parts of the engine's SQL that statements may use; everything else is refused.

Every name was reviewed for engine 26.10.2, and a test fails if the engine has others. Excluded is
what reaches beyond the records and types of one database: files and addresses (IMPORT, EXPORT and
BACKUP DATABASE; CREATE TIMESERIES TYPE, which accepts a path as a name), code (triggers, functions,
classes loaded by name), settings, text that is parsed at run time (``eval``, ``promql``), and
whatever continues after the call (views that refresh themselves).
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STATEMENTS = _words(
    """
    Select Traverse Match FindReferences
    Insert Update Delete MoveVertex CreateVertex CreateEdge
    CreateDocumentType CreateVertexType CreateEdgeType CreateProperty CreateIndex CreateBucket
    AlterType AlterProperty AlterBucket AlterDatabase
    DropType DropProperty DropIndex DropBucket DropTrigger
    TruncateType TruncateBucket TruncateRecord RebuildIndex CompactIndex RebuildType
    Begin Commit Rollback Let Return If Explain Profile
    ScriptRegular Foreach While Break Function
    """
)
"""The alternatives of the grammar's rules ``statement`` and ``scriptStatement``."""

FUNCTIONS = _words(
    """
    abs astar avg bellmanford bool_and bool_or both bothe bothv cchshortestpath circle coalesce
    concat count cypherrid date decode difference dijkstra distance distinct duansssp duration
    encode expand first format if ifempty ifnull in ine intersect inv last linestring list map max
    median min mode out oute outv percentile point polygon pow randomint rectangle search_fields
    search_fields_more search_index search_index_more set shortestpath sqrt stddev stddevp strcmpci
    sum symmetricdifference sysdate unionall uuid variance variancep version

    date.add date.currenttimestamp date.field date.fields date.format date.fromiso8601 date.parse
    date.systemtimezone date.toiso8601

    fulltext.searchfields fulltext.searchfieldsmore fulltext.searchindex fulltext.searchindexmore

    geo.area geo.asgeojson geo.astext geo.buffer geo.contains geo.crosses geo.disjoint geo.distance
    geo.dwithin geo.envelope geo.equals geo.geomfromtext geo.intersects geo.linestring geo.overlaps
    geo.point geo.polygon geo.touches geo.within geo.x geo.y

    math_abs math_absexact math_acos math_addexact math_asin math_atan math_atan2 math_cbrt
    math_ceil math_ceildiv math_ceildivexact math_ceilmod math_clamp math_copysign math_cos
    math_cosh math_decrementexact math_divideexact math_exp math_expm1 math_floor math_floordiv
    math_floordivexact math_floormod math_fma math_getexponent math_hypot math_ieeeremainder
    math_incrementexact math_log math_log10 math_log1p math_max math_min math_multiplyexact
    math_multiplyfull math_multiplyhigh math_negateexact math_nextafter math_nextdown math_nextup
    math_pow math_powexact math_random math_rint math_round math_scalb math_signum math_sin
    math_sinh math_sqrt math_subtractexact math_tan math_tanh math_todegrees math_tointexact
    math_toradians math_ulp math_unsignedmultiplyexact math_unsignedmultiplyhigh
    math_unsignedpowexact

    ts.correlate ts.delta ts.first ts.interpolate ts.lag ts.last ts.lead ts.movingavg ts.percentile
    ts.rank ts.rate ts.rownumber ts.timebucket

    vector.add vector.approxdistance vector.avg vector.boost vector.clamp vector.clip
    vector.cosinesimilarity vector.densetosparse vector.dequantizebinary vector.dequantizeint8
    vector.dimension vector.discover vector.dotproduct vector.fuse vector.hasinf vector.hasnan
    vector.hasnull vector.hybridscore vector.isnormalized vector.l1distance vector.l1norm
    vector.l2distance vector.l2norm vector.linfnorm vector.magnitude vector.manhattandistance
    vector.max vector.min vector.mmr vector.multiply vector.multiscore vector.neighbors
    vector.normalize vector.normalizescores vector.quantizebinary vector.quantizeint8
    vector.recommend vector.rerank vector.rrfscore vector.scale vector.scoretransform
    vector.sparsecreate vector.sparsedot vector.sparseneighbors vector.sparsetodense
    vector.sparsity vector.stddev vector.subtract vector.sum vector.tostring vector.variance
    """
)
"""In lower case. Functions of ``vector.`` may also be called without the dot."""

METHODS = _words(
    """
    append asboolean asbyte ascypherrid asdate asdatetime asdecimal asdouble asfloat asinteger
    asjson aslist aslong asmap asrecord asrid asset asshort assparse asstring asvector capitalize
    charat exclude field first format hash ifempty ifnull include indexof intersectswith iswithin
    join keys last lastindexof left length normalize precision prefix remove removeall replace
    right size sort split substring tojson tolowercase touppercase transform trim trimprefix
    trimsuffix type values
    """
)
"""In lower case. Excluded: ``convert`` and ``javatype``, which name Java classes."""

CALLS = FUNCTIONS | METHODS | {name.replace("vector.", "vector") for name in FUNCTIONS}
"""Names that may precede an opening parenthesis."""

DOTTED_CALLS = CALLS | {name.rpartition(".")[2] for name in FUNCTIONS}
"""Names that may stand between a dot and an opening parenthesis: ``geo.point(`` is parsed so.

Therefore no function may end like an excluded method, as ``date.convert`` would.
"""

SETTINGS = frozenset({"arcadedb.vectorIndex.prefilterMaxSelectivity"})
"""Settings of a database that ALTER DATABASE may set, to a number."""

CATALOGUES = _words(
    "types indexes buckets stats dictionary triggers materializedviews continuousaggregates"
    " graphanalyticalviews"
)
"""Names that may follow ``schema:``. Excluded: ``database``, which shows directory and settings."""

BUCKET_SELECTIONS = frozenset({"round-robin", "thread", "partitioned"})
"""Any other name is loaded as a Java class."""

ANALYZERS = "org.apache.lucene.analysis."
"""Package of the Java classes that a full-text index may load."""
