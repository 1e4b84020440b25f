"""Who may allow a tool call: the policy, what was allowed for good, and the calls that wait for a person.

Knows no screen: whoever shows a run answers by the call's id.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from toolweave.errors import ErrorKind, ToolError
from toolweave.models.journal_form import plain
from toolweave.models.messages import ToolCallPart
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec

__all__ = [
    "Allowed",
    "Approval",
    "Approvals",
    "Confirm",
    "checked_confirm",
    "definition_digest",
    "denied",
    "is_destructive",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A decision on a call.

    Attributes:
        approved: Whether the tool may run.
        remember: Allow this tool from now on without asking: `"run"` for this run, `"agent"` for all of the agent. It
            is asked about again when its definition changes.
        reason: What the model is told about a denial.
    """

    approved: bool
    remember: Literal["run", "agent"] | None = None
    reason: str | None = None


Answer: TypeAlias = bool | Approval | None
Confirm: TypeAlias = (
    Literal["always", "never", "destructive"] | Callable[[ToolCallPart, ToolSpec], Answer | Awaitable[Answer]]
)
"""Which calls a person has to allow: all, none, those of tools that may destroy something (by their annotations), or
what a function says: True allows the call, False denies it, None asks a person."""


class Allowed:
    """Tools that were allowed for good, by their identity and their definition."""

    def __init__(self) -> None:
        self._digests: set[str] = set()

    def add(self, tool: ToolSpec) -> None:
        """Allow a tool as it is defined now."""
        self._digests.add(definition_digest(tool))

    def restore(self, digests: Iterable[str]) -> None:
        """Allow the tools of these `definition_digest`s."""
        self._digests.update(digests)

    def __contains__(self, tool: object) -> bool:
        return bool(self._digests) and isinstance(tool, ToolSpec) and definition_digest(tool) in self._digests


@dataclass(slots=True)
class _Waiting:
    call: ToolCallPart
    tool: ToolSpec
    alone: bool = False
    """Whether it is this one call that is asked about, not the tool."""
    decided: anyio.Event = field(default_factory=anyio.Event)
    approval: Approval | None = None


class Approvals:
    """The approvals of one run.

    Args:
        confirm: The policy.
        allowed: What is allowed for the whole agent.
        seconds: How long a person may take.
        attended: Whether there is anybody who could be asked.
    """

    attended: bool

    def __init__(self, confirm: Confirm, allowed: Allowed, *, seconds: float, attended: bool = True) -> None:
        self._confirm: Confirm = confirm
        self._for_agent = allowed
        self._for_run = Allowed()
        self._seconds = seconds
        self.attended = attended
        self._waiting: dict[str, _Waiting] = {}

    def restore(self, digests: Iterable[str]) -> None:
        """Allow the tools of these `definition_digest`s to the run."""
        self._for_run.restore(digests)

    @property
    def waiting(self) -> tuple[ToolCallPart, ...]:
        """The calls that wait for a person."""
        return tuple(waiting.call for waiting in self._waiting.values())

    async def decide(
        self, call: ToolCallPart, tool: ToolSpec, ask: Callable[[], None], *, force: bool = False
    ) -> tuple[Approval, bool]:
        """Return the decision on a call, and whether a person was asked; `ask` tells whoever shows the run.

        With `force` a person is asked whatever the policy is.
        """
        if not force and (self._confirm == "never" or tool in self._for_run or tool in self._for_agent):
            return Approval(approved=True), False
        answer = None if force else await self._answer(call, tool)
        if answer is None:
            if not self.attended:
                return Approval(approved=False, reason="there is nobody here who could be asked"), False
            return await self._asked(_Waiting(call, tool, alone=force), ask), True
        if not isinstance(answer, (bool, Approval)):  # pyright: ignore[reportUnnecessaryIsInstance] - "no" would be true
            raise TypeError(f"confirm= answers with True, False, None or an Approval, not {answer!r}")
        approval = answer if isinstance(answer, Approval) else Approval(approved=answer)
        self._remember(tool, approval)
        return approval, False

    def answer(self, call_id: str, approval: Approval) -> bool:
        """Decide on a call that waits; returns False when none of this id does."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            return False
        self._remember(waiting.tool, approval)
        self._settle(waiting, approval)
        if approval.approved and approval.remember is not None:
            same = [other for other in self._waiting.values() if other.tool == waiting.tool and not other.alone]
            for other in same:
                del self._waiting[other.call.id]
                self._settle(other, approval)
        return True

    async def _asked(self, waiting: _Waiting, ask: Callable[[], None]) -> Approval:
        self._waiting[waiting.call.id] = waiting
        try:
            ask()
            with anyio.move_on_after(self._seconds):
                await waiting.decided.wait()
        finally:
            self._waiting.pop(waiting.call.id, None)
        return waiting.approval or Approval(approved=False, reason=f"nobody answered within {self._seconds:g} s")

    async def _answer(self, call: ToolCallPart, tool: ToolSpec) -> Answer:
        confirm = self._confirm
        if not isinstance(confirm, str):
            answer = confirm(call, tool)
            return await answer if inspect.isawaitable(answer) else answer
        return None if confirm == "always" or is_destructive(tool) else True

    def _remember(self, tool: ToolSpec, approval: Approval) -> None:
        if approval.approved and approval.remember is not None:
            (self._for_run if approval.remember == "run" else self._for_agent).add(tool)

    def _settle(self, waiting: _Waiting, approval: Approval) -> None:
        waiting.approval = approval
        waiting.decided.set()


def checked_confirm(confirm: Confirm | None) -> Confirm:
    """Return a policy; None is `"never"`.

    Raises:
        ValueError: There is no policy of this name.
    """
    if isinstance(confirm, str) and confirm not in ("always", "never", "destructive"):
        raise ValueError(f'confirm= is "always", "never", "destructive" or a function, not {confirm!r}')
    return "never" if confirm is None else confirm


def definition_digest(tool: ToolSpec) -> str:
    """Return what stands for a tool as it is defined now: it changes with all that a person would look at."""
    shown = (
        (tool.server, tool.name, tool.original_name, tool.title, tool.description),
        (tool.input_schema, tool.output_schema, tool.annotations),
    )
    return hashlib.sha256(json.dumps(plain(shown), sort_keys=True).encode()).hexdigest()


def is_destructive(tool: ToolSpec) -> bool:
    """Whether a tool may destroy something; one that says nothing may (MCP specification, `ToolAnnotations`)."""
    return tool.hint("readOnlyHint") is not True and tool.hint("destructiveHint") is not False


def denied(tool: str, approval: Approval) -> ToolResult:
    """Return what the model reads of a call that was not allowed."""
    why = f": {approval.reason}" if approval.reason else ""
    return ToolResult.failure(ToolError(f"the call of tool {tool!r} was not allowed{why}", kind=ErrorKind.DENIED))
