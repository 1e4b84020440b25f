"""Questions that a handler may put to its client, in any era; their JSON is `protocol/client_requests.py`.

How a question travels is the `Caller`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias, TypeVar

from toolweave._json_types import Json, JsonObject, new_object, only_members
from toolweave.errors import ErrorKind, SchemaError, ToolError
from toolweave.protocol import methods
from toolweave.protocol.client_requests import (
    ABILITIES,
    REQUESTED_SCHEMA,
    ElicitationResult,
    Elicited,
    Root,
    SamplingMessage,
    SamplingResult,
    check_form,
    form_params,
    page_params,
    read_elicitation_result,
    read_roots,
    read_sampling_result,
    sampling_fields,
    sampling_params,
)
from toolweave.tools.spec import ToolSpec

_FORMATS = frozenset({"date", "date-time", "email", "uri"})
_FIELD_KEYS = (
    *("type", "title", "description", "default", "enum", "enumNames", "oneOf", "items"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"),
)


def form_of(schema: JsonObject | type | None) -> Json:
    """Return the JSON Schema of a form.

    Args:
        schema: An object schema of flat fields, which is checked and kept as it is; a pydantic model, dataclass or
            TypedDict, of which one is made; None for a question without fields.

    Raises:
        SchemaError: It has a field that no form can have, such as an object; names the field.
    """
    if schema is None:
        return {"type": "object", "properties": {}}
    if isinstance(schema, Mapping):
        return check_form(schema)
    return _derived(schema)


def read_form(schema: JsonObject | type | None, content: JsonObject) -> Any:
    """Return the values of a filled-in form: an instance of the form's model, else the content as received.

    Raises:
        ToolError: It does not match the form; the message says where.
    """
    if isinstance(schema, type):
        return _read_model(schema, content)
    from toolweave.schema import Validator, describe  # compiled code; only a question needs it

    problems = Validator(form_of(schema), formats=True).problems(content)
    if problems:
        raise ToolError(f"the answer does not fit the form: {describe(problems)}", kind=ErrorKind.INVALID_INPUT)
    return content


def _read_model(model: type, content: JsonObject) -> Any:
    from pydantic import TypeAdapter, ValidationError  # 40 ms; only a question with a model needs it

    from toolweave.schema import Problem, describe
    from toolweave.schema.problems import path_text

    try:
        return TypeAdapter(model).validate_python(dict(content))
    except ValidationError as exc:
        errors = exc.errors(include_input=False, include_url=False, include_context=False)
    said = describe(tuple(Problem(path=path_text(error["loc"]), message=error["msg"]) for error in errors))
    raise ToolError(f"the answer does not fit the form: {said}", kind=ErrorKind.INVALID_INPUT)


@lru_cache(maxsize=256)
def _derived(model: type) -> Json:
    from toolweave.schema import schema_of

    name = model.__name__
    whole = schema_of(model, what=f"the form {name!r}")
    if whole.get("type") != "object":
        raise SchemaError(f"the form {name!r} is not an object with fields")
    definitions: JsonObject = whole.get("$defs", {})
    fields: JsonObject = whole.get("properties", {})
    form: Json = {
        "type": "object",
        "properties": {field: _field(schema, definitions) for field, schema in fields.items()},
    }
    if whole.get("required"):
        form["required"] = whole["required"]
    return check_form(form, what=f"the form {name!r}")


def _nullable(field: JsonObject) -> bool:
    return any(option == {"type": "null"} for option in field.get("anyOf", ()))


def _field(schema: JsonObject, definitions: JsonObject) -> Json:
    """Return a model's field in the restricted schema of forms: no references, no null, no constants."""
    found: Json = dict(schema)
    if _nullable(found):
        some = [option for option in found.pop("anyOf") if option != {"type": "null"}]
        found = {**(some[0] if len(some) == 1 else {}), **found}
        # A form has no null: an optional field is left out instead.
        if found.get("default", ...) is None:
            del found["default"]
    reference = found.pop("$ref", None)
    if reference is not None:
        found = {**definitions.get(str(reference).removeprefix("#/$defs/"), {}), **found}
        # The name of a Python class.
        found.pop("title", None)
    if "const" in found:
        found["enum"] = [found["const"]]
    if found.get("type") == "array" and isinstance(found.get("items"), Mapping):
        found["items"] = _field(found["items"], definitions)
    made = only_members(found, _FIELD_KEYS)
    if found.get("format") in _FORMATS:
        made["format"] = found["format"]
    return made


AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A question to the user: a form, or a page to visit.

    Attributes:
        message: The text for the user.
        schema: The form: a JSON Schema of flat fields, a pydantic model or a dataclass; None has no fields.
        url: The page to visit instead; the input there never passes through the client.
        key: Identifies the question across rounds; by default a digest of its content.
    """

    method: ClassVar[str] = methods.ELICITATION_CREATE
    message: str
    schema: JsonObject | type | None = None
    _: KW_ONLY
    url: str | None = None
    key: str | None = None

    def needs(self) -> JsonObject:
        """Return the client capabilities that it requires."""
        return ABILITIES["elicitation" if self.url is None else "elicitation.url"]

    def params(self, *, modern: bool) -> Json:
        """Return the request's parameters.

        Raises:
            SchemaError: The form has a field that no form can have.
        """
        if self.url is None:
            return form_params(self.message, form_of(self.schema))
        return page_params(self.message, self.url, modern=modern)

    def read(self, answer: object) -> ElicitationResult:
        """Return the client's answer.

        Raises:
            ToolError: It is not a valid answer to this question.
        """
        result = _read(lambda value: read_elicitation_result(value, form=self.url is None), answer)
        if result.content is None:
            refused: Elicited[Any] = Elicited(action=result.action)
            return refused
        value = read_form(self.schema, result.content)
        return Elicited(action="accept", content=result.content, value=value if isinstance(self.schema, type) else None)


@dataclass(frozen=True, slots=True)
class Sampling:
    """A question to the client's language model.

    Attributes:
        messages: A text, a message, or the conversation so far; a bare text is the user's.
        max_tokens: The maximum of tokens to generate.
        tools: Tools that the model may use; the client must have `sampling.tools`.
        tool_choice: `"auto"`, `"required"` or `"none"`; only with tools.
        more: Other members of the request as the specification writes them, such as `modelPreferences`.
        key: Identifies the question across rounds; by default a digest of its content.
    """

    method: ClassVar[str] = methods.SAMPLING_CREATE_MESSAGE
    messages: str | SamplingMessage | JsonObject | Sequence[str | SamplingMessage | JsonObject]
    _: KW_ONLY
    max_tokens: int = 1024
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] = ()
    tools: Sequence[ToolSpec | JsonObject] = ()
    tool_choice: str | None = None
    more: JsonObject = field(default_factory=new_object)
    key: str | None = None

    def needs(self) -> JsonObject:
        """Return the client capabilities that it requires."""
        if self.tools or self.tool_choice is not None:
            return ABILITIES["sampling.tools"]
        return ABILITIES["sampling" if self.more.get("includeContext", "none") == "none" else "sampling.context"]

    def params(self, *, modern: bool) -> Json:
        """Return the request's parameters."""
        one = self.messages
        return sampling_params(
            [one] if isinstance(one, (str, SamplingMessage, Mapping)) else one,
            self.max_tokens,
            system_prompt=self.system_prompt,
            temperature=self.temperature,
            stop_sequences=self.stop_sequences,
            tools=list(map(_tool, self.tools)),
            tool_choice=self.tool_choice,
            more=self.more,
        )

    def read(self, answer: object) -> SamplingResult:
        """Return the client's answer.

        Raises:
            ToolError: It is not a valid answer to this question.
        """
        return _read(_read_sampled, answer)


@dataclass(frozen=True, slots=True)
class Roots:
    """The question for the directories that the server may work on."""

    method: ClassVar[str] = methods.ROOTS_LIST
    _: KW_ONLY
    key: str | None = None

    def needs(self) -> JsonObject:
        """Return the client capabilities that it requires."""
        return ABILITIES["roots"]

    def params(self, *, modern: bool) -> Json:
        """Return the request's parameters: none."""
        return {}

    def read(self, answer: object) -> tuple[Root, ...]:
        """Return the client's answer.

        Raises:
            ToolError: It is not a valid answer to this question.
        """
        return _read(read_roots, answer)


Question: TypeAlias = Elicitation | Sampling | Roots
"""Any question of a handler to its client."""


def question_of(method: str, params: JsonObject) -> Question:
    """Return the question behind a request in the form of a modern revision, as `params(modern=True)` made it.

    A form made of a model becomes its schema: answers are checked against that.
    """
    match method:
        case methods.ELICITATION_CREATE:
            return Elicitation(params["message"], params.get(REQUESTED_SCHEMA), url=params.get("url"))
        case methods.SAMPLING_CREATE_MESSAGE:
            return Sampling(params["messages"], max_tokens=sampling_fields(params)["max_tokens"], more=params)
        case _:
            return Roots()


class Keys:
    """Assigns keys to the questions of one run of a handler.

    A question's key is its own, else a digest of its content: so a handler that runs again finds its answers
    whatever it asked in between, and an answer never counts for another question. The same question asked
    again in one run gets another key.
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
        if times == 1:
            return made
        return f"{made}-{times}"


def _tool(item: ToolSpec | JsonObject) -> Json:
    if isinstance(item, Mapping):
        return dict(item)
    made: Json = {"name": item.name, "inputSchema": dict(item.input_schema)}
    return made | ({"description": item.description} if item.description else {})


def _read_sampled(answer: object) -> SamplingResult:
    from toolweave.protocol.lenient_questions import readable_sampling_result  # only an answer needs it

    return read_sampling_result(readable_sampling_result(answer))


def _read(read: Callable[[object], AnswerT], answer: object) -> AnswerT:
    try:
        return read(answer)
    except ValueError as exc:
        raise ToolError(f"the client's answer is malformed: {exc}", kind=ErrorKind.INVALID_INPUT) from None
