"""Skills of servers as tools: listed by server, loaded after a yes, never in another's place."""

from __future__ import annotations

from pathlib import Path

import anyio

from toolweave import Agent, Hub, McpServer, connect_mcp, create_mcp_server
from toolweave.connect import Skill
from toolweave.errors import ErrorKind
from toolweave.hub import SkillTools, skill_tools
from toolweave.models import ScriptedModel, tool_call
from toolweave.serve import skills


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = f"---\nname: {folder.name}\ndescription: For {folder.name}.\nallowed-tools: Bash\n---\n"
    (folder / "SKILL.md").write_text(about + text)


def server_of(root: Path, text: str) -> McpServer:
    """Return a server with two skills, one inside the folder of the other."""
    write(root / "refunds", text)
    (root / "refunds" / "email.md").write_text(f"Dear, {text}")
    write(root / "refunds" / "late", text)
    return create_mcp_server(name=root.name, resources=[skills(root)])


def hub_of(tmp_path: Path) -> Hub:
    return Hub({name: {"server": server_of(tmp_path / name, f"by {name}")} for name in ("shop", "bank")})


async def test_each_skill_is_loaded_from_its_own_server(tmp_path: Path) -> None:
    async with skill_tools(hub_of(tmp_path)) as tools:
        listed = tools.snapshot().by_name["load_skill"].description
        early = await tools.execute("read_skill_file", {"skill": "bank/refunds", "path": "email.md"})
        loaded = await tools.execute("load_skill", {"skill": "bank/refunds"})
        email = await tools.execute("read_skill_file", {"skill": "bank/refunds", "path": "email.md"})
        outside = await tools.execute("read_skill_file", {"skill": "bank/refunds", "path": "../x/SKILL.md"})
        unknown = await tools.execute("load_skill", {"skill": "refunds"})

    assert listed.splitlines()[1:] == [
        "- shop/refunds: For refunds.",
        "- shop/refunds/late: For late.",
        "- bank/refunds: For refunds.",
        "- bank/refunds/late: For late.",
    ]
    assert "is not loaded" in early.text
    assert loaded.text == (
        "Skill 'bank/refunds', written by server 'bank' (skill://refunds/SKILL.md).\n"
        "Files for read_skill_file: email.md, late/SKILL.md\n\nby bank"
    )
    assert email.text == "Dear, by bank"
    assert outside.error is not None
    assert outside.error.kind is ErrorKind.DENIED
    assert "there is no skill 'refunds'; there are shop/refunds" in unknown.text


async def test_a_skill_inside_another_needs_a_yes_of_its_own(tmp_path: Path) -> None:
    asked: list[str] = []

    async def approve(skill: Skill) -> bool:
        asked.append(skill.uri)
        return skill.name == "late"

    async with connect_mcp(server_of(tmp_path / "shop", "x"), name="shop") as connection:
        async with skill_tools(connection) as without:
            refused = await without.execute("load_skill", {"skill": "shop/refunds/late"})
            outer = await without.execute("load_skill", {"skill": "shop/refunds"})
        async with skill_tools([connection], approve=approve) as tools:
            results = [
                await tools.execute("load_skill", {"skill": f"shop/refunds{one}"}) for one in ("", "/late", "/late")
            ]

    assert refused.text.endswith("skill 'shop/refunds/late' was not approved")
    assert not outer.is_error
    assert [one.is_error for one in results] == [True, False, False]
    assert asked == ["skill://refunds/SKILL.md", "skill://refunds/late/SKILL.md"]


async def test_a_skill_that_has_changed_is_asked_about_again(tmp_path: Path) -> None:
    asked: list[Skill] = []

    def approve(skill: Skill) -> bool:
        asked.append(skill)
        return len(asked) < 3

    root = tmp_path / "shop"
    connecting = connect_mcp(server_of(root, "old"), name="shop")
    async with connecting as connection, skill_tools(connection, approve=approve) as tools:
        before = await tools.execute("load_skill", {"skill": "shop/refunds/late"})
        write(root / "refunds" / "late", "new")
        after = await tools.execute("load_skill", {"skill": "shop/refunds/late"})
        write(root / "refunds" / "late", "evil")
        refused = await tools.execute("load_skill", {"skill": "shop/refunds/late"})

    assert (before.text.split("\n\n")[1], after.text.split("\n\n")[1]) == ("old", "new")
    assert len({one.fingerprint for one in asked}) == 3
    assert refused.is_error
    assert "evil" not in refused.text


async def test_an_agent_loads_a_skill(tmp_path: Path) -> None:
    model = ScriptedModel([tool_call("load_skill", {"skill": "shop/refunds"}), "done"])
    async with Agent(model, tools=skill_tools(hub_of(tmp_path))) as agent:
        result = await agent.send("refund it")

    assert result.text == "done"
    assert "by shop" in str(model.requests[-1].messages)


async def test_without_skills_there_are_no_tools() -> None:
    async with connect_mcp(create_mcp_server(name="plain")) as connection, skill_tools(connection) as tools:
        assert len(tools.snapshot()) == 0


async def test_a_hub_that_several_enter_at_once_is_open_for_each(tmp_path: Path) -> None:
    hub = hub_of(tmp_path)
    seen: list[int] = []

    async def enter(tools: Hub | SkillTools) -> None:
        async with tools:
            seen.append(len(hub.clients))
            await left.wait()

    left = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for one in (hub, hub, skill_tools(hub)):
            tasks.start_soon(enter, one)
        with anyio.fail_after(20):
            while len(seen) < 3:
                await anyio.sleep(0.01)
        left.set()

    assert seen == [2, 2, 2]
