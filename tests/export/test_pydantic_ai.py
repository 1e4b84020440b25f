"""A toolset in Pydantic AI, the real one, over its own function model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.export.offers import ODD_SCHEMAS, PNG, Rendezvous, registry
from tests.tools.doubles import Scripted, spec
from toolweave import ToolRegistry, Toolset, tool
from toolweave.export import pydantic_ai_toolset


class Turns:
    """A model that makes these calls, then ends, and keeps what it was offered."""

    def __init__(self, *turns: Sequence[ToolCallPart]) -> None:
        self._turns = iter(turns)
        self.offered: list[list[str]] = []
        self.info: AgentInfo | None = None

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.info = info
        self.offered.append([one.name for one in info.function_tools])
        calls = next(self._turns, ())
        return ModelResponse(parts=[*calls] or [TextPart("done")])


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool_name=name, args=arguments, tool_call_id=call_id)


async def run(toolset: Toolset | list[Any], *turns: Sequence[ToolCallPart]) -> tuple[Turns, list[Any]]:
    """Return the model and the parts that answer the tool calls."""
    model = Turns(*turns)
    agent = Agent(FunctionModel(model), toolsets=[pydantic_ai_toolset(toolset)])
    with anyio.fail_after(60):
        result = await agent.run("go")
    assert result.output == "done"
    answers = [part for one in result.all_messages() for part in one.parts if isinstance(part, ToolReturnPart)]
    return model, answers


@pytest.mark.requirement("C1", "R80")
async def test_definitions_carry_legal_names_their_own_schema_and_where_they_come_from() -> None:
    annotated = spec("read.file", annotations={"readOnlyHint": True}, meta={"sequential": True})
    model, _ = await run([registry(), Scripted([annotated])])

    assert model.offered == [["add", "broken", "picture", "whoami", "odd_name", "read_file"]] or model.info
    assert model.info is not None
    tools = {one.name: one for one in model.info.function_tools}
    assert tools["add"].parameters_json_schema == registry().snapshot()[0].input_schema
    assert tools["read_file"].sequential
    assert tools["read_file"].metadata is not None
    assert tools["read_file"].metadata["name"] == "read.file"
    assert tools["read_file"].metadata["annotations"] == {"readOnlyHint": True}


@pytest.mark.requirement("R77", "C28", "D18")
async def test_a_run_calls_tools_at_the_same_time_and_errors_do_not_end_it() -> None:
    _, answers = await run(
        [registry(), Rendezvous(3).meet],
        [
            *(call("meet", f"c{n}", number=n) for n in range(3)),
            call("broken", "c3", reason="rain"),
            call("odd_name", "c4", self="1"),
        ],
        *([call("add", f"d{n}", a="x")] for n in range(4)),
    )

    assert [one.content for one in answers[:3]] == ["number 0", "number 1", "number 2"]
    assert "it broke: rain" in str(answers[3].content)
    assert answers[3].outcome == "failed"
    assert answers[4].content == "self=1"
    assert ["invalid arguments" in str(one.content) for one in answers[5:]] == [True] * 4


@pytest.mark.requirement("C17")
async def test_an_image_reaches_the_model_as_an_image() -> None:
    _, (answer,) = await run(registry(), [call("picture")])

    text, image = answer.content
    assert text == "here it is"
    assert isinstance(image, BinaryContent)
    assert image.media_type == "image/png"
    assert image.base64 == PNG


async def test_structured_content_is_the_applications() -> None:
    @tool
    def fields() -> dict[str, int]:
        """Returns fields."""
        return {"x": 1}

    _, (answer,) = await run([fields], [call("fields")])

    assert answer.content == '{"x": 1}'
    assert answer.metadata == {"structured_content": {"x": 1}, "meta": {}}


async def test_malformed_arguments_are_told_to_the_model_as_often_as_it_writes_them() -> None:
    texts = ['{"a": ', "[1]", "null", ""]
    wrong = [[ToolCallPart(tool_name="add", args=text, tool_call_id=f"c{n}")] for n, text in enumerate(texts)]
    _, answers = await run(registry(), *wrong, [ToolCallPart(tool_name="add", args='{"a": 1}', tool_call_id="c9")])

    assert [one.outcome for one in answers] == ["failed"] * 4 + ["success"]
    assert "not a JSON object: '[1]'" in str(answers[1].content)
    assert 'missing required property "a"' in str(answers[3].content)
    assert answers[4].content == "3"


async def test_what_changes_during_a_run_is_seen_at_its_next_step() -> None:
    inner = ToolRegistry([tool(lambda: "one", name="one")])

    @inner.add
    def swap() -> str:
        """Changes the tools."""
        inner.remove("one")
        inner.add(tool(lambda: "two", name="two"))
        return "swapped"

    model, answers = await run(inner, [call("swap")], [call("two")])

    assert model.offered == [["one", "swap"], ["swap", "two"], ["swap", "two"]]
    assert answers[-1].content == "two"


async def test_it_composes_like_any_toolset_of_theirs() -> None:
    exported = pydantic_ai_toolset(registry(), id="ours")
    model = Turns([call("x_add", a=1)])
    composed = exported.filtered(lambda ctx, one: one.name == "add").prefixed("x")

    result = await Agent(FunctionModel(model), toolsets=[composed]).run("go")

    assert exported.id == "ours"
    assert model.offered[0] == ["x_add"]
    assert "3" in str(result.all_messages())


async def test_an_export_neither_opens_nor_closes_what_it_borrowed() -> None:
    inner = Scripted([spec("one")])

    await run(inner, [call("one")])

    assert inner.open == 0
    assert [made.id for made, _ in inner.calls] == ["c1"]


async def test_arguments_have_names_that_every_model_api_accepts_and_reach_the_tool_under_their_own() -> None:
    seen: list[dict[str, Any]] = []

    def search(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return "found"

    properties = {"filter[name]": {"type": "string"}, "$top": {"type": "integer"}, "filter_name_": {"type": "string"}}
    made = tool(search, input_schema={"type": "object", "properties": properties, "required": ["filter[name]"]})
    model, _ = await run([made])
    assert model.info is not None
    (shown,) = model.info.function_tools
    names = list(shown.parameters_json_schema["properties"])
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert shown.parameters_json_schema["required"] == names[:1]

    arguments: dict[str, Any] = dict(zip(names, ["a", 3, "b"], strict=True))
    _, answers = await run([made], [call("search", "c1", **arguments)])
    assert [one.content for one in answers] == ["found"]
    assert seen == [{"filter[name]": "a", "$top": 3, "filter_name_": "b"}]


@pytest.mark.parametrize("schema", ODD_SCHEMAS.values(), ids=ODD_SCHEMAS)
async def test_names_behind_references_and_combinations_are_legal_and_reach_the_tool_under_their_own(
    schema: dict[str, Any],
) -> None:
    seen: list[dict[str, Any]] = []

    def search(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return "found"

    made = tool(search, input_schema=schema)
    model, answers = await run([made], [call("search", "c1", filter_name="a", top=3, plain="b")])

    assert model.info is not None
    (shown,) = model.info.function_tools
    assert set(shown.parameters_json_schema["properties"]) >= {"filter_name", "top", "plain"}
    assert [one.content for one in answers] == ["found"]
    assert seen == [{"filter[name]": "a", "$top": 3, "plain": "b"}]
