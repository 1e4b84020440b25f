"""A toolset as LangChain tools; LangChain is imported when the first is made, LangGraph never."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Self, cast

from toolweave._json_types import Json, JsonObject
from toolweave.errors import ErrorKind, ToolError, ToolExecutionError
from toolweave.export._approval_hints import ApprovalHints, ConfirmCalls
from toolweave.export._blocking import Bridge
from toolweave.providers._media_parts import PDF, Media, shown
from toolweave.providers._openai_content import chat_text
from toolweave.providers._tool_calls import reporting_to, run_call
from toolweave.providers._tool_export import ToolExport
from toolweave.providers._wire_tools import WireTool
from toolweave.tools import CallContext, Progress, ToolCall, ToolResult, ToolSource, ToolSpec
from toolweave.tools._approval_request import approval_request
from toolweave.tools.ambient import ambient_context
from toolweave.tools.visible import shown_spec

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_PROGRESS = "toolweave_progress"
"""The `type` of progress events in a graph's custom stream."""
_call_id: ContextVar[str | None] = ContextVar("toolweave-langchain-call", default=None)


def langchain_tools(
    source: ToolSource, *, handle_tool_error: bool = True, confirm: ConfirmCalls = "never"
) -> list[BaseTool]:
    """Return the tools of a toolset as LangChain tools, for `create_agent`, `bind_tools` or a `ToolNode`.

    The list is a snapshot; a call goes to the current toolset. Schemas are the tools' own JSON Schema. Arguments with
    names that some model APIs refuse, such as `filter[name]`, have legal ones. The content of a message is text, or
    text, images and PDFs; its artifact holds `structured_content` and `meta`. `tool.metadata` has the tool's own name,
    its server and its annotations. `invoke` works in a thread without an event loop, and runs the call on the loop in
    which the tools were exported. In a graph the progress of a call is in the stream of `stream_mode="custom"`:
    `{"type": "toolweave_progress", "tool", "tool_call_id", "progress", "total", "message"}`.

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        handle_tool_error: An error result is a message of status `error` that the model reads. False raises it as
            `ToolException`, caused by a `ToolExecutionError` with the whole result.
        confirm: The calls that need a person's approval: the graph is interrupted with a request in the form of
            LangChain's `HumanInTheLoopMiddleware`, and continues with `Command(resume={"decisions": [{"type":
            "approve"}]})`, or `"reject"`. It needs a checkpointer.

    Raises:
        ModuleNotFoundError: LangChain is missing: `pip install 'toolweave[langchain]'`.
        ValueError: `confirm` does not name a policy.
    """
    listing = ToolExport(source, "openai", _parts, any_api=True)
    made = _tool_class()
    bridge = Bridge()
    hints = ApprovalHints(confirm, listing.toolset)
    wire = listing.now()
    snapshot = listing.toolset.snapshot()
    legal: dict[str, JsonObject] = {wire.call_name(one["name"]): one["schema"] for one in wire.definitions}
    tools: list[BaseTool] = []
    for offered in snapshot:
        if offered.name in wire.quarantined:
            continue
        spec = shown_spec(offered)
        schema = legal[spec.name] if spec.name in wire.renamed else spec.input_schema
        tool = made(
            name=wire.names.wire(spec.name),
            description=spec.description,
            args_schema=dict(schema),
            renamed=wire.renamed.get(spec.name, {}),
            metadata=_metadata(spec, hints),
            handle_tool_error=handle_tool_error,
            toolset=listing.toolset,
            exposed=spec.name,
            bridge=bridge,
            hints=hints,
        )
        tools.append(tool)
    return tools


def _parts(tool: WireTool) -> Json:
    return {"name": tool.name, "schema": tool.schema}


@cache
def _tool_class() -> type[Any]:
    from langchain_core.tools import BaseTool

    class ToolsetTool(BaseTool):
        """One tool of a toolset."""

        response_format: Any = "content_and_artifact"
        toolset: Any
        exposed: str
        bridge: Any
        hints: Any
        renamed: Any

        def needs_approval(self, arguments: JsonObject) -> bool:
            """Whether a person has to approve a call."""
            return self.hints is not None and self.hints.of_call(ToolCall(name=self.exposed, arguments=arguments))

        def approved(self) -> Self:
            """Return the tool as it is after an approval: it asks for none."""
            return self.model_copy(update={"hints": None})

        def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
            token = _call_id.set(_id_of(input))
            try:
                return super().invoke(input, config, **options)
            finally:
                _call_id.reset(token)

        async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002
            token = _call_id.set(_id_of(input))
            try:
                return await super().ainvoke(input, config, **options)
            finally:
                _call_id.reset(token)

        # parameters of any name: `self` is positional, and `config` or `run_manager` are the tool's own here
        async def _arun(self, /, **arguments: Any) -> Any:
            arguments = _own_arguments(self, arguments)
            _ask(self, arguments)
            return await _run(self, arguments, _context(self))

        def _run(self, /, **arguments: Any) -> Any:
            arguments = _own_arguments(self, arguments)
            _ask(self, arguments)
            # In this thread, because the bridge runs the call in another context, which does not have the graph's
            # stream.
            ctx = _context(self)
            return self.bridge.run(lambda: _run(self, arguments, ctx), instead="use `await tool.ainvoke(...)`")

    return ToolsetTool


