"""The fault of the HTTP server: its mode, the method it applies to, and how often."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable

from toolweave.testing.servers import http_breaks, http_streams
from toolweave.testing.servers.fault_base import MESSAGE_MODES, FaultServer, Quota
from toolweave.testing.servers.faults import DEFAULT_SIZES, MESSAGE_FAULTS, quota_from, with_fault
from toolweave.testing.servers.http_faults import EXCHANGE_FAULTS, Fault, FaultContext
from toolweave.testing.servers.http_streams import resume
from toolweave.testing.servers.http_wire import Exchange
from toolweave.testing.servers.protocol import Peer, PeerSession
from toolweave.testing.servers.toolset import Json

__all__ = ["HTTP_FAULTS", "Misbehaviour", "help_text"]

FAULT_MODULES = (http_breaks, http_streams)
EXCHANGES = {name: function.__doc__ or "" for name, function in EXCHANGE_FAULTS.items()}
HTTP_FAULTS = dict(sorted({**MESSAGE_FAULTS, **EXCHANGES}.items()))
"""Mode -> its description, in one sentence."""
FORGETTING = {"gone_session", "gone_session_400"}


def help_text() -> str:
    """Return the table of the modes."""
    return "\n".join(f"  {name:28}{text}" for name, text in HTTP_FAULTS.items())


class Misbehaviour:
    """The mode of one server."""

    def __init__(
        self, peer: Peer, options: argparse.Namespace, sessions: dict[str, PeerSession], open_session: Callable[[], str]
    ) -> None:
        self.peer = peer
        self.options = options
        self.sessions = sessions
        self.open_session = open_session
        self.quota: Quota = quota_from(options)
        self.exchange: Fault | None = EXCHANGE_FAULTS.get(options.mode or "")
        self.lines: list[bytes] = []
        self.messages: FaultServer | None = None
        self.restart: Callable[[], Awaitable[None]]
        if options.mode in MESSAGE_MODES:
            size = options.size or DEFAULT_SIZES.get(options.mode, 0)
            server = FaultServer(
                peer, self.lines.append, self.quota, seconds=options.seconds, size=size, port=9, code=1
            )
            self.messages = with_fault(server, options.mode)

    async def took(self, exchange: Exchange, message: Json) -> bool:
        """Take over the exchange, if the fault applies to it."""
        if exchange.method == "GET" and await resume(exchange):
            return True
        if self.messages is not None and message:
            self.lines.clear()
            if self.messages.handle(message):
                await self.say(exchange, b"".join(self.lines), {})
                return True
        if self.exchange is None or not self.is_turn(exchange, message) or not self.quota.take():
            return False
        step = FaultContext(message, self.options, lambda: self.right_answer(exchange, message))
        step.restart = self.restart
        try:
            await self.exchange(exchange, step)
        except LookupError:
            self.quota.give_back()
            return False
        return True

    def is_turn(self, exchange: Exchange, message: Json) -> bool:
        """Whether the fault applies to the exchange; without a message only if --on says so."""
        on = self.options.on
        if on is None:
            return bool(message)
        return on in (message.get("method"), exchange.method)

    async def rewrote(self, exchange: Exchange, message: Json, answer: Json, headers: dict[str, str]) -> bool:
        """Send something else instead of an answer, if the mode rewrites answers."""
        if self.messages is not None:
            data = self.messages.rewrite_answer(message, answer)
        else:
            data = None
        if data is None:
            return False
        await self.say(exchange, data, headers)
        return True

    async def say(self, exchange: Exchange, data: bytes, headers: dict[str, str]) -> None:
        """Send lines as one JSON body or as the events of a stream; nothing at all is silence."""
        lines = list(filter(None, data.split(b"\n")))
        if not lines:
            await exchange.reader.gone.wait()
            return
        if len(lines) == 1 and not exchange.streaming:
            await exchange.respond(200, lines[0], content_type="application/json", **headers)
            return
        if not exchange.streaming:
            await exchange.start_stream(**headers)
        await exchange.chunk(b"".join(b"data: " + line + b"\n\n" for line in lines))
        await exchange.end_stream()

    def right_answer(self, exchange: Exchange, message: Json) -> tuple[bytes, dict[str, str]]:
        """Handle a message as usual; return the body and the headers of the response.

        Raises:
            LookupError: It belongs to a session that is gone.
        """
        headers: dict[str, str] = {}
        known = exchange.headers.get("mcp-session-id", "")
        if message.get("method") == "initialize":
            headers["mcp-session-id"] = known = self.open_session()
        session = self.sessions[known] if known else PeerSession()
        answer = self.peer.handle(message, session, lambda note: None, exchange.headers) or {}
        return json.dumps(answer).encode(), headers

    def forget_sessions(self) -> None:
        """Drop every session when the mode requires that."""
        if (
            self.options.mode in FORGETTING
            and sum(self.peer.calls.values()) >= self.options.after
            and self.quota.take()
        ):
            self.sessions.clear()

    def missing_session(self) -> int:
        """Return the status of a request in a session that does not exist."""
        if self.options.mode == "gone_session_400":
            return 400
        return 404
