"""What `connect_mcp` and `connect_mcp_servers` return: a connection to be, for `await` and `async with` alike."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

__all__ = ["Connecting", "Openable"]


class Openable(Protocol):
    """What can be opened once and closed from any task."""

    async def open(self) -> None:
        """Open it; on any failure or cancellation it is closed again."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


OpenableT = TypeVar("OpenableT", bound=Openable)


class Connecting(Generic[OpenableT]):
    """No I/O happens until it is awaited or entered; it serves once.

    `conn = await connect_mcp(...)` leaves closing to the caller (`await conn.close()`);
    `async with connect_mcp(...) as conn` closes on leaving (requirement R15).
    """

    def __init__(self, target: OpenableT) -> None:
        self._target = target
        self._used = False

    async def _open(self) -> OpenableT:
        if self._used:
            raise RuntimeError("this connection attempt was used already; call connect_mcp again for another one")
        self._used = True
        await self._target.open()
        return self._target

    def __await__(self) -> Generator[Any, Any, OpenableT]:
        return self._open().__await__()

    async def __aenter__(self) -> OpenableT:
        target = await self._open()
        return await target.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._target.__aexit__(exc_type, exc, traceback)
