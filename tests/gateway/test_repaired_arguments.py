"""Arguments that nearly fit, on their way through a gateway to a server that takes no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from tests.connect.targets import connected
from tests.gateway.caller_world import world
from tests.gateway.plain_callers import Plain, Ways, never_at_once, plain
from tests.gateway.relayed import MODERN, Json
from tests.gateway.upstreams import strange
from tests.serve.serving import served_http
from toolweave import McpServer, connect_mcp, create_mcp_server
from toolweave.gateway import Gateway, create_gateway
from toolweave.middleware import AccessRule, AccessRules

pytestmark = pytest.mark.slow

EACH_VERSION = pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
EACH_UPSTREAM = pytest.mark.parametrize(
    ("era", "transport"), [("modern", "stdio"), ("legacy", "stdio"), ("modern", "http"), ("legacy", "http")]
)
SENT: Sequence[tuple[Json, Json]] = (
    ({"count": "5"}, {"count": 5}),
    ({"ids": "[1, 2]"}, {"ids": [1, 2]}),
    ({"ids": ["1", 2]}, {"ids": [1, 2]}),
    ({"count": 1, "note": None}, {"count": 1}),
    ({"note": "[1, 2]", "more": "5", "count": None}, {"note": "[1, 2]", "more": "5"}),
)
"""Arguments that nearly fit, and the ones that the upstream gets."""
NOTHING: Sequence[Any] = ([], "{}", None)
"""Values of `arguments` that mean none."""
UNTOUCHED: Sequence[Json] = (
    {"count": 5, "note": "5", "more": "[1]", "gone": None},
    {"count": "five"},
    {"count": "1.5", "ids": "1, 2"},
    {"note": 5},
)
"""Arguments that fit, or that no repair makes fit: the upstream judges them."""


async def received(client: Plain, arguments: Any) -> Any:
    """Return the arguments that the upstream gets of a call."""
    _, _, answer = await client.ask(*client.call("typed", arguments))
    return answer["result"]["structuredContent"]["arguments"]


@EACH_VERSION
@EACH_UPSTREAM
@pytest.mark.parametrize("at_once", [True, False])
async def test_arguments_that_nearly_fit_reach_the_upstream_as_its_schema_has_them(
    era: str, transport: str, version: str, at_once: bool
) -> None:
    ways = Ways()
    async with strange(era, transport) as config:
        gateway = create_gateway({"up": config if at_once else never_at_once(config)}, middleware=[ways])
        async with served_http(gateway) as url, plain(url, version) as client:
            assert [await received(client, given) for given, _ in SENT] == [wanted for _, wanted in SENT]
            assert [await received(client, given) for given in UNTOUCHED] == list(UNTOUCHED)

    assert bool(ways.fast) is at_once


@EACH_VERSION
async def test_the_repairs_of_arguments_are_problems_of_the_upstream_once_and_counted(version: str) -> None:
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config})
        async with served_http(gateway) as url, plain(url, version) as client:
            for _ in range(3):
                await received(client, {"count": "5", "ids": ["1", "2"]})
            await received(client, {"count": 5, "note": "5"})
            found = gateway.hub.clients["up"].problems

    assert sorted(one for one in found if "argument" in one) == [
        "tool 'typed': its argument count is a text that holds JSON (3 times)",
        "tool 'typed': its argument ids[] is a text that holds JSON (3 times)",
    ]


@EACH_VERSION
@pytest.mark.parametrize("switch", ["repair_arguments", "validate_input"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_the_owner_of_an_upstream_switches_the_repair_off(switch: str, version: str, at_once: bool) -> None:
    async with strange("modern", "stdio") as config:
        entry = {**(config if at_once else never_at_once(config)), switch: False}
        gateway = create_gateway({"up": entry})
        async with served_http(gateway) as url, plain(url, version) as client:
            assert [await received(client, given) for given, _ in SENT] == [given for given, _ in SENT]
            assert [one for one in gateway.hub.clients["up"].problems if "argument" in one] == []


class Seen:
    """Middleware that notes the arguments of calls."""

    reads_results = False

    def __init__(self) -> None:
        self.arguments: list[Any] = []

    async def __call__(self, request: Any, call_next: Any) -> Any:
        """Note a call."""
        if request.method == "tools/call":
            self.arguments.append(request.params.get("arguments"))
        return await call_next(request)


@EACH_VERSION
async def test_middleware_and_rules_judge_the_arguments_that_the_upstream_gets(version: str) -> None:
    seen = Seen()
    allowed = AccessRule(effect="allow", when="tool.name != '' && (!has(args.count) || args.count < 4)")
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, middleware=[AccessRules(rules=[allowed]), seen])
        async with served_http(gateway) as url, plain(url, version) as client:
            assert await received(client, {"count": "3"}) == {"count": 3}
            _, _, refused = await client.ask(*client.call("typed", {"count": "5"}))
            _, _, hidden = await client.ask(*client.call("typed", {"count": '"5"'}))

    assert seen.arguments == [{"count": 3}]
    assert "result" not in refused or refused["result"]["isError"]
    assert "result" not in hidden or hidden["result"]["isError"]


@pytest.mark.parametrize("disclosure", ["search", "groups"])
async def test_a_tool_that_is_called_through_another_gets_arguments_that_fit(disclosure: Any) -> None:
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, disclosure=disclosure)
        async with connected(gateway) as client:
            for given in ({"count": "5"}, '{"count": "5"}'):
                result = await client.call_tool("call_tool", {"name": "typed", "arguments": given})
                assert result.structured_content["arguments"] == {"count": 5}


def shaped_by(entry: Mapping[str, Any]) -> Json:
    """Return an entry whose tool has an argument of another name."""
    return {**entry, "shape": [{"tools": "typed", "arguments": {"count": {"name": "number"}}}]}


async def test_rules_of_an_entry_get_arguments_that_fit_unless_its_owner_wants_no_repair() -> None:
    async with strange("modern", "stdio") as config:
        async with served_http(create_gateway({"up": shaped_by(config)})) as url, plain(url, MODERN) as client:
            assert await received(client, {"number": "5"}) == {"count": 5}
        entry = {**shaped_by(config), "repair_arguments": False}
        async with served_http(create_gateway({"up": entry})) as url, plain(url, MODERN) as client:
            _, _, answer = await client.ask(*client.call("typed", {"number": "5"}))

    assert answer["result"]["isError"]
    assert '"number": expected integer, got string' in answer["result"]["content"][0]["text"]


def strict_server() -> McpServer:
    """Return a server that takes arguments of its schema alone."""
    server = create_mcp_server(name="strict", version="1", repair_arguments=False)

    @server.tool
    def double(count: int) -> int:
        return 2 * count

    return server


async def test_a_server_that_is_called_as_its_callers_gets_arguments_that_fit_after_rules_have_read_them() -> None:
    rule: Json = {"effect": "allow", "when": "tool.name != '' && (!has(args.count) || args.count < 4)"}
    with anyio.fail_after(60):
        async with world(upstream=strict_server(), middleware=[{"name": "access_rules", "rules": [rule]}]) as made:
            await made.grant("ann")
            async with connect_mcp(made.caller("ann", protocol=MODERN)) as caller:
                assert (await caller.call_tool("mail_double", {"count": 3})).text == "6"
            async with connect_mcp({**made.caller("ann", protocol=MODERN), "validate_input": False}) as caller:
                assert (await caller.call_tool("mail_double", {"count": "3"})).text == "6"
                refused = await caller.call_tool("mail_double", {"count": "5"})
                assert refused.is_error
                assert "10" not in refused.text


def opened(gateway: Gateway) -> AbstractAsyncContextManager[Any]:
    """Connect to a gateway with a client that sends arguments as they are."""
    return connect_mcp({"server": gateway, "protocol": MODERN, "validate_input": False})


async def test_another_version_of_a_tool_gets_the_arguments_as_they_were_sent() -> None:
    server = create_mcp_server(name="up", version="1")

    @server.tool(name="size", version="1")
    def first(value: str) -> str:
        return f"a text: {value}"

    @server.tool(name="size", version="2")
    def second(value: int) -> str:
        return f"a number: {value}"

    gateway = create_gateway({"up": {"server": server, "tool_prefix": ""}})
    async with opened(gateway) as client:
        assert (await client.call_tool("size", {"value": "5"})).text == "a number: 5"
        assert (await client.call_tool("size", {"value": "5"}, version="2")).text == "a number: 5"
        assert (await client.call_tool("size", {"value": "5"}, version="1")).text == "a text: 5"


@EACH_VERSION
@EACH_UPSTREAM
@pytest.mark.parametrize("at_once", [True, False])
async def test_arguments_that_are_not_an_object_reach_the_upstream_as_the_one_that_is_meant(
    era: str, transport: str, version: str, at_once: bool
) -> None:
    async with strange(era, transport) as config:
        gateway = create_gateway({"up": config if at_once else never_at_once(config)})
        async with served_http(gateway) as url, plain(url, version) as client:
            for given in NOTHING:
                assert await received(client, given) == {}
            assert await received(client, '{"count": "5"}') == {"count": 5}
            found = gateway.hub.clients["up"].problems

    assert "tool 'typed': its argument 'arguments' is not an object (3 times)" in found


@EACH_VERSION
@pytest.mark.parametrize("arguments", [[], "{}", "x", 5])
async def test_arguments_that_are_not_an_object_are_refused_if_the_owner_wants_no_repairs(
    version: str, arguments: Any
) -> None:
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": {**config, "repair_arguments": False}})
        async with served_http(gateway) as url, plain(url, version) as client:
            _, _, answer = await client.ask(*client.call("typed", arguments))

    assert answer["error"]["code"] == -32602
