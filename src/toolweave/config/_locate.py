"""The location of the servers in a document. Knows the outlines of config files, not the entries' keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from toolweave._value import Value
from toolweave.config._dialect_rules import Dialect, exclusion, is_goose, type_of_mcp_section
from toolweave.config._entries import looks_like_entry
from toolweave.config._jsonc import KeyPath
from toolweave.config._validation import kind_of
from toolweave.errors import ConfigError

SECTIONS: tuple[KeyPath, ...] = (
    ("mcpServers",),
    ("mcp_servers",),
    ("servers",),
    ("context_servers",),
    ("mcp", "servers"),
    ("mcp", "mcpServers"),
    ("mcp",),
    ("extensions",),
    ("services", "mcp"),
    ("tools", "mcp_servers"),
    ("tool", "toolweave", "servers"),
    ("tool", "toolweave", "mcpServers"),
    ("tool", "toolweave", "mcp_servers"),
    ("amp.mcpServers",),
)
"""The paths that are searched for servers, in this order."""
GATEWAY_SECTION = "gateway"
"""The section with the settings of a gateway, which only a gateway applies."""


class FoundEntry(Value, frozen=True, kw_only=True):
    """One unparsed entry of a document: its name, its value and its path."""

    name: str
    value: Any  # whatever a user wrote
    path: KeyPath
    dialect: Dialect
    nameless: bool = False


class FoundServers(msgspec.Struct):
    """The entries of a document and the definitions of its `inputs`.

    Attributes:
        recognised: False when the document has no section for servers.
        excluded: Returns the reason why a list in the document excludes a server, or None.
        gateway: Whether the document has a section `gateway`, for `toolweave gateway`.
    """

    items: list[FoundEntry] = msgspec.field(default_factory=list[FoundEntry])
    inputs: dict[str, Mapping[str, Any]] = msgspec.field(default_factory=dict[str, "Mapping[str, Any]"])
    recognised: bool = False
    excluded: Callable[[str], str | None] = lambda _: None
    gateway: bool = False


def find_servers(
    document: Any, *, dialect: Dialect = "generic", project: str = "", from_code: bool = False
) -> FoundServers:
    """Find the servers of a document.

    Args:
        document: A list of entries, one entry, entries by name, or an outline of an editor.
        dialect: The dialect of the file.
        project: The directory whose section of `~/.claude.json` is read too.
        from_code: Entries may be other objects than mappings.

    Raises:
        ConfigError: The document or its section is of another type.
    """
    found = FoundServers()
    if isinstance(document, (list, tuple)):
        found.recognised = True
        found.items = list(_listed(cast("list[Any]", document), (), dialect))
        return found
    if not isinstance(document, Mapping):
        raise ConfigError(f"a config must be an object or a list of servers, not {kind_of(document)}")
    top = cast("Mapping[str, Any]", document)
    found.excluded = exclusion(top, project)
    for path in (*SECTIONS, ("projects", project, "mcpServers")):
        section = _at(top, path)
        holder = _mapping(_at(top, path[:-1]))
        if not _is_section(section, path, top):
            continue
        found.recognised = True
        found.items += (_completed(_spoken(item, dialect), holder) for item in _items(section, path, dialect))
        found.inputs.update(_inputs(holder.get("inputs")))
    # Beside a section of servers it is a section, even if its `url` makes it look like an entry.
    found.gateway = GATEWAY_SECTION in top and (found.recognised or not looks_like_entry(top[GATEWAY_SECTION]))
    if not found.recognised:
        found.items = list(_bare(top, dialect, from_code))
        found.recognised = bool(found.items) or not top
    return found


def _is_section(section: Any, path: KeyPath, top: Mapping[str, Any]) -> bool:
    if path == ("mcp",):  # opencode's, or the part of VS Code's settings that holds servers
        return any(_is_opencode(_mapping(entry)) for entry in _mapping(section).values())
    if path == ("extensions",):  # Goose's, or what many a program calls so
        return any(is_goose(_mapping(entry)) for entry in _mapping(section).values())
    return section is not None and not (path == ("servers",) and looks_like_entry(top))


def _spoken(item: FoundEntry, dialect: Dialect) -> FoundEntry:
    """Return an entry with the dialect that its section implies, if the file implies none."""
    if dialect == "generic" and item.path[0] == "extensions":
        return item.replace(dialect="goose")
    if dialect == "generic" and item.path[:1] == ("mcp",) and len(item.path) == 2:
        return item.replace(dialect=type_of_mcp_section(_mapping(item.value)))
    if dialect == "generic" and _mapping(item.value).get("type") in ("local", "remote"):
        return item.replace(dialect="opencode")
    return item


def _completed(item: FoundEntry, holder: Mapping[Any, Any]) -> FoundEntry:
    """Return an entry with the settings beside its section that it lacks: `pins`, and VS Code's `sandbox`.

    The sandbox is for entries with `sandboxEnabled`.
    """
    value: Any = item.value
    if not isinstance(value, Mapping):
        return item
    entry = cast("Mapping[str, Any]", value)
    shared = {"pins": holder.get("pins")}
    if entry.get("sandboxEnabled"):
        shared["sandbox"] = holder.get("sandbox")
    shared = {key: setting for key, setting in shared.items() if setting is not None}
    if shared:
        return item.replace(value={**shared, **entry})
    return item


def _is_opencode(entry: Mapping[Any, Any]) -> bool:
    return looks_like_entry(entry) or entry.get("type") in ("local", "remote")


def _at(top: Any, path: KeyPath) -> Any:
    for key in path:
        top = _mapping(top).get(key)
    return top


def _mapping(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value)
    return {}


def _items(section: Any, path: KeyPath, dialect: Dialect) -> Iterator[FoundEntry]:
    if isinstance(section, Mapping):
        for name, value in cast("Mapping[Any, Any]", section).items():
            yield FoundEntry(name=str(name), value=value, path=(*path, str(name)), dialect=dialect)
    elif isinstance(section, (list, tuple)):
        yield from _listed(cast("list[Any]", section), path, dialect)
    else:
        where = ".".join(map(str, path))
        raise ConfigError(f"{where!r} must be an object of servers, not {kind_of(section)}", field=where)


def _listed(entries: list[Any], path: KeyPath, dialect: Dialect) -> Iterator[FoundEntry]:
    """Name the entries of a list; one without a name gets its position."""
    for index, value in enumerate(entries):
        own = getattr(value, "name", None)
        if isinstance(value, Mapping):
            entry = cast("Mapping[Any, Any]", value)
            own = next((entry[key] for key in ("name", "serverName", "server_name") if entry.get(key)), None)
        named = isinstance(own, str) and bool(own)
        name = str(own) if named else f"entry {index + 1}"
        yield FoundEntry(name=name, value=value, path=(*path, index), dialect=dialect, nameless=not named)


def _bare(top: Mapping[str, Any], dialect: Dialect, from_code: bool) -> Iterator[FoundEntry]:
    """Read a document without a section: one entry, or entries by name."""
    if looks_like_entry(top):
        yield from (item.replace(path=()) for item in _listed([top], (), dialect))
    elif from_code or any(looks_like_entry(value) for value in top.values()):
        yield from _items(top, (), dialect)


def _inputs(definitions: Any) -> dict[str, Mapping[str, Any]]:
    if isinstance(definitions, (list, tuple)):
        entries = cast("list[Any]", definitions)
    else:
        entries = []
    return {str(entry["id"]): entry for entry in map(_mapping, entries) if "id" in entry}
