"""Rules per caller, a rate, approval and an audit log on one server."""

from __future__ import annotations

import asyncio
import json

from toolweave import Callbacks, ProtocolError, connect_mcp, tool
from toolweave.middleware import AccessRule, AccessRules, AuditLog, OfferSelection, RateLimit, UserApproval
from toolweave.serve import create_mcp_server


@tool(annotations={"readOnlyHint": True})
def find(text: str) -> str:
    """Find a note."""
    return f"found {text}"


@tool(annotations={"destructiveHint": True})
def wipe() -> str:
    """Delete all notes."""
    return "wiped"


@tool
def export() -> str:
    """Copy all notes to another place."""
    return "copied"


lines: list[bytes] = []
rules = AccessRules(
    rules=[
        AccessRule(effect="allow", annotations={"readOnlyHint": True}),
        AccessRule(effect="allow", scopes=["notes:write"]),
        AccessRule(effect="allow", names=["wipe"], authenticated=False),  # anyone on this machine
        AccessRule(effect="deny", claims={"status": "suspended"}),
    ]
)
notes = create_mcp_server(
    "notes",
    tools=[find, wipe, export],
    middleware=[
        AuditLog(sink=lines.append, methods=["tools/call"]),
        rules,
        RateLimit(calls=100, seconds=60, by=["principal", "tool"]),
        UserApproval(only=[OfferSelection(annotations={"destructiveHint": True})]),
    ],
)


async def main() -> None:
    yes = Callbacks(elicitation=lambda request: print(request.message) or {})
    async with connect_mcp(notes, callbacks=yes) as connection:
        print([one.name for one in await connection.list_tools()])
        print((await connection.call_tool("wipe", {})).text)
        try:
            await connection.call_tool("export", {})
        except ProtocolError as error:
            print(error)
        await connection.call_tool("find", {"text": "the password"})
    for line in map(json.loads, lines):
        print(line["name"], line["outcome"], line.get("arguments"))


asyncio.run(main())
