"""The second reading of a result of `tools/call` that the specification does not allow.

Servers give a text or one block in place of a list of blocks, blocks without a type, the data itself without
`content`, or failures in blocks of the type `error`. The plain meaning is read, nothing is dropped, and each change
is reported. Whether a call succeeded is changed only where the server says so in another way. Pure.
"""

from __future__ import annotations

import json
from functools import partial
from types import NoneType
from typing import Any

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_array,
    as_object,
    object_or_empty,
    without_members,
)
from toolweave._repairs import Repair
from toolweave.protocol.lenient_bytes import base64_in
from toolweave.protocol.spellings import MISSPELLED, RESULT_NAMES, spelled, spelled_block

__all__ = [
    "ODD_DATA",
    "ODD_FLAG",
    "RESULT_REPAIRS",
    "WITHIN",
    "BareResult",
    "has_odd_outcome",
    "is_data",
    "readable_outcome",
    "readable_result",
]

_SWITCH = '`"repair_messages": false`'
_BARE = Repair(
    given="a result that is not an object",
    read_as="its text, or its JSON",
    limit="null stays an error",
    switch=_SWITCH,
    problem="is not an object",
)
_NO_CONTENT = Repair(
    given="the data itself, without `content`",
    read_as="its JSON",
    limit="an object without any member stays an error",
    switch=_SWITCH,
    problem="has no 'content'",
)
WITHIN = Repair(
    given="a result within `content`, `result` or `toolResult`, or a list of blocks within `content`",
    read_as="the inner result, or the blocks",
    limit="only if its `content` is a list of blocks; an error of either is an error",
    switch=_SWITCH,
    problem="is within another result",
)
_BESIDE = Repair(
    given="data beside an empty `content`",
    read_as="its JSON",
    limit="only without structured content",
    switch=_SWITCH,
    problem="has its data beside an empty 'content'",
)
_MODEL_IMAGE = Repair(
    given="an image as model APIs write it, with `image_url` or `source`",
    read_as="an image",
    limit="only if it holds the data: nothing is fetched",
    switch=_SWITCH,
    problem="has an image in the form of a model API",
)
_NULL_CONTENT = Repair(
    given="null as `content`",
    read_as="no content",
    limit="without structured content it stays an error",
    switch=_SWITCH,
    problem="has null as 'content'",
)
_NO_LIST = Repair(
    given="`content` that is a text or one block",
    read_as="a list of it",
    limit="none",
    switch=_SWITCH,
    problem="has 'content' that is not a list",
)
_NO_BLOCK = Repair(
    given="an item of `content` that is not a block",
    read_as="a text, or its JSON",
    limit="null is left out",
    switch=_SWITCH,
    problem="has content that is not a block",
)
_ERROR_BLOCK = Repair(
    given="a block of the type `error`",
    read_as="an error with its text",
    limit="no other type makes a result an error",
    switch=_SWITCH,
    problem="reports a failure in a block of the type 'error'",
)
_NO_TEXT = Repair(
    given="a text block whose text is missing or of another type",
    read_as="its JSON",
    limit="none",
    switch=_SWITCH,
    problem="has a block whose text is not a text",
)
_NO_TYPE = Repair(
    given="a block without a type",
    read_as="a text block",
    limit="none",
    switch=_SWITCH,
    problem="has a block without a type",
)
ODD_FLAG = Repair(
    given="`isError` that is not a boolean",
    read_as="false for `false`, `no`, 0 and an empty value; true for anything else",
    limit="none",
    switch=_SWITCH,
    problem="has 'isError' that is not a boolean",
)
ODD_DATA = Repair(
    given="data of an image or a file as a data URL, with line breaks, in the URL-safe alphabet, or as a list of bytes",
    read_as="plain base64",
    limit="other data stay as they are",
    switch=_SWITCH,
    problem="has data that is not plain base64",
)
TEXT_AS_STRUCTURE = Repair(
    given="a text that is JSON, where an output schema promises structured content",
    read_as="structured content",
    limit="only if it fits the output schema",
    switch=f'{_SWITCH}; `"validate_output": "off"` leaves it out',
    problem="has no structured content: it is read from its text",
)
STRUCTURE_AS_TEXT = Repair(
    given="structured content that is JSON as a text",
    read_as="the value in it",
    limit="only if the output schema refuses the text and the value fits",
    switch=f'{_SWITCH}; `"validate_output": "off"` leaves it as it is',
    problem="has structured content that is a text of JSON",
)
RESULT_REPAIRS = (
    *(_BARE, _NO_CONTENT, WITHIN, _BESIDE, _NULL_CONTENT, _NO_LIST, _NO_BLOCK, _NO_TYPE, _NO_TEXT, _MODEL_IMAGE),
    *(_ERROR_BLOCK, ODD_FLAG, MISSPELLED, ODD_DATA, TEXT_AS_STRUCTURE, STRUCTURE_AS_TEXT),
)
"""Every repair of a result of a tool."""

