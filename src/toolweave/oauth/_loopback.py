"""The listener for the redirect that ends a sign-in: one answer, on this machine's own address (RFC 8252 7.3).

Every other request is from a stranger: another program of this machine, or a web page that its user reads. Knows HTTP;
nothing of browsers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.abc
import msgspec

from toolweave.errors import AuthRequiredError
from toolweave.http.local_pages import IncomingHead, page_answer, read_head
from toolweave.oauth._user_agent import AuthorizationResponse

_HOST = "127.0.0.1"
_PATH = "/callback"
_MAX_PARAMETERS = 20
_MAX_STRANGERS = 16
_REQUEST_SECONDS = 10.0
"""Seconds for one request: a browser may open a connection long before it sends something, and comes again."""

_RECEIVED = "The answer has arrived. Close this page and return to the program."
_REFUSED = "The sign-in was refused. Close this page and return to the program."
_NOT_A_BROWSER = "This is not a request that a browser sends."
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:32rem;margin:20vh auto;padding:0 1.5rem}"
    "h1{font-size:1.5rem}"
)
# the browser applies no other style on the page
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_NOTHING_ELSE = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = (
    f"Content-Security-Policy: default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; {_NOTHING_ELSE}",
    "Cache-Control: no-store",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
)

Present = Callable[[str, "LoopbackListener"], Awaitable[None]]
"""Shows a person the authorization URL, and may pass on a redirect URL that they paste."""


class LoopbackListener:
    """A `RedirectListener` on 127.0.0.1.

    It accepts one redirect: a GET of its path, for its own host, with the expected state. Any other request is answered
    with an error and changes nothing.

    Args:
        listener: The open listener.
        port: Its port.
        deadline: The time when it stops waiting, on the clock of the event loop.
        server: The server's name in errors.
        present: Shows the authorization URL while it listens.

    Attributes:
        redirect_uri: Its URI.
    """

    def __init__(
        self, listener: anyio.abc.Listener[Any], port: int, *, deadline: float, server: str, present: Present
    ) -> None:
        self.redirect_uri: str = f"http://{_HOST}:{port}{_PATH}"
        self._listener = listener
        self._deadline = deadline
        self._server = server
        self._present = present
        self._state = ""
        self._found: AuthorizationResponse | None = None
        self._arrived = anyio.Event()
        self._strangers = 0
        self._failure: Exception | None = None

    async def response(self, url: str, *, state: str) -> AuthorizationResponse:
        """Show a person the authorization URL, and return the redirect that carries this state.

        Raises:
            AuthRequiredError: No redirect came in time.
        """
        self._state = state
        with anyio.CancelScope(deadline=self._deadline):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listener.serve, self._answer)
                tasks.start_soon(self._show, url)
                await self._arrived.wait()
                tasks.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure
        if self._found is None:
            raise AuthRequiredError("the sign-in was not completed in time; try again", server=self._server)
        return self._found

    def take(self, url: str) -> bool:
        """Accept a redirect URL that a person has copied; return whether it is the expected one."""
        try:
            parts = urlsplit(url.strip())
        except ValueError:
            return False
        if f"{parts.scheme}://{parts.netloc}{parts.path}" != self.redirect_uri:
            return False
        if not self._is_wanted(_response_of(parts.query)):
            return False
        self._arrived.set()
        return True

    async def _show(self, url: str) -> None:
        try:
            await self._present(url, self)
        except Exception as exc:  # boundary: raised by `response`, a task group would wrap it
            self._failure = exc
            self._arrived.set()

    def _is_wanted(self, found: AuthorizationResponse | None) -> bool:
        """Store a response if it has the state and is the first; return whether it has the state."""
        if found is None:
            return False
        state = (found.state or "").encode(errors="replace")
        # In constant time: other programs of this machine can send guesses and measure the response.
        if not hmac.compare_digest(state, self._state.encode()):
            return False
        if self._found is None:
            self._found = found
        return True

    async def _answer(self, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            # Closed unread: another program must not use up the descriptors of this one, and a browser tries again.
            if self._strangers >= _MAX_STRANGERS:
                return
            self._strangers += 1
            status = 0
            try:
                with anyio.move_on_after(_REQUEST_SECONDS):
                    status, text = self._judged(await read_head(stream))
                    await stream.send(_page(status, text))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                # it disconnected: if it was the browser, its redirect is accepted nevertheless
                pass
            finally:
                self._strangers -= 1
                # After the page was sent, because the end of the sign-in closes the listener.
                if status == 200:
                    self._arrived.set()

    def _judged(self, head: IncomingHead) -> tuple[int, str]:
        """Return the status and the text for a request, which may be the expected one."""
        if head.too_long:
            return 431, _NOT_A_BROWSER
        if not head.complete:
            return 400, _NOT_A_BROWSER
        # A web page may let its own name resolve to this machine (DNS rebinding). Its requests carry that name.
        if head.hosts != [self.redirect_uri.split("/")[2].encode()]:
            return 421, "This address is not served here."
        path, _, query = head.target.partition(b"?")
        if path != _PATH.encode():
            return 404, "There is nothing here."
        if head.method != b"GET":
            return 405, "This page can only be read."
        found = _response_of(query.decode("ascii", "replace"))
        if not self._is_wanted(found):
            return 400, "This is not the sign-in that is waited for."
        if self._found is not None and self._found.error is not None:
            return 200, _REFUSED
        return 200, _RECEIVED


@asynccontextmanager
async def loopback_listener(
    *, server: str, seconds: float, port: int | None, present: Present
) -> AsyncGenerator[LoopbackListener]:
    """Open a listener for the redirect of one sign-in on this port, or on one that is free.

    Raises:
        OSError: The port is in use.
    """
    listener = await anyio.create_tcp_listener(local_host=_HOST, local_port=port or 0)
    async with listener:
        found: int = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - not Django
        deadline = anyio.current_time() + seconds
        yield LoopbackListener(listener, found, deadline=deadline, server=server, present=present)


def _response_of(query: str) -> AuthorizationResponse | None:
    """Return the response of a redirect's query, or None for another query: no name may occur twice (RFC 6749 3.1)."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        return None
    found = dict(pairs)
    if len(found) != len(pairs):
        return None
    # Exactly one of the two is there (RFC 6749, 4.1.2).
    if ("code" in found) == ("error" in found):
        return None
    if "iss" in found:
        found["issuer"] = found.pop("iss")
    else:
        # only `iss` is the issuer
        found.pop("issuer", None)
    return msgspec.convert(found, AuthorizationResponse)


def _page(status: int, text: str) -> bytes:
    """Return an answer with a page. No text of the request is in it, so nothing has to be escaped."""
    heading, _, rest = text.partition(". ")
    lines = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>Sign in</title><style>{_STYLE}</style>",
        f"<main><h1>{heading.rstrip('.')}</h1><p>{rest}</p></main></html>\n",
    )
    return page_answer(status, "".join(lines), _HEADERS)
