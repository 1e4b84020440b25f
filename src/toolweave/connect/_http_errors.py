"""HTTP settings, the faults of HTTP requests, and the errors they become.

Shared by both HTTP lanes, so it knows no HTTP library, and nothing of JSON-RPC beyond the shape of an error.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from toolweave._json_types import Json, object_or_empty, text_or_empty, without_none
from toolweave._text import visible
from toolweave._value import Value
from toolweave.config._auth import AuthFlow
from toolweave.connect._channel import MAX_MESSAGE_BYTES
from toolweave.connect._open_files import open_files_hint
from toolweave.connect._wire.credentials import AuthHook
from toolweave.errors import AuthRequiredError, ConnectionLostError, ErrorKind, ProtocolError, ServerError
from toolweave.http import no_proxy_hint, origin_of
from toolweave.protocol.codes import INTERNAL_ERROR

MAX_CONNECTIONS = 100
"""The default maximum of open connections to one server."""
_EXCERPT = 300
_MAX_HEAD = 16 * 1024
"""Bytes of a web page in which its title is looked for."""
# The other redirects make a GET of a POST in many clients, which would lose the message.
_KEEPING_THE_METHOD = (307, 308)
_LOST_SESSION = (
    r"(?i)not initialized|(?:no valid|invalid|unknown|expired|no such|not found).{0,40}session"
    r"|session.{0,80}(?:invalid|unknown|expired|not found|not exist|terminated|closed)"
)

HeaderSource = Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Gives the headers of one request; evaluated for every request."""


def _forget(_headers: Mapping[str, str]) -> None:
    """Ignore the headers that were made."""


class HttpSettings(Value, frozen=True, kw_only=True):
    """The HTTP settings of one server.

    Attributes:
        headers: The configured headers, or a callable that makes them for each request.
        connect_seconds: Bound of TCP and TLS; the other waits are bounded by the caller.
        max_connections: The maximum of open connections; a request beyond that waits.
        max_bytes: The largest answer that is accepted.
        hook: Authorizes each request, and is notified of each refusal; or None.
        flow: An `httpx` authorization object, or None.
        remember: Called with the headers that a hook or a flow has made, so that they are also masked.
        redact: Masks credentials in the server's texts.
    """

    url: str
    headers: HeaderSource | Mapping[str, str]
    hook: AuthHook | None = None
    flow: AuthFlow | None = None
    connect_seconds: float = 30.0
    max_connections: int = MAX_CONNECTIONS
    max_bytes: int = MAX_MESSAGE_BYTES
    remember: Callable[[Mapping[str, str]], None] = _forget
    redact: Callable[[str], str] = str

    @property
    def public_url(self) -> str:
        """The URL without its query, which may hold a secret: libraries below log the URL they are given."""
        return self.url.partition("?")[0]


class HttpFault(Value, frozen=True, kw_only=True):
    """The failure of one HTTP request.

    Attributes:
        status: The HTTP status, or None when there was no answer.
        text: One sentence with the cause.
        sent: False when the request provably never reached the server.
        session_gone: Whether the server has forgotten the session: 404, or words to that effect with another status.
        retry_after: The `Retry-After` header.
        challenge: The `WWW-Authenticate` header.
        nonce: The `DPoP-Nonce` header.
        too_large: Whether the answer passed a bound.
        error: The error that it is, where a hook has raised one in its own words.
    """

    status: int | None
    text: str
    sent: bool = True
    session_gone: bool = False
    retry_after: str | None = None
    challenge: str | None = None
    nonce: str | None = None
    too_large: bool = False
    error: ServerError | None = None

    def data(self) -> Json:
        """Return the facts as a JSON object, for `ProtocolError.data`."""
        facts = {"http_status": self.status, "retry_after": self.retry_after}
        return without_none(facts)


def http_error(fault: HttpFault, *, server: str) -> ServerError:
    """Return the error for an HTTP fault."""
    if fault.error is not None:
        return fault.error
    # Some servers refuse an ended session with these statuses, and new credentials do not help there.
    if fault.status in (401, 403) and not fault.session_gone:
        return AuthRequiredError(
            f"{fault.text}; set 'auth' or 'headers' for it, or correct them",
            server=server,
            status=fault.status,
            challenge=fault.challenge,
        )
    if fault.session_gone:
        return ConnectionLostError(f"its session has ended: {fault.text}", server=server, sent=fault.sent)
    if fault.too_large:
        error = ProtocolError(fault.text, server=server, code=INTERNAL_ERROR, data=fault.data())
        error.kind = ErrorKind.TOO_LARGE
        return error
    if fault.status is None:
        return ConnectionLostError(fault.text, server=server, sent=fault.sent)
    return ProtocolError(fault.text, server=server, code=INTERNAL_ERROR, data=fault.data())


