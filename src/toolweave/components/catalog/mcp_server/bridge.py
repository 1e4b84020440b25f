"""What clients get to see of a result: the place to shorten, redact or log."""

from __future__ import annotations

import logging

from toolweave import TextContent, ToolResult, ToolSpec

LONGEST = 20_000
"""Characters of one text; what is longer fills a model's context."""

log = logging.getLogger(__name__)


def for_clients(result: ToolResult, spec: ToolSpec) -> ToolResult:
    """Return the result of a tool as it is sent; called for errors too."""
    if result.is_error:
        log.warning("%s failed: %s", spec.name, result.text)
    blocks = [
        shortened(block) if isinstance(block, TextContent) else block
        for block in result.content
    ]
    return result.replace_content(blocks)


def shortened(block: TextContent) -> TextContent:
    """Return a text that is no longer than `LONGEST`, and says so if it was."""
    left_out = len(block.text) - LONGEST
    if left_out <= 0:
        return block
    return TextContent(text=f"{block.text[:LONGEST]}\n[{left_out} characters left out]")
