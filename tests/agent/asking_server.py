"""A server whose tools ask before they do something: `python -m tests.agent.asking_server FOLDER [KEY]`.

What it does it writes into the file `effects` of the folder. KEY signs the state of its rounds; by default each process
has its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext, Elicitation, tool

KEY = "a key that all processes of the test share"
NIGHTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "nights": {"type": "integer", "minimum": 1},
        "view": {"type": "string", "enum": ["sea", "yard"], "default": "yard"},
    },
    "required": ["nights"],
}


def entry(folder: Path, protocol: str, *, key: str | None = KEY) -> dict[str, Any]:
    """Return the config of the server, as a process of its own."""
    args = ["-m", "tests.agent.asking_server", str(folder), *([] if key is None else [key])]
    checkout = Path(__file__).resolve().parents[2]
    return {"command": sys.executable, "args": args, "cwd": str(checkout), "protocol": protocol}


def server_of(folder: Path, key: str | None) -> McpServer:  # noqa: C901 - a tool for each way to ask
    """Return the server."""

    def note(line: str) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{line}\n")

    async def booked(guest: str, ctx: CallContext) -> str:
        with (folder / "begun").open("a") as file:
            file.write(f"{guest} {os.getpid()}\n")
        answer = await ctx.elicit(f"How many nights for {guest}?", NIGHTS)
        if not answer.accepted or answer.content is None:
            return f"not booked: {answer.action}"
        note(guest)
        return f"booked {guest}: {answer.content['nights']} nights, {answer.content['view']}"

    @tool
    async def book(guest: str, ctx: CallContext) -> str:
        """Book a room."""
        return await booked(guest, ctx)

    @tool(annotations={"idempotentHint": True})
    async def rebook(guest: str, ctx: CallContext) -> str:
        """Book a room, if it is not booked."""
        return await booked(guest, ctx)

    @tool
    async def furnish(ctx: CallContext) -> str:
        """Ask two things at once."""
        answers = await ctx.ask(bed=Elicitation("Which bed?"), lamp=Elicitation("Which lamp?"))
        return " ".join(f"{name} {answer.action}" for name, answer in answers.items())

    @tool
    async def pay(ctx: CallContext) -> str:
        """Lead to a page."""
        return (await ctx.elicit_url("Pay here.", "https://pay.example/7")).action

    @tool
    async def twice(ctx: CallContext) -> str:
        """Ask the same two times."""
        first = await ctx.elicit("Sure?", key="one")
        second = await ctx.elicit("Sure?", key="two")
        note("twice")
        return f"{first.action}, {second.action}"

    @tool
    async def able(ctx: CallContext) -> str:
        """Tell whether there is anybody who can be asked."""
        return str(ctx.can("elicitation"))

    @tool
    async def nosy(ctx: CallContext) -> str:
        """Ask with markup in every text, <b>also here</b>."""
        form = {
            "type": "object",
            "properties": {"<i>who</i>": {"type": "string", "title": "<script>alert(2)</script>"}},
        }
        answer = await ctx.elicit("<script>alert('asked')</script>\u202e", form)
        return answer.action

    tools = [book, rebook, furnish, pay, twice, able, nosy]
    return create_mcp_server("rooms", "1", tools=tools, request_state_keys=None if key is None else [key])


if __name__ == "__main__":
    server_of(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None).run()
