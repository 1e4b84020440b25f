"""Anthropic's Messages API as a streaming model, over plain HTTP; needs no package of Anthropic's."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from toolweave._json_types import Json, JsonObject, text_or_empty, without_none
from toolweave._option_checks import check_choice
from toolweave.errors import ConfigError, ModelError, SchemaError
from toolweave.models._anthropic_messages import CONTAINER, PROVIDER, container_id, tools_used, wire_messages
from toolweave.models._anthropic_turn import TurnReader
from toolweave.models._base import ModelEvent, ModelRequest, ModelSettings
from toolweave.models._http import BODY, ProviderApi, SecretLike, until_end
from toolweave.models._http_model import HttpModel, call_ids
from toolweave.models._prices import Price
from toolweave.models._refused_features import prompted
from toolweave.models._retry import Retry
from toolweave.providers import SchemaProfile, ToolRules, WireTools, lower
from toolweave.providers._anthropic_content import anthropic_form, anthropic_text
from toolweave.providers._refused_tools import RefusedTools
from toolweave.providers._tool_schemas import ToolSchemas, schemas_for
from toolweave.providers._wire_tools import ToolWriter
from toolweave.tools import ToolSpec

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
_HOST = "api.anthropic.com"
_PATH = "v1/messages"
_MAX_TOKENS = 16_384
_SEARCH_TYPES = ("tool_search_tool_regex", "tool_search_tool_bm25")
_MIN_THOUGHT = 1024
_THINKING_TOP_P = 0.95
_CODE = "code_execution"
_SEARCH_TOOL = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


class AnthropicModel(HttpModel):
    """A Claude model behind Anthropic's Messages API, or behind a server that speaks it.

    Text, thoughts and tool calls are streamed. Results of tools keep their images and documents; what the API does not
    accept becomes a visible note. A turn is sent again on HTTP 429, 529 and 5xx, as `retry` says.

    Args:
        model: The model's id, such as `"claude-sonnet-4-5"`.
        api_key: A string, or anything with `reveal()`; for Anthropic's own API the environment's `ANTHROPIC_API_KEY`
            by default.
        base_url: URL of the API, with or without the `/v1` at its end.
        max_tokens: Default of the request's `max_tokens`, which the API requires.
        thinking: A budget in tokens, at least 1024, `"adaptive"`, or None for the model's default. A `max_tokens` that
            is not larger reduces it, or turns it off; a thinking model takes no `temperature`.
        cache: Lifetime of the provider's prompt cache for the conversation's beginning, or None for no cache.
        headers: Further headers, such as `anthropic-beta`, or `authorization` in place of an API key.
        tool_schemas: Profile of schemas, or rules for the tools of a request, in place of those known of the API.
        retry: Policy for failed requests.
        price: Price of its tokens, for a cost limit, if no price list has the model.

    Attributes:
        origin: Marker of the thoughts, call ids and other parts of a conversation that only this server understands:
            `"anthropic"` for Anthropic's own API, the URL of another server.
        native_tool_search: Whether the provider searches deferred tools; true of Anthropic's own API, settable for
            another server that has it.

    Raises:
        ConfigError: There is no API key for Anthropic's own API, or `base_url` is not a URL.
        ValueError: There is no such `cache`.
    """

    def __init__(  # noqa: PLR0913 - each has a default, except the model
        self,
        model: str,
        api_key: str | SecretLike | None = None,
        base_url: str = BASE_URL,
        *,
        max_tokens: int = _MAX_TOKENS,
        thinking: int | Literal["adaptive"] | None = None,
        cache: Literal["5m", "1h"] | None = "5m",
        headers: Mapping[str, str | SecretLike] | None = None,
        tool_schemas: SchemaProfile | ToolRules | None = None,
        retry: Retry | None = None,
        price: Price | None = None,
    ) -> None:
        self.model = model
        self.price = price
        self.max_tokens = max_tokens
        self._thinking = _thinking(thinking)
        check_choice("cache", cache, ("5m", "1h", None))
        if cache is None:
            self._cache = None
        else:
            self._cache = {"type": "ephemeral", **({"ttl": cache} if cache != "5m" else {})}
        self._schemas = schemas_for(base_url, model, PROVIDER, tool_schemas)
        super().__init__(_api(self.name, base_url, api_key, headers or {}), _writers(self._schemas), retry)
        if self._api.host == _HOST:
            self.origin: str = PROVIDER
        else:
            self.origin = self._api.url
        self.native_tool_search: bool = self._api.host == _HOST

    @property
    def name(self) -> str:
        """`"anthropic:"` and the model's id."""
        return f"{PROVIDER}:{self.model}"

    def wire_tools(self, tools: Sequence[ToolSpec], *, strict: bool = False) -> WireTools:
        """Return these tools in the API's form; see `HttpModel.wire_tools`."""
        return super().wire_tools(tools, strict=strict or self._schemas.always_strict)

    async def _attempt(self, request: ModelRequest, tools: WireTools, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        turn = TurnReader(tools, self.origin, taken=call_ids(request))
        timeout = request.settings.timeout
        async with aclosing(self._api.events(_PATH, body, timeout=timeout)) as events:
            async for event in until_end(events, lambda: turn.ended, timeout=timeout):
                members = self._api.decode(event.data)
                if event.type == "error" or members.get("type", "error") == "error":
                    raise self._api.refusal(members)
                try:
                    if event.type == BODY:
                        ours = turn.read_message(members)
                    else:
                        ours = turn.read(members)
                except ValueError as exc:
                    raise self._api.protocol(str(exc)) from exc
                for one in ours:
                    yield one
                if turn.complete:
                    break
        # A stream that ends early looks like one that is complete: only the stop reason proves that. Without it
        # the turn may lack a tool call, or half of one, so it is not used.
        if not turn.ended:
            raise self._api.broken_off()
        yield turn.finished()

    def _body(self, request: ModelRequest, tools: WireTools) -> Json:
        output = None
        if request.output_schema is not None:
            output = _format(request.output_schema)
        if output is None:
            # The API has no keywords for some schemas.
            request = prompted(request)
        settings = request.settings
        messages = wire_messages(request.messages, tools, self.origin)
        choice = self._tool_choice(request, tools)
        body: Json = {
            "model": self.model,
            "max_tokens": settings.max_tokens or self.max_tokens,
            "stream": True,
            "messages": messages,
        }
        if request.system and request.system.strip():
            body["system"] = [anthropic_text(request.system)]
        deferred = request.deferred if self.native_tool_search else ()
        definitions = _definitions(request, tools, messages, deferred)
        if definitions:
            body["tools"] = definitions
            body["tool_choice"] = choice
        thinking = _within(self._thinking, body["max_tokens"])
        if thinking is not None and _may_think(thinking, choice, messages):
            body["thinking"] = thinking
        body |= _sampling_parameters(settings, thinks="thinking" in body)
        if output is not None:
            body["output_config"] = {"format": output}
        container = self._container(request)
        if container is not None:
            body[CONTAINER] = container
        if self._cache is not None:
            _mark(body, self._cache)
        return {**body, **settings.extra}

    def _container(self, request: ModelRequest) -> str | None:
        """Return the container in which the provider's code ran before, if a tool of the request runs code."""
        for tool in request.provider_tools:
            if text_or_empty(tool.definition.get("type")).startswith(_CODE):
                return container_id(request.messages, self.origin, now=time.time())
        return None

    def _tool_choice(self, request: ModelRequest, tools: WireTools) -> Json:
        wanted = request.tool_choice
        if not tools.definitions and not request.provider_tools:
            # Only for tool calls of the conversation.
            return {"type": "none"}
        if wanted == "none":
            return {"type": "none"}
        choice: Json = {"type": {"auto": "auto", "required": "any"}.get(wanted, "tool")}
        if choice["type"] == "tool":
            if wanted not in tools.names.wire_names:
                reason = tools.quarantined.get(wanted, "the request has no such tool")
                message = f"tool_choice {wanted!r} cannot be called: {reason}"
                raise ModelError(message, model=self.name, kind="invalid_request")
            choice["name"] = tools.names.wire(wanted)
        if request.settings.parallel_tool_calls is False:
            choice["disable_parallel_tool_use"] = True
        return choice

    def __repr__(self) -> str:
        return f"AnthropicModel({self.model!r})"


def _writers(schemas: ToolSchemas) -> tuple[ToolWriter, ToolWriter]:
    limits = schemas.limits
    refused = RefusedTools(repairs=limits.repair)

    def writer(strict: SchemaProfile | None) -> ToolWriter:
        return ToolWriter(
            schemas.plain,
            anthropic_form,
            strict=strict,
            max_description=limits.max_description,
            max_tools=limits.max_tools,
            refused=refused,
        )

    return writer(None), writer(schemas.strict)


def _api(
    name: str, base_url: str, api_key: str | SecretLike | None, headers: Mapping[str, str | SecretLike]
) -> ProviderApi:
    sent: dict[str, str | SecretLike] = {"anthropic-version": API_VERSION}
    official = urlsplit(base_url).hostname == _HOST
    # No other host is sent the user's key.
    key = api_key or (os.environ.get(KEY_VARIABLE) if official else None)
    if key:
        sent["x-api-key"] = key
    elif official and "authorization" not in {header.lower() for header in headers}:
        raise ConfigError(f"model {name!r} needs an API key: set {KEY_VARIABLE} or pass `api_key`", field="api_key")
    base_url = base_url.rstrip("/").removesuffix("/v1")
    try:
        return ProviderApi(base_url, model=name, headers={**sent, **headers})
    except ValueError as exc:
        raise ConfigError(str(exc), field="base_url") from exc


def _thinking(wanted: int | Literal["adaptive"] | None) -> Json | None:
    if wanted is None:
        return None
    if wanted == "adaptive":
        return {"type": "adaptive"}
    return {"type": "enabled", "budget_tokens": wanted}


def _sampling_parameters(settings: ModelSettings, *, thinks: bool) -> Json:
    """Return the parameters of sampling: a thinking model accepts no temperature, and a `top_p` from 0.95 on."""
    made: Json = {"temperature": settings.temperature, "top_p": settings.top_p}
    if thinks:
        made["temperature"] = None
        if settings.top_p is not None and settings.top_p < _THINKING_TOP_P:
            made["top_p"] = None
    if settings.stop:
        made["stop_sequences"] = list(settings.stop)
    return without_none(made)


def _within(thinking: Json | None, max_tokens: int) -> Json | None:
    """Return the `thinking` member within `max_tokens`, towards which thoughts count; None if none fits."""
    if thinking is None:
        return None
    budget = thinking.get("budget_tokens")
    # The API refuses a budget that is not below `max_tokens`. A smaller limit of one request is obeyed, and the
    # thoughts give way: an owner who bounds the cost does not want an error.
    if budget is None or budget < max_tokens:
        return thinking
    if max_tokens > _MIN_THOUGHT:
        return {**thinking, "budget_tokens": max_tokens - 1}
    return None


def _format(schema: JsonObject) -> Json | None:
    try:
        lowered = lower(schema, "anthropic-strict")
    except SchemaError:
        return None
    return {"type": "json_schema", "schema": lowered.schema}


def _may_think(thinking: Json, choice: Json, messages: list[Json]) -> bool:
    """Return whether the API lets the model think in this request.

    It does not if a tool is forced, nor, with a budget, in the middle of a turn that began without a thought
    (such as one of another model).
    """
    if choice["type"] in ("any", "tool"):
        return False
    if thinking["type"] == "adaptive":
        return True
    if not messages or messages[-1]["content"][0]["type"] != "tool_result":
        return True
    begun = cast("list[Json]", messages[-2]["content"])
    return begun[0]["type"] in ("thinking", "redacted_thinking")


def _definitions(request: ModelRequest, tools: WireTools, messages: list[Json], names: Collection[str]) -> list[Any]:
    own = [dict(one.definition) for one in request.provider_tools if one.provider == PROVIDER]
    deferred = {tools.names.wire_names.get(name) for name in names} - {None}
    if deferred:
        if not any(str(one.get("type", "")).startswith(_SEARCH_TYPES) for one in own):
            own.append(dict(_SEARCH_TOOL))
        for definition in tools.definitions:
            sent = dict(definition)
            if definition["name"] in deferred:
                sent["defer_loading"] = True
            own.append(sent)
        return own
    if own or tools.encoded:
        return [*own, *tools.encoded]
    # The API refuses a conversation with tool calls if their tools are not listed.
    return [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in tools_used(messages)]


def _mark(body: Json, cache: JsonObject) -> None:
    """Set the cache breakpoints: after the tools and the system prompt, and after the conversation so far."""
    # A prefix is cached up to each mark. What stays the same for a whole run ends at the first one, and the last one
    # moves with the conversation: the next turn reads what this one wrote. Tools stand before the system prompt, so one
    # mark serves both.
    if "system" in body:
        body["system"][-1]["cache_control"] = cache
    last = body["messages"][-1] if body["messages"] else None
    if last is not None and last["role"] == "user":
        last["content"][-1]["cache_control"] = cache
