"""Conversion of everything that `connect_mcp` accepts for one server to a `ServerConfig`. Starts nothing."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from toolweave._files import is_file
from toolweave._json_types import Json, JsonObject, as_object, as_sequence, as_text
from toolweave._masking import mask_foreign
from toolweave.config._auth import Auth
from toolweave.config._dialect_rules import Dialect
from toolweave.config._entries import SSE_DEPRECATED, looks_like_entry, read_entry
from toolweave.config._expand import Scope
from toolweave.config._locate import SECTIONS, find_servers
from toolweave.config._model import WEBSOCKET_DEPRECATED, ServerConfig, read_fields_with, warn_deprecated
from toolweave.config._naming import name_from_command, name_from_url
from toolweave.config._source import Source
from toolweave.config._timeouts import Timeouts
from toolweave.config.secret_args import secrets_in
from toolweave.config.validation import kind_of
from toolweave.errors import ConfigError

_LOG = logging.getLogger(__name__)
_NO_SERVER: tuple[type, ...] = (type(None), bool, int, float, bytes, set, frozenset)
# What an object in this process is opened by: our servers, transports, and the SDK's servers and their wrappers.
_SERVER_ATTRIBUTES = frozenset({"open_wire", "__aenter__", "run", "_lowlevel_server", "_mcp_server"})
_INTERPRETERS = {".py": sys.executable or "python3", ".js": "node", ".mjs": "node", ".cjs": "node"}
CONFIG_SUFFIXES = (".json", ".jsonc", ".yaml", ".yml", ".toml")
"""The suffixes of config files."""
_URL_SCHEMES = ("http", "https", "ws", "wss")


def parse_server(
    name: str,
    entry: JsonObject,
    *,
    dialect: Dialect = "generic",
    env: Mapping[str, str] | None = None,
    inputs: JsonObject | None = None,
    source: Source | None = None,
) -> ServerConfig:
    """Read one server's entry in any of its shapes.

    Args:
        name: The server's name; empty takes the entry's own.
        entry: The entry, as a file has it.
        dialect: The dialect whose rules apply where dialects contradict each other.
        env: The variables for `${VAR}`; the process's environment when None.
        inputs: The values for `${input:ID}`.
        source: The file and line of the entry, for errors.

    Raises:
        ConfigError: The entry is wrong or a variable is unset; names server and field.

    Unknown keys are logged and kept in `options`.
    """
    parsed = read_entry(name, entry, dialect=dialect, scope=Scope.given(env, inputs), source=source)
    for note in parsed.notes:
        if note == WEBSOCKET_DEPRECATED:
            warn_deprecated(note)
        else:
            _LOG.warning("server %r: %s", named(parsed.config).name, note)
    return parsed.config


def parse_command(command: str | Sequence[str], *, name: str = "") -> ServerConfig:
    """Read a command line, given as one string (quoted as in a shell, which is not used) or as a list.

    Raises:
        ConfigError: It is empty, or its quotes do not match.
    """
    try:
        if isinstance(command, str):
            words = shlex.split(command, posix=os.name != "nt")
        else:
            words = list(command)
    except ValueError as error:
        raise ConfigError(f"the command line cannot be split: {error}", server=name or None, field="command") from None
    if not words:
        raise ConfigError("the command line is empty", server=name or None, field="command")
    return named(ServerConfig(name=name, transport="stdio", command=words[0], args=words[1:]))


def server_config(
    value: object,  # anything that describes a server
    *,
    name: str | None = None,
    headers: object = None,  # a mapping or a callable
    auth: object = None,  # an Auth, a token, a mapping or a provider
    timeout: Timeouts | JsonObject | float | None = None,
    env: Mapping[str, str] | None = None,
) -> ServerConfig:
    """Convert anything that describes a server to its config.

    Args:
        value: A `ServerConfig`, an entry, a URL, a command line, an argv list, the path of a
            `.py` or `.js` file, or an in-process server or SDK transport.
        name: The name; else the config's own, else one derived from the URL or command.
        headers: Headers added to those of the config, or a callable that replaces them.
        auth: Replaces the config's own.
        timeout: Replaces the config's own; a number bounds every wait but the closing.
        env: Variables for the process, added to those of the config.

    Raises:
        ConfigError: As `ServerConfig`.
    """
    if name is None:
        name = ""
    config = _read(value, name)
    changes: Json = {}
    if name:
        changes["name"] = name
    if headers is not None:
        changes["headers"] = _headers_over(config, headers)
    if env is not None:
        changes["env"] = {**config.env, **env}
    try:
        if auth is not None:
            changes["auth"] = Auth.of(auth)
        if timeout is not None:
            changes["timeout"] = Timeouts.of(timeout)
    except ConfigError as error:
        raise config.error(error.message, field=error.field) from None
    if changes:
        config = config.replace(**changes)
    return named(config)


def _headers_over(config: ServerConfig, headers: object) -> object:
    """Return the headers of a config with others added; a callable replaces them, or is replaced."""
    added = as_object(headers)
    if added is None or callable(config.headers):
        return headers
    return {**config.headers, **added}


def named(config: ServerConfig) -> ServerConfig:
    """Return the config with a name: its own, or one derived from its URL, command or server object."""
    if config.name:
        return config
    if config.transport == "stdio":
        return config.replace(name=_without_secret(name_from_command(config.command, config.args), config))
    if config.url:
        return config.replace(name=_without_secret(name_from_url(config.url), config))
    own = as_text(getattr(config.server, "name", None))
    return config.replace(name=own or config.transport)


def _without_secret(name: str, config: ServerConfig) -> str:
    """Return a derived name, or the transport's if the name would show a secret of the command or the URL."""
    secrets = secrets_in((config.command, *config.args, config.url))
    if mask_foreign(name, secrets) == name:
        return name
    return config.transport


