"""A toolset as LangChain tools; LangChain is imported when the first is made."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from toolweave.errors import ToolExecutionError
from toolweave.export._blocking import Bridge
from toolweave.export._tool_calls import run_call
from toolweave.export._tool_export import ToolExport
from toolweave.tools._call import ToolCall
from toolweave.tools._media_parts import PDF, Media, shown
from toolweave.tools._openai_content import chat_text
from toolweave.tools._result import ToolResult
from toolweave.tools._sources import ToolSource
from toolweave.tools._spec import ToolSpec
from toolweave.tools._toolset import Toolset
from toolweave.tools._visible import shown_result, shown_spec
from toolweave.tools._wire_tools import WireTool

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

__all__ = ["langchain_tools"]


def langchain_tools(source: ToolSource, *, handle_tool_error: bool = True) -> list[BaseTool]:
    """Return the tools of a toolset as LangChain tools, for `create_agent`, `bind_tools` or a `ToolNode`.

    The list is a snapshot; a call goes to the current toolset. Schemas are the tools' own JSON Schema,
    unchanged. The content of a message is text, or text, images and PDFs; its artifact holds `structured_content` and
    `meta`. `tool.metadata` has the tool's own name, its server and its annotations. `invoke` works in a thread without
    an event loop, and runs the call on the loop in which the tools were exported.

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        handle_tool_error: An error result is a message of status `error` that the model reads. False raises it as
            `ToolException`, caused by a `ToolExecutionError` with the whole result.

    Raises:
        ModuleNotFoundError: LangChain is missing: `pip install 'toolweave[langchain]'`.
    """
    listing = ToolExport(source, "openai", _parts)
    made, bridge = _tool_class(), Bridge()
    wire, snapshot = listing.now(), listing.toolset.snapshot()
    return [
        made(
            name=wire.names.wire(spec.name),
            description=spec.description,
            args_schema=dict(spec.input_schema),
            metadata=_metadata(spec),
            handle_tool_error=handle_tool_error,
            toolset=listing.toolset,
            exposed=spec.name,
            bridge=bridge,
        )
        for spec in (shown_spec(spec) for spec in snapshot if spec.name not in wire.quarantined)
    ]


def _parts(tool: WireTool) -> dict[str, Any]:
    return {"name": tool.name}


@cache
def _tool_class() -> type[Any]:
    from langchain_core.tools import BaseTool

    class ToolsetTool(BaseTool):
        """One tool of a toolset."""

        response_format: Any = "content_and_artifact"
        toolset: Any
        exposed: str
        bridge: Any

        # parameters of any name: `self` is positional, and `config` or `run_manager` are the tool's own here
        async def _arun(self, /, **arguments: Any) -> Any:
            return await _run(self.toolset, self.exposed, arguments)

        def _run(self, /, **arguments: Any) -> Any:
            return self.bridge.run(
                lambda: _run(self.toolset, self.exposed, arguments), instead="use `await tool.ainvoke(...)`"
            )

    return ToolsetTool


async def _run(toolset: Toolset, name: str, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return content and artifact.

    Raises:
        ToolException: The result is an error.
    """
    result = await run_call(toolset, ToolCall(name=name, arguments=arguments))
    if result.is_error:
        from langchain_core.tools import ToolException

        raise ToolException(chat_text(result)) from ToolExecutionError(result.require_error(), result=result, tool=name)
    result = shown_result(result)
    parts = [_part(one) for one in shown(result.content)]
    content = chat_text(result) if all(part["type"] == "text" for part in parts) else parts
    return content, _artifact(result)


def _part(one: str | Media) -> dict[str, Any]:
    """Return a standard content block of LangChain."""
    if isinstance(one, str):
        return {"type": "text", "text": one}
    named = {"filename": one.name} if one.mime_type == PDF else {}
    kind = "file" if one.mime_type == PDF else "image"
    return {"type": kind, "base64": one.data, "mime_type": one.mime_type, **named}


def _artifact(result: ToolResult) -> dict[str, Any]:
    """Return the members that are not in the content, as JSON values: LangGraph's checkpoints serialize them."""
    return {"structured_content": result.structured_content, "meta": dict(result.meta)}


def _metadata(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "server": spec.server, "annotations": dict(spec.annotations or {})}
