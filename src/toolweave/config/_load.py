"""The loading of config files: valid servers as configs, wrong ones as errors with location and reason.

One bad entry never takes the file down. Reads files; connects to nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path, PurePath
from typing import Any, cast

from toolweave._value import Value
from toolweave.config._coerce import named, server_config
from toolweave.config._denied_tools import DeniedTools, rules_of_claude, rules_of_opencode
from toolweave.config._dialect_rules import Dialect, dialect_of, no_server
from toolweave.config._documents import ConfigDocument, check_depth, read_document
from toolweave.config._entries import is_disabled, read_entry
from toolweave.config._expand import Scope, home_directory
from toolweave.config._loaded import ConfigEntry, EntryStatus, LoadedConfig, LoadedFile
from toolweave.config._locate import FoundEntry, FoundServers, find_servers
from toolweave.config._model import ServerConfig, Source
from toolweave.config._validation import kind_of
from toolweave.errors import ConfigError


def disabled_elsewhere(path: Path, project: Path, home: Path) -> dict[str, str]:
    """Return the reasons why servers of a file are switched off by other files, by name.

    Raises:
        ConfigError: A file with switches cannot be read: nothing is started that may be switched off in it.
    """
    if path.parent.name == ".gemini":
        return dict(_of_gemini(home / ".gemini" / "mcp-server-enablement.json"))
    if path.name == ".mcp.json":
        return dict(_of_claude(project, home))
    return {}


_CLAUDE_FILES = (".mcp.json", ".claude.json")


def _of_gemini(path: Path) -> Iterator[tuple[str, str]]:
    for name, state in _read(path).items():
        if _mapping(state).get("enabled") is False:
            yield name, f"it is switched off in {path}"


def _of_claude(project: Path, home: Path) -> Iterator[tuple[str, str]]:
    folder = project / ".claude"
    for path in (home / ".claude" / "settings.json", folder / "settings.json", folder / "settings.local.json"):
        yield from _disabled(_read(path), path)
    own = home / ".claude.json"
    yield from _disabled(_mapping(_mapping(_read(own).get("projects")).get(str(project))), own)


def _disabled(settings: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    names = settings.get("disabledMcpjsonServers")
    for name in cast("list[Any]", names) if isinstance(names, list) else []:
        yield str(name), f"'disabledMcpjsonServers' in {path} names it"


def _read(path: Path) -> Mapping[str, Any]:
    if path.is_file():
        return _mapping(read_document(path).value)
    return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


MAX_ENTRIES = 10_000
"""Servers of one file, whose entries are checked before their owner is asked whether to trust it."""
_LOG = logging.getLogger(__name__)
_DOT_FOLDERS = (
    *(".vscode", ".cursor", ".gemini", ".codex", ".zed", ".roo", ".kiro", ".amazonq", ".mcp", ".config"),
    *(".kilocode", ".continue", ".opencode"),
)


def load_config(
    config: Any,  # a path, a mapping, a list, or a LoadedConfig
    *,
    env: Mapping[str, str] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> LoadedConfig:
    """Read a config file, or the same content given as a value.

    Accepts JSON (comments and trailing commas allowed), YAML and TOML with servers under
    `mcpServers`, `mcp_servers`, `servers` (with `inputs`), `context_servers`, `mcp`, `services.mcp`,
    `tool.toolweave`; a list of entries; one entry; entries by name. From code, an entry may be
    anything that `server_config` takes.

    Args:
        config: The file's path, or its content.
        env: The variables for `${VAR}`; the process's environment when None.
        inputs: The values for `${input:ID}`.

    Raises:
        ConfigError: The file cannot be read or parsed, or has no section for servers. The error of
            a single server is in `errors` instead.

    A name defined twice in a file: the last entry counts, with a warning.
    """
    if isinstance(config, LoadedConfig):
        return config
    scope = Scope(env=os.environ if env is None else env, inputs=inputs or {})
    if isinstance(config, (str, PurePath)):
        return load_file(_expanded(config), scope)
    return load_document(ConfigDocument(value=config, path=""), scope, dialect="generic", from_code=True)


def load_file(path: Path, scope: Scope, *, workspace: Path | None = None, optional: bool = False) -> LoadedConfig:
    """Read one file; `optional` accepts a file without a section for servers.

    Raises:
        ConfigError: As `load_config`.
    """
    document = read_document(path)
    folder = workspace or project_of(path)
    scope = scope.replace(workspace=str(folder), directory=str(path.absolute().parent))
    home = Path(scope.home)
    switched_off = disabled_elsewhere(path, folder, home)
    dialect = dialect_of(path)
    rules = DeniedTools()
    if path.name in _CLAUDE_FILES:
        rules = rules_of_claude(folder, home)
    elif dialect == "opencode":
        rules = rules_of_opencode(document.value, path, folder, home)
    return load_document(
        document, scope, dialect=dialect, optional=optional, switched_off=switched_off, tool_rules=rules
    )


class _InactiveEntry(Value, frozen=True):
    """A valid entry that does not start, and the reason."""

    status: EntryStatus
    reason: str


_OFF = _InactiveEntry("disabled", "it is switched off in the config")


class _ConfigLoader:
    """The loader of one document's entries into a `LoadedConfig`."""

    def __init__(
        self, document: ConfigDocument, scope: Scope, *, from_code: bool, rules: DeniedTools | None = None
    ) -> None:
        self._document = document
        self._rules = rules
        self._scope = scope
        self._from_code = from_code
        self._notes: list[str] = []
        self.servers: dict[str, ServerConfig] = {}
        self.errors: dict[str, ConfigError] = {}
        self.warnings: list[str] = []
        self.disabled: dict[str, None] = {}
        self.entries: list[ConfigEntry] = []
        self._places: dict[str, int] = {}

    def add(self, item: FoundEntry, refused: str | None = None) -> None:
        """Read one entry; it replaces an earlier one of its name.

        Args:
            item: The entry.
            refused: The reason why a list of its editor excludes it, or None.
        """
        self._notes = []
        if self._is_taken(item.name):
            self._warn(item, "is defined twice; the last entry counts")
            self._forget(item.name)
        elif lines := self._document.repeated(item.path):
            self._warn(item, f"is defined twice, in lines {', '.join(map(str, lines))}; the last entry counts")
        try:
            if refused:
                read = _InactiveEntry("excluded", refused)
            else:
                read = self._read(item)
        except ConfigError as error:
            if error.server:
                named_here = error
            else:
                named_here = self._error(item, error.message, field=error.field)
            self.errors[item.name] = named_here
            self._enter(item, item.name, "wrong", named_here.message)
            return
        if isinstance(read, ServerConfig) and read.disabled:
            read = _OFF
        if isinstance(read, _InactiveEntry):
            self.disabled[item.name] = None
            self._enter(item, item.name, read.status, read.reason)
            return
        if item.nameless:
            read = read.replace(name=self._free(read.name))
        self.servers[read.name] = read
        self._enter(item, read.name, "ready", config=read)

    def _is_taken(self, name: str) -> bool:
        return name in self.servers or name in self.errors or name in self.disabled

    def warn_of_empty_file(self) -> None:
        """Warn that a file has nothing in it: an editor that writes in place empties it first."""
        self._log(f"{self._document.path}: the file is empty, so there are no servers")

    def _forget(self, name: str) -> None:
        for place in (self.servers, self.errors, self.disabled):
            place.pop(name, None)
        place = self._places.get(name)
        if place is not None:
            reason = "a later entry of the file has this name"
            self.entries[place] = self.entries[place].replace(status="shadowed", reason=reason)

    def _enter(
        self, item: FoundEntry, name: str, status: EntryStatus, reason: str = "", *, config: ServerConfig | None = None
    ) -> None:
        entry = ConfigEntry(
            name=name,
            path=Path(self._document.path) if self._document.path else None,
            line=self._document.line(item.path),
            dialect=item.dialect,
            status=status,
            reason=reason,
            notes=tuple(self._notes),
            raw=item.value,
            config=config,
        )
        self._places[name] = len(self.entries)
        self.entries.append(entry)

    def _free(self, name: str) -> str:
        """Return the derived name, numbered when it is taken."""
        return next(free for n in count(1) if not self._is_taken(free := name if n == 1 else f"{name}-{n}"))

    def _read(self, item: FoundEntry) -> ServerConfig | _InactiveEntry:
        value = item.value
        if self._from_code and not isinstance(value, Mapping):
            return server_config(value, name=None if item.nameless else item.name)
        if not isinstance(value, Mapping):
            raise self._error(item, f"the entry must be an object, not {kind_of(value)}")
        entry = cast("Mapping[str, Any]", value)
        if is_disabled(entry, self._scope):
            return _OFF
        if why := no_server(entry, item.dialect):
            return _InactiveEntry("skipped", why)
        if item.nameless and item.path:
            raise self._error(item, "the entry has no 'name'; every server of a list needs one", field="name")
        name = "" if item.nameless else item.name
        reading = read_entry(name, entry, dialect=item.dialect, scope=self._scope, source=self._source(item))
        config = named(reading.config)
        if self._rules is not None:
            config = self._rules.apply(config)
        for note in reading.notes:
            self._warn(item.replace(name=config.name), note)
        if config.caution and not config.disabled:
            self._warn(item.replace(name=config.name), config.caution)
        return config

    def _source(self, item: FoundEntry) -> Source | None:
        if self._document.path:
            return Source(path=self._document.path, line=self._document.line(item.path))
        return None

    def _error(self, item: FoundEntry, message: str, *, field: str | None = None) -> ConfigError:
        path, line = self._document.path or None, self._document.line(item.path)
        return ConfigError(message, server=item.name, field=field, path=path, line=line)

    def _warn(self, item: FoundEntry, message: str) -> None:
        self._notes.append(message)
        source = self._source(item)
        text = f"{source}: " if source else ""
        self._log(f"{text}server {item.name!r}: {message}")

    def _log(self, text: str) -> None:
        self.warnings.append(text)
        _LOG.warning("%s", text)


