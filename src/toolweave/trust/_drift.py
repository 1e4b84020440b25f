"""Differences from the pins: tools that are new, gone, changed or renamed, and a server that is another one. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from toolweave._text import shortened, visible
from toolweave._value import Value
from toolweave.schema._problems import path_text
from toolweave.tools._spec import ToolSpec
from toolweave.trust._pins import PinnedServer, PinnedTool, Pins, ServerIdentity, tool_hash

_FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_MOST_LINES = 40
_LONGEST_LINE = 300
_MISSING = object()


class PinChange(Value, frozen=True, kw_only=True):
    """One difference from the pins.

    Attributes:
        kind: `added`, `removed`, `changed` or `renamed` for a tool; `server` if the server is another one, `version` if
            only its version differs.
        server: The server.
        tool: The tool's own name now; `""` for the server itself.
        fields: The members of the definition or of the identity that differ.
        before: As it was pinned, None for what is new.
        after: As it is, None for what is gone.
    """

    kind: Literal["added", "removed", "changed", "renamed", "server", "version"]
    server: str
    tool: str = ""
    fields: tuple[str, ...] = ()
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The difference in one line."""
        match self.kind:
            case "added":
                return f"tool {_short(self.tool)} is not pinned"
            case "removed":
                return f"tool {_short(self.tool)} is pinned and gone"
            case "renamed":
                was = (self.before or {}).get("name", "")
                return f"tool {_short(self.tool)} is pinned as {_short(str(was))}"
            case "changed":
                return f"tool {_short(self.tool)} differs from its pin: {', '.join(self.fields)}"
            case "server":
                return f"it is another server than the pinned one: {', '.join(self.fields)}"
            case "version":
                return f"its version differs from the pinned one: {', '.join(self.fields)}"

    def diff(self) -> list[str]:
        """Return the difference by member, as lines that begin with `-`, `+` or two spaces; all of it escaped."""
        lines: list[str] = []
        for name in self.fields:
            before, after = _member(self.before, name), _member(self.after, name)
            if len(self.fields) > 1 or self.kind != "changed":
                lines.append(f"{name}:")
            lines += _compared(before, after)
        cut = len(lines) - _MOST_LINES
        lines = [shortened(line, _LONGEST_LINE) for line in lines]
        return [*lines[:_MOST_LINES], f"... {cut} more lines"] if cut > 0 else lines

    def __str__(self) -> str:
        return "\n".join([f"server {self.server!r}: {self.text}", *(f"  {line}" for line in self.diff())])


def drift(
    server: str, pinned: PinnedServer | None, identity: ServerIdentity | None, specs: Iterable[ToolSpec]
) -> list[PinChange]:
    """Return how a server and its tools differ from their pins, the server first.

    Args:
        server: The server's name in the config.
        pinned: Its pins; None if it has none: all of it is new then.
        identity: What is known of it; None for tools without a known server.
        specs: Its definitions as they are.
    """
    pins = pinned or PinnedServer()
    now = {spec.original_name: PinnedTool.of(spec) for spec in specs}
    new = [name for name in now if name not in pins.tools]
    gone = {name: _nameless(tool.definition) for name, tool in pins.tools.items() if name not in now}
    found = [] if identity is None or pinned is None else list(_of_identity(server, pins.identity, identity))
    for name in new:
        body = _nameless(now[name].definition)
        was = next((old for old, known in gone.items() if known == body), None)
        if was is None:
            found.append(_change("added", server, name, None, now[name]))
        else:
            del gone[was]
            found.append(_change("renamed", server, name, pins.tools[was], now[name]))
    for name, tool in now.items():
        if name in pins.tools and pins.tools[name].sha256 != tool.sha256:
            found.append(_change("changed", server, name, pins.tools[name], tool))
    return found + [_change("removed", server, name, pins.tools[name], None) for name in gone]


def allow(pins: Pins, change: PinChange, identity: ServerIdentity) -> Pins:
    """Return the pins in which one difference is pinned as it is now.

    A tool that is gone is unpinned; of a renamed one the old name is. Of the server itself only what differs is pinned.

    Args:
        pins: What was trusted.
        change: The difference.
        identity: What is known of the server, pinned with the first of its tools.
    """
    server = pins.servers.get(change.server) or PinnedServer(identity=identity)
    if change.kind in ("server", "version"):
        now = change.after or {}
        known = server.identity.replace(**{name: str(now.get(name, "")) for name in change.fields})
        return pins.with_server(change.server, server.replace(identity=known))
    gone = {str((change.before or {}).get("name", "")) if change.kind == "renamed" else change.tool}
    tools = {name: tool for name, tool in server.tools.items() if name not in gone}
    if change.after is not None:
        tools[change.tool] = PinnedTool(sha256=tool_hash(change.after), definition=change.after)
    return pins.with_server(change.server, server.replace(tools=tools))


def _of_identity(server: str, before: ServerIdentity, after: ServerIdentity) -> Iterator[PinChange]:
    was, now = _known(before), _known(after)
    for kind, names in (("server", ("name", "origin")), ("version", ("version", "package"))):
        fields = tuple(name for name in names if was.get(name) and now.get(name) and was[name] != now[name])
        if kind == "version" and was.get("package", "") != now.get("package", "") and "package" not in fields:
            fields = (*fields, "package")
        if fields:
            yield PinChange(kind=cast("Any", kind), server=server, fields=fields, before=was, after=now)


def _known(identity: ServerIdentity) -> dict[str, str]:
    return {name: getattr(identity, name) for name in identity.__struct_fields__}


def _nameless(definition: Mapping[str, Any]) -> str:
    return tool_hash({key: value for key, value in definition.items() if key != "name"})


def _change(kind: Any, server: str, tool: str, before: PinnedTool | None, after: PinnedTool | None) -> PinChange:
    was = None if before is None else before.definition
    now = None if after is None else after.definition
    fields = tuple(name for name in _FIELDS if _member(was, name) != _member(now, name))
    return PinChange(kind=kind, server=server, tool=tool, fields=fields, before=was, after=now)


def _member(definition: Mapping[str, Any] | None, name: str) -> Any:
    return _MISSING if definition is None else definition.get(name, _MISSING)


def _compared(before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, str) or isinstance(after, str):
        import difflib  # only where texts differ

        old, new = (_lines(value) for value in (before, after))
        yield from (visible(line) for line in difflib.ndiff(old, new) if not line.startswith("? "))
        return
    old, new = dict(_leaves(before)), dict(_leaves(after))
    for path in [*old, *(path for path in new if path not in old)]:
        if old.get(path) != new.get(path):
            if path in old:
                yield f"- {path}{old[path]}"
            if path in new:
                yield f"+ {path}{new[path]}"


def _lines(value: Any) -> list[str]:
    return value.splitlines() if isinstance(value, str) else []


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the values in a JSON value that hold no others, each behind its path."""
    if isinstance(value, Mapping) and value:
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value and any(isinstance(item, (dict, list)) for item in cast("list[Any]", value)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _leaves(item, (*path, index))
    elif value is not _MISSING:
        place = f"{visible(path_text(path), keep='')}: " if path else ""
        yield place, visible(json.dumps(value, ensure_ascii=False), keep="")


def _short(name: str) -> str:
    return repr(shortened(name, 80))