def _read(value: object, name: str) -> ServerConfig:
    if isinstance(value, ServerConfig):
        if value.transport == "sse":
            _LOG.warning("server %r: %s", name or named(value).name, SSE_DEPRECATED)
        return value
    if isinstance(value, str):
        return _from_text(value.strip(), name)
    if isinstance(value, PurePath):
        return _script(str(value), name)
    # Anything else may be an object of an application: a server, an ASGI program, a transport. Values that cannot be
    # one are refused here, with a better message than a connection could give.
    if isinstance(value, _NO_SERVER):
        accepted = "a server is a config, a URL, a command or a server object"
        raise ConfigError(f"{accepted}, not {kind_of(value)}", server=name or None)
    entry = as_object(value)
    if entry is not None:
        return _from_mapping(entry, name)
    words = as_sequence(value)
    if words is not None:
        return parse_command(words, name=name)
    _check_server_object(value, name)
    return ServerConfig(name=name, transport="inprocess", server=value)


def _check_server_object(value: object, name: str) -> None:
    """Raise an error for an object that can never be a server, with the call that makes one of it.

    Raises:
        ConfigError: The value is a class, an agent, a function or another object that cannot be opened.
    """
    server = name or None
    accepted = "a server is a config, a URL, a command or a server object"
    if isinstance(value, type):
        raise ConfigError(f"{accepted}, not the class {value.__name__}; pass an object of it", server=server)
    if hasattr(value, "as_tool"):
        hint = 'serve it first: create_mcp_server("name", agents=[...])'
        raise ConfigError(f"{accepted}, not an agent ({type(value).__name__}); {hint}", server=server)
    if _SERVER_ATTRIBUTES.isdisjoint(dir(value)):
        hint = (
            "to offer functions, resources or prompts, serve them first: "
            'create_mcp_server("name", tools=..., resources=..., prompts=...)'
        )
        raise ConfigError(f"{accepted}, not {kind_of(value)}; {hint}", server=server)


def _from_mapping(entry: JsonObject, name: str) -> ServerConfig:
    if looks_like_entry(entry):
        return parse_server(name, entry)
    found = find_servers(entry).items
    has_section = any(path[0] in entry for path in SECTIONS)
    # Without a section, entries by name, as in `connect_mcp_servers({"a": {...}})`. Elsewhere a value that is not an
    # entry is a wrong key of one.
    if not (has_section or all(map(looks_like_entry, entry.values()))):
        return parse_server(name, entry)  # its error names the missing key
    if not found:
        return parse_server(name, entry)  # as above
    if len(found) == 1:
        return parse_server(name or found[0].name, found[0].value, dialect=found[0].dialect)
    names = ", ".join(item.name for item in found)
    raise ConfigError(f"this config has several servers ({names}); connect_mcp takes one, connect_mcp_servers all")


def _from_text(text: str, name: str) -> ServerConfig:
    scheme = text.partition("://")[0].lower()
    if scheme in _URL_SCHEMES:
        return ServerConfig(name=name, transport="http", url=text)
    path = Path(text)
    suffix = path.suffix.lower()
    if suffix in _INTERPRETERS and _is_path(path, text):
        return _script(text, name)
    if suffix in CONFIG_SUFFIXES and is_file(path):
        raise ConfigError(f"{text!r} is a config file; connect_mcp takes one server, connect_mcp_servers the file")
    return parse_command(text, name=name)


def _is_path(path: Path, text: str) -> bool:
    """Return whether a text that ends like a script is its path alone; else it may be `python my server.py`."""
    return len(text.split()) == 1 or is_file(path)


def _script(text: str, name: str) -> ServerConfig:
    interpreter = _INTERPRETERS.get(Path(text).suffix.lower())
    if interpreter is None:
        return ServerConfig(name=name, transport="stdio", command=text)
    return ServerConfig(name=name, transport="stdio", command=interpreter, args=[text])


read_fields_with(server_config)
