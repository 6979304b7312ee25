"""Comparison of answers with shapes: the fields that a caller reads, and what they hold."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any


def differences(value: Any, shape: Any, field: str = "answer") -> list[str]:
    """Return the differences between a value and its shape, one text each, named by field.

    A shape is a value, a type, a compiled pattern that is searched for in a string, or a dictionary
    or list of shapes. A dictionary may have further fields. A list of one shape stands for one or
    more elements of it.
    """
    if isinstance(shape, dict) and isinstance(value, dict):
        missing = [f"{field}.{name} is missing" for name in shape if name not in value]
        common = [name for name in shape if name in value]
        inner = (differences(value[name], shape[name], f"{field}.{name}") for name in common)
        return [*missing, *chain.from_iterable(inner)]
    if isinstance(shape, list) and shape and isinstance(value, list) and value:
        inner = (differences(element, shape[0], f"{field}[]") for element in value)
        return list(chain.from_iterable(inner))
    if _fits(value, shape):
        return []
    return [f"{field} is {value!r} instead of {shape!r}"]


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and bool(shape.search(value))
    if isinstance(shape, type):
        return isinstance(value, shape)
    return bool(value == shape)
