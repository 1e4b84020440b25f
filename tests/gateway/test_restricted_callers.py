"""A caller that may not use everything: what it is shown, told and subscribed to is what it may use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tests.gateway.plain_callers import long_way, plain
from tests.gateway.upstreams import LEGACY, MODERN, UPSTREAMS, Json, strange
from tests.serve.lines import Peer
from tests.serve.serving import served_http
from toolweave import CallContext, Hub, McpServer, ToolResult, create_mcp_server
from toolweave.errors import RequestError
from toolweave.gateway import Gateway, create_gateway
from toolweave.serve import BearerAuth, Identity
from toolweave.tools import ToolCall, ToolSnapshot, WrapperToolset

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])


def offering(name: str, **options: Any) -> McpServer:
    """Return a server with one of each kind, that says that everybody may keep and share its lists."""
    server = create_mcp_server(name="s", version="1", ttl_ms=5000, cache_scope="public", **options)

    async def answer() -> str:
        return name

    async def item(part: str) -> str:
        return part

    server.tool(name=name)(answer)
    server.prompt(name=name)(answer)
    server.resource(f"{name}://x")(answer)
    server.resource(f"{name}://{{part}}")(item)
    return server


def restricted(version: str) -> Peer:
    """Return a caller that may use what is of `mine`."""
    peer = Peer(version=version, principal="me")

    def may(kind: str, name: str, scopes: Iterable[str], server: str | None = None) -> bool:
        return name.startswith("mine") and server in (None, "mine")

    peer.client = replace(peer.client, may=may)
    return peer


def both() -> Gateway:
    """Return a gateway before two servers."""
    return create_gateway({"mine": {"server": offering("mine")}, "theirs": {"server": offering("theirs")}})


async def asked(gateway: Gateway, peer: Peer, method: str, **params: Any) -> Json:
    """Make a request of the gateway."""
    with anyio.fail_after(30):
        return await gateway.endpoint.answer(peer.request(method, **params))


@ERAS
async def test_lists_have_what_the_caller_may_use_and_nothing_of_other_servers(version: str) -> None:
    gateway = both()
    async with gateway.running():
        found = {
            member: await asked(gateway, restricted(version), method)
            for method, member in (
                ("tools/list", "tools"),
                ("prompts/list", "prompts"),
                ("resources/list", "resources"),
                ("resources/templates/list", "resourceTemplates"),
            )
        }

    keys = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
    assert {member: [one[keys[member]] for one in page[member]] for member, page in found.items()} == {
        "tools": ["mine_mine"],
        "prompts": ["mine_mine"],
        "resources": ["mine://x"],
        "resourceTemplates": ["mine://{part}"],
    }
    assert [page["_meta"][UPSTREAMS] for page in found.values()] == [{"mine": {"status": "ready"}}] * 4
    if version == MODERN:
        assert {(page["ttlMs"], page["cacheScope"]) for page in found.values()} == {(0, "private")}


async def test_a_resource_that_the_caller_may_not_use_is_not_subscribed_to() -> None:
    gateway = both()
    peer = restricted(MODERN)
    wanted = {"resourceSubscriptions": ["mine://x", "theirs://x"]}
    async with gateway.running() as tasks, anyio.create_task_group() as listening:
        listening.start_soon(lambda: asked(gateway, peer, "subscriptions/listen", notifications=wanted))
        while not peer.notifications:
            await anyio.sleep(0.01)
        listening.cancel_scope.cancel()
        assert not tasks.cancel_scope.cancel_called

    ((method, params),) = peer.notifications
    assert method == "notifications/subscriptions/acknowledged"
    assert params["notifications"] == {"resourceSubscriptions": ["mine://x"]}


@ERAS
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "theirs_theirs"}),
        ("resources/read", {"uri": "theirs://x"}),
        ("resources/read", {"uri": "theirs://other"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "theirs_theirs"}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "theirs://{part}"}}),
    ],
)
async def test_what_the_caller_may_not_use_is_refused_as_if_it_were_not_there(
    version: str, method: str, params: Json
) -> None:
    gateway = both()
    argument = {"argument": {"name": "part", "value": ""}} if method.startswith("completion") else {}
    async with gateway.running():
        for lists in ("prompts/list", "resources/list", "resources/templates/list"):
            await asked(gateway, Peer(version=version), lists)
        with pytest.raises(RequestError) as refused:
            await asked(gateway, restricted(version), method, **params, **argument)

    assert refused.value.code in (-32602, -32002)


async def test_what_a_restricted_caller_reads_is_private_to_it() -> None:
    gateway = both()
    async with gateway.running():
        found = await asked(gateway, restricted(MODERN), "resources/read", uri="mine://x")

    assert found["cacheScope"] == "private"


async def test_an_upstream_that_is_gone_refuses_a_subscription_with_its_name() -> None:
    gateway = create_gateway({"mine": {"server": offering("mine"), "timeout": 1}, "more": {"server": offering("more")}})
    peer = Peer(version=LEGACY, conversation="c")
    async with gateway.running():
        await asked(gateway, peer, "resources/list")
        leave = gateway.changes.join(lambda method, params: None, conversation="c")
        await gateway.hub.clients["mine"].close()
        with pytest.raises(RequestError) as refused:
            await asked(gateway, peer, "resources/subscribe", uri="mine://x")
        leave()

    assert refused.value.code == -32603
    assert "'mine://x'" in refused.value.message


@pytest.mark.slow
async def test_a_caller_is_told_of_the_changes_that_it_sees() -> None:
    mine, theirs = offering("mine"), offering("theirs")
    gateway = create_gateway({"mine": {"server": mine}, "theirs": {"server": theirs}})
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    peer, everybody = restricted(MODERN), Peer(version=MODERN)

    async def answer() -> str:
        return "x"

    async with gateway.running(), anyio.create_task_group() as listening:
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            await asked(gateway, peer, method)
        for one in (peer, everybody):
            listening.start_soon(lambda one=one: asked(gateway, one, "subscriptions/listen", notifications=wanted))
        with anyio.fail_after(30):
            while not (peer.notifications and everybody.notifications):
                await anyio.sleep(0.01)
            for server, name in ((theirs, "theirs2"), (mine, "mine2")):
                server.tool(name=name)(answer)
                server.prompt(name=name)(answer)
                server.resource(f"{name}://x")(answer)
                count = len(everybody.notifications) + 3
                while len(everybody.notifications) < count:
                    await anyio.sleep(0.01)
                told = len(peer.notifications)
                while server is mine and len(peer.notifications) < 4:
                    await anyio.sleep(0.01)
                assert server is mine or told == 1, peer.notifications
        listening.cancel_scope.cancel()

    assert {method for method, _ in peer.notifications[1:]} == {
        f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
    }
    assert len(peer.notifications) == 4


@ERAS
async def test_a_caller_is_given_the_instructions_of_the_servers_that_it_may_use(version: str) -> None:
    servers = {name: {"server": offering(name, instructions=f"This is {name}.")} for name in ("mine", "theirs")}
    gateway, alone = create_gateway(servers), create_gateway({"s": {**servers["theirs"], "tool_prefix": ""}})
    hello: Json = {} if version == MODERN else {"protocolVersion": version, "capabilities": {}}
    method = "server/discover" if version == MODERN else "initialize"
    async with gateway.running(), alone.running():
        found = [await asked(one, restricted(version), method, **hello) for one in (gateway, alone)]
        everything = await asked(gateway, Peer(version=version), method, **hello)

    assert found[0]["instructions"] == "mine:\n> This is mine."
    assert "instructions" not in found[1]
    assert everything["instructions"] == "mine:\n> This is mine.\n\ntheirs:\n> This is theirs."


@pytest.mark.slow
async def test_a_session_is_told_of_the_changes_that_its_caller_sees() -> None:
    mine, theirs = offering("mine"), offering("theirs")
    gateway = create_gateway({"mine": {"server": mine}, "theirs": {"server": theirs}})
    told: dict[str, list[str]] = {"me": [], "everybody": []}
    peers = {"me": restricted(LEGACY), "everybody": Peer(version=LEGACY)}

    async def answer() -> str:
        return "x"

    async def heard(name: str, count: int) -> None:
        with anyio.fail_after(30):
            while len(told[name]) < count:
                await anyio.sleep(0.01)

    async with gateway.running():
        for name, peer in peers.items():
            peer.client = replace(peer.client, conversation=name)
            gateway.changes.join(lambda method, params, name=name: told[name].append(method), conversation=name)
            for method in ("tools/list", "prompts/list", "resources/templates/list", "resources/list"):
                await asked(gateway, peer, method)
        for name, server in (("theirs2", theirs), ("mine2", mine)):
            server.tool(name=name)(answer)
            server.prompt(name=name)(answer)
            server.resource(f"{name}://x")(answer)
            await heard("everybody", 3 if server is theirs else 6)
        await heard("me", 3)
        first = list(told["me"])
        gateway.use([])
        theirs.tool(name="theirs3")(answer)
        await heard("me", 4)

    assert sorted(first) == [f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")]
    assert told["me"][3] == "notifications/tools/list_changed"


class Guarded(WrapperToolset):
    """A view of a hub whose tools need scopes."""

    def __init__(self, hub: Hub, *scopes: str) -> None:
        super().__init__(hub)
        self._hub = hub
        self._scopes = scopes

    def snapshot(self) -> ToolSnapshot:
        """Return the tools of the hub with the scopes."""
        found = self._hub.snapshot()
        return ToolSnapshot([spec.replace(scopes=self._scopes) for spec in found], version=found.version)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Call a tool of the hub."""
        return await self._hub.call(call, ctx)


@pytest.mark.slow
@pytest.mark.parametrize("around", [[], [long_way]])
@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_tool_that_has_scopes_in_the_view_of_the_hub_is_called_only_with_them(
    version: str, around: list[Any]
) -> None:
    auth = BearerAuth(lambda token: Identity(client_id="app", scopes=tuple(token.split(".")[1:])))
    with anyio.fail_after(30):
        async with strange("modern", "stdio") as config, Hub({"up": config}) as hub:
            gateway = create_gateway(hub, tools=Guarded(hub, "notes:write"))
            async with (
                served_http(gateway, auth=auth, middleware=around) as url,
                plain(url, version, token="token") as client,
            ):
                body, headers = client.call("echo", {})
                statuses = [
                    (await client.ask(body, {**headers, "Authorization": f"Bearer {token}"}))[0]
                    for token in ("token", "token.notes:read", "token.notes:write")
                ]

    assert statuses == [403, 403, 200]
