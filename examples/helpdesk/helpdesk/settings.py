"""The settings of the extension, and a check that something is pinned.

The setting is `helpdesk_listed` in config.yml, or SEARCH_HELPDESK_LISTED.
"""

from __future__ import annotations

from ability_search.client.tool_client import ToolClient
from ability_search.config.setting_fields import Group, setting
from ability_search.errors import NotFound


class Helpdesk(Group):
    """Help desk."""

    prefix = "helpdesk_"
    listed: int = setting(
        10, about="Documents that the command `pinned` lists.", unit="documents", ge=1, le=1000
    )


async def check_pinned(client: ToolClient) -> str:
    """Return that there are pinned documents.

    Raises:
        NotFound: if there are none.
    """
    pinned = {"metadata.pinned": True}
    asked = {"collection": "*", "query": "pinned", "filter": pinned, "limit": 1}
    found = await client.call("search-query", asked, timeout=10.0)
    if not found["results"]:
        hint = "Write `pinned: true` into the front matter of a document, and index it."
        raise NotFound("document", "pinned", hint=hint)
    return "there are pinned documents"
