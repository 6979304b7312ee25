from __future__ import annotations

from typing import Annotated, Any, Literal
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from kadi_client.messages import decode, encode
from kadi_client.tools import Tool, encoded, validation_text, without_routing


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(alias="Size")


class Result(BaseModel):
    doubled: int = Field(serialization_alias="Doubled")
    note: str | None = None


async def _double(params: Params, _call: Any) -> Result:
    return Result(doubled=params.size * 2)


async def _fail(_params: Params, _call: Any) -> Result:
    raise LookupError("gone")


NO_CALL: Any = None


class Item(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(alias="Name")
    scores: dict[str, float] = {}
    about: Any = None


class Listing(BaseModel):
    """Lists of any length between other fields; some of which may be ``None``."""

    model_config = ConfigDict(populate_by_name=True)

    first: list[Item] = Field([], alias='First "of" all')
    note: str | None = None
    single: Item | None = None
    second: list[Item] | None = None
    numbers: list[int] = Field([], alias="Numbers")


ITEMS = st.builds(
    Item,
    name=st.text(),
    scores=st.dictionaries(st.text(), st.floats()),
    about=st.none() | st.floats() | st.lists(st.text() | st.integers(-(2**53), 2**53)),
)


def _repeated(items: list[Item], times: int) -> list[Item]:
    return items * times


MANY_ITEMS = st.builds(_repeated, st.lists(ITEMS, max_size=4), st.sampled_from([1, 20]))


@given(
    st.builds(
        Listing,
        first=MANY_ITEMS,
        note=st.none() | st.text(),
        single=st.none() | ITEMS,
        second=st.none() | MANY_ITEMS,
        numbers=st.lists(st.integers(0, 9)) | st.just([1] * 100),
    )
)
def test_an_answer_is_encoded_in_pieces_as_in_one(answer: Listing) -> None:
    whole = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert list(decode(encoded(answer)).items()) == list(decode(encode(whole)).items())


async def test_a_typed_tool_validates_calls_and_dumps() -> None:
    tool = Tool.typed("double", "Doubles", Params, _double, result=Result)
    assert decode(await tool.handler({"Size": 4}, NO_CALL)) == {"Doubled": 8}
    assert tool.input_schema["required"] == ["Size"]
    assert tool.output_schema is not None
    assert "Doubled" in tool.output_schema["properties"]


async def test_invalid_input_is_refused_naming_every_field_and_no_value() -> None:
    tool = Tool.typed("double", "Doubles", Params, _double)
    with pytest.raises(ValueError, match=r"\ASize: .*; other: .*\Z") as caught:
        await tool.handler({"Size": "secret", "other": "secret"}, NO_CALL)
    assert "secret" not in str(caught.value)


async def test_errors_become_values_where_asked_for() -> None:
    def tell(error: Exception, name: str) -> Any:
        return {"error": type(error).__name__, "tool": name}

    tool = Tool.typed("fail", "", Params, _fail, on_error=tell)
    assert await tool.handler({"Size": 1}, NO_CALL) == {"error": "LookupError", "tool": "fail"}
    assert (await tool.handler({}, NO_CALL))["error"] == "ValidationError"
    assert tool.output_schema is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ({}, {})),
        ({"a": 1}, ({"a": 1}, {})),
        ({"a": 1, "_kadi": {"x": 2}}, ({"a": 1}, {"x": 2})),
        ({"_kadi": "odd"}, ({}, {})),
    ],
)
def test_routing_hints_are_split_off(given: Any, expected: Any) -> None:
    assert without_routing(given) == expected


def test_an_input_that_is_no_object_is_refused() -> None:
    with pytest.raises(TypeError, match="toolInput must be an object"):
        without_routing([1])


def test_validation_errors_name_every_field_and_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        Params.model_validate({"Size": "secret", "other": "secret"})
    text = validation_text(caught.value)
    assert "Size: " in text
    assert "other: " in text
    assert "secret" not in text


def blank_is_refused(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class Window(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int


class Choices(BaseModel):
    model_config = ConfigDict(extra="forbid")

    names: str | list[str] = "a"
    window: Window | Literal["page"] = "page"
    word: Annotated[str, AfterValidator(blank_is_refused)] = "a"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nmaes": "a"}, "nmaes: There is no such field (did you mean names?)"),
        ({"names": ["a", 1]}, "names.1: Input should be a valid string"),
        ({"word": " "}, "word: must not be blank"),
        ({"window": "pag"}, "window: Input should be an object, or: Input should be 'page'"),
        ({"window": {"size": "many"}}, "window.size: Input should be a valid integer, unable to"),
        ({"window": {"size": 1, "is": 2}}, "window.is: There is no such field (fields: size)"),
    ],
)
def test_validation_errors_are_in_the_words_of_the_wire(given: Any, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Choices.model_validate(given)
    assert validation_text(caught.value, Choices).startswith(text)
    assert ";" not in validation_text(caught.value, Choices)


def test_many_unknown_fields_cost_no_schema_each() -> None:
    with pytest.raises(ValidationError) as caught:
        Choices.model_validate({f"field{number}": 1 for number in range(900)})
    with patch.object(Choices, "model_json_schema", wraps=Choices.model_json_schema) as schema:
        text = validation_text(caught.value, Choices)
    assert schema.call_count <= 1
    assert text.startswith("field0: There is no such field")
    assert text.count(";") < 100


def test_errors_without_number_are_counted_only() -> None:
    with pytest.raises(ValidationError) as caught:
        Choices.model_validate({f"field{number}": 1 for number in range(2000)})
    assert validation_text(caught.value, Choices) == "input: 2000 fields are not valid"
