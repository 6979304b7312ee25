import pytest

from ability_search.extensions.understanding.query_understanding import find_order


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("latest deployment of the cart service", "newest"),
        ("What's the LATEST on BigRetail?", "newest"),
        ("most recent incident", "newest"),
        ("what changed recently", "newest"),
        ("recent changes, as of the newest notes", "newest"),
        ("what was the last incident", "newest"),
        ("when did we last rotate the keys", "newest"),
        ("what is slow lately", "newest"),
        ("which service had its last review, and when", "newest"),
        ("can you show me the latest incident", "newest"),
        ("oldest configuration still in use", "oldest"),
        ("when did we first rotate the keys", "oldest"),
        ("what was the first incident", "oldest"),
        ("what was changed before the last outage", None),
        ("earliest mention of the merger", "oldest"),
        ("die neueste Rechnung vom Elektriker", "newest"),
        ("le contrat le plus ancien", "oldest"),
        ("la factura más reciente", "newest"),
        ("最新的发票", "newest"),
        ("the 'oldest' joke in the newest magazine", "newest"),
    ],
)
def test_queries_for_the_newest_or_the_oldest(query: str, order: str | None) -> None:
    assert find_order(query) == order


@pytest.mark.parametrize(
    "query",
    [
        "",
        "deployment of the cart service",
        "done by Friday at the latest",
        "at the earliest convenience",
        "latest possible start",
        "docker pull registry/image:latest",
        "what does latest.json hold",
        "the non-latest one",
        "how to find the newest file in a directory",
        "how do I get the latest commit",
        "can I undo the most recent change",
        "does it run on the latest kernel",
        "what is the last element of a list",
        "the latest results are poor",
        "install the latest version of node",
        "what was her last name",
        "last time zone in the list",
        "The last time we looked, it was broken.",
        "the last mile",
        "the first release candidate",
        "both the oldest and the newest notes",
        '"latest news" in titles',
        "breakfast at last",
    ],
)
def test_queries_for_neither_or_both(query: str) -> None:
    assert find_order(query) is None
