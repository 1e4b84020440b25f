"""`toolweave serve --config`: many servers as one, whatever becomes of each of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.command import Done, toolweave, write_config
from tests.cli.served import serve_entry, serving
from tests.servers.fixtures import fault_command
from toolweave import McpConnection, ProtocolError, ToolsChanged, connect_mcp
from toolweave.connect import ListChanged, ResourceUpdated

TEST_SECONDS = 90

pytestmark = pytest.mark.slow

NOTES = [sys.executable, "-m", "toolweave.cli.demo.notes"]
NUMBERS = [sys.executable, "-m", "toolweave.cli.demo.numbers"]
ERAS = ["legacy", "2026-07-28"]

CHANGING = """
import os, sys
from pathlib import Path
from toolweave import create_mcp_server, tool

server = create_mcp_server(name="changing", version="1")

@server.tool
def grow(name: str) -> str:
    "Offer one more tool, resource and prompt."
    def grown() -> str:
        return name
    server.tool(tool(grown, name=name))
    server.resource(f"grown://{name}", name=name)(grown)
    server.prompt(grown, name=name)
    return "grown"

@server.tool
def touch() -> str:
    "Say that the state is another one."
    server.notify_resource_updated("state://now")
    return "touched"

@server.tool
def die() -> str:
    "End the process."
    os._exit(3)

@server.resource("state://now", name="state")
def state() -> str:
    return "now"

@server.prompt
def greet(name: str) -> str:
    "Greet somebody."
    return f"Hello, {name}!"
"""

SLOW = """
import sys, time
from pathlib import Path
while not Path(sys.argv[1]).exists():
    time.sleep(0.02)
