"""`Agent`: a model, tools, MCP servers and run settings under one name, and the methods that start runs.

Wires the run loop of `toolweave.agent` to servers, which are components made from their configs; holds no loop logic.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from types import TracebackType
from typing import Any, Generic, Literal, Self, Unpack, cast, overload

from toolweave._json_types import without_members
from toolweave.agent import (
    AgentTools,
    Confirm,
    Durable,
    History,
    Journal,
    Limits,
    OnUnknown,
    Prompt,
    Run,
    RunResult,
    StoreJournal,
    SubmittedRun,
    WaitingPolicy,
    current_run,
)
from toolweave.agent._events import OutT_co
from toolweave.agent._idempotency import run_id_of
from toolweave.agent._lifespan import AgentLifespan, LifespanPeriod
from toolweave.agent._loop.agent_tools import Opener, ToolLike
from toolweave.agent._loop.runtime import AgentRuntime, PerServerLimiter, RunRequest
from toolweave.agent._loop.step import RunRules
from toolweave.agent._output import Output
from toolweave.agent._prompt import Sendable, messages_of
from toolweave.agent._run import runtime_of
from toolweave.agent._sessions import MemoryConversations, SessionStates
from toolweave.agent._stored.durable import make_durable
from toolweave.agent._stored.session_queue import hold_session
from toolweave.agent._tool import KeepConversation, agent_tool
from toolweave.agent._workers.resume import resume
from toolweave.agent._workers.submit import submit_message
from toolweave.agent.approval import Attended, Grants, checked_confirm
from toolweave.compose._agent_options import AgentOptions, SendOptions, check_options, model_of
from toolweave.compose._component_hooks import ComponentHooks
from toolweave.compose._mcp_tools import McpTools
from toolweave.config import LoadedConfig, load_config
from toolweave.errors import printable
from toolweave.jobs import Retention, WorkBackend
from toolweave.models import Message, Model, ModelSettings
from toolweave.state import Store
from toolweave.tools import CallContext, ResultPolicy, Tool, Toolset
from toolweave.tools._call import NO_CONTEXT
from toolweave.tools._portal import PORTAL
from toolweave.tools.sources import UnopenedTools

_log = logging.getLogger("toolweave.compose")


class Agent(Generic[OutT_co]):
    """A model that works with tools until it has an answer; it connects to MCP servers by their configs.

    Toolsets and connections are opened for the first run and closed when the last run ends. `async with agent` keeps
    them open between runs and cancels the runs that are still active at its end. What was open already is never closed.

    Args:
        model: A `Model`, or a text that names one, such as `"anthropic:claude-sonnet-4-5"`.
        name: The name that users see, and that of the tool `agent_<name>`.
        system: The system prompt.
        description: Its description as a tool for other agents and clients.
        tools: Functions, tools, toolsets, `ClientTool`s and `ProviderTool`s, and servers, each whatever `connect_mcp`
            takes, whose tools keep their names; also what `connect_mcp` and `connect_mcp_servers`
            return, awaited or not. More by `agent.tools.add`.
        mcp_servers: Servers by name, which stands before the names of their tools, or a config file or its content. See
            `add_mcp_servers`.
        store: Keeps runs and conversations beyond this process; by default they are kept in memory.
        backend: A store with a queue: submitted and spawned runs are executed by workers (`work_runs`).
        retention: How long its runs and conversations are kept in the store; by default as the backend has it.
        waiting: How long its runs wait for a person without a process, and what happens then.
        on_unknown: Policy for calls of resumed runs with an unknown outcome; see `resume`.
        max_steps: Turns of the model in one run.
        confirm: Tool calls that need a person's approval (`run.approve`): `"always"`, `"never"`, `"destructive"` or a
            function of the call and the tool; never by default. Where the config of a server wants approvals
            (`confirm`), only a function can give them in place of a person.
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
        ConfigError: The text does not name a model.
        DuplicateToolError: Two local tools have one name.
        SchemaError: A function or `output_type` cannot be described.
        TypeError: An option is of another type.
        ValueError: An option has another value than its few, or there are both a store and a backend.
    """

    @overload
    def __init__(
        self: Agent[None], model: Model | str, *, output_type: None = None, **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(self, model: Model | str, *, output_type: type[OutT_co], **options: Unpack[AgentOptions]) -> None: ...
    @overload
    def __init__(  # a JSON Schema, or a type that is not a class
        self: Agent[Any], model: Model | str, *, output_type: Any, **options: Unpack[AgentOptions]
    ) -> None: ...
    def __init__(  # noqa: PLR0913 - keyword-only, each with a default
        self,
        model: Model | str,
        *,
        name: str = "agent",
        system: str | None = None,
        description: str | None = None,
        tools: ToolLike | Iterable[ToolLike] = (),
        mcp_servers: Any = None,  # a mapping, a config or the path of one
        store: Store | None = None,
        backend: WorkBackend | None = None,
        retention: Retention | None = None,
        waiting: WaitingPolicy | None = None,
        on_unknown: OnUnknown = "error",
        max_steps: int = 20,
        confirm: Confirm | None = None,
        on_transport_error: Literal["result", "raise"] = "result",
        on_error: Literal["skip", "raise"] = "skip",
        output_type: Any = None,  # any type, or a JSON Schema
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
        result_policy: ResultPolicy | None = None,
        defer_tools: int | None = 10_000,
        history: History | None = None,
        questions: bool = False,
    ) -> None:
        check_options(
            AgentOptions(name=name, system=system, max_steps=max_steps, defer_tools=defer_tools, limits=limits),
            AgentOptions(backend=backend, retention=retention, waiting=waiting),
            AgentOptions(settings=settings, result_policy=result_policy, history=history, store=store),
            AgentOptions(on_unknown=on_unknown, on_transport_error=on_transport_error, on_error=on_error),
        )
        self.name = name
        self.description = description
        self.takes_questions = questions
        self.tools: AgentTools = AgentTools(tools, server=self.mcp_toolset)
        self._make_durable = partial(make_durable, name, on_unknown=on_unknown, retention=retention, waiting=waiting)
        self.durable = self._make_durable(store, backend)
        limits = limits or Limits()
        policy = result_policy or ResultPolicy()
        self._runtime = AgentRuntime(
            name=name,
            model=model_of(model),
            rules=RunRules(
                system=system,
                max_steps=max_steps,
                limits=limits,
                settings=settings or ModelSettings(),
                output=None if output_type is None else Output(output_type),
            ),
            tools=self.tools,
            # A model that the caller made may be in use elsewhere and is left open. Only one that was made here from a
            # text is closed here.
            lifespan=AgentLifespan(name, finish=self._rest if isinstance(model, str) else None),
            sessions=SessionStates(policy),
            conversations=MemoryConversations() if self.durable is None else self.durable.conversations,
            open_journal=self.open_journal,
            hooks=partial(ComponentHooks, self.tools),
            confirm=checked_confirm(confirm),
            allowed=Grants(),
            limiter=PerServerLimiter(limits.parallel_per_server),
            raises=on_transport_error == "raise",
            strict=on_error == "raise",
            errors={},
            durable=self.durable is not None,
            hold_session=partial(hold_session, self.durable),
            defer_tokens=defer_tools,
            history=history,
        )
        # The periods that `async with` has entered, one for each block: a task may enter the agent while another block
        # is still open.
        self._entered: list[LifespanPeriod] = []
        if mcp_servers is not None:
            self.add_mcp_servers(mcp_servers)

    @property
    def model(self) -> Model:
        """The model of its runs."""
        return self._runtime.model

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The errors of the tool sources that could not be opened, and of its hubs' servers that are down, by name."""
        return {**self.tools.server_errors(), **self._runtime.errors}

    def use_backend(self, backend: WorkBackend) -> None:
        """Store its runs in `backend` from now on, as with `Agent(backend=)`; only for an agent without a store."""
        self.durable = self._make_durable(None, backend)
        assert self.durable is not None  # there is a backend
        self._runtime.durable = True
        self._runtime.conversations = self.durable.conversations
        self._runtime.hold_session = partial(hold_session, self.durable)

    @property
    def max_depth(self) -> int:
        """Maximum nesting depth of agents at which this one may be called."""
        return self._runtime.rules.limits.depth

    @overload
    def send(self, sent: Prompt, /, **options: Unpack[SendOptions]) -> Run[Any]: ...
    @overload
    def send(self, sent: Sendable, /, **options: Unpack[SendOptions]) -> Run[OutT_co]: ...
    def send(
        self,
        sent: Sendable,
        /,
        *,
        session: str | None = None,
        tools: ToolLike | Iterable[ToolLike] | None = None,
        ctx: CallContext = NO_CONTEXT,
        attended: Attended = True,
        key: str | None = None,
    ) -> Run[Any]:
        """Return a run on a message; it starts at the first `await` or iteration.

        Args:
            sent: A text, a block, a `Prompt`, a message, or a sequence of these.
            session: Name of the conversation to continue; its runs execute one after another.
            tools: Additional tools for this run alone.
            ctx: Call context whose `meta`, `state` and `caller` its tools see.
            attended: Whether a person can approve calls; if not, calls that need approval are denied. With `"later"`
                the run ends as `"waiting"` there, and `resume` continues it after `RunStatuses.approve`; needs a store.
            key: An idempotency key: the same key is the same run, which continues or returns its result again.
                Awaiting it raises `RunError` while the run is executing already, in any process.

        Raises:
            TypeError: The value is of no type that can be sent.
            ValueError: A prompt lacks a variable, or has nothing to answer; or there is a key and no store.
        """
        if key is not None and self.durable is None:
            raise ValueError(f"agent {self.name!r} keeps nothing to find a key in: Agent(..., store=SqliteStore())")
        if attended == "later" and self.durable is None:
            raise ValueError(f"agent {self.name!r} keeps no run that waits: Agent(..., store=SqliteStore())")
        return self.begin(
            messages_of(sent),
            run_id=None if key is None else run_id_of(self.name, key),
            session=session,
            tools=tools,
            ctx=ctx,
            attended=attended,
            output_type=sent.output_type if isinstance(sent, Prompt) else None,
        )

    run = send
    """Alias of `send`: `result = await agent.run("...")`."""

    def run_sync(
        self,
        sent: Sendable,
        /,
        *,
        session: str | None = None,
        tools: ToolLike | Iterable[ToolLike] | None = None,
        ctx: CallContext = NO_CONTEXT,
    ) -> RunResult[OutT_co]:
        """Execute a run from synchronous code and return its result: blocks the thread, and Ctrl-C cancels the run.

        It executes in the event loop of `toolweave.sync`, even if this thread has a running loop, as in a notebook. An
        agent that opened connections in another loop is used there; see `send` for the arguments.

        Raises:
            RuntimeError: The agent is in use in another event loop, or this is the loop of `toolweave.sync`.
            Exception: The error that made the run fail.
        """
        return PORTAL.run(self.send(sent, session=session, tools=tools, ctx=ctx).outcome)

    def stream_text(
        self,
        sent: Sendable,
        /,
        *,
        session: str | None = None,
        tools: ToolLike | Iterable[ToolLike] | None = None,
        ctx: CallContext = NO_CONTEXT,
    ) -> AsyncGenerator[str, None]:
        """Stream the model's text: `async for text in agent.stream_text("...")`.

        See `send` for the arguments. Leaving early cancels the run.
        """
        return self.send(sent, session=session, tools=tools, ctx=ctx).stream_text()

    def begin(  # noqa: PLR0913 - keyword-only, each with a default
        self,
        messages: Iterable[Message] = (),
        *,
        run_id: str | None = None,
        session: str | None = None,
        parent_id: str | None = None,
        depth: int = 0,
        tools: ToolLike | Iterable[ToolLike] | None = None,
        ctx: CallContext = NO_CONTEXT,
        attended: Attended | None = None,
        output_type: Any = None,  # any type, or a JSON Schema
        journal: Journal | None = None,
    ) -> Run:
        """Return a run with the given id and parent; a run that the journal knows continues where it ended."""
        rules = self._runtime.rules
        request = RunRequest(
            sent=tuple(messages),
            rules=rules if output_type is None else replace(rules, output=Output(output_type)),
            session=session,
            tools=None if tools is None else AgentTools(tools, server=self.mcp_toolset),
            ctx=ctx,
            attended=attended,
            run_id=run_id,
            parent_id=parent_id,
            depth=depth,
            journal=journal,
        )
        return Run(self._runtime, request)

    async def submit(
        self,
        sent: Sendable,
        /,
        *,
        session: str | None = None,
        key: str | None = None,
        on_unknown: OnUnknown | None = None,
        attended: Literal["later", False] = "later",
    ) -> SubmittedRun:
        """Submit a message to a worker, on this machine or another, and return a handle of its run.

        Args:
            sent: As with `send`.
            session: The conversation to continue, as it is when the run starts. Runs that are submitted to it execute
                one after another, in the order of submission.
            key: An idempotency key: submitted with the same one again, it is the same run.
            on_unknown: Policy for calls with an unknown outcome after a worker died: `"error"` gives the model an
                error result, `"rerun"` repeats them, `"ask"` has the run wait for a person; by default that of
                the worker, or of its agent.
            attended: `"later"`: a call that needs approval has the run wait, without a worker, until it is answered
                (`SubmittedRun.approve`, `toolweave runs approve`); False: such calls are denied.

        Raises:
            RunError: The key belongs to another message, or another session.
            StoreError: The store or the queue cannot be reached. With a key it is safe to try again.
            TypeError: The value is of no type that can be sent.
            ValueError: The agent has no backend, a prompt lacks a variable, or there is nothing to answer.
        """
        return await submit_message(
            self.name, self.durable, sent, session=session, key=key, on_unknown=on_unknown, attended=attended
        )

    def submitted(self, run_id: str) -> SubmittedRun:
        """Return the handle of a run that was submitted, by any process.

        Raises:
            ValueError: The agent has no store.
        """
        if self.durable is None:
            raise ValueError(f"agent {self.name!r} keeps nothing: Agent(..., backend=Backend(url))")
        return SubmittedRun(self.durable, run_id)

    async def resume(
        self,
        run_id: str,
        *,
        tools: ToolLike | Iterable[ToolLike] | None = None,
        ctx: CallContext = NO_CONTEXT,
        attended: Attended | None = None,
        output_type: Any = None,  # any type, or a JSON Schema
        on_unknown: OnUnknown | None = None,
    ) -> Run:
        """Return a stored run that continues where it ended: `result = await (await agent.resume(run_id))`.

        Finished turns and calls are replayed, not repeated. A call that had started and not ended is repeated when its
        tool's annotations allow that (`readOnlyHint`, `idempotentHint`); else `on_unknown` decides. Failed, stopped and
        cancelled runs also continue; a completed run only returns its result again.

        Args:
            run_id: The run.
            tools: Additional tools of the run, as in `send`.
            ctx: The `state` and `caller` that its tools see; `meta` is merged over the recorded one.
            attended: Whether a person can approve calls; None keeps the recorded value.
            output_type: The output type of its prompt; without it the answer is validated the same but stays JSON.
            on_unknown: Policy for calls with an unknown outcome: `"error"` gives the model an error result, `"ask"`
                asks a person whether to repeat them, `"rerun"` repeats them; by default that of the submission, else
                the agent's.

        Raises:
            RunError: The store has no such run, or it is another agent's.
            ValueError: The agent has no store.
        """
        return await resume(
            self, run_id, tools=tools, ctx=ctx, attended=attended, output_type=output_type, on_unknown=on_unknown
        )

    def runs(self, run: Run, /) -> bool:
        """Whether a run is one of this agent's."""
        return runtime_of(run) is self._runtime

    def add_mcp(self, server: Any, *, prefix: str | None = None, name: str | None = None) -> None:
        """Add the tools of an MCP server, under a prefix of their own.

        Args:
            server: A config of any type that `connect_mcp` takes; an open connection or another toolset, used as is;
                or a function that returns an async context manager for one, which the agent enters and exits.
            prefix: Prefix of its tools' names, joined with `_`.
            name: Its name in errors.

        Raises:
            ConfigError: The config cannot be right.
            TypeError: It is not a server.
        """
        found = self.mcp_toolset(server, name=name or prefix)
        if isinstance(found, Toolset):
            self.tools.add(found, prefix=prefix)
        else:
            self.tools.add_opener(found, name=name or prefix or "mcp server", prefix=prefix)

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
            servers = without_members(named, *live)
        loaded = load_config(servers)
        for warning in loaded.warnings:
            _log.warning("%s", printable(str(warning)))
        # A wrong entry of a file must not take the working servers along: its user did not write this call. An entry
        # that stands in code is a mistake of the caller, who gets the error at once.
        if loaded.errors and (self._runtime.strict or not isinstance(servers, (str, PurePath, LoadedConfig))):
            raise next(iter(loaded.errors.values()))
        self._runtime.errors.update(loaded.errors)
        for name, server in {**loaded.servers, **live}.items():
            self._add_server(name, server)

    def open_journal(
        self, run_id: str, *, durable: Durable | None = None, on_unknown: OnUnknown | None = None
    ) -> Journal:
        """Return the journal of a run, which records nothing without a store.

        Args:
            run_id: The run.
            durable: Persistence of this run, if not the agent's own.
            on_unknown: Policy for calls with an unknown outcome.
        """
        kept = durable or self.durable
        if kept is None:
            return Journal()
        return StoreJournal(kept, run_id, on_unknown=on_unknown)

    def mcp_toolset(self, server: Any, *, name: str | None = None) -> Toolset | Opener:
        """Return a server as a toolset, or a factory that opens one; a config becomes a component.

        Of what `connect_mcp`, `connect_mcp_servers` and `discover_mcp_tools` return, not awaited, it makes a connection
        of the agent's own, which it opens and closes.

        Raises:
            ConfigError: The config cannot be right.
            TypeError: It is not a server.
        """
        # Before the check for `__await__`, which it has as well, and which is an error for everything else.
        if isinstance(server, UnopenedTools) and not isinstance(server, Toolset):
            return server.unopened()
        if hasattr(server, "__await__"):
            who = "a server" if name is None else f"server {name!r}"
            raise TypeError(f"{who}: give its config, or the connection that awaiting it returns")
        if _is_live(server):
            return cast("Toolset | Opener", server)
        made = McpTools(name or "", server)
        made.takes_questions = self.takes_questions
        return made

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        keep_conversation: KeepConversation = False,
    ) -> Tool:
        """Return the agent as a tool with one parameter, `message`.

        A call is a whole run; its failure is an error result. An agent is never called from within itself, and agents
        call agents no deeper than `Limits.depth`.

        Args:
            name: The tool's name; `agent_<name>` by default.
            description: The tool's description; the agent's own by default.
            keep_conversation: Continue one conversation: for each run or session of a calling agent and for each
                client that can be distinguished; or by the session that a function of the context returns.
        """
        return agent_tool(self, name=name, description=description, keep_conversation=keep_conversation)

    async def close(self) -> None:
        """Cancel all runs and close the agent's resources, within a time limit; the agent may be used again.

        Called by a tool of one of the agent's runs, it returns at once, because that run also ends.
        """
        period = self._runtime.lifespan.period
        run = current_run()
        # Up to the run of this agent that the caller belongs to, through agents that are called as tools. Waiting for
        # its end from inside would be a deadlock.
        while run is not None and not self.runs(run):
            run = run.parent
        if period is not None:
            self._entered = [entered for entered in self._entered if entered is not period]
            await period.close(wait=run is None)

    async def keep_trying(self) -> None:
        """Give no server up from now on: one that cannot be reached is tried again while the agent is open.

        Workers do so. Elsewhere a server that is down when the agent opens is left out until the agent opens again.
        """
        await self._runtime.lifespan.keep_trying()

    async def __aenter__(self) -> Self:
        period = self._runtime.lifespan.join()
        try:
            failed = await self._runtime.opened(period)
            if failed and self._runtime.strict:
                raise ExceptionGroup(
                    f"agent {self.name!r}: not all of its tools could be opened", list(failed.values())
                )
        except BaseException:
            period.leave()
            # Waited for, so that an agent that could not be opened has no connection open when its error is raised.
            await period.ended()
            raise
        self._entered.append(period)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._entered:
            return  # closed already
        period = self._entered.pop()
        # Another block has entered the same period: only the last one to leave closes it, and cancels the runs in it.
        if period in self._entered:
            period.leave()
        else:
            await period.close()

    def _add_server(self, name: str, server: Any) -> None:
        """Add a server under its name, or under the literal prefix of its config."""
        found = self.mcp_toolset(server, name=name)
        # `tool_prefix` of the config stands before the names as it is. The server's name would come in front of it and
        # change the names that its owner chose.
        literal = isinstance(found, McpTools) and found.literal_prefix is not None
        self.add_mcp(found, prefix=None if literal else name, name=name)

    async def _rest(self) -> None:
        """Close the connections of a model that the agent made from a text."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            try:
                await close()
            except Exception as exc:  # boundary: a toolset that fails to close counts as closed
                _log.debug("model %r did not close: %s", self.model.name, exc)

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}, {self.model.name}>"


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
