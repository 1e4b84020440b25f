"""The connection pool of a `RedisStore` in one event loop: pipelining, timeouts, retries and error messages.

The package `redis` is imported when the first connection is made. Independent of documents.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio

from toolweave._json_types import Json
from toolweave.errors import StoreError
from toolweave.state._redis_address import RedisAddress
from toolweave.state._redis_scripts import RedisScript
from toolweave.state._redis_sentinels import Sentinels
from toolweave.state._signals import SignalListeners

MAX_CONNECTIONS = 4
_MAX_TOGETHER = 64
"""Maximum calls in one pipeline."""
_MAX_PAUSE = 0.5
_PRIMARY_CHECK_SECONDS = 1.0
"""Seconds after which the Sentinels are asked again which server is the primary, while connections are kept."""
_FAILED_CHECK_SECONDS = 5.0
_CHECK_TIMEOUT = 0.5
"""Seconds until the next check after one without an answer, and until a check is given up."""

_MEANINGS: tuple[tuple[str, str], ...] = (
    ("WRONGPASS|invalid username-password|invalid password|Invalid Username", "refuses the user or the password"),
    (
        "NOAUTH|Authentication required|must be called with the client",
        "requires a password: redis://:PASSWORD@host:port/0",
    ),
    ("AUTH <password> called without|without any password", "has no password: take it out of the address"),
    (
        "NOPERM|NoPermission|no permissions",
        "does not let this user do it: allow EVAL, EVALSHA and the keys of the prefix",
    ),
    ("OOM |OutOfMemory", "is full and accepts no more: raise its maxmemory, or delete unneeded keys"),
    ("MISCONF", "cannot save to its disk and takes no writes: see its log"),
    ("READONLY|ReadOnly", "is a replica, which takes no writes: give the address of the primary"),
    ("NOREPLICAS", "takes no writes, because too few of its replicas are there"),
    ("LOADING|BusyLoading", "is still loading its data: try again in a moment"),
    ("BUSY ", "is busy with another client's script: try again shortly"),
    ("CLUSTERDOWN|ClusterDown|MASTERDOWN|MasterDown|TRYAGAIN|TryAgain", "is not ready: try again in a moment"),
    (
        "MOVED|Moved",
        "is a node of a cluster, and another node has the keys of this prefix: give the address of that node",
    ),
    (
        "SELECT is not allowed in cluster mode",
        "is a node of a cluster, which has database 0 only: end the address with /0",
    ),
    ("MasterNotFound", "has no primary by its Sentinels: are they running, and is this the name of the service?"),
    ("max number of clients", "has as many clients as it takes: raise its maxclients"),
    ("DB index is out of range|Invalid Database", "has no database of this number: see its setting `databases`"),
)
"""Patterns of error messages of servers and of the client, each with its explanation."""

_FAILED_OVER = re.compile(
    "READONLY|ReadOnly|NOREPLICAS|LOADING|BusyLoading|MASTERDOWN|MasterDown|UNBLOCKED"
    "|previous master is now a slave|MasterNotFound"
)
"""Errors of a server that may not be the primary any more, or not yet: the address may lead to another one by now.

