"""Which schemas a model is given: by its provider, its URL and its name, and by what is chosen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent import wires
from tests.models.http_server import Answer, Received, error_answer, serve
from toolweave.models import (
    AnthropicModel,
    ModelRequest,
    ModelSettings,
    OpenAICompatibleModel,
    PydanticAIModel,
    UserMessage,
    complete,
    model_from,
)
from toolweave.providers import ToolRules
from toolweave.tools import ToolSpec

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "one": {"$ref": "#/$defs/Part"},
        "text": {"type": "string", "minLength": 1, "pattern": "^(?=x)"},
        "sum": {"type": "number", "minimum": 1},
    },
    "required": ["one", "text", "sum"],
    "additionalProperties": False,
    "$defs": {"Part": {"type": "object", "properties": {"n": {"const": True}}, "required": ["n"]}},
}
TOOL = ToolSpec(name="t", input_schema=SCHEMA)
STRICT = ModelSettings(strict_tools=True)


def traits(definition: Any) -> set[str]:
    """Return what is characteristic of the schema in a definition."""
    marks = {"defs": "$defs", "strict": "'strict': True", "pattern": "'pattern':"}
    marks |= {"length": "'minLength':", "bound": "'minimum':"}
    return {name for name, mark in marks.items() if mark in str(definition)}


NONE = set[str]()
PLAIN = {"defs", "length", "bound"}
"""The pattern has look-around, which no API of OpenAI's form takes."""


@pytest.mark.parametrize(
    ("url", "provider", "model", "expected"),
    [
        ("https://api.openai.com/v1", None, "gpt-5.1", PLAIN),
        ("https://host/v1", None, "m", PLAIN),
        ("https://api.groq.com/openai/v1", "groq", "llama-4", PLAIN),
        ("https://api.groq.com/openai/v1", "groq", "openai/gpt-oss-120b", PLAIN - {"defs"}),
        ("https://host/v1", None, "gpt-oss:20b", PLAIN - {"defs"}),
        ("https://api.mistral.ai/v1", None, "mistral-large-latest", PLAIN),
        ("http://localhost:11434/v1", None, "qwen3", NONE),
        ("http://host/v1", "ollama", "qwen3", NONE),
        ("http://localhost:8080/v1", "llamacpp", "qwen3", {"length"}),
        ("http://localhost:8000/v1", "vllm", "qwen3", {"length", "bound"}),
    ],
)
def test_a_server_gets_the_schemas_that_it_takes(
    url: str, provider: str | None, model: str, expected: set[str]
) -> None:
    asked = OpenAICompatibleModel(url, model=model, provider=provider)

    assert traits(asked.wire_tools([TOOL]).definitions[0]) == expected


@pytest.mark.parametrize(
    ("url", "provider", "model", "expected"),
    [
        ("https://api.openai.com/v1", None, "gpt-5.1", {"defs", "strict", "length", "bound"}),
        ("https://openrouter.ai/api/v1", "openrouter", "m", {"defs", "strict", "bound"}),
        ("https://api.groq.com/openai/v1", None, "openai/gpt-oss-20b", {"strict", "bound"}),
        ("https://api.deepseek.com/v1", "deepseek", "deepseek-chat", PLAIN),
        ("http://localhost:8000/v1", "vllm", "m", {"length", "bound"}),
    ],
)
def test_strict_tools_are_what_the_server_calls_strict(
    url: str, provider: str | None, model: str, expected: set[str]
) -> None:
    asked = OpenAICompatibleModel(url, model=model, provider=provider)

    assert traits(asked.wire_tools([TOOL], strict=True).definitions[0]) == expected


def test_the_profile_that_is_chosen_goes_before_the_one_that_fits() -> None:
    local = OpenAICompatibleModel("http://localhost:8080/v1", model="m", tool_schemas="llama.cpp")
    strict = OpenAICompatibleModel("http://host/v1", model="gpt-oss", tool_schemas="openai-strict")

    assert traits(local.wire_tools([TOOL], strict=True).definitions[0]) == {"length"}
    assert traits(strict.wire_tools([TOOL]).definitions[0]) == {"defs", "strict", "length", "bound"}


