"""Every mode of the misbehaving stdio server has its fault, seen by a raw client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.servers.fixtures import fault_command
from tests.servers.raw import RawStdio, raw_stdio

Check = Callable[[RawStdio], object]

OPTIONS: dict[str, list[object]] = {
    "huge_line": ["--size", 2_000_000],
    "schema_ref_network": ["--port", 4321],
    "slow_start": ["--seconds", 0.05],
}
UNSHAKEN = {
    "dies_at_initialize",
    "exits_at_once",
    "hang_initialize",
    "never_answers",
    "refuses_initialize",
    "stderr_flood",
}
"""Modes whose check does not begin with a handshake."""


def lone(raw: RawStdio, method: str, **params: object) -> bytes | None:
    """Send a request and return the very next line, or None when there is none within a moment."""
    raw.request(method, **params)
    return raw.line(0.2)


def call_line(raw: RawStdio, tool: str = "echo", **arguments: object) -> bytes | None:
    """Call a tool and return the very next line."""
    return lone(raw, "tools/call", name=tool, arguments=arguments or {"text": "hi"})


def error_text(raw: RawStdio) -> bytes:
    """Return standard error of a process that ends."""
    assert raw.process.stderr is not None
    return raw.process.stderr.read()


def extra(raw: RawStdio) -> list[object]:
    """Return what the list holds beside echo and add, which must be healthy."""
    tools = raw.tool_list()
    assert [tool["name"] for tool in tools[:2]] == ["echo", "add"]
    assert raw.call("echo", text="hi")["content"][0]["text"] == "hi"
    return tools[2:]


def check(condition: object) -> None:
    """Assert inside an expression."""
    assert condition


def died(raw: RawStdio, code: int, text: bytes) -> None:
    """Assert that the process ends with a code and last words."""
    assert raw.process.wait(5) == code
    assert text in error_text(raw)


def lives_on(raw: RawStdio) -> None:
    """Assert that the process outlives its standard input."""
    raw.close_stdin()
    with pytest.raises(subprocess.TimeoutExpired):
        raw.process.wait(0.2)


def exits_at_once(raw: RawStdio) -> None:
    died(raw, 3, b"no API key")


def dies_at_probe(raw: RawStdio) -> None:
    raw.modern = True
    raw.request("server/discover")
    died(raw, 1, b"unknown method")


def dies_at_initialize(raw: RawStdio) -> None:
    raw.request("initialize")
    died(raw, 3, b"no database")


def dies_after_initialize(raw: RawStdio) -> None:
    raw.request("tools/list")
    died(raw, 3, b"cannot list")


def dies_mid_call(raw: RawStdio) -> None:
    assert raw.call("add", a=1, b=1)["structuredContent"] == {"sum": 2}
    raw.request("tools/call", name="echo", arguments={"text": "x"})
    died(raw, 9, b"on purpose")


def never_answers(raw: RawStdio) -> None:
    assert lone(raw, "initialize") is None
    raw.close_stdin()
    assert raw.process.wait(5) == 0


def ignores_sigterm(raw: RawStdio) -> None:
    lives_on(raw)
    raw.process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        raw.process.wait(0.2)


def ignores_eof(raw: RawStdio) -> None:
    lives_on(raw)
    raw.process.terminate()
    assert raw.process.wait(5) == -signal.SIGTERM


def grandchild_holds_pipes(raw: RawStdio) -> None:
    child = int(raw.call("grandchild")["content"][0]["text"])
    raw.close_stdin()
    assert raw.process.wait(5) == 0
    assert os.getpgid(child) == raw.process.pid
    assert raw.process.stdout is not None
    assert raw.line(0.1) is None
    os.kill(child, 0)


def closes_stdout_but_lives(raw: RawStdio) -> None:
    raw.request("tools/call", name="echo", arguments={"text": "x"})
    assert raw.line() is None
    lives_on(raw)


def stderr_flood(raw: RawStdio) -> None:
    assert raw.process.stderr is not None
    assert len(raw.process.stderr.read(3_900_000)) == 3_900_000


def stdout_flood(raw: RawStdio) -> None:
    assert (call_line(raw) or b"").startswith(b"DEBUG")
    assert raw.answer(raw.next_id)["result"]["content"]


def garbage_stdout(raw: RawStdio) -> None:
    assert call_line(raw) == b"[INFO] answering"
    assert raw.answer(raw.next_id)["result"]["content"]


def invalid_utf8(raw: RawStdio) -> None:
    with pytest.raises(UnicodeDecodeError):
        (call_line(raw) or b"").decode()


def partial_line_then_hang(raw: RawStdio) -> None:
    assert call_line(raw) is None
    assert raw.buffer.startswith(b'{"jsonrpc"')


def duplicate_answer(raw: RawStdio) -> None:
    first, second = json.loads(call_line(raw) or b""), raw.message()
    assert first["id"] == second["id"]
    assert first["result"] != second["result"]


def id_as_string(raw: RawStdio) -> None:
    assert json.loads(call_line(raw) or b"")["id"] == str(raw.next_id)


def bad_blocks(raw: RawStdio) -> None:
    assert raw.call("echo", text="x")["content"][-1] == {"type": "text", "text": "good"}


def error_is_text(raw: RawStdio) -> None:
    assert raw.call("echo", text="x") == {"error": "broken"}


def output_schema_violated(raw: RawStdio) -> None:
    assert raw.call("violates")["structuredContent"] == {"n": "many"}
    assert "structuredContent" not in raw.call("omits")


def ansi_and_bidi(raw: RawStdio) -> None:
    assert any("\x1b" in tool["name"] for tool in raw.tool_list())
    text = raw.call("hostile")["content"][0]["text"]
    assert all(character in text for character in "\x1b\x9b\u202e\u200b\U000e0041\x08")
    assert raw.call("hostile_error")["isError"] is True


def notification_storm(raw: RawStdio) -> None:
    raw.request("tools/call", name="echo", arguments={"text": "x"})
    count = 0
    while "id" not in (raw.message()):
        count += 1
    assert count == 20_000


def list_changed_storm(raw: RawStdio) -> None:
    assert json.loads(call_line(raw) or b"")["result"]
    assert all(raw.message()["method"].endswith("list_changed") for _ in range(2_000))


def server_request_made_up_method(raw: RawStdio) -> None:
    assert json.loads(call_line(raw) or b"")["method"] == "log"
    raw.send({"id": "log-1", "error": {"code": -32601, "message": "no"}})
    assert raw.call("state")["structuredContent"]["answers"][0]["error"]["code"] == -32601


def roots_and_sampling_requests(raw: RawStdio) -> None:
    asked = raw.request("tools/call", name="echo", arguments={"text": "x"})
    for method in ("ping", "roots/list", "sampling/createMessage", "elicitation/create"):
        request = raw.message()
        assert request["method"] == method
        raw.send({"id": request["id"], "result": {"to": method}})
    assert len(raw.answer(asked)["result"]["structuredContent"]) == 4


def endless_cursor(raw: RawStdio) -> None:
    assert raw.ask("tools/list", cursor="41")["nextCursor"] == "42"


def cursor_loop(raw: RawStdio) -> None:
    assert raw.ask("tools/list")["nextCursor"] == "a"
    assert raw.ask("tools/list", cursor="a")["nextCursor"] == "b"
    assert raw.ask("tools/list", cursor="b")["nextCursor"] == "a"


def cursor_empty_string(raw: RawStdio) -> None:
    assert [tool["name"] for tool in raw.tool_list()] == ["echo", "add", "second_page"]


def bad_names(raw: RawStdio) -> None:
    assert [tool.get("name") for tool in raw.tool_list()[2:]] == [None, "", 7]


def schema_deep(raw: RawStdio) -> None:
    line = lone(raw, "tools/list") or b""
    assert line.count(b'"properties":{"a":') >= 5_000


def schema_ref_network(raw: RawStdio) -> None:
    assert "http://127.0.0.1:4321/schema.json" in json.dumps(extra(raw))


def lies_about_resources(raw: RawStdio) -> None:
    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        assert raw.ask(method)["error"]["code"] == -32601


def slow_start(raw: RawStdio) -> None:
    assert raw.call("echo", text="x")["content"]


CHECKS: dict[str, Check] = {
    "ansi_and_bidi": ansi_and_bidi,
    "bad_annotations": lambda raw: check(len(extra(raw)) == 8),
    "bad_blocks": bad_blocks,
    "bogus_version": lambda raw: check(raw.initialize()["protocolVersion"] == "2025-11-05"),
    "bom": lambda raw: check((call_line(raw) or b"").startswith(b"\xef\xbb\xbf{")),
    "closes_stdout_but_lives": closes_stdout_but_lives,
    "cursor_empty_string": cursor_empty_string,
    "cursor_loop": cursor_loop,
    "cursor_null": lambda raw: check(raw.ask("tools/list")["nextCursor"] is None),
    "dies_after_initialize": dies_after_initialize,
    "dies_at_initialize": dies_at_initialize,
    "dies_at_probe": dies_at_probe,
    "dies_mid_call": dies_mid_call,
    "duplicate_answer": duplicate_answer,
    "duplicate_tool_names": lambda raw: check([t["name"] for t in raw.tool_list()] == ["echo", "add", "echo"]),
    "endless_cursor": endless_cursor,
    "error_is_text": error_is_text,
    "exits_at_once": exits_at_once,
    "garbage_stdout": garbage_stdout,
    "grandchild_holds_pipes": grandchild_holds_pipes,
    "hang_call": lambda raw: check(call_line(raw) is None),
    "hang_initialize": lambda raw: check(lone(raw, "initialize") is None),
    "hang_list": lambda raw: check(lone(raw, "tools/list") is None and raw.call("add", a=1, b=1)["content"]),
    "huge_line": lambda raw: check(len(raw.call("echo", text="x")["content"][0]["text"]) == 2_000_000),
    "id_as_string": id_as_string,
    "ignores_eof": ignores_eof,
    "ignores_sigterm": ignores_sigterm,
    "invalid_schema": lambda raw: check(len(extra(raw)) == 3),
    "invalid_utf8": invalid_utf8,
    "lies_about_resources": lies_about_resources,
    "list_changed_storm": list_changed_storm,
    "list_error": lambda raw: check(raw.ask("tools/list")["error"]["code"] == -32603),
    "never_answers": never_answers,
    "no_tools": lambda raw: check(raw.ask("tools/list")["error"]["code"] == -32601),
    "non_object_schema": lambda raw: check(len(extra(raw)) == 7),
    "notification_storm": notification_storm,
    "odd_names": lambda raw: check(len(extra(raw)) == 8),
    "output_schema_violated": output_schema_violated,
    "partial_line_then_hang": partial_line_then_hang,
    "refuses_initialize": lambda raw: check(raw.ask("initialize")["error"]["message"] == "licence expired"),
    "result_not_object": lambda raw: check(json.loads(call_line(raw) or b"")["result"] == ["text"]),
    "result_null": lambda raw: check(json.loads(call_line(raw) or b"")["result"] is None),
    "result_without_content": lambda raw: check(raw.call("echo", text="x") == {"ok": True}),
    "roots_and_sampling_requests": roots_and_sampling_requests,
    "schema_deep": schema_deep,
    "schema_ref_network": schema_ref_network,
    "server_request_made_up_method": server_request_made_up_method,
    "slow_start": slow_start,
    "stderr_flood": stderr_flood,
    "stdout_flood": stdout_flood,
    "tool_not_object": lambda raw: check(extra(raw)[:3] == ["tool", 7, None]),
    "tool_without_name": bad_names,
    "tools_missing": lambda raw: check("tools" not in raw.ask("tools/list")),
    "tools_not_list": lambda raw: check(isinstance(raw.ask("tools/list")["tools"], dict)),
    "wrong_id": lambda raw: check(json.loads(call_line(raw) or b"")["id"] == 987654),
}


@pytest.mark.parametrize("mode", sorted(CHECKS))
def test_a_fault_mode_has_its_fault(mode: str) -> None:
    with raw_stdio(fault_command(mode, *OPTIONS.get(mode, [])), stderr=subprocess.PIPE) as raw:
        if mode == "id_as_string":
            raw.request("initialize")
            raw.line()
        elif mode == "bom":
            assert (lone(raw, "initialize") or b"").startswith(b"\xef\xbb\xbf{")
        elif mode not in UNSHAKEN:
            raw.initialize()
        CHECKS[mode](raw)


@pytest.mark.parametrize("mode", ["cursor_loop", "duplicate_tool_names", "tools_not_list"])
def test_list_faults_exist_in_the_modern_era_too(mode: str) -> None:
    with raw_stdio(fault_command(mode, "--era", "modern"), modern=True) as raw:
        assert raw.ask("tools/list")["resultType"] == "complete"
