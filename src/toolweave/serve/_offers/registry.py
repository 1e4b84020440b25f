"""Registries of items by key that may change while clients are connected, and the base of features that offer them.

Shared by resources and prompts; knows neither.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypedDict, TypeVar, runtime_checkable

from toolweave.errors import RequestError, SchemaError
from toolweave.protocol.codes import METHOD_NOT_FOUND
from toolweave.protocol.component_meta import component_meta, version_in, version_key, with_versions
from toolweave.serve._offers.pagination import list_page, only_for_caller
from toolweave.serve._offers.string_handlers import StringHandler, failure
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._tools import ExposeErrors
from toolweave.serve._unknown import not_offered
from toolweave.serve.request import Json, OfferKind, Request
from toolweave.tools import Unsubscribe
from toolweave.tools.toolset import ChangeListeners

_log = logging.getLogger("toolweave.serve")


class HasDefinition(Protocol):
    """An item with a definition."""

    @property
    def definition(self) -> Json:
        """The definition as it is listed."""
        ...


@runtime_checkable
class DescribesOffers(Protocol):
    """A source that knows its definitions before its list is requested."""

    def definition(self, name: str, version: str | None = None) -> Json | None:
        """Return the definition that matches a name or a URI, the newest or one version, or None."""
        ...

    def scopes(self, name: str, version: str | None = None) -> tuple[str, ...]:
        """Return the scopes that it needs."""
        ...


def describing(sources: Iterable[object], name: str, version: str | None = None) -> DescribesOffers | None:
    """Return the first source that knows a definition of this name or URI, or None."""
    for source in sources:
        if isinstance(source, DescribesOffers) and source.definition(name, version) is not None:
            return source
    return None


T = TypeVar("T", bound=HasDefinition)
SourceT = TypeVar("SourceT")
ChangeT = TypeVar("ChangeT")


class ItemRegistry(Generic[T]):
    """Items by key, in the order they were added; the sequences are cached until a change.

    A key may have several versions: the newest is listed, an older one is found by its version.

    Attributes:
        keep: Whether a definition is offered at all. Of the versions of a key, the newest offered one is listed.
    """

    __slots__ = ("_by_key", "_definitions", "_listed", "_noun", "keep")

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self.keep: Callable[[Json], bool] | None = None
        self._by_key: dict[str, list[T]] = {}  # newest first
        self._listed: tuple[T, ...] | None = None
        self._definitions: tuple[Json, ...] | None = None

    def add(self, key: str, thing: T, *, replace: bool = False) -> T | None:
        """Offer an object; return the earlier one of its key, if that may be replaced.

        Raises:
            ValueError: The key is in use.
        """
        version = _version(thing)
        before: T | None = None
        kept: list[T] = []
        for one in self._by_key.get(key, []):
            # items of one key can only be offered together if each has another version
            if version is None or _version(one) in (None, version):
                if before is None:
                    before = one
            else:
                kept.append(one)
        if before is not None and not replace:
            raise ValueError(f"{self._noun} {key!r} is already offered; remove it first, or rename one of them")
        kept.append(thing)
        self._by_key[key] = sorted(kept, key=lambda one: version_key(_version(one) or ""), reverse=True)
        self._changed()
        return before

    def remove(self, key: str) -> None:
        """Stop offering something, in all its versions.

        Raises:
            KeyError: It is not offered.
        """
        del self._by_key[key]
        self._changed()

    def _changed(self) -> None:
        self._listed = None
        self._definitions = None

    def get(self, key: str, version: str | None = None) -> T | None:
        """Return the item of this key, the newest or one version, or None."""
        for one in self._offered(self._by_key.get(key, [])):
            if version is None or _version(one) == version:
                return one
        return None

    def _offered(self, versions: list[T]) -> list[T]:
        if self.keep is None:
            return versions
        return [one for one in versions if self.keep(one.definition)]

    @property
    def listed(self) -> tuple[T, ...]:
        """The newest of everything, in order."""
        if self._listed is None:
            self._listed = tuple(versions[0] for versions in self._offered_versions())
        return self._listed

    @property
    def definitions(self) -> tuple[Json, ...]:
        """The definition of everything, in order; if an item has several versions, its `_meta` lists them."""
        if self._definitions is None:
            self._definitions = tuple(map(_listed_definition, self._offered_versions()))
        return self._definitions

    def _offered_versions(self) -> Iterator[list[T]]:
        return filter(None, map(self._offered, self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)


def _version(thing: HasDefinition) -> str | None:
    return version_in(thing.definition.get("_meta"))


def _listed_definition(versions: Sequence[HasDefinition]) -> Json:
    definition = versions[0].definition
    if len(versions) == 1:
        return definition
    return definition | {"_meta": with_versions(definition.get("_meta"), [_version(one) or "" for one in versions])}


class OffersFeature(ABC, Generic[SourceT, ChangeT]):
    """Base class of the features for prompts and resources: those of functions and of any other sources.

    A subclass sets `kind`, and the members of the capability of that name.

    Args:
        functions: The registry of functions, which is the first source.
        runner: Runs the functions.
        page_size: Entries on a page of the list; None puts all on one.
        expose_errors: As for tools: the client's view of an unexpected exception.
    """

    kind: ClassVar[OfferKind]
    _capability: ClassVar[Json]

    def __init__(
        self,
        functions: SourceT,
        *,
        runner: HandlerRunner,
        page_size: int | None,
        expose_errors: ExposeErrors | None,
    ) -> None:
        self._sources: list[SourceT] = [functions]
        self._runner = runner
        self._page_size = page_size
        self._expose = expose_errors
        self._listeners = ChangeListeners[ChangeT]()
        self._offered = False

    def definition(self, name: str, version: str | None = None) -> Json | None:
        """Return the definition that matches a name or a URI; None for one of another server, which only it knows."""
        found = describing(self._sources, name, version)
        if found is None:
            return None
        return found.definition(name, version)

    def scopes(self, name: str, version: str | None = None) -> tuple[str, ...]:
        """Return the scopes that a prompt or a resource needs; none if it is unknown."""
        found = describing(self._sources, name, version)
        if found is None:
            return ()
        return found.scopes(name, version)

    def subscribe(self, listener: Callable[[ChangeT], None]) -> Unsubscribe:
        """Call `listener` after every change, synchronously."""
        return self._listeners.subscribe(listener)

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the capability, once something is offered."""
        # once offered, it stays: clients that have connected rely on the capability
        if len(self._sources) > 1 or self._has_functions:
            self._offered = True
        if self._offered:
            return {self.kind: self._capability}
        return {}

    @property
    @abstractmethod
    def _has_functions(self) -> bool:
        """Whether a function is offered now."""

    def _require(self, request: Request) -> None:
        if not self._offered and not self.capabilities(modern=request.modern):
            raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)

    def _shows(self, request: Request) -> Callable[[str], bool] | None:
        """Return whether the caller may see an entry, by its name or URI; None if each may be seen."""
        may = request.client.may
        if may is None:
            return None
        return lambda name: may(self.kind, name, self.scopes(name))

    async def _found(self, request: Request, name: str, what: str, answer: Awaitable[Json | None]) -> Json:
        """Return the answer of a source; `what` begins the message of an error.

        Raises:
            RequestError: The source failed, or offers nothing of this name.
        """
        try:
            found = await answer
        except Exception as exc:  # boundary: user code
            raise failure(what, exc, request, expose=self._expose) from None
        if found is None:
            raise not_offered(self.kind, name, modern=request.modern)
        return found


