"""What holds for any bytes a server writes, any answers in any order, and any amount of either."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connect.targets import connected
from toolweave import ConnectError, ConnectionLostError, ProtocolError
from toolweave.connect._channel import MAX_MESSAGE_BYTES, NotSent
from toolweave.connect._session import ClientHandlers
from toolweave.connect._stdio.process import ServerProcess
from toolweave.connect._wire.channel import ChannelWire, channel_wire
from toolweave.errors import ServerError
from toolweave.protocol.lenient_messages import decode_lenient, objects_in

MEMBERS = st.dictionaries(st.text(max_size=6), st.text(max_size=12) | st.integers() | st.none(), max_size=4)
MESSAGES = MEMBERS.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
JUNK = st.sampled_from([b"Listening on port 80", b"\x00\xff", b"\xc3\xa9t\xc3\xa9", b'"text"', b"42", b"}"])
KINDS = st.sampled_from(["message", "junk", "blank"])
LINES = st.lists(
    st.tuples(
        KINDS,
        MESSAGES,
        JUNK,
        st.sampled_from([b"", b"\xef\xbb\xbf", b"  "]),
        st.sampled_from([b"\n", b"\r\n", b" \r\n"]),
    ),
    max_size=10,
)


@pytest.mark.slow
@given(LINES, st.lists(st.integers(0, 500), max_size=20), st.booleans(), st.booleans())
def test_any_cutting_of_any_lines_gives_the_same_messages_and_counts_the_same_junk(
    lines: list[tuple[str, bytes, bytes, bytes, bytes]], cuts: list[int], delivered: bool, ended: bool
) -> None:
    expected = [message for kind, message, *_ in lines if kind == "message"]
    output = b"".join(
        {"message": before + message, "junk": junk, "blank": b" "}[kind] + end
        for kind, message, junk, before, end in lines
    )
    if ended and lines and lines[-1][0] == "message":
        output = output.rstrip()
    process = ServerProcess()
    taken: list[bytes] = []
    if delivered:
        process.deliver_to(taken.append)
    edges = sorted({0, len(output), *(cut for cut in cuts if cut < len(output))})
    for start, stop in pairwise(edges):
        process.pipe_data_received(1, output[start:stop])
    process.pipe_connection_lost(1, None)
    taken.extend(process._messages)
    assert [text.strip() for text in taken] == expected
    assert process.junk_lines == sum(kind == "junk" for kind, *_ in lines)


async def test_a_message_of_100_megabytes_that_comes_in_small_pieces_is_put_together_in_linear_time() -> None:
    piece, count = b"x" * 4096, 25_000
    process = ServerProcess()
    lengths: list[int] = []
    process.deliver_to(lambda text: lengths.append(len(text)))
    # quadratic, it would take the better part of an hour
    process.pipe_data_received(1, b'{"')
    for number in range(count):
        process.pipe_data_received(1, piece)
        if number % 500 == 0:
            await anyio.lowlevel.checkpoint()
    process.pipe_data_received(1, b'":1}\n')
    assert lengths == [len(piece) * count + 6]
    assert len(piece) * count < MAX_MESSAGE_BYTES


def test_a_large_answer_takes_no_more_memory_than_three_of_it() -> None:
    size = 20_000_000
    process = ServerProcess()
    results: list[object] = []
    process.deliver_to(lambda text: results.append(decode_lenient(text)[0].result))
    piece = b"x" * 65_536
    tracemalloc.start()
    try:
        process.pipe_data_received(1, b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"')
        for _ in range(size // len(piece)):
            process.pipe_data_received(1, piece)
        process.pipe_data_received(1, b'"}]}}\n')
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(results) == 1
    assert peak < 3.2 * size


# answers


class Tape:
    """A channel that keeps what is sent; it receives nothing by itself."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, message: bytes) -> None:
        """Keep a message."""
        self.sent.append(json.loads(message))

    async def receive(self) -> bytes:
        """Wait until cancelled."""
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


