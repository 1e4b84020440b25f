"""`toolweave.Agent`: the agent that knows MCP servers by their configs.

Adds server configs to the agent of `toolweave.agent`, which holds the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import PurePath
from typing import Any, cast

from toolweave.agent._agent import BaseAgent
from toolweave.agent._agent_tools import AgentTools, Opener, ToolLike
from toolweave.agent._approval import Approval, WaitingCall
from toolweave.agent._durable import Durable, OnUnknown
from toolweave.agent._events import RunResult
from toolweave.agent._journal import Ask, Journal, Recorded, RunStart
from toolweave.agent._prompt import Sendable
from toolweave.agent._questions import Asked
from toolweave.agent._run import Run, current_run
from toolweave.compose._mcp_tools import McpTools
from toolweave.config import LoadedConfig, load_config
from toolweave.errors import printable
from toolweave.models._base import Finished, Model
from toolweave.models._messages import ToolCallPart
from toolweave.tools._sources import UnopenedTools
from toolweave.tools._spec import ToolSpec
from toolweave.tools._toolset import Toolset


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

    async def waiting(self, result: RunResult, calls: Sequence[WaitingCall]) -> None:
        """Record that the run waits, and end the tick."""
        try:
            await self._journal.waiting(result, calls)
        finally:
            await self._end_tick()

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

    async def answer(self, call: ToolCallPart, tool: ToolSpec) -> Approval | None:
        """Return a person's answer to a call."""
        return await self._journal.answer(call, tool)

    async def asked(self, step: int, call: ToolCallPart, tool: ToolSpec) -> Asked:
        """Return the questions of a call so far."""
        return await self._journal.asked(step, call, tool)

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Record the start of a call."""
        await self._journal.call_started(step, call, tool)

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        """Record a call's result."""
        await self._journal.call_finished(step, call, recorded)


_log = logging.getLogger("toolweave.compose")


