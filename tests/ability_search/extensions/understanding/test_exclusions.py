"""Exclusions in queries: single sentences, and collections of sentences in five languages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.understanding.exclusion_forms import ALL_FORMS, Form, forms_for
from ability_search.extensions.understanding.exclusions import find_exclusions, has_content

DATA = Path(__file__).parents[3] / "data"
LANGUAGES = ("en", "de", "fr", "es", "zh")

EXCLUDING = [
    ("login notes besides OAuth and SSO", "login notes", ["OAuth", "SSO"]),
    ("services that aren't about billing", "services", ["billing"]),
    ("works for choir except those by Haydn", "works for choir", ["Haydn"]),
    ("painters who never used oil", "painters", ["oil"]),
    ("any city but Rome", "any city", ["Rome"]),
    ("a holiday anywhere but Rome", "a holiday anywhere", ["Rome"]),
    ("holiday ideas, preferably not beaches", "holiday ideas", ["beaches"]),
    ("rivers in Spain (excluding the Ebro)", "rivers in Spain", ["Ebro"]),
    ("rivers in Spain, the Ebro not included", "rivers in Spain", ["Ebro"]),
    ("rivers in Spain with the Ebro and the Tagus left out", "rivers in Spain", ["Ebro", "Tagus"]),
    ("rivers in Spain. Not the Ebro.", "rivers in Spain.", ["Ebro"]),
    ("rivers in Spain. Please exclude the Ebro.", "rivers in Spain.", ["Ebro"]),
    ("API guidelines other than paging", "API guidelines", ["paging"]),
    ("rule changes that aren't office hours", "rule changes", ["office hours"]),
    ("storage work besides the backup project", "storage work", ["backup project"]),
    (
        "everything we know about caching without Redis",
        "everything we know about caching",
        ["Redis"],
    ),
    ("pasta recipes without nuts or dairy", "pasta recipes", ["nuts", "dairy"]),
    (
        "monitoring tools excluding Datadog, Grafana and Loki",
        "monitoring tools",
        ["Datadog", "Grafana", "Loki"],
    ),
    ("cities excluding Rome, Paris, and Oslo.", "cities.", ["Rome", "Paris", "Oslo"]),
    (
        "what databases do we use besides Postgres for storage?",
        "what databases do we use for storage?",
        ["Postgres"],
    ),
    (
        "Besides rent and food, what did we spend money on",
        "what did we spend money on",
        ["rent", "food"],
    ),
    ("which services use Redis but not Postgres", "which services use Redis", ["Postgres"]),
    ("meeting notes not about hiring", "meeting notes", ["hiring"]),
    ("articles on kubernetes, not docker", "articles on kubernetes", ["docker"]),
    ("security incidents except the payments outage", "security incidents", ["payments outage"]),
    ("jaguar speed -car", "jaguar speed", ["car"]),
    ("python web frameworks -django -flask", "python web frameworks", ["django", "flask"]),
    ("identity providers -SSO", "identity providers", ["SSO"]),
    ('apple -"iphone repair" store', "apple store", ["iphone repair"]),
    ('"memory leak" fixes -“node exporter”', '"memory leak" fixes', ["node exporter"]),
    ("show me caching notes, no Redis", "show me caching notes", ["Redis"]),
    (
        "I'm looking for Python examples rather than Java",
        "I'm looking for Python examples",
        ["Java"],
    ),
    ("give me notes on deployment instead of testing", "give me notes on deployment", ["testing"]),
    ("backend tickets that don’t involve billing", "backend tickets", ["billing"]),
    ("what did the board decide apart from the budget?", "what did the board decide?", ["budget"]),
    ("emails with the exception of newsletters", "emails", ["newsletters"]),
    ("docs on login that do not mention SAML", "docs on login", ["SAML"]),
    ("java tutorials NOT javascript", "java tutorials", ["javascript"]),
    ("changes unrelated to the migration", "changes", ["migration"]),
    ("complaints which are not related to shipping", "complaints", ["shipping"]),
    ('team decisions other than the "four day week"', "team decisions", ["four day week"]),
    ("contracts excluding NDAs", "contracts", ["NDAs"]),
    ("papers on turbulence with no wind tunnel data", "papers on turbulence", ["wind tunnel data"]),
    ("side effects of statins other than muscle pain", "side effects of statins", ["muscle pain"]),
    ("clinical trials excluding children (phase 2)", "clinical trials (phase 2)", ["children"]),
    ("rental law except commercial leases", "rental law", ["commercial leases"]),
    ("holiday ideas, and not hotels; cheap", "holiday ideas; cheap", ["hotels"]),
    (
        "papers that are about turbulence excluding jets",
        "papers that are about turbulence",
        ["jets"],
    ),
    ("show me caching notes without code samples", "show me caching notes", ["code samples"]),
    ("Apart from Nirvana, which bands were loud?", "which bands were loud?", ["Nirvana"]),
    ("recipes besides soup, soup and Soup", "recipes", ["soup"]),
    ("job queues excluding Kafka, RabbitMQ", "job queues", ["Kafka", "RabbitMQ"]),
    (
        "dessert recipes excluding nuts, cream, butter",
        "dessert recipes",
        ["nuts", "cream", "butter"],
    ),
    ("articles on caching except Redis, my notes first", None, ["Redis"]),
    ("databases in use, anything but Postgres", "databases in use, anything", ["Postgres"]),
    ("everything in the news but the sports pages", "everything in the news", ["sports pages"]),
    ("database notes not related to MongoDB", "database notes", ["MongoDB"]),
    ("decisions that have nothing to do with money or rent", None, ["money", "rent"]),
    ("pasta sauces, no nuts please", "pasta sauces", ["nuts"]),
    ("soup ideas, skip anything with cream", "soup ideas", ["cream"]),
    ("spaghetti, leave out meat and clams", "spaghetti", ["meat", "clams"]),
    ("what was discussed in meetings, leaving the budget aside", None, ["budget"]),
    ("list cache layers (exclude redis)", "list cache layers", ["redis"]),
    ("message queues that don't use Kafka", "message queues", ["Kafka"]),
    ("soups that don't contain meat", "soups", ["meat"]),
    ("city trips that are not at the beach", "city trips", ["beach"]),
    ("recommend a film that's not a comedy", "recommend a film", ["comedy"]),
    ("how to travel there other than by plane", "how to travel there", ["plane"]),
    ("trips to Berlin, not by car or flight", "trips to Berlin", ["car", "flight"]),
    ("show me tickets, just not the login ones", "show me tickets", ["login"]),
    ("test tools, but neither pytest nor selenium", "test tools", ["pytest", "selenium"]),
    ("queues, but nothing that runs on redis", "queues", ["redis"]),
    ("I don't eat beef. What soup can I make?", "What soup can I make?", ["beef"]),
    ("hiking, minus the dog tours", "hiking", ["dog tours"]),
    ("texts about investing but not into crypto", "texts about investing", ["into crypto"]),
]


@pytest.mark.parametrize(("query", "remaining", "phrases"), EXCLUDING)
def test_exclusions_are_found(query: str, remaining: str | None, phrases: list[str]) -> None:
    found = find_exclusions(query)
    assert list(found.excluded) == phrases
    assert remaining is None or found.remaining == remaining


NOT_EXCLUDING = """
The server was restarted at noon. Not a crash.
Login page broken. No errors in the log.
why is X not working
how do I not lose data
cannot connect
no such file or directory
"not found" error
the message "everything except tests failed"
non-blocking IO
state-of-the-art models
offset -1
ls -la
git push --force
grep pattern | sort -unique
passwordless login without password
how to run docker without sudo
run docker without sudo
docker without sudo
deploy without downtime
database migration without downtime
schema change without losing data
git commit without editor
base class for manipulating paths without I/O
which services run without authentication
our jobs that are run without supervision
materialized view instead of 6-table join
Redis rather than Memcached decision
tests pass locally but not in CI
why use Postgres but not MySQL
agenda items, last but not least
try except pass python
IF NOT EXISTS create table
NOT NULL constraint
ERROR: FILE NOT FOUND
not only performance but also security
none other than John
wifi connected but no internet
hdmi connected, no signal
show me how this works, no matter what
besides that what else
what else besides
everything except
everything except tests
without
-
is it not about time
how do I select all columns except one
exclude node_modules from tsconfig
java -jar
find . -name
tar -xzf
-fix the bug
do NOT delete this file
a value that isn't a number
services that aren't responding
tests that are not passing
databases that aren't relational or that aren't available
the server is up but not responding
x - y
x -y
temperature -5 to 10
-QQQ in a log
can I use git without github
no-code tools
what happens without a leader
not about to fail
not just auth
nothing but trouble
zero downtime deploy with no restart
we are not sure about this
user did not receive email
the contract does not include support
this talk is not about money
methods -dash exact or approximate -dash are presently available
can it be integrated numerically, using suitable transformations, without iteration
rollback strategy, not documented
curl -sSL
don't panic
that's not what I meant
forms of flow, apart from being homogeneous
Statins, but not fibrates, reduce mortality.
All proteins except histones are removed
Antibiotics other than penicillin reduce mortality
Mice without p53 develop tumors
patients without diabetes
countries without rivers
services that aren't about to fail
features that don't work in Safari
Ethernet but no wifi
a ring without unity
There was rain. Every day except Sunday it stopped.
When files are merged, all but X are kept, except for Y.
remove all files except .txt
vim delete all lines except matches
Unix: kill all processes but not the shell
Return every element besides null values
should people who are not citizens vote
Enable -Wall -Wextra
XOR with NOT gates
elements except the first
filter lists excluding None
rates that are not given by the analysis
everything except what the committee of the town council of Oslo decided there
""".strip().splitlines()


@pytest.mark.parametrize("query", [*NOT_EXCLUDING, "", "besides X"])
def test_queries_without_exclusions(query: str) -> None:
    found = find_exclusions(query)
    assert (found.remaining, found.excluded, found.spans) == (query, (), ())


WORDS = """
    auth without besides not but -x -java "a" "b c" , . except no and or excluding that isn't about
    X other than how show me NOT find ls ’ “q” rather instead of ; -“r”
