"""Every way in which a stdio server misbehaves, and what its user sees of it."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.connect.targets import connected
from tests.servers.fixtures import fault_command
from toolweave import CallContext, ErrorKind, ToolCall, connect_mcp
from toolweave.connect import ConnectionState
from toolweave.errors import ServerError
from toolweave.testing.servers import STDIO_FAULTS


@dataclass
class Case:
    """What is seen of one fault.

    Attributes:
        connects: What the error of connecting says; empty when it connects.
        degraded: What the state `degraded` gives as its reason; empty when it is `ready`.
        problems: What is said about the list, in order.
        flagged: Whether the scan of what the server says finds something.
        offers: Names that must be offered.
        lacks: Names that must not.
        echo: What the text of calling `echo` says.
        kind: The kind of error of that call, None for success.
        bounds: Timeouts of this fault.
    """

    connects: str = ""
    degraded: str = ""
    problems: tuple[str, ...] = ()
    flagged: bool = False
    offers: str = "echo add"
    lacks: str = ""
    echo: str = "^hi$"
    kind: ErrorKind | None = None
    bounds: dict[str, float] = field(default_factory=dict[str, float])


FINE = Case()
INVALID = ErrorKind.PROTOCOL
SILENT = Case(echo="no answer to the call of tool 'echo' within 0.4 s", kind=ErrorKind.TIMEOUT, bounds={"call": 0.4})
NEVER = "did not finish connecting within 0.6 s; raise timeout.connect"
SOON = {"connect": 0.6, "probe": 0.1, "close": 0.5}
STUBBORN = Case(bounds={"close": 0.5})

CASES = {
    "ansi_and_bidi": Case(offers="echo hostile hostile_error", flagged=True),
    "bad_annotations": Case(
        offers="annotations_text annotations_types description_number title_list icons_text output_true meta_text"
    ),
    "bad_blocks": Case(echo=r'^\n\[hologram\] {"type": "hologram", "data": "x"}\ntext\ngood$'),
    "bogus_version": Case(connects="initialize with protocol version '2025-11-05'; expected one of 2024-11-05, "),
    "bom": FINE,
    "closes_stdout_but_lives": Case(
        echo="it closed its standard output$", kind=ErrorKind.OUTCOME_UNKNOWN, bounds={"close": 0.5}
    ),
    "cursor_empty_string": Case(offers="echo add second_page"),
    "cursor_loop": Case(
        problems=("tools/list repeats the cursor 'a': stopped after 3 pages",),
        offers="looped_first looped_a looped_b",
        echo="no tool 'echo'",
        kind=ErrorKind.NOT_FOUND,
    ),
    "cursor_null": Case(offers="echo"),
    "dies_after_initialize": Case(connects=r"exit code 3.*: cannot list\n  run .*run.py faults --mode .*"),
    "dies_at_initialize": Case(connects=r"exit code 3.*: cannot initialize: no database\n  run .*run.py faults "),
    "dies_at_probe": FINE,
    "dies_mid_call": Case(
        echo=r"its process ended while the call ran \(exit code 9\).*: segmentation fault, on purpose$",
        kind=ErrorKind.OUTCOME_UNKNOWN,
    ),
    "duplicate_answer": FINE,
    "duplicate_tool_names": Case(problems=("tool 'echo' left out: a second tool of this name",)),
    "endless_cursor": Case(
        problems=("tools/list does not end: stopped after 1000 pages",),
        offers="endless_0 endless_999",
        lacks="endless_1000",
        echo="no tool 'echo'",
        kind=ErrorKind.NOT_FOUND,
    ),
    "error_is_text": Case(echo="it sent an invalid answer: .*broken", kind=INVALID),
    "exits_at_once": Case(
        connects=r"its process ended while connecting \(exit code 3\); its last words on standard error: fatal: no API "
        "key in EXAMPLE_TOKEN\n  reading settings\n  run .*run.py faults --mode exits_at_once by hand to see more$"
    ),
    "garbage_stdout": FINE,
    "grandchild_holds_pipes": Case(offers="echo grandchild", bounds={"close": 0.5}),
    "hang_call": SILENT,
    "hang_initialize": Case(connects=NEVER, bounds=SOON),
    "hang_list": Case(degraded="no answer to tools/list within 0.4 s", offers="", bounds={"list": 0.4}),
    "huge_line": Case(echo="^x{1000}", bounds={"call": 30}),
    "id_as_string": FINE,
    "ignores_eof": STUBBORN,
    "ignores_sigterm": STUBBORN,
    "invalid_schema": Case(offers="echo add bad_type bad_ref bad_pattern"),
    "invalid_utf8": Case(echo="its? .*answer.*(decode byte|not valid UTF-8)", kind=INVALID),
    "lies_about_resources": FINE,
    "list_changed_storm": FINE,
    "list_error": Case(degraded="server 'faulty': cannot list: upstream is down", offers=""),
    "never_answers": Case(connects=NEVER, bounds=SOON),
    "no_tools": Case(offers="", lacks="echo add", echo="no tool 'echo'", kind=ErrorKind.NOT_FOUND),
    "non_object_schema": Case(
        problems=(
            "tool 'schema_text' left out: its inputSchema is not an object but str",
            "tool 'schema_string_type' left out: its inputSchema does not describe an object but 'string'",
            "tool 'schema_true': its definition has an 'inputSchema' that is not an object",
            "tool 'schema_list': its definition has an 'inputSchema' that is not an object",
        ),
        offers="echo add schema_null schema_empty schema_missing schema_true schema_list",
        lacks="schema_text schema_string_type",
    ),
    "notification_storm": FINE,
    "odd_names": Case(offers="echo add sl/ash dot.ted co:lon ünïcode a__b -dash"),
    "output_schema_violated": Case(offers="echo violates omits"),
    "partial_line_then_hang": SILENT,
    "refuses_initialize": Case(connects="server 'faulty': .*licence expired"),
    "result_not_object": Case(echo=r'^\["text"\]$'),
    "result_null": Case(echo="it sent an invalid answer: .*None", kind=INVALID),
    "result_without_content": Case(echo='^{"ok": true}$'),
    "roots_and_sampling_requests": Case(echo=r'"ping": .*"result": {}.*-32601.*-32601.*-32601'),
    "schema_deep": Case(problems=("tool number 3 left out: it is not an object",), lacks="deep"),
    "schema_ref_network": Case(offers="echo add remote_ref remote_output remote_dialect"),
    "server_request_made_up_method": FINE,
    "slow_start": Case(bounds={"probe": 0.2}),
    "stderr_flood": FINE,
    "stdout_flood": FINE,
    "tool_not_object": Case(problems=tuple(f"tool number {n} left out: it is not an object" for n in (3, 4, 5, 6))),
    "tool_without_name": Case(problems=tuple(f"tool number {n} left out: it has no name" for n in (3, 4, 5))),
    "tools_missing": Case(degraded="its answer to tools/list has no list 'tools'", offers=""),
    "tools_not_list": Case(offers="echo", problems=("its answer to tools/list has 'tools' that is not a list",)),
    "wrong_id": Case(echo="it sent an invalid answer: its id is '987654', which no request had", kind=INVALID),
}


def test_every_fault_has_its_expectation() -> None:
    assert set(CASES) <= set(STDIO_FAULTS)


def bounds_of(case: Case) -> dict[str, float]:
    return {"connect": 20, "probe": 5, "list": 20, "call": 20, "close": 2} | case.bounds


@pytest.mark.parametrize("mode", [mode for mode, case in CASES.items() if not case.connects])
@pytest.mark.requirement("R45", "R62", "R65", "R68", "R69", "D12", "D28")
async def test_a_server_with_a_fault_is_still_as_useful_as_it_can_be(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[mode]
    with caplog.at_level(logging.WARNING, "toolweave"):
        target = fault_command(mode)
        async with connected(target, 40, name="faulty", timeout=bounds_of(case)) as connection:
            reason = str(connection.error or "")
            assert connection.state is (ConnectionState.DEGRADED if case.degraded else ConnectionState.READY)
            assert tuple(one for one in connection.problems if " flagged: " not in one) == case.problems
            assert any(" flagged: " in one for one in connection.problems) == case.flagged
            offered = set(connection.snapshot().by_name)
            result = await connection.call(ToolCall(name="echo", arguments={"text": "hi"}), CallContext())

    assert case.degraded in reason
    assert bool(case.degraded) == bool(reason)
    assert [name for name in case.offers.split() if name not in offered] == []
    assert [name for name in case.lacks.split() if name in offered] == []
    for problem in case.problems:
        assert f"server 'faulty': {problem}" in caplog.messages
    assert (result.error.kind if result.error else None) == case.kind
    assert re.search(case.echo, result.text, re.DOTALL), result.text[:500]
    if case.kind not in (None, ErrorKind.NOT_FOUND):
        assert result.text.startswith("MCP error: server 'faulty': ")


@pytest.mark.parametrize("mode", [mode for mode, case in CASES.items() if case.connects])
@pytest.mark.requirement("R59", "D14")
async def test_a_server_that_cannot_be_reached_is_an_error_that_says_why(mode: str) -> None:
    case = CASES[mode]
    target: Any = fault_command(mode)
    with pytest.raises(ServerError) as failure:
        await connect_mcp(target, name="faulty", timeout=bounds_of(case))
    assert failure.value.server == "faulty"
    assert str(failure.value).startswith("server 'faulty': ")
    assert re.search(case.connects, str(failure.value), re.DOTALL), str(failure.value)
