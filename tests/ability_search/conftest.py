"""The extensions of this package are loaded, as in every process of the product."""

from __future__ import annotations

import ability_search.extension  # noqa: F401 - which makes the formats of extensions known
