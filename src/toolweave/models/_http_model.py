"""The base class of models behind a provider's HTTP API: retries, and requests without the features that it refuses.

Knows no provider's form of a request or of a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Self

from toolweave._json_types import JsonObject
from toolweave.errors import ModelError
from toolweave.models._base import ModelEvent, ModelRequest, StreamRestarted
from toolweave.models._http import ProviderApi
from toolweave.models._inline_thoughts import ThoughtSplitter, split_events
from toolweave.models._messages import AssistantMessage
from toolweave.models._provider_errors import malformed_turn
from toolweave.models._refused_features import RefusedFeatures
from toolweave.models._retry import Retry, with_retries
from toolweave.models._tool_repairs import SentTools, ToolRepairs
from toolweave.providers import WireTools
from toolweave.providers._wire_tools import ToolWriter
from toolweave.tools import ToolSpec
from toolweave.tools.arguments import encode


class HttpModel(ABC):
    """Base class of models behind an HTTP API; holds one HTTP client, opened at the first request.

    Args:
        api: The provider's API.
        writers: Write tools in its form, without and with the schemas enforced; both have one memory of refused tools.
        retry: Policy for failed requests.
    """

    def __init__(self, api: ProviderApi, writers: tuple[ToolWriter, ToolWriter], retry: Retry | None) -> None:
        self._api = api
        self._writers = writers
        self._retry = Retry() if retry is None else retry
        self._unsupported = RefusedFeatures()
        self._inline_provider: str | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """The tools that the API refused, and the limits that it reported, each with the consequence."""
        return self._writers[0].refused.problems

    @property
    @abstractmethod
    def name(self) -> str:
        """Provider and model."""

    def wire_tools(self, tools: Sequence[ToolSpec], *, strict: bool = False) -> WireTools:
        """Return these tools in the API's form, with the changed and the omitted parts of their schemas.

        `strict` is what `ModelSettings.strict_tools` is in a request.
        """
        return self._writers[strict].of(tools)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one turn; `Finished` comes last. Closing the generator ends the request.

        Raises:
            ModelError: The provider refused or could not be reached; retries are over by then.
        """
        splitter = ThoughtSplitter()
        async with aclosing(self._readable(request)) as events:
            async for event in events:
                # The text so far is void, so half of a tag that it ended with must not be joined to the next text.
                if isinstance(event, StreamRestarted):
                    splitter = ThoughtSplitter()
                for ours in split_events(splitter, event, self._inline_provider):
                    yield ours

    async def _readable(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of a turn; one whose call the provider could not read ends as a malformed call."""
        repairs = ToolRepairs(self._writers[0].refused)
        try:
            async with aclosing(self._unsupported.stream(request, self._sent, repairs)) as events:
                async for event in events:
                    yield event
            return
        except ModelError as exc:
            turn = malformed_turn(exc)
            if turn is None:
                raise
        yield turn

    async def _sent(self, request: ModelRequest, sent: SentTools) -> AsyncGenerator[ModelEvent, None]:
        tools = self.wire_tools(request.tools, strict=request.settings.strict_tools)
        try:
            # Encoded once, before the attempts: all of them send the same bytes, so a provider that recognizes a
            # request by its content (an idempotency key, a cache) sees one request.
            members = self._body(request, tools)
            body = encode(members)
        except (TypeError, ValueError, RecursionError) as exc:
            raise ModelError(f"the request is not JSON: {exc}", model=self.name, kind="invalid_request") from exc
        sent.record(request.tools, tools, members.get("tools", ()))
        async with aclosing(with_retries(lambda: self._attempt(request, tools, body), self._retry)) as events:
            async for event in events:
                yield event

    @abstractmethod
    def _body(self, request: ModelRequest, tools: WireTools) -> JsonObject:
        """Return the members of the request's body; the tools may be JSON already."""

    @abstractmethod
    def _attempt(self, request: ModelRequest, tools: WireTools, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        """Send a body once and yield the events of the turn."""

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        await self._api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def call_ids(request: ModelRequest) -> set[str]:
    """Return the ids of the tool calls in a conversation, which those of the next turn must differ from."""
    ids: set[str] = set()
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            ids.update(call.id for call in message.tool_calls)
    return ids
