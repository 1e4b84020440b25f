"""A toolset as function tools of the OpenAI Agents SDK; the SDK is imported when the first is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolweave.export._openai import MAX_DESCRIPTION
from toolweave.export._tool_calls import run_call
from toolweave.export._tool_export import ToolExport
from toolweave.tools._call import ToolCall
from toolweave.tools._openai_content import chat_text, responses_content
from toolweave.tools._result import ToolResult
from toolweave.tools._sources import ToolSource
from toolweave.tools._wire_tools import WireTool

if TYPE_CHECKING:
    from agents import AgentBase, FunctionTool, RunContextWrapper, Tool
    from agents.tool_context import ToolContext

__all__ = ["openai_agents_tools"]


def openai_agents_tools(source: ToolSource, *, strict: bool = False) -> list[Tool]:
    """Return the tools of a toolset for `agents.Agent(tools=...)`.

    A tool that the toolset no longer offers is disabled at the next turn of the model; one that is new is in the next
    list. Errors are text for the model to read, and never end a run.

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        strict: Enforce the schemas of those tools whose schemas OpenAI's strict mode can express.

    Raises:
        ModuleNotFoundError: The SDK is missing: `pip install 'toolweave[openai-agents]'`.
    """
    listing = ToolExport(
        source,
        "openai",
        _parts,
        strict="openai-strict" if strict else None,
        max_description=MAX_DESCRIPTION,
    )
    return [_function_tool(listing, one["tool"]) for one in listing.now().definitions]


def _parts(tool: WireTool) -> dict[str, Any]:
    return {"tool": tool}


def _function_tool(listing: ToolExport, tool: WireTool) -> FunctionTool:
    from agents import FunctionTool

    toolset = listing.toolset
    name = listing.now().call_name(tool.name)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        call = listing.call(tool.name, arguments, context.tool_call_id)
        return _output(await run_call(toolset, call) if isinstance(call, ToolCall) else call)

    spec = toolset.snapshot().find(name)
    setattr(invoke, "toolweave_annotations", spec.annotations if spec else None)  # noqa: B010 - a function has no such member

    def is_offered(context: RunContextWrapper[Any], agent: AgentBase[Any]) -> bool:
        return name in toolset.snapshot().by_name

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.schema),
        on_invoke_tool=invoke,
        strict_json_schema=tool.strict,
        is_enabled=is_offered,
    )


def _output(result: ToolResult) -> str | list[dict[str, Any]]:
    """Return a result in the SDK's form: a string, or parts if it is more than text."""
    parts = responses_content(result)
    return chat_text(result) if isinstance(parts, str) else [_part(part) for part in parts]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "type": part["type"].removeprefix("input_")}
