"""Operations of stores, logs, listeners and pipes that fail, one after the other: one error, nothing else lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent.killed_run import LINES, RUN, agent_of
from tests.faults.errno_programs import CALLS, token_of, token_store
from tests.faults.test_errno import CODES, PROGRAM, SITE
from tests.programs import ran
from toolweave import connect_mcp
from toolweave.agent import RunStatuses
from toolweave.errors import ServerError
from toolweave.models import UserMessage
from toolweave.state import SqliteStore

pytestmark = pytest.mark.slow
CHECKOUT = Path(__file__).resolve().parents[2]
AUDIT_IS_AWAY = "a line of the audit log cannot be written"


def variables(calls: Path, fault: str = "") -> dict[str, str]:
    """Return the environment of a program whose calls are counted, and one of which may fail."""
    added = {"TOOLWEAVE_TEST_FAULT": fault} if fault else {}
    return {**os.environ, "PYTHONPATH": str(SITE), "TOOLWEAVE_TEST_CALLS": str(calls), **added}


def faults_in(calls: list[str], only: Callable[[str], bool] = lambda call: True) -> list[str]:
    """Return a fault for the first of each kind of call, the error codes in turn."""
    first = [place for place, call in enumerate(calls) if call not in calls[:place] and only(call)]
    return [f"{place + 1}:{CODES[turn % len(CODES)]}" for turn, place in enumerate(first)]


class Run:
    """A program of `errno_programs` in a folder of its own, one call of which may fail."""

    def __init__(self, what: str, folder: Path, prepare: Callable[[Path], object], fault: str = "") -> None:
        self.folder = folder
        folder.mkdir()
        prepare(folder)
        calls = folder.with_name(f"{folder.name}.calls")
        self.done = ran(
            [sys.executable, "-m", "tests.faults.errno_programs", what, str(folder)],
            cwd=CHECKOUT,
            env=variables(calls, fault),
        )
        self.calls = calls.read_text().splitlines() if calls.exists() else []

    def problems(self) -> list[str]:
        """Return what is wrong with how it ended, whatever it did."""
        errors = self.done.stderr
        if "Traceback" in errors or "Exception ignored" in errors or self.done.returncode not in (0, 1):
            return [f"exit code {self.done.returncode}: {errors[-1500:]}"]
        raised = [line for line in errors.splitlines() if line.startswith('"')]  # the others are of the log
        if self.done.returncode == 1 and len(raised) != 1:
            return [f"not one error: {errors}"]
        return []


def nothing(folder: Path) -> None:
    """Prepare nothing."""


def one_token(folder: Path) -> None:
    anyio.run(token_store(folder).save, token_of("a"))


def damaged_tokens(run: Run) -> list[str]:
    async def kept() -> set[str]:
        return {record.access_token for record in await token_store(run.folder).records()}

    tokens, saved = anyio.run(kept), run.done.returncode == 0
    left = [path.name for path in (run.folder / "tokens").iterdir() if path.suffix not in (".json", ".lock")]
    wrong = [] if "a" in tokens and (not saved or "b" in tokens) else [f"only {tokens} are left"]
    return wrong + [f"{name} is left" for name in left]


def one_document(folder: Path) -> None:
    async def put() -> None:
        async with SqliteStore(folder / "store.db") as store:
            await store.put("c", "a", {"n": 1})

    anyio.run(put)


def damaged_documents(run: Run) -> list[str]:
    async def values() -> list[Any]:
        async with SqliteStore(run.folder / "store.db") as store:
            found = await store.read([("c", "a"), ("c", "b")])
            return [None if one is None else one.value for one in found]

    first, second = anyio.run(values)
    saved = "saved" in run.done.stdout
    wrong = [] if first == {"n": 1} and (not saved or second == {"n": 2}) else [f"{first} and {second} are left"]
    left = [path.name for path in run.folder.iterdir() if not path.name.startswith("store.db")]
    return wrong + [f"{name} is left" for name in left]


def damaged_audit(run: Run) -> list[str]:
    lines = (run.folder / "audit").read_text().splitlines() if (run.folder / "audit").exists() else []
    errors = run.done.stderr.count(AUDIT_IS_AWAY)
    requests = [json.loads(line) for line in lines]
    made = sum(request["method"] == "tools/call" for request in requests)
    wrong = [] if made + errors >= CALLS else [f"{made} calls are in the log, and {errors} errors are reported"]
    right = run.done.stdout.split() == [str(2 * number) for number in range(CALLS)]
    return wrong if right else [*wrong, f"the calls returned {run.done.stdout!r}"]


def damaged_run(run: Run) -> list[str]:
    async def finish() -> str:
        async with SqliteStore(run.folder / "store.db") as store:
            agent = agent_of(run.folder, store, lambda place: None)
            if await RunStatuses(store).get(RUN) is None:
                result = await agent.begin([UserMessage.of("write all lines")], run_id=RUN)
            else:
                result = await (await agent.resume(RUN))
            return result.text

    text = anyio.run(finish)
    effects = sorted((run.folder / "effects").read_text().split())
    if text == "all is written" and effects == list(LINES):
        return []
    return [f"the run ended with {text!r} and {effects}"]


@pytest.mark.parametrize(
    ("what", "prepare", "damage"),
    [
        ("tokens", one_token, damaged_tokens),
        ("documents", one_document, damaged_documents),
        ("audited", nothing, damaged_audit),
        ("journal", nothing, damaged_run),
    ],
)
def test_a_store_or_a_log_one_of_whose_operations_fails_reports_one_error_and_loses_nothing(
    what: str, prepare: Callable[[Path], object], damage: Callable[[Run], list[str]], tmp_path: Path
) -> None:
    whole = Run(what, tmp_path / "whole", prepare)
    assert whole.done.returncode == 0, whole.done.stderr
    assert whole.problems() + damage(whole) == []
    faults = faults_in(whole.calls, lambda call: call != "open effects")  # which the tool opens, and not the product
    assert faults

    def problems(fault: str) -> list[str]:
        run = Run(what, tmp_path / fault.replace(":", "-"), prepare, fault)
        return run.problems() or damage(run)

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(faults, pool.map(problems, faults), strict=True))

    wrong = {f"{fault} {whole.calls[int(fault.partition(':')[0]) - 1]}": each for fault, each in found.items() if each}
    assert wrong == {}


def conversation(program: Path, calls: Path, fault: str = "") -> subprocess.CompletedProcess[str]:
    """Speak with a server over pipes: the handshake, two calls, and the end of its input."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": params},
        {"method": "notifications/initialized"},
        *(
            {"id": key, "method": "tools/call", "params": {"name": "add", "arguments": {"a": key, "b": 1}}}
            for key in (2, 3)
        ),
    ]
    return ran(
        [sys.executable, "-m", "toolweave", "serve", f"{program}:server"],
        env=variables(calls, fault),
        given="".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages),
    )


