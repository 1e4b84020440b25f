"""The blocks of a result by reader: a model, a person. Pure; the only module that decides this.

A block names its readers (`annotations.audience` of the MCP specification); one that names none is for both. Texts that
only repeat the structured content count once. An error's structured content is read by nobody but them, so details that
its texts lack are added to these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from toolweave._json_types import as_array, as_object
from toolweave.errors import shortened
from toolweave.protocol.content import ContentBlock, TextContent
from toolweave.protocol.skills import same_value
from toolweave.tools.visible import shown_text

_LONGEST = 1_000_000
"""Characters of the longest text that is compared with structured content."""
_MAX_DETAILS = 4_000
"""Characters of the structured content of an error that are added to its texts."""
_MAX_SEARCHED = 20_000
"""Characters of an error's texts that are searched for its details; longer ones have an end anyway."""
LEFT_OUT = "characters left out here"
"""The words of the note in a shortened text, whose whole text has the details of an error."""
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
    Both get the details of an error that only its structured content has, cut to 4,000 characters.
    """
    kept = content
    if not (is_error and reader == "user"):
        meant = [block for block in content if reader in block.audience]
        kept = content if len(meant) == len(content) else meant
    kept = _without_repeats(kept, structured_content)
    if is_error and structured_content is not None:
        kept = _with_details(kept, structured_content)
    if reader == "user" or not content:
        return kept
    if structured_content is not None and not any(isinstance(block, TextContent) for block in kept):
        kept = [_as_text(structured_content), *kept]
    return kept or (_FAILED_FOR_THE_USER if is_error else _FOR_THE_USER,)


def _with_details(content: Sequence[ContentBlock], structured_content: Any) -> Sequence[ContentBlock]:
    """Return the blocks of an error and a text with its structured content, unless their texts have all of it.

    The result is a fixed point: added once, the text is found again. So is the note of a shortened text.
    """
    texts = [block.text for block in content if isinstance(block, TextContent)]
    if not texts or any(LEFT_OUT in text for text in texts):
        return content
    details = shown_text(shortened(_as_text(structured_content).text, _MAX_DETAILS))
    if details in texts or any(is_json_of(text, structured_content) for text in texts):
        return content
    try:
        # More than `_MAX_DETAILS` is not looked for, so that the search has an end.
        if len(details) <= _MAX_DETAILS and _is_in(shown_text("\n".join(texts)[:_MAX_SEARCHED]), structured_content):
            return content
    except RecursionError:
        pass
    return [*content, TextContent(text=details)]


def _is_in(text: str, value: Any) -> bool:
    """Return whether a text, as a model is given it, has every value of structured content.

    Raises:
        RecursionError: The content is nested too deeply.
    """
    members = as_object(value)
    if members is not None:
        return all(_is_in(text, member) for member in members.values())
    items = as_array(value)
    if items is not None:
        return all(_is_in(text, item) for item in items)
    if isinstance(value, str):
        return shown_text(value) in text
    return re.search(rf"(?<![\w.]){re.escape(json.dumps(value, default=str))}(?!\w)", text) is not None


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
