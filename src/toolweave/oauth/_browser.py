"""The person at this machine: their browser is opened, or the address is shown for them to open it elsewhere.

Writes human-readable lines and starts a browser; the caller formats the lines for a terminal.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread

from toolweave._text import one_line
from toolweave.errors import AuthRequiredError, printable, shortened
from toolweave.oauth._loopback import LoopbackListener, loopback_listener
from toolweave.oauth._user_agent import DevicePrompt
from toolweave.protocol.uris import web_address_problem

_log = logging.getLogger("toolweave.oauth")
_OPEN_SECONDS = 10.0
"""Seconds for a browser to start; some commands end with the browser."""
_MAX_CODE = 100
_NO_DISPLAY = ("SSH_CONNECTION", "SSH_TTY")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")

ShowText = Callable[[str], None]
"""Shows a person a text of one or more lines."""
ReadLine = Callable[[], Awaitable["str | None"]]
"""Returns the next line that a person types or pastes; None at the end of the input."""


class BrowserUserAgent:
    """A `UserAgent` for the person at this machine.

    The browser is opened except over SSH, without a display, or if the environment sets `TOOLWEAVE_NO_BROWSER`. The
    address is shown in any case. The redirect leads to a listener on 127.0.0.1; if the browser is on another machine,
    its last address can be pasted.

    Args:
        browser: Whether the browser is opened; None to find out whether there is one.
        show: Shows a text, by default on standard error. No text has control characters.
        read_line: Reads a pasted address; None if nothing can be typed.
    """

    def __init__(
        self, *, browser: bool | None = None, show: ShowText | None = None, read_line: ReadLine | None = None
    ) -> None:
        self._browser = browser
        self._show = show or _to_standard_error
        self._read_line = read_line

    def listener(
        self, *, server: str, seconds: float, port: int | None = None
    ) -> AbstractAsyncContextManager[LoopbackListener]:
        """Open a listener for the redirect of one sign-in to a server, for at most these seconds."""

        async def present(url: str, listener: LoopbackListener) -> None:
            await self._present(url, listener, server)

        return loopback_listener(server=server, seconds=seconds, port=port, present=present)

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Show a person a code and the page to type it into; return at once.

        Raises:
            AuthRequiredError: The address is not the address of a web page.
        """
        page = _checked(prompt.verification_uri_complete or prompt.verification_uri, server)
        code = one_line(prompt.user_code, _MAX_CODE)
        self._show(
            f"To sign in to {printable(server)}, open this page on any device:\n\n  {page}\n\nits code is: {code}"
        )

    async def _present(self, url: str, listener: LoopbackListener, server: str) -> None:
        page = _checked(url, server)
        opens = self._browser
        if opens is None:
            opens = can_open_browser()
        if opens:
            how = "your browser opens this page; if it does not, open it yourself"
        else:
            how = "open this page"
        lines = [f"To sign in to {printable(server)}, {how}:", "", f"  {page}"]
        if self._read_line is not None:
            lines += [
                "",
                "If your browser is on another machine, paste the address of the last page that it shows here.",
            ]
        self._show("\n".join(lines))
        if opens:
            await _open(page)
        await self._read_pasted(listener)

    async def _read_pasted(self, listener: LoopbackListener) -> None:
        while self._read_line is not None:
            line = await self._read_line()
            if line is None:
                # nothing more can be typed, but the redirect may still arrive
                return
            if not line.strip():
                continue
            if listener.take(line):
                return
            self._show(f"That is not the address of this sign-in: it begins with {listener.redirect_uri}?")


def can_open_browser(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser that is opened now would be seen by the person at this machine."""
    if environment.get("TOOLWEAVE_NO_BROWSER"):
        return False
    if environment.get("BROWSER"):
        return True
    if any(environment.get(name) for name in _NO_DISPLAY):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return any(environment.get(name) for name in _DISPLAYS)


def plain_url(url: str) -> str:
    """Return the URL of a web page without characters that are special to a shell or a terminal; the page is the same.

    Raises:
        ValueError: A person cannot be sent to this address; see `web_address_problem`.
    """
    parts = urlsplit(url)
    # without path and query, which are quoted below
    problem = web_address_problem(f"{parts.scheme}://{parts.netloc}")
    if problem is not None:
        raise ValueError(problem)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    else:
        host = host.encode("idna").decode("ascii")
    plain = f"{parts.scheme}://{quote(host, safe='[]:.-_')}"
    if parts.port is not None:
        plain += f":{parts.port}"
    plain += quote(parts.path, safe="%/:=@+,-._~")
    if parts.query:
        plain += f"?{quote(parts.query, safe='%/:=&?@+,-._~')}"
    return plain


def _checked(url: str, server: str) -> str:
    try:
        return plain_url(url)
    except ValueError:  # a UnicodeError is one
        raise AuthRequiredError(
            f"its authorization server names a page to sign in that is not a web page: {shortened(url, 200)!r}",
            server=server,
        ) from None


async def _open(page: str) -> None:
    """Open a browser, without a shell; if that fails the person has the address."""
    import webbrowser  # only to sign in

    try:
        with anyio.move_on_after(_OPEN_SECONDS):
            await anyio.to_thread.run_sync(webbrowser.open, page, abandon_on_cancel=True)
    except (OSError, webbrowser.Error) as exc:
        _log.debug("no browser could be opened: %s", exc)


def _to_standard_error(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
