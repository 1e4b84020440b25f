"""The pages about servers: their states, the details of each, the config, and forms that change them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from toolweave._text import counted
from toolweave.config._summary import summary_of
from toolweave.connect import ConnectionState, McpConnection
from toolweave.connect._state import StateChanged
from toolweave.errors import ConfigError, DuplicateToolError, ServerError
from toolweave.gateway._console.forms import read_json
from toolweave.gateway._console.rendering import ConsolePages, as_json
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest
from toolweave.gateway._managed import ManagedGateway
from toolweave.gateway._status import GatewayStatus, UpstreamStatus
from toolweave.hub._hub import caller_servers
from toolweave.serve._http.asgi import Receive

_LOOK_SECONDS = 2
_PER_CALLER = "per caller"
_GOOD = frozenset({ConnectionState.READY.value, _PER_CALLER})
_BAD = frozenset({one.value for one in ConnectionState if one.value not in ("ready", "idle", "connecting", "degraded")})


class ServerPages:
    """The pages about servers.

    Args:
        gateway: The gateway.
        pages: Renders them.
    """

    def __init__(self, gateway: ManagedGateway, pages: ConsolePages) -> None:
        self._gateway = gateway
        self._pages = pages
        self._since: WeakKeyDictionary[McpConnection, float] = WeakKeyDictionary()
        gateway.hub.on("state", self._noted)
        self.shown: Mapping[str, ConsolePage] = {"/": self.servers, "/server": self.server, "/config": self.config}
        self.changing: Mapping[str, ConsolePage] = {
            "/reload": self.reload,
            "/restart": self.restart,
            "/remove": self.remove,
            "/add": self.add,
        }

    def _noted(self, connection: McpConnection, change: StateChanged) -> None:
        self._since[connection] = time.time()

    async def servers(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show all servers, as they are now."""
        state = self._status()
        rows = [{"one": one, **self._process(one.name), "tone": _tone(one)} for one in state.upstreams]
        return self._pages.live(
            asked, "servers.html", summary=_summary(state), seconds=_LOOK_SECONDS, state=state, rows=rows
        )

    async def server(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show one server."""
        name = asked.query.get("name", "")
        status = next((one for one in self._status().upstreams if one.name == name), None)
        if status is None:
            raise ConsoleRefusal(404, f"Server {name!r} was not found.")
        client = self._gateway.hub.clients.get(name)
        return self._pages.page(
            asked,
            "server.html",
            one=status,
            tone=_tone(status),
            **self._process(name),
            details=_details(client),
            steps=[] if client is None else client.report.steps,
            tools=[] if client is None else [one for one in self._gateway.hub.snapshot() if one.server == name],
        )

    async def config(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the config: its problems, and each server with its secrets masked."""
        config = self._gateway.config.servers
        return self._pages.page(
            asked,
            "config.html",
            state=self._status(),
            files=[str(file.path) for file in config.files],
            servers={name: summary_of(one) for name, one in config.servers.items()},
            broken={name: str(error) for name, error in config.errors.items()},
            disabled=sorted(config.disabled),
        )

    async def reload(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Read the config again."""
        confirmed = asked.form.get("confirmed") == "yes"
        session = asked.signed_in
        change = await self._gateway.reload(confirmed=confirmed)
        if change.error is not None:
            session.say(f"The config was not changed: {change.error}", problem=True)
        else:
            parts = {"added": change.added, "changed": change.changed, "removed": change.removed}
            differences = [f"{word}: {', '.join(names)}" for word, names in parts.items() if names]
            session.say("The config was read again; " + ("; ".join(differences) or "nothing differs") + ".")
        for text in change.failed.values():
            session.say(text, problem=True)
        return ConsoleReply.see(asked.url("/"))

    async def restart(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Reconnect a server."""
        return await self._done(asked, self._gateway.restart, "was reconnected")

    async def remove(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Remove a server."""
        return await self._done(asked, self._gateway.remove, "was removed")

    async def _done(self, asked: ConsoleRequest, act: Callable[[str], Awaitable[object]], done: str) -> ConsoleReply:
        name = asked.form.get("name", "")
        try:
            await act(name)
            asked.signed_in.say(f"Server {name!r} {done}.")
        except KeyError:
            raise ConsoleRefusal(404, f"Server {name!r} was not found.") from None
        except (ServerError, DuplicateToolError) as error:
            asked.signed_in.say(str(error), problem=True)
        return ConsoleReply.see(asked.url("/"))

    async def add(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Add a server until it is removed or the gateway ends."""
        name = asked.form.get("name", "").strip()
        entry = asked.form.get("entry", "")
        try:
            if not name or "/" in name:
                raise ValueError("the name of a server is expected, without '/'")
            found = await self._gateway.add(name, read_json(entry))
            asked.signed_in.say(f"Server {name!r} was added, with {counted(found.tools, 'tool')}.")
        except (ValueError, ConfigError, ServerError) as error:
            asked.signed_in.say(f"The server was not added: {error}", problem=True)
        return ConsoleReply.see(asked.url("/"))

    def _status(self) -> GatewayStatus:
        """Return the state of the gateway, in which servers that are called as their callers lack nothing."""
        found = self._gateway.status()
        callers = caller_servers(self._gateway.hub).configs
        upstreams = (
            msgspec.structs.replace(one, state=_PER_CALLER, error=None, hint=None) if one.name in callers else one
            for one in found.upstreams
        )
        return msgspec.structs.replace(found, upstreams=tuple(upstreams))

    def _process(self, name: str) -> dict[str, Any]:
        client = self._gateway.hub.clients.get(name)
        process = None if client is None else client.report.process
        return {
            "pid": None if process is None or client is None or client.state in _OVER else process.pid,
            "since": None if client is None else self._since.get(client),
        }


_OVER = frozenset({ConnectionState.FAILED, ConnectionState.CLOSED, ConnectionState.BACKOFF})


def _tone(one: UpstreamStatus) -> str:
    if one.state in _GOOD:
        return "good"
    if one.state in _BAD:
        return "bad"
    return "busy"


def _summary(status: GatewayStatus) -> str:
    ready = sum(one.state in _GOOD for one in status.upstreams)
    bad = [one.name for one in status.upstreams if one.state in _BAD]
    summary = f"{ready} of {counted(len(status.upstreams), 'server')} ready"
    return summary + (f"; not ready: {', '.join(bad)}" if bad else "")


def _details(client: McpConnection | None) -> dict[str, str]:
    """Return the details of a server, by their labels."""
    if client is None:
        return {}
    found = {
        "It calls itself": as_json(client.server_info),
        "Its capabilities": as_json(client.capabilities),
        "Its instructions for models": client.instructions or "",
        "Problems": "\n".join(client.problems),
        "Its standard error": client.stderr_tail,
    }
    return {name: client.config.redact(text) for name, text in found.items() if text and text != "{}"}