"""
words = st.sampled_from(WORDS.split())


@given(st.lists(words, max_size=14).map(" ".join) | st.text())
def test_any_query_keeps_content_and_valid_offsets(query: str) -> None:
    found = find_exclusions(query)
    assert bool(found.excluded) == bool(found.spans)
    assert not found.excluded or has_content(found.remaining)
    ends = [0, *(end for span in found.spans for end in span), len(query)]
    assert ends == sorted(ends)
    for phrase in found.excluded:
        assert any(phrase in query[start:end] for start, end in found.spans)


def test_long_repetitive_queries_are_read() -> None:
    for repeated in ("a, ", "besides ", "-x ", '"', "  ", "not a, b and "):
        query = "notes besides " + repeated * (2000 // len(repeated))
        assert find_exclusions(query).remaining


def lines(name: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file below ``# language``, each with its language."""
    language = ""
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        if line.removeprefix("# ") in LANGUAGES:
            language = line.removeprefix("# ")
        elif line and not line.startswith("#"):
            yield language, line


PLAIN = [line for _, line in lines("no_exclusions.txt")]
CUES = [line for _, line in lines("exclusion_forms.txt")]


def topics() -> dict[str, list[tuple[str, str]]]:
    """Return pairs of a topic and a phrase to exclude, by language."""
    found = {}
    for _, line in lines("exclusion_topics.txt"):
        language, _, rest = line.partition(": ")
        one, other = ([part.strip() for part in side.split(";")] for side in rest.split(" | "))
        found[language] = list(zip(one, other, strict=True))
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_nearly_all_forms_are_recognized_and_removed(language: str) -> None:
    pairs = topics()[language]
    missed = []
    forms = [form for own, form in lines("exclusion_forms.txt") if own == language]
    for form in forms:
        for topic, phrase in pairs:
            found = find_exclusions(form.replace("{X}", topic).replace("{Y}", phrase))
            name = phrase.split()[-1]  # without articles
            excluded = " ".join(found.excluded)
            if name not in excluded or name in found.remaining or topic[-4:] in excluded:
                missed.append((form, phrase, excluded))
    assert len(forms) >= 15
    assert len(missed) <= 0.02 * len(forms) * len(pairs), missed


