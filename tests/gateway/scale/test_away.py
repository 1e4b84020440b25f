"""What replicas share is away for a while: what goes on, what says so, and what is made up for afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.gateway.running import gateway, upstream, write_gateway_config
from tests.gateway.scale.replicas import KEYS, Json, OldClient, message, replicas
from tests.gateway.scale.test_parked_elsewhere import Upstream, call, replica, text
from tests.gateway.scale.test_sessions import levels, logging_server
from tests.redis_server import RedisServer
from tests.serve.talking import talking
from toolweave.errors import RequestError
from toolweave.gateway import shared_redis

pytestmark = pytest.mark.slow


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own, which remembers what it was told when it is started again."""
    with RedisServer(tmp_path, durable=True) as server:
        yield server


async def test_sessions_go_on_and_catch_up_when_the_store_is_back(redis: RedisServer) -> None:
    source: Json = {"up": {"server": logging_server(), "tool_prefix": ""}}
    stores = [shared_redis(redis.url), shared_redis(redis.url)]
    client, ending, over = OldClient(), OldClient(), OldClient()
    async with replicas(source, stores=stores) as (here, there):
        for one in (client, ending, over):
            await one.begin(here)
        for one in (ending, over):
            assert (await one.post(there, message("ping"))).status == 200
        assert await over.end(here) == 200
        with anyio.fail_after(30):
            while (await over.post(there, message("ping"))).status != 404:
                await anyio.sleep(0.05)
        # Letters are read in their order: with the level of the second client, that of the first one has come to a
        # replica that does not have its session yet.
        for one in (client, ending):
            await one.ask(here, "logging/setLevel", level="debug")
        with anyio.fail_after(30):
            while await levels(ending, there) != ["debug", "error"]:
                await anyio.sleep(0.05)
        redis.kill()
        with anyio.fail_after(30):
            while "error" not in (refused := await client.ask(here, "logging/setLevel", level="info")):
                await anyio.sleep(0.05)
        begun = OldClient()
        await begun.begin(there)
        unknown = await levels(client, there)
        lost = await client.post(here, message("notifications/cancelled", None, requestId=99))
        ended = await ending.end(here)
        still = (await ending.post(there, message("ping"))).status
        not_again = (await over.post(there, message("ping"))).status
        redis.start()
        with anyio.fail_after(30):
            while await levels(client, there) != ["debug", "error"]:
                await anyio.sleep(0.1)
            while (await ending.post(there, message("ping"))).status != 404:
                await anyio.sleep(0.1)
        assert "result" in await client.ask(here, "logging/setLevel", level="error")

    assert refused["error"]["code"] == -32603
    assert refused["error"]["data"] == {"retryable": True}
    assert "cannot be reached now" in refused["error"]["message"]
    assert unknown == []
    assert (lost.status, lost.json()["error"]["code"]) == (503, -32603)
    assert (ended, still) == (503, 200)
    assert not_again == 404  # it had ended before


async def test_a_waiting_call_says_that_it_cannot_be_reached_and_goes_on_afterwards(redis: RedisServer) -> None:
    server = Upstream()
    with anyio.fail_after(90):
        async with (
            talking(replica(server, shared_redis(redis.url))) as here,
            talking(replica(server, shared_redis(redis.url))) as there,
        ):
            asked = await here.ask("tools/call", call("write"))
            redis.kill()
            with pytest.raises(RequestError, match="cannot be reached now") as refused:
                await there.ask("tools/call", call("write", asked, "Ada"))
            redis.start()
            second, refusals = None, set[str]()
            while second is None:
                try:
                    second = await there.ask("tools/call", call("write", asked, "Ada"))
                except RequestError as error:
                    refusals.add(error.message)
                    await anyio.sleep(0.2)
            done = await here.ask("tools/call", call("write", second, "Bob"))

    assert refused.value.code == -32603
    assert refusals <= {refused.value.message}
    assert text(done) == "Ada and Bob"
    assert server.begun == ["write"]


def test_a_gateway_starts_without_its_redis_and_says_that_it_is_away(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")}, {"redis": "${REDIS_URL}"})
    env = {"REDIS_URL": "redis://:hunter2@127.0.0.1:1/0", "K": KEYS[0]}
    with gateway(tmp_path, config, "--state-keys-env", "K", env=env) as running:
        ready = running.spoken("GET", "/readyz")
        warnings = running.status()["warnings"]
        log = running.log

    assert (ready.status, ready.json["shared"]) == (200, "away")
    assert any("cannot be reached" in one for one in warnings)
    assert "hunter2" not in log + str(warnings)
