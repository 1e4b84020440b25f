"""Rules and other middleware of a gateway: by upstream, on every method, before anything was listed."""

from __future__ import annotations

import json
from typing import Any

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings

from tests.middleware.company import Json, caller, company, joined, token_of
from tests.middleware.generated import CALLERS, rules
from tests.serve.carriers import EACH_ERA
from tests.serve.lines import Peer
from toolweave import ProtocolError
from toolweave.errors import RequestError
from toolweave.gateway import Gateway, create_gateway
from toolweave.middleware import (
    AccessRule,
    AccessRules,
    AuditLog,
    OfferSelection,
    RateLimit,
    Redaction,
    SizeLimits,
    UserApproval,
)
from toolweave.serve import Middleware

ADA = token_of("ada", "read", team="blue")
KINDS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


def fleet(*middleware: Middleware) -> Gateway:
    """Return a gateway before two servers that offer the same."""
    return create_gateway({"a": {"server": company()}, "b": {"server": company()}}, middleware=middleware)


def allow(**conditions: Any) -> AccessRule:
    return AccessRule(effect="allow", **conditions)


async def listed(gateway: Gateway, peer: Peer, method: str) -> set[str]:
    member, key = KINDS[method]
    found: set[str] = set()
    params: Json = {}
    while True:
        result = await gateway.endpoint.answer(peer.request(method, **params))
        found |= {one[key] for one in result[member]}
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


async def works(gateway: Gateway, peer: Peer, method: str, **params: Any) -> bool:
    """Whether a request is answered; a refusal must be that of something unknown."""
    try:
        result = await gateway.endpoint.answer(peer.request(method, **params))
    except RequestError as exc:
        refused = exc
    else:
        assert "isError" not in result, result
        return True
    assert refused.code in (-32602, -32002), refused
    assert refused.message.startswith(("Unknown", "Resource not found")), refused
    return False


@EACH_ERA
async def test_a_rule_by_server_holds_before_anything_was_listed(era: str) -> None:
    peer = caller(ADA, version=era)
    requests: list[tuple[str, Json, Json]] = [
        ("tools/call", {"name": "a_find", "arguments": {}}, {"name": "b_find", "arguments": {}}),
        ("tools/call", {"name": "a:wipe", "arguments": {}}, {"name": "b/wipe", "arguments": {}}),
        ("prompts/get", {"name": "a_greet"}, {"name": "b_greet"}),
        ("resources/read", {"uri": "notes://diary"}, {"uri": "b+notes://diary"}),
        ("resources/read", {"uri": "notes://open/x"}, {"uri": "b+notes://open/x"}),
    ]
    for method, allowed, denied in requests:
        gateway = fleet(AccessRules(rules=[allow(servers=["a"])]))
        async with gateway.running():
            assert not await works(gateway, peer, method, **denied)
            assert await works(gateway, peer, method, **allowed)
            assert not await works(gateway, peer, method, **denied)


async def test_a_rule_about_a_template_holds_for_its_resources_before_it_was_listed() -> None:
    deny = AccessRule(effect="deny", names=["notes://secret/{name}", "b+notes://secret/{name}"])
    gateway = fleet(AccessRules(rules=[deny], default="allow"))
    async with gateway.running():
        assert not await works(gateway, caller(), "resources/read", uri="notes://secret/a")
        assert not await works(gateway, caller(), "resources/read", uri="b+notes://secret/a")
        assert await works(gateway, caller(), "resources/read", uri="notes://open/a")

    gateway = fleet(AccessRules(rules=[allow(names=["notes://open/{name}"])]))
    async with gateway.running():
        assert await works(gateway, caller(), "resources/read", uri="notes://open/a")
        assert not await works(gateway, caller(), "resources/read", uri="notes://secret/a")


@pytest.mark.parametrize("spelling", ["NOTES://diary", "notes://d%69ary"])
async def test_a_rule_about_a_resource_holds_for_every_spelling_of_its_uri(spelling: str) -> None:
    deny = AccessRule(effect="deny", names=["notes://diary"])
    gateway = fleet(AccessRules(rules=[deny], default="allow"))
    async with gateway.running():
        await listed(gateway, caller(), "resources/list")
        assert not await works(gateway, caller(), "resources/read", uri=spelling)

    gateway = fleet(AccessRules(rules=[], default="allow"))
    async with gateway.running():
        await listed(gateway, caller(), "resources/list")
        assert await works(gateway, caller(), "resources/read", uri=spelling)


@EACH_ERA
async def test_a_rule_about_templates_does_not_list_those_that_another_server_has_under_another_uri(era: str) -> None:
    gateway = fleet(AccessRules(rules=[allow(names=["notes://*/{name}"])]))
    peer = caller(version=era)
    async with gateway.running():
        listed_templates = await listed(gateway, peer, "resources/templates/list")
        assert listed_templates == {"notes://open/{name}", "notes://secret/{name}"}
        assert await works(gateway, peer, "resources/read", uri="notes://open/a")
        assert not await works(gateway, peer, "resources/read", uri="b+notes://open/a")


@EACH_ERA
async def test_a_caller_sees_its_own_tools_through_the_gateway(era: str) -> None:
    gateway = fleet(
        AccessRules(rules=[allow(annotations={"readOnlyHint": True}), allow(servers=["b"], subjects=["bob"])])
    )
    async with joined(gateway, ADA, era) as connection:
        ada = sorted(one.name for one in await connection.list_tools())
        found = await connection.call_tool("a_find", {"text": "it"})
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await connection.call_tool("a_wipe", {})
    gateway = fleet(*gateway.endpoint.middleware)
    async with joined(gateway, token_of("bob"), era) as connection:
        bob = sorted(one.name for one in await connection.list_tools())

    assert ada == ["a_find", "b_find"]
    assert found.text == "found it"
    assert bob == ["a_find", "b_change", "b_find", "b_wipe"]


