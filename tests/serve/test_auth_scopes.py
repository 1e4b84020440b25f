"""Scopes of single tools, resources and prompts: 403 with all of them, in every revision and on every way."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.serve.exchanges import Answer, call, call_body, events, exchange, handshake, modern_headers
from tests.serve.serving import served_http
from toolweave import connect_mcp, tool
from toolweave.errors import ConfigError
from toolweave.serve import BearerAuth, Identity, McpServer, ScopeRules, create_mcp_server, prompt, resource

ALL = ["notes:write", "notes:delete"]


def offering() -> McpServer:
    """Return a server with something open and something protected of each kind."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @tool(scopes=ALL)
    def wipe() -> str:
        """Wipe everything."""
        return "wiped"

    @resource("notes://open/{name}")
    def note(name: str) -> str:
        """Read a note."""
        return name

    @resource("notes://secret/{name}", scopes=["notes:secret"])
    def secret(name: str) -> str:
        """Read a secret."""
        return name

    @resource("notes://diary", scopes=["notes:secret"])
    def diary() -> str:
        """Read the diary."""
        return "dear diary"

    @prompt
    def greet() -> str:
        """Greet."""
        return "hello"

    @prompt(scopes=["notes:secret"])
    def confess() -> str:
        """Confess."""
        return "it was me"

    server = create_mcp_server(
        "notes", tools=[look, wipe], resources=[note, secret, diary], prompts=[greet, confess], cache_scope="public"
    )
    server.alias("erase", "wipe")
    return server


def verify(token: str) -> Identity:
    """Take the scopes from the token: words after its name, joined by dots."""
    return Identity(client_id="app", scopes=tuple(token.split(".")[1:]))


@asynccontextmanager
async def protected(rules: ScopeRules | None = None, **options: Any) -> AsyncGenerator[str]:
    auth = BearerAuth(verify, scopes=rules, required_scopes=["base"])
    async with served_http(offering(), auth=auth, **options) as url:
        yield url


def with_scopes(*scopes: str) -> dict[str, str]:
    return {"Authorization": "Bearer " + ".".join(["token", "base", *scopes])}


def scope_of(answer: Answer) -> set[str]:
    """Return the scopes that a challenge names."""
    challenge = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    return set(challenge.partition('scope="')[2].partition('"')[0].split())


async def legacy(url: str, method: str, params: dict[str, Any], *scopes: str, version: str = "2025-11-25") -> Answer:
    _, session = await handshake(url, with_scopes())
    body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": method, "params": params}).encode()
    return await exchange(url, headers={**session, **with_scopes(*scopes)}, body=body)


@pytest.mark.parametrize("name", ["wipe", "erase"])
async def test_a_tool_is_called_with_its_scopes_and_the_challenge_names_them_all(name: str) -> None:
    async with protected() as url:
        none = await call(url, name, headers=with_scopes())
        some = await call(url, name, headers=with_scopes("notes:write"))
        every = await call(url, name, headers=with_scopes(*ALL))
        other = await call(url, "look", headers=with_scopes())
        old = await legacy(url, "tools/call", {"name": name, "arguments": {}}, "notes:write")
        enough = await legacy(url, "tools/call", {"name": name, "arguments": {}}, *ALL)

    assert [one.status for one in (none, some, every, other, old, enough)] == [403, 403, 200, 200, 403, 200]
    for refused in (none, some, old):
        assert scope_of(refused) == {"base", *ALL}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "notes://secret/x"}),
        ("resources/read", {"uri": "notes://diary"}),
        ("prompts/get", {"name": "confess"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "confess"}, "argument": {}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "notes://secret/{name}"}, "argument": {}}),
        ("resources/subscribe", {"uri": "notes://diary"}),
    ],
)
async def test_resources_prompts_and_what_completes_them_need_their_scopes(method: str, params: dict[str, Any]) -> None:
    async with protected() as url:
        refused = await legacy(url, method, params)
        allowed = await legacy(url, method, params, "notes:secret")
        headers = {**modern_headers("", method), **with_scopes()}
        modern = await exchange(url, headers=headers, body=call_body("", method=method, **params))

    assert refused.status == modern.status == 403
    assert scope_of(refused) == scope_of(modern) == {"base", "notes:secret"}
    assert allowed.status == 200


async def test_a_resource_that_is_protected_is_not_watched_either() -> None:
    params = {"notifications": {"resourceSubscriptions": ["notes://open/x", "notes://diary"]}}
    method = "subscriptions/listen"
    async with protected() as url:
        headers = {**modern_headers("", method), **with_scopes()}
        refused = await exchange(url, headers=headers, body=call_body("", method=method, **params))

    assert scope_of(refused) == {"base", "notes:secret"}


