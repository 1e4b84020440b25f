"""Judgements of pagination, capabilities, progress and resources: boxes 14 to 17. Values only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from toolweave._json_types import JsonObject, array_or_empty, as_object, object_or_empty, text_or_empty
from toolweave._text import counted
from toolweave.cli._conformance.findings import (
    Evidence,
    Judgement,
    ServerAnswer,
    fail,
    not_applicable,
    ok,
    verdict,
    warn,
)
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "tools": ("listChanged",),
    "prompts": ("listChanged",),
    "resources": ("listChanged", "subscribe"),
    "logging": (),
    "completions": (),
}
_OWNERS = {methods.TOOLS_LIST: "tools", methods.RESOURCES_LIST: "resources", methods.PROMPTS_LIST: "prompts"}


def pagination(evidence: Evidence) -> Judgement:
    """Box 14: pages follow one another to an end, and a cursor that was never given is refused."""
    if not evidence.pages:
        return not_applicable("it offers no tools")
    failed = [str(answer) for answer in evidence.pages if answer.result is None]
    if failed:
        return fail(failed)
    if _cursors(evidence.pages[-1]):
        return fail(f"after {len(evidence.pages)} pages of tools the last one names a next page still, or one again")
    listed = f"{counted(len(evidence.tools), 'tool')} on {counted(len(evidence.pages), 'page')}"
    bad = evidence.bad_cursor
    if bad is None or bad.code == INVALID_PARAMS:
        return ok(listed)
    # A server that gives no cursors has no reason to look at one.
    if bad.result is not None and len(evidence.pages) == 1:
        return warn(f"{listed}; a cursor that it never gave is ignored, error {INVALID_PARAMS} is expected")
    return fail(f"{listed}; {bad}; error {INVALID_PARAMS} is expected")


def capabilities(evidence: Evidence) -> Judgement:
    """Box 15: declared capabilities work, working ones are declared, and flags are booleans."""
    wrong = list(_odd_members(evidence.capabilities))
    odd: list[str] = []
    for method, answer in evidence.lists.items():
        owner = _OWNERS[method]
        if owner in evidence.capabilities:
            if answer.result is None:
                wrong.append(f"{owner} are declared, but {answer}")
        elif answer.result is not None and _has_items(answer):
            wrong.append(f"{owner} are not declared, but {method} lists some")
        elif answer.code != METHOD_NOT_FOUND:
            odd.append(f"{owner} are not declared; {answer}, error {METHOD_NOT_FOUND} is expected")
    subscribed = evidence.subscribed
    if subscribed is not None and subscribed.result is None:
        wrong.append(f"resources.subscribe is declared, but {subscribed}")
    return verdict(f"declared and true: {', '.join(evidence.capabilities) or 'nothing'}", wrong=wrong, odd=odd)


def progress(evidence: Evidence) -> Judgement:
    """Box 16: progress grows with every report."""
    reported = [answer for answer in evidence.calls if answer.progress]
    if not reported:
        return not_applicable("no call that was made reported progress")
    wrong: list[str] = []
    for answer in reported:
        for before, after in pairwise(answer.progress):
            if after.progress <= before.progress:
                wrong.append(f"{answer.what}: progress went from {before.progress:g} to {after.progress:g}")
    return verdict(f"{sum(len(answer.progress) for answer in reported)} reports, each higher", wrong=wrong)


def resources(evidence: Evidence) -> Judgement:
    """Box 17: resources have URIs, the first can be read by its URI, and an unknown one is refused."""
    listed = evidence.lists.get(methods.RESOURCES_LIST)
    if listed is None or listed.result is None:
        return not_applicable("it offers no resources")
    if "resources" not in evidence.capabilities:
        return not_applicable("it offers no resources")
    entries = _items(listed, "resources")
    wrong = [f"resource {place} {problem}" for place, problem in _odd_entries(entries)]
    contents = evidence.contents
    if contents is not None:
        wrong += [f"{contents.what}: {problem}" for problem in _odd_contents(contents)]
    unknown = evidence.unknown_resource
    if unknown is not None and unknown.result is not None:
        wrong.append(f"{unknown.what}: answered as if it were there")
    read = "the list had none to read" if contents is None else "one was read"
    return verdict(f"{len(entries)} listed, {read}, an unknown one was refused", wrong=wrong)


def _odd_members(declared: JsonObject) -> Iterator[str]:
    for name, flags in _FLAGS.items():
        if name not in declared:
            continue
        given = as_object(declared[name])
        if given is None:
            yield f"capability {name} is not an object"
            continue
        for flag, value in given.items():
            if flag in flags:
                if not isinstance(value, bool):
                    yield f"capability {name}.{flag} is not a boolean"
            elif name == "logging":
                yield f"capability logging has no member {flag!r}"


def _odd_entries(entries: list[object]) -> Iterator[tuple[int, str]]:
    for place, entry in enumerate(map(object_or_empty, entries), 1):
        uri = entry.get("uri")
        if not _URI.fullmatch(text_or_empty(uri)):
            yield place, f"has no absolute URI: {str(uri)[:80]!r}"
        elif not text_or_empty(entry.get("name")):
            yield place, f"({uri}) has no name"


def _odd_contents(answer: ServerAnswer) -> Iterator[str]:
    if answer.result is None:
        yield f"it is listed and cannot be read: {answer.message}"
        return
    contents = _items(answer, "contents")
    if not contents:
        yield "the response has no contents"
    for part in map(object_or_empty, contents):
        has_content = "text" in part or "blob" in part
        if not has_content or not isinstance(part.get("uri"), str):
            yield "contents need a uri, and text or blob"


def _items(answer: ServerAnswer, name: str) -> list[object]:
    return array_or_empty(object_or_empty(answer.result).get(name))


def _has_items(answer: ServerAnswer) -> bool:
    return any(_items(answer, name) for name in object_or_empty(answer.result))


def _cursors(answer: ServerAnswer) -> bool:
    return object_or_empty(answer.result).get("nextCursor") is not None
