"""The ports through which a handler reaches the client that called it, and the session of that client.

They are in the context of every call. How a session is kept, and under which key, is the server's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from toolweave._json_types import JsonObject
from toolweave.protocol.logs import LogLevel

if TYPE_CHECKING:
    from toolweave.tools._client_requests import Question


class Caller(Protocol):
    """Sends requests of a handler to the client that called it; each transport and era has its own."""

    @property
    def capabilities(self) -> JsonObject:
        """The client's declared capabilities, as received."""
        ...

    @property
    def client_key(self) -> str | None:
        """Identifies this client among all others; None where nothing does."""
        ...

    @property
    def principal(self) -> str | None:
        """The principal who authorized the request, for any client; None without authorization."""
        ...

    @property
    def claims(self) -> JsonObject:
        """The verified claims of the request's token; empty without one."""
        ...

    async def ask(self, questions: Sequence[Question]) -> Sequence[Any]:
        """Put questions to the client; return the parsed answer of each, in their order.

        Raises:
            RequestError: The client did not declare what a question needs.
            ToolError: It refused, did not answer in time, or answered with something else.
        """
        ...

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:  # data is any JSON value
        """Send a log message, when the client wants one of this severity."""
        ...

    async def release(self) -> None:
        """Close the stream of the response, where the client can resume it."""
        ...


@runtime_checkable
class HasHeaders(Protocol):
    """A `Caller` whose request arrived over a transport that may have headers."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request, names in lower case, without credentials."""
        ...


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
