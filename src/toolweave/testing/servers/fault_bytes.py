"""Faults of the bytes on standard output: junk, odd line ends, half lines, lines that never end."""

from __future__ import annotations

import threading
import time

from toolweave.testing.servers.fault_base import FaultServer, mode
from toolweave.testing.servers.stdio_loop import write_all
from toolweave.testing.servers.toolset import Json, text_result

__all__: list[str] = []


@mode
def garbage_stdout(server: FaultServer) -> None:
    """Write lines that are no JSON-RPC before the first answer and before each other."""
    junk = b'Server running on stdio\n{"level": "info", "msg": "ready"}\n{not json\n\n[1, 2]\n"text"\n42\nnull\n'
    server.before_start = lambda: server.write(junk)
    server.rewrite = lambda message, answer: b"[INFO] answering\n" + server.encode(answer)


@mode
def invalid_utf8(server: FaultServer) -> None:
    """Put bytes that are not UTF-8 on a line of standard error, and into the text of each call's answer."""

    def start() -> None:
        write_all(2, b"caf\xe9 \xff\n")
        server.write(b"\xff\xfe\x80 junk\n")

    def change(message: Json, answer: Json) -> bytes:
        return server.encode({**answer, "result": text_result("caf@")}).replace(b"@", b"\xe9\xff")

    server.before_start = start
    server.for_calls(change)


@mode
def bom(server: FaultServer) -> None:
    """Begin every line with a byte order mark."""
    server.rewrite = lambda message, answer: b"\xef\xbb\xbf" + server.encode(answer)


@mode
def partial_line_then_hang(server: FaultServer) -> None:
    """Write half of the answer to a call, then nothing more."""

    def change(message: Json, answer: Json) -> bytes:
        data = server.encode(answer)
        return data[: len(data) // 2]

    server.for_calls(change)


@mode
def crlf(server: FaultServer) -> None:
    """End every line with a carriage return and a line feed."""
    server.rewrite = lambda message, answer: server.encode(answer).replace(b"\n", b"\r\n")


@mode
def blank_lines(server: FaultServer) -> None:
    """Put blank lines, spaces and NUL bytes on lines of their own around every answer."""
    server.rewrite = lambda message, answer: b"\n \n\t\n\0\n" + server.encode(answer) + b"\n\r\n"


@mode
def junk_before_answer(server: FaultServer) -> None:
    """Begin the line of each call's answer with a log prefix."""
    server.for_calls(lambda message, answer: b"INFO: " + server.encode(answer))


@mode
def two_answers_on_a_line(server: FaultServer) -> None:
    """Put a notification and the answer to each call on one line."""
    note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
    server.for_calls(lambda message, answer: note + server.encode(answer))


@mode
def pretty_printed(server: FaultServer) -> None:
    """Spread the answer to each call over several lines."""
    server.for_calls(lambda message, answer: server.encode(answer).replace(b",", b",\n  "))


@mode
def slow_drip(server: FaultServer) -> None:
    """Write the answer to each call byte by byte, one in --seconds, until standard input ends."""

    def drip(data: bytes) -> None:
        for byte in data:
            write_all(1, bytes([byte]))
            time.sleep(server.seconds)

    def called(message: Json) -> bool:
        answer = server.peer.handle(message, server.session, server.send)
        if answer is not None:
            # In a thread, because the reading loop has to see the end of standard input.
            threading.Thread(target=drip, args=(server.encode(answer),), daemon=True).start()
        return True

    server.on("tools/call", called)


@mode
def endless_line(server: FaultServer) -> None:
    """Begin a line before the answer to each call and never end it, 1 MB in --seconds."""

    def flood() -> None:
        while True:
            write_all(1, b"x" * 1_000_000)
            time.sleep(server.seconds)

    def called(message: Json) -> bool:
        threading.Thread(target=flood, daemon=True).start()
        return True

    server.on("tools/call", called)
