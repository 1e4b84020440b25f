"""What `connect_mcp` and `connect_mcp_servers` return: a connection to be, for `await` and `async with` alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

__all__ = ["Connecting", "Openable"]


class Openable(ABC):
    """What is opened and closed, and the one rule of who closes it: whoever opened it.

    Opened by `open()`, which is what awaiting does, it stays open until `close()`: whoever enters it meanwhile only
    borrows it. Opened by entering, it is closed by the last to leave. So an agent, a server or a wrapper may enter
    whatever it is given: what was open before stays open, and what was not is closed after it.
    """

    _entered = 0
    _kept = False

    @abstractmethod
    async def _open(self) -> None:
        """Open it, or do nothing where it is open; on any failure or cancellation it is closed again."""

    @abstractmethod
    async def close(self) -> None:
        """Close it, whoever has it open; idempotent, from any task, bounded."""

    async def open(self) -> None:
        """Open it until `close()`; see the class for what it raises and waits for."""
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
    """No I/O happens until it is awaited or entered; it serves once.

    `conn = await connect_mcp(...)` leaves closing to the caller (`await conn.close()`);
    `async with connect_mcp(...) as conn` closes on leaving (requirement R15).
    """

    def __init__(self, target: OpenableT) -> None:
        self._target = target
        self._used = False

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
