"""Every row of the battery against our client: all of them on kept connections of hubs, beside two healthy servers.

Many rows share a hub, so each is also a neighbour of the others. Each row is played once more behind a gateway, in one
of its combinations, where all rows of a group share the gateway and the one connection of its caller.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import pytest

from experiments.faults.clients import InProcessGateway, Ours, bounds
from experiments.faults.judge import descriptors, judge, serving, zombies
from experiments.faults.rows import COMBOS, ROWS, SPECIAL, Combo, Row, runs
from tests.servers.fixtures import echo_command
from toolweave import Hub, McpConnection, connect_mcp, connect_mcp_servers
from toolweave.connect import ConnectionState
from toolweave.gateway import Gateway, create_gateway
from toolweave.testing.servers import HTTP_FAULTS, STDIO_FAULTS

pytestmark = pytest.mark.slow

TOGETHER = 12
"""Rows that share a hub."""
BEHIND_A_GATEWAY = 32
"""Rows that share a gateway."""


class Group(NamedTuple):
    """Rows of one combination that are played at once."""

    combo: Combo
    rows: list[Row]

    def __str__(self) -> str:
        return f"{self.combo}: {self.rows[0].name} to {self.rows[-1].name}"


def groups() -> list[Group]:
    found: list[Group] = []
    for combo in COMBOS:
        rows = [row for row in ROWS if combo in runs(row)]
        count = -(-len(rows) // TOGETHER)
        found += [Group(combo, rows[start::count]) for start in range(count)]
    return found


def groups_behind_a_gateway() -> list[Group]:
    """Return groups with every row in one of its combinations."""
    chosen: dict[Combo, list[Row]] = {combo: [] for combo in COMBOS}
    for number, row in enumerate(ROWS):
        combos = runs(row)
        chosen[combos[number % len(combos)]].append(row)
    found: list[Group] = []
    for combo, rows in chosen.items():
        count = -(-len(rows) // BEHIND_A_GATEWAY)
        found += [Group(combo, rows[start::count]) for start in range(count)]
    return found


class InHub:
    """A connection of a hub that is open already; opening tells what came of it."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name = hub, name

    async def open(self) -> None:
        if self.name not in self.hub.clients:
            raise self.hub.errors[self.name]

    async def tools(self) -> Iterable[str]:
        return {tool.name for tool in await self.hub.clients[self.name].list_tools()}

    async def call(self, text: str) -> str:
        result = await self.hub.clients[self.name].call_tool("echo", {"text": text})
        if result.is_error:
            raise RuntimeError(result.text)
        return result.text

    async def close(self) -> None:
        if self.name in self.hub.clients:
            await self.hub.clients[self.name].close()


class InGateway(InHub):
    """An upstream of a gateway, as one of its callers reaches it."""

    def __init__(self, gateway: Gateway, caller: McpConnection, name: str) -> None:
        super().__init__(gateway.hub, name)
        self.caller = caller

    async def open(self) -> None:
        # A gateway keeps a server that never came up, and tries it again for ever.
        if self.hub.states()[self.name] not in (ConnectionState.READY, ConnectionState.DEGRADED):
            raise self.hub.errors[self.name]

    async def tools(self) -> Iterable[str]:
        await self.caller.refresh()
        prefix = f"{self.name}_"
        listed = [tool.name for tool in await self.caller.list_tools()]
        return {name.removeprefix(prefix) for name in listed if name.startswith(prefix)}

    async def call(self, text: str) -> str:
        result = await self.caller.call_tool(f"{self.name}_echo", {"text": text})
        if result.is_error:
            raise RuntimeError(result.text)
        return result.text


async def targets(stack: AsyncExitStack, group: Group, folder: Path) -> dict[str, list[str] | str]:
    """Start the servers of a group; return a command or a URL by row."""
    found: dict[str, list[str] | str] = {}

    async def start(row: Row) -> None:
        server = serving(row, group.combo, folder)
        found[row.name] = await anyio.to_thread.run_sync(server.__enter__)
        stack.push(server.__exit__)

    async with anyio.create_task_group() as tasks:
        for row in group.rows:
            tasks.start_soon(start, row)
    return found


