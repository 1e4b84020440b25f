"""What a server says in errors and logs: it ends a record, acts on no terminal and fills no disk."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

from tests.connect.scripted import legacy_answer
from tests.connect.targets import ChannelServer, Json, connected, error, initialized
from toolweave import ConnectError, Hub, ProtocolError, ToolError, ToolweaveError, connect_mcp
from toolweave.errors import printable

FORGED = "\x1b]0;pwned\x07\nWARNING toolweave: forged line\r\nERROR x\u2028ERROR y\x85\x9b31m"
ACTING = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029) if chr(code) not in "\t\n"]


class Logged:
    """The lines that a log file would hold, and whether the server's text is a line of its own in it."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def is_clean(self) -> bool:
        forged = any(
            line.startswith(("WARNING toolweave: forged", "ERROR x", "ERROR y")) for line in self.text.split("\n")
        )
        return not forged and not any(character in self.text for character in ACTING)


@pytest.fixture
def logged() -> Any:
    made, root = Logged(), logging.getLogger("toolweave")
    root.addHandler(made.handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    yield made
    root.removeHandler(made.handler)
    root.setLevel(level)


def forging(method: str) -> ChannelServer:
    """Return a server that forges a line of a log in its answer to a method."""

    def script(message: Json) -> Json | None:
        if message["method"] == method:
            return error(-32000, FORGED)
        if message["method"] == "tools/list":
            odd: Json = {"name": FORGED, "inputSchema": {"$ref": FORGED}, "outputSchema": {"type": FORGED}}
            fine: Json = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"required": [FORGED]}}
            return {"result": {"tools": [odd, fine, {"name": 1, "x": FORGED}]}}
        if message["method"] == "tools/call":
            return {"result": {"content": [], "structuredContent": {FORGED: FORGED}}}
        return legacy_answer(message)

    handshake = initialized(script)
    return ChannelServer(lambda message: error(-32000, FORGED) if message["method"] == method else handshake(message))


@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call", "ping"])
async def test_no_server_writes_a_line_of_its_own_into_a_log(logged: Logged, method: str) -> None:
    async with Hub() as hub:
        hub_server = {"server": forging(method), "validate_output": "warn"}
        try:
            connection: Any = await hub.connect("x", hub_server)
            await connection.refresh()
            await connection.call_tool("t")
            await connection.call_tool(FORGED)
            await connection.ping()
        except ToolweaveError as exc:
            logging.getLogger("toolweave.user").exception("it failed: %s", exc)  # noqa: TRY401 - as users do
    assert logged.is_clean(), logged.text


async def test_an_error_shows_what_a_server_said_escaped_and_keeps_it_as_it_came(logged: Logged) -> None:
    with pytest.raises(ConnectError) as failed:
        async with connect_mcp(forging("initialize")):
            pass
    assert r"\x1b]0;pwned\x07" in str(failed.value)
    assert "\n  WARNING toolweave: forged line" in str(failed.value)
    async with connected(forging("tools/call")) as connection:
        with pytest.raises(ProtocolError) as refused:
            await connection.call_tool("t")
        assert refused.value.message == FORGED


async def test_a_message_of_megabytes_is_cut_where_it_is_shown() -> None:
    def script(message: Json) -> Json | None:
        return error(-32000, "x" * 5_000_000) if message["method"] == "tools/call" else legacy_answer(message)

    async with connected(ChannelServer(initialized(script))) as connection:
        with pytest.raises(ProtocolError) as refused:
            await connection.call_tool("t")
        assert len(str(refused.value)) < 11_000
        assert "characters in all" in str(refused.value)


def test_what_a_tool_says_by_an_error_of_its_own_stays_as_it_is_and_is_printed_safely() -> None:
    said = ToolError("first\nsecond\x1b[31m")
    assert said.message == "first\nsecond\x1b[31m"
    assert str(said) == "first\n  second\\x1b[31m"
    assert printable("a\n\n  b\n\tc") == "a\n\n  b\n  \tc"