async def test_one_message_of_a_batch_that_needs_more_refuses_the_batch() -> None:
    calls: list[Any] = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": name, "arguments": {}}}
             for n, name in enumerate(["look", "wipe"])]  # fmt: skip
    async with protected() as url:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                   "MCP-Protocol-Version": "2025-03-26"}  # fmt: skip
        refused = await exchange(url, headers={**headers, **with_scopes()}, body=json.dumps(calls).encode())

    assert scope_of(refused) == {"base", *ALL}


async def test_a_name_that_is_given_twice_is_judged_as_it_is_run() -> None:
    meta = json.loads(call_body("look"))["params"]["_meta"]
    for first, second in (("look", "wipe"), ("wipe", "look")):
        text = f'{{"name": "{first}", "name": "{second}", "arguments": {{}}, "_meta": {json.dumps(meta)}}}'
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": %s}' % text.encode()
        async with protected() as url:
            answer = await exchange(url, headers={**modern_headers(second), **with_scopes()}, body=body)
            _, session = await handshake(url, with_scopes())
            old = await exchange(url, headers={**session, **with_scopes()}, body=body.replace(b"_meta", b"_other"))

        assert b"wiped" not in answer.body + old.body


@pytest.mark.parametrize(
    "rules",
    [
        ScopeRules(tools={"look": ["x"]}),
        ScopeRules(tools={"loo*": ["x"], "other": ["y"]}),
        ScopeRules(tools={"*": ["x"]}),
    ],
)
async def test_the_scopes_of_anothers_tools_are_said_by_rules(rules: ScopeRules) -> None:
    async with protected(rules) as url:
        refused = await call(url, "look", headers=with_scopes())
        allowed = await call(url, "look", headers=with_scopes("x"))

    assert scope_of(refused) == {"base", "x"}
    assert allowed.status == 200


@pytest.mark.parametrize("uri", ["notes://open/x", "notes://open/%78", "notes://open/X", "notes://open/y/../x"])
async def test_no_other_spelling_of_a_uri_leads_around_a_rule(uri: str) -> None:
    async with protected(ScopeRules(resources={"notes://open/x": ["x"]})) as url:
        refused = await legacy(url, "resources/read", {"uri": uri})

    assert scope_of(refused) == {"base", "x"}


async def test_a_scope_may_include_others() -> None:
    def includes(scope: str) -> list[str]:
        return {"admin": ["notes:write", "owner"], "owner": ["notes:delete", "admin"]}.get(scope, [])

    async with protected(ScopeRules(includes=includes)) as url:
        allowed = await call(url, "wipe", headers=with_scopes("admin"))

    assert allowed.status == 200


async def test_lists_show_everything_or_only_what_a_caller_may_use() -> None:
    listed = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts",
              "resources/templates/list": "resourceTemplates"}  # fmt: skip

    async def lists(url: str, *scopes: str) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        for method, member in listed.items():
            headers = {**modern_headers("", method), **with_scopes(*scopes)}
            answer = await exchange(url, headers=headers, body=call_body("", method=method))
            result = answer.json()["result"]
            old = events((await legacy(url, method, {}, *scopes)).body)[-1]["result"]
            assert len(old[member]) == len(result[member])
            found.append((len(result[member]), result["cacheScope"]))
        return found

    async with protected() as open_url:
        assert await lists(open_url) == [(2, "public"), (1, "public"), (2, "public"), (2, "public")]
    async with protected(ScopeRules(hide=True)) as url:
        assert await lists(url) == [(1, "private"), (0, "private"), (1, "private"), (1, "private")]
        assert await lists(url, "notes:secret", *ALL) == [
            (2, "private"),
            (1, "private"),
            (2, "private"),
            (2, "private"),
        ]


async def test_scopes_are_in_no_definition() -> None:
    async with protected() as url:
        headers = {**modern_headers("", "tools/list"), **with_scopes()}
        answer = await exchange(url, headers=headers, body=call_body("", method="tools/list"))

    assert b"notes:write" not in answer.body


async def test_without_authorization_nobody_over_http_has_scopes_and_in_process_nobody_needs_them() -> None:
    server = offering()
    async with served_http(server) as url:
        refused = await call(url, "wipe")
        allowed = await call(url, "look")
    async with connect_mcp({"server": server}) as connection:
        result = await connection.call_tool("wipe")

    assert (refused.status, allowed.status) == (403, 200)
    assert "www-authenticate" not in refused.headers
    assert result.text == "wiped"


@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
def test_a_rule_with_a_scope_that_cannot_be_one_is_refused_and_named(kind: str) -> None:
    with pytest.raises(ConfigError, match="ScopeRules for 'wipe'"):
        given: dict[str, Any] = {kind: {"wipe": ["two words"]}}
        ScopeRules(**given)


@pytest.mark.parametrize("scope", ["two words", 'a"b', "a\\b", "", "ü"])
def test_a_scope_that_cannot_be_one_is_refused(scope: str) -> None:
    with pytest.raises(ValueError, match="is not a valid scope"):
        tool(scopes=[scope])(offering)
