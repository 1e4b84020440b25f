"""The bounds of every wait for a server. Knows no clock and waits for nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.config.validation import check_seconds
from toolweave.errors import ConfigError

_MAY_BE_NONE = ("connect", "probe", "call_total")


class Timeouts(Value, frozen=True, kw_only=True):
    """The bounds of every wait for one server, in seconds.

    Raises:
        ConfigError: A bound is not a positive, finite number.

    Attributes:
        connect: From the start of the process or the first request to the end of the handshake; a process that ends
            on the discovery probe is started once more, and gets as long again as it took for that.
            None: 30 without a sign of life (output, CPU time of the process, bytes of an answer), or 120 for a
            command that may have to install the server first; and 150 in all.
        probe: For the answer to the discovery probe, before `initialize` is sent beside it; the server's answers
            decide its revision, not this bound.
            None: 5, or 15 for a command that may have to install the server first.
        list: For all the pages of one listing.
        call: Silence during a call; each progress notification restarts it.
        call_total: A whole call however much progress it reports, or None for no such bound.
        task: A call that the server made a task, from its beginning to its result. It also ends `call` seconds after
            the time to live that the server gave the task, unless it waits for input.
        close: For the orderly end of a connection, before the process is ended.
        read: For one answer to any other request: a resource, a prompt, a completion.
    """

    connect: float | None = None
    probe: float | None = None
    list: float = 30.0
    call: float = 120.0
    call_total: float | None = None
    task: float = 86_400.0
    close: float = 5.0
    read: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            msgspec.structs.force_setattr(self, name, check_seconds(value, f"timeout.{name}"))

    @classmethod
    def of(cls, value: Timeouts | JsonObject | float | None) -> Timeouts:
        """Make bounds from any accepted form.

        A number bounds the handshake, each listing, the silence of a call and every other
        request alike; the probe gets at most a third of it, so that there is time to fall back.
        A mapping sets the bounds it names, in seconds.

        Raises:
            ConfigError: The value is of another type, names an unknown bound, or is not positive.
        """
        if value is None:
            return cls()
        if isinstance(value, Timeouts):
            return value
        if isinstance(value, Mapping):
            return _from_mapping(value)
        seconds = check_seconds(value, "timeout")
        # Above 15 seconds the default of the probe, 5, is less than a third already.
        probe = seconds / 3 if seconds < 15 else None
        return cls(connect=seconds, probe=probe, list=seconds, call=seconds, read=seconds)

    def updated(self, **seconds: float | None) -> Timeouts:
        """Return the bounds with some of them changed."""
        return self.replace(**seconds)

    def to_dict(self) -> dict[str, float]:
        """Return the bounds that differ from the defaults."""
        return self.without_defaults()


def _from_mapping(value: JsonObject) -> Timeouts:
    known = Timeouts.__struct_fields__
    for key in value:
        if key not in known:
            raise ConfigError(f"'timeout' has no bound {key!r}; known: {', '.join(known)}", field="timeout")
    return Timeouts(**value)
