"""Reading of a server's lists: all pages, parsed entry by entry.

Pure except for requests through a given session. A malformed entry is left out with a warning
and never fails the list; pages are followed to the end.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar

import anyio.lowlevel
import msgspec

from toolweave._json_types import (
    Json,
    JsonObject,
    as_array,
    as_number,
    as_object,
    object_or_empty,
    text_or_empty,
)
from toolweave._value import Value
from toolweave.config.validation import kind_of
from toolweave.errors import ProtocolError
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.jsonrpc import encode_value
from toolweave.protocol.lenient_offers import (
    EMPTY_CURSOR,
    NUMBER_CURSOR,
    NoteChange,
    readable_entries,
    readable_page,
    readable_prompt,
    readable_tool,
)
from toolweave.protocol.meta import SERVER_INFO
from toolweave.protocol.spellings import (
    MEDIA_NAMES,
    PAGE_NAMES,
    PROMPT_NAMES,
    TEMPLATE_NAMES,
    TOOL_NAMES,
    MemberNames,
    spelled,
)
from toolweave.tools import ToolSpec
from toolweave.tools.mcp import read_definition

MAX_PAGES = 1_000
MAX_ENTRIES = 100_000
MAX_LIST_BYTES = 128 * 1024 * 1024

_OF_A_PAGE = frozenset({"nextCursor", "ttlMs", "cacheScope", "resultType"})
_MAX_TTL_MS = 24 * 3600 * 1000.0
_NOTHING: JsonObject = {}
_STEP_SECONDS = 0.01

SendRequest = Callable[[str, JsonObject], Awaitable[Json]]
"""Makes one request, of a method and with these params, and returns its result."""
ToolRefusal = Callable[[JsonObject], "str | None"]
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
        problems: The faults of the list as a whole, human-readable.
    """

    entries: list[Any] = msgspec.field(default_factory=list[Any])
    pages: int = 0
    bytes: int = 0
    ttl_seconds: float | None = None
    public: bool = True
    members: Json = msgspec.field(default_factory=Json)
    problems: list[str] = msgspec.field(default_factory=list[str])


class ParsedList(Value, Generic[ItemT], frozen=True, kw_only=True):
    """The usable entries of a list, and the problems of the others."""

    items: tuple[ItemT, ...] = ()
    problems: tuple[str, ...] = ()


async def list_all(
    request: SendRequest,
    method: str,
    key: str,
    *,
    server: str,
    max_bytes: int | None = None,
    note: NoteChange | None = None,
) -> FetchedList:
    """Follow `nextCursor` to the end of a list; a repeated or endless cursor ends it with a problem noted.

    So do pages of more than `max_bytes` together, 128 MiB by default.

    A cursor that the server refuses drops the pages so far and restarts, once: the list has changed
    meanwhile.

    Args:
        request: Sends a request.
        method: The method that lists.
        key: The member that holds the entries.
        server: The name of the server.
        max_bytes: The most bytes of all pages.
        note: Called with each part that is malformed and is read as it is meant; None reads no such part.

    Raises:
        ProtocolError: A page is not a list, or the server refuses.
    """
    if max_bytes is None:
        max_bytes = MAX_LIST_BYTES
    listing = FetchedList()
    cursor: str | int | None = None
    seen: set[str | int] = set()
    begun_anew = False
    while True:
        try:
            page: JsonObject = await request(method, {} if cursor is None else {"cursor": cursor})
        except ProtocolError as exc:
            if cursor is None or exc.code != INVALID_PARAMS or begun_anew:
                raise
            listing = FetchedList()
            cursor = None
            begun_anew = True
            seen.clear()
            continue
        listing.pages += 1
        entries = as_array(page.get(key))
        if entries is None or not PAGE_NAMES.exact.issuperset(page):
            page, entries = _second_reading(page, method, key, server, note)
        if cursor == "" and _is_first_again(entries, listing, method, note):
            return listing
        listing.entries.extend(entries)
        _note_ttl(listing, page)
        _note_members(listing, page, key)
        cursor = page.get("nextCursor")
        if cursor is None:
            return listing
        cursor = _next_cursor(cursor, method, note, listing.problems)
        if cursor is None:
            return listing
        # of a list with one page, which most are, nothing is measured
        listing.bytes += len(encode_value(page, errors="replace", allow_nan=True))
        problem = _why_it_stops(listing, cursor in seen, str(cursor)[:80], max_bytes)
        if problem is not None:
            listing.problems.append(f"{method} {problem}")
            return listing
        seen.add(cursor)


def _why_it_stops(listing: FetchedList, repeated: bool, cursor: str, max_bytes: int) -> str | None:
    """Return the reason to read no further page, or None."""
    if repeated:
        return f"repeats the cursor {cursor!r}: stopped after {listing.pages} pages"
    if listing.pages >= MAX_PAGES or len(listing.entries) >= MAX_ENTRIES:
        return f"does not end: stopped after {listing.pages} pages"
    if listing.bytes >= max_bytes:
        limit = f"{max_bytes} bytes; raise 'max_list_bytes' to read on"
        return f"is too large: stopped after {listing.pages} pages and {limit}"
    return None


