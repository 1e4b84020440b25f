"""Tools that only the connection of one caller lists, called as tasks: begun, asked about and cancelled there."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.gateway.plain_callers import Plain, plain
from tests.gateway.relayed import MODERN, Json, gateway_to
from tests.gateway.test_perspectives import CALLERS_OF_EACH_ERA, growing, listed
from tests.serve.serving import served_http
from tests.serve.talking import Talk, talking
from toolweave.errors import RequestError
from toolweave.gateway import Gateway, Replicas
from toolweave.serve import ApiKey, ApiKeyAuth
from toolweave.state import MemoryStore

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

HANDSHAKE = "2025-11-25"
KEYS = ["k" * 32]
ABLE: Json = {"elicitation": {}}
TASKS: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def tasks_of(mode: str, **options: Any) -> Gateway:
    """Return a gateway before a server whose tools become tasks."""
    entry = growing(mode)
    return gateway_to({**entry, "args": [*entry["args"], "tasks"]}, **options)


async def grown(talk: Talk, name: str = "long", level: str | None = None) -> str:
    """Have the server of a caller offer a tool that becomes a task; return the text of where."""
    if level is not None:
        await talk.ask("logging/setLevel", {"level": level})
    await talk.ask("tools/list")
    where = await talk.ask("tools/call", {"name": "grow", "arguments": {"name": name}})
    with anyio.fail_after(30):
        while name not in await listed(talk):
            await anyio.sleep(0.02)
    return where["content"][0]["text"].removeprefix("grown ")


async def begun(talk: Talk, name: str = "long") -> str:
    """Call a tool as a task; return its id."""
    return (await talk.ask("tools/call", {"name": name, "arguments": {}, "task": {}}))["task"]["taskId"]


@CALLERS_OF_EACH_ERA
async def test_a_tool_that_only_the_connection_of_a_caller_lists_is_called_as_a_task(
    mode: str, able: Json, level: str | None
) -> None:
    async with talking(tasks_of(mode), HANDSHAKE, able) as talk:
        where = await grown(talk, level=level)
        name = await begun(talk)
        running = await talk.ask("tasks/get", {"taskId": name})
        waiting = await talk.send("tasks/result", {"taskId": name})
        await talk.ask("tools/call", {"name": "finish", "arguments": {}})
        result = await talk.result(waiting)
        found = await talk.ask("tasks/get", {"taskId": name})

    assert (running["status"], found["status"]) == ("working", "completed")
    assert running["taskId"] == found["taskId"] == name
    assert result["content"][0]["text"] == f"long {where}"
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": name}


@CALLERS_OF_EACH_ERA
async def test_such_a_task_is_cancelled_where_it_runs(mode: str, able: Json, level: str | None) -> None:
    async with talking(tasks_of(mode), HANDSHAKE, able) as talk:
        await grown(talk, level=level)
        name = await begun(talk)
        cancelled = await talk.ask("tasks/cancel", {"taskId": name})
        found = await talk.ask("tasks/get", {"taskId": name})
        with pytest.raises(RequestError):
            await talk.ask("tasks/result", {"taskId": name})

    assert cancelled["status"] == found["status"] == "cancelled"


async def test_tasks_with_the_same_id_at_their_servers_are_kept_apart_and_no_other_caller_reaches_them() -> None:
    gateway = tasks_of("legacy")
    async with (
        gateway.running(),
        talking(gateway, HANDSHAKE, ABLE) as one,
        talking(gateway, HANDSHAKE, ABLE) as other,
    ):
        places = {talk: await grown(talk) for talk in (one, other)}
        names = {talk: await begun(talk) for talk in (one, other)}
        for talk in (one, other):
            await talk.ask("tools/call", {"name": "finish", "arguments": {}})
            result = await talk.ask("tasks/result", {"taskId": names[talk]})
            assert result["content"][0]["text"] == f"long {places[talk]}"
        for talk, foreign in ((one, names[other]), (other, names[one])):
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                with pytest.raises(RequestError) as refused:
                    await talk.ask(method, {"taskId": foreign})
                assert refused.value.code == -32602

    assert places[one] != places[other]
    assert names[one] != names[other]


async def test_a_question_of_such_a_task_reaches_the_caller_that_waits_for_its_result() -> None:
    async with talking(tasks_of("legacy"), HANDSHAKE, ABLE) as talk:
        await grown(talk)
        await grown(talk, "asks")
        name = await begun(talk)
        waiting = await talk.send("tasks/result", {"taskId": name})
        await talk.received("elicitation/create")
        question = next(one for one in talk.notifications if one["method"] == "elicitation/create")
        await talk.answer(question["id"], {"action": "accept", "content": {"name": "Ann"}})
        result = await talk.result(waiting)

    assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": name}
    assert "Ann" in result["content"][0]["text"]


async def test_a_connection_with_a_task_is_not_idle() -> None:
    async with talking(tasks_of("legacy", idle_seconds=0.5), HANDSHAKE, ABLE) as talk:
        where = await grown(talk)
        name = await begun(talk)
        await anyio.sleep(2.5)
        await talk.ask("tools/call", {"name": "finish", "arguments": {}})
        result = await talk.ask("tasks/result", {"taskId": name})

    assert result["content"][0]["text"] == f"long {where}"


async def test_a_task_whose_connection_has_ended_is_unknown() -> None:
    async with talking(tasks_of("legacy"), HANDSHAKE, ABLE) as talk:
        await grown(talk)
        name = await begun(talk)
        assert (await talk.ask("tools/call", {"name": "die"}))["isError"]
        with pytest.raises(RequestError) as unknown:
            await talk.ask("tasks/get", {"taskId": name})

    assert unknown.value.code == -32602


# over HTTP, as principals


class Voice:
    """A principal that speaks to a gateway over HTTP in one era."""

    def __init__(self, client: Plain) -> None:
        self._client = client

    async def answer(self, method: str, **params: Any) -> Json:
        """Return the answer to a request."""
        headers: dict[str, str | None] = {}
        if self._client.modern:
            envelope = {"protocolVersion": MODERN, "clientCapabilities": {**ABLE, **TASKS}}
            params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in envelope.items()}
            headers = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
            named = params.get("name", params.get("taskId", params.get("uri")))
            headers |= {} if named is None else {"Mcp-Name": named}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, kind, said = await self._client.ask(json.dumps(message).encode(), headers)
        if kind is not None and kind.startswith("text/event-stream"):
            said = json.loads([line for line in said.splitlines() if line.startswith(b"data: {")][-1][6:])
        return said

    async def ask(self, method: str, **params: Any) -> Json:
        """Return the result of a request."""
        answer = await self.answer(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    async def begun(self, tool: str) -> str:
        """Call a tool as a task; return its id."""
        if self._client.modern:
            return (await self.ask("tools/call", name=tool, arguments={}))["taskId"]
        return (await self.ask("tools/call", name=tool, arguments={}, task={}))["task"]["taskId"]

    async def grown(self, tool: str) -> str:
        """Have the server of the caller offer a tool; return the text of where."""
        made = await self.ask("tools/call", name="grow", arguments={"name": tool})
        while tool not in [one["name"] for one in (await self.ask("tools/list"))["tools"]]:
            await anyio.sleep(0.02)
        return made["content"][0]["text"].removeprefix("grown ")

    async def outcome(self, task: str) -> str:
        """Return the text of the result of a task that has ended."""
        if not self._client.modern:
            return (await self.ask("tasks/result", taskId=task))["content"][0]["text"]
        while (found := await self.ask("tasks/get", taskId=task))["status"] == "working":
            await anyio.sleep(0.02)
        return found["result"]["content"][0]["text"]


@asynccontextmanager
async def voice(url: str, era: str, user: str) -> AsyncGenerator[Voice]:
    """Speak to a gateway as one principal."""
    async with plain(url, era, token=key_of(user), **ABLE) as client:
        yield Voice(client)


def key_of(user: str) -> str:
    return f"a-key-of-{user}-that-is-long-enough"


@asynccontextmanager
async def served(**options: Any) -> AsyncGenerator[str]:
    """Serve a gateway to two principals; yield its address."""
    gateway = tasks_of("legacy", **options)
    keys = ApiKeyAuth([ApiKey(name=name, key=key_of(name)) for name in ("ann", "bob")])
    async with gateway.running(), served_http(gateway, auth=keys) as url:
        yield url


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_caller_that_comes_back_has_its_task_and_no_other_principal_does(era: str) -> None:
    async with served() as url:
        async with voice(url, era, "ann") as ann:
            where = await ann.grown("long_always")
            name = await ann.begun("long_always")
            assert (await ann.ask("tasks/get", taskId=name))["status"] == "working"
            await ann.ask("tools/call", name="finish", arguments={})
        async with voice(url, era, "ann") as back, voice(url, era, "bob") as bob:
            refused = [(await bob.answer(one, taskId=name))["error"] for one in ("tasks/get", "tasks/cancel")]
            assert await back.outcome(name) == f"long_always {where}"

    assert [error["code"] for error in refused] == [-32602, -32602]


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_caller_that_comes_back_cancels_its_task(era: str) -> None:
    async with served() as url:
        async with voice(url, era, "ann") as ann:
            await ann.grown("long_always")
            name = await ann.begun("long_always")
        async with voice(url, era, "ann") as back:
            await back.ask("tasks/cancel", taskId=name)
            assert (await back.ask("tasks/get", taskId=name))["status"] == "cancelled"


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_such_a_task_is_known_to_another_replica_while_it_runs_and_when_it_has_ended(era: str) -> None:
    store = MemoryStore()
    shared = [{"state_keys": KEYS, "replicas": Replicas(store, KEYS)} for _ in range(2)]
    async with (
        served(**shared[0]) as here,
        served(**shared[1]) as there,
        voice(here, era, "ann") as ann,
        voice(there, era, "ann") as other,
        voice(there, era, "bob") as bob,
    ):
        where = await ann.grown("long_always")
        name, second = await ann.begun("long_always"), await ann.begun("long_always")
        assert (await other.ask("tasks/get", taskId=name))["status"] == "working"
        assert (await bob.answer("tasks/get", taskId=name))["error"]["code"] == -32602
        await other.ask("tasks/cancel", taskId=second)
        assert (await ann.ask("tasks/get", taskId=second))["status"] == "cancelled"
        await ann.ask("tools/call", name="finish", arguments={})
        assert await other.outcome(name) == f"long_always {where}"
