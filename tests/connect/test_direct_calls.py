"""Calls that a gateway sends at once end like those that it forwards: over faults, deadlines, retries."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.connect.sent_calls import WAYS, Way, completed, objects, outcome_of, posted
from tests.connect.targets import Json, connected, eventually
from toolweave import Callbacks

pytestmark = pytest.mark.slow

SERVER = r"""
import json, os, sys, time

log_path, modern = sys.argv[1], sys.argv[2] == "modern"
log = open(log_path, "a")
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": name.startswith("safe")}}
    for name in NAMES
]

def write(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

def text_result(text, **members):
    return {"content": [{"type": "text", "text": text}], **members}

def answer(key, result, **members):
    write(json.dumps({"jsonrpc": "2.0", "id": key, "result": result, **members}))

def died_before(name):
    with open(log_path) as lines:
        return sum(f'"name": "{name}"' in line for line in lines) > 1

def token_of(message):
    return message["params"].get("_meta", {}).get("progressToken")

def progress_text(token, number):
    params = {"progressToken": token, "progress": number}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

def report(token, number):
    if token is not None:
        write(progress_text(token, number))

def call(key, name, message):
    if name == "text":
        answer(key, text_result("done"))
    elif name == "hidden":
        answer(key, text_result("a\u200bb \u00fc", _meta={"a": [1.5, None]}))
    elif name == "large":
        answer(key, text_result("x" * 300_000))
    elif name == "failed":
        answer(key, text_result("it failed: secret-of-the-config", isError=True))
    elif name == "error":
        write(json.dumps({"jsonrpc": "2.0", "id": key, "error": {"code": -32050, "message": "no", "data": [1]}}))
    elif name == "list":
        answer(key, [1, 2])
    elif name == "null":
        answer(key, None)
    elif name == "nothing":
        write('{"jsonrpc":"2.0","id":%d}' % key)
    elif name == "broken":
        write('{"jsonrpc":"2.0","id":%d,"result":{"content":[}}' % key)
    elif name == "not a number":
        write('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"a":NaN}}' % key)
    elif name == "too large a number":
        write('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"a":%s}}' % (key, "9" * 400))
    elif name == "deep":
        write('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"a":%s}}' % (key, "[" * 100_000 + "]" * 100_000))
    elif name == "text as id":
        answer(str(key), text_result("done"))
    elif name == "twice":
        answer(key, text_result("first"))
        answer(key, text_result("second"))
    elif name == "junk":
        write("starting ...")
        sys.stdout.write("INFO ")
        answer(key, text_result("done"))
    elif name == "other messages":
        write('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}')
        write('{"jsonrpc":"2.0","id":"s1","method":"ping"}')
        answer(key, text_result("done"))
    elif name == "progress":
        token = token_of(message)
        for number in range(3):
            report(token, number)
        answer(key, text_result("done"))
    elif name == "progress, slowly":
        for number in range(4):
            time.sleep(0.7)
            report(token_of(message), number)
        answer(key, text_result("done"))
    elif name == "progress, then silence":
        report(token_of(message), 1)
    elif name.startswith("progress in one write"):
        token = token_of(message)
        parts = [progress_text(token, number) for number in range(400 if "much" in name else 200)]
        write("\n".join([*parts, json.dumps({"jsonrpc": "2.0", "id": key, "result": text_result("done")})]))
    elif name == "input":
        answer(key, {"resultType": "input_required", "requestState": "s", "inputRequests": {}})
    elif name == "dies" or (name == "safe, dies once" and not died_before(name)):
        os._exit(3)
    elif name == "safe, dies":
        os._exit(3)
    elif name != "silent":
        answer(key, text_result("done"))

for line in sys.stdin:
    message = json.loads(line)
    method, key = message.get("method"), message.get("id")
    if method == "server/discover" and modern:
        answer(key, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
    elif method == "initialize" and not modern:
        info = {"name": "s", "version": "1"}
        answer(key, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        answer(key, {"tools": TOOLS})
    elif method == "tools/call":
        log.write(json.dumps(message, sort_keys=True) + "\n")
        log.flush()
        call(key, message["params"]["name"], message)
    elif method == "notifications/cancelled":
        log.write(json.dumps(message, sort_keys=True) + "\n")
        log.flush()
    elif method is not None and key is not None:
        write(json.dumps({"jsonrpc": "2.0", "id": key, "error": {"code": -32601, "message": "Method not found"}}))
"""
ANSWERED = ("text", "hidden", "large", "failed", "error", "list", "null", "nothing", "broken", "not a number")
STRANGE = ("too large a number", "deep", "text as id", "twice", "junk", "other messages", "input")
REPORTING = ("progress", "progress in one write")
DYING = ("dies", "safe, dies once", "safe, dies")
SLOW = ("progress, slowly", "progress, then silence")
MUCH = "progress in one write, much"
NAMES = (*ANSWERED, *STRANGE, *REPORTING, *DYING, "silent", *SLOW, MUCH)
ERAS = ("legacy", "modern")
SECRET = "secret-of-the-config"


def server(log: Path, era: str, **options: Any) -> Json:
    """Return the config of the scripted server, which writes the calls that it receives to a file."""
    code = f"NAMES = {NAMES!r}\n{SERVER}"
    command = {"command": sys.executable, "args": ["-S", "-E", "-c", code, str(log), era], "env": {"TOKEN": SECRET}}
    return {**command, "timeout": {"call": 10.0}, **options}


async def played(
    folder: Path, era: str, names: Sequence[str], way: Way, *, progress: bool = False, **options: Any
) -> Json:
    """Call tools one after the other over one connection; return the outcomes and what is left of the calls."""
    log = folder / f"{way}.log"
    log.touch()
    async with connected(server(log, era, **options), seconds=60) as connection:
        if way != "forwarded":
            assert connection.gateway_side.direct_calls.session_for(names[0], asyncio.get_running_loop()) is not None
        outcomes = [await outcome_of(connection, name, way, progress=progress) for name in names]
        facts: Json = {"restarts": connection.restarts, "busy": connection.busy}
        facts["problems"] = sorted(map(str, connection.problems))
        facts["findings"] = sorted(map(str, connection.findings))
    return {"outcomes": outcomes, "received": received_in(log), **facts}


def received_in(log: Path) -> list[Json]:
    """Return the calls and their cancellations; the ping that follows a timeout is cancelled as the connection ends."""
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    calls = {message["id"] for message in messages if "id" in message}
    known = [message for message in messages if message.get("id", message["params"].get("requestId")) in calls]
    for message in known:
        message["params"].get("_meta", {}).pop("progressToken", None)  # each way makes tokens of its own
    return known


@settings(max_examples=10)
@example(era="legacy", way="sent", progress=False, names=[*ANSWERED, *STRANGE])
@example(era="modern", way="awaited", progress=False, names=[*ANSWERED, *STRANGE])
@example(era="legacy", way="awaited", progress=True, names=[*ANSWERED, *STRANGE, *REPORTING])
@example(era="modern", way="sent", progress=True, names=[*REPORTING, *DYING, "text"])
@given(
    era=st.sampled_from(ERAS),
    way=st.sampled_from(WAYS),
    progress=st.booleans(),
    names=st.lists(st.sampled_from(NAMES[: NAMES.index("silent")]), min_size=1, max_size=6),
)
def test_calls_that_are_sent_at_once_end_like_those_that_are_forwarded(
    era: str, way: Way, progress: bool, names: list[str]
) -> None:
    async def compare(folder: Path) -> None:
        forwarded = await played(folder, era, names, "forwarded", progress=progress)
        sent = await played(folder, era, names, way, progress=progress)
        assert sent == forwarded
        assert not sent["busy"]

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(compare, Path(folder))


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_not_answered_in_time_ends_and_is_cancelled_whichever_way_it_was_sent(
    era: str, tmp_path: Path
) -> None:
    options: Json = {"timeout": {"call": 1.0}}
    forwarded = await played(tmp_path, era, ["silent", "text"], "forwarded", **options)
    sent = await played(tmp_path, era, ["silent", "text"], "sent", **options)

    assert sent == forwarded
    assert "within 1 s" in sent["outcomes"][0][1]
    assert [message["method"] for message in sent["received"]] == [
        "tools/call",
        "notifications/cancelled",
        "tools/call",
    ]


@pytest.mark.parametrize("way", ["forwarded", "sent"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_caller_leaves_is_cancelled_whichever_way_it_was_sent(
    era: str, way: Way, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    async with connected(server(log, era), seconds=60) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome_of, connection, "silent", way)
            await eventually(log.read_text)
            tasks.cancel_scope.cancel()
        assert not connection.busy
        assert (await outcome_of(connection, "text", way))[0] == "result"
    received = received_in(log)
    assert [message["method"] for message in received] == ["tools/call", "notifications/cancelled", "tools/call"]
    assert received[1]["params"]["requestId"] == received[0]["id"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_first_progress_of_a_call_ends_the_wait_for_its_answer(era: str, tmp_path: Path) -> None:
    async with connected(server(tmp_path / "log", era), seconds=60) as connection:
        sent = posted(connection, "progress, then silence", {}, progress=True)
        assert sent is not None
        with anyio.fail_after(5):
            assert await sent.answer is None
        await sent.give_up()
        assert not connection.busy


@pytest.mark.parametrize("way", ["forwarded", "awaited"])
@pytest.mark.parametrize("era", ERAS)
async def test_progress_extends_the_time_of_a_call_whichever_way_it_was_sent(
    era: str, way: Way, tmp_path: Path
) -> None:
    async with connected(server(tmp_path / "log", era, timeout={"call": 1.5}), seconds=60) as connection:
        outcome = await outcome_of(connection, "progress, slowly", way, progress=True)

    assert outcome[0] == "result"


@pytest.mark.parametrize("era", ERAS)
async def test_of_more_progress_than_is_kept_before_it_is_passed_on_the_newest_arrives(
    era: str, tmp_path: Path
) -> None:
    async with connected(server(tmp_path / "log", era), seconds=60) as connection:
        sent = posted(connection, MUCH, {}, progress=True)
        assert sent is not None
        assert await sent.answer is None
        # Calls are answered in turn: with this answer all progress of the call before it has arrived.
        assert (await outcome_of(connection, "text", "forwarded"))[0] == "result"
        outcome = await completed(connection, MUCH, sent, progress=True)

    amounts = [one["progress"] for one in json.loads(outcome[-1])]
    assert outcome[0] == "result"
    assert amounts == [*range(255), 399]


@pytest.mark.parametrize(
    ("options", "callbacks"),
    [
        pytest.param({"timeout": {"call_total": 30.0}}, Callbacks(), id="a total bound"),
        pytest.param({"max_concurrency": 3}, Callbacks(), id="counted calls"),
        pytest.param({"repair_messages": False}, Callbacks(), id="no repairs"),
        pytest.param({}, Callbacks(elicitation=lambda question: None), id="questions"),
    ],
)
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_has_to_be_counted_checked_or_held_is_not_sent_at_once(
    era: str, options: Json, callbacks: Callbacks, tmp_path: Path
) -> None:
    async with connected(server(tmp_path / "log", era), seconds=60) as connection:
        call = posted(connection, "text", {})
        assert call is not None
        await call.give_up()
    async with connected(server(tmp_path / "log", era, **options), seconds=60, callbacks=callbacks) as connection:
        assert posted(connection, "text", {}) is None
        assert (await outcome_of(connection, "text", "sent"))[0] == "result"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_from_another_event_loop_ends_as_one_from_that_of_the_connection(era: str, tmp_path: Path) -> None:
    async with connected(server(tmp_path / "log", era), seconds=60) as connection:

        async def use() -> Any:
            assert posted(connection, "text", {}) is None  # whose answer could not be awaited in this loop
            with anyio.fail_after(20):
                return await outcome_of(connection, "text", "awaited")

        here = await outcome_of(connection, "text", "awaited")
        # In debug mode, a loop raises if another thread touches what belongs to it.
        there = await anyio.to_thread.run_sync(lambda: asyncio.run(use(), debug=True), abandon_on_cancel=True)

    assert here[0] == "result"
    assert there == here


@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("era", ERAS)
async def test_nothing_is_kept_of_a_call_that_was_answered(era: str, progress: bool, tmp_path: Path) -> None:
    kept: list[int] = []
    async with connected(server(tmp_path / "log", era), seconds=60) as connection:
        for _ in range(3):
            for _ in range(200):
                call = posted(connection, "text", {}, progress=progress)
                assert call is not None
                await call.answer
                call.forget()
            call = None  # what is kept of it would be counted
            kept.append(objects())

    assert kept[2] < kept[1] + 100


async def test_an_answer_that_arrives_as_its_time_ends_counts_and_disturbs_nobody(tmp_path: Path) -> None:
    problems: list[Any] = []
    log = tmp_path / "log"
    log.touch()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: problems.append(context))
    async with connected(server(log, "modern", timeout={"call": 0.5}), seconds=60) as connection:
        call = posted(connection, "text", {})
        assert call is not None
        # The loop is busy until the answer is there and the time is over: it finds both in one turn.
        ends = time.monotonic() + 1
        while time.monotonic() < ends or not log.read_text():
            time.sleep(0.1)
        answer = await call.answer
        call.forget()

    assert call.wire.result_in(answer)["content"][0]["text"] == "done"
    assert problems == []
