"""What a task says of itself on the wire, to whom, for how long, and what ends it: the extension and 2025-11-25."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.clocks import Clock
from tests.serve.talking import Talk, talking
from toolweave.errors import RequestError
from toolweave.protocol.meta import CLIENT_CAPABILITIES, SUBSCRIPTION_ID
from toolweave.serve import TaskRule
from toolweave.serve._changes import Changes
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._subscriptions import Listen
from toolweave.serve._tasks import LocalTasks, TasksFeature, TaskSupport
from toolweave.serve._tools import Tools
from toolweave.serve.request import Client, Json, Request
from toolweave.state import MemoryStore
from toolweave.tools import CallContext, Elicitation, ToolRegistry

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {"extensions": {EXTENSION: {}}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
RULES: Mapping[str, TaskSupport | TaskRule] = {
    "work": "optional",
    "hang": "required",
    "ask": "required",
    "huge": "required",
    "ask_first": TaskRule("required", ask_first=True),
}


class Shop:
    """A server with tasks, whose clock and bounds are a test's."""

    def __init__(self, *, store: MemoryStore | None = None, max_running: int = 1000, **options: Any) -> None:
        self.changes = Changes(debounce=0)
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock) if store is None else store
        self.go = anyio.Event()
        runner = HandlerRunner()
        here = LocalTasks(
            runner=runner, changes=self.changes, store=self.store, max_running=max_running, clock=self.clock
        )
        self.tasks = TasksFeature(RULES, runner=runner, backend=here, clock=self.clock, **options)
        tools = [self.work, self.hang, self.ask, self.huge, self.ask_first, self.plain]
        calls = Tools(ToolRegistry(tools), runner=runner, tasks=self.tasks)
        listen = Listen(self.changes, declared=dict[str, Any], filters={"taskIds": self.tasks})
        self.endpoint = Endpoint({"name": "shop", "version": "1"}, features=[calls, self.tasks, listen])

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as group:
            with self.tasks.within(group):
                yield
            group.cancel_scope.cancel()

    async def work(self, ctx: CallContext) -> str:
        await ctx.progress(1, 3)
        await ctx.log("info", "nobody reads this: a task has no stream")
        await self.go.wait()
        return "worked"

    async def hang(self, ctx: CallContext) -> str:
        await ctx.progress(1, message="hanging")
        await anyio.sleep_forever()
        return ""

    async def ask(self, ctx: CallContext) -> list[Any]:
        both = await ctx.ask(a=Elicitation("A?", NAME), b=Elicitation("B?", NAME))
        again = await ctx.elicit("A?", NAME, key="a")
        return [(one.content or {}).get("name") for one in (both["a"], both["b"], again)]

    async def ask_first(self, ctx: CallContext) -> str:
        name = await ctx.elicit("Who?", NAME, key="who")
        more = await ctx.elicit("And?", NAME, key="and")
        return f"{name.content} {more.content}"

    async def huge(self) -> str:
        return "x" * 100_000

    async def plain(self) -> str:
        return "plain"


def accept(name: str) -> Json:
    return {"action": "accept", "content": {"name": name}}


async def begun(talk: Talk, tool: str = "hang", **params: Any) -> Json:
    """Call a tool that becomes a task; return the task that the client receives."""
    return await talk.ask("tools/call", {"name": tool, **params})


async def until(talk: Talk, task: Json, *statuses: str) -> Json:
    """Look at a task until it has one of the statuses."""
    with anyio.fail_after(30):
        while True:
            shown = await talk.ask("tasks/get", {"taskId": task["taskId"]})
            if shown["status"] in statuses:
                return shown


async def refusal(talk: Talk, method: str, params: Json, **more: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        await talk.ask(method, params, **more)
    return refused.value


async def test_a_task_is_flat_and_says_when_to_look_and_for_how_long() -> None:
    shop = Shop(ttl_ms=60_000, poll_ms=250)
    async with talking(shop) as talk:
        task = await begun(talk)

    assert re.fullmatch(r"[\w-]{32}", task.pop("taskId"))
    assert task == {
        "resultType": "task",
        "status": "working",
        "createdAt": "1970-01-12T13:46:40.000Z",
        "lastUpdatedAt": "1970-01-12T13:46:40.000Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 250,
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "shop", "version": "1"}},
    }


