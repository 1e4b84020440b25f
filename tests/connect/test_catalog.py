"""The tools of a connection: every page, once, unchanged, filtered and renamed as configured, and kept up to date."""

from __future__ import annotations

import http.server
import logging
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, error, initialized, state_of
from tests.servers.fixtures import echo_command, fault_command, http_server
from toolweave import ProtocolError, Tool, ToolsChanged, connect_mcp
from toolweave.connect import ConnectionState


def tool(name: str, **members: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


class Offer:
    """A server in this process whose tools a test may change.

    Attributes:
        tools: What `tools/list` answers.
        listed: How often that was asked.
    """

    def __init__(self, *tools: Json, **page: Any) -> None:
        self.tools = list(tools)
        self.page = page
        self.listed = 0
        self.refusal: Json | None = None
        self.server = ChannelServer(initialized(self._answer))

    def _answer(self, message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                self.listed += 1
                return self.refusal or {"result": {"tools": list(self.tools), **self.page}}
            case "tools/call":
                return {"result": {"content": [{"type": "text", "text": message["params"]["name"]}]}}
            case _:
                return error(-32601, "Method not found")


def config(command: list[str], **settings: Any) -> Json:
    return {"command": command[0], "args": command[1:], **settings}


@pytest.mark.requirement("R28", "D28")
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_all_pages_are_listed(version: str) -> None:
    async with connected(echo_command("--tools", 500, "--page-size", 7, "--version", version)) as connection:
        names = [spec.name for spec in connection.snapshot()]
        assert (names[0], names[-1]) == ("echo", "tool_00500")
        assert len(names) == len(set(names)) == 526
        assert connection.problems == ()
        assert (await connection.call_tool("tool_00499", {"text": "late"})).text == '{"text": "late"}'


@pytest.mark.requirement("R28")
async def test_other_lists_are_read_to_their_end_too() -> None:
    async with connected(echo_command("--page-size", 1)) as connection:
        assert len(await connection.list_resources()) == 3
        assert len(await connection.list_prompts()) == 2
        assert len(await connection.list_resource_templates()) == 1


@pytest.mark.requirement("R29", "R47")
async def test_a_definition_arrives_whole_and_unchanged() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "x-unknown": [1, None, {"a": 0.1}]}},
        "required": ["n"],
        "$defs": {"unused": True},
        "additionalProperties": {"type": "string"},
    }
    definition = tool(
        "full",
        inputSchema=schema,
        outputSchema={"type": "object"},
        title="All of it",
        description="Everything",
        annotations={"readOnlyHint": True, "futureHint": "kept"},
        icons=[{"src": "data:,", "sizes": ["any"]}],
        _meta={"example.com/a": 1},
        execution={"taskSupport": "optional"},
    )
    async with connected(Offer(definition).server, name="srv") as connection:
        (spec,) = connection.snapshot()
    assert spec.raw == definition
    assert spec.input_schema == schema
    assert (spec.title, spec.description, spec.output_schema) == ("All of it", "Everything", {"type": "object"})
    assert spec.annotations == {"readOnlyHint": True, "futureHint": "kept"}
    assert (spec.icons, spec.meta, spec.server) == (({"src": "data:,", "sizes": ["any"]},), {"example.com/a": 1}, "srv")


@pytest.mark.requirement("R29")
async def test_a_bare_definition_gets_an_empty_description_and_an_empty_object_schema() -> None:
    async with connected(Offer({"name": "bare"}).server) as connection:
        (spec,) = connection.snapshot()
    assert (spec.description, spec.input_schema) == ("", {"type": "object", "properties": {}})
    assert (spec.annotations, spec.output_schema, spec.icons, dict(spec.meta)) == (None, None, (), {})


@pytest.mark.requirement("R38", "R41", "D5")
async def test_a_prefix_of_the_listing_is_for_us_and_the_servers_own_name_for_the_server() -> None:
    offer = Offer(tool("read_file"))
    async with connected(offer.server) as connection:
        tools = await connection.list_tools(prefix="fs")
        assert tools.names == ("fs_read_file",)
        assert isinstance(tools["fs_read_file"], Tool)
        assert (await tools["fs_read_file"].execute()).text == "read_file"
        assert (await connection.list_tools()).names == ("read_file",)


