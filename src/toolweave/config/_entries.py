"""A parser of one server's entry, in any dialect, into the arguments of a `ServerConfig`.

Knows the keys of the editors and of the frameworks and no files. Keys are
read in camelCase, snake_case and kebab-case alike. `rules_of` has the rules that differ between dialects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, cast

import msgspec

from toolweave._value import Value
from toolweave.config._api_entry import as_program
from toolweave.config._auth import Auth
from toolweave.config._dialect_rules import Dialect, rules_of
from toolweave.config._editor_settings import (
    EDITOR_SETTINGS,
    TOOL_SETTINGS,
    apply_editor_settings,
    is_unknown_protection,
    without_effect,
)
from toolweave.config._expand import Expander, Scope
from toolweave.config._model import BUILT_IN_TRANSPORTS, WEBSOCKET_DEPRECATED, ServerConfig, Source, canonical_transport
from toolweave.config._oauth import OAuth
from toolweave.config._secret import Secret
from toolweave.config._shaping import read_shape, with_secrets
from toolweave.config._timeouts import Timeouts
from toolweave.config._tool_filters import FILTER_WORDS, read_filters
from toolweave.config._validation import check_object, check_text, check_texts, kind_of
from toolweave.errors import ConfigError

_MAX_BYTES = 1_000_000
_LINE = (
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.]*)\s*=\s*"""
    r"""(?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^#\n]*?))\s*(?:\#.*)?"""
)
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\"": '"', r"\\": "\\", r"\$": "$"}


def read_env_file(path: Path) -> dict[str, str]:
    """Read `NAME=value` lines; quotes, `export` and comments are understood.

    Raises:
        ConfigError: The file cannot be read, or a line is no assignment; no value is shown.
    """
    try:
        path.stat()  # a path that is not there says so
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            data = path.read_bytes()
        else:
            data = None
        text = None if data is None else data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"'env_file' {str(path)!r} cannot be read: {reason}", field="env_file") from None
    if text is None:
        raise ConfigError(f"'env_file' {str(path)!r} is no file of at most 1 MB", field="env_file")
    out: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(_LINE, line)
        if match is None:
            raise ConfigError(f"line {number} of 'env_file' {str(path)!r} is no NAME=value", field="env_file")
        out[match["name"]] = _value(match)
    return out


def _value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), match["double"])
    if match["single"] is not None:
        return match["single"]
    return match["plain"]


SSE_DEPRECATED = "transport 'sse' is deprecated by the protocol; 'http' falls back to it where a server needs it"

_FIELDS = (
    *("name", "transport", "command", "args", "env", "cwd", "url", "headers", "auth", "disabled", "timeout"),
    *("include", "exclude", "tool_prefix", "restart", "legacy_sse", "protocol", "validate_input", "validate_output"),
    *("max_concurrency", "max_connections", "max_message_bytes", "max_list_bytes", "max_questions"),
    *("max_question_bytes", "repair_arguments", "repair_messages", "on_conflict", "shape", "scan", "pins", "lockfile"),
    *("limits", "sandbox", "options", "server", "confirm"),
)
_SYNONYMS = {
    "server_name": "name",
    "type": "transport",
    "transport_type": "transport",
    "server_url": "url",
    "environment": "env",
    "http_headers": "headers",
    "working_directory": "cwd",
    "is_active": "enabled",
    "cmd": "command",
    "envs": "env",
    "uri": "url",
    "env_keys": "env_vars",
}
_TIMEOUT_KEYS = {  # the bound they set, and their unit in seconds
    "startup_timeout_ms": ("connect", 0.001),
    "startup_timeout_sec": ("connect", 1),
    "tool_timeout_sec": ("call", 1),
    "connection_timeout": ("connect", 0.001),
}
_OPENCODE_TIMEOUTS = {  # in milliseconds
    "startup": ("connect",),
    "request": ("list", "call", "read"),
    "catalog": ("list",),
    "execution": ("call",),
}
_SIGN_IN = frozenset(
    {
        *("oauth", "oauth_resource", "oauth_scopes", "oauth_client_id", "scopes", "scope", "auth_provider_type"),
        *("client_id", "client_secret", "redirect_uri"),
    }
)
"""Sign-in settings of editors: in an object of their own, or beside the URL."""
_DISCOVERED = "dynamic_discovery"
_NOT_DONE = {
    "headers_helper": "is a command that is not run: give 'headers' or 'auth'",
}
_SPECIAL = (
    *("enabled", "http_url", "bearer_token_env_var", "env_http_headers", "env_vars", "env_file"),
    *("openapi", "base_url"),
    *_TIMEOUT_KEYS,
    *EDITOR_SETTINGS,
)
_IGNORED = frozenset(
    {
        *("always_allow", "auto_approve", "description", "icon", "icons", "gallery", "version", "title"),
        *("note", "notes", "comment", "source", "tags", "metadata", "$schema", "bundled", "display_name"),
        *("favicon_url", "remote_configured"),
    }
)
"""Keys that describe an entry, or that relax an editor's approvals: there is nothing to apply."""
_TRANSPORTS = {"local": "stdio", "remote": "http"}
_MILLISECONDS_FROM = 1000


