"""Tools, the noun: what a tool is, what it answers, and everything that offers some.

Knows no transport and no model. Names of this room; the root package lifts most of them.
"""

from __future__ import annotations

from toolweave.tools.as_toolset import ToolSource, as_toolset
from toolweave.tools.call import CallContext, Progress, ProgressCallback, ToolCall
from toolweave.tools.function import FunctionTool, tool
from toolweave.tools.names import NameMap, ToolName, aliases, expose
from toolweave.tools.registry import Alias, OnConflict, ToolRegistry
from toolweave.tools.result import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResult,
    UnknownContent,
)
from toolweave.tools.spec import Tool, ToolList, ToolSpec
from toolweave.tools.toolset import ToolsChanged, Toolset, ToolSnapshot, Unsubscribe, changes, tools_of
from toolweave.tools.wrappers import combined, enhanced, filtered, prefixed, renamed, traced, transformed

__all__ = [
    "Alias",
    "AudioContent",
    "CallContext",
    "ContentBlock",
    "EmbeddedResource",
    "FunctionTool",
    "ImageContent",
    "NameMap",
    "OnConflict",
    "Progress",
    "ProgressCallback",
    "ResourceLink",
    "TextContent",
    "Tool",
    "ToolCall",
    "ToolList",
    "ToolName",
    "ToolRegistry",
    "ToolResult",
    "ToolSnapshot",
    "ToolSource",
    "ToolSpec",
    "ToolsChanged",
    "Toolset",
    "UnknownContent",
    "Unsubscribe",
    "aliases",
    "as_toolset",
    "changes",
    "combined",
    "enhanced",
    "expose",
    "filtered",
    "prefixed",
    "renamed",
    "tool",
    "tools_of",
    "traced",
    "transformed",
]
