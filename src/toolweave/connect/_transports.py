"""Opening of a session with a server, over the transport that its config names.

The only module that maps a transport to its wire. Opens nothing by itself; the supervisor of the
connection enters the context managers, and connects again where an exception asks for it.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import anyio.to_thread
import msgspec

from toolweave._json_types import object_or_empty
from toolweave._value import Value
from toolweave.config import ServerConfig, register_transport_name, server_config
from toolweave.connect._channel import MAX_MESSAGE_BYTES, Channel
from toolweave.connect._handshake import ProbeRefused, shake_hands
from toolweave.connect._http_errors import MAX_CONNECTIONS, HttpSettings
from toolweave.connect._open_files import open_files_hint
from toolweave.connect._report import Report
from toolweave.connect._session import ClientHandlers, Session, Wire
from toolweave.connect._stdio.environment import find_program, inherited_environment
from toolweave.connect._stdio.process import ServerProcess, spawn
from toolweave.connect._wire.channel import channel_wire
from toolweave.connect._wire.credentials import Credentials, flow_of, hook_of, problems_of
from toolweave.errors import ConfigError, ConnectError, ConnectionLostError, ProtocolError, ServerError

_log = logging.getLogger("toolweave.connect")

_SDK = "toolweave.connect._sdk"
_BUILT_IN = ("stdio", "http", "sse", "inprocess")
_HASTY_STOP_SECONDS = 1.0
_SSE_STATUSES = frozenset({400, 404, 405})

TransportFactory = Callable[[ServerConfig], AbstractAsyncContextManager[Any]]
_factories: dict[str, TransportFactory] = {}


class ConnectPlan(Value, frozen=True, kw_only=True):
    """The transport and the era to connect with: from the config, later from the server that was found.

    Attributes:
        transport: `"stdio"`, `"http"`, `"sse"`, `"inprocess"` or a registered name.
        era: `"auto"`, `"legacy"` or one revision.
        learned: Whether it is a conclusion from the server as it was before, which the next attempt may disprove.
    """

    transport: str
    era: str
    learned: bool = False


class OpenSession(msgspec.Struct):
    """An open session.

    Attributes:
        conversation: Its requests and notifications, after the handshake.
        redact: Masks the secrets of the config, and the credentials that were made for the session, in a text.
        process: The process of the server, where there is one.
    """

    conversation: Session
    redact: Callable[[str], str]
    process: ServerProcess | None = None


def first_plan(config: ServerConfig) -> ConnectPlan:
    """Return the attempt for a server of which nothing is known."""
    if config.transport == "http" and config.legacy_sse == "only":
        return ConnectPlan(transport="sse", era="legacy")
    return ConnectPlan(transport=config.transport, era="legacy" if config.transport == "sse" else config.protocol)


def learned_plan(attempt: ConnectPlan, session: OpenSession, config: ServerConfig) -> ConnectPlan:
    """Return the attempt for the next time: most servers keep their era, so the probe is skipped.

    The supervisor drops it if the server refuses it then.
    """
    plan = attempt.replace(learned=False)
    if not session.conversation.agreement.modern:
        plan = plan.replace(era=attempt.era.replace("auto", "legacy"))
    return plan.replace(learned=plan != first_plan(config))


def raise_for_other_era(error: ServerError, before: OpenSession, now: OpenSession) -> None:
    """Raise the error of a request that was certainly not carried out, if the next session is of another era."""
    if before.conversation.agreement.modern == now.conversation.agreement.modern:
        return
    if isinstance(error, ConnectionLostError) and not error.sent:
        raise error


class RetryConnect(Exception):
    """This attempt cannot work, but `attempt` may."""

    def __init__(self, attempt: ConnectPlan, reason: str) -> None:
        super().__init__(reason)
        self.attempt = attempt


def register_transport(name: str, factory: TransportFactory) -> None:
    """Register a factory that opens `transport: NAME` of a config.

    The factory gets the `ServerConfig`; its async context manager yields a `Channel`, or the SDK's
    pair of streams.

    Raises:
        ValueError: The name is one of the built-in transports.
    """
    if name in _BUILT_IN:
        raise ConfigError(f"transport {name!r} is built in; register yours under another name", field="transport")
    register_transport_name(name)
    _factories[name] = factory


@asynccontextmanager
async def open_session(
    config: ServerConfig, attempt: ConnectPlan, handlers: ClientHandlers, report: Report
) -> AsyncGenerator[OpenSession, None]:
    """Open a conversation with a server and shake hands.

    Raises:
        RetryConnect: Try again with another attempt.
        ServerError: It cannot be reached; the message says why.
    """
    opener = getattr(config.server, "open_wire", open_wire)
    async with opener(config, attempt, handlers, report) as (wire, process):
        report.received_mark = getattr(wire, "received_mark", None)
        try:
            session = await shake_hands(
                wire,
                era=attempt.era,
                probe_seconds=config.probe_timeout,
                server=config.name,
                report=report,
                handlers=handlers,
            )
        except ProbeRefused as exc:
            # The probe may be innocent: a server that was killed while it waited looks the same. As a learned era, this
            # one is forgotten when the server refuses it.
            raise RetryConnect(attempt.replace(era="legacy", learned=True), str(exc)) from exc
        except ProtocolError as exc:
            if _wants_sse(config, attempt, exc):
                raise RetryConnect(ConnectPlan(transport="sse", era="legacy"), exc.message) from exc
            raise
        if process is not None:
            # it has shown manners: let it finish its work
            process.stop_seconds = config.timeout.close
        redact: Callable[[str], str] = getattr(wire, "redact", config.redact)
        yield OpenSession(session, redact, process)


class WireOpener(Protocol):
    """A wire factory that replaces the transport of a server, such as a recorder's."""

    def open_wire(
        self, config: ServerConfig, attempt: ConnectPlan, handlers: ClientHandlers, report: Report
    ) -> AbstractAsyncContextManager[tuple[Wire, ServerProcess | None]]:
        """Open a wire, and return it with its process, if there is one."""
        ...