class ParsedEntry(Value, frozen=True):
    """A parsed entry: the config, and remarks for its writer."""

    config: ServerConfig
    notes: list[str]


class _FlatEntry(msgspec.Struct):
    """A partly parsed entry: the known keys by field, the other keys, and remarks."""

    known: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    filters: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    protections: list[str] = msgspec.field(default_factory=list[str])
    options: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    notes: list[str] = msgspec.field(default_factory=list[str])


def read_entry(
    name: str, entry: Mapping[str, Any], *, dialect: Dialect, scope: Scope, source: Source | None = None
) -> ParsedEntry:
    """Read one entry, expand its variables and check it.

    Raises:
        ConfigError: With the server's name and location.
    """
    try:
        arguments, notes = read_arguments(entry, dialect=dialect, scope=scope)
        arguments["name"] = name or arguments.get("name", "")
        config = ServerConfig(**arguments, source=source)
    except ConfigError as error:
        path, line = (source.path, source.line) if source else (None, None)
        raise ConfigError(error.message, server=name or None, field=error.field, path=path, line=line) from None
    notes[:0] = without_effect(config)
    if config.transport == "sse" and dialect != "gemini":
        notes.append(SSE_DEPRECATED)
    return ParsedEntry(config, notes)


def read_arguments(
    entry: Mapping[str, Any], *, dialect: Dialect = "generic", scope: Scope
) -> tuple[dict[str, Any], list[str]]:
    """Read the fields that an entry sets, complete or not, and the remarks about it.

    Raises:
        ConfigError: Without the server's name and location.
    """
    expander = Expander(scope)
    if dialect == "continue":
        entry = _of_continue(entry)
    flat = merge_layers(entry)
    dialect = "gemini" if "http_url" in flat.known else dialect
    values = {key: _expanded(expander, value, key, dialect, flat.notes) for key, value in flat.known.items()}
    arguments = _arguments(values, expander, dialect, flat.notes)
    _check_protections(flat, arguments.get("transport"))
    _check_misspelt(flat, arguments)
    if flat.options or "options" in arguments:
        given = check_object(arguments.get("options", {}), "options")
        arguments["options"] = {**expander.value(flat.options, "options"), **given}
    arguments["sensitive"] = tuple(expander.sensitive)
    if "shape" in arguments and expander.sensitive:
        arguments["shape"] = with_secrets(read_shape(arguments["shape"], "shape"), expander.sensitive)
    return arguments, flat.notes


def looks_like_entry(value: Any) -> bool:  # Any: whatever a user wrote
    """Return whether a value is one server's entry rather than a collection of them."""
    if not isinstance(value, Mapping):
        return False
    entry = cast("Mapping[Any, Any]", value)
    for key in ("command", "url", "httpUrl", "http_url", "serverUrl", "server_url", "openapi"):
        if isinstance(entry.get(key), (str, list)):
            return True
    transport = entry.get("transport")
    return (
        "server" in entry
        or isinstance(transport, str)
        or (isinstance(transport, Mapping) and "type" in transport)
        or ("connection" in entry and ("serverName" in entry or "server_name" in entry))
    )


