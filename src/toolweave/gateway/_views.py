"""Views of a hub for virtual servers: fewer tools, prompts and resources, and tools under other names.

A view holds no connection: all virtual servers use those of the one hub, and follow its changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from toolweave.gateway._config import VirtualServer
from toolweave.serve._request import CallNext, Json, OfferKind, Request
from toolweave.tools import Toolset, ToolSpec, filtered, renamed

__all__ = ["ViewMiddleware", "virtual_tools"]


def virtual_tools(tools: Toolset, view: VirtualServer) -> Toolset:
    """Return the tools of a virtual server, a live view of those of the gateway."""
    chosen = filtered(tools, predicate=lambda spec: _offers(view, spec))
    if not view.rename and not view.prefix:
        return chosen

    def name_of(spec: ToolSpec) -> str:
        given = next((view.rename[name] for name in _names(spec) if name in view.rename), None)
        return f"{view.prefix}{spec.name}" if given is None else given

    return renamed(chosen, name_of)


class ViewMiddleware:
    """Restricts the prompts and resources of a virtual server to those of its servers; its tools are a view already.

    Args:
        view: The virtual server.
    """

    def __init__(self, view: VirtualServer) -> None:
        self._servers = frozenset(view.servers)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request for a client that may use these servers only."""
        may, servers = request.client.may, self._servers

        def allowed(kind: OfferKind, name: str, scopes: Iterable[str] = (), server: str | None = None, /) -> bool:
            if kind != "tools" and server not in servers:
                return False
            return may is None or may(kind, name, scopes, server)

        return await call_next(request.replace(client=replace(request.client, may=allowed)))


def _offers(view: VirtualServer, spec: ToolSpec) -> bool:
    if view.servers and spec.server not in view.servers:
        return False
    names = _names(spec)
    if view.include:
        return _any(view.include, names)
    return not _any(view.exclude, names)


def _any(patterns: Iterable[str], names: Iterable[str]) -> bool:
    known = tuple(names)
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in known)


def _names(spec: ToolSpec) -> tuple[str, ...]:
    """Return the names by which a config may mean a tool: that in the gateway, the tool's own, `server:tool`."""
    return (spec.name, spec.original_name, f"{spec.server}:{spec.original_name}", f"{spec.server}/{spec.original_name}")
