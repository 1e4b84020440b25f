"""Results of tools: content blocks, structured content, errors, and their text form.

Nothing is dropped silently: a block that is not text becomes a visible note in `text` and stays whole in `content`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast, overload

import msgspec

from toolweave._json_types import JsonObject, new_object
from toolweave._text import is_plain
from toolweave._value import Value
from toolweave.errors import ErrorKind, ToolError, ToolExecutionError
from toolweave.protocol.content import (
    AudioContent,
    Block,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
)
from toolweave.schema import Problem, describe
from toolweave.schema._type_loader import TypeLoader
from toolweave.schema.fitting import json_form
from toolweave.tools._audience import blocks_for
from toolweave.tools.media import Payload, is_binary, payload
from toolweave.tools.visible import shown_blocks, shown_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["OUTPUT_MISMATCH_META", "T", "ToolResult", "invalid_input", "typed"]

T = TypeVar("T")

OUTPUT_MISMATCH_META = "io.toolweave/output-mismatch"
"""The member of `meta` of a result whose call succeeded, but whose structured content is not as its tool promises."""


_json_of = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # `dumps` makes an encoder for each value
_NULL = (TextContent(text="null"),)
"""The content of a result that is the null of JSON."""


class ToolResult(Value, frozen=True, kw_only=True):
    """The result of one tool call.

    Attributes:
        content: Typed blocks in the server's order.
        structured_content: Any JSON value, or None.
        is_error: The tool, the server or the transport failed; `error` has the details.
        error: Set exactly when `is_error` is.
        meta: The result's `_meta`.
        raw: The result as received, unknown members and nulls included; None for local results.
        load: Converts structured content to the tool's own type, for `data`; None where no type is known.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw", "load"})
    content: tuple[ContentBlock, ...] = ()
    structured_content: Any = None
    is_error: bool = False
    error: ToolError | None = None
    meta: JsonObject = msgspec.field(default_factory=new_object)
    raw: Any = None
    load: Callable[[Any], Any] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        return (self.content, self.structured_content, self.is_error, self.error, self.meta) == (
            (other.content, other.structured_content, other.is_error, other.error, other.meta)
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # its members may be dicts

    @property
    def text(self) -> str:
        """The result as text: blocks joined by newlines, notes for blocks without text.

        Without blocks it is the structured content as JSON.
        """
        if self.content:
            return "\n".join(block.render() for block in self.content)
        if self.structured_content is not None:
            return json.dumps(self.structured_content, ensure_ascii=False)
        if self.error is not None:
            return self.error.message
        return ""

    @property
    def data(self) -> Any:
        """The result as a value for programs.

        It is the structured content as the tool's own type: that of a local function's return annotation, or a
        pydantic model of a server's output schema. Without such a type, for an error, and if the content does not
        match, it is the plain structured content. Without structured content it is the text. A number, a text or a
        list that a server has wrapped as `{"result": ...}`, for clients that know only objects, is that value.
        """
        if self.structured_content is None and not self._is_null():
            return self.text
        if self.load is None or self.is_error:
            return self.structured_content
        return self.load(self.structured_content)

    @overload
    def data_as(self, kind: type[T]) -> T: ...
    @overload
    def data_as(self, kind: Any) -> Any: ...
    def data_as(self, kind: Any) -> Any:
        """Return the result as a value of a type, which type checkers then know.

        Args:
            kind: What pydantic can read: a model, a dataclass, a `TypedDict`, `list[int]`.

        Returns:
            The structured content as that type; without structured content the text, or the JSON that it holds.

        Raises:
            SchemaError: The type has no JSON form.
            ToolError: The value is not of the type (`INVALID_OUTPUT`).
            ToolExecutionError: The result is an error.
        """
        self.raise_for_error()
        # Imported here, since few results need pydantic.
        import pydantic

        from toolweave.schema._signature import adapter_of, validation_problems

        adapter = adapter_of(kind)
        try:
            if self.structured_content is None and not self._is_null():
                return _text_as(adapter, self.text)
            value = self.structured_content
            if isinstance(self.load, TypeLoader):
                value = self.load.plain(value)
            return adapter.validate_python(value)
        except pydantic.ValidationError as exc:
            found = describe(validation_problems(exc))
            text = f"the result is not of the type that was asked for: {found}"
            raise ToolError(text, kind=ErrorKind.INVALID_OUTPUT) from None

    def _is_null(self) -> bool:
        """Whether the structured content is the null of JSON, which `structured_content` shows as None."""
        if self.raw is not None:
            return "structuredContent" in self.raw
        return self.load is not None and self.content == _NULL

    def for_model(self) -> ToolResult:
        r"""Return the result with the blocks that a model is given; nearly always the result itself.

        Blocks whose `audience` is the user alone are left out, and texts that repeat the structured content once
        more. A result without a text for the model gets its structured content as one, or a note that says that it is
        for the user. An error gets the details that only its structured content has, at most 4,000 characters of them.
        Hidden characters of texts are written out, such as `\u202e`; `structured_content` stays as it is. Every model
        and every export is given results in this form.
        """
        blocks = blocks_for("assistant", self.content, self.structured_content, is_error=self.is_error)
        result = self._with(shown_blocks(blocks))
        if result.content:
            return result
        text = result.text
        if is_plain(text):
            return result
        return result.replace_content((TextContent(text=shown_text(text)),))

    def for_person(self) -> ToolResult:
        """Return the result with the blocks that a person is shown; nearly always the result itself.

        Blocks whose `audience` is the assistant alone are left out, unless the result is an error, and texts that
        repeat the structured content once more. An error gets the details that only its structured content has.
        """
        return self._with(blocks_for("user", self.content, self.structured_content, is_error=self.is_error))

    def raise_for_error(self, *, tool: str = "") -> Self:
        """Return the result itself when it is not an error.

        Args:
            tool: The name of the tool for the exception.

        Raises:
            ToolExecutionError: It is one. The message is the server's text; the whole result is on the exception.
        """
        if self.is_error:
            raise ToolExecutionError(self.require_error(), result=self, tool=tool)
        return self

    def require_error(self) -> ToolError:
        """Return the error of an error result, made from its text when the producer set none."""
        return self.error or ToolError(self.text or "MCP tool execution error")

    @classmethod
    def failure(cls, error: ToolError | str, *, kind: ErrorKind | None = None) -> ToolResult:
        """Make an error result whose text is the error's message."""
        if isinstance(error, str):
            error = ToolError(error, kind=kind or ErrorKind.EXECUTION_FAILED)
        return cls(content=(TextContent(text=error.message),), is_error=True, error=error)

    @classmethod
    def of(cls, value: Any, *, fallback: Callable[[Any], Any] | None = None) -> ToolResult:
        """Make a result from a function's return value.

        A `ToolResult` passes through, a string is one text block, None is `"null"`. Blocks, bytes, images, a `File`
        and the `Path` of a file become blocks by their type, and so do the items of a list that has one of these
        (a path in a list stays a path). Every other value becomes structured content with its JSON as text.
        `fallback` converts values that JSON cannot represent.

        Raises:
            OSError: A file cannot be read.
            ToolError: A file is too large for a result; or JSON cannot represent the value (`INVALID_OUTPUT`), and
                there is no `fallback`.
        """
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, str):
            return cls(content=(TextContent(text=value),))
        if type(value) is not dict:
            # Nearly every other value is one.
            blocks = _blocks(value, fallback)
            if blocks is not None:
                return cls(content=blocks)
        return cls.of_json(_as_json(value, fallback))

    @classmethod
    def of_json(cls, data: Any) -> ToolResult:
        """Make a result from a JSON value: structured content, and its JSON as text; a text is its own text.

        NaN and infinities, which JSON cannot represent, become null, and halves of surrogate pairs `?`.
        """
        is_text = isinstance(data, str)
        try:
            if is_text:
                text = data
            else:
                text = _json_of(data)
        except ValueError:
            data = _finite(data)
            text = _json_of(data)
        if not text.isascii():
            whole = text.encode("utf-8", "replace").decode()
            if whole != text:
                text = whole
                data = whole if is_text else json.loads(whole)
        return cls(content=(TextContent(text=text),), structured_content=data)

    def _repr_html_(self) -> str:
        from toolweave.tools._notebook import result_html  # for notebooks alone

        return result_html(
            self.for_person().content, self.structured_content, self.require_error() if self.is_error else None
        )

    def _with(self, blocks: Sequence[ContentBlock]) -> ToolResult:
        if blocks is self.content:
            return self
        return self.replace_content(blocks)

    def replace_content(self, blocks: Iterable[ContentBlock]) -> ToolResult:
        """Return the same result with other blocks."""
        return self.replace(content=tuple(blocks))


