"""The hooks that the components among an agent's tools have for its runs, called by the run loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from toolweave.agent import AgentTools, Run, RunResult, current_run
from toolweave.agent._run_hooks import RunHooks
from toolweave.compose._mcp_tools import McpTools


class ComponentHooks(RunHooks):
    """Calls the hooks of the components for the start, the ticks and the end of one run.

    Args:
        tools: The tools of the agent; the run adds its own.
    """

    def __init__(self, tools: AgentTools) -> None:
        self._tools = tools
        self._tick = 0

    async def started(self) -> None:
        """Call `on_start`."""
        for component in self._components():
            await component.hooks.call("on_start", self._run)

    async def turn_starting(self, step: int) -> None:
        """End the previous tick and start this one."""
        await self.waiting()
        for component in self._components():
            await component.hooks.call("on_tick_start", self._run, step)
        self._tick = step

    async def waiting(self) -> None:
        """End the tick."""
        # Cleared before the hooks are called: one that raises ends the run, and `finished` must not end the same tick
        # again.
        tick = self._tick
        self._tick = 0
        if tick:
            for component in self._components():
                await component.hooks.call("on_tick_end", self._run, tick)

    async def finished(self, result: RunResult) -> None:
        """End the tick, and call `on_complete` or `on_error`; exceptions of these hooks are logged."""
        tick = self._tick
        self._tick = 0
        for component in self._components():
            if tick:
                await component.hooks.notify("on_tick_end", self._run, tick)
            if result.error is None:
                await component.hooks.notify("on_complete", result)
            else:
                await component.hooks.notify("on_error", result.error)

    @property
    def _run(self) -> Run:
        return cast("Run", current_run())

    def _components(self) -> Sequence[McpTools]:
        extra = self._run.tools
        # Read for each call: an agent's tools may be added and removed while a run is under way.
        sources = (*self._tools.sources, *(() if extra is None else extra.sources))
        return [source.live for source in sources if isinstance(source.live, McpTools)]