async def test_limits_and_the_audit_log_know_the_upstream() -> None:
    lines: list[bytes] = []
    gateway = fleet(AuditLog(sink=lines.append), RateLimit(calls=1, seconds=60, by=["server"]))
    async with gateway.running():
        assert await works(gateway, caller(ADA), "tools/call", name="a_find", arguments={})
        assert await works(gateway, caller(ADA), "tools/call", name="b_find", arguments={})
        with pytest.raises(RequestError, match="too many calls"):
            await gateway.endpoint.answer(caller(ADA).request("tools/call", name="a_change", arguments={}))

    assert b'"server":"a"' in lines[0].replace(b" ", b"")
    assert b'"server":"b"' in lines[1].replace(b" ", b"")


PROMPT_OF_B = ("prompts/get", {"name": "b_greet"})
RESOURCE_OF_B = ("resources/read", {"uri": "b+notes://diary"})


@pytest.mark.parametrize(("method", "params"), [PROMPT_OF_B, RESOURCE_OF_B])
async def test_the_first_request_counts_for_its_own_server(method: str, params: Json) -> None:
    gateway = fleet(RateLimit(calls=1, seconds=60, by=["server"]))
    async with gateway.running():
        assert await works(gateway, caller(), method, **params)
        assert await works(gateway, caller(), "prompts/get", name="a_greet")
        with pytest.raises(RequestError, match="too many calls"):
            await gateway.endpoint.answer(caller().request("prompts/get", name="b_confess"))


@pytest.mark.parametrize(("method", "params"), [PROMPT_OF_B, RESOURCE_OF_B])
async def test_the_first_request_is_logged_for_its_own_server(method: str, params: Json) -> None:
    lines: list[bytes] = []
    gateway = fleet(AuditLog(sink=lines.append))
    async with gateway.running():
        assert await works(gateway, caller(), method, **params)

    assert json.loads(lines[0])["server"] == "b"


@pytest.mark.parametrize(("method", "params"), [PROMPT_OF_B, RESOURCE_OF_B])
async def test_the_first_request_is_redacted_and_bounded_by_its_own_server(method: str, params: Json) -> None:
    of_b = [OfferSelection(servers=["b"])]
    open_gateway, gateway = fleet(), fleet(Redaction(patterns={"letter": "e"}, only=of_b))
    bounded = fleet(SizeLimits(results=1, only=of_b))
    async with open_gateway.running(), gateway.running(), bounded.running():
        whole = await open_gateway.endpoint.answer(caller().request(method, **params))
        redacted = await gateway.endpoint.answer(caller().request(method, **params))
        with pytest.raises(RequestError, match="1 are allowed"):
            await bounded.endpoint.answer(caller().request(method, **params))

    assert redacted != whole


async def test_approval_stands_before_the_upstream() -> None:
    gateway = fleet(UserApproval())
    async with gateway.running():
        asked = await gateway.endpoint.answer(caller(ADA).request("tools/call", name="a_wipe", arguments={}))
        given: Json = {"toolweave.approval": {"action": "accept", "content": {}}}
        params: Json = {"requestState": asked["requestState"], "inputResponses": given}
        made = await gateway.endpoint.answer(caller(ADA).request("tools/call", name="a_wipe", arguments={}, **params))

    assert asked["resultType"] == "input_required"
    assert made["content"][0]["text"] == "wiped"


async def check(chosen: list[AccessRule], default: Any, token: str | None, version: str) -> None:
    gateway, open_gateway = fleet(AccessRules(rules=chosen, default=default)), fleet(AccessRules(default="allow"))
    peer = caller(token, version=version)
    async with gateway.running(), open_gateway.running():
        seen = {method: await listed(gateway, peer, method) for method in KINDS}
        everything = {method: await listed(open_gateway, peer, method) for method in KINDS}
        for name in everything["tools/list"]:
            server, _, own = name.partition("_")
            for alias in (name, f"{server}:{own}", f"{server}/{own}"):
                called = await works(gateway, peer, "tools/call", name=alias, arguments={})
                assert called is (name in seen["tools/list"]), alias
        for name in everything["prompts/list"]:
            assert await works(gateway, peer, "prompts/get", name=name) is (name in seen["prompts/list"]), name
        for uri in everything["resources/list"]:
            assert await works(gateway, peer, "resources/read", uri=uri) is (uri in seen["resources/list"]), uri
        for template in everything["resources/templates/list"]:
            is_listed = template in seen["resources/templates/list"]
            uri = template.replace("{name}", "a")
            if is_listed and not any(rule.effect == "deny" and rule.names for rule in chosen):
                assert await works(gateway, peer, "resources/read", uri=uri), uri
            elsewhere = f"b+{template}" in seen["resources/templates/list"]  # which is asked where `a` may not be
            if not (is_listed or elsewhere or any(rule.effect == "allow" and rule.names for rule in chosen)):
                assert not await works(gateway, peer, "resources/read", uri=uri), uri


@pytest.mark.slow
@settings(max_examples=60, deadline=None, phases=[Phase.generate])
@given(
    chosen=rules(servers=("a", "b", "*"), most=4),
    default=st.sampled_from(["deny", "deny", "allow"]),
    token=st.sampled_from(CALLERS),
    version=st.sampled_from(["2025-11-25", "2026-07-28"]),
)
def test_a_caller_of_a_gateway_can_use_what_it_is_listed_and_nothing_else(
    chosen: list[AccessRule], default: str, token: str | None, version: str
) -> None:
    anyio.run(check, chosen, default, token, version)
