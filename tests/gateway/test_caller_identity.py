"""Upstreams that are called as each caller: by a sign-in of its own, or by a token that is got for its own."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, listening
from tests.connect.targets import eventually
from tests.gateway.caller_world import (
    CallerWorld,
    crossed,
    key_of,
    names,
    upstream_at,
    upstream_server,
    world,
)
from tests.oauth.world import form_of
from tests.serve.carriers import EACH_ERA
from tests.serve.serving import served_http
from toolweave import ProtocolError, connect_mcp
from toolweave.config import OAuth
from toolweave.errors import ConfigError, ToolError
from toolweave.gateway import GatewayManager, GatewayOptions, Replicas, create_gateway
from toolweave.gateway._callers.gateways import CallerGateways, ServingGroups
from toolweave.gateway._callers.hubs import CallerHubs, GatewayCaller
from toolweave.hub import Hub
from toolweave.oauth import MachineTokenStore, MemoryTokenStore, SharedTokenStore
from toolweave.serve import ApiKey, ApiKeyAuth, BearerAuth, Client, Identity, Request
from toolweave.state import MemoryStore

BOUND = 60

# signed in


@pytest.mark.slow
@EACH_ERA
async def test_each_caller_is_itself_at_the_upstream_and_lists_what_is_its_own(era: str) -> None:
    with anyio.fail_after(BOUND):
        async with world() as made:
            for user in ("ann", "bob"):
                await made.grant(user)
            for user in ("ann", "bob"):
                async with connect_mcp(made.caller(user, protocol=era)) as caller:
                    assert await names(caller) == ["notes_find", "mail_whoami"]
                    assert (await caller.call_tool("mail_whoami")).text == user
                    assert (await caller.call_tool("notes_find", {"text": "it"})).text == "found it"
                    assert [one.name for one in await caller.list_prompts()] == ["mail_greet"]
                    assert "Hello from mail" in str(await caller.get_prompt("mail_greet"))
                    assert [one.uri for one in await caller.list_resources()] == ["mail://inbox"]
                    assert f"the mail of {user}" in str(await caller.read_resource("mail://inbox"))


async def test_a_list_says_how_the_servers_of_the_caller_are_and_is_nobody_elses() -> None:
    async with world() as made:
        await made.grant("ann")
        status: dict[str, Any] = {}
        for user in ("ann", "bob"):
            async with connect_mcp(made.caller(user)) as caller:
                page = await caller.request("tools/list")
                assert (page["ttlMs"], page["cacheScope"]) == (0, "private")
                status[user] = page["_meta"]["io.toolweave/upstreams"]

    assert status["ann"] == {"mail": {"status": "ready"}, "notes": {"status": "ready"}}
    assert status["bob"]["mail"]["status"] == "auth_required"


async def test_the_key_of_the_caller_never_goes_up() -> None:
    async with world() as made:
        await made.grant("ann")
        async with connect_mcp(made.caller("ann")) as caller:
            await caller.call_tool("mail_whoami")
            await caller.call_tool("notes_find", {"text": "x"})
        sent = made.seen + [str(one.headers) + one.body.decode() for one in made.host.requests]

    assert "access-of-ann" in made.seen
    assert key_of("ann") not in str(sent)


async def test_a_caller_without_a_name_is_called_as_nobody() -> None:
    made = CallerWorld()
    gateway = create_gateway(
        {"mail": {"url": "http://127.0.0.1:1/mcp", "auth": {"type": "oauth", "identity": "caller"}}}
    )
    async with served_http(gateway) as url, connect_mcp(url) as caller:
        page = await caller.request("tools/list")
        assert page["tools"] == []
        assert page["_meta"]["io.toolweave/upstreams"]["mail"]["status"] == "auth_required"
        with pytest.raises(ProtocolError):
            await caller.call_tool("mail_whoami")
    assert not made.seen


async def test_rules_hold_for_what_the_callers_servers_offer() -> None:
    rules = [{"effect": "deny", "servers": ["mail"], "names": ["mail_*"]}, {"effect": "allow"}]
    async with world(middleware=[{"name": "access_rules", "rules": rules}]) as made:
        await made.grant("ann")
        for user in ("ann", "bob"):
            async with connect_mcp(made.caller(user)) as caller:
                assert await names(caller) == ["notes_find"]
                for hidden in ("mail_whoami", "mail:whoami", "mail_sign_in"):
                    with pytest.raises(ProtocolError) as caught:
                        await caller.request("tools/call", {"name": hidden, "arguments": {}})
                    assert caught.value.code == -32602


async def test_a_virtual_server_shows_its_part_of_the_callers_servers() -> None:
    virtual = {"mine": {"servers": ["mail"], "rename": {"mail:whoami": "me"}}, "notes": {"servers": ["notes"]}}
    async with world(virtual=virtual) as made:
        await made.grant("ann")
        for user, path, expected in (
            ("ann", "mine", ["me"]),
            ("bob", "mine", ["mail_sign_in"]),
            ("ann", "notes", ["notes_find"]),
            ("bob", "notes", ["notes_find"]),
        ):
            async with connect_mcp(made.caller(user) | {"url": f"{made.url}/{path}"}) as caller:
                assert await names(caller) == expected
                if expected == ["me"]:
                    assert (await caller.call_tool("me")).text == "ann"


# by the token of the caller


async def exchanged(exchange: Exchange, made: CallerWorld, asked: list[dict[str, str]]) -> None:
    """Answer a token exchange as an authorization server that knows the callers' tokens."""
    form = form_of(exchange)
    asked.append(form)
    user = form["subject_token"].removeprefix("key-of-").removesuffix("-0123456789").partition("-")[0]
    token = f"exchanged-{len(asked)}-{user}"
    made.host.tokens[token] = ""
    made.users[token] = user
    kind = "urn:ietf:params:oauth:token-type:access_token"
    await exchange.respond_json(
        200, {"access_token": token, "token_type": "Bearer", "expires_in": 600, "issued_token_type": kind}
    )


