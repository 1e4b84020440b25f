"""Loaded config files as values: servers, wrong entries, and the file and line of each.

Reads nothing: `load.py` makes these values, `discover.py` finds the files that were not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec

from toolweave._json_types import Json, JsonObject, only_members, without_members
from toolweave._value import Value
from toolweave.config._dialect_rules import Dialect
from toolweave.config._model import ServerConfig
from toolweave.errors import ConfigError

PROJECT = "project"
"""The kind of a file that was found in the project's folder, and that may have come with a checkout."""

EntryStatus = Literal["ready", "wrong", "disabled", "excluded", "skipped", "shadowed"]
"""The outcome of loading an entry: `excluded` by a list of its editor, `skipped` as it is not an MCP server itself,
`shadowed` by an entry of the same name that takes precedence."""


class LoadedFile(Value, frozen=True, kw_only=True):
    """A config file that was read.

    Attributes:
        path: The file.
        kind: `named` by the caller, `project` for one that was found in the project, or the editor it belongs to.
        dialect: The dialect it is read in.
        digest: The SHA-256 of all its settings of servers, in hexadecimal.
        inputs: The definitions that `${input:ID}` in it refers to.
    """

    path: Path
    kind: str = "named"
    dialect: Dialect = "generic"
    digest: str = ""
    inputs: JsonObject = msgspec.field(default_factory=Json)


class ConfigEntry(Value, frozen=True, kw_only=True):
    """One entry of a config file and its outcome. Its representation shows no value of the file.

    Attributes:
        name: The server's name.
        path: The file, None for an entry from code.
        line: Its 1-based line in the file, or None.
        dialect: The dialect it was read in.
        status: The outcome of loading it.
        reason: The reason why it does not start; empty when it does.
        notes: Settings that were ignored, or read in another way than they may have been meant.
        raw: The entry as the file has it.
        config: The resulting config; None for an entry that is wrong or does not start.
    """

    name: str
    path: Path | None
    line: int | None
    dialect: Dialect
    status: EntryStatus
    reason: str = ""
    notes: Sequence[str] = ()
    raw: Any = None  # whatever a user wrote
    config: ServerConfig | None = None

    def __repr__(self) -> str:
        return f"ConfigEntry(name={self.name!r}, path={str(self.path)!r}, status={self.status!r})"


class LoadedConfig(Value, frozen=True, kw_only=True):
    """The servers of one or several config files.

    Attributes:
        servers: The servers to connect, by name, in the files' order.
        errors: The servers whose entry is wrong, by name; they are not in `servers`.
        warnings: Remarks for the writer of the file: unknown keys, deprecated words, names defined twice.
        disabled: The names of the entries that do not start: those that are switched off, that a list of their owner's
            excludes, or that are not MCP servers themselves. They are not in `servers`; `entries` has the reason.
        files: The files that were read.
        entries: Every entry of every file, in their order, with its outcome.
        gateway_sections: The configs with a section `gateway`, by path or as `the config`. Only a gateway applies it.
    """

    servers: Mapping[str, ServerConfig] = msgspec.field(default_factory=dict[str, ServerConfig])
    errors: Mapping[str, ConfigError] = msgspec.field(default_factory=dict[str, ConfigError])
    warnings: Sequence[str] = ()
    disabled: Sequence[str] = ()
    files: Sequence[LoadedFile] = ()
    entries: Sequence[ConfigEntry] = ()
    gateway_sections: Sequence[str] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "servers", MappingProxyType(dict(self.servers)))
        msgspec.structs.force_setattr(self, "errors", MappingProxyType(dict(self.errors)))
        for name in ("warnings", "disabled", "files", "entries", "gateway_sections"):
            msgspec.structs.force_setattr(self, name, tuple(getattr(self, name)))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the files that were read."""
        return tuple(file.path for file in self.files)

    def select(self, names: Iterable[str]) -> LoadedConfig:
        """Return only the named servers, those with errors included.

        Raises:
            ConfigError: A name is unknown, or its entry does not start.
        """
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if name in self.disabled:
                raise ConfigError(f"it does not start: {self.why_disabled(name)}", server=name, field="disabled")
            if name not in self.servers and name not in self.errors:
                known = ", ".join([*self.servers, *self.errors]) or "none"
                raise ConfigError(f"the config has no such server; it has: {known}", server=name)
        return self.replace(servers=_only(self.servers, wanted), errors=_only(self.errors, wanted), disabled=())

    def why_disabled(self, name: str) -> str:
        """Return why an entry does not start, in a few words."""
        for entry in self.entries:
            if entry.name == name and entry.reason:
                return entry.reason
        return "it is switched off in the config"

    def found_as(self, kind: str, *, within: Path | None = None) -> LoadedConfig:
        """Return a copy whose files are marked as found, with this `kind`.

        `within` is the directory that stdio servers start in, instead of the current one.
        """
        servers = self.servers
        if within is not None:
            servers = {name: _started_within(config, within) for name, config in servers.items()}
        files = [file.replace(kind=kind) for file in self.files]
        entries = [entry.replace(config=servers.get(entry.name, entry.config)) for entry in self.entries]
        return self.replace(servers=servers, files=files, entries=entries)


Named = TypeVar("Named", ServerConfig, ConfigError)


def _only(values: Mapping[str, Named], names: Iterable[str]) -> dict[str, Named]:
    return only_members(values, names)


def merge_loaded(loaded: Iterable[LoadedConfig]) -> LoadedConfig:
    """Put several configs together: the first to define a name wins, be it right, wrong or switched off."""
    servers: dict[str, ServerConfig] = {}
    errors: dict[str, ConfigError] = {}
    warnings: list[str] = []
    disabled: dict[str, None] = {}
    files: dict[Path, LoadedFile] = {}
    entries: list[ConfigEntry] = []
    gateway_sections: list[str] = []
    # `taken` is computed before anything of a file is added: inside one file, the entry that counts was chosen already.
    for one in loaded:
        taken = {*servers, *errors, *disabled}
        servers.update(without_members(one.servers, *taken))
        errors.update(without_members(one.errors, *taken))
        disabled.update(dict.fromkeys(name for name in one.disabled if name not in taken))
        warnings += one.warnings
        gateway_sections += one.gateway_sections
        for file in one.files:
            files.setdefault(file.path, file)
        entries += (_shadowed(entry) if entry.name in taken else entry for entry in one.entries)
    return LoadedConfig(
        servers=servers,
        errors=errors,
        warnings=warnings,
        disabled=[*disabled],
        files=[*files.values()],
        entries=entries,
        gateway_sections=gateway_sections,
    )


def _shadowed(entry: ConfigEntry) -> ConfigEntry:
    return entry.replace(status="shadowed", reason="another file, which comes first, defines this name")


def _started_within(config: ServerConfig, folder: Path) -> ServerConfig:
    if config.transport != "stdio":
        return config
    return config.replace(cwd=str(folder / (config.cwd or "")))
