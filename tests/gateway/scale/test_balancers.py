"""Replicas behind a real balancer are replaced one after another under load, and no caller notices."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from tests.gateway.scale.balancers import BALANCERS, balancer
from tests.gateway.scale.fleet import ERAS, Fleet, as_principal, fleet_of
from tests.gateway.scale.replicas import OldClient, message
from tests.programs import free_port
from tests.redis_server import RedisServer
from tests.serve.exchanges import Answer, call_body, connected, events, exchange, head, modern_headers
from toolweave import connect_mcp

pytestmark = pytest.mark.slow

MODERN = "2026-07-28"
CALLERS = 15
"""Callers of each era that call by hand, in each of two ways: 64 in all, with a client and a stream of each era."""
CALLS = [f"{era}-{kind}" for era in ERAS for kind in ("once", "work", "client")]
STREAMS = [f"{era}-stream" for era in ERAS]
LISTEN = {"notifications": {"toolsListChanged": True}}


@dataclass
class Traffic:
    """What callers met at an address.

    Attributes:
        url: The address.
        stop: Set when they shall stop.
        answered: The number of calls that were answered rightly, by kind.
        made: The ids of all calls.
        wrong: Descriptions of everything else.
    """

    url: str
    stop: anyio.Event = field(default_factory=anyio.Event)
    answered: Counter[str] = field(default_factory=Counter[str])
    made: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    _names = itertools.count()

    def name(self, kind: str) -> str:
        """Return the id of a new call."""
        name = f"{kind}-{next(self._names)}"
        self.made.append(name)
        return name

    async def more(self, count: int = 10) -> None:
        """Wait until so many more calls of each kind were answered."""
        before = Counter(self.answered)
        while any(self.answered[kind] < before[kind] + count for kind in CALLS):
            assert self.wrong == []
            await anyio.sleep(0.02)


async def calls(traffic: Traffic, era: str, tool: str) -> None:
    """Call a tool of both upstreams again and again; `work` is answered by a stream with progress."""
    session = OldClient(as_principal("steady"))
    if era != MODERN:
        await session.begin(traffic.url)
    for server in itertools.cycle(["legacy", "modern"]):
        if traffic.stop.is_set():
            return
        name = traffic.name(f"{era}-{tool}")
        arguments = {"id": name} | ({"seconds": 1} if tool == "work" else {})
        meta = {"progressToken": name} if tool == "work" else {}
        called = f"{server}_{tool}"
        try:
            if era == MODERN:
                headers = {**modern_headers(called), **as_principal("steady")}
                answer = await exchange(traffic.url, headers=headers, body=call_body(called, arguments, meta=meta))
            else:
                body = message("tools/call", name, name=called, arguments=arguments, _meta=meta)
                answer = await session.post(traffic.url, body)
            judge(traffic, name, answer, steps=4 if tool == "work" else 0)
        except Exception as broken:
            traffic.wrong.append(f"{name}: {broken!r}")


def judge(traffic: Traffic, name: str, answer: Answer, *, steps: int) -> None:
    """Count an answer if it is that of the call, with all of its progress."""
    received = events(answer.body) if answer.status == 200 else []
    progress = sum("progress" in json.dumps(one) for one in received[:-1])
    text = received[-1].get("result", {}).get("content", [{}])[0].get("text", "") if received else ""
    if text.split(" ")[-1] == name and progress == steps:
        traffic.answered[name.rpartition("-")[0]] += 1
    else:
        traffic.wrong.append(f"{name}: HTTP {answer.status} {answer.body[:300]!r}")


async def streams(traffic: Traffic, era: str) -> None:
    """Hold the stream of notifications open, and open it again whenever it ends."""
    session = OldClient(as_principal("steady"))
    method, body = "GET", b""
    headers = session.headers
    if era == MODERN:
        method, body = "POST", call_body("", method="subscriptions/listen", **LISTEN)
        headers = {**modern_headers("", "subscriptions/listen"), **as_principal("steady")}
    else:
        await session.begin(traffic.url)
    sent = {**headers, "Content-Length": str(len(body))} if body else headers
    while not traffic.stop.is_set():
        try:
            async with connected(traffic.url) as stream:
                await stream.send(head(traffic.url, method, sent) + body)
                received = await until_end(stream, traffic.stop)
        except Exception as broken:
            traffic.wrong.append(f"stream of {era}: {broken!r}")
            continue
        if not received.startswith(b"HTTP/1.1 200") or not (traffic.stop.is_set() or received.endswith(b"0\r\n\r\n")):
            traffic.wrong.append(f"stream of {era}: {received[:100]!r} ... {received[-100:]!r}")
        traffic.answered[f"{era}-stream"] += 1


async def until_end(stream: anyio.abc.SocketStream, stop: anyio.Event) -> bytes:
    """Read a stream until it ends or the test does."""
    received = b""
    async with anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(cancel)
        async for part in stream:
            received += part
        tasks.cancel_scope.cancel()
    return received


async def clients(traffic: Traffic, era: str) -> None:
    """Call a tool that must not be repeated as a real client, whose connection and session stay open."""
    entry = {"url": traffic.url, "protocol": era, "headers": as_principal("steady")}
    async with connect_mcp(entry, name="gateway") as client:
        while not traffic.stop.is_set():
            name = traffic.name(f"{era}-client")
            result = await client.call_tool("modern_once", {"id": name})
            if result.is_error or result.text != f"modern {name}":
                traffic.wrong.append(f"{name}: {result.text}")
            else:
                traffic.answered[f"{era}-client"] += 1
            await anyio.sleep(0.01)


@asynccontextmanager
async def loaded(url: str) -> AsyncGenerator[Traffic]:
    """Have callers of all kinds call during the block."""
    traffic = Traffic(url)
    async with anyio.create_task_group() as tasks:
        for era in ERAS:
            for _ in range(CALLERS):
                tasks.start_soon(calls, traffic, era, "once")
                tasks.start_soon(calls, traffic, era, "work")
            tasks.start_soon(streams, traffic, era)
            tasks.start_soon(clients, traffic, era)
        with anyio.fail_after(200):
            yield traffic
        traffic.stop.set()


@asynccontextmanager
async def balanced(kind: str, folder: Path) -> AsyncGenerator[tuple[Fleet, str]]:
    """Run three replicas behind a balancer; yield them and the address of the balancer."""
    port = free_port()
    options = ("--allow-host", f"127.0.0.1:{port}", "--trusted-proxy", "127.0.0.1")
    (folder / "redis").mkdir()
    with (
        RedisServer(folder / "redis", durable=True) as redis,
        fleet_of(folder, redis.url, drain=4, options=options) as fleet,
        balancer(kind, folder, port, fleet.ports),
    ):
        yield fleet, f"http://127.0.0.1:{port}/mcp"


@pytest.mark.parametrize("kind", BALANCERS)
async def test_no_call_is_lost_when_the_replicas_behind_a_balancer_are_replaced_under_load(
    tmp_path: Path, kind: str
) -> None:
    codes = list[int]()
    async with balanced(kind, tmp_path) as (fleet, url):
        async with loaded(url) as traffic:
            await traffic.more()
            for number in range(len(fleet.ports)):
                codes.append(await anyio.to_thread.run_sync(fleet.drain, number))
                await anyio.to_thread.run_sync(fleet.start, number)
                await traffic.more()
        executed = fleet.executed()

    assert traffic.wrong == []
    assert codes == [0, 0, 0]
    assert traffic.answered.keys() == {*CALLS, *STREAMS}
    assert {name: executed[name] for name in traffic.made if executed[name] != 1} == {}
