"""The lifecycle of one connection: one task opens it, holds it, restarts it and closes it.

Cancel scopes are entered and left in that task alone, as anyio requires; every other task
only signals to it. Knows nothing of tools.

Why no signal is lost: a waiter checks the state and begins to wait on the current event without yielding in between, on
the one loop of the connection; each change of the state replaces that event and sets the old one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from toolweave.config import ServerConfig
from toolweave.connect._activity import ActivityMonitor
from toolweave.connect._clock import SYSTEM_CLOCK, Clock
from toolweave.connect._diagnosis import again, connect_timeout_error, explained, first_exception, refuses_era
from toolweave.connect._idle_timeout import IdleTimeout
from toolweave.connect._report import Report
from toolweave.connect._restart import ConnectionLoss, GiveUp, RestartPolicy
from toolweave.connect._session import ClientHandlers
from toolweave.connect._state import TRANSITIONS, ConnectionState, StateChanged
from toolweave.connect._transports import (
    ConnectPlan,
    OpenSession,
    RetryConnect,
    first_plan,
    learned_plan,
    load_sdk,
    open_session,
)
from toolweave.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    RequestTimeoutError,
)
from toolweave.tools.owner_loop import OwnerLoop

_log = logging.getLogger("toolweave.connect")
_TEARDOWN_SECONDS = 6.0
_LOAD_SECONDS = 120.0
_MAX_REDIALS = 4
_OVER = frozenset({ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED, ConnectionState.CLOSED})

T = TypeVar("T")
ConnectionEnd = tuple[ConnectionState, Exception]
"""The final state and error of a connection whose task ended by itself."""


class Supervisor:
    """The supervisor of one connection: connects, reconnects with backoff, and closes.

    `prepare` is awaited with every new open session before requests use it; `run_background` runs beside it
    until the session ends. `clock` drives backoff and cool-down, nothing else.

    An endless connection is never given up. It is away while it could not be reached for so long that an ordinary one
    would have been: its users then get the cause at once, and a use after the cool-down does not wait for the backoff.

    Attributes:
        endless: Whether it is tried again for ever, from the first attempt on.
        away: Whether it waits in `backoff` where an ordinary connection would be given up.
        loop: The event loop that the connection runs on; None before it was started.
    """

    def __init__(
        self,
        config: ServerConfig,
        handlers: ClientHandlers,
        *,
        prepare: Callable[[OpenSession], Awaitable[None]],
        run_background: Callable[[OpenSession], Coroutine[Any, Any, None]],
        on_state: Callable[[StateChanged], None],
        policy: RestartPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.state: ConnectionState = ConnectionState.IDLE
        self.error: Exception | None = None
        self.session: OpenSession | None = None
        self.report: Report = Report(self.config.redact)
        self.restarts: int = 0
        self.handlers = handlers
        self._prepare = prepare
        self._run_background = run_background
        self._on_state = on_state
        self._policy = RestartPolicy() if policy is None else policy
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._losses: deque[ConnectionLoss] = deque(maxlen=self._policy.memory)
        self._attempt = first_plan(config)
        self._task: asyncio.Task[None] | None = None
        self._home = OwnerLoop(config.name)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopping = False
        self._opened: float | None = None
        self._granted = 0.0
        self._ever_ready = False
        self.endless: bool = config.restart == "always"
        self.away: bool = False
        self._over_since = 0.0
        self._refused: AuthRequiredError | None = None
        self.auth_suspect: bool = False
        self._wake = anyio.Event()
        self._changed = anyio.Event()

    @property
    def name(self) -> str:
        """The server's name."""
        return self.config.name

    @property
    def open_session(self) -> OpenSession | None:
        """The session that is offered to requests, unless it has ended."""
        session = self.session
        if session is None or session.conversation.wire.over:
            return None
        return session

    def start(self, *, now: bool = False) -> None:
        """Start connecting in a new task; does nothing when started already.

        A connection that was given up starts again once its cool-down is over, or at once with `now`; one that wants
        other credentials tries again on its session, if that is still open.
        """
        if self._stopping:
            return
        if self.state is not ConnectionState.IDLE and not self._startable(now=now):
            return
        waited = self.state is ConnectionState.BACKOFF
        self._set(ConnectionState.CONNECTING, self.error)
        if waited:
            # The state is changed here and not by the task that wakes up later, so that the caller waits for the
            # attempt and does not get the error of the one before.
            if self._scope is not None:
                self._scope.cancel()
        elif self._refused is not None:
            self._refused = None
            self._wake.set()
        else:
            self.loop = self._home.settle()
            self._task = self.loop.create_task(self._run(), name=f"toolweave {self.config.name}")

    def reset(self) -> bool:
        """Put a connection that was closed back to where it was before its start; return False, in any other state.

        Nothing of its previous life decides about the next: not its losses, and not the era that was learned.
        """
        if self.state is not ConnectionState.CLOSED:
            return False
        if self._is_running():
            return False  # it is closed out of a callback, which ends first
        self._task = None
        self._stopping = False
        self._ever_ready = False
        self._losses.clear()
        self._attempt = first_plan(self.config)
        self.auth_suspect = False
        self._home.leave()
        self._set(ConnectionState.IDLE)
        return True

    def _is_running(self) -> bool:
        task = self._task
        if task is None or task.done():
            return False
        return not task.get_loop().is_closed()

    def run_on_own_loop(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return a coroutine that runs `work` on the connection's event loop, whichever loop awaits it.

        Raises:
            WrongLoopError: It belongs to another event loop, which is not running.
        """
        return self._home.run(work)

    @property
    def is_stopping(self) -> bool:
        """Whether the connection is being closed from this side, or was closed so."""
        return self._stopping

    async def stop(self) -> None:
        """Close the connection, from any task; returns when it is closed, within a bound.

        In a callback that the connection runs it returns at once, since the callback ends with the connection. If its
        event loop was closed, nothing of it is running.

        Raises:
            WrongLoopError: It belongs to another event loop, which is not running.
        """
        if self._home.ended:
            self._stopping = True
            self.session = None
            self._set(ConnectionState.CLOSED, self.error)
            return
        await self._home.run(self._stop())

    async def _stop(self) -> None:
        self._stopping = True
        task = self._task
        if task is None or task.done():
            self._set(ConnectionState.CLOSED, self.error)
            return
        self._wake.set()
        # An open session is left through `_wake`, so that it closes in order. What has none yet, a dial or a backoff,
        # is cut off by its scope.
        if self.session is None and self._scope is not None:
            self._scope.cancel()
        # Called from the connection's own task, or from a callback that runs in it: it would wait for itself.
        if asyncio.current_task() in (task, *self.handlers.at_work):
            return
        # Shielded, since the caller has often been cancelled, and a server process must not outlive that. Bounded
        # twice: by the transport's close, then by a cancellation.
        with anyio.CancelScope(shield=True):
            _, pending = await asyncio.wait({task}, timeout=self.config.timeout.close + _TEARDOWN_SECONDS)
            if pending:
                task.cancel()
                await asyncio.wait({task}, timeout=_TEARDOWN_SECONDS)
        self._set(ConnectionState.CLOSED, self.error)

    async def usable(self, seconds: float) -> OpenSession:
        """Return the open session, waiting at most `seconds` for it; never one that has ended.

        Raises:
            ConnectionClosedError: It was closed.
            ServerError: It was given up; the cause as it was first met.
            RequestTimeoutError: It is still not connected.
        """
        session = self.open_session
        if session is not None:
            return session
        self.start()
        begun = anyio.current_time()
        while self.state not in _OVER and not self.waits_away:
            # Computed in each round: `_granted` grows while the server shows signs of life. The wait is bounded for
            # silence, not for a slow start.
            deadline = begun + seconds + self._granted
            if anyio.current_time() >= deadline:
                raise RequestTimeoutError(
                    f"it is not connected after {seconds:g} s (state {self.state.value}"
                    f"{f': {self.error}' if self.error else ''})",
                    server=self.config.name,
                    seconds=seconds,
                )
            with anyio.CancelScope(deadline=deadline):
                await self._changed.wait()
            session = self.open_session
            if session is not None:
                return session
        if self.state is ConnectionState.CLOSED:
            raise ConnectionClosedError("the connection is closed; connect again", server=self.config.name)
        raise again(self.error, self.config.name)

    @property
    def waits_away(self) -> bool:
        """Whether it waits for the next attempt to reach a server that has been away for long, or always."""
        return self.away and self.state is ConnectionState.BACKOFF

    def degrade(self, error: Exception) -> None:
        """Mark the connection as degraded: it is open, but its tools could not be listed."""
        self._set(ConnectionState.DEGRADED, error)

    def recover(self) -> None:
        """Mark a degraded connection as ready."""
        if self.state is ConnectionState.DEGRADED:
            self._set(ConnectionState.READY)

    def suspect_auth(self, error: AuthRequiredError) -> None:
        """Note that one request was refused for its credentials; a second refusal in a row concerns the session.

        A single tool may need more rights than the others. A request that succeeds resets `auth_suspect`.
        """
        if error.status == 403:
            return
        if self.auth_suspect:
            self.refuse(error)
        self.auth_suspect = not self.auth_suspect

    def refuse(self, error: AuthRequiredError) -> None:
        """Note that the open session wants other credentials: no request starts on it until the next use tries again.

        Requests under way continue: their answers may still come.
        """
        # The session is no longer offered but not closed: requests under way may still be answered on it, and `_offer`
        # tries it again at the next use.
        if self.session is not None and error.status != 403:  # 403 is about one request
            self._refused = error
            self.session = None
            self._wake.set()

    # the owner's task

    async def _run(self) -> None:
        _name_library()
        outcome: ConnectionEnd | None = None
        process = os.getpid()
        try:
            while outcome is None and not self._stopping:
                held, error = await self._hold()
                if os.getpid() != process:
                    return  # no loop runs in a forked process: what failed is asyncio, and the server is the parent's
                _raise_if_cancelled()
                if not self._stopping:
                    outcome = await self._recovered(held, error)
        finally:
            self.session = None
            self._refused = None
            self._over_since = self._clock.monotonic()
            # Before the last state is published: a listener, or a waiter that it wakes, may start the connection again,
            # and that may be on another loop.
            self._home.leave()
            if outcome is None or self._stopping:
                self._set(ConnectionState.CLOSED, self.error)
            else:
                self._set(*outcome)

    async def _recovered(self, held: float | None, error: Exception) -> ConnectionEnd | None:
        """Wait for the backoff of the restart policy and return None, or return the final outcome."""
        if isinstance(error, AuthRequiredError):
            return ConnectionState.AUTH_REQUIRED, error
        if self.config.restart == "never" or isinstance(error, ConfigError):
            return ConnectionState.FAILED, error
        # The server has another era than the one that is wanted: it stays so for as long as this version of it runs.
        self.away = refuses_era(error)
        if self.away and not self.endless:
            return ConnectionState.FAILED, error
        # Behind the back of its user, a server that never came up is not tried for ever; that of a service is.
        if not self._ever_ready and not self.endless:
            return ConnectionState.FAILED, error
        now = self._clock.monotonic()
        # Appended before the decision: the policy counts this loss. The deque forgets what no decision needs.
        self._losses.append(ConnectionLoss(at=now, held=held))
        decision = self._policy.next(self._losses, now, self._clock.jitter(), endless=self.endless)
        if isinstance(decision, GiveUp):
            why = f"given up after {decision.why} (a use after {self._policy.cooldown:g} s tries again): "
            return ConnectionState.FAILED, again(error, self.config.name, why)
        if decision.slow or not self._ever_ready:
            self.away = True
        self._over_since = now
        # The scope before the state: a listener of the state may end the wait.
        with anyio.CancelScope() as self._scope:
            self._set(ConnectionState.BACKOFF, error, retry_in=decision.seconds)
            await self._clock.sleep(decision.seconds)
        if not self._stopping:
            if self._ever_ready:
                self.restarts += 1
            self._set(ConnectionState.CONNECTING, error)
        return None

    async def _hold(self) -> tuple[float | None, Exception]:
        """Connect and hold the session; return the seconds it was ready (None: never) and the error that ended it."""
        deadline = anyio.current_time() + self.config.connect_timeout
        self.report = Report(self.config.redact)
        self._opened = None
        self._granted = 0.0
        attempt = self._attempt
        refused = ""
        for _ in range(_MAX_REDIALS):
            begun = anyio.current_time()
            try:
                # Importing the SDK is our cost, not the server's: it takes seconds on a cold disk, while nothing has
                # been asked yet.
                deadline += await self._load()
                if self._stopping:
                    break
                await self._dial(attempt, deadline)
            except Exception as exc:  # boundary: its users get any error that ends a connection
                # A task group wraps what leaves it. The first leaf is the cause; the others are tasks that it
                # cancelled.
                error = first_exception(exc)
                if attempt.learned:
                    error = self._unlearned(error)
                if isinstance(error, RetryConnect):
                    _log.info("server %r: dialling again: %s", self.config.name, error)
                    if error.attempt.transport != attempt.transport:
                        refused = str(error)
                    else:
                        refused = ""
                    if attempt.transport == "stdio":  # a restart needs as long as the first start
                        needed = anyio.current_time() - begun
                        self._granted += needed
                        deadline += needed
                    attempt = error.attempt
                    continue
                used = self._opened is not None
                if self._opened is not None:
                    held = self._clock.monotonic() - self._opened
                else:
                    held = None
                return held, await explained(error, self.config, self.report, refused=refused, used=used)
            break
        return None, ConnectError("it refused every way to connect", server=self.config.name)

    def _unlearned(self, error: Exception) -> Exception:
        """Forget the learned era of a server that was not reached in it; return the error, or the next attempt.

        Another version may have taken its place, in another era or with another transport. Only a refusal that proves
        the other era is followed by an attempt at once; any other failure is one of the restart policy.
        """
        if self._opened is not None:
            return error  # it was reached
        self._attempt = first_plan(self.config)
        if refuses_era(error):
            return RetryConnect(self._attempt, f"it refused the era that it had before: {error}")
        return error

    async def _load(self) -> float:
        """Import the SDK where the server needs it; return the seconds, by which its bound and its waiters' grow."""
        begun = anyio.current_time()
        self._granted += _LOAD_SECONDS
        try:
            with anyio.move_on_after(_LOAD_SECONDS) as self._scope:
                await load_sdk(self.config, self.report)
        finally:
            spent = anyio.current_time() - begun
            # The bound was granted up front, so that nobody gives up during the import, and is now settled to what it
            # took; waiters compute their deadline again.
            self._granted += spent - _LOAD_SECONDS
            changed = self._changed
            self._changed = anyio.Event()
            changed.set()
        return spent

    async def _dial(self, attempt: ConnectPlan, deadline: float) -> None:
        """Connect and hold until the session ends; `deadline` bounds connecting, regardless of signs of life."""
        ended: Exception | None = None
        opened = anyio.Event()
        total = deadline - anyio.current_time()
        self._scope = scope = anyio.CancelScope()
        # Two bounds in one scope: silence ends the attempt early, `total` ends it in any case, since a server can print
        # for ever without answering.
        bound = IdleTimeout(scope, min(total, self.config.connect_silence), total)
        with scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._extend, bound, scope, opened)
                async with open_session(self.config, attempt, self.handlers, self.report) as session:
                    opened.set()
                    # From here on only the session decides how long it lasts. In `finally` the same scope bounds the
                    # teardown, which runs inside of it.
                    scope.deadline = math.inf
                    # Before the session is used: one that breaks at once has still shown its era and transport, and a
                    # restart need not probe again.
                    self._attempt = learned_plan(attempt, session, self.config)
                    try:
                        await self._use(session)
                    except Exception as exc:
                        ended = exc
                        raise
                    finally:
                        scope.deadline = anyio.current_time() + self.config.timeout.close + _TEARDOWN_SECONDS
        # A teardown that exceeded its bound also ends here. What ended the session is then the better error than the
        # slow end.
        if scope.cancelled_caught and not self._stopping:  # too slow to begin, or to end
            silent = self.config.timeout.connect is None and not bound.lasted
            raise ended or connect_timeout_error(self.config, self.report, silent=silent)

    async def _extend(self, bound: IdleTimeout, scope: anyio.CancelScope, opened: anyio.Event) -> None:
        """Extend the bound of connecting with each sign of life until the session is open; a configured one is exact.

        Checks seldom, since a check reads every process of the machine: a server that starts fast needs none.
        """
        if self.config.timeout.connect is not None:
            return
        silences = ActivityMonitor()
        pause = self.config.connect_silence / 16
        while True:
            with anyio.move_on_after(pause):
                await opened.wait()
            if opened.is_set():
                seconds = 0.0
            else:
                seconds = (await silences.look([self]))[self.name]
            if opened.is_set():
                return
            # Zero seconds of silence: it has shown a sign of life since the last look.
            if not seconds:
                before = scope.deadline
                bound.touch()
                self._granted += scope.deadline - before  # callers that wait for the session wait as long
            pause = min(2 * pause, self.config.connect_silence / 4)

    async def _use(self, session: OpenSession) -> None:
        self._wake = anyio.Event()
        wire = session.conversation.wire

        async def watch() -> None:
            await wire.ended()
            self.session = None
            self._wake.set()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                tasks.start_soon(self._run_background, session)
                # `watch` runs once before the session is offered, so that a wire that has ended already is noticed
                # first.
                await anyio.lowlevel.checkpoint()
                # One round for each time the session is offered: it is offered again after other credentials were
                # wanted.
                while not self._is_ending(session):
                    await self._offer(session)
                tasks.cancel_scope.cancel()
        finally:
            self.session = None
            self._refused = None
        if wire.over and not self._stopping:
            raise ConnectionLostError("the connection ended", server=self.config.name, sent=False)

    async def _offer(self, session: OpenSession) -> None:
        """Prepare a session and offer it until it is lost, stopped or refused; once refused, wait for the next use."""
        try:
            await self._prepare(session)
        except AuthRequiredError as exc:
            # A session that was never ready fails as a whole; one that was ready before waits for credentials and is
            # kept.
            if self._opened is None:
                raise
            self._refused = exc
        else:
            if self._is_ending(session):
                return
            if self._opened is None:
                self._opened = self._clock.monotonic()
            self._ever_ready = True
            self.away = False
            self.session = session
            # `_prepare` may have degraded it: open and usable, though its tools could not be listed.
            if self.state is not ConnectionState.DEGRADED:
                self._set(ConnectionState.READY)
            await self._woken()
        if self._refused is None or self._is_ending(session):
            return
        self._over_since = self._clock.monotonic()
        self._set(ConnectionState.AUTH_REQUIRED, self._refused)
        await self._woken()

    def _is_ending(self, session: OpenSession) -> bool:
        return self._stopping or session.conversation.wire.over

    async def _woken(self) -> None:
        await self._wake.wait()
        self._wake = anyio.Event()

    def _startable(self, *, now: bool) -> bool:
        """Whether a connection that is not under way may be tried: `now`, or after its cool-down."""
        if now:
            passed = math.inf
        else:
            passed = self._clock.monotonic() - self._over_since
        if self.state is ConnectionState.AUTH_REQUIRED:
            return passed >= self._policy.auth_cooldown
        if self.config.restart == "never" or passed < self._policy.cooldown:
            return False
        return self.state is ConnectionState.FAILED or self.waits_away

    def _set(self, state: ConnectionState, error: Exception | None = None, *, retry_in: float | None = None) -> None:
        previous = self.state
        if state is not previous and state not in TRANSITIONS[previous]:
            if previous is ConnectionState.CLOSED:
                return  # ignore the task of an earlier life
            raise RuntimeError(f"server {self.config.name!r}: no way from {previous.value} to {state.value}")
        self.state = state
        self.error = error
        changed = self._changed
        self._changed = anyio.Event()
        changed.set()
        if state is not previous:
            self._on_state(
                StateChanged(server=self.config.name, state=state, previous=previous, error=error, retry_in=retry_in)
            )


def _raise_if_cancelled() -> None:
    """Raise the cancellation of this task that an error took the place of.

    A task group whose tasks failed raises their errors and no cancellation, and who cancelled waits for the task's end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _name_library() -> None:
    """Let callbacks of the event loop know their library: they inherit this task's context.

    Where sniffio is installed, which OpenAI's and Anthropic's SDKs bring along, anyio asks it, and it knows none
    outside of a task; a server's message that comes in a callback could start no work then.
    """
    sniffio = sys.modules.get("sniffio")  # anyio has imported it if it is there
    if sniffio is not None:
        sniffio.current_async_library_cvar.set("asyncio")
