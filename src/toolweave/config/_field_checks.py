"""Checks of the fields of a `ServerConfig`, one for each, which return the value in its canonical form.

A field has no check if `ServerConfig` takes any value for it, or if it depends on others, such as `transport`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, cast

from toolweave._json_types import JsonObject, as_integer, as_sequence
from toolweave.config._auth import Auth
from toolweave.config._confinement import ResourceLimits, Sandbox
from toolweave.config._secret import Secret, wrap
from toolweave.config._shaping import read_shape
from toolweave.config._source import Source
from toolweave.config._timeouts import Timeouts
from toolweave.config._tool_filters import ANY_TOOL
from toolweave.config.validation import (
    Check,
    check_choice,
    check_env,
    check_flag,
    check_headers,
    check_object,
    check_text,
    check_texts,
    kind_of,
)
from toolweave.errors import ConfigError

CONFIRM = ("always", "writes", "destructive", "never")
"""The values of `confirm`."""


def _name(value: object, field: str) -> str:
    return check_text(value, field, controls=False)


def _path(value: object, field: str) -> str | None:
    if value is None:
        return value
    return check_text(_fspath(value), field) or None


def _command(value: object, field: str) -> str:
    return check_text(_fspath(value), field)


def _fspath(value: object) -> object:
    if isinstance(value, PurePath):
        return str(value)
    return value


def _args(value: object, field: str) -> tuple[str, ...]:
    items = as_sequence(value)
    if items is None:
        return check_texts(value, field)  # refuses it
    return check_texts(list(map(_fspath, items)), field)


def _url(value: object, field: str) -> str:
    return check_text(value, field).strip()


def _env(value: object, field: str) -> Mapping[str, Secret]:
    if value is None:
        value = {}
    return MappingProxyType(check_env(value, field))


def _headers(value: object, field: str) -> object:
    if value is None:
        value = {}
    if callable(value):
        return value
    return MappingProxyType(check_headers(value, field))


def _choice(*choices: str) -> Check:
    return lambda value, field: check_choice(value, field, choices)


def _allowed(value: object, field: str) -> tuple[str, ...]:
    names = check_texts(value, field)
    # An empty list offers everything, so that all readers have one form of it.
    if ANY_TOOL in names:
        return ()
    return names


def _confirm(value: object, field: str) -> Mapping[str, str]:
    if isinstance(value, str):
        value = {ANY_TOOL: value}
    if value is None:
        value = {}
    modes: dict[str, str] = {}
    for name, mode in check_object(value, field).items():
        modes[str(name)] = check_choice(mode, f"{field}.{name}", CONFIRM)
    return MappingProxyType(modes)


def _prefix(value: object, field: str) -> str | None:
    if value is None:
        return None
    return check_text(value, field, controls=False)


def _protocol(value: object, field: str) -> str:
    text = check_text(value, field)
    if text not in ("auto", "legacy") and not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise ConfigError(f"{field!r} must be 'auto', 'legacy' or a revision such as '2025-06-18'", field=field)
    return text


def _limit(value: object, field: str) -> int | None:
    if value is None:
        return None
    limit = as_integer(value)
    if limit is None:
        raise ConfigError(f"{field!r} must be a whole number, not {kind_of(value)}", field=field)
    if limit < 1:
        raise ConfigError(f"{field!r} must be at least 1", field=field)
    return limit


def _pins(value: object, field: str) -> str | None:
    if value is None:
        return None
    return check_choice(value, field, ("off", "warn", "block"))


def _options(value: object, field: str) -> JsonObject:
    return MappingProxyType({str(key): item for key, item in check_object(value, field).items()})


def _auth(value: object, field: str) -> Auth | None:
    return Auth.of(value)


def _timeout(value: Any, field: str) -> Timeouts:
    return Timeouts.of(value)


def _limits(value: Any, field: str) -> ResourceLimits | None:
    return ResourceLimits.of(value)


def _sandbox(value: Any, field: str) -> Sandbox | None:
    return Sandbox.of(value)


def _sensitive(value: object, field: str) -> tuple[Secret, ...]:
    given = value
    if isinstance(value, (set, frozenset)):
        given = tuple(cast("set[object]", value))
    items = as_sequence(given)
    # A single text would be masked letter by letter, and a value of another type not at all.
    if items is None:
        raise ConfigError(f"{field!r} must be a list of strings, not {kind_of(given)}", field=field)
    return tuple(wrap(check_text(item, f"{field}[{index}]")) for index, item in enumerate(items))


def _source(value: object, field: str) -> Source | None:
    if value is not None and not isinstance(value, Source):
        raise ConfigError(f"{field!r} must be a Source(path=...), not {kind_of(value)}", field=field)
    return value


_FLAGS = ("disabled", "validate_input", "repair_arguments", "repair_messages", "scan")
_COUNTS = (
    *("max_concurrency", "max_connections", "max_message_bytes", "max_list_bytes", "max_questions"),
    "max_question_bytes",
)
FIELD_CHECKS: Mapping[str, Check] = {
    "name": _name,
    "command": _command,
    "args": _args,
    "env": _env,
    "cwd": _path,
    "url": _url,
    "headers": _headers,
    "forward_headers": check_texts,
    "claim_headers": _options,
    "auth": _auth,
    **dict.fromkeys(_FLAGS, check_flag),
    "timeout": _timeout,
    "include": _allowed,
    "exclude": check_texts,
    "confirm": _confirm,
    "tool_prefix": _prefix,
    "restart": _choice("on_failure", "always", "never"),
    "legacy_sse": _choice("auto", "never", "only"),
    "protocol": _protocol,
    "validate_output": _choice("warn", "error", "off"),
    **dict.fromkeys(_COUNTS, _limit),
    "on_conflict": _choice("rename", "skip", "error"),
    "shape": read_shape,
    "pins": _pins,
    "lockfile": _path,
    "limits": _limits,
    "sandbox": _sandbox,
    "options": _options,
    "sensitive": _sensitive,
    "source": _source,
}
