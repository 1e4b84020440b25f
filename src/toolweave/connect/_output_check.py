"""The checks of a result: against the output schema of its tool, and for our own secrets in the text of an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from toolweave._json import decode_json
from toolweave._json_types import Json, JsonObject, array_or_empty, as_text, object_or_empty
from toolweave._masking import mask_json
from toolweave.config import ServerConfig
from toolweave.connect._catalog import Catalog
from toolweave.connect._off_loop import make_off_loop
from toolweave.errors import ErrorKind, ToolError, printable
from toolweave.protocol.content import TextContent
from toolweave.protocol.eras import RESULT
from toolweave.protocol.lenient_results import STRUCTURE_AS_TEXT, TEXT_AS_STRUCTURE
from toolweave.schema import Validator, describe
from toolweave.tools import ToolResult, ToolSpec
from toolweave.tools.mcp import tool_result
from toolweave.tools.result import OUTPUT_MISMATCH_META

_log = logging.getLogger("toolweave.connect")
_MAX_NOTE = 500


def checked_result(config: ServerConfig, catalog: Catalog, spec: ToolSpec, result: ToolResult) -> ToolResult:
    """Return a result, or an error result where its structured content does not fit and the config forbids that."""
    policy = config.validate_output
    if result.is_error or policy == "off":
        return result
    validator = catalog.validator(spec, "output")
    if validator is None:
        return result
    data: Json | None = None
    if "structuredContent" in result.raw:
        if validator.is_valid(result.structured_content):
            return result
        inner = _decoded(result.structured_content)
        if validator.is_valid(inner):
            catalog.repairs.of_tool(spec.original_name)(STRUCTURE_AS_TEXT.problem)
            return result.replace(structured_content=inner)
        problems = validator.problems(result.structured_content)
        fault = describe(problems)
        data = {"problems": [{"path": problem.path, "message": problem.message} for problem in problems]}
    else:
        if OUTPUT_MISMATCH_META in result.meta:
            note = printable(str(result.meta[OUTPUT_MISMATCH_META])[:_MAX_NOTE])
            shown = config.redact(note)
            _log.warning("server %r: tool %r succeeded without structured content: %s", config.name, spec.name, shown)
            return result
        read = _read_from_text(spec, validator, result)
        if read is not None:
            catalog.repairs.of_tool(spec.original_name)(TEXT_AS_STRUCTURE.problem)
            return read
        fault = "it is missing"
    # The fault quotes the value that the schema does not allow.
    text = config.redact(f"tool {spec.name!r} broke its output schema: structured content: {fault}")
    data = mask_json(data, config.redact)
    if policy == "warn":
        _log.warning("server %r: %s", config.name, printable(text))
        return result
    text += " (with validate_output: 'warn' or 'off' in the config of the server such results are taken as they are)"
    return ToolResult(
        content=(TextContent(text=text), *result.content),  # a model reads nothing else
        structured_content=result.structured_content,
        is_error=True,
        error=ToolError(text, kind=ErrorKind.INVALID_OUTPUT, data=data),
        meta=result.meta,
        raw=result.raw,
    )


def _decoded(value: object) -> object:
    """Return the value that a text holds as JSON; any other value, and a text that holds none, as it is."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return decode_json(value)
    return value


def _read_from_text(spec: ToolSpec, validator: Validator, result: ToolResult) -> ToolResult | None:
    """Return a result with the value in its one text as structured content, if that fits the output schema.

    Some servers declare a schema and send only the text of the value, which others may want as the member of an object.
    """
    if len(result.content) != 1 or not isinstance(block := result.content[0], TextContent):
        return None
    candidates: list[Any] = [block.text]
    with suppress(ValueError, RecursionError):
        candidates.insert(0, decode_json(block.text))
    properties = object_or_empty(spec.output_schema).get("properties")
    if list(object_or_empty(properties)) == [RESULT]:
        candidates += [{RESULT: one} for one in candidates]
    for value in candidates:
        if validator.is_valid(value):
            return result.replace(structured_content=value)
    return None


async def result_in(
    raw: JsonObject, server: str, note: Callable[[str], None], redact: Callable[[str], str]
) -> ToolResult:
    """Return the result of a call, its texts masked if it is an error."""
    content: Any = raw.get("content")
    if type(content) is list and len(content) > 1:  # pyright: ignore[reportUnknownArgumentType]
        read = partial(tool_result, raw, server=server, note=note)
        result = await make_off_loop(cast("object", content), read)
    else:
        result = tool_result(raw, server=server, note=note)
    # By the reading: a flag that is not a boolean, or a block of the type `error`, also makes it an error.
    if result.is_error or raw.get("status") == "failed":
        # What is odd in it was noted by the first reading.
        return tool_result(masked(raw, redact), server=server, note=_noted_already)
    return result


def _noted_already(change: str) -> None:
    """Ignore a change."""


def without_secrets(result: Json, redact: Callable[[str], str]) -> Json:
    """Return a result, with its texts masked if it or its task has failed: an error may quote our credentials."""
    if result.get("isError") is True or result.get("status") == "failed":
        return masked(result, redact)
    # the result of a task
    if "result" in result and object_or_empty(result["result"]).get("isError") is True:
        return {**masked(result, redact), "result": masked(object_or_empty(result["result"]), redact)}
    return result


def masked(result: JsonObject, redact: Callable[[str], str]) -> Json:
    """Return the result of a failure with its texts masked.

    If a secret begins in one block and ends in another, the text of all blocks is joined into the first of them.
    """
    made: Json = mask_json(result, redact)
    blocks = array_or_empty(made.get("content"))
    texts = [block for block in blocks if as_text(object_or_empty(block).get("text")) is not None]
    whole = "".join(block["text"] for block in texts)
    hidden = redact(whole)
    if hidden == whole:
        return made
    first = texts[0]
    others = [block for block in blocks if not any(block is text for text in texts[1:])]
    made["content"] = [{**block, "text": hidden} if block is first else block for block in others]
    return made