def test_a_server_over_pipes_one_of_whose_calls_fails_answers_or_ends_with_an_error(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)
    whole = conversation(program, tmp_path / "calls")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert whole.returncode == 0, whole.stderr
    assert [json.loads(line)["id"] for line in whole.stdout.splitlines()] == [1, 2, 3]

    def problems(fault: str) -> list[str]:
        done = conversation(program, tmp_path / f"{fault.replace(':', '-')}.calls", fault)
        if "Traceback" in done.stderr or "Exception ignored" in done.stderr:
            return [done.stderr[-1500:]]
        answers = [json.loads(line) for line in done.stdout.splitlines()]  # none is half written
        whole = [answer["id"] for answer in answers] == [1, 2, 3]
        left = fault.endswith(("EPIPE", "ECONNRESET"))  # so it ends without a client
        return [] if whole or left or done.stderr.strip() else [f"exit code {done.returncode} after {answers}"]

    faults = faults_in(calls)
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(faults, pool.map(problems, faults), strict=True))

    wrong = {f"{fault} {calls[int(fault.partition(':')[0]) - 1]}": each for fault, each in found.items() if each}
    assert wrong == {}


def serve(program: Path, calls: Path, fault: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "toolweave", "serve", f"{program}:server", "--http", "0"]
    return subprocess.Popen(command, env=variables(calls, fault), stderr=subprocess.PIPE, text=True)


def call_three_times(program: Path, calls: Path, fault: str = "") -> tuple[list[str], str, int]:
    """Return the outcomes of three calls on a connection each, and the errors and exit code of the server."""

    async def outcomes(url: str) -> list[str]:
        found: list[str] = []
        for _ in range(3):
            try:
                async with connect_mcp({"url": url, "timeout": 20}) as connection:
                    found.append((await connection.call_tool("add", {"a": 1, "b": 2})).text)
            except ServerError as error:
                found.append(str(error))
        return found

    with serve(program, calls, fault) as process:
        assert process.stderr is not None
        lines: list[str] = []
        url = ""
        for line in process.stderr:
            lines.append(line)
            url = next((word for word in line.split() if word.startswith("http://")), "")
            if url:
                break
        found = anyio.run(outcomes, url) if url else []
        process.terminate()
        _, rest = process.communicate(timeout=60)
    return found, "".join(lines) + rest, process.returncode


def test_a_listener_one_of_whose_calls_fails_serves_the_others(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)
    found, errors, code = call_three_times(program, tmp_path / "calls")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert (found, code) == (["3", "3", "3"], 0), errors
    accepted = next(place for place, call in enumerate(calls) if call.startswith("accept"))
    sockets = ("accept", "send", "recv", "setsockopt", "listen", "bind")
    faults = [
        f"{accepted + 1}:EMFILE",
        f"{accepted + 1}:ENFILE",
        *faults_in(calls, lambda call: call.startswith(sockets)),
    ]

    def problems(fault: str) -> list[str]:
        found, errors, code = call_three_times(program, tmp_path / f"{fault.replace(':', '-')}.calls", fault)
        if "Traceback" in errors or "Exception ignored" in errors:
            return [errors[-1500:]]
        if not found:  # it could not listen
            return [] if code and errors.strip() else [f"exit code {code}"]
        lost = [outcome for outcome in found if outcome != "3"]
        return [] if len(lost) <= 1 and code == 0 else [f"{found}, exit code {code}: {errors}"]

    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(faults, pool.map(problems, faults), strict=True))

    wrong = {f"{fault} {calls[int(fault.partition(':')[0]) - 1]}": each for fault, each in results.items() if each}
    assert wrong == {}
