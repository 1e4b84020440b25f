"""Agents as tools, and batch calls of one tool.

Knows an agent by its `send`; holds the guards against nesting depth and cycles.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Protocol, TypeAlias

import anyio

from toolweave._json_types import JsonObject, not_none, without_members
from toolweave.agent import _events as events
from toolweave.agent._idempotency import part_key
from toolweave.agent._run import Run, current_run, runtime_of
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.records import LEASES
from toolweave.errors import ModelError, ToolError
from toolweave.jobs._lease import is_held
from toolweave.protocol.content import ContentBlock, TextContent
from toolweave.tools import IDEMPOTENCY_KEY, RESUMABLE, CallContext, Tool, ToolResult
from toolweave.tools import tool as function_tool

_POLL_SECONDS = 1.0
KeepConversation: TypeAlias = bool | Callable[[CallContext], str | None]
"""Whether a tool's calls continue one conversation: for each client, or by the session that a function names."""


class Sender(Protocol):
    """An agent, as its tool sees it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def description(self) -> str | None:
        """Its description as a tool."""
        ...

    @property
    def durable(self) -> Durable | None:
        """Its persistence in a store, or None."""
        ...

    @property
    def max_depth(self) -> int:
        """Maximum nesting depth of agents at which this one may be called."""
        ...

    def send(self, sent: str, /, *, session: str | None, ctx: CallContext, attended: bool, key: str | None) -> Run:
        """Return a run on a message."""
        ...

    def runs(self, run: Run, /) -> bool:
        """Whether a run is one of this agent."""
        ...


def agent_tool(
    agent: Sender,
    *,
    name: str | None = None,
    description: str | None = None,
    keep_conversation: KeepConversation = False,
) -> Tool:
    """Return the tool that runs an agent on one `message`; see `Agent.as_tool`."""

    async def send(message: str, ctx: CallContext) -> ToolResult:
        above = current_run()
        _guard(agent, above)
        attended = above is not None and above.attended is True
        session = _session(agent, keep_conversation, above, ctx)
        key = None if agent.durable is None else _key(ctx)
        run = agent.send(message, session=session, ctx=ctx, attended=attended, key=key)
        if agent.durable is not None and key is not None:
            # An earlier delivery of this call may still hold its run.
            await _free(agent.durable, run.id)
        if ctx.on_progress is None:
            return await _answer(run, agent.name)
        return await _watched(run, agent.name, ctx)

    about = description or agent.description or f"Ask the agent {agent.name!r}; it answers one message at a time."
    schema = {
        "type": "object",
        "title": name or f"agent_{agent.name}",
        "properties": {
            "message": {"type": "string", "description": "What the agent is to do, with all it has to know."}
        },
        "required": ["message"],
        "additionalProperties": False,
    }

    async def run_agent(arguments: JsonObject, ctx: CallContext) -> ToolResult:
        return await send(arguments["message"], ctx)

    return function_tool(
        run_agent,
        name=name or f"agent_{agent.name}",
        description=about,
        input_schema=schema,
        meta=None if agent.durable is None else {RESUMABLE: True},
    )


def _guard(agent: Sender, above: Run | None) -> None:
    depth = 0
    run = above
    while run is not None:
        if agent.runs(run):
            raise ToolError(f"agent {agent.name!r} is already at work further up and cannot be asked by itself")
        depth = depth + 1
        run = run.parent
    if above is not None and above.depth + 1 > agent.max_depth:
        raise ToolError(f"agents may call agents {agent.max_depth} deep; do this without agent {agent.name!r}")


def _key(ctx: CallContext) -> str | None:
    key = ctx.meta.get(IDEMPOTENCY_KEY)
    if isinstance(key, str):
        return key
    return None


async def _free(durable: Durable, run_id: str) -> None:
    """Wait for the lease of a run, which an earlier delivery of this call may still hold, or have just died with."""
    while await is_held(durable.store, LEASES, run_id):
        await durable.sleep(_POLL_SECONDS)


def _session(agent: Sender, keep: KeepConversation, above: Run | None, ctx: CallContext) -> str | None:
    if not isinstance(keep, bool):
        return keep(ctx)
    if not keep:
        return None
    if above is not None:
        root = above
        while root.parent is not None:
            root = root.parent
        if root.session is not None:
            return f"session:{root.session}"
        return f"run:{root.id}"
    if ctx.caller is None:
        return None
    client = ctx.caller.client_key
    if client is None:
        # Clients that cannot be distinguished must not share a conversation.
        raise ToolError(
            f"agent {agent.name!r} keeps a conversation for each client, and this server cannot distinguish its "
            "clients: without sessions (2026-07-28) only authorized callers are known. Give the server auth=, or name "
            "the conversation: as_tool(keep_conversation=lambda ctx: ...)"
        )
    return f"client:{client}"


async def _answer(run: Run, name: str) -> ToolResult:
    """Return the result of an agent's run as a tool result; all but an answer is an error result."""
    try:
        result = await run.outcome(gone="its caller was cancelled")
    except ModelError as exc:
        raise ToolError(f"agent {name!r} failed: {exc}", retryable=exc.retryable) from exc
    if result.status != "completed" or result.pending:
        text = f"agent {name!r} ended before it was done ({result.stop_reason})"
        if result.text:
            text += f"; its last text: {result.text}"
        raise ToolError(text)
    return ToolResult.of(result.text if result.output is None else result.output)


