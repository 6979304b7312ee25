from __future__ import annotations

from pathlib import Path

import pytest
from tests.ability_search.extensions.evaluation.sets import CORPUS, QRELS, QUERIES, write_set

from ability_search.errors import InvalidInput
from ability_search.extensions.evaluation.judged_sets import JudgedQuery, read_dataset

BLANK = {"_id": "d4", "title": "", "text": " "}
TITLE_ONLY = {"_id": "d5", "title": "A title", "text": ""}


@pytest.mark.parametrize("judgements", ["qrels.tsv", "qrels/test.tsv"])
def test_a_set_is_read_with_its_judgements(tmp_path: Path, judgements: str) -> None:
    dataset = read_dataset(write_set(tmp_path, judgements=judgements))
    assert dataset.sources == {"d1", "d2", "d3"}
    assert dataset.qrels == {"q1": {"d1": 1}, "q2": {"d2": 2, "d3": 0}}
    assert [query.id for query in dataset.queries] == ["q1", "q2"]
    assert dataset.negatives == (
        JudgedQuery(_id="q3", text="who won the race", category="none", negative=True),
    )
    assert (dataset.description.blank, dataset.description.unjudged) == (0, 0)
    assert list(dataset.documents())[1] == {
        "source": "d2",
        "title": "Bread",
        "content": "The dough rests for an hour.",
        "metadata": {"n": 1},
    }


def test_a_document_without_text_is_left_out_and_one_with_a_title_is_its_title(
    tmp_path: Path,
) -> None:
    dataset = read_dataset(write_set(tmp_path, [*CORPUS, BLANK, TITLE_ONLY]))
    assert dataset.description.blank == 1
    assert dataset.sources == {"d1", "d2", "d3", "d5"}
    *_, last = dataset.documents()
    assert (last["source"], last["content"]) == ("d5", "A title")


def test_queries_without_a_relevant_document_are_counted_not_asked(tmp_path: Path) -> None:
    graded_zero = {"_id": "q4", "text": "x"}
    unjudged = {"_id": "q5", "text": "x"}
    queries = [*QUERIES, graded_zero, unjudged]
    dataset = read_dataset(write_set(tmp_path, CORPUS, queries, [*QRELS, ("q4", "d1", 0)]))
    assert [query.id for query in dataset.queries] == ["q1", "q2"]
    assert dataset.description.unjudged == 2
    assert "q4" not in dataset.qrels


def test_numbers_as_ids_blank_lines_and_missing_fields_are_taken(tmp_path: Path) -> None:
    write_set(tmp_path, qrels=[("1", "7", 1)])
    (tmp_path / "corpus.jsonl").write_text('\n{"_id": 7, "text": "t", "metadata": null}\n\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": 1, "text": "q"}\r\n')
    dataset = read_dataset(tmp_path)
    assert (dataset.sources, dataset.qrels) == (frozenset({"7"}), {"1": {"7": 1}})


def test_a_query_may_say_when_it_is_asked(tmp_path: Path) -> None:
    own = [{**QUERIES[0], "asOf": "2026-03-25"}, *QUERIES[1:]]
    first, dated = read_dataset(write_set(tmp_path)), read_dataset(write_set(tmp_path, CORPUS, own))
    assert [query.as_of for query in dated.queries] == ["2026-03-25", None]
    assert dated.corpus_digest == first.corpus_digest
    assert dated.description.digest != first.description.digest


def test_a_mark_of_the_byte_order_is_no_part_of_the_text(tmp_path: Path) -> None:
    expected = read_dataset(write_set(tmp_path))
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"):
        (tmp_path / name).write_text((tmp_path / name).read_text(), encoding="utf-8-sig")
    dataset = read_dataset(tmp_path)
    assert list(dataset.documents()) == list(expected.documents())
    assert (dataset.queries, dataset.qrels) == (expected.queries, expected.qrels)


