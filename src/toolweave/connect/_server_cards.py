"""The cards that servers publish of themselves, read before anything connects to them."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

from toolweave._json_types import Json
from toolweave._value import Value
from toolweave.oauth.fetch import FetchedAnswer, FetchFailed, GuardedFetch, quoted, shown_url
from toolweave.protocol.server_cards import (
    CARD_SUFFIX,
    CARD_TYPE,
    CATALOG_PATH,
    CATALOG_TYPE,
    CatalogEntry,
    ServerCard,
    read_card,
    read_catalog,
)

_SECONDS = 10.0
_MAX_CARDS = 50
_ACCEPTED = {"accept": f"{CARD_TYPE}, application/json"}


class FoundCards(Value, frozen=True, kw_only=True):
    """The server cards that an address leads to.

    Attributes:
        cards: The cards.
        problems: The reasons why documents and entries were left out.
    """

    cards: tuple[ServerCard, ...] = ()
    problems: tuple[str, ...] = ()


async def find_server_cards(url: str, *, seconds: float = _SECONDS) -> FoundCards:
    """Find the cards of servers at an address: of an endpoint, of a host with a catalog, or of a card itself.

    No credentials are sent. Nothing in a card is proved, so do not decide about access by it.

    Args:
        url: The address: https, or http on this machine.
        seconds: The time for one document.
    """
    fetch = GuardedFetch([url], seconds=seconds, elsewhere=True)
    problems: list[str] = []
    for where in _places(url):
        try:
            answer = await fetch.get(where, "the server card", headers=_ACCEPTED)
        except FetchFailed as exc:
            problems.append(str(exc))
            continue
        if answer.status != 200:
            problems.append(f"{shown_url(where)}: HTTP {answer.status}")
            continue
        try:
            return FoundCards(cards=(read_card(answer.decoded(Json), url=where),))
        except (FetchFailed, ValueError) as exc:
            problems.append(f"{shown_url(where)} is not a server card: {quoted(str(exc))}")
    return await _listed(fetch, url, problems)


async def card_at(url: str, *, seconds: float = _SECONDS) -> ServerCard | None:
    """Return the card of an endpoint at the reserved place, or None if there is none that can be read."""
    fetch = GuardedFetch([url], seconds=seconds)
    for where in _places(url):
        with suppress(FetchFailed, ValueError):
            return await _fetched_card(fetch, where)
    return None


def _places(url: str) -> list[str]:
    """Return the addresses at which the card of an endpoint may be: the reserved one, or the given one itself."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith((CARD_SUFFIX, ".json")):
        return [url]
    if not path:
        return []
    return [urlunsplit((parts.scheme, parts.netloc, path + CARD_SUFFIX, "", ""))]


async def _listed(fetch: GuardedFetch, url: str, problems: list[str]) -> FoundCards:
    """Return the cards in the catalog of a host."""
    parts = urlsplit(url)
    where = urlunsplit((parts.scheme, parts.netloc, CATALOG_PATH, "", ""))
    try:
        answer = await fetch.get(where, "the catalog", headers={"accept": f"{CATALOG_TYPE}, application/json"})
        if answer.status != 200:
            return FoundCards(problems=(*problems, f"{shown_url(where)}: HTTP {answer.status}"))
        entries, left_out = _catalog_in(answer)
    except FetchFailed as exc:
        return FoundCards(problems=(*problems, str(exc)))
    problems = list(left_out)
    cards: list[ServerCard] = []
    for entry in entries[:_MAX_CARDS]:
        try:
            cards.append(await _card_of(fetch, entry))
        except (FetchFailed, ValueError) as exc:
            problems.append(f"entry {quoted(entry.identifier)!r} was left out: {quoted(str(exc))}")
    if len(entries) > _MAX_CARDS:
        problems.append(f"{len(entries) - _MAX_CARDS} more entries were not read")
    return FoundCards(cards=tuple(cards), problems=tuple(problems))


def _catalog_in(answer: FetchedAnswer) -> tuple[list[CatalogEntry], list[str]]:
    try:
        entries, problems = read_catalog(answer.decoded(Json))
    except ValueError as exc:
        raise FetchFailed(f"{shown_url(answer.url)}: {exc}", final=True) from None
    return list(entries), list(problems)


async def _card_of(fetch: GuardedFetch, entry: CatalogEntry) -> ServerCard:
    """Return the card of an entry.

    Raises:
        FetchFailed: It cannot be fetched.
        ValueError: It is not a card.
    """
    if entry.data is not None:
        return read_card(entry.data)
    return await _fetched_card(fetch, entry.url)


async def _fetched_card(fetch: GuardedFetch, url: str) -> ServerCard:
    """Return the card at an address.

    Raises:
        FetchFailed: It cannot be fetched.
        ValueError: It is not a card.
    """
    answer = await fetch.get(url, "the server card", headers=_ACCEPTED)
    if answer.status != 200:
        raise FetchFailed(f"HTTP {answer.status}", final=True)
    return read_card(answer.decoded(Json), url=url)