def load_document(
    document: ConfigDocument,
    scope: Scope,
    *,
    dialect: Dialect,
    from_code: bool = False,
    optional: bool = False,
    switched_off: Mapping[str, str] | None = None,
    tool_rules: DeniedTools | None = None,
) -> LoadedConfig:
    path = document.path or None
    if from_code:
        check_depth(document.value)
    try:
        found = find_servers(document.value, dialect=dialect, project=scope.workspace, from_code=from_code)
    except ConfigError as error:
        line = document.line(tuple((error.field or "").split(".")))
        raise ConfigError(error.message, field=error.field, path=path, line=line) from None
    if not found.recognised and not optional:
        raise ConfigError(
            "this config has no place for servers; expected 'mcpServers' or 'servers' with an entry per server",
            path=path,
        )
    if len(found.items) > MAX_ENTRIES:
        raise ConfigError(f"it has {len(found.items):,} servers; at most {MAX_ENTRIES:,} are read", path=path)
    if tool_rules is None and any(item.dialect == "opencode" and item.path[:1] == ("mcp",) for item in found.items):
        tool_rules = rules_of_opencode(document.value, None, Path(scope.workspace), Path(scope.home))
    loading = _ConfigLoader(document, scope.replace(definitions=found.inputs), from_code=from_code, rules=tool_rules)
    if path and not optional and not document.value:
        loading.warn_of_empty_file()
    elsewhere = switched_off or {}
    for item in found.items:
        loading.add(item, found.excluded(item.name) or elsewhere.get(item.name))
    return LoadedConfig(
        servers=loading.servers,
        errors=loading.errors,
        warnings=loading.warnings,
        disabled=[*loading.disabled],
        files=[_file_of(document, found, dialect)] if document.path else [],
        entries=loading.entries,
        gateway_sections=_sections_of(found, document.path),
    )


