"""An API that refuses one tool: it costs that tool its schema or its place, never the turn of the others."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.agent import wires
from tests.agent.wires import WIRES, OurModel, Wire
from tests.models.http_server import Answer, Received, error_answer, serve
from toolweave import ModelError
from toolweave.models import (
    AnthropicModel,
    FallbackModel,
    Finished,
    Model,
    ModelRequest,
    ModelSettings,
    OpenAICompatibleModel,
    PydanticAIModel,
    ScriptedModel,
    UserMessage,
    complete,
)
from toolweave.providers import MODEL_APIS, ToolRules
from toolweave.tools import ToolSpec

ODD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "email": {"type": ["string", "null"], "format": "x-odd", "description": "Whose."},
        "filter[name]": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "size": {"type": ["string", "integer"]},
    },
    "required": ["email"],
    "additionalProperties": False,
}
ODD_FORMAT = '"format": "x-odd"'
TOOLS = (ToolSpec(name="fine"), ToolSpec(name="odd.one", input_schema=ODD), ToolSpec(name="last"))
WAYS: Mapping[str, dict[str, Any]] = {
    "position": {"message": "tools[1].function.parameters: format is not supported"},
    "position with dots": {"message": "tools.1.custom.input_schema: JSON schema is invalid"},
    "param": {"message": "Unsupported value.", "param": "tools[1].function.parameters"},
    "loc": {
        "message": "",
        "detail": [{"loc": ["body", "tools", 1, "function"], "msg": "Extra inputs are not permitted"}],
    },
    "declaration": {"message": "Unknown name at 'tools[0].function_declarations[1].parameters.properties[0].value'"},
    "quoted name": {"message": "Invalid schema for function 'odd_one': In context=('properties', 'last'), no."},
    "bare name": {"message": "Failed to compile the grammar of tool odd_one."},
    "path": {"message": "Invalid JSON schema: x-odd is not supported. Found at $.properties.email.format."},
    "context": {"message": "Invalid tool schema: In context=('properties', 'email', 'format'), x-odd is wrong."},
    "nothing": {"message": "Failed to parse the grammar"},
}


def names_of(body: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools in a request."""
    return [one.get("name") or one["function"]["name"] for one in body.get("tools", ())]


