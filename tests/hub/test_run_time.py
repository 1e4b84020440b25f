"""Servers that are added, asked again and taken away while the hub is in use."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.hub.fleet import (
    BOUND,
    ToolServer,
    absent,
    alive,
    echo,
    eventually,
    fault,
    next_change,
    opened,
    pid_of,
    waiting,
)
from toolweave import (
    ConfigError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    McpConnection,
    RequestTimeoutError,
)
from toolweave.connect import ConnectionState
from toolweave.errors import DuplicateToolError, ServerError


@pytest.mark.requirement("R18", "D1", "R36")
async def test_a_server_is_added_and_an_open_one_is_returned_as_it_is() -> None:
    async with opened({}) as hub:
        async with next_change(hub, adds="new_echo"):
            client = await hub.connect("new", echo())
        assert hub.clients["new"] is client
        assert client.state is ConnectionState.READY
        assert await hub.connect("new", absent()) is client
        assert (await hub.execute("new_echo", {"text": "hi"})).text == "hi"


@pytest.mark.requirement("R18")
async def test_callers_that_ask_for_one_name_at_once_share_one_process(tmp_path: Path) -> None:
    clients: list[McpConnection] = []
    gate = tmp_path / "gate"
    async with opened({}) as hub:

        async def ask() -> None:
            clients.append(await hub.connect("one", waiting(gate, "one", 2)))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            (gate / "go").touch()
        assert len(set(map(id, clients))) == 1
        assert {pid_of(client) for client in clients} == {pid_of(hub.clients["one"])}


async def test_one_caller_that_gives_up_costs_the_other_nothing_and_the_last_one_ends_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with opened({"other": echo()}) as hub:
        first, last = anyio.CancelScope(), anyio.CancelScope()

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                await hub.connect("slow", waiting(gate, "slow", 2))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, first)
            tasks.start_soon(ask, last)
            while not (gate / "slow").exists() or not pid_of(hub.clients["slow"]):
                await anyio.sleep(0.01)
            first.cancel()
            await anyio.wait_all_tasks_blocked()
            assert hub.states()["slow"] is ConnectionState.CONNECTING
            pid = pid_of(hub.clients["slow"])
            last.cancel()
            while "slow" in hub.states() or alive(pid):
                await anyio.sleep(0.01)
        (gate / "go").touch()
        assert (await hub.connect("slow", waiting(gate, "slow", 1))).state is ConnectionState.READY


@pytest.mark.requirement("R59", "D13")
async def test_a_failed_server_raises_is_remembered_and_may_be_tried_again() -> None:
    async with opened({"bad": absent()}) as hub:
        with pytest.raises(ConnectError, match="server 'bad'"):
            await hub.connect("bad", fault("exits_at_once"))
        assert isinstance(hub.errors["bad"], ConnectError)
        assert hub.errors["bad"].exit_code == 3
        assert "bad" not in hub.clients
        client = await hub.connect("bad", echo())
        assert not hub.errors
        assert hub.states() == {"bad": ConnectionState.READY}
        assert client is hub.clients["bad"]


async def test_a_failure_is_told_to_everybody_who_waited_and_a_new_try_survives_them() -> None:
    async with opened({}) as hub:
        outcomes: list[object] = []

        async def ask() -> None:
            try:
                await hub.connect("x", fault("exits_at_once"))
            except ConnectError as exc:
                outcomes.append(exc)
                if len(outcomes) == 1:
                    outcomes.append(await hub.connect("x", echo()))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
        assert len([outcome for outcome in outcomes if isinstance(outcome, ConnectError)]) == 3
        assert hub.states() == {"x": ConnectionState.READY}
        assert not hub.errors


async def test_a_server_that_was_lost_for_good_is_begun_anew() -> None:
    async with opened({"x": fault("dies_mid_call", restart="never")}) as hub:
        before = hub.clients["x"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.execute, "x_echo", {"text": "die"})
        async with anyio.create_task_group():
            with pytest.raises(ConnectionLostError):
                await before.refresh()
        assert hub.states() == {"x": ConnectionState.FAILED}
        assert isinstance(hub.errors["x"], ConnectionLostError)
        assert "x_echo" in hub.tools
        after = await hub.connect("x", echo())
        assert after is not before
        assert not hub.errors
        assert (await hub.execute("x_echo", {"text": "again"})).text == "again"


async def test_a_server_that_somebody_closed_is_begun_anew() -> None:
    async with opened({"x": echo()}) as hub:
        await hub.clients["x"].close()
        assert (await hub.execute("x_echo", {"text": "?"})).is_error
        assert (await hub.connect("x", echo())).state is ConnectionState.READY
        assert (await hub.execute("x_echo", {"text": "again"})).text == "again"


async def test_a_wrong_config_at_run_time_raises_and_changes_nothing() -> None:
    async with opened({"a": echo()}) as hub:
        with pytest.raises(ConfigError, match="server 'b'"):
            await hub.connect("b", {"args": []})
        assert set(hub.states()) == {"a"}


@pytest.mark.requirement("C20")
async def test_a_server_whose_names_are_refused_raises_and_is_let_in_with_names_of_its_own() -> None:
    async with opened({"a": echo(tool_prefix="")}) as hub:
        with pytest.raises(DuplicateToolError, match="server 'b'"):
            await hub.connect("b", echo(tool_prefix="", on_conflict="error"))
        assert hub.tools["echo"].server == "a"
        await hub.disconnect("a")
        assert "b" in hub.errors  # a name that was given never changes hands
        await hub.disconnect("b")
        await hub.connect("b", echo(tool_prefix="b_", on_conflict="error"))
        assert hub.tools["b_echo"].server == "b"
        assert not hub.errors


@pytest.mark.requirement("R18", "R19", "D2")
async def test_disconnecting_takes_the_tools_and_the_process_along() -> None:
    async with opened({"a": echo(), "b": echo()}) as hub:
        pid = pid_of(hub.clients["a"])
        async with next_change(hub, removes="a_echo") as changes:
            await hub.disconnect("a")
        assert not alive(pid)
        assert {spec.server for spec in hub.snapshot()} == {"b"}
        assert changes[0].added == ()
        assert {name.partition("_")[0] for name in changes[0].removed} == {"a"}
        assert (await hub.execute("a_echo", {"text": "?"})).is_error
        with pytest.raises(KeyError, match="no server 'a'; there are b"):
            await hub.disconnect("a")


async def test_disconnecting_a_failed_server_forgets_its_error() -> None:
    async with opened({"bad": absent()}) as hub:
        await hub.disconnect("bad")
        assert not hub.errors
        assert not hub.states()


async def test_disconnecting_a_server_that_is_still_starting_tells_who_waits_for_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with opened({}) as hub:
        raised: list[Exception] = []

        async def ask() -> None:
            try:
                await hub.connect("slow", waiting(gate, "slow", 2))
            except ServerError as exc:
                raised.append(exc)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            while not (gate / "slow").exists():
                await anyio.sleep(0.01)
            await hub.disconnect("slow")
        assert [type(error) for error in raised] == [ConnectionClosedError]
        assert not hub.states()


@pytest.mark.requirement("D22", "D10", "C9", "R20", "R34")
async def test_refreshing_one_server_adds_and_removes_under_the_same_prefix() -> None:
    one, other = ToolServer("one", ["read", "write"]), ToolServer("other", ["read"])
    async with opened({"one": one.config(tool_prefix="fs-"), "other": other.config()}) as hub:
        assert [spec.name for spec in hub.snapshot()] == ["fs-read", "fs-write", "other_read"]
        one.tools, other.tools = ["read", "move"], ["read", "late"]
        change = await hub.refresh("one")
        assert (change.added, change.removed, change.changed) == (("fs-move",), ("fs-write",), ())
        assert [spec.name for spec in hub.snapshot()] == ["fs-read", "fs-move", "other_read"]
        assert (await hub.execute("fs-move")).text == "one|move"
        assert change.version == hub.snapshot().version


@pytest.mark.requirement("D22", "C9", "R20", "R34")
async def test_refreshing_all_asks_everybody_and_reports_one_change() -> None:
    one, other = ToolServer("one", ["a", "b"]), ToolServer("other", ["c"])
    async with opened({"one": one.config(include=["a", "b", "d"]), "other": other.config()}) as hub:
        one.tools, other.tools = ["b", "d", "filtered out"], ["c", "e"]
        change = await hub.refresh()
        assert set(change.added) == {"one_d", "other_e"}
        assert change.removed == ("one_a",)
        assert not await hub.refresh()


async def test_refreshing_with_a_failing_server_keeps_its_tools_and_says_so_until_it_is_back() -> None:
    async with opened({"good": echo(), "dying": fault("dies_mid_call", restart="never")}) as hub:
        assert (await hub.execute("dying_echo", {"text": "die"})).is_error
        change = await hub.refresh()
        assert not change
        assert isinstance(hub.errors["dying"], ConnectionLostError)
        assert "dying_echo" in hub.tools
        with pytest.raises(ConnectionLostError):
            await hub.refresh("dying")
        assert set(hub.states()) == {"good", "dying"}


@pytest.mark.slow
async def test_a_refresh_that_succeeds_again_clears_the_error() -> None:
    async with opened({"slow": fault("hang_list", timeout={"list": 0.3})}) as hub:
        assert isinstance(hub.errors["slow"], RequestTimeoutError)
        with pytest.raises(RequestTimeoutError):
            await hub.refresh("slow")
        await hub.connect("quick", echo())
        assert set(hub.errors) == {"slow"}
        assert not await hub.refresh("quick")


async def test_refreshing_a_server_that_never_came_up_says_why_and_an_unknown_one_is_named() -> None:
    async with opened({"good": echo(), "bad": absent()}) as hub:
        with pytest.raises(ConnectError, match="server 'bad'"):
            await hub.refresh("bad")
        with pytest.raises(KeyError, match="no server 'nobody'; there are good"):
            await hub.refresh("nobody")


@pytest.mark.slow
async def test_a_server_that_goes_while_it_is_asked_leaves_no_error_behind() -> None:
    async with opened({"good": echo(), "slow": fault("hang_list", timeout={"connect": BOUND, "list": 0.5})}) as hub:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.refresh)
            await anyio.wait_all_tasks_blocked()
            await hub.disconnect("slow")
        assert not hub.errors


@pytest.mark.requirement("D28", "C8")
async def test_a_change_that_a_server_announces_reaches_the_hub_by_itself() -> None:
    server = ToolServer("s", ["a", "b"])
    async with opened({"s": server.config()}) as hub:
        async with next_change(hub, adds="s_c", removes="s_a"):
            await server.changed(["b", "c"])
        assert [spec.name for spec in hub.snapshot()] == ["s_b", "s_c"]


@pytest.mark.requirement("D28")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_real_server_of_either_era_that_grows_and_shrinks_is_followed(era: str) -> None:
    async with opened({"s": echo("--era", era)}) as hub:

        async def followed() -> bool:
            seen = (await hub.execute("s_state")).structured_content
            return seen["listening"] == 1 or era == "legacy"

        await eventually(followed)
        async with next_change(hub, adds="s_grown_1"):
            assert (await hub.execute("s_grow")).text == "grown_1"
        assert "s_grown_1" in hub.tools
        async with next_change(hub, removes="s_grown_1"):
            await hub.execute("s_shrink", {"name": "grown_1"})
        assert "s_grown_1" not in hub.tools


async def test_a_server_is_replaced_in_one_step_and_the_old_connection_is_handed_over() -> None:
    async with opened({"one": echo(), "two": echo()}) as hub:
        before, versions = hub.clients["one"], list[tuple[str, ...]]()
        hub.subscribe(lambda _: versions.append(tuple(hub.snapshot().by_name)))

        old = await hub.replace("one", echo(exclude=["echo"]))

        assert old is not None
        assert old is before
        assert old.state is ConnectionState.READY
        assert hub.clients["one"] is not old
        assert list(hub.clients) == ["one", "two"]
        assert len(versions) == 1
        assert "one_echo" not in versions[0]
        assert (await old.call_tool("echo", {"text": "still"})).text == "still"
        await old.close()
        assert not (await hub.execute("two_echo", {"text": "hi"})).is_error


async def test_a_replacement_that_fails_changes_nothing() -> None:
    async with opened({"one": echo()}) as hub:
        before = hub.clients["one"]

        with pytest.raises(ServerError):
            await hub.replace("one", absent())

        assert hub.clients["one"] is before
        assert not hub.errors
        assert (await hub.execute("one_echo", {"text": "hi"})).text == "hi"


async def test_a_detached_server_is_out_of_the_hub_and_goes_on() -> None:
    async with opened({"one": echo()}) as hub:
        async with next_change(hub, removes="one_echo"):
            old = await hub.detach("one")

        assert old is not None
        assert not hub.clients
        assert (await old.call_tool("echo", {"text": "still"})).text == "still"
        assert not old.busy
        await old.close()
        with pytest.raises(KeyError):
            await hub.detach("one")
