"""Resource limits for untrusted clients over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from toolweave._json_types import as_number
from toolweave._option_checks import COUNT, NUMBER, type_error
from toolweave.errors import ConfigError

_COUNTS = frozenset({"body_bytes", "header_bytes", "header_count", "connections", "sessions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Resource limits for untrusted clients; each has a safe default.

    Attributes:
        body_bytes: The longest request body; longer ones are refused with 413 and never held.
        header_bytes: Maximum size of a request's headers together (431).
        header_count: Maximum number of a request's headers (431).
        connections: Maximum open connections, and running requests. Beyond it the caller that holds the most loses:
            an idle connection first, then one that sends slowly, then its oldest stream of notifications. When there is
            none, requests are refused with 503 and `Retry-After`. None for no bound.
        caller_share: The part of the running requests that one caller may have while nobody else has any; with more
            callers it is less for each, so that one more always gets in. Beyond it a caller is refused with 429 and
            `Retry-After`; 1 for no share. A caller is a principal, or without a token an address.
        header_seconds: Timeout of a request's headers, from its first byte or the start of the connection.
        body_seconds: Timeout of a request's body (408).
        keep_alive_seconds: Timeout of an idle connection.
        ping_seconds: The longest silence of an event stream; then a comment is sent, so that no proxy closes it.
        stalled_seconds: How long a client may leave an event stream unread before its call is cancelled.
        sessions: Maximum open sessions of legacy clients. Beyond it the caller that has the most loses the one that it
            has not used for longest. A caller that has the most and uses all of them is refused with 503.
        session_idle_seconds: Seconds without a request after which a session is dropped.
        shutdown_seconds: How long running calls may take to finish when the server is asked to stop.
        drain_seconds: How long requests are still accepted after SIGTERM, each answered with `connection: close`, so
            that balancers and clients turn to another replica before this one is gone; 0 stops at once.

    Raises:
        ConfigError: A limit is not more than 0.
        TypeError: A value has another type.
    """

    body_bytes: int = 4 * 1024 * 1024
    header_bytes: int = 32 * 1024
    header_count: int = 100
    connections: int | None = 1000
    caller_share: float = 0.75
    header_seconds: float = 10
    body_seconds: float = 30
    keep_alive_seconds: float = 15
    ping_seconds: float = 15
    stalled_seconds: float = 30
    sessions: int = 10_000
    session_idle_seconds: float = 1800
    shutdown_seconds: float = 30
    drain_seconds: float = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name == "connections":
                continue
            kind = COUNT if name in _COUNTS else NUMBER
            number = as_number(value)
            if number is None or not kind.fits(value):
                raise type_error(f"HttpLimits.{name}", value, kind.shown)
            if name == "drain_seconds":
                if not number >= 0:
                    raise ConfigError(f"HttpLimits.{name} must be 0 or more, not {value!r}")
            elif not number > 0:
                raise ConfigError(f"HttpLimits.{name} must be more than 0, not {value!r}")
        if self.caller_share > 1:
            raise ConfigError(f"HttpLimits.caller_share must be 1 or less, not {self.caller_share!r}")
