"""Config files as the servers in them: each right one, and each wrong one with its place and reason.

One bad entry never takes the file down (requirement C3). Reads files; connects to nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, cast

from toolweave.config.accept import named, server_config
from toolweave.config.checks import kind_of
from toolweave.config.dialects import Dialect, is_disabled, read_entry
from toolweave.config.documents import Document, read_document
from toolweave.config.expand import Scope, home_directory
from toolweave.config.model import ServerConfig, Source
from toolweave.config.sections import Item, find_servers
from toolweave.errors import ConfigError

__all__ = ["LoadedConfig", "load_config", "load_file", "merge_loaded"]

_LOG = logging.getLogger(__name__)
_DOT_FOLDERS = (".vscode", ".cursor", ".gemini", ".codex", ".zed", ".roo", ".kiro", ".amazonq", ".mcp", ".config")
_DIALECT_BY_FOLDER: dict[str, Dialect] = {".gemini": "gemini", ".codex": "codex"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """What some config files say.

    Attributes:
        servers: The servers to connect, by name, in the files' order.
        errors: The servers whose entry is wrong, by name; they are not in `servers`.
        warnings: Remarks for the writer of the file: unknown keys, deprecated words, names defined twice.
        disabled: The names of the entries that are switched off; they are not in `servers`.
        paths: The files that were read.
    """

    servers: Mapping[str, ServerConfig] = field(default_factory=dict[str, ServerConfig])
    errors: Mapping[str, ConfigError] = field(default_factory=dict[str, ConfigError])
    warnings: Sequence[str] = ()
    disabled: Sequence[str] = ()
    paths: Sequence[Path] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "servers", MappingProxyType(dict(self.servers)))
        object.__setattr__(self, "errors", MappingProxyType(dict(self.errors)))
        for name in ("warnings", "disabled", "paths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def select(self, names: Iterable[str]) -> LoadedConfig:
        """Return only the named servers, those with errors included.

        Raises:
            ConfigError: A name is unknown, or its entry is switched off.
        """
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if name in self.disabled:
                raise ConfigError("the entry is switched off in the config", server=name, field="disabled")
            if name not in self.servers and name not in self.errors:
                known = ", ".join([*self.servers, *self.errors]) or "none"
                raise ConfigError(f"the config has no such server; it has: {known}", server=name)
        return LoadedConfig(
            servers={name: self.servers[name] for name in wanted if name in self.servers},
            errors={name: self.errors[name] for name in wanted if name in self.errors},
            warnings=self.warnings,
            paths=self.paths,
        )


def load_config(
    config: Any,  # a path, a mapping, a list, or a LoadedConfig
    *,
    env: Mapping[str, str] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> LoadedConfig:
    """Read a config file, or the same content given as a value (requirements R8, F3).

    Accepts JSON (comments and trailing commas allowed), YAML and TOML with servers under
    `mcpServers`, `mcp_servers`, `servers` (with `inputs`), `context_servers`, `mcp`, `services.mcp`,
    `tool.toolweave`; a list of entries; one entry; entries by name. From code, an entry may be
    anything that `server_config` takes.

    Args:
        config: The file's path, or its content.
        env: What `${VAR}` stands for; the process's environment when None.
        inputs: What `${input:ID}` stands for.

    Raises:
        ConfigError: The file cannot be read or parsed, or holds no place for servers. What is
            wrong with a single server is in `errors` instead.

    A name defined twice in a file: the last entry counts, with a warning.
    """
    if isinstance(config, LoadedConfig):
        return config
    scope = Scope(env=os.environ if env is None else env, inputs=inputs or {})
    if isinstance(config, (str, PurePath)):
        path = Path(config)
        return load_file(home_directory().joinpath(*path.parts[1:]) if path.parts[:1] == ("~",) else path, scope)
    return _loaded(Document(value=config, path=""), scope, dialect="generic", from_code=True)


def load_file(path: Path, scope: Scope, *, workspace: Path | None = None, optional: bool = False) -> LoadedConfig:
    """Read one file; `optional` accepts a file that holds no place for servers.

    Raises:
        ConfigError: As `load_config`.
    """
    document = read_document(path)
    folder = workspace or _project_of(path)
    dialect = _DIALECT_BY_FOLDER.get(path.parent.name, "opencode" if path.stem == "opencode" else "generic")
    scope = replace(scope, workspace=str(folder))
    return _loaded(document, scope, dialect=dialect, optional=optional)


def merge_loaded(loaded: Iterable[LoadedConfig]) -> LoadedConfig:
    """Put several configs together: the first to define a name wins, be it right, wrong or switched off."""
    servers: dict[str, ServerConfig] = {}
    errors: dict[str, ConfigError] = {}
    warnings: list[str] = []
    disabled: dict[str, None] = {}
    paths: dict[Path, None] = {}
    for one in loaded:
        taken = {*servers, *errors, *disabled}
        servers.update({name: config for name, config in one.servers.items() if name not in taken})
        errors.update({name: error for name, error in one.errors.items() if name not in taken})
        disabled.update(dict.fromkeys(name for name in one.disabled if name not in taken))
        warnings += one.warnings
        paths.update(dict.fromkeys(one.paths))
    return LoadedConfig(servers=servers, errors=errors, warnings=warnings, disabled=[*disabled], paths=[*paths])


class _Loading:
    """The entries of one document on their way into a `LoadedConfig`."""

    def __init__(self, document: Document, scope: Scope, *, from_code: bool) -> None:
        self._document = document
        self._scope = scope
        self._from_code = from_code
        self.servers: dict[str, ServerConfig] = {}
        self.errors: dict[str, ConfigError] = {}
        self.warnings: list[str] = []
        self.disabled: dict[str, None] = {}

    def add(self, item: Item) -> None:
        """Read one entry into its place; it replaces an earlier one of its name."""
        if item.name in {*self.servers, *self.errors, *self.disabled}:
            self._warn(item, "is defined twice; the last entry counts")
            for place in (self.servers, self.errors, self.disabled):
                place.pop(item.name, None)
        elif lines := self._document.repeated(item.path):
            self._warn(item, f"is defined twice, in lines {', '.join(map(str, lines))}; the last entry counts")
        try:
            config = self._read(item)
        except ConfigError as error:
            named_here = error if error.server else self._error(item, error.message, field=error.field)
            self.errors[item.name] = named_here
            return
        if config is None or config.disabled:
            self.disabled[item.name] = None
            return
        if item.nameless:
            config = config.replace(name=self._free(config.name))
        self.servers[config.name] = config

    def _free(self, name: str) -> str:
        """Return the derived name, numbered when it is taken (defect D9)."""
        taken = {*self.servers, *self.errors, *self.disabled}
        return next(free for n in count(1) if (free := name if n == 1 else f"{name}-{n}") not in taken)

    def _read(self, item: Item) -> ServerConfig | None:
        value = item.value
        if self._from_code and not isinstance(value, Mapping):
            return server_config(value, name=None if item.nameless else item.name)
        if not isinstance(value, Mapping):
            raise self._error(item, f"the entry must be an object, not {kind_of(value)}")
        entry = cast("Mapping[str, Any]", value)
        if is_disabled(entry, self._scope):
            return None
        if item.nameless and item.path:
            raise self._error(item, "the entry has no 'name'; every server of a list needs one", field="name")
        name = "" if item.nameless else item.name
        reading = read_entry(name, entry, dialect=item.dialect, scope=self._scope, source=self._source(item))
        config = named(reading.config)
        for note in reading.notes:
            self._warn(replace(item, name=config.name), note)
        return config

    def _source(self, item: Item) -> Source | None:
        return Source(path=self._document.path, line=self._document.line(item.path)) if self._document.path else None

    def _error(self, item: Item, message: str, *, field: str | None = None) -> ConfigError:
        path, line = self._document.path or None, self._document.line(item.path)
        return ConfigError(message, server=item.name, field=field, path=path, line=line)

    def _warn(self, item: Item, message: str) -> None:
        source = self._source(item)
        text = f"{source}: " if source else ""
        text += f"server {item.name!r}: {message}"
        self.warnings.append(text)
        _LOG.warning("%s", text)


def _loaded(
    document: Document, scope: Scope, *, dialect: Dialect, from_code: bool = False, optional: bool = False
) -> LoadedConfig:
    path = document.path or None
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
    loading = _Loading(document, replace(scope, definitions=found.inputs), from_code=from_code)
    for item in found.items:
        loading.add(item)
    return LoadedConfig(
        servers=loading.servers,
        errors=loading.errors,
        warnings=loading.warnings,
        disabled=[*loading.disabled],
        paths=[Path(document.path)] if document.path else [],
    )


def _project_of(path: Path) -> Path:
    """Return the directory a file's `${workspaceFolder}` means: that of the project, or ours for a user's file."""
    folder = path.absolute().parent
    if folder.name not in _DOT_FOLDERS:
        return folder
    return Path.cwd() if folder.parent == home_directory() else folder.parent
