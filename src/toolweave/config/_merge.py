"""Normalization of an entry to its full form, and merging of two entries. Expands and mutates no mapping."""

from __future__ import annotations

import logging
import os
from typing import overload

from toolweave._json_types import Json, JsonObject, as_array, object_or_empty, without_members
from toolweave.config._entries import merge_layers, read_arguments
from toolweave.config._expand import Scope
from toolweave.config._model import ServerConfig, canonical_transport
from toolweave.config.validation import check_object
from toolweave.errors import ConfigError

_log = logging.getLogger(__name__)
_CONNECTION = ("command", "args", "env", "cwd", "url", "headers")
_NEEDED = {"stdio": "command", "http": "url", "sse": "url"}


def normalize_config(server_name: str, config: ServerConfig | JsonObject) -> Json:
    """Return the full form of an entry: `serverName`, `transport`, `connection`, `auth`.

    `serverName` is filled in where the entry has none. Other settings stay beside them, keys that
    belong to no setting go into `connection`. Doing it again changes nothing. Variables stay as
    they are written; secrets of a `ServerConfig` stay wrapped.

    Raises:
        ConfigError: The name or the connection is missing; names server and field.
    """
    full = _folded(config)
    name = full.pop("serverName", None) or server_name
    if not isinstance(name, str) or not name:
        raise ConfigError("'serverName' is missing: the entry has none and no name was given", field="serverName")
    transport = full.pop("transport", None) or _inferred(full)
    connection = object_or_empty(full.pop("connection", {}))
    needed = _NEEDED.get(transport)
    field = "connection" if needed is None else f"connection.{needed}"
    if not connection:
        raise ConfigError(f"'connection' is missing: transport {transport!r} needs it", server=name, field=field)
    if needed is not None and not connection.get(needed):
        raise ConfigError(
            f"'connection' is missing its {needed!r}: transport {transport!r} needs it", server=name, field=field
        )
    auth = full.pop("auth", None)
    out = {"serverName": name, "transport": transport, "connection": connection, **full}
    if auth is None:
        return out
    return {**out, "auth": auth}


@overload
def merge_config(base: ServerConfig, runtime: ServerConfig | JsonObject | None = None) -> ServerConfig: ...


@overload
def merge_config(base: JsonObject, runtime: ServerConfig | JsonObject | None = None) -> JsonObject: ...


def merge_config(
    base: ServerConfig | JsonObject, runtime: ServerConfig | JsonObject | None = None
) -> ServerConfig | JsonObject:
    """Merge a runtime config into a base config; the runtime wins.

    `connection` is merged key by key, `auth` is the runtime's or else the base's, and without a
    runtime the base itself comes back. Two mappings make a mapping in the full form; a
    `ServerConfig` stays one.

    Raises:
        ConfigError: The result is not a valid `ServerConfig`, or a mapping has a wrong shape.
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


def _merged_into(base: ServerConfig, runtime: ServerConfig | JsonObject) -> ServerConfig:
    changes: Json
    if isinstance(runtime, ServerConfig):
        changes = {**runtime.to_mapping(), "sensitive": tuple(runtime.sensitive)}
    else:
        try:
            changes, notes = read_arguments(runtime, scope=Scope(env=os.environ))
        except ConfigError as error:
            raise base.error(error.message, field=error.field) from None
        for note in notes:
            _log.warning("server %r: %s", base.name, note)
    # Options and secrets are added to those of the base: a runtime that sets one option keeps the others, and a value
    # that must not be shown stays one.
    changes["options"] = {**base.options, **changes.get("options", {})}
    changes["sensitive"] = (*base.sensitive, *changes["sensitive"])
    return base.replace(**changes)


def _folded(config: ServerConfig | JsonObject) -> Json:
    """Sort an entry's settings into the full form, adding nothing."""
    entry = config.to_mapping() if isinstance(config, ServerConfig) else check_object(config, "config")
    flat = merge_layers(entry)
    known = flat.known
    if "http_url" in known:
        known.update(url=known.pop("http_url"), transport="http")
    options = dict(check_object(known.pop("options", {}), "options"))
    # An option whose name `connection` would read as a setting has to stay outside of it, or doing this again would
    # change its meaning.
    transport_options = merge_layers(options).options
    rest = without_members(options, *transport_options)
    if rest:
        known["options"] = rest
    own = {key: known.pop(key) for key in _CONNECTION if key in known}
    _split_command(own)
    connection = {**transport_options, **flat.options, **own}
    if "name" in known:
        known["serverName"] = known.pop("name")
    transport = known.get("transport")
    if transport == "websocket":
        known["transport"] = "http"
    elif transport is not None:
        known["transport"] = canonical_transport(str(transport))
    if connection:
        return {**known, "connection": connection}
    return known


def _split_command(connection: Json) -> None:
    """Split a command that is a list into the program and its first arguments."""
    words = as_array(connection.get("command"))
    if words is None:
        return
    connection["command"] = words[0] if words else ""
    args = as_array(connection.get("args", []))
    if args is not None:  # the reader of the entry refuses another type
        connection["args"] = [*words[1:], *args]


def _inferred(full: JsonObject) -> str:
    connection: JsonObject = full.get("connection", {})
    if connection.get("url") and not connection.get("command"):
        return "http"
    return "stdio"
