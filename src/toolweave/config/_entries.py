"""A parser of one server's entry, in any dialect, into the arguments of a `ServerConfig`.

Knows the keys of the editors and of the frameworks and no files. Keys are
read in camelCase, snake_case and kebab-case alike. `rules_of` has the rules that differ between dialects.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from toolweave._json_types import Json, JsonObject, array_or_empty, as_array, as_object, as_sequence, object_or_empty
from toolweave._masking import mask_tokens
from toolweave._value import Value
from toolweave.config._api_entry import as_program
from toolweave.config._auth import Auth
from toolweave.config._dialect_rules import Dialect, rules_of
from toolweave.config._editor_settings import (
    EDITOR_SETTINGS,
    TOOL_SETTINGS,
    apply_editor_settings,
    ineffective_settings,
    is_unknown_protection,
)
from toolweave.config._entry_timeouts import TIMEOUT_KEYS, read_timeouts, sets_timeouts
from toolweave.config._expand import Expander, Scope
from toolweave.config._keys import SYNONYMS, canonical_key
from toolweave.config._model import (
    BUILT_IN_TRANSPORTS,
    WEBSOCKET_DEPRECATED,
    ServerConfig,
    canonical_transport,
)
from toolweave.config._named_files import read_env_file
from toolweave.config._oauth import OAuth
from toolweave.config._secret import Secret
from toolweave.config._shaping import read_shape, with_secrets
from toolweave.config._source import Source, error_at
from toolweave.config._tool_filters import FILTER_WORDS, read_filters
from toolweave.config._value_readers import read_flag, read_pairs, read_value
from toolweave.config.validation import check_object, check_text, check_texts
from toolweave.errors import ConfigError

SSE_DEPRECATED = "transport 'sse' is deprecated by the protocol; 'http' falls back to it where a server needs it"

_FIELDS = (
    *("name", "transport", "command", "args", "env", "cwd", "url", "headers", "auth", "disabled", "timeout"),
    *("include", "exclude", "tool_prefix", "restart", "legacy_sse", "protocol", "validate_input", "validate_output"),
    *("max_concurrency", "max_connections", "max_message_bytes", "max_list_bytes", "max_questions"),
    *("max_question_bytes", "repair_arguments", "repair_messages", "on_conflict", "shape", "scan", "pins", "lockfile"),
    *("limits", "sandbox", "options", "server", "confirm", "forward_headers", "claim_headers"),
)
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
    *TIMEOUT_KEYS,
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
_COMMENT_MARKS = ("x-", "_", "//")
_TRANSPORTS = {"local": "stdio", "remote": "http"}


class ParsedEntry(Value, frozen=True):
    """A parsed entry: the config, and remarks for its writer."""

    config: ServerConfig
    notes: list[str]


class _FlatEntry(msgspec.Struct):
    """A partly parsed entry: the known keys by field, the other keys, and remarks.

    Every layer of the entry writes into it in the order of the document, so a key keeps the place of its first
    occurrence and `_put` decides which of two spellings wins.
    """

    known: Json = msgspec.field(default_factory=Json)
    filters: Json = msgspec.field(default_factory=Json)
    protections: list[str] = msgspec.field(default_factory=list[str])
    options: Json = msgspec.field(default_factory=Json)
    notes: list[str] = msgspec.field(default_factory=list[str])


def read_entry(
    name: str, entry: JsonObject, *, dialect: Dialect, scope: Scope, source: Source | None = None
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
        raise error_at(source, error.message, server=name or None, field=error.field) from None
    notes[:0] = ineffective_settings(config)
    if config.transport == "sse" and dialect != "gemini":
        notes.append(SSE_DEPRECATED)
    return ParsedEntry(config, notes)


def read_arguments(entry: JsonObject, *, dialect: Dialect = "generic", scope: Scope) -> tuple[Json, list[str]]:
    """Read the fields that an entry sets, complete or not, and the remarks about it.

    Raises:
        ConfigError: Without the server's name and location.
    """
    expander = Expander(scope)
    if dialect == "continue":
        entry = _from_continue(entry)
    flat = merge_layers(entry)
    if "http_url" in flat.known:  # only Gemini CLI has `httpUrl`
        dialect = "gemini"
    values: Json = {}
    for key, value in flat.known.items():
        values[key] = _expanded(expander, value, key, dialect, flat.notes)
    arguments = _arguments(values, expander, dialect, flat.notes)
    # Before anything is made of the rest: an entry whose protection would be lost is refused as a whole.
    _check_protections(flat, arguments.get("transport"))
    _check_misspelt(flat, arguments)
    if flat.options or "options" in arguments:
        given = check_object(arguments.get("options", {}), "options")
        arguments["options"] = {**expander.value(flat.options, "options"), **given}
    arguments["sensitive"] = tuple(expander.sensitive)
    if "shape" in arguments and expander.sensitive:
        arguments["shape"] = with_secrets(read_shape(arguments["shape"], "shape"), expander.sensitive)
    return arguments, flat.notes


def looks_like_entry(value: object) -> bool:
    """Return whether a value is one server's entry rather than a collection of them."""
    entry = as_object(value)
    if entry is None:
        return False
    for key in ("command", "url", "httpUrl", "http_url", "serverUrl", "server_url", "openapi"):
        if isinstance(entry.get(key), (str, list)):
            return True
    if "server" in entry:
        return True
    transport = entry.get("transport")
    if isinstance(transport, str) or "type" in object_or_empty(transport):
        return True
    is_named = "serverName" in entry or "server_name" in entry
    return is_named and "connection" in entry


