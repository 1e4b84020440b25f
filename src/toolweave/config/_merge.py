"""Normalization of an entry to its full form, and merging of two entries. Expands and mutates no mapping."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, cast, overload

from toolweave.config._entries import merge_layers, read_arguments
from toolweave.config._expand import Scope
from toolweave.config._model import ServerConfig, canonical_transport
from toolweave.config._secret import Secret
from toolweave.config._validation import check_object
from toolweave.errors import ConfigError

_log = logging.getLogger(__name__)
_CONNECTION = ("command", "args", "env", "cwd", "url", "headers")


def normalize_config(server_name: str, config: ServerConfig | Mapping[str, Any]) -> dict[str, Any]:
    """Return the full form of an entry: `serverName`, `transport`, `connection`, `auth`.

    `serverName` is filled in where the entry has none. Other settings stay beside them, keys that
    belong to no setting go into `connection`. Doing it again changes nothing. Variables stay as
    they are written; secrets of a `ServerConfig` stay wrapped.

    Raises:
        ConfigError: There is no name, or no connection; names server and field.
    """
    full = _folded(config)
    name = full.pop("serverName", None) or server_name
    if not isinstance(name, str) or not name:
        raise ConfigError("'serverName' is missing: the entry has none and no name was given", field="serverName")
    transport = full.pop("transport", None) or _inferred(full)
    connection = cast("dict[str, Any]", full.pop("connection", {}))
    needed = {"stdio": "command", "http": "url", "sse": "url"}.get(transport, "")
    if not connection or (needed and not connection.get(needed)):
        raise ConfigError(
            f"'connection' is missing{f' its {needed!r}' if connection else ''}: transport {transport!r} needs it",
            server=name,
            field=f"connection.{needed}" if needed else "connection",
        )
    auth = full.pop("auth", None)
    out = {"serverName": name, "transport": transport, "connection": connection, **full}
    if auth is None:
        return out
    return {**out, "auth": auth}


@overload
def merge_config(base: ServerConfig, runtime: ServerConfig | Mapping[str, Any] | None = None) -> ServerConfig: ...


@overload
def merge_config(
    base: Mapping[str, Any], runtime: ServerConfig | Mapping[str, Any] | None = None
) -> Mapping[str, Any]: ...


def merge_config(
    base: ServerConfig | Mapping[str, Any], runtime: ServerConfig | Mapping[str, Any] | None = None
) -> ServerConfig | Mapping[str, Any]:
    """Merge a runtime config into a base config; the runtime wins.

    `connection` is merged key by key, `auth` is the runtime's or else the base's, and without a
    runtime the base itself comes back. Two mappings make a mapping in the full form; a
    `ServerConfig` stays one.

    Raises:
        ConfigError: The result is no valid `ServerConfig`, or a mapping has a wrong shape.
    """
    if runtime is None:
        return base
    if isinstance(base, ServerConfig):
        return _merged_into(base, runtime)
    below = _folded(base)
    above = _folded(runtime)
    if "transport" not in below and "connection" in below:
        below["transport"] = _inferred(below)
    connection = {**below.get("connection", {}), **above.get("connection", {})}
    auth = above.get("auth") or below.get("auth")
    out = {**below, **above}
    if connection:
        out["connection"] = connection
    if auth is not None:
        out["auth"] = auth
    return out


def _merged_into(base: ServerConfig, runtime: ServerConfig | Mapping[str, Any]) -> ServerConfig:
    if isinstance(runtime, ServerConfig):
        changes = {**runtime.to_mapping(), "sensitive": tuple(runtime.sensitive)}
    else:
        try:
            changes, notes = read_arguments(runtime, scope=Scope(env=os.environ))
        except ConfigError as error:
            raise base.error(error.message, field=error.field) from None
        for note in notes:
            _log.warning("server %r: %s", base.name, note)
    options = cast("dict[str, Any]", changes.get("options", {}))
    sensitive = cast("tuple[Secret, ...]", changes["sensitive"])
    return base.replace(
        **{
            **changes,
            "options": {**base.options, **options},
            "sensitive": (*base.sensitive, *sensitive),
        }
    )


def _folded(config: ServerConfig | Mapping[str, Any]) -> dict[str, Any]:
    """Sort an entry's settings into the full form, adding nothing."""
    flat = merge_layers(config.to_mapping() if isinstance(config, ServerConfig) else check_object(config, "config"))
    known = flat.known
    if "http_url" in known:
        known.update(url=known.pop("http_url"), transport="http")
    options = dict(check_object(known.pop("options", {}), "options"))
    transport_options = merge_layers(options).options  # not those that `connection` would read as settings
    if rest := {key: value for key, value in options.items() if key not in transport_options}:
        known["options"] = rest
    own = {key: known.pop(key) for key in _CONNECTION if key in known}
    if isinstance(own.get("command"), list):
        command, *first = cast("list[Any]", own["command"]) or [""]
        own["command"] = command
        if isinstance(more := own.get("args", []), list):  # the reader of the entry refuses another type
            own["args"] = [*first, *cast("list[Any]", more)]
    connection = {**transport_options, **flat.options, **own}
    out = {("serverName" if key == "name" else key): value for key, value in known.items()}
    if "transport" in out:
        out["transport"] = "http" if out["transport"] == "websocket" else canonical_transport(str(out["transport"]))
    if connection:
        return {**out, "connection": connection}
    return out


def _inferred(full: Mapping[str, Any]) -> str:
    connection: Mapping[str, Any] = full.get("connection", {})
    if connection.get("url") and not connection.get("command"):
        return "http"
    return "stdio"
