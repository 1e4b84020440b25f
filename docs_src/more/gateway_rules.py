"""Rules for the callers of a gateway: by upstream and by what a tool says of itself."""

from __future__ import annotations

import asyncio

from toolweave import ProtocolError, connect_mcp, tool
from toolweave.gateway import create_gateway
from toolweave.middleware import AccessRule, AccessRules, RateLimit
from toolweave.serve import create_mcp_server


@tool(annotations={"readOnlyHint": True})
def find(text: str) -> str:
    """Find a record."""
    return f"found {text}"


@tool
def change(text: str) -> str:
    """Change a record."""
    return f"changed {text}"


notes = create_mcp_server("notes", tools=[find, change])
payroll = create_mcp_server("payroll", tools=[find, change])
gateway = create_gateway(
    {"notes": {"server": notes}, "payroll": {"server": payroll}},
    middleware=[
        AccessRules(
            rules=[
                AccessRule(effect="allow", servers=["notes"]),
                AccessRule(effect="allow", servers=["payroll"], annotations={"readOnlyHint": True}),
                AccessRule(effect="allow", servers=["payroll"], claims={"team": ["people"]}),
            ]
        ),
        RateLimit(calls=600, seconds=60, by=["principal", "server"]),
    ],
)


async def main() -> None:
    async with connect_mcp(gateway) as connection:
        print(sorted(one.name for one in await connection.list_tools()))
        try:
            await connection.call_tool("payroll_change", {"text": "it"})
        except ProtocolError as error:
            print(error)


asyncio.run(main())
