"""Differences from the pins: definitions that are new, gone, changed or renamed, and a server that is another one.

Pure.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from toolweave._json_types import JsonObject, without_members
from toolweave._text import shortened, visible
from toolweave._value import Value
from toolweave.definitions._definition import (
    MEMBERS,
    NAME_MEMBERS,
    OFFER_PARTS,
    OfferedDefinitions,
    OfferPart,
    PinnedPart,
)
from toolweave.definitions._pins import PinnedDefinition, PinnedServer, PinnedTool, Pins, ServerIdentity, tool_hash
from toolweave.schema.problems import path_text
from toolweave.tools import ToolSpec

_NOUNS: Mapping[str, str] = {"template": "resource template"}
_MAX_LINES = 40
_MAX_LINE = 300
_MISSING = object()
_CHANGED_INSTRUCTIONS = "its instructions differ from the pinned ones"
_INSTRUCTIONS_TEXTS = {
    "added": "its instructions are not pinned",
    "removed": "its instructions are pinned and gone",
}


class PinChange(Value, frozen=True, kw_only=True):
    """One difference from the pins.

    Attributes:
        kind: `added`, `removed`, `changed` or `renamed` for a definition; `server` if the server is another one,
            `version` if only its version differs.
        server: The server.
        part: The part of the server that the definition is of.
        name: The definition's own name now: of a resource its URI, of a template its URI template; `""` for the server
            itself and for its instructions.
        fields: The members of the definition or of the identity that differ.
        before: As it was pinned, None for a new one.
        after: As it is, None for one that is gone.
    """

    kind: Literal["added", "removed", "changed", "renamed", "server", "version"]
    server: str
    part: PinnedPart = "tool"
    name: str = ""
    fields: tuple[str, ...] = ()
    before: JsonObject | None = None
    after: JsonObject | None = None

    @property
    def tool(self) -> str:
        """The tool's own name now; `""` if it is a difference of something else."""
        if self.part == "tool":
            return self.name
        return ""

    @property
    def text(self) -> str:
        """The difference in one line."""
        if self.part == "instructions":
            return _INSTRUCTIONS_TEXTS.get(self.kind, _CHANGED_INSTRUCTIONS)
        subject = f"{_NOUNS.get(self.part, self.part)} {_short(self.name)}"
        match self.kind:
            case "added":
                return f"{subject} is not pinned"
            case "removed":
                return f"{subject} is pinned and gone"
            case "renamed":
                was = (self.before or {}).get(NAME_MEMBERS[self.part], "")
                return f"{subject} is pinned as {_short(str(was))}"
            case "changed":
                return f"{subject} differs from its pin: {', '.join(self.fields)}"
            case "server":
                return f"it is another server than the pinned one: {', '.join(self.fields)}"
            case "version":
                return f"its version differs from the pinned one: {', '.join(self.fields)}"

    def diff(self) -> list[str]:
        """Return the difference by member, as lines that begin with `-`, `+` or two spaces; all of it escaped."""
        lines: list[str] = []
        for name in self.fields:
            before = _member(self.before, name)
            after = _member(self.after, name)
            if len(self.fields) > 1 or self.kind != "changed":
                lines.append(f"{name}:")
            lines += _compared(before, after)
        cut = len(lines) - _MAX_LINES
        lines = [shortened(line, _MAX_LINE) for line in lines]
        if cut > 0:
            return [*lines[:_MAX_LINES], f"... {cut} more lines"]
        return lines

    def __str__(self) -> str:
        return "\n".join([f"server {self.server!r}: {self.text}", *(f"  {line}" for line in self.diff())])


