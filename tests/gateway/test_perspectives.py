"""Callers that reach an upstream on another connection than that of the hub see what that connection offers."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.connect.targets import eventually
from tests.gateway.plain_callers import META, plain
from tests.gateway.relayed import MODERN, Json, calling, gateway_to
from tests.serve.serving import served_http
from tests.serve.talking import Talk, talking
from toolweave import Callbacks, Hub, ToolsChanged, connect_mcp
from toolweave.connect import ListChanged
from toolweave.errors import RequestError
from toolweave.gateway import Gateway, create_gateway
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import ApiKey, ApiKeyAuth

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("growing_server.py")
HANDSHAKE = "2025-11-25"
ABLE: Json = {"elicitation": {}}
LISTS = {
    "tools/list": ("tools", "name", "more"),
    "prompts/list": ("prompts", "name", "more"),
    "resources/list": ("resources", "uri", "grown://more"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "grown://more/{part}"),
}
CHANGED = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
UPDATED = "notifications/resources/updated"
_CALLERS = [
    pytest.param("both", {}, None, id="shares the connection of its era"),
    pytest.param("legacy", ABLE, None, id="can be asked"),
    pytest.param("both", ABLE, None, id="can be asked by a server of both eras"),
    pytest.param("legacy", {}, "info", id="asked for logs"),
]
CALLERS = pytest.mark.parametrize(("mode", "able", "level"), _CALLERS)
CALLERS_OF_EACH_ERA = pytest.mark.parametrize(
    ("mode", "able", "level"), [*_CALLERS, pytest.param("modern", {}, "info", id="asked a modern server for logs")]
)


def growing(mode: str, **settings: Any) -> Json:
    """Return the config entry of a server whose offers grow in its own process."""
    return {"command": sys.executable, "args": ["-I", "-S", str(SCRIPT), mode], "tool_prefix": "", **settings}


async def call(talk: Talk, tool: str, **arguments: Any) -> str:
    """Return the text of the result of a call."""
    result = await talk.ask("tools/call", {"name": tool, "arguments": arguments})
    return result["content"][0]["text"]


async def listed(talk: Talk, method: str = "tools/list") -> list[str]:
    """Return the names or URIs in a list."""
    kind, member, _ = LISTS[method]
    return [one[member] for one in (await talk.ask(method))[kind]]


async def started(talk: Talk, level: str | None = None) -> None:
    """Read all lists, as clients do at first, and ask for log messages."""
    if level is not None:
        await talk.ask("logging/setLevel", {"level": level})
    for method in LISTS:
        assert LISTS[method][2] not in await listed(talk, method)


async def grown(talk: Talk, name: str = "more") -> str:
    """Have the server of a caller offer more; return where, once the caller was notified of all lists."""
    before = {method: len(talk.of(method)) for method in CHANGED}
    where = (await call(talk, "grow", name=name)).removeprefix("grown ")
    for method in CHANGED:
        await talk.received(method, before[method] + 1)
    return where


@CALLERS
async def test_what_a_call_adds_is_announced_listed_and_used_by_its_caller(
    mode: str, able: Json, level: str | None
) -> None:
    async with talking(gateway_to(growing(mode)), HANDSHAKE, able) as talk:
        await started(talk, level)
        where = await grown(talk)
        for method, (_, _, name) in LISTS.items():
            assert name in await listed(talk, method)
        assert await call(talk, "more") == f"more {where}"
        filled = await talk.ask("prompts/get", {"name": "more"})
        assert filled["messages"][0]["content"]["text"] == f"more {where}"
        read = await talk.ask("resources/read", {"uri": "grown://more"})
        assert read["contents"][0]["text"] == f"more {where}"
        argument = {"name": "word", "value": ""}
        completed = await talk.ask(
            "completion/complete", {"ref": {"type": "ref/prompt", "name": "more"}, "argument": argument}
        )
        assert completed["completion"]["values"] == ["more"]


@asynccontextmanager
async def three_callers(gateway: Gateway) -> AsyncGenerator[tuple[Talk, Talk, Talk]]:
    """Run a gateway with two callers that have connections of their own, and one that has not."""
    async with (
        gateway.running(),
        talking(gateway, HANDSHAKE, ABLE) as one,
        talking(gateway, HANDSHAKE, ABLE) as other,
        talking(gateway, HANDSHAKE, {}) as third,
    ):
        yield one, other, third


@pytest.mark.parametrize(("mode", "able"), [("both", {}), ("both", ABLE), ("legacy", ABLE)])
async def test_a_change_of_an_upstream_that_callers_share_is_announced_once_to_callers_that_reach_another_apart(
    mode: str, able: Json
) -> None:
    reviewed: list[object] = []
    gateway = create_gateway({"apart": growing(mode), "shared": growing("modern", tool_prefix="s_")})
    async with gateway.running():
        before = gateway.perspectives.on_reviewed

        async def note(owner: Any) -> None:
            if before is not None:
                await before(owner)
            reviewed.append(owner)

        gateway.perspectives.on_reviewed = note
        async with talking(gateway, HANDSHAKE, able) as talk, talking(gateway, MODERN) as modern:
            await started(talk)
            await started(modern)
            await call(talk, "pid")  # opens the connection that the caller reaches apart
            await eventually(lambda: bool(reviewed))
            reviews = len(reviewed)
            await call(modern, "s_grow", name="shared")
            for method in CHANGED:
                await talk.received(method, 1)
            await eventually(lambda: len(reviewed) > reviews)
            await grown(talk)

            # Resources and templates are two lists with one announcement.
            assert [len(talk.of(method)) for method in CHANGED[:2]] == [2, 2]
            assert "s_shared" in await listed(talk)


class Published:
    """A server around another one, which notes what that publishes."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def publish(self, topic: Any, params: object) -> None:
        self.names.append(topic.name)


