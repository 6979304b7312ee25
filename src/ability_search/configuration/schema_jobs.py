"""The settings of long operations; see :mod:`.schema`."""

from __future__ import annotations

from ability_search.configuration.fields import Group, setting


class JobSettings(Group):
    """Long operations that another worker goes on with."""

    prefix = "job_"
    lease: float = setting(
        30.0,
        about="Time after which a job whose worker is not heard of is another worker's.",
        unit="seconds",
        ge=1,
        le=3600,
    )
    patience: float = setting(
        600.0,
        about="Time that a job waits for a database or a model that is away, before it fails.",
        unit="seconds",
        ge=0,
        le=86_400,
    )