class Pipe(Tape):
    """A tape that takes messages without waiting, several at once, until it is `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []
        self.congested = False
        self.broken = False

    def write(self, messages: bytes) -> None:
        """Keep the messages of one write."""
        if self.broken:
            raise NotSent("gone")
        lines = messages.split(b"\n")
        self.writes.append(len(lines))
        self.sent += map(json.loads, lines)

    def queue(self, message: bytes) -> asyncio.Future[None]:
        """Take a message at once, though the pipe is full."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent.append(json.loads(message))
        written.set_result(None)
        return written

    def withdraw(self, queued: asyncio.Future[None]) -> bool:
        """Give nothing back."""
        return False


def lost(sent: bool) -> ServerError:
    return ConnectionLostError("over", server="any", sent=sent)


Outcomes = dict[int, list[object]]


async def asked(channel: Tape, count: int, then: Callable[[ChannelWire], Awaitable[None]]) -> Outcomes:
    """Make requests at once, do `then`, end the conversation, return what became of each request."""
    outcomes: Outcomes = {number: [] for number in range(1, count + 1)}
    peer = ClientHandlers(lambda _method, _params: None)

    async def ask(wire: ChannelWire, number: int) -> None:
        try:
            outcomes[number].append(await wire.request("tools/call", {"number": number}))
        except ServerError as exc:
            outcomes[number].append(exc)

    with anyio.fail_after(20):
        async with channel_wire(channel, peer, server="any", loss=lost) as wire, anyio.create_task_group() as tasks:
            for number in outcomes:
                tasks.start_soon(ask, wire, number)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            await then(wire)
            wire.end()
    return outcomes


IDS = st.sampled_from([1, 2, 3, "1", "2", "3", 99, "99", "name", None])
KINDS_OF_ANSWER = st.sampled_from(["result", "error", "neither", "broken"])
ANSWERS = st.lists(st.tuples(IDS, KINDS_OF_ANSWER), max_size=9)
TEXTS = {
    "result": b'"result":{"n":%d}',
    "error": b'"error":{"code":-32000,"message":"%d"}',
    "neither": b'"other":%d',
    "broken": b'"result":{"n":%d,}',
}


def texts_of(answers: list[tuple[Any, str]], joined: set[int]) -> list[bytes]:
    """Return the lines of these answers; those of `joined` share a batch with the one before (revision 2025-03-26)."""
    lines: list[list[bytes]] = []
    broken = True  # a broken answer would take its whole batch with it
    for number, (request_id, kind) in enumerate(answers):
        text = b'{"jsonrpc":"2.0","id":%s,%s}' % (json.dumps(request_id).encode(), TEXTS[kind] % number)
        if number in joined and not broken and kind != "broken":
            lines[-1].append(text)
        else:
            lines.append([text])
        broken = kind == "broken"
    return [line[0] if len(line) == 1 else b"[%s]" % b",".join(line) for line in lines]


def first_answers(answers: list[tuple[Any, str]]) -> dict[int, tuple[str, int]]:
    """Return the answer that counts for each request: the first with its id, or with its id as text."""
    first: dict[int, tuple[str, int]] = {}
    for number, (request_id, kind) in enumerate(answers):
        if str(request_id).isdecimal():
            first.setdefault(int(request_id), (kind, number))
    return first


@pytest.mark.slow
@settings(deadline=None)
@given(ANSWERS, st.sets(st.integers(0, 8)))
def test_any_answers_in_any_order_settle_each_request_once(answers: list[tuple[Any, str]], joined: set[int]) -> None:
    texts, expected = texts_of(answers, joined), first_answers(answers)
    late = 0

    async def play() -> Outcomes:
        async def answer(wire: ChannelWire) -> None:
            nonlocal late
            for text in texts:
                wire.handle_text(text)
            late = wire.late_answers

        return await asked(Tape(), 3, answer)

    outcomes = anyio.run(play)
    for key, seen in outcomes.items():
        assert len(seen) == 1
        kind, number = expected.get(key, ("lost", -1))
        match kind:
            case "result":
                assert seen[0] == {"n": number}
            case "lost":
                assert isinstance(seen[0], ConnectionLostError)
                assert seen[0].sent
            case _:
                assert isinstance(seen[0], ProtocolError)
                assert (seen[0].message == str(number)) == (kind == "error")
    wanted = len({1, 2, 3} & expected.keys())
    assert late >= len(answers) - wanted


