"""Registries of items by key that may change while clients are connected: listeners, and paginated lists.

Shared by resources and prompts; knows neither.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from toolweave.errors import SchemaError
from toolweave.serve._offers.pagination import only_for_caller, page
from toolweave.serve._offers.string_handlers import StringHandler
from toolweave.serve._request import Json, Request
from toolweave.tools._toolset import Unsubscribe

__all__ = ["ChangeListeners", "DefinitionFields", "HasDefinition", "ItemRegistry", "described", "listing"]

_log = logging.getLogger("toolweave.serve")


class HasDefinition(Protocol):
    """An item with a definition."""

    @property
    def definition(self) -> Json:
        """The definition as it is listed."""
        ...


E = TypeVar("E")
T = TypeVar("T", bound=HasDefinition)


class ChangeListeners(Generic[E]):
    """Listeners for one event; an exception of one is logged and does not affect the others."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[E], None]] = []

    def subscribe(self, listener: Callable[[E], None]) -> Unsubscribe:
        """Add a listener and return its unsubscribe."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def tell(self, event: E) -> None:
        """Call every listener."""
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:  # boundary: user code
                _log.exception("a listener raised")


class ItemRegistry(Generic[T]):
    """Items by key, in the order they were added; the sequences are cached until a change."""

    __slots__ = ("_by_key", "_definitions", "_listed", "_noun")

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._by_key: dict[str, T] = {}
        self._listed: tuple[T, ...] | None = None
        self._definitions: tuple[Json, ...] | None = None

    def add(self, key: str, thing: T, *, replace: bool = False) -> T | None:
        """Offer something; return what had its key before, if that may be replaced.

        Raises:
            ValueError: The key is taken.
        """
        before = self._by_key.get(key)
        if before is not None and not replace:
            raise ValueError(f"{self._noun} {key!r} is already offered; remove it first, or name one of them anew")
        self._by_key[key] = thing
        self._listed = self._definitions = None
        return before

    def remove(self, key: str) -> None:
        """Stop offering something.

        Raises:
            KeyError: It is not offered.
        """
        del self._by_key[key]
        self._listed = self._definitions = None

    def get(self, key: str) -> T | None:
        """Return the item of this key, or None."""
        return self._by_key.get(key)

    @property
    def listed(self) -> tuple[T, ...]:
        """Everything, in order."""
        if self._listed is None:
            self._listed = tuple(self._by_key.values())
        return self._listed

    @property
    def definitions(self) -> tuple[Json, ...]:
        """The definition of everything, in order."""
        if self._definitions is None:
            self._definitions = tuple(thing.definition for thing in self.listed)
        return self._definitions

    def __len__(self) -> int:
        return len(self._by_key)


class DefinitionFields(TypedDict, total=False):
    """Options that definitions of prompts and resources have in common.

    Attributes:
        name: A name for programs; the function's by default.
        title: A name for people.
        description: A description; the function's docstring by default.
        icons: Icon objects of the specification.
        meta: The definition's `_meta`.
        scopes: The OAuth scopes that a caller's token needs over HTTP; not in the definition.
    """

    name: str | None
    title: str | None
    description: str | None
    icons: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any] | None
    scopes: Sequence[str]


def described(
    handler: StringHandler,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] | None = None,
    scopes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the fields that the values of all definitions have, in `protocol/server_features.py`; scopes are not one.

    Raises:
        SchemaError: The function has no name, and none is given.
    """
    if name is None and handler.name == "<lambda>":
        raise SchemaError("a lambda has no name to expose; give it one with name=...")
    return {
        "name": name or handler.name,
        "title": title or None,
        "description": handler.description if description is None else description,
        "icons": tuple(icons),
        "meta": meta or {},
    }


async def listing(
    member: str,
    request: Request,
    lists: Iterable[Callable[[], Awaitable[Sequence[Json]]]],
    size: int | None,
    *,
    key: Callable[[Json], str],
    shows: Callable[[str], bool] | None = None,
) -> Json:
    """Return one page of the joined lists of several sources; of two entries with one key the first counts.

    The failure of a source is logged and does not affect the others. Entries whose key `shows` refuses are left out;
    such a list is of one caller only.

    Raises:
        RequestError: -32602, a bad cursor.
    """
    found: list[Sequence[Json]] = []
    for ask in lists:
        try:
            found.append(await ask())
        except Exception:  # boundary: a source is anything, such as a server somewhere else
            _log.exception("a source of %s cannot list them now", member)
    entries = found[0] if len(found) == 1 else _together(found, key)
    if shows is not None:
        entries = [entry for entry in entries if shows(key(entry))]
    part, following = page(entries, request.params.get("cursor"), size, key=key)
    found_page: Json = {member: list(part)} | ({} if following is None else {"nextCursor": following})
    return found_page if shows is None else found_page | only_for_caller(request)


def _together(lists: Iterable[Sequence[Json]], key: Callable[[Json], str]) -> Sequence[Json]:
    together: dict[str, Json] = {}
    for entries in lists:
        for entry in entries:
            together.setdefault(key(entry), entry)
    return tuple(together.values())
