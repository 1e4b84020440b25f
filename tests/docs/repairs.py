"""The tables of docs/forgiveness.md: the rows of the code, and examples that the code reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from toolweave._repairs import Repair
from toolweave.agent._output import JSON_AMONG_PROSE
from toolweave.connect._repairs import MESSAGE_REPAIRS
from toolweave.connect._wire.odd_bodies import ODD_BODY_REPAIRS
from toolweave.models._chat_calls import ODD_PIECES
from toolweave.models._http import NEARLY_JSON, OPEN_TURN, OTHER_TYPE
from toolweave.models._inline_thoughts import INLINE_THOUGHT
from toolweave.models._tool_repairs import TOOL_REPAIRS
from toolweave.openapi._operations import UNDECLARED_PARAMETER
from toolweave.openapi._results import UNPROMISED
from toolweave.openapi._schema_size import LARGE_INPUT, UNCHECKED_PATTERN
from toolweave.protocol.lenient_answers import ANSWER_REPAIRS
from toolweave.protocol.lenient_handshake import HANDSHAKE_REPAIRS
from toolweave.protocol.lenient_notifications import NOTIFICATION_REPAIRS
from toolweave.protocol.lenient_offers import OFFER_REPAIRS
from toolweave.protocol.lenient_questions import CLIENT_ANSWER_REPAIRS, QUESTION_REPAIRS
from toolweave.protocol.lenient_results import RESULT_REPAIRS, BareResult
from toolweave.providers._lowering import RENAMED_ARGUMENT
from toolweave.providers._wire_tools import MARKED_NAME
from toolweave.schema import Validator
from toolweave.schema._repair import SCHEMA_REPAIRS
from toolweave.schema.fitting import ARGUMENT_REPAIRS, as_fitted
from toolweave.serve._offers.string_handlers import PROMPT_VALUE
from toolweave.tools.arguments import ARGUMENTS_IN_TEXT
from toolweave.tools.mcp import tool_result

__all__ = ["REPAIRS", "RESULTS", "argument_examples", "as_received", "repair_rows", "result_examples"]

REPAIRS: Mapping[str, Sequence[Repair]] = {
    "repairs of results": RESULT_REPAIRS,
    "repairs of messages": (
        *MESSAGE_REPAIRS,
        *ODD_BODY_REPAIRS,
        *HANDSHAKE_REPAIRS,
        *ANSWER_REPAIRS,
        *QUESTION_REPAIRS,
        *NOTIFICATION_REPAIRS,
        *CLIENT_ANSWER_REPAIRS,
    ),
    "repairs of lists": OFFER_REPAIRS,
    "repairs of arguments": (*ARGUMENT_REPAIRS, PROMPT_VALUE),
    "repairs of schemas": SCHEMA_REPAIRS,
    "repairs of tools": (*TOOL_REPAIRS, RENAMED_ARGUMENT),
    "repairs of models": (
        ODD_PIECES,
        MARKED_NAME,
        ARGUMENTS_IN_TEXT,
        OPEN_TURN,
        NEARLY_JSON,
        OTHER_TYPE,
        INLINE_THOUGHT,
        JSON_AMONG_PROSE,
    ),
    "repairs of documents": (UNPROMISED, UNCHECKED_PATTERN, LARGE_INPUT, UNDECLARED_PARAMETER),
}
"""The rows of each table."""
RESULTS: Sequence[Any] = (
    "made",
    {"count": 1},
    [1, 2],
    {"content": "made"},
    {"content": {"type": "text", "text": "made"}},
    {"content": ["one"]},
    {"content": [{"text": "made"}]},
    {"content": [{"type": "text", "text": {"a": 1}}]},
    {"content": None, "structuredContent": {"a": 1}},
    {"content": {"content": [{"type": "text", "text": "made"}]}},
    {"result": {"content": [{"type": "text", "text": "no"}], "isError": True}},
    {"content": [], "rows": 2},
    {"content": [{"type": "error", "text": "no"}]},
    {"content": [{"type": "text", "text": "no"}], "isError": "true"},
    {"content": [{"type": "text", "text": "no"}], "isError": 1},
    {"content": [{"type": "text", "text": "no"}], "is_error": True},
)
"""Results that are nearly right."""
ARGUMENTS: Sequence[tuple[Any, Any]] = (
    ({"type": "array", "items": {"type": "integer"}}, "[1, 2]"),
    ({"type": "array", "items": {"type": "integer"}}, ["1", 2]),
    ({"type": "object"}, '{"a": 1}'),
    ({"type": "integer"}, "5"),
    ({"type": "boolean"}, "true"),
    ({"type": "string"}, "[1, 2]"),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "[1, 2]"),
    ({"type": "integer"}, "1.5"),
    ({"type": "integer"}, "five"),
    ({"type": "string"}, 5),
)
"""Schemas, each with an argument."""


def repair_rows(table: str) -> Iterator[str]:
    """Yield the table of some repairs."""
    yield "| nearly right | read as | limit | switched off by |\n|---|---|---|---|\n"
    for one in REPAIRS[table]:
        yield f"| {one.given} | {one.read_as} | {one.limit} | {one.switch} |\n"


def result_examples() -> Iterator[str]:
    """Yield the table of the results as they are read."""
    yield "| the server sends | you read | error |\n|---|---|---|\n"
    for sent in RESULTS:
        read = tool_result(as_received(sent), server="s")
        text = read.text if read.content else json.dumps(read.structured_content)
        yield f"| `{json.dumps(sent)}` | `{text}` | {'yes' if read.is_error else 'no'} |\n"


def as_received(sent: Any) -> Mapping[str, Any]:
    """Return a result as a client has it: a stand-in for one that is not an object."""
    return cast("dict[str, Any]", sent) if isinstance(sent, dict) else BareResult(sent)


def argument_examples() -> Iterator[str]:
    """Yield the table of the arguments as they are sent."""
    yield "| schema | argument | sent |\n|---|---|---|\n"
    for schema, given in ARGUMENTS:
        whole = {"type": "object", "properties": {"x": schema}}
        made = as_fitted(whole, {"x": given})
        sent = f"`{json.dumps(made['x'])}`" if Validator(whole).is_valid(made) else "an error"
        yield f"| `{json.dumps(schema)}` | `{json.dumps(given)}` | {sent} |\n"
