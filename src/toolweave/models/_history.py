"""Conversations in the form that every provider requires: each tool call answered exactly once, at once. Pure.

The ids of calls are those that the provider itself gave, and legal ones for calls of other providers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from toolweave._json_types import Json, without_members
from toolweave.models._messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.tools import ToolResult
from toolweave.tools.arguments import wire_id

CALL_ID = "toolweave/call_id"
"""Member of a call's `extra`: the id from its provider, if that is not the call's `id`."""

_NO_RESULT = "no result: the run was interrupted before this call was answered"


def pair_tool_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with every tool call answered once, in the order of the calls, directly after them.

    A call without an outcome (of a run that was cancelled or cut) gets an error result that says so. An outcome
    without its call becomes a user's text that names the tool, so nothing is lost. Of two outcomes the first counts.
    """
    out: list[Message] = []
    waiting: AssistantMessage | None = None
    outcomes: list[ToolOutcome] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            outcomes += message.outcomes
            continue
        out += _answers(waiting, outcomes)
        out.append(message)
        if isinstance(message, AssistantMessage):
            waiting = message
        else:
            waiting = None
        outcomes = []
    return out + _answers(waiting, outcomes)


class WireIds:
    """The ids of the calls of a conversation, as a provider is sent them.

    An id goes back to the provider that gave it byte for byte: templates of some models require their own form of it.

    Args:
        messages: The conversation.
        provider: Marker of the provider's own parts, or None to send legal ids alone.
        legal: Returns a call's id in a form that the API accepts.
    """

    def __init__(
        self, messages: Iterable[Message], provider: str | None, *, legal: Callable[[str], str] = wire_id
    ) -> None:
        self._legal = legal
        self._own: dict[str, str] = {}
        for message in messages:
            if not isinstance(message, AssistantMessage):
                continue
            for call in message.tool_calls:
                given = call.extra.get(CALL_ID)
                if call.provider == provider and isinstance(given, str):
                    self._own[call.id] = given

    def wire(self, call_id: str) -> str:
        """Return the id to send for a call and for its result."""
        return self._own.get(call_id) or self._legal(call_id)


def added_members(part: TextPart | ToolCallPart, provider: str) -> Json:
    """Return the members that a provider added to its own part; they are sent back to it."""
    if part.provider != provider:
        return {}
    return without_members(part.extra, CALL_ID)


def _answers(asked: AssistantMessage | None, outcomes: Iterable[ToolOutcome]) -> list[Message]:
    # Each call of the turn has exactly one outcome, in the order of the calls: the first one wins, and a missing one
    # is made. An outcome of no call of this turn becomes text, because providers refuse a conversation with it.
    paired: dict[str, ToolOutcome | None] = {}
    if asked is not None:
        paired = dict.fromkeys(call.id for call in asked.tool_calls)
    strays: list[Message] = []
    for outcome in outcomes:
        if outcome.call_id not in paired:
            text = outcome.result.for_model().text
            strays.append(UserMessage.of(f"[result of an earlier call of {outcome.name!r}] {text}"))
        elif paired[outcome.call_id] is None:
            paired[outcome.call_id] = outcome
    if asked is None or not asked.tool_calls:
        return strays
    kept = [paired[call.id] or _missing(call.id, call.name) for call in asked.tool_calls]
    return [ToolMessage(outcomes=tuple(kept)), *strays]


def _missing(call_id: str, name: str) -> ToolOutcome:
    return ToolOutcome(call_id=call_id, name=name, result=ToolResult.failure(_NO_RESULT))
