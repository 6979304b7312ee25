"""Check the gateway against its OpenAPI document with schemathesis.

This starts the whole stack in a temporary directory, on free ports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from demo import PROGRAM, Failed, running_stack

TOKEN = "contract"
EXCLUDED_CHECKS = {
    "positive_data_acceptance": "the schemas do not describe filters, dates and cursors completely",
    "negative_data_rejection": "the tools accept 0 and 1 as false and true",
}
"""Checks that are not run, and why."""
CONFIGURATION = """\
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503]
"""
"""503 is not a defect: it is the answer for a model that is not served."""
ENDLESS = "/events"
SECONDS = 600
REQUEST_SECONDS = 60


def main() -> int:
    """Run the checks; return 0 if the gateway agrees with the document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("schemathesis", help="path of the program")
    parser.add_argument(
        "--examples", default="10", help="maximum number of examples for an operation"
    )
    parser.add_argument("--seed", default="1", help="seed of the examples")
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
                code = check(gateway(run.environment), arguments, Path(scratch))
                run("down")
        except Failed as exc:
            sys.stderr.write(f"error: {exc}\n")
            return 1
    return code


def gateway(environment: dict[str, str]) -> str:
    """Return the address of the gateway of the running stack."""
    shown = subprocess.run(
        [PROGRAM, "status", "--json"], env=environment, capture_output=True, check=True
    )
    parts = {part["name"]: part["address"] for part in json.loads(shown.stdout)["parts"]}
    return str(parts["gateway"])


def check(address: str, arguments: argparse.Namespace, scratch: Path) -> int:
    """Call every operation except the endless one; return the exit code of schemathesis."""
    configuration = scratch / "schemathesis.toml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    command = [
        *(arguments.schemathesis, "--config-file", str(configuration)),
        *("run", f"{address}/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}"),
        *("--phases", "examples,fuzzing", "--max-examples", arguments.examples),
        *("--seed", arguments.seed),
        *("--checks", "all", "--exclude-checks", ",".join(EXCLUDED_CHECKS)),
        *("--exclude-path", ENDLESS, "--request-timeout", str(REQUEST_SECONDS)),
        *("--generation-database", "none", "--warnings", "off", "--no-color"),
    ]
    return subprocess.run(command, timeout=SECONDS).returncode


if __name__ == "__main__":
    sys.exit(main())
