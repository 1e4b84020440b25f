"""The change feed when a server storms, shuffles, hangs up, honours a part, or refuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, answers_to, listening
from tests.connect.targets import MODERN, ChannelServer, Json, connected, error, eventually, initialized
from toolweave import AuthRequiredError, ProtocolError, RequestTimeoutError, ToolsChanged
from toolweave.connect import ConnectionState, ResourceUpdated
from toolweave.testing.servers.protocol import PREFIX, Peer

TOOLS_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def named(*names: str) -> list[Json]:
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


class Offer:
    """A legacy server in this process whose lists a test may change.

    Attributes:
        lists: What each list holds, by its method.
        page: Further members of every answer to a listing.
        special: Answers by method that go first.
    """

    def __init__(self, *tools: str, **capabilities: Any) -> None:
        self.lists: dict[str, tuple[str, list[Any]]] = {
            "tools/list": ("tools", named(*tools)),
            "prompts/list": ("prompts", []),
            "resources/list": ("resources", []),
            "resources/templates/list": ("resourceTemplates", []),
        }
        self.page: Json = {}
        self.special: dict[str, Callable[[Json], Json | None]] = {}
        offered = {"tools": {"listChanged": True}, **capabilities}
        self.server = ChannelServer(initialized(self._answer, capabilities=offered))

    def _answer(self, message: Json) -> Json | None:
        method = message["method"]
        if method in self.special:
            return self.special[method](message)
        if method in self.lists:
            member, entries = self.lists[method]
            return {"result": {member: list(entries), **self.page}}
        return {"result": {}} if method in ("ping", "resources/subscribe") else error(-32601, "Method not found")

    def tools(self, *names: str) -> None:
        self.lists["tools/list"] = ("tools", named(*names))

    def asked(self, method: str = "tools/list") -> int:
        return self.server.methods().count(method)


class ModernOffer:
    """A modern server in this process; `on_listen` answers `subscriptions/listen` where it is given."""

    def __init__(self, on_listen: Callable[[Json], Json | None] | None = None, *, ttl_ms: int = 3_600_000) -> None:
        self.peer = Peer(era="modern", ttl_ms=ttl_ms)
        served = ChannelServer.of(self.peer)
        script = served._script

        def answer(message: Json) -> Json | None:
            if message.get("method") == "subscriptions/listen" and on_listen is not None:
                return on_listen(message)
            return script(message)

        served._script = answer
        self.server = served

    def acknowledge(self, message: Json, honoured: Json) -> None:
        meta = {PREFIX + "subscriptionId": message["id"]}
        params: Json = {"notifications": honoured, "_meta": meta}
        self.server.send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})

    def listens(self) -> list[Json]:
        return [one for one in self.server.received if one.get("method") == "subscriptions/listen"]


@pytest.mark.requirement("C9")
async def test_a_server_that_shuffles_its_tools_changes_nothing() -> None:
    offer = Offer("a", "b", "c")
    told: list[ToolsChanged] = []
    async with connected(offer.server) as connection:
        connection.on("tools_changed", told.append)
        before = connection.snapshot()
        offer.tools("c", "a", "b")
        assert not await connection.refresh()
        assert connection.snapshot() is before
        offer.tools("d", "c", "a")
        change = await connection.refresh()
        assert [spec.name for spec in connection.snapshot()] == ["a", "c", "d"]
        assert told == [change] == [ToolsChanged(added=("d",), removed=("b",), version=before.version + 1)]


@pytest.mark.requirement("C9")
async def test_a_change_is_told_once_however_many_asked_for_it() -> None:
    offer = Offer("a")
    told: list[ToolsChanged] = []
    subscribed: list[ToolsChanged] = []
    async with connected(offer.server) as connection:
        connection.on("tools_changed", told.append)
        connection.subscribe(subscribed.append)
        offer.tools("a", "b")
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(connection.refresh)
    assert told == subscribed
    assert len(told) == 1


@pytest.mark.requirement("C8", "C9")
async def test_who_asks_after_a_change_does_not_get_the_error_of_the_reading_before_it() -> None:
    offer, held, announced = Offer("a"), list[Json](), anyio.Event()
    async with connected(offer.server) as connection:

        def hold(message: Json) -> None:
            held.append(message)
            del offer.special["tools/list"]

        async def fails() -> None:
            with pytest.raises(ProtocolError, match="no luck"):
                await connection.refresh()

        async def is_new() -> None:
            await connection.refresh()
            assert "b" in connection.snapshot().by_name

        offer.special["tools/list"] = hold
        connection.on("notification", lambda _note: announced.set())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            await eventually(lambda: held)
            offer.tools("a", "b")
            offer.server.send(TOOLS_CHANGED)
            await announced.wait()
            tasks.start_soon(is_new)
            await anyio.wait_all_tasks_blocked()
            offer.server.send({"id": held[0]["id"], **error(-32603, "no luck")})


@pytest.mark.slow
@pytest.mark.requirement("D28")
async def test_a_storm_of_changes_costs_few_listings_and_ends_with_the_last_state() -> None:
    offer = Offer("a")
    async with connected(offer.server, 40) as connection:
        for number in range(500):
            offer.tools("a", f"b{number}")
            for _ in range(20):
                offer.server.send(TOOLS_CHANGED)
            await connection.ping()
        await eventually(lambda: "b499" in connection.snapshot().by_name)
        assert offer.asked() < 60


@pytest.mark.slow
@pytest.mark.requirement("D28")
async def test_twenty_thousand_changes_before_an_answer_make_no_tasks_and_two_listings() -> None:
    offer = Offer("a", resources={"subscribe": True})
    tasks: set[int] = set()
    heard: list[Any] = []

    def hear(note: Any) -> None:
        heard.append(note)
        if len(heard) % 100 == 0:  # counting takes longer than what is counted
            tasks.add(len(asyncio.all_tasks()))

    def storm(_message: Json) -> Json:
        for _ in range(20_000):
            offer.server.send(json.dumps(TOOLS_CHANGED).encode())
        return {"result": {}}

    offer.special["ping"] = storm
    async with connected({"server": offer.server, "timeout": {"read": 110}}, 120) as connection:
        connection.on("notification", hear)
        offer.tools("a", "b")
        await connection.ping()
        assert len(heard) == 20_000
        await eventually(lambda: "b" in connection.snapshot().by_name)
        assert max(tasks) - min(tasks) <= 1
        assert offer.asked() <= 4


@pytest.mark.requirement("C8", "D28")
async def test_a_change_during_a_listing_is_followed_by_another_listing() -> None:
    offer = Offer("a")
    async with connected(offer.server) as connection:

        def late(_message: Json) -> Json:
            del offer.special["tools/list"]
            answer = {"result": {"tools": named("a")}}  # as it was
            offer.tools("a", "b")
            offer.server.send(TOOLS_CHANGED)
            return answer

        offer.special["tools/list"] = late
        await connection.refresh()
        await eventually(lambda: "b" in connection.snapshot().by_name)
        assert offer.asked() == 3


@pytest.mark.slow
@pytest.mark.requirement("C8")
async def test_a_degraded_connection_recovers_by_itself_while_somebody_listens() -> None:
    offer = Offer("a")
    offer.special["tools/list"] = lambda _message: error(-32603, "the database is down")
    told: list[ToolsChanged] = []
    async with connected(offer.server) as connection:
        assert connection.state is ConnectionState.DEGRADED
        connection.subscribe(told.append)
        offer.special.clear()
        await eventually(lambda: told)
        assert told[0].added == ("a",)
        assert connection.state is ConnectionState.READY


@pytest.mark.requirement("D12")
async def test_a_malformed_prompt_or_resource_costs_itself_only(caplog: pytest.LogCaptureFixture) -> None:
    offer = Offer("a", prompts={}, resources={})
    offer.lists["prompts/list"] = ("prompts", [{"name": "p"}, "x", {"name": 7}, {"name": "p"}, {"arguments": []}])
    offer.lists["resources/list"] = ("resources", [{"name": "nameless"}, {"uri": "r:1", "size": True}, None])
    offer.lists["resources/templates/list"] = ("resourceTemplates", [[], {"uriTemplate": "t:{x}", "name": 4}])
    async with connected(offer.server, name="srv") as connection:
        with caplog.at_level(logging.WARNING, "toolweave"):
            for _ in range(2):
                assert [prompt.name for prompt in await connection.list_prompts()] == ["p"]
                assert [(one.uri, one.size) for one in await connection.list_resources()] == [("r:1", None)]
                assert [one.uri_template for one in await connection.list_resource_templates()] == ["t:{x}"]
    assert caplog.messages.count("server 'srv': prompt 'p' left out: a second prompt of this name") == 1
    assert caplog.messages.count("server 'srv': resource number 1 left out: it has no uri") == 1
    assert caplog.messages.count("server 'srv': resource template number 1 left out: it is not an object") == 1


async def test_a_list_of_which_the_server_promises_nothing_is_asked_for_each_time() -> None:
    offer = Offer("a", prompts={})
    async with connected(offer.server) as connection:
        offer.lists["prompts/list"] = ("prompts", [{"name": "old"}])
        await connection.list_prompts()
        offer.lists["prompts/list"] = ("prompts", [{"name": "new"}])
        assert [prompt.name for prompt in await connection.list_prompts()] == ["new"]


async def test_a_list_is_begun_anew_when_its_cursor_is_no_longer_taken() -> None:
    offer = Offer("a")
    pages = iter(
        [
            {"result": {"tools": named("old"), "nextCursor": "2"}},
            error(-32602, "Invalid cursor"),
            {"result": {"tools": named("new"), "nextCursor": ""}},
            {"result": {"tools": named("newer")}},
        ]
    )
    async with connected(offer.server) as connection:
        offer.special["tools/list"] = lambda _message: next(pages)
        await connection.refresh()
        assert [spec.name for spec in connection.snapshot()] == ["new", "newer"]
        assert connection.problems == ()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_subscription_to_a_server_without_them_is_refused_at_once(era: str) -> None:
    peer = Peer(era=era)
    peer.capabilities = {"tools": {"listChanged": True}, "resources": {"listChanged": True}}
    async with connected(ChannelServer.of(peer)) as connection:
        with pytest.raises(ProtocolError, match="does not offer subscriptions to resources") as refusal:
            await connection.subscribe_resource("test://text", lambda update: None)
        assert refusal.value.code == -32601
        await connection.call_tool("echo", {"text": "x"})
        assert not [method for method in peer.methods if method == "resources/subscribe"]
        filters = [one.params["notifications"] for one in peer.listeners]
        assert filters == ([] if era == "legacy" else [{"toolsListChanged": True, "resourcesListChanged": True}])


async def test_a_legacy_server_that_refuses_one_subscription_keeps_the_others() -> None:
    offer = Offer("a", resources={"subscribe": True})
    told: list[ResourceUpdated] = []

    def subscribe(message: Json) -> Json:
        return error(-32002, "no such resource") if message["params"]["uri"] == "r:none" else {"result": {}}

    offer.special["resources/subscribe"] = subscribe
    async with connected(offer.server) as connection:
        await connection.subscribe_resource("r:/folder", told.append)
        with pytest.raises(ProtocolError, match="no such resource"):
            await connection.subscribe_resource("r:none", told.append)
        params = {"uri": "r:/folder/file"}
        offer.server.send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})
        await eventually(lambda: told)
        assert told == [ResourceUpdated(uri="r:/folder/file")]


async def test_a_subscription_that_a_restarted_server_refuses_is_told_and_may_be_made_anew() -> None:
    offer = Offer("a", resources={"subscribe": True})
    first: list[ResourceUpdated] = []
    second: list[ResourceUpdated] = []
    errors: list[Exception] = []
    async with connected(offer.server, 40) as connection:
        await connection.subscribe_resource("r:1", first.append)
        offer.special["resources/subscribe"] = lambda _message: error(-32002, "no such resource")
        connection.on("error", errors.append)
        offer.server.hang_up()
        await eventually(lambda: [one for one in errors if "no such resource" in str(one)])

        offer.special.clear()
        await connection.subscribe_resource("r:1", second.append)
        params = {"uri": "r:1"}
        offer.server.send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})
        await eventually(lambda: first and second)


@pytest.mark.slow
async def test_a_stream_that_wants_other_credentials_is_opened_once_the_lists_are_had_again() -> None:
    valid = False
    listens = 0

    @answers_to("subscriptions/listen")
    async def special(exchange: Exchange, message: Json) -> None:
        nonlocal listens
        listens += 1
        if not valid:
            await exchange.respond(401, b"", www_authenticate='Bearer realm="late"')
            return
        await exchange.start_stream()
        params = {"notifications": message["params"]["notifications"]}
        note = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
        await exchange.event(json.dumps(note))
        await exchange.reader.gone.wait()

    def answer(message: Json) -> Json | None:
        if message["method"] == "server/discover":
            offered = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
            return {"result": {"supportedVersions": [MODERN], "capabilities": offered}}
        return {"result": {"tools": named("a")}}

    async with listening(HttpScript(answer, special).handle) as (url, _), connected(url) as connection:
        with pytest.raises(AuthRequiredError):
            await connection.subscribe_resource("r:1", lambda update: None)
        assert listens in {1, 2}  # of the lists alone, and with the resource
        valid = True

        async def admitted() -> bool:
            with contextlib.suppress(AuthRequiredError):  # for a second, the same answer without asking
                await connection.refresh()
                return True
            return False

        await eventually(admitted)
        await connection.subscribe_resource("r:1", lambda update: None)


async def test_a_subscription_that_is_never_answered_is_given_up_within_its_bound() -> None:
    offer = Offer("a", resources={"subscribe": True})
    offer.special["resources/subscribe"] = lambda _message: None
    async with connected(offer.server) as connection:
        with pytest.raises(RequestTimeoutError, match="the subscription to 'r:1'"):
            await connection.subscribe_resource("r:1", lambda update: None, timeout=0.05)


async def test_of_what_a_modern_server_honours_only_the_rest_is_refused() -> None:
    def listen(message: Json) -> Json | None:
        wanted = message["params"]["notifications"]
        honoured: Json = {"toolsListChanged": True}
        if "resourceSubscriptions" in wanted:
            honoured["resourceSubscriptions"] = [uri for uri in wanted["resourceSubscriptions"] if uri != "r:none"]
        offer.acknowledge(message, honoured)
        return None

    offer = ModernOffer(listen)
    async with connected(offer.server) as connection:
        leave = await connection.subscribe_resource("r:1", lambda update: None)
        with pytest.raises(ProtocolError, match="does not offer notifications about updates of 'r:none'"):
            await connection.subscribe_resource("r:none", lambda update: None)
        leave()
        await connection.subscribe_resource("r:1", lambda update: None)


@pytest.mark.parametrize("code", [-32601, -32602])
async def test_a_modern_server_that_refuses_to_listen_is_used_without(code: int) -> None:
    offer = ModernOffer(lambda _message: error(code, "not here"))
    async with connected(offer.server) as connection:
        with pytest.raises(ProtocolError, match="not here"):
            await connection.subscribe_resource("test://text", lambda update: None)
        assert (await connection.call_tool("echo", {"text": "x"})).text == "x"
        assert 1 <= len(offer.listens()) <= 3  # the lists, with the resource, and again without it


async def test_who_comes_back_to_a_resource_at_once_is_told_of_it_as_before() -> None:
    offer = ModernOffer()
    told: list[ResourceUpdated] = []
    async with connected(offer.server) as connection:
        leave = await connection.subscribe_resource("test://text", told.append)
        listens = len(offer.listens())
        leave()
        await connection.subscribe_resource("test://text", told.append)
        offer.peer.broadcast("notifications/resources/updated", {"uri": "test://text"})
        await eventually(lambda: told)
        assert len(offer.listens()) == listens


async def test_a_resource_that_a_modern_server_refuses_does_not_cost_the_lists() -> None:
    def listen(message: Json) -> Json | None:
        wanted = message["params"]["notifications"]
        if "resourceSubscriptions" in wanted:
            return error(-32602, "no such resource")
        offer.acknowledge(message, wanted)
        return None

    offer = ModernOffer(listen)
    async with connected(offer.server) as connection:
        with pytest.raises(ProtocolError, match="no such resource"):
            await connection.subscribe_resource("r:none", lambda update: None)
        await connection.refresh()
        offer.peer.tools["late"] = offer.peer.tools["echo"]
        offer.server.send(TOOLS_CHANGED)
        await eventually(lambda: "late" in connection.snapshot().by_name)
        assert not [one for one in offer.server.received if one.get("method") == "notifications/cancelled"]


async def test_a_stream_that_ends_at_once_is_not_opened_in_a_tight_loop() -> None:
    offer = ModernOffer(lambda _message: {"result": {}})
    async with connected(offer.server) as connection:
        for _ in range(100):
            await connection.call_tool("echo", {"text": "x"})
        assert len(offer.listens()) <= 3


@pytest.mark.slow
async def test_a_stream_that_the_server_cancels_is_opened_again() -> None:
    offer = ModernOffer()
    config = {"transport": "inprocess", "server": offer.server}
    async with connected(config, 40) as connection:
        await eventually(lambda: len(offer.peer.listeners) == 1)
        await connection.call_tool("echo", {"text": "x"})  # the acknowledgement came before its answer
        (listener,) = offer.peer.listeners
        offer.peer.stop(listener)
        params = {"requestId": listener.id, "reason": "shutting down"}
        offer.server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await eventually(lambda: len(offer.peer.listeners) == 1, 20)
        assert offer.peer.listeners[0].id != listener.id


class Refusing:
    """A server over HTTP whose tools are to be read all the time; while it is not `valid`, that fails.

    Attributes:
        refused: How often it did.
    """

    def __init__(self, status: int) -> None:
        self.valid = True
        self.refused = 0
        self._status = status
        self.script = HttpScript(initialized(self._answer), self._special)

    async def _special(self, exchange: Exchange, message: Json) -> bool:
        if self.valid or message.get("method") != "tools/list":
            return False
        self.refused += 1
        await exchange.respond(self._status, b"", www_authenticate='Bearer realm="late"')
        return True

    def _answer(self, message: Json) -> Json | None:
        return {"result": {"tools": named("a"), "ttlMs": 1}} if message["method"] == "tools/list" else None


@pytest.mark.slow
@pytest.mark.requirement("R23")
async def test_credentials_that_run_out_end_the_following_until_there_are_others() -> None:
    refused = Refusing(401)
    broken = Refusing(500)
    async with (
        listening(refused.script.handle) as (url, _),
        listening(broken.script.handle) as (other_url, _),
        connected(url, 40) as connection,
        connected(other_url, 40) as other,
    ):
        refused.valid = False
        connection.subscribe(lambda change: None)
        await eventually(lambda: connection.state is ConnectionState.AUTH_REQUIRED)
        assert "401" in str(connection.error)
        assert [spec.name for spec in connection.snapshot()] == ["a"]

        broken.valid = False  # any other failure, that begins later, is followed by another request
        other.subscribe(lambda change: None)
        await eventually(lambda: broken.refused >= 2)
        assert refused.refused == 1

        refused.valid = True
        await connection.list_tools()
        assert connection.state is ConnectionState.READY
        listed = refused.script.methods().count("tools/list")
        await eventually(lambda: refused.script.methods().count("tools/list") > listed)