async def _watched(run: Run, name: str, ctx: CallContext) -> ToolResult:
    """Return the answer, and report the run's progress to the caller until then."""
    found: list[ToolResult | ToolError] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_reported, run, ctx)
        try:
            found.append(await _answer(run, name))
        except ToolError as exc:
            # Raised below: a task group would wrap it.
            found.append(exc)
    if isinstance(found[0], ToolError):
        raise found[0]
    return found[0]


async def _reported(run: Run, ctx: CallContext) -> None:
    done = 0
    async for event in run:
        if isinstance(event, (events.ToolStarted, events.StepStarted)):
            done += 1
            if isinstance(event, events.ToolStarted):
                message = f"calls {event.tool.name}"
            else:
                message = f"turn {event.step}"
            await ctx.progress(done, message=message)


def parallelize(tool: Tool, *, name: str | None = None, limit: int = 8, max_calls: int = 100) -> Tool:
    """Return a tool that makes many calls of another at the same time, for models that make one call a turn.

    It takes `calls`, a list of arguments of the other tool, and returns their results in order, each under its
    number. The result is an error only when all of them are.

    Args:
        tool: The tool that is called.
        name: Name of the new tool; `parallel_<name>` by default.
        limit: Maximum number of concurrent calls; one for a `sequential` tool. Calls on a server also count for
            `Limits.parallel_per_server` of the agent that makes them.
        max_calls: Maximum number of calls in one batch.
    """
    schema = {
        "type": "object",
        "title": name or f"parallel_{tool.name}",
        "properties": {
            "calls": {
                "type": "array",
                "items": without_members(tool.input_schema, "$schema", "$defs"),
                "minItems": 1,
                "maxItems": max_calls,
                "description": f"The arguments of each call of {tool.name}.",
            }
        },
        "required": ["calls"],
        "additionalProperties": False,
    }
    if "$defs" in tool.input_schema:
        schema["$defs"] = tool.input_schema["$defs"]

    at_once = 1 if tool.spec.sequential else limit

    async def run_all(arguments: JsonObject, ctx: CallContext) -> ToolResult:
        calls: list[JsonObject] = arguments["calls"]
        results: list[ToolResult | None] = [None] * len(calls)
        slots = anyio.Semaphore(at_once)
        above = current_run()
        key = _key(ctx)

        async def run(number: int) -> None:
            if key is None:
                own = ctx
            else:
                own = ctx.replace(meta={**ctx.meta, IDEMPOTENCY_KEY: part_key(key, number)})
            slot = nullcontext() if above is None else runtime_of(above).limiter.slot(tool.spec)
            async with slots, slot:
                results[number] = await tool.execute(calls[number], own)

        async with anyio.create_task_group() as tasks:
            for number in range(len(calls)):
                tasks.start_soon(run, number)
        return _joined(not_none(results))

    about = f"Makes many calls of {tool.name} at the same time. {tool.description}".strip()
    return function_tool(
        run_all,
        name=name or f"parallel_{tool.name}",
        description=about,
        input_schema=schema,
        annotations=tool.annotations,
        meta={RESUMABLE: True} if tool.spec.meta.get(RESUMABLE) is True else None,
    )


def _joined(results: list[ToolResult]) -> ToolResult:
    blocks: list[ContentBlock] = []
    for number, result in enumerate(results, 1):
        blocks.append(TextContent(text=f"[{number}]{' error:' if result.is_error else ''}"))
        blocks += result.content or (TextContent(text=result.text),)
    if not all(result.is_error for result in results):
        return ToolResult(content=tuple(blocks))
    error = ToolError(f"all {len(results)} calls failed; the first: {results[0].require_error().message}")
    return ToolResult(content=tuple(blocks), is_error=True, error=error)
