"""Conversion of service values to tool results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ability_search.collection import Collection
from ability_search.documents import instant
from ability_search.index.file_indexing import FileReport
from ability_search.index.index_calls import IndexReport
from ability_search.index.stored_sources import SourcePage
from ability_search.store.index_doubts import INDEX_DOUBTED, IndexDoubts
from ability_search.store.records import HISTORY, Job
from ability_search.text.model_traits import language_warnings
from ability_search.tools import results
from ability_search.wire import Result


def index_result(report: IndexReport, job_id: str) -> results.IndexResult:
    """Return the result of search-index."""
    return results.IndexResult.model_validate(_indexed(report, results.IndexResult, job_id))


def index_file_result(report: FileReport, job_id: str) -> results.IndexFileResult:
    """Return the result of search-index-file."""
    skipped = [{"path": item.path, "reason": item.reason} for item in report.skipped]
    fields = _indexed(report, results.IndexFileResult, job_id) | {"skipped": skipped}
    return results.IndexFileResult.model_validate(fields)


def _indexed(report: IndexReport, model: type[Result], job_id: str) -> dict[str, Any]:
    return _shared(report, model) | {
        "failed": [item.recorded() for item in report.failed],
        "warnings": report.warnings or None,
        "wanted": report.wanted or None,
        "job_id": job_id,
        "took_ms": round(report.seconds * 1e3, 1),
    }


def index_record(report: IndexReport) -> Mapping[str, Any]:
    """Return the result of an indexing job as it is recorded."""
    return {
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "failed": len(report.failed),
        "chunks": report.chunks,
    }


def reindex_result(job: Job) -> results.ReindexResult:
    """Return the result of search-reindex for a finished job."""
    result = job.result or {}
    return results.ReindexResult.model_validate(
        {
            **result,
            "collection": job.collection,
            "message": f"rebuilt {result['documents']} sources in generation"
            f" {result['generation']}",
            "state": job.state,
            "failed": result.get("failed") or None,
            "warnings": result["warnings"] or None,
            "job_id": job.id,
            "took_ms": job.updated_at - job.started_at,
        }
    )


def ordered_result(job: Job, state: Literal["running", "cancelled"]) -> results.ReindexResult:
    """Return the result of search-reindex with ``background`` or ``cancel``."""
    done = "is cancelled; the collection is unchanged"
    if state == "running":
        done = f"is rebuilding {job.total} sources; search-collection-info shows its progress"
    message = f"job {job.id} {done}"
    return results.ReindexResult(
        collection=job.collection, deleted=0, message=message, state=state, job_id=job.id
    )


def summary(collection: Collection, doubts: IndexDoubts) -> results.CollectionSummary:
    """Return a collection's entry in the list of search-collections."""
    return results.CollectionSummary(
        name=collection.name,
        sources=collection.sources,
        warnings=language_warnings(collection.model, collection.content_language) or None,
        degraded=_degraded(collection, doubts),
        **_statistics(collection),
    )


def collection_info(
    page: SourcePage, jobs: Sequence[Job], doubts: IndexDoubts, *, scan_below: int
) -> results.CollectionInfoResult:
    """Return the result of search-collection-info; ``scan_below`` as for the search."""
    collection = page.collection
    waiting = collection.chunks >= scan_below and not collection.graph
    indexed = collection.chunks - collection.duplicates
    return results.CollectionInfoResult(
        **_statistics(collection),
        collection=collection.name,
        sources=list(page.sources),
        source_count=collection.sources,
        next_cursor=page.cursor,
        similarity="cosine",
        language=collection.language,
        kinds=list(collection.kinds),
        context=collection.context,
        generation=collection.generation,
        state="building" if waiting else "ready",
        embedded_percent=round(100 * (indexed / max(1, collection.chunks)), 2),
        created_at=instant(collection.created_at),
        jobs=[_job(job) for job in jobs],
        warnings=language_warnings(collection.model, collection.content_language) or None,
        degraded=_degraded(collection, doubts),
    )


def _degraded(collection: Collection, doubts: IndexDoubts) -> results.IndexDegraded | None:
    """Return why keyword search may miss chunks of a collection; ``None`` if it does not."""
    reason = doubts.reason(collection.type)
    return None if reason is None else results.IndexDegraded(reason=reason, code=INDEX_DOUBTED)


def _statistics(collection: Collection) -> dict[str, Any]:
    return {
        "chunks": collection.chunks,
        "min_tokens": collection.tokens_min or 0,
        "max_tokens": collection.tokens_max or 0,
        "avg_tokens": round(collection.tokens / max(1, collection.chunks), 2),
        "model": collection.model,
        "dimensions": collection.dimensions,
        "updated_at": instant(collection.updated_at),
    }


def _job(job: Job) -> results.JobStatus:
    return results.JobStatus.model_validate(
        _shared(job, results.JobStatus)
        | {
            "job_id": job.id,
            "state": "interrupted" if job.running and job.expired else job.state,
            "started_at": instant(job.started_at),
            "updated_at": instant(job.updated_at),
            "result": job.result or None,
            "history": [_run(each) for each in job.options.get(HISTORY, ())] or None,
        }
    )


def _run(run: Mapping[str, Any]) -> Mapping[str, Any]:
    times = {name: instant(run[name]) for name in ("startedAt", "updatedAt")}
    return {**run, **times}


def _shared(value: object, model: type[Result]) -> dict[str, Any]:
    """Return the attributes of a value that a result has too."""
    return {name: getattr(value, name) for name in model.model_fields if hasattr(value, name)}
