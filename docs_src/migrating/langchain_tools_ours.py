import asyncio

from langchain_core.messages import ToolCall

from toolweave import connect_mcp_servers
from toolweave.export import langchain_tools

notes = {"transport": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}


async def main() -> None:
    async with connect_mcp_servers({"home": notes, "work": notes}) as hub:
        tools = {tool.name: tool for tool in langchain_tools(hub)}  # for create_agent(model, tools)
        call = ToolCall(type="tool_call", id="1", name="home_search_notes", args={"query": "bank"})
        message = await tools["home_search_notes"].ainvoke(call)
        print(len(tools), message.status, message.artifact["structured_content"])


asyncio.run(main())