def is_disabled(entry: JsonObject, scope: Scope) -> bool:
    """Return whether an entry is switched off, without reading the rest of it.

    Raises:
        ConfigError: The switch itself is wrong.
    """
    known = merge_layers(entry).known
    expander = Expander(scope)
    if "disabled" in known:
        return read_flag(expander.value(known["disabled"], "disabled"), "disabled")
    if "enabled" in known:
        return not read_flag(expander.value(known["enabled"], "enabled"), "enabled")
    return False


def merge_layers(entry: JsonObject) -> _FlatEntry:
    """Merge the layers of an entry: `connection`, a `transport` object, the entry itself."""
    flat = _FlatEntry()
    _add_layer(flat, entry)
    flat.known.update(read_filters(flat.filters, flat.notes))
    return flat


def _add_layer(flat: _FlatEntry, layer: JsonObject, *, within: str = "") -> None:
    for key, value in layer.items():
        word = canonical_key(key)
        if value is None or word in _IGNORED or str(key).startswith(_COMMENT_MARKS):
            continue
        inner = _inner_layer(word, value, within)
        if inner is not None:
            _add_layer(flat, inner, within=word)
        else:
            _add_key(flat, word, str(key), value, within)


def _add_key(flat: _FlatEntry, word: str, key: str, value: object, within: str) -> None:
    # The order decides: `tools` and `auth` are keys of ours, too, and mean something else in an editor's form.
    if word == "tools" and as_object(value) is not None:  # Codex: settings of single tools
        _put(flat, TOOL_SETTINGS, value, key)
    elif word in _SIGN_IN or _is_sign_in(word, value):
        _keep_sign_in(flat, word, key, value)
    elif word in FILTER_WORDS:
        flat.filters[word] = value
    elif word in _FIELDS or word in _SPECIAL:
        _put(flat, word, value, key)
    else:
        _keep_unknown(flat, word, key, value, within)


def _inner_layer(word: str, value: object, within: str) -> JsonObject | None:
    """Return a nested layer, whose keys mean the same as beside it; None for any other value."""
    if word == "connection":
        return check_object(value, "connection")
    inner = as_object(value)
    if inner is None:
        return None
    if word == "command":  # Zed
        return {("command" if key == "path" else key): item for key, item in inner.items()}
    is_goose = word == "config" and not within
    if word == "transport" or is_goose:
        return inner
    return None


