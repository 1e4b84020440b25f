"""Client capabilities that may change while connected: roots, and the minimum severity of log messages.

Knows nothing of the connection's lifecycle.
"""

from __future__ import annotations

import logging

import anyio

from toolweave.config import ServerConfig
from toolweave.connect._client_features.callbacks import RootsAnswer, checked_roots
from toolweave.connect._requester import Requester
from toolweave.connect._session import ClientHandlers
from toolweave.connect._transports import OpenSession
from toolweave.errors import ServerError
from toolweave.protocol import methods
from toolweave.protocol.logs import LogLevel, check_level

_log = logging.getLogger("toolweave.connect")


class ClientCapabilities:
    """The roots and the log level of one connection, over all its sessions.

    Args:
        config: The server.
        requester: Sends requests to it.
        handlers: Answers its requests; holds the roots and the level.
    """

    def __init__(self, config: ServerConfig, requester: Requester, handlers: ClientHandlers) -> None:
        self._config = config
        self._requester = requester
        self._handlers = handlers

    async def set_log_level(self, level: LogLevel) -> None:
        """Ask for log messages of this severity and above; see `McpConnection.set_log_level`."""
        check_level(level)
        self._handlers.log_level = level
        await self._requester.with_reconnect(self._send_log_level, repeatable=True)

    async def set_roots(self, roots: RootsAnswer) -> None:
        """Replace the roots and notify the server; see `McpConnection.set_roots`."""
        if self._handlers.asked.roots is None:
            raise RuntimeError(
                f"server {self._config.name!r} was informed that there are no roots; "
                "connect with callbacks=Callbacks(roots=[]) to set them later"
            )
        self._handlers.asked.roots = checked_roots(roots)
        await self.roots_changed()

    async def roots_changed(self) -> None:
        """Notify the server that the roots have changed; modern revisions have no such notification."""
        session = self._requester.last_session
        if session is None or session.conversation.agreement.modern or session.conversation.wire.over:
            return
        await session.conversation.wire.notify(methods.NOTIFICATIONS_ROOTS_LIST_CHANGED, {})

    async def set_initial_log_level(self, session: OpenSession) -> None:
        """Set the log level of a new legacy session, which its handshake cannot; a failure is only logged."""
        offered = session.conversation.agreement.capabilities
        if self._handlers.log_level is None or session.conversation.agreement.modern or "logging" not in offered:
            return
        try:
            await self._send_log_level(session)
        except ServerError as exc:
            _log.warning("%s; its log level stays as it is", exc)

    async def _send_log_level(self, session: OpenSession) -> None:
        seconds = self._config.timeout.read
        with anyio.move_on_after(seconds) as scope:
            await session.conversation.set_log_level(str(self._handlers.log_level))
        if scope.cancelled_caught:
            raise self._requester.too_slow(methods.LOGGING_SET_LEVEL, seconds)

    async def deliver_logs(self) -> None:
        """Deliver log messages until the session ends."""
        if self._handlers.logs is not None:
            with self._handlers.working():
                await self._handlers.logs.run()
