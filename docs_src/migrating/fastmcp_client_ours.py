import asyncio

from toolweave import CallContext, Progress, connect_mcp_servers

notes = {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}


def show(progress: Progress) -> None:
    if progress.progress == progress.total:
        print(progress.message)


async def main() -> None:
    async with connect_mcp_servers({"mcpServers": {"home": notes, "work": notes}}) as hub:
        print(len(hub.tools))
        result = await hub.execute("work_index_notes", ctx=CallContext(on_progress=show))
        print(result.structured_content)
        result = await hub.execute("work_read_note", {"number": 9})
        if result.is_error:
            print("failed:", result.text)


asyncio.run(main())
