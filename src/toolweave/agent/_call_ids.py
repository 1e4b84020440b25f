"""Ids of tool calls, unique in a conversation whatever the provider sends. Pure.

Results, approvals and journal entries refer to them; some servers number the calls of each turn from zero, or give all
of them the same id.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Set as AbstractSet
from dataclasses import replace

from toolweave.models._messages import AssistantMessage, ToolCallPart

__all__ = ["CallIds"]


class CallIds:
    """Unique ids for the calls of one turn; a provider's id that is free is kept.

    Args:
        taken: The ids of the conversation up to the turn.
    """

    def __init__(self, taken: AbstractSet[str]) -> None:
        self._taken = taken  # not copied: a long run would pay for that at each of its turns
        self._used: set[str] = set()
        self._begun: defaultdict[str, deque[str]] = defaultdict(deque)

    def begin(self, given: str) -> str:
        """Return the id of a call that the model begins."""
        self._begun[given].append(self._free(given))
        return self._begun[given][-1]

    def current(self, given: str) -> str:
        """Return the unique id of the last call that began with this provider id."""
        begun = self._begun.get(given)
        return begun[-1] if begun else given

    def settle(self, message: AssistantMessage) -> AssistantMessage:
        """Return the finished turn with its call ids made unique."""
        parts = tuple(self._settled(part) if isinstance(part, ToolCallPart) else part for part in message.parts)
        unchanged = all(new is old for new, old in zip(parts, message.parts, strict=True))
        return message if unchanged else replace(message, parts=parts)

    def _settled(self, call: ToolCallPart) -> ToolCallPart:
        begun = self._begun.get(call.id)
        found = begun.popleft() if begun else self._free(call.id)
        return call if found == call.id else replace(call, id=found)

    def _free(self, given: str) -> str:
        found, number = given, 1
        while not found or found in self._used or found in self._taken:
            number += 1
            found = f"{given or 'call'}_{number}"
        self._used.add(found)
        return found
