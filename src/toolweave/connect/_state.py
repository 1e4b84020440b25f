"""The public states of a connection, and the transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from toolweave._value import Value


class ConnectionState(StrEnum):
    """The state of a connection."""

    IDLE = "idle"
    """Nothing tried yet: a lazy connection before its first use."""
    CONNECTING = "connecting"
    """Starting, shaking hands, listing."""
    READY = "ready"
    """Usable."""
    DEGRADED = "degraded"
    """Usable, but its tools could not be listed; the reason says why."""
    BACKOFF = "backoff"
    """Lost; the next attempt comes by itself."""
    AUTH_REQUIRED = "auth_required"
    """The server requires (other) credentials; the next use asks it again."""
    FAILED = "failed"
    """Given up; the reason says why. A use after a cool-down tries again, unless `restart` is `"never"`."""
    CLOSED = "closed"
    """Closed: by `close()`, which is final, or because its last user left it; entering it again opens it again."""


_S = ConnectionState
_ENDS = frozenset({_S.BACKOFF, _S.AUTH_REQUIRED, _S.FAILED, _S.CLOSED})

TRANSITIONS: Mapping[ConnectionState, frozenset[ConnectionState]] = {
    _S.IDLE: frozenset({_S.CONNECTING, _S.CLOSED}),
    _S.CONNECTING: _ENDS | {_S.READY, _S.DEGRADED},
    _S.READY: _ENDS | {_S.DEGRADED},
    _S.DEGRADED: _ENDS | {_S.READY},
    _S.BACKOFF: frozenset({_S.CONNECTING, _S.CLOSED}),
    # its conversation may still be open: it can be lost like any other
    _S.AUTH_REQUIRED: frozenset({_S.CONNECTING, _S.BACKOFF, _S.FAILED, _S.CLOSED}),
    _S.FAILED: frozenset({_S.CONNECTING, _S.CLOSED}),
    _S.CLOSED: frozenset({_S.IDLE}),
}
"""State -> the states that may follow it; an owner refuses every other change."""


class StateChanged(Value, frozen=True, kw_only=True):
    """The event `"state"` of a connection.

    Attributes:
        server: The connection's name.
        state: The new state.
        previous: The state before.
        error: The error, or None.
        retry_in: Seconds until the next attempt in state `backoff`, or None.
    """

    server: str
    state: ConnectionState
    previous: ConnectionState
    error: Exception | None = None
    retry_in: float | None = None
