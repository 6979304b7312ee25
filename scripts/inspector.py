"""Hold the MCP servers against the Inspector, the protocol's own client, over both transports.

The whole stack runs meanwhile, over a temporary directory and on free ports. The program that
`ability-search mcp` is joins it, as it does beside a person's own stack.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo import PROGRAM, Failed, running_stack, say, title

from contract import gateway

SECONDS = 60
TOOL_SAID_NO = 5
"""Exit code of the Inspector for a result that is marked as an error."""
DOCUMENT = {"source": "bread", "title": "Bread", "content": "The dough rests for an hour."}
TOOLS = {"lean": 18, "full": 16}
LEAN_BYTES = 21_000
"""About 5,000 tokens of a model."""

Inspect = Callable[..., Any]


def main() -> int:
    """Run it; 0 if the Inspector can do everything over both transports."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inspector", nargs="+", help="the program and its first arguments")
    command = parser.parse_args().inspector
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ability-search-inspector-") as scratch:
        try:
            with running_stack(Path(scratch) / "data", HOME=scratch) as run:
                start = [*command, "--cli"]
                title("standard input and output")
                data = f"SEARCH_DATA_DIR={run.environment['SEARCH_DATA_DIR']}"
                over_pipes = inspecting([*start, "-e", data, str(PROGRAM), "mcp"], run.environment)
                hold(over_pipes, "stdio", "lean")
                full = [*start, "-e", data, str(PROGRAM), "mcp", "--profile", "full"]
                title("standard input and output, full profile")
                hold(inspecting(full, run.environment), "full", "full")
                title("streamable HTTP")
                over_http = inspecting([*start, f"{gateway(run.environment)}/mcp"], run.environment)
                hold(over_http, "http", "lean")
                hold_answers(over_http, "http")
                run("down")
        except Failed as exc:
            sys.stderr.write(f"error: {exc}\n")
            return 1
    say(f"\nThe Inspector took {time.monotonic() - began:.0f} s.")
    return 0


def inspecting(command: list[str], environment: dict[str, str]) -> Inspect:
    """What calls a method of one server, and returns what the Inspector printed as JSON."""

    def inspect(method: str, *arguments: str, code: int = 0) -> Any:
        began = time.monotonic()
        try:
            done = subprocess.run(
                [*command, "--method", method, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired as exc:
            raise Failed(f"{method} took more than {SECONDS} s") from exc
        if done.returncode != code:
            raise Failed(f"{method} ended with exit code {done.returncode}: {done.stderr}")
        say(f"{method} {' '.join(arguments)} ({time.monotonic() - began:.1f} s)")
        return json.loads(done.stdout)

    return inspect


def hold(inspect: Inspect, collection: str, profile: str) -> None:
    """List everything there is, index a document, find it and read it.

    Raises:
        Failed: if an answer is not what it should be.
    """
    listed = inspect("tools/list", "--strict")["tools"]
    expect(len(listed) == TOOLS[profile], f"{len(listed)} tools")
    size = len(json.dumps(listed, separators=(",", ":")))
    say(f"{len(listed)} tools in {size:,} bytes")
    expect((size < LEAN_BYTES) == (profile == "lean"), f"{size} bytes")
    indexed = call(inspect, "search-index", collection=collection, documents=[DOCUMENT])
    expect(indexed["structuredContent"]["added"] == 1, indexed)
    found = call(inspect, "search-query", collection=collection, query="how long does it rest")
    (hit,) = found["structuredContent"]["results"]
    expect(hit["source"] == "bread", found)
    if profile == "lean":
        read = call(inspect, "search-read", uri=hit["uri"])
        expect(read["content"][0]["text"] == DOCUMENT["content"], read)
    resources = [each["uri"] for each in inspect("resources/list")["resources"]]
    expect(f"search://collection/{collection}" in resources, resources)
    prompts = {each["name"] for each in inspect("prompts/list")["prompts"]}
    expect(prompts == {"answer-from-collection", "explore-collection"}, prompts)


def hold_answers(inspect: Inspect, collection: str) -> None:
    """Make a mistake, read a collection, take a prompt.

    Raises:
        Failed: if an answer is not what it should be.
    """
    missed = call(inspect, "search-query", collection="nope", query="dough", code=TOOL_SAID_NO)
    expect(missed["content"][0]["text"].startswith("not_found: "), missed)
    (read,) = inspect("resources/read", "--uri", f"search://collection/{collection}")["contents"]
    expect(json.loads(read["text"])["sources"] == ["bread"], read)
    asked = ("--prompt-name", "answer-from-collection", "--prompt-args", "question=Why?")
    prompt = inspect("prompts/get", *asked)
    expect("Why?" in prompt["messages"][0]["content"]["text"], prompt)


def call(inspect: Inspect, tool: str, code: int = 0, **arguments: Any) -> Any:
    """Call a tool; its arguments travel as the JSON that the Inspector takes."""
    pairs = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in arguments.items()
    ]
    return inspect("tools/call", "--tool-name", tool, "--tool-arg", *pairs, code=code)


def expect(holds: bool, answer: Any) -> None:
    """Go on if it holds.

    Raises:
        Failed: if not; it tells the answer.
    """
    if not holds:
        raise Failed(f"not what it should be: {answer}")


if __name__ == "__main__":
    sys.exit(main())
