"""The pages of a list of tools: each definition is made once, and each page is encoded once for each era.

Knows how tools are listed, not which toolset offers or calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from toolweave.protocol.jsonrpc import encode_value
from toolweave.serve._offers.pagination import page
from toolweave.serve._request import Json
from toolweave.tools import ToolSnapshot, ToolSpec
from toolweave.tools._mcp import tool_definition

_MOST_PAGES = 1000


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
        self._definitions: dict[bool, dict[str, tuple[ToolSpec, Json]]] = {True: {}, False: {}}
        self._paged: ToolSnapshot | None = None
        self._pages: dict[tuple[bool, object], tuple[msgspec.Raw, str | None]] = {}  # of `_paged`, by era and cursor

    def of(self, snapshot: ToolSnapshot, cursor: object, *, modern: bool) -> Json:
        """Return the members of one page of all tools, encoded and kept.

        Raises:
            RequestError: -32602, a bad cursor.
        """
        if snapshot is not self._paged:
            self._paged = snapshot
            self._pages.clear()
        key = modern, cursor if isinstance(cursor, str) else None
        known = self._pages.get(key) if cursor == key[1] else None
        if known is None:
            listed, following = self._page(snapshot, cursor, modern=modern)
            known = self._pages[key] = (msgspec.Raw(encode_value(listed, errors="replace")), following)  # pyright: ignore[reportArgumentType]
            if len(self._pages) > _MOST_PAGES:
                del self._pages[next(iter(self._pages))]  # of cursors that a stranger made up
        encoded, following = known
        return _listing(encoded, following)

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
        return [self._definition(spec, modern=modern) for spec in chosen], following

    def _definition(self, spec: ToolSpec, *, modern: bool) -> Json:
        made = self._definitions[modern]
        known = made.get(spec.name)
        if known is not None and known[0] is spec:
            return known[1]
        definition = tool_definition(spec, modern=modern) | self._more(spec, modern)
        made[spec.name] = (spec, definition)
        return definition


def _name(spec: ToolSpec) -> str:
    return spec.name


def _listing(listed: list[Json] | msgspec.Raw, following: str | None) -> Json:
    return {"tools": listed} if following is None else {"tools": listed, "nextCursor": following}