def typed(result: ToolResult, load: Callable[[Any], Any] | None) -> ToolResult:
    """Set the converter for `data` of a result, in place; only for a new result that is not shared yet."""
    msgspec.structs.force_setattr(result, "load", load)
    return result


def _text_as(adapter: TypeAdapter[T], text: str) -> T:
    """Return a text as a value of a type: the text itself, or the JSON that it holds.

    Raises:
        pydantic.ValidationError: It is neither.
    """
    try:
        return adapter.validate_python(text)
    except ValueError as exc:
        try:
            return adapter.validate_json(text)
        except ValueError:
            raise exc from None


def invalid_input(tool: str, problems: Sequence[Problem]) -> ToolResult:
    """Make the error result for arguments that violate a tool's schema, for the model to fix."""
    text = describe(problems)
    data = {"problems": [{"path": problem.path, "message": problem.message} for problem in problems]}
    message = f"invalid arguments for tool {tool!r}:{chr(10) if len(problems) > 1 else ' '}{text}"
    return ToolResult.failure(ToolError(message, kind=ErrorKind.INVALID_INPUT, data=data))


def _blocks(value: Any, fallback: Callable[[Any], Any] | None) -> tuple[ContentBlock, ...] | None:
    """Return the blocks of a value that is content, or of a list with such values; None for any other value."""
    if isinstance(value, Block):
        return (cast("ContentBlock", value),)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        # One item of each type decides, because a list may have a million numbers.
        one_of_each: dict[object, Any] = {type(item): item for item in items}
        if not any(map(_is_content, one_of_each.values())):
            return None
        return tuple(block for item in items for block in _item(item, fallback))
    content = payload(value)
    if content is None:
        return None
    return (_content(content),)