What fails so was not done. After a planned failover the old primary continues as a replica and keeps its connections,
so each of them would get these errors for as long as it is used. The last two are those of the package `redis`.
"""
_NOT_READY = re.compile("BUSY |CLUSTERDOWN|ClusterDown|TRYAGAIN|TryAgain")
"""Errors of a server that is the right one, and does this a little later."""
_TLS_MISMATCH = re.compile("CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|TLSV1|SSLV3_ALERT")
"""Failures to connect that every later attempt repeats: another certificate, or a server without TLS."""


class RedisConnections:
    """Connections that calls share, at most `MAX_CONNECTIONS`.

    Concurrent calls are pipelined: the first caller that gets a connection sends all of them; when it is cancelled
    meanwhile, or the connection breaks, each of the others is sent again on its own.

    Why Sentinels are asked while the connections work: a Sentinel names the new primary some ten seconds before it
    demotes the old one, which accepts writes until then and loses them. So a kept connection is used only while the
    Sentinels name its server, and all connections lead to one server.

    Args:
        address: The server's address.
        wait_seconds: Timeout of a call, retries included.

    Attributes:
        users: The number of users of the connections.
        listeners: The listeners to signals.
        server_since: The time of the event loop since when one and the same server has answered, as far as can be
            seen: no connection to it was lost, and the Sentinels named no other.

    Raises:
        StoreError: The package is not installed, or does not know an option of the address.
    """

    def __init__(self, address: RedisAddress, wait_seconds: float) -> None:
        self.users = 0
        self.server_since = -math.inf
        self._address = address
        self._options = address.options()
        self._wait_seconds = wait_seconds
        self._free: list[Any] = []
        self._waiting: list[_PipelinedCall] = []
        self._exchanging = 0
        self._generation = 0  # of connections: grows when all of them are dropped
        service = address.service
        if service is None:
            self._sentinels = None
        else:
            self._sentinels = Sentinels(service, self._options, wait_seconds)
        self._primary: tuple[str, int] | None = None  # as the Sentinels named it last
        self._check_primary_at = -math.inf
        self.listeners = SignalListeners()
        self._listener: Any = None
        self._hearing = anyio.Lock()

    async def call(
        self,
        script: RedisScript,
        keys: Sequence[str | bytes],
        args: Sequence[str | bytes],
        *,
        again: bool = True,
        wait_seconds: float | None = None,
    ) -> Any:
        """Run a script, again on another connection when one breaks or leads to a replica.

        Every script may be run twice.

        Args:
            script: The script.
            keys: Its KEYS.
            args: Its ARGV.
            again: False gives up when the server cannot be reached at once; one that is starting, or is not the
                primary yet, is waited for.
            wait_seconds: Timeout of this call, retries included; by default that of the connections.

        Raises:
            StoreError: The server was not reached in time, or refused.
        """
        wait = self._wait_seconds if wait_seconds is None else wait_seconds
        began = time.monotonic()
        deadline = began + wait
        unanswered = False
        pause = 0.0
        exc: Exception | None = None
        while True:
            # A new one for each attempt: the old one may still be in the hands of a task that sends.
            call = _PipelinedCall(script=script, keys=keys, args=args)
            # half of the time, so that a dead connection is not the only attempt
            seconds = min(deadline - time.monotonic(), wait / 2)
            await self._settled(call, max(0.01, seconds))
            if call.error is None:
                return call.answer
            if isinstance(call.error, StoreError):
                raise call.error
            if exc is None or not _is_cut(call.error, seconds, wait):
                # an attempt that was cut off explains less than the one before
                exc = call.error
            # Over all attempts: one that may have been done is enough for the outcome to be unknown.
            unanswered |= call.unanswered
            is_lost = _is_connection_error(exc)
            is_unavailable = is_failed_over(exc) or _is_not_ready(exc)
            is_late = time.monotonic() + pause >= deadline
            may_repeat = is_unavailable or (again and is_lost)
            if is_late or not may_repeat:
                may_be_written = script.writes and unanswered and (is_lost or is_unavailable)
                error = self._final_error(exc, time.monotonic() - began, may_be_written=may_be_written)
                del call, exc  # an error of the client holds the arguments
                raise error
            await anyio.sleep(pause)
            pause = min(_MAX_PAUSE, 0.02 + 2 * pause)

    async def subscribe(self, channel: str) -> bool:
        """Subscribe to signals on a separate connection; return False when the server cannot be reached."""
        from redis.exceptions import RedisError

        if self._listener is not None:  # the listener keeps using it, for as long as that takes
            return True
        try:
            with anyio.fail_after(self._wait_seconds / 2):
                async with self._hearing:
                    await self._subscribed(channel)
        except (RedisError, OSError, StoreError):
            return False
        return True

    async def receive_signals(self, channel: str) -> None:
        """Dispatch signals for ever. One of the waiting tasks does it for all; when it leaves, another takes over."""
        from redis.exceptions import RedisError

        async with self._hearing:
            pause = 0.0
            while True:
                try:
                    fresh = self._listener is None
                    listener = await self._subscribed(channel)
                    # signals that were sent meanwhile are lost, so everybody looks once more
                    if fresh:
                        self.listeners.notify_all()
                    # the connection keeps a partly read signal when this is cancelled
                    # Cancelled between two signals as a rule, when the task that hears for all leaves; the next one
                    # continues on the same connection.
                    said = await listener.read_response(disconnect_on_error=False)
                    pause = 0.0
                except (RedisError, OSError):
                    await self._unsubscribe()
                    pause = min(_MAX_PAUSE, 0.02 + 2 * pause)
                    await anyio.sleep(pause)
                    continue
                if said[0] == b"message":
                    self.listeners.notify(said[2].decode(errors="replace"))

    async def _subscribed(self, channel: str) -> Any:
        # In a loop: each await may be the moment in which another task finds a new primary, and signals are sent to
        # the primary alone.
        while self._listener is None:
            primary = await self._find_primary()
            connection = await self._connect(primary)
            try:
                await connection.send_command("SUBSCRIBE", channel)
                await connection.read_response()
            except BaseException:
                await _drop(connection)
                raise
            if primary == self._primary:
                self._listener = connection
            else:  # another task found a new primary meanwhile
                await _drop(connection)
        return self._listener

    async def _unsubscribe(self) -> None:
        listener = self._listener
        self._listener = None
        if listener is not None:
            await _drop(listener)

    async def close(self) -> None:
        """Close the unused connections."""
        if not self.users:
            await self._unsubscribe()
            if self._sentinels is not None:
                await self._sentinels.close()
        free = self._free
        self._free = []
        with anyio.move_on_after(1, shield=True):  # TLS says goodbye
            for connection in free:
                with contextlib.suppress(Exception):
                    await connection.disconnect()
        for connection in free:
            await _drop(connection)

    async def _settled(self, call: _PipelinedCall, seconds: float) -> None:
        """Have a call sent, by this task with all waiting ones, or by another task; return when it is settled."""
        # A timer that settles the call, and no scope: the task may be sending for others as well, whom this bound must
        # not cut off.
        late = asyncio.get_running_loop().call_later(seconds, call.settle, None, TimeoutError())
        self._waiting.append(call)
        try:
            while not call.settled:
                # No lock: a call that finds a connection free sends all that wait; the others sleep until they are
                # answered, or until it is their turn to send.
                if call.taken or self._exchanging == MAX_CONNECTIONS:
                    await call.changed()
                else:
                    await self._send_pipeline(call, seconds)
        finally:
            late.cancel()
            if not call.taken:
                self._waiting.remove(call)
                self._wake_next()

    async def _send_pipeline(self, call: _PipelinedCall, seconds: float) -> None:
        self._exchanging += 1
        try:
            await asyncio.sleep(0)  # what others call meanwhile goes with it
            if not (call.taken or call.settled):
                # Taken in order, so nobody starves; this task's own call may be further behind and is added, as it
                # would otherwise send and still wait.
                calls = self._waiting[:_MAX_TOGETHER]
                self._waiting = self._waiting[_MAX_TOGETHER:]
                for one in calls:
                    one.taken = True
                if not call.taken:  # it is further behind
                    self._waiting.remove(call)
                    call.taken = True
                    calls.append(call)
                with anyio.move_on_after(seconds):
                    await self._exchange(calls)
        finally:
            self._exchanging -= 1
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake the first waiting call to send all of them, if a connection is free."""
        if self._waiting and self._exchanging < MAX_CONNECTIONS:
            # Handed on at the end of every exchange and by every caller that leaves: without it the last sender could
            # go while others sleep.
            self._waiting[0].wake()

    async def _exchange(self, calls: Sequence[_PipelinedCall]) -> None:
        """Send calls in one pipeline and settle each: with its response, its error, or the error of the connection."""
        from redis.exceptions import RedisError

        # to the others, when the sender for all gives up or is cancelled
        error: Exception = TimeoutError()
        connection = None
        sent = False
        generation = self._generation
        try:
            connection, generation = await self._acquire()
            sent = True
            await self._answered(connection, calls)
        except BaseException as exc:
            if isinstance(exc, Exception):
                error = exc
            if connection is not None:
                await _drop(connection)
            # A broken connection mostly means a restarted server: the idle ones are as dead, and each would cost the
            # next call a timeout.
            await self._disconnect_all()  # they led to the same server
            if not isinstance(exc, (RedisError, OSError, StoreError)):
                raise
            self.server_since = time.monotonic()
        else:
            errors = [call.error for call in calls if call.error is not None]
            if any(map(is_failed_over, errors)):
                await _drop(connection)
                await self._leave_server()
            elif generation == self._generation and connection.is_connected:
                self._free.append(connection)
            else:  # another task found meanwhile that such connections lead to the wrong server
                await _drop(connection)
        finally:
            for call in calls:
                # From the first byte on the server may do it. Before that it provably was not sent.
                call.unanswered |= sent and not call.settled
                call.settle(None, error)

    async def _acquire(self) -> tuple[Any, int]:
        """Return a connection to the primary, and the generation that it belongs to.

        Raises:
            RedisError, OSError: The server cannot be reached, or the Sentinels do not know it.
            StoreError: The address has an option that is not understood.
        """
        await self._check_primary()
        if self._free:
            return self._free.pop(), self._generation
        primary = await self._find_primary()
        # before it connects: meanwhile another task may find another primary
        generation = self._generation
        return await self._connect(primary), generation

    async def _answered(self, connection: Any, calls: Sequence[_PipelinedCall]) -> None:
        """Send calls and read their answers; a script whose digest the server does not know is sent in full."""
        from redis.exceptions import BusyLoadingError, NoScriptError, ResponseError

        unknown: list[_PipelinedCall] = []
        # One write for all; Redis answers in order (pipelining), so the nth answer is that of the nth call.
        await connection.send_packed_command([b"".join(call.packed() for call in calls)])
        for call in calls:
            try:
                call.settle(await connection.read_response())
            except NoScriptError:
                unknown.append(call)
            except (ResponseError, BusyLoadingError) as exc:  # an answer like any other
                call.settle(None, exc)
        for call in unknown:
            await connection.send_packed_command([call.packed(in_full=True)])
            try:
                call.settle(await connection.read_response())
            except (ResponseError, BusyLoadingError) as exc:
                call.settle(None, exc)

    async def _disconnect_all(self) -> None:
        """Drop all connections but the listener's: the idle ones now, those in use after their exchange."""
        # A connection in use cannot be closed under its task. Its generation is old from here, so that it is dropped
        # when it is given back.
        self._generation += 1
        free = self._free
        self._free = []
        for connection in free:
            await _drop(connection)

    async def _leave_server(self) -> None:
        """Drop all connections to a server that is not the primary any more."""
        self.server_since = time.monotonic()
        await self._disconnect_all()
        # The listener still receives signals at most as a replica does, and perhaps none; it connects anew.
        await self._unsubscribe()

    async def _check_primary(self) -> None:
        """Drop the connections if the Sentinels name another primary; asks them once in a while.

        Sentinels that do not answer change nothing: the connections are used for as long as they work.
        """
        from redis.exceptions import RedisError

        now = time.monotonic()
        if self._sentinels is None or self._primary is None or now < self._check_primary_at:
            return
        # before the wait, so that one task asks for all
        self._check_primary_at = now + _PRIMARY_CHECK_SECONDS
        try:
            with anyio.fail_after(_CHECK_TIMEOUT):
                await self._find_primary()
        except (RedisError, OSError):
            self._check_primary_at = now + _FAILED_CHECK_SECONDS

    async def _find_primary(self) -> tuple[str, int] | None:
        """Return host and port of the primary by the Sentinels, None for an address without Sentinels.

        Connections to another server are dropped.

        Raises:
            RedisError, OSError: No Sentinel answers, or none knows a primary.
            StoreError: The address has an option that is not understood.
        """
        if self._sentinels is None:
            return None
        found = await self._sentinels.primary()
        self._check_primary_at = time.monotonic() + _PRIMARY_CHECK_SECONDS
        if found != self._primary:
            known = self._primary is not None
            self._primary = found
            if known:
                await self._leave_server()
        return found

    async def _connect(self, primary: tuple[str, int] | None) -> Any:
        """Return a new connection to the primary.

        Raises:
            RedisError, OSError: It cannot be reached.
            StoreError: The address has an option that is not understood.
        """
        connection = self._new({} if primary is None else {"host": primary[0], "port": primary[1]})
        try:
            await connection.connect()
        except BaseException:
            await _drop(connection)
            raise
        return connection

    def _new(self, place: Json) -> Any:
        from redis.asyncio.connection import Connection
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        options = dict(self._options)
        kind: Any = options.pop("connection_class", Connection)
        options.pop("max_connections", None)
        # The library's own retries and timeouts are off: a call has one bound over all its attempts, which `call`
        # keeps.
        ours = {"protocol": 2, "decode_responses": False, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)}
        try:
            return kind(**{"socket_connect_timeout": self._wait_seconds, **options, **ours, **place})
        except (TypeError, ValueError) as exc:
            problem = StoreError(f"{self._address.public_url}: its address has an option that is not understood: {exc}")
        raise problem

    def _final_error(self, exc: Exception, passed: float, *, may_be_written: bool) -> StoreError:
        text = self._description(exc, passed)
        if may_be_written:
            text += "; it is not known whether the document was written"
        return StoreError(text, is_temporary=is_temporary(exc))

    def _description(self, exc: Exception, passed: float) -> str:
        place = self._address.public_url
        kind = type(exc).__name__
        said = self._address.mask(str(exc))
        if kind == "MovedError":
            said = said.rpartition(" ")[2]  # the node, without the number of the slot
        for marks, meaning in _MEANINGS:
            # In the text as it came: masked, a user called `user` would hide what it says.
            if re.search(marks, f"{kind} {exc}"):
                return f"{place} {meaning} ({said})"
        if kind == "TimeoutError":
            # A call that is not repeated waits for a part of its time.
            seconds = round(passed, 1 if passed < 10 else None)
            return f"{place} did not answer for {seconds:g} s: is it overloaded, or the network broken?"
        if isinstance(exc, OSError) or kind == "ConnectionError":
            return f"{place} cannot be reached ({said}): is it running, and is this its address?"
        return f"{place}: {said}"