def is_disabled(entry: Mapping[str, Any], scope: Scope) -> bool:
    """Return whether an entry is switched off, without reading the rest of it.

    Raises:
        ConfigError: The switch itself is wrong.
    """
    known = merge_layers(entry).known
    expander = Expander(scope)
    if "disabled" in known:
        return _flag(expander.value(known["disabled"], "disabled"), "disabled")
    return "enabled" in known and not _flag(expander.value(known["enabled"], "enabled"), "enabled")


def canonical_key(key: Any) -> str:  # Any: a YAML key may be a number
    """Return the field or dialect word that a key means, in snake_case."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(key)).replace("-", "_").lower()
    return _SYNONYMS.get(words, words)


def merge_layers(entry: Mapping[str, Any]) -> _FlatEntry:
    """Merge the layers of an entry: `connection`, a `transport` object, the entry itself."""
    flat = _FlatEntry()
    _layer(flat, entry)
    flat.known.update(read_filters(flat.filters, flat.notes))
    return flat


def _layer(flat: _FlatEntry, layer: Mapping[Any, Any], *, within: str = "") -> None:
    for key, value in layer.items():
        word = canonical_key(key)
        if value is None or word in _IGNORED or str(key).startswith(("x-", "_", "//")):
            continue
        inner = _inner_layer(word, value, within)
        if inner is not None:
            _layer(flat, inner, within=word)
        elif word == "tools" and isinstance(value, Mapping):  # Codex: settings of single tools
            _put(flat, TOOL_SETTINGS, value, str(key))
        elif word in _SIGN_IN or _is_sign_in(word, value):
            _keep_sign_in(flat, word, str(key), value)
        elif word in FILTER_WORDS:
            flat.filters[word] = value
        elif word in _FIELDS or word in _SPECIAL:
            _put(flat, word, value, str(key))
        else:
            _keep_unknown(flat, word, str(key), value, within)


def _inner_layer(word: str, value: Any, within: str) -> Mapping[Any, Any] | None:
    """Return a nested layer, whose keys mean the same as beside it; None for any other value."""
    if word == "connection":
        return check_object(value, "connection")
    if not isinstance(value, Mapping):
        return None
    if word == "command":  # Zed
        command = cast("Mapping[Any, Any]", value)
        return {("command" if key == "path" else key): item for key, item in command.items()}
    if word == "transport" or (word == "config" and not within):  # Goose has `config`
        return cast("Mapping[Any, Any]", value)
    return None


def _keep_unknown(flat: _FlatEntry, word: str, key: str, value: Any, within: str) -> None:
    flat.options[key] = value
    meant = _did_you_mean(word)
    hint = f" (did you mean {meant!r}?)" if meant else ""
    if is_unknown_protection(word, meant, value):
        flat.protections.append(f"unknown key {key!r}{hint}")
    elif word in _NOT_DONE:
        flat.notes.append(f"{key!r} {_NOT_DONE[word]}")
    elif within != "connection" or meant:  # what else is there may be for a transport of an application
        flat.notes.append(f"unknown key {key!r}{hint}; kept in 'options'")


def _check_misspelt(flat: _FlatEntry, arguments: Mapping[str, Any]) -> None:
    """Refuse an entry without a server whose command or URL stands under a misspelt key."""
    if any(arguments.get(name) for name in ("command", "url", "server", "transport")):
        return
    for key in flat.options:
        if (meant := _did_you_mean(str(key).lower())) in ("command", "url", "cmd", "uri"):
            raise ConfigError(f"has neither 'command' nor 'url', but {key!r}: write {meant!r}", field=str(key))


def _check_protections(flat: _FlatEntry, transport: Any) -> None:
    """Refuse an entry with a key that would restrict something, and is not known; a custom transport may know it."""
    if flat.protections and (transport in (None, "") or str(transport) in BUILT_IN_TRANSPORTS):
        raise ConfigError(
            f"{', '.join(flat.protections)}: it reads like a protection, and a server is not started without one; "
            "correct it or leave it out",
            field="options",
        )


def _is_sign_in(word: str, value: Any) -> bool:
    """Return whether `auth` holds the settings of a sign-in without saying so: Cursor's CLIENT_ID."""
    if word != "auth" or not isinstance(value, Mapping):
        return False
    named = {canonical_key(key) for key in cast("Mapping[Any, Any]", value)}
    return "client_id" in named and not named & {"token", "provider", "transport"}  # `type` is a synonym of the last


