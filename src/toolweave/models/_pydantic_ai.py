"""The providers of Pydantic AI as a model: its requests, our loop. The only module that calls that library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread

from toolweave._json_types import Json, JsonObject, only_members, without_none
from toolweave.errors import ConfigError, ModelError
from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    StopReason,
    StreamedText,
    StreamedThinking,
    StreamedToolCall,
    ToolCallDelta,
    Usage,
)
from toolweave.models._history import pair_tool_calls
from toolweave.models._inline_thoughts import ThoughtSplitter, split_events
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._prices import Price
from toolweave.models._provider_errors import MALFORMED, malformed_turn, refusal, short, without_secrets
from toolweave.models._tool_repairs import SentTools, ToolRepairs
from toolweave.protocol.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent
from toolweave.providers import ToolRules, WireTools
from toolweave.providers._refused_tools import RefusedTools
from toolweave.providers._tool_schemas import schemas_of_name
from toolweave.providers._wire_tools import ToolWriter, WireTool
from toolweave.tools import NameMap, ToolSpec
from toolweave.tools.arguments import json_text, read_arguments, wire_id
from toolweave.tools.media import sniff

if TYPE_CHECKING:
    import pydantic
    from pydantic_ai import messages as wire
    from pydantic_ai import models as wire_models
    from pydantic_ai.settings import ModelSettings as WireSettings
    from pydantic_ai.usage import RequestUsage

PROVIDER = "pydantic_ai"
"""Marker of the parts of a conversation that only this library understands."""

_OF_NEXT = "of-next-part"
"""Kind of the part that holds the provider's additions to the text or call after it."""
_ADDED = ("id", "provider_name", "provider_details")


def wire_history(messages: Sequence[Message], system: str | None, tools: WireTools) -> list[wire.ModelMessage]:
    """Return the conversation in Pydantic AI's form; the system prompt goes with the last request."""
    from pydantic_ai import messages as wire

    out: list[wire.ModelMessage] = []
    pending: list[wire.ModelRequestPart] = []
    for message in pair_tool_calls(messages):
        match message:
            case UserMessage():
                pending.append(wire.UserPromptPart(content=_user_content(message.content)))
            case ToolMessage():
                pending += [_tool_return(outcome, tools.names) for outcome in message.outcomes]
            case AssistantMessage():
                if pending:
                    out.append(wire.ModelRequest(parts=pending))
                    pending = []
                out.append(wire.ModelResponse(parts=_response_parts(message.parts, tools)))
    # An empty request stands for an empty conversation, as the framework needs one.
    if pending or not out:
        out.append(wire.ModelRequest(parts=pending))
    if system:
        requests = [one for one in out if isinstance(one, wire.ModelRequest)]
        # The framework takes the instructions of the last request; those of earlier ones are history.
        for last in requests[-1:]:
            last.instructions = system
    return out


def our_message(parts: Iterable[wire.ModelResponsePart], tools: WireTools) -> AssistantMessage:
    """Return a response as an `AssistantMessage`."""
    return AssistantMessage(parts=tuple(ours for part in parts for ours in _our_parts(part, tools)))


def _our_parts(part: wire.ModelResponsePart, tools: WireTools) -> Iterable[AssistantPart]:
    from pydantic_ai import messages as wire

    match part:
        case wire.TextPart():
            if part.content:
                yield from _added(part)
                yield TextPart(text=part.content)
        case wire.ThinkingPart():
            yield ThinkingPart(text=part.content, raw=_adapter().dump_python(part, mode="json"), provider=PROVIDER)
        case wire.ToolCallPart():
            if isinstance(part.args, dict):
                arguments = cast("dict[str, Any]", part.args)
                malformed = None
            else:
                arguments, malformed = read_arguments(part.args or "")
            yield from _added(part)
            name = tools.call_name(part.tool_name)
            arguments = tools.arguments(name, arguments)
            yield ToolCallPart(id=part.tool_call_id, name=name, arguments=arguments, malformed=malformed)
        case _:
            yield ProviderPart(provider=PROVIDER, raw=_adapter().dump_python(part, mode="json"))


def _added(part: wire.TextPart | wire.ToolCallPart) -> Iterable[AssistantPart]:
    return additions_to_next({name: getattr(part, name) for name in _ADDED})


def additions_to_next(members: JsonObject) -> Iterable[AssistantPart]:
    """Yield the part with the additions of a provider to a text or call; it stands before that part."""
    added = {name: members[name] for name in _ADDED if members.get(name) is not None}
    if added.keys() - {"provider_name"}:
        yield ProviderPart(provider=PROVIDER, raw={"part_kind": _OF_NEXT, **added})