@pytest.mark.requirement("R39", "R41", "D5", "D10", "C9")
async def test_a_prefix_of_the_config_is_literal_and_outlives_a_refresh() -> None:
    offer = Offer(tool("read"), tool("write"))
    target = {"transport": "inprocess", "server": offer.server, "tool_prefix": "fs."}
    async with connected(target, name="disk") as connection:
        assert [spec.name for spec in connection.snapshot()] == ["fs.read", "fs.write"]
        for name in ("fs.read", "read", "disk:read", "disk/read"):
            assert (await connection.call_tool(name)).text == "read"

        offer.tools = [tool("read", description="new"), tool("append")]
        change = await connection.refresh()
        assert (change.added, change.removed, change.changed) == (("fs.append",), ("fs.write",), ("fs.read",))
        assert [spec.name for spec in connection.snapshot()] == ["fs.read", "fs.append"]


@pytest.mark.requirement("R31", "C9")
@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"include": ["b", "c", "nobody"]}, ["b", "c"]),
        ({"exclude": ["b"]}, ["a", "c"]),
        ({"include": ["b"], "exclude": ["b", "c"]}, ["b"]),
        ({"include": [], "exclude": []}, ["a", "b", "c"]),
        ({"include": ["b"], "tool_prefix": "x_"}, ["x_b"]),
    ],
)
async def test_tools_are_chosen_by_their_own_names(settings: Json, names: list[str]) -> None:
    offer = Offer(tool("a"), tool("b"), tool("c"))
    async with connected({"transport": "inprocess", "server": offer.server, **settings}) as connection:
        assert [spec.name for spec in connection.snapshot()] == names
        await connection.refresh()
        assert [spec.name for spec in connection.snapshot()] == names


@pytest.mark.requirement("C8", "R34", "R35")
async def test_a_list_is_kept_until_it_is_refreshed() -> None:
    offer = Offer(tool("a"))
    async with connected(offer.server) as connection:
        for _ in range(3):
            await connection.list_tools()
        assert offer.listed == 1
        assert not await connection.refresh()
        assert offer.listed == 2


@pytest.mark.requirement("C8")
@pytest.mark.parametrize(("ttl", "listings"), [(0, 3), (-5, 3), (3_600_000, 1), ("soon", 1), (True, 1), (None, 1)])
async def test_the_servers_word_on_how_long_a_list_holds_is_kept(ttl: Any, listings: int) -> None:
    offer = Offer(tool("a"), ttlMs=ttl)
    async with connected(offer.server) as connection:
        await connection.list_tools()
        await connection.list_tools()
        assert offer.listed == listings


@pytest.mark.requirement("C8", "C9")
async def test_refreshes_at_the_same_time_share_one_listing() -> None:
    async with connected(echo_command("--tools", 300, "--page-size", 300)) as connection:
        before = (await state_of(connection))["methods"].count("tools/list")
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(connection.refresh)
        assert (await state_of(connection))["methods"].count("tools/list") == before + 2


@pytest.mark.requirement("C8")
async def test_a_refresh_whose_leader_is_cancelled_is_taken_over() -> None:
    asked = anyio.Event()
    gate = threading.Event()

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/list" and server.methods().count("tools/list") == 2:
            asked.set()
            return None
        return {"result": {"tools": [tool("late")]}}

    server = ChannelServer(initialized(answer))
    results: list[ToolsChanged] = []
    async with connected(server) as connection, anyio.create_task_group() as tasks:
        leader = anyio.CancelScope()

        async def lead() -> None:
            with leader:
                await connection.refresh()

        async def follow() -> None:
            results.append(await connection.refresh())

        tasks.start_soon(lead)
        await asked.wait()
        tasks.start_soon(follow)
        await anyio.sleep(0)
        leader.cancel()
    assert len(results) == 1
    assert not gate.is_set()


async def test_a_failed_refresh_is_told_to_all_who_share_it_and_the_old_tools_stay() -> None:
    offer = Offer(tool("a"))
    failures: list[ProtocolError] = []
    async with connected(offer.server) as connection:
        offer.refusal = error(-32603, "the database is down")

        async def refresh() -> None:
            with pytest.raises(ProtocolError, match="database is down") as failure:
                await connection.refresh()
            failures.append(failure.value)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(refresh)
        assert [spec.name for spec in connection.snapshot()] == ["a"]
        assert connection.state is ConnectionState.READY
    assert len(failures) == 3


