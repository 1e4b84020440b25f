"""Callers learn which server failed and what to do, and nothing of where it runs: that is in the gateway's log."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.relayed import EACH_CALLER, Json, calling
from tests.serve.serving import served_asgi
from toolweave import Callbacks, McpConnection, create_mcp_server
from toolweave.errors import ErrorKind, ServerError
from toolweave.gateway import create_gateway
from toolweave.tools import ToolResult

pytestmark = pytest.mark.anyio

HIDDEN = ("127.0.0.1", "localhost", "internal.example", "10.0.0.5", "hunter2", sys.executable, "/srv/", "://")
"""What no caller may see: addresses, hosts, paths, words of a process."""
PAGE = b"<html>proxy-7.internal.example: connect to 10.0.0.5:5432 failed, see /srv/log</html>"
SERVER = """
import os, sys
from toolweave import create_mcp_server

server = create_mcp_server(name="up")

@server.tool(annotations={"readOnlyHint": False})
def look() -> str:
    "Look."
    sys.stderr.write("fatal: cannot read /srv/keys at db.internal.example:5432 with hunter2\\n")
    sys.stderr.flush()
    os._exit(9)

server.run_stdio()
"""

Ask = Callable[[McpConnection], Awaitable[object]]
REQUESTS: Mapping[str, Ask] = {
    "tools/call": lambda caller: caller.call_tool("look"),
    "prompts/get": lambda caller: caller.get_prompt("greet"),
    "resources/read": lambda caller: caller.read_resource("state://up"),
    "completion/complete": lambda caller: caller.complete({"type": "ref/prompt", "name": "greet"}, "name", "a"),
}


class Failing:
    """An ASGI app before that of a server, which fails the requests of one method in one way.

    Attributes:
        method: The method whose requests fail.
        fault: How they fail.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self.method = self.fault = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or fail."""
        if scope["type"] != "http" or scope["method"] != "POST" or not self.fault:
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if json.loads(body).get("method") == self.method:
            await self._fail(send)
            return
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return pending.pop() if pending else await receive()

        await self._app(scope, again, send)

    async def _fail(self, send: Any) -> None:
        status, headers, body = FAULTS[self.fault]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


FAULTS: Mapping[str, tuple[int, list[tuple[bytes, bytes]], bytes]] = {
    "cut": (200, [(b"content-type", b"application/json"), (b"content-length", b"100000")], b"{"),
    "bad gateway": (502, [(b"content-type", b"text/html")], PAGE),
    "forbidden": (403, [(b"content-type", b"text/html")], PAGE),
    "redirect": (307, [(b"location", b"http://10.0.0.5:8080/srv/mcp")], b""),
    "page": (200, [(b"content-type", b"text/html")], PAGE),
    "busy": (429, [(b"content-type", b"text/html"), (b"retry-after", b"86400")], PAGE),
}
MEANING = {
    "cut": "the outcome is unknown",
    "bad gateway": "HTTP 502",
    "forbidden": "does not accept the credentials of this gateway (HTTP 403)",
    "redirect": "HTTP 307",
    "page": "did not answer with MCP",
    "busy": "try again in 86400 s",
}


@asynccontextmanager
async def failing_server() -> AsyncGenerator[tuple[Failing, Json]]:
    """Serve a server that can be made to fail over HTTP; yield it, and its entry in a config."""
    server = create_mcp_server(name="up")

    @server.tool
    def look() -> str:
        "Look."
        return "saw"

    @server.prompt
    def greet(name: str = "you") -> str:
        "Greet."
        return f"Hello {name}"

    @server.completion(ref="prompt:greet", argument="name")
    def names(value: str) -> list[str]:
        return [f"{value}nna"]

    @server.resource("state://up", name="state")
    def state() -> str:
        return "here"

    app = server.asgi_app()
    failing = Failing(app)
    async with served_asgi(failing) as url:
        yield failing, {"url": url + app.path, "tool_prefix": ""}


async def error_of(ask: Ask, caller: McpConnection) -> tuple[str, str]:
    """Return the text of an error, and the whole of it as a caller gets it."""
    try:
        result = await ask(caller)
    except ServerError as error:
        return error.message, f"{error} {getattr(error, 'data', None)}"
    assert isinstance(result, ToolResult)
    assert result.is_error
    return result.text, json.dumps(result.raw)


def assert_shows_no_place(text: str) -> None:
    assert [one for one in HIDDEN if one in text] == []


@EACH_CALLER
@pytest.mark.parametrize("fault", FAULTS)
async def test_callers_learn_the_name_of_a_server_that_fails_and_not_its_address(
    version: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        failing_server() as (failing, entry),
        calling(create_gateway({"up": entry}), version, callbacks=Callbacks()) as caller,
    ):
        await caller.list_prompts()
        for method, ask in REQUESTS.items():
            failing.method, failing.fault = method, fault
            caplog.clear()
            text, whole = await error_of(ask, caller)
            assert "server 'up'" in text
            assert MEANING[fault] in text
            assert_shows_no_place(whole)
            logged = [one.getMessage() for one in caplog.records if one.name == "toolweave.gateway"]
            assert any("server 'up'" in one and len(one) > len("server 'up'") for one in logged)


@EACH_CALLER
async def test_callers_get_no_words_of_a_process_that_dies(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(file)], "tool_prefix": ""}
    async with calling(create_gateway({"up": entry}), version, callbacks=Callbacks()) as caller:
        result = await caller.call_tool("look")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == (ErrorKind.OUTCOME_UNKNOWN, False)
    assert "server 'up' lost its connection (exit code 9)" in result.text
    assert "the outcome is unknown" in result.text
    assert_shows_no_place(json.dumps(result.raw))
    assert str(tmp_path) not in json.dumps(result.raw)
    assert "db.internal.example" in caplog.text


@EACH_CALLER
async def test_callers_get_no_path_of_a_server_that_cannot_start(tmp_path: Path, version: str) -> None:
    entry = {"command": "/srv/missing/server", "args": ["hunter2"], "cwd": str(tmp_path)}
    async with calling(create_gateway({"up": entry}), version, callbacks=Callbacks()) as caller:
        result = await caller.call_tool("up_look")
        with pytest.raises(ServerError) as prompt:
            await caller.get_prompt("up_greet")
        shown = [json.dumps(result.raw), str(prompt.value), caller.instructions or ""]
    assert result.is_error
    for text in shown:
        assert_shows_no_place(text)
        assert str(tmp_path) not in text
