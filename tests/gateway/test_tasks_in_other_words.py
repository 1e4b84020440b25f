"""Tasks of upstreams in other words than those of the specification, as a gateway shows them to its callers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.connect.scripted import HttpScript, listening
from tests.gateway.test_tasks import ended, request
from tests.gateway.upstreams import LEGACY, MODERN, Json, caller
from tests.serve.raw import Raw
from toolweave.gateway import Gateway, create_gateway

DONE: Json = {"content": [{"type": "text", "text": "made"}]}


@asynccontextmanager
async def asking(version: str, created: Json, later: Json, *, is_wrapped: bool = False) -> AsyncGenerator[Raw]:
    """Yield a caller behind a gateway before a server of 2025-11-25, whose task has these members first and later."""
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    plain = {"taskId": "7", **times, "ttl": 60_000, "pollInterval": 50}
    tool = {"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    now = {**plain, **later}
    results: dict[str, Any] = {
        "tools/list": {"tools": [tool]},
        "tools/call": {"task": {**plain, "status": "working", **created}},
        "tasks/get": {"task": now} if is_wrapped else now,
        "tasks/result": DONE,
        "tasks/cancel": {**plain, "status": "canceled"},
    }

    able: Json = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
    info = {"name": "s", "version": "1"}
    results["initialize"] = {"protocolVersion": LEGACY, "capabilities": able, "serverInfo": info}

    def script(message: Json) -> Json | None:
        found = results.get(message["method"])
        if found is None:
            return {"error": {"code": -32601, "message": "Method not found"}}
        return {"result": found}

    async with listening(HttpScript(script).handle) as (url, _), caller(before(url), version) as raw:
        yield raw


def before(url: str) -> Gateway:
    return create_gateway({"up": {"url": url}})


async def called(raw: Raw) -> Json:
    """Return the task that the call of the tool becomes."""
    more: Json = {} if raw.version == MODERN else {"task": {}}
    created = await request(raw, "tools/call", name="up_t", arguments={}, **more)
    return created if raw.version == MODERN else created["task"]


@pytest.mark.parametrize("version", [MODERN, LEGACY])
@pytest.mark.parametrize(
    ("created", "later"),
    [
        ({}, {"status": "Completed"}),
        ({"status": "running"}, {"status": "done"}),
        ({"status": "in_progress"}, {"status": "success"}),
        ({"status": "submitted", "poll_interval": 50}, {"status": "SUCCEEDED"}),
        ({"status": "pending", "pollInterval": "50"}, {"status": "complete", "ttl": "60000"}),
    ],
)
async def test_a_task_in_other_words_ends_for_the_caller_of_a_gateway(version: str, created: Json, later: Json) -> None:
    async with asking(version, created, later) as raw:
        task = await called(raw)
        assert task["status"] == "working"
        found = await ended(raw, task["taskId"])

    assert found["status"] == "completed"
    if version == MODERN:
        assert found["result"]["content"] == DONE["content"]


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_task_in_an_object_of_its_answer_ends_for_the_caller_of_a_gateway(version: str) -> None:
    async with asking(version, {}, {"status": "completed"}, is_wrapped=True) as raw:
        found = await ended(raw, (await called(raw))["taskId"])

    assert found["status"] == "completed"


@pytest.mark.parametrize("word", ["error", "failure", "FAILED"])
async def test_a_task_that_failed_in_other_words_has_failed_for_the_caller_of_a_gateway(word: str) -> None:
    async with asking(LEGACY, {}, {"status": word}) as raw:
        found = await ended(raw, (await called(raw))["taskId"])

    assert found["status"] == "failed"


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_task_without_a_status_is_passed_on_as_it_is(version: str) -> None:
    async with asking(version, {}, {}) as raw:
        task = await called(raw)
        found = await request(raw, "tasks/get", taskId=task["taskId"])

    assert "status" not in found
    assert found["taskId"] == task["taskId"]
