"""Requests that a server makes of its client, and their answers: elicitation, sampling, roots; to JSON and from JSON.

A legacy server sends them itself, a modern one puts them into its result (`input_required.py`). The JSON is the same
except for one member. A peer's messages are untrusted: readers raise `ValueError` with the rule of the specification,
and the caller decides which error that becomes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_array,
    as_object,
    as_text,
    object_entries,
    object_or_empty,
    text_or_empty,
)
from toolweave._text import one_line
from toolweave._value import Value
from toolweave.errors import RequestError, SchemaError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.content import ContentBlock, block_json, content_block
from toolweave.protocol.uris import web_address_problem

__all__ = [
    "ABILITIES",
    "CAPABILITY_OF",
    "ELICITATION_ID",
    "REJECTED",
    "REQUESTED_SCHEMA",
    "STOPPED_AT_END",
    "STOPPED_AT_TOKENS",
    "STOPPED_FOR_TOOLS",
    "Askable",
    "ElicitationRequest",
    "ElicitationResult",
    "Elicited",
    "Root",
    "RootLike",
    "SamplingMessage",
    "SamplingResult",
    "can_answer",
    "capabilities_for",
    "check_form",
    "elicitation_request",
    "elicitation_result_json",
    "form_params",
    "message_content_json",
    "needs_of",
    "page_params",
    "pages_data",
    "read_elicitation_result",
    "read_roots",
    "read_sampling_result",
    "refused_by_expiry",
    "required_pages",
    "roots_json",
    "sampling_fields",
    "sampling_message_json",
    "sampling_params",
    "sampling_result_json",
    "sampling_stops",
    "visited_params",
    "wants_tools",
]

FormT = TypeVar("FormT")

# Capabilities

Askable = Literal["elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context", "roots"]
"""The abilities that a client may declare; `elicitation` is forms."""

ABILITIES: Mapping[Askable, JsonObject] = {
    "elicitation": {"elicitation": {"form": {}}},
    "elicitation.url": {"elicitation": {"url": {}}},
    "sampling": {"sampling": {}},
    "sampling.tools": {"sampling": {"tools": {}}},
    "sampling.context": {"sampling": {"context": {}}},
    "roots": {"roots": {}},
}
"""The client capabilities behind each of them."""

CAPABILITY_OF: Mapping[str, str] = {
    methods.SAMPLING_CREATE_MESSAGE: "sampling",
    methods.ELICITATION_CREATE: "elicitation",
    methods.ROOTS_LIST: "roots",
}
"""The capability of a client that answers a method."""


def capabilities_for(askable: Iterable[Askable]) -> Json:
    """Return the capabilities of a client that answers all of these."""
    made: Json = {}
    for one in askable:
        for name, parts in ABILITIES[one].items():
            made[name] = {**made.get(name, {}), **parts}
    return made


def can_answer(needs: JsonObject, declared: JsonObject) -> bool:
    """Whether a client with these capabilities may get a request that needs those abilities."""
    for name, parts in needs.items():
        offered = as_object(declared.get(name))
        if offered is None:
            return False
        if not offered and name == "elicitation":
            offered = ABILITIES["elicitation"]["elicitation"]  # `{}` has meant forms since 2025-06-18
        if any(as_object(offered.get(part)) is None for part in parts):
            return False
    return True


def needs_of(method: str, params: JsonObject) -> JsonObject:
    """Return the capabilities that a client needs for a server's request; none for a method that is not one of these.

    Revisions before 2025-11-25 have no `mode`: each of their elicitations is a form.
    """
    if method == methods.ELICITATION_CREATE:
        return ABILITIES["elicitation.url" if params.get("mode") == "url" else "elicitation"]
    if method == methods.SAMPLING_CREATE_MESSAGE:
        return ABILITIES["sampling.tools" if params.get("tools") else "sampling"]
    if method == methods.ROOTS_LIST:
        return ABILITIES["roots"]
    return {}


REJECTED = -1
"""The code of a sampling request that the user turned down (client/sampling, Error Handling)."""


# Elicitation

ELICITATION_ID = "elicitationId"
"""The member that names a visit to a page (2025-11-25)."""
REQUESTED_SCHEMA = "requestedSchema"
"""The parameter with the form."""


class ElicitationRequest(Value, frozen=True, kw_only=True):
    """A server's request for input of the user (`elicitation/create`).

    Attributes:
        server: The name of the requesting server; show it, so that the user knows where the answer goes.
        mode: `"form"`: fill in `schema`. `"url"`: let the user visit `url`, which must not be opened without consent.
        schema: JSON Schema of the form: an object of primitive properties.
        elicitation_id: Names the visit in `notifications/elicitation/complete` (2025-11-25).
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw"})
    server: str
    mode: Literal["form", "url"]
    message: str
    schema: JsonObject = msgspec.field(default_factory=Json)
    url: str | None = None
    elicitation_id: str | None = None
    raw: JsonObject = msgspec.field(default_factory=Json)