async def test_progress_is_the_message_of_the_status_until_the_result_is_there() -> None:
    shop = Shop()
    async with talking(shop) as talk:
        task = await begun(talk, "work")
        while "statusMessage" not in (shown := await talk.ask("tasks/get", {"taskId": task["taskId"]})):
            pass
        shop.go.set()
        ended = await until(talk, task, "completed")

    assert (shown["status"], shown["statusMessage"]) == ("working", "1/3")
    assert ended["result"]["content"] == [{"type": "text", "text": "worked"}]
    assert ended["resultType"] == "complete"
    assert not {"statusMessage", "error", "inputRequests", "requestState"} & ended.keys()


async def test_a_cancelled_task_stays_cancelled_and_cancelling_again_is_fine() -> None:
    async with talking(Shop()) as talk:
        task = await begun(talk)
        first = await talk.ask("tasks/cancel", {"taskId": task["taskId"]})
        shown = await until(talk, task, "cancelled")
        second = await talk.ask("tasks/cancel", {"taskId": task["taskId"]})

    assert first.keys() == second.keys() == {"resultType", "_meta"}
    assert shown["statusMessage"] == "the client cancelled it"


async def test_questions_wait_until_all_are_answered_and_no_key_comes_twice() -> None:
    async with talking(Shop()) as talk:
        task = await begun(talk, "ask")
        both = await until(talk, task, "input_required")
        await talk.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {"x": 1, "a": accept("one")}})
        half = await until(talk, task, "input_required")
        await talk.ask(
            "tasks/update", {"taskId": task["taskId"], "inputResponses": {"a": accept("late"), "b": accept("two")}}
        )
        while "a-2" not in (again := await until(talk, task, "input_required"))["inputRequests"]:
            pass
        await talk.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {"a-2": accept("three")}})
        ended = await until(talk, task, "completed")

    assert [list(shown["inputRequests"]) for shown in (both, half, again)] == [["a", "b"], ["b"], ["a-2"]]
    assert both["inputRequests"]["a"] == {
        "method": "elicitation/create",
        "params": {"message": "A?", "requestedSchema": NAME},
    }
    assert json.loads(ended["result"]["content"][0]["text"]) == ["one", "two", "three"]


@pytest.mark.parametrize("answer", [5, None, {}, {"action": "perhaps"}, {"action": "accept", "content": {}}])
async def test_an_answer_that_is_none_is_refused_and_the_question_stays(answer: object) -> None:
    async with talking(Shop()) as talk:
        task = await begun(talk, "ask")
        await until(talk, task, "input_required")
        given = {"taskId": task["taskId"], "inputResponses": {"a": answer, "b": accept("two")}}
        refused = await refusal(talk, "tasks/update", given)
        shown = await until(talk, task, "input_required")

    assert refused.code == -32602
    assert list(shown["inputRequests"]) == ["a", "b"]


async def test_a_task_that_asks_first_begins_with_the_answers_and_may_ask_more() -> None:
    async with talking(Shop()) as talk:
        asked = await begun(talk, "ask_first")
        answers = {"inputResponses": {"who": accept("Alice")}, "requestState": asked["requestState"]}
        task = await begun(talk, "ask_first", **answers)
        shown = await until(talk, task, "input_required")
        await talk.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {"and": accept("Bob")}})
        ended = await until(talk, task, "completed")

    assert (asked["resultType"], task["resultType"]) == ("input_required", "task")
    assert "taskId" not in asked
    assert not {"requestState", "inputRequests"} & task.keys()
    assert list(shown["inputRequests"]) == ["and"]
    assert ended["result"]["content"][0]["text"] == "{'name': 'Alice'} {'name': 'Bob'}"


async def test_a_task_does_not_begin_with_a_state_that_was_tampered_with() -> None:
    async with talking(Shop()) as talk:
        asked = await begun(talk, "ask_first")
        forged = {"inputResponses": {"who": accept("Alice")}, "requestState": asked["requestState"] + "x"}
        refused = await refusal(talk, "tools/call", {"name": "ask_first", **forged})

    assert refused.code == -32602


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_only_who_declares_the_extension_asks_about_tasks_and_unknown_ones_are_unknown(method: str) -> None:
    async with talking(Shop()) as talk:
        params: Json = {"taskId": "unknown", "inputResponses": {}}
        undeclared = await refusal(talk, method, params, **{CLIENT_CAPABILITIES: {"extensions": {}}})
        unknown = await refusal(talk, method, params)
        malformed = await refusal(talk, method, {"taskId": 5})

    assert (undeclared.code, undeclared.data) == (-32021, {"requiredCapabilities": DECLARED})
    assert (unknown.code, malformed.code) == (-32602, -32602)


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
async def test_what_the_extension_took_away_is_not_there(method: str) -> None:
    async with talking(Shop()) as talk:
        refused = await refusal(talk, method, {"taskId": "x"})

    assert refused.code == -32601


