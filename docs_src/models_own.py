"""A model of your own: one name and one async generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from toolweave import Agent
from toolweave.models import AssistantMessage, Finished, ModelEvent, ModelRequest, StreamedText, TextPart, UserMessage


class Echo:
    """Repeats the message in capitals."""

    name = "echo"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield one text, and then the whole turn."""
        said = request.messages[-1]
        text = said.text.upper() if isinstance(said, UserMessage) else "?"
        yield StreamedText(text=text)
        yield Finished(message=AssistantMessage(parts=(TextPart(text=text),)))


async def main() -> None:
    print((await Agent(Echo()).send("hello")).text)


asyncio.run(main())
