"""Settings: their sources, precedence and validation.

``load_settings(environ, directory)`` reads everything once; :mod:`.schema` declares every setting.
"""

from ability_search.configuration.loading import (
    SecretFiles,
    Settings,
    complete_secrets,
    load_settings,
    locate_secrets,
    require_secrets,
)
from ability_search.configuration.table import settings_table
from ability_search.configuration.vault import get_secret, list_secrets, set_secret

__all__ = [
    "SecretFiles",
    "Settings",
    "complete_secrets",
    "get_secret",
    "list_secrets",
    "load_settings",
    "locate_secrets",
    "require_secrets",
    "set_secret",
    "settings_table",
]
