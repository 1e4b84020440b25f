"""The blocks of a result by reader: a model, a person. Pure; the only module that decides this.

A block names its readers (`annotations.audience` of the MCP specification); one that names none is for both. Texts that
only repeat the structured content count once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from toolweave.protocol.content import ContentBlock, TextContent
from toolweave.protocol.skills import same_value

_LONGEST = 1_000_000
"""Characters of the longest text that is compared with structured content."""
_FOR_THE_USER = TextContent(text="(the result is for the user to see)")
_FAILED_FOR_THE_USER = TextContent(text="(the tool failed; its message is for the user)")


def blocks_for(
    reader: Literal["assistant", "user"],
    content: Sequence[ContentBlock],
    structured_content: Any,
    *,
    is_error: bool = False,
) -> Sequence[ContentBlock]:
    """Return the blocks that a reader is given of a result, in their order; nearly always `content` itself.

    Of several texts that are the structured content as JSON the first stays. A model whose blocks have no text gets the
    structured content as one, and a note where nothing at all is for it. A person gets the whole text of an error.
    """
    kept = content
    if not (is_error and reader == "user"):
        meant = [block for block in content if reader in block.audience]
        kept = content if len(meant) == len(content) else meant
    kept = _without_repeats(kept, structured_content)
    if reader == "user" or not content:
        return kept
    if structured_content is not None and not any(isinstance(block, TextContent) for block in kept):
        kept = [_as_text(structured_content), *kept]
    return kept or (_FAILED_FOR_THE_USER if is_error else _FOR_THE_USER,)


def _as_text(value: Any) -> TextContent:
    try:
        return TextContent(text=json.dumps(value, ensure_ascii=False, default=str))
    except (ValueError, RecursionError):
        return TextContent(text="[structured content that is not JSON, or nested too deeply to be shown]")


def _without_repeats(content: Sequence[ContentBlock], structured_content: Any) -> Sequence[ContentBlock]:
    """Return the blocks without all texts but the first of those that are the structured content as JSON."""
    if structured_content is None or sum(isinstance(block, TextContent) for block in content) < 2:
        return content
    kept: list[ContentBlock] = []
    is_shown = False
    for block in content:
        if isinstance(block, TextContent) and is_json_of(block.text, structured_content):
            if is_shown:
                continue
            is_shown = True
        kept.append(block)
    if len(kept) == len(content):
        return content
    return kept


def is_json_of(text: str, value: Any) -> bool:
    """Return whether a text is this value as JSON, in any layout; false for one that is too long to parse."""
    if len(text) > _LONGEST:
        return False
    try:
        return same_value(json.loads(text), value)
    except (ValueError, RecursionError):
        return False
