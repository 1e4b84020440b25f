"""Component hooks of a run: a journal that wraps the run's own and calls the hooks.

Records nothing itself; a journal is called at exactly the points of a run that have hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import cast

from toolweave.agent._agent_tools import AgentTools
from toolweave.agent._events import RunResult
from toolweave.agent._journal import Ask, Journal, Recorded, RunStart
from toolweave.agent._run import Run, current_run
from toolweave.compose._mcp_tools import McpTools
from toolweave.models._base import Finished
from toolweave.models._messages import ToolCallPart
from toolweave.tools._spec import ToolSpec

__all__ = ["JournalWithHooks"]


class JournalWithHooks:
    """A journal that calls the components' hooks for the start, the ticks and the end of a run."""

    def __init__(self, journal: Journal, tools: AgentTools) -> None:
        self._journal = journal
        self._tools = tools
        self._ticking = 0

    async def started(self, start: RunStart) -> RunStart:
        """Record the start, and call `on_start`."""
        begun = await self._journal.started(start)
        for component in self._components():
            await component.hooks.call("on_start", self._run)
        return begun

    async def turn(self, step: int) -> Finished | None:
        """End the previous tick, start this one, and return its recorded turn."""
        await self._end_tick()
        for component in self._components():
            await component.hooks.call("on_tick_start", self._run, step)
        self._ticking = step
        return await self._journal.turn(step)

    async def finished(self, result: RunResult) -> None:
        """Record the end, and call the hooks for it."""
        try:
            await self._journal.finished(result)
        finally:
            ticking, self._ticking = self._ticking, 0
            for component in self._components():
                if ticking:
                    await component.hooks.tell("on_tick_end", self._run, ticking)
                if result.error is None:
                    await component.hooks.tell("on_complete", result)
                else:
                    await component.hooks.tell("on_error", result.error)

    async def _end_tick(self) -> None:
        ticking, self._ticking = self._ticking, 0
        if ticking:
            for component in self._components():
                await component.hooks.call("on_tick_end", self._run, ticking)

    @property
    def _run(self) -> Run:
        return cast("Run", current_run())

    def _components(self) -> Sequence[McpTools]:
        extra = self._run.tools
        sources = (*self._tools.sources, *(() if extra is None else extra.sources))
        return [source.live for source in sources if isinstance(source.live, McpTools)]

    # as they are

    def held(self, cancel: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Return the context manager around the run."""
        return self._journal.held(cancel)

    async def turn_finished(self, step: int, turn: Finished) -> None:
        """Record a turn."""
        await self._journal.turn_finished(step, turn)

    async def allowed(self) -> Collection[str]:
        """Return the digests of the permanently allowed tools."""
        return await self._journal.allowed()

    async def allow(self, tool: ToolSpec, *, persistent: bool) -> None:
        """Record that a tool was allowed."""
        await self._journal.allow(tool, persistent=persistent)

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | Ask | None:
        """Return the record of a call."""
        return await self._journal.call(step, call, tool)

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Record the start of a call."""
        await self._journal.call_started(step, call, tool)

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        """Record a call's result."""
        await self._journal.call_finished(step, call, recorded)