@asynccontextmanager
async def exchange_world(
    server: Any = None, *, idle_seconds: float = 300.0
) -> AsyncGenerator[tuple[CallerWorld, list[dict[str, str]]]]:
    """Serve a gateway that exchanges the tokens of its callers, before a server that says who they are by default."""
    made, asked = CallerWorld(), list[dict[str, str]]()
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(listening(made.host.handle))
        made.host.url = url.removesuffix("/mcp")
        made.host.answer["/token"] = lambda exchange: exchanged(exchange, made, asked)
        made.upstream = await stack.enter_async_context(upstream_at(server or upstream_server(), made))
        oauth = {
            "type": "oauth",
            "grant": "token_exchange",
            "issuer": made.host.url,
            "client_id": "gateway",
            "client_secret": "secret-of-the-gateway",
        }

        def verify(token: str) -> Identity | None:
            user = token.removeprefix("key-of-").partition("-")[0]
            until = int(time.time()) + 2 if "short" in token else None
            return Identity(client_id="app", subject=user, issuer="https://idp.example", expires_at=until)

        gateway = create_gateway(
            {"mail": {"url": made.upstream, "auth": oauth}}, auth=BearerAuth(verify), idle_seconds=idle_seconds
        )
        made.gateways = lambda: len(gateway.callers)
        made.base = (await stack.enter_async_context(served_http(gateway))).removesuffix("/mcp")
        yield made, asked


@EACH_ERA
async def test_the_token_of_a_caller_is_given_for_one_that_the_upstream_gets(era: str) -> None:
    async with exchange_world() as (made, asked):
        for user in ("ann", "bob"):
            async with connect_mcp(made.caller(user, protocol=era)) as caller:
                assert await names(caller) == ["mail_whoami"]
                assert (await caller.call_tool("mail_whoami")).text == user
        assert [one["subject_token"] for one in asked] == [key_of("ann"), key_of("bob")]
        assert {one["resource"] for one in asked} == {made.upstream}
        assert {one["grant_type"] for one in asked} == {"urn:ietf:params:oauth:grant-type:token-exchange"}
        assert not [token for token in made.seen if token.startswith("key-of-")]


async def test_what_was_got_for_one_token_is_not_used_with_another_of_the_same_caller() -> None:
    async with exchange_world() as (made, asked):
        for token in (key_of("ann"), key_of("ann"), "key-of-ann-another-0123456789"):
            async with connect_mcp({"url": made.url, "auth": token}) as caller:
                assert (await caller.call_tool("mail_whoami")).text == "ann"
        assert [one["subject_token"] for one in asked] == [key_of("ann"), "key-of-ann-another-0123456789"]


async def test_a_token_that_is_refused_is_dropped_and_another_one_is_got() -> None:
    async with exchange_world() as (made, asked):
        async with connect_mcp(made.caller("ann")) as caller:
            assert (await caller.call_tool("mail_whoami")).text == "ann"
            made.host.tokens.clear()
            assert (await caller.call_tool("mail_whoami")).text == "ann"
        assert len(asked) == 2


