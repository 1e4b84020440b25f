"""Skills through a gateway: of all upstreams, each with its own files, whatever the eras on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.upstreams import LEGACY, MODERN
from toolweave import McpServer, ProtocolError, connect_mcp, create_mcp_server
from toolweave.gateway import create_gateway
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import skills

EXTENSION = "io.modelcontextprotocol/skills"
REFUNDS = "skill://refunds/SKILL.md"
EACH_PAIR = pytest.mark.parametrize(("caller", "era"), [(a, b) for a in (LEGACY, MODERN) for b in ("legacy", MODERN)])


def upstream(folder: Path, *names: str) -> McpServer:
    """Return a server with skills of these names; one file of each says whose it is."""
    for name in names:
        skill = folder / name
        (skill / "deep").mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {folder.name}.\n---\n{folder.name}\n")
        (skill / "deep" / "whose.txt").write_text(folder.name)
    return create_mcp_server(name=folder.name, resources=[skills(folder)])


def gateway_of(tmp_path: Path, era: str = MODERN, **options: Any) -> Any:
    first, second = upstream(tmp_path / "one", "git", "refunds"), upstream(tmp_path / "two", "refunds", "tax")
    plain = create_mcp_server(name="plain", tools=[])
    servers = {
        "one": {"server": first, "protocol": era},
        "two": {"server": second, "protocol": era},
        "plain": {"server": plain},
    }
    return create_gateway(servers, page_size=3, **options)


@EACH_PAIR
async def test_the_skills_of_all_upstreams_are_loaded_with_files_of_their_own(
    tmp_path: Path, caller: str, era: str
) -> None:
    async with connect_mcp({"server": gateway_of(tmp_path, era), "protocol": caller}) as connection:
        listed = await connection.list_skills()
        loaded = {one.uri: await connection.load_skill(one) for one in listed}
        whose = {uri: (await one.read("deep/whose.txt")).text for uri, one in loaded.items()}
        children = await connection.list_directory("two+skill://refunds")
        deeper = await connection.list_directory("two+skill://refunds/deep")
        again = await connection.get_skill("two+skill://refunds/SKILL.md")

    assert connection.capabilities["extensions"][EXTENSION] == {"directoryRead": True}
    assert whose == {
        "skill://git/SKILL.md": "one",
        REFUNDS: "one",
        f"two+{REFUNDS}": "two",
        "skill://tax/SKILL.md": "two",
    }
    assert [one.uri for one in children] == ["two+skill://refunds/SKILL.md", "two+skill://refunds/deep"]
    assert [one.uri for one in deeper] == ["two+skill://refunds/deep/whose.txt"]
    assert again in listed


async def test_a_skill_is_found_by_its_uri_alone(tmp_path: Path) -> None:
    async with connect_mcp(gateway_of(tmp_path)) as connection:
        loaded = await connection.load_skill("skill://tax/SKILL.md")
        with pytest.raises(ProtocolError, match=r"No skill is served at skill://none/SKILL\.md") as unknown:
            await connection.get_skill("skill://none/SKILL.md")
        with pytest.raises(ProtocolError, match="is not a directory resource"):
            await connection.list_directory(REFUNDS)

    assert loaded.instructions == "two\n"
    assert unknown.value.code == -32602


async def test_a_caller_finds_the_skills_that_rules_allow(tmp_path: Path) -> None:
    rules = AccessRules(rules=[AccessRule(effect="allow", servers=("two",))])
    async with connect_mcp(gateway_of(tmp_path, middleware=[rules])) as connection:
        listed = await connection.list_skills()
        with pytest.raises(ProtocolError):
            await connection.get_skill("skill://git/SKILL.md")
        with pytest.raises(ProtocolError):
            await connection.list_directory("skill://git")
        loaded = await connection.load_skill(listed[0])

    assert {one.uri for one in listed} == {f"two+{REFUNDS}", "skill://tax/SKILL.md"}
    assert loaded.skill in listed


async def test_before_upstreams_without_skills_there_is_no_method_of_them(tmp_path: Path) -> None:
    async with connect_mcp(create_gateway({"plain": {"server": create_mcp_server(name="plain")}})) as connection:
        assert await connection.list_skills() == ()
        with pytest.raises(ProtocolError) as refusal:
            await connection.request("skills/list")

    assert refusal.value.code == -32601
