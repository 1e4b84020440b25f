"""What servers send that no specification has: every API over a real socket, each oddity read as it is meant."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.models import fake_anthropic, fake_openai
from tests.models.fake_openai import KEY, call, chat_chunk, chat_turn, responses_turn
from tests.models.http_server import Answer, Received, error_answer, json_answer, serve, stream_answer
from toolweave.errors import ModelError
from toolweave.models import AnthropicModel, FallbackModel, OpenAICompatibleModel, Retry, complete
from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    StreamedText,
    StreamedToolCall,
    StreamRestarted,
)
from toolweave.models._messages import (
    AssistantMessage,
    Message,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._retry import NO_RETRY
from toolweave.tools import ToolResult

HELLO: list[Message] = [UserMessage.of("hello")]
AGAIN: list[Message] = [
    *HELLO,
    AssistantMessage(parts=(ToolCallPart(id="same", name="f"),)),
    ToolMessage(outcomes=(ToolOutcome(call_id="same", name="f", result=ToolResult.of("1")),)),
]
BEGUN = [call(0, "same", "f", '{"n":'), call(1, "same", "g", '{"n":')]
CALL_ITEM = {"type": "function_call", "call_id": "same", "name": "f", "arguments": '{"n": 1}'}


def model_at(url: str, api: str, retry: Retry = NO_RETRY) -> OpenAICompatibleModel | AnthropicModel:
    if api == "anthropic":
        return AnthropicModel("m", fake_anthropic.KEY, url, retry=retry)
    return OpenAICompatibleModel(url, model="m", api_key=KEY, api="chat" if api == "chat" else "responses", retry=retry)


async def turn(
    api: str, *answers: Answer, messages: list[Message] = HELLO, retry: Retry = NO_RETRY, timeout: float = 60
) -> tuple[list[ModelEvent], ModelError | None, int]:
    """Return the events of a turn, what it ended with, and how often it was asked for."""
    events: list[ModelEvent] = []
    left = list(answers)

    async def handle(_: Received) -> Answer:
        return left.pop(0)

    request = ModelRequest(messages=messages, settings=ModelSettings(timeout=timeout))
    async with serve(handle) as server, model_at(server.url, api, retry) as model:
        with anyio.fail_after(60):
            try:
                async for event in model.stream(request):
                    events.append(event)  # noqa: PERF401 - what came before the error counts
            except ModelError as exc:
                return events, exc, len(server.requests)
    return events, None, len(server.requests)


def calls(events: list[ModelEvent]) -> list[tuple[str, Any]]:
    """Return the calls of a whole turn; each was announced under the id that it ends with, and no id is there twice."""
    last = events[-1]
    assert isinstance(last, Finished)
    made = last.message.tool_calls
    told = [(event.id, event.name) for event in events if isinstance(event, StreamedToolCall)]
    assert told == [(one.id, one.name) for one in made]
    assert len({one.id for one in made}) == len(made)
    assert not [one.malformed for one in made if one.malformed]
    return [(one.name, dict(one.arguments)) for one in made]


@pytest.mark.parametrize(
    "pieces",
    [
        [call(0, "same", "f", '{"n": 1}'), call(1, "same", "g", '{"n": 2}')],
        [*BEGUN, call(0, None, None, "1}"), call(1, None, None, "2}")],
        [*BEGUN, call(0, "same", None, "1}"), call(1, "same", None, "2}")],
        [call(None, "same", "f", '{"n": 1}'), call(None, "same", "g", '{"n": 2}')],
        [call(0, "same", "f", '{"n": 1}'), call(0, "same", "g", '{"n": 2}')],
    ],
)  # fmt: skip
async def test_parallel_calls_of_one_id_are_calls_of_their_own(pieces: list[Any]) -> None:
    events, error, _ = await turn("chat", chat_turn(*pieces, finish="tool_calls"))

    assert error is None
    assert calls(events) == [("f", {"n": 1}), ("g", {"n": 2})]


async def test_two_calls_of_one_tool_with_one_id_are_two() -> None:
    pieces = [call(None, "same", "f", '{"n": 1}'), call(None, "same", "f", '{"n": 2}')]
    events, _, _ = await turn("chat", chat_turn(*pieces, finish="tool_calls"))

    assert calls(events) == [("f", {"n": 1}), ("f", {"n": 2})]


async def test_a_call_that_is_told_again_as_a_whole_is_one_call() -> None:
    pieces = [call(0, "x", "f", '{"n"'), call(0, None, None, ": 1}"), call(0, "x", "f", '{"n": 1}')]
    events, error, _ = await turn("chat", chat_turn(*pieces, finish="tool_calls"))

    assert error is None
    assert calls(events) == [("f", {"n": 1})]


@pytest.mark.parametrize(
    ("api", "said"), [("chat", '{"choices": []}'), ("responses", '{"type": "response.created", "response": {}}')]
)
async def test_a_stream_that_says_nothing_and_no_end_is_no_answer(api: str, said: str) -> None:
    answer = stream_answer([f"data: {said}\n\n".encode(), b"data: [DONE]\n\n"])

    events, error, asked = await turn(api, answer, answer, retry=Retry(attempts=2, first=0))

    assert events == []
    assert error is not None
    assert (error.kind, asked) == ("unreachable", 2)


async def test_arguments_that_only_the_pieces_tell_are_not_lost() -> None:
    item = {**CALL_ITEM, "arguments": ""}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"n"'},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": ": 1}"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]

    told, error, _ = await turn("responses", stream_answer(events))

    assert error is None
    assert calls(told) == [("f", {"n": 1})]


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n\n"


ONE_ID = {
    "chat": chat_turn(call(0, "same", "f", '{"n": 1}'), call(1, "same", "f", '{"n": 2}'), finish="tool_calls"),
    "responses": responses_turn(CALL_ITEM, {**CALL_ITEM, "arguments": '{"n": 2}'}),
    "anthropic": fake_anthropic.turn(
        fake_anthropic.call("same", "f", {"n": 1}), fake_anthropic.call("same", "f", {"n": 2})
    ),
}


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_an_id_that_was_there_already_is_replaced(api: str) -> None:
    events, error, _ = await turn(api, ONE_ID[api], messages=AGAIN)

    assert error is None
    assert calls(events) == [("f", {"n": 1}), ("f", {"n": 2})]
    assert "same" not in {event.id for event in events if isinstance(event, StreamedToolCall)}


@pytest.mark.parametrize("arguments", ["", '{"n": 1'])
async def test_a_call_without_whole_arguments_or_a_finish_reason_counts_as_cut(arguments: str) -> None:
    unfinished = stream_answer([chat_chunk(call(0, "x", "f", arguments)), b"data: [DONE]\n\n"])

    events, error, _ = await turn("chat", unfinished)

    assert error is None
    assert isinstance(last := events[-1], Finished)
    assert (last.stop_reason, last.stop_detail) == ("other", "no finish reason")
    assert [one.cut for one in last.message.tool_calls] == [True]


async def test_a_call_with_whole_arguments_counts_without_a_finish_reason() -> None:
    unfinished = stream_answer([chat_chunk(call(0, "x", "f", '{"n": 1}')), b"data: [DONE]\n\n"])

    events, error, _ = await turn("chat", unfinished)

    assert error is None
    assert isinstance(last := events[-1], Finished)
    assert [one.cut for one in last.message.tool_calls] == [False]
    assert calls(events) == [("f", {"n": 1})]


async def test_a_text_without_a_finish_reason_may_be_cut_and_its_turn_says_so() -> None:
    events, error, _ = await turn("chat", stream_answer([chat_chunk({"content": "hel"}), b"data: [DONE]\n\n"]))

    assert error is None
    assert isinstance(last := events[-1], Finished)
    assert (last.stop_reason, last.stop_detail, last.message.text) == ("other", "no finish reason", "hel")


@pytest.mark.parametrize("then", ["drop", "hang"])
async def test_a_turn_that_is_whole_counts_though_nothing_follows_it(then: Any) -> None:
    whole = stream_answer([chat_chunk({"content": "all of it"}), chat_chunk({}, "stop")], then)

    events, error, _ = await turn("chat", whole, timeout=0.5)

    assert error is None
    assert isinstance(events[-1], Finished)
    assert events[-1].message.text == "all of it"


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize(
    "answer",
    [
        json_answer({"error": {"message": "the backend is gone", "code": 503}}),
        stream_answer([{"error": {"message": "the backend is gone", "code": 503}}]),
        stream_answer([b'event: error\ndata: {"message": "the backend is gone", "code": 503}\n\n']),
    ],
)
async def test_an_error_in_an_answer_that_says_200_is_told_in_its_own_words(api: str, answer: Answer) -> None:
    events, error, _ = await turn(api, answer)

    assert events == []
    assert error is not None
    assert (error.kind, error.status) == ("overloaded", 503)
    assert "the backend is gone" in error.message


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_a_turn_that_is_cut_before_or_after_its_first_word_is_asked_for_again(api: str) -> None:
    whole = {
        "chat": fake_openai.said("whole"),
        "responses": responses_turn(
            {"type": "message", "content": [{"type": "output_text", "text": "whole"}], "id": "msg_1"}
        ),
        "anthropic": fake_anthropic.said("whole"),
    }[api]
    stream = b"".join(piece for piece in whole.pieces if isinstance(piece, bytes))
    word = stream.index(b"wh", stream.index(b"delta")) + 2
    cut = Answer(200, whole.headers, [stream[:word]], "drop")
    later = Answer(200, whole.headers, [stream[: word + stream[word:].index(b"\n\n") + 4]], "end")

    again, _, asked = await turn(api, cut, whole, retry=Retry(attempts=2, first=0))
    anew, error, twice = await turn(api, later, whole, retry=Retry(attempts=2, first=0))

    assert asked == 2
    assert "".join(event.text for event in again if isinstance(event, StreamedText)) == "whole"
    assert (error, twice) == (None, 2)
    assert [type(event) for event in anew].count(StreamRestarted) == 1
    assert isinstance(anew[-1], Finished)
    assert anew[-1].message.text == "whole"


async def test_what_only_the_end_of_a_response_tells_is_not_lost() -> None:
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {**CALL_ITEM, "arguments": ""}}
    text = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "so"}]}
    events = [
        begun,
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"n": 1}'},
        {"type": "response.output_item.done", "output_index": 1, "item": text},
        {"type": "response.completed", "response": {"status": "completed", "output": [CALL_ITEM, text]}},
    ]

    told, error, _ = await turn("responses", stream_answer(events))

    assert error is None
    assert calls(told) == [("f", {"n": 1})]
    assert isinstance(told[-1], Finished)
    assert told[-1].message.text == "so"


@pytest.mark.parametrize(
    "words",
    [
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
        "This model's maximum context length is 8192 tokens, however you requested 9000 tokens",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "the request exceeds the available context size. try increasing the context size",
        "Please reduce the length of the messages or completion.",
    ],
)
async def test_a_conversation_that_is_too_long_is_told_as_one_whatever_the_words(words: str) -> None:
    _, error, _ = await turn("chat", error_answer(400, {"error": {"message": words}}))

    assert error is not None
    assert error.kind == "too_long"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("API key not valid. Please pass a valid API key.", "auth"),
        ("Rate limit reached for requests", "rate_limited"),
        ("Too Many Requests", "rate_limited"),
        ("The model is currently Overloaded", "overloaded"),
    ],
)
async def test_an_error_without_a_code_is_told_by_its_words(message: str, kind: str) -> None:
    _, error, _ = await turn("chat", stream_answer([{"error": {"message": message}}]))

    assert error is not None
    assert error.kind == kind


async def test_usage_that_is_absent_or_odd_counts_nothing_and_costs_no_turn() -> None:
    odd: list[Any] = [
        None,
        [],
        {"prompt_tokens": True, "completion_tokens": -4, "cost": "free"},
        {"prompt_tokens": "9"},
    ]
    for usage in odd:
        chunks = [chat_chunk({"content": "hi"}, "stop", usage=usage), b"data: [DONE]\n\n"]
        events, error, _ = await turn("chat", stream_answer(chunks))
        assert error is None
        assert isinstance(events[-1], Finished)
        assert events[-1].usage == type(events[-1].usage)()


async def test_a_chain_whose_first_model_stops_in_mid_sentence_asks_the_next() -> None:
    half = stream_answer([chat_chunk({"content": "half"})], "drop")
    asked: list[str] = []

    async def first(_: Received) -> Answer:
        asked.append("first")
        return half

    async def second(_: Received) -> Answer:
        asked.append("second")
        return fake_openai.said("whole")

    async with serve(first) as one, serve(second) as two:
        chain = FallbackModel(model_at(one.url, "chat"), model_at(two.url, "chat"))
        async with chain:
            finished = await complete(chain, ModelRequest(messages=HELLO))

    assert (asked, finished.message.text) == (["first", "second"], "whole")


def text_event(api: str, text: bytes) -> bytes:
    """Return an event with a piece of text, whose JSON is given."""
    match api:
        case "chat":
            return b'data: {"choices": [{"index": 0, "delta": {"content": ' + text + b"}}]}\n\n"
        case "anthropic":
            start = b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}'
            delta = b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": '
            return start + b"\n\ndata: " + delta + text + b"}}\n\n"
        case _:
            return b'data: {"type": "response.output_text.delta", "output_index": 0, "delta": ' + text + b"}\n\n"


def ending(api: str, usage: bytes = b"{}") -> bytes:
    """Return the last event of a turn, with the JSON of its usage."""
    match api:
        case "chat":
            return (
                b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": ' + usage + b"}\n\n"
            )
        case "anthropic":
            return b'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": ' + usage + b"}\n\n"
        case _:
            response = b'{"status": "completed", "output": [], "usage": ' + usage + b"}"
            return b'data: {"type": "response.completed", "response": ' + response + b"}\n\n"


def said_in(events: list[ModelEvent]) -> str:
    last = events[-1]
    assert isinstance(last, Finished)
    return last.message.text


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize(
    ("text", "usage", "expected"),
    [
        (b'"so \\ud83d"', b"{}", "so \ufffd"),
        (b'"so \x01"', b"{}", "so \x01"),
        (b'"so"', b'{"output_tokens": NaN, "cost": Infinity}', "so"),
        (b'"so"', b'{"output_tokens": 1e999}', "so"),
    ],
)
async def test_an_event_that_is_nearly_json_costs_no_turn(api: str, text: bytes, usage: bytes, expected: str) -> None:
    events, error, asked = await turn(api, stream_answer([text_event(api, text), ending(api, usage)]), timeout=1)

    assert (error, asked) == (None, 1)
    assert said_in(events) == expected


@pytest.mark.parametrize(
    ("api", "event"),
    [
        ("chat", b'{"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "\\ud83d"}}]}}]}'),
        (
            "anthropic",
            b'{"type": "content_block_delta", "delta": {"partial_json": "\\ud83d"}}',
        ),
        ("responses", b'{"type": "response.function_call_arguments.delta", "delta": "\\ud83d"}'),
    ],
)
async def test_half_a_character_in_the_arguments_of_a_call_is_an_error(api: str, event: bytes) -> None:
    _, error, _ = await turn(api, stream_answer([b"data: " + event + b"\n\n", ending(api)]))

    assert error is not None
    assert "is not JSON" in error.message


WHOLE: dict[str, list[Any]] = {
    "chat": [
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "so"}, "finish_reason": None}]},
        {"choices": [{"message": {"content": {"type": "text", "text": "so"}}, "finish_reason": "stop"}]},
    ],
    "anthropic": [
        {"type": "message", "content": "so", "stop_reason": "end_turn"},
        {"type": "message", "content": [{"type": "text", "text": "so"}], "stop_reason": "end_turn"},
    ],
    "responses": [
        {"status": "completed", "output": [{"type": "message", "content": "so"}]},
        {"status": "completed", "output": [], "output_text": "so"},
    ],
}


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/json; charset=utf-8"])
@pytest.mark.parametrize(("api", "number"), [(api, number) for api in WHOLE for number in (0, 1)])
async def test_an_answer_that_was_not_streamed_is_read_under_any_type_of_json(api: str, number: int, kind: str) -> None:
    made = json_answer(WHOLE[api][number])
    events, error, asked = await turn(api, Answer(200, {**made.headers, "content-type": kind}, made.pieces))

    assert (error, asked) == (None, 1)
    assert said_in(events) == "so"


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_an_event_stream_under_the_type_of_a_text_is_one(api: str) -> None:
    made = stream_answer([text_event(api, b'"so"'), ending(api)])
    events, error, _ = await turn(api, Answer(200, {**made.headers, "content-type": "text/plain"}, made.pieces))

    assert error is None
    assert said_in(events) == "so"


@pytest.mark.parametrize("text", [b"the gateway is down", b"<html>", b""])
async def test_a_text_that_is_no_answer_stays_an_error(text: bytes) -> None:
    _, error, _ = await turn("chat", Answer(200, {"content-type": "text/plain"}, [text]))

    assert error is not None
    assert "expected an event stream" in error.message


async def test_events_of_responses_that_only_their_names_describe_are_events() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    events: list[Any] = [
        b"event: response.output_item.done\ndata: " + encoded({"output_index": 0, "item": item}),
        b"event: response.completed\ndata: " + encoded({"response": {"status": "completed", "output": [item]}}),
    ]
    told, error, _ = await turn("responses", stream_answer(events))

    assert error is None
    assert calls(told) == [("f", {})]


async def test_one_call_in_place_of_a_list_of_calls_is_that_call() -> None:
    piece = {"tool_calls": {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"n": 1}'}}}
    told, error, _ = await turn("chat", chat_turn(piece, finish="tool_calls"))

    assert error is None
    assert calls(told) == [("f", {"n": 1})]
