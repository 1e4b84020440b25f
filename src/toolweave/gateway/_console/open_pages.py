"""Pages of tools that browsers show, kept with the values of their hosts for every replica that shares a store.

A balancer leads the requests of one page to any replica, so what was framed is a document of the shared store. It is
named by the digest of the page's id, and encrypted for the session that called the tool: neither a reader of the store
nor another browser learns what a tool returned. A page ends with its session.

Why a copy in this process is right: a framed page is never changed. Only its id and its session lead to it, and the
session is checked before each request. So a copy serves even while the store is away.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict

from toolweave._json_types import as_object
from toolweave.errors import StoreError
from toolweave.gateway._console.requests import ConsoleRefusal
from toolweave.gateway._console.sessions import SESSION_SECONDS, ConsoleSession, digest_of
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.state import Change, Delete, Put

_PAGES = "gateway-console-pages"
_MAX_PAGES = 50
MAX_URIS = 500
"""Maximum number of resources that one page may ask for at one replica."""
_MIB = 1024 * 1024
_MAX_SHARED = 6 * _MIB
_MAX_SHARED_TOTAL = 32 * _MIB
"""Maximum characters of one encrypted page, and of all pages that one replica keeps in the store."""

_TOO_LARGE = (
    "with its arguments and its result it is larger than about 4 MiB, which the replicas of a gateway do not share; "
    "call the tool so that it returns less"
)
_CLOSED = "This page is no longer open: call its tool again."
_AWAY = (
    "The store of the replicas cannot be reached, and this replica did not open the page. "
    "Call its tool again when the store is back."
)


class OpenPage:
    """A page that was framed: its tool, and the requests that it may make.

    Attributes:
        csrf: The token of the session that shows it.
        server: Its server.
        body: The values that its host passes to it, as JSON: the document and its policy, the tool, the arguments and
            the result.
    """

    def __init__(self, csrf: str, server: str, body: bytes) -> None:
        self.csrf = csrf
        self.server = server
        self.body = body
        self._uris: set[str] = set()

    def takes(self, uri: str) -> bool:
        """Whether it may ask for one more resource: a page that goes through URIs must not fill the memory."""
        if len(self._uris) < MAX_URIS:
            self._uris.add(uri)
        return uri in self._uris


class OpenPages:
    """The pages that browsers show; those of one process where nothing is shared.

    Args:
        replicas: The replicas, or None.
    """

    def __init__(self, replicas: Replicas | None) -> None:
        self._replicas = replicas
        self._here: OrderedDict[str, OpenPage] = OrderedDict()
        self._shared: OrderedDict[str, int] = OrderedDict()

    async def add(self, page: OpenPage) -> str:
        """Keep a page; return its id.

        Raises:
            ValueError: It is too large for the replicas to share.
        """
        name = secrets.token_urlsafe(32)
        if self._replicas is not None:
            await self._share(self._replicas, name, page)
        self._keep(name, page)
        return name

    async def find(self, name: str, session: ConsoleSession) -> OpenPage:
        """Return the page with this id.

        Raises:
            ConsoleRefusal: It is not open in this session, or only the store has it and cannot be reached.
        """
        page = self._here.get(name)
        if page is None and self._replicas is not None:
            page = await self._read(self._replicas, name, session)
        if page is None or page.csrf != session.csrf:
            raise ConsoleRefusal(404, _CLOSED)
        return page

    def _keep(self, name: str, page: OpenPage) -> None:
        while len(self._here) >= _MAX_PAGES:
            self._here.popitem(last=False)
        self._here[name] = page

    async def _share(self, replicas: Replicas, name: str, page: OpenPage) -> None:
        """Write a page for the other replicas, and delete the oldest ones that this replica has no more room for."""
        key = digest_of(name).hex()
        sealed = replicas.sealed({"server": page.server, "body": page.body.decode()}, _bound(key, page.csrf))
        if len(sealed) > _MAX_SHARED:
            raise ValueError(_TOO_LARGE)
        if replicas.away is not None:
            return
        changes: list[Change] = [Put(collection=_PAGES, key=key, value=sealed, ttl=SESSION_SECONDS)]
        # Nobody reports that a tab was closed, so the number and the size of pages bound the store, not only their age.
        self._shared[key] = len(sealed)
        while len(self._shared) > _MAX_PAGES or sum(self._shared.values()) > _MAX_SHARED_TOTAL:
            changes.append(Delete(collection=_PAGES, key=self._shared.popitem(last=False)[0]))
        try:
            await replicas.store.write(changes)
        except StoreError as exc:
            replicas.lost(exc)

    async def _read(self, replicas: Replicas, name: str, session: ConsoleSession) -> OpenPage | None:
        """Return a page that another replica framed for this session, or None.

        Raises:
            ConsoleRefusal: The store cannot be reached.
        """
        key = digest_of(name).hex()
        try:
            if replicas.away is not None:
                raise ConsoleRefusal(503, _AWAY)
            found = await replicas.store.get(_PAGES, key)
        except StoreError as exc:
            replicas.lost(exc)
            raise ConsoleRefusal(503, _AWAY) from None
        if found is None:
            return None
        body = as_object(replicas.opened(found.value, _bound(key, session.csrf)))
        if body is None:
            return None
        page = OpenPage(session.csrf, body["server"], body["body"].encode())
        self._keep(name, page)
        return page


def _bound(key: str, csrf: str) -> str:
    return f"console page {key} {csrf}"
