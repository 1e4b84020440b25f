"""The lifespan of an agent: one owner task for its runs and for the toolsets that it opened.

The only module of the package that creates a task outside a task group: the first user may be a run whose own task ends
before the last one does. Every toolset is entered and exited in one
task, several concurrently; other tasks only signal. In a service, such as a worker, a toolset that cannot be opened is
tried again until the service ends. Knows neither the inside of runs nor models.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.abc

from toolweave._backoff import backoff
from toolweave.tools import Toolset
from toolweave.tools.keep_trying import keep_trying, needs_person
from toolweave.tools.owner_loop import described, running_loop

_log = logging.getLogger("toolweave.agent")
CLOSE_SECONDS = 15.0
"""Seconds that toolsets may take to close."""
OPEN_SECONDS = 300.0
"""Seconds that a toolset may take to open; connections have a shorter timeout of their own."""
_FIRST_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 30.0
"""Maximum number of seconds between two attempts to open a toolset of a service."""


@dataclass(eq=False, slots=True)
class ToolsetSource:
    """A toolset that has to be opened.

    Attributes:
        name: A name for messages.
        make: Returns an async context manager whose value is the toolset.
        live: The toolset while it is open.
        changed: Called when `live` changes.
    """

    name: str
    make: Callable[[], AbstractAsyncContextManager[Toolset]]
    live: Toolset | None = None
    changed: Callable[[], None] = lambda: None


@dataclass(eq=False, slots=True)
class _OpenSource:
    """A source that is open, is being opened, or could not be opened.

    Attributes:
        opened: Set after the first attempt, whether it succeeded or not.
        release: Set when it shall be closed.
        over: Set when nothing of it is left, and no further attempt follows.
        scope: The present attempt.
        live: Whether it is open.
        error: The error of the last attempt.
    """

    opened: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    live: bool = False
    error: Exception | None = None

    @property
    def may_be_retried(self) -> bool:
        """Whether it is still wanted, and another attempt may succeed without a change by a person."""
        if self.error is None or self.release.is_set():
            return False
        return not needs_person(self.error)


class AgentLifespan:
    """Reference-counted lifespan: opens for the first user, closes after the last, and then awaits `finish`."""

    def __init__(self, name: str, *, finish: Callable[[], Awaitable[None]] | None = None) -> None:
        self._name = name
        self._finish = finish
        self._endless = False
        self._joining = threading.Lock()
        self.period: LifespanPeriod | None = None

    def join(self, cancel: Callable[[], None] | None = None) -> LifespanPeriod:
        """Return the current period, or a new one; each user has to `leave` it.

        `cancel` is called to make the user leave when the agent is closed.

        Raises:
            RuntimeError: The agent is in use in another event loop.
        """
        # Runs may join from several threads at once: the lock makes sure that they find one period, or one error.
        loop = running_loop()
        with self._joining:
            period = self.period
            if period is not None and period.loop is not loop:
                if period.lives:
                    raise RuntimeError(
                        f"agent {self._name!r} is at work in the event loop {described(period.loop)} and was used in "
                        f"{described(loop)}; make an agent for each thread or loop, or use it there: "
                        "asyncio.run_coroutine_threadsafe(...)"
                    )
                period = None
            if period is None:
                period = self._begin(loop, after=None)
            # Its toolsets are being closed already, so a new user needs a new period.
            elif period.ending.is_set():
                period = self._begin(loop, after=period)
            period.users += 1
            if cancel is not None:
                period.cancels.append(cancel)
            return period

    def _begin(self, loop: asyncio.AbstractEventLoop, *, after: LifespanPeriod | None) -> LifespanPeriod:
        """Begin a period, which opens nothing before the one `after` which it comes has closed everything."""
        self.period = LifespanPeriod(self._name, loop, after, self._finish)
        self.period.endless = self._endless
        return self.period

    async def keep_trying(self) -> None:
        """Give no toolset up that cannot be opened, in this period and all further ones."""
        self._endless = True
        if self.period is not None and self.period.lives:
            await self.period.keep_trying()


class LifespanPeriod:
    """One period of use, from the first user to the last.

    Attributes:
        endless: Whether a toolset that cannot be opened is tried again until the period ends.
        ending: Set once the last user has left; it accepts no new users then.
        over: Set when everything is closed.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        after: LifespanPeriod | None,
        finish: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self.loop = loop
        self.endless: bool = False
        self.users: int = 0
        self.cancels: list[Callable[[], None]] = []
        self.ending: anyio.Event = anyio.Event()
        self.over: anyio.Event = anyio.Event()
        self._left = anyio.Event()
        self._process = os.getpid()
        self._closing = False
        self._after = after
        self._finish = finish
        self._group: anyio.abc.TaskGroup | None = None
        self._waiting: list[tuple[Context, Callable[[], Coroutine[Any, Any, None]]]] = []
        self._held: dict[ToolsetSource, _OpenSource] = {}
        # Held here: an event loop has only weak references to tasks.
        self._task = loop.create_task(self._run(), name=f"toolweave agent {name}")

    @property
    def lives(self) -> bool:
        """Whether it is still active; it is not in an event loop that was closed, nor in a forked process."""
        if self.over.is_set() or self.loop.is_closed():
            return False
        return self._process == os.getpid()

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task in the owner's task group, in the caller's context."""
        if self._group is None:
            self._waiting.append((copy_context(), work))
        else:
            self._group.start_soon(work)

    def leave(self, cancel: Callable[[], None] | None = None) -> None:
        """Stop using it; it ends when the last user leaves."""
        self.users -= 1
        if cancel is not None:
            self.cancels.remove(cancel)
            self._left.set()
            self._left = anyio.Event()
        # Blocks that still hold a period which is being closed are not waited for: only runs are.
        is_closed = self._closing and not self.cancels
        if self.users <= 0 or is_closed:
            self.ending.set()

    async def close(self, *, wait: bool = True) -> None:
        """Cancel all runs, close all toolsets, and return when that is done, within a time limit.

        A caller that is part of one of the runs cannot wait for that (`wait=False`). In a forked process nothing of it
        runs, and it is left to its own process.
        """
        # A fork copies the object, but not the tasks and sockets behind it: closing would end those of the parent.
        if self._process != os.getpid():
            return
        self._closing = True
        for cancel in tuple(self.cancels):
            cancel()
        if not wait:
            return
        # The cancelled runs leave by themselves, so that each one records its end before the toolsets are closed.
        with anyio.move_on_after(2 * CLOSE_SECONDS, shield=True):
            while self.cancels:
                await self._left.wait()
            self.ending.set()
            await self.over.wait()

    async def ended(self) -> None:
        """Wait until everything is closed if it is ending, within a bound."""
        if self.ending.is_set() and self._process == os.getpid():
            with anyio.move_on_after(2 * CLOSE_SECONDS):
                await self.over.wait()

    async def open(self, sources: Iterable[ToolsetSource]) -> dict[str, Exception]:
        """Open the sources that are not open yet, concurrently; return the errors by name.

        A source that failed is tried again in this period only if that is endless.
        """
        failed: dict[str, Exception] = {}
        wanted = [(source, self._hold(source)) for source in sources]
        for source, held in wanted:
            if not held.opened.is_set():
                with anyio.move_on_after(OPEN_SECONDS):
                    await held.opened.wait()
            if not held.opened.is_set():
                held.scope.cancel()
                held.error = TimeoutError(f"it is not open after {OPEN_SECONDS:g} s")
            if held.error is not None:
                failed[source.name] = held.error
        return failed

    async def release(self, sources: Iterable[ToolsetSource]) -> None:
        """Close those of these sources that are open, within a time limit."""
        held = [self._held.pop(source) for source in sources if source in self._held]
        for one in held:
            one.release.set()
            if not one.live:
                one.scope.cancel()
        # First a request, then the cancellation: a server that is asked to close may end its session in order.
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_SECONDS):
            for one in held:
                await one.over.wait()
        for one in held:
            one.scope.cancel()

    async def keep_trying(self) -> None:
        """Give no toolset up from now on, and try those again that were."""
        self.endless = True
        for source in tuple(self._held):
            self._hold(source)
            if source.live is not None:
                await keep_trying(source.live)

    def _hold(self, source: ToolsetSource) -> _OpenSource:
        held = self._held.get(source)
        is_given_up = held is not None and held.over.is_set()
        # A source that failed stays noted, so that each run gets its error at once and does not wait for the same
        # timeout.
        if held is None or (self.endless and is_given_up):
            held = self._held[source] = _OpenSource()
            self.start_soon(partial(self._keep, source, held))
        return held

    async def _keep(self, source: ToolsetSource, held: _OpenSource) -> None:
        """Hold a source open until it is released; in an endless period try again while that is of use."""
        failures = 0
        try:
            await self._attempt(source, held)
            while self.endless and held.may_be_retried:
                failures += 1
                wait = backoff(
                    failures,
                    first=_FIRST_RETRY_SECONDS,
                    longest=_MAX_RETRY_SECONDS,
                    spread=(0.5, 1.0),
                    chance=random.random(),  # noqa: S311 - spreads attempts, no secret
                )
                with anyio.move_on_after(wait):
                    await held.release.wait()
                if not held.release.is_set():
                    held.scope = anyio.CancelScope(deadline=anyio.current_time() + OPEN_SECONDS)
                    await self._attempt(source, held)
        finally:
            held.opened.set()
            held.over.set()

    async def _attempt(self, source: ToolsetSource, held: _OpenSource) -> None:
        """Open a source and hold it until it is released, or note why it cannot be opened."""
        toolset: Toolset | None = None
        try:
            # One scope for opening and for staying open: its deadline bounds the attempt, and is lifted once it is
            # open.
            with held.scope:
                async with source.make() as toolset:
                    if self.endless:
                        await keep_trying(toolset)
                    source.live = toolset
                    held.live = True
                    held.error = None
                    held.scope.deadline = math.inf
                    source.changed()
                    held.opened.set()
                    await held.release.wait()
                    source.live = None
        except Exception as exc:
            # Boundary: one bad server never takes the others down.
            is_known = held.error is not None and str(held.error) == str(exc)
            if not is_known:
                _log.warning("%s: %s", source.name, exc)
            held.error = exc
        finally:
            held.live = False
            held.opened.set()
            if source.live in (None, toolset):
                # Else it is that of a later period: this one's loop was torn down.
                source.live = None
                source.changed()

    async def _run(self) -> None:
        try:
            if self._after is not None:
                await self._after.ended()
                self._after = None
            async with anyio.create_task_group() as self._group:
                waiting = self._waiting
                self._waiting = []
                # Work that was given before the task group was open keeps the context of its caller: its span, and its
                # run.
                for context, work in waiting:
                    context.run(self._group.start_soon, work)
                await self.ending.wait()
                await self.release(tuple(self._held))
                if self._finish is not None:
                    with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                        await self._finish()
                self._group.cancel_scope.cancel()
        finally:
            self.ending.set()
            self.over.set()
