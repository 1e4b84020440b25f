"""How a hub ends: from any task, once, whatever is under way, with no process left."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.hub.fleet import BOUND, alive, echo, eventually, fault, opened, pid_of, waiting
from toolweave import CallContext, ConnectionClosedError, ErrorKind, Hub, ToolResult, connect_mcp_servers
from toolweave.connect import ConnectionState


@pytest.mark.slow
@pytest.mark.requirement("R63", "R20")
async def test_closing_ends_every_process_and_may_be_repeated() -> None:
    with anyio.fail_after(BOUND):
        hub = await connect_mcp_servers({"mcpServers": {"a": echo(), "b": echo()}})
        pids = [pid_of(client) for client in hub.clients.values()]
        tool = hub.tools["a_echo"]
        await hub.close()
        await hub.close()
    assert not any(alive(pid) for pid in pids)
    assert not hub.clients
    assert len(hub.snapshot()) == 0
    assert (await hub.execute("a_echo", {"text": "?"})).require_error().kind is ErrorKind.CLOSED
    assert (await tool.execute({"text": "?"})).require_error().kind is ErrorKind.CLOSED
    for use in (hub.open, hub.refresh, lambda: hub.connect("c", echo())):
        with pytest.raises(ConnectionClosedError, match="the hub is closed"):
            await use()


async def test_a_hub_that_never_opened_can_be_closed() -> None:
    hub = Hub()
    await hub.close()
    with pytest.raises(ConnectionClosedError):
        await hub.open()


async def test_closing_from_another_task_while_calls_run_ends_them_with_an_error() -> None:
    results: list[ToolResult] = []
    running = anyio.Event()
    with anyio.fail_after(BOUND):
        hub = await connect_mcp_servers({"mcpServers": {"a": echo(), "b": echo()}})

        async def call() -> None:
            results.append(await hub.execute("a_hang", ctx=CallContext(on_progress=lambda _: running.set())))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await running.wait()
            tasks.start_soon(hub.close)
    assert [result.is_error for result in results] == [True]


async def test_everybody_who_closes_waits_until_it_is_closed() -> None:
    with anyio.fail_after(BOUND):
        hub = await connect_mcp_servers({"mcpServers": {"stubborn": fault("ignores_eof", timeout={"close": 0.3})}})
        pid = pid_of(hub.clients["stubborn"])
        left: list[bool] = []

        async def close() -> None:
            await hub.close()
            left.append(alive(pid))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(close)
    assert left == [False] * 3


async def test_a_cancelled_close_closes_all_the_same() -> None:
    with anyio.fail_after(BOUND):
        hub = await connect_mcp_servers({"mcpServers": {"a": echo(), "b": echo()}})
        pids = [pid_of(client) for client in hub.clients.values()]
        with anyio.CancelScope() as scope:
            scope.cancel()
            await hub.close()
        await hub.close()
    assert not any(alive(pid) for pid in pids)


async def test_closing_while_servers_start_tells_those_who_wait(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    raised: list[type[Exception]] = []
    with anyio.fail_after(BOUND):
        hub = await connect_mcp_servers({"mcpServers": {"slow": waiting(gate, "slow", 9)}}, wait=0)

        async def ask(name: str) -> None:
            try:
                await hub.connect(name, waiting(gate, name, 9))
            except ConnectionClosedError as exc:
                raised.append(type(exc))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "slow")
            tasks.start_soon(ask, "slower")
            await eventually((gate / "slower").exists)
            await hub.close()
    assert raised == [ConnectionClosedError] * 2


async def test_an_error_in_the_block_closes_everything_and_is_the_one_that_is_raised() -> None:
    pids: list[int] = []

    async def fail() -> None:
        async with opened({"a": echo(), "b": echo()}) as hub:
            pids.extend(pid_of(client) for client in hub.clients.values())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


async def test_cancelling_the_block_closes_everything() -> None:
    pids: list[int] = []
    with anyio.CancelScope() as scope:
        async with opened({"a": echo(), "b": echo()}) as hub:
            pids += [pid_of(client) for client in hub.clients.values()]
            scope.cancel()
            await anyio.sleep_forever()
    assert not any(alive(pid) for pid in pids)


async def test_a_hub_that_is_closed_while_its_config_is_read_starts_nothing() -> None:
    hub = Hub({"mcpServers": {"a": echo()}})
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:

            async def start() -> None:
                with pytest.raises(ConnectionClosedError):
                    await hub.open()

            tasks.start_soon(start)
            await anyio.lowlevel.checkpoint()
            await hub.close()
    assert not hub.clients


async def test_one_server_closed_by_hand_leaves_the_others_alone() -> None:
    async with opened({"a": echo(), "b": echo()}) as hub:
        await hub.clients["a"].close()
        assert hub.states() == {"a": ConnectionState.CLOSED, "b": ConnectionState.READY}
        assert (await hub.execute("a_echo", {"text": "?"})).require_error().kind is ErrorKind.CLOSED
        assert (await hub.execute("b_echo", {"text": "here"})).text == "here"
