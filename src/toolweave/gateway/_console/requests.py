"""Requests of browsers to a console as values, and the replies to them. Knows no page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode

import anyio

from toolweave.config import is_loopback
from toolweave.gateway._console.sessions import ConsoleSession, host_of
from toolweave.serve._http.asgi import Headers, Receive, Scope, Send, path_of, read_body

_MAX_BYTES = 4 * 1024 * 1024
_MAX_FIELDS = 2_000
_BODY_SECONDS = 30.0

_POLICY = (
    b"default-src 'none'; connect-src 'self'; img-src data:; script-src 'self'; style-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_SECURITY: Sequence[tuple[bytes, bytes]] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"referrer-policy", b"same-origin"),  # with none at all, forms come from the origin "null"
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class ConsoleRefusal(Exception):
    """A refusal: its status, and a text for the person."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ConsoleRequest(NamedTuple):
    """A request.

    Attributes:
        method: `GET` or `POST`.
        path: Its path below that of the console, such as `/tools`.
        base: The path of the console, as links of its pages begin.
        query: The query, each name once.
        form: The fields of a sent form, each name once.
        headers: Its headers.
        session: The session of its browser, or None.
    """

    method: str
    path: str
    base: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    headers: Headers
    session: ConsoleSession | None

    @property
    def fragment(self) -> bool:
        """Whether htmx asks, for a part of a page."""
        return b"hx-request" in self.headers and b"hx-history-restore-request" not in self.headers

    @property
    def signed_in(self) -> ConsoleSession:
        """The session of its browser.

        Raises:
            ConsoleRefusal: It has none.
        """
        if self.session is None:
            raise ConsoleRefusal(401, "Sign in first.")
        return self.session

    @property
    def command_url(self) -> str:
        """The address that commands on this machine want; "" for a request from another one."""
        host = self.headers.get(b"host", b"").decode("latin-1")
        if is_loopback(host_of(self.headers)[0]):
            return f"http://{host}"
        return ""

    def url(self, path: str, /, **query: str) -> str:
        """Return the URL of a page of the console."""
        return f"{self.base}{path}" + (f"?{urlencode(query, errors='replace')}" if query else "")


class ConsoleReply(NamedTuple):
    """A reply.

    Attributes:
        status: The HTTP status.
        body: The body.
        headers: Headers beside those of every reply.
    """

    status: int
    body: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = ()

    async def send(self, send: Send) -> None:
        """Send it."""
        own = {name for name, _ in self.headers}
        head = [*self.headers, *((name, value) for name, value in _SECURITY if name not in own)]
        if self.status not in (204, 304):
            head.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        await send({"type": "http.response.body", "body": self.body})

    @classmethod
    def see(cls, url: str) -> ConsoleReply:
        """Return the reply that leads to another page, after a form that changed something."""
        return cls(303, headers=[(b"location", url.encode("ascii", "replace"))])


def policy(frames: Sequence[str]) -> tuple[bytes, bytes]:
    """Return the header with the policy of a page that may frame pages below these addresses, and nothing else."""
    return b"content-security-policy", b"%s; frame-src %s" % (_POLICY, " ".join(frames).encode())


ConsolePage: TypeAlias = Callable[[ConsoleRequest, Receive], Awaitable[ConsoleReply]]
"""Answers the requests of one path; `receive` reports when the browser is gone."""


async def read_request(scope: Scope, receive: Receive, path: str) -> ConsoleRequest:
    """Read a request; its session is not looked up.

    Args:
        scope: ASGI's.
        receive: ASGI's.
        path: The path of the console.

    Raises:
        ConsoleRefusal: It is malformed, too large or too slow.
    """
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    if method not in ("GET", "POST"):
        raise ConsoleRefusal(405, "GET and POST are expected.")
    headers: Headers = dict(scope["headers"])
    body: bytes | None = b""
    if method == "POST":
        with anyio.move_on_after(_BODY_SECONDS) as bound:
            body = await read_body(receive, _MAX_BYTES)
        if bound.cancelled_caught or body is None:
            raise ConsoleRefusal(413, "The form is too large, or did not come in time.")
    return ConsoleRequest(
        method=method,
        path=path_of(scope).removeprefix(path).rstrip("/") or "/",
        base=scope.get("root_path", "") + path,
        query=_fields(scope.get("query_string", b"")),
        form=_fields(body),
        headers=headers,
        session=None,
    )


def _fields(data: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, errors="replace", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise ConsoleRefusal(400, "The address or the form is malformed.") from None
    return dict(pairs)
