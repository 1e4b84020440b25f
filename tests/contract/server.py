"""The server of the contract tests: that of `tests/servers` with a tool for every kind of answer and question.

Over stdio, or with `--http` over Streamable HTTP on a free port, printed as the first line. With `--record FILE` every
HTTP request is written there as it came, one JSON object a line (over stdio `tee.py` does that).
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))  # it is run as a script

from tests.servers.sdk_server import high_level

PIXEL = base64.b64encode(b"\x89PNG").decode()


class Wish(BaseModel):
    """What the user is asked."""

    colour: str
    loud: bool = False


async def ask_wish() -> Elicit[Wish]:
    """Ask the user."""
    return Elicit("What is your wish?", Wish)


async def ask_model() -> Sample:
    """Ask the client's model."""
    question = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Two and two?"))
    return Sample([question], max_tokens=10, system_prompt="Be brief.")


async def ask_roots() -> ListRoots:
    """Ask for the client's roots."""
    return ListRoots()


def contract_server() -> MCPServer:
    """Return the server."""
    server = high_level()

    @server.tool(structured_output=False)
    def every_kind() -> list[types.ContentBlock]:
        """Return one block of every kind."""
        text = types.TextResourceContents(uri="sdk://inside", text="inside", mime_type="text/plain")
        return [
            types.TextContent(type="text", text="grüße 世界 \u2028"),
            types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            types.AudioContent(type="audio", data=PIXEL, mime_type="audio/wav"),
            types.ResourceLink(type="resource_link", uri="sdk://greeting", name="greeting"),
            types.EmbeddedResource(type="resource", resource=text),
        ]

    @server.tool()
    def refuse_by_protocol() -> str:
        """Answer with a JSON-RPC error that carries data."""
        raise MCPError(-31999, "refused", {"why": ["a", None, 1.5]})

    @server.tool()
    async def forever(ctx: Context[Any, Any]) -> str:
        """Report once and never answer."""
        await ctx.report_progress(1, 2, "running")
        await anyio.sleep_forever()
        return "never"

    @server.tool()
    async def grow(ctx: Context[Any, Any]) -> str:
        """Offer one more tool and say so."""

        def grown() -> str:
            """Was not there before."""
            return "grown"

        server.add_tool(grown)
        await ctx.notify_tools_changed()
        await ctx.session.send_tool_list_changed()
        return "one more"

    @server.tool()
    def wish(answer: Annotated[Wish, Resolve(ask_wish)]) -> str:
        """Ask the user for a wish."""
        return f"{answer.colour}, loud: {answer.loud}"

    @server.tool()
    def think(answer: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
        """Let the client's model think."""
        return f"{answer.model}: {answer.content.text if isinstance(answer.content, types.TextContent) else '?'}"

    @server.tool()
    def roots(answer: Annotated[types.ListRootsResult, Resolve(ask_roots)]) -> str:
        """Tell the client's roots."""
        return " ".join(str(root.uri) for root in answer.roots)

    @server.completion()
    async def complete(
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: types.CompletionArgument,
        context: types.CompletionContext | None,
    ) -> types.Completion:
        given = sorted((context.arguments if context is not None else None) or {})
        return types.Completion(
            values=[f"{argument.value}{end}" for end in ("a", "b", *given)], total=2, has_more=False
        )

    return server


class Recorder:
    """An ASGI application that writes down what comes for the one it wraps."""

    def __init__(self, app: ASGIApp, file: Path) -> None:
        self._app = app
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._write({"method": scope["method"], "path": scope["path"], "headers": headers, "body": body.decode()})
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        answered = False

        async def replay() -> Message:
            if unread:
                return unread.pop()
            message = await receive()
            if message["type"] == "http.disconnect" and body and not answered:
                self._write({"hung_up": json.loads(body).get("id")})
            return message

        async def watch(message: Message) -> None:
            nonlocal answered
            answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        await self._app(scope, replay, watch)

    def _write(self, entry: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--record", type=Path, metavar="FILE")
    options = parser.parse_args()
    server = contract_server()
    logging.disable()  # the tools that fail do it on purpose
    if not options.http:
        server.run("stdio")
        return
    app: ASGIApp = server.streamable_http_app()
    if options.record is not None:
        app = Recorder(app, options.record)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
