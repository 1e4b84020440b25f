"""The providers' APIs as the tests of this folder need them: what a model says is written once, for each of them.

Each is the fake of `tests/models`, which refuses what the real API refuses; here it answers by a function of the
results that the model has read. Knows nothing of agents.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from tests.models import fake_anthropic, fake_openai
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.fake_openai import FakeOpenAI
from tests.models.http_server import Answer, Received, serve
from toolweave.models import AnthropicModel, OpenAICompatibleModel

__all__ = ["APIS", "Api", "ApiName", "Call", "Fake", "Read", "Said", "Say", "fake", "in_turns", "model"]

ApiName: TypeAlias = Literal["chat", "responses", "anthropic"]
APIS: tuple[ApiName, ...] = ("chat", "responses", "anthropic")


class Call(NamedTuple):
    """A tool call that a model makes; ids are unique in a conversation."""

    id: str
    tool: str
    arguments: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Read:
    """A tool's result as it reached the model."""

    text: str
    images: tuple[bytes, ...] = ()
    is_error: bool | None = None
    """What the API's own flag says; None where it has none."""


Said: TypeAlias = str | Sequence[Call]
Say: TypeAlias = Callable[[Mapping[str, Read]], Said]
"""What the model says next, by the results that it has read, by call."""


def in_turns(*turns: Sequence[Call], then: str = "done") -> Say:
    """Return a model that makes these calls, turn by turn, and says `then` when it has read all results."""

    def say(results: Mapping[str, Read]) -> Said:
        return next((turn for turn in turns if not all(call.id in results for call in turn)), then)

    return say


class Api(Protocol):
    """One API: reads its requests, writes its answers."""

    def results(self, body: Any) -> Iterator[tuple[str, Read]]:
        """Yield the results in a request, oldest first, by their calls."""
        ...

    def turn(self, said: Said) -> Answer:
        """Return a turn as it is streamed."""
        ...


class _Chat:
    def results(self, body: Any) -> Iterator[tuple[str, Read]]:
        for message in body["messages"]:
            if message["role"] == "tool":
                yield message["tool_call_id"], Read(message["content"])

    def turn(self, said: Said) -> Answer:
        if isinstance(said, str):
            return fake_openai.said(said)
        deltas = [fake_openai.call(at, c.id, c.tool, json.dumps(c.arguments)) for at, c in enumerate(said)]
        return fake_openai.chat_turn(*deltas, finish="tool_calls")


class _Responses:
    def results(self, body: Any) -> Iterator[tuple[str, Read]]:
        for item in body["input"]:
            if item.get("type") == "function_call_output":
                output = item["output"]
                parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
                texts = [part["text"] for part in parts if part["type"] == "input_text"]
                urls = [part["image_url"] for part in parts if part["type"] == "input_image"]
                yield item["call_id"], Read("\n".join(texts), tuple(url.partition(",")[2].encode() for url in urls))

    def turn(self, said: Said) -> Answer:
        if isinstance(said, str):
            text: dict[str, Any] = {"type": "output_text", "text": said, "annotations": []}
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
            return fake_openai.responses_turn(item)
        return fake_openai.responses_turn(
            *(
                {
                    "type": "function_call",
                    "id": f"fc_{call.id}",
                    "call_id": call.id,
                    "name": call.tool,
                    "arguments": json.dumps(call.arguments),
                    "status": "completed",
                }
                for call in said
            )
        )


class _Anthropic:
    def results(self, body: Any) -> Iterator[tuple[str, Read]]:
        for message in body["messages"]:
            blocks = cast("list[dict[str, Any]]", message["content"] if isinstance(message["content"], list) else [])
            for block in blocks:
                if block["type"] == "tool_result":
                    parts = block.get("content", [])
                    texts = [part["text"] for part in parts if part["type"] == "text"]
                    images = [part["source"]["data"].encode() for part in parts if part["type"] == "image"]
                    yield block["tool_use_id"], Read("\n".join(texts), tuple(images), block.get("is_error", False))

    def turn(self, said: Said) -> Answer:
        if isinstance(said, str):
            return fake_anthropic.said(said)
        return fake_anthropic.turn(*(fake_anthropic.call(call.id, call.tool, call.arguments) for call in said))


_APIS: Mapping[ApiName, Api] = {"chat": _Chat(), "responses": _Responses(), "anthropic": _Anthropic()}


class Fake:
    """One API on a real socket.

    Attributes:
        bodies: The requests that passed the API's checks.
    """

    def __init__(self, api: ApiName, say: Say) -> None:
        self._api = _APIS[api]
        self._say = say
        self._fake: FakeOpenAI | FakeAnthropic = FakeAnthropic(()) if api == "anthropic" else FakeOpenAI(())
        self.url = ""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return self._fake.checked

    @property
    def results(self) -> dict[str, Read]:
        """What the model has read of its calls, as of the last request; in the order in which it reads them."""
        return dict(self._api.results(self.bodies[-1]))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the last request offers."""
        definitions = self.bodies[-1]["tools"]
        return [definition.get("function", definition)["name"] for definition in definitions]

    async def handle(self, request: Received) -> Answer:
        self._fake.answers = [self._api.turn(self._say(dict(self._api.results(request.json))))]
        return await self._fake.handle(request)


@asynccontextmanager
async def fake(api: ApiName, say: Say) -> AsyncGenerator[Fake]:
    """Run a fake of the API whose model says what `say` returns."""
    made = Fake(api, say)
    async with serve(made.handle) as server:
        made.url = server.url
        yield made


def model(api: ApiName, url: str) -> AnthropicModel | OpenAICompatibleModel:
    """Return our model for the API at a URL."""
    if api == "anthropic":
        return AnthropicModel("m", fake_anthropic.KEY, url)
    return OpenAICompatibleModel(url, model="m", api_key=fake_openai.KEY, api=api)
