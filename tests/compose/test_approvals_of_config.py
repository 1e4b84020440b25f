"""Approvals that the config of a server wants: an agent asks a person, whatever its own policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from toolweave import Agent, Callbacks, Hub, McpTools, ToolSpec, connect_mcp, create_mcp_server, tool
from toolweave.agent import ApprovalRequested
from toolweave.config import ServerConfig
from toolweave.connect import ElicitationRequest, ElicitationResult
from toolweave.gateway import create_gateway
from toolweave.middleware import OfferSelection, UserApproval
from toolweave.models import ScriptedModel, ToolCallPart, ToolMessage, tool_call


@tool(annotations={"readOnlyHint": True})
def look() -> str:
    return "seen"


@tool(annotations={"destructiveHint": False})
def note() -> str:
    return "noted"


@tool
def wipe() -> str:
    return "gone"


ALL = ("look", "note", "wipe")


def config(confirm: str | Mapping[str, str]) -> ServerConfig:
    server: Any = create_mcp_server("files", tools=[look, note, wipe])
    wanted: Any = confirm
    return ServerConfig(name="files", server=server, confirm=wanted, tool_prefix="")


def agent_of(tools: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel([[tool_call(name) for name in ALL], "done"]), tools=[tools], **options)


async def asked(agent: Agent) -> list[str]:
    """Run to the end, allowing what is asked; return the names that were."""
    names: list[str] = []
    run = agent.send("go")
    with anyio.fail_after(30):
        async for event in run:
            if isinstance(event, ApprovalRequested):
                names.append(event.tool.original_name)
                run.approve(event)
    return sorted(names)


@pytest.mark.parametrize(
    ("confirm", "names"),
    [
        ("always", ["look", "note", "wipe"]),
        ("writes", ["note", "wipe"]),
        ("destructive", ["wipe"]),
        ("never", []),
        ({"wipe": "always"}, ["wipe"]),
        ({"*": "always", "look": "never"}, ["note", "wipe"]),
    ],
)
@pytest.mark.parametrize("policy", [None, "never"])
async def test_an_agent_asks_about_the_calls_that_the_config_names(confirm: Any, names: list[str], policy: Any) -> None:
    assert await asked(agent_of(McpTools("files", config(confirm)), confirm=policy)) == names


async def test_approvals_hold_through_a_hub_and_wrappers() -> None:
    async with Hub({"files": config({"wipe": "always"})}) as hub:
        renamed = hub.renamed(lambda spec: spec.original_name)
        assert await asked(agent_of(renamed.filtered(exclude=["note"]))) == ["wipe"]


async def test_without_a_person_the_call_is_denied_and_the_others_are_made() -> None:
    agent = agent_of(McpTools("files", config({"wipe": "always"})))
    result = await agent.send("go", attended=False)

    told = next(one for one in reversed(result.messages) if isinstance(one, ToolMessage))
    assert [one.result.text for one in told.outcomes] == [
        "seen",
        "noted",
        "the call of tool 'wipe' was not allowed: nobody can be asked",
    ]


async def test_a_function_of_the_program_decides_in_place_of_a_person() -> None:
    def allow(call: ToolCallPart, tool: ToolSpec) -> bool:
        return True

    agent = agent_of(McpTools("files", config("always")), confirm=allow)

    assert await asked(agent) == []


async def test_a_name_of_no_tool_is_reported() -> None:
    async with Hub({"files": config({"wype": "always"})}) as hub:
        assert [text for text in hub.warnings if "'confirm': no tool 'wype'; did you mean 'wipe'" in text]


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_gateway_with_the_middleware_asks_its_caller(protocol: str) -> None:
    asked: list[str] = []

    def refuse(request: ElicitationRequest) -> ElicitationResult:
        asked.append(request.message)
        return ElicitationResult(action="decline")

    others = UserApproval(only=[OfferSelection(names=["none"])])
    gateway = create_gateway({"files": config({"note": "always"})}, middleware=[others])
    caller = {"server": gateway, "protocol": protocol}
    async with connect_mcp(caller, name="g", callbacks=Callbacks(elicitation=refuse)) as client:
        assert (await client.call_tool("look")).text == "seen"
        assert (await client.call_tool("note")).is_error
    assert [text.partition(" with")[0] for text in asked] == ["Allow the call of note"]
