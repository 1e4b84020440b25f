"""Who asks for changes hears of them, of those and of no others, in the way of both eras."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.serve.carriers import connected
from tests.serve.talking import Talk, talking
from toolweave import ToolsChanged
from toolweave.errors import RequestError
from toolweave.protocol.meta import SUBSCRIPTION_ID
from toolweave.serve import create_mcp_server
from toolweave.serve._changes import Changes
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._subscriptions import Listen
from toolweave.tools import ToolRegistry

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def subtract(a: int, b: int) -> int:
    """Subtract two numbers."""
    return a - b


class Listed:
    """A feature that declares every list, without anything in it."""

    def __init__(self, *, prompts: bool = True) -> None:
        self._prompts = prompts

    def methods(self, *, modern: bool) -> dict[str, Any]:
        return {}

    def capabilities(self, *, modern: bool) -> dict[str, Any]:
        lists: dict[str, Any] = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
        }
        return lists | ({"prompts": {"listChanged": True}} if self._prompts else {})


class Board:
    """A server that declares every list, whose changes a test makes by hand."""

    def __init__(self, *, changes: Changes | None = None, prompts: bool = True) -> None:
        self.changes = Changes() if changes is None else changes
        listen = Listen(self.changes, declared=lambda: self.endpoint.capabilities(modern=True))
        self.endpoint = Endpoint({"name": "board", "version": "1"}, features=[Listed(prompts=prompts), listen])

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Need nothing."""
        yield


async def listening(talk: Talk, **filters: Any) -> int:
    """Open a listen stream and wait until it is acknowledged."""
    count = len(talk.of(ACKNOWLEDGED))
    number = await talk.send("subscriptions/listen", {"notifications": filters})
    await talk.received(ACKNOWLEDGED, count + 1)
    return number


@pytest.mark.requirement("R93", "C30")
@pytest.mark.parametrize(("carrier", "version"), [
    *(("inprocess", version) for version in (*LEGACY, "2026-07-28")),
    *(("http", version) for version in ("2025-11-25", "2026-07-28")),
])  # fmt: skip
async def test_a_client_hears_of_tools_that_come_and_go(carrier: str, version: str) -> None:
    registry = ToolRegistry([add])
    server = create_mcp_server(name="changing", version="1", tools=registry)
    async with connected(server, carrier, version) as connection:
        received = list[ToolsChanged]()
        news = anyio.Event()

        def take(change: ToolsChanged) -> None:
            received.append(change)
            news.set()

        connection.subscribe(take)
        await anyio.to_thread.run_sync(registry.add, subtract)
        await news.wait()
        names = [tool.name for tool in await connection.list_tools()]
        news = anyio.Event()
        registry.remove("add")
        await news.wait()

    assert [(change.added, change.removed) for change in received] == [(("subtract",), ()), ((), ("add",))]
    assert names == ["add", "subtract"]


async def test_a_stream_begins_with_what_is_honoured_and_every_frame_names_it() -> None:
    board = Board(prompts=False)
    async with talking(board) as talk:
        wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a://b"], "x": 1}
        number = await listening(talk, **wanted)
        board.changes.tools_changed()
        board.changes.prompts_changed()
        board.changes.resource_updated("a://b")
        await talk.received(UPDATED)

    stamp = {SUBSCRIPTION_ID: number}
    honoured = {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]}
    assert [(one["method"], one["params"]) for one in talk.notifications] == [
        (ACKNOWLEDGED, {"notifications": honoured, "_meta": stamp}),
        (TOOLS, {"_meta": stamp}),
        (UPDATED, {"uri": "a://b", "_meta": stamp}),
    ]


async def test_a_stream_carries_nothing_that_was_not_asked_for() -> None:
    board = Board()
    async with talking(board) as talk:
        await listening(talk, promptsListChanged=True, toolsListChanged=False, resourceSubscriptions=["a://b"])
        board.changes.tools_changed()
        board.changes.resources_changed()
        board.changes.resource_updated("a://c")
        board.changes.prompts_changed()
        await talk.received(PROMPTS)

    assert [one["method"] for one in talk.notifications] == [ACKNOWLEDGED, PROMPTS]


async def test_streams_of_one_client_are_told_apart() -> None:
    board = Board()
    async with talking(board) as talk:
        tools = await listening(talk, toolsListChanged=True)
        prompts = await listening(talk, promptsListChanged=True)
        board.changes.prompts_changed()
        board.changes.tools_changed()
        await talk.until(lambda: bool(talk.of(TOOLS) and talk.of(PROMPTS)))

    assert talk.of(TOOLS) == [{"_meta": {SUBSCRIPTION_ID: tools}}]
    assert talk.of(PROMPTS) == [{"_meta": {SUBSCRIPTION_ID: prompts}}]


