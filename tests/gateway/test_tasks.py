"""Tasks of upstreams through a gateway, in the forms of both eras, under ids that nobody else can use."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.gateway.upstreams import LEGACY, MODERN, Json, caller
from tests.serve.raw import Raw
from toolweave import CallContext, McpServer, ToolError, create_mcp_server
from toolweave.errors import RequestError
from toolweave.gateway import Gateway, create_gateway
from toolweave.serve import CallNext, Request

TASKS = "io.modelcontextprotocol/tasks"
ABLE: Json = {"elicitation": {}, "extensions": {TASKS: {}}}
ENDED = ("completed", "failed", "cancelled")


@dataclass
class Wish:
    """An answer of the user."""

    city: str


class Slow:
    """An upstream with tools that become tasks.

    Attributes:
        server: The server.
        go: Lets `slow` end.
    """

    def __init__(self, support: Any = "optional", **options: Any) -> None:
        self.go = anyio.Event()
        self.server: McpServer = create_mcp_server(
            name="slow", version="1", tasks={"slow": support, "wrong": support, "asks": support}, **options
        )
        self.server.tool(self.slow)
        self.server.tool(self.wrong)
        self.server.tool(self.asks)

    async def slow(self, ctx: CallContext) -> dict[str, int]:
        await self.go.wait()
        return {"n": 1}

    async def wrong(self) -> str:
        raise ToolError("no luck")

    async def asks(self, ctx: CallContext) -> str:
        answer = await ctx.elicit("Where to?", Wish)
        return answer.value.city if answer.value else "nowhere"


def before(slow: Slow, protocol: str = "auto", **options: Any) -> Gateway:
    """Return a gateway before an upstream, which speaks a revision."""
    return create_gateway({"up": {"server": slow.server, "protocol": protocol}}, **options)


async def request(raw: Raw, method: str, **params: Any) -> Json:
    """Make a request as a caller that takes tasks; return the result.

    Raises:
        AssertionError: The answer is an error.
    """
    answer = await ask(raw, method, **params)
    assert "result" in answer, answer
    return answer["result"]


async def ask(raw: Raw, method: str, **params: Any) -> Json:
    """Make a request as a caller that takes tasks; return the whole answer."""
    if raw.version == MODERN:
        params["_meta"] = {"io.modelcontextprotocol/clientCapabilities": ABLE}
    return await raw.ask(raw.request(method, params))


async def ended(raw: Raw, task_id: str) -> Json:
    """Return a task once it has ended."""
    while True:
        found = await request(raw, "tasks/get", taskId=task_id)
        if found["status"] in ENDED:
            return found
        await anyio.sleep(0.02)


async def test_a_call_that_becomes_a_task_upstream_is_a_task_of_the_caller() -> None:
    slow = Slow()
    async with caller(before(slow), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_slow", arguments={})
        running = await request(raw, "tasks/get", taskId=created["taskId"])
        slow.go.set()
        found = await ended(raw, created["taskId"])

    assert created["resultType"] == "task"
    assert running["status"] == "working"
    assert {one["taskId"] for one in (created, running, found)} == {created["taskId"]}
    assert found["result"]["structuredContent"] == {"n": 1}


async def test_a_tool_that_needs_a_task_at_a_legacy_upstream_is_one_of_the_extension() -> None:
    slow = Slow("required")
    async with caller(before(slow, "legacy"), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_slow", arguments={})
        running = await request(raw, "tasks/get", taskId=created["taskId"])
        slow.go.set()
        found = await ended(raw, created["taskId"])

    assert created["resultType"] == "task"
    assert {"ttlMs", "pollIntervalMs", "createdAt"} <= running.keys()
    assert not {"ttl", "pollInterval"} & running.keys()
    assert (found["status"], found["result"]["structuredContent"]) == ("completed", {"n": 1})


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_task_whose_tool_failed_has_completed_with_that_result(protocol: str) -> None:
    async with caller(before(Slow("required"), protocol), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_wrong", arguments={})
        found = await ended(raw, created["taskId"])

    assert found["status"] == "completed"
    assert found["result"]["isError"] is True
    assert found["result"]["content"][0]["text"] == "no luck"


async def test_a_legacy_caller_has_the_task_of_a_legacy_upstream() -> None:
    slow = Slow()
    gateway = before(slow, "legacy")
    async with caller(gateway, LEGACY) as raw:
        answer = await request(raw, "tools/call", name="up_slow", arguments={}, task={"ttl": 60_000})
        created = answer["task"]
        running = await request(raw, "tasks/get", taskId=created["taskId"])
        slow.go.set()
        result = await request(raw, "tasks/result", taskId=created["taskId"])
        found = await ended(raw, created["taskId"])

    assert {one["taskId"] for one in (created, running, found)} == {created["taskId"]}
    assert running["status"] == "working"
    assert result["structuredContent"] == {"n": 1}
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": created["taskId"]}


@pytest.mark.slow
async def test_a_caller_without_tasks_gets_the_result_itself() -> None:
    slow = Slow("required")
    slow.go.set()
    for protocol, version in (("legacy", MODERN), ("legacy", LEGACY), ("auto", LEGACY)):
        async with caller(before(slow, protocol), version) as raw:
            answer = await raw.ask(raw.request("tools/call", {"name": "up_slow", "arguments": {}}))
        assert answer["result"]["structuredContent"] == {"n": 1}, (protocol, version)


@pytest.mark.slow
@pytest.mark.parametrize("version", [LEGACY, "2025-06-18"])
async def test_a_caller_that_asked_for_logs_gets_the_result_of_a_call_that_became_a_task(version: str) -> None:
    slow = Slow(logging=True)
    slow.go.set()
    async with caller(before(slow, MODERN), version) as raw:
        await raw.ask(raw.request("logging/setLevel", {"level": "info"}))
        answer = await raw.ask(raw.request("tools/call", {"name": "up_slow", "arguments": {}}))

    assert answer["result"].get("structuredContent") == {"n": 1}, answer


async def test_tasks_are_declared_where_an_upstream_has_them() -> None:
    plain = create_mcp_server(name="plain", version="1")
    for server, protocol, version, wanted in (
        (Slow().server, "auto", MODERN, True),
        (Slow().server, "legacy", MODERN, True),
        (Slow().server, "legacy", LEGACY, True),
        (Slow().server, MODERN, LEGACY, True),
        (plain, "auto", MODERN, False),
        (plain, "legacy", LEGACY, False),
    ):
        gateway = create_gateway({"up": {"server": server, "protocol": protocol}})
        async with caller(gateway, version):
            found = gateway.endpoint.capabilities(modern=version == MODERN)
        declared = TASKS in found.get("extensions", {}) if version == MODERN else "tasks" in found
        assert declared is wanted, (protocol, version)


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_cancelled_task_is_cancelled_upstream(protocol: str) -> None:
    slow = Slow("required")
    async with caller(before(slow, protocol), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_slow", arguments={})
        await request(raw, "tasks/cancel", taskId=created["taskId"])
        found = await ended(raw, created["taskId"])
        await request(raw, "tasks/cancel", taskId=created["taskId"])  # no error, though it has ended

    assert found["status"] == "cancelled"


async def test_the_questions_of_a_task_reach_the_caller_and_the_answers_the_upstream() -> None:
    async with caller(before(Slow()), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_asks", arguments={})
        while (found := await request(raw, "tasks/get", taskId=created["taskId"]))["status"] == "working":
            await anyio.sleep(0.02)
        ((key, question),) = found["inputRequests"].items()
        answers = {key: {"action": "accept", "content": {"city": "Oslo"}}}
        await request(raw, "tasks/update", taskId=created["taskId"], inputResponses=answers)
        result = (await ended(raw, created["taskId"]))["result"]

    assert question["params"]["message"] == "Where to?"
    assert result["content"][0]["text"] == "Oslo"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_listen_stream_tells_of_the_end_of_a_task(protocol: str) -> None:
    slow = Slow("required")
    async with caller(before(slow, protocol), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_slow", arguments={})
        listen = raw.request("subscriptions/listen", {"notifications": {"taskIds": [created["taskId"], "t1.a.b.c"]}})
        listen["params"]["_meta"] = {
            **listen["params"]["_meta"],
            "io.modelcontextprotocol/clientCapabilities": ABLE,
        }
        await raw.send(listen)
        acknowledged = await raw.receive()
        slow.go.set()
        statuses: list[str] = []
        while not statuses or statuses[-1] not in ENDED:
            told = await raw.receive()
            assert told["params"]["taskId"] == created["taskId"]
            statuses.append(told["params"]["status"])

    assert acknowledged["params"]["notifications"] == {"taskIds": [created["taskId"]]}
    assert statuses[-1] == "completed"


@asynccontextmanager
async def listening(slow: Slow) -> AsyncGenerator[tuple[Raw, Gateway]]:
    """Speak to a gateway before an upstream, and listen to a task of its, which has begun."""
    gateway = before(slow)
    async with caller(gateway, MODERN) as raw:
        created = await request(raw, "tools/call", name="up_slow", arguments={})
        listen = raw.request("subscriptions/listen", {"notifications": {"taskIds": [created["taskId"]]}})
        listen["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = ABLE
        await raw.send(listen)
        assert (await raw.receive())["params"]["notifications"] == {"taskIds": [created["taskId"]]}
        yield raw, gateway


async def ended_by_notification(raw: Raw) -> str:
    """Return the last status that a listener to one task is told of."""
    while (status := (await raw.receive())["params"]["status"]) not in ENDED:
        pass
    return status


async def test_a_listener_hears_at_once_what_the_upstream_says_of_a_task() -> None:
    filters: list[Any] = []

    async def patient(asked: Request, call_next: CallNext) -> Json:
        if asked.method == "subscriptions/listen":
            filters.append(asked.params["notifications"].get("taskIds"))
        result = await call_next(asked)
        return {**result, "pollIntervalMs": 3_600_000} if "pollIntervalMs" in result else result

    slow = Slow("required", middleware=[patient])
    async with listening(slow) as (raw, _):
        while not filters or filters[-1] is None:
            await anyio.sleep(0.01)
        slow.go.set()
        assert await ended_by_notification(raw) == "completed"
        while filters[-1] is not None:
            await anyio.sleep(0.01)  # the stream goes on without it


@pytest.mark.slow
async def test_an_upstream_that_says_nothing_of_tasks_is_asked_and_goes_on_telling_of_its_lists() -> None:
    async def refusing(asked: Request, call_next: CallNext) -> Json:
        if "taskIds" in asked.params.get("notifications", {}):
            raise RequestError("not of tasks", code=-32602)
        return await call_next(asked)

    slow = Slow("required", middleware=[refusing])
    async with listening(slow) as (raw, gateway):
        slow.go.set()
        assert await ended_by_notification(raw) == "completed"
        slow.server.tool(name="more")(slow.wrong)
        while "up_more" not in gateway.tools.snapshot().by_name:
            await anyio.sleep(0.01)


async def test_an_id_that_was_changed_or_made_up_is_no_task() -> None:
    slow = Slow()
    async with caller(before(slow), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_slow", arguments={})
        form, server, own, signature = created["taskId"].split(".")
        forged = [
            "nothing",
            ".".join((form, server, own, "A" * len(signature))),
            ".".join((form, server, own + "AA", signature)),
            ".".join((form, "b3RoZXI", own, signature)),
            created["taskId"] + "=",
            "t1." + "A" * 10_000 + ".a.b",
        ]
        codes = [(await ask(raw, "tasks/get", taskId=name))["error"]["code"] for name in forged]

    assert codes == [-32602] * len(forged)


async def test_the_task_of_one_gateway_is_known_to_another_with_the_same_keys_alone() -> None:
    slow, keys = Slow(), ["k" * 32]
    slow.go.set()
    async with caller(before(slow, state_keys=keys), MODERN) as raw:
        created = await request(raw, "tools/call", name="up_slow", arguments={})
        async with caller(before(slow, state_keys=["n" * 32, *keys]), MODERN) as other:
            found = await request(other, "tasks/get", taskId=created["taskId"])
        async with caller(before(slow), MODERN) as stranger:
            refused = await ask(stranger, "tasks/get", taskId=created["taskId"])

    assert found["taskId"] == created["taskId"]
    assert refused["error"]["code"] == -32602


async def test_a_caller_that_did_not_declare_the_extension_may_not_ask() -> None:
    async with caller(before(Slow()), MODERN) as raw:
        answer = await raw.ask(raw.request("tasks/get", {"taskId": "t1.a.b.c"}))

    assert answer["error"]["code"] == -32021


async def test_a_legacy_caller_has_the_task_of_a_modern_upstream_in_its_own_form() -> None:
    slow = Slow()
    async with caller(before(slow, MODERN), LEGACY) as raw:
        listed = (await request(raw, "tools/list"))["tools"]
        created = (await request(raw, "tools/call", name="up_slow", arguments={}, task={}))["task"]
        running = await request(raw, "tasks/get", taskId=created["taskId"])
        slow.go.set()
        result = await request(raw, "tasks/result", taskId=created["taskId"])
        found = await request(raw, "tasks/get", taskId=created["taskId"])
        over = await ask(raw, "tasks/cancel", taskId=created["taskId"])

    assert {tool["execution"]["taskSupport"] for tool in listed} == {"optional"}
    assert {"ttl", "pollInterval"} <= running.keys()
    assert not {"ttlMs", "resultType", "result"} & running.keys()
    assert [one["status"] for one in (created, running, found)] == ["working", "working", "completed"]
    assert result["structuredContent"] == {"n": 1}
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": created["taskId"]}
    assert over["error"]["code"] == -32602


async def test_a_legacy_caller_that_wants_a_task_gets_one_of_a_call_that_is_over() -> None:
    server = create_mcp_server(name="quick", version="1", tasks={"other": "optional"})

    async def quick() -> dict[str, int]:
        return {"n": 2}

    server.tool(quick)
    gateway = create_gateway({"up": {"server": server, "protocol": MODERN}})
    async with caller(gateway, LEGACY) as raw:
        created = (await request(raw, "tools/call", name="up_quick", arguments={}, task={}))["task"]
        found = await request(raw, "tasks/get", taskId=created["taskId"])
        result = await request(raw, "tasks/result", taskId=created["taskId"])
        over = await ask(raw, "tasks/cancel", taskId=created["taskId"])

    assert (created["status"], found["status"]) == ("completed", "completed")
    assert result["structuredContent"] == {"n": 2}
    assert over["error"]["code"] == -32602


async def test_the_questions_of_a_modern_task_reach_a_legacy_caller_while_it_waits() -> None:
    gateway = before(Slow(), MODERN)
    async with caller(gateway, LEGACY, elicitation={}) as raw:
        created = (await request(raw, "tools/call", name="up_asks", arguments={}, task={}))["task"]
        await raw.send(raw.request("tasks/result", {"taskId": created["taskId"]}, id="result"))
        question = await raw.receive()
        answer = {"action": "accept", "content": {"city": "Oslo"}}
        await raw.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        result = await raw.receive()

    assert question["method"] == "elicitation/create"
    assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": created["taskId"]}
    assert result["result"]["content"][0]["text"] == "Oslo"


async def test_a_refused_question_ends_the_task() -> None:
    async with caller(before(Slow(), MODERN), LEGACY, elicitation={}) as raw:
        created = (await request(raw, "tools/call", name="up_asks", arguments={}, task={}))["task"]
        await raw.send(raw.request("tasks/result", {"taskId": created["taskId"]}, id="result"))
        question = await raw.receive()
        refusal = {"code": -1, "message": "not now"}
        await raw.send({"jsonrpc": "2.0", "id": question["id"], "error": refusal})
        result = await raw.receive()
        found = await ended(raw, created["taskId"])

    assert result["error"]["message"].endswith("not now")
    assert found["status"] == "cancelled"


async def test_a_tool_that_cannot_be_a_task_refuses_one() -> None:
    plain = create_mcp_server(name="plain", version="1", tasks={"other": "optional"})

    async def quick() -> str:
        return "x"

    plain.tool(quick)
    gateway = create_gateway({"up": {"server": plain, "protocol": "legacy"}})
    async with caller(gateway, LEGACY) as raw:
        answer = await ask(raw, "tools/call", name="up_quick", arguments={}, task={})

    assert answer["error"]["code"] == -32601


@pytest.mark.parametrize(("protocol", "version"), [(MODERN, LEGACY), ("legacy", LEGACY)])
async def test_a_legacy_caller_cancels_a_task(protocol: str, version: str) -> None:
    async with caller(before(Slow(), protocol), version) as raw:
        created = (await request(raw, "tools/call", name="up_slow", arguments={}, task={}))["task"]
        cancelled = await request(raw, "tasks/cancel", taskId=created["taskId"])
        result = await ask(raw, "tasks/result", taskId=created["taskId"])

    assert (cancelled["taskId"], cancelled["status"]) == (created["taskId"], "cancelled")
    assert result["error"]["code"] == -32602
