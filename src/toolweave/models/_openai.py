"""`OpenAICompatibleModel`: OpenAI, and every server that speaks its Chat Completions or its Responses.

Imports no LLM package, and the HTTP library at the first request only.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Literal, TypeAlias

from toolweave._json_types import Json, JsonObject
from toolweave._option_checks import check_choice
from toolweave.errors import SchemaError
from toolweave.models._base import ModelEvent, ModelRequest
from toolweave.models._http import BODY, ProviderApi, SecretLike, until_end
from toolweave.models._http_model import HttpModel, call_ids
from toolweave.models._openai_chat import ChatTurn, chat_messages, is_mistral
from toolweave.models._openai_responses import ResponsesTurn, responses_input
from toolweave.models._prices import Price
from toolweave.models._retry import Retry
from toolweave.protocol.sse import ServerSentEvent
from toolweave.providers import SchemaProfile, ToolRules, WireTools, lower
from toolweave.providers._model_apis import OPENAI_HOST
from toolweave.providers._openai_content import chat_form, responses_form
from toolweave.providers._refused_tools import RefusedTools
from toolweave.providers._tool_schemas import schemas_for
from toolweave.providers._wire_tools import ToolWriter
from toolweave.tools import ToolSpec

OPENAI_URL = "https://api.openai.com/v1"
"""OpenAI's own API."""

_REASONS = re.compile(r"(o\d|codex|gpt-(?:[5-9]|\d\d))(?!.*chat)")
_DONE = b"[DONE]"

_TurnParser: TypeAlias = ChatTurn | ResponsesTurn


