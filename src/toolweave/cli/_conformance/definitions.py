"""Judgements of tool definitions: boxes 1 to 5. Knows values only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from toolweave._json_types import JsonObject, as_array, as_object, object_or_empty, text_or_empty
from toolweave.cli._conformance.findings import Evidence, Judgement, not_applicable, verdict
from toolweave.errors import SchemaError
from toolweave.schema import Validator

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def names(evidence: Evidence) -> Judgement:
    """Box 1: every tool has a name, and no two have the same."""
    broken: list[str] = []
    counted: Counter[str] = Counter()
    for place, name in enumerate(map(_name, evidence.tools), 1):
        if name:
            counted[name] += 1
        else:
            broken.append(f"tool {place} has no name")
    broken += [f"{name!r} is listed {count} times" for name, count in counted.items() if count > 1]
    odd = [f"{name!r} has characters or a length that clients may refuse" for name in counted if not _fits(name)]
    return _judged(evidence, broken, odd, f"{len(evidence.tools)} tools")


def descriptions(evidence: Evidence) -> Judgement:
    """Box 2: every tool has a description."""
    wrong: list[str] = []
    silent: list[str] = []
    for name, tool in _tools(evidence):
        text = tool.get("description", "")
        if text is not None and not isinstance(text, str):
            wrong.append(f"{name}: the description is not a string")
        elif text is None or not text.strip():
            silent.append(f"{name} has no description; a model chooses by it")
    return _judged(evidence, wrong, silent, "every tool has one")


def input_schemas(evidence: Evidence) -> Judgement:
    """Box 3: every input schema is a JSON Schema of an object."""
    wrong: list[str] = []
    for name, tool in _tools(evidence):
        problem = _input_problem(as_object(tool.get("inputSchema")))
        if problem is not None:
            wrong.append(f"{name}: {problem}")
    return _judged(evidence, wrong, [], "every schema compiles")


def _input_problem(schema: JsonObject | None) -> str | None:
    if schema is None:
        return "no inputSchema"
    if schema.get("type") != "object":
        return "the root needs type 'object'"
    return _problem(schema)


def closed_inputs(evidence: Evidence) -> Judgement:
    """Box 4: input schemas reject unknown properties; recommended only."""
    open_ones: list[str] = []
    for name, tool in _tools(evidence):
        if object_or_empty(tool.get("inputSchema")).get("additionalProperties") is not False:
            open_ones.append(f"{name} accepts any other property")
    return _judged(evidence, [], open_ones, "every schema has additionalProperties: false")


def optional_fields(evidence: Evidence) -> Judgement:
    """Box 5: title, output schema, annotations, icons and `_meta` are valid if present."""
    wrong: list[str] = []
    for name, tool in _tools(evidence):
        wrong += (f"{name}: {problem}" for problem in _odd_fields(tool, evidence.modern))
    return _judged(evidence, wrong, [], "title, outputSchema, annotations, icons and _meta are well formed")


def _odd_fields(tool: JsonObject, modern: bool) -> Iterator[str]:
    if not isinstance(tool.get("title", ""), str):
        yield "title is not a string"
    for key in ("annotations", "_meta"):
        if as_object(tool.get(key, {})) is None:
            yield f"{key} is not an object"
    hints = object_or_empty(tool.get("annotations"))
    for key in _HINTS:
        if not isinstance(hints.get(key, True), bool):
            yield f"annotations.{key} is not a boolean"
    if "outputSchema" in tool:
        problem = _output_problem(tool["outputSchema"], modern)
        if problem is not None:
            yield problem
    icons = as_array(tool.get("icons", []))
    for icon in [None] if icons is None else icons:
        if not text_or_empty(object_or_empty(icon).get("src")).startswith(("https:", "data:")):
            yield "an icon has no src of https: or data:"


def _output_problem(schema: object, modern: bool) -> str | None:
    is_schema = as_object(schema) is not None
    if modern:
        is_schema = is_schema or isinstance(schema, bool)
    if not is_schema:
        return "outputSchema is not a schema"
    if not modern and object_or_empty(schema).get("type") != "object":
        return "before 2026-07-28 an outputSchema has type 'object' at its root"
    problem = _problem(schema)
    return None if problem is None else f"outputSchema: {problem}"


def _judged(evidence: Evidence, wrong: list[str], odd: list[str], fine: str) -> Judgement:
    if not evidence.tools:
        return not_applicable("it lists no tools")
    return verdict(fine, wrong=wrong, odd=odd)


def _problem(schema: Any) -> str | None:
    try:
        Validator(schema)
    except SchemaError as error:
        return f"it is not a valid JSON Schema: {error}"
    return None


def _tools(evidence: Evidence) -> Iterator[tuple[str, JsonObject]]:
    for place, tool in enumerate(evidence.tools, 1):
        name = _name(tool)
        yield repr(name) if name else f"tool {place}", object_or_empty(tool)


def _name(tool: object) -> str:
    return text_or_empty(object_or_empty(tool).get("name"))


def _fits(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