def _response_parts(parts: Iterable[AssistantPart], tools: WireTools) -> list[wire.ModelResponsePart]:
    from pydantic_ai import messages as wire

    out: list[wire.ModelResponsePart] = []
    added: Json = {}
    for part in parts:
        match part:
            case TextPart():
                out.append(wire.TextPart(content=part.text, **added))
            case ToolCallPart():
                args = tools.wire_arguments(part.name, part.arguments)
                call_id = wire_id(part.id)
                out.append(wire.ToolCallPart(tools.names.wire(part.name), args=args, tool_call_id=call_id, **added))
            case ThinkingPart(raw=raw, provider="pydantic_ai") | ProviderPart(raw=raw, provider="pydantic_ai") if raw:
                if raw.get("part_kind") == _OF_NEXT:
                    added = only_members(raw, _ADDED)
                    continue
                # Given back as it came, since signatures of thoughts are checked by the provider.
                out.append(_adapter().validate_python(dict(raw)))
            case _:
                pass  # another provider's
        added = {}
    return out


def _tool_return(outcome: ToolOutcome, names: NameMap) -> wire.ToolReturnPart:
    from pydantic_ai import messages as wire

    result = outcome.result.for_model()
    if result.content and not result.is_error:
        contents = _contents(result.content)
    else:
        contents = [result.text]
    texts = [one for one in contents if isinstance(one, str)]
    return wire.ToolReturnPart(
        tool_name=names.wire(outcome.name),
        content="\n".join(texts) if len(texts) == len(contents) else contents,
        tool_call_id=wire_id(outcome.call_id),
        outcome="failed" if result.is_error else "success",
    )


def _user_content(blocks: Sequence[ContentBlock]) -> str | list[str | wire.BinaryContent]:
    contents = _contents(blocks)
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    return contents


def _contents(blocks: Iterable[ContentBlock]) -> list[str | wire.BinaryContent]:
    return [_binary(block) or block.render() for block in blocks]


def _binary(block: ContentBlock) -> wire.BinaryContent | None:
    """Return an image, audio or a PDF as binary content; None for a block that every provider gets as text."""
    if not isinstance(block, ImageContent | AudioContent | EmbeddedResource):
        return None
    if isinstance(block, EmbeddedResource) and block.blob is None:
        return None
    try:
        data = block.decode()
    except ValueError:  # what a server calls base64 may be none
        return None
    kind = sniff(data) or block.mime_type
    if kind is None or not kind.startswith(("image/", "audio/", "application/pdf")):
        return None
    from pydantic_ai import messages as wire

    return wire.BinaryContent(data=data, media_type=kind)


@cache
def _adapter() -> pydantic.TypeAdapter[Any]:
    import pydantic
    from pydantic_ai import messages as wire

    return pydantic.TypeAdapter(wire.ModelResponsePart)


_STOPS: Mapping[str | None, StopReason] = {
    "stop": "end",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_call": "tool_calls",
}
_KINDS = (
    ("ModelRateLimitError", "rate_limited"),
    ("ModelQuotaExceededError", "auth"),
    ("ModelUnavailableError", "overloaded"),
    ("ModelServerError", "overloaded"),
    ("ModelTimeoutError", "timeout"),
    ("ModelConnectionError", "unreachable"),
    ("ModelAuthenticationError", "auth"),
    ("ModelContextWindowExceededError", "too_long"),
    ("ModelRequestRejectedError", "invalid_request"),
    ("ContentFilterError", "refused"),
    ("UserError", "invalid_request"),
)
"""Names of its error classes, subclasses first; a version may lack some of them."""


