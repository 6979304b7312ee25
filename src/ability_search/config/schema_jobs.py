"""Settings of jobs; see :mod:`.schema`."""

from __future__ import annotations

from ability_search.config.setting_fields import Group, setting


class JobSettings(Group):
    """Jobs: long operations that another worker can take over."""

    prefix = "job_"
    lease: float = setting(
        30.0,
        about="Lease of a job: if its worker does not renew it in time, another worker takes over.",
        unit="seconds",
        ge=1,
        le=3600,
    )
    patience: float = setting(
        600.0,
        about="Time a job waits for an unavailable database or model before it fails.",
        unit="seconds",
        ge=0,
        le=86_400,
    )
