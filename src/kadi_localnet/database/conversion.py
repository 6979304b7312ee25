"""Converts JSON parameters to Java and result sets to JSON.

Each call into Java costs about as much as a small query, so a structure is passed as one JSON text
and a vector as an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import jpype
import numpy as np

from kadi_localnet.database import backend
from kadi_localnet.database.search_input import Numbers

SHORTEST_VECTOR = 8
"""Shorter lists of numbers are not converted to arrays."""

_NUMBERS = {int, float}
_OBJECTS = {dict}


class Parameters:
    """Converts parameters of statements to Java objects.

    A list of at least ``SHORTEST_VECTOR`` finite numbers, with at least one float, becomes a Java
    ``float[]`` if it is a parameter, or a property of a row in a parameter that is a list of rows.
    Lists at deeper levels keep double precision.
    """

    def __init__(self) -> None:
        self._json_object = jpype.JClass("com.arcadedb.serializer.json.JSONObject")
        self._map = jpype.JClass("java.util.Map")
        self._float_array = jpype.JArray(jpype.JFloat)
        self._object_array = jpype.JArray(jpype.JObject)
        self._arrays = {
            "float": (self._float_array, "<f4"),
            "integer": (jpype.JArray(jpype.JInt), "<i4"),
        }

    def to_java(
        self,
        params: Mapping[str, Any] | Sequence[Any],
        numbers: Mapping[str, Mapping[str, Numbers]] | None = None,
    ) -> Any:
        """Return a Java map of named parameters, or an ``Object[]`` of positional ones.

        Args:
            params: The parameters.
            numbers: Further columns of named ones that are lists of rows, by name and column.

        Raises:
            DatabaseError: if a value cannot be represented in JSON.
        """
        if isinstance(params, Mapping):
            result = self._to_map(params)
            for name, columns in (numbers or {}).items():
                self._add(list(result.get(name)), columns)
            return jpype.JObject(result, self._map)
        names = [str(position) for position in range(len(params))]
        values = self._to_map(dict(zip(names, params, strict=True)))
        return self._object_array([values.get(name) for name in names])

    def _add(self, rows: Sequence[Any], columns: Mapping[str, Numbers]) -> None:
        """Add columns to rows."""
        for name, column in columns.items():
            array, type_ = self._arrays[column.type]
            values, start = np.frombuffer(column.block, type_), 0
            for row, length in zip(rows, column.lengths, strict=True):
                if length is not None:
                    row.put(name, array(values[start : start + length]))
                    start += length

    def _to_map(self, params: Mapping[str, Any]) -> Any:
        vectors: list[tuple[list[Any], str, Any]] = []
        plain = self._without_vectors(params, [], vectors)
        for name, value in plain.items():
            if type(value) is list and value and set(map(type, value)) == _OBJECTS:
                plain[name] = [
                    self._without_vectors(row, [name, position], vectors)
                    for position, row in enumerate(value)
                ]
        result = self._json_object(backend.encoded(plain).decode()).toMap()
        for place, name, array in vectors:
            holder = result
            for step in place:
                holder = holder.get(step)
            holder.put(name, array)
        return result

    def _without_vectors(
        self, row: Mapping[str, Any], place: list[Any], vectors: list[tuple[list[Any], str, Any]]
    ) -> dict[str, Any]:
        """Return a row without its vectors, which are added as (place, name, array)."""
        plain = {}
        for name, value in row.items():
            array = self._vector(value)
            if array is None:
                plain[name] = value
            else:
                vectors.append((place, name, array))
        return plain

    def _vector(self, value: Any) -> Any:
        if type(value) is not list or len(value) < SHORTEST_VECTOR:
            return None
        types = set(map(type, value))
        if float not in types or not types <= _NUMBERS:
            return None
        with np.errstate(over="ignore"):
            array = np.asarray(value, dtype=np.float32)
        return self._float_array(array) if np.isfinite(array).all() else None


class ResultWriter:
    """Converts result sets of one database to JSON, as the engine's own server does.

    Args:
        database: The database.
        max_bytes: Maximum size of an answer as JSON.
        threads: Maximum number of threads that read at a time.
    """

    def __init__(self, database: Any, *, max_bytes: int, threads: int) -> None:
        self._collectors = jpype.JClass("java.util.stream.Collectors")
        self._string = jpype.JClass("java.lang.String")
        self._utf8 = jpype.JClass("java.nio.charset.StandardCharsets").UTF_8
        self._exceeded = jpype.JClass("java.lang.IndexOutOfBoundsException")
        self._to_json = _row_to_json(database)
        self._max_bytes = max_bytes
        self._lengths: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        for _ in range(threads):
            self._lengths.put(_counted_length(max_bytes))

    def rows(self, results: Any, limit: int, effect: str) -> backend.Rows:
        """Read a result set to its end and close it; ``effect`` is used in the error text.

        An answer that is too large is not read further than to the row that exceeds the limit.

        Raises:
            DatabaseError: if it has more than ``limit`` rows, or more bytes than allowed.
        """
        length, check = counted = self._lengths.get()
        try:
            length.set(0)
            stream = results.stream().limit(limit + 1).map(self._to_json).peek(check)
            rows = stream.collect(self._collectors.toList())
        except self._exceeded as exc:
            if 0 <= length.get() < self._max_bytes:
                raise
            raise backend.too_many_bytes(self._max_bytes, effect) from exc
        finally:
            self._lengths.put(counted)
            results.close()
        total = int(rows.size())
        if total > limit:
            raise backend.too_many_rows(limit, effect)
        joined = bytes(self._string.join(",", rows).getBytes(self._utf8))
        if len(joined) > self._max_bytes:
            raise backend.too_many_bytes(self._max_bytes, effect)
        return backend.rows_of(joined, total)


def _row_to_json(database: Any) -> Any:
    """Return a ``java.util.function.Function`` that converts a result to JSON text.

    It is composed of method handles, so it runs without a call to Python for each row.
    """
    serializer_class = jpype.JClass("com.arcadedb.serializer.JsonSerializer")
    json_object = jpype.JClass("com.arcadedb.serializer.json.JSONObject")
    object_class = jpype.JClass("java.lang.Object").class_
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    method_type = jpype.JClass("java.lang.invoke.MethodType").methodType
    serializer = serializer_class.createJsonSerializer()
    serializer.setIncludeVertexEdges(False)
    serializer.setUseCollectionSize(False)
    serializer.setUseCollectionSizeForEdges(False)
    lookup = handles.publicLookup()
    serialize = lookup.findVirtual(
        serializer_class,
        "serializeResult",
        method_type(
            json_object.class_,
            jpype.JClass("com.arcadedb.database.Database").class_,
            jpype.JClass("com.arcadedb.query.sql.executor.Result").class_,
        ),
    )
    to_text = lookup.findVirtual(
        json_object, "toString", method_type(jpype.JClass("java.lang.String").class_)
    )
    handle = handles.filterReturnValue(
        handles.insertArguments(serialize, 0, [serializer, database]), to_text
    ).asType(method_type(object_class, object_class))
    return jpype.JClass("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(
        jpype.JClass("java.util.function.Function").class_, handle
    )


def _counted_length(limit: int) -> tuple[Any, Any]:
    """Return a counter and a ``java.util.function.Consumer`` that adds the length of a text to it.

    The consumer throws IndexOutOfBoundsException if the sum is not below ``limit``. Like
    :func:`_row_to_json` it is composed of method handles.
    """
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    method_type = jpype.JClass("java.lang.invoke.MethodType").methodType
    counter_class = jpype.JClass("java.util.concurrent.atomic.AtomicInteger")
    integer, nothing = jpype.JInt.class_, jpype.JClass("java.lang.Void").TYPE
    counter = counter_class()
    lookup = handles.publicLookup()
    length = lookup.findVirtual(jpype.JClass("java.lang.String"), "length", method_type(integer))
    add = lookup.findVirtual(counter_class, "addAndGet", method_type(integer, integer))
    check = lookup.findStatic(
        jpype.JClass("java.util.Objects"), "checkIndex", method_type(integer, integer, integer)
    )
    handle = handles.filterReturnValue(
        handles.filterReturnValue(length, add.bindTo(counter)),
        handles.insertArguments(check, 1, [jpype.JInt(limit)]),
    ).asType(method_type(nothing, jpype.JClass("java.lang.Object").class_))
    consumer = jpype.JClass("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(
        jpype.JClass("java.util.function.Consumer").class_, handle
    )
    return counter, consumer
