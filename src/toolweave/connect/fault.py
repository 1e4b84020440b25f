"""What HTTP does to one request, in words of our own: settings, faults and the errors they become.

Shared by both HTTP lanes, so it knows no HTTP library, and nothing of JSON-RPC beyond the shape of an error.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from toolweave.connect.channel import MAX_MESSAGE_BYTES
from toolweave.connect.shapes import as_object
from toolweave.errors import AuthRequiredError, ConnectionLostError, ProtocolError, ServerError

__all__ = [
    "Fault",
    "HeaderSource",
    "HttpSettings",
    "answer_fault",
    "excerpt",
    "http_error",
    "is_rpc_error",
    "own_headers",
    "proxy_for",
    "refused_credentials",
]

_EXCERPT = 300
_INTERNAL_ERROR = -32603

HeaderSource = Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Gives the headers of one request; evaluated for every request (requirement R27)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How one server is reached over HTTP.

    Attributes:
        connect_seconds: Bound of TCP and TLS; the other waits are bounded by the caller.
        max_bytes: The largest answer that is taken.
        flow: An `httpx` authorization object, or None.
    """

    url: str
    headers: HeaderSource
    flow: Any = None  # of this or another generation of httpx
    connect_seconds: float = 30.0
    max_bytes: int = MAX_MESSAGE_BYTES

    @property
    def public_url(self) -> str:
        """The URL without its query, which may hold a secret: libraries below log the URL they are given."""
        return self.url.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What went wrong with one HTTP request.

    Attributes:
        status: The HTTP status, or None when there was no answer.
        text: One sentence with the cause.
        sent: False when the request provably never reached the server.
        session_gone: The server has forgotten the session (404 on a request with a session id).
        retry_after: The `Retry-After` header.
        challenge: The `WWW-Authenticate` header.
    """

    status: int | None
    text: str
    sent: bool = True
    session_gone: bool = False
    retry_after: str | None = None
    challenge: str | None = None

    def data(self) -> dict[str, Any]:
        """Return the facts as a JSON object, for `ProtocolError.data`."""
        facts = {"http_status": self.status, "retry_after": self.retry_after}
        return {key: value for key, value in facts.items() if value is not None}


def http_error(fault: Fault, *, server: str) -> ServerError:
    """Return the error that one HTTP fault is."""
    if fault.status in (401, 403):
        return AuthRequiredError(
            f"{fault.text}; set 'auth' or 'headers' for it, or correct them",
            server=server,
            status=fault.status,
            challenge=fault.challenge,
        )
    if fault.session_gone:
        return ConnectionLostError(f"its session has ended: {fault.text}", server=server, sent=False)
    if fault.status is None:
        return ConnectionLostError(fault.text, server=server, sent=fault.sent)
    return ProtocolError(fault.text, server=server, code=_INTERNAL_ERROR, data=fault.data())


async def own_headers(settings: HttpSettings, *, server: str) -> Mapping[str, str]:
    """Return the configured headers, made anew.

    Raises:
        ConnectionLostError: Whatever the user's provider raised, for the request that asked.
    """
    try:
        made = settings.headers()
        return await made if inspect.isawaitable(made) else made
    except Exception as exc:  # boundary: what a user's provider raises fails the request that asked
        raise http_error(refused_credentials(exc), server=server) from exc


def refused_credentials(exc: Exception) -> Fault:
    """Return what a provider that raises is."""
    return Fault(status=None, text=f"its credentials could not be made: {type(exc).__name__}: {exc}", sent=False)


def answer_fault(status: int, reason: str, headers: Mapping[str, str], body: bytes, *, in_session: bool) -> Fault:
    """Return what an answer with an HTTP error status is; `headers` have lower-case names."""
    said = excerpt(body)
    phrase = f"{status} {reason}".strip()
    return Fault(
        status=status,
        text=f"HTTP {phrase}{f': {said}' if said else ''}",
        session_gone=status == 404 and in_session,
        retry_after=headers.get("retry-after"),
        challenge=headers.get("www-authenticate"),
    )


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for a URL, or None."""
    import urllib.request  # costs milliseconds, and only HTTP connections need it

    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def excerpt(body: bytes) -> str:
    """Return the beginning of a body as one printable line."""
    text = body[: _EXCERPT * 4].decode("utf-8", "replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_EXCERPT]


def is_rpc_error(body: bytes) -> bool:
    """Whether a body is a JSON-RPC error, whatever its HTTP status."""
    try:
        value = as_object(json.loads(body))
    except (ValueError, RecursionError):
        return False
    return value is not None and as_object(value.get("error")) is not None
