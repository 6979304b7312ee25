"""The errors reported to callers, with their wire codes and hints.

::

    SearchError
    ├── InvalidInput            invalid_input
    ├── NotFound                not_found
    ├── ModelMismatch           model_mismatch
    ├── DimensionMismatch       dimension_mismatch
    ├── EmbeddingUnavailable    embedding_unavailable   (retryable)
    │   └── TextsRefused        the embedder refuses these texts
    ├── RerankerUnavailable     (a warning in the answer, never on the wire)
    ├── ChatUnavailable         (a warning in the answer, never on the wire)
    ├── DatabaseUnavailable     database_unavailable    (retryable)
    │   ├── StatementRefused    the database refused a statement
    │   ├── ServerUnreachable   the database ability does not reach its server
    │   ├── EngineTooOld        the version of its engine is too old
    │   ├── EarlierLayout       it has an index of the earlier ability, to be migrated
    │   └── Unverified          its content differs from what was written
    ├── TooLarge                too_large
    ├── Busy                    busy                    (retryable)
    ├── ForbiddenPath           forbidden_path
    ├── DeadlineExceeded        timeout                 (retryable)
    ├── Cancelled               cancelled
    └── ConfigurationError      (start-up only, never on the wire)

Any other exception that reaches the boundary becomes ``internal`` with an incident id, under which
it is logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ability_search.documents import Vector


class SearchError(Exception):
    """The base class: ``code`` is the wire code, ``hint`` tells the caller how to resolve it."""

    code: ClassVar[str] = "internal"
    retryable: bool = False
    default_hint: ClassVar[str] = ""

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.hint = self.default_hint if hint is None else hint
        self.retry_after = retry_after
        """Seconds to wait before a retry, if known."""


class InvalidInput(SearchError):
    """A field of the input is invalid; the message has its wire name (``documents.3.title``)."""

    code = "invalid_input"

    def __init__(self, field: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {problem}", hint=hint or f"Correct {field} and call again.")
        self.field = field


class NotFound(SearchError):
    """Something does not exist; the hint suggests similar names, if any."""

    code = "not_found"

    def __init__(
        self, what: str, name: str, *, nearest: Sequence[str] = (), hint: str | None = None
    ) -> None:
        if nearest:
            hint = f"Did you mean {', '.join(nearest)}?"
        elif hint is None:
            hint = "Call search-collections to list the collections."
        super().__init__(f"no {what} named {name!r}", hint=hint)
        self.nearest = tuple(nearest)


class ModelMismatch(SearchError):
    """The collection was embedded with a model other than the requested one."""

    code = "model_mismatch"

    def __init__(self, collection: str, *, recorded: str, requested: str) -> None:
        super().__init__(
            f"collection {collection!r} was embedded with {recorded!r}, not {requested!r}",
            hint=f"Omit model to use {recorded!r}, or search-reindex with {requested!r}.",
        )


class DimensionMismatch(SearchError):
    """A vector does not have the number of dimensions of the collection."""

    code = "dimension_mismatch"

    def __init__(self, collection: str, *, recorded: int, received: int) -> None:
        super().__init__(
            f"collection {collection!r} has vectors of {recorded} dimensions,"
            f" the embedder returned {received}",
            hint="The model behind this name has changed: search-reindex the collection.",
        )
        self.received = received


class EmbeddingUnavailable(SearchError):
    """No embedder answered, or its answer was invalid."""

    code = "embedding_unavailable"
    retryable = True
    default_hint = "Check that the model manager serves this model, or search with mode=keyword."


class TextsRefused(EmbeddingUnavailable):
    """The embedder refused some texts; it accepts others.

    Attributes:
        rows: The vector of each text of the call, or the reason why it has none.
        unanswered: Whether the embedder ended or hung at the text, instead of refusing it.
    """

    retryable = False
    default_hint = "Shorten or leave out the text, or use a model that accepts it."

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        rows: Sequence[Vector | TextsRefused] = (),
        unanswered: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.rows = rows
        self.unanswered = unanswered

    def of(self, what: str) -> TextsRefused:
        """Return the same error for what the text is."""
        return TextsRefused(f"{what}: {self}", hint=self.hint, unanswered=self.unanswered)


class RerankerUnavailable(SearchError):
    """No reranker answered, or its answer was invalid; the hits keep their order."""

    retryable = True
    default_hint = "Check that a model manager on the network serves a reranker."


class ChatUnavailable(SearchError):
    """No language model answered, or its answer was invalid; the query continues without it."""

    retryable = True
    default_hint = (
        "Check that a model manager on the network provides chat-completion, or the API of"
        " expansion_api_url."
    )


class DatabaseUnavailable(SearchError):
    """The database ability did not answer, or refused the operation."""

    code = "database_unavailable"
    retryable = True
    default_hint = "Check that a database ability is connected to the broker, then call again."


class Unverified(DatabaseUnavailable):
    """The content of the database differs from what was written."""

    retryable = False
    default_hint = "The collection is unchanged. Call again to build it again."


class StatementRefused(DatabaseUnavailable):
    """The database refused a statement.

    Args:
        reason: Classifies its message, see :mod:`ability_search.store.arcadedb.refusals`.
        detail: Its message. It is only logged and never sent to callers, because it may quote
            statements and what is stored.
        problem: The text for callers.
        hint: The remedy.
        retryable: Whether the same call may succeed later.
    """

    default_hint = "See the log of the database ability."

    def __init__(
        self,
        reason: str,
        detail: str,
        *,
        problem: str = "the database refused the operation",
        hint: str | None = None,
        retryable: bool = True,
    ) -> None:
        super().__init__(problem, hint=hint)
        self.reason = reason
        self.detail = detail
        self.retryable = retryable


class ServerUnreachable(DatabaseUnavailable):
    """The database ability answers, but does not reach the ArcadeDB server behind it.

    Whether a write took effect is unknown, as with any answer that is missing.
    """


class EngineTooOld(DatabaseUnavailable):
    """The engine of a database is older than what this ability can use."""

    retryable = False
    default_hint = (
        "Upgrade the ArcadeDB server, or let another database ability serve the network, such as"
        " that of `ability-search up`. Nothing was created."
    )


class GenerationGone(DatabaseUnavailable):
    """A generation was dropped, because its collection was rebuilt or deleted."""

    default_hint = "Call again."

    def __init__(self, generation: str) -> None:
        super().__init__(f"the generation {generation} no longer exists")
        self.generation = generation


class EarlierLayout(DatabaseUnavailable):
    """The database has data of the earlier TypeScript ability, in its layout."""

    retryable = False
    default_hint = "Run `ability-search migrate --dry-run`; docs/operations.md lists the steps."

    def __init__(self) -> None:
        super().__init__("the database has the layout of the earlier TypeScript ability")


class TooLarge(SearchError):
    """The input exceeds a limit; the hint names the setting."""

    code = "too_large"


class Busy(SearchError):
    """The maximum number of waiting calls is reached."""

    code = "busy"
    retryable = True
    default_hint = "Call again in a moment."


class ForbiddenPath(SearchError):
    """A path outside the allowed roots, or to a key file or file of secrets."""

    code = "forbidden_path"


class DeadlineExceeded(SearchError):
    """The call was not completed before its deadline."""

    code = "timeout"
    retryable = True
    default_hint = (
        "Allow more time. Everything acknowledged so far is stored; the same call completes the"
        " rest."
    )


class Cancelled(SearchError):
    """The call was cancelled on request."""

    code = "cancelled"
    default_hint = "Everything acknowledged so far is stored; call again to complete the rest."


class ConfigurationError(SearchError):
    """The settings cannot work; raised at start-up, before anything connects.

    ``problems`` lists everything found, each with its place and what was expected.
    """

    def __init__(self, *problems: str, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first plain exception in a group of concurrent failures, at any depth."""
    failure: BaseException = group
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