async def test_calls_of_one_turn_of_the_event_loop_share_writes_and_the_server_can_begin_meanwhile() -> None:
    pipe = Pipe()

    async def nothing(_wire: ChannelWire) -> None:
        await anyio.lowlevel.checkpoint()

    await asked(pipe, 16, nothing)
    assert pipe.writes == [1, 4, 4, 4, 3]
    assert [message["params"]["number"] for message in pipe.sent] == list(range(1, 17))


async def test_a_single_call_is_written_at_once() -> None:
    pipe = Pipe()
    written: list[int] = []

    async def look(_wire: ChannelWire) -> None:
        written.extend(pipe.writes)

    await asked(pipe, 1, look)
    assert written == [1]


@pytest.mark.requirement("R69")
@pytest.mark.parametrize("how", ["broken", "ended"])
async def test_requests_that_were_still_ours_when_the_server_went_were_provably_not_sent(how: str) -> None:
    pipe, outcomes = Pipe(), dict[int, bool]()
    peer = ClientHandlers(lambda _method, _params: None)

    async def ask(wire: ChannelWire, number: int) -> None:
        with pytest.raises(ConnectionLostError) as failure:
            await wire.request("tools/call", {"number": number})
        outcomes[number] = failure.value.sent

    with anyio.fail_after(20):
        async with channel_wire(pipe, peer, server="any", loss=lost) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, wire, 1)
            tasks.start_soon(ask, wire, 2)
            tasks.start_soon(ask, wire, 3)
            while len(wire._outbox) < 2:
                await anyio.lowlevel.checkpoint()
            if how == "broken":
                pipe.broken = True
                while len(outcomes) < 2:
                    await anyio.lowlevel.checkpoint()
            wire.end()
    assert outcomes == {1: True, 2: False, 3: False}
    assert [message["params"]["number"] for message in pipe.sent] == [1]


SPREADS = """
import json, sys

answers = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}},
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "a } line [ of, {"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        if sys.argv[1] == "noise":
            print("{starting with,")
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": answers.get(message["method"], {})}
        print(json.dumps(answer, indent=None if sys.argv[1] == "noise" else int(sys.argv[1])), flush=True)
"""


@pytest.mark.parametrize("how", ["0", "1", "4", "noise"])
async def test_json_that_is_printed_over_several_lines_is_put_together(how: str) -> None:
    entry = {"command": sys.executable, "args": ["-c", SPREADS, how], "protocol": "legacy"}
    async with connected(entry) as connection:
        assert (await connection.call_tool("t")).text == "a } line [ of, {"


ON_ONE_LINE = """
import json, sys

def line(*messages):
    print(sys.argv[1].replace("LINE", "".join(json.dumps({"jsonrpc": "2.0", **one}) for one in messages)), flush=True)

answered = []
tools = [{"name": "t", "inputSchema": {"type": "object"}}]
for text in sys.stdin:
    message = json.loads(text)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        begin = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": begin}), flush=True)
    elif method == "tools/list":
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": {"tools": tools}}), flush=True)
    elif method == "tools/call" and sys.argv[2] == "answers":
        log = {"method": "notifications/message", "params": {"level": "info", "data": "a } in a { string"}}
        answer = {"id": number, "result": {"content": [{"type": "text", "text": "}{ whole"}]}}
        line(*([log, answer] if sys.argv[1] in ("LINE", " LINE ") else [answer]))
    elif method == "tools/call":
        line({"id": 7000, "method": "ping"})
        line({"id": 7001, "result": {"content": []}})
        line({"id": number, "method": "sampling/createMessage", "params": {}})
        line({"id": number})
        pending = number
        print(json.dumps({"jsonrpc": "2.0", "id": "last", "method": "ping"}), flush=True)
    elif method is None:
        answered.append(number)
        if number == "last":
            result = {"content": [{"type": "text", "text": json.dumps(answered)}]}
            print(json.dumps({"jsonrpc": "2.0", "id": pending, "result": result}), flush=True)
"""


