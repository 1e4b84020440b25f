"""Changes reach everybody who is there, whatever thread they come from and however slow somebody listens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from toolweave.errors import RequestError
from toolweave.serve._changes import Changes, Topic
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._subscriptions import Listen
from toolweave.serve.request import Client, Json, Request
from toolweave.tools import ToolRegistry

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
DECLARED = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


class Inbox:
    """A conversation that keeps all notifications."""

    def __init__(self) -> None:
        self.pushed: list[tuple[str, Mapping[str, Any]]] = []
        self._news = anyio.Event()

    def push(self, method: str, params: Mapping[str, Any]) -> None:
        self.pushed.append((method, params))
        news = self._news
        self._news = anyio.Event()
        news.set()

    async def until(self, method: str) -> None:
        """Wait until a notification of this method was pushed."""
        with anyio.fail_after(30):
            while method not in [one[0] for one in self.pushed]:
                await self._news.wait()


class SlowLine:
    """A client that reads its next notification when it is let."""

    def __init__(self) -> None:
        self.read: list[tuple[str, Json]] = []
        self.waiting = anyio.Event()
        self.gate = anyio.Event()

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.waiting.set()
        await self.gate.wait()
        self.read.append((method, dict(params)))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        raise RequestError("not here", code=-32603)

    async def release(self) -> None:
        """Do nothing."""


async def test_a_change_told_in_a_thread_is_pushed_on_the_conversations_own_loop() -> None:
    asyncio.get_running_loop().set_debug(True)  # refuses to be called from a thread
    changes = Changes()
    inbox = Inbox()
    threads = list[int]()

    def push(method: str, params: Mapping[str, Any]) -> None:
        threads.append(threading.get_ident())
        inbox.push(method, params)

    leave = changes.join(push, conversation="c")
    await anyio.to_thread.run_sync(changes.prompts_changed)
    await inbox.until(PROMPTS)
    leave()

    assert threads == [threading.get_ident()]


async def test_a_tool_registered_in_a_thread_is_told_of() -> None:
    changes = Changes()
    inbox = Inbox()
    registry = ToolRegistry()
    stop = changes.watch(registry)
    changes.join(inbox.push, conversation="c")

    def tool() -> int:
        return 1

    await anyio.to_thread.run_sync(registry.add, tool)
    await inbox.until(TOOLS)
    stop()
    registry.remove("tool")
    changes.resources_changed()
    await inbox.until(RESOURCES)

    assert [method for method, _ in inbox.pushed] == [TOOLS, RESOURCES]


async def test_who_left_hears_nothing_not_even_what_was_due() -> None:
    changes = Changes()
    gone = Inbox()
    there = Inbox()
    leave = changes.join(gone.push, conversation="gone")
    changes.join(there.push, conversation="there")
    changes.tools_changed()
    await anyio.lowlevel.checkpoint()
    leave()
    leave()
    changes.prompts_changed()
    await there.until(PROMPTS)

    assert gone.pushed == []
    assert changes.conversation("gone") is None
    assert changes.conversation("there") is not None


async def test_a_conversation_that_cannot_be_told_costs_no_other_its_news(caplog: pytest.LogCaptureFixture) -> None:
    changes = Changes()
    inbox = Inbox()

    def broken(method: str, params: Mapping[str, Any]) -> None:
        raise OSError("gone")

    changes.join(broken, conversation="broken")
    changes.join(inbox.push, conversation="there")
    changes.tools_changed()
    await inbox.until(TOOLS)

    assert "could not be notified of notifications/tools/list_changed" in caplog.text


async def test_changes_outlive_the_event_loop_of_a_conversation() -> None:
    changes = Changes()
    inbox = Inbox()

    async def visit() -> None:
        changes.join(inbox.push, conversation="elsewhere")

    await anyio.to_thread.run_sync(anyio.run, visit)
    here = Inbox()
    changes.join(here.push, conversation="here")
    changes.tools_changed()
    await here.until(TOOLS)

    assert inbox.pushed == []


@pytest.mark.slow
async def test_a_slow_listener_hears_the_newest_of_each_thing_and_what_waits_for_it_is_bounded() -> None:
    changes = Changes(debounce=0)
    line = SlowLine()
    listen = Listen(changes, declared=lambda: DECLARED)
    endpoint = Endpoint({"name": "x", "version": "1"}, features=[listen])
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a://1", "a://2"]}
    request = Request(
        method="subscriptions/listen",
        params={"notifications": wanted},
        client=Client(version="2026-07-28"),
        reply_channel=line,
        id=7,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(endpoint.answer, request)
        with anyio.fail_after(30):
            await line.waiting.wait()
            for count in range(100_000):
                changes.tools_changed()
                changes.publish(Topic(UPDATED, "a://1"), {"uri": "a://1", "count": count})
            changes.resource_updated("a://2")
            changes.close()
            line.gate.set()

    stamp = {"_meta": {"io.modelcontextprotocol/subscriptionId": 7}}
    assert line.read[1:] == [
        (TOOLS, stamp),
        (UPDATED, {"uri": "a://1", "count": 99_999, **stamp}),
        (UPDATED, {"uri": "a://2", **stamp}),
    ]


async def test_what_nobody_asked_for_is_not_kept_for_a_stream() -> None:
    changes = Changes()
    stream = changes.open([Topic(UPDATED, "a://1")])
    for number in range(10_000):
        changes.resource_updated(f"a://{number}")

    assert list(stream._waiting) == [Topic(UPDATED, "a://1")]


async def test_a_stream_whose_client_is_gone_is_forgotten() -> None:
    changes = Changes(max_streams=1)
    line = SlowLine()
    listen = Listen(changes, declared=lambda: DECLARED)
    client = Client(version="2026-07-28")
    params = {"notifications": {"toolsListChanged": True}}
    endpoint = Endpoint({"name": "x", "version": "1"}, features=[listen])
    for number in range(3):
        line.waiting = anyio.Event()
        async with anyio.create_task_group() as tasks:
            request = Request(
                method="subscriptions/listen", params=params, client=client, reply_channel=line, id=number
            )
            tasks.start_soon(endpoint.answer, request)
            await line.waiting.wait()
            tasks.cancel_scope.cancel()