class DefinitionFields(TypedDict, total=False):
    """Options that definitions of prompts and resources have in common.

    Attributes:
        name: A name for programs; the function's by default.
        title: A human-readable name.
        description: A description; the function's docstring by default.
        icons: Icon objects of the specification.
        meta: The definition's `_meta`.
        scopes: The OAuth scopes that a caller's token needs over HTTP; not in the definition.
        tags: Tags, by which it is chosen, enabled and disabled; in its `_meta`.
        version: Its version, such as `"1.2"`; several versions of one name may be offered.
    """

    name: str | None
    title: str | None
    description: str | None
    icons: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any] | None
    scopes: Sequence[str]
    tags: Iterable[str]
    version: str | None


def described(
    handler: StringHandler,
    about: DefinitionFields,
) -> dict[str, Any]:
    """Return the fields that all definitions have, in `protocol/server_features.py`; scopes are not among them.

    Raises:
        SchemaError: The function has no name, and none is given.
        TypeError: A field is unknown.
        ValueError: A tag or the version is not valid.
    """
    unknown = about.keys() - DefinitionFields.__annotations__.keys()
    if unknown:
        raise TypeError(f"a definition has no {min(unknown)!r}; it has {', '.join(DefinitionFields.__annotations__)}")
    name = about.get("name")
    description = about.get("description")
    if description is None:
        description = handler.description
    if name is None and handler.name == "<lambda>":
        raise SchemaError("a lambda has no name to expose; give it one with name=...")
    return {
        "name": name or handler.name,
        "title": about.get("title") or None,
        "description": description,
        "icons": tuple(about.get("icons", ())),
        "meta": component_meta(about.get("meta"), tags=about.get("tags", ()), version=about.get("version")),
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
    """Return one page of the joined lists of several sources; of two entries with one key, the first is listed.

    The failure of a source is logged and does not affect the others. Entries whose key `shows` refuses are not listed,
    and the list is then only for one caller.

    Raises:
        RequestError: -32602, a bad cursor.
    """
    found: list[Sequence[Json]] = []
    for ask in lists:
        try:
            found.append(await ask())
        except Exception:  # boundary: a source is anything, such as a server somewhere else
            _log.exception("a source of %s cannot list them now", member)
    if len(found) == 1:
        entries = found[0]
    else:
        entries = _together(found, key)
    if shows is not None:
        entries = [entry for entry in entries if shows(key(entry))]
    found_page = list_page(member, entries, request.params.get("cursor"), size, key=key)
    if shows is None:
        return found_page
    return found_page | only_for_caller(request)


async def joined_entries(
    lists: Iterable[Callable[[], Awaitable[Sequence[Json]]]], key: Callable[[Json], str]
) -> Sequence[Json]:
    """Return the joined lists of several sources; of two entries with one key, the first is listed."""
    return _together([await ask() for ask in lists], key)


def _together(lists: Iterable[Sequence[Json]], key: Callable[[Json], str]) -> Sequence[Json]:
    together: dict[str, Json] = {}
    for entries in lists:
        for entry in entries:
            together.setdefault(key(entry), entry)
    return tuple(together.values())
