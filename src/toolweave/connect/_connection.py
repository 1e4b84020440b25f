"""One MCP server as a connection: its tools, calls, resources and prompts, and its public state.

Combines the supervisor, the catalog and the session. Knows nothing of other servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import anyio

from toolweave._json_types import Json, JsonObject
from toolweave._option_checks import FLAG, check_kind, instance_of, type_error
from toolweave._text import counted
from toolweave.config import Auth, ServerConfig, Timeouts, server_config
from toolweave.config._auth import AuthFlow
from toolweave.connect._catalog import Catalog
from toolweave.connect._client_capabilities import ClientCapabilities
from toolweave.connect._client_features.callbacks import NO_CALLBACKS, Callbacks, ClientStandIn, RootsAnswer
from toolweave.connect._client_features.question_budget import QuestionBudget
from toolweave.connect._clock import Clock
from toolweave.connect._connecting import Connecting, Openable
from toolweave.connect._event_subscriptions import EventSubscriptions
from toolweave.connect._events import EventListeners
from toolweave.connect._feed.refresher import ListRefresher
from toolweave.connect._forwarding import ForwardedRequest, refuse_repairs
from toolweave.connect._gateway_side import GatewaySide
from toolweave.connect._health import Health
from toolweave.connect._report import Report
from toolweave.connect._requester import Requester
from toolweave.connect._session import Agreement, ClientHandlers
from toolweave.connect._skills import SkillFeatures
from toolweave.connect._state import ConnectionState, StateChanged
from toolweave.connect._supervisor import Supervisor
from toolweave.connect._transports import OpenSession
from toolweave.connect._wire.credentials import AuthHook
from toolweave.definitions import Finding, PinChange
from toolweave.errors import (
    AuthRequiredError,
    ConfigError,
    ErrorKind,
    ServerError,
    ToolError,
    as_tool_error,
)
from toolweave.protocol.component_meta import asking_for
from toolweave.protocol.logs import LogLevel
from toolweave.protocol.skipped_parts import SkippedPart
from toolweave.tools import (
    BaseToolset,
    CallContext,
    ProgressCallback,
    ToolCall,
    ToolList,
    ToolResult,
    ToolsChanged,
    Toolset,
    ToolSnapshot,
    Unsubscribe,
)
from toolweave.tools.names import unknown_tool

_SHOWN_PROBLEMS = 20


class McpConnection(EventSubscriptions, SkillFeatures, Openable, BaseToolset):
    """A connection to one MCP server, and a `Toolset` of its tools.

    Made by `connect_mcp`. May be used and closed from any task, also of an event loop in another thread: requests run
    in the loop that opened it. A `timeout` is in seconds and replaces the server's own bound for one call.

    Attributes:
        config: The server's config, as it was given.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        lazy: bool = False,
        callbacks: Callbacks = NO_CALLBACKS,
        clock: Clock | None = None,
        stand_in: ClientStandIn | None = None,
        endless: bool = False,
    ) -> None:
        if not isinstance(config, ServerConfig):  # pyright: ignore[reportUnnecessaryIsInstance] - callers pass anything
            raise type_error("config", config, "a ServerConfig; connect_mcp takes an entry, a URL or a command too")
        if not isinstance(callbacks, Callbacks):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise type_error("callbacks", callbacks, "Callbacks(...)")
        self.config = config
        self._lazy = lazy
        self._events = EventListeners(config.name)
        self._catalog = Catalog(config, self._tools_changed)
        self._last_error: Exception | None = None
        self._list_refresher = ListRefresher(config, self._events)
        self._catalog.live.on_problem = partial(self._events.emit, "problem")
        self._list_refresher.track(self._catalog.live, self._refresh, always=True)
        self._follow_offers()
        budget = QuestionBudget(config.name, max_questions=config.max_questions, max_bytes=config.max_question_bytes)
        self._handlers = ClientHandlers(self._notified, callbacks, config.name, stand_in, budget)
        self._handlers.on_gap = self._list_refresher.invalidate
        self._handlers.on_repair = self._catalog.repairs.add
        for repairs in (self._catalog.repairs, self._catalog.argument_repairs):
            repairs.on_problem = partial(self._events.emit, "problem")
        self._handlers.on_server_fault = partial(self._events.emit, "error")
        # The parts meet here and nowhere else. The supervisor owns the life, the requester borrows its open session
        # for each request, the catalog and the lists follow the server through `_prepare` and `_run_background`, which
        # the supervisor calls for every session.
        self._supervisor = Supervisor(
            config,
            self._handlers,
            prepare=self._prepare,
            run_background=self._run_background,
            on_state=self._state_changed,
            clock=clock,
        )
        if endless:
            self._supervisor.endless = True
        self._requester = Requester(config, self._supervisor, self._catalog, self._check_pins)
        self._client = ClientCapabilities(config, self._requester, self._handlers)
        lists = (self._catalog.live, *self._offer_lists)
        self._gateway_side = GatewaySide(
            self._requester, self._catalog, {live.kind: live for live in lists}, self._notified_elsewhere
        )
        self._health = Health(config, lambda: self._requester.waits, lambda event: self._events.emit("silence", event))
        self._requester.on_timeout = self._health.suspect

    # identity

    @property
    def name(self) -> str:
        """The server's name: its key in the config, or the name given to `connect_mcp`."""
        return self.config.name

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        return self._supervisor.state

    @property
    def error(self) -> Exception | None:
        """The last error, or None."""
        return self._supervisor.error

    @property
    def protocol_version(self) -> str | None:
        """The negotiated protocol revision, such as `"2025-11-25"`; None before the handshake."""
        if self._agreement:
            return self._agreement.version
        return None

    @property
    def server_info(self) -> JsonObject:
        """The server's `Implementation` object as it came: name, version, title, ...; empty before the handshake."""
        if self._agreement:
            return self._agreement.server_info
        return {}

    @property
    def capabilities(self) -> JsonObject:
        """The server's capabilities as they came; empty before the handshake."""
        if self._agreement:
            return self._agreement.capabilities
        return {}

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model; None if it has none, or its pins withhold them. They are untrusted."""
        if self._agreement:
            return self._catalog.guard.instructions
        return None

    @property
    def report(self) -> Report:
        """The steps of the last attempt to connect."""
        return self._supervisor.report

    @property
    def restarts(self) -> int:
        """The number of reconnections after a loss."""
        return self._supervisor.restarts

    @property
    def away(self) -> bool:
        """Whether the server could not be reached for long, or ever, and is tried again in the background.

        Until then each use fails at once with the cause.
        """
        return self._supervisor.waits_away

    @property
    def silent_for(self) -> float:
        """The seconds a request has waited without anything received from the server; 0 when none waits."""
        session = self._supervisor.session
        if session is not None:
            return self._health.silent_for(session)
        return 0.0

    @property
    def busy(self) -> bool:
        """Whether calls wait for their answers."""
        return bool(self._requester.waits)

    @property
    def stderr_tail(self) -> str:
        """The last lines that the server process wrote to standard error, secrets masked; `""` without a process."""
        process = self.report.process
        if process is not None:
            return self.config.redact(process.stderr_tail())
        return ""

    def redact(self, text: str) -> str:
        """Mask the secrets of the config, and the credentials of the last session, in a text of the server."""
        return self._requester.redact(text)

    @property
    def problems(self) -> tuple[str, ...]:
        """The definitions that are left out, withheld or suspicious, suspicious results, odd answers at a sign-in."""
        of_lists = (problem for live in self._offer_lists for problem in live.problems)
        others = (*self.pin_problems, *map(self.redact, self.report.auth_problems()))
        return tuple(dict.fromkeys((*self._catalog.problems, *of_lists, *others)))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the scan of definitions and results; see `toolweave.definitions`."""
        return self._catalog.guard.findings

    @property
    def pin_changes(self) -> tuple[PinChange, ...]:
        """The differences of the instructions and the last lists from the pins; see `pins` in `ServerConfig`."""
        return self._catalog.guard.changes

    @property
    def pinned_as(self) -> tuple[str, ...]:
        """Other names under which the lock file has pins of this server, if it has none under its own."""
        return self._catalog.guard.pinned_as

    @property
    def pin_problems(self) -> tuple[str, ...]:
        """The same as texts, each with a diff; all of these are in `problems`."""
        return tuple(map(self.config.redact, self._catalog.guard.pin_problems))

    @property
    def filter_problems(self) -> tuple[str, ...]:
        """The names of no tool in `include`, `exclude` and `confirm` of its config; all of these are in `problems`."""
        return self._catalog.filter_problems

    @property
    def withheld(self) -> Mapping[str, str]:
        """The tools that may not be used until they are allowed, by the server's names, each with the reason."""
        return self._catalog.guard.verdict.withheld

    @property
    def excluded_tools(self) -> Mapping[str, str]:
        """The tools that its config leaves out, by the server's names, each with the reason; not those withheld."""
        return self._catalog.excluded_tools

    @property
    def skipped_by_server(self) -> Sequence[SkippedPart]:
        """The tools, and parts of tools, that the server says it leaves out, such as operations of an API's document.

        The reasons are untrusted text of the server.
        """
        return self._catalog.skipped_by_server

    # life

    def start(self, *, now: bool = False) -> None:
        """Start connecting in the background, until `close()`; `state` and the events report the progress.

        With `now`, a connection that was given up is tried again without waiting for the end of its cool-down.
        """
        self._kept = True
        self._supervisor.start(now=now)

    async def keep_trying(self) -> None:
        """Never give the server up from now on, as with `restart="always"`; has no effect with `restart="never"`."""
        self._supervisor.endless = True

    async def open(self) -> None:
        """Connect and shake hands; returns when the server is ready, which it stays until `close()`.

        Raises:
            ServerError: The server cannot be reached; nothing of it is left running.
        """
        await super().open()

    async def _open(self) -> None:
        # A connection that its last user has closed can be opened again, as if it had never been open.
        if not self._final and self._supervisor.reset():
            self._list_refresher.reset()
        if self._lazy and self.state is not ConnectionState.CLOSED:
            return
        await self._requester.session()

    async def close(self) -> None:
        """Close the connection, finally, and end the server process; idempotent, from any task, bounded.

        A callback of the connection that calls it is cancelled with the rest of the connection.
        """
        await super().close()

    async def _close(self) -> None:
        await self._supervisor.stop()

    # tools

    def snapshot(self) -> ToolSnapshot:
        """Return the tools known now; see `Toolset.snapshot`."""
        return self._catalog.snapshot

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the tools; see `Toolset.subscribe`."""
        return self._events.add("tools_changed", listener)

    async def list_tools(self, prefix: str | None = None, *, timeout: float | None = None) -> ToolList:
        """Return the server's tools: a sequence, also indexed by name.

        With `prefix="fs"` their names are `fs_read_file` and so on; the server is always called with
        its own names. A cached list is used while it is fresh.

        Raises:
            ConnectionClosedError: The connection is closed.
            ServerError: The list could not be read.
        """
        await self._requester.session()
        if not self._catalog.fresh:
            await self.refresh(timeout=timeout)
        if prefix is None:
            return self.tools
        return self.prefixed(prefix).tools

    async def refresh(self, *, timeout: float | None = None) -> ToolsChanged:
        """List the server's tools again, bypassing caches; return the change."""
        return await self._requester.with_reconnect(lambda session: self._refresh(session, timeout))

    async def call_tool(
        self,
        name: str,
        arguments: JsonObject | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        version: str | None = None,
        meta: JsonObject | None = None,
    ) -> ToolResult:
        """Call a tool by its own name, its exposed name or an alias, and return its result.

        `timeout` is seconds without a sign of life, reset by progress; it does not run while a callback is
        at work, nor between the polls of a call that became a task. A cancelled call is cancelled at the
        server. Arguments that do not fit the tool's schema come back as an `invalid_input` error result
        without being sent. Of several versions that a server of Toolweave has the newest is called, if `version`
        names no other.

        Raises:
            ProtocolError: The server answered with a JSON-RPC error.
            ConnectionLostError: The connection broke; `sent` says whether the call may have run.
            RequestTimeoutError: No sign of life within `timeout`.
            ConnectionClosedError: The connection is closed.
            ToolError: The server cancelled the task that the call became, or the tool is withheld by its pins.
        """
        if version is not None:
            meta = {**(meta or {}), **asking_for(version)}
        ctx = CallContext(timeout=timeout, on_progress=on_progress, meta=meta or {})
        return await self._supervisor.run_on_own_loop(self._requester.call(name, arguments or {}, ctx))

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool; see `Toolset.call`: faults come back as error results."""
        snapshot = self._catalog.snapshot
        if call.name not in snapshot.by_name and snapshot.version and self._catalog.find(call.name) is None:
            refused = self._catalog.guard.refusal(call.name)
            if refused is not None:
                return ToolResult.failure(refused, kind=ErrorKind.DENIED)
            return ToolResult.failure(unknown_tool(call.name, snapshot.by_name), kind=ErrorKind.NOT_FOUND)
        try:
            return await self._supervisor.run_on_own_loop(self._requester.call(call.name, call.arguments, ctx))
        except (ServerError, ToolError) as exc:
            return ToolResult.failure(as_tool_error(exc))

    # capabilities of the client

    async def set_log_level(self, level: LogLevel) -> None:
        """Ask for log messages of this severity and above, now and after every reconnection.

        They go to `Callbacks.logging`, and are also notification events.

        Raises:
            ValueError: The level does not exist.
            ProtocolError: The server sends no log messages (legacy revisions).
        """
        await self._client.set_log_level(level)

    async def set_roots(self, roots: RootsAnswer) -> None:
        """Replace the roots and notify the server; a modern server gets them when it asks for roots.

        Raises:
            RuntimeError: The connection offers no roots: none were given to it in `Callbacks.roots`.
            TypeError: They are not a sequence of roots.
            ValueError: One is the URI of something that is not a file.
        """
        await self._client.set_roots(roots)

    async def roots_changed(self) -> None:
        """Notify the server that the roots have changed; modern revisions have no such notification."""
        await self._client.roots_changed()

    # for gateways

    async def forward(self, request: ForwardedRequest) -> Json:
        """Send a request of another client as it is, and return its result as it came.

        Neither arguments nor the result are validated. The bounds are those of the server, on silence: progress
        resets them, and they stop while the server's client is asked. It is sent again only where that is safe:
        when it provably was not sent, or the tool is read-only or idempotent. Cancelling it notifies the server.

        Raises:
            ProtocolError: The server answered with a JSON-RPC error, whose code and data it has; or with a result that
                has to be repaired, and `repair_messages` is false.
            ServerError: It did not answer.
            ToolError: The tool is withheld by its pins; or the server cancelled the task that the call became.
        """
        result = await self._requester.forward(request)
        if not self.config.repair_messages:
            refuse_repairs(request, result, self.config, self._catalog)
        return result

    @property
    def gateway_side(self) -> GatewaySide:
        """The side of the connection that hubs and gateways use; no program needs it."""
        return self._gateway_side

    def listen_to_task(self, task: str, listener: Callable[[JsonObject], object]) -> Unsubscribe:
        """Call `listener` with a modern server's notifications of a task; return a function that unsubscribes.

        A server need not send any, and they may be lost with a connection: the result of `tasks/get` is authoritative.

        Args:
            task: The id that the server gave it.
            listener: Gets the parameters of the notification.
        """
        return self._list_refresher.listen_to_task(task, listener)

    def __repr__(self) -> str:
        return f"<McpConnection {self.name!r} {self.state.value} {self.config.endpoint}>"

    # inside

    @property
    def _agreement(self) -> Agreement | None:
        session = self._requester.last_session
        if session:
            return session.conversation.agreement
        return None

    async def _refresh(self, session: OpenSession, timeout: float | None = None) -> ToolsChanged:
        try:
            change = await self._requester.list_tools(session, timeout)
        except ServerError as exc:
            if isinstance(exc, AuthRequiredError):
                self._supervisor.refuse(exc)
            self._events.emit("error", exc)
            raise
        self._supervisor.recover()
        return change

    def _tools_changed(self, change: ToolsChanged) -> None:
        self._events.emit("tools_changed", change)

    async def _prepare(self, session: OpenSession) -> None:
        """List the tools of a new session before requests use it; a failure degrades, it does not disconnect."""
        self._requester.last_session = session
        agreement = session.conversation.agreement
        self._catalog.guard.identify(agreement.server_info, agreement.capabilities, agreement.instructions)
        self._list_refresher.begin()
        await self._client.set_initial_log_level(session)
        with self.report.step("list tools") as step:
            try:
                await self._refresh(session)
            except ServerError as exc:
                if session.conversation.wire.over or isinstance(exc, AuthRequiredError):
                    raise
                step.outcome = "failed"
                step.detail = str(exc)
                self._supervisor.degrade(exc)
                return
            tools = len(self._catalog.snapshot)
            pages = self._catalog.pages
            listed = f"{counted(tools, 'tool')} on {counted(pages, 'page')}"
            problems = self._catalog.live.problems
            more = len(problems) - _SHOWN_PROBLEMS
            shown = [problem.partition("\n")[0] for problem in problems[:_SHOWN_PROBLEMS]]
            step.detail = "; ".join((listed, *shown, *([f"{more} more problems"] if more > 0 else [])))

    async def _run_background(self, session: OpenSession) -> None:
        """Run the background tasks of a session until it ends."""
        async with anyio.create_task_group() as tasks:
            self._supervisor.handlers.start_task = tasks.start_soon
            tasks.start_soon(self._list_refresher.run_background, session)
            tasks.start_soon(self._catalog.scan_definitions)
            tasks.start_soon(self._client.deliver_logs)
            tasks.start_soon(self._health.run_background, session)

    def _notified(self, method: str, params: JsonObject) -> None:
        self._list_refresher.notified(method, params)
        self._events.emit("notification", (method, params))

    def _notified_elsewhere(self, method: str, params: JsonObject) -> None:
        """Handle a notification that arrived on another connection to the server, in any thread."""
        loop = self._supervisor.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._list_refresher.notified, method, params)

    def _state_changed(self, change: StateChanged) -> None:
        self._events.emit("state", change)
        if change.error is not None and change.error is not self._last_error:
            self._last_error = change.error
            self._events.emit("error", change.error)
        if change.state is ConnectionState.CLOSED:
            self._events.emit("closed", change)


_CALLBACKS = instance_of(Callbacks, "Callbacks(...)")


def connect_mcp(
    target: Any,
    *,
    name: str | None = None,
    headers: Mapping[str, str] | Callable[[], Any] | None = None,
    auth: Auth | AuthHook | AuthFlow | Callable[[], Any] | str | None = None,
    timeout: float | Mapping[str, float] | Timeouts | None = None,
    restart: Literal["on_failure", "always", "never"] | None = None,
    lazy: bool = False,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Connecting[McpConnection]:
    """Connect to one MCP server: `await` it, or `async with` it.

        async with connect_mcp("uvx mcp-server-time") as client:
            result = await client.call_tool("get_current_time", {"timezone": "Europe/Oslo"})

    Args:
        target: A config mapping of any shape, a `ServerConfig`, a URL, a command line as a string or
            a sequence, an in-process server object, or an SDK transport.
        name: The server's name in errors and in `server_tool` names; derived from the target when None.
        headers: HTTP headers, or a callable that gives them for each request.
        auth: Credentials for HTTP: an `Auth`, a bearer token, a callable asked before each request, an `AuthHook` that
            is also called with each refusal, or an authorization object of `httpx`.
        timeout: Seconds for every wait, or a `Timeouts`.
        restart: `"on_failure"` reconnects a lost connection with backoff, `"always"` never gives up, `"never"` keeps
            the exact cause.
        lazy: Connect at the first use instead of at once.
        callbacks: Handlers for the server's requests, in every era; requests without a handler are refused.

    Raises:
        ConfigError: At once, when the target cannot be right. Awaiting raises `ServerError`s.
    """
    check_kind("callbacks", callbacks, _CALLBACKS)
    check_kind("lazy", lazy, FLAG)
    config = server_config(target, name=name, headers=headers, auth=auth, timeout=timeout)
    server: object = config.server
    kinds: tuple[type, ...] = (Toolset, Connecting)
    if isinstance(server, kinds):
        raise ConfigError(
            f"connect_mcp takes a server (its config, URL, command line, file or object), not {server!r}, which "
            "offers its tools already: use it as it is, or serve it with create_mcp_server(tools=[...])",
            field="server",
        )
    if restart is not None:
        config = config.replace(restart=restart)
    return Connecting(partial(McpConnection, config, lazy=lazy, callbacks=callbacks))
