"""Sessions: the conversation of each, and the lock by which its runs execute one after another.

Holds the Protocol of a conversation store and the default in memory; knows no loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from toolweave.errors import ErrorKind, ToolError
from toolweave.models._messages import AssistantMessage, Message, ToolMessage, ToolOutcome
from toolweave.tools._result import ToolResult
from toolweave.tools._truncation import ResultCache, ResultPolicy

_MOST = 1000


class ConversationStore(Protocol):
    """Stores the conversation of each session."""

    async def load(self, session: str) -> Sequence[Message]:
        """Return the conversation so far; empty for a new one."""
        ...

    async def save(self, session: str, messages: Sequence[Message]) -> None:
        """Replace the stored conversation of a session."""
        ...


class MemoryConversations:
    """The thousand most recently used conversations, in memory."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def load(self, session: str) -> Sequence[Message]:
        """Return the conversation so far; empty for a new one."""
        return self._kept.get(session, ())

    async def save(self, session: str, messages: Sequence[Message]) -> None:
        """Replace the stored conversation of a session."""
        self._kept[session] = tuple(messages)
        self._kept.move_to_end(session)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


@dataclass(slots=True)
class SessionState:
    """The state of one session: the lock of its runs, first come, first served, and its kept results."""

    kept: ResultCache
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    guests: int = 0


class SessionStates:
    """The states of an agent's sessions; a run without a session has one of its own."""

    def __init__(self, policy: ResultPolicy) -> None:
        self._policy = policy
        self._rooms: OrderedDict[str, SessionState] = OrderedDict()

    def enter(self, session: str | None) -> SessionState:
        """Return the state of a session; each user has to `leave` it."""
        if session is None:
            return SessionState(ResultCache(self._policy), guests=1)
        room = self._rooms.get(session)
        if room is None:
            room = self._rooms[session] = SessionState(ResultCache(self._policy))
        self._rooms.move_to_end(session)
        room.guests += 1
        return room

    def leave(self, room: SessionState) -> None:
        """Release the state of a session; of the unused ones the most recent are kept."""
        room.guests -= 1
        if len(self._rooms) > _MOST:
            empty = next((name for name, other in self._rooms.items() if not other.guests), None)
            if empty is not None:
                del self._rooms[empty]


def continue_conversation(history: Sequence[Message], sent: Sequence[Message]) -> list[Message]:
    """Return a conversation with the new messages; unanswered calls get an error result.

    A `ToolMessage` that comes first answers the calls of client tools that the last run left pending.
    """
    messages = list(history)
    rest = list(sent)
    done = messages[-1] if messages else None
    known: dict[str, ToolOutcome] = {}
    if isinstance(done, ToolMessage):
        known = {outcome.call_id: outcome for outcome in done.outcomes}
        messages.pop()
    asked = messages[-1] if messages else None
    if not isinstance(asked, AssistantMessage) or not asked.tool_calls:
        return [*history, *rest]
    if rest and isinstance(rest[0], ToolMessage):
        known |= {outcome.call_id: outcome for outcome in rest[0].outcomes}
        rest.pop(0)
    outcomes = [
        known.get(call.id) or ToolOutcome(call_id=call.id, name=call.name, result=_unanswered())
        for call in asked.tool_calls
    ]
    return [*messages, ToolMessage(outcomes=tuple(outcomes)), *rest]


def _unanswered() -> ToolResult:
    return ToolResult.failure(ToolError("the call was not answered", kind=ErrorKind.CANCELLED))
