"""The config of a gateway changes while it is served: no call is lost, and a mistake changes nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.connect.targets import eventually
from tests.gateway.running import RunningGateway, gateway, until, upstream, write_gateway_config
from tests.serve.serving import served_app
from toolweave import ProtocolError, connect_mcp
from toolweave.errors import ServerError
from toolweave.gateway import GatewayManager

TEST_SECONDS = 120

pytestmark = pytest.mark.slow


def lives(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def states(running: RunningGateway) -> dict[str, str]:
    return {one["name"]: one["state"] for one in running.status()["upstreams"]}


async def test_no_call_is_lost_while_servers_come_change_and_go(tmp_path: Path) -> None:
    both = {"a": upstream(tmp_path, "a"), "b": upstream(tmp_path, "b")}
    config = write_gateway_config(tmp_path, both)
    answers: dict[str, list[Any]] = {"a": [], "b": []}
    over = anyio.Event()

    with gateway(tmp_path, config) as running:

        async def call(name: str) -> None:
            async with connect_mcp(running.entry(), name="load") as connection:
                while not over.is_set():
                    answers[name].append(await connection.call_tool(f"{name}_who"))

        async with anyio.create_task_group() as tasks:
            for name in ("a", "a", "b", "b"):
                tasks.start_soon(call, name)
            async with connect_mcp(running.entry(), name="watch") as watch:
                changed = {"a": both["a"], "b": upstream(tmp_path, "b", "2"), "c": upstream(tmp_path, "c")}
                write_gateway_config(tmp_path, changed)
                await eventually(lambda: "c_who" in [one.name for one in watch.snapshot()], 30)
                await eventually(lambda: answers["b"][-1].structured_content["version"] == "2", 30)
                write_gateway_config(tmp_path, {"a": both["a"], "b": changed["b"]})
                await eventually(lambda: "c_who" not in [one.name for one in watch.snapshot()], 30)
            over.set()

    results = [*answers["a"], *answers["b"]]
    assert len(results) > 100
    assert [one.text for one in results if one.is_error] == []
    assert len({one.structured_content["pid"] for one in answers["a"]}) == 1
    assert [one.structured_content["version"] for one in answers["b"]] == sorted(
        one.structured_content["version"] for one in answers["b"]
    )


async def test_calls_of_a_removed_server_finish_before_it_is_closed(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a"), "b": upstream(tmp_path, "b")})
    with gateway(tmp_path, config) as running:
        async with connect_mcp(running.entry(), name="g") as connection, anyio.create_task_group() as tasks:
            held: list[Any] = []
            pid = (await connection.call_tool("b_who")).structured_content["pid"]

            async def hold() -> None:
                held.append(await connection.call_tool("b_hold", {"name": "x"}))

            tasks.start_soon(hold)
            await eventually((tmp_path / "x.running").exists)
            write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
            await eventually(lambda: "b_who" not in [one.name for one in connection.snapshot()], 30)

            with pytest.raises(ProtocolError) as caught:
                await connection.request("tools/call", {"name": "b_who", "arguments": {}})
            assert caught.value.code == -32602
            status = await anyio.to_thread.run_sync(running.status)
            assert (status["retiring"], [one["name"] for one in status["upstreams"]]) == (1, ["a"])
            assert lives(pid)
            (tmp_path / "x.release").touch()
            await eventually(lambda: held)
            assert held[0].text == "held by version 1"
            await eventually(lambda: not lives(pid))

            async def retired() -> bool:  # the process is gone a moment before the gateway has noted it
                return (await anyio.to_thread.run_sync(running.status))["retiring"] == 0

            await eventually(retired)


async def test_a_changed_server_answers_what_it_was_asked_and_its_successor_the_rest(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a", "1")})
    with gateway(tmp_path, config) as running:
        async with connect_mcp(running.entry(), name="g") as connection, anyio.create_task_group() as tasks:
            held: list[Any] = []

            async def hold() -> None:
                held.append(await connection.call_tool("a_hold", {"name": "x"}))

            tasks.start_soon(hold)
            await eventually((tmp_path / "x.running").exists)
            write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a", "2")})

            async def second() -> bool:
                return (await connection.call_tool("a_who")).structured_content["version"] == "2"

            await eventually(second, 30)
            assert not held
            (tmp_path / "x.release").touch()
            await eventually(lambda: held)
            assert held[0].text == "held by version 1"


async def test_a_server_that_is_connected_anew_answers_what_it_was_asked(tmp_path: Path) -> None:
    servers = {"a": upstream(tmp_path, "a"), "gone": {"command": "toolweave-test-no-such-command"}}
    manager, held = GatewayManager(servers), list[Any]()
    async with (
        served_app(manager.asgi_app()) as base,
        connect_mcp(f"{base}/mcp", name="g") as connection,
        anyio.create_task_group() as tasks,
    ):
        pid = (await connection.call_tool("a_who")).structured_content["pid"]

        async def hold() -> None:
            held.append(await connection.call_tool("a_hold", {"name": "x"}))

        tasks.start_soon(hold)
        await eventually((tmp_path / "x.running").exists)

        status = await manager.restart("a")

        assert (status.name, status.state) == ("a", "ready")
        assert (await connection.call_tool("a_who")).structured_content["pid"] != pid
        assert not held
        (tmp_path / "x.release").touch()
        await eventually(lambda: held)
        assert held[0].text == "held by version 1"
        await eventually(lambda: not lives(pid))
        with pytest.raises(ServerError, match="server 'gone'"):
            await manager.restart("gone")
        with pytest.raises(KeyError, match="no server 'b'; there are a, gone"):
            await manager.restart("b")


def test_a_broken_file_changes_nothing_and_says_why(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config) as running:
        config.write_text('{"mcpServers": {"b": {"comand": "x"}}')
        until(lambda: running.status()["problem"], "the problem")

        assert states(running) == {"a": "ready"}
        ready = running.spoken("GET", "/readyz")
        assert (ready.status, ready.json["config"], ready.json["generation"]) == (200, "kept", 1)
        assert "the config was not changed" in running.log
        assert str(config) in running.status()["problem"]

        write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a"), "b": {"comand": "x"}})
        until(lambda: "'b'" in running.status()["problem"], "the other problem")
        assert states(running) == {"a": "ready"}

        write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a"), "b": upstream(tmp_path, "b")})
        until(lambda: states(running) == {"a": "ready", "b": "ready"}, "b")
        assert running.status()["problem"] is None
        assert running.spoken("GET", "/readyz").json["config"] == "loaded"


def test_settings_that_cannot_connect_leave_the_old_connection(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--metrics") as running:
        write_gateway_config(tmp_path, {"a": {"command": "toolweave-test-no-such-command"}})
        change = running.admin("POST", "/reload", {}).json

        assert change["changed"] == ["a"] or running.status()["generation"] == 2
        until(lambda: "the connection with the earlier settings stays in use" in running.log, "the log")
        assert states(running) == {"a": "ready"}
        (kept,) = running.status()["upstreams"]
        assert "'toolweave-test-no-such-command' was not found" in kept["not_applied"]
        assert kept["hint"] is None
        ready = running.spoken("GET", "/readyz")
        assert (ready.status, ready.json["config"]) == (200, "partial")
        assert 'toolweave_config_not_applied{upstream="a"} 1.0' in running.spoken("GET", "/metrics").text


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": sys.executable, "args": ["/missing/server.py"]}, "there is no file '/missing/server.py'"),
        ({"command": sys.executable, "args": ["-m", "toolweave_no_such_module"]}, "has no module"),
        ({"url": "http://127.0.0.1:9/mcp"}, "check that the server runs, and its host and port"),
    ],
)
def test_new_settings_that_fail_have_their_next_step_in_the_status(
    tmp_path: Path, entry: dict[str, Any], words: str
) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--no-watch") as running:
        write_gateway_config(tmp_path, {"a": entry})
        assert list(running.admin("POST", "/reload", {}).json["failed"]) == ["a"]
        (kept,) = running.status()["upstreams"]

    assert (kept["state"], kept["error"], kept["hint"]) == ("ready", None, None)
    assert words in kept["not_applied_hint"]


def test_settings_that_failed_are_tried_again_when_the_config_is_read_again(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--no-watch") as running:
        before = running.status()["upstreams"][0]
        missing = tmp_path / "missing"
        entry = upstream(tmp_path, "a", "2")
        write_gateway_config(tmp_path, {"a": {**entry, "cwd": str(missing)}})
        assert list(running.admin("POST", "/reload", {}).json["failed"]) == ["a"]
        assert running.status()["upstreams"][0]["not_applied"] is not None

        missing.mkdir()
        change = running.admin("POST", "/reload", {}).json
        assert (change["unchanged"], change["failed"]) == (["a"], {})
        after = running.status()["upstreams"][0]
        assert (after["not_applied"], after["not_applied_hint"]) == (None, None)
        assert running.spoken("GET", "/readyz").json["config"] == "loaded"
        assert before["state"] == after["state"] == "ready"


@pytest.mark.parametrize("servers", [["a", "b"], "nothing"])
def test_sighup_reads_the_config_again(tmp_path: Path, servers: list[str] | str) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--no-watch") as running:
        entries = servers if isinstance(servers, str) else {name: upstream(tmp_path, name) for name in servers}
        config.write_text(json.dumps({"mcpServers": entries}))
        running.hang_up()

        if servers == "nothing":
            until(lambda: running.status()["problem"], "the problem")
        else:
            until(lambda: states(running) == {"a": "ready", "b": "ready"}, "the change")
        assert running.process.poll() is None
