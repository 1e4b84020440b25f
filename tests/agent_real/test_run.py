"""An agent over two real servers and functions of its own, by each provider's API."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent_real.apis import APIS, ApiName, Call, Fake, Say, fake, in_turns, model
from tests.agent_real.conftest import overheard, running
from toolweave import Agent, tool
from toolweave.agent import ApprovalGiven, ApprovalRequested, ToolFinished, ToolProgress, ToolStarted

pytestmark = pytest.mark.reference

SECONDS = 120
PNG = b"iVBORw0KGgo"
"""How every PNG begins, in base64."""


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> ApiName:
    """Each API in turn."""
    return request.param


@asynccontextmanager
async def opened(api: ApiName, say: Say, servers: Any, **options: Any) -> AsyncGenerator[tuple[Agent, Fake]]:
    """Enter an agent on a fake of the API."""
    with anyio.fail_after(SECONDS):
        async with (
            fake(api, say) as provider,
            model(api, provider.url) as asked,
            Agent(asked, mcp_servers=servers, on_error="raise", **options) as agent,
        ):
            yield agent, provider


@pytest.mark.requirement("R57", "R58", "C28")
async def test_calls_of_one_turn_run_at_the_same_time_and_are_answered_in_their_order(
    api: ApiName, servers: dict[str, Any], work: Path
) -> None:
    others_are_done = anyio.Event()

    @tool
    async def last() -> str:
        """End when everything else has."""
        await others_are_done.wait()
        return "the last"

    calls = [
        Call("own", "last"),
        Call("sum", "everything_get-sum", {"a": 2, "b": 40}),
        Call("file", "files_read_text_file", {"path": str(work / "a.txt")}),
    ]
    async with opened(api, in_turns(calls, then="42"), servers, tools=[last]) as (agent, provider):
        run, ended = agent.send("add"), list[str]()
        async for event in run:
            if isinstance(event, ToolFinished):
                ended.append(event.call.id)
                if len(ended) == 2:
                    others_are_done.set()
        result = await run

    assert (result.text, result.steps, result.status) == ("42", 2, "completed")
    assert sorted(ended[:2]) == ["file", "sum"]
    assert list(provider.results) == ["own", "sum", "file"]
    assert [one.text for one in provider.results.values()] == ["the last", "The sum of 2 and 40 is 42.", "first line\n"]
    assert {"last", "everything_get-tiny-image", "files_write_file"} <= set(provider.tools)


@pytest.mark.requirement("C17")
async def test_an_image_of_a_server_reaches_the_model_where_the_api_takes_it_and_is_named_where_not(
    api: ApiName, servers: dict[str, Any]
) -> None:
    async with opened(api, in_turns([Call("i", "everything_get-tiny-image")]), servers) as (agent, provider):
        await agent.send("show")
    read = provider.results["i"]

    assert "Here's the image you requested:" in read.text
    if api == "chat":
        assert read.images == ()
        assert "image/png" in read.text
    else:
        assert [image.startswith(PNG) for image in read.images] == [True]


@pytest.mark.requirement("R61")
async def test_whatever_is_wrong_with_a_call_is_a_result_that_the_model_reads_and_goes_on_from(
    api: ApiName, servers: dict[str, Any], work: Path
) -> None:
    calls = [
        Call("refused", "files_read_text_file", {"path": str(work / "no-such-file")}),
        Call("outside", "files_read_text_file", {"path": "/etc/hostname"}),
        Call("unfit", "everything_echo", {}),
        Call("unknown", "everything_eco", {"message": "hi"}),
        Call("raised", "fail"),
        Call("right", "everything_echo", {"message": "hi"}),
    ]

    @tool
    def fail() -> None:
        """Fail."""
        raise LookupError("no such thing")

    async with opened(api, in_turns(calls, then="sorry"), servers, tools=[fail]) as (agent, provider):
        result = await agent.send("try")
    read = provider.results

    assert result.text == "sorry"
    for name, said in {
        "refused": "ENOENT",
        "outside": "Access denied",
        "unfit": 'missing required property "message"',
        "unknown": "did you mean",
        "raised": "no such thing",
        "right": "Echo: hi",
    }.items():
        assert said in read[name].text, name
        assert read[name].is_error in (None, name != "right"), name
        if api != "anthropic":
            assert ("Error" in read[name].text) == (name != "right"), name


@pytest.mark.requirement("C24")
async def test_a_server_that_is_killed_between_turns_is_back_for_the_next_call(
    api: ApiName, servers: dict[str, Any]
) -> None:
    killed: list[int] = []

    @tool
    def kill() -> str:
        """Kill the everything server."""
        (server,) = running("server-everything")
        os.kill(server.pid, signal.SIGKILL)
        killed.append(server.pid)
        return "killed"

    turns = (
        [Call("before", "everything_echo", {"message": "here"})],
        [Call("kill", "kill")],
        [Call("after", "everything_echo", {"message": "again"})],
    )
    async with opened(api, in_turns(*turns, then="it is back"), servers, tools=[kill]) as (agent, provider):
        result = await agent.send("kill it")
        now = [row.pid for row in running("server-everything")]

    assert result.text == "it is back"
    assert [one.text for one in provider.results.values()] == ["Echo: here", "killed", "Echo: again"]
    assert len(now) == 1
    assert now != killed


@pytest.mark.requirement("C24")
async def test_a_server_that_is_killed_in_a_call_that_does_no_harm_twice_is_begun_anew_and_the_call_with_it(
    api: ApiName, servers: dict[str, Any]
) -> None:
    say = in_turns([Call("long", "everything_trigger-long-running-operation", {"duration": 1, "steps": 4})])
    killed: list[int] = []
    async with opened(api, say, servers) as (agent, provider):
        run = agent.send("wait")
        async for event in run:
            if isinstance(event, ToolProgress) and not killed:
                (server,) = running("server-everything")
                os.kill(server.pid, signal.SIGKILL)
                killed.append(server.pid)
        result = await run
        now = [row.pid for row in running("server-everything")]

    assert (result.text, result.status) == ("done", "completed")
    assert "Long running operation completed" in provider.results["long"].text
    assert len(now) == 1
    assert now != killed


async def test_a_person_allows_one_call_and_denies_another(api: ApiName, servers: dict[str, Any], work: Path) -> None:
    calls = [
        Call("yes", "files_write_file", {"path": str(work / "yes.txt"), "content": "written"}),
        Call("no", "files_write_file", {"path": str(work / "no.txt"), "content": "written"}),
        Call("free", "everything_echo", {"message": "nobody is asked"}),
    ]
    events: list[object] = []
    async with opened(api, in_turns(calls), servers, confirm="destructive") as (agent, provider):
        run = agent.send("write")
        async for event in run:
            events.append(event)
            if isinstance(event, ApprovalRequested):
                assert not list(work.glob("*es.txt"))
                assert run.approve(event) if event.call.id == "yes" else run.deny(event, reason="not that one")
        result = await run

    assert {one.call.id for one in events if isinstance(one, ApprovalRequested)} == {"yes", "no"}
    assert {one.call.id: one.approved for one in events if isinstance(one, ApprovalGiven)} == {"yes": True, "no": False}
    assert {one.call.id for one in events if isinstance(one, ToolStarted)} == {"yes", "free"}
    assert result.status == "completed"
    assert (work / "yes.txt").read_text() == "written"
    assert not (work / "no.txt").exists()
    assert "was not allowed: not that one" in provider.results["no"].text
    assert provider.results["no"].is_error in (None, True)


async def test_a_cancelled_run_tells_the_server_and_leaves_nothing_at_work(
    api: ApiName, servers: dict[str, Any], tmp_path: Path
) -> None:
    ended: list[str] = []

    @tool
    async def forever() -> None:
        """Never end."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("forever")

    log = tmp_path / "sent"
    heard = {**servers, "everything": overheard(servers["everything"], log)}
    calls = [Call("long", "everything_trigger-long-running-operation", {"duration": 600, "steps": 6000})]
    say = in_turns([*calls, Call("own", "forever")])
    async with opened(api, say, heard, tools=[forever]) as (agent, provider):
        run = agent.send("wait")
        async for event in run:
            if isinstance(event, ToolProgress):
                run.cancel()
        result = await run
        assert (result.status, result.stop_reason) == ("cancelled", "cancelled")
        assert ended == ["forever"]
        asked = len(provider.bodies)
        again = await agent.tools.list()["everything_echo"].execute({"message": "still here"})
        assert again.text == "Echo: still here"

    sent: list[Mapping[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    (call,) = [one for one in sent if one.get("params", {}).get("name") == "trigger-long-running-operation"]
    told = [one["params"]["requestId"] for one in sent if one["method"] == "notifications/cancelled"]
    assert told == [call["id"]]
    assert asked == 1
    assert not running("server-everything")
