"""A chain of models: the next one answers where one cannot."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from toolweave.errors import ModelError
from toolweave.models import FallbackModel, ScriptedModel, complete
from toolweave.models._base import Finished, ModelEvent, ModelRequest, StreamedText, StreamRestarted
from toolweave.models._messages import AssistantMessage, TextPart, UserMessage

HELLO = ModelRequest(messages=[UserMessage.of("hello")])


class Breaking:
    """Says some words, then fails."""

    native_tool_search = True

    def __init__(self, words: Sequence[str], kind: str, *, retry_after: float | None = None, name: str = "a") -> None:
        self.name = name
        self.closed = False
        self._words = words
        self._error = ModelError("it is down", model=name, kind=kind, retry_after=retry_after)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            for word in self._words:
                yield StreamedText(text=word)
            raise self._error
        finally:
            self.closed = True


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "unreachable", "timeout", "auth", "too_long"])
async def test_the_next_model_answers_where_one_cannot(kind: str) -> None:
    first, second = Breaking([], kind), ScriptedModel(["Hello there"])

    events = [event async for event in FallbackModel(first, second).stream(HELLO)]

    assert "".join(event.text for event in events if isinstance(event, StreamedText)) == "Hello there"
    assert isinstance(events[-1], Finished)
    assert second.requests == [HELLO]
    assert first.closed


async def test_a_model_that_can_answer_keeps_the_others_out_of_it() -> None:
    second = ScriptedModel(["never said"])

    finished = await complete(FallbackModel(ScriptedModel(["Hello"]), second), HELLO)

    assert finished.message == AssistantMessage(parts=(TextPart(text="Hello"),))
    assert not second.requests


async def test_what_a_model_said_before_it_broke_off_is_void_when_the_next_one_answers() -> None:
    events = [
        one async for one in FallbackModel(Breaking(["Hello"], "overloaded"), ScriptedModel(["Hi"])).stream(HELLO)
    ]

    before, restarted, *after, last = events
    assert before == StreamedText(text="Hello")
    assert isinstance(restarted, StreamRestarted)
    assert "it is down" in str(restarted.error)
    assert after == [StreamedText(text="Hi")]
    assert isinstance(last, Finished)
    assert last.message.text == "Hi"


async def test_the_last_model_of_a_chain_that_breaks_off_is_an_error_and_nothing_is_said_to_begin_anew() -> None:
    events: list[ModelEvent] = []

    with pytest.raises(ModelError, match="it is down"):
        async for event in FallbackModel(Breaking(["Hello"], "overloaded")).stream(HELLO):
            events.append(event)  # noqa: PERF401 - what came before the error counts

    assert events == [StreamedText(text="Hello")]


async def test_a_refusal_is_an_answer() -> None:
    second = ScriptedModel(["Hello there"])

    with pytest.raises(ModelError) as raised:
        await complete(FallbackModel(Breaking([], "refused"), second), HELLO)

    assert raised.value.kind == "refused"
    assert not second.requests


async def test_when_none_can_answer_the_error_says_why_of_each_and_that_it_may_pass() -> None:
    chain = FallbackModel(
        Breaking([], "rate_limited", retry_after=7, name="a"),
        Breaking([], "overloaded", retry_after=3, name="b"),
        Breaking([], "auth", name="c"),
    )

    with pytest.raises(ModelError) as raised:
        await complete(chain, HELLO)

    assert str(raised.value).startswith("model 'a | b | c': no model could answer: model 'a': it is down; model 'b'")
    assert (raised.value.kind, raised.value.retryable, raised.value.retry_after) == ("rate_limited", True, 3)


async def test_a_chain_of_one_fails_as_its_model_does() -> None:
    with pytest.raises(ModelError, match="model 'a': it is down"):
        await complete(FallbackModel(Breaking([], "auth")), HELLO)


async def test_leaving_early_ends_the_request_of_the_model_that_answers() -> None:
    first = Breaking(["Hello", "there"], "overloaded")
    events = FallbackModel(first).stream(HELLO)

    assert await anext(events) == StreamedText(text="Hello")
    await events.aclose()

    assert first.closed


class Holding(ScriptedModel):
    """Holds something that wants closing."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True


async def test_closing_a_chain_closes_those_of_its_models_that_hold_connections() -> None:
    holding = Holding(["Hello"])

    async with FallbackModel(ScriptedModel([]), holding) as chain:
        assert (await complete(chain, HELLO)).message.text == "Hello"

    assert holding.closed


def test_tools_are_left_to_the_models_to_search_where_all_of_them_can() -> None:
    searching = Breaking([], "auth")

    assert FallbackModel(searching, searching).native_tool_search
    assert not FallbackModel(searching, ScriptedModel([])).native_tool_search