def test_a_name_of_a_model_chooses_its_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "not a real one")
    names = ("groq:openai/gpt-oss-120b", "ollama:qwen3", "llamacpp:qwen3")
    models: list[Any] = [model_from(name) for name in names]

    assert [traits(one.wire_tools([TOOL]).definitions[0]) for one in models] == [PLAIN - {"defs"}, set(), {"length"}]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("google:gemini-2.5-pro", {"defs", "bound"}),
        ("bedrock:us.amazon.nova-pro-v1:0", PLAIN - {"defs"}),
        ("groq:openai/gpt-oss-120b", PLAIN - {"defs"}),
        ("mistral:mistral-large-latest", PLAIN),
        ("openai:gpt-5.1", PLAIN),
    ],
)
def test_pydantic_ai_is_given_schemas_of_its_provider(name: str, expected: set[str]) -> None:
    pytest.importorskip("pydantic_ai")

    assert traits(PydanticAIModel(name).wire_tools([TOOL]).definitions[0]) == expected


def test_strict_tools_of_claude_stay_within_the_bounds_of_one_request() -> None:
    def spec(name: str, **properties: Any) -> ToolSpec:
        return ToolSpec(name=name, input_schema={"type": "object", "properties": properties})

    either = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    many = [spec(f"t{number}") for number in range(22)]
    optional = [spec(f"o{number}", **{f"p{one}": {"type": "string"} for one in range(10)}) for number in range(3)]
    unions = [
        ToolSpec(
            name=f"u{number}", input_schema={**spec("", **dict.fromkeys(names, either)).input_schema, "required": names}
        )
        for number, names in enumerate([[f"p{one}" for one in range(9)]] * 2)
    ]
    model = AnthropicModel("claude-sonnet-4-5", "key")

    def strict(tools: list[ToolSpec]) -> list[bool]:
        return [one.get("strict", False) for one in model.wire_tools(tools, strict=True).definitions]

    assert strict(many) == [True] * 20 + [False] * 2
    assert strict([*optional, many[0]]) == [True, True, False, True]
    assert strict(unions) == [True, False]
    assert "optional parameters" in model.wire_tools(optional, strict=True).changes["o2"][-1]
    assert not any("strict" in one for one in model.wire_tools(many).definitions)


def test_a_tool_that_cannot_be_strict_says_why_and_is_there() -> None:
    anything = ToolSpec(name="a", input_schema={"type": "object", "properties": {"x": {}}})

    wire = AnthropicModel("claude-sonnet-4-5", "key").wire_tools([anything], strict=True)

    assert wire.definitions[0]["input_schema"]["properties"] == {"x": {}}
    assert wire.changes["a"] == ("not strict: strict mode needs a type, and this takes any value (at /properties/x)",)


def test_a_request_of_more_tools_than_the_api_takes_has_the_first_of_them() -> None:
    tools = [ToolSpec(name=f"t{number}") for number in range(130)]

    wire = OpenAICompatibleModel("https://api.openai.com/v1", model="m").wire_tools(tools)
    elsewhere = OpenAICompatibleModel("http://host/v1", model="m").wire_tools(tools)

    assert [one["function"]["name"] for one in wire.definitions] == [f"t{number}" for number in range(128)]
    assert list(wire.quarantined) == ["t128", "t129"]
    assert "takes 128 tools, and this is number 129" in wire.quarantined["t128"]
    assert len(elsewhere.definitions) == 130


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
async def test_strict_tools_that_a_server_refuses_are_sent_without_from_then_on(wire: Any) -> None:
    asked: list[bool] = []

    async def handle(request: Received) -> Answer:
        asked.append("'strict': True" in str(request.json))
        if asked[-1]:
            return error_answer(
                400, {"error": {"message": "The compiled grammar is too large", "type": "invalid_request_error"}}
            )
        return wires.says(wire, "fine")

    request = ModelRequest(messages=[UserMessage.of("q")], tools=[TOOL], settings=STRICT)
    async with serve(handle) as server, wires.model_at(wire, server.url) as model:
        for _ in range(2):
            assert (await complete(model, request)).message.text == "fine"

    assert asked == [True, False, False]


def test_the_schemas_of_a_messages_server_can_be_chosen() -> None:
    odd = {"type": "object", "properties": {"$top": {"type": "integer"}}}
    tools = [ToolSpec(name="t", input_schema=odd)]

    def shown(**chosen: Any) -> dict[str, Any]:
        definition = AnthropicModel("m", "k", "http://host", **chosen).wire_tools(tools).definitions[0]
        return dict(definition)

    assert "$top" not in str(shown()["input_schema"])
    assert "$top" in str(shown(tool_schemas="openai")["input_schema"])
    assert "$top" in str(shown(tool_schemas=ToolRules(schemas="vllm"))["input_schema"])
    assert shown(tool_schemas="anthropic-strict").get("strict") is True
    assert shown().get("strict") is None
