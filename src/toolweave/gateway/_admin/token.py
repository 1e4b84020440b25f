"""Admin tokens of gateways on this machine, kept in files that only their user can read.

A gateway that listens on loopback makes a token at each start and keeps it while it runs, so that commands of the same
user find it: a process that can read that file can start programs as this user anyway.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolweave.config.trust import write_privately

_MAX_BYTES = 1_000


def new_token() -> str:
    """Return a random token that cannot be guessed."""
    return secrets.token_urlsafe(32)


@contextmanager
def keep_token(port: int, token: str) -> Generator[None]:
    """Keep the token of the gateway on a port of this machine while the block runs.

    Raises:
        OSError: The file cannot be written.
    """
    path = _path(port)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_privately(path, token.encode())
    try:
        yield
    finally:
        if kept_token(port) == token:  # else it belongs to a later gateway
            with suppress(OSError):
                path.unlink()


def kept_token(port: int) -> str | None:
    """Return the token of the gateway on a port of this machine, or None."""
    try:
        data = _path(port).read_bytes()
        if 0 < len(data) <= _MAX_BYTES:
            return data.decode("ascii")
        return None
    except (OSError, ValueError):
        return None


def _path(port: int) -> Path:
    from platformdirs import user_state_path  # only where it is asked for

    return user_state_path("toolweave", appauthor=False) / "gateways" / f"{port}.token"
