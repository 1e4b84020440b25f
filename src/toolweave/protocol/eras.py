"""Results, errors, questions and capabilities of one revision in the form of another, for a gateway between them.

Pure. Members that a revision does not have are left out or put into text. All others pass unchanged, also unknown ones.
"""

from __future__ import annotations

import json
from secrets import token_hex
from typing import Any

from toolweave._json_types import Json, JsonObject, as_array, as_integer, as_object, object_or_empty, without_members
from toolweave.protocol import methods
from toolweave.protocol.client_requests import ABILITIES, CAPABILITY_OF, can_answer, required_pages
from toolweave.protocol.codes import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from toolweave.protocol.input_required import input_request
from toolweave.protocol.meta import RELATED_TASK, SERVER_INFO, SUBSCRIPTION_ID, TASKS_EXTENSION
from toolweave.protocol.versions import LATEST_HANDSHAKE_VERSION, MODERN_VERSION

__all__ = [
    "ALL_BLOCKS_SINCE",
    "RESULT",
    "WRAP_MARK",
    "abilities",
    "capabilities_at",
    "error_for",
    "legacy_result",
    "missing_abilities",
    "modern_result",
    "page_questions",
    "passed_capabilities",
    "question_for",
]


_FORMS_SINCE = "2025-06-18"
"""The first revision with elicitation: forms."""
_BLOCKS_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The revisions that brought kinds of content blocks."""
ALL_BLOCKS_SINCE = max(_BLOCKS_SINCE.values())
"""The revision since which no content block has to be changed."""
RESULT = "result"
"""The member of an object that stands for structured content of another type, before 2026-07-28."""
WRAP_MARK = "x-fastmcp-wrap-result"
"""The keyword of an output schema by which clients know such an object, and take the member for the value."""
_HOPS = frozenset({SERVER_INFO, SUBSCRIPTION_ID, RELATED_TASK, "progressToken"})
"""Members of `_meta` that are of one hop: they say nothing to the next one."""
_OF_MODERN_RESULTS = frozenset({"resultType", "ttlMs", "cacheScope"})


# Capabilities


def passed_capabilities(declared: JsonObject, *, version: str, tasks: bool, roots_changes: bool = False) -> Json:
    """Return the capabilities of a client as its gateway declares them to a server, of any era.

    Members that the client's revision does not have are left out.

    Args:
        declared: The capabilities as the client declared them.
        version: The client's revision.
        tasks: Whether the extension for tasks is declared, regardless of who follows them.
        roots_changes: Whether the server is notified when the client's roots change.
    """
    made = without_members(declared, "tasks", "extensions")
    roots = as_object(made.get("roots"))
    if roots is not None and not roots_changes:
        made["roots"] = without_members(roots, "listChanged")
    if "elicitation" in made and version < LATEST_HANDSHAKE_VERSION:
        if version < _FORMS_SINCE:
            del made["elicitation"]
        else:
            made["elicitation"] = {}  # which means forms, and all there was
    extensions = dict(object_or_empty(declared.get("extensions")))
    extensions.pop(TASKS_EXTENSION, None)
    if tasks:
        extensions[TASKS_EXTENSION] = {}
    if extensions:
        return made | {"extensions": extensions}
    return made


def capabilities_at(revision: str, declared: JsonObject) -> Json:
    """Return capabilities of a client as they may be declared to a server of this revision.

    Revisions before 2025-11-25 know forms alone: to them elicitation of a client that shows pages only would mean
    forms, so it is left out.
    """
    forms = can_answer(ABILITIES["elicitation"], declared)
    if forms or revision >= LATEST_HANDSHAKE_VERSION:
        return dict(declared)
    return without_members(declared, "elicitation")


def abilities(declared: JsonObject) -> Json:
    """Return the capabilities behind which there are requests that a server may make of its client."""
    asked = set(CAPABILITY_OF.values())
    return {name: value for name, value in declared.items() if name in asked and as_object(value) is not None}


def missing_abilities(error_data: object) -> list[str]:
    """Return the names of the capabilities that a client lacks, from the data of the error `MISSING_CAPABILITY`."""
    needed = object_or_empty(object_or_empty(error_data).get("requiredCapabilities"))
    found: list[str] = []
    for name, parts in needed.items():
        found += [f"{name}.{part}" for part in object_or_empty(parts)]
    return found or list(needed)


# Results


def modern_result(method: str, result: JsonObject) -> Json:
    """Return the result of a server of any era for a modern client, without the members that its own server adds."""
    made = _without_hops(result)
    if method == methods.TOOLS_CALL and "resultType" not in made:
        made.setdefault("content", [])
    if method in methods.CACHEABLE:
        made["ttlMs"] = max(as_integer(made.get("ttlMs")) or 0, 0)
        made.setdefault("cacheScope", "private")
    return made


def legacy_result(method: str, result: JsonObject, version: str, *, wraps: bool | None = False) -> Json:
    """Return the result of a server of any era for a client of a legacy revision.

    Structured content that is not an object, which these do not know, becomes the member of one if the client knows the
    tool so, and else text. Newer content blocks become text.

    Args:
        method: The method of the request.
        result: The result as the server sent it.
        version: The client's revision.
        wraps: Whether the client knows the tool's results as objects with the member `RESULT`; None if that is not
            known, and to be taken from the result.
    """
    is_modern = "resultType" in result
    made = without_members(_without_hops(result), *_OF_MODERN_RESULTS)
    if method == methods.TOOLS_CALL:
        content = as_array(made.setdefault("content", []))
        if content is not None:
            made["content"] = [_known_block(block, version) for block in content]
        if wraps is None:
            structured = made.get("structuredContent")
            wraps = structured is not None and as_object(structured) is None
        if made.get("isError") is True:
            wraps = False
        _wrap(made, is_modern=is_modern, wraps=wraps)
    elif method == methods.PROMPTS_GET:
        messages = as_array(made.get("messages"))
        if messages is not None:
            made["messages"] = [_known_message(message, version) for message in messages]
    return made


def _wrap(made: Json, *, is_modern: bool, wraps: bool) -> None:
    """Give structured content the form that a client of a legacy revision expects.

    An object of a server of such a revision is wrapped already, if it has to be.
    """
    if "structuredContent" not in made:
        return
    value = made["structuredContent"]
    needs_wrapper = wraps and is_modern
    if as_object(value) is not None and not needs_wrapper:
        return
    if not made["content"]:
        made["content"] = [_text(json.dumps(value, ensure_ascii=False))]
    if wraps:
        made["structuredContent"] = {RESULT: value}
    else:
        del made["structuredContent"]


def _without_hops(result: JsonObject) -> Json:
    """Return a result without the members of `_meta` that are of one hop.

    A `_meta` that is not an object is dropped: no client could read it, and the call behind the result was made.
    """
    made = dict(result)
    if "_meta" not in made:
        return made
    meta = object_or_empty(made.pop("_meta"))
    kept = without_members(meta, *_HOPS)
    # A server's own empty `_meta` is passed on; one that only the hops had filled is not.
    if kept or result["_meta"] == {}:
        made["_meta"] = kept
    return made


def _known_message(message: object, version: str) -> Any:
    members = as_object(message)
    if members is None:
        return message
    return {**members, "content": _known_block(members.get("content"), version)}


def _known_block(block: object, version: str) -> Any:
    """Return a content block, or a note instead of it where it is newer than the revision."""
    members = object_or_empty(block)
    kind = members.get("type")
    if not isinstance(kind, str) or version >= _BLOCKS_SINCE.get(kind, ""):
        return block
    if kind == "resource_link":
        label = members.get("title") or members.get("name") or "resource"
        return _text(f"{label}: {members.get('uri')}")
    return _text(f"[{kind}, {members.get('mimeType')}: protocol revision {version} cannot carry it]")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


# Errors


def error_for(code: int, message: str, data: object, *, method: str, modern: bool) -> tuple[int, str, Any]:
    """Return code, message and data of a server's error for a client of an era.

    Args:
        code: The JSON-RPC error code.
        message: Its message.
        data: Its data, or None.
        method: The method of the request.
        modern: Whether the client is of the modern era.
    """
    if code in (HEADER_MISMATCH, UNSUPPORTED_VERSION):
        # Of the hop behind the gateway: not the client's fault.
        return INTERNAL_ERROR, f"the upstream refused the gateway's request: {message}", data
    if modern:
        return (INVALID_PARAMS if code == RESOURCE_NOT_FOUND else code), message, data
    if code == INVALID_PARAMS and method == methods.RESOURCES_READ:
        return RESOURCE_NOT_FOUND, message, data
    return (INTERNAL_ERROR if code == MISSING_CAPABILITY else code), message, data


# Questions


def question_for(method: str, params: JsonObject, version: str) -> Json:
    """Return the parameters of a server's request to its client, for a client of this revision.

    Only 2025-11-25 has an id of a visit to a web page: later revisions get none, this one always gets one.
    """
    made = without_members(params, "_meta", "task")
    meta = without_members(object_or_empty(params.get("_meta")), *_HOPS)
    if meta:
        made["_meta"] = meta
    if method != methods.ELICITATION_CREATE:
        return made
    if version == MODERN_VERSION:
        made.pop("elicitationId", None)
    elif version < LATEST_HANDSHAKE_VERSION:
        made.pop("mode", None)
    elif made.get("mode") == "url":
        made.setdefault("elicitationId", token_hex(16))
    return made


def page_questions(error_data: object) -> Json:
    """Return the input requests for the pages that the error `URL_ELICITATION_REQUIRED` of 2025-11-25 names, by key."""
    found: Json = {}
    for number, page in enumerate(required_pages(error_data), 1):
        key = str(page.get("elicitationId") or f"page-{number}")
        params = question_for(methods.ELICITATION_CREATE, page, MODERN_VERSION)
        found[key] = input_request(methods.ELICITATION_CREATE, params)
    return found
