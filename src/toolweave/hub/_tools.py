"""The tools of all servers of a hub under their exposed names: one snapshot, and the way back to each server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from toolweave._json_types import only_members
from toolweave._text import with_sentence
from toolweave.connect import McpConnection
from toolweave.errors import ErrorKind, ToolError
from toolweave.hub._naming import NameConflict, NamedServer, name_server
from toolweave.tools import ToolsChanged, ToolSnapshot, ToolSpec, aliases
from toolweave.tools.names import AssignedNames, down_servers, unknown_tool


class NamesUpdate(msgspec.Struct, frozen=True):
    """The effect of an update of a hub's tools.

    Attributes:
        servers: The servers that were named anew.
        change: The change of the tools, or None if there were no tools and still are not.
    """

    servers: Mapping[str, NamedServer]
    change: ToolsChanged | None


class HubTools:
    """The named tools of a hub's servers.

    Args:
        clients: The hub's connections by server name, in the order of the tools; a live view.
        prefixes: All servers there ever were; see `name_server`.
    """

    def __init__(self, clients: Mapping[str, McpConnection], prefixes: Collection[str]) -> None:
        self._clients = clients
        self._prefixes = prefixes
        self._given = AssignedNames()
        self._named: dict[str, NamedServer] = {}
        self._routes: dict[str, tuple[str, str]] = {}
        # None: changed, and made again on request.
        self._snapshot: ToolSnapshot | None = ToolSnapshot()
        self._version = 0

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that have been named."""
        return tuple(self._named)

    @property
    def conflicts(self) -> Iterator[NameConflict]:
        """The conflicts about the names of tools."""
        return (conflict for named in self._named.values() for conflict in named.conflicts)

    def snapshot(self) -> ToolSnapshot:
        """Return the tools of all servers, in the order of the servers."""
        if self._snapshot is None:
            specs: list[ToolSpec] = []
            for named in only_members(self._named, self._clients).values():
                specs += named.specs.values()
            self._snapshot = ToolSnapshot(specs, version=self._version)
        return self._snapshot

    def route(self, name: str) -> tuple[str, str]:
        """Return the server of a tool by its exposed name, and the tool's name there."""
        return self._routes[name]

    def named(self, server: str) -> NamedServer:
        """Return the tools of a server under their exposed names, as of the last update."""
        return self._named.get(server, NamedServer())

    def named_like(self, client: McpConnection, before: NamedServer) -> NamedServer:
        """Name the tools of another connection to a server as its own are named.

        A tool that the server's own connection lacks gets a name that stays its own, as any tool does.

        Args:
            client: The other connection.
            before: The previous return value for it.
        """
        snapshot = client.snapshot()
        own = self.named(client.name)
        if before.seen is snapshot:
            return before
        known = {spec.original_name for spec in own.seen}
        return name_server(client.config, snapshot, self._given, before, self._prefixes, others=known)

    def scanned(self, server: str) -> Iterable[ToolSpec]:
        """Return the definitions of a server that are compared with those of others: none where its scan is off."""
        client = self._clients.get(server)
        named = self._named.get(server)
        if client is None or named is None:
            return ()
        if client.config.scan:
            return named.specs.values()
        return ()

    def update(self, servers: Iterable[str]) -> NamesUpdate:
        """Name the tools of these servers from their snapshots; the other servers' stay as they are."""
        old: dict[str, ToolSpec] = {}
        new: dict[str, ToolSpec] = {}
        renamed: dict[str, NamedServer] = {}
        for server in servers:
            before, after = self._update(server)
            if before is not after:
                old |= before.specs
                new |= after.specs
                renamed[server] = after
                self._snapshot = None
        if not old and not new:
            return NamesUpdate(renamed, None)
        self._version += 1
        return NamesUpdate(renamed, ToolsChanged.of(old, new, version=self._version))

    def _update(self, server: str) -> tuple[NamedServer, NamedServer]:
        """Return a server's named tools before and after an update; the same object twice when nothing changed."""
        client = self._clients.get(server)
        before = self._named.get(server, NamedServer())
        if client is not None and before.seen is client.snapshot():
            return before, before
        after = NamedServer()
        if client is not None:
            after = name_server(client.config, client.snapshot(), self._given, before, self._prefixes)
            self._named[server] = after
        else:
            # Its names stay given: see `_naming`.
            self._named.pop(server, None)
        for name in before.inner:
            self._routes.pop(name, None)
        for name, inner in after.inner.items():
            self._routes[name] = (server, inner)
        return before, after


def server_of(name: str, servers: Collection[str], prefixes: Mapping[str, str]) -> str | None:
    """Return the server whose tools have names like this one, or None.

    Args:
        name: The name that was called.
        servers: The servers that may have it.
        prefixes: The prefix of each server's tool names.
    """
    # the longest name first: `git_hub_list` is of the server `git_hub`, not of `git`
    for server in sorted(servers, key=len, reverse=True):
        prefix = prefixes.get(server, f"{server}_")
        heads = aliases(server, "")
        if prefix:
            heads = (*heads, prefix)
        if name.startswith(heads):
            return server
    return None


def missing_tool(
    name: str,
    *,
    known: Iterable[str],
    starting: Collection[str],
    errors: Mapping[str, Exception],
    prefixes: Mapping[str, str],
) -> ToolError:
    """Return the error for a name that no tool has.

    Args:
        name: The name that was called.
        known: The names there are.
        starting: The servers that are still connecting.
        errors: The servers that failed, and why.
        prefixes: The prefix of each server's tool names.
    """
    server = server_of(name, {*starting, *errors}, prefixes)
    if server is None:
        return ToolError(with_sentence(unknown_tool(name, known), down_servers(errors)), kind=ErrorKind.NOT_FOUND)
    if server in starting:
        text = f"MCP error: server {server!r} is still connecting"
        return ToolError(text, kind=ErrorKind.NOT_SENT, retryable=True)
    return ToolError(f"MCP error: {errors[server]}", kind=getattr(errors[server], "kind", ErrorKind.NOT_FOUND))
