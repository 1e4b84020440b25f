"""Server cards, and the catalogs that list them (SEP-2127, Final).

The state that this follows: the schema of the Server Card extension at its commit 526201b, whose cards name the schema
`v1`, and the release candidate 0.9 of the AI Catalog, of November 2026. A card says where a server can be reached and
which revisions it has. It lists no tools, and nothing in it is proved: a client must not decide about access by it.

Cards are written strictly, and read leniently: a part that is wrong is left out with a line in `problems`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolweave._json_types import Json, as_object, as_text, object_entries, text_entries, text_or_empty, without_empty
from toolweave._value import Value
from toolweave.protocol.uris import web_address_problem

__all__ = [
    "CARD_SUFFIX",
    "CARD_TYPE",
    "CATALOG_PATH",
    "CATALOG_TYPE",
    "CardRemote",
    "CatalogEntry",
    "ServerCard",
    "catalog_document",
    "read_card",
    "read_catalog",
    "server_card_document",
]

CARD_TYPE = "application/mcp-server-card+json"
CARD_SUFFIX = "/server-card"
"""Appended to the path of an endpoint: the place that is reserved for its card."""
CATALOG_TYPE = "application/ai-catalog+json"
CATALOG_PATH = "/.well-known/ai-catalog.json"
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_CATALOG_VERSION = "0.9"
_MAX_TEXT = 100
_MAX_VERSION = 255
_MAX_NAME = 200
_MAX_LISTED = 200
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")
_NOT_IN_HOSTS = re.compile(r"[^a-zA-Z0-9.-]+")
_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_TRANSPORTS = ("streamable-http", "sse")
_VARIABLE = re.compile(r"\{[a-zA-Z_][a-zA-Z0-9_]*\}")


class CardRemote(Value, frozen=True, kw_only=True):
    """An address of a server, as its card has it.

    Attributes:
        url: The address; parts in braces are variables, which the client fills in.
        transport: `streamable-http` or `sse`.
        versions: The revisions that it has there; empty if the card does not say.
        headers: The names of headers that it needs.
    """

    url: str
    transport: str = "streamable-http"
    versions: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    @property
    def has_variables(self) -> bool:
        """Whether the address has variables, so that it cannot be connected to as it is."""
        return _VARIABLE.search(self.url) is not None


class ServerCard(Value, frozen=True, kw_only=True):
    """The description that a server publishes of itself. Nothing in it is proved.

    Attributes:
        name: Its name: a domain in reverse, and a name there, such as `com.example/weather`.
        version: Its version.
        description: Its description.
        title: Its human-readable name; `""` for none.
        website_url: The page about it; `""` for none.
        remotes: The addresses that it can be reached at.
        url: Where the card was found; `""` for a card in a catalog.
        problems: The parts of the card that were left out, each with the reason.
    """

    name: str
    version: str
    description: str
    title: str = ""
    website_url: str = ""
    remotes: tuple[CardRemote, ...] = ()
    url: str = ""
    problems: tuple[str, ...] = ()


class CatalogEntry(Value, frozen=True, kw_only=True):
    """A server card in a catalog: its address, or the card itself.

    Attributes:
        identifier: The name of the entry.
        url: The address of the card; `""` if the entry has the card itself.
        data: The card itself, or None.
    """

    identifier: str
    url: str = ""
    data: Any = None


# writing


def server_card_document(
    info: Mapping[str, Any], url: str, *, host: str, versions: Sequence[str], needs_token: bool = False
) -> Json:
    """Return the card of a server.

    Args:
        info: Its `serverInfo`.
        url: The address of its endpoint.
        host: The name of its host, without a port.
        versions: The revisions that it has there.
        needs_token: Whether clients have to be given a token; not for a server at which they sign in by themselves.
    """
    name = str(info.get("name") or "server")
    title = str(info.get("title") or "")
    remote: Json = {"type": "streamable-http", "url": url, "supportedProtocolVersions": list(versions)}
    if needs_token:
        remote["headers"] = [
            {"name": "Authorization", "description": "Bearer and a token", "isRequired": True, "isSecret": True}
        ]
    document: Json = {
        "$schema": _SCHEMA,
        "name": _card_name(host, name),
        "version": str(info.get("version") or "0")[:_MAX_VERSION],
        "description": _cut(str(info.get("description") or title or f"MCP server {name}")),
        "remotes": [remote],
    }
    return document | without_empty(
        {
            "title": _cut(title),
            "websiteUrl": info.get("websiteUrl"),
            "icons": info.get("icons"),
        }
    )


def catalog_document(cards: Mapping[str, str]) -> Json:
    """Return the catalog of cards: their addresses by their names."""
    entries = [{"identifier": _identifier(name), "type": CARD_TYPE, "url": url} for name, url in cards.items()]
    return {"specVersion": _CATALOG_VERSION, "entries": entries}


def _card_name(host: str, name: str) -> str:
    """Return the name of a card: the host in reverse, and the server's name in the characters that are allowed."""
    labels = _NOT_IN_HOSTS.sub("-", host.strip("[]")).strip(".").split(".")
    is_address = labels[-1].isdecimal()
    place = ".".join(labels if is_address else reversed(labels)) or "localhost"
    own = _NOT_IN_NAMES.sub("-", name).strip("-") or "server"
    return f"{place}/{own}"[:_MAX_NAME]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _identifier(name: str) -> str:
    place, _, own = name.partition("/")
    labels = place.split(".")
    host = place if labels[-1].isdecimal() else ".".join(reversed(labels))
    return f"urn:air:{host}:mcp:{own}"