async def own_headers(settings: HttpSettings, *, server: str) -> Mapping[str, str]:
    """Return the configured headers, evaluated for this request where a callable makes them.

    Raises:
        ConnectionLostError: The user's provider raised, which fails the request that needed the headers.
    """
    if not callable(settings.headers):
        return settings.headers
    try:
        made = settings.headers()
        if inspect.isawaitable(made):
            return await made
        return made
    except Exception as exc:  # boundary: an error of the user's provider fails the request that asked
        raise http_error(refused_credentials(exc), server=server) from exc


def refused_credentials(exc: Exception) -> HttpFault:
    """Return the fault of a provider that raised."""
    return HttpFault(status=None, text=f"its credentials could not be made: {type(exc).__name__}: {exc}", sent=False)


def answer_fault(
    settings: HttpSettings,
    status: int,
    reason: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    in_session: bool,
    through: str = "",
) -> HttpFault:
    """Return the fault of an answer with an HTTP error status.

    Args:
        settings: The settings of the server.
        status: The HTTP status.
        reason: The reason phrase.
        headers: Those of the answer, with lower-case names.
        body: The beginning of the body.
        in_session: Whether the request belonged to a session.
        through: The way of an answer that a proxy may have given; see `came_through`.
    """
    said = _said_by(settings, headers, body)
    session_gone = in_session and is_lost_session(status, headers, body)
    return HttpFault(
        status=status,
        text=f"HTTP {_phrase(status, reason)}{f': {said}' if said else ''}{through}",
        # With a 5xx status the server may have begun the request: sending it again is not ours to decide.
        sent=status >= 500 or not session_gone,
        session_gone=session_gone,
        retry_after=headers.get("retry-after"),
        challenge=headers.get("www-authenticate"),
        nonce=headers.get("dpop-nonce"),
    )


