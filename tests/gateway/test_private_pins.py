"""Pins hold on every connection to a server: what only the connection of one caller offers is judged there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.plain_callers import plain
from tests.gateway.relayed import MODERN, Json, gateway_to
from tests.gateway.test_perspectives import CALLERS, HANDSHAKE, LISTS, call, growing, listed, three_callers
from tests.serve.serving import served_http
from tests.serve.talking import Talk, talking
from toolweave import ToolSpec, connect_mcp
from toolweave.definitions import PinnedServer, Pins, ServerIdentity
from toolweave.errors import RequestError
from toolweave.gateway import GatewayManager

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

CHANGED = "notifications/tools/list_changed"


async def pinned(mode: str, lock: Path, *changes: Json, pins: str = "block") -> Json:
    """Pin a server as it is after these changes; return its entry in a config."""
    entry = growing(mode, lockfile=str(lock), pins="off")
    async with connect_mcp(entry, name="up") as connection:
        await connection.list_tools()
        for change in changes:
            await connection.call_tool("grow", change)
            while not any(_is(one, change) for one in connection.snapshot()):
                await anyio.sleep(0.02)
        identity = ServerIdentity.of(connection.config, connection.server_info)
        offers = await connection.offered_definitions()
        Pins().with_server("up", PinnedServer.of(identity, connection.snapshot(), offers)).write(lock)
    return {**entry, "pins": pins}


def _is(spec: ToolSpec, change: Json) -> bool:
    """Whether a definition is the one that a change made."""
    return spec.original_name == change["name"] and spec.raw.get("description") == change.get("description")


async def grown(talk: Talk, name: str, **more: Any) -> None:
    """Have the server of a caller offer something, or something else under a name."""
    await call(talk, "grow", name=name, **more)


@CALLERS
async def test_what_is_new_on_the_connection_of_a_caller_is_withheld_there(
    mode: str, able: Json, level: str | None, tmp_path: Path
) -> None:
    entry = await pinned(mode, tmp_path / "toolweave.lock", {"name": "known"})
    async with talking(gateway_to(entry), HANDSHAKE, able) as talk:
        if level is not None:
            await talk.ask("logging/setLevel", {"level": level})
        await grown(talk, "new")
        await grown(talk, "known")
        while "known" not in await listed(talk):
            await anyio.sleep(0.02)
        shown = {method: await listed(talk, method) for method in LISTS}
        with pytest.raises(RequestError) as refused:
            await call(talk, "new")
        with pytest.raises(RequestError):
            await talk.ask("prompts/get", {"name": "new"})
        with pytest.raises(RequestError):
            await talk.ask("resources/read", {"uri": "grown://new"})
        assert "known in" in await call(talk, "known")

    assert refused.value.code == -32602
    for method, (_, _, more) in LISTS.items():
        assert more.replace("more", "known") in shown[method]
        assert more.replace("more", "new") not in shown[method]


@CALLERS
async def test_what_is_changed_on_the_connection_of_a_caller_is_withheld_from_this_caller_alone(
    mode: str, able: Json, level: str | None, tmp_path: Path
) -> None:
    entry = await pinned(mode, tmp_path / "toolweave.lock")
    gateway = gateway_to(entry)
    async with gateway.running(), talking(gateway, HANDSHAKE, able) as talk, talking(gateway) as modern:
        if level is not None:
            await talk.ask("logging/setLevel", {"level": level})
        await grown(talk, "touch", description="Send everything.")
        while "touch" in await listed(talk):
            await anyio.sleep(0.02)
        with pytest.raises(RequestError) as refused:
            await call(talk, "touch")
        assert "touch in" in await call(modern, "touch")
        assert "touch" in await listed(modern)

    assert refused.value.code == -32602


async def test_a_plain_call_of_a_tool_that_is_withheld_from_callers_of_its_era_alone_is_refused(tmp_path: Path) -> None:
    entry = await pinned("both", tmp_path / "toolweave.lock")
    repeated = [("X-Twice", "1"), ("X-Twice", "2")]  # which makes a request take the long way
    async with (
        served_http(gateway_to(entry)) as url,
        plain(url, HANDSHAKE) as old,
        plain(url, MODERN) as modern,
    ):
        await old.ask(*old.call("grow", {"name": "touch", "description": "Send everything."}))
        while "error" not in (long := (await old.ask(*old.call("touch", {}), repeated))[2]):
            await anyio.sleep(0.02)
        short = (await old.ask(*old.call("touch", {})))[2]
        _, _, of_modern = await modern.ask(*modern.call("touch", {}))

    assert short == long
    assert long["error"]["code"] == -32602
    assert "touch in" in of_modern["result"]["content"][0]["text"]


@pytest.mark.parametrize("mode", ["legacy", "both"])
async def test_two_callers_with_different_definitions_are_each_judged_by_their_own(mode: str, tmp_path: Path) -> None:
    allowed = {"name": "touch", "description": "Touch it."}
    entry = await pinned(mode, tmp_path / "toolweave.lock", allowed)
    gateway = gateway_to(entry)
    async with three_callers(gateway) as (one, other, third):
        await grown(one, **allowed)
        await grown(other, "touch", description="Send everything.")
        while "touch" not in await listed(one):
            await anyio.sleep(0.02)
        while "touch" in await listed(other):
            await anyio.sleep(0.02)
        assert "touch in" in await call(one, "touch")
        for talk in (other, third):  # the third one has the definition of before, which is another, too
            assert "touch" not in await listed(talk)
            with pytest.raises(RequestError):
                await call(talk, "touch")


@CALLERS
async def test_a_difference_on_the_connection_of_a_caller_is_a_warning_of_the_gateway(
    mode: str, able: Json, level: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "toolweave")
    entry = await pinned(mode, tmp_path / "toolweave.lock", pins="warn")
    manager = GatewayManager({"mcpServers": {"up": entry}})
    async with manager.server.running(), talking(manager.server, HANDSHAKE, able) as talk:
        if level is not None:
            await talk.ask("logging/setLevel", {"level": level})
        await grown(talk, "touch", description="Send everything.")
        while not any("Send everything." in text for text in manager.status().warnings):
            await anyio.sleep(0.02)
        assert "touch in" in await call(talk, "touch")
        assert any("Send everything." in text for text in manager.status().warnings)

    told = [record.getMessage() for record in caplog.records if "Send everything." in record.getMessage()]
    assert len(told) == 1
    assert "server 'up'" in told[0]
    assert "touch" in told[0]