async def test_an_exchange_that_is_refused_is_the_error_of_the_call_and_offers_no_link() -> None:
    async with exchange_world() as (made, _):

        async def refuse(exchange: Exchange) -> None:
            await exchange.respond_json(400, {"error": "invalid_grant", "error_description": "not for you"})

        async with connect_mcp(made.caller("ann")) as caller:
            await caller.call_tool("mail_whoami")
            made.host.answer["/token"] = refuse
            made.host.tokens.clear()
            result = await caller.call_tool("mail_whoami")
        assert result.is_error
        assert "not for you" in result.text
        assert "/auth/sign-in" not in result.text
        async with connect_mcp(made.caller("bob")) as caller:
            page = await caller.request("tools/list")
            assert page["tools"] == []
            assert page["_meta"]["io.toolweave/upstreams"]["mail"]["status"] == "auth_required"


def test_a_token_is_exchanged_where_the_config_says_and_nowhere_else() -> None:
    with pytest.raises(ConfigError, match="needs 'issuer'"):
        OAuth(grant="token_exchange", client_id="gateway")


async def test_an_api_key_cannot_be_exchanged() -> None:
    async with exchange_world() as (made, asked):
        oauth = {"type": "oauth", "grant": "token_exchange", "issuer": made.host.url, "client_id": "g"}
        auth = ApiKeyAuth([ApiKey(name="ci", key=key_of("ci"))])
        gateway = create_gateway({"mail": {"url": made.upstream, "auth": oauth}}, auth=auth)
        async with served_http(gateway) as url, connect_mcp({"url": url, "auth": key_of("ci")}) as caller:
            assert await names(caller) == []
        assert [one["subject_token"] for one in asked] == []


# the settings


@pytest.mark.parametrize(
    ("oauth", "said"),
    [
        ({"identity": "caller", "principal": "ann"}, "names one user"),
        (
            {"identity": "caller", "grant": "client_credentials", "client_id": "c", "client_secret": "s"},
            "program itself",
        ),
        ({"identity": "someone"}, "oauth.identity"),
    ],
)
def test_a_server_is_called_as_its_callers_or_as_somebody(oauth: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        OAuth(**oauth)


async def test_a_disabled_server_is_offered_to_no_caller() -> None:
    entry = {"url": "http://127.0.0.1:1/mcp", "auth": {"type": "oauth", "identity": "caller"}, "disabled": True}
    gateway = create_gateway({"mail": entry}, auth=ApiKeyAuth([ApiKey(name="ann", key=key_of("ann"))]))
    async with served_http(gateway) as url, connect_mcp({"url": url, "auth": key_of("ann")}) as caller:
        assert await names(caller) == []


async def test_a_reading_of_the_config_that_changes_nothing_keeps_the_connections_of_callers() -> None:
    async with world() as made:
        assert made.manager is not None
        await made.grant("ann")
        async with connect_mcp(made.caller("ann")) as caller:
            assert (await caller.call_tool("mail_whoami")).text == "ann"
            before = made.manager.hub.errors["mail"]  # made anew whenever its settings are taken
            assert (await made.manager.reload()).error is None
            assert made.manager.hub.errors["mail"] is before
            assert (await caller.call_tool("mail_whoami")).text == "ann"


async def test_a_server_that_comes_and_goes_is_there_for_callers_as_long_as_it_is_in_the_config() -> None:
    async with world() as made:
        assert made.manager is not None
        await made.grant("ann")
        async with connect_mcp(made.caller("ann")) as caller:
            assert await names(caller) == ["notes_find", "mail_whoami"]
            await made.manager.add("post", {**made.entry(), "tool_prefix": "post_"})
            assert await names(caller) == ["notes_find", "mail_whoami", "post_whoami"]
            assert (await caller.call_tool("post_whoami")).text == "ann"
            await made.manager.remove("post")
            assert await names(caller) == ["notes_find", "mail_whoami"]


@pytest.mark.slow
async def test_one_caller_with_many_tokens_takes_the_place_of_no_other() -> None:
    with anyio.fail_after(BOUND):
        async with exchange_world() as (made, asked):
            for number in range(18):
                async with connect_mcp({"url": made.url, "auth": f"key-of-ann-{number}-0123456789"}) as caller:
                    assert (await caller.call_tool("mail_whoami")).text == "ann"
            assert len(asked) == 18
            await eventually(lambda: made.gateways() == 16)


@pytest.mark.slow
async def test_the_servers_of_a_caller_end_with_its_token_after_the_calls_that_use_them() -> None:
    runs, go = anyio.Event(), anyio.Event()
    server = upstream_server()

    @server.tool
    async def hold() -> str:
        """Answer once it may."""
        runs.set()
        await go.wait()
        return "held"

    texts: list[str] = []
    async with exchange_world(server, idle_seconds=1.0) as (made, _):

        async def use() -> None:
            async with connect_mcp({"url": made.url, "auth": "key-of-ann-short-0123456789"}) as caller:
                texts.append((await caller.call_tool("mail_hold")).text)

        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use)
                await runs.wait()
                assert made.gateways() == 1
                await eventually(lambda: made.gateways() == 0)
                go.set()

    assert texts == ["held"]