class ElicitationResult(Value, frozen=True, kw_only=True):
    """A decision of the user; `content` holds the values of an accepted form."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"

    @classmethod
    def accept(cls, content: JsonObject | None = None) -> ElicitationResult:
        """Return the acceptance, with the values of the form if it is one."""
        return cls(action="accept", content=content)

    @classmethod
    def decline(cls) -> ElicitationResult:
        """Return the user's explicit refusal."""
        return cls(action="decline")

    @classmethod
    def cancel(cls) -> ElicitationResult:
        """Return the decision of a user who dismissed the request without an answer."""
        return cls(action="cancel")


class Elicited(ElicitationResult, Generic[FormT], frozen=True, kw_only=True):
    """A decision of the user on a form made of a model; `value` is an instance of it when the form was accepted."""

    value: FormT | None = None


def form_params(message: str, schema: JsonObject) -> Json:
    """Return the parameters of a request to fill in a form; without a mode, which older revisions do not know."""
    return {"message": message, REQUESTED_SCHEMA: schema}


def page_params(message: str, url: str, *, modern: bool, visit: str | None = None) -> Json:
    """Return the parameters of a request to visit a page; only 2025-11-25 has an id of the visit.

    Raises:
        ValueError: The URL is not an address of the web that a person can be sent to.
    """
    problem = web_address_problem(url)
    if problem is not None:
        raise ValueError(f"the user cannot be asked to visit {one_line(url, 200)!r}: {problem}")
    page: Json = {"mode": "url", "message": message, "url": url}
    if modern:
        return page
    return page | visited_params(visit or uuid.uuid4().hex)


def visited_params(visit: str) -> Json:
    """Return the parameters of the notification of 2025-11-25 that a page was visited to its end."""
    return {"elicitationId": visit}


def pages_data(*pages: JsonObject) -> Json:
    """Return the data of the error of 2025-11-25 for pages that have to be visited before a request is repeated."""
    return {"elicitations": list(pages)}


def elicitation_request(params: JsonObject, *, server: str) -> ElicitationRequest:
    """Return the request that a server made.

    Raises:
        ValueError: Its mode is unknown, or its URL is not an address that a person can be sent to.
    """
    mode = params.get("mode", "form")
    if mode not in ("form", "url"):
        raise ValueError("an elicitation has mode 'form' or 'url'")
    url: str | None = None
    if mode == "url":
        url = text_or_empty(params.get("url"))
        problem = web_address_problem(url)
        if problem is not None:
            shown = one_line(url, 200)
            raise ValueError(f"an elicitation of mode 'url' has a web address, and {shown!r} is not one: {problem}")
    return ElicitationRequest(
        server=server,
        mode=mode,
        message=text_or_empty(params.get("message")),
        schema=object_or_empty(params.get(REQUESTED_SCHEMA)),
        url=url,
        elicitation_id=as_text(params.get("elicitationId")),
        raw=params,
    )


