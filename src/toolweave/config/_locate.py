"""The location of the servers in a document. Knows the outlines of config files, not the entries' keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from toolweave._json_types import JsonObject, as_object, as_sequence, object_or_empty, text_or_empty, without_none
from toolweave._value import Value
from toolweave.config._dialect_rules import Dialect, exclusion, is_goose, type_of_mcp_section
from toolweave.config._editor_settings import is_unknown_protection
from toolweave.config._entries import looks_like_entry
from toolweave.config._jsonc import KeyPath
from toolweave.config._keys import snake_case
from toolweave.config.validation import is_misspelt, kind_of
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
_OPENCODE_TYPES = ("local", "remote")
GATEWAY_SECTION = "gateway"
"""The section with the settings of a gateway, which only a gateway applies."""
_APPLIED = (GATEWAY_SECTION, "sandbox", "excludeMCPServers", "disabledMcpjsonServers")
_OWN_SECTIONS = frozenset({"mcpServers", "mcp_servers", "servers"})
_SECTIONS_OF_EDITORS = frozenset(path[0] for path in SECTIONS) - _OWN_SECTIONS
_COMMENT = "(?i)[^a-z]|x-|$"
_ABOUT_THE_FILE = frozenset({"name", "version", "description", "title", "inputs", "pins", "permissions", "projects"})
"""The keys beside the servers that are read, or have nothing to apply."""


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
        unapplied: The keys beside the servers that read like protections and are not applied.
        unknown: The other keys beside the servers that are not applied, in a document of our dialect.
    """

    items: list[FoundEntry] = msgspec.field(default_factory=list[FoundEntry])
    inputs: dict[str, JsonObject] = msgspec.field(default_factory=dict[str, JsonObject])
    recognised: bool = False
    excluded: Callable[[str], str | None] = lambda _: None
    gateway: bool = False
    unapplied: list[str] = msgspec.field(default_factory=list[str])
    unknown: list[str] = msgspec.field(default_factory=list[str])


def find_servers(
    document: object, *, dialect: Dialect = "generic", project: str = "", from_code: bool = False
) -> FoundServers:
    """Find the servers of a document.

    Args:
        document: A list of entries, one entry, entries by name, or an outline of an editor.
        dialect: The dialect of the file.
        project: The directory whose section of `~/.claude.json` is also read.
        from_code: Entries may be other objects than mappings.

    Raises:
        ConfigError: The document or its section is of another type, or its section `gateway` is misspelt.
    """
    found = FoundServers()
    listed = as_sequence(document)
    if listed is not None:
        found.recognised = True
        found.items = list(_listed(listed, (), dialect))
        return found
    top = as_object(document)
    if top is None:
        raise ConfigError(f"a config must be an object or a list of servers, not {kind_of(document)}")
    found.excluded = exclusion(top, project)
    # All sections count, not only the first: files of editors hold settings of several programs. The loader decides
    # which entry counts if two of them define a name.
    for path in (*SECTIONS, ("projects", project, "mcpServers")):
        section = _at(top, path)
        if not _is_section(section, path, top):
            continue
        found.recognised = True
        # The object around the section may have settings for all of its servers.
        holder = object_or_empty(_at(top, path[:-1]))
        for item in _items(section, path, dialect):
            found.items.append(_completed(_with_dialect_of_section(item), holder))
        found.inputs.update(_inputs(holder.get("inputs")))
    if GATEWAY_SECTION in top:
        # Beside a section of servers it is a section, even if its `url` makes it look like an entry.
        found.gateway = found.recognised or not looks_like_entry(top[GATEWAY_SECTION])
    if not found.recognised:
        found.items = list(_bare(top, dialect, from_code))
        is_empty = len(top) == 0
        found.recognised = is_empty or len(found.items) > 0
    elif dialect == "generic":
        found.unapplied = list(_unapplied(top, found))
        found.unknown = list(_unknown(top, found.unapplied))
    else:
        found.unapplied = list(_misspelt_lists(top, dialect))
    return found


_LISTS: dict[str, tuple[str, ...]] = {"gemini": ("allowed", "excluded"), "opencode": ("permission", "tools")}
"""The keys of dialects that allow and deny servers or tools: those of Gemini's section `mcp`, and opencode's."""


def _misspelt_lists(top: JsonObject, dialect: Dialect) -> Iterator[str]:
    """Yield the keys of an editor's file that seem to deny servers or tools, and that the editor does not have.

    The other keys of such a file are about other things, whatever they are called.
    """
    for key, value in top.items():
        if key in _APPLIED:
            continue
        if "mcp" not in str(key).lower():
            continue
        if is_unknown_protection(snake_case(key), "", value):
            yield str(key)
    known = _LISTS.get(dialect, ())
    prefix = ""
    if dialect == "gemini":
        top = object_or_empty(top.get("mcp"))
        prefix = "mcp."
    for key, value in top.items():
        if key in known:
            continue
        if value and any(is_misspelt(str(key), name) for name in known):
            yield f"{prefix}{key}"