import runpy
sys.argv = ["numbers"]
runpy.run_module("toolweave.cli.demo.numbers", run_name="__main__")
"""


def changing(folder: Path) -> list[str]:
    """Return the command of a server that changes when it is told to."""
    file = folder / "changing.py"
    file.write_text(CHANGING)
    return [sys.executable, "-m", "toolweave", "serve", str(file)]


def hub_entry(config: Path, *words: object, era: str = "auto") -> dict[str, Any]:
    return serve_entry("--config", config, *words, protocol=era)


class Heard:
    """What a connection was told, and a way to wait for it."""

    def __init__(self, connection: McpConnection, *events: Any) -> None:
        self.all: list[Any] = []
        self._news = anyio.Event()
        for event in events:
            connection.on(event, self._take)

    def _take(self, value: Any) -> None:
        self.all.append(value)
        self._news.set()
        self._news = anyio.Event()

    async def added(self, name: str, kind: type) -> None:
        """Wait until a change of this kind added this name."""
        while not any(isinstance(one, kind) and name in one.added for one in self.all):
            await self._news.wait()


@pytest.mark.parametrize("era", ERAS)
async def test_tools_resources_and_prompts_of_many_are_those_of_one(folder: Path, era: str) -> None:
    config = write_config(folder, {"notes": NOTES, "numbers": NUMBERS, "changing": changing(folder)})

    async with connect_mcp(hub_entry(config, "--wait", 60, era=era), name="s") as hub:
        names = (await hub.list_tools()).names
        assert {"notes_read_note", "numbers_add", "changing_grow"} <= set(names)
        assert (await hub.call_tool("numbers_add", {"values": [1, 2]})).structured_content == {"sum": 3}
        assert {one.uri for one in await hub.list_resources()} == {"notes://all", "state://now"}
        assert (await hub.read_resource("state://now"))[0].text == "now"
        assert "water the plants" in ((await hub.read_resource("notes://all"))[0].text or "")
        assert {one.name for one in await hub.list_prompts()} == {"notes_review", "changing_greet"}
        filled = await hub.get_prompt("changing_greet", {"name": "Ada"})
        assert [message.content.render() for message in filled.messages] == ["Hello, Ada!"]


@pytest.mark.requirement("R39")
async def test_one_server_with_an_empty_prefix_keeps_its_own_names(folder: Path) -> None:
    config = write_config(
        folder,
        {
            "notes": {"command": NOTES[0], "args": NOTES[1:], "tool_prefix": ""},
            "changing": {"command": sys.executable, "args": changing(folder)[1:], "tool_prefix": ""},
            "numbers": NUMBERS,
        },
    )
    async with connect_mcp(hub_entry(config, "--wait", 60), name="s") as hub:
        names = (await hub.list_tools()).names
        assert {"read_note", "grow", "numbers_add"} <= set(names)
        assert (await hub.call_tool("read_note", {"number": 1})).text == "water the plants"
        assert {one.name for one in await hub.list_prompts()} == {"review", "greet"}
        assert (await hub.get_prompt("greet", {"name": "x"})).messages


@pytest.mark.requirement("R64", "C3")
async def test_a_bad_server_never_prevents_the_start(folder: Path) -> None:
    servers = {
        "absent": ["toolweave-test-no-such-command"],
        "dies": fault_command("exits_at_once"),
        "wrong": {"comand": "x"},
        "numbers": NUMBERS,
    }
    config = write_config(folder, servers)
    async with connect_mcp(hub_entry(config), name="s") as hub:
        assert {name.partition("_")[0] for name in (await hub.list_tools()).names} == {"numbers"}
        assert "'absent'" in hub.stderr_tail
        assert "exit code 3" in hub.stderr_tail
        assert "'wrong'" in hub.stderr_tail
    nothing = write_config(folder, {"absent": ["toolweave-test-no-such-command"]}, "bad.json")
    async with connect_mcp(hub_entry(nothing), name="s") as hub:
        assert (await hub.list_tools()).names == ()


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_comes_late_arrives_as_a_change(folder: Path, era: str) -> None:
    go = folder / "go"
    slow = folder / "slow.py"
    slow.write_text(SLOW)
    config = write_config(folder, {"slow": [sys.executable, str(slow), str(go)], "notes": NOTES})
    async with connect_mcp(hub_entry(config, "--wait", 0.1, era=era), name="s") as hub:
        heard = Heard(hub, "tools_changed")
        assert "slow_add" not in (await hub.list_tools()).names
        go.touch()
        await heard.added("slow_add", ToolsChanged)
        assert (await hub.call_tool("slow_add", {"values": [2]})).structured_content == {"sum": 2}


@pytest.mark.parametrize("era", ERAS)
async def test_changes_of_a_server_reach_the_clients(folder: Path, era: str) -> None:
    config = write_config(folder, {"changing": changing(folder)})
    async with connect_mcp(hub_entry(config, "--wait", 60, era=era), name="s") as hub:
        heard = Heard(hub, "tools_changed", "resources_changed", "prompts_changed")
        await hub.list_resources()
        await hub.list_prompts()
        await hub.call_tool("changing_grow", {"name": "more"})
        await heard.added("changing_more", ToolsChanged)
        await heard.added("grown://more", ListChanged)
        await heard.added("changing_more", ListChanged)
        assert (await hub.read_resource("grown://more"))[0].text == "more"


@pytest.mark.parametrize("era", ERAS)
async def test_updates_of_a_resource_that_was_read_reach_those_who_subscribed(folder: Path, era: str) -> None:
    config = write_config(folder, {"changing": changing(folder)})
    async with connect_mcp(hub_entry(config, "--wait", 60, era=era), name="s") as hub:
        updated = anyio.Event()

        def take(update: ResourceUpdated) -> None:
            updated.set()

        await hub.subscribe_resource("state://now", take)
        await hub.read_resource("state://now")
        await hub.call_tool("changing_touch")
        await updated.wait()


async def test_a_server_that_dies_is_started_again_behind_the_same_endpoint(folder: Path) -> None:
    config = write_config(folder, {"changing": changing(folder)})
    async with connect_mcp(hub_entry(config, "--wait", 60), name="s") as hub:
        assert (await hub.call_tool("changing_die")).is_error
        assert (await hub.call_tool("changing_touch")).text == "touched"


@pytest.mark.requirement("R101", "C14")
async def test_what_no_server_has_is_refused_by_its_code(folder: Path) -> None:
    config = write_config(folder, {"notes": NOTES, "numbers": NUMBERS})
    async with connect_mcp(hub_entry(config, "--wait", 60), name="s") as hub:
        for ask in (hub.read_resource("no://thing"), hub.get_prompt("nothing"), hub.call_tool("nothing")):
            with pytest.raises(ProtocolError) as caught:
                await ask
            assert caught.value.code == -32602


async def test_a_hub_is_served_over_http_and_passes_the_checks(folder: Path) -> None:
    config = write_config(folder, {"notes": NOTES, "numbers": NUMBERS})
    with serving("--config", config, "--server", "numbers", "--name", "few") as (said, _):
        assert (said["name"], said["tools"]) == ("few", 3)
        done = toolweave("doctor", "--conformance", "--json", "--url", said["url"])

    (server,) = json.loads(done.out)["servers"].values()
    assert {box["outcome"] for box in server["boxes"]} <= {"pass", "not applicable"}


GATEWAY_SECTIONS: dict[str, dict[str, Any]] = {
    "api keys": {"auth": {"api_keys": {"ci": "0123456789abcdef0123"}}},
    "a URL, as an entry has": {"auth": {"jwt": {"issuer": "https://i.example"}}, "url": "https://x.example"},
    "a mistake": {"auth": {"api_kezs": {}}},
    "rules": {"middleware": [{"name": "access", "deny": ["*"]}]},
    "nothing": {},
}


@pytest.mark.parametrize("section", GATEWAY_SECTIONS.values(), ids=GATEWAY_SECTIONS.keys())
def test_a_config_with_a_section_for_a_gateway_is_not_served_without_it(folder: Path, section: dict[str, Any]) -> None:
    config, other = folder / "gateway.json", write_config(folder, {"numbers": NUMBERS})
    config.write_text(json.dumps({"mcpServers": {"notes": {"command": "notes"}}, "gateway": section}))

    _is_refused(toolweave("serve", "--config", other, "--config", config, "--http", "0", "--json"), other, config)


@pytest.mark.parametrize("how", [[], ["--install", "claude", "--print"]], ids=["stdio", "install"])
def test_neither_a_pipe_nor_an_editor_serves_a_config_without_its_section_for_a_gateway(
    folder: Path, how: list[str]
) -> None:
    config, other = folder / "gateway.json", write_config(folder, {"numbers": NUMBERS})
    config.write_text(json.dumps({"mcpServers": {"notes": {"command": "notes"}}, "gateway": {"name": "n"}}))

    _is_refused(toolweave("serve", "--config", other, "--config", config, *how), other, config)


def _is_refused(done: Done, other: Path, config: Path) -> None:
    assert (done.code, done.out) == (2, "")
    assert f"{config}: 'toolweave serve' does not apply the section 'gateway'" in done.err
    assert f"toolweave gateway --config {other} --config {config}" in done.err
