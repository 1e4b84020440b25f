"""Who calls: every caller that a handler may be given tells its client from others by one key."""

from __future__ import annotations

import pytest

from tests.serve.carriers import EACH_CARRIER, connected
from toolweave import Agent, ScriptedModel, connect_mcp, create_mcp_server
from toolweave.models import ModelRequest, UserMessage
from toolweave.tools import CallContext

pytestmark = pytest.mark.slow


async def at_once(ctx: CallContext) -> str:
    """Say who asks."""
    return str(ctx.caller and ctx.caller.client_key)


async def as_task(ctx: CallContext) -> str:
    """Say who asks, as a task."""
    return str(ctx.caller and ctx.caller.client_key)


@pytest.mark.requirement("R85")
@EACH_CARRIER
async def test_a_client_has_one_key_whether_its_call_becomes_a_task_or_not(carrier: str, era: str) -> None:
    server = create_mcp_server(name="who", version="1", tools=[at_once, as_task], tasks={"as_task": "required"})

    async with connected(server, carrier, era) as connection:
        keys = {(await connection.call_tool(name)).text for name in ("at_once", "as_task")}

    assert len(keys) == 1
    if carrier == "inprocess":
        assert keys != {"None"}


@pytest.mark.requirement("R85")
async def test_an_agent_that_is_served_as_a_task_keeps_a_conversation_for_each_client() -> None:
    def heard(request: ModelRequest) -> str:
        return " / ".join(message.text for message in request.messages if isinstance(message, UserMessage))

    desk = Agent(ScriptedModel(heard), name="desk").as_tool(keep_conversation=True)
    served = create_mcp_server(name="desk", version="1", tools=[desk], tasks={"agent_desk": "required"})

    async with connect_mcp(served) as ann, connect_mcp(served) as bob:
        texts = [
            (await client.call_tool("agent_desk", {"message": text})).text
            for client, text in ((ann, "a"), (bob, "b"), (ann, "c"))
        ]

    assert texts == ["a", "b", "a / c"]
