"""The other seven reference servers over stdio, the one transport they offer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.real.raw_wire import Era, RawListing
from tests.reference.servers import BROKEN
from toolweave import connect_mcp
from toolweave.errors import ConnectError, ProtocolError
from toolweave.tools import AudioContent, ImageContent, TextContent

pytestmark = pytest.mark.reference

Entries = Mapping[str, dict[str, Any]]

NEGOTIATED = {
    "everything": "2025-11-25",
    "filesystem": "2025-11-25",
    "memory": "2025-11-25",
    "sequential-thinking": "2025-11-25",
    "time": "2026-07-28",
    "git": "2026-07-28",
    "fetch": "2026-07-28",
    "sqlite": "2025-11-25",
}
"""The newest version each server speaks: the TypeScript SDK 1 and Python SDK 1 stop at 2025-11-25."""
IDENTITY = {
    "everything": ("mcp-servers/everything", "2.0.0"),
    "filesystem": ("secure-filesystem-server", "0.2.0"),
    "memory": ("memory-server", "0.6.3"),
    "sequential-thinking": ("sequential-thinking-server", "2026.8.31"),
    "time": ("mcp-time", "2026.10.19"),
    "git": ("mcp-git", "2026.10.19"),
    "fetch": ("mcp-fetch", "2026.10.24"),
    "sqlite": ("sqlite", "0.1.0"),
}


@pytest.mark.parametrize("name", NEGOTIATED)
async def test_the_newest_common_version_is_negotiated(entries: Entries, name: str) -> None:
    async with connect_mcp(entries[name], name=name) as conn:
        assert conn.protocol_version == NEGOTIATED[name]
        assert conn.server_info is not None
        assert (conn.server_info["name"], conn.server_info["version"]) == IDENTITY[name]
        assert "tools" in conn.capabilities


@pytest.mark.requirement("R28", "R47")
@pytest.mark.parametrize("name", NEGOTIATED)
async def test_the_list_is_the_one_on_the_raw_wire(
    entries: Entries, raw_listing: Callable[[str, Era], RawListing], name: str
) -> None:
    async with connect_mcp(entries[name], name=name) as conn:
        tools = await conn.list_tools()
    raw = raw_listing(name, "modern" if NEGOTIATED[name] == "2026-07-28" else "legacy")
    assert raw.protocol_version == NEGOTIATED[name]
    assert [tool.raw for tool in tools] == raw.tools
    assert [tool.input_schema for tool in tools] == [tool["inputSchema"] for tool in raw.tools]
    assert [tool.output_schema for tool in tools] == [tool.get("outputSchema") for tool in raw.tools]


async def test_filesystem_reads_text_a_picture_and_a_sound(entries: Entries, work: Path) -> None:
    async with connect_mcp(entries["filesystem"], name="filesystem") as conn:
        text = await conn.call_tool("read_text_file", {"path": str(work / "a.txt")})
        picture = await conn.call_tool("read_media_file", {"path": str(work / "dot.png")})
        sound = await conn.call_tool("read_media_file", {"path": str(work / "beep.wav")})
    assert text.content == (TextContent(text="first line\nsecond line\n"),)
    assert text.structured_content == {"content": "first line\nsecond line\n"}
    (image,) = picture.content
    (audio,) = sound.content
    assert isinstance(image, ImageContent)
    assert isinstance(audio, AudioContent)
    assert (image.mime_type, audio.mime_type) == ("image/png", "audio/wav")
    assert image.decode() == (work / "dot.png").read_bytes()
    assert audio.decode() == (work / "beep.wav").read_bytes()


async def test_filesystem_refuses_what_lies_outside_its_folder(entries: Entries, work: Path) -> None:
    async with connect_mcp(entries["filesystem"], name="filesystem") as conn:
        result = await conn.call_tool("read_text_file", {"path": str(work.parent / "secret.txt")})
    assert result.is_error
    assert "Access denied - path outside allowed directories" in result.text


async def test_filesystem_writes_text_that_is_not_ascii(entries: Entries, work: Path) -> None:
    path = work / "written.txt"
    async with connect_mcp(entries["filesystem"], name="filesystem") as conn:
        await conn.call_tool("write_file", {"path": str(path), "content": "Tkanina – 織物 🧵\n"})
    assert path.read_text(encoding="utf-8") == "Tkanina – 織物 🧵\n"


async def test_memory_keeps_what_it_is_told(entries: Entries) -> None:
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}
    async with connect_mcp(entries["memory"], name="memory") as conn:
        await conn.call_tool("create_entities", {"entities": [ada]})
    async with connect_mcp(entries["memory"], name="memory") as conn:
        found = await conn.call_tool("search_nodes", {"query": "notes"})
        missing = await conn.call_tool(
            "add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}
        )
    assert found.structured_content == {"entities": [ada], "relations": []}
    assert json.loads(found.text) == found.structured_content
    assert missing.is_error
    assert missing.text == "Entity with name Nobody not found"


async def test_sequential_thinking_counts_thoughts_within_one_connection(entries: Entries) -> None:
    thought = {"thought": "weft over warp", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 2}
    async with connect_mcp(entries["sequential-thinking"], name="thinking") as conn:
        await conn.call_tool("sequentialthinking", thought)
        second = await conn.call_tool("sequentialthinking", {**thought, "thoughtNumber": 2, "nextThoughtNeeded": False})
        unfit = await conn.call_tool("sequentialthinking", {"thought": "a"})
    assert second.structured_content["thoughtHistoryLength"] == 2
    assert unfit.is_error
    assert "nextThoughtNeeded" in unfit.text


async def test_time_converts_between_zones(entries: Entries) -> None:
    asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    async with connect_mcp(entries["time"], name="time") as conn:
        converted = await conn.call_tool("convert_time", asked)
        refused = await conn.call_tool("get_current_time", {"timezone": "Nope/Zone"})
    assert converted.structured_content["time_difference"] == "+9.0h"
    assert converted.structured_content["target"]["datetime"].endswith("T21:00:00+09:00")
    assert refused.is_error
    assert "No time zone found with key Nope/Zone" in refused.text


async def test_git_shows_the_log_of_a_repository(entries: Entries, work: Path) -> None:
    async with connect_mcp(entries["git"], name="git") as conn:
        log = await conn.call_tool("git_log", {"repo_path": str(work)})
        refused = await conn.call_tool("git_status", {"repo_path": str(work / "nowhere")})
    assert "Message: The first one" in log.text
    assert refused.is_error
    assert str(work / "nowhere") in refused.text


async def test_fetch_turns_a_page_into_markdown_and_obeys_robots(entries: Entries, website: str) -> None:
    async with connect_mcp(entries["fetch"], name="fetch") as conn:
        page = await conn.call_tool("fetch", {"url": f"{website}/page.html", "raw": False})
        private = await conn.call_tool("fetch", {"url": f"{website}/private"})
        absent = await conn.call_tool("fetch", {"url": f"{website}/absent"})
        prompt = await conn.get_prompt("fetch", {"url": f"{website}/page.html"})
    assert "A loom **weaves** cloth." in page.text
    assert private.is_error
    assert "robots.txt" in private.text
    assert "not for robots" not in private.text
    assert absent.is_error
    assert "404" in absent.text
    assert "weaves" in str(prompt.messages[0].content)


async def test_sqlite_reads_rows_and_says_its_errors_in_plain_text(entries: Entries) -> None:
    async with connect_mcp(entries["sqlite"], name="sqlite") as conn:
        rows = await conn.call_tool("read_query", {"query": "select * from t"})
        refused = await conn.call_tool("read_query", {"query": "drop table t"})
        (memo,) = await conn.read_resource("memo://insights")
    assert rows.text == "[{'id': 1, 'word': 'weave'}]"
    assert refused.text == "Error: Only SELECT queries are allowed for read_query"
    assert not refused.is_error  # its own words: the server sends isError false
    assert memo.text == "No business insights have been discovered yet."


@pytest.mark.parametrize("name", ["filesystem", "memory", "sequential-thinking"])
async def test_an_unknown_tool_is_a_result_where_the_server_makes_it_one(entries: Entries, name: str) -> None:
    async with connect_mcp(entries[name], name=name) as conn:
        result = await conn.call_tool("nope", {})
    assert result.is_error
    assert result.text == "MCP error -32602: Tool nope not found"


@pytest.mark.requirement("C2", "C14")
@pytest.mark.parametrize("name", ["time", "git", "fetch"])
async def test_an_unknown_tool_raises_where_the_server_answers_with_a_protocol_error(
    entries: Entries, name: str
) -> None:
    async with connect_mcp(entries[name], name=name) as conn:
        with pytest.raises(ProtocolError, match=f"server '{name}': Unknown tool: nope") as refusal:
            await conn.call_tool("nope", {})
        assert refusal.value.code == -32602
        assert conn.state == "ready"


@pytest.mark.requirement("R59", "R69")
async def test_a_good_server_that_dies_of_a_newer_sdk_shows_its_exit_code_and_last_words() -> None:
    with pytest.raises(ConnectError, match="'sqlite'") as failure:
        async with connect_mcp(BROKEN["dies"], name="sqlite"):
            raise AssertionError("it connected")
    assert failure.value.exit_code == 1
    assert "AttributeError: 'Server' object has no attribute 'list_resources'" in failure.value.stderr
    assert "AttributeError: 'Server' object" in str(failure.value).splitlines()[0]