class OpenAICompatibleModel(HttpModel):
    """A model behind OpenAI's API, or behind one of the same shape: Ollama, llama.cpp, vLLM, LM Studio, OpenRouter.

    Holds one HTTP client, opened at the first request and closed by `aclose()` or at the end of `async with`.

    Attributes:
        name: `"openai:MODEL"`, or `"URL#MODEL"` for a server without a provider's name.
        provider: Provider whose `ProviderTool`s and thoughts are sent: the given name, else `"openai"` or the URL.
        price: Price of its tokens, for a cost limit, if no price list has the model; None asks the list.

    Raises:
        ValueError: The URL is not an HTTP URL or holds credentials, a header cannot be sent, or there is no such `api`.
    """

    def __init__(  # noqa: PLR0913 - keyword-only, each with a default
        self,
        base_url: str = OPENAI_URL,
        *,
        model: str,
        api_key: str | SecretLike | None = None,
        api: Literal["chat", "responses"] = "chat",
        provider: str | None = None,
        headers: Mapping[str, str | SecretLike] | None = None,
        tool_schemas: SchemaProfile | ToolRules | None = None,
        retry: Retry | None = None,
        price: Price | None = None,
    ) -> None:
        self.price = price
        self._model = model
        check_choice("api", api, ("chat", "responses"))
        self._responses = api == "responses"
        sent: dict[str, str | SecretLike] = dict(headers or {})
        if api_key is not None:
            sent["authorization"] = f"Bearer {api_key if isinstance(api_key, str) else api_key.reveal()}"
        server = ProviderApi(base_url, model=f"{provider or 'openai'}:{model}", headers=sent)
        self._is_openai = server.host == OPENAI_HOST
        self.provider: str = provider or ("openai" if self._is_openai else server.url)
        server.model = self.name
        self._is_mistral = is_mistral(self.provider, model)
        self._schemas = schemas_for(base_url, model, provider, tool_schemas)
        refused = RefusedTools(repairs=self._schemas.limits.repair)
        writers = self._writer(None, refused), self._writer(self._schemas.strict, refused)
        super().__init__(server, writers, retry)
        if self._responses:
            self._inline_provider = None
        else:
            self._inline_provider = self.provider

    def _writer(self, strict: SchemaProfile | None, refused: RefusedTools) -> ToolWriter:
        return ToolWriter(
            self._schemas.plain,
            responses_form if self._responses else chat_form,
            strict=strict,
            max_description=self._schemas.limits.max_description,
            max_tools=self._schemas.limits.max_tools,
            refused=refused,
        )

    @property
    def max_tools(self) -> int | None:
        """Maximum number of tools in a request, or None if no limit is known; the rest is left out."""
        return self._writers[0].max_tools

    @property
    def name(self) -> str:
        """Provider and model."""
        between = "#" if "://" in self.provider else ":"
        return f"{self.provider}{between}{self._model}"

    def wire_tools(self, tools: Sequence[ToolSpec], *, strict: bool = False) -> WireTools:
        """Return these tools in the API's form; see `HttpModel.wire_tools`."""
        return super().wire_tools(tools, strict=strict or self._schemas.always_strict)

    def body(self, request: ModelRequest) -> Json:
        """Return the members of the request's body; the tools are JSON already."""
        request = self._unsupported.adapted(request)
        return self._body(request, self.wire_tools(request.tools, strict=request.settings.strict_tools))

    def _body(self, request: ModelRequest, tools: WireTools) -> Json:
        body: Json = {"model": self._model, "stream": True}
        body |= self._responses_members(request, tools) if self._responses else self._chat_members(request, tools)
        own = (dict(one.definition) for one in request.provider_tools if one.provider == self.provider)
        definitions = [*tools.encoded, *own]
        if definitions:
            body["tools"] = definitions
            body |= self._choice(request, tools)
        if request.output_schema is not None:
            body |= self._output(request.output_schema)
        settings = request.settings
        for name, value in (("temperature", settings.temperature), ("top_p", settings.top_p)):
            if value is not None:
                body[name] = value
        # Last: members that the owner gave win over ours, since an API may have a newer form of them.
        return body | dict(settings.extra)

    def _chat_members(self, request: ModelRequest, wire: WireTools) -> Json:
        body: Json = {
            "messages": chat_messages(
                request, wire, self.provider, images=self._unsupported.images, mistral=self._is_mistral
            )
        }
        if not self._is_mistral:  # which always reports usage, and refuses unknown members
            body["stream_options"] = {"include_usage": True}
        if request.settings.stop:
            body["stop"] = list(request.settings.stop)
        if request.settings.max_tokens is not None:
            # the old name is what other servers know, the new one what OpenAI's reasoning models want
            body["max_completion_tokens" if self._is_openai else "max_tokens"] = request.settings.max_tokens
        return body

    def _responses_members(self, request: ModelRequest, wire: WireTools) -> Json:
        body: Json = {"input": responses_input(request, wire, self.provider), "store": False}
        if _REASONS.match(self._model.rpartition("/")[2]):
            # Refused for the models that do not reason.
            body["include"] = ["reasoning.encrypted_content"]
        if request.system:
            body["instructions"] = request.system
        if request.settings.max_tokens is not None:
            body["max_output_tokens"] = request.settings.max_tokens
        return body

    def _choice(self, request: ModelRequest, wire: WireTools) -> Json:
        out: Json = {}
        if request.settings.parallel_tool_calls is not None:
            out["parallel_tool_calls"] = request.settings.parallel_tool_calls
        choice = request.tool_choice
        if choice in ("none", "required"):
            out["tool_choice"] = choice
        elif choice != "auto":
            named = {"name": wire.names.wire(choice)}
            out["tool_choice"] = {"type": "function", **(named if self._responses else {"function": named})}
        return out

    def _output(self, schema: JsonObject) -> Json:
        named: Json = {"name": "output", "schema": dict(schema), "strict": False}
        try:
            lowered = lower(schema, self._schemas.strict or "compatible-strict")
        except SchemaError:
            lowered = None
        # a null that strict mode makes the model write would not fit the schema that the answer is checked with
        if lowered is not None and not lowered.fillers:
            named |= {"schema": lowered.schema, "strict": True}
        if self._responses:
            return {"text": {"format": {"type": "json_schema", **named}}}
        return {"response_format": {"type": "json_schema", "json_schema": named}}

    async def _attempt(self, request: ModelRequest, tools: WireTools, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        turn = (ResponsesTurn if self._responses else ChatTurn)(tools, self.provider, taken=call_ids(request))
        path = "responses" if self._responses else "chat/completions"
        timeout = request.settings.timeout
        async with aclosing(self._api.events(path, body, timeout=timeout)) as events:
            done = False
            async for event in until_end(events, lambda: turn.complete, timeout=timeout):
                done = event.data == _DONE
                if not done:
                    for one in self._events_of(turn, event):
                        yield one
                    # Of a chat the usage is still to come.
                    done = event.type == BODY
                    if isinstance(turn, ResponsesTurn):
                        done = turn.complete
                if done:
                    await self._api.drain(events)
                    break
        # A turn that has content and ends with `[DONE]` counts, although its finish reason is missing: local servers
        # leave it out.
        if not turn.complete and (turn.empty or not done):
            raise self._api.broken_off()
        for one in turn.finish():
            yield one

    def _events_of(self, turn: _TurnParser, event: ServerSentEvent) -> Iterator[ModelEvent]:
        chunk = self._api.decode(event.data)
        is_error = event.type == "error" and chunk.keys().isdisjoint({"response", "choices"})
        if is_error or chunk.get("error"):
            raise self._api.refusal(chunk)
        if event.type.startswith("response."):
            chunk = {"type": event.type, **chunk}
        yield from turn.read(chunk)
        if turn.failure is not None:
            raise self._api.refusal(turn.failure)

    def __repr__(self) -> str:
        return f"OpenAICompatibleModel({self._api.url!r}, model={self._model!r})"
