"""The declaration of a setting, and the types of addresses and names."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, Secret
from pydantic.config import JsonDict

from ability_search.filters.wildcards import glob_regex
from kadi_client.addresses import split_addresses, without_credentials

KIB = 1024
MIB = 1024 * KIB


class Url(Secret[str]):
    """An address that may contain credentials; only ``get_secret_value()`` shows them.

    Some settings take several, separated by commas.
    """

    def _display(self) -> str:
        return ", ".join(map(without_credentials, split_addresses(self.get_secret_value())))


def has_credentials(url: str) -> bool:
    """Return whether an address contains a user name or a password."""
    return any("@" in urlsplit(each).netloc for each in split_addresses(url))


def begins_with(*schemes: str, several: bool = False) -> BeforeValidator:
    """Return the check of an address, or of several that are separated by commas."""
    problem = f"expected an address that begins with {' or '.join(s + '://' for s in schemes)}"

    def usable(url: str) -> bool:
        parts = urlsplit(url)
        return bool(parts.scheme in schemes and parts.hostname and parts.port != 0)

    def check(value: object) -> object:
        if not isinstance(value, str):
            return value
        urls = split_addresses(value) if several else [value]
        try:
            if not urls or not all(map(usable, urls)):
                raise ValueError(problem)
        except ValueError as exc:
            raise ValueError(problem) from exc
        return value

    return BeforeValidator(check)


HttpUrl = Annotated[Url, begins_with("http", "https")]
WebSocketUrl = Annotated[Url, begins_with("ws", "wss", several=True)]
ModelName = Annotated[str, Field(min_length=1, max_length=256)]
NonEmpty = Annotated[str, Field(min_length=1)]
DatabaseName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


def _check_glob(value: str) -> str:
    glob_regex(value)
    return value


Glob = Annotated[str, AfterValidator(_check_glob)]


def setting(
    default: Any = ...,
    *,
    about: str,
    unit: str = "",
    key: str | None = None,
    env: tuple[str, ...] = (),
    home: str | None = None,
    default_text: str | None = None,
    named_paths: bool = False,
    **bounds: Any,
) -> Any:
    """Declare a setting.

    Args:
        default: the value if no source sets it; left out if the loader derives it from
            ``default_text``.
        about: description, one sentence for the README.
        unit: unit of the number.
        key: name in config.yml, if it is not prefix and attribute.
        env: environment variables, the first one set wins; ``SEARCH_<KEY>`` if none is given.
        home: where it is set, if not in config.yml; it then has no key there.
        default_text: wording of the default in the README.
        named_paths: whether each item of the list is a path or ``NAME=PATH``.
        bounds: constraints, passed to :func:`pydantic.Field`.
    """
    extra: JsonDict = {
        "unit": unit,
        "key": key,
        "env": list(env),
        "home": home,
        "default_text": default_text,
        "named_paths": named_paths,
    }
    return Field(default, description=about, json_schema_extra=extra, **bounds)


def seconds(default: float, *, about: str, **further: Any) -> Any:
    """Declare a duration in seconds: above 0 and at most an hour, unless bounds are given."""
    bounds = {"le": 3600} if "ge" in further else {"gt": 0, "le": 3600}
    return setting(default, about=about, unit="seconds", **(bounds | further))


def size(default: int | None, *, about: str, **further: Any) -> Any:
    """Declare a size in bytes: 1 KiB to 1 GiB, unless bounds are given; ``24 MiB`` is one, too."""
    value = None if default is None else ByteSize(default)
    bounds = {"ge": KIB, "le": 1024 * MIB}
    return setting(value, about=about, unit="bytes", **(bounds | further))


def secret(*, about: str, **further: Any) -> Any:
    """Declare a secret, which is not set by default."""
    return setting(None, about=about, min_length=1, **further)


class Group(BaseModel):
    """Base class of a group of related settings."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )
    prefix: ClassVar[str] = ""
