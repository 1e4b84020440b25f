"""Messages, results and turns as JSON for a store, and back. Pure.

Values survive the round trip: texts, blocks, structured content, errors, usage, and providers' own parts, which have to
be sent back unchanged. Only the `raw` form of results and of blocks of known types is omitted. A form is never changed,
only extended, so that documents of older versions stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar, cast

import msgspec

from toolweave._json_types import Json
from toolweave.errors import ErrorKind, StoreError, ToolError
from toolweave.models._base import Finished, Usage
from toolweave.models._messages import (
    AssistantMessage,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from toolweave.tools import ToolResult

T = TypeVar("T")

_LEVELS = 100
"""Maximum nesting depth of a value, because of the interpreter's stack."""
_TEXT_IS_STRUCTURED = "text_is_structured"
"""The member that stands for structured content which is the text of the result."""
_BLOCKS: Mapping[str, type[Any]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource_link": ResourceLink,
    "resource": EmbeddedResource,
}
_PARTS: Mapping[str, type[Any]] = {
    "text": TextPart,
    "thinking": ThinkingPart,
    "tool_call": ToolCallPart,
    "provider": ProviderPart,
}
_NAMES = {made: name for name, made in (*_BLOCKS.items(), *_PARTS.items())}


def messages_to_json(messages: Iterable[Message]) -> list[Json]:
    """Return a conversation as JSON."""
    return list(map(message_to_json, messages))


def messages_from_json(data: Sequence[Json]) -> tuple[Message, ...]:
    """Return a conversation from JSON.

    Raises:
        StoreError: This version cannot read it.
    """
    return tuple(map(message_from_json, data))


def message_to_json(message: Message) -> Json:
    """Return one message as JSON."""
    match message:
        case UserMessage():
            return {"role": "user", "content": list(map(_block_to_json, message.content))}
        case AssistantMessage():
            return {"role": "assistant", "parts": list(map(_named, message.parts))}
        case ToolMessage():
            return {"role": "tool", "outcomes": list(map(_outcome_to_json, message.outcomes))}


def message_from_json(data: Json) -> Message:
    """Return a message from JSON.

    Raises:
        StoreError: This version cannot read it.
    """
    return _read("message", _message, data)


def result_to_json(result: ToolResult) -> Json:
    """Return a tool's result as JSON; values without a JSON form become text."""
    out: Json = {"content": list(map(_block_to_json, result.content))}
    if _is_structured_text(result):
        out[_TEXT_IS_STRUCTURED] = True
    elif result.structured_content is not None:
        out["structured_content"] = plain(result.structured_content)
    if result.is_error:
        out["is_error"] = True
    if result.error is not None:
        out["error"] = plain(result.error.to_dict()) | ({"unexpected": True} if result.error.unexpected else {})
    if result.meta:
        out["meta"] = plain(result.meta)
    return out


def _outcome_to_json(outcome: ToolOutcome) -> Json:
    return {"call_id": outcome.call_id, "name": outcome.name, "result": result_to_json(outcome.result)}


def _is_structured_text(result: ToolResult) -> bool:
    """Whether the structured content is the text of the result, which need not be kept twice."""
    if not isinstance(result.structured_content, str) or len(result.content) != 1:
        return False
    block = result.content[0]
    return isinstance(block, TextContent) and block.text == result.structured_content


def result_from_json(data: Json) -> ToolResult:
    """Return a tool's result from JSON.

    Raises:
        StoreError: This version cannot read it.
    """
    return _read("tool result", _result, data)


def turn_to_json(turn: Finished) -> Json:
    """Return a turn of a model as JSON."""
    if turn.stop_detail is None:
        detail = {}
    else:
        detail = {"stop_detail": turn.stop_detail}
    return {
        "message": message_to_json(turn.message),
        "usage": usage_to_json(turn.usage),
        "stop_reason": turn.stop_reason,
        **detail,
    }


def turn_from_json(data: Json) -> Finished:
    """Return a turn of a model from JSON.

    Raises:
        StoreError: This version cannot read it.
    """
    return _read("turn", _turn, data)


def usage_to_json(usage: Usage) -> Json:
    """Return token usage as JSON."""
    return _members(usage)


def usage_from_json(data: Json) -> Usage:
    """Return token usage from JSON.

    Raises:
        StoreError: This version cannot read it.
    """
    return _read("usage", partial(_made, Usage), data)


