"""Judgements of call answers: results (boxes 6 to 9) and errors (10 to 13). Knows values only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolweave._json_types import JsonObject, object_or_empty
from toolweave.cli._conformance.findings import (
    Evidence,
    Judgement,
    ServerAnswer,
    fail,
    not_applicable,
    verdict,
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
# characters that are searched for a line of a stack: some of the patterns are quadratic
_MAX_LINE = 500
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
        problem = _odd_result(answer, evidence.modern)
        if problem is not None:
            wrong.append(f"{answer.what}: the result {problem}")
    if not seen:
        return not_applicable("no call was answered with a result")
    return verdict(f"{len(seen)} results seen", wrong=wrong)


def _odd_result(answer: ServerAnswer, modern: bool) -> str | None:
    result = object_or_empty(answer.result)
    if answer.is_wrapped or ("result" in result and "content" not in result):
        return "is wrapped once more, as result.result"
    if not isinstance(result.get("content"), list):
        return "has no list 'content'"
    if modern and not isinstance(result.get("resultType"), str):
        return "has no resultType"
    return None


def content_types(evidence: Evidence) -> Judgement:
    """Box 7: every content block has a type and the members that the type requires."""
    seen = 0
    wrong: list[str] = []
    for answer in evidence.of_tools:
        for block in answer.blocks:
            seen += 1
            problem = _odd_block(block)
            if problem is not None:
                wrong.append(f"{answer.what}: {problem}")
    if not seen:
        return not_applicable("no content was seen")
    return verdict(f"{seen} blocks seen", wrong=wrong)


def error_flags(evidence: Evidence) -> Judgement:
    """Box 8: arguments that do not fit are answered with `isError: true`."""
    odd = [f"{answer.what}: isError is not a boolean" for answer in evidence.of_tools if answer.odd_flag]
    if odd:
        return fail(odd)
    if not evidence.refused:
        return not_applicable("no tool could be called with wrong arguments without a risk; --call tries more")
    accepted, other = _not_flagged(evidence)
    return verdict(f"{len(evidence.refused)} wrong calls were refused with isError", wrong=accepted, odd=other)


def _not_flagged(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Return the wrong calls that were accepted, and those that were refused in another way than by `isError`."""
    accepted: list[str] = []
    other: list[str] = []
    for answer in evidence.refused:
        if answer.code is not None:
            other.append(f"{answer}; a model sees only results")
        elif answer.result is None:
            other.append(str(answer))
        elif not answer.is_error:
            accepted.append(f"{answer.what}: accepted as if nothing was wrong")
    return accepted, other


def structured_output(evidence: Evidence) -> Judgement:
    """Box 9: structured content fits the tool's output schema."""
    wrong: list[str] = []
    odd: list[str] = []
    seen = 0
    for answer in evidence.calls:
        schema = object_or_empty(answer.tool).get("outputSchema")
        if schema is None or answer.result is None or answer.is_error:
            continue
        seen += 1
        problem = _unfit(schema, answer.result)
        if problem is not None:
            wrong.append(f"{answer.what}: {problem}")
        elif not _mirrored(answer):
            odd.append(f"{answer.what}: no text block repeats it for clients that know only text")
    if not seen:
        return not_applicable("no safe tool with an outputSchema answered; --call tries the others")
    return verdict(f"{seen} structured results fit", wrong=wrong, odd=odd)


def codes(evidence: Evidence) -> Judgement:
    """Box 10: errors carry the codes that the specification gives them."""
    of_resource = (INVALID_PARAMS,) if evidence.modern else (INVALID_PARAMS, RESOURCE_NOT_FOUND)
    expected: list[tuple[ServerAnswer | None, tuple[int, ...]]] = [
        (evidence.unknown_tool, (INVALID_PARAMS,)),
        (evidence.unknown_method, (METHOD_NOT_FOUND,)),
        (evidence.unknown_resource, of_resource),
    ]
    wrong: list[str] = []
    for answer, right in expected:
        if answer is None:
            continue
        if answer.code not in right:
            wrong.append(f"{answer}; error {' or '.join(map(str, right))} is expected")
    return verdict("the codes distinguish unknown tools, methods and resources", wrong=wrong)


def messages(evidence: Evidence) -> Judgement:
    """Box 11: errors have a meaningful message."""
    if not evidence.errors:
        return not_applicable("no error was seen")
    empty: list[str] = []
    generic: list[str] = []
    for answer in evidence.errors:
        text = answer.text.strip()
        if text in _SILENT:
            empty.append(f"{answer.what}: the error has no message")
        elif _GENERIC.fullmatch(text):
            generic.append(f"{answer.what}: {answer.text!r} does not name the mistake")
    return verdict(f"{len(evidence.errors)} errors name the mistake", wrong=empty, odd=generic)


def no_stacks(evidence: Evidence) -> Judgement:
    """Box 12: no error contains a stack trace."""
    if not evidence.errors:
        return not_applicable("no error was seen")
    leaks = [f"{answer.what}: a stack trace" for answer in evidence.errors if _has_stack(answer)]
    return verdict(f"none in {len(evidence.errors)} errors", wrong=leaks)


def validation_details(evidence: Evidence) -> Judgement:
    """Box 13: errors of wrong arguments name the wrong argument."""
    refusals = [answer for answer in evidence.refused if answer.is_error or answer.code is not None]
    if not refusals:
        return not_applicable("no wrong arguments were refused")
    vague: list[str] = []
    for answer in refusals:
        text = f"{answer.text} {json.dumps(answer.data)}"
        if not any(name in text for name in answer.wrong):
            vague.append(f"{answer.what}: the response names none of {', '.join(answer.wrong)}")
    return verdict(f"{len(refusals)} refusals name the property", odd=vague)


def _odd_block(block: Any) -> str | None:
    kind = object_or_empty(block).get("type")
    if not isinstance(kind, str):
        return "a content block has no type"
    if kind not in _NEEDED:
        return f"a content block has the unknown type {kind!r}"
    inner = object_or_empty(block)
    if kind == "resource":
        inner = object_or_empty(inner.get("resource"))
        has_content = "text" in inner or "blob" in inner
        if not has_content or not isinstance(inner.get("uri"), str):
            return "an embedded resource needs a uri, and text or blob"
    lacking = [name for name in _NEEDED[kind] if not isinstance(inner.get(name), str)]
    if lacking:
        return f"a block of type {kind!r} has no {' and no '.join(lacking)}"
    return None


def _unfit(schema: Any, result: JsonObject) -> str | None:
    if "structuredContent" not in result:
        return "structuredContent is missing"
    try:
        problems = Validator(schema).problems(result["structuredContent"])
    except SchemaError:
        return "its outputSchema is not a valid JSON Schema"
    if problems:
        return f"structuredContent does not fit: {problems[0]}"
    return None


def _mirrored(answer: ServerAnswer) -> bool:
    wanted = object_or_empty(answer.result).get("structuredContent")
    for text in _texts(answer):
        for value in (text, _parsed(text)):
            if wanted in (value, {"result": value}):  # a scalar may be wrapped
                return True
    return False


def _texts(answer: ServerAnswer) -> Iterator[str]:
    for block in map(object_or_empty, answer.blocks):
        if block.get("type") == "text":
            yield str(block.get("text"))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _has_stack(answer: ServerAnswer) -> bool:
    if isinstance(answer.data, str):
        data = answer.data
    else:
        data = json.dumps(answer.data, indent=0).replace("\\n", "\n")
    lines = f"{answer.text}\n{data}".splitlines()
    return any(_STACK.search(line[:_MAX_LINE].replace('\\"', '"')) for line in lines)
