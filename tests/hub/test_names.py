"""The names of many servers' tools: one-to-one, stable, and each found again."""

from __future__ import annotations

import logging
import string
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hub.fleet import BOUND, ToolServer, echo, next_change, opened, waiting
from toolweave import Hub, connect_mcp_servers
from toolweave.config import LoadedConfig


def names_of(hub: Hub) -> dict[str, str]:
    """Return what each exposed name stands for."""
    return {spec.name: f"{spec.server}|{spec.original_name}" for spec in hub.snapshot()}


@pytest.mark.anyio
@pytest.mark.requirement("R40", "C1", "D15", "C20")
async def test_the_same_tools_of_two_servers_do_not_collide() -> None:
    a, b = ToolServer("a", ["echo", "add"]), ToolServer("b", ["echo", "add"])
    async with opened({"a": a.config(), "b": b.config()}) as hub:
        assert names_of(hub) == {"a_echo": "a|echo", "a_add": "a|add", "b_echo": "b|echo", "b_add": "b|add"}


@pytest.mark.anyio
@pytest.mark.requirement("C20", "D15")
async def test_a_taken_name_is_renamed_by_default_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    a, b = ToolServer("a", ["x", "a_x"]), ToolServer("b", ["x", "y"])
    with caplog.at_level(logging.WARNING, logger="toolweave.hub"):
        async with opened({"a": a.config(tool_prefix=""), "b": b.config(tool_prefix="")}) as hub:
            assert names_of(hub) == {"x": "a|x", "a_x": "a|a_x", "b_x": "b|x", "y": "b|y"}
            assert (await hub.execute("b_x")).text == "b|x"
            b.tools.append("z")
            await hub.refresh()
            assert hub.tools["z"].server == "b"
    told = [record.getMessage() for record in caplog.records]
    assert told == ["server 'b': tool 'x' is named 'b_x': the name 'x' is taken"]


@pytest.mark.anyio
@pytest.mark.requirement("C20")
async def test_a_taken_name_is_left_out_when_that_is_wished() -> None:
    a, b = ToolServer("a", ["x"]), ToolServer("b", ["x", "y"])
    async with opened({"a": a.config(tool_prefix=""), "b": b.config(tool_prefix="", on_conflict="skip")}) as hub:
        assert names_of(hub) == {"x": "a|x", "y": "b|y"}
        assert (await hub.execute("b:x")).is_error
        assert b.called == []


@pytest.mark.anyio
async def test_names_that_only_collide_when_put_together_are_told_apart() -> None:
    a, b = ToolServer("a", ["b_c", "c"]), ToolServer("a_b", ["c"])
    async with opened({"a": a.config(), "a_b": b.config()}) as hub:
        assert names_of(hub) == {"a_b_c": "a|b_c", "a_c": "a|c", "a_b_a_b_c": "a_b|c"}
        assert (await hub.execute("a_b:c")).text == "a_b|c"
        assert (await hub.execute("a_b_c")).text == "a|b_c"


@pytest.mark.anyio
@pytest.mark.requirement("C1")
async def test_a_server_that_is_added_renames_nobody() -> None:
    a, b = ToolServer("a", ["x"]), ToolServer("b", ["x"])
    async with opened({"a": a.config(tool_prefix="")}) as hub:
        before = names_of(hub)
        async with next_change(hub, adds="b_x") as changes:
            await hub.connect("b", b.config(tool_prefix=""))
        assert before.items() <= names_of(hub).items()
        assert (changes[-1].removed, changes[-1].changed) == ((), ())


@pytest.mark.anyio
@pytest.mark.requirement("C1")
async def test_the_configs_order_decides_over_names_whoever_comes_up_first(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    servers = {"slow": waiting(gate, "slow", 2, tool_prefix=""), "fast": echo(tool_prefix="")}
    async with opened(servers, wait="any") as hub:
        assert hub.tools["echo"].server == "fast"
        async with next_change(hub, adds="fast_echo") as changes:
            (gate / "go").touch()
        assert hub.tools["echo"].server == "slow"
        assert hub.tools["fast_echo"].server == "fast"
        assert "echo" in changes[-1].changed


IDENTIFIERS = st.text("ab_-. é", min_size=1, max_size=4)
KEYS = st.text(string.ascii_lowercase[:2] + "_-.", min_size=1, max_size=3)
PREFIXES = st.one_of(st.none(), st.text("ab_:/", max_size=3))
SERVERS = st.dictionaries(
    KEYS, st.tuples(PREFIXES, st.lists(IDENTIFIERS, unique=True, max_size=4)), min_size=1, max_size=4
)


@pytest.mark.requirement("C1", "C20", "R39", "R40", "R41", "D5")
@given(servers=SERVERS, late=st.tuples(PREFIXES, st.lists(IDENTIFIERS, unique=True, max_size=4)))
@settings(max_examples=60, deadline=None)
def test_every_tool_is_reached_by_its_name_and_aliases_and_called_by_its_own_name(
    servers: dict[str, tuple[str | None, list[str]]], late: tuple[str | None, list[str]]
) -> None:
    made = {key: ToolServer(key, tools) for key, (_, tools) in servers.items()}
    configs = {key: made[key].config(tool_prefix=prefix) for key, (prefix, _) in servers.items()}
    made["late"] = ToolServer("late", late[1])

    async def check() -> None:
        with anyio.fail_after(BOUND):
            async with connect_mcp_servers(LoadedConfig(servers=configs)) as hub:
                before = names_of(hub)
                await _check_reachable(hub, made, {key: server.tools for key, server in made.items() if key != "late"})
                await hub.connect("late", made["late"].config(tool_prefix=late[0]))
                assert before.items() <= names_of(hub).items()
                await _check_reachable(hub, made, {key: server.tools for key, server in made.items()})

    anyio.run(check)


async def _check_reachable(hub: Hub, made: dict[str, ToolServer], tools: dict[str, list[str]]) -> None:
    named = names_of(hub)
    assert sorted(named.values()) == sorted(f"{key}|{tool}" for key, names in tools.items() for tool in names)
    assert len(named) == len(hub.snapshot())
    for exposed, identity in named.items():
        key, _, tool = identity.partition("|")
        assert (await hub.execute(exposed)).text == identity
        assert made[key].called[-1] == tool
        for alias in (f"{key}:{tool}", f"{key}/{tool}"):
            if alias not in named:  # a name that a prefix made to look like an alias stays that tool's
                assert (await hub.execute(alias)).text == identity
