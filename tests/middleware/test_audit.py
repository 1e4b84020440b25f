"""The audit log and the report of slow requests."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.middleware.company import Json, caller, company, joined, token_of
from tests.programs import ran
from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.raw import LEGACY, raw_client
from tests.serve.talking import talking
from toolweave import ProtocolError, tool
from toolweave.errors import RequestError
from toolweave.middleware import AccessRules, AuditLog, Timing, UserApproval
from toolweave.serve import create_mcp_server

ADA = token_of("ada")


def lines_of(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@EACH_ERA
async def test_each_request_is_a_line_with_caller_tool_and_outcome(era: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = company(AuditLog(path=str(path)))
    async with joined(server, ADA, era) as connection:
        await connection.call_tool("find", {"text": "a secret"})
        await connection.call_tool("erase", {})
        with pytest.raises(ProtocolError):
            await connection.call_tool("nothing", {})

    found = lines_of(path)
    calls = [one for one in found if one["method"] == "tools/call"]
    assert found[0]["method"] == ("initialize" if era == LEGACY else "server/discover")
    assert [(one["name"], one["outcome"], one.get("code")) for one in calls] == [
        ("find", "ok", None),
        ("erase", "ok", None),
        ("nothing", "error", -32602),
    ]
    assert calls[0]["principal"] == {"client": "app", "issuer": "https://issuer.example", "subject": "ada"}
    assert calls[0]["arguments"] == {"text": "string(8)"}
    assert calls[0]["revision"] == era
    assert calls[0]["time"].endswith("Z")
    assert calls[0]["duration_ms"] >= 0
    assert calls[0]["client"]["name"]
    assert "secret" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


async def test_values_of_arguments_are_written_only_if_asked_for() -> None:
    deep: Any = {
        "a": {"b": {"c": {"d": {"e": 1}}}},
        "list": [1, 2],
        "yes": True,
        "none": None,
        "many": dict.fromkeys(map(str, range(60))),
    }
    written: dict[str, Any] = {}
    for how in ("shapes", "values", "none"):
        lines: list[bytes] = []
        server = company(AuditLog(sink=lines.append, arguments=how, methods=["tools/*"]))  # type: ignore[arg-type]
        await caller().call(server, "find", deep)
        written[how] = json.loads(lines[-1]).get("arguments")

    assert written["none"] is None
    assert written["values"] == deep
    assert written["shapes"] == {
        "a": {"b": {"c": {"d": "object(1)"}}},
        "list": "array(2)",
        "yes": "boolean",
        "none": "null",
        "many": "object(60)",
    }


async def test_outcomes_are_told_apart() -> None:
    lines: list[bytes] = []

    @tool
    async def wait() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return ""

    @tool
    def job() -> str:
        """Take long."""
        return "done"

    log = AuditLog(sink=lines.append, methods=["tools/call", "ping"], extra={"site": "a"})
    server = create_mcp_server("odd", tools=[wait, job], tasks={"job": "optional"}, middleware=[log, UserApproval()])
    await caller().call(server, "wait")
    with pytest.raises(RequestError):
        await caller().call(server, "nothing")
    await caller().call(company(log), "find", {"text": 7})
    plain = create_mcp_server("odd", tools=[wait, job], tasks={"job": "optional"}, middleware=[log])
    async with talking(plain) as talk:
        await talk.ask("tools/call", {"name": "job", "arguments": {}})
    async with raw_client(plain, LEGACY) as raw:
        await raw.ask(raw.request("ping"))
        request = raw.request("tools/call", {"name": "wait", "arguments": {}})
        await raw.send(request)
        await raw.notify("notifications/cancelled", requestId=request["id"])
        await raw.ask(raw.request("ping"))

    found = [json.loads(line) for line in lines]
    outcomes = [(one["method"], one["outcome"]) for one in found]
    assert ("tools/call", "input_required") in outcomes
    assert ("tools/call", "error") in outcomes
    assert ("tools/call", "task") in outcomes
    assert ("tools/call", "tool_error") in outcomes
    assert ("tools/call", "cancelled") in outcomes
    assert ("ping", "ok") in outcomes
    assert [one["code"] for one in found if one["outcome"] == "error"] == [-32602]
    assert all(one["site"] == "a" for one in found)


async def test_a_file_that_was_moved_away_or_truncated_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = company(AuditLog(path=str(path), methods=["tools/call"]))
    await caller().call(server, "find")
    path.rename(tmp_path / "audit.1")
    await caller().call(server, "find")
    await caller().call(server, "find")
    assert (len(lines_of(tmp_path / "audit.1")), len(lines_of(path))) == (1, 2)

    path.write_text("")
    await caller().call(server, "find")
    assert len(lines_of(path)) == 1


async def test_a_sink_that_fails_is_an_error_in_the_log_and_the_call_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = company(AuditLog(path=str(tmp_path / "missing" / "audit.jsonl")))

    result = await caller().call(server, "find")

    assert result["content"]
    assert "a line of the audit log cannot be written" in caplog.text


async def test_a_required_log_is_written_before_the_call_or_the_call_is_not_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines: list[bytes] = []
    failing = False

    def sink(line: bytes) -> None:
        if failing:
            raise OSError("disk full")
        lines.append(line)

    reached: list[str] = []

    async def inner(request: Any, call_next: Any) -> Json:
        reached.append(request.method)
        return await call_next(request)

    server = company(AuditLog(sink=sink, required=True, methods=["tools/call"]), inner)
    await caller().call(server, "find")
    failing = True
    with pytest.raises(RequestError, match="the audit log cannot be written") as caught:
        await caller().call(server, "find")

    assert [json.loads(line)["outcome"] for line in lines] == ["begun", "ok"]
    assert caught.value.code == -32603
    assert reached == ["tools/call"]
    assert "disk full" in caplog.text


async def test_what_is_refused_by_rules_is_in_the_log_before_them() -> None:
    lines: list[bytes] = []
    server = company(AuditLog(sink=lines.append), AccessRules())
    with pytest.raises(RequestError):
        await caller(ADA).call(server, "find")

    (line,) = map(json.loads, lines)
    assert (line["name"], line["outcome"], line["code"]) == ("find", "error", -32602)
    assert line["principal"]["subject"] == "ada"


async def test_names_of_strangers_are_bounded() -> None:
    lines: list[bytes] = []
    server = company(AuditLog(sink=lines.append))
    peer = caller()
    for method, params in (
        ("tools/call", {"name": "x" * 10_000}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "y" * 10_000}}),
        ("resources/read", {"uri": 7}),
    ):
        with pytest.raises(RequestError):
            await server.endpoint.answer(peer.request(method, **params))

    assert [len(str(json.loads(line)["name"])) for line in lines] == [1024, 1024, 4]


@pytest.mark.parametrize("options", [{}, {"path": "a", "sink": print}, {"path": "a", "arguments": "all"}])
def test_a_log_without_a_place_or_with_two_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="AuditLog"):
        AuditLog(**options)


@EACH_CARRIER
async def test_all_requests_are_reported_where_none_is_too_quick(carrier: str, era: str) -> None:
    seen: list[tuple[str, str | None, str, float]] = []

    def report(method: str, name: str | None, outcome: str, seconds: float) -> None:
        seen.append((method, name, outcome, seconds))

    server = company(Timing(slow_seconds=0, report=report))
    async with connected(server, carrier, era) as connection:
        await connection.call_tool("find", {})
        with pytest.raises(ProtocolError):
            await connection.call_tool("nothing", {})

    calls = [one for one in seen if one[0] == "tools/call"]
    assert [one[1:3] for one in calls] == [("find", "ok"), ("nothing", "-32602")]
    assert all(one[3] >= 0 for one in seen)


async def test_slow_requests_are_warnings_and_quick_ones_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await caller().call(company(Timing()), "find")
        assert caplog.text == ""
        with pytest.raises(RequestError):
            await caller().call(company(Timing(slow_seconds=0)), "no\x1bthing")

    assert "tools/call" in caplog.text
    assert "-32602" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.slow
def test_a_line_that_a_full_disk_cut_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    command = [sys.executable, "-m", "tests.middleware.torn", str(path)]
    checkout = Path(__file__).resolve().parents[2]
    done = ran(command, cwd=checkout, check=True)

    *lines, end = path.read_text().split("\n")
    whole = [line for line in lines if line.endswith("}")]
    calls = [json.loads(line)["method"] for line in whole]
    assert done.stdout.split() == [str(2 * number) for number in range(20)]
    assert "a line of the audit log cannot be written: OSError" in done.stderr
    assert (len(lines) - len(whole), end) == (1, "")
    assert calls.count("tools/call") == 10


def dated(path: Path) -> list[str]:
    """Return the names of an audit log's files."""
    return sorted(one.name for one in path.parent.glob(f"{path.name}*"))


