"""The rules of provider streams, on each wire: what is read of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.models.http_server import Answer, serve
from tests.models.stream_rules import (
    BROKEN,
    ONE_CALL,
    PATH,
    TWO_CALLS,
    chat,
    chat_call,
    finished,
    item,
    messages,
    responses,
    start,
    stop,
)
from toolweave import ModelError
from toolweave.models import Finished, ModelRequest, Retry, UserMessage
from toolweave.tools import ToolSpec

TOOLS = [ToolSpec(name=name, input_schema={"type": "object"}) for name in ("wipe", "get")]


def cells(table: dict[str, dict[Wire, Answer]]) -> list[Any]:
    return [
        pytest.param(wire, answer, id=f"{rule}: {wire}") for rule, row in table.items() for wire, answer in row.items()
    ]


async def turn(wire: Wire, answer: Answer) -> Finished:
    """Return the end of the turn."""

    async def answering(_request: Any) -> Answer:
        return answer

    request = ModelRequest(messages=[UserMessage.of("go")], tools=TOOLS)
    async with serve(answering) as server, wires.model_at(wire, server.url, retry=Retry(attempts=1)) as model:
        *_, last = [event async for event in model.stream(request)]
    assert isinstance(last, Finished)
    return last


@pytest.mark.parametrize(("wire", "answer"), cells(ONE_CALL))
async def test_it_is_one_call(wire: Wire, answer: Answer) -> None:
    last = await turn(wire, answer)

    (made,) = last.message.tool_calls
    assert (made.name, dict(made.arguments), made.malformed, made.cut) == ("wipe", PATH, None, False)
    assert made.id


@pytest.mark.parametrize(("wire", "answer"), cells(TWO_CALLS))
async def test_they_are_two_calls(wire: Wire, answer: Answer) -> None:
    last = await turn(wire, answer)

    assert [(one.name, dict(one.arguments)) for one in last.message.tool_calls] == [("wipe", PATH), ("get", PATH)]
    assert len({one.id for one in last.message.tool_calls}) == 2


@pytest.mark.parametrize(("wire", "answer"), cells(BROKEN))
async def test_it_is_an_error(wire: Wire, answer: Answer) -> None:
    with pytest.raises(ModelError):
        await turn(wire, answer)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_call_without_arguments_has_none(wire: Wire) -> None:
    answers = {
        "chat": chat(chat_call(0, "c", "wipe", "")),
        "anthropic": messages(start(), stop()),
        "responses": responses(finished(item(""))),
    }
    (made,) = (await turn(wire, answers[wire])).message.tool_calls

    assert (dict(made.arguments), made.malformed) == ({}, None)
    assert json.dumps(dict(made.arguments)) == "{}"