async def test_a_tool_that_must_be_a_task_says_which_capability_is_missing() -> None:
    async with talking(Shop(), capabilities={}) as talk:
        refused = await refusal(talk, "tools/call", {"name": "hang"})
        plain = await begun(talk, "plain")

    assert (refused.code, refused.data) == (-32021, {"requiredCapabilities": DECLARED})
    assert plain["resultType"] == "complete"


async def test_a_param_of_the_older_form_makes_no_task() -> None:
    async with talking(Shop()) as talk:
        plain = await begun(talk, "plain", task={"ttl": 1})

    assert plain["resultType"] == "complete"


async def test_nobody_else_sees_a_task() -> None:
    shop = Shop()

    async def ask(principal: str | None, method: str, **params: Any) -> Json:
        client = Client(version="2026-07-28", capabilities=DECLARED, principal=principal)
        params["_meta"] = {CLIENT_CAPABILITIES: DECLARED}
        return await shop.endpoint.answer(
            Request(method=method, params=params, client=client, reply_channel=Nobody(), id=1)
        )

    async with shop.running():
        task = await ask("alice", "tools/call", name="hang")
        done = await ask("alice", "tools/call", name="huge")
        await anyio.wait_all_tasks_blocked()
        for one in (task, done):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                for stranger in ("bob", None):
                    with pytest.raises(RequestError, match="Unknown task") as refused:
                        await ask(stranger, method, taskId=one["taskId"], inputResponses={})
                    assert refused.value.code == -32602
        assert await shop.tasks.current(as_listener("bob"), [task["taskId"], done["taskId"]]) == {}
        mine = await shop.tasks.current(as_listener("alice"), [task["taskId"], done["taskId"]])
        assert [one["status"] for one in mine.values()] == ["working", "completed"]


async def test_nobody_hears_of_the_task_of_another() -> None:
    shop = Shop()
    line = Recorded()

    async def ask(principal: str, method: str, number: int, **params: Any) -> Json:
        client = Client(version="2026-07-28", capabilities=DECLARED, principal=principal)
        return await shop.endpoint.answer(
            Request(method=method, params=params, client=client, reply_channel=line, id=number)
        )

    async with shop.running():
        alice = await ask("alice", "tools/call", 1, name="work")
        bob = await ask("bob", "tools/call", 2, name="work")
        async with anyio.create_task_group() as listeners:
            wanted = {"taskIds": [alice["taskId"], bob["taskId"]]}
            listeners.start_soon(lambda: ask("bob", "subscriptions/listen", 3, notifications=wanted))
            await line.until("working")
            shop.go.set()
            await line.until("completed")
            shop.changes.close()

    acknowledged = line.received[0]
    assert acknowledged["notifications"] == {"taskIds": [bob["taskId"]]}
    assert {one["taskId"] for one in line.received[1:]} == {bob["taskId"]}


def as_listener(principal: str) -> Request:
    client = Client(version="2026-07-28", capabilities=DECLARED, principal=principal)
    return Request(method="subscriptions/listen", params={}, client=client, reply_channel=Nobody(), id=2)


