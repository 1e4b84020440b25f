"""The servers of a hub that could not be reached: which tools may be theirs, and when they are tried again.

A server that never came up is taken out of the hub, so that nothing waits for it, and kept here until it is tried
again. In an endless hub, that of a service, its own connection tries on and it stays in the hub.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from toolweave.connect import ConnectionState, McpConnection
from toolweave.hub._caller_servers import CallerServers
from toolweave.hub._fan_out import for_each
from toolweave.hub._tools import server_of
from toolweave.tools.keep_trying import needs_person


class DownServers:
    """The servers of one hub that are down.

    Args:
        clients: The hub's connections by server name; a live view.
        errors: The servers that could not be used; a live view.
        prefixes: The prefixes of tools by server; a live view.
        callers: The servers that are called as callers, whose tools are not the hub's.
        settled: Waits until a connection that is tried again is usable or has failed.
        place: Puts a connection back into the hub.

    Attributes:
        given_up: The connections that are out of the hub, since they never came up.
        endless: Whether no server is given up.
    """

    def __init__(
        self,
        clients: Mapping[str, McpConnection],
        errors: Mapping[str, Exception],
        prefixes: Mapping[str, str],
        callers: CallerServers,
        *,
        settled: Callable[[McpConnection], Awaitable[None]],
        place: Callable[[McpConnection], None],
    ) -> None:
        self.given_up: dict[str, McpConnection] = {}
        self.endless = False
        self._clients = clients
        self._errors = errors
        self._prefixes = prefixes
        self._callers = callers
        self._settled = settled
        self._place = place

    @property
    def unlisted(self) -> Sequence[str]:
        """The servers whose tools are not known yet: they are starting, or could not be reached or asked so far."""
        listed = {
            name
            for name, client in self._clients.items()
            if client.state is ConnectionState.READY or client.snapshot().version
        }
        others = listed | self._callers.configs.keys()
        return [name for name in dict.fromkeys([*self._clients, *self._errors]) if name not in others]

    def owner(self, tool: str) -> str | None:
        """Return the server that may have a tool of this name, since its tools are not known yet; or None."""
        unlisted = self.unlisted
        unprefixed = (name for name in unlisted if not self._prefixes.get(name, name))
        return server_of(tool, unlisted, self._prefixes) or next(unprefixed, None)

    def reconnect(self, server: str, *, now: bool = False) -> None:
        """Try a server again soon, if its last attempt was 30 s ago or with `now`; returns at once."""
        client = self.given_up.get(server) or self._clients.get(server)
        if client is None:
            return
        client.start(now=now)
        if client.state is ConnectionState.CONNECTING and self.given_up.get(server) is client:
            del self.given_up[server]
            self._place(client)

    async def reach(self, tool: str) -> None:
        """Try the server again that may have a tool of this name, if it is down and its cool-down is over."""
        server = self.owner(tool)
        if server is not None and server in self._errors:
            self.reconnect(server)
            if server in self._clients:
                await self._settled(self._clients[server])

    async def retry(self, name: str | None) -> None:
        """Try the servers again that are down, or one of them; return when they are ready or have failed again."""
        down = [*self.given_up.values(), *(client for client in self._clients.values() if client.away)]
        chosen = [client for client in down if name in (None, client.name)]
        for client in chosen:
            self.reconnect(client.name, now=True)
        await for_each(chosen, self._settled)

    async def keep_trying(self) -> None:
        """Give no server up from now on, and try those again that were."""
        for client in (*self._clients.values(), *self.given_up.values()):
            await client.keep_trying()
        for name, client in list(self.given_up.items()):
            # Nobody has signed in meanwhile, and a wrong setting stays wrong.
            if not needs_person(client.error):
                self.reconnect(name, now=True)
