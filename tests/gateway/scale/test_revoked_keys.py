"""An API key that is revoked at one replica of a gateway is refused by all of them, and stays refused."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.cli.command import toolweave
from tests.console.conftest import browse
from tests.gateway.running import RunningGateway, until
from tests.gateway.scale.fleet import API_KEYS, ERAS, Client, Fleet, Outcome, fleet_of
from tests.redis_server import RedisServer
from tests.serve.test_streams_of_keys import ends, listening

pytestmark = pytest.mark.slow

BOUND_SECONDS = 1.0
NEW_KEY = "another-key-of-leaving-" + "n" * 16


def replica(fleet: Fleet, number: int) -> RunningGateway:
    """Return a replica that runs."""
    running = fleet.replicas[number]
    assert running is not None
    return running


async def called(client: Client, number: int) -> Outcome:
    """Call a tool at one replica."""
    return await client.called("modern", "again", f"call-{time.monotonic_ns()}", at=number)


def is_refused(outcome: Outcome) -> bool:
    """Return whether a call was refused because of its key."""
    return outcome.error is not None and outcome.error.startswith("HTTP 401")


async def refused_after(client: Client, numbers: list[int]) -> float:
    """Return after how many seconds the last of these replicas refuses the client."""
    begun = time.monotonic()
    for number in numbers:
        while not is_refused(await called(client, number)):
            assert time.monotonic() - begun < 60
    return time.monotonic() - begun


def revoke(running: RunningGateway, how: str, name: str) -> None:
    """Revoke the keys of a client at one replica."""
    if how == "command":
        done = toolweave("gateway", "revoke", name, "--url", running.base, env=dict(running.env))
        assert (done.code, done.out) == (0, f"1 key of {name!r} revoked\n"), done.err
    else:
        browser = browse(running)
        page = browser.submit(browser.get("/ui/keys").form("/keys", name=name))
        assert f"1 key of {name!r} revoked." in page.text


@pytest.mark.parametrize("how", ["command", "console"])
async def test_a_key_that_is_revoked_at_one_replica_is_refused_at_all_within_a_second(
    tmp_path: Path, how: str, redis_url: str
) -> None:
    with fleet_of(tmp_path, redis_url) as fleet:
        leaving = [Client(fleet, era, "leaving") for era in ERAS]
        steady = Client(fleet, ERAS[1])
        for client in leaving:
            await client.begin()
        before = [(await called(client, number)).error for client in leaving for number in range(3)]

        await anyio.to_thread.run_sync(revoke, replica(fleet, 0), how, "leaving")
        seconds = [await refused_after(client, [0, 1, 2]) for client in leaving]

        assert before == [None] * 6
        assert max(seconds) < BOUND_SECONDS
        assert [(await called(steady, number)).error for number in range(3)] == [None] * 3


async def test_the_streams_of_a_revoked_key_end_at_all_replicas_within_a_second(tmp_path: Path, redis_url: str) -> None:
    with fleet_of(tmp_path, redis_url) as fleet:
        async with AsyncExitStack() as stack:
            opened = {
                (name, number, era): await stack.enter_async_context(listening(url, era, API_KEYS[name]))
                for name in API_KEYS
                for number, url in enumerate(fleet.urls)
                for era in ERAS
            }
            begun = time.monotonic()
            revoked = await anyio.to_thread.run_sync(replica(fleet, 0).admin, "DELETE", "/keys/leaving")
            for place, stream in opened.items():
                if place[0] == "leaving":
                    assert await ends(stream, 20), place
            seconds = time.monotonic() - begun
            stays = [not await ends(stream, 0.1) for place, stream in opened.items() if place[0] == "steady"]

    assert revoked.status == 200
    assert seconds < BOUND_SECONDS
    assert stays == [True] * 6


async def test_the_streams_of_a_key_end_at_all_replicas_within_a_second_of_its_date(
    tmp_path: Path, redis_url: str
) -> None:
    with fleet_of(tmp_path, redis_url) as fleet:
        end = int(time.time()) + 8
        fleet.configure(keys={"leaving": {"key": API_KEYS["leaving"], "expires_at": end}})
        for number in range(3):
            assert replica(fleet, number).admin("POST", "/reload", {}).status == 200
        async with AsyncExitStack() as stack:
            opened = {
                (name, number, era): await stack.enter_async_context(listening(url, era, API_KEYS[name]))
                for name in API_KEYS
                for number, url in enumerate(fleet.urls)
                for era in ERAS
            }
            early = time.time() < end
            ended = [await ends(stream, 20) for place, stream in opened.items() if place[0] == "leaving"]
            late = time.time() - end
            stays = [not await ends(stream, 0.1) for place, stream in opened.items() if place[0] == "steady"]

    assert early
    assert ended == [True] * 6
    assert late < BOUND_SECONDS
    assert stays == [True] * 6


async def test_a_replica_that_starts_later_refuses_a_revoked_key_and_accepts_another_of_the_same_client(
    tmp_path: Path, redis_url: str
) -> None:
    with fleet_of(tmp_path, redis_url) as fleet:
        leaving = Client(fleet, ERAS[1], "leaving")
        await anyio.to_thread.run_sync(revoke, replica(fleet, 0), "command", "leaving")
        await anyio.to_thread.run_sync(fleet.drain, 1)
        await anyio.to_thread.run_sync(fleet.start, 1)
        restarted = await called(leaving, 1)

        fleet.configure(keys={"leaving": [API_KEYS["leaving"], NEW_KEY]})
        for number in range(3):
            assert replica(fleet, number).admin("POST", "/reload", {}).status == 200
        old = [await called(leaving, number) for number in range(3)]
        listed = [replica(fleet, number).admin("GET", "/keys").json["keys"] for number in range(3)]
        new = [replica(fleet, number).spoken("GET", "/mcp", None, bearer(NEW_KEY)).status for number in range(3)]

    assert is_refused(restarted)
    assert [is_refused(one) for one in old] == [True] * 3
    assert 401 not in new
    assert [states(one) for one in listed] == [[("leaving", False), ("leaving", True), ("steady", False)]] * 3


def bearer(key: str) -> dict[str, str]:
    """Return the header of a key."""
    return {"authorization": f"Bearer {key}"}


def states(keys: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return the names of keys, each with whether it is revoked."""
    return sorted((one["name"], one["revoked"]) for one in keys)


