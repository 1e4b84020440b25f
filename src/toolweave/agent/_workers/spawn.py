"""Tools with which a run starts and controls others: spawn, status, output, cancel, await.

A task is a run of an agent in a store, with the run that spawned it as its parent; it outlives that run, and is found
again after a crash. Knows an agent by the method that starts its runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol

import anyio

from toolweave._json_types import Json, JsonObject
from toolweave.agent._journal import OnUnknown, RunStart
from toolweave.agent._loop.agent_tools import AgentTools, ToolLike
from toolweave.agent._run import Run, current_run
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.records import LEASES, RunRecord, children_of, create, read_record, read_start, write_start
from toolweave.agent._stored.status import RunStatuses
from toolweave.agent._workers.resume import Resumable, resume
from toolweave.errors import ErrorKind, ToolError
from toolweave.jobs._backoff import Backoff
from toolweave.jobs._lease import is_held
from toolweave.models import UserMessage
from toolweave.state import MemoryStore, Store
from toolweave.tools import BaseToolset, CallContext, Tool, ToolCall, ToolResult, ToolSnapshot, tool
from toolweave.tools.names import unknown_tool

_AWAIT_SECONDS = 600.0
_WORKER_WAIT_SECONDS = 1.0
"""Seconds that a task waits for a worker before the process that awaits it executes it."""
_NAMES = uuid.UUID("5b1a2f39-8f5d-4a8e-9a3e-6d5d3b7c9f10")
_call_id: ContextVar[str | None] = ContextVar("toolweave-spawn-call", default=None)


class Spawning(Resumable, Protocol):
    """An agent whose runs are spawned."""

    @property
    def tools(self) -> AgentTools:
        """Its tools."""
        ...


def spawn_tools(
    agent: Spawning, store: Store | None = None, *, depth: int = 3, max_tasks: int = 10, name: str = "spawn"
) -> SpawnTools:
    """Return tools with which a run gives tasks to an agent and controls them.

    Put them among the tools of another agent, of the same one, or of one run: `agent.send(..., tools=spawn_tools(a))`.
    A task's own run has them too as long as it is not `depth` deep. A run sees its own tasks, and those of earlier
    runs of its session; no others. With a backend, workers execute the tasks; a run that awaits them executes those
    that no worker takes, one after another, so that workers whose runs all wait do not deadlock.

    Args:
        agent: The agent that executes the tasks.
        store: Their store; by default the agent's own, or memory.
        depth: Maximum nesting depth of tasks.
        max_tasks: Maximum number of unfinished tasks of one run.
        name: Prefix of the tools' names: `spawn`, `spawn_status`, `spawn_output`, `spawn_cancel`, `spawn_await`.
    """
    if store is not None:
        durable = Durable(store, agent=agent.name)
    else:
        durable = agent.durable or Durable(MemoryStore(), agent=agent.name)
    return SpawnTools(agent, durable, depth=depth, max_tasks=max_tasks, name=name)


def tools_of_task(agent: Spawning, durable: Durable, record: RunRecord, payload: JsonObject) -> ToolLike | None:
    """Return these tools for a task that a worker executes, if it was spawned with them and may itself spawn."""
    settings: JsonObject | None = payload.get("spawn")
    if settings is None:
        return None
    return SpawnTools(agent, durable, **settings).for_task(record)


class SpawnTools(BaseToolset):
    """A toolset; see `spawn_tools`."""

    def __init__(self, agent: Spawning, durable: Durable, *, depth: int, max_tasks: int, name: str) -> None:
        self._agent = agent
        self._durable = durable
        self._store = durable.store
        self._statuses = RunStatuses(durable.store, clock=durable.clock)
        self._depth = depth
        self._max_tasks = max_tasks
        self._name = name
        self._runs: dict[str, Run] = {}  # of this process
        self._tools: dict[str, Tool] = {one.name: one for one in self._made()}
        self._offered = ToolSnapshot((one.spec for one in self._tools.values()), version=1)
        self._nothing = ToolSnapshot(version=1)

    def snapshot(self) -> ToolSnapshot:
        """Return the tools, or none in a run that is too deep to spawn."""
        run = current_run()
        if run is not None and run.depth >= self._depth:
            return self._nothing
        return self._offered

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one of the tools."""
        found = self._tools.get(call.name)
        if found is None:
            return ToolResult.failure(unknown_tool(call.name, self._tools), kind=ErrorKind.NOT_FOUND)
        # In the context, because the functions behind the tools get arguments and no call.
        token = _call_id.set(call.id)
        try:
            return await found.execute(call.arguments, ctx)
        finally:
            _call_id.reset(token)

    async def recover(self, *, on_unknown: OnUnknown | None = None) -> Sequence[Run]:
        """Resume all interrupted tasks of the agent, such as after a crash; return their runs.

        With a backend they are submitted again, and no run is in this process.

        Args:
            on_unknown: Policy for their calls with an unknown outcome; see `Agent.resume`.
        """
        runs: list[Run] = []
        for info in await self._statuses.interrupted(agent=self._agent.name):
            # Not a task: other interrupted runs are for their own callers to resume.
            if info.record.group is None:
                continue
            run = await self._start(info.record, on_unknown)
            if run is not None:
                runs.append(run)
        return runs

    # the tools

    async def _spawn(self, prompt: str) -> Json:
        """Give a task to an agent that works on it on its own, in the background, while you continue.

        Spawn several to have them done at the same time. It knows nothing but what you write.

        Args:
            prompt: The task, with everything that has to be known for it.
        """
        above = current_run()
        if above is not None and above.depth >= self._depth:
            raise ToolError(f"tasks may be nested {self._depth} deep; do this one yourself")
        run_id = _task_id(above)
        record = await read_record(self._store, run_id)
        # A call that is repeated after a crash finds its task here, and does not count as another one.
        if record is None:
            await self._check_room(above)
            record = await self._created(run_id, prompt, above)
        await self._start(record)
        return {"id": run_id, "status": "running" if self._durable.queue is None else "pending"}

    async def _status(self, id: str | None = None) -> Json:  # noqa: A002 - the parameter's name for a model
        """Say where your tasks are: pending, running, interrupted, completed, stopped, failed or cancelled.

        Args:
            id: The task; all of yours by default.
        """
        if id is not None:
            records = [await self._mine(id)]
        else:
            records = await self._all()
        return {"tasks": [await self._described(record) for record in records]}

    async def _output(self, id: str) -> Json:  # noqa: A002 - the parameter's name for a model
        """Return the result of a task that has ended.

        Args:
            id: The task.
        """
        record = await self._mine(id)
        if not record.done:
            raise ToolError(f"task {id!r} is still at work; wait for it with {self._name}_await", retryable=True)
        _count(record)
        return _outcome(record)

    async def _cancel(self, id: str) -> Json:  # noqa: A002 - the parameter's name for a model
        """Cancel a task and all that it spawned.

        Args:
            id: The task.
        """
        record = await self._mine(id)
        run = self._runs.get(id)
        if run is not None and not run.done:
            run.cancel()
            await _ended(run)
        cancelled = await self._statuses.cancel(id)
        if run is not None and run.status == "cancelled":
            cancelled = True
        return {"id": id, "cancelled": cancelled and not record.done}

    async def _await(self, ids: list[str] | None = None, seconds: float = _AWAIT_SECONDS) -> Json:
        """Wait until tasks have ended and return their results.

        Args:
            ids: The tasks; all of yours by default.
            seconds: How long to wait at most; tasks that have not ended by then continue, and you can wait again.
        """
        if ids is None:
            records = await self._all()
        else:
            records = [await self._mine(run_id) for run_id in ids]
        with anyio.move_on_after(seconds):
            # Workers whose runs all wait for tasks would deadlock if nobody executed those: each waiting run executes
            # one of its tasks at a time.
            helping = anyio.Lock()
            async with anyio.create_task_group() as tasks:
                for record in records:
                    tasks.start_soon(self._wait, record, helping)
        return {"tasks": [await self._outcome_or_status(record) for record in records]}

    async def _outcome_or_status(self, record: RunRecord) -> Json:
        record = await read_record(self._store, record.run_id) or record
        _count(record)
        if record.done:
            return _outcome(record)
        return await self._described(record)

    def _made(self) -> Sequence[Tool]:
        reading = {"readOnlyHint": True}
        ending = {"idempotentHint": True, "destructiveHint": False}
        return (
            tool(self._spawn, name=self._name, annotations=ending),
            tool(self._status, name=f"{self._name}_status", annotations=reading),
            tool(self._output, name=f"{self._name}_output", annotations=reading),
            tool(self._cancel, name=f"{self._name}_cancel", annotations=ending),
            tool(self._await, name=f"{self._name}_await", annotations=reading),
        )

    # what stands behind them

    async def _created(self, run_id: str, prompt: str, above: Run | None) -> RunRecord:
        start = RunStart(
            run_id=run_id, agent=self._agent.name, messages=(UserMessage.of(prompt),), sent=1, attended=False
        )
        if above is not None:
            # The person who attends a run can be asked in its own process only.
            attended = above.attended is True and self._durable.queue is None
            policy = above.approvals.strictest
            start = replace(start, parent_id=above.id, depth=above.depth + 1, attended=attended, confirm_above=policy)
        now = self._durable.clock()
        ttl = self._durable.keep_seconds
        record = await create(self._store, start, status="pending", now=now, ttl=ttl, group=_group(above, self._agent))
        if record is None:
            raise ToolError(f"there is a run {run_id!r} already")
        return record

    async def _check_room(self, above: Run | None) -> None:
        unfinished = [record for record in await self._below(above) if not record.done]
        if len(unfinished) >= self._max_tasks:
            raise ToolError(
                f"{len(unfinished)} tasks are at work, which is as many as there may be; "
                f"wait for some with {self._name}_await or cancel some",
                retryable=True,
            )

    async def _below(self, above: Run | None) -> Sequence[RunRecord]:
        if above is None:
            return await children_of(self._store, _group(None, self._agent))
        return await children_of(self._store, above.id)

    async def _all(self) -> Sequence[RunRecord]:
        """Return the tasks that the run may see."""
        found = await children_of(self._store, _group(current_run(), self._agent))
        return [record for record in found if record.agent == self._agent.name]

    async def _mine(self, run_id: str) -> RunRecord:
        # Looked up among the run's own tasks, and not in the store by its id: a model may write any id, also that of
        # another user's run.
        for record in await self._all():
            if record.run_id == run_id:
                return record
        raise ToolError(f"you have no task {run_id!r}; {self._name}_status lists your tasks", kind=ErrorKind.NOT_FOUND)

    async def _start(self, record: RunRecord, on_unknown: OnUnknown | None = None) -> Run | None:
        """Start a task: submit it if there is a queue, else start a run in this process and return it."""
        jobs = self._durable.jobs
        if jobs is None:
            return await self._living(record, on_unknown)
        if record.done:
            return None
        settings = {"depth": self._depth, "max_tasks": self._max_tasks, "name": self._name}
        if on_unknown is not None:
            # Its job may wait already, and the worker reads its start.
            start = replace(await read_start(self._store, record), on_unknown=on_unknown)
            await write_start(self._store, start, ttl=self._durable.keep_seconds)
        await jobs.submit(record.run_id, {"spawn": settings})
        return None

    async def _living(self, record: RunRecord, on_unknown: OnUnknown | None = None) -> Run | None:
        """Return the task's run in this process, started again if no process executes it; None if another does."""
        run = self._here(record)
        if run is not None or record.done:
            return run
        if await is_held(self._store, LEASES, record.run_id):
            return None
        made = await resume(
            self._agent, record.run_id, tools=self.for_task(record), durable=self._durable, on_unknown=on_unknown
        )
        # Two may wait for it at the same time; from here on nothing is awaited.
        run = self._here(record)
        if run is None:
            run = made.start()
            # Removed here, since no task waits for the end of every run; without it, a long process would keep all of
            # them.
            for run_id, known in tuple(self._runs.items()):
                if known.done:
                    del self._runs[run_id]
            self._runs[record.run_id] = run
        return run

    def _here(self, record: RunRecord) -> Run | None:
        run = self._runs.get(record.run_id)
        if run is None or run.done:
            return None
        return run

    def for_task(self, record: RunRecord) -> ToolLike | None:
        """Return these tools for a task's own run, if it may spawn and does not have them already."""
        deep = record.depth >= self._depth
        if deep or self._agent.tools.snapshot().find(self._name) is not None:
            return None
        return self

    async def _wait(self, record: RunRecord | None, helping: anyio.Lock) -> None:
        waited = 0.0
        pause = Backoff(self._durable.sleep)
        while record is not None and not record.done:
            # One task after another, so that workers whose runs all wait do not execute everything here.
            may_help = waited >= _WORKER_WAIT_SECONDS and not helping.locked()
            if self._durable.queue is None or may_help:
                run = await self._help(record, helping)
                if run is not None and not await is_held(self._store, LEASES, record.run_id):
                    # Also when it could not be recorded; a worker may have been faster.
                    return
            # It runs in another process.
            waited += await pause.wait()
            record = await read_record(self._store, record.run_id)

    async def _help(self, record: RunRecord, helping: anyio.Lock) -> Run | None:
        """Execute a task that no process executes, and wait for its run; return None if another process has it."""
        turn = nullcontext() if self._durable.queue is None else helping
        async with turn:
            run = await self._living(record)
            if run is not None:
                await _ended(run)
        return run

    async def _described(self, record: RunRecord) -> Json:
        info = await self._statuses.info(record)
        status = info.status
        if self._here(record) is not None and not record.done:
            status = "running"
        return {"id": record.run_id, "status": status, "prompt": record.prompt}