def entry(target: list[str] | str, seconds: float = 10, **more: Any) -> dict[str, Any]:
    """Return the entry of a server in a config."""
    where = {"url": target} if isinstance(target, str) else {"command": target[0], "args": target[1:]}
    return {**where, "timeout": bounds(seconds), **more}


@pytest.mark.requirement("R45", "R60", "R62", "R64", "R65", "R66", "R68", "R69", "C3", "C24", "D12", "D21", "D28")
@pytest.mark.parametrize("group", groups(), ids=str)
async def test_a_fault_costs_at_most_its_own_call(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")  # floods fill the report of a failing test
    before, problems = descriptors(), list[str]()

    async def play(hub: Hub, row: Row, target: list[str] | str) -> None:
        neighbours = [InHub(hub, "before"), InHub(hub, "after")]
        said = await judge(row, InHub(hub, row.name), again=lambda: Ours(target, row.seconds), neighbours=neighbours)
        problems.extend(f"{row.name} over {group.combo}: {problem}" for problem in said)

    async with AsyncExitStack() as stack:
        found = await targets(stack, group, tmp_path)
        odd = {row.name: entry(found[row.name], row.seconds) for row in group.rows}
        healthy = entry(echo_command())
        servers = {"mcpServers": {"before": healthy, **odd, "after": healthy}}
        async with connect_mcp_servers(servers) as hub, anyio.create_task_group() as tasks:
            for row in group.rows:
                tasks.start_soon(play, hub, row, found[row.name])
    gc.collect()

    assert problems == []
    assert zombies() == []
    assert descriptors() <= before


@pytest.mark.parametrize("group", groups_behind_a_gateway(), ids=str)
async def test_a_fault_behind_a_gateway_costs_its_callers_at_most_the_one_call(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    before, problems = descriptors(), list[str]()

    async def play(gateway: Gateway, caller: McpConnection, row: Row, name: str, target: list[str] | str) -> None:
        neighbours = [InGateway(gateway, caller, "before"), InGateway(gateway, caller, "after")]
        odd = InGateway(gateway, caller, name)
        said = await judge(row, odd, again=lambda: InProcessGateway(target, row.seconds), neighbours=neighbours)
        problems.extend(f"{row.name} over {group.combo}: {problem}" for problem in said)

    async with AsyncExitStack() as stack:
        found = await targets(stack, group, tmp_path)
        rows = {f"odd{number}": row for number, row in enumerate(group.rows)}
        odd = {name: entry(found[row.name], row.seconds) for name, row in rows.items()}
        healthy = entry(echo_command())
        gateway = create_gateway({"mcpServers": {"before": healthy, **odd, "after": healthy}})
        async with connect_mcp(gateway) as caller, anyio.create_task_group() as tasks:
            for name, row in rows.items():
                tasks.start_soon(play, gateway, caller, row, name, found[row.name])
    gc.collect()

    assert problems == []
    assert zombies() == []
    assert descriptors() <= before


LOST = [
    row
    for row in ROWS
    if row.mode in {"dies_mid_call", "dies_mid_line", "dies_between_calls", "killed_mid_call", "closes_stdin"}
]


@pytest.mark.requirement("R24", "D14")
@pytest.mark.parametrize("row", LOST, ids=lambda row: row.name)
async def test_where_restarting_is_off_the_next_call_fails_with_the_exact_cause(row: Row, tmp_path: Path) -> None:
    with serving(row, "stdio-legacy", tmp_path) as target:
        client = Ours(target, 10, restart="never")
        said = await judge(row, client, again=lambda: client)

    assert len(said) == 1
    assert said[0].startswith("the next call: error ")
    assert "closed its standard input" in said[0] or "exit code" in said[0] or "signal 9" in said[0]


def test_every_mode_has_its_row() -> None:
    assert {row.mode for row in ROWS} == {*STDIO_FAULTS, *HTTP_FAULTS}
    assert {row.mode for row in ROWS} >= SPECIAL
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.name for row in ROWS if not runs(row)] == []


def test_the_battery_is_as_large_as_the_targets_ask() -> None:
    over = {
        transport: {row.name for row in ROWS if f"{transport}-legacy" in runs(row)} for transport in ("stdio", "http")
    }

    assert len(over["stdio"]) >= 79
    assert len(over["http"]) >= 75
