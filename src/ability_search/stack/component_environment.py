"""The environment of a component: what this process has, without the secrets of the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from ability_search.config.setting_fields import Url, has_credentials
from ability_search.config.settings_table import SPECS, Spec

WITHHELD = "withheld"
"""Stands in for a secret, so that the component does not look for it in secrets.toml instead,
where it may be encrypted by a program that filled the environment itself."""

_EVERYBODY = {"metrics", "tracing"}
_NEEDS = {
    "broker": _EVERYBODY,
    "database": _EVERYBODY | {"broker", "arcadedb"},
    "models": _EVERYBODY | {"broker", "models"},
    "gateway": _EVERYBODY | {"broker", "gateway"},
    "worker": _EVERYBODY | {"broker", "deployment", "embedding", "reranker", "expansion"},
}
"""The groups of settings whose secrets a component uses."""


def child_environ(
    part: str, changes: Mapping[str, str], *, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a component, for example of ``worker-1``.

    Secrets of settings that it does not use are replaced by ``WITHHELD`` or, where no file holds
    them, left out; addresses lose their credentials.
    """
    needs = _NEEDS[part.partition("-")[0]]
    child = {**environ, **changes}
    for spec in SPECS:
        if spec.group not in needs:
            for name in child.keys() & set(spec.env):
                child[name] = _harmless(spec, child[name])
                if not child[name]:
                    del child[name]
    return child


def _harmless(spec: Spec, text: str) -> str:
    if spec.kind == "secret":
        return WITHHELD if spec.home is None and text.strip() else ""
    return ",".join(map(_without_credentials, text.split(",")))


def _without_credentials(text: str) -> str:
    with suppress(ValueError):
        if "://" in text and has_credentials(text):
            return str(Url(text.strip()))
    return text