def note_of(note: NoteChange, what: str, change: str) -> None:
    """Report a change of something."""
    note(f"{what} {change}")


def _second_reading(
    page: JsonObject, method: str, key: str, server: str, note: NoteChange | None
) -> tuple[JsonObject, list[Any]]:
    """Return a page with its members under their names, and its entries.

    Raises:
        ProtocolError: It has no list.
    """
    entries = as_array(page.get(key))
    if note is not None:
        change = partial(note_of, note, f"its answer to {method}")
        page = readable_page(page, change)
        entries = as_array(page.get(key))
        if entries is None:
            entries = readable_entries(page, key, change)
    if entries is None:
        raise ProtocolError(f"its answer to {method} has no list {key!r}", server=server, code=INTERNAL_ERROR)
    return page, entries


def _is_first_again(entries: list[Any], listing: FetchedList, method: str, note: NoteChange | None) -> bool:
    """Return whether an empty cursor led to the first page again: its server writes it for no further page."""
    if note is None:
        return False
    if entries != listing.entries:
        return False
    note(f"its answer to {method} {EMPTY_CURSOR.problem}")
    return True


def _next_cursor(cursor: object, method: str, note: NoteChange | None, problems: list[str]) -> str | int | None:
    """Return the cursor of the next page; None for a value that is not one, which is among the problems."""
    if isinstance(cursor, str):  # "" is a valid cursor
        return cursor
    if note is None or type(cursor) is not int:
        # An empty value can only mean the last page. Any other one stands for entries that nobody will see.
        if cursor:
            problems.append(f"{method} has {kind_of(cursor)} as 'nextCursor': no further page is read")
        return None
    note(f"its answer to {method} {NUMBER_CURSOR.problem}")
    return cursor


class SecondReading(NamedTuple):
    """The reading of entries that are malformed.

    Attributes:
        read: Returns an entry as it is meant, and calls the function with each change.
        member: A member of entries.
        right: Its type in the entries that are read once.
        names: The members of entries.
    """

    read: Callable[[JsonObject, NoteChange], JsonObject]
    member: str
    right: type
    names: MemberNames


def _same_entry(entry: JsonObject, note: NoteChange) -> JsonObject:
    return entry


# No entry has a member without a name.
NO_SECOND_READING = SecondReading(_same_entry, "", NoneType, MemberNames())
READ_RESOURCES_AGAIN = SecondReading(_same_entry, "", NoneType, MEDIA_NAMES)
READ_TEMPLATES_AGAIN = SecondReading(_same_entry, "", NoneType, TEMPLATE_NAMES)
READ_TOOLS_AGAIN = SecondReading(readable_tool, "inputSchema", dict, TOOL_NAMES)
READ_PROMPTS_AGAIN = SecondReading(readable_prompt, "arguments", NoneType, PROMPT_NAMES)


