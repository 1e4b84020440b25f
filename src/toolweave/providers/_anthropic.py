"""A toolset for Anthropic's Messages API: definitions, and the answers to a message's tool calls.

Makes no request and needs no SDK: accepts the SDK's objects, or the same as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from toolweave._json_types import Json
from toolweave.providers._anthropic_content import anthropic_content, anthropic_form
from toolweave.providers._profiles import SchemaProfile
from toolweave.providers._tool_export import ApiTools, ToolExport, member
from toolweave.tools import CallContext, ToolCall, ToolResult, ToolSource

if TYPE_CHECKING:
    from anthropic.types import ToolParam, ToolResultBlockParam


class AnthropicTools(ApiTools):
    """The tools of a toolset for `client.messages.create`, live.

    ::

        tools = AnthropicTools(hub)
        message = await client.messages.create(..., messages=messages, tools=tools.definitions())
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": await tools.dispatch(message)})

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        strict: Enforce the schemas of those tools whose schemas structured outputs can express, as many as the API
            takes in one request.
    """

    def __init__(self, source: ToolSource, *, strict: bool = False) -> None:
        profile: SchemaProfile | None = "anthropic-strict" if strict else None
        super().__init__(ToolExport(source, "anthropic", anthropic_form, strict=profile))

    def definitions(self) -> list[ToolParam]:
        """Return the definitions of the tools offered now, for `tools`; call it again for every request.

        Names are legal for the API and lead back to the tools; the dictionaries are the caller's to add to.
        """
        return [cast("ToolParam", {**one}) for one in self._listing.now().definitions]

    async def dispatch(self, message: Any, ctx: CallContext | None = None) -> list[ToolResultBlockParam]:
        """Run the tool calls of a message and return the content of the user's message that answers it.

        The calls run at the same time; the blocks stand in the order of the calls. Every fault, a tool that does not
        exist included, is a block with `is_error` for the model to read.

        Args:
            message: A `Message` or its content blocks, or the same as JSON. Blocks other than `tool_use` are left
                alone.
            ctx: The context of each call, such as a timeout or a callback for progress.
        """
        blocks: Any = member(message, "content")
        if blocks is None:
            blocks = message
        used = [block for block in blocks if member(block, "type") == "tool_use"]
        results = await self._run(used, ctx)
        return [_answer(member(block, "id"), result) for block, result in zip(used, results, strict=True)]

    def _call(self, made: object) -> ToolCall | ToolResult:
        return self._listing.call(member(made, "name"), member(made, "input"), member(made, "id"))


def _answer(call_id: str, result: ToolResult) -> ToolResultBlockParam:
    answer: Json = {"type": "tool_result", "tool_use_id": call_id, "content": anthropic_content(result)}
    if result.is_error:
        answer["is_error"] = True
    return cast("ToolResultBlockParam", answer)