def _is_content(value: object) -> bool:
    return isinstance(value, (Block, ToolResult)) or is_binary(value)


def _item(item: Any, fallback: Callable[[Any], Any] | None) -> Iterable[ContentBlock]:
    value = str(item) if isinstance(item, PurePath) else item
    return ToolResult.of(value, fallback=fallback).content


def _content(content: Payload) -> ContentBlock:
    text = content.text
    if text is not None:
        return EmbeddedResource(uri=content.name, mime_type=content.mime_type, text=text)
    if content.mime_type.startswith("image/"):
        return ImageContent(data=content.base64, mime_type=content.mime_type)
    if content.mime_type.startswith("audio/"):
        return AudioContent(data=content.base64, mime_type=content.mime_type)
    return EmbeddedResource(uri=content.name, mime_type=content.mime_type, blob=content.base64)


def _as_json(value: Any, fallback: Callable[[Any], Any] | None) -> Any:
    def dump(item: Any) -> Any:
        try:
            return json_form(item)
        except TypeError:
            if fallback is None:
                return _json_of_other(item)
            return fallback(item)

    return msgspec.to_builtins(value, enc_hook=dump, str_keys=True)


def _json_of_other(item: Any) -> Any:
    """Return the JSON of a value of a type that only pydantic knows, such as an address or a deque.

    Raises:
        ToolError: The result has no such content.
    """
    from pydantic import PydanticUserError, TypeAdapter  # nearly no result needs it
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(item)
    except PydanticSerializationError:
        pass
    try:
        # Earlier versions of pydantic know some types, such as these two, by their schema only.
        return TypeAdapter[Any](cast("type[Any]", type(item))).dump_python(item, mode="json")
    except (PydanticUserError, PydanticSerializationError):
        kind = type(item).__name__
        text = f"a value of the type {kind!r} has no form in JSON; return a text, a dict, a list or a model"
        raise ToolError(text, kind=ErrorKind.INVALID_OUTPUT) from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return list(map(_finite, cast("Sequence[Any]", value)))
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None
