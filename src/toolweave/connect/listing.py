"""The lists of one server: every page of them, judged entry by entry.

Pure but for the requests it makes through the session it is given. One malformed tool costs itself
and a warning, never the list (requirement D12); pages are followed to the end (R28, D28).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from toolweave.connect.shapes import as_array, as_object, as_text
from toolweave.errors import ProtocolError
from toolweave.tools.spec import ToolSpec

__all__ = ["MAX_ENTRIES", "Listing", "ToolListing", "list_all", "read_tools"]

MAX_PAGES = 1_000
MAX_ENTRIES = 100_000

Request = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


@dataclass(slots=True, kw_only=True)
class Listing:
    """All pages of one list.

    Attributes:
        entries: The entries as they came, in the server's order.
        pages: How many requests it took.
        ttl_seconds: How long the list may be kept, or None when the server says nothing (SEP-2549).
        problems: What was wrong with the list as a whole, for people.
    """

    entries: list[Any] = field(default_factory=list[Any])
    pages: int = 0
    ttl_seconds: float | None = None
    problems: list[str] = field(default_factory=list[str])


@dataclass(slots=True, kw_only=True)
class ToolListing:
    """The tools of a listing that can be used, and what was wrong with the others."""

    specs: list[ToolSpec] = field(default_factory=list[ToolSpec])
    problems: list[str] = field(default_factory=list[str])


async def list_all(request: Request, method: str, key: str, *, server: str) -> Listing:
    """Follow `nextCursor` to the end of a list; a repeated or endless cursor ends it with a problem noted.

    Raises:
        ProtocolError: A page is not a list, or the server refuses.
    """
    listing = Listing()
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        page = await request(method, {} if cursor is None else {"cursor": cursor})
        listing.pages += 1
        entries = page.get(key)
        if not isinstance(entries, list):
            raise ProtocolError(f"its answer to {method} has no list {key!r}", server=server, code=-32603)
        listing.entries.extend(cast("list[Any]", entries))
        _note_ttl(listing, page)
        cursor = page.get("nextCursor")  # "" is a valid cursor (PROTOCOL 1.2, Pagination)
        if not isinstance(cursor, str):
            return listing
        if cursor in seen:
            listing.problems.append(f"{method} repeats the cursor {cursor[:80]!r}: stopped after {listing.pages} pages")
            return listing
        seen.add(cursor)
        if listing.pages >= MAX_PAGES or len(listing.entries) >= MAX_ENTRIES:
            listing.problems.append(f"{method} does not end: stopped after {listing.pages} pages")
            return listing


def read_tools(
    entries: list[Any], *, server: str, refusal: Callable[[Mapping[str, Any]], str | None] | None = None
) -> ToolListing:
    """Read tool definitions one by one; a bad one is left out with its reason.

    `refusal` says why a tool with this input schema must not be offered, or None.
    """
    listing = ToolListing()
    names: set[str] = set()
    for index, entry in enumerate(entries):
        problem = _problem(entry) or (_refused(entry, refusal) if refusal is not None else None)
        if problem is None and entry["name"] in names:
            problem = "a second tool of this name"
        if problem is not None:
            named = as_text((as_object(entry) or {}).get("name"))
            label = repr(named[:80]) if named else f"number {index + 1}"
            listing.problems.append(f"tool {label} left out: {problem}")
            continue
        names.add(entry["name"])
        listing.specs.append(_spec(entry, server))
    return listing


def _problem(entry: Any) -> str | None:
    tool = as_object(entry)
    if tool is None:
        return "it is no object"
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(name, str) or not name:
        return "it has no name"
    described = as_object(schema)
    if schema is not None and described is None:
        return f"its inputSchema is no object but {type(schema).__name__}"
    if described is not None and described.get("type", "object") != "object":
        return f"its inputSchema describes no object but {str(described['type'])[:80]!r}"
    return None


def _refused(entry: Mapping[str, Any], refusal: Callable[[Mapping[str, Any]], str | None]) -> str | None:
    schema = as_object(entry.get("inputSchema"))
    reason = refusal(schema) if schema is not None else None
    return f"its x-mcp-header is invalid: {reason}" if reason is not None else None


def _spec(tool: Mapping[str, Any], server: str) -> ToolSpec:
    schema, output = as_object(tool.get("inputSchema")), tool.get("outputSchema")
    icons = [as_object(icon) for icon in as_array(tool.get("icons")) or ()]
    return ToolSpec(
        name=tool["name"],
        server=server,
        title=as_text(tool.get("title")),
        description=as_text(tool.get("description")) or "",
        input_schema=schema if schema is not None else {"type": "object", "properties": {}},
        output_schema=output if isinstance(output, bool) else as_object(output),
        annotations=as_object(tool.get("annotations")),
        icons=tuple(icon for icon in icons if icon is not None),
        meta=as_object(tool.get("_meta")) or {},
        raw=tool,
    )


def _note_ttl(listing: Listing, page: Mapping[str, Any]) -> None:
    ttl = page.get("ttlMs")
    if isinstance(ttl, (int, float)) and not isinstance(ttl, bool):
        seconds = max(0.0, ttl / 1000)
        listing.ttl_seconds = seconds if listing.ttl_seconds is None else min(seconds, listing.ttl_seconds)
