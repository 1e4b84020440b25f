"""The second reading of a result of `tools/call` that the specification does not allow.

Servers give a text or one block in place of a list of blocks, blocks without a type, the data itself without
`content`, or failures in blocks of the type `error`. What is plainly meant is read, nothing is dropped, and each change
is reported. Whether a call succeeded is changed only where the server says so in another way. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from toolweave.protocol.json_types import Json

__all__ = ["BareResult", "readable_result"]

_ENVELOPE = frozenset({"_meta", "resultType"})
_MEMBERS = frozenset({"content", "structuredContent", "isError"})
_YES = ("true", 1)
_NO = ("false", 0)


class BareResult(dict[str, Any]):
    """The stand-in for a result that is no object.

    Attributes:
        value: The result: a list, a text, a number or a boolean.
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def readable_result(raw: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Return a result of `tools/call` in the form of the specification, and the changes, as phrases.

    A result that says nothing at all (an empty object, null) is returned as it is.
    """
    if isinstance(raw, BareResult):
        return _bare(raw.value), ("is not an object",)
    made = dict(raw)
    changes: dict[str, None] = {}
    if not made.keys() & _MEMBERS:
        data = {name: value for name, value in made.items() if name not in _ENVELOPE}
        if not data:
            return made, ()
        kept = {name: made[name] for name in made if name in _ENVELOPE}
        return kept | _bare(data), ("has no 'content'",)
    content: Any = made.get("content", [])
    if content is None:
        changes["has null as 'content'"] = None
        content = []
    elif not isinstance(content, list):
        changes["has 'content' that is not a list"] = None
        content = [content]
    blocks = [_block(item, changes, made) for item in cast("list[Any]", content) if item is not None]
    if "content" in made or blocks:
        made["content"] = blocks
    _read_flag(made, changes)
    return made, tuple(changes)


def _bare(value: Any) -> Json:
    """Return the result of a handler that gave the data itself."""
    if isinstance(value, list) and value and all(_is_block(one) for one in cast("list[Any]", value)):
        return {"content": value}
    if isinstance(value, str):
        return {"content": [_text(value)]}
    return {"content": [_text(_json(value))]}


def _block(item: Any, changes: dict[str, None], result: Json) -> Any:
    """Return one item of `content` as a block; note the failure that a block of the type `error` reports."""
    if not isinstance(item, dict):
        changes["has content that is not a block"] = None
        return _text(item if isinstance(item, str) else _json(item))
    block = cast("Json", item)
    kind = block.get("type")
    if kind == "error":
        changes["reports a failure in a block of the type 'error'"] = None
        result["isError"] = True
        return {**_shared(block), **_text(_words(block, "text", "message", "error"))}
    if kind == "text" and not isinstance(block.get("text"), str):
        changes["has a block whose text is not a text"] = None
        return {**block, "text": _words(block, "text", "content", "value")}
    if not isinstance(kind, str):
        changes["has a block without a type"] = None
        return {**_shared(block), **_text(_words(block, "text", "content"))}
    return block


def _read_flag(made: Json, changes: dict[str, None]) -> None:
    flag: Any = made.get("isError", False)
    if isinstance(flag, bool) or flag is None:
        return
    changes["has 'isError' that is not a boolean"] = None
    word: Any = flag.strip().lower() if isinstance(flag, str) else flag
    if word in _YES or word in _NO:
        made["isError"] = word in _YES
    else:  # any other word says nothing
        del made["isError"]


def _words(block: Json, *names: str) -> str:
    """Return the first of these members as text, or the whole block as JSON."""
    for name in names:
        value = block.get(name)
        if isinstance(value, str):
            return value
        if value is not None:
            return _json(value)
    is_empty = block.keys() <= {"type", *names} and not isinstance(block.get("type"), (dict, list))
    return "" if is_empty else _json(block)


def _shared(block: Json) -> Json:
    return {name: block[name] for name in ("annotations", "_meta") if isinstance(block.get(name), dict)}


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in ("text", "image", "audio", "resource", "resource_link")  # pyright: ignore[reportUnknownMemberType]


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
