"""The endpoint of a model API on a real socket: its answers are scripted, and sent in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.models.http_server import Answer, Received, Server, serve

__all__ = ["ScriptedEndpoint", "serving"]


class ScriptedEndpoint(ABC):
    """An endpoint with the answers of the next turns.

    Attributes:
        answers: The answers to come. A request beyond them is refused.
        checked: The bodies of the requests that the API would accept.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.checked: list[dict[str, Any]] = []
        self.server: Server

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def requests(self) -> list[Received]:
        return self.server.requests

    @abstractmethod
    async def handle(self, request: Received) -> Answer:
        """Answer a request that the API accepts, and refuse any other as the API does."""


EndpointT = TypeVar("EndpointT", bound=ScriptedEndpoint)


@asynccontextmanager
async def serving(endpoint: EndpointT) -> AsyncGenerator[EndpointT]:
    """Serve an endpoint during the block."""
    async with serve(endpoint.handle) as server:
        endpoint.server = server
        yield endpoint
