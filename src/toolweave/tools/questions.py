"""The questions that a handler may put to its client: their form on the wire, and how their answers are read.

The one place for the shapes of `elicitation/create`, `sampling/createMessage` and `roots/list` as a server uses them,
whatever the era; how a question travels is the `Caller`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, cast

from toolweave.errors import ErrorKind, ToolError
from toolweave.protocol import methods
from toolweave.protocol.content import content_block
from toolweave.tools.asking import (
    ElicitationResult,
    Elicited,
    LogLevel,
    Root,
    SamplingMessage,
    SamplingResult,
    content_json,
)
from toolweave.tools.forms import form_of, read_form

if TYPE_CHECKING:
    from toolweave.tools.spec import ToolSpec

__all__ = [
    "ABILITIES",
    "Askable",
    "Caller",
    "Elicitation",
    "Keys",
    "Question",
    "Roots",
    "Sampling",
    "can_answer",
    "question_of",
]

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A question to the user: a form, or a page to visit.

    Attributes:
        message: What the user is asked or told.
        schema: The form: a JSON Schema of flat fields, a pydantic model or a dataclass; None has no fields.
        url: The page to visit instead; what is entered there never passes through the client.
        key: Names the question across rounds; by default it is found again by what it says.
    """

    method: ClassVar[str] = methods.ELICITATION_CREATE
    message: str
    schema: Mapping[str, Any] | type | None = None
    _: KW_ONLY
    url: str | None = None
    key: str | None = None

    def needs(self) -> _Json:
        """Return the client capabilities without which it must not be asked."""
        return {"elicitation": {"form" if self.url is None else "url": {}}}

    def params(self, *, modern: bool) -> _Json:
        """Return the request's parameters.

        Raises:
            SchemaError: The form has a field that no form can have.
        """
        if self.url is None:
            return {"message": self.message, "requestedSchema": form_of(self.schema)}
        page: _Json = {"mode": "url", "message": self.message, "url": self.url}
        return page if modern else page | {"elicitationId": token_hex(16)}

    def read(self, answer: object) -> ElicitationResult:
        """Return what the client answered.

        Raises:
            ToolError: It is no answer to this question.
        """
        result = _object(answer, "an elicitation result")
        action, content = result.get("action"), result.get("content")
        if action not in ("accept", "decline", "cancel"):
            raise _malformed("an elicitation result has an action 'accept', 'decline' or 'cancel'")
        if action != "accept" or self.url is not None:
            refused: Elicited[Any] = Elicited(action=action)
            return refused
        filled = _object({} if content is None else content, "the content of an accepted form")
        value = read_form(self.schema, filled)
        return Elicited(action="accept", content=filled, value=value if isinstance(self.schema, type) else None)


@dataclass(frozen=True, slots=True)
class Sampling:
    """A question to the client's language model.

    Attributes:
        messages: A text, a message, or the conversation so far; a bare text is the user's.
        max_tokens: The most tokens to make.
        tools: Tools that the model may use; the client must have `sampling.tools`.
        tool_choice: `"auto"`, `"required"` or `"none"`; only with tools.
        more: Other members of the request as the specification writes them, such as `modelPreferences`.
        key: Names the question across rounds; by default it is found again by what it says.
    """

    method: ClassVar[str] = methods.SAMPLING_CREATE_MESSAGE
    messages: str | SamplingMessage | Mapping[str, Any] | Sequence[str | SamplingMessage | Mapping[str, Any]]
    _: KW_ONLY
    max_tokens: int = 1024
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] = ()
    tools: Sequence[ToolSpec | Mapping[str, Any]] = ()
    tool_choice: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    key: str | None = None

    def needs(self) -> _Json:
        """Return the client capabilities without which it must not be asked."""
        if self.tools or self.tool_choice is not None:
            return {"sampling": {"tools": {}}}
        return {"sampling": {"context": {}} if self.more.get("includeContext", "none") != "none" else {}}

    def params(self, *, modern: bool) -> _Json:
        """Return the request's parameters."""
        one = self.messages
        said = [one] if isinstance(one, (str, SamplingMessage, Mapping)) else one
        made: _Json = {**self.more, "messages": [_message(item) for item in said], "maxTokens": self.max_tokens}
        if self.system_prompt is not None:
            made["systemPrompt"] = self.system_prompt
        if self.temperature is not None:
            made["temperature"] = self.temperature
        if self.stop_sequences:
            made["stopSequences"] = list(self.stop_sequences)
        if self.tools:
            made["tools"] = [_tool(item) for item in self.tools]
        if self.tool_choice is not None:
            made["toolChoice"] = {"mode": self.tool_choice}
        return made

    def read(self, answer: object) -> SamplingResult:
        """Return what the client answered.

        Raises:
            ToolError: It is no answer to this question.
        """
        result = _object(answer, "a sampling result")
        content, model, stop = result.get("content"), result.get("model"), result.get("stopReason")
        if not isinstance(content, (dict, list)) or not content or not isinstance(model, str):
            raise _malformed("a sampling result has 'content', a block or blocks, and 'model', a text")
        blocks = cast("list[Any]", content if isinstance(content, list) else [content])
        return SamplingResult(
            content=tuple(map(content_block, blocks)),
            model=model,
            stop_reason=stop if isinstance(stop, str) else None,
            role="user" if result.get("role") == "user" else "assistant",
        )