class Agent(BaseAgent):
    """A model that works with tools until it has an answer; it connects to MCP servers by their configs.

    Toolsets and connections are opened for the first run and closed when the last run ends. `async with agent` keeps
    them open between runs and cancels the runs that are still active at its end. What was open already is never closed.

    Args:
        model: A `Model`, or a text that names one, such as `"anthropic:claude-sonnet-4-5"`.
        name: For people, and as the tool `agent_<name>`.
        system: The system prompt.
        description: Its description as a tool for other agents and clients.
        tools: Functions, tools, toolsets, `ClientTool`s and `ProviderTool`s, and servers, each whatever `connect_mcp`
            takes, whose tools keep their names; also what `connect_mcp` and `connect_mcp_servers`
            return, awaited or not. More by `agent.tools.add`.
        mcp_servers: Servers by name, which stands before the names of their tools, or a config file or its content. See
            `add_mcp_servers`.
        store: Keeps runs and conversations beyond this process; by default they are kept in memory.
        backend: A store with a queue: submitted and spawned runs are executed by workers (`work_runs`).
        on_unknown: Policy for calls of resumed runs with an unknown outcome; see `resume`.
        max_steps: Turns of the model in one run.
        confirm: Tool calls that need a person's approval (`run.approve`): `"always"`, `"never"`, `"destructive"` or a
            function of the call and the tool; never by default.
        on_transport_error: `"result"` gives the model an error result when a server fails, `"raise"` ends the run.
        on_error: `"skip"` continues without a toolset that cannot be opened (`agent.errors`), `"raise"` fails.
        output_type: Type of the answer: a pydantic model, dataclass, TypedDict, another type, or a JSON Schema.
        limits: Bounds of one run.
        settings: Sampling and request settings of the model.
        result_policy: Size limits for the tool results that the model reads.
        defer_tools: Tokens of tool definitions above which the model gets a search tool; None always sends all of them.
        history: A function, async or not, that gets the conversation's messages before each turn and returns those to
            send; the stored conversation stays whole. Without it, and after it, a conversation that is too long for
            the model is cut to its newest part (`trim_history`).
        questions: Let its MCP servers ask the user in the middle of a call (elicitation): an attended run gets an
            `InputRequested`, one that is attended later waits for `RunStatuses.answer`. Without it the servers learn
            that no user can be asked.

    Attributes:
        name: Its name.
        description: Its description as a tool.
        tools: Its tools, to add, remove and get.
        durable: Its persistence in a store, or None without a store.
        takes_questions: Whether its MCP servers may ask the user.

    Raises:
        ConfigError: The text names no model.
        DuplicateToolError: Two local tools have one name.
        SchemaError: A function or `output_type` cannot be described.
        ValueError: There is no `confirm` of this name, or there are both a store and a backend.
    """

    def add_mcp_servers(self, servers: Any) -> None:
        """Add MCP servers; they are connected when the agent is first used, all at the same time.

        Args:
            servers: A config file of any editor, its content, or servers by name, each of a type that `add_mcp` takes.
                The name prefixes the names of a server's tools, unless its config has a `tool_prefix`. The error of a
                wrong entry of a file is in `errors`; the other entries are used.

        Raises:
            ConfigError: The file cannot be read, or an entry that code gives cannot be right; with `on_error="raise"`
                also when one of a file cannot be.
            TypeError: A server is nothing that can be connected.
        """
        live: dict[str, Any] = {}
        if isinstance(servers, Mapping):
            named = cast("Mapping[str, Any]", servers)
            live = {name: server for name, server in named.items() if _is_live(server)}
            servers = {name: server for name, server in named.items() if name not in live}
        loaded = load_config(servers)
        for warning in loaded.warnings:
            _log.warning("%s", printable(str(warning)))
        if loaded.errors and (self._host.strict or not isinstance(servers, (str, PurePath, LoadedConfig))):
            raise next(iter(loaded.errors.values()))
        self._host.errors.update(loaded.errors)
        for name, server in {**loaded.servers, **live}.items():
            self._add_server(name, server)

    def mcp_toolset(self, server: Any, *, name: str | None = None) -> Toolset | Opener:
        """Return a server as a toolset, or a factory that opens one; a config becomes a component.

        Of what `connect_mcp`, `connect_mcp_servers` and `discover_mcp_tools` return, not awaited, it makes a connection
        of the agent's own, which it opens and closes.

        Raises:
            ConfigError: The config cannot be right.
            TypeError: It is no server.
        """
        if isinstance(server, UnopenedTools) and not isinstance(server, Toolset):
            return server.unopened()
        if hasattr(server, "__await__"):
            who = "a server" if name is None else f"server {name!r}"
            raise TypeError(f"{who}: give its config, or the connection that awaiting it returns")
        if _is_live(server):
            return super().mcp_toolset(server, name=name)
        made = McpTools(name or "", server)
        made.takes_questions = self.takes_questions
        return made

    def open_journal(
        self, run_id: str, *, durable: Durable | None = None, on_unknown: OnUnknown | None = None
    ) -> Journal:
        """Return the journal of a run, wrapped so that it calls the hooks of the run's components."""
        return JournalWithHooks(super().open_journal(run_id, durable=durable, on_unknown=on_unknown), self.tools)

    def _add_server(self, name: str, server: Any) -> None:
        """Add a server under its name, or under the literal prefix of its config."""
        found = self.mcp_toolset(server, name=name)
        literal = isinstance(found, McpTools) and found.literal_prefix is not None
        self.add_mcp(found, prefix=None if literal else name, name=name)


def _is_live(server: Any) -> bool:
    """Whether it is a toolset, or a factory of one, and no config."""
    return isinstance(server, Toolset) or callable(server) or hasattr(server, "__await__")


def generate(
    model: Model | str, messages: Sendable, *, tools: ToolLike | Iterable[ToolLike] = (), **options: Any
) -> Run:
    """Return a run of a model with tools, to be awaited.

    `options` are those of `Agent`: `result = await generate(model, "What is new?", mcp_servers="mcp.json")`.
    """
    return Agent(model, tools=tools, **options).send(messages)


stream = generate
"""Alias of `generate`, to be iterated: `async for event in stream(model, "...")`."""
