"""Judgements of call answers: results (boxes 6 to 9) and errors (10 to 13). Knows values only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolweave.cli._conformance.findings import (
    Evidence,
    Judgement,
    ServerAnswer,
    fail,
    members,
    not_applicable,
    ok,
    warn,
)
from toolweave.errors import SchemaError
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolweave.schema import Validator

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": (),
}
_LONGEST_LINE = 500  # characters that are searched for a line of a stack: some of the patterns are quadratic
_STACK = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^[ \t]*File \"[^\"\n]+\", line \d+"
    r"|^[ \t]+at \S.*[(:]\S*:\d+(:\d+)?\)?[ \t]*$"
    r"|^goroutine \d+ \["
    r"|panicked at \S+:\d+",
    re.MULTILINE,
)
_GENERIC = re.compile(
    r"(an? )?(unknown |internal |server |unexpected )*(error|failed|failure|invalid params?|exception)\W*",
    re.IGNORECASE,
)
_SILENT = ("", "an error without a message")  # the latter is how a connection calls the former


def envelope(evidence: Evidence) -> Judgement:
    """Box 6: the JSON-RPC result is the call's result, `result.content` and never `result.result`."""
    seen = [answer for answer in evidence.of_tools if answer.result is not None]
    wrong: list[str] = []
    for answer in seen:
        result = members(answer.result)
        if "content" not in result and "result" in result:
            wrong.append(f"{answer.what}: the result is wrapped once more, as result.result")
        elif not isinstance(result.get("content"), list):
            wrong.append(f"{answer.what}: the result has no list 'content'")
        elif evidence.modern and not isinstance(result.get("resultType"), str):
            wrong.append(f"{answer.what}: the result has no resultType")
    if wrong:
        return fail(wrong)
    if seen:
        return ok(f"{len(seen)} results seen")
    return not_applicable("no call was answered with a result")


def content_types(evidence: Evidence) -> Judgement:
    """Box 7: every content block has a type and the members that the type requires."""
    seen = [(answer.what, block) for answer in evidence.of_tools for block in answer.blocks]
    wrong = [f"{what}: {problem}" for what, block in seen if (problem := _odd_block(block)) is not None]
    if wrong:
        return fail(wrong)
    if seen:
        return ok(f"{len(seen)} blocks seen")
    return not_applicable("no content was seen")


def error_flags(evidence: Evidence) -> Judgement:
    """Box 8: arguments that do not fit are answered with `isError: true`."""
    odd = [
        f"{answer.what}: isError is no boolean"
        for answer in evidence.of_tools
        if not isinstance(members(answer.result).get("isError", False), bool)
    ]
    if odd:
        return fail(odd)
    if not evidence.refused:
        return not_applicable("no tool could be called with wrong arguments without a risk; --call tries more")
    taken = [f"{answer.what}: taken as if nothing was wrong" for answer in evidence.refused if _was_taken(answer)]
    if taken:
        return fail(taken)
    other = [f"{answer}; a model sees only results" for answer in evidence.refused if answer.code is not None]
    other += [str(answer) for answer in evidence.refused if answer.code is None and answer.result is None]
    if other:
        return warn(other)
    return ok(f"{len(evidence.refused)} wrong calls were refused with isError")


def structured_output(evidence: Evidence) -> Judgement:
    """Box 9: structured content fits the tool's output schema."""
    wrong: list[str] = []
    odd: list[str] = []
    seen = 0
    for answer in evidence.calls:
        schema = members(answer.tool).get("outputSchema")
        if schema is None or answer.result is None or answer.is_error:
            continue
        seen += 1
        if (problem := _unfit(schema, answer.result)) is not None:
            wrong.append(f"{answer.what}: {problem}")
        elif not _mirrored(answer):
            odd.append(f"{answer.what}: no text block repeats it for clients that know only text")
    if wrong:
        return fail(wrong)
    if not seen:
        return not_applicable("no safe tool with an outputSchema answered; --call tries the others")
    if odd:
        return warn(odd)
    return ok(f"{seen} structured results fit")


