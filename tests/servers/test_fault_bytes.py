"""What the fault servers really write: each mode's mark in the bytes, over standard output and over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers.fixtures import fault_command, http_server
from tests.servers.raw import ENVELOPE, RawStdio, raw_stdio
from tests.servers.test_fault_servers import CHECKS
from tests.servers.test_http_servers import BODIES, FAILURES, STATUSES
from toolweave.testing.servers import HTTP_FAULTS, STDIO_FAULTS
from toolweave.testing.servers.faults import MESSAGE_FAULTS

CALLED = {
    "batch_answer": rb"^\[\{.*\}\]\n",
    "blank_lines": rb"\n \n\t\n\0\n\{",
    "cancels_foreign": rb'notifications/cancelled.*"requestId":"nobody"',
    "content_not_list": rb'"content":"text"',
    "crlf": rb"\}\r\n$",
    "deep_answer": rb"\[{5000}",
    "early_answer": rb'"id":3,.*early',
    "error_of_odd_types": rb'"code":"E_QUOTA","message":7',
    "error_without_code": rb'"error":\{"message":"quota exceeded"\}',
    "foreign_progress": rb'"progressToken":"nobody"',
    "id_huge": rb'"id":9{1000}',
    "id_null": rb'"id":null',
    "junk_before_answer": rb"^INFO: \{",
    "missing_result_type": rb'"result":\{"content"',
    "nan_result": rb'"nan":NaN,"infinity":Infinity',
    "neither_result_nor_error": rb'"id":\d+\}\n',
    "no_jsonrpc_member": rb'^\{"id":',
    "odd_notifications": rb"notifications/never/heard_of",
    "ping_flood": rb'"id":"ping-0"',
    "pretty_printed": rb',\n  "id"',
    "result_and_error": rb'"result":.*"error":.*both at once',
    "slow_drip": rb'^\{"',
    "two_answers_on_a_line": rb"\}\}\{",
    "unknown_result_type": rb'"resultType":"hologram"',
}
"""Mode -> what the bytes after a call hold."""

LISTED = {
    "cursor_number": rb'"nextCursor":7',
    "repeated_pages": rb'"nextCursor":"2"',
    "schema_missing": rb'"name":"odd","description":"no schema at all"\}',
    "schema_null": rb'"inputSchema":null',
    "schema_of_text": rb'"inputSchema":\{"type":"string"\}',
    "schema_true": rb'"inputSchema":true',
    "tools_null": rb'"tools":null',
}
ENDS = {"dies_between_calls": 3, "dies_mid_line": 3, "killed_mid_call": -signal.SIGKILL}
"""Mode -> how the process ends when a tool is called."""


def until(raw: RawStdio, pattern: bytes) -> bytes:
    """Read standard output until it matches; return what came."""
    data = b""
    while not re.search(pattern, data + raw.buffer, re.DOTALL):
        if (line := raw.line(0.5)) is None:
            break
        data += line + b"\n"
    return data + raw.buffer


@pytest.mark.parametrize("mode", sorted(CALLED))
def test_a_mode_marks_what_follows_a_call(mode: str) -> None:
    with raw_stdio(fault_command(mode, "--seconds", 0.01)) as raw:
        raw.initialize()
        raw.request("tools/call", name="echo", arguments={"text": "hi"})
        assert re.search(CALLED[mode], until(raw, CALLED[mode]), re.DOTALL)


@pytest.mark.parametrize("mode", sorted(LISTED))
def test_a_mode_marks_the_list(mode: str) -> None:
    with raw_stdio(fault_command(mode)) as raw:
        raw.initialize()
        raw.request("tools/list")
        assert re.search(LISTED[mode], until(raw, LISTED[mode]), re.DOTALL)


@pytest.mark.parametrize("mode", sorted(ENDS))
def test_a_mode_ends_the_process_at_a_call(mode: str) -> None:
    with raw_stdio(fault_command(mode)) as raw:
        raw.initialize()
        raw.request("tools/call", name="echo", arguments={"text": "hi"})
        assert raw.process.wait(5) == ENDS[mode]


def test_a_mode_that_happens_once_is_over_in_the_next_process_too(tmp_path: Path) -> None:
    command = fault_command("dies_mid_line", "--times", 1, "--memory", tmp_path / "times")
    for text in (None, "well"):
        with raw_stdio(command) as raw:
            raw.initialize()
            if text is None:
                raw.request("tools/call", name="echo", arguments={"text": "hi"})
                assert raw.process.wait(5) == 3
            else:
                assert raw.call("echo", text=text)["content"][0]["text"] == text


def closes_stdin(raw: RawStdio) -> None:
    assert raw.call("echo", text="last")["content"][0]["text"] == "last"
    with contextlib.suppress(BrokenPipeError):
        for _ in range(3):
            raw.request("tools/call", name="echo", arguments={"text": "x"})
    assert raw.process.poll() is None


def endless_line(raw: RawStdio) -> None:
    raw.request("tools/call", name="echo", arguments={"text": "x"})
    assert raw.process.stdout is not None
    for _ in range(20):
        assert set(os.read(raw.process.stdout.fileno(), 1 << 16)) == {ord("x")}


def late_answer(raw: RawStdio) -> None:
    first = raw.request("tools/call", name="echo", arguments={"text": "one"})
    assert raw.line(0.1) is None
    second = raw.request("tools/call", name="echo", arguments={"text": "two"})
    assert [raw.message()["id"], raw.message()["id"]] == [first, second]


def stays(raw: RawStdio) -> None:
    raw.request("tools/call", name="echo", arguments={"text": "x"})
    assert raw.line(0.2) is None
    raw.close_stdin()
    with pytest.raises(subprocess.TimeoutExpired):
        raw.process.wait(0.2)


def slow_exit(raw: RawStdio) -> None:
    raw.close_stdin()
    with pytest.raises(subprocess.TimeoutExpired):
        raw.process.wait(0.2)
    assert raw.process.wait(10) == 0


def exits_with_code(raw: RawStdio) -> None:
    raw.close_stdin()
    assert raw.process.wait(5) == 3


def grandchild_outlives(raw: RawStdio) -> None:
    raw.close_stdin()
    assert raw.process.wait(5) == 0
    os.killpg(raw.process.pid, 0)  # somebody of the group is left
    os.killpg(raw.process.pid, signal.SIGKILL)


def hang_probe(raw: RawStdio) -> None:
    raw.modern = True
    raw.request("server/discover")
    assert raw.line(0.2) is None


def still_serves(raw: RawStdio) -> None:
    assert raw.call("echo", text="x")["content"][0]["text"] == "x"


LIVES = {
    "closes_stderr": still_serves,
    "closes_stdin": closes_stdin,
    "endless_line": endless_line,
    "exits_with_code": exits_with_code,
    "grandchild_outlives": grandchild_outlives,
    "hang_probe": hang_probe,
    "late_answer": late_answer,
    "slow_exit": slow_exit,
    "stopped_mid_call": stays,
    "stops_reading": stays,
}


@pytest.mark.parametrize("mode", sorted(LIVES))
def test_a_mode_lives_its_life(mode: str) -> None:
    with raw_stdio(fault_command(mode, "--seconds", 0.5), stderr=subprocess.PIPE) as raw:
        raw.initialize()
        LIVES[mode](raw)


def test_every_mode_of_stdio_has_a_check() -> None:
    assert {*CHECKS, *CALLED, *LISTED, *ENDS, *LIVES} == set(STDIO_FAULTS)


STATUS_LINES = {
    "redirect_loop": rb"HTTP/1.1 307 .*location: /mcp\r\n",
    "redirect_nowhere": rb"HTTP/1.1 302 ",
    **{mode: mode.replace("status_", "HTTP/1.1 ").encode() for mode in HTTP_FAULTS if re.match(r"status_\d+$", mode)},
    "status_503_bare": rb"HTTP/1.1 503 (?!.*retry-after)",
    "status_503_until_date": rb"HTTP/1.1 503 .*retry-after: \w{3}, \d\d \w{3} \d{4} .* GMT",
}
RESPONSES = {
    "bad_chunk_size": rb"\r\nzz\r\n",
    "bom_body": b"\r\n\r\n\xef\xbb\xbf\\{",
    "close_at_once": rb"^$",
    "closed_silently": rb'"hi"',
    "connection_close": rb"connection: close",
    "drip_body": rb"\r\n\r\n\{",
    "drip_headers": rb"^HTTP/1",
    "dropped_sse_with_id": rb"id: event-\d+\r\nretry: 50",
    "endless_comments": rb": still here\n\n.*: still here\n\n",
    "endless_headers": rb"(x-filler: x+\r\n){200}",
    "extra_response": rb"HTTP/1.1 200.*HTTP/1.1 200",
    "foreign_answer": rb'"id": 987654.*not yours',
    "giant_event": rb"data: x{100000}",
    "gone_session_400": rb'"hi"',
    "gzip_bomb": b"content-encoding: gzip\r\n.*\x1f\x8b",
    "gzip_broken": rb"content-encoding: gzip\r\n.*\{",
    "gzip_unasked": b"content-encoding: gzip\r\n.*\x1f\x8b",
    "http_1_0": rb"^HTTP/1.0 200 OK",
    "huge_body": rb"x{100000}",
    "huge_header": rb"x-filler: x{100000}",
    "interim_responses": rb"^(HTTP/1.1 103 .*){2}HTTP/1.1 200",
    "invalid_utf8_body": b"te\xe9\xff",
    "no_content_type": rb"^HTTP/1.1 200 OK\r\ncontent-length: \d+\r\n\r\n",
    "no_http": rb"^SSH-2.0",
    "noisy_sse": rb"retry: soon.*\{not json.*hi",
    "reset_mid_headers": rb"content-ty$|^$",
    "reset_sse": rb"data: \{|^$",
    "restarts": rb'"hi"',
    "restarts_mid_call": rb"^$",
    "split_sse": rb"1\r\ne\r\n1\r\nv\r\n",
    "truncated_chunk": rb"chunked",
    "two_lengths": rb"content-length: \d+\r\nContent-Length: 5",
    "unfinished_sse": rb"data: \{.*\n\r\n0\r\n",
    "unknown_encoding": rb"zip7",
}


def exchanged(url: str, pattern: bytes) -> bytes:
    """Post a call over a bare socket; return what comes until it matches, ends or pauses."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = json.dumps({**message, "params": {"name": "echo", "arguments": {"text": "hi"}, "_meta": ENVELOPE}}).encode()
    headers = {
        "host": urlsplit(url).netloc,
        "content-type": "application/json",
        "content-length": len(body),
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "echo",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    data = b""
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=2) as line:
        line.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while not (data and re.search(pattern, data, re.DOTALL)) and (chunk := line.recv(1 << 20)):
                data += chunk
    return data


@pytest.mark.parametrize("mode", sorted(STATUS_LINES | RESPONSES))
def test_a_mode_of_http_marks_its_response(mode: str) -> None:
    pattern = (STATUS_LINES | RESPONSES)[mode]
    options = ("--seconds", 0.01, "--size", 1_000_000)
    with http_server("--era", "modern", "--mode", mode, "--on", "tools/call", *options) as url:
        assert re.search(pattern, exchanged(url, pattern), re.DOTALL)


def test_a_mode_of_messages_goes_over_http_as_well() -> None:
    with http_server("--era", "modern", "--mode", "wrong_id") as url:
        assert b'"id":987654' in exchanged(url, rb"987654")
    with http_server("--era", "modern", "--mode", "duplicate_answer") as url:
        assert exchanged(url, rb"again.*again|again.*\r\n0\r\n").count(b"data: ") == 2


def test_every_mode_of_http_has_a_check() -> None:
    checked = {*STATUSES, *BODIES, *FAILURES, *STATUS_LINES, *RESPONSES, "gone_session"}
    assert checked | set(MESSAGE_FAULTS) == set(HTTP_FAULTS)
