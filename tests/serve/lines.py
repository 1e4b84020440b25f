"""A client's end of a request, for messages that a conforming client cannot send: it keeps all notifications."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolweave.errors import RequestError
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve import McpServer
from toolweave.serve.request import Client, Json, Request

__all__ = ["EVERYTHING", "Peer"]

EVERYTHING: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
"""Capabilities of a client that answers whatever it is asked."""


class Peer:
    """A client that makes requests of an endpoint without a carrier between them.

    Attributes:
        notifications: The received notifications, as (method, params).
        questions: The requests it was sent, as (method, params).
    """

    def __init__(
        self,
        *,
        version: str = MODERN_VERSION,
        capabilities: Mapping[str, Any] = EVERYTHING,
        principal: str | None = None,
        conversation: str | None = None,
        answer: Callable[[str], Any] | None = None,
    ) -> None:
        self.client = Client(version, capabilities, None, principal, conversation)
        self.notifications: list[tuple[str, Json]] = []
        self.questions: list[tuple[str, Json]] = []
        self._answer = answer

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.notifications.append((method, dict(params)))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        self.questions.append((method, dict(params)))
        if self._answer is None:
            raise RequestError("nobody is there", code=-1)
        answer = self._answer(method)
        return await answer if hasattr(answer, "__await__") else answer

    async def release(self) -> None:
        """Do nothing: nobody holds a connection here."""

    def request(self, method: str, /, **params: Any) -> Request:
        """Make a request of this client's."""
        return Request(method, params, self.client, self, 1)

    async def call(self, server: McpServer, tool: str, arguments: Json | None = None, /, **more: Any) -> Json:
        """Call a tool and return the result; `more` are other parameters.

        Raises:
            RequestError: The answer is a JSON-RPC error.
        """
        return await server.endpoint.answer(self.request("tools/call", name=tool, arguments=arguments or {}, **more))