def plain(value: Any, *, levels: int = _LEVELS) -> Any:
    """Return a value as JSON: a type without a form becomes text, a non-finite number null, a value too deep a note."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        # JSON has no infinity and no NaN, and a store may refuse a document that holds them.
        if math.isfinite(value):
            return value
        return None
    if isinstance(value, (Mapping, list, tuple)) and not levels:
        return "[nested too deeply to be kept]"
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return {str(name): plain(member, levels=levels - 1) for name, member in members.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, levels=levels - 1) for item in cast("Sequence[Any]", value)]
    return str(value)


def _block_to_json(block: Any) -> Json:
    if isinstance(block, UnknownContent):
        return {"type": "unknown", **_members(block), "kind": block.type, "raw": plain(block.raw)}
    return _named(block)


def _named(value: Any) -> Json:
    return {"type": _NAMES[type(value)], **_members(value)}


def _members(value: Any) -> Json:
    """Return the fields of a dataclass that differ from their defaults, without `type` and uncompared fields."""
    members: Json = {}
    for name, (compared, default) in _fields(cast("Any", type(value))).items():
        member = getattr(value, name)
        # Defaults are left out: the document stays small, and a later version may add a field without a new format.
        if compared and member != default():
            members[name] = plain(member)
    return members


@cache
def _fields(made: Any) -> Mapping[str, tuple[bool, Callable[[], object]]]:
    """Return the fields of a value but `type`: whether each is a part of the value, and a function for its default."""
    found: dict[str, tuple[bool, Callable[[], object]]] = {}
    if is_dataclass(made):
        for one in fields(made):
            found[one.name] = (one.compare, _default(one))
    else:
        for one in msgspec.structs.fields(made):
            found[one.name] = (one.name not in made.repr_exclude, _default(one))
    found.pop("type", None)
    return found


def _default(one: Field[Any] | msgspec.structs.FieldInfo) -> Callable[[], Any]:
    factory = one.default_factory
    if factory is not MISSING and factory is not msgspec.NODEFAULT:
        return factory
    return lambda: one.default


def _made(made: type[T], data: Json) -> T:
    known = _fields(made)
    # Unknown members are ignored, so that a document of a later version can be read after a return to this one.
    return made(**{name: value for name, value in data.items() if name in known})


def _message(data: Json) -> Message:
    match data["role"]:
        case "user":
            return UserMessage(content=tuple(map(_block, data["content"])))
        case "assistant":
            return AssistantMessage(parts=tuple(_made(_PARTS[one["type"]], one) for one in data["parts"]))
        case "tool":
            return ToolMessage(outcomes=tuple(map(_outcome, data["outcomes"])))
        case role:
            raise ValueError(f"role {role!r}")


def _outcome(data: Json) -> ToolOutcome:
    return ToolOutcome(call_id=data["call_id"], name=data["name"], result=_result(data["result"]))


def _block(data: Json) -> Any:
    made = _BLOCKS.get(data["type"])
    if made is not None:
        return _made(made, data)
    # A block of a type that a later version has must not lose the conversation: it is kept as it is.
    return UnknownContent(
        type=data.get("kind", data["type"]),
        annotations=data.get("annotations"),
        meta=data.get("meta", {}),
        raw=data.get("raw", data),
    )


def _result(data: Json) -> ToolResult:
    error = data.get("error")
    content = tuple(map(_block, data["content"]))
    return ToolResult(
        content=content,
        structured_content=content[0].text if data.get(_TEXT_IS_STRUCTURED) else data.get("structured_content"),
        is_error=data.get("is_error", False),
        error=None if error is None else _error(error),
        meta=data.get("meta") or {},
    )


def _error(data: Json) -> ToolError:
    if data["kind"] in set(ErrorKind):
        kind = data["kind"]
    else:
        # A kind of a later version. The general one makes no promise about retries.
        kind = ErrorKind.EXECUTION_FAILED
    return ToolError(
        data["message"],
        kind=kind,
        code=data.get("code"),
        retryable=data.get("retryable", False),
        data=data.get("data"),
        unexpected=data.get("unexpected", False),
    )


def _turn(data: Json) -> Finished:
    message = _message(data["message"])
    if not isinstance(message, AssistantMessage):
        raise TypeError("a turn is an assistant's")
    return Finished(
        message=message,
        usage=_made(Usage, data["usage"]),
        stop_reason=data["stop_reason"],
        stop_detail=data.get("stop_detail"),
    )


def _read(what: str, read: Callable[[Json], T], data: Json) -> T:
    try:
        return read(data)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise StoreError(
            f"a {what} in the store cannot be read by this version ({type(exc).__name__}: {exc}); "
            "a newer version of Toolweave may have written it"
        ) from exc