def test_the_digest_of_the_corpus_follows_it_alone(tmp_path: Path) -> None:
    first = read_dataset(write_set(tmp_path))
    judged_anew = read_dataset(write_set(tmp_path, qrels=[*QRELS, ("q1", "d2", 1)]))
    assert judged_anew.corpus_digest == first.corpus_digest
    assert judged_anew.description.digest != first.description.digest
    other = read_dataset(write_set(tmp_path, CORPUS[::-1]))
    assert other.corpus_digest != first.corpus_digest


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a directory"):
        read_dataset(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match=r"no corpus\.jsonl.*no qrels\.tsv or qrels/test\.tsv"):
        read_dataset(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "t"}\n{"_id": ', r"corpus\.jsonl:2: .*JSON"),
        ("corpus.jsonl", '{"_id": "d1"}\n', r"corpus\.jsonl:1: text: Field required"),
        ("corpus.jsonl", '{"text": "t"}\n', r"corpus\.jsonl:1: _id: Field required"),
        ("corpus.jsonl", '{"_id": "", "text": "t"}\n', r"corpus\.jsonl:1: _id"),
        ("corpus.jsonl", '{"_id":"a","text":"t"}\n' * 2, r"corpus\.jsonl:2: duplicate _id 'a'"),
        ("corpus.jsonl", "\n", r"corpus\.jsonl: is empty"),
        ("corpus.jsonl", "[1]\n", r"corpus\.jsonl:1: "),
        ("corpus.jsonl", '{"_id": "d1", "text": " "}\n', r"corpus\.jsonl: no document has text"),
        (
            "corpus.jsonl",
            '{"_id": "d1", "text": "t"}\n{"_id": "%s", "text": "t"}\n' % ("d" * 1025),
            r"corpus\.jsonl:2: _id: .*1024",
        ),
        (
            "corpus.jsonl",
            '{"_id": "d1", "title": "%s", "text": "t"}\n' % ("t" * 4097),
            r"corpus\.jsonl:1: title: .*4096",
        ),
        ("queries.jsonl", "", r"queries\.jsonl: is empty"),
        ("queries.jsonl", '{"_id": "q1", "text": " "}\n', r"queries\.jsonl:1: text"),
        (
            "queries.jsonl",
            '\n{"_id": "q1", "text": "t", "asOf": "March"}\n',
            r"queries\.jsonl:2: asOf: is not a date or an instant",
        ),
        ("qrels.tsv", "", r"qrels\.tsv:1: expected a header"),
        ("qrels.tsv", "q1\td1\t1\n", r"qrels\.tsv:1: expected a header"),
        ("qrels.tsv", "q\tc\ts\n\nq1\td1\n", r"qrels\.tsv:3: expected query-id, corpus-id, score"),
        ("qrels.tsv", "q\tc\ts\nq1\td1\tyes\n", r"qrels\.tsv:2: .*whole number"),
        ("qrels.tsv", "q\tc\ts\nq9\td1\t1\n", r"qrels\.tsv:2: no query 'q9' in queries\.jsonl"),
        ("qrels.tsv", "q\tc\ts\nq1\td9\t1\n", r"qrels\.tsv:2: no document 'd9' in corpus\.jsonl"),
        ("qrels.tsv", "q\tc\ts\nq3\td1\t1\n", r"qrels\.tsv:2: query 'q3' is negative"),
        ("qrels.tsv", "q\tc\ts\nq1\td1\t1\nq1\td1\t2\n", r"qrels\.tsv:3: 'd1' is judged twice"),
        ("qrels.tsv", "q\tc\ts\n", r"qrels\.tsv: no query has a relevant document"),
        ("qrels.tsv", "q\tc\ts\nq1\td1\t0\n", r"qrels\.tsv: no query has a relevant document"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(
    tmp_path: Path, file: str, text: str, expected: str
) -> None:
    write_set(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(InvalidInput, match=expected):
        read_dataset(tmp_path)


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl", "qrels.tsv"])
def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path, file: str) -> None:
    write_set(tmp_path)
    (tmp_path / file).write_bytes(b'{"_id": "\xff", "text": "t"}\n')
    with pytest.raises(InvalidInput, match=file):
        read_dataset(tmp_path)
