"""The tools of a fleet in the types of other frameworks; the model's side of the conversation is written out."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

from toolweave import connect_mcp_servers, tool
from toolweave.export import plain_functions
from toolweave.providers import AnthropicTools, OpenAIChatTools, OpenAIResponsesTools


@tool(name="price.of")
def price(item: str, currency: str = "EUR") -> str:
    """Says what an item costs.

    Args:
        item: Its name in the catalogue.
        currency: In which to say it.
    """
    return f"{item}: 3 {currency}"


async def main() -> None:
    async with connect_mcp_servers("mcp.json") as hub:
        # region openai
        tools = OpenAIResponsesTools([hub, price])  # a hub, a connection, a registry, functions
        print([one["name"] for one in tools.definitions()])  # for responses.create(tools=...)

        output = [  # what response.output holds
            {"type": "function_call", "call_id": "c1", "name": "numbers_divide", "arguments": '{"value": 1, "by": 0}'},
            {"type": "function_call", "call_id": "c2", "name": "price_of", "arguments": '{"item": "tea"}'},
        ]
        for item in await tools.dispatch(output):  # for the next request's input
            print(item)
        # endregion

        chat = OpenAIChatTools(price)
        message = {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "price_of", "arguments": '{"item": "tea"}'}}
            ],
        }
        print(await chat.dispatch(message))

        # region anthropic
        claude = AnthropicTools([hub, price])
        content: list[dict[str, Any]] = [  # what message.content holds
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "t1", "name": "price_of", "input": {"item": "tea", "currency": "NOK"}},
            {"type": "tool_use", "id": "t2", "name": "price_of", "input": {}},
        ]
        for block in await claude.dispatch(content):  # the content of the next user message
            print(json.dumps(block))
        # endregion

        # region plain
        (price_of,) = plain_functions(price)
        print(inspect.signature(price_of), inspect.getdoc(price_of), sep="\n")
        print(await price_of("tea", currency="USD"))
        # endregion


asyncio.run(main())
