"""A server on the official SDK whose tools ask their client back: by requests (legacy), in rounds (modern)."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = ["asking"]

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "default": 3}},
    "required": ["name"],
}
HOW = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="How do you do?"))
QUESTIONS: dict[str, types.InputRequest] = {
    "sample": types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[HOW], max_tokens=50)),
    "elicit": types.ElicitRequest(params=types.ElicitRequestFormParams(message="Who?", requested_schema=FORM)),
    "visit": types.ElicitRequest(
        params=types.ElicitRequestURLParams(message="Look", url="https://example.com/a", elicitation_id="v")
    ),
    "list_roots": types.ListRootsRequest(),
}
ANSWERS: dict[str, Any] = {
    "sample": types.CreateMessageResult,
    "elicit": types.ElicitResult,
    "visit": types.ElicitResult,
    "list_roots": types.ListRootsResult,
}


def asking() -> Server[Any]:
    """Return the server; each of its tools asks the question of its name and returns the answer."""

    async def on_list_tools(
        ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in (*QUESTIONS, "log")]
        return types.ListToolsResult(tools=tools)

    async def on_call_tool(
        ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        name = params.name
        if name == "log":
            note = types.LoggingMessageNotificationParams(level="warning", logger="sdk", data="careful")
            await ctx.session.send_notification(
                types.LoggingMessageNotification(params=note), related_request_id=ctx.request_id
            )
            return types.CallToolResult(content=[])
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            related = ServerMessageMetadata(related_request_id=ctx.request_id)
            answer: Any = await ctx.session.send_request(QUESTIONS[name], ANSWERS[name], metadata=related)
            return _said(answer)
        if params.input_responses is None:
            return types.InputRequiredResult(input_requests={name: QUESTIONS[name]}, request_state=f"for {name}")
        assert params.request_state == f"for {name}"
        return _said(params.input_responses[name])

    return Server("sdk-asking", version="2.0.0", on_list_tools=on_list_tools, on_call_tool=on_call_tool)


def _said(answer: Any) -> types.CallToolResult:
    text = json.dumps(answer.model_dump(by_alias=True, exclude_unset=True, mode="json"))
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])