# reading


def read_card(value: object, *, url: str = "") -> ServerCard:
    """Read a server card.

    Args:
        value: The document.
        url: Where it was found.

    Raises:
        ValueError: It is not a card: it is not an object, or has no usable name.
    """
    card = as_object(value)
    if card is None:
        raise ValueError("it is not a JSON object")
    name = text_or_empty(card.get("name"))
    if not name:
        raise ValueError("it has no 'name'")
    problems: list[str] = []
    if _NAME.fullmatch(name) is None:
        problems.append("'name' is not a domain in reverse and a name")
    texts: dict[str, str] = {}
    for member in ("version", "description", "title", "websiteUrl"):
        text = as_text(card.get(member))
        if text is None and (member in card or member in ("version", "description")):
            problems.append(f"{member!r} is not a text")
        texts[member] = text or ""
    website = texts["websiteUrl"]
    if website and web_address_problem(website) is not None:
        problems.append("'websiteUrl' is not a web address")
        website = ""
    return ServerCard(
        name=name,
        version=texts["version"],
        description=texts["description"],
        title=texts["title"],
        website_url=website,
        remotes=tuple(_remotes(card.get("remotes"), problems)),
        url=url,
        problems=tuple(problems),
    )


def _remotes(value: object, problems: list[str]) -> Sequence[CardRemote]:
    found: list[CardRemote] = []
    for number, one in enumerate(object_entries(value)[:_MAX_LISTED], 1):
        url = text_or_empty(one.get("url"))
        transport = text_or_empty(one.get("type"))
        if transport not in _TRANSPORTS:
            problems.append(f"remote {number} has an unknown type and was left out")
        elif not _is_address(url):
            problems.append(f"remote {number} has no web address and was left out")
        else:
            headers = (text_or_empty(entry.get("name")) for entry in object_entries(one.get("headers")))
            versions = tuple(text_entries(one.get("supportedProtocolVersions")))
            found.append(
                CardRemote(url=url, transport=transport, versions=versions, headers=tuple(filter(None, headers)))
            )
    return found


def _is_address(url: str) -> bool:
    return web_address_problem(_VARIABLE.sub("x", url)) is None


def read_catalog(value: object) -> tuple[Sequence[CatalogEntry], Sequence[str]]:
    """Read a catalog; return its entries about server cards, and the entries that were left out, with the reasons.

    Raises:
        ValueError: It is not a catalog: it is not an object, or has no list of entries.
    """
    catalog = as_object(value)
    if catalog is None or not isinstance(catalog.get("entries"), list):
        raise ValueError("it is not an AI catalog: it has no 'entries'")
    found: list[CatalogEntry] = []
    problems: list[str] = []
    for number, one in enumerate(object_entries(catalog["entries"])[:_MAX_LISTED], 1):
        # "mediaType" is the name that drafts of the catalog had.
        kind = as_text(one.get("type")) or text_or_empty(one.get("mediaType"))
        if kind.partition(";")[0].strip().lower() != CARD_TYPE:
            continue
        url = text_or_empty(one.get("url"))
        data = one.get("data")
        if data is None and web_address_problem(url) is not None:
            problems.append(f"entry {number} has no address and no card, and was left out")
            continue
        found.append(CatalogEntry(identifier=text_or_empty(one.get("identifier")), url=url, data=data))
    return found, problems