def codes(evidence: Evidence) -> Judgement:
    """Box 10: errors carry the codes that the specification gives them."""
    expected: list[tuple[ServerAnswer | None, tuple[int, ...]]] = [
        (evidence.unknown_tool, (INVALID_PARAMS,)),
        (evidence.unknown_method, (METHOD_NOT_FOUND,)),
        (evidence.unknown_resource, (INVALID_PARAMS,) if evidence.modern else (INVALID_PARAMS, RESOURCE_NOT_FOUND)),
    ]
    wrong = [
        f"{answer}; error {' or '.join(map(str, right))} is expected"
        for answer, right in expected
        if answer is not None and answer.code not in right
    ]
    if wrong:
        return fail(wrong)
    return ok("unknown tools, methods and resources are told apart by their codes")


def messages(evidence: Evidence) -> Judgement:
    """Box 11: errors have a meaningful message."""
    if not evidence.errors:
        return not_applicable("no error was seen")
    empty = [f"{answer.what}: the error says nothing" for answer in evidence.errors if answer.text.strip() in _SILENT]
    if empty:
        return fail(empty)
    generic = [
        f"{answer.what}: {answer.text!r} does not say what was wrong"
        for answer in evidence.errors
        if _GENERIC.fullmatch(answer.text.strip())
    ]
    if generic:
        return warn(generic)
    return ok(f"{len(evidence.errors)} errors say what was wrong")


def no_stacks(evidence: Evidence) -> Judgement:
    """Box 12: no error contains a stack trace."""
    if not evidence.errors:
        return not_applicable("no error was seen")
    leaks = [f"{answer.what}: a stack trace" for answer in evidence.errors if _has_stack(answer)]
    if leaks:
        return fail(leaks)
    return ok(f"none in {len(evidence.errors)} errors")


def validation_details(evidence: Evidence) -> Judgement:
    """Box 13: errors of wrong arguments name the wrong argument."""
    refusals = [answer for answer in evidence.refused if answer.is_error or answer.code is not None]
    if not refusals:
        return not_applicable("no wrong arguments were refused")
    vague = [
        f"{answer.what}: the answer names none of {', '.join(answer.wrong)}"
        for answer in refusals
        if not any(name in answer.text or name in json.dumps(answer.data) for name in answer.wrong)
    ]
    if vague:
        return warn(vague)
    return ok(f"{len(refusals)} refusals name the property")


def _odd_block(block: Any) -> str | None:
    kind = members(block).get("type")
    if not isinstance(kind, str):
        return "a content block has no type"
    if kind not in _NEEDED:
        return f"a content block has the unknown type {kind!r}"
    inner = members(block)
    if kind == "resource":
        inner = members(inner.get("resource"))
        if not isinstance(inner.get("uri"), str) or not ({"text", "blob"} & inner.keys()):
            return "an embedded resource needs a uri, and text or blob"
    lacking = [name for name in _NEEDED[kind] if not isinstance(inner.get(name), str)]
    if lacking:
        return f"a block of type {kind!r} has no {' and no '.join(lacking)}"
    return None


def _was_taken(answer: ServerAnswer) -> bool:
    return answer.result is not None and not answer.is_error


def _unfit(schema: Any, result: Mapping[str, Any]) -> str | None:
    if "structuredContent" not in result:
        return "structuredContent is missing"
    try:
        problems = Validator(schema).problems(result["structuredContent"])
    except SchemaError:
        return "its outputSchema is no valid JSON Schema"
    if problems:
        return f"structuredContent does not fit: {problems[0]}"
    return None


def _mirrored(answer: ServerAnswer) -> bool:
    wanted = members(answer.result).get("structuredContent")
    said = [value for text in _texts(answer) for value in (text, _parsed(text))]
    return any(wanted in (value, {"result": value}) for value in said)  # a scalar may be wrapped


def _texts(answer: ServerAnswer) -> Iterator[str]:
    return (str(members(block).get("text")) for block in answer.blocks if members(block).get("type") == "text")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _has_stack(answer: ServerAnswer) -> bool:
    if isinstance(answer.data, str):
        data = answer.data
    else:
        data = json.dumps(answer.data, indent=0).replace("\\n", "\n")
    lines = (line[:_LONGEST_LINE].replace('\\"', '"') for text in (answer.text, data) for line in text.splitlines())
    return any(map(_STACK.search, lines))