@dataclass(frozen=True, slots=True)
class Roots:
    """The question which directories the server may work on."""

    method: ClassVar[str] = methods.ROOTS_LIST
    _: KW_ONLY
    key: str | None = None

    def needs(self) -> _Json:
        """Return the client capabilities without which it must not be asked."""
        return {"roots": {}}

    def params(self, *, modern: bool) -> _Json:
        """Return the request's parameters: none."""
        return {}

    def read(self, answer: object) -> tuple[Root, ...]:
        """Return what the client answered.

        Raises:
            ToolError: It is no answer to this question.
        """
        roots = _object(answer, "a list of roots").get("roots")
        if not isinstance(roots, list):
            raise _malformed("a list of roots has 'roots', an array")
        return tuple(map(_root, cast("list[Any]", roots)))


Question: TypeAlias = Elicitation | Sampling | Roots
"""Anything that a handler may ask its client."""


class Caller(Protocol):
    """The way from a handler to the client that called it; who makes it decides how questions travel."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared that it can do, as it came."""
        ...

    @property
    def client_key(self) -> str | None:
        """Tells this client's requests from those of others, as far as anything can; None where nothing can."""
        ...

    async def ask(self, questions: Sequence[Question]) -> Sequence[Any]:
        """Put questions to the client; return what each one's `read` makes of its answer, in their order.

        Raises:
            RequestError: The client did not declare what a question needs.
            ToolError: It refused, did not answer in time, or answered with something else.
        """
        ...

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:  # data is any JSON value
        """Send a log message, when the client wants one of this severity."""
        ...

    async def release(self) -> None:
        """Close the stream on which the answer would come, where the client can come back for it."""
        ...


Askable = Literal["elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context", "roots"]
"""What a client may declare that it answers; `elicitation` is forms."""

ABILITIES: Mapping[Askable, Mapping[str, Any]] = {
    "elicitation": {"elicitation": {"form": {}}},
    "elicitation.url": {"elicitation": {"url": {}}},
    "sampling": {"sampling": {}},
    "sampling.tools": {"sampling": {"tools": {}}},
    "sampling.context": {"sampling": {"context": {}}},
    "roots": {"roots": {}},
}
"""The client capabilities behind each of them."""


def can_answer(needs: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities may be asked what needs those."""
    for name, parts in needs.items():
        there = declared.get(name)
        if not isinstance(there, Mapping):
            return False
        offered = cast("Mapping[str, Any]", there)
        if name == "elicitation" and not offered:
            offered = ABILITIES["elicitation"]["elicitation"]  # what `{}` has meant since 2025-06-18
        if any(not isinstance(offered.get(part), Mapping) for part in parts):
            return False
    return True


def question_of(method: str, params: Mapping[str, Any]) -> Question:
    """Return the question behind a request in the form of a stateless revision, as `params(modern=True)` made it.

    Of a form that was made of a model the schema is left: answers are checked by that.
    """
    match method:
        case methods.ELICITATION_CREATE:
            return Elicitation(params["message"], params.get("requestedSchema"), url=params.get("url"))
        case methods.SAMPLING_CREATE_MESSAGE:
            return Sampling(params["messages"], max_tokens=params["maxTokens"], more=params)
        case _:
            return Roots()


class Keys:
    """Names the questions of one run of a handler.

    A question's key is its own, else one made of what it says: so a handler that runs again finds its answers
    whatever it asked in between, and an answer never counts for another question. The same question asked
    again in one run is another question.
    """

    def __init__(self) -> None:
        self._made: dict[str, int] = {}

    def of(self, questions: Sequence[Question]) -> list[str]:
        """Return the keys of questions that are asked together.

        Raises:
            ValueError: Two of them have the same key.
        """
        keys = [question.key or self._make(question) for question in questions]
        if len(set(keys)) < len(keys):
            raise ValueError(f"questions asked together need different keys, not {keys}")
        return keys

    def _make(self, question: Question) -> str:
        said = json.dumps([question.method, question.params(modern=True)], sort_keys=True, default=str)
        made = f"{question.method.partition('/')[0]}-{sha256(said.encode()).hexdigest()[:16]}"
        times = self._made[made] = self._made.get(made, 0) + 1
        return made if times == 1 else f"{made}-{times}"


def _message(item: str | SamplingMessage | Mapping[str, Any]) -> _Json:
    if isinstance(item, str):
        return {"role": "user", "content": {"type": "text", "text": item}}
    if isinstance(item, SamplingMessage):
        return {"role": item.role, "content": content_json(item.content)}
    return dict(item)


def _tool(item: ToolSpec | Mapping[str, Any]) -> _Json:
    if isinstance(item, Mapping):
        return dict(item)
    made: _Json = {"name": item.name, "inputSchema": dict(item.input_schema)}
    return made | ({"description": item.description} if item.description else {})


def _root(item: Any) -> Root:
    root = _object(item, "a root")
    uri, name = root.get("uri"), root.get("name")
    if not isinstance(uri, str):
        raise _malformed("a root has a 'uri', a text")
    return Root(uri=uri, name=name if isinstance(name, str) else None)


def _object(value: object, what: str) -> _Json:
    if not isinstance(value, dict):
        raise _malformed(f"{what} is a JSON object")
    return cast("_Json", value)


def _malformed(expected: str) -> ToolError:
    return ToolError(f"the client's answer is malformed: {expected}", kind=ErrorKind.INVALID_INPUT)