def _keep_sign_in(flat: _FlatEntry, word: str, key: str, value: Any) -> None:
    """Collect the settings of a sign-in; false switches it off."""
    if word in ("oauth", "auth") and isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
    elif word == "oauth" and value is True:
        given = {}
    else:
        given = {key: value}
    if value is False or given.get("enabled") is False:
        flat.options[key] = value
        return
    if word == "auth_provider_type" and value != _DISCOVERED:
        flat.options[key] = value
        flat.notes.append(f"{key!r}: a sign-in by {value!r} is not there; give a token by 'auth' or 'headers'")
        return
    flat.known["oauth"] = {**flat.known.get("oauth", {}), **given}


def _put(flat: _FlatEntry, word: str, value: Any, key: str) -> None:
    before = flat.known.get(word)
    if word == "headers" and isinstance(before, Mapping) and isinstance(value, Mapping):
        flat.known[word] = {**cast("Mapping[str, Any]", before), **cast("Mapping[str, Any]", value)}
    elif before is None or key == word:
        flat.known[word] = value


def _did_you_mean(word: str) -> str:
    import difflib  # only a slip needs it

    close = difflib.get_close_matches(word, [*_FIELDS, *_SYNONYMS, *_SPECIAL, *FILTER_WORDS], n=1, cutoff=0.8)
    if close:
        return close[0]
    return ""


def _expanded(expander: Expander, value: Any, key: str, dialect: Dialect, notes: list[str]) -> Any:
    if key in ("server", "name"):
        return value
    rules = rules_of(dialect)
    if rules.rewrite is not None:
        value = _mapped(value, rules.rewrite)
    if rules.dollar is not None:

        def rewrite(text: str) -> str:
            return _with_braces(text, key, expander, notes, strict=rules.dollar == "error")

        value = _mapped(value, rewrite)
    return expander.value(value, key)


_DOLLAR = r"(?<![\$\\])\$([A-Za-z_]\w*)"


def _with_braces(text: str, key: str, expander: Expander, notes: list[str], *, strict: bool) -> str:
    """Rewrite `$VAR` as `${VAR}`; an unset one stays, unless the dialect is `strict`."""

    def one(match: re.Match[str]) -> str:
        if strict or expander.is_set(match[1]):
            return f"${{{match[1]}}}"
        notes.append(f"{key!r} has {match[0]}, but the environment variable {match[1]} is not set: it stays as it is")
        return match[0]

    if strict and "$(" in text:
        notes.append(f"{key!r} has a shell command in $(...), which is not run: it stays as it is")
    return re.sub(_DOLLAR, one, text)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in cast("list[Any]", value)]
    return value


