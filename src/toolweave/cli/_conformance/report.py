"""`toolweave doctor --conformance`: seventeen boxes, for any server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolweave.cli._conformance import answers, definitions, protocol
from toolweave.cli._conformance.findings import Evidence, Judgement
from toolweave.cli._exit_codes import ExitCode, exit_code_of
from toolweave.cli._options import Target
from toolweave.cli._screen import answer_json, note, show

if TYPE_CHECKING:
    from toolweave.config import LoadedConfig, ServerConfig

__all__ = ["BOXES", "conformance"]


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
        ("errors say what was wrong", answers.messages),
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
    import anyio  # imports are late: --help imports this module

    from toolweave.cli._progress import starting
    from toolweave.cli._targets import names_in, select

    selection = await select(target)
    findings = {name: _of_entry(selection, name) for name in names_in(selection)}
    with starting(list(selection.servers)) as done:
        async with anyio.create_task_group() as tasks:

            async def examine(name: str, config: ServerConfig) -> None:
                findings[name] |= await _examine(config, bold)
                done(name)

            for name, config in selection.servers.items():
                tasks.start_soon(examine, name, config)
    if as_json:
        answer_json({"servers": findings})
    else:
        _show(findings)
    return _code(list(findings.values()), strict)


def _of_entry(selection: LoadedConfig, name: str) -> dict[str, Any]:
    error = selection.errors.get(name)
    return {
        "protocol_version": None,
        "error": str(error) if error is not None else None,
        "exit_code": int(ExitCode.USAGE if error is not None else ExitCode.OK),
        "boxes": [],
    }


async def _examine(config: ServerConfig, bold: bool) -> dict[str, Any]:
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
    judged = [(number, box, box.judge(evidence)) for number, box in enumerate(BOXES, 1)]
    return {
        "protocol_version": evidence.version,
        "boxes": [
            {
                "number": number,
                "group": box.group,
                "title": box.title,
                "outcome": judgement.outcome.value,
                "reason": config.redact(judgement.reason),
            }
            for number, box, judgement in judged
        ],
    }


def _code(findings: Sequence[Mapping[str, Any]], strict: bool) -> ExitCode:
    reached = [finding for finding in findings if finding["error"] is None]
    if not reached or (strict and len(reached) < len(findings)):
        wrong = all(finding["exit_code"] == ExitCode.USAGE for finding in findings)
        return ExitCode.USAGE if wrong and not reached else ExitCode.UNREACHABLE
    failed = any(box["outcome"] == "fail" for finding in reached for box in finding["boxes"])
    return ExitCode.TOOL_ERROR if failed else ExitCode.OK


def _show(findings: Mapping[str, Mapping[str, Any]]) -> None:
    from toolweave.cli._render.views import heading, table  # late, as above

    for name, finding in findings.items():
        if finding["error"] is not None:
            note(f"failed: {finding['error']}")
            continue
        counts = Counter(box["outcome"] for box in finding["boxes"])
        summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _MARKS if counts[outcome])
        rows = [(f"{_MARKS[box['outcome']]} {box['number']}", box["title"], box["reason"]) for box in finding["boxes"]]
        show(heading(name, finding["protocol_version"] or "", summary), table(["box", "what is asked", "found"], rows))