@dataclass(slots=True, eq=False, kw_only=True)
class _PipelinedCall:
    """A call in a pipeline.

    Attributes:
        taken: Whether a task is sending it.
        unanswered: Whether a server may have done it without an answer.
        settled: Whether there is an answer or an error.
    """

    script: RedisScript
    keys: Sequence[str | bytes]
    args: Sequence[str | bytes]
    taken: bool = False
    unanswered: bool = False
    settled: bool = False
    answer: Any = None
    error: Exception | None = None
    _change: asyncio.Future[None] | None = None

    def packed(self, *, in_full: bool = False) -> bytes:
        """Return it in RESP."""
        script = self.script
        if script.command:
            return _packed([script.command, *self.keys, *self.args])
        if in_full:
            name = ["EVAL", script.source]
        else:
            name = ["EVALSHA", script.digest]
        return _packed([*name, str(len(self.keys)), *self.keys, *self.args])

    def settle(self, answer: Any, error: Exception | None = None) -> None:
        """Note how it ended, if it has not."""
        if not self.settled:
            self.settled = True
            self.answer = answer
            self.error = error
            self.wake()

    async def changed(self) -> None:
        """Wait until it is settled, or its caller has to send it."""
        # No await between the caller's look at the state and this future, so a change cannot fall in between.
        self._change = asyncio.get_running_loop().create_future()
        await self._change

    def wake(self) -> None:
        """Wake its caller up."""
        if self._change is not None and not self._change.done():
            self._change.set_result(None)


