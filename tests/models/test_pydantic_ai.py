"""Models of Pydantic AI behind our port, offline: its own doubles answer."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import anyio
import pytest
from pydantic_ai import exceptions
from pydantic_ai import messages as wire
from pydantic_ai.models import Model as WireModel
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.profiles import ModelProfile

from toolweave.errors import ModelError
from toolweave.models import PydanticAIModel, complete, model_from
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
from toolweave.models._pydantic_ai import our_message, wire_history
from toolweave.protocol.content import AudioContent, ImageContent, ResourceLink, TextContent
from toolweave.tools import ToolResult, ToolSpec

HELLO = [UserMessage.of("hello")]
ADD = ToolSpec(
    name="math.add",
    description="Adds.",
    input_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
CALL = ToolCallPart(id="call_1", name="math.add", arguments={"a": 1})
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()

Pieces: TypeAlias = AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]
Says: TypeAlias = Callable[[list[wire.ModelMessage], AgentInfo], Pieces]


def model_that(says: Says, **more: Any) -> PydanticAIModel:
    return PydanticAIModel(FunctionModel(stream_function=says, **more))


async def heard(messages: Sequence[Message], **more: Any) -> tuple[list[wire.ModelMessage], AgentInfo]:
    """Return what the library's model was given."""
    given: list[tuple[list[wire.ModelMessage], AgentInfo]] = []

    async def say(history: list[wire.ModelMessage], info: AgentInfo) -> Pieces:
        given.append((history, info))
        yield "ok"

    profile = more.pop("profile", None)
    options: dict[str, Any] = {"tools": [ADD], **more}
    await complete(model_that(say, profile=profile), ModelRequest(messages=messages, **options))
    return given[0]


async def failure(error: Exception) -> ModelError:
    async def say(history: list[wire.ModelMessage], info: AgentInfo) -> Pieces:
        raise error
        yield ""

    with pytest.raises(ModelError) as raised:
        await complete(model_that(say), ModelRequest(messages=HELLO))
    return raised.value


async def test_text_thoughts_and_calls_come_in_pieces_under_our_names() -> None:
    async def say(history: list[wire.ModelMessage], info: AgentInfo) -> Pieces:
        yield {0: DeltaThinkingPart(content="hm")}
        yield {0: DeltaThinkingPart(signature="signed")}
        yield "Hello"
        yield " there"
        yield {1: DeltaToolCall(name="math_add", json_args='{"a"', tool_call_id="call_1")}
        yield {1: DeltaToolCall(json_args=": 1}")}

    events = [event async for event in model_that(say).stream(ModelRequest(messages=HELLO, tools=[ADD]))]

    finished = events.pop()
    assert isinstance(finished, Finished)
    assert finished.stop_reason == "tool_calls"
    assert finished.usage.output_tokens > 0
    assert finished.message.text == "Hello there"
    assert finished.message.tool_calls == (CALL,)
    assert _joined(events, StreamedText) == "Hello there"
    assert _joined(events, StreamedThinking) == "hm"
    assert StreamedToolCall(id="call_1", name="math.add") in events
    assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == '{"a": 1}'


