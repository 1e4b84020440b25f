"""What goes wrong on the way to a model: refusals, silence, broken streams, secrets, retries; over a real socket."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import pytest

from tests.models.fake_openai import KEY, chat_chunk, fake_openai, said
from tests.models.http_server import Answer, Received, error_answer, serve, stream_answer
from toolweave.errors import ModelError
from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    StreamedText,
    StreamRestarted,
    complete,
)
from toolweave.models._messages import UserMessage
from toolweave.models._openai import OpenAICompatibleModel
from toolweave.models._retry import NO_RETRY, Retry

HELLO = ModelRequest(messages=[UserMessage.of("hello")])
AT_ONCE = Retry(attempts=3, first=0)


def model_at(url: str, retry: Retry = NO_RETRY, **more: Any) -> OpenAICompatibleModel:
    options: dict[str, Any] = {"api_key": KEY, "provider": "openai", **more}
    return OpenAICompatibleModel(url, model="m", retry=retry, **options)


async def failure(*answers: Answer, retry: Retry = NO_RETRY, settings: ModelSettings | None = None) -> ModelError:
    """Return the error of a turn."""
    request = ModelRequest(messages=HELLO.messages, settings=settings or ModelSettings())
    async with fake_openai(*answers) as fake, model_at(fake.url, retry) as model:
        with anyio.fail_after(30), pytest.raises(ModelError) as caught:
            await complete(model, request)
    return caught.value


def refused(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}}


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (error_answer(400, refused("Invalid 'messages'")), "invalid_request", "Invalid 'messages'"),
        (error_answer(403, refused("no access")), "auth", "no access"),
        (error_answer(429, refused("slow down", code="rate_limit_exceeded")), "rate_limited", "slow down"),
        (error_answer(429, refused("pay first", code="insufficient_quota")), "auth", "pay first"),
        (error_answer(500, refused("oops")), "overloaded", "oops"),
        (error_answer(529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}), "overloaded",
         "busy"),
        (error_answer(400, refused("too much", code="context_length_exceeded")), "too_long", "too much"),
        (error_answer(400, {"error": "prompt is too long"}), "too_long", "prompt is too long"),
        (error_answer(404, {"detail": "Not Found"}), "invalid_request", "Not Found"),
        (error_answer(422, {"detail": [{"loc": ["body"], "msg": "field required"}]}), "invalid_request",
         "field required"),
        (error_answer(400, [{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}]),
         "invalid_request", "bad"),
        (Answer(502, {"content-type": "text/html"}, [b"<html>\x1b[31mBad Gateway"]), "overloaded", "Bad Gateway"),
        (Answer(400, {}, [b"\xff\xfe"]), "invalid_request", "HTTP 400"),
    ],
)  # fmt: skip
async def test_a_refusal_is_an_error_of_its_kind_with_the_providers_words(answer: Answer, kind: str, text: str) -> None:
    error = await failure(answer)

    assert error.kind == kind
    assert error.status == answer.status
    assert text in error.message
    assert "\x1b" not in str(error)


async def test_a_request_is_sent_again_while_the_provider_is_busy() -> None:
    busy = (error_answer(429, refused("slow down"), retry_after="0"), error_answer(503, refused("oops")))
    async with fake_openai(*busy, said("done")) as fake, model_at(fake.url, AT_ONCE) as model:
        finished = await complete(model, HELLO)

    assert finished.message.text == "done"
    assert [request.body for request in fake.requests] == [fake.requests[0].body] * 3


async def test_retries_end_and_the_last_error_is_told() -> None:
    error = await failure(*[error_answer(500, refused(f"oops {number}")) for number in range(9)], retry=AT_ONCE)

    assert "oops 2" in error.message
    assert error.retryable


async def test_a_wait_that_is_too_long_is_not_waited_for_but_told() -> None:
    busy = error_answer(429, refused("come back tomorrow"), retry_after="86400")

    error = await failure(busy, said("never asked for"), retry=AT_ONCE)

    assert (error.kind, error.retry_after) == ("rate_limited", 86400.0)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 501])
async def test_what_will_not_get_better_is_sent_once(status: int) -> None:
    async with fake_openai(error_answer(status, refused("no"))) as fake, model_at(fake.url, AT_ONCE) as model:
        with pytest.raises(ModelError):
            await complete(model, HELLO)

    assert len(fake.requests) == 1


async def collected(answers: Sequence[Answer], retry: Retry) -> tuple[list[ModelEvent], ModelError | None, int]:
    """Return the events of a turn, what it ended with, and how often it was asked for."""
    events: list[ModelEvent] = []
    error = None
    async with fake_openai(*answers) as fake, model_at(fake.url, retry) as model:
        with anyio.fail_after(30):
            try:
                async for event in model.stream(HELLO):
                    events.append(event)  # noqa: PERF401 - what came before the error counts
            except ModelError as exc:
                error = exc
    return events, error, len(fake.requests)


async def test_a_stream_that_breaks_before_its_first_word_is_asked_for_again() -> None:
    events, error, asked = await collected([stream_answer([], "drop"), said("whole")], AT_ONCE)

    assert error is None
    assert asked == 2
    assert events[0] == StreamedText(text="whole")


async def test_a_stream_that_breaks_after_its_first_word_begins_anew_and_says_so() -> None:
    half = stream_answer([chat_chunk({"content": "half"})], "drop")

    events, error, asked = await collected([half, said("whole")], AT_ONCE)

    first, restarted, *rest, last = events
    assert first == StreamedText(text="half")
    assert isinstance(restarted, StreamRestarted)
    assert (restarted.error.kind, restarted.error.retryable) == ("unreachable", True)
    assert rest == [StreamedText(text="whole")]
    assert isinstance(last, Finished)
    assert last.message.text == "whole"
    assert (error, asked) == (None, 2)


async def test_a_stream_that_always_breaks_is_an_error_after_so_many_attempts() -> None:
    half = stream_answer([chat_chunk({"content": "half"})], "drop")

    events, error, asked = await collected([half] * 3, Retry(attempts=3, first=0))

    assert error is not None
    assert (error.kind, asked) == ("unreachable", 3)
    assert [type(event) for event in events].count(StreamRestarted) == 2


async def test_a_stream_that_ends_without_saying_so_is_an_error() -> None:
    _, error, _ = await collected([stream_answer([chat_chunk({"content": "half"})])], NO_RETRY)

    assert error is not None
    assert "ended in the middle" in error.message


async def test_an_error_within_the_stream_is_an_error_of_its_kind() -> None:
    chunk = {"error": {"code": 429, "message": "upstream is busy"}}

    _, error, asked = await collected([stream_answer([chunk]), stream_answer([chunk])], Retry(attempts=2, first=0))

    assert error is not None
    assert (error.kind, error.status, asked) == ("rate_limited", 429, 2)


@pytest.mark.parametrize(
    "garbage",
    [b"data: {not json}\n\n", b"data: [1, 2]\n\n", b"data: \xff\xfe\n\n", b"data: " + b"[" * 5000 + b"\n\n"],
)
async def test_garbage_in_the_stream_is_a_protocol_error(garbage: bytes) -> None:
    error = await failure(stream_answer([garbage]))

    assert error.kind == "protocol"


async def test_a_page_where_a_stream_should_be_is_told_as_what_it_is() -> None:
    error = await failure(Answer(200, {"content-type": "text/html"}, [b"<html>Welcome to the proxy</html>"]))

    assert error.kind == "protocol"
    assert "Welcome to the proxy" in error.message


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    error = await failure(Answer(302, {"location": "http://elsewhere.example/"}))

    assert "redirects" in error.message


async def test_odd_chunks_do_no_harm() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": 5, "tool_calls": [None, {}, {"function": "x"}]}}]},
        {"choices": [], "usage": {"prompt_tokens": "many"}},
        chat_chunk({"content": "fine"}, "stop"),
    ]

    events, error, _ = await collected([stream_answer(odd)], NO_RETRY)

    assert error is None
    assert StreamedText(text="fine") in events


async def test_silence_is_given_up_after_the_timeout() -> None:
    hanging = stream_answer([chat_chunk({"content": "and then"})], "hang")

    error = await failure(hanging, settings=ModelSettings(timeout=0.2))

    assert error.kind == "timeout"
    assert "ModelSettings.timeout" in error.message


async def test_closing_the_stream_ends_the_request() -> None:
    hanging = stream_answer([chat_chunk({"content": "and then"})], "hang")
    async with fake_openai(hanging) as fake, model_at(fake.url) as model:
        events = model.stream(HELLO)
        assert await anext(events) == StreamedText(text="and then")
        await events.aclose()
        await fake.server.left.wait()


async def test_a_cancelled_turn_ends_its_request() -> None:
    hanging = stream_answer([chat_chunk({"content": "and then"})], "hang")
    async with fake_openai(hanging) as fake, model_at(fake.url) as model:
        with anyio.CancelScope() as scope:
            async for _ in model.stream(HELLO):
                scope.cancel()
        assert scope.cancelled_caught
        await fake.server.left.wait()


async def test_turns_share_one_connection_and_go_on_after_a_close() -> None:
    async with fake_openai(said("one"), said("two"), said("three")) as fake, model_at(fake.url) as model:
        await complete(model, HELLO)
        await complete(model, HELLO)
        assert fake.server.connections == 1
        await model.aclose()
        assert (await complete(model, HELLO)).message.text == "three"
        assert fake.server.connections == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # nobody closes the first loop's connection: the subject
def test_one_model_serves_one_event_loop_after_another_without_being_closed_between() -> None:
    async def hi(_: Received) -> Answer:
        return said("hi")

    async def find_port() -> int:
        async with serve(hi) as server:
            return server.port

    port = anyio.run(find_port)
    model = OpenAICompatibleModel(f"http://127.0.0.1:{port}/v1", model="m", retry=NO_RETRY)

    async def once(*, close: bool) -> str:
        async with serve(hi, port):
            text = (await complete(model, HELLO)).message.text
            if close:
                await model.aclose()
            return text

    assert anyio.run(partial(once, close=False)) == "hi"
    assert anyio.run(partial(once, close=True)) == "hi"
    gc.collect()


async def test_nobody_listening_is_told_with_the_url() -> None:
    async with serve(nobody) as server:
        url = server.url
    async with model_at(url) as model:
        with pytest.raises(ModelError, match=url) as caught:
            await complete(model, HELLO)

    assert caught.value.kind == "unreachable"


async def nobody(_: Received) -> Answer:
    return error_answer(500, {})


async def test_a_key_shows_neither_in_errors_nor_in_reprs_nor_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "sk-wrong-abcdef123456"
    async with fake_openai() as fake, model_at(fake.url, api_key=wrong) as model:
        with pytest.raises(ModelError) as caught:
            await complete(model, HELLO)

    assert caught.value.kind == "auth"
    assert "Incorrect API key provided: ***" in caught.value.message
    assert wrong not in repr(model) + str(caught.value) + caplog.text


class Hidden:
    """A secret as the config room has it."""

    def reveal(self) -> str:
        return KEY


async def test_a_key_may_be_a_secret_value() -> None:
    async with fake_openai(said("in")) as fake, model_at(fake.url, api_key=Hidden()) as model:
        assert (await complete(model, HELLO)).message.text == "in"


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "ftp://host/v1"},
        {"base_url": "localhost:11434"},
        {"base_url": "https://user:hunter2@host/v1"},
        {"base_url": "https://host/v1", "api_key": "sk-hunter2\nx"},
        {"base_url": "https://host/v1", "headers": {"x-key": "hunter2\u2014"}},
    ],
)
async def test_what_cannot_be_sent_is_refused_when_the_model_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="model 'openai:m'") as caught:
        OpenAICompatibleModel(model="m", **options)

    assert "hunter2" not in str(caught.value)


async def test_a_query_and_headers_of_the_users_own_are_sent() -> None:
    async def look(request: Received) -> Answer:
        assert request.path == "/v1/chat/completions?api-version=1"
        assert request.headers["x-title"] == "mine"
        return said("seen")

    async with serve(look) as server:
        url = f"{server.url}/?api-version=1"
        async with OpenAICompatibleModel(url, model="m", headers={"X-Title": "mine"}) as model:
            assert (await complete(model, HELLO)).message.text == "seen"
        assert model.name == f"{server.url}/#m"


async def test_the_last_event_is_the_end_whatever_came_before() -> None:
    events, error, _ = await collected([said("a", "b")], NO_RETRY)

    assert error is None
    assert [isinstance(event, Finished) for event in events] == [False, False, True]
