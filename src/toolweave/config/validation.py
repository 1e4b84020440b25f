"""Checks of single values, with messages that name the field. Knows no file and no transport.

Every function raises `ConfigError` without server and location, which callers add. No
message shows a value that may be a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from toolweave._json_types import JsonObject, as_number, as_object, as_sequence
from toolweave._masking import MASK
from toolweave.config._secret import Secret, reveal, wrap
from toolweave.config.secret_args import mask_url
from toolweave.errors import ConfigError

__all__ = [
    "HEADER_NAME",
    "Check",
    "check_choice",
    "check_env",
    "check_flag",
    "check_headers",
    "check_object",
    "check_seconds",
    "check_text",
    "check_texts",
    "check_url",
    "is_loopback",
    "is_misspelt",
    "is_name",
    "kind_of",
    "suggestion",
]

Check: TypeAlias = Callable[[Any, str], object]
"""Checks the value of a field of this name and returns it in its canonical form."""

HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ENV_NAME = r"(?s)[^=\0]+"
_MAX_COMPARED = 64
_CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
_KINDS: dict[type[object], str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    tuple: "a list",
    str: "a string",
}


def kind_of(value: object) -> str:
    """Name a value's type as the writer of a config file knows it."""
    if value is None:
        return "null"
    if as_object(value) is not None:
        return "an object"
    kind: type[object] = type(value)
    return _KINDS.get(kind, kind.__name__)


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known name, or all of them."""
    import difflib  # only a slip needs it

    names = list(known)
    near = difflib.get_close_matches(str(name)[:_MAX_COMPARED], names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(names)}"


def is_misspelt(name: object, known: str) -> bool:
    """Return whether a name is a known one with a slip, or in another case."""
    import difflib  # only few names get here

    word = str(name)[:_MAX_COMPARED].lower()
    return bool(difflib.get_close_matches(word, [known], n=1, cutoff=0.8))


def check_text(value: object, field: str, *, controls: bool = True) -> str:
    """Return the string; `controls=False` also refuses line breaks and other control characters."""
    text = value
    if isinstance(value, Secret):
        text = reveal(value)
    if not isinstance(text, str):
        raise ConfigError(f"{field!r} must be a string, not {kind_of(text)}", field=field)
    if "\0" in text:
        raise ConfigError(f"{field!r} holds a NUL character", field=field)
    if not controls and re.search(_CONTROL, text):
        raise ConfigError(f"{field!r} holds a line break or another control character", field=field)
    # It cannot be encoded, so sending it would fail much later and without the name of the field.
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigError(f"{field!r} holds half of a surrogate pair, which is not a character", field=field)
    return text


def check_texts(value: object, field: str) -> tuple[str, ...]:
    """Return the list of strings as a tuple."""
    if isinstance(value, (set, frozenset)):  # from code
        value = tuple(cast("set[object]", value))
    items = as_sequence(value)
    if items is None:
        raise ConfigError(f"{field!r} must be a list of strings, not {kind_of(value)}", field=field)
    return tuple(check_text(item, f"{field}[{index}]") for index, item in enumerate(items))


def check_object(value: object, field: str, *, members: str = "") -> JsonObject:
    """Return the mapping; `members` is the description of its values for the error, such as `of strings`."""
    given = as_object(value)
    if given is None:
        wanted = f"an object {members}".rstrip()
        raise ConfigError(f"{field!r} must be {wanted}, not {kind_of(value)}", field=field)
    return given


def check_flag(value: object, field: str) -> bool:
    """Return the boolean."""
    if not isinstance(value, bool):
        raise ConfigError(f"{field!r} must be true or false, not {kind_of(value)}", field=field)
    return value


def check_choice(value: object, field: str, choices: tuple[str, ...]) -> str:
    """Return the value when it is one of the choices."""
    if value not in choices:
        if isinstance(value, str):
            shown = repr(value)
        else:
            shown = kind_of(value)
        raise ConfigError(f"{field!r} is {shown}; known: {', '.join(choices)}", field=field)
    return str(value)


def check_seconds(value: object, field: str) -> float:
    """Return a number of seconds that is more than 0 and finite."""
    number = as_number(value)
    if number is None:
        raise ConfigError(f"{field!r} must be a number of seconds, not {kind_of(value)}", field=field)
    try:
        seconds = float(number)
    except OverflowError:
        seconds = math.inf
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{field!r} must be more than 0 seconds and finite", field=field)
    return seconds


def check_env(value: object, field: str = "env") -> dict[str, Secret]:
    """Return the environment variables with their values wrapped."""
    out: dict[str, Secret] = {}
    for name, item in check_object(value, field, members="of strings").items():
        if not is_name(name, _ENV_NAME):
            raise ConfigError(
                f"{field!r} has a name that no environment variable can have: {shown_name(name)}", field=field
            )
        out[name] = wrap(check_text(item, f"{field}.{name}"))
    return out


def check_headers(value: object, field: str = "headers") -> dict[str, Secret]:
    """Return the HTTP headers with their values wrapped."""
    out: dict[str, Secret] = {}
    for name, item in check_object(value, field, members="of strings").items():
        if not is_name(name, HEADER_NAME):
            raise ConfigError(f"{field!r} has a name that no HTTP header can have: {shown_name(name)}", field=field)
        out[name] = wrap(check_text(item, f"{field}.{name}", controls=False))
    return out


def shown_name(name: object) -> str:
    """Return a name that cannot be right as an error quotes it, without the value that it may have: `API_KEY=X`."""
    return repr(re.sub(r"(?s)([^=:]*(?:=|: ?))(.+)", rf"\1{MASK}", str(name), count=1))


def is_name(name: object, pattern: str) -> bool:
    """Return whether a key is a text that a pattern fits; a key of YAML may be a number."""
    return isinstance(name, str) and re.fullmatch(pattern, name) is not None


def is_loopback(host: str | None) -> bool:
    """Return whether a host of a URL is this machine, by its name alone: nothing is looked up."""
    if host is None:
        return False
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, 6.3
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def check_url(value: object, field: str = "url") -> str:
    """Return the URL when it is an absolute http or https one."""
    url = check_text(value, field).strip()
    # `urlsplit` removes line breaks and tabs in silence, so the URL that is used would be another than was checked.
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
            f"{field!r} is {shown!r}, but MCP has no WebSocket transport; give the server's http URL,"
            f" probably {hint!r}",
            field=field,
        )
    if parts.scheme in ("unix", "pipe"):
        kind = {"unix": "a socket", "pipe": "a named pipe"}[parts.scheme]
        raise ConfigError(f"{field!r} is {kind} of this machine; MCP needs http:// or https://", field=field)
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{field!r} must start with http:// or https:// and name a host, not {shown!r}", field=field)
    return url