def _keep_unknown(flat: _FlatEntry, word: str, key: str, value: object, within: str) -> None:
    flat.options[key] = value
    meant = _did_you_mean(word)
    hint = f" (did you mean {meant!r}?)" if meant else ""
    if is_unknown_protection(word, meant, value):
        flat.protections.append(f"unknown key {key!r}{hint}")
    elif word in _NOT_DONE:
        flat.notes.append(f"{key!r} {_NOT_DONE[word]}")
    elif within != "connection" or meant:  # a custom transport may have its own keys in `connection`
        flat.notes.append(mask_tokens(f"unknown key {key!r}{hint}; kept in 'options'"))


def _check_misspelt(flat: _FlatEntry, arguments: JsonObject) -> None:
    """Refuse an entry without a server whose command or URL stands under a misspelt key."""
    if any(arguments.get(name) for name in ("command", "url", "server", "transport")):
        return
    for key in flat.options:
        meant = _did_you_mean(str(key).lower())
        if meant in ("command", "url", "cmd", "uri"):
            raise ConfigError(f"has neither 'command' nor 'url', but {key!r}: write {meant!r}", field=str(key))


def _check_protections(flat: _FlatEntry, transport: object) -> None:
    """Refuse an entry with an unknown key that would restrict something; a custom transport may know it."""
    is_built_in = transport in (None, "") or str(transport) in BUILT_IN_TRANSPORTS
    if flat.protections and is_built_in:
        raise ConfigError(
            f"{', '.join(flat.protections)}: it reads like a protection, and a server is not started without one; "
            "correct it or leave it out",
            field="options",
        )


def _is_sign_in(word: str, value: object) -> bool:
    """Return whether `auth` holds the settings of a sign-in without saying so: Cursor's CLIENT_ID."""
    given = as_object(value)
    if word != "auth" or given is None:
        return False
    words = set(map(canonical_key, given))
    if words & {"token", "provider", "transport"}:  # `type` is a synonym of the last
        return False
    return "client_id" in words


def _keep_sign_in(flat: _FlatEntry, word: str, key: str, value: object) -> None:
    """Collect the settings of a sign-in; false switches it off."""
    settings = as_object(value)
    if settings is not None and word in ("oauth", "auth"):
        given = settings
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


def _put(flat: _FlatEntry, word: str, value: object, key: str) -> None:
    """Store a value; headers of several layers are merged, and of two spellings the field's own name wins."""
    before = flat.known.get(word)
    if word == "headers":
        earlier = as_object(before)
        added = as_object(value)
        if earlier is not None and added is not None:
            flat.known[word] = {**earlier, **added}
            return
    if before is None or key == word:
        flat.known[word] = value


def _did_you_mean(word: str) -> str:
    import difflib  # only a slip needs it

    close = difflib.get_close_matches(word, [*_FIELDS, *SYNONYMS, *_SPECIAL, *FILTER_WORDS], n=1, cutoff=0.8)
    if close:
        return close[0]
    return ""


def _expanded(expander: Expander, value: object, key: str, dialect: Dialect, notes: list[str]) -> object:
    """Expand a value: the dialect's variables become ours first, so that each has one meaning for the expander."""
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


def _mapped(value: object, change: Callable[[str], str]) -> object:
    """Return a JSON value with every string in it changed."""
    if isinstance(value, str):
        return change(value)
    members = as_object(value)
    if members is not None:
        return {key: _mapped(item, change) for key, item in members.items()}
    items = as_array(value)
    if items is not None:
        return [_mapped(item, change) for item in items]
    return value


def _from_continue(entry: JsonObject) -> JsonObject:
    """Move Continue's `requestOptions` and `apiKey` to the generic keys."""
    out = dict(entry)
    key = out.pop("apiKey", None)
    if key and isinstance(key, str):
        out.setdefault("auth", {"type": "bearer", "token": key})
    rest = dict(object_or_empty(out.pop("requestOptions", None)))
    headers = as_object(rest.pop("headers", None))
    own = as_object(out.get("headers", {}))
    if headers is not None and own is not None:
        out["headers"] = {**headers, **own}
    for name, item in rest.items():
        out[f"requestOptions.{name}"] = item
    return out


