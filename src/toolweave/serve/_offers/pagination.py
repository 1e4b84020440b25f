"""Pagination: the pages of a list, their encoding, and the cursors between them.

A cursor names the last items of the previous page, so a list that changes meanwhile neither skips nor repeats the items
that stayed, and any replica that offers the same list can continue.
"""

# A cursor is the position of the next item and short hashes of the items before it. While the list is unchanged, the
# item before the position has the first hash, and the page is found at once. After a change, the list is searched for
# the last of these items that is still listed. A cursor contains no secret, and needs no memory in the server: a made-
# up one can only name another position of the same list.

from __future__ import annotations

import binascii
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeVar

from toolweave.errors import RequestError, SchemaError, printable
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.jsonrpc import encode_value
from toolweave.serve.request import Json, Request

_log = logging.getLogger("toolweave.serve")

T = TypeVar("T")

DEFAULT_PAGE_SIZE = 1000
"""Entries on a page unless a server sets another number: many clients read only the first page of a list."""

_ANCHORS = 4
_POSITION = 4
"""Bytes of the position."""
# Bytes of a hash. Of 100,000 items two have the same hash in one list of 50,000, which matters only after a change.
_NAME = 6
_MAX_CURSOR = 4 * (_POSITION + _ANCHORS * _NAME + 2) // 3


def page(
    items: Sequence[T], cursor: object, size: int | None, *, key: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """Return one page of a list, and the cursor of the next page or None on the last.

    Costs O(page) while the list is unchanged; after a change, one search through it.

    Args:
        items: The whole list, as it is now.
        cursor: The request's `cursor`; None for the first page.
        size: Items on a page; None puts all on one.
        key: Names an item; unique in the list.

    Raises:
        RequestError: -32602 for a cursor that no page of this list gave, or whose page is gone altogether; the
            client then lists from the start (MCP specification, pagination).
    """
    start = 0
    if cursor is not None:
        start = _after(items, cursor, key)
    if size is None or start + size >= len(items):
        return items[start:], None
    end = start + size
    return items[start:end], _cursor(items, end, key)


def is_json(entry: Json, what: str) -> bool:
    """Whether JSON can express an entry of a list; one that it cannot is logged.

    One such entry must not cost the client the whole list.

    Args:
        entry: The definition.
        what: The name of the entry in the log.
    """
    problem = _encoding_problem(entry)
    if problem is not None:
        _log.error("%s is not listed, because its definition is not JSON: %s", what, printable(problem))
    return problem is None


def checked_definition(definition: Json, what: str) -> Json:
    """Return a definition unchanged, if it can be sent.

    Args:
        definition: The definition as it is listed.
        what: The name of the defined item, for the error.

    Raises:
        SchemaError: JSON cannot express it.
    """
    problem = _encoding_problem(definition)
    if problem is not None:
        raise SchemaError(f"{what}: its definition is not JSON: {problem}")
    return definition


def list_page(
    member: str, entries: Sequence[Json], cursor: object, size: int | None, *, key: Callable[[Json], str]
) -> Json:
    """Return the members of one page of a list.

    An entry that JSON cannot express is logged and not listed.

    Args:
        member: The member with the entries, such as `"resources"`.
        entries: The whole list.
        cursor: The request's `cursor`.
        size: Entries on a page; None puts all on one.
        key: Names an entry.

    Raises:
        RequestError: -32602, as `page`.
    """
    part, following = page(entries, cursor, size, key=key)
    listed = [entry for entry in part if is_json(entry, f"{key(entry)!r} of {member}")]
    found: Json = {member: listed}
    if following is not None:
        found["nextCursor"] = following
    return found


def only_for_caller(request: Request) -> Json:
    """Return the members that restrict caching of a list to this caller, for any setting of the server."""
    if request.modern:
        return {"cacheScope": "private"}
    return {}


def _cursor(items: Sequence[T], end: int, key: Callable[[T], str]) -> str:
    anchors = (_name(key(item)) for item in reversed(items[max(0, end - _ANCHORS) : end]))
    return urlsafe_b64encode(end.to_bytes(_POSITION, "big") + b"".join(anchors)).rstrip(b"=").decode()


def _after(items: Sequence[T], cursor: object, key: Callable[[T], str]) -> int:
    """Return the start index of the next page: after the last of the cursor's items that is still listed."""
    position, anchors = _read(cursor)
    if 0 < position <= len(items) and _name(key(items[position - 1])) == anchors[0]:
        return position
    places = {_name(key(item)): place for place, item in enumerate(items)}
    for anchor in anchors:
        if anchor in places:
            return places[anchor] + 1
    raise _bad()


def _read(cursor: object) -> tuple[int, list[bytes]]:
    if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR:
        raise _bad()
    try:
        data = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except (UnicodeEncodeError, binascii.Error):
        raise _bad() from None
    names = data[_POSITION:]
    if not names or len(names) % _NAME:
        raise _bad()
    anchors = [names[at : at + _NAME] for at in range(0, len(names), _NAME)]
    return int.from_bytes(data[:_POSITION], "big"), anchors


def _name(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_NAME).digest()


def _bad() -> RequestError:
    return RequestError("Invalid cursor: it is of no page of this list; list again from the start", code=INVALID_PARAMS)


def _encoding_problem(definition: Json) -> str | None:
    """Return the reason why JSON cannot express a definition, or None if it can."""
    try:
        encode_value(definition, errors="replace")
    except (TypeError, ValueError) as error:
        return str(error)
    return None
