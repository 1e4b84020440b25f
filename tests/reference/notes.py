"""A server as foreign clients meet it: a tool of each kind, a resource, a template, a prompt; `notes.py [--port N]`.

Serves standard input and output, or HTTP on a port of the loopback interface; public names only.
"""

from __future__ import annotations

import argparse

import anyio

from toolweave import CallContext, ToolError, create_mcp_server

__all__ = ["main", "server"]

STEP = 0.1
"""Seconds that one number takes."""
NOTES = {"loom": "A loom weaves cloth.", "shuttle": "A shuttle carries the weft."}

server = create_mcp_server(name="notes", version="1.0.0", instructions="Keeps notes about weaving.")


@server.tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return str(a + b)


@server.tool
async def count(to: int, ctx: CallContext) -> str:
    """Count, and report how far it got.

    Args:
        to: The last number.
    """
    for done in range(1, to + 1):
        await ctx.progress(done, total=to, message=f"{done} of {to}")
        await anyio.sleep(STEP)
    return f"counted to {to}"


@server.tool
async def greet(ctx: CallContext) -> str:
    """Greet the user, whose name it asks."""
    fields = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = await ctx.elicit("What is your name?", fields)
    return f"Hello, {answer.content['name']}!" if answer.content else "Hello, stranger!"


@server.tool
def fail() -> str:
    """Fail, as tools do."""
    raise ToolError("there is no such note")


@server.resource("notes://index", name="index", mime_type="text/plain")
def index() -> str:
    """The names of all notes."""
    return "\n".join(NOTES)


@server.resource("notes://notes/{name}", name="note", mime_type="text/plain")
def note(name: str) -> str:
    """One note."""
    return NOTES[name]


@server.prompt
def explain(topic: str) -> str:
    """Ask for an explanation."""
    return f"Explain {topic} to a weaver."


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, metavar="N", help="serve over HTTP on this port of the loopback interface")
    options = parser.parse_args()
    if options.port is None:
        server.run_stdio()
    else:
        server.run_http(port=options.port)


if __name__ == "__main__":
    main()
