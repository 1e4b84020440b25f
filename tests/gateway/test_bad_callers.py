"""Callers that misbehave: one that leaves, floods, or sends what is of another gets an error, and nobody else one."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.serve.exchanges import call, call_body, connected, events, exchange, handshake, head, modern_headers
from tests.serve.serving import served_http
from toolweave import McpServer, create_mcp_server
from toolweave.gateway import create_gateway
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import BearerAuth

Json = dict[str, Any]
TOKENS = {"alice-0123456789abcdef": "alice", "mallory-0123456789abc": "mallory"}
ALICE, MALLORY = ({"Authorization": f"Bearer {token}"} for token in TOKENS)
TASKS: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
TAKES_TASKS: Json = {"io.modelcontextprotocol/clientCapabilities": TASKS}
EACH_ERA = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
FLOOD = 300


class Holding:
    """An upstream whose calls are held until they are let go.

    Attributes:
        server: The server.
        held: Calls that run.
        cancelled: Calls that were cancelled.
    """

    def __init__(self) -> None:
        self.server: McpServer = create_mcp_server(name="holding", version="1", tasks={"slow": "required"})
        self.held = self.cancelled = 0
        self._go = anyio.Event()
        for function in (self.hold, self.slow, self.echo):
            self.server.tool(function)

    async def hold(self, text: str) -> str:
        """Answer once it is let go."""
        self.held += 1
        try:
            await self._go.wait()
        except BaseException:
            self.cancelled += 1
            raise
        finally:
            self.held -= 1
        return text

    async def slow(self) -> str:
        """Answer once it is let go."""
        await self._go.wait()
        return "slow"

    async def echo(self, text: str) -> str:
        """Answer."""
        return text

    def let_go(self) -> None:
        """Let all calls end."""
        self._go.set()


@asynccontextmanager
async def served(upstream: Holding, protocol: str = "auto", **options: Any) -> AsyncGenerator[str]:
    """Serve a gateway before the upstream to callers with tokens; yield its URL."""
    gateway = create_gateway({"up": {"server": upstream.server, "protocol": protocol, "tool_prefix": ""}}, **options)
    with anyio.fail_after(60):
        async with served_http(gateway, auth=BearerAuth(tokens=TOKENS)) as url:
            yield url


async def asked(url: str, who: dict[str, str], method: str, **params: Any) -> Json:
    """Make a modern request; return the message that answers it."""
    headers = {**modern_headers("", method), **who}
    if method.startswith("tasks/"):
        headers["Mcp-Name"] = params["taskId"]
    body = call_body("", method=method, meta=TAKES_TASKS, **params)
    return events((await exchange(url, headers=headers, body=body)).body)[-1]


async def answered(url: str, who: dict[str, str], tool: str, text: str) -> str:
    """Make a call that is answered; return the text."""
    message = events((await call(url, tool, {"text": text}, headers=who)).body)[-1]
    return message["result"]["content"][0]["text"]


async def until(upstream: Holding, *, held: int) -> None:
    """Wait until so many calls run."""
    while upstream.held != held:
        await anyio.sleep(0.01)


async def test_a_session_is_no_use_to_another_principal() -> None:
    async with served(Holding()) as url:
        _, session = await handshake(url, ALICE)
        listed = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode()
        stolen = await exchange(url, headers={**session, **MALLORY}, body=listed)
        own = await exchange(url, headers=session, body=listed)

    assert (stolen.status, own.status) == (404, 200)


@EACH_ERA
async def test_a_task_is_neither_shown_to_another_principal_nor_cancelled_by_it(protocol: str) -> None:
    upstream = Holding()
    async with served(upstream, protocol) as url:
        begun = await call(url, "slow", headers=ALICE, meta=TAKES_TASKS)
        created = events(begun.body)[-1]["result"]
        name = created["taskId"]
        stolen = [await asked(url, MALLORY, method, taskId=name) for method in ("tasks/get", "tasks/cancel")]
        own = await asked(url, ALICE, "tasks/get", taskId=name)
        upstream.let_go()

    assert [one["error"]["code"] for one in stolen] == [-32602, -32602]
    assert own["result"]["status"] == "working"


async def test_a_cursor_after_what_a_caller_may_not_see_is_refused() -> None:
    rules = AccessRules(
        rules=[AccessRule(effect="allow", clients=["alice"]), AccessRule(effect="allow", names=["slow"])]
    )
    async with served(Holding(), page_size=1, middleware=[rules]) as url:
        first = (await asked(url, ALICE, "tools/list"))["result"]
        stolen = await asked(url, MALLORY, "tools/list", cursor=first["nextCursor"])
        own = (await asked(url, ALICE, "tools/list", cursor=first["nextCursor"]))["result"]

    assert [tool["name"] for tool in first["tools"]] == ["hold"]
    assert [tool["name"] for tool in own["tools"]] == ["slow"]
    assert stolen["error"]["code"] == -32602


@EACH_ERA
async def test_a_caller_that_leaves_ends_its_own_call_and_no_other(protocol: str) -> None:
    upstream, answers = Holding(), dict[str, str]()
    async with served(upstream, protocol) as url, anyio.create_task_group() as tasks:

        async def stay(text: str) -> None:
            answers[text] = await answered(url, ALICE, "hold", text)

        for text in ("one", "two"):
            tasks.start_soon(stay, text)
        await until(upstream, held=2)
        body = call_body("hold", {"text": "gone"})
        async with connected(url) as stream:
            sent = {**modern_headers("hold"), **MALLORY, "Content-Length": str(len(body))}
            await stream.send(head(url, headers=sent) + body)
            await until(upstream, held=3)
        await until(upstream, held=2)
        upstream.let_go()

    assert upstream.cancelled == 1
    assert answers == {"one": "one", "two": "two"}


@pytest.mark.slow
@EACH_ERA
async def test_a_caller_that_floods_keeps_nobody_from_an_answer_and_loses_none(protocol: str) -> None:
    upstream, answers, calm = Holding(), list[str](), list[str]()
    async with served(upstream, protocol) as url, anyio.create_task_group() as tasks:

        async def flood(number: int) -> None:
            answers.append(await answered(url, MALLORY, "hold", str(number)))

        for number in range(FLOOD):
            tasks.start_soon(flood, number)
        await until(upstream, held=FLOOD)
        calm += [await answered(url, ALICE, "echo", text) for text in ("a", "b", "c")]
        upstream.let_go()

    assert calm == ["a", "b", "c"]
    assert sorted(answers, key=int) == [str(number) for number in range(FLOOD)]
