"""All eight reference servers at once, with two broken ones between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.real.raw_wire import Era, RawListing
from tests.reference.servers import BROKEN
from toolweave import connect_mcp_servers
from toolweave.errors import ConnectError

pytestmark = pytest.mark.reference

Entries = Mapping[str, dict[str, Any]]


@pytest.mark.requirement("R20", "R22", "R64", "C3", "D15", "D21")
async def test_the_good_servers_are_all_there_and_the_broken_ones_say_why(
    entries: Entries, raw_listing: Callable[[str, Era], RawListing]
) -> None:
    async with connect_mcp_servers({"mcpServers": {**BROKEN, **entries}}) as hub:
        assert set(hub.clients) == set(entries)
        assert set(hub.errors) == set(BROKEN)
        offered = {(spec.server, spec.original_name) for spec in hub.snapshot()}
        names = [spec.name for spec in hub.snapshot()]
    assert "was not found" in str(hub.errors["absent"])
    dead = hub.errors["dies"]
    assert isinstance(dead, ConnectError)
    assert dead.exit_code == 1
    assert "AttributeError" in dead.stderr
    assert offered == {(name, tool["name"]) for name in entries for tool in raw_listing(name, "auto").tools}
    assert len(names) == len(set(names)) == len(offered)


@pytest.mark.requirement("R40", "R41", "D5", "C1")
async def test_a_call_finds_its_server_by_either_way_of_naming_the_tool(entries: Entries, work: Path) -> None:
    async with connect_mcp_servers({"mcpServers": {**BROKEN, **entries}}) as hub:
        by_name = await hub.execute("everything_get-sum", {"a": 20, "b": 22})
        by_colon = await hub.execute("git:git_log", {"repo_path": str(work)})
        by_slash = await hub.execute("filesystem/read_text_file", {"path": str(work / "a.txt")})
    assert by_name.text == "The sum of 20 and 22 is 42."
    assert "Message: The first one" in by_colon.text
    assert by_slash.text == "first line\nsecond line\n"


@pytest.mark.requirement("R65", "R68", "D18")
async def test_an_error_of_one_server_is_a_result_and_the_others_go_on(entries: Entries) -> None:
    async with connect_mcp_servers({"mcpServers": {**BROKEN, **entries}}) as hub:
        refused = await hub.execute("time_get_current_time", {"timezone": "Nope/Zone"})
        unfit = await hub.execute("everything_echo", {"message": 1})
        answered = await hub.execute("everything_echo", {"message": "hi"})
    assert refused.is_error
    assert unfit.is_error
    assert answered.text == "Echo: hi"


async def test_a_server_that_is_disconnected_takes_its_tools_along(entries: Entries) -> None:
    async with connect_mcp_servers({"mcpServers": {name: entries[name] for name in ("time", "git")}}) as hub:
        await hub.disconnect("time")
        assert {spec.server for spec in hub.snapshot()} == {"git"}


async def test_a_file_of_servers_is_read_as_it_is(entries: Entries, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": dict(entries)}))
    async with connect_mcp_servers(config) as hub:
        assert set(hub.clients) == set(entries)
        assert not hub.errors