class EntryReader(Generic[ItemT]):
    """Reads the entries of a list one by one; a bad one is left out with its reason.

    A list may have 100,000 entries, so they can be read in steps between which the event loop does other work. A step
    is bounded by time and not by a number of entries, because one entry can be as large as thousands of others.

    Args:
        entries: The entries as they came.
        key: The identifying member.
        read: Makes the item of an entry.
        noun: The name of an entry in texts.
        problem: Returns any other fault of an entry, or None.
        same: Returns the item that was made of the same entry before, or None.
        second: Reads malformed entries as they are meant.
        note: Called with each entry that is read so; None reads none a second time.
    """

    def __init__(
        self,
        entries: list[Any],
        key: str,
        read: Callable[[JsonObject], ItemT],
        *,
        noun: str,
        problem: Callable[[JsonObject], str | None] = lambda entry: None,
        same: Callable[[JsonObject], ItemT | None] = lambda entry: None,
        second: SecondReading = NO_SECOND_READING,
        note: NoteChange | None = None,
    ) -> None:
        self._left = enumerate(entries)
        self._key = key
        self._make = read
        self._noun = noun
        self._problem = problem
        self._same = same
        self._second = second
        self._note = note
        self._items: dict[str, ItemT] = {}
        self._problems: list[str] = []

    def read(self, seconds: float = math.inf) -> bool:
        """Read entries for this number of seconds, at least one; return whether the end was reached."""
        end = perf_counter() + seconds
        for index, entry in self._left:
            self._read_entry(index, entry)
            if perf_counter() >= end:
                return False
        return True

    def result(self) -> ParsedList[ItemT]:
        """Return the items and problems of the entries read so far."""
        return ParsedList(items=tuple(self._items.values()), problems=tuple(self._problems))

    async def read_in_steps(self) -> ParsedList[ItemT]:
        """Read all entries; other tasks run after each hundredth of a second."""
        while not self.read(_STEP_SECONDS):
            await anyio.lowlevel.checkpoint()
        return self.result()

    def _read_entry(self, index: int, entry: object) -> None:
        known = as_object(entry)
        if known is None:
            self._leave_out(f"number {index + 1}", "it is not an object")
            return
        if not self._second.names.exact.issuperset(known):
            known = self._spelled_entry(known, index)
        named = text_or_empty(known.get(self._key))
        if not named:
            self._leave_out(f"number {index + 1}", f"it has no {self._key}")
            return
        label = repr(named[:80])
        if type(known.get(self._second.member)) is not self._second.right:
            known = self._read_again(known, label)
        if named in self._items:
            self._leave_out(label, self._problem(known) or f"a second {self._noun} of this {self._key}")
            return
        item = self._same(known)
        if item is None:
            wrong = self._problem(known)
            if wrong is not None:
                known = self._read_again(known, label)
                wrong = self._problem(known)
            if wrong is not None:
                self._leave_out(label, wrong)
                return
            item = self._make(known)
        self._items[named] = item

    def _spelled_entry(self, entry: JsonObject, index: int) -> JsonObject:
        """Return an entry with its members under their names, with a report of each change."""
        if self._note is None:
            return entry
        label = repr(text_or_empty(entry.get(self._key))[:80] or index + 1)
        return spelled(entry, self._second.names, partial(note_of, self._note, f"{self._noun} {label}: its definition"))

    def _read_again(self, entry: JsonObject, label: str) -> JsonObject:
        """Return an entry as it is meant, with a report of each change; without reports, as it is."""
        if self._note is None:
            return entry
        return self._second.read(entry, partial(note_of, self._note, f"{self._noun} {label}: its definition"))

    def _leave_out(self, label: str, why: str) -> None:
        self._problems.append(f"{self._noun} {label} left out: {why}")


def tool_reader(
    entries: list[Any],
    *,
    server: str,
    prefix: str = "",
    refusal: ToolRefusal | None = None,
    known: Mapping[str, ToolSpec] = _NOTHING,
    note: NoteChange | None = None,
) -> EntryReader[ToolSpec]:
    """Return a reader of tool definitions.

    Args:
        entries: The definitions as they came.
        server: The name of the server.
        prefix: Put before each exposed name.
        refusal: The transport's check for tools that must not be offered.
        known: The tools as they were read before, by original name: an entry that is still the same gives the very
            same object.
        note: Called with each definition that is malformed and is read as it is meant; None reads no such definition.
    """

    def problem(entry: JsonObject) -> str | None:
        wrong = _problem(entry)
        if wrong is not None:
            return wrong
        if refusal is None:
            return None
        return _refused(entry, refusal)

    def same(entry: JsonObject) -> ToolSpec | None:
        before = known.get(entry["name"])
        try:
            if before is not None and before.raw == entry:
                return before
            return None
        except RecursionError:  # nested so deeply that it cannot be compared
            return None

    read = partial(read_definition, server=server, prefix=prefix)
    return EntryReader(
        entries, "name", read, noun="tool", problem=problem, same=same, second=READ_TOOLS_AGAIN, note=note
    )


def _problem(tool: JsonObject) -> str | None:
    schema = tool.get("inputSchema")
    if schema is None:
        return None
    described = as_object(schema)
    if described is None:
        return f"its inputSchema is not an object but {type(schema).__name__}"
    if described.get("type", "object") != "object":
        return f"its inputSchema does not describe an object but {str(described['type'])[:80]!r}"
    return None


def _refused(entry: JsonObject, refusal: ToolRefusal) -> str | None:
    schema = as_object(entry.get("inputSchema"))
    reason = refusal(schema) if schema is not None else None
    if reason is not None:
        return f"its x-mcp-header is invalid: {reason}"
    return None


def _note_ttl(listing: FetchedList, page: JsonObject) -> None:
    ttl = as_number(page.get("ttlMs"))
    if ttl is None:
        return
    # a negative one, and NaN, count as 0
    seconds = min(ttl, _MAX_TTL_MS) / 1000 if ttl > 0 else 0.0
    if listing.ttl_seconds is None:
        listing.ttl_seconds = seconds
    else:
        listing.ttl_seconds = min(seconds, listing.ttl_seconds)


def _note_members(listing: FetchedList, page: JsonObject, key: str) -> None:
    """Keep the members of a page that are about the list as a whole; the stamp of the server is about the hop."""
    if page.get("cacheScope") != "public":
        listing.public = False
    for name, value in page.items():
        if name == "_meta":
            meta = dict(object_or_empty(value))
            meta.pop(SERVER_INFO, None)
            if meta:
                listing.members["_meta"] = {**listing.members.get("_meta", {}), **meta}
        elif name != key and name not in _OF_A_PAGE:
            listing.members[name] = value