async def test_a_server_that_shuts_down_ends_its_streams_with_an_empty_result() -> None:
    board = Board()
    async with talking(board) as talk:
        number = await listening(talk, toolsListChanged=True)
        board.changes.tools_changed()
        board.changes.close()
        result = await talk.result(number)

    assert len(talk.of(TOOLS)) == 1
    assert result["_meta"][SUBSCRIPTION_ID] == number
    assert result.keys() == {"_meta", "resultType"}
    assert result["resultType"] == "complete"


async def test_a_storm_from_many_threads_is_few_notifications() -> None:
    board = Board()
    async with talking(board) as modern, talking(board, "2025-11-25") as legacy:
        await listening(modern, toolsListChanged=True, promptsListChanged=True)

        def storm() -> None:
            for _ in range(5_000):
                board.changes.tools_changed()

        threads = [threading.Thread(target=storm) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await anyio.to_thread.run_sync(thread.join)
        board.changes.prompts_changed()
        await modern.received(PROMPTS)
        await legacy.received(PROMPTS)

        for talk in (modern, legacy):
            assert 1 <= len(talk.of(TOOLS)) < 2_000  # of 20,000


async def test_a_client_that_cancels_its_stream_makes_room_for_another() -> None:
    board = Board(changes=Changes(max_streams=1))
    async with talking(board) as talk:
        number = await listening(talk, toolsListChanged=True)
        with pytest.raises(RequestError, match="too many listen streams"):
            await talk.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await talk.notify("notifications/cancelled", {"requestId": number})
        await listening(talk, promptsListChanged=True)
        board.changes.tools_changed()
        board.changes.prompts_changed()
        await talk.received(PROMPTS)

    assert talk.of(TOOLS) == []
    assert number not in talk.answers


@pytest.mark.parametrize(
    "notifications",
    [
        None,
        [],
        "tools",
        {"toolsListChanged": "yes"},
        {"resourceSubscriptions": "a://b"},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": ["a://b"] * 1001},
    ],
)
async def test_a_malformed_filter_is_refused(notifications: object) -> None:
    async with talking(Board()) as talk:
        params = {} if notifications is None else {"notifications": notifications}
        with pytest.raises(RequestError) as refused:
            await talk.ask("subscriptions/listen", params)

    assert refused.value.code == -32602
    assert talk.notifications == []


@pytest.mark.parametrize("version", LEGACY)
async def test_a_conversation_hears_of_the_resources_it_subscribed_to_only(version: str) -> None:
    board = Board()
    async with talking(board, version) as talk, talking(board, version) as other:
        assert await talk.ask("resources/subscribe", {"uri": "a://b"}) == {}
        await talk.ask("resources/subscribe", {"uri": "a://c"})
        assert await talk.ask("resources/unsubscribe", {"uri": "a://c"}) == {}
        for uri in ("a://b", "a://c", "a://d"):
            board.changes.resource_updated(uri)
        board.changes.resources_changed()
        await talk.received(RESOURCES)
        await other.received(RESOURCES)

    assert talk.of(UPDATED) == [{"uri": "a://b"}]
    assert other.of(UPDATED) == []


async def test_nobody_subscribes_to_more_resources_than_the_bound() -> None:
    async with talking(Board(), "2025-11-25") as talk:
        with pytest.raises(RequestError, match="no more than 1000 resources"):
            for number in range(1_001):
                await talk.ask("resources/subscribe", {"uri": f"a://{number}"})
        await talk.ask("resources/unsubscribe", {"uri": "a://1"})
        assert await talk.ask("resources/subscribe", {"uri": "a://new"}) == {}


@pytest.mark.requirement("R93")
async def test_a_server_without_resources_has_no_subscriptions() -> None:
    server = create_mcp_server(name="tools only", version="1", tools=[add])
    async with talking(server, "2025-11-25") as legacy, talking(server) as modern:
        with pytest.raises(RequestError) as refused:
            await legacy.ask("resources/subscribe", {"uri": "a://b"})
        await listening(modern, resourcesListChanged=True, resourceSubscriptions=["a://b"])

    assert refused.value.code == -32601
    assert modern.of(ACKNOWLEDGED)[0]["notifications"] == {}


@pytest.mark.parametrize(("version", "method"), [
    ("2026-07-28", "resources/subscribe"), ("2025-11-25", "subscriptions/listen")
])  # fmt: skip
async def test_each_era_has_its_own_way_only(version: str, method: str) -> None:
    async with talking(Board(), version) as talk:
        with pytest.raises(RequestError) as refused:
            await talk.ask(method, {"uri": "a://b", "notifications": {}})

    assert refused.value.code == -32601


async def test_a_conversation_cannot_keep_a_uri_of_any_length() -> None:
    async with talking(Board(), "2025-11-25") as talk:
        assert await talk.ask("resources/subscribe", {"uri": f"a://{'x' * 8000}"}) == {}
        with pytest.raises(RequestError, match="8192 characters"):
            await talk.ask("resources/subscribe", {"uri": f"a://{'x' * 9000}"})