@pytest.mark.parametrize(
    "form",
    [
        *("LINE", " LINE ", "INFO: LINE", "[12:00] {worker} sent: LINE", "\x1b[32mINFO\x1b[0m LINE"),
        *("\x1b[32mLINE\x1b[0m", "\x1b[1m\x1b[33mLINE\x1b[0m\x1b[0m"),
    ],
)
async def test_messages_are_read_that_stand_on_one_line_or_behind_the_head_of_a_log_record(form: str) -> None:
    entry = {"command": sys.executable, "args": ["-c", ON_ONE_LINE, form, "answers"], "protocol": "legacy"}
    async with connected(entry) as connection:
        assert [(await connection.call_tool("t")).text for _ in range(2)] == ["}{ whole", "}{ whole"]


FRAMED = """
import json, sys

out = sys.stdout.buffer
answers = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}},
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "caf\u00e9 " * 300}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    texts = [{"method": "notifications/message", "params": {"level": "info", "data": "x"}}]
    texts.append({"id": message["id"], "result": answers.get(message["method"], {})})
    for text in texts:
        body = json.dumps({"jsonrpc": "2.0", **text}, ensure_ascii=False).encode()
        head = sys.argv[1].replace("SIZE", str(len(body))).encode().decode("unicode_escape").encode()
        tail = sys.argv[2].encode().decode("unicode_escape").encode()
        whole = head + body + tail
        step = int(sys.argv[3]) or len(whole)
        for start in range(0, len(whole), step):
            out.write(whole[start : start + step])
            out.flush()
"""


@pytest.mark.parametrize("step", ["0", "7"])
@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("Content-Length: SIZE\\r\\n\\r\\n", ""),
        ("content-length:SIZE\\n\\n", ""),
        ("Content-Length: SIZE\\r\\nContent-Type: application/vscode-jsonrpc\\r\\n\\r\\n", ""),
        ("Content-Length: SIZE\\r\\n\\r\\n", "\\n"),
        ("Content-Length: 5\\r\\n\\r\\n", "\\n"),
        ("Content-Length: 60\\n", "\\r\\n"),
        ("\\x00", "\\x00\\n"),
    ],
)
async def test_messages_behind_a_header_with_their_length_are_read(head: str, tail: str, step: str) -> None:
    entry = {"command": sys.executable, "args": ["-c", FRAMED, head, tail, step], "protocol": "legacy"}
    async with connected(entry) as connection:
        for _ in range(2):
            assert (await connection.call_tool("t")).text == "café " * 300


async def test_what_stands_behind_the_head_of_a_log_record_is_never_taken_for_a_request_or_a_foreign_answer() -> None:
    entry = {"command": sys.executable, "args": ["-c", ON_ONE_LINE, "echo: LINE", "log"], "protocol": "legacy"}
    async with connected(entry) as connection:
        assert (await connection.call_tool("t")).text == '["last"]'
        process = connection.report.process
        assert process is not None
        assert process.junk_lines == 4


@pytest.mark.slow
@given(st.lists(MESSAGES, min_size=1, max_size=4), st.sampled_from([b"", b" ", b"\t"]))
def test_objects_on_one_line_are_told_apart_whatever_they_hold(messages: list[bytes], between: bytes) -> None:
    assert objects_in(between.join(messages)) == messages


@pytest.mark.parametrize("text", [b'{"a": 1}, {"b": 2}', b'{"a": 1}]', b'{"a": 1} {"b"', b'{"a": 1} "b"', b"{", b""])
def test_what_holds_more_than_objects_is_left_as_it_is(text: bytes) -> None:
    assert objects_in(text) == [text]


async def test_json_over_several_lines_that_never_ends_is_bounded() -> None:
    program = SPREADS.replace("print(json.dumps(answer", "[print('{,') for _ in range(5000)]; print(json.dumps(answer")
    entry = {"command": sys.executable, "args": ["-c", program, "1"], "max_message_bytes": 10_000, "protocol": "legacy"}
    with pytest.raises(ConnectError):
        async with connected(entry):
            raise AssertionError("it connected")
