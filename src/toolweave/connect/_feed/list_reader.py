"""Reading of a server's lists: all pages, parsed entry by entry.

Pure except for requests through a given session. A malformed entry is left out with a warning
and never fails the list; pages are followed to the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar, cast

import msgspec

from toolweave._value import Value
from toolweave.errors import ProtocolError
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.json_types import as_object, as_text
from toolweave.protocol.jsonrpc import encode_value
from toolweave.protocol.meta import SERVER_INFO
from toolweave.tools._mcp import read_definition
from toolweave.tools._spec import ToolSpec

MAX_PAGES = 1_000
MAX_ENTRIES = 100_000
MAX_LIST_BYTES = 128 * 1024 * 1024

_OF_A_PAGE = frozenset({"nextCursor", "ttlMs", "cacheScope", "resultType"})
_MAX_TTL_MS = 24 * 3600 * 1000.0
_NOTHING: Mapping[str, Any] = {}

SendRequest = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Makes one request, of a method and with these params, and returns its result."""
ToolRefusal = Callable[[Mapping[str, Any]], "str | None"]
"""Returns the reason not to offer a tool with this input schema, or None."""

ItemT = TypeVar("ItemT")


class FetchedList(msgspec.Struct, kw_only=True):
    """All pages of one list.

    Attributes:
        entries: The entries as they came, in the server's order.
        pages: The number of requests.
        bytes: The size of the pages that another one follows.
        ttl_seconds: The seconds for which the list may be cached; None when the server does not say (SEP-2549).
        public: Whether every page says that all callers may share the list (SEP-2549).
        members: The other members of the pages, such as `_meta`, as they came; of one name the last.
        problems: The faults of the list as a whole, for people.
    """

    entries: list[Any] = msgspec.field(default_factory=list[Any])
    pages: int = 0
    bytes: int = 0
    ttl_seconds: float | None = None
    public: bool = True
    members: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    problems: list[str] = msgspec.field(default_factory=list[str])


class ParsedList(Value, Generic[ItemT], frozen=True, kw_only=True):
    """The usable entries of a list, and the problems of the others."""

    items: tuple[ItemT, ...] = ()
    problems: tuple[str, ...] = ()


async def list_all(
    request: SendRequest, method: str, key: str, *, server: str, max_bytes: int | None = None
) -> FetchedList:
    """Follow `nextCursor` to the end of a list; a repeated or endless cursor ends it with a problem noted.

    So do pages of more than `max_bytes` together, 128 MiB by default.

    A cursor that the server refuses drops the pages so far and restarts, once: the list has changed
    meanwhile.

    Raises:
        ProtocolError: A page is not a list, or the server refuses.
    """
    listing = FetchedList()
    cursor: str | None = None
    seen: set[str] = set()
    begun_anew = False
    while True:
        try:
            page = await request(method, {} if cursor is None else {"cursor": cursor})
        except ProtocolError as exc:
            if cursor is None or exc.code != INVALID_PARAMS or begun_anew:
                raise
            listing, cursor, begun_anew = FetchedList(), None, True
            seen.clear()
            continue
        listing.pages += 1
        entries = page.get(key)
        if not isinstance(entries, list):
            raise ProtocolError(f"its answer to {method} has no list {key!r}", server=server, code=INTERNAL_ERROR)
        listing.entries.extend(cast("list[Any]", entries))
        _note_ttl(listing, page)
        _note_members(listing, page, key)
        cursor = page.get("nextCursor")  # "" is a valid cursor
        if not isinstance(cursor, str):
            return listing
        # of a list with one page, which most are, nothing is measured
        listing.bytes += len(encode_value(page, errors="replace", allow_nan=True))
        if cursor in seen:
            listing.problems.append(f"{method} repeats the cursor {cursor[:80]!r}: stopped after {listing.pages} pages")
            return listing
        seen.add(cursor)
        if listing.pages >= MAX_PAGES or len(listing.entries) >= MAX_ENTRIES:
            listing.problems.append(f"{method} does not end: stopped after {listing.pages} pages")
            return listing
        if listing.bytes >= (max_bytes or MAX_LIST_BYTES):
            limit = f"{max_bytes or MAX_LIST_BYTES} bytes; raise 'max_list_bytes' to read on"
            listing.problems.append(f"{method} is too large: stopped after {listing.pages} pages and {limit}")
            return listing


