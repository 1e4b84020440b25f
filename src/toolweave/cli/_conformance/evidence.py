"""Sends a server the requests for the seventeen boxes, without side effects.

Calls tools that are marked read-only, unknown tools, and tools with arguments that their schema rejects; with `bold`
every tool. Knows the connection; judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import anyio

from toolweave.cli._conformance.findings import Evidence, ServerAnswer, members
from toolweave.connect import McpConnection
from toolweave.errors import ProtocolError, SchemaError, ServerError, ToolError
from toolweave.protocol import methods
from toolweave.schema import Validator
from toolweave.tools import Progress

_DEPTH = 4
_SCALARS: Mapping[str, Any] = {
    "string": "example",
    "integer": 1,
    "number": 1,
    "boolean": False,
    "null": None,
    "array": [],
}
_WRONG: Mapping[str, Any] = {"string": 17, "array": 17, "object": 17, "integer": "x", "number": "x", "boolean": "x"}


def fitting(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments with every required property, from defaults, examples or generated; None if impossible.

    Generated values are valid by the schema.
    """
    made = _value(schema, _DEPTH)
    try:
        fits = isinstance(made, dict) and Validator(schema).is_valid(made)
    except SchemaError:
        return None
    if fits:
        return cast("dict[str, Any]", made)
    return None


