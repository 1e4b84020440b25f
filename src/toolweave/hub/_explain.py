"""Explanations of single tools: the server of each, why it is or is not offered, and the changes made to it.

Reads what the connections know already; asks no server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from toolweave._value import Value
from toolweave.connect import McpConnection
from toolweave.hub._hub import Hub
from toolweave.tools import AppliedRule, ToolSpec, aliases, expose
from toolweave.tools.selection import own_names


class ToolExplanation(Value, frozen=True, kw_only=True):
    """One tool of a server, and its way to the callers.

    Attributes:
        server: The server.
        tool: The server's own name of the tool.
        name: The name under which it is offered; None where it is not.
        reason: The reason why it is not offered; `""` where it is.
        spec: Its definition as it is offered, or None.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"spec"})
    server: str
    tool: str
    name: str | None = None
    reason: str = ""
    spec: ToolSpec | None = None

    @property
    def rules(self) -> tuple[AppliedRule, ...]:
        """The rules that shaped it, in their order."""
        if self.spec is None:
            return ()
        return rules_of(self.spec)


def rules_of(spec: ToolSpec) -> tuple[AppliedRule, ...]:
    """Return the rules that shaped a definition, in their order."""
    found: list[AppliedRule] = []
    while spec.shape is not None:
        found.append(spec.shape)
        spec = spec.shape.before
    return tuple(reversed(found))


def explain_tool(hub: Hub, name: str) -> tuple[ToolExplanation, ...]:
    """Return the explanations of the tools that a name may mean, offered ones first; empty if there are none.

    Args:
        hub: The servers, whose lists were read.
        name: An exposed name, one that a tool would have without rules, `server:tool`, or a tool's own name.
    """
    exact = hub.snapshot().find(name)
    found: list[ToolExplanation] = []
    for client in hub.clients.values():
        found += [one for one in _of_server(hub, client) if _means(client, one, name)]
    if exact is None:
        # the offered tools have an exposed name
        return tuple(sorted(found, key=lambda one: one.name is None))
    # The tool that a call by this name would use is the first one; it may be of no server, such as a local function.
    return (_offered(exact), *filter(lambda one: one.spec is not exact, found))


def _of_server(hub: Hub, client: McpConnection) -> Iterator[ToolExplanation]:
    server = client.name
    offered = {spec.original_name: spec for spec in hub.snapshot() if spec.server == server}
    yield from map(_offered, offered.values())
    listed = [spec.original_name for spec in client.snapshot() if spec.original_name not in offered]
    reasons = {tool: _not_named(hub, server, tool) for tool in listed}
    reasons |= client.excluded_tools
    reasons |= client.withheld
    reasons |= _excluded_by_problem(client.problems)
    for one in client.skipped_by_server:
        if one.part == "tool" and one.name:
            reasons[one.name] = f"its server leaves it out: {one.reason}"
    for tool, reason in reasons.items():
        if tool not in offered:
            yield ToolExplanation(server=server, tool=tool, reason=reason)


def _offered(spec: ToolSpec) -> ToolExplanation:
    return ToolExplanation(server=spec.server or "", tool=spec.original_name, name=spec.name, spec=spec)


def _means(client: McpConnection, one: ToolExplanation, name: str) -> bool:
    own = one.tool
    names = {own, expose(client.name, own, client.config.tool_prefix), *aliases(client.name, own)}
    if one.spec is not None:
        names |= {one.spec.name, *one.spec.aliases, *own_names(one.spec)}
    return name in names


def _not_named(hub: Hub, server: str, tool: str) -> str:
    """Return why a tool of a server's list is not one of the hub's."""
    error = hub.errors.get(server)
    if error is not None:
        return str(error)
    start = f"server {server!r}: tool {tool!r} left out"
    return next((one for one in hub.warnings if one.startswith(start)), f"server {server!r} is not ready")


def _excluded_by_problem(problems: Iterable[str]) -> dict[str, str]:
    """Return the entries of a server's list that could not be read, by their names."""
    found: dict[str, str] = {}
    for problem in problems:
        head, said, reason = problem.partition(" left out: ")
        if said and head.startswith("tool '"):
            found[head[len("tool '") : -1]] = f"its definition cannot be used: {reason}"
    return found
