"""The rows of the fault battery: each fault of the kit at each stage it has, and what a client may make of it.

Data alone; imports the names of the modes and nothing else of the package, so that every client's Python can read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolweave.testing.servers import HTTP_FAULTS, STDIO_FAULTS

__all__ = ["COMBOS", "HANGS", "ROWS", "SPECIAL", "Combo", "Row", "runs"]

Combo = Literal["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"]
COMBOS: tuple[Combo, ...] = ("stdio-legacy", "stdio-modern", "http-legacy", "http-modern")
Outcome = Literal["right", "error", "either"]

HANDSHAKE = "HANDSHAKE"
"""Stands for the first request of the revision: `initialize` or `server/discover`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to misbehave.

    Attributes:
        name: The mode, and the stage if it is not the call.
        mode: The mode of the fault server.
        transport: Which servers have it: standard input and output, HTTP, or both.
        on: The method that the fault takes, None for the mode's own.
        once: Whether the server misbehaves a single time; else always.
        first: What the first call may come to; `right` is the right value, `error` an error that says `says`.
        then: What the next call may come to.
        says: A pattern that an error of the first call (or of connecting) must match.
        accepts: A pattern that the first call's text must match instead of the argument.
        connects: Whether connecting must, may or cannot succeed: `right`, `either`, `error`.
        seconds: The client's bound for every wait; short where the fault is a hang.
        options: Further options of the fault server.
        offers: Tools that must be listed.
    """

    name: str
    mode: str
    transport: Literal["stdio", "http", "both"]
    on: str | None = None
    once: bool = True
    first: Outcome = "either"
    then: Outcome = "right"
    says: str = ""
    accepts: str = ""
    connects: Outcome = "right"
    seconds: float = 10.0
    options: tuple[str, ...] = ()
    offers: tuple[str, ...] = ("echo",)

    @property
    def about(self) -> str:
        """What the server does, in one sentence."""
        return {**STDIO_FAULTS, **HTTP_FAULTS}[self.mode]


HANG_SECONDS = 3.0
"""The bound that a fault which hangs is measured with."""

# What a mode is where it is not the rule: it misbehaves once, at the call, and the next call is right.

BENIGN = [
    "ansi_and_bidi",
    "bad_annotations",
    "blank_lines",
    "bom",
    "cancels_foreign",
    "closes_stderr",
    "connection_close",
    "crlf",
    "cursor_empty_string",
    "cursor_null",
    "duplicate_answer",
    "duplicate_tool_names",
    "nan_result",
    "early_answer",
    "exits_with_code",
    "foreign_progress",
    "garbage_stdout",
    "grandchild_holds_pipes",
    "grandchild_outlives",
    "http_1_0",
    "id_as_string",
    "ignores_eof",
    "ignores_sigterm",
    "interim_responses",
    "invalid_schema",
    "lies_about_resources",
    "list_changed_storm",
    "missing_result_type",
    "non_object_schema",
    "notification_storm",
    "odd_names",
    "output_schema_violated",
    "ping_flood",
    "repeated_pages",
    "schema_deep",
    "schema_missing",
    "schema_null",
    "schema_of_text",
    "schema_ref_network",
    "schema_true",
    "server_request_made_up_method",
    "slow_exit",
    "slow_start",
    "split_sse",
    "stderr_flood",
    "stdout_flood",
    "tool_not_object",
    "tool_without_name",
    "closed_silently",
    "restarts",
]
"""Modes that take nothing from the caller: every call is right however often they happen."""

ODD_LISTS = [
    "cursor_loop",
    "endless_cursor",
    "list_error",
    "no_tools",
    "tools_missing",
    "tools_not_list",
    "tools_null",
    "hang_list",
]
"""Modes whose list has no `echo`, or none at all: a call may be refused for that, never hang."""

HANGS = [
    "accepted_202",
    "closes_stdout_but_lives",
    "drip_body",
    "drip_headers",
    "endless_comments",
    "endless_headers",
    "endless_line",
    "foreign_answer",
    "giant_event",
    "hang_body",
    "hang_call",
    "hang_headers",
    "hang_initialize",
    "hang_list",
    "hang_probe",
    "hang_sse",
    "id_null",
    "late_answer",
    "never_answers",
    "partial_line_then_hang",
    "slow_drip",
    "status_204",
    "stopped_mid_call",
    "stops_reading",
    "wrong_id",
    "neither_result_nor_error",
    "error_is_text",
    "pretty_printed",
    "junk_before_answer",
    "two_answers_on_a_line",
    "no_jsonrpc_member",
    "batch_answer",
    "ignores_eof",
    "ignores_sigterm",
    "grandchild_holds_pipes",
    "slow_exit",
    "gzip_bomb",
    "dropped_sse",
    "dropped_sse_with_id",
    "unfinished_sse",
    "broken_sse",
]
"""Modes that a client may only get out of by a bound of its own."""

STAY_BROKEN = {
    # the line or the process stays as it is after the fault: the next call may only fail clearly
    "partial_line_then_hang": "either",
    "endless_line": "either",
    "slow_drip": "either",
    "stopped_mid_call": "either",
    "stops_reading": "either",
    "never_answers": "either",
    "status_401": "either",
}
ALWAYS = {"bogus_version", "exits_at_once"}
"""Modes that cannot be had only once."""
ACCEPTS = {
    "bad_blocks": "good",
    "content_not_list": "^text$",
    "deep_answer": "deep",
    "error_of_odd_types": "^$",
    "huge_body": "^x+$",
    "huge_line": "^x+$",
    "invalid_utf8": "caf",
    "invalid_utf8_body": "first",
    "result_not_object": "text",
    "result_without_content": "^$|ok",
    "roots_and_sampling_requests": "ping",
}
ERRORS = [
    "error_is_text",
    "error_without_code",
    "error_of_odd_types",
    "result_null",
    "wrong_id",
    "id_null",
]
"""Modes without a right value: an error is the only honest outcome."""

SAYS = {
    "dies_after_initialize": "exit code 3.*cannot list",
    # a modern server that is started again with `initialize` refuses that
    "dies_at_initialize": "exit code 3.*cannot initialize: no database|Unsupported protocol version",
    "dies_mid_call": "exit code 9.*segmentation fault, on purpose",
    "dies_mid_line": "exit code 3.*disk full",
    "error_is_text": "broken",
    "error_without_code": "quota exceeded",
    "exits_at_once": "exit code 3.*fatal: no API key",
    "html_answer": "text/html",
    "killed_mid_call": "signal 9",
    "refuses_initialize": "licence expired",
    **{
        f"status_{status}": str(status)
        for status in (400, 401, 403, 404, 405, 406, 409, 413, 415, 429, 500, 502, 503, 504)
    },
    "status_503_bare": "503",
    "status_503_until_date": "503",
    "wrong_content_type": "text/plain",
}
SIZES = {
    "gzip_bomb": 100_000_000,
    "huge_body": 2_000_000,
    "huge_line": 2_000_000,
    "stderr_flood": 400_000,
    "stdout_flood": 400_000,
}
SECONDS = {
    "slow_drip": 0.2,
    "drip_body": 0.5,
    "drip_headers": 0.5,
    "slow_start": 0.2,
    "slow_exit": 20,
    "endless_line": 0.05,
}
CONNECTING = {
    # modes of the handshake: connecting may fail, or must
    "bogus_version": "error",
    "dies_after_initialize": "either",
    "dies_at_initialize": "either",
    "dies_at_probe": "either",
    "exits_at_once": "error",
    "hang_initialize": "either",
    "hang_probe": "either",
    "hang_list": "either",
    "never_answers": "either",
    "refuses_initialize": "either",
    "list_error": "either",
}
LEGACY_ONLY = {
    "hang_initialize",
    "bogus_version",
    "refuses_initialize",
    "gone_session",
    "gone_session_400",
    "ping_flood",
    "roots_and_sampling_requests",
    "server_request_made_up_method",
}
"""Modes of what a modern server does not have: `initialize`, sessions, requests to the client."""

STAGED = [
    "status_400",
    "status_401",
    "status_404",
    "status_500",
    "status_503",
    "html_answer",
    "empty_answer",
    "bad_json",
    "hang_headers",
    "hang_body",
    "reset_at_once",
    "close_at_once",
    "truncated_body",
    "dropped_sse",
    "drip_body",
    "redirect_loop",
    "accepted_202",
    "no_http",
]
STAGES = (HANDSHAKE, "tools/list")
BESIDE = {"GET": ["status_404", "status_500", "hang_headers", "reset_at_once", "html_answer", "no_http"]}
BESIDE["DELETE"] = ["status_404", "status_500", "hang_headers", "reset_at_once"]


SPECIAL = {
    *(*BENIGN, *ODD_LISTS, *HANGS, *STAY_BROKEN, *ALWAYS, *ACCEPTS, *ERRORS, *SAYS, *SIZES, *SECONDS, *CONNECTING),
    *(*LEGACY_ONLY, *STAGED, *BESIDE["GET"], *BESIDE["DELETE"]),
}
"""Every mode that is named above."""


def row_of(mode: str) -> Row:
    """Return the row of a mode at its own stage."""
    stdio, http = mode in STDIO_FAULTS, mode in HTTP_FAULTS
    listed = mode in ODD_LISTS
    options = [f"--size={SIZES[mode]}"] if mode in SIZES else []
    options += [f"--seconds={SECONDS[mode]}"] if mode in SECONDS else []
    benign = mode in BENIGN
    own_stage = mode in STDIO_FAULTS or mode in ("gone_session", "gone_session_400")
    first: Outcome = "right" if benign else "error" if mode in ERRORS else "either"
    return Row(
        name=mode,
        mode=mode,
        transport="both" if stdio and http else "stdio" if stdio else "http",
        on=None if own_stage else "tools/call",
        once=not (benign or listed or mode in ALWAYS),
        first=first,
        then="either" if listed else STAY_BROKEN.get(mode, "right"),  # pyright: ignore[reportArgumentType]
        says=SAYS.get(mode, ""),
        accepts=ACCEPTS.get(mode, ""),
        connects=CONNECTING.get(mode, "right"),  # pyright: ignore[reportArgumentType]
        seconds=HANG_SECONDS if mode in HANGS else 10.0,
        options=tuple(options),
        offers=() if listed or mode in CONNECTING else ("echo",),
    )


def staged(mode: str, on: str) -> Row:
    """Return the row of an HTTP fault at another stage than the call."""
    beside = on in BESIDE
    return Row(
        name=f"{mode} at {'the handshake' if on == HANDSHAKE else on}",
        mode=mode,
        transport="http",
        on=on,
        once=not beside,
        first="right" if beside else "either",
        says="" if beside or on != HANDSHAKE else SAYS.get(mode, ""),
        connects="right" if beside else "either",
        seconds=HANG_SECONDS if mode in HANGS else 10.0,
        options=(f"--seconds={SECONDS[mode]}",) if mode in SECONDS else (),
        offers=("echo",) if beside else (),
    )


ROWS: tuple[Row, ...] = (
    *(row_of(mode) for mode in sorted({*STDIO_FAULTS, *HTTP_FAULTS})),
    *(staged(mode, on) for on in STAGES for mode in STAGED),
    *(staged(mode, on) for on, modes in BESIDE.items() for mode in modes),
)
"""Every row, by name."""


def runs(row: Row) -> tuple[Combo, ...]:
    """Return the combinations of transport and revision in which a row can exist."""
    legacy_only = row.mode in LEGACY_ONLY or row.on in BESIDE
    return tuple(
        combo
        for combo in COMBOS
        if row.transport in ("both", combo.partition("-")[0]) and not (legacy_only and combo.endswith("modern"))
    )
