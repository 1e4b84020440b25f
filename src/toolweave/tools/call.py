"""One tool call on its way down: what is called, with what, and the caller's wishes.

Knows nothing of who executes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["NO_CONTEXT", "CallContext", "Progress", "ProgressCallback", "ToolCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One progress notification of a running call.

    Attributes:
        progress: Amount done, increasing; in units of `total`.
        total: Amount in all, or None when unknown.
        message: A line for people, or None. Server text is untrusted.
    """

    progress: float
    total: float | None = None
    message: str | None = None


ProgressCallback: TypeAlias = Callable[[Progress], Awaitable[None] | None]
"""Called for every progress notification, in order; sync or async. What it raises is logged, never fatal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The call itself: an exposed name and one arguments object (requirement D16).

    Attributes:
        id: The caller's id of this call, such as an LLM's `tool_call_id`, or None.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What surrounds one call; handlers receive it by declaring a `CallContext` parameter.

    Attributes:
        timeout: Seconds without a sign of life before the call is given up; progress resets it.
            None takes the toolset's default.
        on_progress: Receives progress notifications, or None.
        meta: Members for the request's `_meta`.
        state: Dependencies for handlers, by name (requirement R95, C29).
    """

    timeout: float | None = None
    on_progress: ProgressCallback | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller; does nothing when the caller did not ask for it."""
        if self.on_progress is None:
            return
        outcome = self.on_progress(Progress(progress=progress, total=total, message=message))
        if inspect.isawaitable(outcome):
            await outcome


NO_CONTEXT = CallContext()
"""The context of a caller without wishes; shared, because a context is immutable and calls are many."""
