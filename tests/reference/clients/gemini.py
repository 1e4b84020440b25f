"""Sends a conversation with a tool's result to a Gemini API: `gemini.py BASE-URL`, with a text and a picture in it."""

from __future__ import annotations

import asyncio
import sys

from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

from toolweave.models import (
    AssistantMessage,
    ModelRequest,
    PydanticAIModel,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    complete,
)
from toolweave.tools import AudioContent, ImageContent, ResourceLink, TextContent, ToolResult, ToolSpec

PNG = "iVBORw0KGgpyZXN0"
CHART = ToolSpec(name="charts.draw", description="Draws.", input_schema={"type": "object", "properties": {}})


async def main(url: str) -> None:
    wire = GoogleModel("gemini-3-pro-preview", provider=GoogleProvider(api_key="none", base_url=url))
    result = ToolResult(
        content=(
            TextContent(text="a chart"),
            ImageContent(data=PNG, mime_type="image/png"),
            ResourceLink(uri="x:/y", name="y"),
            AudioContent(data="UklGRi4uLi5XQVZF", mime_type="audio/wav"),
        )
    )
    messages = [
        UserMessage.of("draw"),
        AssistantMessage(parts=(ToolCallPart(id="call_1", name="charts.draw"),)),
        ToolMessage(outcomes=(ToolOutcome(call_id="call_1", name="charts.draw", result=result),)),
    ]
    finished = await complete(PydanticAIModel(wire), ModelRequest(messages=messages, tools=[CHART]))
    print(finished.message.text)


asyncio.run(main(sys.argv[1]))