@pytest.mark.requirement("C9")
async def test_a_snapshot_is_replaced_as_a_whole_and_listeners_see_the_new_one() -> None:
    offer = Offer(tool("a"))
    seen: list[tuple[int, list[str]]] = []
    async with connected(offer.server) as connection:
        connection.subscribe(lambda change: seen.append((change.version, [s.name for s in connection.snapshot()])))
        old = connection.snapshot()
        offer.tools = [tool("b"), tool("c")]
        await connection.refresh()
        await connection.refresh()
    assert [spec.name for spec in old] == ["a"]
    assert seen == [(old.version + 1, ["b", "c"])]


async def test_list_changed_notifications_in_a_burst_cost_few_listings() -> None:
    async with connected(fault_command("list_changed_storm")) as connection:
        for _ in range(3):
            await connection.call_tool("echo", {"text": "x"})
        await connection.refresh()
        assert (await state_of(connection))["methods"].count("tools/list") < 20


async def test_a_refresh_asked_for_by_the_server_that_fails_is_logged_only(caplog: pytest.LogCaptureFixture) -> None:
    offer = Offer(tool("a"))
    async with connected(offer.server) as connection:
        failed = anyio.Event()
        connection.on("error", lambda exc: failed.set())
        offer.refusal = error(-32603, "the database is down")
        offer.server.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await failed.wait()
        assert connection.state is ConnectionState.READY
        offer.refusal = None
        assert (await connection.list_tools()).names == ("a",)
    assert "the database is down" in caplog.text


@pytest.mark.parametrize("capabilities", [{}, {"tools": {}, "resources": {}, "prompts": {}}])
@pytest.mark.parametrize("code", [-32601, -32603])
async def test_what_a_server_does_not_offer_is_an_empty_list(capabilities: Json, code: int) -> None:
    def answer(message: Json) -> Json | None:
        return {"result": {"tools": []}} if message["method"] == "tools/list" else error(code, "not here")

    async with connected(ChannelServer(initialized(answer, capabilities=capabilities))) as connection:
        if capabilities and code != -32601:
            with pytest.raises(ProtocolError, match="not here"):
                await connection.list_resources()
            return
        assert await connection.list_resources() == ()
        assert await connection.list_resource_templates() == ()
        assert await connection.list_prompts() == ()


class Counter(http.server.BaseHTTPRequestHandler):
    """Counts every request."""

    seen: list[str] = []  # noqa: RUF012 - one list for the one server

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def counting_server() -> Iterator[int]:
    Counter.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.requirement("R45", "R62", "D12")
async def test_a_schema_that_points_to_the_network_is_never_followed(
    counting_server: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(fault_command("schema_ref_network", "--port", counting_server), name="remote") as connection:
        with caplog.at_level(logging.WARNING, "toolweave"):
            for name in ("remote_ref", "remote_output", "remote_dialect"):
                assert (await connection.call_tool(name, {"a": 1})).text == "called"
                await connection.call_tool(name, {"a": 2})
    assert Counter.seen == []
    repaired = [text for text in caplog.messages if "is checked without its malformed parts" in text]
    unchecked = [text for text in caplog.messages if "cannot be used, so nothing is checked against it" in text]
    assert [text.count("remote_ref") for text in repaired].count(1) == 1
    assert [text.count("remote_output") for text in unchecked].count(1) == 1


@pytest.mark.requirement("R45", "R62", "D12")
async def test_a_malformed_part_of_a_schema_costs_no_other_check_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected(fault_command("invalid_schema"), name="loose") as connection:
        with caplog.at_level(logging.WARNING, "toolweave"):
            for name, value in (("bad_type", 1), ("bad_ref", 1), ("bad_pattern", "(")):
                for _ in range(2):
                    assert (await connection.call_tool(name, {"a": value})).text == "called"
            refused = await connection.call_tool("bad_pattern", {"a": 1})
    assert "expected string, got integer" in refused.text
    for name in ("bad_type", "bad_ref", "bad_pattern"):
        said = [text for text in caplog.messages if f"server 'loose': tool '{name}': its input schema" in text]
        assert len(said) == 1


async def test_a_list_that_is_asked_for_again_over_http_sees_what_changed() -> None:
    with http_server("--version", MODERN, "--ttl-ms", 3_600_000) as url:
        async with connect_mcp(url) as connection:
            await connection.call_tool("shrink", {"name": "fail"})
            assert "fail" not in (await connection.refresh()).added
            assert "fail" not in connection.snapshot().by_name
