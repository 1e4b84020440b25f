"""The loading of config files: valid servers as configs, wrong ones as errors with location and reason.

One bad entry never takes the file down. Reads files; connects to nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path, PurePath

from toolweave._json_types import JsonObject, as_object, object_or_empty
from toolweave._masking import mask_tokens
from toolweave._value import Value
from toolweave.config._coerce import named, server_config
from toolweave.config._denied_tools import DeniedTools, rules_of_claude, rules_of_opencode
from toolweave.config._dialect_rules import Dialect, comparable_name, dialect_of, reason_not_to_start
from toolweave.config._documents import ConfigDocument, check_depth, errors_in, read_document, read_object
from toolweave.config._entries import is_disabled, read_entry
from toolweave.config._expand import Scope, home_directory
from toolweave.config._jsonc import KeyPath
from toolweave.config._loaded import ConfigEntry, EntryStatus, LoadedConfig, LoadedFile
from toolweave.config._locate import SECTIONS, FoundEntry, FoundServers, find_servers
from toolweave.config._model import ServerConfig
from toolweave.config._source import Source
from toolweave.config._value_readers import read_flag, read_names
from toolweave.config.validation import kind_of
from toolweave.errors import ConfigError

__all__ = [
    "MAX_ENTRIES",
    "content_digest",
    "disabled_elsewhere",
    "gateway_sections",
    "load_config",
    "load_document",
    "load_file",
    "project_of",
]


def disabled_elsewhere(path: Path, project: Path, home: Path) -> dict[str, str]:
    """Return the reasons why servers of a file are switched off by other files, by name.

    Raises:
        ConfigError: A file with switches cannot be read: nothing is started that may be switched off in it.
    """
    if path.parent.name == ".gemini":
        return dict(_disabled_by_gemini(home / ".gemini" / "mcp-server-enablement.json"))
    if path.name == ".mcp.json":
        return dict(_disabled_by_claude(project, home))
    return {}


_CLAUDE_FILES = (".mcp.json", ".claude.json")


def _disabled_by_gemini(path: Path) -> Iterator[tuple[str, str]]:
    for name, state in read_object(path).items():
        with errors_in(path):
            enabled = read_flag(object_or_empty(state).get("enabled", True), f"{name}.enabled")
        if not enabled:
            yield name, f"it is switched off in {path}"


def _disabled_by_claude(project: Path, home: Path) -> Iterator[tuple[str, str]]:
    folder = project / ".claude"
    # One of the files is enough: nothing starts that its owner may have switched off.
    for path in (home / ".claude" / "settings.json", folder / "settings.json", folder / "settings.local.json"):
        yield from _disabled_in(read_object(path), path)
    own = home / ".claude.json"
    projects = object_or_empty(read_object(own).get("projects"))
    yield from _disabled_in(object_or_empty(projects.get(str(project))), own)


def _disabled_in(settings: JsonObject, path: Path) -> Iterator[tuple[str, str]]:
    key = "disabledMcpjsonServers"
    with errors_in(path):
        names = read_names(settings.get(key), key)
    for name in names:
        yield name, f"{key!r} in {path} names it"


MAX_ENTRIES = 10_000
"""Servers of one file, whose entries are checked before their owner is asked whether to trust it."""
_MAX_UNKNOWN = 5
_OF_EDITORS = frozenset(
    {".claude.json", "claude_desktop_config.json", "settings.json", "config.json", "mcp-config.json"}
)
_LOG = logging.getLogger(__name__)
_DOT_FOLDERS = (
    *(".vscode", ".cursor", ".gemini", ".codex", ".zed", ".roo", ".kiro", ".amazonq", ".mcp", ".config"),
    *(".kilocode", ".continue", ".opencode"),
)


def load_config(
    config: object,  # a path, a mapping, a list, or a LoadedConfig
    *,
    env: Mapping[str, str] | None = None,
    inputs: JsonObject | None = None,
) -> LoadedConfig:
    """Read a config file, or the same content given as a value.

        url = load_config("mcp.json").servers["github"].url

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
    scope = Scope.given(env, inputs)
    if isinstance(config, (str, PurePath)):
        return load_file(_expanded(config), scope)
    return load_document(ConfigDocument(value=config, path=""), scope, dialect="generic", from_code=True)