_ENVELOPE = frozenset({"_meta", "resultType"})
_MEMBERS = frozenset({"content", "structuredContent", "isError"})
_PLACES = ("content", "result", "toolResult")
"""The members that may hold another result; the last two only if there is nothing else in it."""
_FLAGS = (bool, NoneType)
_NO = frozenset({"false", "no", "off", "none", "null", "0", ""})


class BareResult(Json):
    """The stand-in for a result that is not an object.

    Attributes:
        value: The result: a list, a text, a number or a boolean.
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def readable_result(raw: JsonObject) -> tuple[Json, tuple[str, ...]]:
    """Return a result of `tools/call` in the form of the specification, and the changes, as phrases.

    A result that says nothing at all (an empty object, null) is returned as it is.
    """
    if isinstance(raw, BareResult):
        return _from_data(raw.value), (_BARE.problem,)
    # Phrases in the order of their first use, each once, however many blocks need the same repair.
    changes: dict[str, None] = {}
    made = dict(readable_outcome(raw, changes))
    # None of the members of a result is there: what is left, without the members of the envelope, is the data.
    if not made.keys() & _MEMBERS:
        data = without_members(made, *_ENVELOPE)
        if not data:
            return made, ()
        kept = {name: made[name] for name in made if name in _ENVELOPE}
        return kept | _from_data(data), (_NO_CONTENT.problem,)
    items = _items(made, changes)
    blocks: list[Any] = []
    for item in items:
        if item is None:
            changes[_NO_BLOCK.problem] = None
        else:
            blocks.append(_block(item, changes, made))
    if "content" in made or blocks:
        made["content"] = blocks
    return made, tuple(changes)


def _items(made: JsonObject, changes: dict[str, None]) -> list[Any]:
    """Return the items of the content of a result as a list, in every form of it that is read."""
    content: object = made.get("content", [])
    beside = without_members(made, *RESULT_NAMES.exact)
    if content == [] and beside and made.get("structuredContent") is None:
        changes[_BESIDE.problem] = None
        return [_text(_json(beside))]
    items = as_array(content)
    if content is None:
        changes[_NULL_CONTENT.problem] = None
        return []
    if items is None:
        changes[_NO_LIST.problem] = None
        return [content]
    if items and all(map(_has_blocks, items)):
        changes[WITHIN.problem] = None
        return [block for item in items for block in array_or_empty(item)]
    return items


def has_odd_outcome(raw: JsonObject) -> bool:
    """Return whether a strict client would not see the outcome of a result.

    A member has another spelling, the error flag is odd, or the result is data or is within another one.
    """
    if type(raw.get("isError")) not in _FLAGS or RESULT_NAMES.misspelled(raw):
        return True
    return is_data(raw) or _inner_result(raw) is not None


def is_data(raw: JsonObject) -> bool:
    """Return whether a complete result has no member of a result: it is the data itself, or holds another one."""
    if raw.keys() & _MEMBERS or raw.get("resultType", "complete") != "complete":
        return False
    return not raw.keys() <= _ENVELOPE


def readable_outcome(raw: JsonObject, changes: dict[str, None]) -> JsonObject:
    """Return a result with its members under their names, and a boolean as error flag.

    A result that reports an error under any spelling is an error: a failure that is read as a success is never noticed.

    Args:
        raw: The result as it came.
        changes: Gets the changes as phrases, in their order.
    """
    inner = _inner_result(raw)
    if inner is not None:
        changes[WITHIN.problem] = None
        # Some servers put the answer of another into their own. The error flag may stand in either.
        failed = _is_set(raw.get("isError")) or _is_set(inner.get("isError"))
        raw = {**without_members(raw, *_PLACES, "isError"), **without_members(inner, "isError")}
        if failed:
            raw["isError"] = True
    flags: dict[str, object] = {}
    if "isError" in raw:
        flags["isError"] = raw["isError"]
    for name, meant in RESULT_NAMES.misspelled(raw).items():
        if meant == "isError":
            flags[name] = raw[name]
            _add(changes, MISSPELLED.problem.format(name, meant))
    made = dict(spelled(raw, RESULT_NAMES, partial(_add, changes)))
    # Several spellings may contradict each other (`isError: false` beside `is_error: true`): an error wins.
    for flag in flags.values():
        if type(flag) not in _FLAGS:
            changes[ODD_FLAG.problem] = None
    if any(map(_is_set, flags.values())):
        made["isError"] = True
    elif made.get("isError") is not None:
        made["isError"] = False
    return made


def _inner_result(raw: JsonObject) -> JsonObject | None:
    """Return the result that another one holds in place of its content or of all of its members, or None."""
    places = _PLACES
    if raw.keys() & _MEMBERS:
        places = _PLACES[:1]
    for place in places:
        inner = as_object(raw.get(place))
        if inner is not None and _has_blocks(inner.get("content")):
            return inner
    return None


def _has_blocks(value: object) -> bool:
    """Return whether a value is a list of content blocks that has at least one."""
    items = array_or_empty(value)
    return bool(items) and all(map(_is_block, items))


def _is_set(flag: object) -> bool:
    """Return whether an error flag of any type reports an error."""
    if isinstance(flag, str):
        return flag.strip().lower() not in _NO
    return bool(flag)


def _add(changes: dict[str, None], change: str) -> None:
    changes[change] = None


def _from_data(value: Any) -> Json:
    """Return the result of a handler that gave the data itself."""
    # Only a list in which every item is a block is `content`. A list of data may have objects with a `type` among
    # its rows, and must reach the model whole.
    if _has_blocks(value):
        return {"content": array_or_empty(value)}
    if isinstance(value, str):
        return {"content": [_text(value)]}
    return {"content": [_text(_json(value))]}


def _block(item: Any, changes: dict[str, None], result: Json) -> Any:
    """Return one item of `content` as a block; note the failure that a block of the type `error` reports."""
    block = as_object(item)
    if block is None:
        changes[_NO_BLOCK.problem] = None
        return _text(item if isinstance(item, str) else _json(item))
    block = spelled_block(block, partial(_add, changes))
    image = _model_image(block)
    if image is not None:
        changes[_MODEL_IMAGE.problem] = None
        return image
    block = _with_bytes(block, changes)
    kind = block.get("type")
    if kind == "error":
        changes[_ERROR_BLOCK.problem] = None
        result["isError"] = True
        return {**_shared(block), **_text(_words(block, "text", "message", "error"))}
    if kind == "text" and not isinstance(block.get("text"), str):
        changes[_NO_TEXT.problem] = None
        return {**block, "text": _words(block, "text", "content", "value")}
    if not isinstance(kind, str):
        changes[_NO_TYPE.problem] = None
        return {**_shared(block), **_text(_words(block, "text", "content"))}
    return block


def _model_image(block: JsonObject) -> Json | None:
    """Return the image in a block of OpenAI's or Anthropic's APIs that holds its data, or None."""
    if block.get("type") not in ("image", "image_url", "input_image") or "data" in block:
        return None
    source = object_or_empty(block.get("source"))
    data: object = source.get("data")
    mime: object = source.get("media_type")
    if data is None:
        data = block.get("image_url", block.get("url"))
        data = object_or_empty(data).get("url", data)
        if not str(data).startswith("data:"):
            return None
    if not isinstance(data, str):
        return None
    made: Json = {**_shared(block), "type": "image", "data": data}
    if isinstance(mime, str):
        made["mimeType"] = mime
    return made


def _with_bytes(block: JsonObject, changes: dict[str, None]) -> JsonObject:
    """Return a block whose data is base64 in place of a list of bytes."""
    data = base64_in(block.get("data"))
    if data is not None:
        changes[ODD_DATA.problem] = None
        return {**block, "data": data}
    resource = object_or_empty(block.get("resource"))
    blob = base64_in(resource.get("blob"))
    if blob is None:
        return block
    changes[ODD_DATA.problem] = None
    return {**block, "resource": {**resource, "blob": blob}}


def _words(block: JsonObject, *names: str) -> str:
    """Return the first of these members as text, or the whole block as JSON."""
    for name in names:
        value = block.get(name)
        if isinstance(value, str):
            return value
        if value is not None:
            return _json(value)
    # A `type` that is an object or a list is data, so the block is shown whole rather than as an empty text.
    has_data = isinstance(block.get("type"), (dict, list))
    if block.keys() <= {"type", *names} and not has_data:
        return ""
    return _json(block)


def _shared(block: JsonObject) -> Json:
    return {name: block[name] for name in ("annotations", "_meta") if isinstance(block.get(name), dict)}


def _is_block(value: object) -> bool:
    return object_or_empty(value).get("type") in ("text", "image", "audio", "resource", "resource_link")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
