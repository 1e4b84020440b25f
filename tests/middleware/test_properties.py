"""Whatever the rules: what is not listed to a caller cannot be used by any name, and what is listed can."""

from __future__ import annotations

from typing import Any

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.middleware.company import Json, caller, company
from tests.middleware.generated import CALLERS
from tests.middleware.generated import rules as some_rules
from tests.serve.lines import Peer
from toolweave.errors import RequestError
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import McpServer

pytestmark = pytest.mark.slow

TOOLS = {"find": ["find"], "change": ["change"], "wipe": ["wipe", "erase"]}
"""The names by which each tool can be called."""
PATHS = {
    "notes://open/{name}": ["notes://open/a", "notes://open/%61", "NOTES://open/a"],
    "notes://secret/{name}": ["notes://secret/a", "notes://open/../secret/a", "notes://secret/%61"],
    "notes://diary": ["notes://diary", "notes://DIARY", "notes://%64iary"],
}


async def listed(server: McpServer, peer: Peer, method: str, member: str, key: str) -> set[str]:
    found: set[str] = set()
    params: Json = {}
    while True:
        result = await server.endpoint.answer(peer.request(method, **params))
        found |= {one[key] for one in result[member]}
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


async def works(server: McpServer, peer: Peer, method: str, **params: Any) -> bool:
    """Whether a request is answered; a refusal must be that of something unknown."""
    try:
        result = await server.endpoint.answer(peer.request(method, **params))
    except RequestError as exc:
        refused = exc
    else:
        assert "isError" not in result
        return True
    assert refused.code in (-32602, -32002)
    assert refused.message.startswith(("Unknown", "Resource not found"))
    return False


async def check(rules: list[AccessRule], default: Any, token: str | None, version: str) -> None:
    server = company(AccessRules(rules=tuple(rules), default=default), page_size=2)
    peer = caller(token, version=version)
    tools = await listed(server, peer, "tools/list", "tools", "name")
    for name, names in TOOLS.items():
        for one in names:
            assert await works(server, peer, "tools/call", name=one, arguments={}) is (name in tools)
    prompts = await listed(server, peer, "prompts/list", "prompts", "name")
    for name in ("greet", "confess"):
        assert await works(server, peer, "prompts/get", name=name) is (name in prompts)
    shown = await listed(server, peer, "resources/list", "resources", "uri")
    assert await works(server, peer, "resources/read", uri="notes://diary") is ("notes://diary" in shown)
    templates = await listed(server, peer, "resources/templates/list", "resourceTemplates", "uriTemplate")
    await check_completions(server, peer, prompts, templates)
    if all(not rule.names for rule in rules):  # else a rule may name a single URI of a template
        for template in ("notes://open/{name}", "notes://secret/{name}"):
            uri = PATHS[template][0]
            assert await works(server, peer, "resources/read", uri=uri) is (template in templates)
    for offer in {"notes://diary", "notes://secret/{name}"} - shown - templates:
        if not any(rule.effect == "allow" and rule.names for rule in rules) and default == "deny":
            for uri in PATHS[offer]:
                assert not await works(server, peer, "resources/read", uri=uri)
                await check_subscription(server, peer, uri)


async def check_completions(server: McpServer, peer: Peer, prompts: set[str], templates: set[str]) -> None:
    argument = {"name": "name", "value": ""}
    for ref, is_listed in (
        ({"type": "ref/prompt", "name": "confess"}, "confess" in prompts),
        ({"type": "ref/resource", "uri": "notes://secret/{name}"}, "notes://secret/{name}" in templates),
    ):
        assert await works(server, peer, "completion/complete", ref=ref, argument=argument) is is_listed


async def check_subscription(server: McpServer, peer: Peer, uri: str) -> None:
    if not peer.client.modern:
        assert not await works(server, peer, "resources/subscribe", uri=uri)
        return
    peer.notifications.clear()
    request = peer.request("subscriptions/listen", notifications={"resourceSubscriptions": [uri]})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.endpoint.answer, request)
        while not peer.notifications:
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()
    assert peer.notifications[0][1]["notifications"] == {}


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    rules=some_rules(),
    default=st.sampled_from(["deny", "deny", "allow"]),
    token=st.sampled_from(CALLERS),
    version=st.sampled_from(["2025-11-25", "2026-07-28"]),
)
def test_a_caller_can_use_what_it_is_listed_and_nothing_else(
    rules: list[AccessRule], default: str, token: str | None, version: str
) -> None:
    anyio.run(check, rules, default, token, version)
