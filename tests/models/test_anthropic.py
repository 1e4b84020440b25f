"""The Messages API over a real socket, against a server that refuses what Anthropic refuses."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.models.fake_anthropic import KEY, FakeAnthropic, call, fake_anthropic, said, streamed, thought, turn
from tests.models.fake_anthropic import turn_events as events_of
from tests.models.http_server import Answer, json_answer
from toolweave.errors import ErrorKind, ModelError, ToolError
from toolweave.models import AnthropicModel, complete
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
from toolweave.models._retry import NO_RETRY
from toolweave.protocol.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from toolweave.tools import ToolResult, ToolSpec

HELLO = [UserMessage.of("hello")]
ADD = ToolSpec(
    name="math.add",
    description="Adds.",
    input_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
CALL = ToolCallPart(id="toolu_1", name="math.add", arguments={"a": 1})


def based(data: bytes) -> str:
    return base64.b64encode(data).decode()


PNG = based(b"\x89PNG\r\n\x1a\nrest")
PDF = based(b"%PDF-1.7 rest")


def model_of(fake: FakeAnthropic, **more: Any) -> AnthropicModel:
    options: dict[str, Any] = {"retry": NO_RETRY, **more}
    model = AnthropicModel("m", KEY, fake.url, **options)
    model.native_tool_search = True
    model.origin = "anthropic"  # as Anthropic's own API
    return model


async def ask(
    answer: Answer, request: ModelRequest | None = None, **more: Any
) -> tuple[list[ModelEvent], Finished, dict[str, Any]]:
    """Return the events of one turn, its end, and what was sent."""
    async with fake_anthropic(answer) as fake, model_of(fake, **more) as model:
        events = [event async for event in model.stream(request or ModelRequest(messages=HELLO))]
        assert isinstance(events[-1], Finished)
        return events[:-1], events[-1], fake.checked[-1]


async def sent(messages: Sequence[Message], **more: Any) -> dict[str, Any]:
    """Return the body of a request that was accepted."""
    options: dict[str, Any] = {"tools": [ADD], **more}
    _, _, body = await ask(said("ok"), ModelRequest(messages=messages, **options))
    return body


def outcome(result: ToolResult, call_id: str = "toolu_1") -> ToolMessage:
    return ToolMessage(outcomes=(ToolOutcome(call_id=call_id, name="math.add", result=result),))


def blocks(*content: ContentBlock) -> ToolResult:
    return ToolResult(content=content)


async def test_text_comes_in_pieces_and_the_usage_counts_what_the_cache_held() -> None:
    events, finished, body = await ask(said("Hello there"), ModelRequest(messages=HELLO, system="Be kind."))

    assert events == [StreamedText(text="Hello"), StreamedText(text=" there")]
    assert finished.message == AssistantMessage(parts=(TextPart(text="Hello there"),))
    assert finished.stop_reason == "end"
    assert finished.usage == Usage(input_tokens=142, output_tokens=25, cached_tokens=100, cache_written_tokens=30)
    assert (body["model"], body["stream"], body["max_tokens"]) == ("m", True, 16_384)
    assert [block["text"] for block in body["system"]] == ["Be kind."]


@pytest.mark.requirement("C1", "R80")
async def test_parallel_calls_come_under_the_names_that_the_agent_knows() -> None:
    wire = turn(
        {"type": "text", "text": "Sure"}, call("toolu_1", "math_add", {"a": 1}), call("toolu_2", "math_add", {})
    )

    events, finished, body = await ask(wire, ModelRequest(messages=HELLO, tools=[ADD]))

    assert [tool["name"] for tool in body["tools"]] == ["math_add"]
    assert finished.stop_reason == "tool_calls"
    assert finished.message.tool_calls == (CALL, ToolCallPart(id="toolu_2", name="math.add"))
    assert [event for event in events if isinstance(event, StreamedToolCall)] == [
        StreamedToolCall(id="toolu_1", name="math.add"),
        StreamedToolCall(id="toolu_2", name="math.add"),
    ]
    assert "".join(one.arguments for one in events if isinstance(one, ToolCallDelta)) == '{"a": 1}'


async def test_a_signed_thought_goes_back_as_it_came_and_another_providers_does_not() -> None:
    events, first, _ = await ask(turn(thought("Let me see"), call("toolu_1", "math_add", {"a": 1})))
    foreign = ThinkingPart(text="hm", raw={"reasoning": "hm"}, provider="openai")
    told = AssistantMessage(parts=(*first.message.parts, foreign, ProviderPart(provider="openai", raw={"type": "x"})))

    body = await sent([*HELLO, told, outcome(blocks(TextContent(text="2")))])

    assert [event.text for event in events if isinstance(event, StreamedThinking)] == ["Let m", "e see"]
    assert body["messages"][1]["content"][0] == thought("Let me see")
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "tool_use"]


async def test_hidden_thoughts_go_back_too() -> None:
    hidden = {"type": "redacted_thinking", "data": "abc"}
    _, first, _ = await ask(turn(hidden, {"type": "text", "text": "Well"}))

    body = await sent([*HELLO, first.message, UserMessage.of("and?")])

    assert body["messages"][1]["content"] == [hidden, {"type": "text", "text": "Well"}]


@pytest.mark.requirement("C17", "R56")
async def test_a_result_keeps_its_images_and_documents_and_tells_of_the_rest() -> None:
    result = blocks(
        TextContent(text="see"),
        ImageContent(data=PNG, mime_type="image/jpeg"),  # says what it is not
        EmbeddedResource(uri="file:///a.pdf", mime_type="application/pdf", blob=PDF),
        EmbeddedResource(uri="file:///a.txt", mime_type="text/plain", text="words"),
        ResourceLink(uri="file:///b", name="b"),
        AudioContent(data=based(b"RIFF"), mime_type="audio/wav"),
        ImageContent(data="no base64!", mime_type="image/png"),
        ImageContent(data=based(b"<svg/>"), mime_type="image/svg+xml"),
        TextContent(text="  "),
    )

    body = await sent([*HELLO, AssistantMessage(parts=(CALL,)), outcome(result)], system="x")

    content = body["messages"][2]["content"][0]["content"]
    assert [block["type"] for block in content] == [
        "text",
        "image",
        "document",
        "document",
        "text",
        "text",
        "text",
        "text",
    ]
    assert content[1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert content[2]["source"]["media_type"] == "application/pdf"
    assert content[3]["source"] == {"type": "text", "media_type": "text/plain", "data": "words"}
    assert content[4]["text"] == "b (file:///b)"
    assert content[5]["text"].startswith("[audio: audio/wav")
    assert content[7]["text"].startswith("[image: image/svg+xml")


@pytest.mark.requirement("D18")
@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult.failure("no such file"), "no such file"),
        (ToolResult(is_error=True, error=ToolError("", kind=ErrorKind.TIMEOUT)), "the tool failed and did not say why"),
        (
            ToolResult(content=(ImageContent(data=PNG, mime_type="image/png"),), is_error=True),
            "[image: image/png, 12 B]",
        ),
    ],
)
async def test_an_error_is_marked_as_one_and_told_in_text_alone(result: ToolResult, text: str) -> None:
    body = await sent([*HELLO, AssistantMessage(parts=(CALL,)), outcome(result)], system="x")

    answer = body["messages"][2]["content"][0]
    assert answer["is_error"] is True
    assert answer["content"] == [{"type": "text", "text": text}]


async def test_structured_content_stands_in_for_a_result_without_blocks() -> None:
    body = await sent([*HELLO, AssistantMessage(parts=(CALL,)), outcome(ToolResult(structured_content={"b": 2}))])

    assert body["messages"][2]["content"][0]["content"][0]["text"] == '{"b": 2}'


@pytest.mark.requirement("R58")
async def test_results_come_first_in_the_order_of_the_calls_and_the_users_words_after_them() -> None:
    two = AssistantMessage(parts=(CALL, ToolCallPart(id="toolu 2", name="gone")))
    results = ToolMessage(
        outcomes=tuple(
            ToolOutcome(call_id=call_id, name="n", result=ToolResult.of(call_id)) for call_id in ("toolu 2", "toolu_1")
        )
    )

    body = await sent([*HELLO, two, results, UserMessage.of("go on"), UserMessage.of("please")])

    calls = [block["id"] for block in body["messages"][1]["content"]]
    content = body["messages"][2]["content"]
    assert [block.get("tool_use_id") for block in content] == [*calls, None, None]
    assert [block["text"] for block in content[2:]] == ["go on", "please"]
    assert len(body["messages"]) == 3


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([*HELLO, AssistantMessage(parts=(CALL,))], id="a call without its result"),
        pytest.param([*HELLO, AssistantMessage(parts=(CALL,)), UserMessage.of("never mind")], id="an interrupted call"),
        pytest.param([*HELLO, outcome(ToolResult.of("2"))], id="a result without its call"),
        pytest.param([AssistantMessage(parts=(TextPart(text="Hi"),)), *HELLO], id="an assistant that begins"),
        pytest.param([*HELLO, AssistantMessage(), *HELLO], id="an assistant that says nothing"),
        pytest.param([UserMessage.of("")], id="a user who says nothing"),
        pytest.param([*HELLO, AssistantMessage(parts=(TextPart(text=" "),)), *HELLO], id="blank text"),
        pytest.param([UserMessage.of("half a pair: \ud83d")], id="a lone surrogate"),
        pytest.param([*HELLO, AssistantMessage(parts=(CALL,)), outcome(ToolResult())], id="a result that is empty"),
    ],
)
async def test_a_conversation_of_any_shape_is_one_that_the_api_takes(messages: list[Message]) -> None:
    body = await sent(messages)

    assert body["messages"][0]["role"] == "user"


async def test_a_pause_is_told_and_the_turn_goes_back_with_the_steps_of_the_providers_tools() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    events, first, _ = await ask(turn({"type": "text", "text": "Looking"}, search, stop="pause_turn"))

    body = await sent([*HELLO, first.message], tools=[])

    assert {type(event) for event in events} == {StreamedText}
    assert first.stop_reason == "pause"
    assert first.message.parts[1] == ProviderPart(provider="anthropic", raw=search)
    assert body["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "Looking"}, search]}


@pytest.mark.parametrize(
    ("wire", "ours"),
    [("max_tokens", "max_tokens"), ("refusal", "refusal"), ("stop_sequence", "end"), ("something_new", "other")],
)
async def test_why_a_turn_ended_is_told(wire: str, ours: str) -> None:
    _, finished, _ = await ask(turn({"type": "text", "text": "Hi"}, stop=wire))

    assert finished.stop_reason == ours


async def test_arguments_that_are_cut_off_are_kept_as_they_came() -> None:
    events = events_of(call("toolu_1", "math_add", {"a": 1}), stop="max_tokens")
    cut = [one for one in events if one.get("delta", {}).get("partial_json") != ": 1}"]

    _, finished, _ = await ask(streamed(cut), ModelRequest(messages=HELLO, tools=[ADD]))

    assert finished.message.tool_calls == (ToolCallPart(id="toolu_1", name="math.add", malformed='{"a"', cut=True),)


async def test_an_answer_that_is_not_streamed_is_read_as_well() -> None:
    content = [thought("hm"), {"type": "text", "text": "Hi"}, call("toolu_1", "math_add", {"a": 1})]
    usage = {"input_tokens": 3, "output_tokens": 4}
    answer = json_answer({"type": "message", "content": content, "stop_reason": "tool_use", "usage": usage})

    events, finished, _ = await ask(answer, ModelRequest(messages=HELLO, tools=[ADD]))

    assert finished.message.text == "Hi"
    assert finished.message.tool_calls == (CALL,)
    assert finished.usage == Usage(input_tokens=3, output_tokens=4)
    assert [type(event) for event in events] == [StreamedThinking, StreamedText, StreamedToolCall, ToolCallDelta]


@pytest.mark.slow
async def test_the_prompt_cache_is_asked_to_keep_the_system_prompt_and_the_conversation() -> None:
    body = await sent(HELLO, system="Be kind.")
    _, _, long = await ask(said("ok"), ModelRequest(messages=HELLO), cache="1h")
    _, _, none = await ask(said("ok"), ModelRequest(messages=HELLO, system="Be kind."), cache=None)

    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert long["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in str(none)


@pytest.mark.parametrize(
    ("choice", "settings", "wire"),
    [
        ("auto", ModelSettings(), {"type": "auto"}),
        ("none", ModelSettings(parallel_tool_calls=False), {"type": "none"}),
        ("required", ModelSettings(), {"type": "any"}),
        ("math.add", ModelSettings(), {"type": "tool", "name": "math_add"}),
        ("auto", ModelSettings(parallel_tool_calls=False), {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
async def test_which_tool_to_call_is_said_in_the_words_of_the_api(
    choice: str, settings: ModelSettings, wire: Mapping[str, Any]
) -> None:
    body = await sent(HELLO, tool_choice=choice, settings=settings)

    assert body["tool_choice"] == wire


async def test_a_tool_to_call_that_is_not_offered_fails_before_anything_is_sent() -> None:
    bad = ToolSpec(name="bad", input_schema={"type": "array"})
    async with fake_anthropic() as fake, model_of(fake) as model:
        with pytest.raises(ModelError, match=r"'bad' cannot be called: .*array") as raised:
            await complete(model, ModelRequest(messages=HELLO, tools=[ADD, bad], tool_choice="bad"))

        assert raised.value.kind == "invalid_request"
        assert not fake.requests
        assert list(model.wire_tools([ADD, bad]).quarantined) == ["bad"]


async def test_a_tool_that_the_api_would_refuse_costs_no_other_tool_its_turn() -> None:
    bad = ToolSpec(name="bad", input_schema={"type": "array"})

    body = await sent(HELLO, tools=[bad, ADD])

    assert [tool["name"] for tool in body["tools"]] == ["math_add"]


async def test_a_conversation_of_tools_that_are_gone_is_still_taken() -> None:
    body = await sent([*HELLO, AssistantMessage(parts=(CALL,)), outcome(ToolResult.of("2"))], tools=[])

    assert [tool["name"] for tool in body["tools"]] == ["math_add"]
    assert body["tool_choice"] == {"type": "none"}


async def test_deferred_tools_are_left_to_the_search_of_the_provider() -> None:
    other = ToolSpec(name="other", description="Another.")

    body = await sent(HELLO, tools=[ADD, other], deferred={"math.add", "gone"})

    assert [(tool["name"], tool.get("defer_loading", False)) for tool in body["tools"]] == [
        ("tool_search_tool_bm25", False),
        ("math_add", True),
        ("other", False),
    ]


async def test_a_server_without_a_search_is_given_all_tools_at_once() -> None:
    async with fake_anthropic(said("ok")) as fake, AnthropicModel("m", KEY, fake.url) as model:
        await complete(model, ModelRequest(messages=HELLO, tools=[ADD], deferred={"math.add"}))

        assert [tool["name"] for tool in fake.checked[0]["tools"]] == ["math_add"]
        assert "defer_loading" not in fake.checked[0]["tools"][0]
    assert not model.native_tool_search
    assert AnthropicModel("m", KEY).native_tool_search


async def test_a_search_for_tools_goes_back_as_it_came() -> None:
    found = {
        "type": "tool_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "math_add"}],
        },
    }
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "add"}}
    answer = turn(search, found, call("toolu_1", "math_add", {"a": 1}))
    _, first, _ = await ask(answer, ModelRequest(messages=HELLO, tools=[ADD], deferred={"math.add"}))

    body = await sent([*HELLO, first.message, outcome(ToolResult.of("2"))], deferred={"math.add"})

    assert body["messages"][1]["content"][:2] == [search, found]


@pytest.mark.requirement("R51")
async def test_the_providers_own_tools_are_offered_and_those_of_others_are_not() -> None:
    own = ProviderTool(provider="anthropic", definition={"type": "web_search_20250305", "name": "web_search"})
    other = ProviderTool(provider="openai", definition={"type": "web_search"})

    body = await sent(HELLO, provider_tools=[own, other])

    assert [tool["name"] for tool in body["tools"]] == ["web_search", "math_add"]


async def test_an_output_schema_is_sent_closed_and_within_what_the_api_knows() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}

    body = await sent(HELLO, output_schema={**schema, "additionalProperties": False})

    wanted = body["output_config"]["format"]
    assert wanted["type"] == "json_schema"
    assert wanted["schema"]["additionalProperties"] is False
    assert "minimum: 1" in wanted["schema"]["properties"]["n"]["description"]


async def test_settings_and_further_members_are_sent() -> None:
    settings = ModelSettings(
        temperature=0.5, top_p=0.9, max_tokens=5, stop=("END",), extra={"metadata": {"user_id": "u"}}
    )

    body = await sent(HELLO, settings=settings)

    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 5)
    assert body["stop_sequences"] == ["END"]
    assert body["metadata"] == {"user_id": "u"}


@pytest.mark.slow
async def test_a_model_that_thinks_is_not_asked_to_where_the_api_forbids_it() -> None:
    foreign = [*HELLO, AssistantMessage(parts=(CALL,)), outcome(ToolResult.of("2"))]
    own = [*HELLO, AssistantMessage(parts=(_thought("hm"), CALL)), outcome(ToolResult.of("2"))]
    requests = {
        "plain": ModelRequest(messages=HELLO, tools=[ADD]),
        "forced": ModelRequest(messages=HELLO, tools=[ADD], tool_choice="required"),
        "begun by another": ModelRequest(messages=foreign, tools=[ADD]),
        "begun by itself": ModelRequest(messages=own, tools=[ADD]),
    }

    bodies = {name: (await ask(said("ok"), one, thinking=2048))[2] for name, one in requests.items()}
    _, _, adaptive = await ask(said("ok"), requests["begun by another"], thinking="adaptive")

    assert {name for name, body in bodies.items() if "thinking" in body} == {"plain", "begun by itself"}
    assert bodies["plain"]["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert adaptive["thinking"] == {"type": "adaptive"}


def _thought(text: str) -> ThinkingPart:
    return ThinkingPart(text=text, raw=thought(text), provider="anthropic")


async def test_what_is_new_in_a_stream_disturbs_nothing() -> None:
    events = events_of({"type": "text", "text": "Hi"})
    citation: dict[str, Any] = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "citations_delta", "citation": {}},
    }

    _, finished, _ = await ask(streamed([{"type": "brand_new"}, *events[:4], citation, *events[4:]]))

    assert finished.message.text == "Hi"
