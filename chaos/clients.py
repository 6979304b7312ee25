"""A client: it calls the tools on collections of its own and compares the answers with a model."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from chaos import texts
from chaos.callers import CODES, PASSING, Caller, Outcome
from chaos.expectations import Expectation, State, Violation
from chaos.ledger import Ledger
from chaos.stack_process import Command, StackProcess
from chaos.steps import FILES, SOURCES, Parameters, Step

CALL_SECONDS = 45.0
PATIENCE_SECONDS = 60.0
"""How long after the last fault a read may fail that has begun in it."""
HEALING_SECONDS = 10.0
"""How long a deviation is watched, to report whether it lasts."""
_PAUSE = 0.3

Schemas = Mapping[str, Draft202012Validator]


class Client:
    """A client with its own collections, so that it knows what they must hold.

    Args:
        number: Its number; its collections are ``cN-a`` and so on.
        callers: Its ways to call a tool.
        schemas: Result schema of each tool.
        stack: For exports, imports and files.
        ledger: Receives what happens.
    """

    def __init__(
        self,
        number: int,
        callers: Mapping[str, Caller],
        schemas: Schemas,
        stack: StackProcess,
        ledger: Ledger,
    ) -> None:
        self.owner = f"c{number}"
        self._callers = callers
        self._schemas = schemas
        self._stack = stack
        self._ledger = ledger
        self._expected: dict[str, Expectation] = {}
        self._derived: set[str] = set()
        """Collections that may hold kinds, which collection-info counts as chunks."""
        self._transport = "kadi"
        self._handlers: Mapping[str, Callable[[Parameters], Awaitable[str]]] = {
            "index": self._index,
            "index-file": self._index_file,
            "query": self._query,
            "similar": self._similar,
            "delete": self._delete,
            "delete-collection": self._delete_collection,
            "reindex": self._reindex,
            "collections": self._collections,
            "info": self._info,
            "verify": self._verify,
            "transfer": self._transfer,
        }

    async def run(self, step: Step) -> None:
        """Run one step, and record what became of it."""
        after = await self._ledger.issue()
        self._transport = step.parameters["transport"]
        began = time.monotonic()
        try:
            outcome = await self._handlers[step.operation](step.parameters)
        except Violation as violation:
            outcome = "violation"
            self._ledger.violated(step, violation)
        self._ledger.wrote(step, after, outcome, time.monotonic() - began)

    async def verify_all(self, step: Step) -> None:
        """Compare every collection as a whole; call it when nothing else is running."""
        for collection in list(self._expected):
            try:
                await self._check_collection(collection)
            except Violation as violation:
                self._ledger.violated(step, violation)

    # Calls

    async def _call(self, tool: str, **tool_input: Any) -> Outcome:
        weather = self._ledger.weather
        epoch = weather.epoch()
        outcome = await self._callers[self._transport].call(tool, tool_input, CALL_SECONDS)
        calm = epoch is not None and weather.epoch() == epoch
        self._ledger.called(self._transport, tool, outcome, calm=calm)
        about = f"{tool} over {self._transport}"
        if outcome.answer is not None:
            error = next(self._schemas[tool].iter_errors(outcome.answer), None)
            if error is not None:
                raise Violation(
                    f"{about} to answer by its schema", f"{error.json_path}: {error.message[:300]}"
                )
        elif outcome.code != "lost" and (outcome.code not in CODES or not outcome.hint):
            raise Violation(
                f"a known code and a hint from {about}", f"{outcome.code!r}: {outcome.text}"
            )
        # A rebuild in the background makes another one busy, and may be cancelled.
        expected = tool == "search-reindex" and outcome.code in ("busy", "cancelled")
        if calm and not (outcome.ok or outcome.refused or expected):
            raise Violation(
                f"{about} to succeed while nothing is broken",
                f"{outcome.code} after {outcome.seconds:.1f} s: {outcome.text}",
            )
        return outcome

    async def _read(self, tool: str, **tool_input: Any) -> Outcome:
        """Call until there is an answer, or a refusal that a repetition does not change."""
        started = time.monotonic()
        while True:
            outcome = await self._call(tool, **tool_input)
            if outcome.ok or (outcome.refused and outcome.code not in PASSING):
                return outcome
            calm_since = max(started, self._ledger.weather.calm_since())
            if time.monotonic() > calm_since + PATIENCE_SECONDS:
                raise Violation(
                    f"{tool} to answer within {PATIENCE_SECONDS:g} s of the last fault",
                    f"{outcome.code}: {outcome.text}",
                )
            await asyncio.sleep(_PAUSE)

    # What is stored

    def _expectation(self, collection: str) -> Expectation:
        return self._expected.setdefault(collection, Expectation())

    async def _hits_of(self, collection: str, source: str) -> list[dict[str, Any]]:
        """Return the hits with the word of a source, by their number; none without a collection."""
        found = await self._read(
            "search-query",
            collection=collection,
            query=texts.source_word(self.owner, source),
            mode="keyword",
            limit=100,
            understand=False,
        )
        if found.answer is None:
            if found.code != "not_found":
                raise Violation("a search for a word to be accepted", f"{found.code}: {found.text}")
            return []
        return sorted(found.answer["results"], key=lambda hit: int(hit["chunkIndex"]))

    async def _state_of(self, collection: str, source: str) -> State:
        """Return the version of a source that a search finds, all of it and once."""
        hits = await self._hits_of(collection, source)
        if not hits:
            return None
        others = {hit["source"] for hit in hits} - {source}
        if others:
            raise Violation(f"the word of {source!r} in that source only", f"it is in {others}")
        numbers = [hit["chunkIndex"] for hit in hits]
        totals = {hit["totalChunks"] for hit in hits}
        about = f"{source!r} in {collection}"
        if totals != {len(hits)} or numbers != list(range(len(hits))):
            raise Violation(
                f"the chunks of {about} once and completely",
                f"{numbers} of {sorted(totals)}",
                kind="twice",
            )
        contents = [hit["content"] for hit in hits]
        version = texts.version_of(self.owner, source, contents)
        if version is None:
            raise Violation(f"{about} as one of its versions", str(contents)[:2_000])
        recorded = {hit["metadata"].get("version", version) for hit in hits}
        if recorded != {version}:
            raise Violation(f"metadata of version {version} of {about}", str(recorded))
        return version

    async def _compare(self, collection: str, sources: Sequence[str]) -> dict[str, State]:
        """Compare some sources with what they may be.

        Raises:
            Violation: with the note whether the deviation lasts.
        """
        expectation = self._expectation(collection)
        first: Violation | None = None
        deadline = time.monotonic() + HEALING_SECONDS
        seen: dict[str, State] = {}
        while True:
            try:
                seen = {source: await self._state_of(collection, source) for source in sources}
                expectation.observe(seen, time.monotonic())
            except Violation as violation:
                first = first or violation
            else:
                break
            if time.monotonic() > deadline:
                expectation.adopt(seen)
                text = f"{first.seen}; still {seen} after {HEALING_SECONDS:g} s"
                raise Violation(first.expected, text, kind=first.kind) from first
            await asyncio.sleep(_PAUSE)
        if first is not None:
            text = f"{first.seen}; as expected soon after"
            raise Violation(first.expected, text, kind=first.kind)
        self._ledger.checks["sources"] += len(sources)
        return seen

    async def _check_collection(self, collection: str) -> None:
        """Compare the whole collection: words, vectors, list of sources, number of chunks."""
        pool = FILES if collection.endswith("-f") else SOURCES
        prefix = f"{self.owner}/" if collection.endswith("-f") else ""
        seen = await self._compare(collection, [prefix + name for name in pool])
        present = {source for source, state in seen.items() if state is not None}
        if not self._expectation(collection).settled(time.monotonic()):
            return
        listed, chunks = await self._listed(collection)
        if listed != sorted(present):
            raise Violation(f"{collection} to list {sorted(present)}", str(listed), kind="lost")
        counted = 0
        for source in sorted(present):
            counted += await self._found_by_vector(collection, source)
        if counted != chunks and collection not in self._derived:
            seen_chunks = f"{chunks} are listed"
            raise Violation(f"{collection} to have {counted} chunks", seen_chunks, kind="twice")
        self._ledger.checks["collections"] += 1

    async def _listed(self, collection: str) -> tuple[list[str], int]:
        sources: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self._read(
                "search-collection-info", collection=collection, limit=3, **cursor
            )
            if page.answer is None:
                return [], 0
            sources += page.answer["sources"]
            if "nextCursor" not in page.answer:
                return sorted(sources), page.answer["chunks"]
            cursor = {"cursor": page.answer["nextCursor"]}

    async def _found_by_vector(self, collection: str, source: str) -> int:
        """Find a source by the vector of its first chunk; return the number of its chunks."""
        chunk = f"{collection}:{source}:0"
        similar = await self._read("search-similar", collection=collection, chunkId=chunk, limit=3)
        if similar.answer is None:
            raise Violation(f"the chunk {chunk}", f"{similar.code}: {similar.text}")
        if similar.answer["sourceChunk"] != chunk:
            raise Violation(f"neighbours of {chunk}", f"those of {similar.answer['sourceChunk']}")
        hits = await self._hits_of(collection, source)
        if not hits:
            raise Violation(f"the word of {source!r} to be found", "no hit", kind="lost")
        text = hits[0]["content"]
        found = await self._read(
            "search-query",
            collection=collection,
            query=text,
            mode="semantic",
            limit=10,
            understand=False,
        )
        ids = [hit["chunkId"] for hit in (found.answer or {}).get("results", ())]
        if chunk not in ids and "degraded" not in (found.answer or {}):
            raise Violation(f"the text of {chunk} to find it by meaning", str(ids))
        return len(hits)

    # Writing

    async def _index(self, parameters: Parameters) -> str:
        collection, versions = parameters["collection"], parameters["documents"]
        documents = [texts.document(self.owner, *each) for each in versions.items()]
        blank = parameters["blank"]
        if blank in versions:
            blank = None
        if blank is not None:
            documents.append({"source": blank, "title": "blank", "content": " \n\t "})
        if parameters["link"] is not None:
            documents[0]["links"] = [{"target": parameters["link"]}]
        options = {name: parameters[name] for name in ("maxTokens", "force")}
        if parameters["kinds"]:
            options["kinds"] = parameters["kinds"]
            self._derived.add(collection)
        expectation = self._expectation(collection)
        gone: dict[str, State] = {} if blank is None else {blank: None}
        outcome = await self._attempt(
            expectation,
            versions | gone,
            self._call("search-index", collection=collection, documents=documents, **options),
        )
        if blank is not None and outcome.answer is not None:
            codes = {each["source"]: each["code"] for each in outcome.answer["failed"]}
            if codes.get(blank) == "invalid_input":
                expectation.acknowledge(gone)
            elif codes.get(blank) != "database_unavailable":
                raise Violation("a blank document to fail with invalid_input", str(codes))
        await self._compare(collection, [*versions, *gone])
        return outcome.code or "ok"

    async def _index_file(self, parameters: Parameters) -> str:
        collection, kept = parameters["collection"], parameters["files"]
        changes: dict[str, State] = {}
        directory = self._stack.work / self.owner
        for name in FILES:
            source = f"{self.owner}/{name}"
            changes[source] = kept.get(name)
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name in kept:
                path.write_text(texts.file_text(self.owner, source, kept[name]))
            else:
                path.unlink(missing_ok=True)
        outcome = await self._attempt(
            self._expectation(collection),
            changes,
            self._call("search-index-file", collection=collection, path=self.owner, sweep=True),
        )
        await self._compare(collection, list(changes))
        return outcome.code or "ok"

    async def _attempt(
        self, expectation: Expectation, changes: Mapping[str, State], call: Awaitable[Outcome]
    ) -> Outcome:
        """Make a call that changes sources and record what may have changed."""
        try:
            outcome = await call
        except BaseException:
            expectation.doubt(changes, time.monotonic())
            raise
        if outcome.answer is not None:
            failed = {each["source"] for each in outcome.answer.get("failed", ())}
            done = {source: state for source, state in changes.items() if source not in failed}
            expectation.acknowledge(done)
            expectation.doubt(
                {source: changes[source] for source in failed & changes.keys()}, time.monotonic()
            )
        elif not outcome.refused:
            self._ledger.unknown += 1
            expectation.doubt(changes, time.monotonic())
        return outcome

    async def _delete(self, parameters: Parameters) -> str:
        collection, source = parameters["collection"], parameters["source"]
        outcome = await self._attempt(
            self._expectation(collection),
            {source: None},
            self._call("search-delete", collection=collection, source=source),
        )
        await self._compare(collection, [source])
        return outcome.code or "ok"

    async def _delete_collection(self, parameters: Parameters) -> str:
        collection = parameters["collection"]
        outcome = await self._replaced(
            collection, {}, self._call("search-delete", collection=collection)
        )
        await self._compare(collection, SOURCES)
        if outcome.ok:
            listed, _ = await self._listed(collection)
            if listed:
                raise Violation(f"{collection} to be deleted", f"it lists {listed}")
        return outcome.code or "ok"

    async def _replaced(
        self, collection: str, whole: Mapping[str, State], call: Awaitable[Outcome]
    ) -> Outcome:
        """Make a call that replaces a collection and record what may have changed."""
        expectation = self._expectation(collection)
        try:
            outcome = await call
        except BaseException:
            expectation.doubt_replacement(whole, time.monotonic())
            raise
        if outcome.ok:
            expectation.replace(whole)
        elif not outcome.refused:
            self._ledger.unknown += 1
            expectation.doubt_replacement(whole, time.monotonic())
        return outcome

    async def _reindex(self, parameters: Parameters) -> str:
        collection, way = parameters["collection"], parameters["way"]
        options = {"maxTokens": parameters["maxTokens"]}
        if way == "cancel":
            await self._call("search-reindex", collection=collection, background=True, **options)
            outcome = await self._call("search-reindex", collection=collection, cancel=True)
        elif way == "background":
            outcome = await self._call(
                "search-reindex", collection=collection, background=True, **options
            )
        else:
            outcome = await self._rebuilt(collection, options)
        await self._compare(collection, SOURCES)
        return outcome.code or "ok"

    async def _rebuilt(self, collection: str, options: Parameters) -> Outcome:
        """Rebuild a collection; no search may miss a source meanwhile."""
        rebuild = asyncio.create_task(
            self._call("search-reindex", collection=collection, **options)
        )
        try:
            present = self._expectation(collection).present()
            while present and not rebuild.done():
                for source in present:
                    await self._compare(collection, [source])
        finally:
            outcome = await rebuild
        return outcome

    # Reading

    async def _query(self, parameters: Parameters) -> str:
        source = parameters["source"]
        collection = "*" if parameters["everywhere"] else parameters["collection"]
        outcome = await self._call(
            "search-query",
            collection=collection,
            query=f"{texts.source_word(self.owner, source)} backup of the harbour",
            mode=parameters["mode"],
            limit=parameters["limit"],
            **parameters["options"],
        )
        answer = outcome.answer or {"results": [], "count": 0}
        if len(answer["results"]) != answer["count"] or answer["count"] > parameters["limit"]:
            raise Violation("count to be the number of results", str(answer["count"]))
        for hit in answer["results"]:
            self._allowed(hit.get("collection", collection), hit)
        self._ledger.checks["hits"] += len(answer["results"])
        return outcome.code or "ok"

    def _allowed(self, collection: str, hit: Mapping[str, Any]) -> None:
        """Compare a hit with what may be stored."""
        version = hit["metadata"].get("version")
        expectation = self._expected.get(collection)
        if expectation is None or version is None:
            return
        if not expectation.allows(hit["source"], version):
            raise Violation(
                f"no hit that was deleted or replaced in {collection}",
                f"version {version} of {hit['source']!r}",
            )

    async def _similar(self, parameters: Parameters) -> str:
        collection, source = parameters["collection"], parameters["source"]
        outcome = await self._call(
            "search-similar", collection=collection, chunkId=f"{collection}:{source}:0", limit=5
        )
        if outcome.answer is not None:
            for hit in outcome.answer["results"]:
                self._allowed(collection, hit)
        elif outcome.code == "not_found" and not self._expectation(collection).allows(source, None):
            raise Violation(f"a chunk of {source!r} in {collection}", outcome.text)
        return outcome.code or "ok"

    async def _collections(self, parameters: Parameters) -> str:
        outcome = await self._call("search-collections")
        if outcome.answer is not None:
            names = {each["name"] for each in outcome.answer["collections"]}
            missing = {
                name
                for name, each in self._expected.items()
                if each.present() and name not in names
            }
            if missing:
                raise Violation(f"the collections {sorted(missing)}", f"only {sorted(names)}")
        return outcome.code or "ok"

    async def _info(self, parameters: Parameters) -> str:
        outcome = await self._call(
            "notes-overview",
            collection=parameters["collection"],
            include=["tokens", "growth", "map"],
            mapPoints=20,
        )
        return outcome.code or "ok"

    async def _verify(self, parameters: Parameters) -> str:
        await self._check_collection(parameters["collection"])
        return "ok"

    # Exports and imports

    async def _transfer(self, parameters: Parameters) -> str:
        """Export a collection and import it under another name; a damaged export is refused."""
        collection, copy = parameters["collection"], f"{self.owner}-t"
        await self._compare(collection, SOURCES)
        whole = self._expectation(collection).certain()
        if not whole:
            return "skipped"
        directory = self._stack.home / "exports" / collection
        exported = await self._command("export", collection, str(directory), "--json")
        if exported.code:
            return "export failed"
        if parameters["corrupt"]:
            damaged = directory.with_name(f"{collection}-damaged")
            shutil.rmtree(damaged, ignore_errors=True)
            shutil.copytree(directory, damaged)
            about = damage(damaged, random.Random(parameters["seed"]))
            for way in (("--check",), ("--name", copy, "--replace")):
                refused = await self._stack.run("import", str(damaged), *way)
                if refused.code == 0:
                    raise Violation("a damaged export to be refused", f"{about}: {refused.out}")
        else:
            imported = await self._replaced(
                copy, whole, self._imported("import", str(directory), "--name", copy, "--replace")
            )
            if collection in self._derived:
                self._derived.add(copy)
            if not imported.ok:
                await self._compare(copy, SOURCES)
                return "import failed"
        await self._check_collection(copy)
        return "ok"

    async def _imported(self, *arguments: str) -> Outcome:
        began = time.monotonic()
        done = await self._command(*arguments)
        seconds = time.monotonic() - began
        if done.code:
            return Outcome(None, seconds, "lost", done.err)
        return Outcome({}, seconds)

    async def _command(self, *arguments: str) -> Command:
        weather = self._ledger.weather
        epoch = weather.epoch()
        done = await self._stack.run(*arguments)
        calm = epoch is not None and weather.epoch() == epoch
        if done.code and calm:
            raise Violation(
                f"`{arguments[0]}` to succeed while nothing is broken",
                f"exit code {done.code}: {done.err[-500:]}",
            )
        return done


def damage(directory: Path, chance: random.Random) -> str:
    """Damage one file of an export; return what was done."""
    cut = chance.random() < 0.5
    # A changed date in the manifest is no damage; every other file has a digest.
    names = [path for path in sorted(directory.iterdir()) if cut or path.suffix != ".json"]
    path = chance.choice([path for path in names if path.stat().st_size])
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    if cut:
        del content[place:]
    else:
        content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"{path.name} {'cut' if cut else 'changed'} at {place}"
