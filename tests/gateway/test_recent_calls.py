"""The last calls of a gateway with a console: by whom, of what, and what came of them, whichever way they took."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.gateway.running import upstream
from tests.serve.carriers import EACH_ERA
from tests.serve.serving import served_app
from toolweave import ProtocolError, connect_mcp
from toolweave.gateway import GatewayManager

TEST_SECONDS = 60

KEY = "key-of-ci-0123456789"
ADMIN = "an-admin-token-of-the-tests"


@pytest.mark.slow
@EACH_ERA
async def test_a_call_is_kept_with_its_caller_and_the_types_of_its_arguments(era: str, tmp_path: Path) -> None:
    config = {"mcpServers": {"a": upstream(tmp_path, "a")}, "gateway": {"auth": {"api_keys": {"ci": KEY}}}}
    manager = GatewayManager(config)
    async with (
        served_app(manager.asgi_app(admin_token=ADMIN)) as base,
        connect_mcp({"url": f"{base}/mcp", "auth": KEY, "protocol": era}) as caller,
    ):
        await caller.call_tool("a_add", {"a": 1, "b": 2})
        await caller.call_tool("a_fail")
        await caller.request(
            "tools/call", {"name": "a_who", "arguments": {"text": "four", "none": None, "yes": True, "share": 0.5}}
        )
        await caller.request("tools/call", {"name": "a_who", "arguments": {"list": [1, 2], "inside": {"text": "one"}}})
        await caller.request(
            "tools/call", {"name": "a_who", "arguments": {f"n{number}": number for number in range(40)}}
        )
        with pytest.raises(ProtocolError):
            await caller.request("tools/call", {"name": "nothing", "arguments": {}})
        await caller.read_resource("state://a")

    assert manager.recent_calls is not None
    # and not the stream that was left
    read, refused, many, nested, flat, failed, added = manager.recent_calls.newest_first
    assert flat.arguments == '{"text":"string(4)","none":"null","yes":"boolean","share":"number"}'
    assert nested.arguments == '{"list":"array(2)","inside":{"text":"string(3)"}}'
    assert (many.arguments[:24], len(many.arguments)) == ('{"n0":"number","n1":"num', 300)
    assert (added.name, added.server, added.outcome, added.revision) == ("a_add", "a", "ok", era)
    assert added.arguments == '{"a":"number","b":"number"}'
    assert added.seconds > 0
    assert (failed.name, failed.outcome, failed.error != "") == ("a_fail", "tool_error", True)
    assert (refused.name, refused.outcome, refused.code) == ("nothing", "error", -32602)
    assert (read.method, read.server, read.outcome) == ("resources/read", "a", "ok")
    assert {one.principal for one in (read, refused, failed, added)} == {"ci"}


async def test_a_gateway_without_a_console_keeps_no_calls(tmp_path: Path) -> None:
    manager = GatewayManager({"a": upstream(tmp_path, "a")})

    manager.asgi_app()  # no admin token, so nobody could sign in

    assert (manager.recent_calls, manager.has_console, manager.console_link()) == (None, False, None)


ECHO = """
import base64, json, os, sys, urllib.parse
from toolweave import ToolError, create_mcp_server

key = os.environ["API_KEY"]
forms = {
    "plain": key,
    "json": json.dumps({"key": key}),
    "percent": urllib.parse.quote(key, safe=""),
    "base64": base64.b64encode(key.encode()).decode(),
}
server = create_mcp_server(name="echo")

@server.tool
def fail(form: str) -> str:
    "Fail."
    raise ToolError("refused: " + forms[form])

server.run_stdio()
"""


@pytest.mark.parametrize("form", ["plain", "json", "percent", "base64"])
async def test_a_secret_that_a_server_repeats_is_in_no_log_and_on_no_page(form: str, tmp_path: Path) -> None:
    secret, audit = 'z1SECRET"z/2z-987654+Q', tmp_path / "audit.jsonl"
    shown = (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), base64.b64encode(secret.encode()).decode())
    file = tmp_path / "echo.py"
    file.write_text(ECHO)
    entry = {"command": sys.executable, "args": [str(file)], "env": {"API_KEY": secret}}
    log = {"name": "audit_log", "path": str(audit)}
    manager = GatewayManager({"mcpServers": {"up": entry}, "gateway": {"middleware": [log]}})
    async with (
        served_app(manager.asgi_app(admin_token=ADMIN)) as base,
        connect_mcp({"url": f"{base}/mcp"}) as caller,
    ):
        assert (await caller.call_tool("up_fail", {"form": form})).is_error

    assert manager.recent_calls is not None
    kept = [one.error for one in manager.recent_calls.newest_first if one.name == "up_fail"]
    assert [one.startswith("refused: ") for one in kept] == [True]
    for text in (*kept, audit.read_text()):
        assert [one for one in shown if one in text] == []
