"""Random filters over random rows: the engine and the Python predicate find the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.filter_engine import Engine, filter_engine_in, numbers_by_predicate
from tests.examples import examples

from ability_search.filters.parser import parse_filter, source_filter
from ability_search.filters.tree import EVERYTHING, combine

DAY = 1_714_521_600_000  # 2024-05-01T00:00:00Z


@pytest.fixture(scope="module")
def filter_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with filter_engine_in(tmp_path_factory.mktemp("filters")) as engine:
        yield engine


KEYS = ["k", "n", "a.b"]
scalars = st.sampled_from(
    [0, 1, -1, 1.0, 1.5, -0.0, 0.1, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 1e308,
     5e-324, True, False, "", "a", "A", "1", "true", "é", "É", "ß", "ẞ", "Σ", "ς", "😀", "\uffee",
     "a/b", "a\nb", "100%", "x_y", "back\\slash", "'", '"', "2024-05-01"]
)  # fmt: skip
lists = st.lists(st.one_of(scalars, st.none(), st.just(["a"]), st.just({"k": 1})), max_size=3)
inner_maps = st.dictionaries(st.sampled_from(KEYS), st.one_of(scalars, lists), max_size=2)
metadata = st.dictionaries(
    st.sampled_from(KEYS), st.one_of(scalars, st.none(), lists, inner_maps), max_size=3
)
rows = st.lists(
    st.fixed_dictionaries(
        {"source": st.sampled_from(["a", "a/b", "a/b/c.md", "A", "é"]), "metadata": metadata},
        optional={
            "title": st.sampled_from(["a", "A", "", "ß", None]),
            "createdAt": st.sampled_from([0, -1, DAY, DAY + 1, None]),
        },
    ),
    min_size=1,
    max_size=40,
)
ordered = scalars.filter(lambda value: not isinstance(value, bool))
pieces = st.lists(st.sampled_from(["%", "_", "a", "\\\\", "\\%", "é", "b"]), max_size=4)
patterns = st.builds("".join, pieces)
conditions = st.one_of(
    scalars,
    st.none(),
    st.lists(scalars, max_size=2),
    st.dictionaries(st.sampled_from(["$eq", "$ne", "$contains"]), scalars, min_size=1, max_size=2),
    st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), ordered, min_size=1),
    st.dictionaries(
        st.sampled_from(["$in", "$nin"]), st.lists(st.one_of(scalars, st.none()), max_size=3),
        min_size=1, max_size=1,
    ),
    st.builds(lambda value: {"$exists": value}, st.booleans()),
    st.builds(lambda value: {"$like": value}, patterns),
    st.builds(lambda value: {"$not": {"$gte": value}}, ordered),
)  # fmt: skip
texts = scalars.filter(lambda value: isinstance(value, str))
days = st.sampled_from(["1970-01-01", "2024-05-01", "2024-05-01T00:00:00Z"])
leaves = st.one_of(
    st.dictionaries(
        st.sampled_from(["metadata.k", "metadata.n", "metadata.a\\.b", "metadata.k.n"]),
        conditions,
        min_size=1,
        max_size=2,
    ),
    st.dictionaries(
        st.sampled_from(["source", "title"]),
        st.one_of(
            texts,
            st.dictionaries(
                st.sampled_from(["$gt", "$lte", "$ne", "$contains"]), texts, min_size=1
            ),
            st.builds(lambda value: {"$like": value}, patterns),
        ),
        min_size=1,
    ),
    st.builds(
        lambda op, day: {"createdAt": {op: day}},
        st.sampled_from(["$eq", "$ne", "$gt", "$lt", "$gte", "$lte"]),
        days,
    ),
)
documents = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda part: {"$not": part}, inner),
        st.builds(lambda parts: {"$or": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"$and": parts}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)
globs = st.lists(
    st.lists(st.sampled_from(["a", "b", "/", "?", "*", "**", "**/", "c.md", "[a-b]"]), min_size=1)
    .map("".join).filter(lambda glob: len(glob) < 40),
    min_size=1, max_size=2,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.engine
@settings(
    max_examples=examples(60),
    derandomize=True,
)
@given(rows=rows, asked=st.lists(documents, min_size=6, max_size=10), include=globs, exclude=globs)
def test_engine_and_predicate_agree(
    filter_engine: Engine,
    rows: list[dict[str, Any]],
    asked: list[dict[str, Any]],
    include: list[str],
    exclude: list[str],
) -> None:
    filter_engine.fill(rows)
    assert filter_engine.numbers(EVERYTHING) == list(range(len(rows)))
    filters = [parse_filter(document, max_depth=16) for document in asked]
    filters += [source_filter(include, None), source_filter(None, exclude)]
    filters.append(combine(filters[0], source_filter(include, exclude)))
    for filter in filters:
        assert filter_engine.numbers(filter) == numbers_by_predicate(filter, rows), filter
