"""Checks of single values, with messages that name the field. Knows no file and no transport.

Every function raises `ConfigError` without server and location, which callers add. No
message shows a value that may be a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlsplit

from toolweave.config._secret import Secret, reveal, wrap
from toolweave.config._secret_args import mask_url
from toolweave.errors import ConfigError

_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MAX_COMPARED = 64
_CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    tuple: "a list",
    str: "a string",
}


def kind_of(value: Any) -> str:  # Any: whatever a user wrote
    """Name a value's type as the writer of a config file knows it."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    kind = cast("type[Any]", type(value))
    return _KINDS.get(kind, kind.__name__)


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known name, or all of them."""
    import difflib  # only a slip needs it

    names = list(known)
    near = difflib.get_close_matches(str(name)[:_MAX_COMPARED], names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(names)}"


def check_text(value: Any, field: str, *, controls: bool = True) -> str:  # Any: whatever a user wrote
    """Return the string; `controls=False` also refuses line breaks and other control characters."""
    text = reveal(value) if isinstance(value, Secret) else value
    if not isinstance(text, str):
        raise ConfigError(f"{field!r} must be a string, not {kind_of(text)}", field=field)
    if "\0" in text:
        raise ConfigError(f"{field!r} holds a NUL character", field=field)
    if not controls and re.search(_CONTROL, text):
        raise ConfigError(f"{field!r} holds a line break or another control character", field=field)
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigError(f"{field!r} holds half of a surrogate pair, which is no character", field=field)
    return text


def check_texts(value: Any, field: str) -> tuple[str, ...]:  # Any: whatever a user wrote
    """Return the list of strings as a tuple."""
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ConfigError(f"{field!r} must be a list of strings, not {kind_of(value)}", field=field)
    items = cast("list[Any]", value)
    return tuple(check_text(item, f"{field}[{index}]") for index, item in enumerate(items))


def check_object(value: Any, field: str) -> Mapping[Any, Any]:  # Any: whatever a user wrote
    """Return the mapping."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{field!r} must be an object, not {kind_of(value)}", field=field)
    return cast("Mapping[Any, Any]", value)


def check_flag(value: Any, field: str) -> bool:  # Any: whatever a user wrote
    """Return the boolean."""
    if not isinstance(value, bool):
        raise ConfigError(f"{field!r} must be true or false, not {kind_of(value)}", field=field)
    return value


def check_choice(value: Any, field: str, choices: tuple[str, ...]) -> str:  # Any: whatever a user wrote
    """Return the value when it is one of the choices."""
    if value not in choices:
        if isinstance(value, str):
            shown = repr(value)
        else:
            shown = kind_of(value)
        raise ConfigError(f"{field!r} is {shown}; known: {', '.join(choices)}", field=field)
    return str(value)


def check_seconds(value: Any, field: str) -> float:  # Any: whatever a user wrote
    """Return a number of seconds that is more than 0 and finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{field!r} must be a number of seconds, not {kind_of(value)}", field=field)
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{field!r} must be more than 0 seconds and finite", field=field)
    return seconds


def check_env(value: Any, field: str = "env") -> dict[str, Secret]:  # Any: whatever a user wrote
    """Return the environment variables with their values wrapped."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{field!r} must be an object of strings, not {kind_of(value)}", field=field)
    out: dict[str, Secret] = {}
    for name, item in cast("Mapping[Any, Any]", value).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError(f"{field!r} has a name that no environment variable can have: {name!r}", field=field)
        out[name] = wrap(check_text(item, f"{field}.{name}"))
    return out


def check_headers(value: Any, field: str = "headers") -> dict[str, Secret]:  # Any: whatever a user wrote
    """Return the HTTP headers with their values wrapped."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{field!r} must be an object of strings, not {kind_of(value)}", field=field)
    out: dict[str, Secret] = {}
    for name, item in cast("Mapping[Any, Any]", value).items():
        if not isinstance(name, str) or not re.fullmatch(_HEADER_NAME, name):
            raise ConfigError(f"{field!r} has a name that no HTTP header can have: {name!r}", field=field)
        out[name] = wrap(check_text(item, f"{field}.{name}", controls=False))
    return out


def is_loopback(host: str | None) -> bool:
    """Return whether a host of a URL is this machine, by its name alone: nothing is looked up."""
    name = (host or "").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, 6.3
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def check_url(value: Any, field: str = "url") -> str:  # Any: whatever a user wrote
    """Return the URL when it is an absolute http or https one."""
    url = check_text(value, field).strip()
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ConfigError(f"{field!r} holds a space or a control character", field=field)
    shown = mask_url(url)
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise ConfigError(f"{field!r} is not a URL: its host or port cannot be read", field=field) from None
    if parts.scheme in ("ws", "wss"):
        hint = shown.replace("ws", "http", 1)
        raise ConfigError(
            f"{field!r} is {shown!r}, but MCP has no WebSocket transport; the server's http URL is wanted,"
            f" probably {hint!r}",
            field=field,
        )
    if parts.scheme in ("unix", "pipe"):
        what = "a socket" if parts.scheme == "unix" else "a named pipe"
        raise ConfigError(f"{field!r} is {what} of this machine; only http:// and https:// are spoken", field=field)
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{field!r} must start with http:// or https:// and name a host, not {shown!r}", field=field)
    return url