def gateway_sections(config: Any) -> tuple[str, ...]:  # Any: as `load_config`
    """Return the value of `LoadedConfig.gateway_sections` without reading the servers; empty for an unreadable file."""
    if isinstance(config, LoadedConfig):
        return tuple(config.gateway_sections)
    try:
        if isinstance(config, (str, PurePath)):
            path = str(config)
            config = read_document(_expanded(config)).value
        else:
            path = ""
        return _sections_of(find_servers(config, from_code=True), path)
    except ConfigError:
        return ()


def _expanded(config: str | PurePath) -> Path:
    path = Path(config)
    if path.parts[:1] == ("~",):
        return home_directory().joinpath(*path.parts[1:])
    return path


def _sections_of(found: FoundServers, path: str) -> tuple[str, ...]:
    if found.gateway:
        return (path or "the config",)
    return ()


def content_digest(config: Mapping[str, Any]) -> str:
    """Return the digest that a file with this content has when it is loaded."""
    return _digest(find_servers(config))


def _file_of(document: ConfigDocument, found: FoundServers, dialect: Dialect) -> LoadedFile:
    return LoadedFile(path=Path(document.path), dialect=dialect, digest=_digest(found), inputs=found.inputs)


def _digest(found: FoundServers) -> str:
    """Return the SHA-256 of a document's entries and inputs, as Python's `repr` writes them."""
    said = ([(item.path, item.value) for item in found.items], found.inputs)
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()


def project_of(path: Path) -> Path:
    """Return the directory for `${workspaceFolder}` in a file: the project's, or the current one for a user's file."""
    folder = path.absolute().parent
    if folder.name not in _DOT_FOLDERS:
        return folder
    if folder.parent == home_directory():
        return Path.cwd()
    return folder.parent