def through(target: Any, opener: Callable[[Any], WireOpener]) -> ServerConfig:
    """Return the target's config with `opener(config.server)` instead of its transport, as a recorder uses it.

    Raises:
        ConfigError: The target cannot be right.
    """
    config = server_config(target)
    return config.replace(server=opener(config.server))


@asynccontextmanager
async def open_wire(
    config: ServerConfig, attempt: ConnectPlan, handlers: ClientHandlers, report: Report
) -> AsyncGenerator[tuple[Wire, ServerProcess | None], None]:
    """Open the bare wire of the config's transport, before any handshake."""

    def lost(sent: bool) -> ServerError:
        return ConnectionLostError("the connection ended", server=config.name, sent=sent)

    if attempt.transport == "stdio":
        async with _stdio(config, handlers, report) as opened:
            yield opened
        return
    if attempt.transport in ("http", "sse"):
        settings = _http_settings(config)
        report.auth_problems = partial(problems_of, settings.hook)
        async with _http_opener(attempt)(settings, handlers, server=config.name, loss=lost) as wire:
            yield wire, None
        return
    async with _channel(config) as channel, channel_wire(channel, handlers, server=config.name, loss=lost) as wire:
        yield wire, None


@asynccontextmanager
async def _stdio(
    config: ServerConfig, handlers: ClientHandlers, report: Report
) -> AsyncGenerator[tuple[Wire, ServerProcess | None], None]:
    # The steps are in the order in which they can fail for the user: the command, the process, the conversation. The
    # stack ends them in the reverse order, so the wire is closed before the process is stopped.
    env = inherited_environment() | config.env_values()
    with report.step("find the command") as step:
        step.detail = program = find_program(config.command, env=env, cwd=config.cwd, server=config.name)
    async with AsyncExitStack() as stack:
        with report.step("start the process") as step:
            argv: tuple[str, ...] = (program, *config.args)
            if config.limits is not None or config.sandbox is not None:
                argv = await anyio.to_thread.run_sync(partial(_confined, config, argv, env))
            try:
                process = await stack.enter_async_context(
                    spawn(
                        argv,
                        env=env,
                        cwd=config.cwd,
                        stop_seconds=min(_HASTY_STOP_SECONDS, config.timeout.close),
                        max_message_bytes=config.max_message_bytes or MAX_MESSAGE_BYTES,
                    )
                )
            except OSError as exc:
                why = f"{exc}{open_files_hint(str(exc))}"
                raise ConnectError(f"its command {program!r} could not be started: {why}", server=config.name) from exc
            step.detail = f"pid {process.pid}"
            report.process = process

        def lost(sent: bool) -> ServerError:
            reason = process.failure or "the process ended"
            return ConnectionLostError(reason, server=config.name, sent=sent)

        wire = await stack.enter_async_context(channel_wire(process, handlers, server=config.name, loss=lost))
        yield wire, process


