"""One feed for the changes of tools, prompts and resources: every transport, every revision."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

import anyio
import pytest

from tests.connect.targets import MATRIX, MODERN, connected, eventually, serving, state_of
from toolweave import ConnectionLostError, McpConnection, ToolError, ToolsChanged
from toolweave.connect import ConnectionState, ListChanged, ResourceUpdated
from toolweave.testing import MemoryServer

everywhere = pytest.mark.parametrize(("kind", "version"), MATRIX)
kinds = pytest.mark.parametrize("kind", ["stdio", "http-sse"])
LONG = ("--ttl-ms", 3_600_000)


@contextmanager
def patient(kind: str, version: str) -> Generator[Any]:
    """Serve with lists that may be kept for an hour, where the transport takes options."""
    with serving(kind, version, *(() if kind in ("channel", "registered") else LONG)) as target:
        yield target


async def heard(connection: McpConnection, *filters: str) -> None:
    """Wait until the server tells of its changes; with `filters`, exactly of these."""
    if connection.protocol_version != MODERN:
        return

    async def listening() -> bool:
        told = (await state_of(connection))["filters"]
        return len(told) == 1 and (not filters or sorted(told[0]) == sorted(filters))

    await eventually(listening)


async def lists_asked(connection: McpConnection, method: str) -> int:
    return (await state_of(connection))["methods"].count(method)


@pytest.mark.slow
@everywhere
@pytest.mark.requirement("C8", "D28")
async def test_prompts_and_resources_that_come_later_are_told(kind: str, version: str) -> None:
    told: list[ListChanged] = []
    with patient(kind, version) as target:
        async with connected(target) as connection:
            prompts, resources = await connection.list_prompts(), await connection.list_resources()
            await connection.list_resource_templates()
            connection.on("prompts_changed", told.append)
            connection.on("resources_changed", told.append)
            await heard(connection, "toolsListChanged", "promptsListChanged", "resourcesListChanged")

            await connection.call_tool("grow", {"kind": "prompts"})
            await eventually(lambda: told)
            await connection.call_tool("grow", {"kind": "resources"})
            await eventually(lambda: len(told) == 2)

            assert told == [
                ListChanged(kind="prompts", added=("grown_1",), version=2),
                ListChanged(kind="resources", added=("test://grown_1",), version=2),
            ]
            assert [prompt.name for prompt in await connection.list_prompts()] == [
                *(prompt.name for prompt in prompts),
                "grown_1",
            ]
            assert len(await connection.list_resources()) == len(resources) + 1


@everywhere
@pytest.mark.requirement("C8")
async def test_lists_are_kept_while_the_server_says_that_they_hold(kind: str, version: str) -> None:
    with patient(kind, version) as target:
        async with connected(target) as connection:
            await heard(connection)
            for _ in range(3):
                assert len(await connection.list_prompts()) == 2
                assert len(await connection.list_resources()) == 3
                assert len(await connection.list_resource_templates()) == 1
            kept = version != MODERN or kind not in ("channel", "registered")  # those say ttlMs 0
            assert await lists_asked(connection, "prompts/list") == (1 if kept else 3)
            assert await lists_asked(connection, "resources/templates/list") == (1 if kept else 3)
            asked = await lists_asked(connection, "resources/list")
            await connection.list_resources(refresh=True)
            assert await lists_asked(connection, "resources/list") == asked + 1


@everywhere
@pytest.mark.requirement("D28")
async def test_a_change_of_a_list_that_nobody_listens_to_is_seen_at_its_next_use(kind: str, version: str) -> None:
    notes: list[Any] = []
    with patient(kind, version) as target:
        async with connected(target) as connection:
            await connection.list_prompts()
            await heard(connection)
            connection.on("notification", notes.append)
            asked = await lists_asked(connection, "prompts/list")
            await connection.call_tool("grow", {"kind": "prompts"})
            await eventually(lambda: [note for note in notes if note[0] == "notifications/prompts/list_changed"])
            assert await lists_asked(connection, "prompts/list") == asked
            assert "grown_1" in [prompt.name for prompt in await connection.list_prompts()]


@everywhere
@pytest.mark.requirement("D28")
async def test_updates_of_a_resource_are_told_to_whom_they_concern_until_they_leave(kind: str, version: str) -> None:
    first: list[ResourceUpdated] = []
    second: list[ResourceUpdated] = []
    async with connected(serving(kind, version)) as connection:
        leave_first = await connection.subscribe_resource("test://text", first.append)
        leave_second = await connection.subscribe_resource("test://text", second.append)
        leave_other = await connection.subscribe_resource("test://json", second.append)
        await connection.call_tool("touch", {"uri": "test://text"})
        await eventually(lambda: first and second)
        assert first[0] == ResourceUpdated(uri="test://text")

        leave_first()
        leave_first()
        first.clear()
        second.clear()
        await connection.call_tool("touch", {"uri": "test://text"})
        await connection.call_tool("touch", {"uri": "test://json"})
        await eventually(lambda: {update.uri for update in second} == {"test://text", "test://json"})
        assert first == []

        leave_second()
        leave_other()

        async def forgotten() -> bool:
            state = await state_of(connection)
            return not state["subscriptions"] and "resourceSubscriptions" not in str(state["filters"])

        await eventually(forgotten)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_no_update_is_missed_while_the_subscriptions_change(kind: str, version: str) -> None:
    told: list[ResourceUpdated] = []
    async with connected(serving(kind, version)) as connection:
        await connection.subscribe_resource("test://text", told.append)

        async def come_and_go() -> None:
            for number in range(8):
                leave = await connection.subscribe_resource(f"test://item/{number}", lambda update: None)
                if number % 2:
                    leave()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_and_go)
            for _ in range(20):
                told.clear()
                await connection.call_tool("touch", {"uri": "test://text"})
                await eventually(lambda: told)
        assert not any(update.missed for update in told)


@pytest.mark.parametrize("kind", ["stdio"])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_subscriptions_and_lists_outlive_a_restart(kind: str, version: str) -> None:
    changes: list[ToolsChanged] = []
    told: list[ListChanged | ResourceUpdated] = []
    with patient(kind, version) as target:
        async with connected(target) as connection:
            await connection.list_prompts()
            await connection.call_tool("grow", {"kind": "prompts"})
            await connection.list_prompts(refresh=True)
            await connection.subscribe_resource("test://text", told.append)
            connection.on("tools_changed", changes.append)
            connection.on("prompts_changed", told.append)
            snapshot = connection.snapshot()
            with pytest.raises(ConnectionLostError):
                await connection.call_tool("crash")

            await eventually(lambda: len(told) >= 2)
            assert connection.state is ConnectionState.READY
            assert connection.snapshot() is snapshot
            assert changes == []
            assert ResourceUpdated(uri="test://text", missed=True) in told
            assert [one for one in told if isinstance(one, ListChanged)] == [
                ListChanged(kind="prompts", removed=("grown_1",), version=3)
            ]
            told.clear()
            await connection.call_tool("touch", {"uri": "test://text"})
            await eventually(lambda: ResourceUpdated(uri="test://text") in told)


@pytest.mark.slow
@kinds
async def test_after_a_stream_of_changes_ended_the_lists_are_read_again(kind: str) -> None:
    changes: list[ToolsChanged] = []
    updates: list[ResourceUpdated] = []
    with patient(kind, MODERN) as target:
        async with connected(target, 40) as connection:
            connection.on("tools_changed", changes.append)
            await heard(connection)
            await connection.subscribe_resource("test://text", updates.append)
            await connection.call_tool("grow", {"quiet": True})  # nobody is notified
            await connection.call_tool("touch", {"hang_up": True})
            await eventually(lambda: changes, 20)
            await eventually(lambda: updates, 20)
            assert changes[0].added == ("grown_1",)
            assert updates == [ResourceUpdated(uri="test://text", missed=True)]
            assert (await state_of(connection))["methods"].count("subscriptions/listen") <= 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stdio", "http-json"])
async def test_a_modern_list_that_runs_out_is_read_again_while_somebody_listens(kind: str) -> None:
    changes: list[ToolsChanged] = []
    async with connected(serving(kind, MODERN, "--ttl-ms", 1), 40) as connection:
        asked = await lists_asked(connection, "tools/list")
        leave = connection.subscribe(changes.append)

        async def again() -> bool:
            return await lists_asked(connection, "tools/list") >= asked + 2

        await eventually(again, 20)
        leave()
        assert changes == []
        assert await lists_asked(connection, "prompts/list") == 0


@pytest.mark.parametrize("protocol", ["legacy", MODERN])
@pytest.mark.parametrize("uri", ["\ud800", PurePosixPath("/a")], ids=["half a character", "path"])
async def test_a_uri_that_cannot_be_sent_costs_nobody_but_who_gave_it(uri: Any, protocol: str) -> None:
    async with connected(MemoryServer(protocol=protocol)) as connection:
        with pytest.raises((ToolError, TypeError)):
            await connection.subscribe_resource(uri, print)
        await connection.subscribe_resource("file:///b", print)
        assert (connection.state, connection.restarts) == (ConnectionState.READY, 0)
