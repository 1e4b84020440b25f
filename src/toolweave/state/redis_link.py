"""The connections of a `RedisStore` in one event loop: how many, how long they are waited for, what their errors mean.

Knows the wire (of the package `redis`, which it imports when the first connection is made); nothing of documents.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from toolweave.errors import StoreError
from toolweave.state.redis_address import Address
from toolweave.state.redis_scripts import Script

__all__ = ["Link"]

MOST_CONNECTIONS = 16
_LONGEST_PAUSE = 0.5

_TOLD: tuple[tuple[str, str], ...] = (
    ("WRONGPASS|invalid username-password|invalid password|Invalid Username", "refuses the user or the password"),
    (
        "NOAUTH|Authentication required|must be called with the client",
        "wants a password: redis://:PASSWORD@host:port/0",
    ),
    ("AUTH <password> called without|without any password", "has no password: take it out of the address"),
    (
        "NOPERM|NoPermission|no permissions",
        "does not let this user do it: allow EVAL, EVALSHA and the keys of the prefix",
    ),
    ("OOM |OutOfMemory", "is full and takes no more: raise its maxmemory, or delete what is not needed"),
    ("MISCONF", "cannot save to its disk and takes no writes: its log says why"),
    ("READONLY|ReadOnly", "is a replica, which takes no writes: give the address of the primary"),
    ("NOREPLICAS", "takes no writes, because too few of its replicas are there"),
    ("LOADING|BusyLoading", "is still loading what it holds: try again in a moment"),
    ("BUSY ", "is busy with a script of somebody else: try again in a moment"),
    ("CLUSTERDOWN|ClusterDown|MASTERDOWN|MasterDown|TRYAGAIN|TryAgain", "is not ready: try again in a moment"),
    ("MOVED|Moved", "is a node of a cluster that does not hold this prefix: give the address of the one that does"),
    ("max number of clients", "has as many clients as it takes: raise its maxclients"),
    ("DB index is out of range|Invalid Database", "has no database of this number: see its setting `databases`"),
)
"""What an error says, in the ways that servers and the client have of saying it, and what it means."""

_STARTING = re.compile("LOADING|BusyLoading|BUSY |CLUSTERDOWN|ClusterDown|MASTERDOWN|MasterDown|TRYAGAIN|TryAgain")


class Link:
    """Connections that calls share, at most `MOST_CONNECTIONS`; a call waits for a free one.

    Args:
        address: Of the server.
        wait_seconds: How long a call may take, with all that is done again.

    Raises:
        StoreError: The package is not installed, or does not know an option of the address.
    """

    def __init__(self, address: Address, wait_seconds: float) -> None:
        self.users = 0
        self._address = address
        self._options = address.options()
        self._wait_seconds = wait_seconds
        self._free: list[Any] = []
        self._room = anyio.Semaphore(MOST_CONNECTIONS)

    async def call(
        self, script: Script, keys: Sequence[str], args: Sequence[str | bytes], *, again: bool = True
    ) -> Any:
        """Have a script run, again on another connection when one breaks: every script may be run twice.

        Args:
            script: What to run.
            keys: What it touches.
            args: What it is told.
            again: False gives up when the server cannot be reached at once; one that is just starting is waited for.

        Raises:
            StoreError: The server was not reached in time, or refused.
        """
        from redis.exceptions import RedisError

        deadline = time.monotonic() + self._wait_seconds
        attempt, pause = _Attempt(), 0.0
        while True:
            try:
                # half of the time, so that a connection which leads nowhere is not all that was tried
                with anyio.fail_after(max(0.01, min(deadline - time.monotonic(), self._wait_seconds / 2))):
                    return await self._once(script, keys, args, attempt)
            except (RedisError, OSError) as exc:
                text, lost, starting = self._said(exc), _is_lost(exc), _is_starting(exc)
            if not (starting or (again and lost)) or time.monotonic() + pause >= deadline:
                # not from within the handler: what the client raised holds what it was given
                if script.writes and attempt.unanswered and (lost or starting):
                    text += "; it is not known whether the document was written"
                raise StoreError(text)
            await anyio.sleep(pause)
            pause = min(_LONGEST_PAUSE, 0.02 + 2 * pause)

    async def close(self) -> None:
        """Close what nobody is using."""
        free, self._free = self._free, []
        with anyio.move_on_after(1, shield=True):  # TLS says goodbye
            for connection in free:
                with contextlib.suppress(Exception):
                    await connection.disconnect()
        for connection in free:
            await _drop(connection)

    async def _once(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes], attempt: _Attempt) -> Any:
        from redis.exceptions import BusyLoadingError, NoScriptError, ResponseError

        sent = False
        async with self._room:
            connection = self._free.pop() if self._free else self._new()
            try:
                await connection.connect()
                sent = True
                try:
                    answer = await _ask(connection, "EVALSHA", script.digest, len(keys), *keys, *args)
                except NoScriptError:
                    answer = await _ask(connection, "EVAL", script.source, len(keys), *keys, *args)
            except (ResponseError, BusyLoadingError):  # an answer like any other
                self._keep(connection)
                raise
            except BaseException:
                attempt.unanswered |= sent
                await _drop(connection)
                await self._drop_all()  # they led to the same server
                raise
            self._keep(connection)
            return answer

    def _keep(self, connection: Any) -> None:
        if connection.is_connected:
            self._free.append(connection)

    async def _drop_all(self) -> None:
        free, self._free = self._free, []
        for connection in free:
            await _drop(connection)

    def _new(self) -> Any:
        from redis.asyncio.connection import Connection
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        options = dict(self._options)
        kind: Any = options.pop("connection_class", Connection)
        options.pop("max_connections", None)
        ours = {"protocol": 2, "decode_responses": False, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)}
        try:
            return kind(**{"socket_connect_timeout": self._wait_seconds, **options, **ours})
        except (TypeError, ValueError) as exc:
            problem = StoreError(f"{self._address.place}: its address has an option that is not understood: {exc}")
        raise problem

    def _said(self, exc: Exception) -> str:
        place, kind, said = self._address.place, type(exc).__name__, self._address.scrubbed(str(exc))
        for marks, meaning in _TOLD:
            if re.search(marks, f"{kind} {said}"):
                return f"{place} {meaning} ({said})"
        if kind == "TimeoutError":
            return f"{place} did not answer for {self._wait_seconds:g} s: is it overloaded, or the network broken?"
        if isinstance(exc, OSError) or kind == "ConnectionError":
            return f"{place} cannot be reached ({said}): is it running, and is this its address?"
        return f"{place}: {said}"


@dataclass(slots=True)
class _Attempt:
    """What is known of a call so far: whether a server may have done what it never answered."""

    unanswered: bool = False


async def _ask(connection: Any, *command: Any) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()


async def _drop(connection: Any) -> None:
    with anyio.CancelScope(shield=True), contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)


def _is_lost(exc: Exception) -> bool:
    return isinstance(exc, OSError) or type(exc).__name__ in ("ConnectionError", "TimeoutError")


def _is_starting(exc: Exception) -> bool:
    return _STARTING.search(f"{type(exc).__name__} {exc}") is not None
