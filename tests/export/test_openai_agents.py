"""A toolset in the OpenAI Agents SDK, the real one, over a scripted model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from agents import Agent, FunctionTool, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from tests.export.offers import ODD_SCHEMAS, PNG, Rendezvous, registry
from tests.tools.doubles import Scripted, spec
from toolweave import ToolRegistry, Toolset, tool
from toolweave.export import openai_agents_tools

QUIET = RunConfig(tracing_disabled=True)


class Turns(Model):
    """A model that says what it is told and keeps what it was asked."""

    def __init__(self, *turns: list[Any]) -> None:
        self._turns = iter(turns)
        self.inputs: list[Any] = []
        self.offered: list[list[str]] = []

    async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *more: Any, **named: Any) -> ModelResponse:  # fmt: skip # noqa: E501
        self.inputs.append(input)
        self.offered.append([one.name for one in tools])
        return ModelResponse(output=next(self._turns), usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    def outputs(self) -> Iterator[Any]:
        """The outputs of the calls that the last request tells of."""
        return (item["output"] for item in self.inputs[-1] if item.get("type") == "function_call_output")


def call(name: str, call_id: str = "c1", **arguments: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id, id=call_id
    )


def say(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


async def run(toolset: Toolset | list[Any], *calls: ResponseFunctionToolCall, strict: bool = False) -> Turns:
    model = Turns(list(calls), [say("done")])
    agent = Agent(name="tester", model=model, tools=openai_agents_tools(toolset, strict=strict))
    with anyio.fail_after(60):
        result = await Runner.run(agent, "go", run_config=QUIET)
    assert result.final_output == "done"
    return model


@pytest.mark.requirement("C1")
def test_tools_carry_legal_names_and_their_own_schema() -> None:
    tools = openai_agents_tools(registry())

    assert all(isinstance(one, FunctionTool) for one in tools)
    assert [one.name for one in tools] == ["add", "broken", "picture", "whoami", "odd_name"]
    assert isinstance(tools[0], FunctionTool)
    assert tools[0].params_json_schema == registry().snapshot()[0].input_schema
    assert not tools[0].strict_json_schema


@pytest.mark.requirement("R77", "C28", "D18")
async def test_a_run_calls_tools_at_the_same_time_and_errors_do_not_end_it() -> None:
    model = await run(
        [registry(), Rendezvous(3).meet],
        *(call("meet", f"c{n}", number=n) for n in range(3)),
        call("broken", "c3", reason="rain"),
        call("odd_name", "c4", self="1"),
        call("add", "c5", a="x"),
    )

    *answers, broken, odd, malformed = model.outputs()
    assert answers == ["number 0", "number 1", "number 2"]
    assert broken == "Error: it broke: rain"
    assert odd == "self=1"
    assert malformed.startswith("Error: invalid arguments for tool 'add'")


@pytest.mark.requirement("C17")
async def test_an_image_reaches_the_model_as_an_image() -> None:
    model = await run(registry(), call("picture"))

    (output,) = model.outputs()
    assert [part["type"] for part in output] == ["input_text", "input_image"]
    assert output[1]["image_url"] == f"data:image/png;base64,{PNG}"


async def test_strict_tools_are_strict_and_their_nulls_do_not_reach_the_tool() -> None:
    model = await run(registry(), call("add", a=1, b=None), strict=True)

    assert list(model.outputs()) == ["3"]


async def test_a_tool_that_went_is_not_offered_at_the_next_turn() -> None:
    inner = ToolRegistry([tool(lambda: "one", name="one")])

    @inner.add
    def leave() -> str:
        """Takes a tool away."""
        inner.remove("one")
        return "gone"

    model = await run(inner, call("leave"))

    assert model.offered == [["one", "leave"], ["leave"]]


async def test_a_tool_that_went_and_is_called_all_the_same_is_told_to_the_model_where_the_run_says_so() -> None:
    inner = ToolRegistry([tool(lambda: "one", name="one")])

    @inner.add
    def leave() -> str:
        """Takes a tool away."""
        inner.remove("one")
        return "gone"

    model = Turns([call("leave")], [call("one", "c2")], [say("done")])
    agent = Agent(name="tester", model=model, tools=openai_agents_tools(inner))
    tolerant = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")
    result = await Runner.run(agent, "go", run_config=tolerant)

    assert result.final_output == "done"
    assert "not found" in str([*model.outputs()][-1])


async def test_an_export_neither_opens_nor_closes_what_it_borrowed() -> None:
    inner = Scripted([spec("one")])

    await run(inner, call("one"))

    assert inner.open == 0
    assert [made.id for made, _ in inner.calls] == ["c1"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("schema", ODD_SCHEMAS.values(), ids=ODD_SCHEMAS)
async def test_arguments_have_names_that_every_model_api_accepts_and_reach_the_tool_under_their_own(
    schema: dict[str, Any], strict: bool
) -> None:
    seen: list[dict[str, Any]] = []

    def search(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return "found"

    made = tool(search, input_schema=schema)
    (shown,) = openai_agents_tools([made], strict=strict)
    assert isinstance(shown, FunctionTool)
    names = set(shown.params_json_schema["properties"])
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert names >= {"filter_name", "top", "plain"}
    assert set(shown.params_json_schema.get("required", [])) <= names
    assert "#/properties/filter" not in json.dumps(shown.params_json_schema)

    model = await run([made], call("search", filter_name="a", top=3, plain="b"), strict=strict)
    assert list(model.outputs()) == ["found"]
    assert seen == [{"filter[name]": "a", "$top": 3, "plain": "b"}]


def test_a_schema_whose_names_are_legal_keeps_them() -> None:
    def legal(arguments: dict[str, Any]) -> str:
        return str(arguments)

    made = tool(legal, input_schema={"type": "object", "properties": {"a-b": {"type": "string"}}})
    (shown,) = openai_agents_tools([made])

    assert isinstance(shown, FunctionTool)
    assert shown.params_json_schema == made.spec.input_schema
