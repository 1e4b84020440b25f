"""What a component tells whoever wrote it: that it came and went, and what the runs that use it do.

Calls hooks; knows neither servers nor how a run goes on.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

if TYPE_CHECKING:
    from toolweave.agent.events import RunResult
    from toolweave.agent.run import Run
    from toolweave.compose.mcp_tools import McpTools

__all__ = ["Hooks", "McpHooks"]

_log = logging.getLogger("toolweave.compose")


class McpHooks(TypedDict, total=False):
    """Functions, async or not, that a component calls and waits for (requirement R71).

    What `on_mount`, `on_start` and the ticks' hooks raise ends what they are called for: the mount, or the run. What
    the others raise is logged.
    """

    on_mount: Callable[[McpTools], object]
    """Its tools are there."""
    on_unmount: Callable[[McpTools], object]
    """Its tools are about to go; it has 10 s."""
    on_start: Callable[[Run], object]
    """A run that has its tools begins."""
    on_tick_start: Callable[[Run, int], object]
    """The model is about to be asked; steps count from 1."""
    on_tick_end: Callable[[Run, int], object]
    """The model's turn is over and its calls are answered."""
    on_complete: Callable[[RunResult], object]
    """Such a run has ended, and not by an exception."""
    on_error: Callable[[Exception], object]
    """It could not be mounted, or such a run failed. For a mount, a true answer goes on without the tools (C26)."""


class Hooks:
    """The hooks of one component.

    Raises:
        TypeError: There is no hook of this name, or it cannot be called.
    """

    def __init__(self, hooks: McpHooks) -> None:
        self._hooks = cast("Mapping[str, Callable[..., Any]]", hooks)
        for name, hook in self._hooks.items():
            if name not in McpHooks.__annotations__:
                known = ", ".join(sorted(McpHooks.__annotations__))
                raise TypeError(f"a component has no argument {name!r}; its hooks are {known}")
            if not callable(hook):
                raise TypeError(f"{name}= takes a function, not {type(hook).__name__}")

    async def call(self, name: str, *about: Any) -> Any:
        """Return what a hook answers, None without one."""
        hook = self._hooks.get(name)
        answer = None if hook is None else hook(*about)
        return await answer if inspect.isawaitable(answer) else answer

    async def tell(self, name: str, *about: Any) -> Any:
        """The same for what is over anyway: what the hook raises is logged."""
        try:
            return await self.call(name, *about)
        except Exception:  # boundary: user code
            _log.exception("%s raised", name)
            return None
