"""What the tests of this folder export."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import anyio

from toolweave import (
    CallContext,
    ImageContent,
    TextContent,
    ToolError,
    ToolRegistry,
    ToolResult,
    tool,
)

__all__ = ["ODD_SCHEMAS", "PNG", "Rendezvous", "odd", "picture", "registry"]


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", binascii.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")
    )


PNG = base64.b64encode(_png()).decode()


_ODD = {"filter[name]": {"type": "string"}, "$top": {"type": "integer"}, "plain": {"type": "string"}}
ODD_SCHEMAS: dict[str, dict[str, Any]] = {
    "plain": {"type": "object", "properties": _ODD, "required": ["filter[name]"]},
    "a reference": {
        "type": "object",
        "$ref": "#/$defs/search",
        "$defs": {"search": {"type": "object", "properties": _ODD, "required": ["filter[name]"]}},
    },
    "a combination": {
        "type": "object",
        "properties": {"plain": {"type": "string"}},
        "anyOf": [
            {"properties": {"filter[name]": _ODD["filter[name]"]}, "required": ["filter[name]"]},
            {"properties": {"$top": _ODD["$top"]}},
        ],
    },
    "a reference to an argument": {
        "type": "object",
        "properties": {**_ODD, "same": {"$ref": "#/properties/filter%5Bname%5D"}},
    },
}
"""Schemas with names of arguments that some model APIs refuse, in several places."""


def add(a: int, b: int = 2) -> int:
    """Adds two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


def broken(reason: str) -> str:
    """Fails."""
    raise ToolError(f"it broke: {reason}")


def picture() -> list[Any]:
    """Draws."""
    return [TextContent(text="here it is"), ImageContent(data=PNG, mime_type="image/jpeg")]


async def whoami(context: CallContext) -> str:
    """Says which timeout it was given."""
    return f"timeout {context.timeout}"


@tool(
    name="odd.name",
    input_schema={
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("self", "config", "run_manager", "name", "a-b", "class")},
    },
)
def odd(arguments: Mapping[str, Any]) -> str:
    """Takes parameters of names that frameworks like for themselves."""
    return ", ".join(f"{name}={value}" for name, value in sorted(arguments.items()))


def registry(*more: Any) -> ToolRegistry:
    """Return a registry of tools of every kind."""
    return ToolRegistry([add, broken, picture, whoami, odd, *more])


class Rendezvous:
    """A tool that answers only when it runs as often as wanted at the same time; the first called answers last."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._here = 0
        self._all = anyio.Event()
        self._turn = {parties - 1: anyio.Event()}

    async def meet(self, number: int) -> ToolResult:
        """Waits for the others."""
        self._here += 1
        if self._here == self._parties:
            self._all.set()
        await self._all.wait()
        after = self._turn.setdefault(number + 1, anyio.Event())
        if number < self._parties - 1:
            await after.wait()
        self._turn.setdefault(number, anyio.Event()).set()
        return ToolResult.of(f"number {number}")