def unfit(schema: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return arguments that the schema rejects and their invalid properties; None when it allows everything."""
    names = _required(schema)
    candidates: list[tuple[dict[str, Any], tuple[str, ...]]] = [({}, names)] if names else []
    for name, part in members(schema.get("properties")).items():
        kind = members(part).get("type")
        if isinstance(kind, str) and kind in _WRONG:
            rest = members(fitting(schema) or {})
            candidates.append(({**rest, name: _WRONG[kind]}, (name,)))
            break
    try:
        validator = Validator(schema)
    except SchemaError:
        return None
    return next((found for found in candidates if not validator.is_valid(found[0])), None)


def _value(schema: Any, depth: int) -> Any:
    part = members(schema)
    for key in ("const", "default"):
        if key in part:
            return part[key]
    for key in ("examples", "enum"):
        if isinstance(part.get(key), list) and part[key]:
            return part[key][0]
    kind = part.get("type")
    if isinstance(kind, list):
        kind = next(iter(cast("list[Any]", kind)), None)
    if kind == "object" or "properties" in part:
        properties = members(part.get("properties"))
        if depth:
            return {name: _value(properties.get(name), depth - 1) for name in _required(part)}
        return {}
    low = part.get("minimum")
    if kind in ("integer", "number") and low is not None:
        return low
    return _SCALARS.get(str(kind), "example")


def _required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    names = schema.get("required")
    if isinstance(names, list):
        return tuple(name for name in cast("list[Any]", names) if isinstance(name, str))
    return ()


NOBODY = "toolweave_doctor_no_such_tool"
NOWHERE = "toolweave-doctor:///no-such-resource"
_MOST_PAGES = 1_000
_MOST_CALLS = 10
_MOST_REFUSALS = 5
_SECONDS = 20.0
"""Timeout of one request in seconds; a config may set a shorter one."""


async def gather(connection: McpConnection, *, bold: bool = False) -> Evidence:
    """Collect the evidence over an open connection; `bold` calls tools that are not marked read-only, too.

    The connection's config must have `validate_input` off: wrong arguments are to reach the server.

    Raises:
        ServerError: The connection was lost and not restored.
    """
    version = connection.protocol_version or ""
    evidence = Evidence(version=version, modern=version >= "2026", capabilities=connection.capabilities)
    if "tools" in evidence.capabilities:
        await _list_tools(connection, evidence)
        evidence.bad_cursor = await _ask(connection, methods.TOOLS_LIST, {"cursor": "toolweave-doctor-no-such-cursor"})
        params: dict[str, Any] = {"name": NOBODY, "arguments": {}}
        evidence.unknown_tool = await _ask(connection, methods.TOOLS_CALL, params, what="an unknown tool")
    evidence.unknown_method = await _ask(connection, "toolweave/no-such-method", {}, what="an unknown method")
    await _look_around(connection, evidence)
    for tool in _refusing(evidence, bold):
        arguments, wrong = unfit(members(tool["inputSchema"])) or ({}, ())
        evidence.refused.append(await _call(connection, tool, arguments, wrong=wrong))
    for tool, arguments in _callable(evidence, bold):
        evidence.calls.append(await _call(connection, tool, arguments))
    return evidence


async def _list_tools(connection: McpConnection, evidence: Evidence) -> None:
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    while len(evidence.pages) < _MOST_PAGES:
        page = await _ask(connection, methods.TOOLS_LIST, params)
        evidence.pages.append(page)
        tools = members(page.result).get("tools")
        evidence.tools += cast("list[Any]", tools) if isinstance(tools, list) else []
        cursor = members(page.result).get("nextCursor")
        if not isinstance(cursor, str) or cursor in cursors:
            return
        cursors.add(cursor)
        params = {"cursor": cursor}


async def _look_around(connection: McpConnection, evidence: Evidence) -> None:
    for method in (methods.RESOURCES_LIST, methods.PROMPTS_LIST, *(() if evidence.pages else (methods.TOOLS_LIST,))):
        evidence.lists[method] = await _ask(connection, method, {})
    declared = evidence.capabilities.get("resources")
    if declared is None:
        return
    evidence.unknown_resource = await _ask(
        connection, methods.RESOURCES_READ, {"uri": NOWHERE}, what="an unknown resource"
    )
    listed: Any = members(evidence.lists[methods.RESOURCES_LIST].result).get("resources")
    if isinstance(listed, list) and listed:
        first = members(cast("list[Any]", listed)[0]).get("uri")
    else:
        first = None
    if not isinstance(first, str):
        return
    evidence.contents = await _ask(connection, methods.RESOURCES_READ, {"uri": first}, what=f"resource {first!r}")
    if members(declared).get("subscribe") is True and not evidence.modern:
        evidence.subscribed = await _ask(connection, methods.RESOURCES_SUBSCRIBE, {"uri": first})
        await _ask(connection, methods.RESOURCES_UNSUBSCRIBE, {"uri": first})


def _refusing(evidence: Evidence, bold: bool) -> Iterator[Mapping[str, Any]]:
    """Yield tools that can be called with arguments that their schema rejects; read-only ones first."""
    tools = [tool for tool in _named(evidence) if unfit(members(tool.get("inputSchema"))) is not None]
    careful = [tool for tool in tools if bold or not _destroys(tool)]
    yield from sorted(careful, key=lambda tool: not _reads_only(tool))[:_MOST_REFUSALS]


def _callable(evidence: Evidence, bold: bool) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield tools that may be called, each with arguments; those without an output schema last."""
    tools = [tool for tool in _named(evidence) if bold or _reads_only(tool)]
    ready = [(tool, fitting(members(tool.get("inputSchema")))) for tool in tools]
    ordered = sorted(ready, key=lambda pair: "outputSchema" not in pair[0])
    yield from [(tool, arguments) for tool, arguments in ordered if arguments is not None][:_MOST_CALLS]


def _named(evidence: Evidence) -> list[Mapping[str, Any]]:
    tools = [members(tool) for tool in evidence.tools]
    return [
        tool for tool in tools if isinstance(tool.get("name"), str) and isinstance(tool.get("inputSchema"), Mapping)
    ]


def _reads_only(tool: Mapping[str, Any]) -> bool:
    return members(tool.get("annotations")).get("readOnlyHint") is True


def _destroys(tool: Mapping[str, Any]) -> bool:
    return members(tool.get("annotations")).get("destructiveHint") is True and not _reads_only(tool)


async def _ask(connection: McpConnection, method: str, params: Mapping[str, Any], *, what: str = "") -> ServerAnswer:
    """Make a request; an error is an answer too."""
    what = what or method
    try:
        seconds = min(_SECONDS, connection.config.timeout.read)
        return ServerAnswer(what=what, result=await connection.request(method, params, timeout=seconds))
    except ProtocolError as error:
        return ServerAnswer(what=what, code=error.code, message=error.message, data=error.data)
    except ServerError as error:
        return ServerAnswer(what=what, message=error.message)


async def _call(
    connection: McpConnection, tool: Mapping[str, Any], arguments: dict[str, Any], *, wrong: tuple[str, ...] = ()
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
        if error.data is None and "neither 'content'" in error.message:  # not a call's result: see what it is
            return await _ask(connection, methods.TOOLS_CALL, {"name": name, "arguments": arguments}, what=what)
        return ServerAnswer(what=what, code=error.code, message=error.message, data=error.data, tool=tool, wrong=wrong)
    except (ServerError, ToolError, TimeoutError) as error:
        return ServerAnswer(what=what, message=str(error) or f"no answer within {seconds:g} s", tool=tool, wrong=wrong)
    if len(connection.problems) > known:
        # It was read leniently: a plain request shows what the server sends.
        plain = await _ask(connection, methods.TOOLS_CALL, {"name": name, "arguments": arguments}, what=what)
        return replace(plain, tool=tool, wrong=wrong, progress=tuple(seen))
    return ServerAnswer(what=what, result=result.raw, tool=tool, wrong=wrong, progress=tuple(seen))
