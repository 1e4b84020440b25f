"""Rounds of input of upstreams that are processes: the caller's next request reaches another replica than the first."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.scale.replicas import KEYS, STORES, Json, store_of
from tests.gateway.scale.test_parked_elsewhere import call, text
from tests.serve.talking import Talk, talking
from toolweave.errors import RequestError
from toolweave.gateway import Replicas, create_gateway
from toolweave.state import MemoryStore, Store

pytestmark = pytest.mark.slow

ASKING = """
import os, sys
from pathlib import Path
from toolweave import CallContext, create_mcp_server

server = create_mcp_server(name="asking")
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}

@server.tool
async def greet(ctx: CallContext) -> str:
    first = await ctx.elicit("Who?", FORM)
    second = await ctx.elicit("And who else?", FORM)
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{os.getpid()}\\n")
    return f"{first.content['name']} and {second.content['name']}"

@server.prompt
async def letter(ctx: CallContext) -> str:
    return f"Dear {(await ctx.elicit('Who?', FORM)).content['name']}"

@server.tool
async def picky(ctx: CallContext) -> str:
    answer = await ctx.elicit("Who?", FORM)
    raise ValueError(f"not {answer.content['name']}")

server.run_stdio()
"""


@asynccontextmanager
async def replica(folder: Path, store: Store | None) -> AsyncGenerator[Talk]:
    """Speak to a replica, which has a process of the server."""
    script = folder / "asking.py"
    script.write_text(ASKING)
    source: Json = {"up": {"command": sys.executable, "args": [str(script), str(folder / "done")], "tool_prefix": ""}}
    shared = None if store is None else Replicas(store, KEYS)
    async with talking(create_gateway(source, state_keys=KEYS, replicas=shared)) as talk:
        yield talk


def done(folder: Path) -> list[str]:
    """Return the processes in which the tool came to its end."""
    path = folder / "done"
    return path.read_text().split() if path.exists() else []


@STORES
async def test_each_round_of_a_modern_process_may_reach_another_replica(
    kind: str, tmp_path: Path, redis_url: str
) -> None:
    one = store_of(kind, tmp_path, redis_url)
    other = one if kind == "memory" else store_of(kind, tmp_path, redis_url)
    with anyio.fail_after(120):
        async with replica(tmp_path, one) as here, replica(tmp_path, other) as there:
            first = await here.ask("tools/call", call("greet"))
            second = await there.ask("tools/call", call("greet", first, "Ada"))
            result = await there.ask("tools/call", call("greet", second, "Bob"))
            back = await here.ask("tools/call", call("greet"))
            back = await there.ask("tools/call", call("greet", back, "Cy"))
            last = await here.ask("tools/call", call("greet", back, "Di"))

    assert (text(result), text(last)) == ("Ada and Bob", "Cy and Di")
    assert len(done(tmp_path)) == 2


async def test_a_prompt_asks_over_replicas_too_and_an_error_of_the_tool_is_its_result(tmp_path: Path) -> None:
    store = MemoryStore()
    with anyio.fail_after(120):
        async with replica(tmp_path, store) as here, replica(tmp_path, store) as there:
            asked = await here.ask("prompts/get", call("letter"))
            prompt = await there.ask("prompts/get", call("letter", asked, "Ada"))
            refused = await there.ask("tools/call", call("picky", await here.ask("tools/call", call("picky")), "Ada"))

    assert prompt["messages"][0]["content"]["text"] == "Dear Ada"
    assert refused["isError"] is True
    assert "not Ada" in text(refused)


async def test_answers_to_a_process_whose_replica_has_ended_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    store = MemoryStore()
    with anyio.fail_after(120):
        async with replica(tmp_path, store) as there:
            async with replica(tmp_path, store) as here:
                asked = await here.ask("tools/call", call("greet"))
            with pytest.raises(RequestError, match="has ended, and these answers were not sent") as raised:
                await there.ask("tools/call", call("greet", asked, "Ada"))

    assert raised.value.code == -32603
    assert "repeat the request without its requestState" in str(raised.value)
    assert done(tmp_path) == []


async def test_replicas_that_share_keys_alone_say_that_they_need_a_store(tmp_path: Path) -> None:
    with anyio.fail_after(120):
        async with replica(tmp_path, None) as here, replica(tmp_path, None) as there:
            asked = await here.ask("tools/call", call("greet"))
            with pytest.raises(RequestError, match="give the replicas a store"):
                await there.ask("tools/call", call("greet", asked, "Ada"))

    assert done(tmp_path) == []


async def test_a_state_of_one_gateway_does_not_open_in_another_with_the_same_keys(tmp_path: Path) -> None:
    source: Any = {"up": {"command": sys.executable, "args": [str(tmp_path / "asking.py"), "-"], "tool_prefix": ""}}
    with anyio.fail_after(120):
        async with (
            replica(tmp_path, None) as here,
            talking(create_gateway(source, name="other", state_keys=KEYS)) as other,
        ):
            asked = await here.ask("tools/call", call("greet"))
            with pytest.raises(RequestError, match="is not of this request"):
                await other.ask("tools/call", call("greet", asked, "Ada"))
