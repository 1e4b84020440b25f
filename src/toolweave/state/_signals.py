"""Signals: notifications of changes in a store, so that waiting processes need not poll often.

A signal only means that a read is worthwhile: it may be lost, and reaches only the listeners of that moment. A listener
therefore reads first, and reads again after a timeout without a signal.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import anyio

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits so many seconds."""


class SignalListener:
    """Listens to one name, in one event loop.

    Args:
        sure: Whether signals of all processes arrive, and not just those of this one.
        receive: Receives signals while a task waits; None if they arrive without it.
    """

    def __init__(self, *, sure: bool, receive: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self.sure = sure
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._event = anyio.Event()

    async def wait(self, seconds: float, sleep: Sleep = anyio.sleep) -> bool:
        """Wait for a signal for at most `seconds`; return whether there was one."""
        if sleep is anyio.sleep and self._receive is None:
            with anyio.move_on_after(seconds):
                await self._event.wait()
            return self._received()
        async with anyio.create_task_group() as tasks:

            async def end_with_time() -> None:
                await sleep(seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(end_with_time)
            if self._receive is not None:
                tasks.start_soon(self._receive)
            await self._event.wait()
            tasks.cancel_scope.cancel()
        return self._received()

    def _received(self) -> bool:
        received = self._event.is_set()
        self._event = anyio.Event()
        return received

    def notify(self) -> None:
        """Deliver a signal, from any thread."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._event.set()
        elif not self._loop.is_closed():
            # An event may be set in the thread of its event loop only.
            self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        self._event.set()


class SignalListeners:
    """The listeners by name; safe to use from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[SignalListener]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, listener: SignalListener) -> None:
        """Add a listener of a name."""
        with self._lock:
            self._listeners.setdefault(name, []).append(listener)

    def remove(self, name: str, listener: SignalListener) -> None:
        """Remove a listener of a name."""
        with self._lock:
            # A new list: `notify` may be iterating over a copy of the old one in another thread.
            left = [one for one in self._listeners.get(name, ()) if one is not listener]
            if left:
                self._listeners[name] = left
            else:
                self._listeners.pop(name, None)

    def notify(self, name: str) -> None:
        """Deliver a signal to all listeners of a name."""
        with self._lock:
            listeners = list(self._listeners.get(name, ()))
        for listener in listeners:
            listener.notify()

    def notify_all(self) -> None:
        """Deliver a signal to the listeners of all names."""
        with self._lock:
            names = list(self._listeners)
        for name in names:
            self.notify(name)

    @asynccontextmanager
    async def listening(
        self, name: str, *, sure: bool, receive: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> AsyncGenerator[SignalListener, None]:
        """Yield a listener of a name for the block."""
        listener = SignalListener(sure=sure, receive=receive)
        self.add(name, listener)
        try:
            yield listener
        finally:
            self.remove(name, listener)


@runtime_checkable
class Signalling(Protocol):
    """A store that passes on signals; one that does not is polled more often."""

    async def signal(self, name: str) -> None:
        """Send a signal to all listeners of a name."""
        ...

    def listening(self, name: str) -> AbstractAsyncContextManager[SignalListener]:
        """Listen to the signals of a name from when it is entered."""
        ...


async def signal(store: Any, name: str) -> None:
    """Send a signal to all listeners of a name at a store; does nothing where that passes on no signals."""
    if isinstance(store, Signalling):
        await store.signal(name)


@asynccontextmanager
async def listening(store: Any, name: str) -> AsyncGenerator[SignalListener, None]:
    """Listen to the signals of a name at a store; none arrive where that passes on none."""
    if not isinstance(store, Signalling):
        yield SignalListener(sure=False)
        return
    async with store.listening(name) as listener:
        yield listener
