"""What goes wrong with the Messages API: refusals, broken streams, silence, keys."""

from __future__ import annotations

import pytest

from tests.models.fake_anthropic import KEY, FakeAnthropic, fake_anthropic, refused, said, streamed
from tests.models.fake_anthropic import turn_events as events_of
from tests.models.http_server import Answer, json_answer
from toolweave.errors import ConfigError, ModelError
from toolweave.models import AnthropicModel, Retry, complete
from toolweave.models._base import ModelRequest, ModelSettings, StreamedText
from toolweave.models._messages import UserMessage
from toolweave.models._retry import NO_RETRY

AT_ONCE = Retry(attempts=3, first=0)
HELLO = [UserMessage.of("hello")]


def model_of(fake: FakeAnthropic, retry: Retry = NO_RETRY) -> AnthropicModel:
    return AnthropicModel("m", KEY, fake.url, retry=retry)


async def failure(*answers: Answer, retry: Retry = NO_RETRY) -> tuple[ModelError, int]:
    """Return the error that a request ends with, and how often it was sent."""
    async with fake_anthropic(*answers) as fake, model_of(fake, retry=retry) as model:
        with pytest.raises(ModelError) as raised:
            await complete(model, ModelRequest(messages=HELLO))
        return raised.value, len(fake.requests)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(400, "invalid_request_error", "messages: nonsense"), "invalid_request"),
        (refused(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), "too_long"),
        (
            refused(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 9"),
            "too_long",
        ),
        (refused(400, "invalid_request_error", "Your credit balance is too low"), "auth"),
        (refused(401, "authentication_error", "invalid x-api-key"), "auth"),
        (refused(403, "permission_error", "not yours"), "auth"),
        (refused(404, "not_found_error", "model: m"), "invalid_request"),
        (refused(413, "request_too_large", "Request exceeds the maximum size"), "too_long"),
        (refused(429, "rate_limit_error", "slow down", retry_after="7"), "rate_limited"),
        (refused(500, "api_error", "Internal server error"), "overloaded"),
        (refused(529, "overloaded_error", "Overloaded"), "overloaded"),
    ],
)
async def test_a_refusal_says_what_kind_it_is(answer: Answer, kind: str) -> None:
    error, times = await failure(answer)

    assert (error.kind, error.status, times) == (kind, answer.status, 1)
    assert error.retry_after == (7 if answer.status == 429 else None)
    assert "anthropic:m" in str(error)


async def test_a_busy_provider_is_asked_again_and_its_wait_is_kept_to() -> None:
    busy = [
        refused(429, "rate_limit_error", "slow down", retry_after="0"),
        refused(529, "overloaded_error", "Overloaded"),
    ]
    async with fake_anthropic(*busy, said("Hello")) as fake, model_of(fake, retry=AT_ONCE) as model:
        finished = await complete(model, ModelRequest(messages=HELLO))

        assert finished.message.text == "Hello"
        assert len(fake.requests) == 3


async def test_a_turn_that_fails_before_or_after_its_first_word_is_asked_for_again() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    start, ping, begun, word, *_ = events_of({"type": "text", "text": "Hello there"})

    early = streamed([start, ping, overloaded])
    late = streamed([start, ping, begun, word, overloaded])
    early_error, early_times = await failure(early, early, early, retry=AT_ONCE)
    late_error, late_times = await failure(late, late, late, retry=AT_ONCE)

    assert (early_error.kind, early_times) == ("overloaded", 3)
    assert (late_error.kind, late_times) == ("overloaded", 3)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(streamed(events_of({"type": "text", "text": "Hi"})[:4]), "unreachable", id="the stream ends"),
        pytest.param(streamed(events_of({"type": "text", "text": "Hi"})[:4], "drop"), "unreachable", id="it breaks"),
        pytest.param(streamed([{"type": "content_block_delta", "index": 7, "delta": {}}]), "protocol", id="no block"),
        pytest.param(streamed([{"type": "content_block_start", "index": "0"}]), "protocol", id="no index"),
        pytest.param(streamed([{"type": "message_start", "message": "x"}]), "protocol", id="no object"),
        pytest.param(json_answer({"content": "x"}), "protocol", id="no list"),
        pytest.param(json_answer({"content": ["x"]}), "protocol", id="no block in the list"),
        pytest.param(json_answer([1]), "protocol", id="no object at all"),
    ],
)
async def test_an_answer_that_is_no_turn_is_an_error(answer: Answer, kind: str) -> None:
    error, _ = await failure(answer)

    assert error.kind == kind


async def test_closing_the_stream_ends_the_request() -> None:
    hanging = streamed(events_of({"type": "text", "text": "Hello there"})[:4], "hang")
    async with fake_anthropic(hanging) as fake, model_of(fake) as model:
        events = model.stream(ModelRequest(messages=HELLO))
        assert await anext(events) == StreamedText(text="Hello")
        await events.aclose()

        await fake.server.left.wait()


async def test_silence_ends_after_the_time_that_the_settings_say() -> None:
    hanging = streamed(events_of({"type": "text", "text": "Hello there"})[:2], "hang")
    async with fake_anthropic(hanging) as fake, model_of(fake) as model:
        with pytest.raises(ModelError) as raised:
            await complete(model, ModelRequest(messages=HELLO, settings=ModelSettings(timeout=0.2)))

        assert raised.value.kind == "timeout"


async def test_a_key_that_the_provider_says_back_is_not_shown() -> None:
    async with fake_anthropic() as fake, AnthropicModel("m", "sk-wrong-key-123", fake.url) as model:
        with pytest.raises(ModelError) as raised:
            await complete(model, ModelRequest(messages=HELLO))

    assert raised.value.kind == "auth"
    assert "sk-wrong" not in f"{raised.value} {model!r}"


def test_without_a_key_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        AnthropicModel("m")


async def test_the_key_of_the_environment_goes_to_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    AnthropicModel("m")
    async with fake_anthropic() as fake, AnthropicModel("m", base_url=fake.url) as model:
        with pytest.raises(ModelError):
            await complete(model, ModelRequest(messages=HELLO))

        assert "x-api-key" not in fake.requests[0].headers


async def test_a_bearer_token_stands_in_for_a_key() -> None:
    bearer = {"Authorization": f"Bearer {KEY}", "anthropic-beta": "x-2026"}
    AnthropicModel("m", headers=bearer)
    async with (
        fake_anthropic(said("Hello")) as fake,
        AnthropicModel("m", base_url=fake.url, headers=bearer) as model,
    ):
        assert (await complete(model, ModelRequest(messages=HELLO))).message.text == "Hello"

        assert fake.requests[0].headers["anthropic-beta"] == "x-2026"


async def test_a_request_that_cannot_be_written_fails_before_anything_is_sent() -> None:
    request_ = ModelRequest(messages=HELLO, settings=ModelSettings(extra={"metadata": object()}))
    async with fake_anthropic() as fake, model_of(fake) as model:
        with pytest.raises(ModelError) as raised:
            await complete(model, request_)

        assert raised.value.kind == "invalid_request"
        assert not fake.requests


def test_a_url_that_is_none_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        AnthropicModel("m", KEY, "localhost:80")
