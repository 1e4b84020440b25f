"""Calls that a gateway sends at once end like those that it forwards: over faults, deadlines, retries."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.connect.targets import Json, connected, eventually
from toolweave import McpConnection
from toolweave.connect._direct import DirectCall
from toolweave.connect._forwarding import ForwardedRequest
from toolweave.errors import ProtocolError, ServerError
from toolweave.protocol.jsonrpc import encode_value

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SERVER = r"""
import json, os, sys

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

def call(key, name):
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
        call(key, message["params"]["name"])
    elif method == "notifications/cancelled":
        log.write(json.dumps(message, sort_keys=True) + "\n")
        log.flush()
    elif method is not None and key is not None:
        write(json.dumps({"jsonrpc": "2.0", "id": key, "error": {"code": -32601, "message": "Method not found"}}))
"""
ANSWERED = ("text", "hidden", "large", "failed", "error", "list", "null", "nothing", "broken", "not a number")
STRANGE = ("too large a number", "deep", "text as id", "twice", "junk", "other messages", "input")
DYING = ("dies", "safe, dies once", "safe, dies")
NAMES = (*ANSWERED, *STRANGE, *DYING, "silent")
ERAS = ("legacy", "modern")
SECRET = "secret-of-the-config"
Outcome = tuple[Any, ...]
"""The result of a call, or the facts of its error."""


def server(log: Path, era: str, **options: Any) -> Json:
    """Return the config of the scripted server, which writes the calls that it receives to a file."""
    code = f"NAMES = {NAMES!r}\n{SERVER}"
    command = {"command": sys.executable, "args": ["-S", "-E", "-c", code, str(log), era], "env": {"TOKEN": SECRET}}
    return {**command, "timeout": {"call": 10.0}, **options}


def posted(connection: McpConnection, name: str, arguments: Json) -> DirectCall | None:
    """Send a call at once; None if it cannot be sent so."""
    direct = connection.gateway_side.direct_calls
    loop = asyncio.get_running_loop()
    session = direct.line(name, loop)
    if session is None:
        return None
    members = {"name": name, "arguments": arguments}
    params = encode_value(session.session.stamped(members, None, None))
    return direct.send(session, name, b',"method":"tools/call","params":%b}' % params, loop)


async def outcome_of(connection: McpConnection, name: str, *, at_once: bool) -> Outcome:
    """Call a tool, and return what came of it."""
    arguments: Json = {"a": [1, "é"]}
    sent = posted(connection, name, arguments) if at_once else None
    params = {"name": name, "arguments": arguments}
    try:
        result = await connection.forward(ForwardedRequest(method="tools/call", params=params, meta={}, sent=sent))
    except ProtocolError as exc:
        return type(exc), exc.message, exc.code, json.dumps(exc.data)
    except ServerError as exc:
        return type(exc), exc.message, getattr(exc, "sent", None), getattr(exc, "exit_code", None)
    return "result", json.dumps(result, sort_keys=True)


async def played(folder: Path, era: str, names: Sequence[str], *, at_once: bool, **options: Any) -> Json:
    """Call tools one after the other over one connection; return the outcomes and what is left of the calls."""
    log = folder / f"{at_once}.log"
    log.touch()
    async with connected(server(log, era, **options), seconds=60) as connection:
        assert (
            not at_once or connection.gateway_side.direct_calls.line(names[0], asyncio.get_running_loop()) is not None
        )
        outcomes = [await outcome_of(connection, name, at_once=at_once) for name in names]
        facts: Json = {"restarts": connection.restarts, "busy": connection.busy}
        facts["problems"] = sorted(map(str, connection.problems))
        facts["findings"] = sorted(map(str, connection.findings))
    return {"outcomes": outcomes, "received": received_in(log), **facts}


def received_in(log: Path) -> list[Json]:
    """Return the calls and their cancellations; the ping that follows a timeout is cancelled as the connection ends."""
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    calls = {message["id"] for message in messages if "id" in message}
    return [message for message in messages if message.get("id", message["params"].get("requestId")) in calls]


@settings(max_examples=10)
@example(era="legacy", names=[*ANSWERED, *STRANGE])
@example(era="modern", names=[*ANSWERED, *STRANGE])
@example(era="modern", names=[*DYING, "text"])
@given(era=st.sampled_from(ERAS), names=st.lists(st.sampled_from(NAMES[:-1]), min_size=1, max_size=6))
def test_calls_that_are_sent_at_once_end_like_those_that_are_forwarded(era: str, names: list[str]) -> None:
    async def compare(folder: Path) -> None:
        forwarded = await played(folder, era, names, at_once=False)
        sent = await played(folder, era, names, at_once=True)
        assert sent == forwarded
        assert not sent["busy"]

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(compare, Path(folder))


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_not_answered_in_time_ends_and_is_cancelled_whichever_way_it_was_sent(
    era: str, tmp_path: Path
) -> None:
    options = {"timeout": {"call": 1.0}}
    forwarded = await played(tmp_path, era, ["silent", "text"], at_once=False, **options)
    sent = await played(tmp_path, era, ["silent", "text"], at_once=True, **options)

    assert sent == forwarded
    assert "within 1 s" in sent["outcomes"][0][1]
    assert [message["method"] for message in sent["received"]] == [
        "tools/call",
        "notifications/cancelled",
        "tools/call",
    ]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_caller_leaves_is_cancelled_whichever_way_it_was_sent(
    era: str, at_once: bool, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    async with connected(server(log, era), seconds=60) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(outcome_of, connection, "silent", at_once=at_once))
            await eventually(log.read_text)
            tasks.cancel_scope.cancel()
        assert not connection.busy
        assert (await outcome_of(connection, "text", at_once=at_once))[0] == "result"
    received = received_in(log)
    assert [message["method"] for message in received] == ["tools/call", "notifications/cancelled", "tools/call"]
    assert received[1]["params"]["requestId"] == received[0]["id"]
