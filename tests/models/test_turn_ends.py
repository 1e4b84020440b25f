"""What ends a turn, what belongs to a call, and what goes back to which server: the same for every API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import anyio
import pytest

from tests.models import fake_anthropic, fake_openai
from tests.models.fake_openai import chat_chunk
from tests.models.http_server import Answer, Received, Server, serve, stream_answer
from toolweave import ModelError
from toolweave.models import AnthropicModel, OpenAICompatibleModel
from toolweave.models._base import Finished, ModelEvent, ModelRequest, ModelSettings, StreamedToolCall
from toolweave.models._messages import AssistantMessage, Message, ToolMessage, ToolOutcome, UserMessage
from toolweave.models._retry import NO_RETRY
from toolweave.tools import ToolResult

HELLO = UserMessage.of("hello")
START: dict[str, Any] = {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 1}}}
STOPPED = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
Model = OpenAICompatibleModel | AnthropicModel


def model_at(url: str, api: str) -> Model:
    if api == "anthropic":
        return AnthropicModel("m", fake_anthropic.KEY, url, retry=NO_RETRY)
    kind: Literal["chat", "responses"] = "chat" if api == "chat" else "responses"
    return OpenAICompatibleModel(url, model="m", api_key=fake_openai.KEY, api=kind, retry=NO_RETRY)


def begun(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def messages_turn(*events: Any, stop: str | None = "tool_use", then: Any = "end") -> Answer:
    """Return a turn of Messages without its last event."""
    end = [] if stop is None else [{**STOPPED, "delta": {"stop_reason": stop}}]
    return stream_answer([START, *events, *end], then)


SAID = [begun(0, type="text", text=""), delta(0, "text_delta", text="hi"), closed(0)]


async def turn(api: str, answer: Answer, timeout: float = 30, messages: list[Message] | None = None) -> Finished:
    """Return the end of a turn; each call was announced under the id that it ends with."""
    events: list[ModelEvent] = []

    async def handle(_: Received) -> Answer:
        return answer

    request = ModelRequest(messages=messages or [HELLO], settings=ModelSettings(timeout=timeout))
    async with serve(handle) as server, model_at(server.url, api) as model:
        with anyio.fail_after(60):
            events = [event async for event in model.stream(request)]
    last = events[-1]
    assert isinstance(last, Finished)
    announced = [one.id for one in events if isinstance(one, StreamedToolCall)]
    assert announced == [one.id for one in last.message.tool_calls]
    return last


@pytest.mark.slow
@pytest.mark.parametrize("then", ["ping", "hang", "drop"])
@pytest.mark.parametrize("api", ["chat", "anthropic"])
async def test_a_turn_that_is_whole_counts_whatever_follows_it(api: str, then: Any) -> None:
    answers = {
        "chat": stream_answer([chat_chunk({"content": "hi"}), chat_chunk({}, "stop")], then),
        "anthropic": messages_turn(*SAID, stop="end_turn", then=then),
    }

    last = await turn(api, answers[api], timeout=0.5)

    assert (last.message.text, last.stop_reason) == ("hi", "end")


RESPONSE: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r", "output": []}}]
BEGUN: dict[str, list[dict[str, Any]]] = {
    "chat": [chat_chunk({"content": "hi"})],
    "anthropic": [START, *SAID[:2]],
    "responses": RESPONSE,
}
PINGS = {
    "comments": b": on\n\n",
    "ping events": b'event: ping\ndata: {"type": "ping"}\n\n',
    "events without a name": b'data: {"type": "keepalive"}\n\n',
    "pieces of one event": b"data: ",
}


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True], ids=["before the turn", "in the turn"])
@pytest.mark.parametrize("pings", PINGS)
@pytest.mark.parametrize("api", BEGUN)
async def test_pings_without_end_do_not_keep_a_turn_open(api: str, pings: str, begun: bool) -> None:
    answer = stream_answer(BEGUN[api] if begun else [], "ping")

    with pytest.raises(ModelError) as failed:
        await turn(api, replace(answer, ping=PINGS[pings]), timeout=0.1)

    assert failed.value.kind == "timeout"


@pytest.mark.slow
@pytest.mark.parametrize("api", BEGUN)
async def test_line_ends_without_end_before_a_body_are_no_answer(api: str) -> None:
    answer = Answer(200, {"content-type": "application/json"}, [], "ping", ping=b"\n")

    with pytest.raises(ModelError) as failed:
        await turn(api, answer, timeout=0.1)

    assert failed.value.kind == "timeout"


@pytest.mark.parametrize("stop", ["tool_use", "end_turn"])
async def test_a_message_without_its_last_event_is_whole_once_it_has_a_stop_reason(stop: str) -> None:
    call = [begun(0, type="tool_use", id="t", name="f", input={}), delta(0, "input_json_delta", partial_json="{}")]

    last = await turn("anthropic", messages_turn(*call, closed(0), stop=stop))

    assert [(one.name, one.cut) for one in last.message.tool_calls] == [("f", False)]


def call_begun(key: str, index: int = 0, **given: Any) -> dict[str, Any]:
    return begun(index, type="tool_use", id=key, name="f", input=given)


def written(text: str | dict[str, Any], index: int = 0) -> dict[str, Any]:
    return delta(index, "input_json_delta", partial_json=text)


def without_index(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "index"}


ONE, TWO = '{"n":1}', '{"n":2}'
BLOCKS: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "one index for two calls": (
        [call_begun("a"), written(ONE), closed(0), call_begun("b"), written(TWO), closed(0)],
        [{"n": 1}, {"n": 2}],
    ),
    "one index, never closed": ([call_begun("a"), written(ONE), call_begun("b"), written(TWO)], [{"n": 1}, {"n": 2}]),
    "an object as a piece": ([call_begun("a"), written({"n": 1}), closed(0)], [{"n": 1}]),
    "an object after an empty piece": ([call_begun("a"), written(""), written({"n": 1}), closed(0)], [{"n": 1}]),
    "an object in the block and as a piece": ([call_begun("a", n=1), written({"n": 1}), closed(0)], [{"n": 1}]),
    "objects of two calls": (
        [call_begun("a"), written({"n": 1}), closed(0), call_begun("b", 1), written({"n": 2}, 1), closed(1)],
        [{"n": 1}, {"n": 2}],
    ),
    "begun with each piece": ([call_begun("a"), written('{"n"'), call_begun("a"), written(":1}")], [{"n": 1}]),
    "arguments at the beginning and in pieces": (
        [call_begun("a", n=1), written('{"n"'), written(":1}")],
        [{"n": 1}],
    ),
    "arguments at the beginning alone": ([call_begun("a", n=1)], [{"n": 1}]),
    "no index at all": (
        [without_index(one) for one in (call_begun("a"), written(ONE), call_begun("b"), written(TWO))],
        [{"n": 1}, {"n": 2}],
    ),
}


@pytest.mark.parametrize("row", BLOCKS)
async def test_blocks_of_messages_are_the_calls_that_the_model_made(row: str) -> None:
    events, expected = BLOCKS[row]

    last = await turn("anthropic", messages_turn(*events))

    assert [dict(one.arguments) for one in last.message.tool_calls] == expected
    assert not [one for one in last.message.tool_calls if one.malformed or one.cut]


def called(api: str, key: str) -> Answer:
    """Return a turn of a thought and one call with this id."""
    if api == "chat":
        call = fake_openai.call(0, key, "f", "{}")
        return fake_openai.chat_turn({"reasoning_content": "hm"}, call, finish="tool_calls")
    if api == "responses":
        thought: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "enc"}
        return fake_openai.responses_turn(
            thought, {"type": "function_call", "id": "fc", "call_id": key, "name": "f", "arguments": "{}"}
        )
    signed = [begun(0, type="thinking", thinking="hm", signature="sig"), closed(0)]
    return messages_turn(*signed, begun(1, type="tool_use", id=key, name="f", input={}), closed(1))


def said(api: str) -> Answer:
    if api == "chat":
        return fake_openai.said("ok")
    if api == "responses":
        return fake_openai.responses_turn({"type": "message", "id": "m", "content": []})
    return messages_turn(*SAID, stop="end_turn")


async def played(api: str, key: str, *, elsewhere: bool) -> str:
    """Return the second request of a conversation of a call, to the same server or to another one."""
    answers = [called(api, key), said(api)]

    async def handle(_: Received) -> Answer:
        return answers.pop(0)

    async with serve(handle) as one, serve(handle) as two:
        first = await asked(one, api, [HELLO])
        (made,) = first.tool_calls
        done = ToolMessage(outcomes=(ToolOutcome(call_id=made.id, name="f", result=ToolResult.of("1")),))
        second = two if elsewhere else one
        await asked(second, api, [HELLO, first, done])
        return second.requests[-1].body.decode()


async def asked(server: Server, api: str, messages: list[Message]) -> AssistantMessage:
    async with model_at(server.url, api) as model:
        *_, last = [event async for event in model.stream(ModelRequest(messages=messages))]
    assert isinstance(last, Finished)
    return last.message


KEYS = ["functions.f:0", "call|1", "chatcmpl-tool-" + "0" * 32]
THOUGHTS = {
    "chat": '"reasoning_content":"hm"',
    "responses": '"encrypted_content":"enc"',
    "anthropic": '"signature":"sig"',
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_ids_and_thoughts_go_back_to_their_server_byte_for_byte(api: str, key: str) -> None:
    body = await played(api, key, elsewhere=False)

    assert body.count(f'"{key}"') == 2  # of the call and of its result
    assert THOUGHTS[api] in body


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_another_server_gets_legal_ids_and_no_thoughts(api: str, key: str) -> None:
    body = await played(api, key, elsewhere=True)

    assert key not in body
    assert THOUGHTS[api] not in body
    assert "reasoning" not in body
    assert '"thinking"' not in body


@pytest.mark.parametrize("signature", [None, ""])
async def test_a_thought_without_a_signature_goes_back_as_it_came(signature: str | None) -> None:
    thought = {"type": "thinking", "thinking": "", **({} if signature is None else {"signature": signature})}
    answers = [
        messages_turn(begun(0, **thought), delta(0, "thinking_delta", thinking="hm"), closed(0), *SAID),
        said("anthropic"),
    ]

    async def handle(_: Received) -> Answer:
        return answers.pop(0)

    async with serve(handle) as server:
        first = await asked(server, "anthropic", [HELLO])
        await asked(server, "anthropic", [HELLO, first, HELLO])
        assert server.requests[-1].json["messages"][1]["content"][0] == {**thought, "thinking": "hm"}