def _arguments(values: Json, expander: Expander, dialect: Dialect, notes: list[str]) -> Json:
    """Return the arguments of a `ServerConfig`.

    Each step may read what the steps before it wrote: a command that is a list gives arguments, the environment may
    give the `Authorization` header, and a sign-in is only used if none of them is a credential.
    """
    out = {key: read_value(key, value) for key, value in values.items() if key in _FIELDS}
    command = as_array(out.get("command"))
    if command is not None:
        out["command"] = command[0] if command else ""
        out["args"] = [*command[1:], *array_or_empty(out.get("args"))]
    if "http_url" in values:
        out.update(url=values["http_url"], transport="http")
    elif dialect == "gemini" and "url" in out:
        out.setdefault("transport", "sse")
    if "enabled" in values and "disabled" not in out:
        out["disabled"] = not read_flag(values["enabled"], "enabled")
    if "transport" in out:
        out["transport"] = _transport(out["transport"], notes)
    if sets_timeouts(values):
        out["timeout"] = read_timeouts(values, dialect, notes)
    _read_environment(out, values, expander, notes)
    if "oauth" in values:
        _read_sign_in(out, values["oauth"], notes)
    apply_editor_settings(out, values, notes)
    if "openapi" in values:
        return as_program(out, values, expander.path)
    return out


def _read_sign_in(out: Json, given: JsonObject, notes: list[str]) -> None:
    """Sign in with an editor's settings, unless the entry has a credential."""
    if _has_credential(out):
        notes.append("the settings of a sign-in are ignored because 'auth' or 'headers' hold a credential")
        return
    out["auth"] = Auth(type="oauth", oauth=OAuth.of(given))


def _has_credential(out: Json) -> bool:
    """Return whether an entry has another credential than a sign-in: its `auth`, a header, or the URL's user info."""
    authority = str(out.get("url", "")).partition("://")[2].partition("/")[0]
    if "@" in authority:
        return True
    auth = out.get("auth")
    if auth is not None:
        return auth != "oauth"
    return any(str(name).lower() == "authorization" for name in object_or_empty(out.get("headers")))


def _transport(value: object, notes: list[str]) -> str:
    name = check_text(value, "transport")
    if name == "websocket":
        notes.append(WEBSOCKET_DEPRECATED)
        return "http"
    if name in _TRANSPORTS:
        return _TRANSPORTS[name]
    if name:
        return canonical_transport(name)
    return ""


def _read_environment(out: Json, values: JsonObject, expander: Expander, notes: list[str]) -> None:
    """Resolve the settings that name variables of our own environment.

    What the entry itself has under `auth`, `headers` and `env` wins over what such a setting brings.
    """
    if "bearer_token_env_var" in values and "auth" not in out:
        name = check_text(values["bearer_token_env_var"], "bearer_token_env_var")
        out["auth"] = {"type": "bearer", "token": Secret(expander.variable(name, "bearer_token_env_var"))}
    if "env_http_headers" in values:
        headers: Json = {}
        pairs = check_object(read_pairs(values["env_http_headers"], "env_http_headers"), "env_http_headers")
        for key, variable in pairs.items():
            headers[key] = expander.variable(check_text(variable, key), f"env_http_headers.{key}")
        out["headers"] = {**headers, **check_object(out.get("headers", {}), "headers")}
    env: dict[str, str] = {}
    if "env_file" in values:
        env.update(read_env_file(expander.path(check_text(values["env_file"], "env_file"))))
    for name in check_texts(_names_of_variables(values.get("env_vars", []), notes), "env_vars"):
        value = expander.inherited(name)
        if value is not None:
            env[name] = value
    if env:
        out["env"] = {**env, **check_object(out.get("env", {}), "env")}


def _names_of_variables(value: object, notes: list[str]) -> object:
    """Read the variables that are passed on: names, or Codex's `{name, source}`, whose source may be elsewhere."""
    items = as_sequence(value)
    if items is None:
        return value
    names: list[object] = []
    for item in items:
        variable = as_object(item)
        if variable is None:
            names.append(item)
        elif variable.get("source", "local") == "local":
            names.append(variable.get("name"))
        else:
            source = variable["source"]
            notes.append(f"'env_vars' takes {variable.get('name')!r} from {source!r}, which is not here: left out")
    return names
