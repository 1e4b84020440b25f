"""Responses over a real socket, against a server that refuses what OpenAI refuses."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.models.fake_openai import KEY, FakeOpenAI, fake_openai, responses_turn
from tests.models.http_server import Answer, json_answer, stream_answer
from toolweave.errors import ErrorKind, ModelError, ToolError
from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    ProviderTool,
    StreamedText,
    StreamedThinking,
    StreamedToolCall,
    ToolCallDelta,
    Usage,
    complete,
)
from toolweave.models._messages import (
    AssistantMessage,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._openai import OpenAICompatibleModel
from toolweave.models._retry import NO_RETRY
from toolweave.protocol.content import ImageContent, TextContent
from toolweave.tools import ToolResult, ToolSpec

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
HELLO = [UserMessage.of("hello")]
ADD = ToolSpec(name="math.add", input_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
REASONING: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAAA",
}


def text_item(text: str) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call_item(call_id: str, arguments: str, name: str = "math_add") -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}


def model_of(fake: FakeOpenAI, model: str = "gpt-5") -> OpenAICompatibleModel:
    return OpenAICompatibleModel(fake.url, model=model, api_key=KEY, api="responses", provider="openai", retry=NO_RETRY)


async def turn(answer: Answer, request: ModelRequest | None = None) -> tuple[list[ModelEvent], Finished]:
    """Return the events of one turn and its end."""
    async with fake_openai(answer) as fake, model_of(fake) as model:
        events = [event async for event in model.stream(request or ModelRequest(messages=HELLO))]
    *before, last = events
    assert isinstance(last, Finished)
    return before, last


async def sent(request: ModelRequest, model: str = "gpt-5") -> dict[str, Any]:
    """Return the body of a request that the API took."""
    async with fake_openai(responses_turn(text_item("ok"))) as fake, model_of(fake, model) as asked:
        await complete(asked, request)
        return fake.checked[0]


def answered(result: ToolResult) -> list[Message]:
    asked = AssistantMessage(parts=(ToolCallPart(id="c", name="math.add", arguments={"a": 1}),))
    return [*HELLO, asked, ToolMessage(outcomes=(ToolOutcome(call_id="c", name="math.add", result=result),))]


async def test_a_turn_of_thoughts_text_and_calls_arrives_in_its_order() -> None:
    items = [REASONING, text_item("Let me add."), call_item("c1", '{"a": 1}'), call_item("c2", '{"a": 2}')]
    events, last = await turn(responses_turn(*items), ModelRequest(messages=HELLO, tools=[ADD]))

    assert events == [
        StreamedThinking(text="hm"),
        StreamedText(text="Let me add."),
        StreamedToolCall(id="c1", name="math.add"),
        ToolCallDelta(id="c1", arguments='{"a":'),
        ToolCallDelta(id="c1", arguments=" 1}"),
        StreamedToolCall(id="c2", name="math.add"),
        ToolCallDelta(id="c2", arguments='{"a":'),
        ToolCallDelta(id="c2", arguments=" 2}"),
    ]
    assert last.message.parts == (
        ThinkingPart(text="hm", raw=REASONING, provider="openai"),
        TextPart(text="Let me add."),
        ToolCallPart(id="c1", name="math.add", arguments={"a": 1}),
        ToolCallPart(id="c2", name="math.add", arguments={"a": 2}),
    )
    assert last.usage == Usage(input_tokens=20, output_tokens=9, cached_tokens=5)
    assert last.stop_reason == "tool_calls"


async def test_reasoning_items_go_back_as_they_came() -> None:
    _, first = await turn(responses_turn(REASONING, call_item("c", '{"a": 1}')))
    done = ToolMessage(outcomes=(ToolOutcome(call_id="c", name="math.add", result=ToolResult.of("2")),))

    body = await sent(ModelRequest(messages=[*HELLO, first.message, done], tools=[ADD]))

    assert body["input"][1] == REASONING
    assert [item["type"] for item in body["input"]] == ["message", "reasoning", "function_call", "function_call_output"]
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["store"] is False


async def test_a_reasoning_item_without_content_is_left_out_since_nothing_is_stored() -> None:
    bare = {**REASONING, "encrypted_content": None}
    _, first = await turn(responses_turn(bare, text_item("yes")))

    body = await sent(ModelRequest(messages=[*HELLO, first.message, *HELLO]), "gpt-4.1")

    assert [item["type"] for item in body["input"]] == ["message", "message", "message"]
    assert "include" not in body


@pytest.mark.requirement("R51")
async def test_what_a_providers_own_tool_did_is_kept_and_goes_back() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    own = ProviderTool(provider="openai", definition={"type": "web_search"})
    _, first = await turn(responses_turn(search, text_item("found")))
    assert first.message.parts[0] == ProviderPart(provider="openai", raw=search)

    body = await sent(ModelRequest(messages=[*HELLO, first.message, *HELLO], provider_tools=[own]))

    assert body["input"][1] == search
    assert body["tools"] == [{"type": "web_search"}]


@pytest.mark.requirement("C17")
async def test_an_image_in_a_result_is_an_image_for_the_model() -> None:
    result = ToolResult(content=(TextContent(text="a chart"), ImageContent(data=PNG, mime_type="image/png")))

    body = await sent(ModelRequest(messages=answered(result)))

    assert body["input"][2]["output"] == [
        {"type": "input_text", "text": "a chart"},
        {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
    ]


@pytest.mark.requirement("D18")
async def test_an_error_result_says_in_its_text_that_it_is_one() -> None:
    failure = ToolResult.failure(ToolError("disk is full", kind=ErrorKind.EXECUTION_FAILED))

    body = await sent(ModelRequest(messages=answered(failure)))

    assert body["input"][2] == {"type": "function_call_output", "call_id": "c", "output": "Error: disk is full"}


@pytest.mark.requirement("D17")
async def test_arguments_of_earlier_calls_go_back_as_json_text() -> None:
    body = await sent(ModelRequest(messages=answered(ToolResult.of("2"))))

    assert body["input"][1]["arguments"] == '{"a":1}'


async def test_settings_choice_and_output_reach_the_body() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    request = ModelRequest(
        messages=HELLO,
        system="Be brief.",
        tools=[ADD],
        tool_choice="math.add",
        output_schema=schema,
        settings=ModelSettings(max_tokens=50, parallel_tool_calls=True, extra={"reasoning": {"effort": "low"}}),
    )

    body = await sent(request)

    assert body["instructions"] == "Be brief."
    assert body["tools"][0]["strict"] is False
    assert body["tool_choice"] == {"type": "function", "name": "math_add"}
    assert body["text"]["format"]["strict"] is True
    assert body["max_output_tokens"] == 50
    assert body["reasoning"] == {"effort": "low"}


async def test_a_refusal_is_text_and_the_reason_of_the_end() -> None:
    item = {**text_item(""), "content": [{"type": "refusal", "refusal": "I cannot."}]}

    events, last = await turn(responses_turn(item))

    assert events == [StreamedText(text="I cannot.")]
    assert (last.message.text, last.stop_reason) == ("I cannot.", "refusal")


@pytest.mark.parametrize(
    ("why", "reason"), [("max_output_tokens", "max_tokens"), ("content_filter", "refusal"), ("odd", "other")]
)
async def test_an_incomplete_response_says_why(why: str, reason: str) -> None:
    answer = responses_turn(text_item("half"), status="incomplete", incomplete_details={"reason": why})

    _, last = await turn(answer)

    assert (last.message.text, last.stop_reason) == ("half", reason)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "oops"}}}, "overloaded"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "oops"}, "rate_limited"),
        ({"type": "response.failed", "response": {"status": "failed", "error": {"message": "oops"}}}, "protocol"),
    ],
)
async def test_a_failure_within_the_stream_is_an_error_of_its_kind(event: dict[str, Any], kind: str) -> None:
    with pytest.raises(ModelError, match="oops") as caught:
        await turn(stream_answer([event]))

    assert caught.value.kind == kind


async def test_a_stream_that_ends_before_the_response_does_is_an_error() -> None:
    with pytest.raises(ModelError, match="ended in the middle"):
        await turn(stream_answer([{"type": "response.output_text.delta", "delta": "half"}]))


async def test_a_server_that_tells_only_the_whole_response_is_understood() -> None:
    whole = {"object": "response", "status": "completed", "output": [call_item("c", "{}")]}

    events, last = await turn(json_answer(whole), ModelRequest(messages=HELLO, tools=[ADD]))

    assert events == [StreamedToolCall(id="c", name="math.add")]
    assert last.stop_reason == "tool_calls"
