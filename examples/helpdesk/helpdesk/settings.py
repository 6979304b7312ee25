"""The settings of the extension: `helpdesk_listed` in config.yml, SEARCH_HELPDESK_LISTED."""

from __future__ import annotations

from ability_search.config.setting_fields import Group, setting


class Helpdesk(Group):
    """Help desk."""

    prefix = "helpdesk_"
    listed: int = setting(
        10, about="Documents that the command `pinned` lists.", unit="documents", ge=1, le=1000
    )
