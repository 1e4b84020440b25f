"""Subscriptions through a gateway: made at the upstreams that have the resource, and only those are acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.gateway.upstreams import LEGACY, MODERN, Json, caller
from toolweave import Hub
from toolweave.gateway import create_gateway
from toolweave.testing import MemoryServer

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
UPSTREAM_ERAS = pytest.mark.parametrize("protocol", ["legacy", MODERN])
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


def with_resources(*uris: str) -> MemoryServer:
    server = MemoryServer()
    for uri in uris:
        server.resource(uri, "one")
    return server


def asked(server: MemoryServer, method: str) -> list[Any]:
    """Return the URIs or filters of the requests of a method."""
    return [one.params.get("uri") or one.params.get("notifications") for one in server.requests if one.method == method]


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.01)


async def next_of(raw: Any, method: str) -> Json:
    """Return the params of the next notification of a method."""
    while True:
        message = await raw.receive()
        if message.get("method") == method:
            return message.get("params", {})


async def subscribed(raw: Any, version: str, *uris: str) -> list[str]:
    """Subscribe to resources in the way of a revision; return those that were agreed to."""
    if version == MODERN:
        await raw.send(raw.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": list(uris)}}))
        return (await next_of(raw, ACKNOWLEDGED))["notifications"].get("resourceSubscriptions", [])
    answers = [await raw.ask(raw.request("resources/subscribe", {"uri": uri})) for uri in uris]
    return [uri for uri, answer in zip(uris, answers, strict=True) if "result" in answer]


@ERAS
@UPSTREAM_ERAS
async def test_an_update_arrives_without_anything_read_before(version: str, protocol: str) -> None:
    upstream = with_resources("r://a", "r://b")
    gateway = create_gateway({"s": {"server": upstream, "protocol": protocol}})
    async with caller(gateway, version) as raw:
        assert await subscribed(raw, version, "r://a") == ["r://a"]
        upstream.resource("r://b", "two")
        upstream.resource("r://a", "two")
        update = await next_of(raw, UPDATED)

    assert update["uri"] == "r://a"


@ERAS
@UPSTREAM_ERAS
async def test_updates_carry_the_exposed_uri_of_the_server_that_has_it(version: str, protocol: str) -> None:
    first, second = with_resources("r://a"), with_resources("r://a")
    gateway = create_gateway(
        {"one": {"server": first, "protocol": protocol}, "two": {"server": second, "protocol": protocol}}
    )
    async with caller(gateway, version) as raw:
        assert await subscribed(raw, version, "two+r://a") == ["two+r://a"]
        first.resource("r://a", "changed")
        second.resource("r://a", "changed")
        update = await next_of(raw, UPDATED)

    assert update["uri"] == "two+r://a"
    assert asked(first, "resources/subscribe") == []


async def test_the_acknowledgement_names_only_what_an_upstream_accepted() -> None:
    accepting, refusing = with_resources("a://x"), with_resources("b://x")
    for _ in range(10):
        refusing.fail_next("resources/subscribe", "no", code=-32602)
    gateway = create_gateway(
        {
            "yes": {"server": accepting},
            "no": {"server": refusing, "protocol": "legacy"},
            "none": {"server": MemoryServer()},
        }
    )
    async with caller(gateway, MODERN) as raw:
        agreed = await subscribed(raw, MODERN, "a://x", "b://x")

    assert agreed == ["a://x"]


async def test_the_refusal_of_a_legacy_upstream_reaches_a_legacy_caller() -> None:
    upstream = with_resources("r://a")
    upstream.fail_next("resources/subscribe", "not this one", code=42, data={"k": 1}, times=5)
    gateway = create_gateway({"s": {"server": upstream, "protocol": "legacy"}})
    async with caller(gateway, LEGACY) as raw:
        answer = await raw.ask(raw.request("resources/subscribe", {"uri": "r://a"}))

    assert answer["error"] == {"code": 42, "message": "not this one", "data": {"k": 1}}


async def test_no_upstream_that_announces_updates_is_no_subscription() -> None:
    upstream = MemoryServer(protocol="legacy")
    capabilities: Json = {"resources": {}, "tools": {}}
    upstream.answer(
        "initialize",
        {"protocolVersion": LEGACY, "capabilities": capabilities, "serverInfo": {"name": "m", "version": "1"}},
    )
    other = with_resources("o://x")
    gateway = create_gateway({"m": {"server": upstream, "protocol": "legacy"}, "o": {"server": other}})
    async with caller(gateway, LEGACY) as raw:
        await raw.ask(raw.request("resources/list"))
        await gateway.hub.disconnect("o")
        answer = await raw.ask(raw.request("resources/subscribe", {"uri": "o://x"}))

    assert answer["error"]["code"] in (-32601, -32002)


async def test_an_upstream_is_subscribed_once_for_all_callers_and_left_by_the_last() -> None:
    upstream = with_resources("r://a")
    hub = Hub({"s": {"server": upstream, "protocol": "legacy"}})
    gateway = create_gateway(hub)
    async with hub, caller(gateway, LEGACY) as first:
        assert await subscribed(first, LEGACY, "r://a") == ["r://a"]
        async with caller(gateway, MODERN) as second:
            assert await subscribed(second, MODERN, "r://a") == ["r://a"]
            upstream.resource("r://a", "two")
            assert (await next_of(first, UPDATED))["uri"] == (await next_of(second, UPDATED))["uri"] == "r://a"
        await first.ask(first.request("ping"))
        assert asked(upstream, "resources/subscribe") == ["r://a"]
        assert asked(upstream, "resources/unsubscribe") == []
        await first.ask(first.request("resources/unsubscribe", {"uri": "r://a"}))
        await until(lambda: asked(upstream, "resources/unsubscribe") == ["r://a"])


async def test_a_caller_that_goes_away_unsubscribes() -> None:
    upstream = with_resources("r://a")
    hub = Hub({"s": {"server": upstream, "protocol": "legacy"}})
    async with hub:
        async with caller(create_gateway(hub), LEGACY) as raw:
            assert await subscribed(raw, LEGACY, "r://a") == ["r://a"]
        await until(lambda: asked(upstream, "resources/unsubscribe") == ["r://a"])


@ERAS
async def test_a_list_change_is_told_when_callers_see_a_difference(version: str) -> None:
    upstream = with_resources("r://a")
    gateway = create_gateway({"s": {"server": upstream}})
    async with caller(gateway, version) as raw:
        for method in ("resources/list", "prompts/list", "tools/list"):
            await raw.ask(raw.request(method))
        if version == MODERN:
            wanted = {"resourcesListChanged": True, "promptsListChanged": True, "toolsListChanged": True}
            await raw.send(raw.request("subscriptions/listen", {"notifications": wanted}))
            await next_of(raw, ACKNOWLEDGED)
        upstream.notify("notifications/resources/list_changed")  # and nothing has

        def ask() -> str:
            return "x"

        upstream.prompt(ask)
        first = await raw.receive()
        upstream.resource("r://b", "x")
        second = await raw.receive()

    assert first["method"] == "notifications/prompts/list_changed"
    assert second["method"] == "notifications/resources/list_changed"


@ERAS
async def test_an_upstream_that_comes_and_goes_changes_every_list(version: str) -> None:
    gateway = create_gateway({"s": {"server": with_resources("r://a")}})
    async with caller(gateway, version) as raw:
        await raw.ask(raw.request("resources/list"))
        if version == MODERN:
            wanted = {"resourcesListChanged": True}
            await raw.send(raw.request("subscriptions/listen", {"notifications": wanted}))
            await next_of(raw, ACKNOWLEDGED)
        await gateway.hub.connect("more", {"server": with_resources("m://a")})
        await next_of(raw, "notifications/resources/list_changed")
        await gateway.hub.disconnect("more")
        await next_of(raw, "notifications/resources/list_changed")
        found = (await raw.ask(raw.request("resources/list")))["result"]["resources"]

    assert [one["uri"] for one in found] == ["r://a"]
