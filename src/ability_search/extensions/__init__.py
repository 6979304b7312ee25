"""The extensions, one folder each: all that stands on the core and can be taken away."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any


def added(name: str) -> list[Any]:
    """Return what extensions add to the core.

    Args:
        name: Name of the list in the package of an extension. Its items are objects, or texts
            ``module:object`` for those of modules that are imported only when they are needed.
    """
    items: list[Any] = []
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        for item in getattr(import_module(module.name), name, ()):
            named = isinstance(item, str)
            items.append(pkgutil.resolve_name(f"{module.name}.{item}") if named else item)
    return items
