"""The defences that the rows ask for, beside those that any client without defences shows: what is lost without each.

Data alone; `experiments.faults.brittle` is the client in which they can be absent.
"""

from __future__ import annotations

from experiments.faults.rows import ROWS

__all__ = ["ABSENCES", "DEFENCES", "SETTINGS"]

ABSENCES = {
    "any_bytes": "takes a byte order mark or a carriage return around JSON for broken JSON",
    "any_encoding": "trusts the content encoding that is declared",
    "any_exit": "fails to close when the process ends with an exit code",
    "any_name": "loses the whole list to one awkward or terminal-breaking name",
    "any_result_type": "fails at a missing resultType, and at one that it does not know",
    "any_schema": "loses the whole list to one schema that is missing, invalid or of no object",
    "any_type": "loses the whole list to one optional member of a wrong type",
    "bounded_goodbye": "says goodbye without a bound, and fails if nobody wants to hear it",
    "bounded_listening": "needs the stream of the session, however long it takes",
    "bounded_lists": "follows every cursor, null, empty and known ones too, without an end",
    "bounded_probe": "probes without a bound",
    "bounded_retries": "asks for a list until there is one",
    "call_by_call": "holds the connection for broken once a call went wrong",
    "content_types": "fails without a word of the content type when that is not the right one",
    "first_length": "believes the last of several lengths",
    "fresh_lists": "keeps the empty list that it made of a failure",
    "large_answers": "reads 64 KiB of an answer",
    "lenient_cursors": "loses the whole list to a cursor that is no text",
    "lenient_messages": "drops every message that breaks a rule of JSON-RPC, and waits for a better one",
    "local_references": "fetches what a schema points at",
    "noticing_the_end": "waits for the rest of an answer when the stream has ended",
    "optional_features": "needs everything that the server says it has",
    "own_sockets": "uses a kept socket again as it is",
    "read_to_the_end": "takes a body of no stated length for an empty one",
    "read_errors": "never reads standard error",
    "separate_errors": "takes the end of standard error for the end of the server",
    "unfinished_events": "waits on when an event stream ended without the blank line",
    "unique_names": "loses the whole list to a name that comes twice",
}
"""Defence -> what a client does in which it is absent."""

SLOW = {"drip_body", "hang_body", "hang_headers"}
"""Modes that the list of any client without a bound is lost to."""

DEFENCES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("bom", "crlf"), ("any_bytes",)),
    "bom_body": ("any_bytes", "call_by_call"),
    **dict.fromkeys(("gzip_broken", "unknown_encoding"), ("any_encoding", "call_by_call")),
    "wrong_content_type": ("content_types",),
    "no_content_type": ("content_types", "call_by_call"),
    "http_1_0": ("read_to_the_end",),
    "two_lengths": ("first_length", "own_sockets"),
    **dict.fromkeys(("closed_silently", "connection_close", "extra_response"), ("own_sockets",)),
    **dict.fromkeys(("huge_body", "huge_line"), ("large_answers", "own_sockets")),
    "unfinished_sse": ("unfinished_events",),
    "truncated_body at the handshake": ("bounded_probe", "noticing_the_end"),
    **dict.fromkeys(("ansi_and_bidi", "odd_names"), ("any_name",)),
    "bad_annotations": ("any_type",),
    **dict.fromkeys(("invalid_schema", "non_object_schema", "schema_missing"), ("any_schema",)),
    **dict.fromkeys(("schema_null", "schema_of_text", "schema_true"), ("any_schema",)),
    "schema_ref_network": ("local_references",),
    **dict.fromkeys(("duplicate_tool_names", "repeated_pages"), ("unique_names",)),
    **dict.fromkeys(("cursor_empty_string", "cursor_loop", "cursor_null", "endless_cursor"), ("bounded_lists",)),
    "cursor_number": ("lenient_cursors", "fresh_lists"),
    "list_error": ("bounded_retries",),
    "lies_about_resources": ("optional_features",),
    **dict.fromkeys(("id_as_string", "no_jsonrpc_member", "result_and_error"), ("lenient_messages",)),
    "missing_result_type": ("any_result_type",),
    "unknown_result_type": ("any_result_type", "call_by_call"),
    "result_without_content": ("call_by_call",),
    "hang_probe": ("bounded_probe",),
    "dies_at_probe": ("bounded_probe", "noticing_the_end"),
    "exits_with_code": ("any_exit",),
    "closes_stderr": ("separate_errors",),
    "stderr_flood": ("read_errors",),
    **{row.name: ("fresh_lists",) for row in ROWS if row.on == "tools/list" and row.mode not in SLOW},
    **{row.name: ("bounded_listening",) for row in ROWS if row.on == "GET"},
    **{row.name: ("bounded_goodbye",) for row in ROWS if row.on == "DELETE"},
}
"""Row -> the defences without which it is lost."""

SETTINGS = {
    "output_schema_violated": "without `validate_output` content that breaks its schema comes through",
    "slow_start": "with a bound shorter than the start there is no connection",
}
"""Row -> how it is lost by our own client once a setting takes the defence out."""