def required_pages(data: object) -> list[JsonObject]:
    """Return the requests to visit pages in the data of the error `URL_ELICITATION_REQUIRED` (2025-11-25)."""
    pages = array_or_empty(object_or_empty(data).get("elicitations"))
    return [{**object_or_empty(page), "mode": "url"} for page in pages]


def elicitation_result_json(result: ElicitationResult) -> Json:
    """Return the answer to a request, with the values of the form if there are any."""
    made: Json = {"action": result.action}
    if result.content is None:
        return made
    return made | {"content": dict(result.content)}


def read_elicitation_result(answer: object, *, form: bool) -> ElicitationResult:
    """Return the decision that a client sent.

    Args:
        answer: The result of the request.
        form: Whether the request was a form: an accepted answer then has content, which may be empty.

    Raises:
        ValueError: The answer is not an elicitation result.
    """
    result = _object(answer, "an elicitation result")
    action = result.get("action")
    content = result.get("content")
    if action not in ("accept", "decline", "cancel"):
        raise ValueError("an elicitation result has an action 'accept', 'decline' or 'cancel'")
    if action != "accept" or not form:
        return ElicitationResult(action=action)
    if content is None:
        return ElicitationResult.accept({})
    return ElicitationResult.accept(_object(content, "the content of an accepted form"))


_PRIMITIVES = frozenset({"string", "number", "integer", "boolean"})


def check_form(schema: JsonObject, *, what: str = "a form") -> Json:
    """Return the schema of a form as it was given, with `properties`.

    Args:
        schema: JSON Schema with the keywords that the specification allows: an object of flat fields.
        what: The name of the form in error messages.

    Raises:
        SchemaError: It has a field that no form can have, such as an object; names the field.
    """
    fields = as_object(schema.get("properties", {}))
    if schema.get("type") != "object" or fields is None:
        raise SchemaError(f"{what} must be a schema of type 'object' with 'properties'")
    for name, described in fields.items():
        if not _is_flat(object_or_empty(described)):
            raise SchemaError(
                f"{what} has a field {name!r} that no form can have; "
                "fields are texts, numbers, booleans, or choices from a list of texts",
                pointer=f"/properties/{name}",
            )
    return {"properties": {}, **schema}


def _is_flat(described: JsonObject) -> bool:
    kind = as_text(described.get("type"))
    if kind == "array":
        items = object_or_empty(described.get("items"))
        return "enum" in items or "anyOf" in items
    choices = as_array(described.get("enum", []))
    if kind not in _PRIMITIVES or choices is None:
        return False
    return all(isinstance(choice, str) for choice in choices)


# Sampling