class Nobody:
    """The line to a client that only waits for its answer."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None: ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        raise RequestError("nobody is there", code=-32603)

    async def release(self) -> None: ...


@pytest.mark.parametrize("header", [None, "", "another"])
async def test_over_http_the_routing_header_names_the_task(header: str | None) -> None:
    shop = Shop()
    client = Client(version="2026-07-28", capabilities=DECLARED)

    async def get(name: str, headers: Mapping[str, str]) -> Json:
        params = {"taskId": name}
        asked = Request(method="tasks/get", params=params, client=client, reply_channel=Nobody(), id=1, headers=headers)
        return await shop.endpoint.answer(asked)

    async with shop.running():
        call = Request(method="tools/call", params={"name": "hang"}, client=client, reply_channel=Nobody(), id=1)
        name = (await shop.endpoint.answer(call))["taskId"]
        headers = {"mcp-method": "tasks/get"} | ({} if header is None else {"mcp-name": header})
        with pytest.raises(RequestError) as refused:
            await get(name, headers)
        shown = await get(name, {"mcp-name": f" {name} "})

    assert refused.value.code == -32020
    assert shown["taskId"] == name


class Recorded(Nobody):
    """The line to a client that only listens."""

    def __init__(self) -> None:
        self.received: list[Json] = []
        self._news = anyio.Event()

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.received.append(dict(params))
        news = self._news
        self._news = anyio.Event()
        news.set()

    async def until(self, status: str) -> None:
        """Wait until a task with this status was received."""
        while status not in [one.get("status") for one in self.received]:
            await self._news.wait()


@pytest.mark.parametrize(("wished", "given"), [
    (5_000, 5_000), (10**12, 60_000), (0, 60_000), (-1, 60_000), (True, 60_000), (None, 60_000), ("5", 60_000)
])  # fmt: skip
async def test_a_client_may_wish_for_a_shorter_ttl_only(wished: object, given: int) -> None:
    async with talking(Shop(ttl_ms=60_000), "2025-11-25") as talk:
        task = (await begun(talk, task={"ttl": wished}))["task"]

    assert task["ttl"] == given


async def test_a_task_is_known_until_its_ttl_and_a_minute_after_its_end_but_not_for_ever() -> None:
    shop = Shop(ttl_ms=600_000)
    shop.go.set()
    async with talking(shop) as talk:
        task = await begun(talk, "work")
        await until(talk, task, "completed")
        shop.clock.now += 599
        assert (await until(talk, task, "completed"))["ttlMs"] == 600_000
        shop.clock.now += 61
        unknown = await refusal(talk, "tasks/get", {"taskId": task["taskId"]})

    assert unknown.code == -32602


async def test_work_that_takes_longer_than_its_ttl_fails() -> None:
    shop = Shop(ttl_ms=1)
    async with talking(shop) as talk:
        task = await begun(talk)
        shown = await until(talk, task, "failed")

    assert shown["error"] == {"code": -32603, "message": "the task took longer than it may"}


async def test_tasks_end_with_the_block_that_they_run_within() -> None:
    shop = Shop()
    client = Client(version="2026-07-28", capabilities={**DECLARED, "elicitation": {}})
    async with anyio.create_task_group() as group:
        with shop.tasks.within(group):
            for tool in ("hang", "ask"):
                call = Request(method="tools/call", params={"name": tool}, client=client, reply_channel=Nobody(), id=1)
                await shop.endpoint.answer(call)
            await anyio.wait_all_tasks_blocked()

    kept = await shop.store.scan("tasks")
    assert [(one.value["task"]["status"], one.value["task"]["statusMessage"]) for one in kept] == [
        ("cancelled", "the server stopped"),
        ("cancelled", "the server stopped"),
    ]


async def test_a_server_that_is_not_served_takes_no_task_on(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    client = Client(version="2026-07-28", capabilities=DECLARED)
    call = Request(method="tools/call", params={"name": "hang"}, client=client, reply_channel=Nobody(), id=1)
    with pytest.raises(RequestError, match="Internal error"):
        await shop.endpoint.answer(call)

    assert "tasks run only while their server is served" in caplog.text


async def test_no_more_tasks_run_than_the_bound_and_one_that_ends_makes_room() -> None:
    shop = Shop(max_running=2)
    async with talking(shop) as talk:
        first = await begun(talk)
        await begun(talk)
        refused = await refusal(talk, "tools/call", {"name": "hang"})
        await talk.ask("tasks/cancel", {"taskId": first["taskId"]})
        while True:
            try:
                third = await begun(talk)
                break
            except RequestError:
                continue

    assert "no more tasks can be taken on now" in refused.message
    assert third["status"] == "working"


async def test_a_result_that_the_store_has_no_room_for_is_a_failure_that_says_so() -> None:
    shop = Shop(store=MemoryStore(max_bytes=10_000))
    async with talking(shop) as talk:
        task = await begun(talk, "huge")
        while (shown := await until(talk, task, "completed", "failed"))["status"] != "failed":
            pass

    assert shown["error"]["message"] == "the outcome cannot be kept"


async def test_a_full_store_takes_no_task_on() -> None:
    shop = Shop(store=MemoryStore(max_documents=0))
    async with talking(shop) as talk:
        refused = await refusal(talk, "tools/call", {"name": "hang"})

    assert refused.code == -32603
    assert "try again later" in refused.message


async def test_listening_to_a_task_tells_of_its_state_now_and_of_every_change() -> None:
    shop = Shop()
    async with talking(shop) as talk:
        task = await begun(talk, "work")
        other = await begun(talk)
        wanted = {"notifications": {"taskIds": [task["taskId"], "unknown"]}}
        number = await talk.send("subscriptions/listen", wanted)
        await talk.received("notifications/tasks")
        shop.go.set()
        await talk.until(lambda: talk.of("notifications/tasks")[-1]["status"] == "completed")
        received = talk.of("notifications/tasks")
        shown = await until(talk, task, "completed")

    (acknowledged,) = talk.of("notifications/subscriptions/acknowledged")
    assert acknowledged["notifications"] == {"taskIds": [task["taskId"]]}
    assert received[0]["status"] == "working"
    assert all(one["_meta"] == {SUBSCRIPTION_ID: number} for one in received)
    assert other["taskId"] not in {one["taskId"] for one in received}
    stamps = ("resultType", "_meta")
    assert {name: value for name, value in received[-1].items() if name != "_meta"} == {
        name: value for name, value in shown.items() if name not in stamps
    }


async def test_listening_to_tasks_needs_the_extension() -> None:
    async with talking(Shop(), capabilities={}) as talk:
        refused = await refusal(talk, "subscriptions/listen", {"notifications": {"taskIds": []}})

    assert (refused.code, refused.data) == (-32021, {"requiredCapabilities": DECLARED})


async def test_the_older_form_wraps_the_task_and_its_result_is_a_request_that_waits() -> None:
    shop = Shop()
    async with talking(shop, "2025-11-25") as talk:
        tools = {tool["name"]: tool for tool in (await talk.ask("tools/list"))["tools"]}
        created = await begun(talk, "work", task={"ttl": 5_000})
        task = created["task"]
        number = await talk.send("tasks/result", {"taskId": task["taskId"]})
        shown = await talk.ask("tasks/get", {"taskId": task["taskId"]})
        shop.go.set()
        result = await talk.result(number)

    assert tools["work"]["execution"] == {"taskSupport": "optional"}
    assert "execution" not in tools["plain"]
    assert created.keys() == {"task"}
    assert task.keys() == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    assert (task["ttl"], shown["status"]) == (5_000, "working")
    assert result["content"] == [{"type": "text", "text": "worked"}]
    assert result["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task["taskId"]}}


async def test_the_older_form_cancels_a_task_once_and_gives_no_result_of_it() -> None:
    async with talking(Shop(), "2025-11-25") as talk:
        task = (await begun(talk, task={}))["task"]
        cancelled = await talk.ask("tasks/cancel", {"taskId": task["taskId"]})
        again = await refusal(talk, "tasks/cancel", {"taskId": task["taskId"]})
        result = await refusal(talk, "tasks/result", {"taskId": task["taskId"]})

    assert cancelled["status"] == "cancelled"
    assert (again.code, result.code) == (-32602, -32602)


async def test_the_older_form_refuses_what_does_not_fit_a_tool() -> None:
    async with talking(Shop(), "2025-11-25") as talk:
        no_task = await refusal(talk, "tools/call", {"name": "plain", "task": {}})
        only_task = await refusal(talk, "tools/call", {"name": "hang"})
        malformed = await refusal(talk, "tools/call", {"name": "hang", "task": 5})

    assert (no_task.code, only_task.code, malformed.code) == (-32601, -32601, -32602)


@pytest.mark.parametrize(
    ("version", "declared"),
    [("2024-11-05", False), ("2025-03-26", False), ("2025-06-18", False), ("2025-11-25", True)],
)
async def test_the_capability_of_tasks_is_declared_in_its_own_revision_alone(version: str, declared: bool) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    agreed = await Shop().endpoint.answer(
        Request(method="initialize", params=params, client=Client(version=version), reply_channel=Nobody(), id=1)
    )

    assert agreed["protocolVersion"] == version
    assert ("tasks" in agreed["capabilities"]) is declared
