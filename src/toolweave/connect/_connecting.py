"""The return value of `connect_mcp` and `connect_mcp_servers`, for `await` and `async with` alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar


class Openable(ABC):
    """A resource that is opened and closed under one rule: the code that opened it closes it.

    Opened by `open()`, as by awaiting, it stays open until `close()`, and entering it meanwhile only borrows it. Opened
    by entering, it is closed when the last block is left. So an agent, a server or a wrapper may enter all that it is
    given: a resource that was open stays open, any other is closed afterwards.
    """

    _entered = 0
    _kept = False

    @abstractmethod
    async def _open(self) -> None:
        """Open it, or do nothing where it is open; on any failure or cancellation it is closed again."""

    @abstractmethod
    async def close(self) -> None:
        """Close it for all users; idempotent, from any task, bounded."""

    async def open(self) -> None:
        """Open it until `close()`; see the class for its errors and waits."""
        self._kept = True
        await self._open()

    async def __aenter__(self) -> Self:
        self._entered += 1
        try:
            await self._open()
        except BaseException:
            self._entered -= 1
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._entered == 0 and not self._kept:
            await self.close()


OpenableT = TypeVar("OpenableT", bound=Openable)


class Connecting(Generic[OpenableT]):
    """A connection attempt: no I/O until it is awaited or entered, which may be done once.

    `conn = await connect_mcp(...)` leaves closing to the caller (`await conn.close()`);
    `async with connect_mcp(...) as conn` closes on leaving.
    """

    def __init__(self, make: Callable[[], OpenableT]) -> None:
        self._make = make
        self._target = make()
        self._used = False

    def again(self) -> Connecting[OpenableT]:
        """Return another attempt with the same arguments, which opens a connection of its own."""
        return Connecting(self._make)

    def _taken(self) -> OpenableT:
        if self._used:
            raise RuntimeError("this connection attempt was used already; call connect_mcp again for another one")
        self._used = True
        return self._target

    async def _opened(self) -> OpenableT:
        target = self._taken()
        await target.open()
        return target

    def __await__(self) -> Generator[Any, Any, OpenableT]:
        return self._opened().__await__()

    async def __aenter__(self) -> OpenableT:
        return await self._taken().__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._target.__aexit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        how = "used already" if self._used else "await it, or enter it with `async with`"
        return f"<Connecting, {how}: {self._target!r}>"
