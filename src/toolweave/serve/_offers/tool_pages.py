"""The pages of a list of tools: each definition is made once, and each page is encoded once for each era.

Knows how tools are listed, not which toolset offers or calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from toolweave._json_types import not_none
from toolweave.protocol.jsonrpc import encode_value
from toolweave.serve._offers.pagination import is_json, page
from toolweave.serve.request import Json
from toolweave.tools import ToolSnapshot, ToolSpec
from toolweave.tools.mcp import tool_definition

# Definitions are cached by the identity of their spec, and encoded pages by the identity of the snapshot, which the
# toolset replaces as a whole: so nothing has to be compared. The oldest pages are dropped when all are larger than the
# limit.
_MAX_KEPT_BYTES = 16 * 1024 * 1024
"""Maximum bytes of cached pages. A client can invent a cursor for each of them."""


def _nothing(spec: ToolSpec, modern: bool) -> Json:
    return {}


class ToolPages:
    """The pages of one list of tools.

    Args:
        size: Entries on a page; None puts all on one.
        more: Returns further members of a tool's definition in an era, modern or not; they replace others of the name.
    """

    def __init__(self, size: int | None, *, more: Callable[[ToolSpec, bool], Json] = _nothing) -> None:
        self._size = size
        self._more = more
        self._definitions: dict[bool, dict[str, tuple[ToolSpec, Json | None]]] = {True: {}, False: {}}
        self._paged: ToolSnapshot | None = None
        # the pages of `_paged` by era and cursor, and their size
        self._pages: dict[tuple[bool, object], _Page] = {}
        self._kept_bytes = 0

    def of(self, snapshot: ToolSnapshot, cursor: object, *, modern: bool) -> Json:
        """Return the members of one page of all tools, encoded and kept.

        Raises:
            RequestError: -32602, a bad cursor.
        """
        if snapshot is not self._paged:
            self._paged = snapshot
            self._pages.clear()
            self._kept_bytes = 0
        # A cursor of another type is refused when the page is made, and must not be found under the key of the first
        # one.
        key = modern, cursor if isinstance(cursor, str) else None
        known = self._pages.get(key) if cursor == key[1] else None
        if known is None:
            listed, following = self._page(snapshot, cursor, modern=modern)
            known = msgspec.Raw(encode_value(listed, errors="replace")), following
            self._keep(key, known)
        return _listing(*known)

    def _keep(self, key: tuple[bool, object], made: _Page) -> None:
        """Cache an encoded page and drop the oldest ones if necessary; a page above the limit is not cached."""
        size = memoryview(made[0]).nbytes
        if size > _MAX_KEPT_BYTES:
            return
        self._pages[key] = made
        self._kept_bytes += size
        while self._kept_bytes > _MAX_KEPT_BYTES:
            oldest = self._pages.pop(next(iter(self._pages)))
            self._kept_bytes -= memoryview(oldest[0]).nbytes

    def selected(self, specs: Sequence[ToolSpec], cursor: object, *, modern: bool) -> Json:
        """Return the members of one page of some tools, such as those that one caller may use.

        Raises:
            RequestError: -32602, a bad cursor.
        """
        return _listing(*self._page(specs, cursor, modern=modern))

    def forget(self, names: Sequence[str]) -> None:
        """Drop the definitions of tools that are gone."""
        for made in self._definitions.values():
            for name in names:
                made.pop(name, None)

    def _page(self, specs: Sequence[ToolSpec], cursor: object, *, modern: bool) -> tuple[list[Json], str | None]:
        chosen, following = page(specs, cursor, self._size, key=_name)
        definitions = [self._definition(spec, modern=modern) for spec in chosen]
        return not_none(definitions), following

    def _definition(self, spec: ToolSpec, *, modern: bool) -> Json | None:
        """Return the definition; None, after one line in the log, for one that JSON cannot express."""
        made = self._definitions[modern]
        known = made.get(spec.name)
        if known is not None and known[0] is spec:
            return known[1]
        definition = tool_definition(spec, modern=modern) | self._more(spec, modern)
        listed = None
        if is_json(definition, f"tool {spec.name!r}"):
            listed = definition
        made[spec.name] = (spec, listed)
        return listed


_Page: TypeAlias = tuple[msgspec.Raw, str | None]
"""The definitions of one page as a JSON array, and the cursor of the next page."""


def _name(spec: ToolSpec) -> str:
    return spec.name


def _listing(listed: list[Json] | msgspec.Raw, following: str | None) -> Json:
    if following is None:
        return {"tools": listed}
    return {"tools": listed, "nextCursor": following}
