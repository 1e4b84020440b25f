"""`toolweave doctor --conformance`: seventeen boxes, for any server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolweave._json_types import Json, JsonObject
from toolweave.cli._conformance import answers, definitions, protocol
from toolweave.cli._conformance.findings import Evidence, Judgement
from toolweave.cli._exit_codes import ExitCode, exit_code_of
from toolweave.cli._options import Target
from toolweave.cli._screen import answer_json, note, show

if TYPE_CHECKING:
    from toolweave.config import LoadedConfig, ServerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One line of the checklist.

    Attributes:
        group: Its heading.
        title: The question.
        judge: The function that answers it.
    """

    group: str
    title: str
    judge: Callable[[Evidence], Judgement]


def _group(name: str, *boxes: tuple[str, Callable[[Evidence], Judgement]]) -> tuple[Box, ...]:
    return tuple(Box(group=name, title=title, judge=judge) for title, judge in boxes)


BOXES: tuple[Box, ...] = (
    *_group(
        "definitions",
        ("every tool has a name", definitions.names),
        ("every tool has a description", definitions.descriptions),
        ("every input schema is valid", definitions.input_schemas),
        ("input schemas allow no other properties", definitions.closed_inputs),
        ("optional fields are well formed", definitions.optional_fields),
    ),
    *_group(
        "results",
        ("the result is the call's result", answers.envelope),
        ("content blocks name their type", answers.content_types),
        ("wrong arguments are answered with isError", answers.error_flags),
        ("structured output fits its schema", answers.structured_output),
    ),
    *_group(
        "errors",
        ("errors carry their codes", answers.codes),
        ("errors name the mistake", answers.messages),
        ("no stack trace leaves the server", answers.no_stacks),
        ("refused arguments are named", answers.validation_details),
    ),
    *_group(
        "protocol",
        ("lists have pages", protocol.pagination),
        ("capabilities are declared truthfully", protocol.capabilities),
        ("progress grows", protocol.progress),
        ("resource URIs are handled", protocol.resources),
    ),
)


_MARKS = {"pass": "✓", "warn": "!", "fail": "✗", "not applicable": "–"}


async def conformance(target: Target, *, as_json: bool, strict: bool, bold: bool) -> ExitCode:
    """Probe every chosen server and show its conformance to the protocol."""
    from toolweave.cli._findings import (  # imports are late: --help imports this module
        examine_all,
        exit_code_of_findings,
    )
    from toolweave.cli._targets import names_in, select

    selection = await select(target)
    findings = {name: _of_entry(selection, name) for name in names_in(selection)}
    await examine_all(selection, findings, lambda config: _examine(config, bold))
    if as_json:
        answer_json({"servers": findings})
    else:
        _show(findings)
    return exit_code_of_findings(
        findings, strict=strict, failed=lambda finding: any(box["outcome"] == "fail" for box in finding["boxes"])
    )


def _of_entry(selection: LoadedConfig, name: str) -> Json:
    error = selection.errors.get(name)
    return {
        "protocol_version": None,
        "error": str(error) if error is not None else None,
        "exit_code": int(ExitCode.USAGE if error is not None else ExitCode.OK),
        "boxes": [],
    }


async def _examine(config: ServerConfig, bold: bool) -> Json:
    from toolweave.cli._conformance.evidence import gather
    from toolweave.connect import McpConnection
    from toolweave.errors import ToolweaveError

    # wrong arguments are to reach the server, and so are the names it may not know
    changed = config.replace(validate_input=False, validate_output="off", include=(), exclude=(), tool_prefix="")
    connection = McpConnection(changed)
    try:
        async with connection:
            evidence = await gather(connection, bold=bold)
    except ToolweaveError as error:
        return {"error": str(error), "exit_code": int(exit_code_of(error))}
    boxes: list[Json] = []
    for number, box in enumerate(BOXES, 1):
        judgement = box.judge(evidence)
        boxes.append(
            {
                "number": number,
                "group": box.group,
                "title": box.title,
                "outcome": judgement.outcome.value,
                "reason": config.redact(judgement.reason),
            }
        )
    return {"protocol_version": evidence.version, "boxes": boxes}


def _show(findings: Mapping[str, JsonObject]) -> None:
    from toolweave.cli._render.views import heading, table  # late, as above

    for name, finding in findings.items():
        if finding["error"] is not None:
            note(f"failed: {finding['error']}")
            continue
        counts = Counter(box["outcome"] for box in finding["boxes"])
        summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _MARKS if counts[outcome])
        rows = [(f"{_MARKS[box['outcome']]} {box['number']}", box["title"], box["reason"]) for box in finding["boxes"]]
        show(heading(name, finding["protocol_version"] or "", summary), table(["box", "question", "found"], rows))
