"""The boundary that turns exceptions into error results for the caller."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from ability_search.collection import is_collection_name
from ability_search.errors import InvalidInput, SearchError
from ability_search.tools.table import tool_named
from kadi_client.context import incident
from kadi_client.tools import validation_text

log = logging.getLogger(__name__)

_INVALID_HINT = "Correct the named fields and call again."
_LONGEST_TEXT = 2000
"""Maximum length of an error in characters; it may repeat field names of any length."""


def failure(exc: Exception, tool: str) -> dict[str, Any]:
    """Return the error result for a failure of ``tool``.

    An unexpected exception becomes ``internal`` with an incident id and is logged under that id.
    """
    if isinstance(exc, ValidationError):
        row = tool_named(tool)
        exc = Invalid(validation_text(exc, row.params if row else None), hint=_INVALID_HINT)
    if not isinstance(exc, SearchError):
        name = incident()
        log.error("incident %s in %s", name, tool, exc_info=exc)
        exc = SearchError(
            f"internal error, incident {name}", hint="See the worker's log for the incident."
        )
    text = str(exc)
    report: dict[str, Any] = {
        "success": False,
        "error": text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ...",
        "code": exc.code,
        "tool": tool,
        "hint": exc.hint,
        "retryable": exc.retryable,
    }
    if exc.retry_after is not None:
        report["retryAfterMs"] = round(exc.retry_after * 1000)
    return report


def with_collection(answer: dict[str, Any], tool_input: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a tool; a failure names the collection of the input, valid or not."""
    collection = tool_input.get("collection")
    if answer.get("success") is not False or not isinstance(collection, str):
        return answer
    return {**answer, "collection": collection} if is_collection_name(collection) else answer


class Invalid(SearchError):
    """Several invalid fields; the message is already formatted."""

    code = InvalidInput.code


def invalid_item(error: ValidationError, params: type[BaseModel], path: str) -> Invalid:
    """Return the error for an item that does not fit its model; ``path`` leads to the item."""
    texts = validation_text(error, params).split("; ")
    return Invalid("; ".join(f"{path}.{each}" for each in texts), hint=_INVALID_HINT)
