import asyncio

from langchain_core.messages import ToolCall
from langchain_mcp_adapters.client import MultiServerMCPClient

notes = {"transport": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}
client = MultiServerMCPClient({"home": notes, "work": notes}, tool_name_prefix=True)


async def main() -> None:
    tools = {tool.name: tool for tool in await client.get_tools()}  # for create_agent(model, tools)
    call = ToolCall(type="tool_call", id="1", name="home_search_notes", args={"query": "bank"})
    message = await tools["home_search_notes"].ainvoke(call)
    print(len(tools), message.status, message.artifact["structured_content"])


asyncio.run(main())