def _confined(config: ServerConfig, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    from toolweave.connect._stdio.confinement import confined  # for few servers

    return confined(argv, limits=config.limits, sandbox=config.sandbox, env=env, cwd=config.cwd, server=config.name)


@asynccontextmanager
async def _channel(config: ServerConfig) -> AsyncGenerator[Channel, None]:
    """Open a server in this process or over a registered transport."""
    if _is_sdk_server(config):
        async with (await _sdk(config)).in_process_channel(config.server) as channel:
            yield channel
        return
    async with _transport(config) as opened:
        if isinstance(opened, Channel):
            yield opened
        else:
            yield (await _sdk(config)).StreamsChannel(*opened)


def _transport(config: ServerConfig) -> AbstractAsyncContextManager[Any]:
    if config.transport == "inprocess":
        return config.server
    factory = _factories.get(config.transport)
    if factory is None:
        raise ConfigError(
            f"transport {config.transport!r} is not registered; call register_transport first",
            server=config.name,
            field="transport",
        )
    return factory(config)


def _is_sdk_server(config: ServerConfig) -> bool:
    """Return whether a server in this process is an object of the SDK, or a wrapper of one: it cannot be entered."""
    if config.transport != "inprocess":
        return False
    return {"__aenter__", "open_wire"}.isdisjoint(dir(config.server))


async def load_sdk(config: ServerConfig, report: Report) -> None:
    """Import the SDK where a server needs it, so that the server is not charged for the time.

    On a busy machine that takes seconds.

    Raises:
        ConfigError: It is not installed.
    """
    if _is_sdk_server(config):
        with report.step("load the SDK"):
            await _sdk(config)


async def _sdk(config: ServerConfig) -> Any:
    try:
        # Imported in a thread: it takes most of a second, and other servers must not wait for it.
        return await anyio.to_thread.run_sync(importlib.import_module, _SDK, abandon_on_cancel=True)
    except ImportError as exc:
        raise ConfigError(
            f"its server object or streams need the official SDK ({exc}); run `pip install 'toolweave[sdk]'`",
            server=config.name,
        ) from exc


def _http_opener(attempt: ConnectPlan) -> Any:
    if attempt.transport == "sse":  # only the one in use is imported
        from toolweave.connect._wire.http_sse import sse_wire

        return sse_wire
    from toolweave.connect._wire.http import http_wire

    return http_wire


def _http_settings(config: ServerConfig) -> HttpSettings:
    if config.caution and config.source is None:  # the reader of a file has reported it
        _log.warning("server %r: %s", config.name, config.caution)
    credentials = Credentials(config)
    return HttpSettings(
        url=config.url,
        headers=credentials.source(),
        hook=hook_of(config),
        flow=flow_of(config),
        connect_seconds=config.connect_silence,
        max_connections=config.max_connections or MAX_CONNECTIONS,
        max_bytes=config.max_message_bytes or MAX_MESSAGE_BYTES,
        remember=credentials.remember,
        redact=credentials.redact,
    )


def _wants_sse(config: ServerConfig, attempt: ConnectPlan, exc: ProtocolError) -> bool:
    if attempt.transport != "http" or config.legacy_sse != "auto":
        return False
    return object_or_empty(exc.data).get("http_status") in _SSE_STATUSES
