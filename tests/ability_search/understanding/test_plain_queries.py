from pathlib import Path

from ability_search.understanding.intent import Intent, understand

QUERIES = Path(__file__).parents[2] / "data" / "plain_queries.txt"
NOW = 1_774_400_000_000


def test_queries_that_exclude_nothing_and_name_no_time_are_taken_as_they_stand() -> None:
    lines = QUERIES.read_text(encoding="utf-8").splitlines()
    plain = [line for line in lines if line and not line.startswith("#")]
    understood = [understand(query, now=NOW) for query in plain]
    assert len(plain) > 200
    assert understood == [Intent(query, query) for query in plain]


def test_a_text_to_compare_with_is_taken_as_it_stands() -> None:
    short = "notes on caching from last week besides Redis"
    assert understand(short, now=NOW).excluded == ("Redis",)
    long = " ".join([short, *["and what else was said there"] * 8])
    assert understand(long, now=NOW) == Intent(long, long)
    endless = "notes besides Redis " + "x" * 2000
    assert understand(endless, now=NOW) == Intent(endless, endless)