def load_file(path: Path, scope: Scope, *, workspace: Path | None = None, optional: bool = False) -> LoadedConfig:
    """Read one file; `optional` accepts a file without a section for servers.

    Raises:
        ConfigError: As `load_config`.
    """
    # All that the owner's other files switch off or deny is read before any entry: if one of them cannot be read, the
    # whole file is refused, since a server may be started that its owner switched off.
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
    """The loader of one document's entries into a `LoadedConfig`.

    A name is in at most one of `servers`, `errors` and `disabled`: an entry whose name is there already removes the
    earlier one from all three first. `entries` keeps both, the earlier one as `shadowed`.
    """

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
        self._positions: dict[str, int] = {}
        self._repeated = document.repeated_keys()
        # By each path above them: to look through all of them for each entry would take the product of both numbers.
        self._repeated_below: dict[KeyPath, list[KeyPath]] = {}
        for path in self._repeated:
            for size in range(len(path)):
                self._repeated_below.setdefault(path[:size], []).append(path)

    def add(self, item: FoundEntry, excluded: str | None = None) -> None:
        """Read one entry; it replaces an earlier one of its name.

        Args:
            item: The entry.
            excluded: The reason why a list of its editor excludes it, or None.
        """
        self._notes = []
        self._replace_earlier(item)
        self._warn_of_repeated_keys(item)
        try:
            outcome = _InactiveEntry("excluded", excluded) if excluded else self._read(item)
        except ConfigError as error:
            self._add_error(item, error)
            return
        if isinstance(outcome, _InactiveEntry):
            self._add_inactive(item, outcome)
        elif outcome.disabled:  # by a key that only the full reading of the entry understands
            self._add_inactive(item, _OFF)
        else:
            self._add_server(item, outcome)

    def _replace_earlier(self, item: FoundEntry) -> None:
        if self._is_taken(item.name):
            self._warn(item, "is defined twice; the last entry counts")
            self._remove(item.name)
            return
        lines = self._document.repeated(item.path)
        if lines:
            self._warn(item, f"is defined twice, {_in_lines(lines)}; the last entry counts")

    def _warn_of_repeated_keys(self, item: FoundEntry) -> None:
        """Warn of keys that an entry has twice: a parser keeps the last one, and the first may be a protection."""
        for path in self._repeated_below.get(item.path, ()):
            shown = ".".join(map(str, path[len(item.path) :]))
            lines = self._repeated[path]
            self._warn(item, f"the key {shown!r} is written twice, {_in_lines(lines)}; the last one counts")

    def warn_of_repeated_sections(self) -> None:
        """Warn of a section that is written twice: the servers of the first one are not in the parsed file."""
        for path, lines in self._repeated.items():
            if path in SECTIONS:
                shown = ".".join(map(str, path))
                self._log(
                    f"{self._document.path}: the section {shown!r} is written twice, {_in_lines(lines)}; only the "
                    "servers of the last one are read"
                )

    def _add_error(self, item: FoundEntry, error: ConfigError) -> None:
        if not error.server:
            error = self._error(item, error.message, field=error.field)
        self.errors[item.name] = error
        self._record(item, item.name, "wrong", error.message)

    def _add_inactive(self, item: FoundEntry, entry: _InactiveEntry) -> None:
        self.disabled[item.name] = None
        self._record(item, item.name, entry.status, entry.reason)

    def _add_server(self, item: FoundEntry, config: ServerConfig) -> None:
        if item.nameless:
            config = config.replace(name=self._free_name(config.name))
        self.servers[config.name] = config
        self._record(item, config.name, "ready", config=config)

    def _is_taken(self, name: str) -> bool:
        return any(name in names for names in (self.servers, self.errors, self.disabled))

    def warn_of_unapplied(self, key: str) -> None:
        """Warn of a key beside the servers that reads like a protection."""
        where = ""
        if self._document.path:
            where = f"{self._document.path}: "
        self._log(
            f"{where}the key {key!r} beside the servers is not applied, and what it denies is offered; write "
            "'exclude', 'confirm' or 'sandbox' into the entries of the servers"
        )

    def warn_of_unknown(self, keys: list[str]) -> None:
        """Warn of unknown keys beside the servers, in one line: a file of another program may have many."""
        where = ""
        if self._document.path:
            where = f"{self._document.path}: "
        shown = [mask_tokens(repr(key)) for key in keys[:_MAX_UNKNOWN]]
        if len(keys) > _MAX_UNKNOWN:
            shown.append(f"{len(keys) - _MAX_UNKNOWN} more")
        noun = "keys"
        if len(keys) == 1:
            noun = "key"
        self._log(f"{where}unknown {noun} {', '.join(shown)} beside the servers; not applied")

    def warn_of_empty_file(self) -> None:
        """Warn that a file has nothing in it: an editor that writes in place empties it first."""
        self._log(f"{self._document.path}: the file is empty, so there are no servers")

    def _remove(self, name: str) -> None:
        for names in (self.servers, self.errors, self.disabled):
            names.pop(name, None)
        position = self._positions.get(name)
        if position is not None:
            reason = "a later entry of the file has this name"
            self.entries[position] = self.entries[position].replace(status="shadowed", reason=reason)

    def _record(
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
        self._positions[name] = len(self.entries)
        self.entries.append(entry)

    def _free_name(self, name: str) -> str:
        """Return the derived name, numbered when it is taken."""
        if not self._is_taken(name):
            return name
        numbered = (f"{name}-{number}" for number in count(2))
        return next(free for free in numbered if not self._is_taken(free))

    def _read(self, item: FoundEntry) -> ServerConfig | _InactiveEntry:
        entry = as_object(item.value)
        if entry is None:
            if self._from_code:
                return server_config(item.value, name=None if item.nameless else item.name)
            raise self._error(item, f"the entry must be an object, not {kind_of(item.value)}")
        # An entry that is switched off, or not a server, is not read any further: the rest of it may be wrong.
        if is_disabled(entry, self._scope):
            return _OFF
        reason = reason_not_to_start(entry, item.dialect)
        if reason is not None:
            return _InactiveEntry("skipped", reason)
        if item.nameless and item.path:
            raise self._error(item, "the entry has no 'name'; every server of a list needs one", field="name")
        return self._read_server(item, entry)

    def _read_server(self, item: FoundEntry, entry: JsonObject) -> ServerConfig:
        name = "" if item.nameless else item.name
        parsed = read_entry(name, entry, dialect=item.dialect, scope=self._scope, source=self._source(item))
        config = named(parsed.config)
        if self._rules is not None:
            config = self._rules.apply(config)
        noted = item.replace(name=config.name)
        for note in parsed.notes:
            self._warn(noted, note)
        if config.caution and not config.disabled:
            self._warn(noted, config.caution)
        return config

    def _source(self, item: FoundEntry) -> Source | None:
        if self._document.path:
            return Source(path=self._document.path, line=self._document.line(item.path))
        return None

    def _error(self, item: FoundEntry, message: str, *, field: str | None = None) -> ConfigError:
        line = self._document.line(item.path)
        return ConfigError(message, server=item.name, field=field, path=self._document.path or None, line=line)

    def _warn(self, item: FoundEntry, message: str) -> None:
        self._notes.append(message)
        source = self._source(item)
        text = f"{source}: " if source else ""
        self._log(f"{text}server {item.name!r}: {message}")

    def _log(self, text: str) -> None:
        self.warnings.append(text)
        _LOG.warning("%s", text)


def _in_lines(lines: Sequence[int]) -> str:
    return f"in lines {', '.join(map(str, lines))}"


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
    """Read the entries of a document.

    Args:
        document: The document.
        scope: The values of the variables in it.
        dialect: The dialect of its file.
        from_code: The document comes from code, so its entries may be any object that describes a server.
        optional: Accept a document without a section for servers.
        switched_off: The reasons why other files switch servers off, by name.
        tool_rules: The tools that other files deny.

    Raises:
        ConfigError: As `load_config`.
    """
    if from_code:
        check_depth(document.value)
    found = _found_in(document, dialect, scope, from_code=from_code, optional=optional)
    if tool_rules is None and any(map(_is_in_opencode_section, found.items)):
        tool_rules = rules_of_opencode(document.value, None, Path(scope.workspace), Path(scope.home))
    loader = _ConfigLoader(document, scope.replace(definitions=found.inputs), from_code=from_code, rules=tool_rules)
    if document.path and not optional and not document.value:
        loader.warn_of_empty_file()
    for key in found.unapplied:
        loader.warn_of_unapplied(key)
    if found.unknown and not _is_of_editor(PurePath(document.path)):
        loader.warn_of_unknown(found.unknown)
    off = {comparable_name(name): reason for name, reason in (switched_off or {}).items()}
    loader.warn_of_repeated_sections()
    for item in found.items:
        loader.add(item, found.excluded(item.name) or off.get(comparable_name(item.name)))
    return LoadedConfig(
        servers=loader.servers,
        errors=loader.errors,
        warnings=loader.warnings,
        disabled=[*loader.disabled],
        files=[_file_of(document, found, dialect)] if document.path else [],
        entries=loader.entries,
        gateway_sections=_sections_of(found, document.path),
    )


def _is_of_editor(path: PurePath) -> bool:
    """Return whether a file is one of an editor's, so that the keys beside the servers are the editor's settings."""
    if path.name in _OF_EDITORS:
        return True
    return path.parent.name.startswith(".")


def _found_in(
    document: ConfigDocument, dialect: Dialect, scope: Scope, *, from_code: bool, optional: bool
) -> FoundServers:
    path = document.path or None
    try:
        found = find_servers(document.value, dialect=dialect, project=scope.workspace, from_code=from_code)
    except ConfigError as error:
        line = None if error.field is None else document.line(tuple(error.field.split(".")))
        raise ConfigError(error.message, field=error.field, path=path, line=line) from None
    if not found.recognised and not optional:
        raise ConfigError(
            "this config has no place for servers; expected 'mcpServers' or 'servers' with an entry per server",
            path=path,
        )
    if len(found.items) > MAX_ENTRIES:
        raise ConfigError(f"it has {len(found.items):,} servers; at most {MAX_ENTRIES:,} are read", path=path)
    return found


def _is_in_opencode_section(item: FoundEntry) -> bool:
    return item.dialect == "opencode" and item.path[:1] == ("mcp",)


def gateway_sections(config: object) -> tuple[str, ...]:
    """Return the value of `LoadedConfig.gateway_sections` without reading the servers; empty for an unreadable file.

    Args:
        config: A config of any shape that `load_config` accepts.
    """
    if isinstance(config, LoadedConfig):
        return tuple(config.gateway_sections)
    path = ""
    try:
        if isinstance(config, (str, PurePath)):
            path = str(config)
            config = read_document(_expanded(config)).value
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


def content_digest(config: JsonObject) -> str:
    """Return the digest that a file with this content has when it is loaded."""
    return _digest(find_servers(config))


def _file_of(document: ConfigDocument, found: FoundServers, dialect: Dialect) -> LoadedFile:
    return LoadedFile(path=Path(document.path), dialect=dialect, digest=_digest(found), inputs=found.inputs)


def _digest(found: FoundServers) -> str:
    """Return the SHA-256 of a document's entries and inputs, as Python's `repr` writes them."""
    # `repr` and not JSON: entries of YAML and TOML hold dates, and the order of keys has to count.
    content = ([(item.path, item.value) for item in found.items], found.inputs)
    return hashlib.sha256(repr(content).encode("utf-8", "surrogatepass")).hexdigest()


def project_of(path: Path) -> Path:
    """Return the directory for `${workspaceFolder}` in a file: the project's, or the current one for a user's file."""
    folder = path.absolute().parent
    if folder.name not in _DOT_FOLDERS:
        return folder
    if folder.parent == home_directory():
        return Path.cwd()
    return folder.parent