async def test_a_key_that_is_revoked_while_the_store_is_away_is_refused_everywhere_once_it_is_back(
    tmp_path: Path,
) -> None:
    (tmp_path / "redis").mkdir()
    with RedisServer(tmp_path / "redis") as redis, fleet_of(tmp_path, redis.url, replicas=2) as fleet:
        leaving = Client(fleet, ERAS[1], "leaving")
        first, second = replica(fleet, 0), replica(fleet, 1)
        redis.kill()
        until(lambda: first.spoken("GET", "/readyz").json["shared"] == "away", "the outage")
        revoked = await anyio.to_thread.run_sync(first.admin, "DELETE", "/keys/leaving")
        here, elsewhere = await called(leaving, 0), await called(leaving, 1)

        redis.start()  # it has lost everything
        until(lambda: second.spoken("GET", "/readyz").json["shared"] == "ready", "the return")
        await refused_after(leaving, [0, 1])
        redis.restart()
        until(lambda: second.spoken("GET", "/readyz").json["shared"] == "ready", "the second return")
        await anyio.to_thread.run_sync(fleet.drain, 1)
        await anyio.to_thread.run_sync(fleet.start, 1)
        restarted = await called(leaving, 1)

    assert (revoked.json["keys"], revoked.json["lasting"]) == (1, False)
    assert "cannot be reached now" in revoked.json["problem"]
    assert (is_refused(here), elsewhere.error) == (True, None)
    assert is_refused(restarted)


async def test_a_name_without_a_key_is_not_revoked(tmp_path: Path, redis_url: str) -> None:
    with fleet_of(tmp_path, redis_url, replicas=1) as fleet:
        running = replica(fleet, 0)
        done = toolweave("gateway", "revoke", "nobody", "--url", running.base, env=dict(running.env))
        listed = toolweave("gateway", "keys", "--url", running.base, env=dict(running.env))

    assert (done.code, "API key 'nobody' was not found" in done.err) == (2, True)
    assert all(key not in listed.out for key in API_KEYS.values())
    assert "steady" in listed.out
