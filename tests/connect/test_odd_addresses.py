"""A server sends its user to addresses of the web alone, however it asks, and also through a gateway."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.connect.targets import MODERN, Json, connected
from tests.serve.test_protocol_rules import ODD_ADDRESSES
from toolweave import Callbacks, McpConnection, ToolweaveError
from toolweave.connect import ElicitationRequest, ElicitationResult
from toolweave.gateway import create_gateway

GOOD = "https://a.test/x?y=1#z"
ASKING = """
import json, sys

way, modern = sys.argv[1], "2026-07-28"
done = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
waiting, visited = [], set()

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def call(key, params):
    url = params["arguments"]["url"]
    page = {"mode": "url", "message": "Visit this page", "url": url, "elicitationId": "v"}
    if way == "request":
        waiting.append(key)
        return send({"id": "q", "method": "elicitation/create", "params": page})
    if "inputResponses" in params or url in visited:
        return send({"id": key, "result": done})
    visited.add(url)
    if way == "error":
        return send({"id": key, "error": {"code": -32042, "message": "Visit", "data": {"elicitations": [page]}}})
    asked = {"q": {"method": "elicitation/create", "params": page}}
    send({"id": key, "result": {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}})

for line in sys.stdin:
    message = json.loads(line)
    method, key = message.get("method"), message.get("id")
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "asking", "version": "1"}}
    if method is None:
        outcome = {"error": message["error"]} if "error" in message else {"result": done}
        send({"id": waiting.pop(), **outcome})
    elif method == "initialize" and way != "round":
        send({"id": key, "result": {"protocolVersion": "2025-11-25", **about}})
    elif method == "server/discover" and way == "round":
        send({"id": key, "result": {"resultType": "complete", "supportedVersions": [modern], **about}})
    elif method == "tools/list":
        tools = [{"name": "visit", "inputSchema": {"type": "object"}}]
        send({"id": key, "result": {"resultType": "complete", "tools": tools}})
    elif method == "tools/call":
        call(key, message["params"])
    elif key is not None:
        send({"id": key, "error": {"code": -32601, "message": "Method not found"}})
"""
"""A server whose tool wants a page visited: by a request, by the error of 2025-11-25, or by a round of 2026-07-28."""


@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "gateway"])
@pytest.mark.parametrize("way", ["request", "error", "round"])
async def test_no_server_sends_its_user_to_an_address_that_is_not_one_of_the_web(
    way: str, relayed: bool, tmp_path: Path
) -> None:
    program = tmp_path / "asking.py"
    program.write_text(ASKING)
    version = MODERN if way == "round" else "2025-11-25"
    entry: Json = {"command": sys.executable, "args": [str(program), way], "protocol": version, "tool_prefix": ""}
    target: Json = {"server": create_gateway({"up": entry}), "protocol": version} if relayed else entry
    asked: list[str | None] = []

    def elicitation(request: ElicitationRequest) -> ElicitationResult:
        asked.append(request.url)
        return ElicitationResult.accept()

    async with connected(target, 60, callbacks=Callbacks(elicitation=elicitation)) as connection:
        assert (await connection.call_tool("visit", {"url": GOOD})).text == "done"
        for url in ODD_ADDRESSES:
            assert await fails(connection, url), url

    assert asked == [GOOD]


async def fails(connection: McpConnection, url: str) -> bool:
    """Whether a call that leads to this address fails."""
    try:
        return (await connection.call_tool("visit", {"url": url})).is_error
    except ToolweaveError:
        return True