def is_lost_session(status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether an answer to a request of a session means that the server does not know the session.

    The specification has 404 for that, and servers use many statuses. One with a challenge is about credentials,
    whatever its words are.
    """
    # Streamable HTTP, "Session Management": a server answers requests of an ended session with 404.
    if status == 404:
        return True
    if status < 400:
        return False
    if status in (401, 403) and "www-authenticate" in headers:
        return False
    # A character has up to four bytes. Only the beginning counts: a long page may have these words about anything.
    text = " ".join(body[: _EXCERPT * 4].decode("utf-8", "replace").split())
    return re.search(_LOST_SESSION, text[:_EXCERPT]) is not None


def no_answer(url: str, why: str, *, sent: bool, proxy: str | None = None) -> HttpFault:
    """Return the fault of a request without a complete answer; `proxy` is shown and must hold no credentials."""
    if proxy is not None:
        through = f" through the proxy {proxy}"
    else:
        through = ""
    why += open_files_hint(why)
    if proxy is not None:
        why += no_proxy_hint(url)
    return HttpFault(status=None, text=f"no answer from {public_url(url)}{through}: {why}", sent=sent)


def not_json(settings: HttpSettings, status: int, body: bytes) -> HttpFault:
    """Return the fault of an answer that is labelled as JSON and is not JSON."""
    shown = excerpt(body, settings) or "it is empty"
    return HttpFault(status=status, text=f"its answer is not valid JSON: {shown}")


def odd_content(
    settings: HttpSettings, status: int, reason: str, kind: str, body: bytes, *, through: str = ""
) -> HttpFault:
    """Return the fault of an answer that is neither JSON nor an event stream, such as a web page."""
    if kind.lower().startswith("text/html"):
        return HttpFault(status=status, text=f"{_web_page(settings, status, reason, body)}{through}")
    said = excerpt(body, settings)
    text = f"HTTP {_phrase(status, reason)} with content type {kind[:100]!r} where JSON or an event stream was expected"
    return HttpFault(status=status, text=f"{text}{f': {said}' if said else ''}{through}")


def _said_by(settings: HttpSettings, headers: Mapping[str, str], body: bytes) -> str:
    """Return the words of an error's body, of a web page its title."""
    if headers.get("content-type", "").lower().startswith("text/html"):
        title = _title_of(settings, body)
        if title:
            return f"a web page {title!r}"
    return excerpt(_words_of(body), settings)


def _web_page(settings: HttpSettings, status: int, reason: str, body: bytes) -> str:
    """Return one sentence about a web page: its title is worth more than the beginning of its markup."""
    title = _title_of(settings, body)
    named = f" {title!r}" if title else ""
    return (
        f"HTTP {_phrase(status, reason)} with a web page{named} (text/html) where JSON or an event stream was expected"
    )


def _title_of(settings: HttpSettings, body: bytes) -> str:
    # Bounded, since the expression is slow for a page without a title, and a title is near the beginning.
    text = body[:_MAX_HEAD].decode("utf-8", "replace")
    found = re.search(r"(?is)<title[^>]*>(.*?)</title>", text)
    if found is None:
        return ""
    return excerpt(found[1].encode(), settings)


def unasked_encoding(status: int, encoding: str) -> HttpFault:
    """Return the fault of an answer in a content encoding that was not accepted."""
    text = f"its answer is encoded as {encoding[:40]!r}, which was not requested; switch compression off for it"
    return HttpFault(status=status, text=text)


def too_large(limit: int) -> HttpFault:
    """Return the fault of an answer that is too large."""
    text = f"its answer is larger than {limit} bytes; ask for less, or raise 'max_message_bytes'"
    return HttpFault(status=None, text=text, too_large=True)


def bad_encoding(status: int, why: str, *, bomb: bool) -> HttpFault:
    """Return the fault of a compressed answer that cannot be inflated, or must not be."""
    return HttpFault(status=status, text=why, too_large=bomb)


def refused_redirect(method: str, url: str, status: int, location: str) -> str | None:
    """Return the reason not to follow a redirect, or None for one that keeps the origin and the method.

    Credentials and messages are meant for the configured origin. Its `https` variant is another one: to
    follow there would send each request in the clear first.
    """
    try:
        moved = urljoin(url, location)
        keeps = method == "GET" or status in _KEEPING_THE_METHOD
        # A GET keeps its method with every redirect.
        if keeps and origin_of(moved) == origin_of(url):
            return None
        return f"Redirect to {public_url(moved)} not followed; use that URL"
    except ValueError:
        return "Redirect not followed: its location is not a URL"


def public_url(url: str) -> str:
    """Return a URL without the parts that may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def excerpt(body: bytes, settings: HttpSettings) -> str:
    """Return the beginning of a body as one printable line, credentials masked."""
    text = body[: _EXCERPT * 4].decode("utf-8", "replace")
    # Redacted before it is cut: half a secret would not be recognized.
    line = visible(" ".join(text.split()), keep="")
    return settings.redact(line)[:_EXCERPT]


def _words_of(body: bytes) -> bytes:
    """Return the message in an error's body: that of a JSON object of a known form, nothing of an empty one.

    Known forms are those of OAuth (`error_description`), of problem details (`detail`), and a `message`, also one level
    down. Any other body is returned as it is.
    """
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return body
    # An empty value explains nothing, and would only make the error longer.
    if value in ({}, [], "", None):
        return b""
    members = object_or_empty(value)
    inner = object_or_empty(members.get("error"))
    code = members.get("error")
    for found in (
        members.get("error_description"),
        inner.get("message"),
        members.get("message"),
        members.get("detail"),
    ):
        words = text_or_empty(found)
        if not words.strip():
            continue
        # OAuth and many APIs have a code for programs beside the text: both help.
        if text_or_empty(code):
            words = f"{code}: {words}"
        return words.encode("utf-8", "replace")
    return body


def is_rpc_error(body: bytes) -> bool:
    """Return whether a body is a JSON-RPC error, for any HTTP status."""
    try:
        error = object_or_empty(json.loads(body)).get("error")
    except (ValueError, RecursionError):
        return False
    return isinstance(error, dict)


def _phrase(status: int, reason: str) -> str:
    return f"{status} {reason[:60]}".strip()
