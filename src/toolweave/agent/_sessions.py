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
from toolweave.models import AssistantMessage, Message, ToolMessage, ToolOutcome
from toolweave.tools import ResultPolicy, ToolResult
from toolweave.tools._truncation import ResultCache

_MAX_SESSIONS = 1000


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

    def __init__(self, max_sessions: int = _MAX_SESSIONS) -> None:
        self._max_sessions = max_sessions
        self._conversations: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def load(self, session: str) -> Sequence[Message]:
        """Return the conversation so far; empty for a new one."""
        return self._conversations.get(session, ())

    async def save(self, session: str, messages: Sequence[Message]) -> None:
        """Replace the stored conversation of a session."""
        self._conversations[session] = tuple(messages)
        self._conversations.move_to_end(session)
        # Both reading order and loss are by use: a conversation that goes is the one that was saved longest ago.
        while len(self._conversations) > self._max_sessions:
            self._conversations.popitem(last=False)


@dataclass(slots=True)
class SessionState:
    """The state of one session: the lock of its runs, first come, first served, and its whole results."""

    cache: ResultCache
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class SessionStates:
    """The states of an agent's sessions; a run without a session has a state for itself."""

    def __init__(self, policy: ResultPolicy) -> None:
        self._policy = policy
        self._states: OrderedDict[str, SessionState] = OrderedDict()

    def enter(self, session: str | None) -> SessionState:
        """Return the state of a session; each user has to `leave` it."""
        if session is None:
            return SessionState(ResultCache(self._policy), users=1)
        state = self._states.get(session)
        if state is None:
            state = self._states[session] = SessionState(ResultCache(self._policy))
        self._states.move_to_end(session)
        # A state with users is never dropped. Its lock would be dropped with it, and two runs of one session would
        # execute at once, each with a lock that nobody else holds.
        state.users += 1
        return state

    def leave(self, state: SessionState) -> None:
        """Release the state of a session; of the unused ones the most recent are kept."""
        state.users -= 1
        if len(self._states) <= _MAX_SESSIONS:
            return
        # One for one: each `enter` adds at most one state, so removing one here keeps the number near the maximum. It
        # exceeds the maximum only while more sessions than that have active runs.
        for name, other in self._states.items():
            if not other.users:
                del self._states[name]
                return


def continue_conversation(history: Sequence[Message], sent: Sequence[Message]) -> list[Message]:
    """Return a conversation with the new messages; unanswered calls get an error result.

    A `ToolMessage` that comes first answers the calls of client tools that the last run left pending.
    """
    messages = list(history)
    new = list(sent)
    # APIs refuse a conversation in which a call has no result, or a result no call. So the results that are there,
    # of the last run and of the caller, are put in the order of the calls, and the missing ones are failures.
    known: dict[str, ToolOutcome] = {}
    if messages and isinstance(messages[-1], ToolMessage):
        known.update(_outcomes_by_call(messages.pop()))
    if not messages:
        return [*history, *new]
    last = messages[-1]
    if not isinstance(last, AssistantMessage) or not last.tool_calls:
        return [*history, *new]
    if new and isinstance(new[0], ToolMessage):
        known.update(_outcomes_by_call(new.pop(0)))
    outcomes: list[ToolOutcome] = []
    for call in last.tool_calls:
        outcome = known.get(call.id)
        if outcome is None:
            outcome = ToolOutcome(call_id=call.id, name=call.name, result=_unanswered())
        outcomes.append(outcome)
    return [*messages, ToolMessage(outcomes=tuple(outcomes)), *new]


def _outcomes_by_call(message: Message) -> dict[str, ToolOutcome]:
    if not isinstance(message, ToolMessage):
        return {}
    return {outcome.call_id: outcome for outcome in message.outcomes}


def _unanswered() -> ToolResult:
    return ToolResult.failure(ToolError("the call was not answered", kind=ErrorKind.CANCELLED))