def _of_continue(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move Continue's `requestOptions` and `apiKey` to the generic keys."""
    out = dict(entry)
    key = out.pop("apiKey", None)
    if isinstance(key, str) and key and "auth" not in out:
        out["auth"] = {"type": "bearer", "token": key}
    options = out.pop("requestOptions", None)
    if isinstance(options, Mapping):
        rest = dict(cast("Mapping[str, Any]", options))
        headers = rest.pop("headers", None)
        if isinstance(headers, Mapping) and isinstance(out.get("headers", {}), Mapping):
            out["headers"] = {**cast("Mapping[str, Any]", headers), **cast("Mapping[str, Any]", out.get("headers", {}))}
        out |= {f"requestOptions.{name}": item for name, item in rest.items()}
    return out


def _arguments(values: dict[str, Any], expander: Expander, dialect: Dialect, notes: list[str]) -> dict[str, Any]:
    out = {key: _READERS.get(key, _as_is)(value, key) for key, value in values.items() if key in _FIELDS}
    if isinstance(out.get("command"), list):
        command, *first = cast("list[str]", out["command"]) or [""]
        out.update(command=command, args=[*first, *cast("list[str]", out.get("args", []))])
    if "http_url" in values:
        out.update(url=values["http_url"], transport="http")
    elif dialect == "gemini" and "url" in out and "transport" not in out:
        out["transport"] = "sse"
    if "enabled" in values and "disabled" not in out:
        out["disabled"] = not _flag(values["enabled"], "enabled")
    if "transport" in out:
        out["transport"] = _transport(out["transport"], notes)
    if any(key in values for key in ("timeout", *_TIMEOUT_KEYS)):
        out["timeout"] = _timeouts(values, dialect, notes)
    _read_environment(out, values, expander, notes)
    if "oauth" in values:
        _read_sign_in(out, values["oauth"], notes)
    apply_editor_settings(out, values, notes)
    if "openapi" in values:
        return as_program(out, values, expander.path)
    return out


def _read_sign_in(out: dict[str, Any], given: Mapping[str, Any], notes: list[str]) -> None:
    """Sign in with an editor's settings, unless the entry has a credential."""
    auth = out.get("auth")
    headers = out.get("headers")
    if auth is None and isinstance(headers, Mapping):
        auth = next((name for name in cast("Mapping[str, Any]", headers) if str(name).lower() == "authorization"), None)
    if "@" in str(out.get("url", "")).partition("://")[2].partition("/")[0]:
        auth = "user info"
    if auth is not None and auth != "oauth":
        notes.append("the settings of a sign-in are passed over: 'auth' or 'headers' hold a credential")
        return
    out["auth"] = Auth(type="oauth", oauth=OAuth.of(given))


def _transport(value: Any, notes: list[str]) -> str:
    name = check_text(value, "transport")
    if name == "websocket":
        notes.append(WEBSOCKET_DEPRECATED)
        return "http"
    return _TRANSPORTS.get(name, canonical_transport(name) if name else "")


def _read_environment(out: dict[str, Any], values: Mapping[str, Any], expander: Expander, notes: list[str]) -> None:
    """Resolve the settings that name variables of our own environment."""
    if "bearer_token_env_var" in values and "auth" not in out:
        name = check_text(values["bearer_token_env_var"], "bearer_token_env_var")
        out["auth"] = {"type": "bearer", "token": Secret(expander.variable(name, "bearer_token_env_var"))}
    if "env_http_headers" in values:
        pairs = check_object(_pairs(values["env_http_headers"], "env_http_headers"), "env_http_headers").items()
        found = {key: expander.variable(check_text(name, key), f"env_http_headers.{key}") for key, name in pairs}
        out["headers"] = {**found, **check_object(out.get("headers", {}), "headers")}
    env: dict[str, str] = {}
    if "env_file" in values:
        env.update(read_env_file(expander.path(check_text(values["env_file"], "env_file"))))
    for name in check_texts(_names_of_variables(values.get("env_vars", []), notes), "env_vars"):
        value = expander.inherited(name)
        env.update({} if value is None else {name: value})
    if env:
        out["env"] = {**env, **check_object(out.get("env", {}), "env")}


def _names_of_variables(value: Any, notes: list[str]) -> Any:
    """Read the variables that are passed on: names, or Codex's `{name, source}`, whose source may be elsewhere."""
    if not isinstance(value, (list, tuple)):
        return value
    names: list[Any] = []
    for item in cast("list[Any]", value):
        if not isinstance(item, Mapping):
            names.append(item)
            continue
        one = cast("Mapping[Any, Any]", item)
        if one.get("source", "local") == "local":
            names.append(one.get("name"))
        else:
            notes.append(f"'env_vars' takes {one.get('name')!r} from {one['source']!r}, which is not here: left out")
    return names


def _timeouts(values: Mapping[str, Any], dialect: Dialect, notes: list[str]) -> Timeouts:
    value = values.get("timeout")
    if isinstance(value, Timeouts):
        timeouts = value
    elif isinstance(value, Mapping):
        timeouts = Timeouts.of(_timeout_object(cast("Mapping[Any, Any]", value), dialect))
    else:
        timeouts = _bare_timeout(_number(value, "timeout"), dialect, notes)
    for key, (bound, unit) in _TIMEOUT_KEYS.items():
        if key in values:
            seconds = Timeouts.of(_number(values[key], key)).call * unit
            timeouts = timeouts.updated(**{bound: seconds})
    return timeouts


def _timeout_object(value: Mapping[Any, Any], dialect: Dialect) -> dict[str, Any]:
    given = {canonical_key(key): _number(item, f"timeout.{key}") for key, item in value.items()}
    if dialect != "opencode" and not (given and given.keys() <= _OPENCODE_TIMEOUTS.keys()):
        return given
    out = {key: item for key, item in given.items() if key not in _OPENCODE_TIMEOUTS}
    for key, bounds in _OPENCODE_TIMEOUTS.items():  # the narrower ones last, so that they win
        if key in given:
            out.update(dict.fromkeys(bounds, Timeouts.of(given[key]).call / 1000))
    return out


def _bare_timeout(value: Any, dialect: Dialect, notes: list[str]) -> Timeouts:
    bounds = Timeouts.of(value)  # refuses what is no positive number
    if value is None:
        return bounds
    rules = rules_of(dialect)
    if rules.timeout is not None:
        return Timeouts().updated(**dict.fromkeys(rules.timeout, bounds.call * rules.unit))
    if bounds.call >= _MILLISECONDS_FROM:
        notes.append(f"'timeout' {value:g} is read as milliseconds; write seconds, or {{'call': {value:g}}}")
        return Timeouts.of(bounds.call / 1000)
    return bounds


def _as_is(value: Any, key: str) -> Any:
    return value


def _text(value: Any, key: str) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return value


def _number(value: Any, key: str) -> Any:
    """Read a number that a variable may have made a string."""
    if not isinstance(value, str):
        return value
    try:
        if "." in value:
            return float(value)
        return int(value)
    except ValueError:
        raise ConfigError(f"{key!r} must be a number, not a string", field=key) from None


def _flag(value: Any, key: str) -> bool:
    """Read a boolean that a variable may have made a string."""
    if isinstance(value, bool):
        return value
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    if not isinstance(value, str) or value.lower() not in words:
        raise ConfigError(f"{key!r} must be true or false, not {kind_of(value)}", field=key)
    return words[value.lower()]


def _texts(value: Any, key: str) -> Any:
    """Read a list of strings, in which numbers become their text."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{key!r} must be a list of strings, not {kind_of(value)}", field=key)
    items = cast("list[Any]", value)
    return [str(item) if isinstance(item, (int, float)) and not isinstance(item, bool) else item for item in items]


def _names(value: Any, key: str) -> Any:
    if isinstance(value, str):
        return [value]
    return _texts(value, key)


def _pairs(value: Any, key: str) -> Any:
    """Read an object of strings, in which numbers and booleans become their text and null is dropped."""
    if not isinstance(value, Mapping):
        return value
    out: dict[Any, Any] = {}
    for name, item in cast("Mapping[Any, Any]", value).items():
        if isinstance(item, bool):
            out[name] = str(item).lower()
        elif item is not None:
            out[name] = str(item) if isinstance(item, (int, float)) else _text(item, key)
    return out


_FLAGS = ("disabled", "validate_input", "repair_arguments", "repair_messages", "scan")
_COUNTS = (
    *("max_concurrency", "max_connections", "max_message_bytes", "max_list_bytes", "max_questions"),
    "max_question_bytes",
)
_READERS: dict[str, Callable[[Any, str], Any]] = {
    "command": lambda value, key: _texts(value, key) if isinstance(value, list) else value,
    "args": _texts,
    "env": _pairs,
    "headers": _pairs,
    **dict.fromkeys(_FLAGS, _flag),
    "include": _names,
    "exclude": _names,
    "protocol": _text,
    **dict.fromkeys(_COUNTS, _number),
    "pins": lambda value, key: "off" if value is False else value,  # `off` is a boolean in YAML
}