def read_tools(
    entries: list[Any],
    *,
    server: str,
    prefix: str = "",
    refusal: ToolRefusal | None = None,
    known: Mapping[str, ToolSpec] = _NOTHING,
) -> ParsedList[ToolSpec]:
    """Read tool definitions one by one; a bad one is left out with its reason.

    `known` are the tools as they were read before, by original name: an entry that is still the same gives the very
    same object. `prefix` is put before each exposed name.
    """

    def problem(entry: Mapping[str, Any]) -> str | None:
        return _problem(entry) or (_refused(entry, refusal) if refusal is not None else None)

    def same(entry: Mapping[str, Any]) -> ToolSpec | None:
        before = known.get(entry["name"])
        try:
            return before if before is not None and before.raw == entry else None
        except RecursionError:  # nested so deeply that it cannot be compared
            return None

    read = partial(read_definition, server=server, prefix=prefix)
    return read_entries(entries, "name", read, noun="tool", problem=problem, same=same)


def read_entries(
    entries: list[Any],
    key: str,
    read: Callable[[Mapping[str, Any]], ItemT],
    *,
    noun: str,
    problem: Callable[[Mapping[str, Any]], str | None] = lambda entry: None,
    same: Callable[[Mapping[str, Any]], ItemT | None] = lambda entry: None,
) -> ParsedList[ItemT]:
    """Read the entries of a list one by one, each with `read`; a bad one is left out with its reason.

    `key` is the identifying member; `problem` returns any other fault of an entry, or None; `same` returns the item
    that was made of the same entry before, or None.
    """
    items: dict[str, ItemT] = {}
    problems: list[str] = []
    for index, entry in enumerate(entries):
        known = as_object(entry)
        named = as_text(known.get(key)) if known is not None else None
        item: ItemT | None = None
        if known is None:
            wrong = "it is no object"
        elif not named:
            wrong = f"it has no {key}"
        elif named in items:
            wrong = problem(known) or f"a second {noun} of this {key}"
        else:
            item = same(known)
            wrong = problem(known) if item is None else None
        if wrong is not None or known is None or not named:
            label = repr(named[:80]) if named else f"number {index + 1}"
            problems.append(f"{noun} {label} left out: {wrong}")
            continue
        items[named] = read(known) if item is None else item
    return ParsedList(items=tuple(items.values()), problems=tuple(problems))


def _problem(tool: Mapping[str, Any]) -> str | None:
    schema = tool.get("inputSchema")
    described = as_object(schema)
    if schema is not None and described is None:
        return f"its inputSchema is no object but {type(schema).__name__}"
    if described is not None and described.get("type", "object") != "object":
        return f"its inputSchema describes no object but {str(described['type'])[:80]!r}"
    return None


def _refused(entry: Mapping[str, Any], refusal: ToolRefusal) -> str | None:
    schema = as_object(entry.get("inputSchema"))
    reason = refusal(schema) if schema is not None else None
    return f"its x-mcp-header is invalid: {reason}" if reason is not None else None


def _note_ttl(listing: FetchedList, page: Mapping[str, Any]) -> None:
    ttl = page.get("ttlMs")
    if isinstance(ttl, (int, float)) and not isinstance(ttl, bool):
        seconds = min(ttl, _MAX_TTL_MS) / 1000 if ttl > 0 else 0.0  # a negative one counts as 0
        listing.ttl_seconds = seconds if listing.ttl_seconds is None else min(seconds, listing.ttl_seconds)


def _note_members(listing: FetchedList, page: Mapping[str, Any], key: str) -> None:
    """Keep the members of a page that are about the list as a whole; the stamp of the server is about the hop."""
    listing.public = listing.public and page.get("cacheScope") == "public"
    for name, value in page.items():
        if name == "_meta":
            meta = {inner: one for inner, one in (as_object(value) or {}).items() if inner != SERVER_INFO}
            if meta:
                listing.members["_meta"] = {**listing.members.get("_meta", {}), **meta}
        elif name != key and name not in _OF_A_PAGE:
            listing.members[name] = value
