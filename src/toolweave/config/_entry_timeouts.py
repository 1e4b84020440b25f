"""The bounds that an entry sets, in the units and the words of each dialect, as `Timeouts`.

Order matters: a bare `timeout` or an object of bounds is read first, then the keys that set one bound each, so that
`startup_timeout_sec` wins over `timeout` beside it.
"""

from __future__ import annotations

from toolweave._json_types import Json, JsonObject, as_object, without_members
from toolweave.config._dialect_rules import Dialect, rules_of
from toolweave.config._keys import canonical_key
from toolweave.config._timeouts import Timeouts
from toolweave.config._value_readers import read_number

TIMEOUT_KEYS = {  # the bound they set, and their unit in seconds
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
_MILLISECONDS_FROM = 1000


def sets_timeouts(values: JsonObject) -> bool:
    """Return whether an entry has a key that sets a bound."""
    return "timeout" in values or not TIMEOUT_KEYS.keys().isdisjoint(values)


def read_timeouts(values: JsonObject, dialect: Dialect, notes: list[str]) -> Timeouts:
    """Return the bounds that an entry sets.

    Args:
        values: The values of the entry by key.
        dialect: The dialect of the entry.
        notes: Gets the remarks for the writer of the entry.

    Raises:
        ConfigError: A bound is unknown, or is not a positive number.
    """
    value = values.get("timeout")
    given = as_object(value)
    if isinstance(value, Timeouts):
        timeouts = value
    elif given is not None:
        timeouts = Timeouts.of(_from_object(given, dialect))
    else:
        timeouts = _from_number(read_number(value, "timeout"), dialect, notes)
    for key, (bound, unit) in TIMEOUT_KEYS.items():
        if key in values:
            seconds = Timeouts.of(read_number(values[key], key)).call * unit
            timeouts = timeouts.updated(**{bound: seconds})
    return timeouts


def _from_object(value: JsonObject, dialect: Dialect) -> Json:
    given = {canonical_key(key): read_number(item, f"timeout.{key}") for key, item in value.items()}
    has_opencode_words = bool(given) and given.keys() <= _OPENCODE_TIMEOUTS.keys()
    if dialect != "opencode" and not has_opencode_words:
        return given
    out = without_members(given, *_OPENCODE_TIMEOUTS)
    for key, bounds in _OPENCODE_TIMEOUTS.items():  # the narrower ones last, so that they win
        if key in given:
            out.update(dict.fromkeys(bounds, Timeouts.of(given[key]).call / 1000))
    return out


def _from_number(value: float | None, dialect: Dialect, notes: list[str]) -> Timeouts:
    bounds = Timeouts.of(value)  # refuses a number that is not positive
    if value is None:
        return bounds
    rules = rules_of(dialect)
    if rules.timeout is not None:
        return Timeouts().updated(**dict.fromkeys(rules.timeout, bounds.call * rules.unit))
    if bounds.call >= _MILLISECONDS_FROM:
        # The generic dialect does not say its unit, and nobody waits a quarter of an hour for every answer.
        notes.append(f"'timeout' {value:g} is read as milliseconds; write seconds, or {{'call': {value:g}}}")
        return Timeouts.of(bounds.call / 1000)
    return bounds
