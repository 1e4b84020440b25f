"""The design "MCP Support" of kitn, its client half: many servers registered, refreshed and closed together."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, alive, echo, next_change, pid_of
from tests.servers.fixtures import http_server
from toolweave import Hub, McpConnection, ToolError, ToolRegistry, ToolResult, connect_mcp_servers, load_config, tool
from toolweave.connect import ConnectionState
from toolweave.errors import DuplicateToolError
from toolweave.tools import as_toolset


@pytest.mark.requirement("R5", "R8")
@pytest.mark.parametrize("inside", [False, True], ids=["headers beside the transport", "headers inside it"])
def test_the_designs_list_of_servers_is_a_config(inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_example")
    headers = {"headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}}
    http: dict[str, Any] = {"type": "http", "url": "https://api.github.com/mcp"} | (headers if inside else {})
    github = {"name": "github", "transport": http} | ({} if inside else headers)
    database = {"name": "database", "transport": {"type": "stdio", "command": "node", "args": ["db-mcp-server.js"]}}
    old = {"name": "old", "transport": {"type": "sse", "url": "https://old.example.com/sse"}}
    servers = load_config({"servers": [github, database, old]}).servers
    assert list(servers) == ["github", "database", "old"]
    assert (servers["github"].transport, servers["github"].url) == ("http", "https://api.github.com/mcp")
    assert servers["github"].header_values() == {"Authorization": "Bearer ghp_example"}
    assert (servers["database"].command, list(servers["database"].args)) == ("node", ["db-mcp-server.js"])
    assert servers["old"].transport == "sse"


@pytest.mark.requirement("R20", "R26", "R40", "R5")
async def test_servers_are_connected_their_tools_namespaced_and_all_closed_together() -> None:
    command = echo("--name", "database")
    stdio = {"type": "stdio", "command": command["command"], "args": command["args"], "env": {"DB_URL": "sqlite://"}}
    with http_server("--require-header", "Authorization:Bearer t0ken") as url, anyio.fail_after(BOUND):
        github = {"name": "github", "transport": {"type": "http", "url": url}}
        servers = [{**github, "headers": {"Authorization": "Bearer t0ken"}}, {"name": "database", "transport": stdio}]
        mcp = await connect_mcp_servers({"servers": servers}, on_error="raise")
        assert list(mcp.clients) == ["github", "database"]
        created = await mcp.execute("github:echo", {"text": "createIssue"})
        seen = await mcp.execute("database:env", {"names": ["DB_URL"]})
        pid = pid_of(mcp.clients["database"])
        await mcp.close()
    assert created.text == "createIssue"
    assert seen.structured_content == {"DB_URL": "sqlite://"}
    assert not alive(pid)
    assert not mcp.clients


@pytest.mark.requirement("R40", "C20")
async def test_native_tools_and_those_of_servers_are_mixed_by_name_without_collisions() -> None:
    @tool
    def echo_local(city: str) -> str:
        """Say where."""
        return city

    one, two = ToolServer("github", ["echo_local", "createIssue"]), ToolServer("gitlab", ["createIssue"])
    async with hub_of(one, two) as mcp:
        toolset = as_toolset([echo_local, mcp])
        names = [spec.name for spec in toolset.snapshot()]
        assert names == ["echo_local", "github_echo_local", "github_createIssue", "gitlab_createIssue"]
        mixed = ToolRegistry([echo_local, mcp.tools["github:createIssue"], mcp.tools["gitlab:createIssue"]])
        answers = [(await mixed.execute(name, {"city": "Oslo"} if "local" in name else {})).text for name in names[::2]]
        with pytest.raises(DuplicateToolError):
            mixed.add(echo_local)
    assert answers == ["Oslo", "github|createIssue"]


@pytest.mark.requirement("R20", "R34", "C9", "D10", "D22")
async def test_refreshing_finds_what_was_added_and_drops_what_is_gone_for_one_server_or_all() -> None:
    one, two = ToolServer("one", ["a", "b"]), ToolServer("two", ["c"])
    async with hub_of(one, two) as mcp:
        one.tools, two.tools = ["b", "n"], ["d"]
        await mcp.refresh("one")
        assert [spec.name for spec in mcp.snapshot()] == ["one_b", "one_n", "two_c"]
        await mcp.refresh()
        assert [spec.name for spec in mcp.snapshot()] == ["one_b", "one_n", "two_d"]


@pytest.mark.requirement("R35")
async def test_nothing_is_asked_behind_the_callers_back_and_no_result_is_kept() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"s": echo("--version", "2025-11-25")}) as mcp:
            for _ in range(3):
                assert (await mcp.execute("s_echo", {"text": "the same"})).text == "the same"
            assert len(mcp.tools) == len(mcp.snapshot()) > 20
            seen = (await mcp.execute("s_state")).structured_content
    assert seen["calls"]["echo"] == 3
    assert seen["methods"].count("tools/list") == 1
    assert seen["methods"].count("ping") == 0


@pytest.mark.requirement("R24", "R69")
async def test_a_process_that_died_makes_its_tools_unavailable_with_a_clear_error() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"db": echo(restart="never"), "other": echo()}) as mcp:
            await mcp.execute("db_crash")
            gone = await mcp.execute("db:echo", {"text": "?"})
            assert mcp.states() == {"db": ConnectionState.FAILED, "other": ConnectionState.READY}
            assert (await mcp.execute("other_echo", {"text": "fine"})).text == "fine"
    assert gone.is_error
    assert "server 'db'" in gone.text
    assert "exit code 7" in gone.text


@pytest.mark.requirement("D21")
async def test_servers_that_came_up_before_another_failed_are_not_left_behind() -> None:
    servers = {"up": echo(), "down": {"command": "toolweave-test-no-such-program"}}
    processes: dict[McpConnection, int] = {}
    with anyio.fail_after(BOUND):
        hub = Hub({"mcpServers": servers}, on_error="raise")
        hub.on("state", lambda one, change: processes.setdefault(one, pid_of(one)) if change.state == "ready" else None)
        with pytest.raises(ExceptionGroup):
            await hub.open()
    ((up, pid),) = processes.items()
    assert (up.name, up.state) == ("up", ConnectionState.CLOSED)
    assert not alive(pid)
    assert hub.clients == {}


@pytest.mark.requirement("D28", "R34")
async def test_a_server_that_adds_tools_at_run_time_is_seen_without_a_refresh_or_a_loop() -> None:
    server = ToolServer("github", ["createIssue"])
    async with hub_of(server) as mcp:
        async with next_change(mcp, adds="github_listPRs"):
            await server.changed(["createIssue", "listPRs"])
        assert (await mcp.execute("github:listPRs")).text == "github|listPRs"


@pytest.mark.requirement("R68", "R54")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ({"temperature": 21}, '{"temperature": 21}'),
        ([1, 2, 3], "[1, 2, 3]"),
        (None, "null"),
        (True, "true"),
        (42, "42"),
    ],
)
async def test_what_a_function_returns_becomes_text(value: object, text: str) -> None:
    def give() -> object:
        """Give it."""
        return value

    result = await tool(give).execute()
    assert (result.text, result.is_error) == (text, False)
    if not isinstance(value, str):
        assert json.loads(result.text) == value == result.structured_content


@pytest.mark.requirement("R68")
@pytest.mark.parametrize(
    ("error", "said"),
    [(ToolError("not found", code=404), "not found"), (ValueError("bad city"), "bad city"), (KeyError("x"), "x")],
)
async def test_what_a_function_raises_becomes_an_error_result_with_its_words_and_no_stack(
    error: Exception, said: str
) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    result = await tool(fail).execute()
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert said in result.text
    assert "Traceback" not in result.text
    if isinstance(error, ToolError):
        assert result.require_error().code == 404


def hub_of(*servers: ToolServer) -> Any:  # what `connect_mcp_servers` returns
    """Return a hub of servers in this process."""
    return connect_mcp_servers({"mcpServers": {server.name: server.config() for server in servers}})
