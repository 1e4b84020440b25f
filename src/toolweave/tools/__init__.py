"""Tools: definitions, calls, results, functions as tools, toolsets and wrappers.

Independent of transports and models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.protocol.client_requests import (
        ElicitationResult,
        Elicited,
        Root,
        SamplingMessage,
        SamplingResult,
    )
    from toolweave.protocol.content import (
        AudioContent,
        ContentBlock,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextContent,
        UnknownContent,
    )
    from toolweave.protocol.logs import LogLevel
    from toolweave.tools._call import (
        IDEMPOTENCY_KEY,
        RESUMABLE,
        CallContext,
        Progress,
        ProgressCallback,
        ProgressReporter,
        ToolCall,
    )
    from toolweave.tools._call_questions import CallQuestions
    from toolweave.tools._caller import Caller, CallerSession
    from toolweave.tools._client_requests import Elicitation, Question, Roots, Sampling
    from toolweave.tools._function import FunctionTool, tool
    from toolweave.tools._registry import Alias, OnConflict, ToolRegistry
    from toolweave.tools._saved_files import files_saved, save_files
    from toolweave.tools._truncation import BudgetedToolset, ResultPolicy, budgeted
    from toolweave.tools._wrappers import (
        BaseToolset,
        RoutingToolset,
        WrapperToolset,
        combined,
        enhanced,
        filtered,
        prefixed,
        renamed,
        traced,
        transformed,
    )
    from toolweave.tools.media import File
    from toolweave.tools.names import NameMap, ToolName, aliases, expose
    from toolweave.tools.result import ToolResult
    from toolweave.tools.sources import ToolSource, as_toolset
    from toolweave.tools.spec import AppliedRule, ToolSpec
    from toolweave.tools.toolset import (
        Tool,
        ToolList,
        ToolsChanged,
        Toolset,
        ToolSnapshot,
        Unsubscribe,
        changes,
        tools_of,
    )
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".protocol.client_requests": (
                "ElicitationResult",
                "Elicited",
                "Root",
                "SamplingMessage",
                "SamplingResult",
            ),
            ".protocol.content": (
                "AudioContent",
                "ContentBlock",
                "EmbeddedResource",
                "ImageContent",
                "ResourceLink",
                "TextContent",
                "UnknownContent",
            ),
            ".protocol.logs": ("LogLevel",),
            "_call": (
                "CallContext",
                "IDEMPOTENCY_KEY",
                "Progress",
                "ProgressCallback",
                "ProgressReporter",
                "RESUMABLE",
                "ToolCall",
            ),
            "_call_questions": ("CallQuestions",),
            "_caller": ("Caller", "CallerSession"),
            "_client_requests": (
                "Elicitation",
                "Question",
                "Roots",
                "Sampling",
            ),
            "_function": (
                "FunctionTool",
                "tool",
            ),
            "media": ("File",),
            "names": (
                "NameMap",
                "ToolName",
                "aliases",
                "expose",
            ),
            "_registry": (
                "Alias",
                "OnConflict",
                "ToolRegistry",
            ),
            "result": ("ToolResult",),
            "_saved_files": (
                "files_saved",
                "save_files",
            ),
            "sources": (
                "ToolSource",
                "as_toolset",
            ),
            "spec": (
                "AppliedRule",
                "ToolSpec",
            ),
            "toolset": (
                "Tool",
                "ToolList",
                "ToolSnapshot",
                "ToolsChanged",
                "Toolset",
                "Unsubscribe",
                "changes",
                "tools_of",
            ),
            "_truncation": (
                "BudgetedToolset",
                "ResultPolicy",
                "budgeted",
            ),
            "_wrappers": (
                "BaseToolset",
                "RoutingToolset",
                "WrapperToolset",
                "combined",
                "enhanced",
                "filtered",
                "prefixed",
                "renamed",
                "traced",
                "transformed",
            ),
        },
        moved={"providers": ("WireTools",)},
    )

__all__ = [
    "IDEMPOTENCY_KEY",
    "RESUMABLE",
    "Alias",
    "AppliedRule",
    "AudioContent",
    "BaseToolset",
    "BudgetedToolset",
    "CallContext",
    "CallQuestions",
    "Caller",
    "CallerSession",
    "ContentBlock",
    "Elicitation",
    "ElicitationResult",
    "Elicited",
    "EmbeddedResource",
    "File",
    "FunctionTool",
    "ImageContent",
    "LogLevel",
    "NameMap",
    "OnConflict",
    "Progress",
    "ProgressCallback",
    "ProgressReporter",
    "Question",
    "ResourceLink",
    "ResultPolicy",
    "Root",
    "Roots",
    "RoutingToolset",
    "Sampling",
    "SamplingMessage",
    "SamplingResult",
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
    "WrapperToolset",
    "aliases",
    "as_toolset",
    "budgeted",
    "changes",
    "combined",
    "enhanced",
    "expose",
    "files_saved",
    "filtered",
    "prefixed",
    "renamed",
    "save_files",
    "tool",
    "tools_of",
    "traced",
    "transformed",
]