async def test_more_tokens_of_one_caller_than_sixteen_are_not_used_at_once_and_others_are_served() -> None:
    running: list[int] = []
    all_run, go = anyio.Event(), anyio.Event()
    server = upstream_server()

    @server.tool
    async def hold() -> str:
        """Answer once it may."""
        running.append(1)
        if len(running) == 16:
            all_run.set()
        await go.wait()
        return "held"

    async with exchange_world(server) as (made, _):

        async def use(number: int, tool: str) -> str:
            entry = {"url": made.url, "auth": f"key-of-ann-{number}-0123456789", "restart": "never"}
            async with connect_mcp(entry) as caller:
                return (await caller.call_tool(tool)).text

        async with anyio.create_task_group() as tasks:
            for number in range(16):
                tasks.start_soon(use, number, "mail_hold")
            await all_run.wait()
            assert "too many callers, or tokens of this one" in await use(16, "mail_whoami")
            async with connect_mcp(made.caller("bob")) as caller:
                assert (await caller.call_tool("mail_whoami")).text == "bob"
            go.set()
        assert await use(16, "mail_whoami") == "ann"


class NoServers:
    """The gateway of a caller that has no servers."""

    tasks_until = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Be there for the block."""
        yield


async def test_a_thousand_callers_use_servers_of_their_own_at_once_and_the_next_one_is_told_to_come_later() -> None:
    def make(caller: GatewayCaller, hub: Hub) -> Any:
        return NoServers()

    nowhere: Any = None

    def request(number: int) -> Request:
        client = Client(version="2026-07-28", principal=f"caller-{number}")
        return Request("tools/list", {}, client, nowhere, number)

    groups = ServingGroups("callers are served")
    callers = CallerGateways(CallerHubs(Hub({}), MemoryTokenStore()), make, groups)
    async with anyio.create_task_group() as tasks:
        with groups.within(tasks):
            async with AsyncExitStack() as leases:
                for number in range(1_000):
                    await leases.enter_async_context(callers.lease(request(number)))
                with pytest.raises(ToolError, match="too many callers"):
                    await leases.enter_async_context(callers.lease(request(1_000)))
            async with callers.lease(request(1_000)) as made:
                assert made is not None
            assert len(callers) == 1_000
        tasks.cancel_scope.cancel()


def test_replicas_keep_the_tokens_of_callers_in_their_store_where_there_is_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = ("a key of replicas, of 32 bytes or more",)

    def kept() -> object:
        options = GatewayOptions(replicas=Replicas(MemoryStore(), keys), state_keys=keys)
        return GatewayManager({"mcpServers": {}}, options).server.callers.hubs.store

    monkeypatch.delenv("TOOLWEAVE_TOKEN_KEY", raising=False)
    assert isinstance(kept(), MachineTokenStore)
    monkeypatch.setenv("TOOLWEAVE_TOKEN_KEY", base64.b64encode(bytes(32)).decode())
    assert isinstance(kept(), SharedTokenStore)
    monkeypatch.setenv("TOOLWEAVE_TOKEN_KEY", "no key")
    with pytest.raises(ConfigError, match="TOOLWEAVE_TOKEN_KEY"):
        kept()


# many


@pytest.mark.slow
@EACH_ERA
async def test_of_many_calls_of_many_users_none_is_made_as_another(era: str) -> None:
    users = tuple(f"user-{number}" for number in range(16))
    with anyio.fail_after(120):
        async with world(users=users) as made:
            assert await crossed(made, 16, 25, era) == []