def _packed(parts: Sequence[str | bytes]) -> bytes:
    """Return a command in RESP."""
    pieces = [b"*%d\r\n" % len(parts)]
    for part in parts:
        text = part.encode() if isinstance(part, str) else part
        pieces.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(pieces)


async def _drop(connection: Any) -> None:
    # It is mostly broken, and this runs while an error or a cancellation is under way: neither may be replaced by a
    # failure to close.
    with anyio.CancelScope(shield=True), contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)


def _is_cut(exc: Exception, seconds: float, wait_seconds: float) -> bool:
    """Whether an attempt ended only because of the total timeout."""
    return isinstance(exc, TimeoutError) and seconds < wait_seconds / 2


def _is_connection_error(exc: Exception) -> bool:
    return isinstance(exc, OSError) or type(exc).__name__ in ("ConnectionError", "TimeoutError")


def is_failed_over(exc: BaseException) -> bool:
    """Whether a server is not the primary, so that its address may lead to another one by now."""
    if isinstance(exc, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", exc)
        return any(map(is_failed_over, group.exceptions))
    return _FAILED_OVER.search(f"{type(exc).__name__} {exc}") is not None


def is_temporary(exc: Exception) -> bool:
    """Whether a later attempt may succeed: the server is away, not the primary, or not ready."""
    if _TLS_MISMATCH.search(str(exc)) is not None:
        return False
    return any(look(exc) for look in (is_failed_over, _is_not_ready, _is_connection_error))


def _is_not_ready(exc: Exception) -> bool:
    return _NOT_READY.search(f"{type(exc).__name__} {exc}") is not None
