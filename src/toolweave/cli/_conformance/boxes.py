"""The seventeen boxes, in the order and the groups of a checklist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolweave.cli._conformance import answers, definitions, protocol
from toolweave.cli._conformance.findings import Evidence, Judgement

__all__ = ["BOXES", "Box"]


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
