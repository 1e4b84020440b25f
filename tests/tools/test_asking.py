"""Questions and answers as values: how they are written for the wire and read from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolweave import ToolError, connect, tools
from toolweave.errors import SchemaError
from toolweave.protocol.client_requests import can_answer, message_content_json
from toolweave.protocol.content import ImageContent, TextContent, UnknownContent
from toolweave.protocol.logs import check_level
from toolweave.tools import CallContext, Elicitation, Root, Roots, Sampling, SamplingMessage, SamplingResult, ToolSpec
from toolweave.tools._client_requests import Keys, form_of, read_form


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Number(IntEnum):
    ONE = 1


class Everything(BaseModel):
    """All that a form can ask for."""

    name: str = Field(title="Your name", description="As on the card", min_length=1, max_length=9)
    age: int = Field(ge=0, le=150)
    share: float = 0.5
    agreed: bool = False
    born: date | None = None
    color: Color = Color.RED
    size: Literal["s", "m"]
    fixed: Literal["only"] = "only"
    extras: list[Literal["a", "b"]] = Field(default=[], max_length=2)
    nick: str | None = None


@dataclass
class Point:
    x: int
    y: int = 0


class Typed(TypedDict):
    x: int


class Inner(BaseModel):
    x: int


class Nested(BaseModel):
    inner: Inner


class Numbered(BaseModel):
    number: Number


class Many(BaseModel):
    texts: list[str]


class Either(BaseModel):
    either: int | str


def test_a_model_becomes_a_form_of_flat_fields() -> None:
    form = form_of(Everything)

    assert form == {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "title": "Your name",
                "description": "As on the card",
                "minLength": 1,
                "maxLength": 9,
            },
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "share": {"type": "number", "default": 0.5},
            "agreed": {"type": "boolean", "default": False},
            "born": {"type": "string", "format": "date"},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "size": {"type": "string", "enum": ["s", "m"]},
            "fixed": {"type": "string", "enum": ["only"], "default": "only"},
            "extras": {
                "type": "array",
                "default": [],
                "items": {"type": "string", "enum": ["a", "b"]},
                "maxItems": 2,
            },
            "nick": {"type": "string"},
        },
        "required": ["name", "age", "size"],
    }


@pytest.mark.parametrize("kind", [Point, Typed])
def test_a_dataclass_and_a_typed_dict_become_forms_too(kind: type) -> None:
    assert form_of(kind)["properties"]["x"] == {"type": "integer"}
    assert form_of(kind)["required"] == ["x"]


@pytest.mark.parametrize(
    ("kind", "field"),
    [(Nested, "inner"), (Numbered, "number"), (Many, "texts"), (Either, "either")],
)
def test_a_field_that_no_form_can_have_is_named(kind: type, field: str) -> None:
    with pytest.raises(SchemaError, match=f"'{kind.__name__}' has a field '{field}'") as caught:
        form_of(kind)

    assert caught.value.pointer == f"/properties/{field}"


@pytest.mark.parametrize("kind", [int, str])
def test_a_type_without_fields_is_no_form(kind: type) -> None:
    with pytest.raises(SchemaError, match="not an object with fields"):
        form_of(kind)


def test_a_given_schema_is_kept_as_it_is() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "one": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
            "many": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
            "old": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
            "weird": {"type": "string", "x-more": 1},
        },
    }

    assert form_of(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"x": True}},
        {"type": "object", "properties": {"x": {"type": "object"}}},
        {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"x": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"x": {"type": "integer", "enum": [1]}}},
        {"type": "object", "properties": {"x": {"type": "string", "enum": "ab"}}},
    ],
)
def test_a_given_schema_that_is_no_form_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        form_of(schema)


def test_a_question_without_a_form_has_no_fields() -> None:
    assert Elicitation("Sure?").params(modern=True) == {
        "message": "Sure?",
        "requestedSchema": {"type": "object", "properties": {}},
    }


def test_what_was_filled_in_becomes_an_instance_of_the_model() -> None:
    content = {"name": "Ada", "age": 36, "size": "m", "born": "1815-12-10", "color": "blue"}

    value = read_form(Everything, content)

    assert isinstance(value, Everything)
    assert (value.born, value.color, value.nick) == (date(1815, 12, 10), Color.BLUE, None)
    assert read_form(Point, {"x": 1}) == Point(1, 0)


@pytest.mark.parametrize("schema", [Point, {"type": "object", "properties": {"x": {"type": "integer"}}}])
def test_what_does_not_fit_the_form_is_named_without_its_value(schema: Any) -> None:
    with pytest.raises(ToolError, match="does not fit the form") as caught:
        read_form(schema, {"x": "secret"})

    assert "x" in caught.value.message


def test_a_page_to_visit_has_a_name_only_where_the_revision_wants_one() -> None:
    question = Elicitation("Pay", url="https://pay.test")

    assert question.params(modern=True) == {"mode": "url", "message": "Pay", "url": "https://pay.test"}
    assert isinstance(question.params(modern=False)["elicitationId"], str)
    read = question.read({"action": "accept", "content": {"ignored": 1}})
    assert (read.accepted, read.content) == (True, None)


def test_a_sampling_question_is_written_as_the_specification_has_it() -> None:
    picture = ImageContent(data="aGk=", mime_type="image/png")
    spec = ToolSpec(name="look", description="Look", input_schema={"type": "object"})
    question = Sampling(
        [
            "Look",
            SamplingMessage(role="assistant", content=(TextContent(text="At what?"),)),
            SamplingMessage(role="user", content=(TextContent(text="This"), picture)),
            {"role": "user", "content": {"type": "text", "text": "raw"}},
        ],
        max_tokens=9,
        system_prompt="Be brief",
        temperature=0.0,
        stop_sequences=("END",),
        tools=[spec, {"name": "raw", "inputSchema": {"type": "object"}}],
        tool_choice="required",
        more={"modelPreferences": {"hints": [{"name": "small"}]}},
    )

    assert question.params(modern=True) == {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Look"}},
            {"role": "assistant", "content": {"type": "text", "text": "At what?"}},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "This"},
                    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                ],
            },
            {"role": "user", "content": {"type": "text", "text": "raw"}},
        ],
        "maxTokens": 9,
        "systemPrompt": "Be brief",
        "temperature": 0.0,
        "stopSequences": ["END"],
        "tools": [
            {"name": "look", "description": "Look", "inputSchema": {"type": "object"}},
            {"name": "raw", "inputSchema": {"type": "object"}},
        ],
        "toolChoice": {"mode": "required"},
        "modelPreferences": {"hints": [{"name": "small"}]},
    }


def test_what_a_model_said_is_read_whatever_it_is() -> None:
    use: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    blocks: list[Any] = [
        {"type": "text", "text": "Hi"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        use,
        5,
    ]

    said = Sampling("?").read({"role": "assistant", "content": blocks, "model": "m", "stopReason": "toolUse"})

    assert isinstance(said.content, tuple)
    text, picture, used, odd = said.content
    assert (text, picture) == (TextContent(text="Hi"), ImageContent(data="aGk=", mime_type="image/png"))
    assert isinstance(used, UnknownContent)
    assert used.raw == use
    assert odd == TextContent(text="5")
    assert (said.stop_reason, said.model) == ("toolUse", "m")
    assert said.text.startswith("Hi\n")


@pytest.mark.parametrize(
    "answer",
    [5, None, {}, {"model": "m"}, {"content": None, "model": "m"}, {"content": [], "model": "m"}],
)
def test_what_is_no_sampling_result_is_refused(answer: Any) -> None:
    with pytest.raises(ToolError, match="malformed"):
        Sampling("?").read(answer)


@pytest.mark.parametrize("answer", [5, None, {}, {"roots": {}}, {"roots": ["file:///x"]}, {"roots": [{"uri": 1}]}])
def test_what_is_no_list_of_roots_is_refused(answer: Any) -> None:
    with pytest.raises(ToolError, match="malformed"):
        Roots().read(answer)


def test_roots_are_read_with_their_names() -> None:
    read = Roots().read({"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b", "name": 5}]})

    assert read == (Root(uri="file:///a", name="A"), Root(uri="file:///b"))


def test_a_result_as_an_answering_client_writes_it_has_a_text_too() -> None:
    assert SamplingResult(content="Hi").text == "Hi"
    assert SamplingResult(content=[TextContent(text="a"), {"type": "text", "text": "b"}]).text == "a\nb"
    assert message_content_json([TextContent(text="a")]) == {"type": "text", "text": "a"}


def test_made_keys_differ_by_what_is_asked_and_are_the_same_in_every_run() -> None:
    def run() -> list[str]:
        keys = Keys()
        first = keys.of([Elicitation("a"), Elicitation("b"), Sampling("a"), Roots()])
        return first + keys.of([Elicitation("a")])

    made = run()

    assert made == run()
    assert len(set(made)) == 5
    assert made[4] == f"{made[0]}-2"


def test_capabilities_are_enough_only_with_every_part() -> None:
    assert can_answer({"elicitation": {"form": {}}}, {"elicitation": {}})
    assert not can_answer({"elicitation": {"url": {}}}, {"elicitation": {}})
    assert not can_answer({"sampling": {"tools": {}}}, {"sampling": {"tools": None}})
    assert can_answer({}, {})


async def test_where_there_is_no_client_asking_says_so() -> None:
    ctx = CallContext()

    assert not ctx.can("elicitation")
    await ctx.log("info", "into the void")
    await ctx.release_stream()
    for ask in (ctx.elicit("?"), ctx.sample("?"), ctx.list_roots(), ctx.elicit_url("?", "https://x.test")):
        with pytest.raises(ToolError, match="no client to ask"):
            await ask


def test_a_level_that_there_is_not_is_refused() -> None:
    check_level("notice")
    with pytest.raises(ValueError, match="no log level 'loud'"):
        check_level("loud")


@pytest.mark.parametrize("name", ["ElicitationResult", "Root", "SamplingMessage", "SamplingResult"])
def test_both_ends_of_a_connection_share_these_values(name: str) -> None:
    assert getattr(connect, name) is getattr(tools, name)


def test_a_root_is_made_of_a_path_or_a_uri(tmp_path: Path) -> None:
    assert Root.of(tmp_path) == Root(uri=tmp_path.as_uri(), name=tmp_path.name)
    assert Root.of("file:///x") == Root(uri="file:///x")
    assert Root.of(Root(uri="file:///b")) == Root(uri="file:///b")
