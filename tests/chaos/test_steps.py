"""The same seed makes the same steps, and a log can be run again."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from chaos.attacks import ATTACKS, junk
from chaos.campaign import Plan, Recorded, made
from chaos.clients import damage
from chaos.expectations import Violation
from chaos.inputs import BATCHES
from chaos.ledger import Ledger, Memory, percentiles
from chaos.report import holds, report_of
from chaos.steps import COMPONENTS, DEFAULT, DENSE, SHORT, chosen_faults

from chaos import texts

PLAN = Plan(seed=7, minutes=1, clients=2, faults=SHORT, attacks=True, inputs=9, queries=9)
ACTORS = ("client-0", "client-1", "faults", "attacks", "inputs")


def test_a_step_depends_on_seed_actor_and_number_only() -> None:
    for actor in ACTORS:
        steps = [made(PLAN, actor, number) for number in range(50)]
        assert steps == [made(PLAN, actor, number) for number in range(50)]
        assert len({step.digest for step in steps}) > 40
    other = replace(PLAN, seed=8)
    assert made(other, "client-0", 0) != made(PLAN, "client-0", 0)
    assert made(PLAN, "client-1", 0) != made(PLAN, "client-0", 0)


def test_every_operation_fault_and_attack_occurs() -> None:
    def seen(actor: str) -> Counter[str]:
        return Counter(made(PLAN, actor, number).operation for number in range(600))

    assert len(seen("client-0")) == 11
    assert seen("faults").keys() == set(SHORT)
    assert seen("attacks").keys() == set(ATTACKS)
    assert seen("inputs").keys() == set(BATCHES)


def test_bursts_are_most_faults_and_kill_every_component() -> None:
    plan = replace(PLAN, faults=DENSE)
    steps = [made(plan, "faults", number) for number in range(100)]
    bursts = [step for step in steps if step.operation == "burst"]
    assert len(bursts) > 50
    killed = Counter(name for step in bursts for name, _ in step.parameters["kills"])
    assert killed.keys() == {*COMPONENTS, "worker-2"}


def test_faults_are_chosen_by_name_and_group() -> None:
    assert chosen_faults("default") == DEFAULT
    assert chosen_faults("none") == ()
    assert chosen_faults("short, squatters,short") == (*SHORT, "squatters")
    assert not set(SHORT) & {"kill-supervisor", "disk-full"}
    with pytest.raises(ValueError, match="no fault 'earthquake'"):
        chosen_faults("earthquake")


async def logged(file: Path) -> Ledger:
    ledger = Ledger(file, PLAN.header)
    for actor in ACTORS:
        for number in range(3):
            after = await ledger.issue()
            ledger.wrote(made(PLAN, actor, number), after, "ok", 0.1)
    ledger.close()
    return ledger


async def test_a_log_replays_its_plan_and_its_steps(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    await logged(file)
    recorded = Recorded(file)
    assert recorded.plan == PLAN
    for start, actor in enumerate(ACTORS):
        expected = [(made(PLAN, actor, number), start * 3 + number) for number in range(3)]
        assert list(recorded.steps(actor)) == expected


async def test_a_log_whose_steps_have_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    await logged(file)
    lines = file.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "digest": "other"})
    file.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="step 1 of client-0 is another one today"):
        Recorded(file)


async def test_the_report_counts_and_keeps_violations(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "steps.jsonl", PLAN.header)
    step = made(PLAN, "faults", 0)
    ledger.weather.begin(step.operation)
    assert ledger.weather.epoch() is None
    ledger.wrote(step, 0, "recovered", 1.0)
    ledger.violated(step, Violation("this", "that", kind="lost"))
    ledger.sent("frames", {"-32700": 5, "unanswered": 2})
    ledger.kills["broker"] += 3
    ledger.phases["faults"] = 30.0
    ledger.close()
    log = tmp_path / "stack.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        "worker-1: the event loop was held for 1.2 s, 0.9 s of it by its work\n"
    )
    report = report_of(ledger, PLAN.header, 1.0, log)
    assert report["faults"] == {step.operation: 1}
    assert report["log"]["tracebacks"] == 1
    assert report["kills"]["total"] == 3
    assert report["killsPerMinute"] == 6.0
    assert report["inputs"] == {"answered": 5, "frames": {"-32700": 5, "unanswered": 2}}
    assert report["found"] == {"lost": 1, "twice": 0, "let in": 0, "other": 0}
    assert report["log"]["eventLoopHeld"]["max"] == 1.2
    assert report["log"]["eventLoopHeldByWork"]["max"] == 0.9
    (violation,) = report["violations"]
    assert violation["fault"] == step.operation
    assert (violation["expected"], violation["seen"]) == ("this", "that")
    assert json.loads((tmp_path / "steps.jsonl").read_text().splitlines()[-1])["violation"]


def test_a_loop_held_by_its_own_work_is_a_violation_and_a_pause_is_none(tmp_path: Path) -> None:
    log = tmp_path / "stack.log"
    assert holds(log) == []
    said = [("7.5", "0.4"), ("1.3", "1.0"), ("2.6", "2.5"), ("40.0", "1.1")]
    log.write_text(
        "".join(
            f"worker-{n}: the event loop was held for {held} s, {work} s of it by its work\n"
            for n, (held, work) in enumerate(said)
        )
    )
    assert [violation.seen.split(":")[0] for violation in holds(log)] == ["worker-2", "worker-3"]


async def test_waiting_for_steps_ends_with_the_last_client(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "steps.jsonl", PLAN.header)
    await ledger.issue()
    assert await ledger.reached(1)
    await ledger.finish()
    assert not await ledger.reached(2)
    ledger.close()


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([]) == {"count": 0}
    assert percentiles([3.0]) == {"count": 1, "p50": 3.0, "p95": 3.0, "max": 3.0}
    assert percentiles([float(n) for n in range(100)])["p95"] == 95.0


def test_the_slope_of_memory_is_that_of_its_second_half() -> None:
    growing = [100 * 2**20 + (n > 50) * (n - 50) * 2**20 for n in range(101)]
    memory = Memory("worker-1", 1, [n * 6.0 for n in range(101)], growing)
    slope = memory.slope()
    assert slope is not None
    assert 9.5 < slope < 10.5
    assert Memory("worker-1", 1, [0.0, 1.0, 2.0], [1, 1, 1]).slope() is None


def test_memory_over_searches_is_measured_after_the_caches_are_full() -> None:
    queries = [*([0] * 20), *range(0, 10_000, 100)]
    sizes = [(100 + min(each, 2_000) / 100 + each / 1_000) * 2**20 for each in queries]
    times = [float(n) for n in range(len(queries))]
    found = Memory("worker-1", 1, times, [int(size) for size in sizes], queries).over_searches()
    assert found["searches"] == 9_900
    assert 9.9 < found["mibPer10000Searches"] < 10.1
    assert Memory("worker-1", 1, times, [1] * len(times), [0] * len(times)).over_searches() == {}


@pytest.mark.parametrize("version", range(texts.VERSIONS))
def test_a_text_is_known_by_its_chunks(version: int) -> None:
    text = texts.content("c0", "s", version)
    cuts = [text[start : start + 200] for start in range(0, max(1, len(text) - 50), 150)]
    assert texts.version_of("c0", "s", cuts) == version
    assert texts.version_of("c0", "s", [texts.file_text("c0", "s", version)]) == version
    assert texts.version_of("c0", "other", cuts) is None
    assert texts.version_of("c0", "s", []) is None
    assert all(texts.source_word("c0", "s") in sentence for sentence in text.split(".")[:-1])


def test_missing_swapped_and_foreign_chunks_are_noticed() -> None:
    text = texts.content("c0", "s", 4)
    chunks = [text[start : start + 200] for start in range(0, len(text), 200)]
    other = texts.content("c0", "s", 3)
    for wrong in (
        chunks[:-1],
        chunks[1:],
        [*chunks[:3], *chunks[4:]],
        [chunks[1], chunks[0], *chunks[2:]],
        [*chunks, other[:200]],
        [*chunks, chunks[-1]],
    ):
        assert texts.version_of("c0", "s", wrong) is None


def test_damage_changes_one_file_and_never_only_the_manifest(tmp_path: Path) -> None:
    for seed in range(40):
        files = {"index_manifest.json": b"{}" * 50, "chunks.jsonl": b"c" * 99, "empty": b""}
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        about = damage(tmp_path, random.Random(seed))
        changed = [name for name in files if (tmp_path / name).read_bytes() != files[name]]
        assert len(changed) == 1, about
        assert changed != ["index_manifest.json"] or "cut" in about


def test_junk_is_json() -> None:
    for seed in range(200):
        value = junk(random.Random(seed))
        assert json.loads(json.dumps(value)) == value
