"""Approval hints of exports: which calls need a person's yes, for each framework to ask in its own way.

Asks no one; a framework does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from toolweave.tools import ToolCall, Toolset, ToolSpec
from toolweave.tools.spec import is_destructive

ConfirmCalls: TypeAlias = Literal["always", "never", "destructive"] | Callable[[ToolCall, ToolSpec], bool]
"""The calls that a person has to approve: all, none, those of tools that may be destructive by their annotations (which
is the default of a tool without hints), or those for which a function of call and tool returns True. Unless it is a
function, calls that the config of a server wants approved (`confirm`) are among them."""


class ApprovalHints:
    """The policy of one export, asked with the current definitions of its toolset.

    Args:
        confirm: The policy.
        toolset: The toolset that is exported.

    Raises:
        ValueError: No policy has this name.
    """

    __slots__ = ("_confirm", "_toolset")

    def __init__(self, confirm: ConfirmCalls, toolset: Toolset) -> None:
        if not callable(confirm) and confirm not in ("always", "never", "destructive"):
            raise ValueError(f'confirm= is "always", "never", "destructive" or a function, not {confirm!r}')
        self._confirm: ConfirmCalls = confirm
        self._toolset = toolset

    @property
    def varies(self) -> bool:
        """Whether the answer may differ from call to call, or with a change of the definition."""
        if callable(self._confirm) or self._confirm == "destructive":
            return True
        if self._confirm != "never":
            return False
        return any(spec.needs_approval for spec in self._toolset.snapshot())

    def of_tool(self, spec: ToolSpec) -> bool:
        """Whether every call of a tool needs a yes; False, too, where it depends on the call."""
        if callable(self._confirm):
            return False
        if self._confirm == "always" or spec.needs_approval:
            return True
        return self._confirm == "destructive" and is_destructive(spec)

    def of_call(self, call: ToolCall) -> bool:
        """Whether a call needs a yes now; one of a tool that is gone does not, as it reaches nothing."""
        spec = self._toolset.snapshot().find(call.name)
        if spec is None:
            return False
        if callable(self._confirm):
            return self._confirm(call, spec)
        return self.of_tool(spec)
