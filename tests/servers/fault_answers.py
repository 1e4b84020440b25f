"""Faults of single answers and of the bytes that carry them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from fault_base import FaultServer, complain, mode
from stdio_loop import write_all
from toolset import Json, text_result

__all__ = ["HOSTILE", "SMUGGLED"]

ESC, CSI, OSC_END = "\x1b", "\x9b", "\x07"
RIGHT_TO_LEFT, ISOLATE, ZERO_WIDTH, TAGS = "\u202e", "\u2066", "\u200b\u200d\ufeff", "\U000e0041\U000e0042\U000e007f"
HOSTILE = {
    "esc": f"{ESC}[31mred{ESC}[0m",
    "title": f"{ESC}]0;owned{OSC_END}",
    "clear": f"{ESC}[2J{ESC}[H",
    "link": f"{ESC}]8;;http://example.com{ESC}\\click{ESC}]8;;{ESC}\\",
    "c1": f"{CSI}31m",
    "bidi": f"{RIGHT_TO_LEFT}txt.exe{ISOLATE}",
    "zero_width": f"a{ZERO_WIDTH}b",
    "tags": TAGS,
    "carriage": "safe\rEVIL\x08\x08",
}
SMUGGLED = " ".join(HOSTILE.values())
"""A text with every kind of character that must not reach a terminal raw."""


def silently(message: Json) -> bool:
    """Take a request and never answer."""
    return True


def for_calls(server: FaultServer, change: Callable[[Json, Json], bytes | None]) -> None:
    """Let `change` rewrite the answers to `tools/call`."""
    server.rewrite = lambda message, answer: change(message, answer) if message.get("method") == "tools/call" else None


@mode
def garbage_stdout(server: FaultServer) -> None:
    """Write lines that are no JSON-RPC before the first answer and before each other."""
    junk = b'Server running on stdio\n{"level": "info", "msg": "ready"}\n{not json\n\n[1, 2]\n"text"\n42\nnull\n'
    server.before_start = lambda: server.write(junk)
    server.rewrite = lambda message, answer: b"[INFO] answering\n" + server.encode(answer)


@mode
def invalid_utf8(server: FaultServer) -> None:
    """Put bytes that are no UTF-8 on standard error, on a line of its own, and into the text of each call's answer."""

    def start() -> None:
        write_all(2, b"caf\xe9 \xff\n")
        server.write(b"\xff\xfe\x80 junk\n")

    def change(message: Json, answer: Json) -> bytes:
        return server.encode({**answer, "result": text_result("caf@")}).replace(b"@", b"\xe9\xff")

    server.before_start = start
    for_calls(server, change)


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

    for_calls(server, change)


@mode
def hang_initialize(server: FaultServer) -> None:
    """Refuse the probe, never answer `initialize`."""
    server.on("initialize", silently)


@mode
def hang_list(server: FaultServer) -> None:
    """Never answer `tools/list`."""
    server.on("tools/list", silently)


@mode
def hang_call(server: FaultServer) -> None:
    """Never answer `tools/call`."""
    server.on("tools/call", silently)


@mode
def wrong_id(server: FaultServer) -> None:
    """Answer each call under an id that nobody used."""
    for_calls(server, lambda message, answer: server.encode({**answer, "id": 987654}))


@mode
def duplicate_answer(server: FaultServer) -> None:
    """Answer each call twice, the second time with another text."""
    for_calls(
        server,
        lambda message, answer: server.encode(answer) + server.encode({**answer, "result": text_result("again")}),
    )


@mode
def id_as_string(server: FaultServer) -> None:
    """Turn the id of every answer into a string."""
    server.rewrite = lambda message, answer: server.encode({**answer, "id": str(answer["id"])})


@mode
def result_null(server: FaultServer) -> None:
    """Answer each call with `result: null`."""
    for_calls(server, lambda message, answer: server.encode({**answer, "result": None}))


@mode
def result_not_object(server: FaultServer) -> None:
    """Answer each call with a list."""
    for_calls(server, lambda message, answer: server.encode({**answer, "result": ["text"]}))


