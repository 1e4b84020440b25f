"""Requests go up as they are and results come down as they came, but for what belongs to one hop or one era."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.gateway.relayed import EACH_CALLER, MODERN, Json, gateway_to, upstream
from tests.serve.talking import talking
from toolweave import Callbacks, Hub, ProtocolError, ToolweaveError, connect_mcp, create_mcp_server
from toolweave.errors import RequestError
from toolweave.gateway import create_gateway
from toolweave.testing import MemoryServer


def through_gateway(server: MemoryServer, **options: Any) -> Any:
    return create_gateway({"up": {"server": server, "tool_prefix": "", **options}})


def offering() -> MemoryServer:
    server = MemoryServer()

    @server.tool
    def f(text: str = "") -> Any:
        return text

    @server.prompt
    def greet() -> str:
        return "hello"

    server.resource("res://a", "one")
    return server


def sent(server: MemoryServer, method: str) -> Json:
    """Return the params of the last request of a method that the upstream got."""
    return next(dict(one.params) for one in reversed(server.requests) if one.method == method)


ODD: Json = {
    "content": [
        {"type": "text", "text": "a\u2028b", "annotations": {"priority": 0.5, "odd": [None]}, "_meta": {"k": 1}},
        {"type": "hologram", "data": {"deep": [1, 2.5, -0.0, 2**70]}},
    ],
    "structuredContent": {"big": 2**70, "none": None},
    "_meta": {"example.com/trace": "t"},
    "futureMember": {"a": [1]},
}


@EACH_CALLER
@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_a_result_comes_as_it_is_with_all_its_members(version: str, era: str) -> None:
    server = offering()
    server.answer("tools/call", ODD)
    async with talking(through_gateway(server, protocol=era), version) as talk:
        result = await talk.ask("tools/call", {"name": "f", "arguments": {}})

    meta = result.pop("_meta")
    if version == MODERN:
        assert meta.pop("io.modelcontextprotocol/serverInfo")["name"] == "memory"  # alone, and with its own names
        assert result.pop("resultType") == "complete"
    assert result == {name: value for name, value in ODD.items() if name != "_meta"}
    assert meta == ODD["_meta"]


@EACH_CALLER
@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("meta", [[], [1], "x", 5, None])
async def test_a_result_whose_metadata_is_not_an_object_comes_without_it(version: str, era: str, meta: Any) -> None:
    results: dict[str, Json] = {
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
        "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]},
        "resources/read": {"contents": [{"uri": "res://a", "text": "one"}]},
        "completion/complete": {"completion": {"values": ["one"]}},
    }
    ref = {"type": "ref/prompt", "name": "greet"}
    able: Json = {"capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}}
    able["serverInfo"] = {"name": "memory", "version": "1"}
    server = offering()
    server.answer("initialize", {"protocolVersion": "2025-11-25", **able})
    server.answer("server/discover", {"resultType": "complete", "supportedVersions": [MODERN], **able})
    for method, result in results.items():
        server.answer(method, {**result, "_meta": meta})
    async with talking(through_gateway(server, protocol=era), version) as talk:
        for method, result in results.items():
            name = "greet" if method == "prompts/get" else "f"
            argument = {"name": "who", "value": ""}
            found = await talk.ask(method, {"name": name, "uri": "res://a", "ref": ref, "argument": argument})
            assert found | result == found
            assert set(found.get("_meta", {})) <= {"io.modelcontextprotocol/serverInfo"}


@EACH_CALLER
@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("data", [None, {"k": [1, {"deep": True}]}, "text"])
async def test_an_error_of_the_upstream_keeps_its_code_message_and_data(version: str, era: str, data: Any) -> None:
    server = offering()
    server.fail_next("tools/call", "app", code=42, data=data)
    async with connect_mcp({"server": through_gateway(server, protocol=era), "protocol": version}) as caller:
        with pytest.raises(ProtocolError) as refused:
            await caller.call_tool("f")

    assert (refused.value.code, refused.value.message, refused.value.data) == (42, "app", data)


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_errors_of_prompts_and_resources_keep_theirs_too(method: str) -> None:
    server = offering()
    server.fail_next(method, "app", code=-32099, data={"k": 1})
    async with talking(through_gateway(server)) as talk:
        with pytest.raises(RequestError) as refused:
            await talk.ask(method, {"name": "greet", "uri": "res://a"})

    assert (refused.value.code, refused.value.message, refused.value.data) == (-32099, "app", {"k": 1})


@pytest.mark.parametrize(("era", "version"), [("legacy", MODERN), (MODERN, "2025-11-25"), (MODERN, MODERN)])
async def test_the_code_of_an_unknown_resource_is_that_of_the_callers_era(era: str, version: str) -> None:
    async with talking(through_gateway(offering(), protocol=era), version) as talk:
        with pytest.raises(RequestError) as refused:
            await talk.ask("resources/read", {"uri": "res://none"})

    assert refused.value.code == (-32602 if version == MODERN else -32002)


async def test_what_a_legacy_revision_does_not_know_is_said_in_text_or_left_out() -> None:
    server = offering()
    link = {"type": "resource_link", "uri": "res://a", "name": "a"}
    sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
    server.answer("tools/call", {"content": [link, sound]}, times=1)
    server.answer("tools/call", {"content": [], "structuredContent": [1, 2]}, times=1)
    async with talking(through_gateway(server), "2024-11-05") as talk:
        blocks = (await talk.ask("tools/call", {"name": "f"}))["content"]
        listed = await talk.ask("tools/call", {"name": "f"})

    assert [block["type"] for block in blocks] == ["text", "text"]
    assert "res://a" in blocks[0]["text"]
    assert listed == {"content": [{"type": "text", "text": "[1, 2]"}]}


@EACH_CALLER
async def test_members_of_a_request_go_up_and_those_of_the_hop_do_not(version: str) -> None:
    server = offering()
    own = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "example.com/k": {"a": 1}}
    params: Json = {"name": "f", "arguments": {"text": "t"}, "futureParam": [1], "task": {"ttl": 1}}
    if version != MODERN:
        params["_meta"] = own
    async with talking(through_gateway(server), version) as talk:
        await talk.ask("tools/call", params, **own)

    got = sent(server, "tools/call")
    meta = got.pop("_meta")
    assert got == {"name": "f", "arguments": {"text": "t"}, "futureParam": [1]}
    assert {name: meta.get(name) for name in own} == own
    assert "progressToken" not in meta


@EACH_CALLER
async def test_a_modern_upstream_is_told_of_the_caller_and_not_of_the_gateway(version: str) -> None:
    server = offering()
    able: Json = {
        "elicitation": {},
        "sampling": {"context": {}},
        "roots": {"listChanged": True},
        "experimental": {"x": 1},
    }
    async with talking(through_gateway(server, protocol=MODERN), version, able) as talk:
        await talk.ask("tools/call", {"name": "f"})

    declared = sent(server, "tools/call")["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    declared.pop("extensions", None)  # tasks, which the gateway follows for callers with a handshake
    assert declared == {**able, "roots": {}}


@EACH_CALLER
@pytest.mark.parametrize("kind", ["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"])
async def test_progress_comes_under_the_callers_own_token_and_before_the_answer(version: str, kind: str) -> None:
    call: Json = {"name": "slow", "arguments": {"seconds": 0.2, "steps": 3}}
    if version != MODERN:
        call["_meta"] = {"progressToken": "mine"}
    with upstream(kind) as config:
        async with talking(gateway_to(config), version) as talk:
            await talk.ask("tools/call", call, progressToken="mine")
            told = talk.of("notifications/progress")

    assert len(told) >= 3
    assert {one["progressToken"] for one in told} == {"mine"}
    assert [one["progress"] for one in told] == sorted(one["progress"] for one in told)


@pytest.mark.slow
@EACH_CALLER
@pytest.mark.parametrize("kind", ["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"])
async def test_a_call_that_its_caller_cancels_is_cancelled_upstream(version: str, kind: str) -> None:
    call: Json = {"name": "slow", "arguments": {"seconds": 100, "steps": 1000}}
    if version != MODERN:
        call["_meta"] = {"progressToken": "mine"}
    with anyio.fail_after(60), upstream(kind) as config:
        gateway = gateway_to(config)
        async with talking(gateway, version) as talk:
            slow = await talk.send("tools/call", call, progressToken="mine")
            await talk.received("notifications/progress")
            await talk.notify("notifications/cancelled", {"requestId": slow})
            seen: Json = {}
            while not seen.get("cancelled"):
                await anyio.sleep(0.05)
                result = await talk.ask("tools/call", {"name": "state", "arguments": {}})
                seen = result.get("structuredContent") or json.loads(result["content"][0]["text"])

    assert len(seen["cancelled"]) == 1


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_log_messages_of_a_call_reach_its_caller_at_its_level(version: str) -> None:
    with upstream("http-modern") as config:
        async with talking(gateway_to(config), version) as talk:
            if version != MODERN:
                await talk.ask("logging/setLevel", {"level": "error"})
            await talk.ask("tools/call", {"name": "chatter"}, **{"io.modelcontextprotocol/logLevel": "error"})
            told = talk.of("notifications/message")

    assert [one["level"] for one in told] == ["error", "critical", "alert", "emergency"]
    assert told[0]["data"] == {"said": "error"}


async def test_completions_are_the_upstreams_own() -> None:
    server = create_mcp_server(name="up", version="1")

    @server.prompt
    def trip(place: str) -> str:
        return place

    @server.completion(ref="prompt:trip", argument="place")
    def places(value: str) -> list[str]:
        return [place for place in ("paris", "park", "rome") if place.startswith(value)]

    gateway = create_gateway({"up": {"server": server}})
    async with connect_mcp(gateway) as caller:
        assert "completions" in caller.capabilities
        found = await caller.complete({"type": "ref/prompt", "name": "up_trip"}, "place", "pa")
        with pytest.raises(ProtocolError) as refused:
            await caller.complete({"type": "ref/prompt", "name": "up_none"}, "place", "pa")

    assert found.values == ("paris", "park")
    assert refused.value.code == -32602


async def test_an_upstream_that_is_gone_is_an_error_result_of_a_call_and_an_error_of_the_rest() -> None:
    with upstream("stdio-legacy") as config:
        hub = Hub({"up": {**config, "restart": "never"}})
        gateway = create_gateway(hub)
        async with connect_mcp(gateway, callbacks=Callbacks()) as caller:
            crashed = await caller.call_tool("crash")
            with pytest.raises(ToolweaveError):
                await caller.get_prompt("greeting")

    assert crashed.is_error
    assert crashed.error is not None
    assert crashed.error.kind == "outcome_unknown"


async def test_resources_in_results_have_the_uris_under_which_callers_know_them() -> None:
    servers = {name: offering() for name in ("a", "b")}
    for name, server in servers.items():
        link = {"type": "resource_link", "uri": "res://a", "name": name}
        inside = {"type": "resource", "resource": {"uri": "res://a", "text": name}}
        page = {"ui": {"resourceUri": "res://a"}}
        server.answer("tools/call", {"content": [link, inside, {"type": "text", "text": "res://a"}], "_meta": page})
    gateway = create_gateway({name: {"server": server} for name, server in servers.items()})
    async with talking(gateway) as talk:
        listed = [one["uri"] for one in (await talk.ask("resources/list"))["resources"]]
        results = [await talk.ask("tools/call", {"name": f"{name}_f"}) for name in servers]
        read = await talk.ask("resources/read", {"uri": "b+res://a"})

    assert listed == ["res://a", "b+res://a"]
    for uri, result in zip(listed, results, strict=True):
        link, inside, text = result["content"]
        assert (link["uri"], inside["resource"]["uri"], text["text"]) == (uri, uri, "res://a")
        assert result["_meta"]["ui"] == {"resourceUri": uri}
    assert read["contents"][0]["uri"] == "b+res://a"


async def test_a_read_resource_keeps_its_lifetime_from_a_modern_upstream_alone() -> None:
    for era, lifetime in (("legacy", (0, "private")), (MODERN, (12345, "public"))):
        server = offering()
        contents = [{"uri": "res://a", "text": "one"}]
        server.answer("resources/read", {"contents": contents, "ttlMs": 12345, "cacheScope": "public"})
        if era == "legacy":
            server.answer("resources/read", {"contents": contents})
        async with talking(through_gateway(server, protocol=era)) as talk:
            read = await talk.ask("resources/read", {"uri": "res://a"})
        assert (read["ttlMs"], read["cacheScope"]) == lifetime


async def test_completions_of_templates_and_of_servers_without_any() -> None:
    server = create_mcp_server(name="up", version="1")

    @server.resource("trip://{place}")
    def trip(place: str) -> str:
        return place

    @server.completion(ref="resource:trip://{place}", argument="place")
    def places(value: str) -> list[str]:
        return ["paris"]

    gateway = create_gateway({"up": {"server": server}, "plain": {"server": offering()}})
    async with talking(gateway) as talk:

        async def complete(**ref: str) -> Json:
            params = {"ref": ref, "argument": {"name": "place", "value": ""}}
            return (await talk.ask("completion/complete", params))["completion"]

        assert (await complete(type="ref/resource", uri="trip://{place}"))["values"] == ["paris"]
        assert (await complete(type="ref/prompt", name="plain_greet"))["values"] == []
        for ref in ({"type": "ref/none"}, {"type": "ref/resource", "uri": "none://"}):
            with pytest.raises(RequestError) as refused:
                await complete(**ref)
            assert refused.value.code == -32602


async def test_a_resource_that_nobody_lists_is_looked_for_at_every_upstream_and_stays_where_it_was_found() -> None:
    first, second = offering(), create_mcp_server(name="b", version="1")

    @second.resource("item://{name}")
    def item(name: str) -> str:
        return name

    gateway = create_gateway({"a": {"server": first}, "b": {"server": second}})
    async with talking(gateway) as talk:
        for _ in range(2):
            assert (await talk.ask("resources/read", {"uri": "item://x"}))["contents"][0]["text"] == "x"
        asked = [one for one in first.requests if one.method == "resources/read"]
        with pytest.raises(RequestError) as refused:
            await talk.ask("resources/read", {"uri": "nowhere://x"})

    assert len(asked) == 1
    assert (refused.value.code, refused.value.data) == (-32602, {"uri": "nowhere://x"})


@pytest.mark.parametrize("kind", ["stdio-legacy", "stdio-modern", "http-modern"])
async def test_requests_are_relayed_over_either_engine(kind: str) -> None:
    with upstream(kind) as config:
        async with talking(gateway_to({**config})) as talk:
            await talk.ask("tools/call", {"name": "slow", "arguments": {"seconds": 0.1, "steps": 2}}, progressToken=1)
            with pytest.raises(RequestError) as refused:
                await talk.ask("tools/call", {"name": "rpc_error", "arguments": {"code": 42, "message": "app"}})
            asked = await talk.ask("tools/call", {"name": "elicit", "arguments": {}})

    assert talk.of("notifications/progress")
    assert (refused.value.code, refused.value.message) == (42, "app")
    assert asked["resultType"] == "input_required"


@pytest.mark.parametrize("code", [-32020, -32022])
async def test_an_error_of_the_hop_behind_the_gateway_is_not_the_callers_fault(code: int) -> None:
    server = offering()
    server.fail_next("tools/call", "odd", code=code, times=2)
    async with talking(through_gateway(server)) as talk:
        with pytest.raises(RequestError) as refused:
            await talk.ask("tools/call", {"name": "f"})

    assert refused.value.code == -32603
    assert "odd" in refused.value.message


async def test_a_legacy_caller_of_a_tool_that_needs_more_than_it_can_do_gets_an_error_that_a_model_can_read() -> None:
    server = offering()
    needed: Json = {"requiredCapabilities": {"sampling": {"tools": {}}}}
    server.fail_next("tools/call", "no", code=-32021, data=needed)
    server.fail_next("prompts/get", "no", code=-32021, data=needed)
    async with talking(through_gateway(server), "2025-11-25") as talk:
        result = await talk.ask("tools/call", {"name": "f"})
        with pytest.raises(RequestError) as refused:
            await talk.ask("prompts/get", {"name": "greet"})

    assert result["isError"]
    assert "sampling.tools" in result["content"][0]["text"]
    assert (refused.value.code, refused.value.data) == (-32603, needed)
