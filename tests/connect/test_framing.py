"""What holds for any bytes a server writes, any answers in any order, and any amount of either."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolweave import ConnectionLostError, ProtocolError, ServerError
from toolweave.connect.channel import MAX_MESSAGE_BYTES, NotSent
from toolweave.connect.session import Peer
from toolweave.connect.stdio.process import ServerProcess
from toolweave.connect.wire.channel import ChannelWire, channel_wire
from toolweave.connect.wire.jsonrpc import decode

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


@pytest.mark.anyio
async def test_a_message_of_100_megabytes_that_comes_in_small_pieces_is_put_together_in_linear_time() -> None:
    piece, count = b"x" * 4096, 25_000
    process = ServerProcess()
    with anyio.fail_after(60):  # quadratic, it would take the better part of an hour
        process.pipe_data_received(1, b'{"')
        for number in range(count):
            process.pipe_data_received(1, piece)
            if number % 500 == 0:
                await anyio.lowlevel.checkpoint()
        process.pipe_data_received(1, b'":1}\n')
    assert len(await process.receive()) == len(piece) * count + 6
    assert len(piece) * count < MAX_MESSAGE_BYTES


def test_a_large_answer_takes_no_more_memory_than_three_of_it() -> None:
    size = 20_000_000
    process = ServerProcess()
    results: list[object] = []
    process.deliver_to(lambda text: results.append(decode(text)[0].result))
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


def lost(sent: bool) -> ServerError:
    return ConnectionLostError("over", server="any", sent=sent)


Outcomes = dict[int, list[object]]


async def asked(channel: Tape, count: int, then: Callable[[ChannelWire], Awaitable[None]]) -> Outcomes:
    """Make requests at once, do `then`, end the conversation, return what became of each request."""
    outcomes: Outcomes = {number: [] for number in range(1, count + 1)}
    peer = Peer(lambda _method, _params: None)

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


@settings(deadline=None)
@given(ANSWERS, st.sets(st.integers(0, 8)))
def test_any_answers_in_any_order_settle_each_request_once(answers: list[tuple[Any, str]], joined: set[int]) -> None:
    texts, expected = texts_of(answers, joined), first_answers(answers)
    late = 0

    async def play() -> Outcomes:
        async def answer(wire: ChannelWire) -> None:
            nonlocal late
            for text in texts:
                wire.take(text)
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


@pytest.mark.anyio
async def test_calls_of_one_turn_of_the_event_loop_share_writes_and_the_server_can_begin_meanwhile() -> None:
    pipe = Pipe()

    async def nothing(_wire: ChannelWire) -> None:
        await anyio.lowlevel.checkpoint()

    await asked(pipe, 16, nothing)
    assert pipe.writes == [1, 4, 4, 4, 3]
    assert [message["params"]["number"] for message in pipe.sent] == list(range(1, 17))


@pytest.mark.anyio
async def test_a_single_call_is_written_at_once() -> None:
    pipe = Pipe()
    written: list[int] = []

    async def look(_wire: ChannelWire) -> None:
        written.extend(pipe.writes)

    await asked(pipe, 1, look)
    assert written == [1]


@pytest.mark.anyio
@pytest.mark.requirement("R69")
@pytest.mark.parametrize("how", ["broken", "ended"])
async def test_requests_that_were_still_ours_when_the_server_went_were_provably_not_sent(how: str) -> None:
    pipe, outcomes = Pipe(), dict[int, bool]()
    peer = Peer(lambda _method, _params: None)

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
