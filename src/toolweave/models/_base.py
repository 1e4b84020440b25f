"""The `Model` Protocol: a language model as a stream of typed events. Knows no provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toolweave._json_types import JsonObject, new_object
from toolweave.errors import ModelError
from toolweave.models._messages import AssistantMessage, Message
from toolweave.tools import ToolSpec

StopReason: TypeAlias = Literal["end", "tool_calls", "max_tokens", "refusal", "pause", "malformed_call", "other"]
"""The reason for the end of a turn.

`"pause"` asks to send the conversation again as is; `"malformed_call"`: the model wrote a tool call that its provider
could not read; `"other"`: a reason that this version does not know, the provider's word is in `Finished.stop_detail`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTool:
    """A tool that the provider runs itself; other providers' are left out of a request.

    Attributes:
        provider: Its provider, such as `"anthropic"`, `"openai"`.
        definition: The provider's own definition, sent unchanged.
    """

    provider: str
    definition: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Sampling and request settings; None leaves a setting to the provider.

    Attributes:
        strict_tools: Whether the provider holds the model to the schemas of the tools, of those whose schemas it can
            express; what a model had to fill in for that is removed from its arguments.
        timeout: Idle timeout of the request in seconds. Pings of the provider extend it, up to five times in all.
        extra: Members for the provider's request body, sent unchanged.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    parallel_tool_calls: bool | None = None
    strict_tools: bool = False
    timeout: float = 120.0
    extra: JsonObject = field(default_factory=new_object)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request for one turn of a model.

    Attributes:
        messages: The conversation so far, oldest first; ends with a user's or a tool message.
        tools: The tools that the model may call, by their exposed names.
        deferred: Exposed names among `tools` whose definitions a model with `native_tool_search` loads when it needs
            them; every other model is given all of `tools` at once.
        tool_choice: `"auto"`, `"none"`, `"required"`, or the exposed name of the one tool to call.
        output_schema: JSON Schema that the answer's text has to fit, or None.
    """

    messages: Sequence[Message]
    system: str | None = None
    tools: Sequence[ToolSpec] = ()
    deferred: Collection[str] = ()
    provider_tools: Sequence[ProviderTool] = ()
    tool_choice: str = "auto"
    output_schema: JsonObject | None = None
    settings: ModelSettings = ModelSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token usage of a turn.

    Attributes:
        input_tokens: All of the request, those of the cache included.
        cached_tokens: Those that the provider read from its cache.
        cache_written_tokens: Those that the provider wrote to its cache, if it bills them separately.
        cost: US dollars, or None if unknown; the cost of a sum with an unknown part is unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    cache_written_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        # A part without tokens is the zero that a sum starts with: it must not make the cost unknown.
        parts = [one for one in (self, other) if one.tokens or one.cost is not None]
        known = [one.cost for one in parts if one.cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=sum(known) if known and len(known) == len(parts) else None,
            cache_written_tokens=self.cache_written_tokens + other.cache_written_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedText:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedThinking:
    """A piece of thought."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedToolCall:
    """The model begins to write a tool call."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a tool call's arguments, as JSON text."""

    id: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRestarted:
    """The turn broke off and is requested again: the events of it so far are void."""

    error: ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The turn is complete: always the last event, and the only one that a caller needs.

    Attributes:
        stop_detail: The provider's own stop reason, if `stop_reason` is `"other"` or
            `"malformed_call"`.
        model: The model that answered, if it is one of several behind the one asked; None is the one asked.
    """

    message: AssistantMessage
    usage: Usage = Usage()
    stop_reason: StopReason = "end"
    stop_detail: str | None = None
    model: str | None = None


ModelEvent: TypeAlias = StreamedText | StreamedThinking | StreamedToolCall | ToolCallDelta | StreamRestarted | Finished
"""One event of a model's stream; the last one is `Finished`."""


@runtime_checkable
class Model(Protocol):
    """A language model.

    A model whose provider searches tools itself has a true attribute `native_tool_search`.

    Attributes:
        name: Provider and model, such as `"anthropic:claude-sonnet-4-5"`.
    """

    @property
    def name(self) -> str:
        """Provider and model."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one turn; `Finished` comes last. Closing the generator ends the request.

        Raises:
            ModelError: The provider refused or could not be reached; retries are over by then.
        """
        ...


async def complete(model: Model, request: ModelRequest) -> Finished:
    """Return the whole turn.

    Raises:
        ModelError: The provider refused or could not be reached, or the turn broke off.
    """
    # Closed here and not by the garbage collector, because the request to the provider ends with the generator.
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            if isinstance(event, Finished):
                return event
    # A stream without `Finished` is not a short answer: text so far may be half a sentence, or half a tool call.
    raise ModelError("the turn broke off", model=model.name)