class SamplingMessage(Value, frozen=True, kw_only=True):
    """One message of a conversation that a language model continues; untrusted when it came from a server.

    Attributes:
        role: `"user"` or `"assistant"`.
        content: Its blocks; tool use and tool results are `UnknownContent` with the whole block in `raw`.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw"})
    role: str
    content: tuple[ContentBlock, ...]
    raw: JsonObject = msgspec.field(default_factory=Json)

    @property
    def text(self) -> str:
        """The blocks as text, one under the other."""
        return "\n".join(block.render() for block in self.content)


STOPPED_AT_END = "endTurn"
STOPPED_AT_TOKENS = "maxTokens"
STOPPED_FOR_TOOLS = "toolUse"
"""The stop reasons of the specification that a model has for itself."""


class SamplingResult(Value, frozen=True, kw_only=True):
    """An answer of the language model.

    Attributes:
        content: A text, a content block, a block as a JSON object, or a sequence of blocks; always a tuple of
            blocks where a handler receives it.
        model: The name of the model that gave it.
        stop_reason: `"endTurn"`, `"stopSequence"`, `"maxTokens"`, `"toolUse"` or the provider's own word.
    """

    content: str | ContentBlock | JsonObject | Sequence[ContentBlock | JsonObject]
    model: str = "unknown"
    stop_reason: str | None = "endTurn"
    role: str = "assistant"

    @property
    def text(self) -> str:
        """The blocks as text, one under the other."""
        blocks = _blocks(message_content_json(self.content))
        return "\n".join(block.render() for block in blocks)


def _blocks(content: object) -> tuple[ContentBlock, ...]:
    """Return the blocks of a message, whose content is one block or an array of blocks."""
    items = as_array(content)
    if items is None:
        items = [content]
    return tuple(map(content_block, items))


def message_content_json(content: Any) -> Any:
    """Return the content of a message: one block as an object, more of them as an array."""
    if isinstance(content, str):
        return {"type": "text", "text": content}
    if isinstance(content, Sequence):
        blocks = list(map(message_content_json, cast("Sequence[Any]", content)))
        # older revisions know no array
        if len(blocks) == 1:
            return blocks[0]
        return blocks
    if isinstance(content, Mapping):
        return dict(cast("JsonObject", content))
    return block_json(content)


def sampling_message_json(message: str | SamplingMessage | JsonObject) -> Json:
    """Return one message of the conversation; a bare text is the user's, an object is sent unchanged."""
    if isinstance(message, str):
        return {"role": "user", "content": message_content_json(message)}
    if isinstance(message, SamplingMessage):
        return {"role": message.role, "content": message_content_json(message.content)}
    return dict(message)


def sampling_params(
    messages: Iterable[str | SamplingMessage | JsonObject],
    max_tokens: int,
    *,
    system_prompt: str | None = None,
    temperature: float | None = None,
    stop_sequences: Sequence[str] = (),
    tools: Sequence[JsonObject] = (),
    tool_choice: str | None = None,
    more: JsonObject | None = None,
) -> Json:
    """Return the parameters of a request.

    Args:
        messages: The conversation so far.
        max_tokens: The maximum of tokens to generate.
        system_prompt: As the specification has it.
        temperature: As the specification has it.
        stop_sequences: As the specification has it.
        tools: Definitions of the tools that the model may use.
        tool_choice: `"auto"`, `"required"` or `"none"`.
        more: Other members, such as `modelPreferences`.
    """
    made: Json = dict(more or {})
    made["messages"] = list(map(sampling_message_json, messages))
    made["maxTokens"] = max_tokens
    if system_prompt is not None:
        made["systemPrompt"] = system_prompt
    if temperature is not None:
        made["temperature"] = temperature
    if stop_sequences:
        made["stopSequences"] = list(stop_sequences)
    if tools:
        made["tools"] = list(tools)
    if tool_choice is not None:
        made["toolChoice"] = {"mode": tool_choice}
    return made


def sampling_fields(params: JsonObject) -> Json:
    """Return the members of a request that a server made, without the tools, by the names of `SamplingRequest`.

    Raises:
        ValueError: It has no list of messages.
    """
    messages = as_array(params.get("messages"))
    if messages is None:
        raise ValueError("a sampling request needs a list of messages")
    max_tokens = params.get("maxTokens")
    temperature = params.get("temperature")
    return {
        "messages": tuple(map(_sampling_message, object_entries(messages))),
        "system_prompt": as_text(params.get("systemPrompt")),
        "max_tokens": max_tokens if isinstance(max_tokens, int) else None,
        "temperature": float(temperature) if isinstance(temperature, (int, float)) else None,
        "tool_choice": as_text(object_or_empty(params.get("toolChoice")).get("mode")) or "auto",
        "raw": params,
    }


def sampling_stops(params: JsonObject) -> tuple[str, ...]:
    """Return the texts at which a request wants the answer to stop."""
    texts = map(text_or_empty, array_or_empty(params.get("stopSequences")))
    return tuple(filter(None, texts))


