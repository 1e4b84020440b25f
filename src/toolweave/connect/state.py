"""The public states of a connection (DESIGN decision 3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ConnectionState", "StateChanged"]


class ConnectionState(StrEnum):
    """Where a connection stands."""

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
    """The server wants (other) credentials."""
    FAILED = "failed"
    """Given up; the reason says why."""
    CLOSED = "closed"
    """Closed by `close()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """The event `"state"` of a connection.

    Attributes:
        server: The connection's name.
        state: The new state.
        previous: The state before.
        error: What went wrong, or None.
        retry_in: Seconds until the next attempt in state `backoff`, or None.
    """

    server: str
    state: ConnectionState
    previous: ConnectionState
    error: Exception | None = None
    retry_in: float | None = None