def drift(
    server: str,
    pinned: PinnedServer | None,
    identity: ServerIdentity | None,
    specs: Iterable[ToolSpec],
    offers: OfferedDefinitions | None = None,
) -> list[PinChange]:
    """Return how a server and its definitions differ from their pins: the server first, then its tools.

    Args:
        server: The server's name in the config.
        pinned: Its pins; None if it has none: all of it is new then.
        identity: The server's known identity; None for tools without a known server.
        specs: Its tools as they are.
        offers: Its definitions beside tools as they are. Those that are not known, or not pinned, are not compared.
    """
    pins = pinned or PinnedServer.nothing()
    now = {spec.original_name: PinnedTool.of(spec) for spec in specs}
    found = identity_drift(server, pinned, identity)
    found += _of_list(server, "tool", pins.tools, now)
    if offers is None:
        return found
    if offers.instructions is not None:
        found += instructions_drift(server, pins, offers.instructions)
    for part in OFFER_PARTS:
        listed = offers.listed(part)
        if listed is not None:
            found += offer_drift(server, pins, part, listed)
    return found


def identity_drift(server: str, pinned: PinnedServer | None, identity: ServerIdentity | None) -> list[PinChange]:
    """Return how a server itself differs from its pins; see `drift`."""
    if identity is None or pinned is None:
        return []
    return list(_of_identity(server, pinned.identity, identity))


def instructions_drift(server: str, pins: PinnedServer, text: str) -> list[PinChange]:
    """Return how the instructions of a server differ from the pinned ones; nothing if none were pinned."""
    was = pins.instructions
    if was is None or was == text:
        return []
    before = {"instructions": was} if was else None
    after = {"instructions": text} if text else None
    kind = _kind(before, after)
    return [
        PinChange(kind=kind, server=server, part="instructions", fields=("instructions",), before=before, after=after)
    ]


def offer_drift(
    server: str, pins: PinnedServer, part: OfferPart, definitions: Mapping[str, JsonObject]
) -> list[PinChange]:
    """Return how the prompts, resources or templates of a server differ from their pins; nothing if none were pinned.

    Args:
        server: The server's name in the config.
        pins: Its pins.
        part: Which of these.
        definitions: The definitions as they are, by name.
    """
    was = pins.listed(part)
    if was is None:
        return []
    return _of_list(server, part, was, {name: PinnedDefinition.pin(one) for name, one in definitions.items()})


def _of_list(
    server: str, part: PinnedPart, pinned: Mapping[str, PinnedDefinition], now: Mapping[str, PinnedDefinition]
) -> list[PinChange]:
    """Return how the definitions of one part differ from their pins."""
    gone = dict.fromkeys(name for name in pinned if name not in now)
    # Of those that are gone: the hash of all but the name -> the names.
    bodies: dict[str, deque[str]] = {}
    for name in gone:
        bodies.setdefault(_nameless(part, pinned[name].definition), deque()).append(name)
    found: list[PinChange] = []
    for name, one in now.items():
        if name in pinned:
            continue
        alike = None
        if gone:
            alike = bodies.get(_nameless(part, one.definition))
        if not alike:
            found.append(_change("added", server, (part, name), None, one))
        else:
            # Each old name is used up once. Of two new definitions with equal bodies, the second is
            # new.
            was = alike.popleft()
            del gone[was]
            found.append(_change("renamed", server, (part, name), pinned[was], one))
    for name, one in now.items():
        if name in pinned and pinned[name].sha256 != one.sha256:
            found.append(_change("changed", server, (part, name), pinned[name], one))
    return found + [_change("removed", server, (part, name), pinned[name], None) for name in gone]


