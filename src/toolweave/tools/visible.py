r"""Definitions and results as a model is given them: every character that cannot be seen is written out.

A hidden character can carry text to a model that the person beside it does not see. Nothing is dropped: it becomes
text, such as `\u202e`. Definitions and results themselves stay as they came.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolweave._json_types import JsonObject
from toolweave._text import is_plain, visible
from toolweave.protocol.content import ContentBlock, EmbeddedResource, TextContent
from toolweave.tools.arguments import encode
from toolweave.tools.spec import ToolSpec

__all__ = ["is_plain_json", "shown_blocks", "shown_schema", "shown_spec", "shown_text", "shown_value"]

_ESCAPED = re.compile(rb"\\(?:u00|[bf])")
"""A control character in JSON, or a pattern that has `\\b` for a word's end: that is only looked at again."""


def is_plain_json(data: bytes) -> bool:
    """Whether no text in encoded JSON surely has a hidden character; quick, and false where it has to be read."""
    if b"\x7f" in data or (b"\\" in data and _ESCAPED.search(data) is not None):
        return False
    return data.isascii() or is_plain(data.decode())


def shown_text(text: str) -> str:
    """Return a text that is safe to give to a model: of hidden characters, only tabs and line ends stay."""
    return visible(text, keep="\t\n\r")


def shown_schema(schema: JsonObject) -> Any:  # Any: the same type as it came
    """Return a JSON Schema as a model may be given it, with its names and values; nearly always the schema itself.

    Raises:
        RecursionError: It is nested more deeply than any that a model is given.
    """
    # One made in code may hold another kind of mapping.
    return shown_value(schema)


def shown_spec(spec: ToolSpec) -> ToolSpec:
    """Return a definition as a model may be given it; nearly always the definition itself."""
    description = shown_text(spec.description)
    schema = shown_schema(spec.input_schema)
    if description is spec.description and schema is spec.input_schema:
        return spec
    return spec.replace(description=description, input_schema=schema)


def shown_value(value: Any) -> Any:  # Any: JSON
    """Return structured content as a model may be given it, with its names and values; nearly always the value itself.

    Raises:
        RecursionError: It is nested more deeply than any that a model is given.
    """
    try:
        plain = is_plain_json(encode(value))
    except (TypeError, ValueError, OverflowError):
        # A value made in code may hold what JSON does not have.
        plain = False
    if plain:
        return value
    return _shown_json(value)


def shown_blocks(blocks: Sequence[ContentBlock]) -> Sequence[ContentBlock]:
    """Return blocks as a model may be given them; nearly always the same sequence."""
    shown = tuple(map(_shown_block, blocks))
    if all(map(operator.is_, shown, blocks)):
        return blocks
    return shown


def _shown_block(block: ContentBlock) -> ContentBlock:
    if isinstance(block, TextContent):
        if is_plain(block.text):
            return block
        return block.replace(text=shown_text(block.text))
    if isinstance(block, EmbeddedResource) and not (is_plain(block.uri) and is_plain(block.text or "")):
        return block.replace(uri=shown_text(block.uri), text=None if block.text is None else shown_text(block.text))
    note = block.render()
    if is_plain(note):
        return block
    return TextContent(text=shown_text(note))


def _shown_json(value: Any) -> Any:
    if isinstance(value, str):
        return shown_text(value)
    if isinstance(value, Mapping):
        return {shown_text(key): _shown_json(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return list(map(_shown_json, cast("Sequence[Any]", value)))
    return value
