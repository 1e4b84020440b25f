"""Callbacks take their time: calls wait for them, and take them along when they are given up."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.connect.targets import ASKS, EACH_WAY, ChannelServer, Json, connected, initialized, serving
from toolweave import Callbacks, McpConnection, RequestTimeoutError
from toolweave.connect import ElicitationRequest


@pytest.mark.slow
@EACH_WAY
async def test_a_call_does_not_time_out_while_a_person_thinks(kind: str, version: str) -> None:
    asked, bound_passed = anyio.Event(), anyio.Event()

    async def elicitation(request: ElicitationRequest) -> Json:
        asked.set()
        await bound_passed.wait()
        return {"name": "Ada"}

    async def wait_as_long(another: McpConnection) -> None:
        await asked.wait()
        with pytest.raises(RequestTimeoutError):
            await another.call_tool("hang", timeout=0.5)
        bound_passed.set()

    with serving(kind, version, ASKS) as target:
        async with (
            connected(target, callbacks=Callbacks(elicitation=elicitation)) as connection,
            connected(target) as another,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(wait_as_long, another)
            said = json.loads((await connection.call_tool("elicit", timeout=0.5)).text)
            assert said["result"]["action"] == "accept"


@pytest.mark.parametrize("method", ["refresh", "list_resources", "list_prompts"])
async def test_a_list_does_not_time_out_while_its_server_waits_for_the_roots(method: str) -> None:
    member = {"refresh": "tools", "list_resources": "resources", "list_prompts": "prompts"}[method]
    capabilities: Json = {"tools": {}, "resources": {}, "prompts": {}}
    bounds = {"list": 0.3, "read": 0.3}
    is_asking = anyio.Event()
    waiting: list[Json] = []

    def answer(message: Json) -> Json | None:
        if message["method"] == f"{member}/list" and is_asking.is_set():
            waiting.append(message)
            server.send({"jsonrpc": "2.0", "id": "where", "method": "roots/list"})
            return None
        return {"result": {"tools": [], "resources": [], "prompts": []}}

    shake = initialized(answer, capabilities=capabilities)

    def script(message: Json) -> Json | None:
        if "method" not in message and waiting:  # the roots
            server.send({"jsonrpc": "2.0", "id": waiting.pop()["id"], "result": {member: []}})
        return shake(message)

    async def roots() -> list[str]:
        with pytest.raises(RequestTimeoutError):  # whose bound is the same, and began later
            await another.ping()
        return ["file:///home"]

    server = ChannelServer(script)
    mute = ChannelServer(
        initialized(lambda message: None if message["method"] == "ping" else {"result": {"tools": []}})
    )
    async with (
        connected(mute, timeout=bounds) as another,
        connected(server, timeout=bounds, callbacks=Callbacks(roots=roots)) as connection,
    ):
        is_asking.set()
        await getattr(connection, method)()

    assert not waiting


@EACH_WAY
async def test_a_cancelled_call_takes_its_callback_with_it(kind: str, version: str) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def elicitation(request: ElicitationRequest) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with connected(serving(kind, version, ASKS), callbacks=Callbacks(elicitation=elicitation)) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "elicit")
            await started.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()
        assert (await connection.call_tool("echo", {"text": "on"})).text == "on"


@pytest.mark.parametrize("kind", ["stdio", "http-sse"])
async def test_a_closed_connection_takes_its_callbacks_with_it(kind: str) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def elicitation(request: ElicitationRequest) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def call(connection: McpConnection) -> None:
        with pytest.raises(Exception, match=r"end|closed"):
            await connection.call_tool("elicit")

    async with connected(serving(kind, "2025-11-25", ASKS), callbacks=Callbacks(elicitation=elicitation)) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, connection)
            await started.wait()
            await connection.close()
        await ended.wait()