def _own_arguments(tool: Any, arguments: JsonObject) -> Json:
    """Return a model's arguments under the tool's own names."""
    return {tool.renamed.get(name, name): value for name, value in arguments.items()}


def _id_of(given: Any) -> str | None:
    """Return the id of a tool call, None where a tool is invoked with its arguments alone."""
    call: JsonObject = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
    if call.get("type") == "tool_call":
        found = call.get("id")
    else:
        found = None
    if isinstance(found, str):
        return found
    return None


def _ask(tool: Any, arguments: JsonObject) -> None:
    """Interrupt the graph for a person's approval of a call that needs one.

    Raises:
        ToolException: It was not approved.
        RuntimeError: The tool is not called by a graph, which alone can ask.
    """
    if not tool.needs_approval(arguments):
        return
    # A graph that can be interrupted has imported it, so its absence is the answer, without the cost of the import.
    if "langgraph.types" not in sys.modules:
        raise RuntimeError(_NOBODY.format(tool.name))
    from langchain_core.tools import ToolException
    from langgraph.types import interrupt

    try:
        answer = interrupt(approval_request(tool.name, arguments, tool.description, _call_id.get()))
    except (KeyError, RuntimeError) as exc:
        raise RuntimeError(_NOBODY.format(tool.name)) from exc
    approved, reason = _decision(answer)
    if not approved:
        error = ToolError(f"the call of tool {tool.name!r} was not approved{reason}", kind=ErrorKind.DENIED)
        raise ToolException(f"Error: {error.message}") from ToolExecutionError(
            error, result=ToolResult.failure(error), tool=tool.exposed
        )


_NOBODY = "tool {!r} needs a person's approval, for which a graph of LangGraph with a checkpointer has to call it"


def _decision(answer: Any) -> tuple[bool, str]:
    """Return whether an answer approves, and its reason; an unreadable answer does not."""
    given: JsonObject = cast("Mapping[str, Any]", answer) if isinstance(answer, Mapping) else {}
    decisions = given.get("decisions")
    first: Any = next(iter(cast("list[Any]", decisions)), None) if isinstance(decisions, list) else None
    decision: JsonObject = cast("Mapping[str, Any]", first) if isinstance(first, Mapping) else {}
    reason = decision.get("message")
    return answer is True or decision.get("type") == "approve", f": {reason}" if reason else ""


def _context(tool: Any) -> CallContext:
    """Return the context of a call; in a graph, its progress is written into the graph's custom stream."""
    if "langgraph.config" not in sys.modules:
        return ambient_context()
    from langgraph.config import get_stream_writer

    try:
        write = get_stream_writer()
    except (KeyError, RuntimeError):  # not called by a graph
        return ambient_context()
    name = tool.name
    call_id = _call_id.get()

    def report(progress: Progress) -> None:
        amounts = {"progress": progress.progress, "total": progress.total, "message": progress.message}
        write({"type": _PROGRESS, "tool": name, "tool_call_id": call_id, **amounts})

    return reporting_to(report)


async def _run(tool: Any, arguments: JsonObject, ctx: CallContext) -> tuple[Any, Any]:
    """Return content and artifact.

    Raises:
        ToolException: The result is an error.
    """
    call = ToolCall(name=tool.exposed, arguments=arguments, id=_call_id.get())
    result = await run_call(tool.toolset, call, ctx)
    if result.is_error:
        from langchain_core.tools import ToolException

        raise ToolException(chat_text(result)) from ToolExecutionError(
            result.require_error(), result=result, tool=tool.exposed
        )
    result = result.for_model()
    parts = list(map(_part, shown(result.content)))
    if all(part["type"] == "text" for part in parts):
        content = chat_text(result)
    else:
        content = parts
    return content, _artifact(result)


def _part(one: str | Media) -> Json:
    """Return a standard content block of LangChain."""
    if isinstance(one, str):
        return {"type": "text", "text": one}
    named = {"filename": one.name} if one.mime_type == PDF else {}
    kind = "file" if one.mime_type == PDF else "image"
    return {"type": kind, "base64": one.data, "mime_type": one.mime_type, **named}


def _artifact(result: ToolResult) -> Json:
    """Return the members that are not in the content, as JSON values: LangGraph's checkpoints serialize them."""
    return {"structured_content": result.structured_content, "meta": dict(result.meta)}


def _metadata(spec: ToolSpec, hints: ApprovalHints) -> Json:
    if hints.of_tool(spec):
        asks = {"requires_approval": True}
    else:
        asks = {}
    return {"name": spec.name, "server": spec.server, "annotations": dict(spec.annotations or {}), **asks}