def wants_tools(params: JsonObject) -> bool:
    """Whether a request mentions tools, which only a client with `sampling.tools` may get."""
    return "tools" in params or "toolChoice" in params


def _sampling_message(raw: JsonObject) -> SamplingMessage:
    return SamplingMessage(
        role=as_text(raw.get("role")) or "user",
        content=_blocks(raw.get("content")),
        raw=raw,
    )


def sampling_result_json(result: SamplingResult) -> Json:
    """Return the answer to a request."""
    made: Json = {"role": result.role, "content": message_content_json(result.content), "model": result.model}
    if result.stop_reason is None:
        return made
    return made | {"stopReason": result.stop_reason}


def read_sampling_result(answer: object) -> SamplingResult:
    """Return the answer that a client sent.

    Raises:
        ValueError: The answer is not a sampling result.
    """
    result = _object(answer, "a sampling result")
    content = as_object(result.get("content")) or as_array(result.get("content"))
    model = as_text(result.get("model"))
    if not content or model is None:
        raise ValueError("a sampling result has 'content', a block or blocks, and 'model', a text")
    return SamplingResult(
        content=_blocks(content),
        model=model,
        stop_reason=as_text(result.get("stopReason")),
        role="user" if result.get("role") == "user" else "assistant",
    )


# Roots


class Root(Value, frozen=True, kw_only=True):
    """A directory or file that the server may work on; `uri` is a `file://` URI."""

    uri: str
    name: str | None = None

    @classmethod
    def of(cls, value: RootLike) -> Root:
        """Return a root for a path or a URI; a `Root` as it is.

        Raises:
            ValueError: It is the URI of something that is not a file (specification, client/roots).
        """
        if isinstance(value, Root):
            root = value
        elif isinstance(value, str) and "://" in value:
            root = cls(uri=value)
        else:
            path = Path(value).absolute()
            root = cls(uri=path.as_uri(), name=path.name or None)
        if not _is_file(root.uri):
            shown = one_line(root.uri, 200)
            raise ValueError(f"the root {shown!r} is not a file:// URI; give a path or such a URI")
        return root


RootLike: TypeAlias = Root | str | Path
"""A root, a URI or a path."""


def roots_json(roots: Iterable[Root]) -> Json:
    """Return the answer to a request."""
    return {"roots": list(map(_root_json, roots))}


def _root_json(root: Root) -> Json:
    made: Json = {"uri": root.uri}
    if root.name is not None:
        made["name"] = root.name
    return made


def read_roots(answer: object) -> tuple[Root, ...]:
    """Return the roots that a client sent.

    Raises:
        ValueError: The answer is not a list of roots.
    """
    roots = as_array(_object(answer, "a list of roots").get("roots"))
    if roots is None:
        raise ValueError("a list of roots has 'roots', an array")
    return tuple(map(_root, roots))


def _is_file(uri: str) -> bool:
    return uri[:7].lower() == "file://"


def _root(item: object) -> Root:
    root = _object(item, "a root")
    uri = as_text(root.get("uri"))
    if uri is None:
        raise ValueError("a root has a 'uri', a text")
    if not _is_file(uri):
        raise ValueError(f"the 'uri' of a root is a file:// URI, not {one_line(uri, 200)!r}")
    return Root(uri=uri, name=as_text(root.get("name")))


# Users that do not answer


def refused_by_expiry(method: str) -> Json:
    """Return the answer to a request whose user did not come back: the form or page was dismissed.

    Raises:
        RequestError: The method has no such answer; the code is that of a user who rejects a sampling request.
    """
    if method == methods.ELICITATION_CREATE:
        return elicitation_result_json(ElicitationResult.cancel())
    if method == methods.SAMPLING_CREATE_MESSAGE:
        code = REJECTED
    else:
        code = INTERNAL_ERROR
    raise RequestError("the user did not answer in time", code=code)


def _object(value: object, what: str) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a JSON object")
    return cast("Json", value)
