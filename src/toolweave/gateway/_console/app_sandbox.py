"""The sandbox around pages of tools: frames of another origin than the console's, on a port of this machine alone.

A page that a server wrote runs in a frame of this origin, under the policy that came with it. Nothing else is served
from it: each frame has an unguessable address, which answers once. The name of the host differs from the
console's too (`localhost` or `127.0.0.1`), so that no cookie is shared, as cookies know no ports.
"""

from __future__ import annotations

import logging
import secrets
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.abc
from anyio.streams.stapled import MultiListener

from toolweave.http.local_pages import IncomingHead, LocalPages, page_answer

_log = logging.getLogger("toolweave.gateway")

FRAME_PATH = "/frame/"
"""The path below which frames are."""

# A frame needs an origin that is not the console's, or its scripts could read the console. Two names of this machine
# are two origins, at any port, and need no DNS and no certificate.
_NAME = "localhost"
_ADDRESS = "127.0.0.1"
_ADDRESS_6 = "::1"
_START_SECONDS = 10.0
_REQUEST_SECONDS = 10.0
_MAX_FRAMES = 50
_MAX_CONNECTIONS = 32
_PORTS_TRIED = 5

_HEADERS = (
    "Cache-Control: no-store",
    "Origin-Agent-Cluster: ?1",
    "Permissions-Policy: camera=(), clipboard-read=(), clipboard-write=(), geolocation=(), microphone=()",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
    "X-DNS-Prefetch-Control: off",
)


class FrameOrigin(NamedTuple):
    """The origin of the frames that a console shows.

    Attributes:
        name: The name of the host, which is not the console's.
        port: The port.
    """

    name: str
    port: int

    @property
    def authority(self) -> str:
        """The name and the port."""
        return f"{self.name}:{self.port}"

    @property
    def frames(self) -> str:
        """The address below which all frames are."""
        return f"http://{self.authority}{FRAME_PATH}"


def frame_origin(console: str, port: int) -> FrameOrigin:
    """Return the origin of frames for a console.

    Args:
        console: The name of the host that the console is seen at, of this machine.
        port: The port of the frames.
    """
    # Whichever name the console does not have.
    return FrameOrigin(_ADDRESS if console == _NAME else _NAME, port)


class _Frame(NamedTuple):
    """A frame that was not opened yet.

    Attributes:
        authority: The name and the port at which it is asked for.
        policy: Its Content-Security-Policy.
        host: The origin of the page that shows it.
    """

    authority: str
    policy: str
    host: str


class AppSandbox:
    """Serves the frames around pages of tools.

    It listens from the first time that one is wanted: a gateway without such tools opens no port.
    """

    def __init__(self) -> None:
        self._wanted = anyio.Event()
        self._settled = anyio.Event()
        self._port: int | None = None
        self._frames: dict[str, _Frame] = {}
        self._pages = LocalPages(
            self._judged,
            log=_log,
            subject="the sandbox of the console",
            max_connections=_MAX_CONNECTIONS,
            seconds=_REQUEST_SECONDS,
        )

    async def run(self) -> None:
        """Serve, once it is wanted, until cancelled."""
        try:
            await self._wanted.wait()
            try:
                listener, port = await _listen()
            except OSError as error:
                _log.error("the console shows no pages of tools: no port of this machine can be opened: %s", error)
                self._settled.set()
                # The console works without frames, so this must not end the task group that serves it.
                await anyio.sleep_forever()
                return
            async with listener:
                self._port = port
                self._settled.set()
                await listener.serve(self._pages.serve)
        finally:  # it may run again
            self._port = None
            self._frames.clear()
            # An event cannot be reset, and these belong to the loop that has ended.
            self._wanted, self._settled = anyio.Event(), anyio.Event()

    async def port(self) -> int | None:
        """Return the port of the frames, or None where none can be opened."""
        self._wanted.set()
        with anyio.move_on_after(_START_SECONDS):
            await self._settled.wait()
        return self._port

    def add(self, origin: FrameOrigin, policy: str, host: str) -> str:
        """Return the address of a new frame, which answers once.

        Args:
            origin: The origin.
            policy: The Content-Security-Policy of the document.
            host: The origin of the page that may show it, and exchanges messages with it.
        """
        # Frames that no browser has fetched yet, the oldest first: a page that is reloaded again and again must not
        # fill the memory.
        while len(self._frames) >= _MAX_FRAMES:
            del self._frames[next(iter(self._frames))]
        # The name is the only credential: cookies of the console are not sent to this origin.
        name = secrets.token_urlsafe(32)
        self._frames[name] = _Frame(origin.authority, policy, host)
        return origin.frames + name

    async def _judged(self, head: IncomingHead) -> bytes:
        """Return the answer to a request."""
        if not head.complete:
            return _reply(431 if head.too_long else 400)
        if head.method != b"GET":
            return _reply(405)
        path = head.target[: len(FRAME_PATH)]
        name = head.target[len(FRAME_PATH) :].decode("ascii", "replace")
        frame = self._frames.get(name)
        if frame is None or path != FRAME_PATH.encode():
            return _reply(404)
        # Another Host is a rebinding attack, or the frame under the console's own origin.
        if head.hosts != [frame.authority.encode()]:
            return _reply(421)
        # An address that answers once is of no use to a page that learns it afterwards.
        del self._frames[name]
        return _reply(200, _proxy().replace("HOST", escape(frame.host), 1), frame.policy)


@cache
def _proxy() -> str:
    return Path(__file__).with_name("sandbox.html").read_text(encoding="utf-8")


async def _listen() -> tuple[anyio.abc.Listener[Any], int]:
    """Open a port that is free at both addresses of this machine: browsers may take either for its name.

    Raises:
        OSError: No port could be opened.
    """
    # `localhost` may mean either address, and a browser chooses: both have to be ours at the same port, or another
    # process could answer for the frame.
    for _ in range(_PORTS_TRIED):
        listener = await anyio.create_tcp_listener(local_host=_ADDRESS)
        port: int = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # not Django
        try:
            other = await anyio.create_tcp_listener(local_host=_ADDRESS_6, local_port=port)
        except OSError:
            # IPv6 works here, so it is this port that is in use there. Without IPv6 no process can listen at that
            # address.
            if await _has_six():
                await listener.aclose()  # another process listens there
                continue
            return listener, port
        return MultiListener([listener, other]), port
    raise OSError(f"none of {_PORTS_TRIED} ports is free at both {_ADDRESS} and {_ADDRESS_6}")


async def _has_six() -> bool:
    """Return whether this machine has the IPv6 loopback address; without it no process can listen there."""
    try:
        async with await anyio.create_tcp_listener(local_host=_ADDRESS_6):
            return True
    except OSError:
        return False


def _reply(status: int, body: str = "", policy: str = "default-src 'none'; frame-ancestors 'none'") -> bytes:
    return page_answer(status, body, (f"Content-Security-Policy: {policy}", *_HEADERS))
