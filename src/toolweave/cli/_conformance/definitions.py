"""Judgements of tool definitions: boxes 1 to 5. Knows values only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

from toolweave.cli._conformance.findings import Evidence, Judgement, fail, members, not_applicable, ok, warn
from toolweave.errors import SchemaError
from toolweave.schema import Validator

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def names(evidence: Evidence) -> Judgement:
    """Box 1: every tool has a name, of its own."""
    if not evidence.tools:
        return not_applicable("it lists no tools")
    broken = [f"tool {place} has no name" for place, name in enumerate(map(_name, evidence.tools), 1) if not name]
    counted = Counter(name for name in map(_name, evidence.tools) if name)
    broken += [f"{name!r} is listed {count} times" for name, count in counted.items() if count > 1]
    if broken:
        return fail(broken)
    odd = [f"{name!r} has characters or a length that clients may refuse" for name in counted if not _fits(name)]
    if odd:
        return warn(odd)
    return ok(f"{len(evidence.tools)} tools")


def descriptions(evidence: Evidence) -> Judgement:
    """Box 2: every tool has a description."""
    wrong: list[str] = []
    silent: list[str] = []
    for name, tool in _tools(evidence):
        text = tool.get("description")
        if text is not None and not isinstance(text, str):
            wrong.append(f"{name}: the description is no string")
        elif not (text or "").strip():
            silent.append(f"{name} has no description; a model chooses by it")
    return _judged(evidence, wrong, silent, "every tool has one")


def input_schemas(evidence: Evidence) -> Judgement:
    """Box 3: every input schema is a JSON Schema of an object."""
    wrong: list[str] = []
    for name, tool in _tools(evidence):
        schema = tool.get("inputSchema")
        if not isinstance(schema, Mapping):
            wrong.append(f"{name}: no inputSchema")
        elif members(schema).get("type") != "object":
            wrong.append(f"{name}: the root needs type 'object'")
        elif (problem := _problem(schema)) is not None:
            wrong.append(f"{name}: {problem}")
    return _judged(evidence, wrong, [], "every schema compiles")


def closed_inputs(evidence: Evidence) -> Judgement:
    """Box 4: input schemas reject unknown properties; recommended only."""
    open_ones = [
        f"{name} takes any other property"
        for name, tool in _tools(evidence)
        if members(tool.get("inputSchema")).get("additionalProperties") is not False
    ]
    return _judged(evidence, [], open_ones, "every schema has additionalProperties: false")


def optional_fields(evidence: Evidence) -> Judgement:
    """Box 5: title, output schema, annotations, icons and `_meta` are valid if present."""
    wrong = [f"{name}: {problem}" for name, tool in _tools(evidence) for problem in _odd_fields(tool, evidence.modern)]
    return _judged(evidence, wrong, [], "title, outputSchema, annotations, icons and _meta are well formed")


def _odd_fields(tool: Mapping[str, Any], modern: bool) -> Iterator[str]:
    if not isinstance(tool.get("title", ""), str):
        yield "title is no string"
    for key in ("annotations", "_meta"):
        if not isinstance(tool.get(key, {}), Mapping):
            yield f"{key} is no object"
    hints = members(tool.get("annotations"))
    yield from (f"annotations.{key} is no boolean" for key in _HINTS if not isinstance(hints.get(key, True), bool))
    if "outputSchema" in tool:
        yield from _odd_output(tool["outputSchema"], modern)
    icons = tool.get("icons", [])
    if isinstance(icons, list):
        listed = cast("list[Any]", icons)
    else:
        listed = [None]
    for icon in listed:
        source = members(icon).get("src")
        if not isinstance(source, str) or not source.startswith(("https:", "data:")):
            yield "an icon has no src of https: or data:"


def _odd_output(schema: Any, modern: bool) -> Iterator[str]:
    if not isinstance(schema, Mapping) and not (modern and isinstance(schema, bool)):
        yield "outputSchema is no schema"
    elif not modern and members(schema).get("type") != "object":
        yield "before 2026-07-28 an outputSchema has type 'object' at its root"
    elif (problem := _problem(schema)) is not None:
        yield f"outputSchema: {problem}"


def _judged(evidence: Evidence, wrong: list[str], odd: list[str], fine: str) -> Judgement:
    if not evidence.tools:
        return not_applicable("it lists no tools")
    if wrong:
        return fail(wrong)
    if odd:
        return warn(odd)
    return ok(fine)


def _problem(schema: Any) -> str | None:
    try:
        Validator(schema)
    except SchemaError as error:
        return f"it is no valid JSON Schema: {error}"
    return None


def _tools(evidence: Evidence) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, tool in enumerate(evidence.tools, 1):
        yield repr(_name(tool)) if _name(tool) else f"tool {place}", members(tool)


def _name(tool: Any) -> str:
    name = members(tool).get("name")
    if isinstance(name, str):
        return name
    return ""


def _fits(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