@pytest.mark.parametrize(("mode", "able"), [("both", {}), ("both", ABLE), ("legacy", ABLE)])
async def test_a_change_is_announced_once_to_callers_that_read_their_lists_before_all_others(
    mode: str, able: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The change comes before a review that could follow the first reading of the lists by another caller.
    monkeypatch.setattr("toolweave.gateway._callers.perspectives._DEBOUNCE_SECONDS", 0.5)
    gateway = create_gateway({"apart": growing(mode), "shared": growing("modern", tool_prefix="s_")})
    reviewed: list[object] = []
    published: Any = Published()

    async def note(owner: object) -> None:
        reviewed.append(owner)

    async with gateway.running(), talking(gateway, HANDSHAKE, able) as talk:
        await started(talk)
        await call(talk, "pid")
        seen = gateway.perspectives
        mine = next(iter(seen._own.values()), seen.handshake)
        await eventually(lambda: bool(mine.apart) and not mine.due and not mine.reviewing)
        async with talking(gateway, MODERN) as modern:
            await started(modern)
            seen.on_reviewed = note
            gateway.changes.passed_on.append(published)
            await call(modern, "s_grow", name="shared")
            for method in CHANGED:
                await talk.received(method, 1)
            await eventually(lambda: bool(reviewed))

    assert set(published.names) == {""}  # that is to all callers, and to these not once more


@pytest.mark.parametrize("mode", ["legacy", "both"])
async def test_a_change_of_one_caller_is_neither_announced_to_others_nor_theirs(mode: str) -> None:
    gateway = gateway_to(growing(mode))
    async with three_callers(gateway) as (one, other, third):
        for talk in (one, other, third):
            await started(talk)
        await grown(one)
        await grown(other, "other")
        for talk, name, hidden in ((one, "more", "other"), (other, "other", "more")):
            assert name in await listed(talk)
            assert hidden not in await listed(talk)
            with pytest.raises(RequestError) as unknown:
                await call(talk, hidden)
            assert unknown.value.code == -32602
        assert not {"more", "other"} & {*await listed(third)}
        assert [third.of(method) for method in CHANGED] == [[], [], []]


@CALLERS
async def test_updates_of_a_resource_reach_the_caller_whose_call_made_them(
    mode: str, able: Json, level: str | None
) -> None:
    gateway = gateway_to(growing(mode))
    async with gateway.running(), talking(gateway, HANDSHAKE, able) as talk, talking(gateway, MODERN, {}) as other:
        await started(talk, level)
        await talk.ask("resources/subscribe", {"uri": "state://now"})
        await other.send("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["state://now"]}})
        await other.received("notifications/subscriptions/acknowledged")
        while not talk.of(UPDATED):  # its first call starts the process to which the subscription moves
            await call(talk, "touch")
        await talk.ask("resources/unsubscribe", {"uri": "state://now"})
        count = len(talk.of(UPDATED))
        await call(talk, "touch")
        await talk.ask("ping")

    assert {one["uri"] for one in talk.of(UPDATED)} == {"state://now"}
    assert len(talk.of(UPDATED)) == count
    assert other.of(UPDATED) == []


@CALLERS
async def test_a_caller_whose_process_dies_sees_the_shared_lists_again_and_is_notified(
    mode: str, able: Json, level: str | None
) -> None:
    gateway = gateway_to(growing(mode))
    async with talking(gateway, HANDSHAKE, able) as talk:
        await started(talk, level)
        where = await grown(talk)
        count = len(talk.of(CHANGED[0]))
        assert (await talk.ask("tools/call", {"name": "die"}))["isError"]
        await talk.received(CHANGED[0], count + 1)
        for method, (_, _, name) in LISTS.items():
            assert name not in await listed(talk, method)
        assert (await call(talk, "pid")).removeprefix("pid ") != where
        assert gateway.restarts("up") == 1


async def test_a_process_without_calls_ends_and_its_caller_sees_the_shared_lists_again() -> None:
    gateway = gateway_to(growing("legacy"), idle_seconds=0.5)
    async with talking(gateway, HANDSHAKE, ABLE) as talk:
        await started(talk)
        await grown(talk)
        count = len(talk.of(CHANGED[0]))
        await talk.received(CHANGED[0], count + 1)

        assert "more" not in await listed(talk)


async def test_a_process_that_a_caller_is_subscribed_to_is_not_idle() -> None:
    gateway = gateway_to(growing("legacy"), idle_seconds=0.5)
    async with talking(gateway, HANDSHAKE, ABLE) as talk:
        await started(talk)
        where = await grown(talk)
        await talk.ask("resources/subscribe", {"uri": "grown://more"})
        await anyio.sleep(2.5)

        assert await call(talk, "more") == f"more {where}"


async def test_a_tool_that_only_one_process_of_a_caller_has_waits_for_that_process() -> None:
    async with talking(gateway_to(growing("legacy")), HANDSHAKE, ABLE) as talk:
        await started(talk)
        where = await grown(talk)
        asking = await talk.send("tools/call", {"name": "ask"})
        await talk.received("elicitation/create")
        waiting = await talk.send("tools/call", {"name": "more"})
        assert (await call(talk, "pid")) != f"pid {where}"  # another process
        question = next(one for one in talk.notifications if one["method"] == "elicitation/create")
        await talk.answer(question["id"], {"action": "accept", "content": {"name": "Ann"}})
        assert "Ann" in (await talk.result(asking))["content"][0]["text"]
        assert (await talk.result(waiting))["content"][0]["text"] == f"more {where}"


# what the owner says


@pytest.mark.parametrize("mode", ["legacy", "both"])
@pytest.mark.parametrize("able", [{}, ABLE], ids=["able to nothing", "able"])
async def test_rules_judge_what_only_the_process_of_a_caller_offers(mode: str, able: Json) -> None:
    deny = AccessRule(effect="deny", annotations={"destructiveHint": True})
    rules = AccessRules(rules=[deny], default="allow")
    async with talking(gateway_to(growing(mode), middleware=[rules]), HANDSHAKE, able) as talk:
        await started(talk)
        await grown(talk)
        assert "more" in await listed(talk)
        assert "more in" in await call(talk, "more")
        await call(talk, "grow", name="bad")
        await call(talk, "grow", name="last")
        while "last" not in await listed(talk):
            await talk.received(CHANGED[0], len(talk.of(CHANGED[0])))
        assert "bad" not in await listed(talk)
        with pytest.raises(RequestError) as refused:
            await call(talk, "bad")

    assert refused.value.code == -32602


@CALLERS
async def test_the_filter_of_a_config_holds_in_every_process(mode: str, able: Json, level: str | None) -> None:
    gateway = gateway_to(growing(mode, exclude=["hidden"]))
    async with talking(gateway, HANDSHAKE, able) as talk:
        await started(talk, level)
        await call(talk, "grow", name="hidden")
        await grown(talk)
        assert "more" in await listed(talk)
        assert "hidden" not in await listed(talk)
        with pytest.raises(RequestError) as refused:
            await call(talk, "hidden")

    assert refused.value.code == -32602


@CALLERS
async def test_a_view_of_the_tools_is_the_same_view_of_those_of_every_process(
    mode: str, able: Json, level: str | None
) -> None:
    hub = Hub({"up": growing(mode)})
    gateway = create_gateway(hub, tools=hub.filtered(exclude=["hidden"]).prefixed("my"))
    async with talking(gateway, HANDSHAKE, able) as talk:
        await started(talk, level)
        await call(talk, "my_grow", name="hidden")
        where = (await call(talk, "my_grow", name="more")).removeprefix("grown ")
        while "my_more" not in await listed(talk):
            await talk.received(CHANGED[0], len(talk.of(CHANGED[0])))
        assert "my_hidden" not in await listed(talk)
        assert await call(talk, "my_more") == f"more {where}"
        with pytest.raises(RequestError):
            await call(talk, "my_hidden")


# other ways to the gateway


@pytest.mark.parametrize(("mode", "able"), [("legacy", True), ("both", False), ("both", True)])
async def test_a_caller_over_http_is_notified_of_what_its_call_added(mode: str, able: bool) -> None:
    callbacks = Callbacks(elicitation=lambda request: {}) if able else Callbacks()
    gateway = gateway_to(growing(mode))
    async with calling(gateway, HANDSHAKE, callbacks=callbacks, carrier="http") as one:
        tools, prompts = anyio.Event(), anyio.Event()
        one.on("tools_changed", lambda change: tools.set() if _adds(change) else None)
        one.on("prompts_changed", lambda change: prompts.set() if _adds(change) else None)
        await one.list_prompts()
        await one.call_tool("grow", {"name": "more"})
        await tools.wait()
        await prompts.wait()


def _adds(change: ToolsChanged | ListChanged) -> bool:
    return "more" in change.added


async def test_requests_of_a_modern_caller_who_can_be_asked_see_the_process_of_this_caller() -> None:
    gateway = gateway_to(growing("legacy"))
    keys = ApiKeyAuth([ApiKey(name=name, key=f"a-key-of-{name}-that-is-long-enough") for name in ("ann", "bob")])
    able = Callbacks(elicitation=lambda request: {})
    async with gateway.running(), served_http(gateway, auth=keys) as url:

        def entry(name: str) -> Json:
            return {"url": url, "headers": {"Authorization": f"Bearer a-key-of-{name}-that-is-long-enough"}}

        async with (
            connect_mcp(entry("ann"), callbacks=able) as ann,
            connect_mcp(entry("bob"), callbacks=able) as bob,
        ):
            added = anyio.Event()
            ann.on("tools_changed", lambda change: added.set() if _adds(change) else None)
            where = (await ann.call_tool("grow", {"name": "more"})).text.removeprefix("grown ")
            await added.wait()
            assert (await ann.call_tool("more")).text == f"more {where}"
            assert "more" not in (await bob.list_tools()).names


async def test_a_plain_call_of_a_modern_principal_reaches_its_own_process() -> None:
    gateway = gateway_to(growing("modern"))
    key = "a-key-of-ann-that-is-long-enough"
    leveled = {**META, "io.modelcontextprotocol/logLevel": "info"}
    async with (
        gateway.running(),
        served_http(gateway, auth=ApiKeyAuth([ApiKey(name="ann", key=key)])) as url,
        plain(url, MODERN, token=key) as ann,
    ):
        texts: list[str] = []
        for meta in (leveled, META):
            _, kind, said = await ann.ask(*ann.call("pid", {}, _meta=meta))
            if kind is not None and kind.startswith("text/event-stream"):
                said = json.loads([line for line in said.splitlines() if line.startswith(b"data: {")][-1][6:])
            texts.append(said["result"]["content"][0]["text"])

    own, then = texts
    assert then == own
