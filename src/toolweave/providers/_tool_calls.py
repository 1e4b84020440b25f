"""Tool calls of exports: one at a time, or all calls of a model's turn at once. Independent of frameworks."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Sequence

from toolweave.errors import as_tool_error
from toolweave.tools import CallContext, Progress, ProgressCallback, ToolCall, ToolResult, Toolset, ToolSpec
from toolweave.tools.ambient import ambient_context

AT_ONCE = 8
"""Maximum calls of one turn that run on one server at the same time."""


async def run_call(toolset: Toolset, call: ToolCall, ctx: CallContext | None = None) -> ToolResult:
    """Run one call, in the context of `calling` by default; every fault is an error result, cancellation propagates."""
    try:
        return await toolset.call(call, ambient_context() if ctx is None else ctx)
    except Exception as exc:
        # Boundary: a third-party Toolset may raise where ours returns.
        return ToolResult.failure(as_tool_error(exc))


def reporting_to(report: ProgressCallback) -> CallContext:
    """Return the context of `calling`, whose progress is also reported to a framework."""
    outer = ambient_context()
    first = outer.on_progress
    if first is None:
        return outer.replace(on_progress=report)

    async def both(progress: Progress) -> None:
        for one in (first, report):
            outcome = one(progress)
            if inspect.isawaitable(outcome):
                await outcome

    return outer.replace(on_progress=both)


async def run_calls(
    toolset: Toolset, calls: Sequence[ToolCall | ToolResult], ctx: CallContext | None = None
) -> list[ToolResult]:
    """Run the calls of one turn and return their results in the order of the calls.

    They run at the same time, up to `AT_ONCE` per server; one of a tool that says it is `sequential` runs alone.

    Args:
        toolset: Runs them.
        calls: The calls; a result in place of a call stands for one that cannot be made.
        ctx: The context of each of them, that of `calling` without one.
    """
    import anyio  # 15 ms, and most who list tools have it loaded already

    results: dict[int, ToolResult] = {}
    waiting: list[tuple[int, ToolCall]] = []
    for place, one in enumerate(calls):
        if isinstance(one, ToolResult):
            results[place] = one
        else:
            waiting.append((place, one))
    # One for each server, so that a slow server does not delay the calls to others.
    limits: defaultdict[str | None, anyio.CapacityLimiter] = defaultdict(lambda: anyio.CapacityLimiter(AT_ONCE))

    async def run(place: int, call: ToolCall, server: str | None) -> None:
        async with limits[server]:
            results[place] = await run_call(toolset, call, ctx)

    for group in _groups(toolset, waiting):
        async with anyio.create_task_group() as tasks:
            for place, call, spec in group:
                tasks.start_soon(run, place, call, spec.server if spec is not None else None)
    return [results[place] for place in range(len(calls))]


_Placed = tuple[int, ToolCall, ToolSpec | None]


def _groups(toolset: Toolset, calls: Iterable[tuple[int, ToolCall]]) -> list[list[_Placed]]:
    """Return the calls in their order; those of a group may run together."""
    snapshot = toolset.snapshot()
    groups: list[list[_Placed]] = []
    joins = False
    for place, call in calls:
        spec = snapshot.find(call.name)
        alone = spec is not None and spec.sequential
        if joins and not alone:
            groups[-1].append((place, call, spec))
        else:
            groups.append([(place, call, spec)])
        joins = not alone
    return groups
