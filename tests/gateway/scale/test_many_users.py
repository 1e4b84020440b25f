"""Calls of many users over replicas behind a balancer: each is answered once, and with its own result."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from tests.gateway.scale.balancers import balancer
from tests.gateway.scale.fleet import ERAS, fleet_of
from tests.gateway.scale.replicas import OldClient, message
from tests.programs import free_port
from tests.redis_server import RedisServer
from tests.serve.exchanges import call_body, events, modern_headers
from toolweave.http import HttpClient

MODERN = "2026-07-28"
USERS = 50
CALLERS = 64
SERVERS = ("legacy", "modern")
KEYS = {f"user-{number}": f"key-of-user-{number:02}-{'k' * 16}" for number in range(USERS)}
MAX_BYTES = 1024 * 1024
BOUND_SECONDS = 240
"""Two idle cores need less than 60 s."""
FEW = pytest.param("nginx", 1_000, id="nginx-1000")
MANY = [pytest.param(kind, 20_000, id=f"{kind}-20000", marks=pytest.mark.slow) for kind in ("haproxy", "nginx")]


@dataclass
class Calls:
    """The calls of all users.

    Attributes:
        left: The number of calls that nobody has begun.
        made: The ids of those that were begun.
        wrong: Descriptions of results that are not those of their calls.
    """

    left: int
    made: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])

    def next_id(self, user: str) -> str | None:
        """Return the id of a new call of a user; None if all were begun."""
        if self.left == 0:
            return None
        self.left -= 1
        name = f"{user}-call-{self.left}"
        self.made.append(name)
        return name


async def caller(url: str, number: int, calls: Calls) -> None:
    """Call one tool after another as a user, on a connection that stays open; every second caller has a session."""
    user = f"user-{number % USERS}"
    era = ERAS[number % 2]
    headers: Mapping[str, str] = {"Authorization": f"Bearer {KEYS[user]}"}
    session = OldClient(dict(headers))
    if era != MODERN:
        await session.begin(url)
    client = HttpClient(url, connect_seconds=30, max_connections=1)
    try:
        while (name := calls.next_id(user)) is not None:
            server = SERVERS[calls.left % 2]
            tool = f"{server}_once"
            if era == MODERN:
                sent = {**modern_headers(tool), **headers}
                body = call_body(tool, {"id": name})
            else:
                sent = session.headers
                body = message("tools/call", name, name=tool, arguments={"id": name})
            lower = {one.lower(): value for one, value in sent.items()}
            with await client.send("POST", "/mcp", lower, body) as response:
                data = await response.read(MAX_BYTES)
            if not is_result(data, 7 if era == MODERN else name, f"{server} {name}"):
                calls.wrong.append(f"{name}: HTTP {response.status} {data[:300]!r}")
    finally:
        client.close()


def is_result(data: bytes, key: int | str, text: str) -> bool:
    """Return whether a body is the response to the request with this id, with this text."""
    try:
        found = events(data)[-1]
    except (ValueError, IndexError):
        return False
    return found.get("id") == key and json.dumps(text) in json.dumps(found.get("result", {}).get("content"))


@pytest.mark.parametrize(("kind", "count"), [FEW, *MANY])
async def test_calls_of_fifty_users_over_three_replicas_are_each_done_once_and_none_is_crossed(
    tmp_path: Path, kind: str, count: int
) -> None:
    port = free_port()
    options = ("--allow-host", f"127.0.0.1:{port}", "--trusted-proxy", "127.0.0.1")
    (tmp_path / "redis").mkdir()
    calls = Calls(count)
    with (
        RedisServer(tmp_path / "redis") as redis,
        fleet_of(tmp_path, redis.url, options=options, keys=KEYS) as fleet,
        balancer(kind, tmp_path, port, fleet.ports),
    ):
        with anyio.fail_after(BOUND_SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(CALLERS):
                    tasks.start_soon(caller, f"http://127.0.0.1:{port}/mcp", number, calls)
        executed = fleet.executed()

    assert calls.wrong == []
    assert len(set(calls.made)) == count
    assert {name: executed[name] for name in calls.made if executed[name] != 1} == {}
    assert executed.total() == count
    assert len(Counter(name.rpartition("-call-")[0] for name in calls.made)) == USERS