def _joined(events: list[ModelEvent], kind: type[StreamedText | StreamedThinking]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


async def test_a_tool_is_called_and_its_result_told_by_the_librarys_own_test_model() -> None:
    model = PydanticAIModel(TestModel())
    first = await complete(model, ModelRequest(messages=HELLO, tools=[ADD]))
    (call,) = first.message.tool_calls
    told = ToolMessage(outcomes=(ToolOutcome(call_id=call.id, name=call.name, result=ToolResult.of("two")),))

    second = await complete(model, ModelRequest(messages=[*HELLO, first.message, told], tools=[ADD]))

    assert (model.name, call.name, set(call.arguments)) == ("test:test", "math.add", {"a"})
    assert second.message.text == '{"math_add":"two"}'
    assert second.stop_reason == "end"


@pytest.mark.requirement("R80", "C1")
async def test_tools_and_settings_reach_the_library() -> None:
    settings = ModelSettings(temperature=0.5, max_tokens=9, stop=("END",), extra={"x": 1})

    history, info = await heard(HELLO, system="Be kind.", settings=settings, tool_choice="math.add")

    assert [(tool.name, tool.description) for tool in info.function_tools] == [("math_add", "Adds.")]
    assert info.function_tools[0].parameters_json_schema["required"] == ["a"]
    assert info.instructions == "Be kind."
    given = cast("Mapping[str, Any]", info.model_settings)
    assert {name: given[name] for name in ("tool_choice", "temperature", "max_tokens", "extra_body")} == {
        "tool_choice": ["math_add"],
        "temperature": 0.5,
        "max_tokens": 9,
        "extra_body": {"x": 1},
    }
    assert len(history) == 1


@pytest.mark.requirement("C17", "D18")
async def test_results_keep_their_order_their_images_and_their_failure() -> None:
    two = AssistantMessage(parts=(TextPart(text="Sure"), CALL, ToolCallPart(id="call 2", name="gone")))
    image = ToolResult(content=(TextContent(text="see"), ImageContent(data=PNG, mime_type="image/jpeg")))
    told = ToolMessage(
        outcomes=(
            ToolOutcome(call_id="call 2", name="gone", result=ToolResult.failure("no such tool")),
            ToolOutcome(call_id="call_1", name="math.add", result=image),
        )
    )

    history, _ = await heard([*HELLO, two, told, UserMessage.of("and?")])

    request = history[2]
    assert isinstance(request, wire.ModelRequest)
    first, second, user = request.parts
    assert isinstance(first, wire.ToolReturnPart)
    assert isinstance(second, wire.ToolReturnPart)
    assert isinstance(user, wire.UserPromptPart)
    assert first.content == ["see", wire.BinaryContent(data=base64.b64decode(PNG), media_type="image/png")]
    assert (first.tool_name, first.tool_call_id, first.outcome) == ("math_add", "call_1", "success")
    assert (second.content, second.outcome) == ("no such tool", "failed")
    calls = [part.tool_call_id for part in history[1].parts if isinstance(part, wire.ToolCallPart)]
    assert calls == [first.tool_call_id, second.tool_call_id]
    assert user.content == "and?"


async def test_what_a_user_sends_is_kept_or_noted() -> None:
    blocks = [
        ImageContent(data="broken", mime_type="image/png"),
        AudioContent(data=base64.b64encode(b"RIFF....WAVE").decode(), mime_type="audio/wav"),
        ResourceLink(uri="x:/y", name="y"),
    ]

    history, _ = await heard([UserMessage.of(blocks)])

    (part,) = history[0].parts
    assert isinstance(part, wire.UserPromptPart)
    assert not isinstance(part.content, str)
    note, sound, link = part.content
    assert isinstance(note, str)
    assert note.startswith("[image: image/png")
    assert isinstance(sound, wire.BinaryContent)
    assert sound.media_type == "audio/wav"
    assert link == "y (x:/y)"


def test_what_only_the_provider_understands_goes_back_as_it_came() -> None:
    parts: list[wire.ModelResponsePart] = [
        wire.ThinkingPart("hm", signature="signed", provider_name="google"),
        wire.NativeToolCallPart("web_search", args={"q": "x"}, tool_call_id="srv_1", provider_name="google"),
        wire.TextPart("Hi", id="msg_1", provider_name="openai"),
        wire.ToolCallPart("math_add", {"a": 1}, "call_1", provider_details={"thought_signature": "abc"}),
        wire.TextPart("Bye"),
    ]

    tools = PydanticAIModel("test").wire_tools([ADD])
    ours = our_message(parts, tools)
    back = wire_history([ours], None, tools)

    assert ours.text == "HiBye"
    assert ours.tool_calls == (CALL,)
    assert list(back[0].parts) == parts


def test_another_providers_thoughts_stay_away() -> None:
    foreign = AssistantMessage(
        parts=(
            ThinkingPart(text="hm", raw={"type": "thinking"}, provider="anthropic"),
            ProviderPart(provider="openai", raw={"type": "web_search_call"}),
            TextPart(text="Hi"),
        )
    )

    back = wire_history([*HELLO, foreign, *HELLO], None, PydanticAIModel("test").wire_tools(()))

    assert list(back[1].parts) == [wire.TextPart("Hi")]


@pytest.mark.requirement("R51")
async def test_native_tools_are_offered_and_those_of_other_providers_are_not() -> None:
    own = ProviderTool(provider="pydantic_ai", definition={"kind": "web_search", "max_uses": 3})
    other = ProviderTool(provider="openai", definition={"type": "web_search"})
    profile = ModelProfile(supported_native_tools=frozenset({WebSearchTool}))

    _, info = await heard(HELLO, provider_tools=[own, other], profile=profile)

    parameters = info.model_request_parameters
    assert parameters is not None
    assert parameters.native_tools == [WebSearchTool(max_uses=3)]


@pytest.mark.parametrize("native", [True, False])
async def test_an_output_schema_is_said_natively_or_in_the_prompt(native: bool) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    _, info = await heard(HELLO, output_schema=schema, profile=ModelProfile(supports_json_schema_output=native))

    parameters = info.model_request_parameters
    assert parameters is not None
    assert parameters.output_object is not None
    assert parameters.output_object.json_schema["required"] == ["n"]
    assert parameters.output_mode == ("native" if native else "prompted")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ModelHTTPError(429, "m", {"error": {"message": "slow down"}}, retry_after=7), "rate_limited"),
        (exceptions.ModelHTTPError(503, "m", None), "overloaded"),
        (exceptions.ModelHTTPError(503, "m", "?" + "auth" * 100_000), "overloaded"),  # quadratic work unless it is cut
        (exceptions.ModelHTTPError(401, "m", "no"), "auth"),
        (exceptions.ModelConnectionError("m", "no route"), "unreachable"),
        (exceptions.ModelTimeoutError("m", "too slow"), "timeout"),
        (exceptions.UserError("set the key"), "invalid_request"),
        (exceptions.UnexpectedModelBehavior("what?"), "protocol"),
        (ImportError("please install x"), "invalid_request"),
        (ValueError("odd"), "protocol"),
    ],
)
async def test_its_errors_become_ours(error: Exception, kind: str) -> None:
    ours = await failure(error)

    assert ours.kind == kind
    assert ours.retry_after == (7 if kind == "rate_limited" else None)


