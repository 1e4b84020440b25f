"""Readers of the single values of an entry.

A value may come from a variable (`"timeout": "${SECONDS}"`) or from YAML (`off`, a date), and so have another type than
its field. A reader converts what can only mean one thing and returns anything else as it is: the check of the field
refuses it with a message that names the field.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from toolweave._json_types import as_array, as_number, as_object, as_sequence
from toolweave.config.validation import check_texts, kind_of
from toolweave.errors import ConfigError

_FLAG_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def read_value(key: str, value: object) -> Any:
    """Return the value of a field, read as its type requires.

    Raises:
        ConfigError: The value cannot be read as the type of the field.
    """
    reader = _READERS.get(key)
    if reader is None:
        return value
    return reader(value, key)


def read_text(value: object, key: str) -> object:
    """Read a text, which YAML and TOML may have made a date."""
    if isinstance(value, date):
        return value.isoformat()
    return value


def read_number(value: object, key: str) -> Any:
    """Read a number, which a variable may have made a string.

    Raises:
        ConfigError: The value is a string that is not a number.
    """
    if not isinstance(value, str):
        return value
    try:
        if "." in value:
            return float(value)
        return int(value)
    except ValueError:
        raise ConfigError(f"{key!r} must be a number, not a string", field=key) from None


def read_flag(value: object, key: str) -> bool:
    """Read a boolean, which a variable may have made a string.

    Raises:
        ConfigError: The value is neither a boolean nor a word for one.
    """
    if isinstance(value, bool):
        return value
    known = None
    if isinstance(value, str):
        known = _FLAG_WORDS.get(value.lower())
    if known is None:
        raise ConfigError(f"{key!r} must be true or false, not {kind_of(value)}", field=key)
    return known


def read_names(value: object, field: str) -> tuple[str, ...]:
    """Read a list of names outside of the entries, of which a single one may be a text; none for null.

    Raises:
        ConfigError: The value is of another type: what it denies would be offered.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return check_texts(value, field)


def read_pairs(value: object, key: str) -> object:
    """Read an object of strings, in which numbers and booleans become their text and null is dropped."""
    given = as_object(value)
    if given is None:
        return value
    out: dict[str, object] = {}
    for name, item in given.items():
        if item is None:
            continue
        if isinstance(item, bool):
            out[name] = str(item).lower()
        elif isinstance(item, (int, float)):
            out[name] = str(item)
        else:
            out[name] = read_text(item, key)
    return out


def _texts(value: object, key: str) -> list[object]:
    """Read a list of strings, in which numbers become their text."""
    items = as_sequence(value)
    if items is None:
        raise ConfigError(f"{key!r} must be a list of strings, not {kind_of(value)}", field=key)
    out: list[object] = []
    for item in items:
        if as_number(item) is not None:
            out.append(str(item))
        else:
            out.append(item)
    return out


def _names(value: object, key: str) -> list[object]:
    if isinstance(value, str):
        return [value]
    return _texts(value, key)


def _command(value: object, key: str) -> object:
    words = as_array(value)
    if words is not None:  # the program and its arguments
        return _texts(words, key)
    return value


def _pins(value: object, key: str) -> object:
    if value is False:  # `off` is a boolean in YAML
        return "off"
    return value


_FLAGS = ("disabled", "validate_input", "repair_arguments", "repair_messages", "scan")
_COUNTS = (
    *("max_concurrency", "max_connections", "max_message_bytes", "max_list_bytes", "max_questions"),
    "max_question_bytes",
)
_READERS: dict[str, Callable[[object, str], object]] = {
    "command": _command,
    "args": _texts,
    "env": read_pairs,
    "headers": read_pairs,
    "forward_headers": _names,
    **dict.fromkeys(_FLAGS, read_flag),
    "include": _names,
    "exclude": _names,
    "protocol": read_text,
    **dict.fromkeys(_COUNTS, read_number),
    "pins": _pins,
}