def allow(pins: Pins, change: PinChange, identity: ServerIdentity) -> Pins:
    """Return the pins in which one difference is pinned as it is now.

    A definition that is gone is unpinned; of a renamed one the old name is. Of the server itself only the members that
    differ are pinned.

    Args:
        pins: The trusted definitions.
        change: The difference.
        identity: The known identity of the server, pinned with the first of its definitions.
    """
    server = pins.servers.get(change.server) or PinnedServer.nothing(identity)
    if change.kind in ("server", "version"):
        now = change.after or {}
        known = server.identity.replace(**{name: str(now.get(name, "")) for name in change.fields})
        return pins.with_server(change.server, server.replace(identity=known))
    if change.part == "instructions":
        text = str((change.after or {}).get("instructions", ""))
        return pins.with_server(change.server, server.replace(instructions=text))
    gone = change.name
    if change.kind == "renamed":
        gone = str((change.before or {}).get(NAME_MEMBERS[change.part], ""))
    if change.part == "tool":
        tools = without_members(server.tools, gone)
        if change.after is not None:
            tools[change.name] = PinnedTool.pin(change.after)
        return pins.with_server(change.server, server.replace(tools=tools))
    listed = without_members(server.listed(change.part) or {}, gone)
    if change.after is not None:
        listed[change.name] = PinnedDefinition.pin(change.after)
    return pins.with_server(change.server, server.with_listed(change.part, listed))


_IDENTITY_CHANGES: tuple[tuple[Literal["server", "version"], tuple[str, ...]], ...] = (
    ("server", ("name", "origin")),
    ("version", ("version", "package")),
)
"""The kinds of differences of a server itself, with the members of its identity that each is about."""


def _of_identity(server: str, before: ServerIdentity, after: ServerIdentity) -> Iterator[PinChange]:
    was = _known(before)
    now = _known(after)
    differing = [name for name in was if was[name] != now[name]]
    for kind, names in _IDENTITY_CHANGES:
        fields: list[str] = []
        for name in names:
            # A member that one side does not have proves nothing about the server. A package does: a pinned one that
            # the config no longer names runs as another program.
            is_known = name == "package" or bool(was[name] and now[name])
            if is_known and name in differing:
                fields.append(name)
        if fields:
            yield PinChange(kind=kind, server=server, fields=tuple(fields), before=was, after=now)


def _known(identity: ServerIdentity) -> dict[str, str]:
    return {name: getattr(identity, name) for name in identity.__struct_fields__}


def _nameless(part: str, definition: JsonObject) -> str:
    member = NAME_MEMBERS[part]
    return tool_hash(without_members(definition, member))


def _change(
    kind: Any,
    server: str,
    of: tuple[PinnedPart, str],
    before: PinnedDefinition | None,
    after: PinnedDefinition | None,
) -> PinChange:
    part, name = of
    was = None if before is None else before.definition
    now = None if after is None else after.definition
    fields = tuple(member for member in MEMBERS[part] if _member(was, member) != _member(now, member))
    return PinChange(kind=kind, server=server, part=part, name=name, fields=fields, before=was, after=now)


def _member(definition: JsonObject | None, name: str) -> Any:
    if definition is None:
        return _MISSING
    return definition.get(name, _MISSING)


def _compared(before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, str) or isinstance(after, str):
        import difflib  # only where texts differ

        for line in difflib.ndiff(_lines(before), _lines(after)):
            # These lines are hints of `difflib`, and would be taken for text of the server.
            if not line.startswith("? "):
                yield visible(line)
        return
    old = dict(_leaves(before))
    new = dict(_leaves(after))
    for path in old | new:
        if old.get(path) != new.get(path):
            if path in old:
                yield f"- {path}{old[path]}"
            if path in new:
                yield f"+ {path}{new[path]}"


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    return []


def _is_flat(items: list[Any]) -> bool:
    """Return whether a list holds no objects and lists, so that it is shown in one line."""
    return not any(isinstance(item, (dict, list)) for item in items)


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the values in a JSON value that hold no others, each behind its path."""
    if isinstance(value, Mapping) and value:
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and not _is_flat(cast("list[Any]", value)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _leaves(item, (*path, index))
    elif value is not _MISSING:
        place = f"{visible(path_text(path), keep='')}: " if path else ""
        yield place, visible(json.dumps(value, ensure_ascii=False), keep="")


def _short(name: str) -> str:
    return repr(shortened(name, 80))


def _kind(before: object | None, after: object | None) -> Literal["added", "removed", "changed"]:
    if before is None:
        return "added"
    if after is None:
        return "removed"
    return "changed"
