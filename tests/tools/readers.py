"""Results with blocks for different readers, as tools return them."""

from __future__ import annotations

import json
from typing import Any

from tests.export.offers import PNG
from toolweave import ImageContent, TextContent, ToolResult
from toolweave.tools import ContentBlock

__all__ = ["COMPACT", "MODEL", "PRETTY", "SUM", "USER", "assert_for_the_model", "picture", "report", "text", "twice"]

USER = {"audience": ["user"]}
MODEL = {"audience": ["assistant"], "priority": 0.5}
SUM = {"sum": 42, "of": ["a", True]}
PRETTY, COMPACT = json.dumps(SUM, indent=2), json.dumps(SUM, separators=(",", ":"))


def text(words: str, annotations: Any = None) -> TextContent:
    return TextContent(text=words, annotations=annotations)


def picture(annotations: Any = None) -> ImageContent:
    return ImageContent(data=PNG, mime_type="image/png", annotations=annotations)


def report() -> list[ContentBlock]:
    """Report."""
    return [text("raw figures", MODEL), text("a fine table", USER), picture(USER), text("done")]


def twice() -> ToolResult:
    """Add."""
    return ToolResult(content=(text(PRETTY), text("in words"), text(COMPACT)), structured_content=SUM)


SECRET = ("a fine table", PNG)


def assert_for_the_model(sent: str) -> None:
    assert "raw figures" in sent
    assert "done" in sent
    assert not any(words in sent for words in SECRET)