async def test_silence_ends_after_the_time_that_the_settings_say() -> None:
    async def say(history: list[wire.ModelMessage], info: AgentInfo) -> Pieces:
        yield "Hello"
        await anyio.sleep_forever()

    request = ModelRequest(messages=HELLO, settings=ModelSettings(timeout=0.2))
    with pytest.raises(ModelError) as raised:
        await complete(model_that(say), request)

    assert raised.value.kind == "timeout"


async def test_closing_the_stream_ends_the_request() -> None:
    left = anyio.Event()

    async def say(history: list[wire.ModelMessage], info: AgentInfo) -> Pieces:
        try:
            yield "Hello"
            yield " there"
            await anyio.sleep_forever()
        finally:
            left.set()

    events = model_that(say).stream(ModelRequest(messages=HELLO))
    assert await anext(events) == StreamedText(text="Hello")
    await events.aclose()

    await left.wait()


async def test_a_tool_to_call_that_is_not_offered_is_an_error() -> None:
    request = ModelRequest(messages=HELLO, tool_choice="gone")

    with pytest.raises(ModelError, match="'gone' cannot be called"):
        await complete(PydanticAIModel(TestModel()), request)


async def test_a_provider_that_only_the_library_knows_is_found_by_its_string() -> None:
    model = model_from("pydantic-ai:test")
    unknown = PydanticAIModel("nobody:x")

    assert isinstance(model, PydanticAIModel)
    assert (await complete(model, ModelRequest(messages=HELLO))).message.text.startswith("success")
    with pytest.raises(ModelError, match="Unknown model"):
        await complete(unknown, ModelRequest(messages=HELLO))


def test_the_name_is_that_of_the_string_or_of_the_object() -> None:
    wire_model: WireModel = TestModel(model_name="x")

    assert (PydanticAIModel("google:gemini").name, PydanticAIModel(wire_model).name) == ("google:gemini", "test:x")


@pytest.mark.parametrize(
    ("finish", "own", "reason", "cut"),
    [
        ("length", None, "max_tokens", True),
        ("tool_call", None, "tool_calls", False),
        ("error", "MALFORMED_FUNCTION_CALL", "malformed_call", True),
        ("error", "SOMETHING_NEW", "other", True),
    ],
)
async def test_a_call_that_was_cut_off_is_marked_and_unknown_ends_are_told(
    finish: Any, own: str | None, reason: str, cut: bool
) -> None:
    class Ending(FunctionModel):
        @asynccontextmanager
        async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[StreamedResponse]:
            async with super().request_stream(*args, **kwargs) as response:
                response.finish_reason = finish
                response.provider_details = None if own is None else {"finish_reason": own}
                yield response

    async def say(history: list[wire.ModelMessage], info: AgentInfo) -> Pieces:
        yield {0: DeltaToolCall(name="math_add", json_args="", tool_call_id="call_1")}

    model = PydanticAIModel(Ending(stream_function=say))
    finished = await complete(model, ModelRequest(messages=HELLO, tools=[ADD]))

    assert (finished.stop_reason, finished.stop_detail) == (reason, own)
    assert [call.cut for call in finished.message.tool_calls] == [cut]
