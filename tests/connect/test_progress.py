"""Progress of calls: delivered in order, before the result, in the caller's context, and on the way of every call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest

import toolweave
from tests.connect.targets import EACH_WAY, connected, serving
from tests.servers.fixtures import echo_command
from toolweave import Callbacks, McpConnection, Progress
from toolweave.connect import ElicitationResult

SOURCE = str(Path(toolweave.__file__).parent)
CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


@EACH_WAY
async def test_progress_is_delivered_in_order_and_before_the_result_to_a_slow_callback(kind: str, version: str) -> None:
    seen: list[float] = []

    async def slow(progress: Progress) -> None:
        await anyio.sleep(0.02)
        seen.append(progress.progress)

    async with connected(serving(kind, version)) as connection:
        result = await connection.call_tool("slow", {"seconds": 0.05, "steps": 5}, on_progress=slow)

    assert not result.is_error
    assert seen == sorted(seen)
    assert len(seen) == 5


async def test_a_call_that_is_cancelled_cancels_the_callback_that_runs() -> None:
    begun = anyio.Event()
    ends: list[str] = []

    async def endless(_progress: Progress) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async with connected(echo_command()) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: connection.call_tool("slow", {"seconds": 0.03, "steps": 3}, on_progress=endless))
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert (await connection.call_tool("echo", {"text": "on"})).text == "on"

    assert ends == ["cancelled"]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_callback_runs_in_the_context_of_its_caller(asynchronous: bool) -> None:
    seen: set[str] = set()

    def note(_progress: Progress) -> None:
        seen.add(CALLER.get())

    async def note_later(progress: Progress) -> None:
        note(progress)

    async with connected(echo_command()) as connection:
        CALLER.set("Ada")
        await connection.call_tool(
            "slow", {"seconds": 0.02, "steps": 2}, on_progress=note_later if asynchronous else note
        )

    assert seen == {"Ada"}


async def test_a_callback_that_raises_loses_one_notification_and_not_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[float] = []

    async def picky(progress: Progress) -> None:
        if progress.progress == 2:
            raise LookupError("not that one")
        seen.append(progress.progress)

    async with connected(echo_command()) as connection:
        result = await connection.call_tool("slow", {"seconds": 0.03, "steps": 3}, on_progress=picky)

    assert not result.is_error
    assert seen == [1, 3]
    assert "a progress callback raised" in caplog.text


def functions_of(code: set[str]) -> Callable[[FrameType, str, Any], None]:
    """Return a profile function that notes the functions of the package."""

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            code.add(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}")

    return note


def ignore(_progress: Progress) -> None:
    pass


async def walks(connection: McpConnection, *, calls: int = 5, **options: Any) -> list[set[str]]:
    """Return the functions of the package that each of so many calls runs, once all that is cached is.

    What the background of a connection runs meanwhile is in some of them.
    """
    for _ in range(3):
        await connection.call_tool("echo", {"text": "hi"}, **options)
    found: list[set[str]] = []
    for _ in range(calls):
        walked: set[str] = set()
        sys.setprofile(functions_of(walked))
        try:
            await connection.call_tool("echo", {"text": "hi"}, **options)
        finally:
            sys.setprofile(None)
        found.append(walked)
    return found


ONLY_FULL = (
    *(
        "_progress_feed.",
        "_requester._Watch.",
        "_session.ClientHandlers.",
        "_deadline.Deadline.hold",
        "question_budget.",
    ),
    *("request_encoder.", "jsonrpc.encode_request", "http.HeaderFactory.", "json_types.as_object"),
)
"""What a call with everything may run beside: its token and feed, and a request whose `_meta` is encoded anew."""


@EACH_WAY
async def test_a_call_with_progress_a_trace_and_callbacks_walks_the_functions_of_a_bare_call(
    kind: str, version: str
) -> None:
    meta = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "example.com/key": {"a": 1}}

    async def accept(_request: Any) -> ElicitationResult:
        return ElicitationResult.accept({})

    with serving(kind, version) as target:
        async with connected(target) as connection:
            bare = {name for walked in await walks(connection, calls=30) for name in walked}
        async with connected(target, callbacks=Callbacks(elicitation=accept)) as connection:
            first, *others = await walks(connection, on_progress=ignore, meta=meta)
            full = first.intersection(*others)

    assert {name for name in full - bare if not name.startswith(ONLY_FULL)} == set()
    assert len(full - bare) <= 18
