"""The end of each request as one event for those that only watch."""

from __future__ import annotations

import anyio
import pytest

from tests.middleware.company import caller, company, token_of
from toolweave.errors import RequestError
from toolweave.middleware import Observers, RequestEnd

ADA = token_of("ada")


async def test_an_event_reports_who_asked_for_what_and_what_came_of_it() -> None:
    ends: list[RequestEnd] = []
    server = company(Observers(ends.append))

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no such thing")

    ada = caller(ADA)
    await ada.call(server, "find", {"text": "it"})
    await ada.call(server, "fail")
    with pytest.raises(RequestError):
        await ada.call(server, "missing")
    await server.endpoint.answer(ada.request("resources/read", uri="notes://diary"))

    assert [(one.method, one.name, one.outcome) for one in ends] == [
        ("tools/call", "find", "ok"),
        ("tools/call", "fail", "tool_error"),
        ("tools/call", "missing", "error"),
        ("resources/read", "notes://diary", "ok"),
    ]
    assert [one.arguments for one in ends] == [{"text": "it"}, {}, {}, None]
    assert ["no such thing" in one.error for one in ends] == [False, True, False, False]
    assert isinstance(ends[2].exception, RequestError)
    assert ends[2].error == ends[2].exception.message
    assert all(one.client.principal == ada.client.principal and one.seconds > 0 for one in ends)


async def test_a_request_whose_caller_leaves_ends_as_cancelled() -> None:
    ends: list[RequestEnd] = []
    begun = anyio.Event()

    server = company(Observers(ends.append))

    @server.tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as group:
        group.start_soon(caller(ADA).call, server, "wait")
        await begun.wait()
        group.cancel_scope.cancel()

    assert [(one.name, one.outcome, one.error, one.result) for one in ends] == [("wait", "cancelled", "", None)]


async def test_an_observer_that_fails_is_logged_and_costs_neither_the_request_nor_other_observers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends: list[RequestEnd] = []

    def broken(end: RequestEnd) -> None:
        raise RuntimeError("a broken observer")

    server = company(Observers(broken, ends.append))

    result = await caller(ADA).call(server, "find", {"text": "it"})

    assert result["content"][0]["text"] == "found it"
    assert [one.name for one in ends] == ["find"]
    assert "an observer of requests failed at tools/call" in caplog.text
