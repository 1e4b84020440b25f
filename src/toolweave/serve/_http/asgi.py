"""ASGI types, and helpers that every module of the HTTP server shares.

Independent of MCP, ASGI servers and frameworks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI 3 application."""
Headers: TypeAlias = Mapping[bytes, bytes]
ADDRESS = "toolweave.address"
"""The key in the scope of a request of the address that it counts for, until it is authorized."""
SENT = "toolweave.sent"
"""The key in the scope of a request of the call that was sent for it already."""
TOGETHER = "toolweave.together"
"""The key in a `http.response.start` whose whole body follows at once: a server may hold it, and write both at once.

Servers that do not know it, as all but our own, send the head by itself.
"""

_SECRET = frozenset({b"authorization", b"proxy-authorization", b"cookie", b"x-api-key", b"dpop"})


class Cancels(Protocol):
    """Something that runs and can be cancelled, such as an `anyio.CancelScope`."""

    def cancel(self) -> None:
        """Cancel it."""
        ...


class VisibleHeaders(Mapping[str, str]):
    """The headers that a handler may see: names in lower case, without credentials; parsed on first use."""

    __slots__ = ("_raw", "_shown")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        self._shown: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"  # values may be private

    def all_values(self, name: str) -> list[str]:
        """Return every value of a header, for a gateway that was configured to send it on; credentials included."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for known, value in self._raw if known.lower() == wanted]

    def _read(self) -> dict[str, str]:
        if self._shown is None:
            named = ((name.lower(), value) for name, value in self._raw)
            shown = {name: value for name, value in named if name not in _SECRET}
            self._shown = {name.decode("latin-1"): value.decode("latin-1") for name, value in shown.items()}
        return self._shown


def path_of(scope: Scope) -> str:
    """Return the path of a request below where the app is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    # Servers and frameworks differ in whether `path` contains `root_path`.
    if root and path.startswith(root):
        return path[len(root) :] or "/"
    return path


def cookies_in(headers: Headers) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the cookies of a request, in their order (RFC 6265, section 5.4)."""
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        yield name, value


async def respond(send: Send, status: int, text: str = "", headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send a response with a line of plain text, or an empty one."""
    body = text.encode()
    if body:
        head = [(b"content-type", b"text/plain; charset=utf-8")]
    else:
        head = []
    # A 204 must not have the header (RFC 9110, 8.6).
    if status != 204:
        head.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": [*head, *headers], TOGETHER: True})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Return the body of a request; b"" when the client is gone, None when it is longer than `limit` bytes.

    Never holds more than `limit` bytes and one chunk, for any declared length.
    """
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit:
            return None
        return body
    parts = [body]
    size = len(body)
    while size <= limit:
        message = await receive()
        # Half a body is not a request: nothing of it is acted on.
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body", False):
            break
    if size > limit:
        return None
    return b"".join(parts)