def _unknown(top: JsonObject, named: list[str]) -> Iterator[str]:
    """Yield the unknown keys of a document of our dialect, except those in `named`.

    A document with sections of another kind is an editor's, and so are its settings.
    """
    if not _SECTIONS_OF_EDITORS.isdisjoint(top):
        return
    for key in sorted(top.keys() - _ABOUT_THE_FILE - _OWN_SECTIONS.union(_APPLIED, named), key=str):
        if re.match(_COMMENT, str(key)) is None:
            yield str(key)


def _unapplied(top: JsonObject, found: FoundServers) -> Iterator[str]:
    """Yield the keys beside the servers that read like protections and are not applied.

    Raises:
        ConfigError: A key is a misspelt `gateway`, whose rules for callers would be ignored.
    """
    for item in found.items:
        if item.dialect == "opencode":  # its permissions are applied
            return
    for key, value in top.items():
        if key in _APPLIED:
            continue
        if is_misspelt(key, GATEWAY_SECTION):
            _check_section_name(key, value)
        if is_unknown_protection(snake_case(key), "", value):
            yield str(key)


def _check_section_name(key: str, value: object) -> None:
    if as_object(value) is None:
        return
    raise ConfigError(
        f"{key!r} is not a known section; did you mean {GATEWAY_SECTION!r}? Without that section, the rules for "
        "callers do not hold; correct the key or leave it out",
        field=str(key),
    )


def _is_section(section: object, path: KeyPath, top: JsonObject) -> bool:
    if path == ("mcp",):  # opencode's, or the part of VS Code's settings that holds servers
        return any(map(_is_opencode, map(object_or_empty, object_or_empty(section).values())))
    if path == ("extensions",):  # Goose's, or a key of any other program
        return any(map(is_goose, map(object_or_empty, object_or_empty(section).values())))
    if path == ("servers",) and looks_like_entry(top):
        return False
    return section is not None


def _with_dialect_of_section(item: FoundEntry) -> FoundEntry:
    """Return an entry with the dialect that its section implies, if the file implies none."""
    if item.dialect != "generic":
        return item
    if item.path[0] == "extensions":
        return item.replace(dialect="goose")
    entry = object_or_empty(item.value)
    if item.path[0] == "mcp" and len(item.path) == 2:
        return item.replace(dialect=type_of_mcp_section(entry))
    if entry.get("type") in _OPENCODE_TYPES:
        return item.replace(dialect="opencode")
    return item


def _completed(item: FoundEntry, holder: JsonObject) -> FoundEntry:
    """Return an entry with the settings beside its section that it lacks: `pins`, and VS Code's `sandbox`.

    The sandbox is for entries with `sandboxEnabled`.
    """
    entry = as_object(item.value)
    if entry is None:
        return item
    shared = {"pins": holder.get("pins")}
    if entry.get("sandboxEnabled"):
        shared["sandbox"] = holder.get("sandbox")
    shared = without_none(shared)
    if shared:
        return item.replace(value={**shared, **entry})
    return item


def _is_opencode(entry: JsonObject) -> bool:
    return entry.get("type") in _OPENCODE_TYPES or looks_like_entry(entry)


def _at(top: object, path: KeyPath) -> object:
    for key in path:
        top = object_or_empty(top).get(str(key))
    return top


def _items(section: object, path: KeyPath, dialect: Dialect) -> Iterator[FoundEntry]:
    entries = as_object(section)
    listed = as_sequence(section)
    if entries is not None:
        for name, value in entries.items():
            yield FoundEntry(name=str(name), value=value, path=(*path, str(name)), dialect=dialect)
    elif listed is not None:
        yield from _listed(listed, path, dialect)
    else:
        where = ".".join(map(str, path))
        raise ConfigError(f"{where!r} must be an object of servers, not {kind_of(section)}", field=where)


def _listed(entries: Sequence[object], path: KeyPath, dialect: Dialect) -> Iterator[FoundEntry]:
    """Name the entries of a list; one without a name gets its position."""
    for index, value in enumerate(entries):
        own = _own_name(value)
        name = own or f"entry {index + 1}"
        yield FoundEntry(name=name, value=value, path=(*path, index), dialect=dialect, nameless=own == "")


def _own_name(value: object) -> str:
    """Return the name that an entry or an object from code has itself, `""` for none."""
    entry = as_object(value)
    if entry is None:
        return text_or_empty(getattr(value, "name", None))
    for key in ("name", "serverName", "server_name"):
        if entry.get(key):
            return text_or_empty(entry[key])
    return ""


def _bare(top: JsonObject, dialect: Dialect, from_code: bool) -> Iterator[FoundEntry]:
    """Read a document without a section: one entry, or entries by name."""
    if looks_like_entry(top):
        for item in _listed([top], (), dialect):
            yield item.replace(path=())
    elif from_code or any(map(looks_like_entry, top.values())):
        yield from _items(top, (), dialect)


def _inputs(definitions: object) -> dict[str, JsonObject]:
    found: dict[str, JsonObject] = {}
    listed = as_sequence(definitions)
    if listed is None:
        return found
    for definition in map(object_or_empty, listed):
        if "id" in definition:
            found[str(definition["id"])] = definition
    return found
