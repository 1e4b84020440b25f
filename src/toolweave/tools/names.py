"""Names of tools: exposed names, aliases, and names that every LLM API accepts.

Pure values and functions of names. A tool's identity is the pair (server, original name); no name depends on
the order in which tools came.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from toolweave._text import alternatives
from toolweave.errors import shortened
from toolweave.schema.problems import nearest
from toolweave.tools.spec import ToolSpec

__all__ = [
    "ANY_TOOL",
    "MAX_WIRE_NAME",
    "AssignedNames",
    "NameMap",
    "ToolName",
    "aliases",
    "down_servers",
    "expose",
    "free_name",
    "given_names",
    "selected",
    "unknown_tool",
    "unmatched",
]

MAX_WIRE_NAME = 64
"""Maximum length of a tool name that OpenAI, Anthropic, Gemini and Bedrock all accept."""

ANY_TOOL = "*"
"""Stands for every tool in a filter of names."""

_MAX_SHOWN = 200
_MAX_LISTED = 10
_MAX_DOWN = 3
_MAX_REASON = 300
_ONE_BY_ONE = 16
"""Numeric suffixes up to this one are tried one after the other."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_FIRST = re.compile(r"[A-Za-z_]")


class ToolName(NamedTuple):
    """A tool's identity and its exposed name."""

    server: str | None
    tool: str
    exposed: str


def expose(server: str, tool: str, prefix: str | None = None) -> str:
    """Return the exposed name of a server's tool: `server_tool`.

    A `prefix` is put before the tool's name as it is: `"fs_"` gives
    `fs_read_file`, `""` the bare name.
    """
    if prefix is None:
        return f"{server}_{tool}"
    return f"{prefix}{tool}"


def aliases(server: str, tool: str) -> tuple[str, str]:
    """Return the aliases of a server's tool: `server:tool` and `server/tool`."""
    return f"{server}:{tool}", f"{server}/{tool}"


def selected(name: str, *, include: Collection[str], exclude: Collection[str], server: str | None = None) -> bool:
    """Return whether a tool passes a filter of original names.

    `include` is a whitelist and wins over `exclude`; an empty list filters nothing. Both may also
    name the tool as `server:tool` or `server/tool`, and every tool as `*`.
    """
    if server is None:
        names = (name, ANY_TOOL)
    else:
        names = (name, *aliases(server, name), ANY_TOOL)
    if include:
        return not frozenset(names).isdisjoint(include)
    return frozenset(names).isdisjoint(exclude)


def given_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a filter, each once; a string is one name."""
    if isinstance(names, str):
        return (names,)
    return tuple(dict.fromkeys(names))


def unmatched(filters: Iterable[str], names: Iterable[str], *, server: str | None = None) -> list[str]:
    """Return the error texts for the names of a filter that are the names of no tool, in alphabetical order."""
    known = list(names)
    accepted = {ANY_TOOL, *known}
    if server is not None:
        for name in known:
            accepted.update(aliases(server, name))
    return [unknown_tool(name, known) for name in sorted({*filters} - accepted)]


def free_name(name: str, server: str | None, taken: Container[str]) -> str:
    """Return `name`, or the nearest name to it that is not taken: `server_name`, then `name_2`, `name_3`, ...

    Of many taken names only a few are tried, so a gap between high numbers may be missed.
    """
    if name not in taken:
        return name
    if server is not None and (qualified := expose(server, name)) not in taken:
        return qualified
    # A galloping search: with thousands of equal names, counting up for each would be quadratic. The price is that a
    # gap may be missed, which costs a larger number and no more.
    # the highest that is known to be taken
    last = 1
    step = 1
    number = 2
    while f"{name}_{number}" in taken:
        step = step * 2 if number > _ONE_BY_ONE else 1
        last = number
        number = number + step
    while number - last > 1:
        middle = (last + number) // 2
        if f"{name}_{middle}" in taken:
            last = middle
        else:
            number = middle
    return f"{name}_{number}"


class AssignedNames:
    """Stable assignment of names: a name stays with its first holder for the lifetime of this object.

    A later holder that wants a taken name gets another one, and gets that one again whenever it comes back: names never
    move, neither while their holder is gone nor when the order changes. A holder is a pair of a source, such as a
    server's key, and a name within it.

    Args:
        max_removed: Names that each source keeps for tools it no longer offers; the oldest beyond these become free, so
            that a source that changes its names all the time does not fill the memory.
    """

    __slots__ = ("_by_source", "_holders", "_max_removed", "_others")

    def __init__(self, max_removed: int = 10_000) -> None:
        self._max_removed = max_removed
        self._holders: dict[str, tuple[Hashable, str]] = {}
        self._by_source: dict[Hashable, dict[str, str]] = {}
        self._others: dict[tuple[Hashable, str, str], str] = {}

    def holder(self, name: str) -> tuple[Hashable, str] | None:
        """Return the holder of a name, a source and an inner name, or None."""
        return self._holders.get(name)

    def names_of(self, source: Hashable) -> Mapping[str, str]:
        """Return the inner names of a source by the names they were given; a live view."""
        return self._by_source.get(source, {})

    def give(self, who: tuple[Hashable, str], wanted: str, server: str | None) -> str:
        """Return the name of a holder that wants `wanted`; where that is taken, it is prefixed by `server`."""
        if self._others:
            name = self._others.get((*who, wanted), wanted)
        else:
            name = wanted
        # One dict operation to take a free name or to find one's own, which is nearly every case.
        if self._holders.setdefault(name, who) != who:
            # Noted under the wish: asked again after a restart, the same tool gets the same second choice, whatever is
            # free by then.
            name = self._others[*who, wanted] = free_name(wanted, server, self._holders)
            self._holders[name] = who
        self._by_source.setdefault(who[0], {})[name] = who[1]
        return name

    def forget(self, source: Hashable, present: Collection[str]) -> None:
        """Free the oldest names that a source no longer offers, if there are more than it may keep."""
        names = self._by_source.get(source, {})
        if len(names) <= len(present) + self._max_removed:
            return
        gone = [name for name, inner in names.items() if inner not in present]
        # Down to half, so that a source at its bound does not pay this walk for every new name. Dicts keep their order:
        # the oldest first.
        dropped = set(gone[: len(gone) - self._max_removed // 2])
        for name in dropped:
            del names[name], self._holders[name]
        for key, name in tuple(self._others.items()):
            if key[0] == source and name in dropped:
                del self._others[key]


def unknown_tool(name: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown tool name, with the most similar known names."""
    names = list(known)
    near = nearest(name, names, cutoff=0.5)
    name = shortened(name, _MAX_SHOWN)
    if near:
        return f"no tool {name!r}; did you mean {alternatives(list(map(repr, near)))}?"
    if not names:
        return f"no tool {name!r}; there are no tools"
    some = [shortened(one, _MAX_SHOWN) for one in sorted(names)[:_MAX_LISTED]]
    if len(names) > _MAX_LISTED:
        some.append("...")
    return f"no tool {name!r}; there are {', '.join(some)}"


