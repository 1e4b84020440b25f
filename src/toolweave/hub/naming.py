"""Exposed names for the tools of many servers: pure, in the order of the config (DESIGN decision 5).

Identity is the pair (server key, tool name). A collision never costs more than its own tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from toolweave.config import ServerConfig
from toolweave.tools.names import expose, free_name
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import ToolSnapshot

__all__ = ["Named", "name_tools"]


@dataclass(slots=True, kw_only=True)
class Named:
    """The tools of all servers under their exposed names.

    Attributes:
        specs: In the order of the servers, and of each server's own list.
        origins: For each exposed name, the server and the tool's name in that server's own snapshot.
        conflicts: Per server, the names that were taken and what became of them.
        refused: Servers whose policy is `on_conflict="error"` and that had a conflict: the first such name.
    """

    specs: list[ToolSpec] = field(default_factory=list[ToolSpec])
    origins: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    conflicts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    refused: dict[str, str] = field(default_factory=dict[str, str])


def name_tools(servers: Iterable[tuple[ServerConfig, ToolSnapshot]]) -> Named:
    """Name the tools of many servers (requirements R40, C1, C20).

    Servers that come first keep their names, so adding a server never renames another's tools.
    """
    named = Named()
    for config, snapshot in servers:
        added = _of_server(config, snapshot, named)
        for name, spec in added.items():
            named.specs.append(replace(spec, name=name))
            named.origins[name] = (config.name, spec.name)
    return named


def _of_server(config: ServerConfig, snapshot: ToolSnapshot, named: Named) -> dict[str, ToolSpec]:
    added: dict[str, ToolSpec] = {}
    for spec in snapshot:
        name = expose(config.name, spec.original_name, config.tool_prefix)
        if name in named.origins or name in added:
            conflicts = named.conflicts.setdefault(config.name, [])
            if config.on_conflict == "error":
                named.refused[config.name] = name
                named.conflicts[config.name] = [f"all its tools are left out: the name {name!r} is taken"]
                return {}
            if config.on_conflict == "skip":
                conflicts.append(f"tool {spec.original_name!r} left out: the name {name!r} is taken")
                continue
            wanted, name = name, free_name(name, config.name, named.origins.keys() | added.keys())
            conflicts.append(f"tool {spec.original_name!r} is named {name!r}: the name {wanted!r} is taken")
        added[name] = spec
    return added