def has(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a check whether the tools of a request hold a text."""
    return lambda body: text in json.dumps(body.get("tools", ()))


@asynccontextmanager
async def api(
    wire: Wire, refuses: Callable[[Mapping[str, Any]], bool], error: Mapping[str, Any], **options: Any
) -> AsyncGenerator[tuple[OurModel, list[dict[str, Any]]]]:
    """Serve an API that refuses some requests with an error; yield a model and the bodies of its requests."""
    bodies: list[dict[str, Any]] = []

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        if not refuses(request.json):
            return wires.says(wire, "hello")
        return error_answer(400, {"error": {"type": "invalid_request_error", **error}})

    async with serve(handle) as server, wires.model_at(wire, server.url, **options) as model:
        with anyio.fail_after(60):
            yield model, bodies


async def ask(model: Model, tools: Sequence[ToolSpec] = TOOLS, **settings: Any) -> Finished:
    """Return a turn in a request with these tools."""
    request = ModelRequest(messages=[UserMessage.of("hi")], tools=tools, settings=ModelSettings(**settings))
    return await complete(model, request)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_that_the_api_refuses_is_sent_again_with_a_simplified_schema(wire: Wire, way: str) -> None:
    async with api(wire, has(ODD_FORMAT), WAYS[way]) as (model, bodies):
        finished = await ask(model)
        again = await ask(model)

        assert (finished.message.text, again.message.text) == ("hello", "hello")
        assert len(bodies) == 3  # refused, repaired; the later turn begins with the repaired form
        assert names_of(bodies[1]) == names_of(bodies[2]) == ["fine", "odd_one", "last"]
        assert any("'odd.one' was refused" in problem and "simplified" in problem for problem in model.problems)
        wire_tools = model.wire_tools(TOOLS)
        assert "the API refused it" in str(wire_tools.changes["odd.one"])
        assert wire_tools.arguments("odd.one", {"filter_name": "x"}) == {"filter[name]": "x"}
        if way != "nothing":
            assert len(model.problems) == 1


@pytest.mark.parametrize("way", ["position", "quoted name", "nothing"])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_refused_tool_is_the_error_of_the_turn_if_its_owner_wants_no_repairs(wire: Wire, way: str) -> None:
    rules = ToolRules(repair=False)
    async with api(wire, has(ODD_FORMAT), WAYS[way], tool_schemas=rules) as (model, bodies):
        with pytest.raises(ModelError) as refused:
            await ask(model)

        assert refused.value.kind == "invalid_request"
        assert (len(bodies), model.problems) == (1, ())


async def test_a_simplified_schema_has_names_and_types_alone() -> None:
    async with api("chat", has(ODD_FORMAT), WAYS["position"]) as (model, bodies):
        await ask(model)

    properties = bodies[1]["tools"][1]["function"]["parameters"]["properties"]
    assert properties["email"] == {"type": "string", "description": 'Whose. (format: "x-odd")'}
    assert properties["filter_name"] == {"type": "string"}
    assert properties["size"] == {"description": '(type: ["string", "integer"])'}


@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_that_stays_refused_is_left_out_and_the_others_are_called(wire: Wire) -> None:
    async with api(wire, has("odd_one"), WAYS["position"]) as (model, bodies):
        await ask(model)
        await ask(model)

        assert [names_of(body) for body in bodies][2:] == [["fine", "last"]] * 2
        assert "the API refuses it: HTTP 400: tools[1]" in model.wire_tools(TOOLS).quarantined["odd.one"]
        assert "it is not offered to the model" in model.problems[-1]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_strict_tool_is_first_sent_without_strict_mode(wire: Wire) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    tools = [ToolSpec(name=name, input_schema=schema) for name in ("a", "b")]

    def refuses(body: Mapping[str, Any]) -> bool:
        return "true" in json.dumps(body["tools"][1].get("function", body["tools"][1]).get("strict", False))

    async with api(wire, refuses, {"message": "tools.1.custom: too complex"}) as (model, bodies):
        await ask(model, tools, strict_tools=True)

    strict = [one.get("function", one).get("strict", False) for one in bodies[1]["tools"]]
    assert strict == [True, False]
    assert len(bodies) == 2


async def test_a_definition_that_its_server_corrects_is_offered_again() -> None:
    corrected = TOOLS[1].replace(input_schema={"type": "object", "properties": {"email": {"type": "string"}}})
    async with api("chat", has(ODD_FORMAT), WAYS["position"]) as (model, bodies):
        await ask(model)
        await ask(model, [TOOLS[0], corrected])

    assert bodies[-1]["tools"][1]["function"]["parameters"] == corrected.input_schema


@pytest.mark.slow
async def test_many_refused_tools_cost_few_requests() -> None:
    tools = [ToolSpec(name=f"t{n}", input_schema=ODD) for n in range(60)]

    def first_odd(body: Mapping[str, Any]) -> int | None:
        return next((n for n, one in enumerate(body["tools"]) if ODD_FORMAT in json.dumps(one)), None)

    bodies: list[dict[str, Any]] = []

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        odd = first_odd(request.json)
        if odd is None:
            return wires.says("chat", "hello")
        return error_answer(400, {"error": {"message": f"tools[{odd}].function.parameters: not supported"}})

    async with serve(handle) as server, wires.model_at("chat", server.url) as model:
        with anyio.fail_after(60):
            await ask(model, tools)

    assert len(bodies) == 9
    assert len(bodies[-1]["tools"]) == 60


@pytest.mark.parametrize("wire", WIRES)
async def test_an_api_that_refuses_every_tool_fails_after_a_bounded_number_of_requests(wire: Wire) -> None:
    tools = [ToolSpec(name=f"t{n}") for n in range(100)]

    async with api(wire, lambda body: bool(body.get("tools")), {"message": "tools[0]: no"}) as (model, bodies):
        with pytest.raises(ModelError, match="no"):
            await ask(model, tools)

    assert len(bodies) < 30


@pytest.mark.parametrize(
    "message",
    [
        "Invalid 'tools': array too long. Expected an array with maximum length 2, but got an array with length 3.",
        "Too many tools: the maximum is 2.",
        "This model supports at most 2 tools per request.",
    ],
)
async def test_a_number_of_tools_that_the_api_reports_is_kept(message: str) -> None:
    async with api("chat", lambda body: len(body["tools"]) > 2, {"message": message}) as (model, bodies):
        await ask(model)
        await ask(model)

        assert [len(body["tools"]) for body in bodies] == [3, 2, 2]
        assert "a request takes 2 tools" in model.wire_tools(TOOLS).quarantined["last"]
        assert "takes 2 tools" in model.problems[0]


async def test_a_length_of_descriptions_that_the_api_reports_is_kept() -> None:
    message = "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 100."
    tools = [ToolSpec(name=name, description="word " * 60) for name in ("a", "b")]

    async with api("chat", has("word " * 30), {"message": message}) as (model, bodies):
        del bodies
        wire = model.wire_tools(tools)
        assert len(wire.definitions[0]["function"]["description"]) == 300

    def refuses(body: Mapping[str, Any]) -> bool:
        return any(len(one["function"]["description"]) > 100 for one in body["tools"])

    async with api("chat", refuses, {"message": message}) as (model, bodies):
        await ask(model, tools)

        assert len(bodies) == 2
        assert "100 characters" in model.problems[0]


@pytest.mark.parametrize(
    "message",
    ["Unknown model", "messages[1].content: invalid", "tool_choice is not supported", "max_tokens is too large"],
)
async def test_an_error_about_something_else_costs_no_tool(message: str) -> None:
    async with api("chat", lambda _: True, {"message": message}) as (model, bodies):
        with pytest.raises(ModelError):
            await ask(model)

        assert len(bodies) == 1
        assert not model.problems


async def test_a_tool_that_pydantic_ai_reports_as_refused_is_sent_in_another_form() -> None:
    seen: list[Any] = []

    async def stream(_: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str]:
        seen.append([tool.parameters_json_schema for tool in info.function_tools])
        if ODD_FORMAT in json.dumps(seen[-1]):
            raise ModelHTTPError(400, "m", {"error": {"message": "tools[1]: no such format"}})
        yield "hello"

    model = PydanticAIModel(FunctionModel(stream_function=stream))
    finished = await ask(model)

    assert finished.message.text == "hello"
    assert len(seen) == 2
    assert "'odd.one' was refused" in model.problems[0]
    assert FallbackModel(model, ScriptedModel([])).problems == model.problems


async def test_a_refused_tool_is_an_event_of_the_present_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with api("chat", has(ODD_FORMAT), WAYS["position"]) as (model, _):
        with trace.use_span(provider.get_tracer("t").start_span("turn"), end_on_exit=True):
            await ask(model)

    [span] = exporter.get_finished_spans()
    assert [(event.name, dict(event.attributes or {})) for event in span.events] == [
        ("toolweave.tool_refused", {"gen_ai.tool.name": "odd.one", "toolweave.refusal.status": 400})
    ]


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "https://mine.openai.azure.com/openai/v1",
        "https://mine.cognitiveservices.azure.com/openai/v1",
        "https://mine.services.ai.azure.com/openai/v1",
    ],
)
def test_the_limits_of_an_api_are_known_and_can_be_replaced(url: str) -> None:
    tools = [ToolSpec(name=f"t{n}", description="x" * 2_000) for n in range(130)]

    known = OpenAICompatibleModel(url, model="m").wire_tools(tools)
    own = OpenAICompatibleModel(url, model="m", tool_schemas=ToolRules(max_tools=129)).wire_tools(tools)

    assert (len(known.definitions), len(own.definitions)) == (128, 129)
    assert len(known.definitions[0]["function"]["description"]) <= 1_024
    assert len(own.definitions[0]["function"]["description"]) == 2_000
    assert len(PydanticAIModel("test", tool_schemas=ToolRules(max_tools=1)).wire_tools(tools).definitions) == 1
    claude = AnthropicModel("m", "k", tool_schemas=ToolRules(max_tools=3, max_description=900)).wire_tools(tools)
    assert len(claude.definitions) == 3
    assert len(claude.definitions[0]["description"]) <= 900
    assert len(AnthropicModel("m", "k").wire_tools(tools).definitions) == 130
    with pytest.raises(ValueError, match="max_tools must be at least 1"):
        ToolRules(max_tools=0)


def test_every_row_of_the_table_has_its_source_and_its_date() -> None:
    assert len({api.provider for api in MODEL_APIS}) == len(MODEL_APIS)
    assert all(api.source and api.date.startswith("2026-") for api in MODEL_APIS)
