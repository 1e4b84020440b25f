"""Hosts with several addresses: connections that are cancelled while they are made, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from tests.connect.targets import eventually
from tests.http.hosts import named, swallowing
from toolweave.http import HttpClient

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="platform: needs the list of open descriptors"),
]
T = TypeVar("T")
REFUSES = "127.0.0.8"
SWALLOWS = "127.0.0.9"
LISTENS = "127.0.0.1"


def run(work: Coroutine[Any, Any, T], loop: str) -> T:
    if loop == "asyncio":
        return asyncio.run(work)
    uvloop = pytest.importorskip("uvloop", reason="platform: no uvloop")
    return uvloop.run(work)


def sockets() -> int:
    count = 0
    for one in Path("/proc/self/fd").iterdir():
        try:
            count += str(one.readlink()).startswith("socket:")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return count


async def cancelled_after(turns: int, url: str, how: str) -> bool:
    """Begin a request, cancel it after some turns of the event loop, and return whether it ended as cancelled."""
    http = HttpClient(url, connect_seconds=20)
    scope = anyio.CancelScope()

    async def request() -> None:
        with scope:
            (await http.send("GET", "/", {}, b"")).close()

    task = asyncio.get_running_loop().create_task(request())
    for _ in range(turns):
        await asyncio.sleep(0)
    if how == "task":
        task.cancel()
    else:
        scope.cancel()
    done, _ = await asyncio.wait([task], timeout=20)
    assert done, "the request still waits, although it was cancelled"
    http.close()
    if how == "task":
        return task.cancelled()
    return scope.cancelled_caught


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("how", ["task", "scope"])
@pytest.mark.parametrize(
    "addresses",
    [(LISTENS,), (REFUSES, LISTENS), (LISTENS, REFUSES, LISTENS), (SWALLOWS, LISTENS), (SWALLOWS, REFUSES)],
    ids=["listens", "refuses-listens", "listens-refuses-listens", "swallows-listens", "swallows-refuses"],
)
def test_a_connection_that_is_cancelled_at_any_moment_ends_at_once_and_leaves_no_socket(
    loop: str, how: str, addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, "some.test", *addresses)
    # so that attempts overlap within the turns that are counted
    monkeypatch.setattr("toolweave.http._connect.ATTEMPT_SECONDS", 1e-6)

    async def play() -> None:
        with socket.create_server((LISTENS, 0), backlog=100) as silent:
            port = silent.getsockname()[1]
            url = f"http://some.test:{port}/"
            async with swallowing(port):
                await cancelled_after(3, url, how)  # the loop opens its own sockets
                before = sockets()
                for turns in range(40):
                    assert await cancelled_after(turns, url, how), f"not cancelled after {turns} turns"
                    await eventually(lambda: sockets() == before)  # transports close their sockets in a later turn

    run(play(), loop)
