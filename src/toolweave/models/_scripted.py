"""A model with scripted turns, for tests, demonstrations and documentation. Knows no provider."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from toolweave._json_types import JsonObject
from toolweave.errors import ModelError
from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    StreamedText,
    StreamedThinking,
    StreamedToolCall,
    ToolCallDelta,
)
from toolweave.models._messages import AssistantMessage, AssistantPart, TextPart, ThinkingPart, ToolCallPart
from toolweave.models._prices import FREE, Price

ScriptedTurn: TypeAlias = (
    str | AssistantPart | Sequence[str | AssistantPart] | AssistantMessage | Finished | Exception | Callable[..., Any]
)
"""One turn: a text, a tool call or another part, a sequence of these, a message, all of `Finished`, an exception to
raise, or a function of the request, async or not, that returns any of these."""

_numbers = itertools.count(1)


def tool_call(name: str, arguments: JsonObject | None = None, *, id: str | None = None) -> ToolCallPart:  # noqa: A002 - the field's name
    """Return a call for a scripted turn, with a new id unless one is given."""
    return ToolCallPart(id=id or f"call_{next(_numbers)}", name=name, arguments={} if arguments is None else arguments)


class ScriptedModel:
    """A model that streams scripted turns one after the other, word by word.

    A turn is a text, or a list of calls:

        model = ScriptedModel([[tool_call("add", {"values": [1, 2]})], "It is 3."])

    Args:
        turns: The turns, or a function of the request that returns each of them.
        name: The model's name.

    Attributes:
        requests: The requests so far, in order.
        price: The price of turns without a cost of their own.
    """

    price: Price | None = FREE

    def __init__(
        self, turns: Iterable[ScriptedTurn] | Callable[[ModelRequest], Any], *, name: str = "scripted"
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._name = name
        self._say = turns if callable(turns) else None
        self._turns = iter(()) if callable(turns) else iter(turns)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def __repr__(self) -> str:
        return f"<ScriptedModel {self._name!r}>"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the next turn.

        Raises:
            ModelError: The script has no further turn.
        """
        self.requests.append(request)
        if self._say is not None:
            turn = self._say
        else:
            turn = next(self._turns, None)
        while callable(turn):
            turn = turn(request)
            if inspect.isawaitable(turn):
                turn = await turn
        if turn is None:
            raise ModelError(f"the script has no turn {len(self.requests)}", model=self._name)
        if isinstance(turn, Exception):
            raise turn
        finished = _finished(turn)
        for part in finished.message.parts:
            for event in _events(part):
                yield event
        yield finished


def _finished(turn: Any) -> Finished:
    if isinstance(turn, Finished):
        return turn
    if not isinstance(turn, AssistantMessage):
        if isinstance(turn, (list, tuple)):
            several = cast("Sequence[Any]", turn)
        else:
            several = (turn,)
        turn = AssistantMessage(parts=tuple(TextPart(text=one) if isinstance(one, str) else one for one in several))
    return Finished(message=turn, stop_reason="tool_calls" if turn.tool_calls else "end")


def _events(part: AssistantPart) -> Iterable[ModelEvent]:
    match part:
        case TextPart():
            for number, word in enumerate(part.text.split(" ")):
                yield StreamedText(text=f" {word}" if number else word)
        case ThinkingPart():
            yield StreamedThinking(text=part.text)
        case ToolCallPart():
            yield StreamedToolCall(id=part.id, name=part.name)
            if part.malformed is not None:
                arguments = part.malformed
            else:
                arguments = json.dumps(dict(part.arguments))
            yield ToolCallDelta(id=part.id, arguments=arguments)
        case _:
            pass
