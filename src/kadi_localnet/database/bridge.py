"""The Java classes that calls meet, wrapped by one thread before the first call.

The bridge (JPype 1.7.1) makes the Python wrapper of a Java class in two steps, and between them
other threads may run. One that then meets the class as a parameter, even of an overload that it
does not choose, follows a null pointer, and the process ends with SIGSEGV. So the wrappers of all
parameters of whatever is called here, of errors and rare statements too, are made in advance.
Classes that are wrapped later, private ones and errors, are parameters of nothing that is called.
"""

from __future__ import annotations

import logging
import time

import jpype

log = logging.getLogger(__name__)

_CALLED = {
    "com.arcadedb": "GlobalConfiguration ContextConfiguration",
    "com.arcadedb.database": "DatabaseFactory LocalDatabase TransactionContext",
    "com.arcadedb.engine": "FileManager PageManager PaginatedComponentFile",
    "com.arcadedb.exception": (
        "CommandSQLParsingException ConcurrentModificationException DuplicatedKeyException"
        " ArithmeticErrorException QueryNotIdempotentException RecordNotFoundException"
        " SchemaException TransactionException ValidationException"
    ),
    "com.arcadedb.index": "TypeIndex",
    "com.arcadedb.index.fulltext": "LSMTreeFullTextIndex",
    "com.arcadedb.index.geospatial": "LSMTreeGeoIndex",
    "com.arcadedb.index.lsm": "LSMTreeIndex",
    "com.arcadedb.index.sparsevector": "LSMSparseVectorIndex",
    "com.arcadedb.index.vector": "LSMVectorIndex",
    "com.arcadedb.query": "RunningQuery RunningQueryRegistry",
    "com.arcadedb.query.sql.antlr": "SQLAntlrParser",
    "com.arcadedb.query.sql.executor": "InternalResultSet IteratorResultSet",
    "com.arcadedb.query.sql.grammar": "SQLLexer SQLParser",
    "com.arcadedb.query.sql.parser": "ExplainResultSet LocalResultSet",
    "com.arcadedb.schema": "LocalSchema",
    "com.arcadedb.serializer": "JsonSerializer",
    "com.arcadedb.serializer.json": "JSONObject",
    "com.sun.management.internal": "HotSpotThreadImpl",
    "java.lang": (
        "Class IllegalArgumentException IndexOutOfBoundsException Runtime StackTraceElement String"
        " Throwable Void"
    ),
    "java.lang.invoke": "MethodHandle MethodHandleProxies MethodHandles MethodHandles$Lookup",
    "java.lang.management": "ManagementFactory ThreadInfo",
    "java.nio.charset": "StandardCharsets",
    "java.util": (
        "ArrayList Collections$UnmodifiableRandomAccessList Enumeration LinkedHashMap Objects"
    ),
    "java.util.concurrent.atomic": "AtomicInteger",
    "java.util.stream": "Collectors Collectors$CollectorImpl ReferencePipeline$Head",
    "org.antlr.v4.runtime": (
        "BailErrorStrategy CharStreams CodePointCharStream CommonTokenStream"
        " NoViableAltException InputMismatchException"
    ),
    "org.antlr.v4.runtime.tree": "TerminalNodeImpl Trees",
    "sun.nio.cs": "UTF_8",
}
"""Classes of which methods or constructors are called, by package."""


_METHODS = """
addAndGet asInterfaceInstance asType begin bind bindTo checkIndex close collect command commit
create createJsonSerializer deleteFile detach dropFile dumpAllThreads existsType filterReturnValue
findAllRuleNodes findNeighborsFromVector findStatic findVirtual freeMemory fromString get getBytes
getCause getChild getChildCount getClass getCommitCount getConfiguration getDimensions getFileId
getFileManager getFilePath getFiles getFunctionLibraries getIndexes getLockName getLockOwnerName
getMessage getName getPageManager getRuntime getSchema getSimpleName getStackTrace getText
getThreadMXBean getThreadName getTransactionIfExists getTriggers getTypeName hasNext insertArguments
isPartiallyCommitted isTransactionActive isWarm iterator join length limit map maxMemory methodType
next open parseScript parseWithTree peek publicLookup put query removeErrorListeners
rollbackAllNested set setErrorHandler setIncludeVertexEdges setUseCollectionSize
setUseCollectionSizeForEdges setValue size stream terminate toList toMap toString totalMemory tree
warmUp
"""
"""The methods that are called, by this package or by the bridge itself for ``str`` and ``for``."""


def wrap_classes() -> None:
    """Wrap the classes, and the parameters and results of their methods and constructors."""
    started = time.monotonic()
    methods = frozenset(_METHODS.split())
    wrapped: set[type] = set()
    for package, names in _CALLED.items():
        for name in names.split():
            try:
                java = jpype.JClass(f"{package}.{name}").class_
            except TypeError:  # another version of the engine or of Java does not have it
                log.debug("there is no class %s.%s", package, name)
                continue
            called = [each for each in java.getMethods() if str(each.getName()) in methods]
            for each in (*called, *java.getConstructors()):
                wrapped.update(map(jpype.JClass, each.getParameterTypes()))
            wrapped.update(jpype.JClass(each.getReturnType()) for each in called)
    log.info("%d Java classes wrapped in %.2f s", len(wrapped), time.monotonic() - started)