@mode
def result_without_content(server: FaultServer) -> None:
    """Answer each call with an object that has no content."""
    for_calls(server, lambda message, answer: server.encode({**answer, "result": {"ok": True}}))


@mode
def bad_blocks(server: FaultServer) -> None:
    """Answer each call with one good block among blocks that are none."""
    blocks: list[Any] = [{"type": "text"}, {"type": "hologram", "data": "x"}, "text", {"type": "text", "text": "good"}]
    for_calls(server, lambda message, answer: server.encode({**answer, "result": {"content": blocks}}))


@mode
def error_is_text(server: FaultServer) -> None:
    """Answer each call with `error: "text"`."""
    for_calls(server, lambda message, answer: server.encode({"jsonrpc": "2.0", "id": answer["id"], "error": "broken"}))


@mode
def output_schema_violated(server: FaultServer) -> None:
    """Tools `violates` and `omits` break their output schema; `add` keeps its own."""
    output: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    definition: Json = {"description": "d", "inputSchema": {"type": "object"}, "outputSchema": output}
    server.peer.tools["violates"] = (definition, lambda call: text_result("x", structuredContent={"n": "many"}))
    server.peer.tools["omits"] = (definition, lambda call: text_result("no structured content"))


@mode
def ansi_and_bidi(server: FaultServer) -> None:
    """Names, descriptions, results, errors and standard error carry terminal escapes and invisible characters."""
    server.before_start = lambda: complain(SMUGGLED)
    definition: Json = {"description": SMUGGLED, "title": SMUGGLED, "inputSchema": {"type": "object"}}
    server.peer.tools["hostile"] = (definition, lambda call: text_result(SMUGGLED, structuredContent={"x": SMUGGLED}))
    server.peer.tools["hostile_error"] = (definition, lambda call: text_result(SMUGGLED) | {"isError": True})
    server.peer.tools[f"evil{ESC}[31m{RIGHT_TO_LEFT}name"] = (definition, lambda call: text_result("called"))
    server.peer.info.update(name=f"srv{ESC}[1m", title=SMUGGLED)
    server.peer.instructions = SMUGGLED
    for listing, _ in server.peer.resources.values():
        listing["description"] = SMUGGLED


@mode
def huge_line(server: FaultServer) -> None:
    """Answer each call with a text of --size bytes (default 50 MB)."""
    for_calls(server, lambda message, answer: server.encode({**answer, "result": text_result("x" * server.size)}))


@mode
def notification_storm(server: FaultServer) -> None:
    """Send 20,000 notifications before the answer to a call."""
    params: Json = {"level": "info", "data": "storm"}
    note = server.encode({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    for_calls(server, lambda message, answer: note * 20_000 + server.encode(answer))


@mode
def list_changed_storm(server: FaultServer) -> None:
    """Send 2,000 list_changed notifications after each answer to a call."""
    note = server.encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    for_calls(server, lambda message, answer: server.encode(answer) + note * 2_000)


@mode
def server_request_made_up_method(server: FaultServer) -> None:
    """Send a request with the method `log` before each answer to a call; `state` shows what the client answered."""
    request = server.encode({"jsonrpc": "2.0", "id": "log-1", "method": "log", "params": {"message": "hello"}})
    for_calls(server, lambda message, answer: request + server.encode(answer))


@mode
def roots_and_sampling_requests(server: FaultServer) -> None:
    """Ask the client for ping, roots, sampling and elicitation during `echo`; the result holds its four answers."""
    prompt: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
    form: Json = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
    asks: list[tuple[str, Json]] = [
        ("ping", {}),
        ("roots/list", {}),
        ("sampling/createMessage", prompt),
        ("elicitation/create", form),
    ]

    def work(message: Json) -> None:
        answers = {method: server.ask(f"ask-{number}", method, params) for number, (method, params) in enumerate(asks)}
        server.answer(message, text_result(json.dumps(answers), structuredContent=answers))

    def called(message: Json) -> bool:
        if message["params"].get("name") != "echo":
            return False
        threading.Thread(target=work, args=(message,), daemon=True).start()
        return True

    server.on("tools/call", called)
