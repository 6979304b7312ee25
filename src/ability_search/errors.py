"""Every failure a caller can be told about, with its wire code and the hint that goes with it.

::

    SearchError
    ├── InvalidInput            invalid_input
    ├── NotFound                not_found
    ├── ModelMismatch           model_mismatch
    ├── DimensionMismatch       dimension_mismatch
    ├── EmbeddingUnavailable    embedding_unavailable   (retryable)
    │   └── TextsRefused        the embedder is there, but not for these texts
    ├── RerankerUnavailable     (a warning of the answer, never on the wire)
    ├── ChatUnavailable         (a warning of the answer, never on the wire)
    ├── DatabaseUnavailable     database_unavailable    (retryable)
    │   ├── StatementRefused    the database answered, with a refusal
    │   ├── EarlierLayout       it holds an index of the earlier ability, to be migrated
    │   └── Unverified          it holds something else than it was given
    ├── TooLarge                too_large
    ├── Busy                    busy                    (retryable)
    ├── ForbiddenPath           forbidden_path
    ├── DeadlineExceeded        timeout                 (retryable)
    ├── Cancelled               cancelled
    └── ConfigurationError      (start-up only, never on the wire)

Anything else that reaches the boundary is ``internal``, with an incident id that the log explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class SearchError(Exception):
    """Base: ``code`` is the wire code, ``hint`` says what the caller can do about it."""

    code: ClassVar[str] = "internal"
    retryable: bool = False
    default_hint: ClassVar[str] = ""

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.hint = self.default_hint if hint is None else hint
        self.retry_after = retry_after
        """Seconds after which a retry makes sense, where the other side said so."""


class InvalidInput(SearchError):
    """A field of the input is wrong; the message has its wire name (``documents.3.title``)."""

    code = "invalid_input"

    def __init__(self, field: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {problem}", hint=hint or f"Correct {field} and call again.")
        self.field = field


class NotFound(SearchError):
    """There is no such thing; the hint tells which names come close, if any do."""

    code = "not_found"

    def __init__(
        self, what: str, name: str, *, nearest: Sequence[str] = (), hint: str | None = None
    ) -> None:
        if nearest:
            hint = f"Did you mean {', '.join(nearest)}?"
        elif hint is None:
            hint = "Call search-collections for what exists."
        super().__init__(f"no {what} named {name!r}", hint=hint)
        self.what = what
        self.name = name
        self.nearest = tuple(nearest)


class ModelMismatch(SearchError):
    """The collection was embedded by another model than the one asked for."""

    code = "model_mismatch"

    def __init__(self, collection: str, *, recorded: str, requested: str) -> None:
        super().__init__(
            f"collection {collection!r} was embedded with {recorded!r}, not {requested!r}",
            hint=f"Leave model out to use {recorded!r}, or search-reindex with {requested!r}.",
        )
        self.collection = collection
        self.recorded = recorded
        self.requested = requested


class DimensionMismatch(SearchError):
    """A vector has another number of dimensions than the collection."""

    code = "dimension_mismatch"

    def __init__(self, collection: str, *, recorded: int, received: int) -> None:
        super().__init__(
            f"collection {collection!r} holds vectors of {recorded} dimensions,"
            f" the embedder sent {received}",
            hint="The served model changed under its name: search-reindex the collection.",
        )
        self.collection = collection
        self.recorded = recorded
        self.received = received


class EmbeddingUnavailable(SearchError):
    """No embedder answered, or what it answered cannot be used."""

    code = "embedding_unavailable"
    retryable = True
    default_hint = "Check that the model manager serves this model, or search with mode=keyword."


class TextsRefused(EmbeddingUnavailable):
    """The embedder answered, but refuses these very texts; others may do."""

    retryable = False


class RerankerUnavailable(SearchError):
    """No reranker answered, or what it answered is of no use; the hits stay as they were."""

    retryable = True
    default_hint = "Check that a model manager on the network serves a reranker."


class ChatUnavailable(SearchError):
    """No language model answered, or what it answered is of no use; the query goes on without."""

    retryable = True
    default_hint = "Check that a model manager on the network offers chat-completion."


class DatabaseUnavailable(SearchError):
    """The database ability did not answer, or refused."""

    code = "database_unavailable"
    retryable = True
    default_hint = "Check that a database ability is connected to the broker, then call again."


class Unverified(DatabaseUnavailable):
    """What the database holds is not what it was given."""

    retryable = False
    default_hint = "The collection is as it was. Call again to build it anew."


class StatementRefused(DatabaseUnavailable):
    """The database refused a statement.

    ``reason`` says what was missing or in the way, as far as its text tells: ``missing_database``,
    ``missing_type``, ``duplicate``, ``conflict``, ``busy``, ``timeout`` or ``other``. The text
    itself is for the log; a caller is never shown it, it may quote statements.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__("the database refused the operation")
        self.reason = reason
        self.detail = detail
        """The database's own words."""


class EarlierLayout(DatabaseUnavailable):
    """The database holds what the earlier TypeScript ability stored, in its layout."""

    retryable = False
    default_hint = "Run `ability-search migrate --dry-run`; docs/operations.md tells the steps."

    def __init__(self) -> None:
        super().__init__("the database has the layout of the earlier TypeScript ability")


class TooLarge(SearchError):
    """The input exceeds a limit; the hint names the setting."""

    code = "too_large"


class Busy(SearchError):
    """As many calls as allowed are waiting already."""

    code = "busy"
    retryable = True
    default_hint = "Call again in a moment."


class ForbiddenPath(SearchError):
    """A path outside the allowed roots."""

    code = "forbidden_path"


class DeadlineExceeded(SearchError):
    """The work was not done within the time the caller gave."""

    code = "timeout"
    retryable = True
    default_hint = (
        "Allow more time. Of what was to be stored, all that was acknowledged is: the same call"
        " completes the rest."
    )


class Cancelled(SearchError):
    """The work was cancelled on request."""

    code = "cancelled"
    default_hint = "What was acknowledged is stored: call again to complete the rest."


class ConfigurationError(SearchError):
    """Settings that cannot work; raised at start-up, before anything connects.

    ``problems`` holds every one that was found, each naming its place and what was expected.
    """

    def __init__(self, *problems: str, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first plain exception in a group of concurrent failures, however deep it is nested."""
    failure: BaseException = group
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
