"""The server card of each endpoint, and the catalog of the host that lists them; anyone may read them.

A card has the server's name, version and description, its address and its revisions (SEP-2127): no tools, no
instructions, no names of servers behind a gateway. The catalog names the other endpoints of an app only if callers need
no token, because their names may be known to few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from toolweave._json_types import JsonObject
from toolweave.protocol.server_cards import (
    CARD_SUFFIX,
    CARD_TYPE,
    CATALOG_PATH,
    CATALOG_TYPE,
    catalog_document,
    server_card_document,
)
from toolweave.protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from toolweave.serve._http.asgi import App, Receive, Scope, Send
from toolweave.serve._http.public_document import respond_document

_VERSIONS = (*HANDSHAKE_VERSIONS, *MODERN_VERSIONS)
_FRESH_SECONDS = 300


def host_of_cards(wanted: bool | str, resource: str | None, path: str) -> bool | str:
    """Return the setting of the cards, with the address of the host if the authorization has it.

    Args:
        wanted: The setting.
        resource: The address of the endpoint in the metadata for a sign-in, or None.
        path: The path of the endpoint.
    """
    if wanted is True and resource is not None and resource.endswith(path):
        return resource.removesuffix(path)
    return wanted


class ServerCards:
    """The cards of the endpoints of an app.

    Args:
        wanted: Whether there are any; a text is the address of the host as clients know it.
        lists_all: Whether the catalog lists the endpoints beside the app's own.
    """

    def __init__(self, wanted: bool | str, *, lists_all: bool) -> None:
        self._wanted = bool(wanted)
        self._base = wanted.rstrip("/") if isinstance(wanted, str) else ""
        self._lists_all = lists_all
        self._infos: dict[str, Callable[[], Mapping[str, Any]]] = {}

    def add(self, path: str, info: Callable[[], Mapping[str, Any]], *, needs_token: bool, own: bool) -> dict[str, App]:
        """Return the documents about an endpoint by their paths.

        Args:
            path: The path of the endpoint.
            info: Returns its `serverInfo`.
            needs_token: Whether clients have to be given a token.
            own: Whether it is the endpoint of the app, which also has the catalog.
        """
        if not self._wanted:
            return {}
        place = path.rstrip("/")

        async def card(scope: Scope, receive: Receive, send: Send) -> None:
            document = self._card(scope, place, info, needs_token=needs_token)
            await respond_document(scope, send, msgspec.json.encode(document), CARD_TYPE, _FRESH_SECONDS)

        documents: dict[str, App] = {place + CARD_SUFFIX: card}
        if own or self._lists_all:
            self._infos[place] = info
        if own:
            documents[CATALOG_PATH] = self._catalog
        return documents

    def remove(self, path: str, info: Callable[[], Mapping[str, Any]]) -> None:
        """Leave an endpoint out of the catalog, unless another one has its place."""
        place = path.rstrip("/")
        if self._infos.get(place) is info:
            del self._infos[place]

    def _card(
        self, scope: Scope, place: str, info: Callable[[], Mapping[str, Any]], *, needs_token: bool
    ) -> JsonObject:
        base = self._base_of(scope)
        host = urlsplit(base).hostname or "localhost"
        return server_card_document(info(), base + place, host=host, versions=_VERSIONS, needs_token=needs_token)

    async def _catalog(self, scope: Scope, receive: Receive, send: Send) -> None:
        base = self._base_of(scope)
        cards: dict[str, str] = {}
        for place, info in self._infos.items():
            cards[self._card(scope, place, info, needs_token=False)["name"]] = base + place + CARD_SUFFIX
        body = msgspec.json.encode(catalog_document(cards))
        await respond_document(scope, send, body, CATALOG_TYPE, _FRESH_SECONDS)

    def _base_of(self, scope: Scope) -> str:
        """Return the address of the host: the one that the owner named, or that of the request."""
        if self._base:
            return self._base
        headers = dict[bytes, bytes](scope["headers"])
        # The guard has accepted the host. A proxy that ends TLS says so; a client that lies about it gets its own lie.
        is_tls = scope.get("scheme") == "https" or headers.get(b"x-forwarded-proto", b"").lower() == b"https"
        host = headers.get(b"host", b"localhost").decode("latin-1")
        root: str = scope.get("root_path", "")
        return f"{'https' if is_tls else 'http'}://{host}{root.rstrip('/')}"
