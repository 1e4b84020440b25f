"""What Responses streams of a turn counts, whichever of its events a server leaves out or labels in its own way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.fake_openai import KEY, fake_openai, responses_turn
from tests.models.http_server import Answer, stream_answer
from toolweave.models import OpenAICompatibleModel
from toolweave.models._base import Finished, ModelEvent, ModelRequest, StreamedText, StreamedToolCall
from toolweave.models._messages import ThinkingPart, ToolCallPart, ToolMessage, ToolOutcome, UserMessage
from toolweave.models._retry import NO_RETRY
from toolweave.tools import ToolResult

Event = dict[str, Any]
HELLO = UserMessage.of("hello")


def item(number: int, arguments: str = "", **more: Any) -> Event:
    """Return a call of `f`, as an item of the output."""
    return {
        "type": "function_call",
        "id": f"fc{number}",
        "call_id": f"c{number}",
        "name": "f",
        "arguments": arguments,
        **more,
    }


def message(*texts: str, key: str = "m1") -> Event:
    return {"type": "message", "id": key, "content": [{"type": "output_text", "text": text} for text in texts]}


def text(delta: str, **more: Any) -> Event:
    return {"type": "response.output_text.delta", "output_index": 0, "item_id": "m1", "delta": delta, **more}


def piece(delta: str, **place: Any) -> Event:
    return {"type": "response.function_call_arguments.delta", "delta": delta, **place}


def added(index: int | None, one: Event) -> Event:
    return {"type": "response.output_item.added", "item": one, **({} if index is None else {"output_index": index})}


def over(index: int | None, one: Event) -> Event:
    return {**added(index, one), "type": "response.output_item.done"}


def ended(*output: Event, status: str = "completed") -> Event:
    return {"type": f"response.{status}", "response": {"status": status, "output": list(output)}}


async def turn(answer: Answer) -> tuple[list[ModelEvent], Finished]:
    """Return the events of a turn and its end."""
    async with (
        fake_openai(answer) as fake,
        OpenAICompatibleModel(fake.url, model="m", api_key=KEY, api="responses", retry=NO_RETRY) as model,
    ):
        *events, last = [event async for event in model.stream(ModelRequest(messages=[HELLO]))]
    assert isinstance(last, Finished)
    return events, last


def calls(events: list[ModelEvent], last: Finished) -> list[dict[str, Any]]:
    """Return the arguments of the calls of `f`; each was announced once, in order."""
    made = last.message.tool_calls
    assert [(one.id, one.name) for one in events if isinstance(one, StreamedToolCall)] == [
        (one.id, "f") for one in made
    ]
    assert not [one for one in made if one.malformed or one.cut or one.name != "f"]
    return [dict(one.arguments) for one in made]


TEXTS: dict[str, list[Event]] = {
    "deltas alone": [text("hel"), text("lo"), ended()],
    "an item without content": [text("hel"), text("lo"), over(0, message()), ended()],
    "deltas without any place": [text("hel", output_index=None, item_id=None), text("lo", output_index=None), ended()],
    "the text at its end": [{**text("hello"), "type": "response.output_text.done", "text": "hello"}, ended()],
    "the part at its end": [
        {**text(""), "type": "response.content_part.done", "part": {"type": "output_text", "text": "hello"}},
        ended(),
    ],
    "a shorter item": [text("hel"), text("lo"), over(0, message("hel")), ended(message("hel"))],
    "another id in each event": [
        added(0, message(key="a")),
        *(text("hel", item_id="b"), text("lo", item_id="c")),
        *(over(0, message("hello", key="d")), ended(message("hello", key="e"))),
    ],
    "another place in the response": [text("hel", output_index=3), text("lo", output_index=3), ended(message("hello"))],
    "the response alone": [ended(message("hello"))],
    "two parts": [text("hel", content_index=0), text("lo", content_index=1), over(0, message("hel", "lo")), ended()],
}  # fmt: skip
ONE_CALL: dict[str, list[Event]] = {
    "deltas": [added(0, item(0)), piece('{"n"', output_index=0), piece(":1}", output_index=0), ended()],
    "deltas by id": [added(None, item(0)), piece('{"n"', item_id="fc0"), piece(":1}", item_id="fc0"), ended()],
    "deltas without a place": [added(None, item(0)), piece('{"n":1}'), ended()],
    "arguments at once": [
        added(0, item(0)),
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"n":1}'},
        ended(),
    ],
    "told by each event": [
        *(added(0, item(0)), piece('{"n":1}', output_index=0)),
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"n":1}'},
        *(over(0, item(0, '{"n":1}')), ended(item(0, '{"n":1}'))),
    ],
    "added twice": [added(0, item(0)), added(0, item(0)), over(0, item(0, '{"n":1}')), ended()],
    "done twice": [over(0, item(0, '{"n":1}')), over(0, item(0, '{"n":1}')), ended(item(0, '{"n":1}'))],
    "arguments that are shorter in the item": [
        *(added(0, item(0)), piece('{"n":1}', output_index=0), over(0, item(0)), ended(item(0))),
    ],
    "another id in each event": [
        *(added(0, item(0, id="a")), piece('{"n":1}', output_index=0, item_id="b")),
        *(over(0, item(0, '{"n":1}', id="c")), ended(item(0, '{"n":1}', id="d"))),
    ],
}  # fmt: skip
TWO_CALLS: dict[str, list[Event]] = {
    "no places": [over(None, item(0, '{"n":1}')), over(None, item(1, '{"n":2}')), ended()],
    "one place": [over(0, item(0, '{"n":1}')), over(0, item(1, '{"n":2}')), ended()],
    "one place, deltas": [
        *(added(0, item(0)), piece('{"n":1}', output_index=0, item_id="fc0"), over(0, item(0))),
        *(added(0, item(1)), piece('{"n":2}', output_index=0, item_id="fc1"), over(0, item(1)), ended()),
    ],
    "one place, side by side": [
        *(added(0, item(0)), added(0, item(1))),
        *(piece('{"n":2}', output_index=0, item_id="fc1"), piece('{"n":1}', output_index=0, item_id="fc0"), ended()),
    ],
    "no places, side by side": [
        *(added(None, item(0)), added(None, item(1))),
        *(piece('{"n":2}', item_id="fc1"), piece('{"n":1}', item_id="fc0"), ended()),
    ],
    "the second in the response alone": [over(0, item(0, '{"n":1}')), ended(item(0, '{"n":1}'), item(1, '{"n":2}'))],
    "one id": [over(None, item(0, '{"n":1}')), over(None, item(0, '{"n":2}')), ended()],
}  # fmt: skip


@pytest.mark.parametrize("row", TEXTS)
async def test_a_text_is_whole_whichever_events_tell_it(row: str) -> None:
    events, last = await turn(stream_answer(TEXTS[row]))

    assert (last.message.text, last.stop_reason) == ("hello", "end")
    assert "".join(one.text for one in events if isinstance(one, StreamedText)) in ("hello", "")


@pytest.mark.parametrize("row", ONE_CALL)
async def test_a_call_is_one_call_whichever_events_tell_it(row: str) -> None:
    events, last = await turn(stream_answer(ONE_CALL[row]))

    assert calls(events, last) == [{"n": 1}]
    assert last.stop_reason == "tool_calls"


@pytest.mark.parametrize("row", TWO_CALLS)
async def test_two_calls_stay_two_and_their_arguments_apart(row: str) -> None:
    assert calls(*await turn(stream_answer(TWO_CALLS[row]))) == [{"n": 1}, {"n": 2}]


async def test_a_call_of_which_only_the_beginning_was_told_counts_as_cut() -> None:
    _, last = await turn(stream_answer([added(0, item(0)), ended()]))

    assert [one.cut for one in last.message.tool_calls] == [True]


async def test_a_stream_that_ends_without_the_response_may_have_been_cut() -> None:
    events = [text("hel"), added(1, item(0)), piece('{"n":', output_index=1), b"data: [DONE]\n\n"]

    _, last = await turn(stream_answer(events))

    assert (last.message.text, last.stop_reason) == ("hel", "other")
    assert [one.cut for one in last.message.tool_calls] == [True]


async def test_a_thought_in_deltas_alone_is_a_thought() -> None:
    thought = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "r", "delta": "hm"}

    _, last = await turn(stream_answer([thought, text("so", output_index=1), ended()]))

    assert isinstance(last.message.parts[0], ThinkingPart)
    assert [last.message.parts[0].text, last.message.text] == ["hm", "so"]


@pytest.mark.parametrize("given", ["functions.f:0", "call|1", "t" * 60])
async def test_a_call_id_goes_back_to_its_provider_as_it_came(given: str) -> None:
    call = item(0, "{}", call_id=given)
    answers = responses_turn(call), responses_turn(message("ok"))
    async with (
        fake_openai(*answers) as fake,
        OpenAICompatibleModel(fake.url, model="m", api_key=KEY, api="responses", retry=NO_RETRY) as model,
    ):
        *_, first = [event async for event in model.stream(ModelRequest(messages=[HELLO]))]
        assert isinstance(first, Finished)
        (made,) = first.message.tool_calls
        assert isinstance(made, ToolCallPart)
        done = ToolMessage(outcomes=(ToolOutcome(call_id=made.id, name="f", result=ToolResult.of("1")),))
        async for _ in model.stream(ModelRequest(messages=[HELLO, first.message, done])):
            pass

        _, asked, answered = fake.checked[1]["input"]
        assert (asked["call_id"], answered["call_id"]) == (given, given)
