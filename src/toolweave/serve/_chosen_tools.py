"""The choice of a server's tools by `include` and `exclude`. Knows no request."""

from __future__ import annotations

from collections.abc import Collection

from toolweave.tools import Toolset, filtered
from toolweave.tools.names import ANY_TOOL, unknown_tool


def chosen_tools(
    toolset: Toolset, include: frozenset[str], exclude: frozenset[str], agents: Collection[str]
) -> Toolset:
    """Return the tools to offer, without those of agents, whose names may be in `exclude`.

    Raises:
        ValueError: A tool of this name is missing, and no toolset could add it later.
    """
    if not include and not exclude:
        return toolset
    snapshot = toolset.snapshot()
    # tools of servers come and go: `filtered` warns
    if all(spec.server is None for spec in snapshot):
        known = {name for spec in snapshot for name in (spec.name, spec.original_name, *spec.aliases)}
        # An empty list may still be filled by a toolset, and a wrong name is only found out with something to compare
        # it with.
        if known:
            _check_known("include", include, known)
        if known or agents:
            _check_known("exclude", exclude, {*known, *agents})
        exclude = exclude.difference({*agents} - known)
    return filtered(toolset, include, exclude)


def _check_known(field: str, names: frozenset[str], known: Collection[str]) -> None:
    for name in sorted(names.difference(known, {ANY_TOOL})):
        raise ValueError(f"{field}: {unknown_tool(name, known)}")
