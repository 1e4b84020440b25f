"""The port through which a handler reaches the client that called it; it is in the context of every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