async def test_lines_are_kept_for_as_many_days_as_the_owner_wants(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    now = 20_000 * 86_400.0  # 2024-10-04
    logs = [AuditLog(path=str(path), keep_days=2, clock=lambda: now) for _ in range(2)]
    (tmp_path / "audit.jsonl.2020-13-99").touch()
    files: list[list[str]] = []
    for _ in range(5):
        for log in logs:  # as two processes that share the file
            await caller().call(company(log), "find", {"text": "x"})
        os.utime(path, (now, now))
        files.append([name.removeprefix("audit.jsonl") for name in dated(path) if "2020" not in name])
        now += 86_400

    assert files == [
        [""],
        ["", ".2024-10-04"],
        ["", ".2024-10-04", ".2024-10-05"],
        ["", ".2024-10-05", ".2024-10-06"],
        ["", ".2024-10-06", ".2024-10-07"],
    ]
    assert (tmp_path / "audit.jsonl.2020-13-99").exists()
    for name in files[-1]:
        assert len(lines_of(tmp_path / f"audit.jsonl{name}")) == 2


@pytest.mark.parametrize("days", [0, -1, 1.5, float("nan"), float("inf"), "7"])
def test_days_that_make_no_sense_are_refused(days: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=r"AuditLog\.keep_days is"):
        AuditLog(path=str(tmp_path / "audit.jsonl"), keep_days=days)


def test_days_without_a_file_are_refused() -> None:
    with pytest.raises(ValueError, match="keep_days goes with a path"):
        AuditLog(sink=print, keep_days=7)
