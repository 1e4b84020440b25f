"""Sends a server the requests for the seventeen boxes, without side effects.

Calls tools that are marked read-only, unknown tools, and tools with arguments that their schema rejects; with `bold`
every tool. Knows the connection; judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import anyio

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_array,
    as_object,
    as_text,
    object_entries,
    object_or_empty,
    text_entries,
    text_or_empty,
)
from toolweave.cli._conformance.findings import Evidence, ServerAnswer
from toolweave.connect import McpConnection
from toolweave.errors import ProtocolError, SchemaError, ServerError, ToolError
from toolweave.protocol import methods
from toolweave.protocol.lenient_results import ODD_FLAG, WITHIN
from toolweave.schema import Validator
from toolweave.tools import Progress

_DEPTH = 4
_SCALARS: JsonObject = {
    "string": "example",
    "integer": 1,
    "number": 1,
    "boolean": False,
    "null": None,
    "array": [],
}
_WRONG: JsonObject = {"string": 17, "array": 17, "object": 17, "integer": "x", "number": "x", "boolean": "x"}


def fitting(schema: JsonObject) -> Json | None:
    """Return arguments with every required property, from defaults, examples or generated; None if impossible.

    Generated values are valid by the schema.
    """
    made = as_object(_value(schema, _DEPTH))
    if made is None:
        return None
    try:
        fits = Validator(schema).is_valid(made)
    except SchemaError:
        return None
    return dict(made) if fits else None


def unfit(schema: JsonObject) -> tuple[Json, tuple[str, ...]] | None:
    """Return arguments that the schema rejects and their invalid properties; None when it allows everything."""
    candidates: list[tuple[Json, tuple[str, ...]]] = []
    names = _required(schema)
    if names:
        candidates.append(({}, names))
    for name, part in object_or_empty(schema.get("properties")).items():
        kind = text_or_empty(object_or_empty(part).get("type"))
        if kind in _WRONG:
            candidates.append(({**object_or_empty(fitting(schema)), name: _WRONG[kind]}, (name,)))
            break
    try:
        validator = Validator(schema)
    except SchemaError:
        return None
    for arguments, invalid in candidates:
        if not validator.is_valid(arguments):
            return arguments, invalid
    return None


def _value(schema: object, depth: int) -> object:
    """Return a value that a schema probably allows; `depth` bounds schemas that contain themselves."""
    part = object_or_empty(schema)
    for key in ("const", "default"):
        if key in part:
            return part[key]
    for key in ("examples", "enum"):
        listed = array_or_empty(part.get(key))
        if listed:
            return listed[0]
    kind = part.get("type")
    kinds = as_array(kind)
    if kinds is not None:
        kind = kinds[0] if kinds else None
    if kind == "object" or "properties" in part:
        return _object(part, depth)
    low = part.get("minimum")
    if low is not None and kind in ("integer", "number"):
        return low
    return _SCALARS.get(str(kind), "example")


def _object(schema: JsonObject, depth: int) -> Json:
    if not depth:
        return {}
    properties = object_or_empty(schema.get("properties"))
    return {name: _value(properties.get(name), depth - 1) for name in _required(schema)}


def _required(schema: JsonObject) -> tuple[str, ...]:
    return tuple(text_entries(schema.get("required")))


UNKNOWN_TOOL = "toolweave_doctor_no_such_tool"
UNKNOWN_URI = "toolweave-doctor:///no-such-resource"
_MAX_PAGES = 1_000
_MAX_CALLS = 10
_MAX_REFUSALS = 5
_SECONDS = 20.0
"""Timeout of one request in seconds; a config may set a shorter one."""


async def gather(connection: McpConnection, *, bold: bool = False) -> Evidence:
    """Collect the evidence over an open connection; `bold` also calls tools that are not marked read-only.

    The connection's config must have `validate_input` off: wrong arguments are to reach the server.

    Raises:
        ServerError: The connection was lost and not restored.
    """
    # The order matters for servers with state: lists and unknown names first, then calls that must be refused, and
    # last those that do something.
    version = connection.protocol_version or ""
    evidence = Evidence(version=version, modern=version >= "2026", capabilities=connection.capabilities)
    if "tools" in evidence.capabilities:
        await _list_tools(connection, evidence)
        evidence.bad_cursor = await _ask(connection, methods.TOOLS_LIST, {"cursor": "toolweave-doctor-no-such-cursor"})
        params: Json = {"name": UNKNOWN_TOOL, "arguments": {}}
        evidence.unknown_tool = await _ask(connection, methods.TOOLS_CALL, params, what="an unknown tool")
    evidence.unknown_method = await _ask(connection, "toolweave/no-such-method", {}, what="an unknown method")
    await _look_around(connection, evidence)
    for tool in _refusing(evidence, bold):
        arguments, wrong = unfit(object_or_empty(tool["inputSchema"])) or ({}, ())
        evidence.refused.append(await _call(connection, tool, arguments, wrong=wrong))
    for tool, arguments in _callable(evidence, bold):
        evidence.calls.append(await _call(connection, tool, arguments))
    return evidence


async def _list_tools(connection: McpConnection, evidence: Evidence) -> None:
    cursors: set[str] = set()
    params: Json = {}
    while len(evidence.pages) < _MAX_PAGES:
        page = await _ask(connection, methods.TOOLS_LIST, params)
        evidence.pages.append(page)
        evidence.tools += array_or_empty(object_or_empty(page.result).get("tools"))
        cursor = object_or_empty(page.result).get("nextCursor")
        if not isinstance(cursor, str) or cursor in cursors:
            return
        cursors.add(cursor)
        params = {"cursor": cursor}


async def _look_around(connection: McpConnection, evidence: Evidence) -> None:
    lists = [methods.RESOURCES_LIST, methods.PROMPTS_LIST]
    if not evidence.pages:
        lists.append(methods.TOOLS_LIST)
    for method in lists:
        evidence.lists[method] = await _ask(connection, method, {})
    declared = evidence.capabilities.get("resources")
    if declared is None:
        return
    evidence.unknown_resource = await _ask(
        connection, methods.RESOURCES_READ, {"uri": UNKNOWN_URI}, what="an unknown resource"
    )
    listed = array_or_empty(object_or_empty(evidence.lists[methods.RESOURCES_LIST].result).get("resources"))
    first = as_text(object_or_empty(listed[0]).get("uri")) if listed else None
    if first is None:
        return
    evidence.contents = await _ask(connection, methods.RESOURCES_READ, {"uri": first}, what=f"resource {first!r}")
    if object_or_empty(declared).get("subscribe") is True and not evidence.modern:
        evidence.subscribed = await _ask(connection, methods.RESOURCES_SUBSCRIBE, {"uri": first})
        await _ask(connection, methods.RESOURCES_UNSUBSCRIBE, {"uri": first})


def _refusing(evidence: Evidence, bold: bool) -> Iterator[JsonObject]:
    """Yield tools that can be called with arguments that their schema rejects; read-only ones first."""
    found: list[JsonObject] = []
    for tool in _named(evidence):
        if unfit(object_or_empty(tool.get("inputSchema"))) is None:
            continue
        # A server that does not check the arguments would run the tool.
        if bold or not _destroys(tool):
            found.append(tool)
    yield from sorted(found, key=lambda tool: not _reads_only(tool))[:_MAX_REFUSALS]


def _callable(evidence: Evidence, bold: bool) -> Iterator[tuple[JsonObject, Json]]:
    """Yield tools that may be called, each with arguments; those without an output schema last."""
    found: list[tuple[JsonObject, Json]] = []
    for tool in _named(evidence):
        if not bold and not _reads_only(tool):
            continue
        arguments = fitting(object_or_empty(tool.get("inputSchema")))
        if arguments is not None:
            found.append((tool, arguments))
    yield from sorted(found, key=lambda pair: "outputSchema" not in pair[0])[:_MAX_CALLS]


def _named(evidence: Evidence) -> list[JsonObject]:
    return [tool for tool in object_entries(evidence.tools) if _is_callable(tool)]


def _is_callable(tool: JsonObject) -> bool:
    return isinstance(tool.get("name"), str) and as_object(tool.get("inputSchema")) is not None


def _reads_only(tool: JsonObject) -> bool:
    return object_or_empty(tool.get("annotations")).get("readOnlyHint") is True


def _destroys(tool: JsonObject) -> bool:
    return object_or_empty(tool.get("annotations")).get("destructiveHint") is True and not _reads_only(tool)


async def _ask(connection: McpConnection, method: str, params: JsonObject, *, what: str = "") -> ServerAnswer:
    """Make a request; an error is also a response."""
    if not what:
        what = method
    try:
        seconds = min(_SECONDS, connection.config.timeout.read)
        return ServerAnswer(what=what, result=await connection.request(method, params, timeout=seconds))
    except ProtocolError as error:
        return ServerAnswer(what=what, code=error.code, message=error.message, data=error.data)
    except ServerError as error:
        return ServerAnswer(what=what, message=error.message)


async def _call(
    connection: McpConnection, tool: JsonObject, arguments: Json, *, wrong: tuple[str, ...] = ()
) -> ServerAnswer:
    name = str(tool["name"])
    what = f"tool {name!r}{' with wrong arguments' if wrong else ''}"
    seen: list[Progress] = []
    seconds = min(_SECONDS, connection.config.timeout.call)
    known = len(connection.problems)
    try:
        with anyio.fail_after(seconds):
            result = await connection.call_tool(name, arguments, on_progress=seen.append)
    except ProtocolError as error:
        # not a call's result: request it as it is
        if error.data is None and "neither 'content'" in error.message:
            return await _ask(connection, methods.TOOLS_CALL, {"name": name, "arguments": arguments}, what=what)
        return ServerAnswer(what=what, code=error.code, message=error.message, data=error.data, tool=tool, wrong=wrong)
    except (ServerError, ToolError, TimeoutError) as error:
        return ServerAnswer(what=what, message=str(error) or f"no answer within {seconds:g} s", tool=tool, wrong=wrong)
    new = connection.problems[known:]
    if new:
        # It was read leniently: a plain request shows what the server sends, except its error flag and a result that is
        # within another one.
        plain = await _ask(connection, methods.TOOLS_CALL, {"name": name, "arguments": arguments}, what=what)
        problems = " ".join(new)
        odd_flag = ODD_FLAG.problem in problems
        is_wrapped = WITHIN.problem in problems
        return replace(plain, tool=tool, wrong=wrong, progress=tuple(seen), odd_flag=odd_flag, is_wrapped=is_wrapped)
    return ServerAnswer(what=what, result=result.raw, tool=tool, wrong=wrong, progress=tuple(seen))
