"""The pages about servers: their states, the details of each, the config, and forms that change them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from weakref import WeakKeyDictionary

import msgspec

from toolweave._json_types import text_or_empty
from toolweave._text import counted
from toolweave.config._summary import summary_of
from toolweave.connect import ConnectionState, McpConnection, StateChanged, Step
from toolweave.errors import ConfigError, DuplicateToolError, ServerError
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._admin.status import GatewayStatus, UpstreamStatus
from toolweave.gateway._console.fleet_changes import outcome, report
from toolweave.gateway._console.fleet_rows import (
    PER_CALLER,
    ServerHere,
    ServersHere,
    read_replies,
    server_rows,
    summary_of_servers,
    tone_of,
)
from toolweave.gateway._console.forms import read_json
from toolweave.gateway._console.rendering import ConsolePages, as_json
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest
from toolweave.hub._hub import caller_servers
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json

_LOOK_SECONDS = 2


class ServerPages:
    """The pages about servers.

    Each change is made at all replicas of the gateway, and the servers of all are shown.

    Args:
        gateway: The gateway.
        pages: Renders them.
    """

    def __init__(self, gateway: ManagedGateway, pages: ConsolePages) -> None:
        self._gateway = gateway
        self._pages = pages
        self._since: WeakKeyDictionary[McpConnection, float] = WeakKeyDictionary()
        gateway.hub.on("state", self._noted)
        gateway.fleet.on("servers", self._servers_here)
        gateway.fleet.on("server", self._server_here)
        gateway.fleet.on("restart", self._restart_here)
        gateway.fleet.on("remove", self._remove_here)
        gateway.fleet.on("add", self._add_here)
        gateway.fleet.on("reload", self._reload_here)
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
        found, silent = read_replies(await self._gateway.fleet.look("servers", {}), ServersHere)
        rows = server_rows(found)
        replicas = {peer: content.gateway for peer, content in found.items()}
        problems = {peer: one.problem for peer, one in replicas.items() if one.problem is not None}
        return self._pages.live(
            asked,
            "servers.html",
            summary=summary_of_servers(rows, len(found) + len(silent)),
            seconds=_LOOK_SECONDS,
            state=self._status(),
            needs_confirmation=any(one.needs_confirmation for one in replicas.values()),
            problems=problems,
            replicas=replicas,
            several=len(found) + len(silent) > 1,
            silent=silent,
            away=self._gateway.fleet.away,
            rows=rows,
        )

    async def server(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show one server, at this replica or at another."""
        name = asked.query.get("name", "")
        fleet = self._gateway.fleet
        replica = asked.query.get("replica", fleet.here.id)
        replies = await fleet.act("server", {"name": name}, replica=replica)
        found, silent = read_replies(replies, ServerDetails)
        if silent:
            raise ConsoleRefusal(502, "; ".join(f"{peer.name}: {reason}" for peer, reason in silent.items()))
        content = next(iter(found.values()), None)
        if content is None or content.state is None:
            raise ConsoleRefusal(404, f"Server {name!r} was not found.")
        status = content.state.status
        return self._pages.page(
            asked,
            "server.html",
            one=status,
            tone=tone_of(status),
            pid=content.state.pid,
            since=content.state.since,
            details=content.details,
            steps=content.steps,
            tools=content.tools,
            replica=next(iter(found)).name,
        )

    async def _servers_here(self, body: Json) -> Json:
        state = self._status()
        gateway = msgspec.structs.replace(state, upstreams=())
        return msgspec.to_builtins(ServersHere(gateway=gateway, servers=tuple(map(self._state_of, state.upstreams))))

    async def _server_here(self, body: Json) -> Json:
        name = text_or_empty(body.get("name"))
        client = self._gateway.hub.clients.get(name)
        status = next((one for one in self._status().upstreams if one.name == name), None)
        state = None if status is None else self._state_of(status)
        if client is None:
            found = ServerDetails(state=state)
        else:
            found = ServerDetails(
                state=state,
                details=_details(client),
                steps=tuple(client.report.steps),
                tools=tuple(one.name for one in self._gateway.hub.snapshot() if one.server == name),
            )
        return msgspec.to_builtins(found)

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
        await self._act(asked, "reload", {"confirmed": asked.form.get("confirmed") == "yes"})
        return ConsoleReply.see(asked.url("/"))

    async def _reload_here(self, body: Json) -> Json:
        change = await self._gateway.reload(confirmed=body.get("confirmed") is True)
        failed = list(change.failed.values())
        if change.error is not None:
            return outcome(problems=[f"The config was not changed: {change.error}", *failed])
        parts = {"added": change.added, "changed": change.changed, "removed": change.removed}
        differences = [f"{word}: {', '.join(names)}" for word, names in parts.items() if names]
        text = "The config was read again; " + ("; ".join(differences) or "nothing differs") + "."
        return outcome(text, problems=failed)

    async def restart(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Reconnect a server."""
        return await self._change(asked, "restart")

    async def remove(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Remove a server."""
        return await self._change(asked, "remove")

    async def _change(self, asked: ConsoleRequest, topic: str) -> ConsoleReply:
        name = asked.form.get("name", "")
        if not await self._act(asked, topic, {"name": name}):
            raise ConsoleRefusal(404, f"Server {name!r} was not found.")
        return ConsoleReply.see(asked.url("/"))

    async def _restart_here(self, body: Json) -> Json:
        return await _changed(body, self._gateway.restart, "was reconnected")

    async def _remove_here(self, body: Json) -> Json:
        return await _changed(body, self._gateway.remove, "was removed")

    async def add(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Add a server until it is removed or the gateway ends."""
        name = asked.form.get("name", "").strip()
        try:
            if not name or "/" in name:
                raise ValueError("the name of a server is expected, without '/'")
            await self._act(asked, "add", {"name": name, "entry": read_json(asked.form.get("entry", ""))})
        except ValueError as error:
            asked.signed_in.say(f"The server was not added: {error}", problem=True)
        return ConsoleReply.see(asked.url("/"))

    async def _add_here(self, body: Json) -> Json:
        name = text_or_empty(body.get("name"))
        try:
            found = await self._gateway.add(name, body.get("entry"))
        except (ConfigError, ServerError) as error:
            return outcome(problems=[f"The server was not added: {error}"])
        return outcome(f"Server {name!r} was added, with {counted(found.tools, 'tool')}.")

    async def _act(self, asked: ConsoleRequest, topic: str, body: Json) -> bool:
        """Change something at all replicas and report it; return whether any replica had its object."""
        return report(asked, await self._gateway.fleet.act(topic, body))

    def _status(self) -> GatewayStatus:
        """Return the state of the gateway, in which servers that are called as their callers lack nothing."""
        found = self._gateway.status()
        callers = caller_servers(self._gateway.hub).configs
        upstreams = (
            msgspec.structs.replace(one, state=PER_CALLER, error=None, hint=None) if one.name in callers else one
            for one in found.upstreams
        )
        return msgspec.structs.replace(found, upstreams=tuple(upstreams))

    def _state_of(self, status: UpstreamStatus) -> ServerHere:
        """Return a server of this process with its process."""
        client = self._gateway.hub.clients.get(status.name)
        if client is None:
            return ServerHere(status=status)
        process = client.report.process
        return ServerHere(
            status=status,
            pid=None if process is None or client.state in _OVER else process.pid,
            since=self._since.get(client),
        )


_OVER = frozenset({ConnectionState.FAILED, ConnectionState.CLOSED, ConnectionState.BACKOFF})


class ServerDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A server as its page shows it.

    Attributes:
        state: Its state, or None if there is no such server.
        details: Texts by their labels.
        steps: The steps of its last attempt to connect.
        tools: The names of its tools.
    """

    state: ServerHere | None
    details: dict[str, str] = {}
    steps: tuple[Step, ...] = ()
    tools: tuple[str, ...] = ()


async def _changed(body: Json, act: Callable[[str], Awaitable[object]], done: str) -> Json:
    """Change the server that a request names."""
    name = text_or_empty(body.get("name"))
    try:
        await act(name)
    except KeyError:
        return outcome()
    except (ServerError, DuplicateToolError) as error:
        return outcome(problems=[str(error)])
    return outcome(f"Server {name!r} {done}.")


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