class PydanticAIModel:
    """A model of Pydantic AI: a string such as `"google:gemini-2.5-pro"`, or one of its `Model` objects.

    The provider's keys come from where Pydantic AI looks for them, and its client repeats failed requests. Tools have
    names that every provider takes, and schemas of the provider's profile, which Pydantic AI adapts further; it decides
    by itself which of them are strict. A `ProviderTool` of the provider `"pydantic_ai"` is one of its native tools:
    `{"kind": "web_search"}`.

    Args:
        model: The model.
        tool_schemas: Rules for its tools, in place of those that are known of the API.
        price: Price of its tokens, for a cost limit, if no price list has the model.

    Raises:
        ConfigError: Pydantic AI is not installed.
    """

    def __init__(
        self,
        model: str | wire_models.Model,
        *,
        tool_schemas: ToolRules | None = None,
        price: Price | None = None,
    ) -> None:
        if find_spec("pydantic_ai") is None:
            raise ConfigError("PydanticAIModel needs Pydantic AI: install `toolweave[llm]`", field="model")
        self.price = price
        self._model = model
        schemas = schemas_of_name(self.name, tool_schemas)
        limits = schemas.limits
        self._writer = ToolWriter(
            schemas.plain,
            _members,
            max_tools=limits.max_tools,
            max_description=limits.max_description,
            refused=RefusedTools(repairs=limits.repair),
        )

    @property
    def name(self) -> str:
        """The string, or provider and model of the object."""
        model = self._model
        if isinstance(model, str):
            return model
        return f"{model.system}:{model.model_name}"

    def wire_tools(self, tools: Sequence[ToolSpec]) -> WireTools:
        """Return these tools as Pydantic AI is given them, with the changed and the omitted parts of their schemas."""
        return self._writer.of(tools)

    @property
    def problems(self) -> tuple[str, ...]:
        """The tools that the API refused, and the limits that it reported, each with the consequence."""
        return self._writer.refused.problems

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one turn; `Finished` comes last. Closing the generator ends the request.

        Raises:
            ModelError: The provider refused or could not be reached, a key or the provider's own package is missing.
        """
        repairs = ToolRepairs(self._writer.refused)
        while True:
            splitter = ThoughtSplitter()
            sent = SentTools()
            begun = False
            try:
                async for event in self._events(request, sent):
                    begun = True
                    for ours in split_events(splitter, event, None):
                        yield ours
                return
            except ModelError as exc:
                failed = exc
            except Exception as exc:
                # Boundary: any provider's library.
                failed = self._error(exc, request.settings.timeout)
            if (turn := malformed_turn(failed)) is not None:
                yield turn
                return
            # An answer that has begun cannot be taken back.
            is_repaired = not begun and (repairs.of_named(failed, sent) or repairs.of_unnamed(failed, sent))
            if not is_repaired:
                # Out here, since such an exception may hold the request with its key.
                raise failed

    async def _events(self, request: ModelRequest, sent: SentTools) -> AsyncGenerator[ModelEvent, None]:
        # seconds of importing, which nothing else should wait for
        await anyio.to_thread.run_sync(import_module, "pydantic_ai.direct")
        from pydantic_ai import direct, models

        seconds = request.settings.timeout
        model = self._model = models.infer_model(self._model)
        tools = self._writer.of(request.tools)
        sent.record(request.tools, tools, tools.definitions)
        history = wire_history(request.messages, request.system, tools)
        opening = direct.model_request_stream(
            model,
            history,
            model_settings=self._settings(request, tools),
            model_request_parameters=_parameters(model, request, tools),
        )
        calls: dict[int, str] = {}
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(seconds):
                response = await stack.enter_async_context(opening)
            events = aiter(response)
            while True:
                async with asyncio.timeout(seconds):
                    event = await anext(events, None)
                if event is None:
                    break
                for ours in _events_of_tool(event, tools, calls):
                    yield ours
            finished = _finished(response.get(), tools)
        yield finished

    def _settings(self, request: ModelRequest, tools: WireTools) -> WireSettings:
        settings = request.settings
        wanted = request.tool_choice
        given: Json = {
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stop_sequences": list(settings.stop) or None,
            "parallel_tool_calls": settings.parallel_tool_calls,
            "timeout": settings.timeout,
            "extra_body": dict(settings.extra) or None,
        }
        if wanted in ("none", "required"):
            given["tool_choice"] = wanted
        elif wanted != "auto":
            if wanted not in tools.names.wire_names:
                reason = tools.quarantined.get(wanted, "the request has no such tool")
                message = f"tool_choice {wanted!r} cannot be called: {reason}"
                raise ModelError(message, model=self.name, kind="invalid_request")
            given["tool_choice"] = [tools.names.wire(wanted)]
        return cast("WireSettings", without_none(given))

    def _error(self, exc: Exception, seconds: float) -> ModelError:
        from pydantic_ai import exceptions

        if isinstance(exc, exceptions.ModelHTTPError):
            wait = getattr(exc, "retry_after", None)
            return refusal(self.name, exc.body, status=exc.status_code, retry_after=wait, redact=without_secrets)
        if isinstance(exc, TimeoutError):
            message = f"no sign of life for {seconds:g} s; `ModelSettings.timeout` sets how long to wait"
            return ModelError(message, model=self.name, kind="timeout")
        text = short(without_secrets(str(exc))) or type(exc).__name__
        if isinstance(exc, ImportError):
            return ModelError(f"a package is missing: {text}", model=self.name, kind="invalid_request")
        bases = {base.__name__ for base in type(exc).__mro__}
        kind = next((kind for name, kind in _KINDS if name in bases), "protocol")
        return ModelError(text, model=self.name, kind=kind, retry_after=getattr(exc, "retry_after", None))

    def __repr__(self) -> str:
        return f"PydanticAIModel({self.name!r})"


def _parameters(
    model: wire_models.Model, request: ModelRequest, tools: WireTools
) -> wire_models.ModelRequestParameters:
    import pydantic
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.native_tools import AbstractNativeTool
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    own = [dict(one.definition) for one in request.provider_tools if one.provider == PROVIDER]
    parameters = ModelRequestParameters(
        function_tools=[ToolDefinition(**one) for one in tools.definitions],
        native_tools=[pydantic.TypeAdapter(AbstractNativeTool).validate_python(one) for one in own],
    )
    if request.output_schema is None:
        return parameters
    return replace(
        parameters,
        output_mode="native" if model.profile.get("supports_json_schema_output") else "prompted",
        output_object=OutputObjectDefinition(json_schema=dict(request.output_schema)),
    )


def _members(tool: WireTool) -> Json:
    return {"name": tool.name, "description": tool.description, "parameters_json_schema": dict(tool.schema)}


def _events_of_tool(event: object, tools: WireTools, calls: dict[int, str]) -> Iterator[ModelEvent]:
    """Translate one of its stream events into ours; `calls` maps the part index of each started call to its id."""
    from pydantic_ai import messages as wire

    match event:
        case wire.PartStartEvent(part=wire.TextPart(content=text)) if text:
            yield StreamedText(text=text)
        case wire.PartStartEvent(part=wire.ThinkingPart(content=text)) if text:
            yield StreamedThinking(text=text)
        case wire.PartStartEvent(index=index, part=wire.ToolCallPart() as call):
            calls[index] = call.tool_call_id
            yield StreamedToolCall(id=call.tool_call_id, name=tools.call_name(call.tool_name))
            if call.args:
                yield ToolCallDelta(id=call.tool_call_id, arguments=_text(call.args))
        case wire.PartDeltaEvent(delta=wire.TextPartDelta(content_delta=text)) if text:
            yield StreamedText(text=text)
        case wire.PartDeltaEvent(delta=wire.ThinkingPartDelta(content_delta=str() as text)) if text:
            yield StreamedThinking(text=text)
        case wire.PartDeltaEvent(index=index, delta=wire.ToolCallPartDelta(args_delta=args)) if args and index in calls:
            yield ToolCallDelta(id=calls[index], arguments=_text(args))
        case _:
            pass


def _text(args: object) -> str:
    if isinstance(args, str):
        return args
    return json_text(args)


def _finished(response: wire.ModelResponse, tools: WireTools) -> Finished:
    message = our_message(response.parts, tools)
    usage = _usage(response.usage)
    if response.state == "suspended":
        return Finished(message=message, usage=usage, stop_reason="pause")
    details = response.provider_details or {}
    provider_reason = str(details.get("finish_reason") or response.finish_reason or "")
    reason = _stop_reason(response.finish_reason, provider_reason)
    if message.tool_calls and reason == "end":
        reason = "tool_calls"
    # The provider does not report which call is incomplete. Only the last one can be.
    if message.parts and reason in ("max_tokens", "other", "malformed_call"):
        last = message.parts[-1]
        if isinstance(last, ToolCallPart):
            message = replace(message, parts=(*message.parts[:-1], replace(last, cut=True)))
    detail = None
    if reason in ("other", "malformed_call"):
        detail = short(provider_reason)
    return Finished(message=message, usage=usage, stop_reason=reason, stop_detail=detail)


def _usage(used: RequestUsage) -> Usage:
    usage = Usage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        cache_written_tokens=used.cache_write_tokens,
    )
    if used.cost is not None:
        return replace(usage, cost=float(used.cost))
    return usage


def _stop_reason(finish_reason: str | None, provider_reason: str) -> StopReason:
    """Return our reason for that of Pydantic AI; some malformed calls show only in the provider's own reason."""
    if not finish_reason:
        return "end"
    reason = _STOPS.get(finish_reason, "other")
    if reason == "other" and MALFORMED.search(provider_reason):
        return "malformed_call"
    return reason
