"""A server process: what is on its pipes, what is not, how it ends, and what it loads."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.programs import ran
from tests.serve.raw import LEGACY, MODERN, Piped, running_program, speaking
from toolweave import connect_mcp
from toolweave.serve._duplex.stdio import MAX_MESSAGE_BYTES

pytestmark = pytest.mark.slow
EACH_ERA = pytest.mark.parametrize("version", [LEGACY, MODERN])
PROGRAM = [sys.executable, "-m", "tests.serve.program"]


async def started(piped: Piped, tool: str, **arguments: Any) -> str:
    """Call a tool that says by progress that it runs; return the id of the call."""
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}}
    request = piped.request("tools/call", params)
    await piped.send(request)
    assert (await piped.receive())["method"] == "notifications/progress"
    return str(request["id"])


async def rest_of(piped: Piped) -> list[Any]:
    """Return what the process still writes until it closes its output."""
    found: list[Any] = []
    while True:
        try:
            found.append(await piped.receive())
        except anyio.IncompleteRead:
            return found


@EACH_ERA
@pytest.mark.requirement("R83")
async def test_our_client_talks_to_a_program_in_both_eras(version: str) -> None:
    command, *arguments = PROGRAM
    config = {"command": command, "args": arguments, "protocol": version}
    with anyio.fail_after(60):
        async with connect_mcp(config) as connection:
            assert connection.protocol_version == version
            assert (await connection.call_tool("add", {"a": 1, "b": 2})).text == "3"


async def test_requests_from_a_file_that_ends_are_all_answered(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    requests = [
        {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": _handshake()},
        *({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": _add(number)} for number in range(300)),
    ]
    script.write_text("\n\n".join(json.dumps(one) for one in requests))  # no line end behind the last
    with script.open() as stdin:
        done = await anyio.run_process(PROGRAM, stdin=stdin)

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["id"]: one["result"]["content"][0]["text"] for one in answers[1:]} == {
        n: str(n + 1) for n in range(300)
    }
    assert done.returncode == 0


async def test_answers_go_to_a_file_as_well(tmp_path: Path) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    output = tmp_path / "output.jsonl"
    with output.open("w") as stdout:
        await anyio.run_process(PROGRAM, input=text.encode(), stdout=stdout)

    assert json.loads(output.read_text()) == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_what_a_tool_prints_goes_to_standard_error_and_it_reads_nothing_of_the_client() -> None:
    async with running_program(stderr=subprocess.PIPE) as piped:
        await piped.shake_hands(LEGACY)
        answer = await piped.call("chatter", text='{"jsonrpc":"2.0","id":1,"result":{}}')
        nothing = await piped.call("reads_nothing")
        await piped.hang_up()
        assert piped.process.stderr is not None
        printed = b"".join([chunk async for chunk in piped.process.stderr])

    assert answer["result"]["content"][0]["text"] == '{"jsonrpc":"2.0","id":1,"result":{}}'
    assert nothing["result"]["content"][0]["text"] == "true"
    assert printed.count(b'{"jsonrpc":"2.0","id":1,"result":{}}') == 3


@EACH_ERA
async def test_hundreds_of_answers_of_a_client_that_reads_late_all_arrive(version: str) -> None:
    text = "x" * 100_000  # far more in all than pipes hold
    async with speaking(version) as piped:
        requests = [piped.request("tools/call", {"name": "echo", "arguments": {"text": text}}) for _ in range(200)]

        async def send() -> None:
            for request in requests:
                await piped.send(request)

        seen: set[str] = set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()  # the server is stuck: nobody reads
            for _ in requests:
                seen.add((await piped.receive())["id"])

    assert seen == {request["id"] for request in requests}


async def test_a_message_of_many_megabytes_comes_and_goes() -> None:
    async with speaking(MODERN) as piped:
        text = "é" * 5_000_000
        answer = await piped.call("echo", text=text)

    assert answer["result"]["content"][0]["text"] == text


async def test_a_message_beyond_the_bound_is_refused_without_being_kept() -> None:
    async with speaking(MODERN) as piped:
        chunk = b"[" * 1_000_000
        for _ in range(MAX_MESSAGE_BYTES // len(chunk) + 1):
            await piped.send_part(chunk)
        await piped.send(b"")
        refusal = await piped.receive()
        assert "result" in await piped.call("add", a=1, b=1)

    assert (refusal["id"], refusal["error"]["code"]) == (None, -32600)
    assert "longer than" in refusal["error"]["message"]


async def test_sockets_serve_as_standard_streams_as_node_makes_them() -> None:
    ours, theirs = socket.socketpair()
    with ours, anyio.fail_after(60):
        with theirs:
            end = theirs.fileno()
            process = await anyio.open_process(PROGRAM, stdin=end, stdout=end, stderr=None)
        ours.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        await anyio.wait_readable(ours)
        assert json.loads(ours.recv(1000)) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        ours.shutdown(socket.SHUT_WR)
        assert await process.wait() == 0
        assert ours.recv(1000) == b""


@EACH_ERA
async def test_it_serves_on_uvloop_too_and_leaves_the_descriptors_as_they_were(version: str) -> None:
    code = (
        "import os, uvloop\n"
        "from tests.serve.program import program\n"
        "uvloop.run(program().serve_stdio())\n"
        "assert os.get_blocking(0) and os.get_blocking(1)\n"
    )  # fmt: skip
    with anyio.fail_after(60):
        async with await anyio.open_process([sys.executable, "-c", code], stderr=None) as process:
            piped = Piped(process)
            await piped.shake_hands(version)
            text = "x" * 1_000_000
            for _ in range(3):
                assert (await piped.call("echo", text=text))["result"]["content"][0]["text"] == text
            await started(piped, "wait")
            await piped.hang_up()
            assert len(await rest_of(piped)) == 1
            assert await process.wait() == 0


# the end


@EACH_ERA
async def test_when_the_input_ends_running_calls_may_finish_and_the_others_are_told(version: str) -> None:
    async with speaking(version) as piped:
        endless = await started(piped, "wait")
        quick = await started(piped, "nap", seconds=0.1)
        await piped.hang_up()
        answers = {one["id"]: one for one in await rest_of(piped)}
        assert await piped.process.wait() == 0

    assert answers[quick]["result"]["content"][0]["text"] == "rested"
    assert answers[endless]["error"]["code"] == -32000


async def test_answers_that_are_due_when_the_input_ends_are_written_to_the_last_byte() -> None:
    text = "x" * 3_000_000
    async with speaking(MODERN) as piped:
        await piped.send(piped.request("tools/call", {"name": "echo", "arguments": {"text": text}}))
        await piped.hang_up()
        (answer,) = await rest_of(piped)
        assert await piped.process.wait() == 0

    assert answer["result"]["content"][0]["text"] == text


async def test_a_listen_stream_ends_in_good_order_when_the_input_ends() -> None:
    async with speaking(MODERN) as piped:
        await piped.send(piped.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="s"))
        assert (await piped.receive())["method"] == "notifications/subscriptions/acknowledged"
        await piped.call("grow", name="more")
        changed = await piped.receive()
        await piped.hang_up()
        (last,) = await rest_of(piped)

    assert changed["method"] == "notifications/tools/list_changed"
    assert (last["id"], last["result"]["resultType"]) == ("s", "complete")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_with_an_answer_for_each_call(number: signal.Signals) -> None:
    async with speaking(LEGACY) as piped:
        endless = await started(piped, "wait")
        piped.process.send_signal(number)
        answers = await rest_of(piped)
        assert await piped.process.wait() == 0

    assert [(one["id"], one["error"]["code"]) for one in answers] == [(endless, -32000)]


async def test_a_second_signal_does_not_wait_for_what_runs() -> None:
    async with speaking(LEGACY) as piped:
        await started(piped, "wait")
        piped.process.send_signal(signal.SIGTERM)
        piped.process.send_signal(signal.SIGINT)
        assert len(await rest_of(piped)) == 1
        assert await piped.process.wait() == 0


async def test_a_closed_output_ends_it_though_the_input_is_open() -> None:
    ours, theirs = os.pipe()
    with anyio.fail_after(60):
        async with await anyio.open_process(PROGRAM, stdout=theirs, stderr=None) as process:
            os.close(theirs)
            assert process.stdin is not None
            await process.stdin.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            await anyio.wait_readable(ours)
            os.close(ours)
            assert await process.wait() == 0


async def test_a_function_that_blocks_its_thread_does_not_keep_the_process() -> None:
    async with running_program(stderr=subprocess.PIPE) as piped:
        await piped.shake_hands(LEGACY)
        await piped.send(piped.request("tools/call", {"name": "block", "arguments": {"seconds": 3600}}))
        assert "result" in await piped.call("add", a=1, b=1)
        await piped.hang_up()
        assert piped.process.stderr is not None
        log = b"".join([chunk async for chunk in piped.process.stderr])
        assert await piped.process.wait() == 1

    assert b"does not let go of its thread" in log


async def test_no_child_of_a_tool_holds_the_pipes() -> None:
    code = (
        "import os, subprocess, sys\n"
        "from toolweave.serve import create_mcp_server\n"
        "def fork() -> str:\n"
        "    return str(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)\n"
        "create_mcp_server(name='f', version='1', tools=[fork]).run_stdio()\n"
    )
    with anyio.fail_after(60):
        async with await anyio.open_process([sys.executable, "-c", code], stderr=None) as process:
            piped = Piped(process)
            await piped.shake_hands(LEGACY)
            child = int((await piped.call("fork"))["result"]["content"][0]["text"])
            try:
                await piped.hang_up()
                assert await rest_of(piped) == []  # the end of the output, though the child lives
                assert await process.wait() == 0
            finally:
                os.kill(child, signal.SIGKILL)


# in a program of one's own


SERVING_TWICE = """
import sys

