"""Hold the gateway against its OpenAPI document: schemathesis calls it as the document says.

The whole stack runs meanwhile, over a temporary directory and on free ports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from demo import PROGRAM, Failed, running_stack

TOKEN = "contract"
UNHELD = {
    "positive_data_acceptance": "no schema says what a filter, a date or a cursor is",
    "negative_data_rejection": "the tools take 0 and 1 for false and true",
}
"""Checks that are left out, and why."""
CONFIGURATION = """\
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503]
"""
"""503 is no defect: it is said of a model that nobody serves."""
ENDLESS = "/events"
SECONDS = 600
REQUEST_SECONDS = 60


def main() -> int:
    """Run it; 0 if nothing contradicts the document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("schemathesis", help="the program")
    parser.add_argument("--examples", default="10", help="most examples for an operation")
    parser.add_argument("--seed", default="1", help="where they start")
    arguments = parser.parse_args()
    settings = {
        "SEARCH_GATEWAY_TOKEN": TOKEN,
        "SEARCH_GATEWAY_RATE": "1e6",
        "SEARCH_GATEWAY_BURST": "1000000",
    }
    with tempfile.TemporaryDirectory(prefix="ability-search-contract-") as scratch:
        settings["SEARCH_ALLOWED_ROOTS"] = scratch  # nothing of the source tree is indexed
        try:
            with running_stack(Path(scratch) / "data", **settings) as run:
                code = hold(gateway(run.environment), arguments, Path(scratch))
                run("down")
        except Failed as exc:
            sys.stderr.write(f"error: {exc}\n")
            return 1
    return code


def gateway(environment: dict[str, str]) -> str:
    """The address of the gateway of the stack that runs."""
    shown = subprocess.run(
        [PROGRAM, "status", "--json"], env=environment, capture_output=True, check=True
    )
    parts = {part["name"]: part["address"] for part in json.loads(shown.stdout)["parts"]}
    return str(parts["gateway"])


def hold(address: str, arguments: argparse.Namespace, scratch: Path) -> int:
    """Call every operation but the endless one; the exit code of schemathesis."""
    configuration = scratch / "schemathesis.toml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    command = [
        *(arguments.schemathesis, "--config-file", str(configuration)),
        *("run", f"{address}/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}"),
        *("--phases", "examples,fuzzing", "--max-examples", arguments.examples),
        *("--seed", arguments.seed),
        *("--checks", "all", "--exclude-checks", ",".join(UNHELD)),
        *("--exclude-path", ENDLESS, "--request-timeout", str(REQUEST_SECONDS)),
        *("--generation-database", "none", "--warnings", "off", "--no-color"),
    ]
    return subprocess.run(command, timeout=SECONDS).returncode


if __name__ == "__main__":
    sys.exit(main())
