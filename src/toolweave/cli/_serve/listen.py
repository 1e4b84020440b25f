"""Options of commands that serve over HTTP, as values: the address, the token, the keys. Serves nothing."""

from __future__ import annotations

import errno
import gc
import os
import re
from typing import TYPE_CHECKING

from toolweave.cli._exit_codes import CommandError

if TYPE_CHECKING:
    from toolweave.serve import BearerAuth

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
"""The hosts that only this machine reaches."""
_MIN_KEY_BYTES = 32
_VARIABLE = r"[A-Z_][A-Z0-9_]{0,62}"
"""A name as variables have it; a token has small letters, too, or is longer."""
_GC_THRESHOLDS = (20_000, 20, 50)


def listening(where: str) -> tuple[str, int]:
    """Read `[HOST:]PORT`; the host is this machine's own by default.

    Raises:
        CommandError: It is something else.
    """
    match = re.fullmatch(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\s]*):)?(?P<port>\d{1,5})", where)
    if match is None or int(match["port"]) > 65_535:
        raise CommandError(f"--http {where!r}: expected a port or HOST:PORT, such as 8000 or 0.0.0.0:8000")
    return match["host"] or "127.0.0.1", int(match["port"])


def cannot_listen(where: object, error: OSError) -> CommandError:
    """Return the error of an address that cannot be listened on."""
    hint = "give another address, or port 0 for any that is free"
    if error.errno == errno.EADDRINUSE:
        hint = "another program has this port: end it, give another port, or port 0 for any that is free"
    elif error.errno == errno.EACCES:
        hint = "ports below 1024 are for root: give another port"
    reason = str(error)
    if error.strerror:
        reason = error.strerror
    return CommandError(f"cannot listen on {where}: {reason}", hint=hint)


def secret_in(variable: str, option: str) -> str:
    """Return the token in an environment variable.

    Raises:
        CommandError: It is not set; `option` named it.
    """
    token = os.environ.get(variable)
    if not token:
        raise CommandError(f"{named_variable(variable)} is not set; {option} names the one with the token")
    return token


def named_variable(variable: str) -> str:
    """Return the words for a variable in an error; a text that may be the secret itself is not repeated."""
    if re.fullmatch(_VARIABLE, variable) is None:
        return "an environment variable of the given name"
    return f"environment variable {variable!r}"


def token_auth(variable: str) -> BearerAuth:
    """Return the authorization by the token in an environment variable.

    Raises:
        CommandError: It is not set.
    """
    from toolweave.serve import BearerAuth  # imports are late: --help imports the commands

    return BearerAuth(tokens=[secret_in(variable, "--token-env")])


def state_keys_in(variable: str) -> list[str]:
    """Return the keys in an environment variable, the newest first.

    Raises:
        CommandError: The variable holds no key, or one that is too short.
    """
    keys = os.environ.get(variable, "").split()
    if not keys or any(len(key.encode()) < _MIN_KEY_BYTES for key in keys):
        raise CommandError(
            f"{named_variable(variable)} must hold keys of at least {_MIN_KEY_BYTES} characters, separated by "
            "spaces, the newest first; --state-keys-env names it"
        )
    return keys


def keep_started_objects() -> None:
    """Take all objects that exist out of the garbage collector, and let it run less often.

    For a process that serves until its end: its imports and connections stay, and going through them again and again
    is a fifth of the time of a call under load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
