"""Views of a hub for virtual servers: fewer tools, prompts and resources, and tools under other names.

A view holds no connection: all virtual servers use those of the one hub, and follow its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import anyio

from toolweave.gateway._admin.status import VirtualStatus
from toolweave.gateway._config.config import VirtualServer
from toolweave.gateway._gateway import Gateway
from toolweave.gateway._parts import CallerView
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json, OfferKind, may_use
from toolweave.tools import Toolset, ToolSnapshot, ToolSpec, filtered, renamed
from toolweave.tools.selection import fits, names_of


def virtual_tools(tools: Toolset, view: VirtualServer) -> Toolset:
    """Return the tools of a virtual server, a live view of those of the gateway."""
    chosen: Toolset = filtered(tools, predicate=lambda spec: _offers(view, spec))
    if view.rename or view.prefix:
        chosen = renamed(chosen, partial(_name_of, view))
    if not view.shape:
        return chosen
    from toolweave.definitions import ShapedToolset  # for views with rules

    return ShapedToolset(chosen, view.shape, where=f"gateway.virtual.{view.name}.shape")


def _name_of(view: VirtualServer, spec: ToolSpec) -> str:
    given = next((view.rename[name] for name in names_of(spec) if name in view.rename), None)
    if given is None:
        return f"{view.prefix}{spec.name}"
    return given


class ViewedTool(NamedTuple):
    """A tool of the gateway as a virtual server has it.

    Attributes:
        name: Its name there, or None where it is not offered.
        reason: The reason why it is not, or `""`.
        spec: Its definition there.
    """

    name: str | None
    reason: str = ""
    spec: ToolSpec | None = None


def explain_view(view: VirtualServer, tools: Toolset, spec: ToolSpec) -> ViewedTool:
    """Return the tool as a virtual server shows it, or the reason why it does not."""
    if view.servers and spec.server not in view.servers:
        return ViewedTool(None, "its server is not among 'servers'")
    if not _offers(view, spec):
        return ViewedTool(None, "'include' does not name it" if view.include else "'exclude' names it")
    shown = virtual_tools(tools, view)
    for one in shown.snapshot():
        if (one.server, one.original_name) == (spec.server, spec.original_name):
            return ViewedTool(one.name, spec=one)
    hidden: Mapping[str, str] = getattr(shown, "hidden", {})
    return ViewedTool(None, next((reason for name, reason in hidden.items() if name.endswith(spec.name)), "a rule"))


def view_warnings(view: VirtualServer, tools: Iterable[ToolSpec]) -> list[str]:
    """Return the warnings about a view: entries that match no tool, and names that two tools would have."""
    specs = [spec for spec in tools if not view.servers or spec.server in view.servers]
    where = f"gateway.virtual.{view.name}"
    found = list[str]()
    for field, names in (("include", view.include), ("exclude", view.exclude), ("rename", view.rename)):
        found += [
            f"{where}.{field}: {name!r} is not a tool of its servers"
            for name in names
            if not any(_any([name], names_of(spec)) for spec in specs)
        ]
    wanted: dict[str, ToolSpec] = {}
    for spec in specs:
        if _offers(view, spec):
            name = _name_of(view, spec)
            other = wanted.setdefault(name, spec)
            if other is not spec:
                found.append(f"{where}: {other.name!r} and {spec.name!r} would both be {name!r}; one gets another name")
    return found


def caller_view(view: VirtualServer) -> CallerView:
    """Return a virtual server's view of the servers that are called with callers' credentials."""

    def serves(server: str) -> bool:
        return not view.servers or server in view.servers

    return CallerView(partial(virtual_tools, view=view), serves, view.prefix)


class ViewMiddleware:
    """Restricts the prompts and resources of a virtual server to those of its servers; its tools are a view already.

    Args:
        view: The virtual server.
    """

    reads_results = False
    sees_plain_calls = False  # tools are those of the view already

    def __init__(self, view: VirtualServer) -> None:
        self._servers = frozenset(view.servers)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request for a client that may use these servers only."""
        may = request.client.may
        servers = self._servers

        def allowed(kind: OfferKind, name: str, scopes: Iterable[str] = (), server: str | None = None, /) -> bool:
            if kind != "tools" and server not in servers:
                return False
            return may_use(may, kind, name, scopes, server)

        return await call_next(request.replace(client=request.client.limited(allowed)))


def _offers(view: VirtualServer, spec: ToolSpec) -> bool:
    if view.servers and spec.server not in view.servers:
        return False
    names = names_of(spec)
    if view.include:
        return _any(view.include, names)
    return not _any(view.exclude, names)


def _any(patterns: Iterable[str], names: Iterable[str]) -> bool:
    return any(fits(patterns, name) for name in names)


class Mount:
    """A virtual server that is being served, until `ended` is set."""

    def __init__(self, view: VirtualServer, server: Gateway, tools: Toolset) -> None:
        self.view = view
        self.server = server
        self.tools = tools
        self.ended = anyio.Event()
        self._checked: ToolSnapshot | None = None
        self._warnings: list[str] = []

    def status(self, name: str, path: str) -> VirtualStatus:
        """Return its state, under its name and path."""
        return VirtualStatus(name=name, path=path, title=self.view.title, tools=len(self.tools.snapshot()))

    def warnings(self, tools: ToolSnapshot) -> list[str]:
        """Return the warnings about the view, found once for each snapshot of the gateway's tools."""
        if tools is not self._checked:
            self._checked, self._warnings = tools, view_warnings(self.view, tools)
        return self._warnings