def test_nearly_nothing_is_excluded_without_an_exclusion() -> None:
    wrong = [line for line in PLAIN if find_exclusions(line).excluded]
    assert len(PLAIN) > 150
    assert len(wrong) <= 0.02 * len(PLAIN), wrong


@pytest.mark.parametrize("form", ALL_FORMS, ids=lambda form: form.pattern.pattern[:40])
def test_a_form_needs_its_words(form: Form) -> None:
    assert not form.pattern.search("caching of sessions")
    assert form.pattern.groupindex.keys() <= {"phrase", "kept"}


@given(
    st.sampled_from([*CUES, *PLAIN, *(text for text, *_ in EXCLUDING)]),
    st.sampled_from(PLAIN),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from([str.lower, str.upper, str.title, str.strip]),
)
def test_a_query_with_any_form_has_one_of_all(
    text: str, other: str, start: int, end: int, cased: Callable[[str], str]
) -> None:
    text = cased(f"{other[:start]} {text[start // 2 : start // 2 + end]}{other[end:]}")
    has_one = any(form.pattern.search(text) for form in ALL_FORMS)
    assert forms_for(text) == (ALL_FORMS if has_one else [])


@pytest.mark.parametrize(
    ("excluding", "plain"),
    [
        ("show me notes on logins without passwords", "how to log in without a password"),
        ("show me cache notes without Redis", "show me cache notes without doubt"),
        ("services that aren't databases", "services that aren't responding"),
        ("除了英语以外的语言", "除了英语之外他还会什么语言"),
        ("Städte außer Rom", "Städte außerhalb von Rom"),
        ("caching all -draft", "caching --all -draft"),
        ("How did Rome (except its laws) change?", "how do I list all except hidden files"),
    ],
)
def test_what_looks_alike_excludes_nothing(excluding: str, plain: str) -> None:
    assert find_exclusions(excluding).excluded
    assert not find_exclusions(plain).excluded


def test_brackets_and_sentences_of_their_own_are_removed_whole() -> None:
    found = find_exclusions("How did Bach (excluding his Mass (in B minor)) compare? And Mozart?")
    assert found.remaining == "How did Bach compare? And Mozart?"
    found = find_exclusions("Cities in Italy. Do not mention Rome.")
    assert found.remaining == "Cities in Italy."
    assert found.excluded == ("Rome",)