class NameMap:
    """Names for one request to an LLM: legal everywhere, one-to-one, reversible.

    A legal name is unchanged. An illegal one is sanitized; it gets a suffix of eight hex digits of
    the SHA-256 of its identity when it would collide, and always when it must be cut. The result
    depends on the set of tools alone, so it survives restarts and any order of servers.

    Attributes:
        wire_names: Exposed names to wire names.
    """

    __slots__ = ("_exposed", "wire_names")

    def __init__(self, tools: Iterable[ToolSpec | ToolName]) -> None:
        names = set(map(_tool_name, tools))
        times = Counter(name.exposed for name in names)
        repeated = [name for name in times if times[name] > 1]
        if repeated:
            raise ValueError(f"exposed names must be unique, {sorted(repeated)} are not; use `combined` or a prefix")
        self.wire_names: Mapping[str, str] = MappingProxyType(_assign_wire_names(names))
        self._exposed = {wire: exposed for exposed, wire in self.wire_names.items()}

    def wire(self, exposed: str) -> str:
        """Return the wire name of an exposed name.

        A name that is not in the map, such as one from an old conversation, is sanitized alone.
        """
        known = self.wire_names.get(exposed)
        if known is not None:
            return known
        legal = _sanitized(exposed)
        if len(legal) <= MAX_WIRE_NAME and legal not in self._exposed:
            return legal
        return _with_digest(legal, ToolName(None, exposed, exposed), 8)

    def exposed(self, wire: str) -> str | None:
        """Return the exposed name of a wire name, or None; an exposed name is returned as it is."""
        known = self._exposed.get(wire)
        if known is None and wire in self.wire_names:
            return wire
        return known

    def __len__(self) -> int:
        return len(self._exposed)

    def __repr__(self) -> str:
        return f"NameMap({dict(self.wire_names)!r})"


def _tool_name(tool: ToolSpec | ToolName) -> ToolName:
    if isinstance(tool, ToolName):
        return tool
    return ToolName(tool.server, tool.original_name, tool.name)


def _assign_wire_names(names: set[ToolName]) -> dict[str, str]:
    """Return the wire name of each exposed name, sorted by exposed name.

    If a sanitized name is too long, or several tools have it, digits of a hash of the tool's identity are appended. The
    result does not depend on an order: in each round, a name that several tools claim goes to no tool. A second round,
    with more digits, is needed only if a name with its digits is the whole name of another tool.
    """
    sanitized = {name: _sanitized(name.exposed) for name in names}
    claims = Counter(sanitized.values())
    assigned: dict[ToolName, str] = {}
    for name, wire in sanitized.items():
        # A name that is legal as it is wins over names that became the same when they were sanitized.
        is_unique = wire == name.exposed or claims[wire] == 1
        if is_unique and len(wire) <= MAX_WIRE_NAME:
            assigned[name] = wire
    pending = names - assigned.keys()
    digits = 8
    while pending:
        used = set(assigned.values())
        suffixed = {name: _with_digest(sanitized[name], name, digits) for name in pending}
        claims = Counter(suffixed.values())
        for name, wire in suffixed.items():
            is_unique = claims[wire] == 1 and wire not in used
            if is_unique:
                assigned[name] = wire
        pending -= assigned.keys()
        digits += 6
    return {name.exposed: assigned[name] for name in sorted(assigned, key=lambda name: name.exposed)}


def _sanitized(name: str) -> str:
    legal = _ILLEGAL.sub("_", name)
    if _FIRST.match(legal):
        return legal
    return f"_{legal}"


def _with_digest(legal: str, name: ToolName, digits: int) -> str:
    from hashlib import sha256  # most names need none

    identity = "\0".join((name.server or "", name.tool, name.exposed))
    digest = sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return f"{legal[: MAX_WIRE_NAME - digits - 1]}_{digest}"


def down_servers(errors: Mapping[str, Exception]) -> str:
    """Return the sentence behind the error text for an unknown tool: the servers that are down, and why they are."""
    if not errors:
        return ""
    reasons = [shortened(str(error).split("\n", 1)[0], _MAX_REASON) for error in errors.values()]
    more = "" if len(reasons) <= _MAX_DOWN else f"; and {len(reasons) - _MAX_DOWN} more"
    return f"It may be a tool of a server that is down: {'; '.join(reasons[:_MAX_DOWN])}{more}"
