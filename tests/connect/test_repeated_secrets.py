"""Secrets of a config that its server repeats in unusual places: masked wherever a program or a person may look."""

from __future__ import annotations

import base64
import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.leaky_server import forms
from toolweave import Hub, ServerConfig, ToolweaveError, connect_mcp

SECRET = 'z1SECRET"z/2z-987654+Q'
SERVER = str(Path(__file__).with_name("repeating_server.py"))


def entry() -> dict[str, Any]:
    """Return the entry of a config for the server."""
    repeated = base64.b64encode(SECRET.encode()).decode()
    return {"command": sys.executable, "args": [SERVER], "env": {"API_KEY": SECRET, "REPEATED": repeated}}


def whole(error: BaseException | None) -> str:
    """Return everything that an error, its notes and its causes show."""
    shown = ""
    while error is not None:
        shown += "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
        error = error.__cause__ or error.__context__
    return shown


def recorded(caplog: pytest.LogCaptureFixture) -> str:
    """Return everything in the log, with what only handlers see."""
    return "".join(f"{one.getMessage()} {one.__dict__} {one.exc_info}" for one in caplog.records)


def assert_masked(outlets: dict[str, str]) -> None:
    assert {name: one for name, text in outlets.items() for one in forms(SECRET) if one in text} == {}


async def test_a_secret_that_a_server_repeats_is_in_no_outlet_of_a_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "toolweave")
    outlets: dict[str, str] = {}
    texts: dict[str, str] = {}
    async with connect_mcp(ServerConfig(name="up", **entry())) as connection:
        for name in ("split", "word", "number", "snake", "block", "output"):
            result = await connection.call_tool(name, {})
            assert result.is_error
            texts[name] = result.text
            outlets[f"error of {name}"] = whole(result.error)
            if name != "output":  # it is a success of the server, whose data stays
                outlets[f"result of {name}"] = f"{result!r} {result.raw}"
        await connection.list_resources()
        for name, ask in {
            "call": lambda: connection.call_tool("rpc", {}),
            "list": connection.list_prompts,
            "read": lambda: connection.read_resource("data://x"),
            "death": lambda: connection.call_tool("die", {}),
        }.items():
            with pytest.raises(ToolweaveError) as failed:
                await ask()
            outlets[name] = whole(failed.value)
        outlets["connection"] = f"{connection!r} {connection.problems} {connection.findings}"
        outlets["last words"] = connection.stderr_tail
        outlets["steps"] = repr(connection.report.steps)
    async with Hub({"up": entry()}) as hub:
        outlets["hub"] = f"{hub!r} {hub.warnings} {hub.errors} {hub.findings}"
    outlets["log"] = recorded(caplog)

    assert_masked(outlets | texts)
    assert texts["split"] == "no *** end"
    assert all("***" in text for text in texts.values())
    assert "left out ***" in outlets["connection"]
    assert "left out ***" in outlets["log"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["doctor --json", "doctor", "tools", "pin", "resources --json"])
async def test_a_secret_that_a_server_repeats_is_in_no_output_of_the_command(command: str, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"up": entry()}}))
    words = [sys.executable, "-m", "toolweave", *command.split(), "--config", str(config)]
    done = await anyio.run_process(words, check=False, cwd=tmp_path)
    shown = (done.stdout + done.stderr).decode()

    assert_masked({command: shown})
    assert "left out ***" in " ".join(shown.split())


async def test_the_key_in_a_uri_is_not_in_the_log_of_a_resource_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    from toolweave import create_mcp_server

    server = create_mcp_server("s")

    @server.resource("notes://{+rest}")
    def broken(rest: str) -> str:
        raise RuntimeError("broken")

    async with connect_mcp(server) as connection:
        with pytest.raises(ToolweaveError):
            await connection.read_resource("notes://a?api_key=z1SECRET")
    assert "reading resource 'notes://a?api_key=***' failed" in caplog.text
    assert "z1SECRET" not in caplog.text
