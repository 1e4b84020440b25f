"""The session of a caller as handlers use it: values that are kept between calls, and its visible offers.

How it is kept, and under which key, is the server's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable


class CallerSession(Protocol):
    """Values of one caller by name, kept between its calls; no other caller reads or writes them."""

    async def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or `default` without one.

        Raises:
            ToolError: This caller has no session.
            StoreError: The store cannot be read.
        """
        ...

    async def set(self, name: str, value: Any) -> None:
        """Keep a value, any JSON; it expires when the session is not used for as long as the server keeps it.

        Raises:
            ToolError: This caller has no session, or it would become too large.
            StoreError: The value is not JSON, or the store is full.
        """
        ...

    async def delete(self, name: str) -> bool:
        """Delete a value; return whether there was one.

        Raises:
            ToolError: This caller has no session.
            StoreError: The store cannot be written.
        """
        ...


class SessionPort(Protocol):
    """The sessions that a handler reaches: its caller's own, and those under keys."""

    def own(self) -> CallerSession:
        """Return the session of the caller."""
        ...

    def under(self, key: str) -> CallerSession:
        """Return the session of a key, bound to the principal of the caller where it has one."""
        ...

    async def change(self, enabled: bool, names: Iterable[str], tags: Iterable[str]) -> None:
        """Enable or disable offers for the caller's session, and notify it that its lists changed.

        Raises:
            ToolError: The caller has no session, or the server enables and disables nothing.
        """
        ...


@runtime_checkable
class HasSessions(Protocol):
    """A `Caller` whose server keeps sessions."""

    @property
    def sessions(self) -> SessionPort:
        """The sessions that this caller reaches."""
        ...
