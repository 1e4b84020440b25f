"""Reading from standard input: answers of a person, and piped data."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Sequence
from typing import Any

import anyio

from toolweave._json_types import Json, JsonObject, text_or_empty
from toolweave.cli._arguments import allowed_types, choices_of, coerce, property_schema
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._questions import ask_line
from toolweave.cli._render.text import clip, safe_text
from toolweave.cli._screen import complain, note, wide

FIRST_BYTE_SECONDS = 2.0
"""Seconds to wait for the first byte on a pipe when input was not requested explicitly."""
_TRIES = 5


def can_ask() -> bool:
    """Return whether a person can be asked: standard input and standard error are terminals."""
    return wide(sys.stdin) and wide(sys.stderr)


async def ask_for(names: Sequence[str], schema: JsonObject) -> Json:
    """Ask for each of these parameters and return the answers, of the types the schema asks for.

    Raises:
        CommandError: The input ended, or an answer was wrong too often (exit code 1).
    """
    answers: Json = {}
    for name in names:
        answers[name] = await _ask_argument(name, property_schema(schema, name, schema), schema)
    return answers


async def _ask_argument(name: str, parameter: JsonObject, root: JsonObject) -> Any:
    """Ask for one argument until the answer fits its schema, and return its value.

    Raises:
        CommandError: The input ended, or an answer was wrong too often.
    """
    description = text_or_empty(parameter.get("description"))
    if description:
        note(f"  {clip(safe_text(description), 100)}")
    prompt = _prompt(name, parameter, root)
    for _ in range(_TRIES):
        answer = await ask_line(prompt)
        if answer is None:
            text = "the input ended before every required argument was given"
            raise CommandError(text, code=ExitCode.TOOL_ERROR)
        if not answer and "default" in parameter:
            return parameter["default"]
        try:
            return coerce(answer, parameter, root=root, key=name)
        except CommandError as error:
            complain(error)
    raise CommandError(f"no usable value for argument {name!r} after {_TRIES} tries", code=ExitCode.TOOL_ERROR)


def _prompt(name: str, parameter: JsonObject, root: JsonObject) -> str:
    """Return the name of a parameter with its choices, or else its types, and its default."""
    expected = ", ".join(map(str, choices_of(parameter, root)))
    if not expected:
        expected = "/".join(sorted(allowed_types(parameter, root)))
    prompt = name
    if expected:
        prompt += f" ({expected})"
    if "default" in parameter:
        prompt += f" [{json.dumps(parameter['default'])}]"
    return f"{prompt}: "


def read_all() -> str:
    """Return standard input up to its end, without a time limit, for explicit requests.

    Raises:
        CommandError: The input is not UTF-8 text.
    """
    return _decoded(sys.stdin.buffer.read())


async def read_piped() -> str | None:
    """Return the piped input, or None without any.

    Waits only `FIRST_BYTE_SECONDS` for the first byte: standard input is often a pipe without a writer.

    Raises:
        CommandError: It is not UTF-8 text.
    """
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return None  # closed, or none at all
    if stat.S_ISREG(kind):
        return _decoded(sys.stdin.buffer.read()) or None
    if not stat.S_ISFIFO(kind):
        return None
    # The first byte shows that there is a writer. From then on the end of the pipe is awaited, however long it takes:
    # half of a text would be worse than none.
    chunks: list[bytes] = []
    with anyio.move_on_after(FIRST_BYTE_SECONDS) as bound:
        while True:
            await anyio.wait_readable(descriptor)
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            chunks.append(chunk)
            bound.deadline = math.inf
    return _decoded(b"".join(chunks)) or None


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise CommandError("standard input is not UTF-8 text") from None