async def _ended(run: Run) -> None:
    """Wait for a run without owning it: cancelling the wait does not cancel the run."""
    async for _ in run:
        pass


def _count(record: RunRecord) -> None:
    """Add the usage of an ended task to its parent run, wherever the task executed."""
    above = current_run()
    if above is None or not record.done:
        return
    if record.parent_id == above.id:
        above.count(record.run_id, record.usage)


def _group(run: Run | None, agent: Spawning) -> str:
    """Return the group of tasks that belong together: those of a session, a run, or an agent."""
    if run is None:
        return f"agent:{agent.name}"
    if run.session is None:
        return run.id
    return f"session:{run.agent}/{run.session}"


def _outcome(record: RunRecord) -> Json:
    out: Json = {"id": record.run_id, "status": record.status}
    if record.status == "completed":
        out["output"] = record.text if record.output is None else record.output
        return out
    out["error"] = record.error or f"it ended before it was done: {record.stop_reason}"
    if record.text:
        out["output"] = record.text
    return out


def _task_id(above: Run | None) -> str:
    """Return the id of a new task: the same call, repeated after a crash, is the same task."""
    call_id = _call_id.get()
    if above is None or call_id is None:
        return uuid.uuid4().hex
    return uuid.uuid5(_NAMES, f"{above.id}/{call_id}").hex
