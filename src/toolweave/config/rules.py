"""What makes a `ServerConfig` right: its fields brought into one form, and the whole checked.

Knows the transports by name only. Raises `ConfigError` without server and place; the config adds them.
"""

from __future__ import annotations

import base64
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from toolweave.config.auth import Auth
from toolweave.config.checks import (
    check_choice,
    check_env,
    check_flag,
    check_headers,
    check_object,
    check_text,
    check_texts,
    check_url,
    kind_of,
)
from toolweave.config.secret import Secret, split_user_info, wrap
from toolweave.config.timeouts import Timeouts
from toolweave.errors import ConfigError

if TYPE_CHECKING:
    from toolweave.config.model import ServerConfig

__all__ = [
    "BUILT_IN_TRANSPORTS",
    "WEBSOCKET_DEPRECATED",
    "canonical_transport",
    "check_reachable",
    "known_transports",
    "normalised",
    "register_transport_name",
    "warn_deprecated",
]

BUILT_IN_TRANSPORTS = ("stdio", "http", "sse", "inprocess")
WEBSOCKET_DEPRECATED = "transport 'websocket' is an old name of 'http' (Streamable HTTP); write 'http'"
_SYNONYMS = {"streamable_http": "http", "streamablehttp": "http", "streaminghttp": "http", "in_process": "inprocess"}
_REMOTE = ("http", "sse")
_registered: set[str] = set()


def known_transports() -> frozenset[str]:
    """Return the names `ServerConfig.transport` accepts: the built-in ones and the registered ones."""
    return frozenset(BUILT_IN_TRANSPORTS) | _registered


def register_transport_name(name: str) -> None:
    """Let configs use a transport of this name (requirement R13); doing it again is no error.

    Raises:
        ConfigError: The name is empty or no string.
    """
    if not check_text(name, "transport").strip():
        raise ConfigError("a transport needs a name", field="transport")
    _registered.add(name)


def normalised(config: ServerConfig) -> dict[str, Any]:
    """Return every field in its one form, `transport` inferred, values checked one by one."""
    out = {name: rule(getattr(config, name), name) for name, rule in _RULES.items()}
    out["transport"] = _transport(config, out)
    if out["url"] and out["transport"] not in _registered:
        out["url"], out["headers"] = _without_user_info(check_url(out["url"]), out["headers"])
    return out


def check_reachable(config: ServerConfig) -> None:
    """Check that the transport has what it needs (requirement R8)."""
    transport = config.transport
    if transport not in known_transports():
        known = ", ".join(sorted(known_transports()))
        raise ConfigError(f"unknown transport {transport!r}; known: {known}", field="transport")
    if transport == "stdio" and not config.command.strip():
        raise ConfigError("transport 'stdio' needs 'command', the program to start", field="command")
    if transport in _REMOTE and not config.url:
        raise ConfigError(f"transport {transport!r} needs 'url', the address of the MCP endpoint", field="url")
    if transport == "inprocess" and config.server is None:
        raise ConfigError("transport 'inprocess' needs 'server', an object from code", field="server")


def canonical_transport(name: str) -> str:
    """Return the one name of a transport that has several, without its deprecations."""
    plain = name.strip().replace("-", "_")
    return _SYNONYMS.get(plain.lower(), plain.lower() if plain.lower() in BUILT_IN_TRANSPORTS else name)


def warn_deprecated(message: str) -> None:
    """Warn whoever called into the package, however deep we are."""
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("toolweave."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, DeprecationWarning, stacklevel=level)


def _transport(config: ServerConfig, out: Mapping[str, Any]) -> str:
    name = check_text(config.transport, "transport")
    if name == "websocket" and name not in _registered:
        warn_deprecated(WEBSOCKET_DEPRECATED)
        return "http"
    if name:
        return name if name in _registered else canonical_transport(name)
    given = [field for field in ("command", "url") if out[field]]
    if len(given) > 1:
        raise ConfigError("has both 'command' and 'url'; say which with 'transport'", field="transport")
    if given:
        return "stdio" if given == ["command"] else "http"
    if config.server is not None:
        return "inprocess"
    raise ConfigError(
        "has neither 'command' (a program to start) nor 'url' (a server to reach); one is needed", field="command"
    )


def _without_user_info(url: str, headers: Any) -> tuple[str, Any]:  # Any: a mapping or a callable
    plain, info = split_user_info(url)
    if info is None:
        return url, headers
    if callable(headers) or any(name.lower() == "authorization" for name in headers):
        raise ConfigError("'url' holds user and password although 'headers' authorize already", field="url")
    basic = "Basic " + base64.b64encode(info.encode()).decode()
    return plain, MappingProxyType({**headers, "Authorization": wrap(basic)})


def _name(value: Any, field: str) -> str:
    return check_text(value, field, controls=False)


def _path(value: Any, field: str) -> str | None:
    return value if value is None else check_text(_fspath(value), field) or None


def _command(value: Any, field: str) -> str:
    return check_text(_fspath(value), field)


def _fspath(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else value


def _args(value: Any, field: str) -> tuple[str, ...]:
    items = [_fspath(item) for item in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value
    return check_texts(items, field)


def _env(value: Any, field: str) -> Mapping[str, Secret]:
    return MappingProxyType(check_env({} if value is None else value, field))


def _headers(value: Any, field: str) -> Any:
    if callable(value):
        return value
    return MappingProxyType(check_headers({} if value is None else value, field))


def _choice(*choices: str) -> Callable[[Any, str], str]:
    return lambda value, field: check_choice(value, field, choices)


def _prefix(value: Any, field: str) -> str | None:
    return None if value is None else check_text(value, field, controls=False)


def _protocol(value: Any, field: str) -> str:
    text = check_text(value, field)
    if text not in ("auto", "legacy") and not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise ConfigError(f"{field!r} must be 'auto', 'legacy' or a revision such as '2025-06-18'", field=field)
    return text


def _limit(value: Any, field: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{field!r} must be a whole number, not {kind_of(value)}", field=field)
    if value is not None and value < 1:
        raise ConfigError(f"{field!r} must be at least 1", field=field)
    return value


def _options(value: Any, field: str) -> Mapping[str, Any]:
    return MappingProxyType({str(key): item for key, item in check_object(value, field).items()})


_RULES: dict[str, Callable[[Any, str], Any]] = {
    "name": _name,
    "command": _command,
    "args": _args,
    "env": _env,
    "cwd": _path,
    "url": lambda value, field: check_text(value, field).strip(),
    "headers": _headers,
    "auth": lambda value, field: Auth.of(value),
    "disabled": check_flag,
    "timeout": lambda value, field: Timeouts.of(value),
    "include": check_texts,
    "exclude": check_texts,
    "tool_prefix": _prefix,
    "restart": _choice("on_failure", "never"),
    "legacy_sse": _choice("auto", "never", "only"),
    "protocol": _protocol,
    "validate_input": check_flag,
    "validate_output": _choice("warn", "error", "off"),
    "max_concurrency": _limit,
    "max_connections": _limit,
    "max_message_bytes": _limit,
    "on_conflict": _choice("rename", "skip", "error"),
    "engine": _choice("auto", "sdk"),
    "options": _options,
    "sensitive": lambda value, field: tuple(wrap(item) for item in value),
}