import anyio
from toolweave.serve import create_mcp_server

server = create_mcp_server(name="s", version="1")

async def main():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve_stdio)
        await anyio.wait_all_tasks_blocked()
        try:
            await server.serve_stdio()
        except RuntimeError as exc:
            print(exc, file=sys.stderr, flush=True)

anyio.run(main)
print("ended", file=sys.stderr, flush=True)
print(input())
"""


async def test_standard_streams_are_taken_once_and_given_back() -> None:
    text = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    with anyio.fail_after(60):
        async with await anyio.open_process([sys.executable, "-c", SERVING_TWICE], stderr=subprocess.PIPE) as process:
            piped = Piped(process)
            await piped.send(text.strip())
            assert (await piped.receive())["id"] == 1
            assert process.stderr is not None
            said = BufferedByteReceiveStream(process.stderr)
            assert b"has standard input and output already" in await said.receive_until(b"\n", 10_000)
            process.send_signal(signal.SIGTERM)  # ends the server; the program continues
            assert await said.receive_until(b"\n", 10_000) == b"ended"
            await piped.send(b"what is typed now")
            assert await piped.line() == b"what is typed now"
            assert await process.wait() == 0


def test_a_stdio_server_loads_no_sdk_and_no_http() -> None:
    heavy = "mcp mcp_types starlette uvicorn httptools httpx"
    code = (
        "import sys\n"
        "from toolweave.serve import create_mcp_server\n"
        "def add(a: int, b: int) -> int: return a + b\n"
        "create_mcp_server(name='s', version='1', tools=[add]).run_stdio()\n"
        f"print([name for name in {heavy!r}.split() if name in sys.modules])\n"
    )
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _handshake()})
    done = ran([sys.executable, "-c", code], given=text, check=True)

    answer, loaded = done.stdout.splitlines()
    assert json.loads(answer)["result"]["serverInfo"] == {"name": "s", "version": "1"}
    assert loaded == "[]"


def _handshake() -> dict[str, Any]:
    return {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}


def _add(number: int) -> dict[str, Any]:
    return {"name": "add", "arguments": {"a": number, "b": 1}}
