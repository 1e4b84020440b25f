"""The registry of MCP servers, read over HTTP: answers are bounded, and an entry that is broken costs only itself."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote, urlencode

from toolweave._json_types import Json, JsonObject, as_array, object_or_empty, text_or_empty, without_empty
from toolweave._value import Value
from toolweave.errors import ConfigError, ErrorKind, RegistryError
from toolweave.install._bundle import MAX_BUNDLE_BYTES
from toolweave.install._records import PublishedServer, read_server, shown
from toolweave.oauth.fetch import FetchedAnswer, FetchFailed, GuardedFetch, checked_url, shown_url

OFFICIAL_REGISTRY = "https://registry.modelcontextprotocol.io"
"""The base URL of the official registry; below it is `/v0.1`, which is stable."""
REGISTRY_VARIABLE = "TOOLWEAVE_REGISTRY"
"""The environment variable with the base URL of another one."""
MAX_ANSWER_BYTES = 8 * 1024 * 1024
_SECONDS = 20.0
_BUNDLE_SECONDS = 300.0
_MAX_ON_A_PAGE = 100
_MAX_PAGES = 50
_SHA256 = re.compile(r"[0-9a-f]{64}")


class RegistryPage(Value, frozen=True, kw_only=True):
    """A page of a listing.

    Attributes:
        servers: The servers on it.
        next_cursor: The cursor of the next page; empty on the last one.
        problems: The reasons why entries on it were excluded.
    """

    servers: tuple[PublishedServer, ...] = ()
    next_cursor: str = ""
    problems: tuple[str, ...] = ()


class McpRegistry:
    """A registry of MCP servers: the official one, or any with the same API (`/v0.1/servers`).

    Args:
        url: The base URL, https, or http on this machine; by default that of `TOOLWEAVE_REGISTRY`, else the official
            one's. Bundles are downloaded from public addresses, and from those of the kind that this URL has.
        seconds: The time for one answer.

    Raises:
        ConfigError: The URL is not one that may be connected to.
    """

    def __init__(self, url: str | None = None, *, seconds: float = _SECONDS) -> None:
        given = (url or os.environ.get(REGISTRY_VARIABLE) or OFFICIAL_REGISTRY).rstrip("/")
        try:
            self.url: str = checked_url(given, "the registry's URL")
        except FetchFailed as exc:
            raise ConfigError(str(exc), field="url") from None
        self._fetch = GuardedFetch([self.url], seconds=seconds, max_bytes=MAX_ANSWER_BYTES)

    async def page(self, word: str = "", *, cursor: str = "", limit: int = 30) -> RegistryPage:
        """Return a page of the latest versions whose name, or description at some registries, contains a word.

        Raises:
            RegistryError: The registry cannot be reached, or its response is not a list of servers.
        """
        parameters = {"search": word, "cursor": cursor, "limit": str(min(limit, _MAX_ON_A_PAGE)), "version": "latest"}
        query = urlencode(without_empty(parameters))
        answer = await self._get(f"{self.url}/v0.1/servers?{query}", "the list of servers")
        listed = as_array(answer.get("servers"))
        if listed is None:
            raise RegistryError(f"the registry {shown_url(self.url)} answered without a list of servers")
        servers: list[PublishedServer] = []
        problems: list[str] = []
        # One broken entry costs itself: the registry is filled by thousands of publishers, and a page of the rest is
        # worth more than an error.
        for entry in listed:
            try:
                servers.append(read_server(entry))
            except RegistryError as exc:
                problems.append(exc.message)
        next_cursor = text_or_empty(object_or_empty(answer.get("metadata")).get("nextCursor"))
        return RegistryPage(servers=tuple(servers), next_cursor=next_cursor, problems=tuple(problems))

    async def search(self, *words: str, cursor: str = "", limit: int = 30) -> RegistryPage:
        """Return at least `limit` servers whose name, title and description contain all words, if there are as many.

        The registry looks for the longest word, the others are looked for here; pages are read whole.

        Raises:
            RegistryError: As `page`, or the registry sends pages in a circle.
        """
        # The longest word leaves the fewest pages to read.
        wanted = " ".join(words).casefold().split()
        found: list[PublishedServer] = []
        problems: list[str] = []
        last = cursor
        async for page in self._pages(max(wanted, key=len, default=""), cursor, limit):
            found += (server for server in page.servers if _matches(server, wanted))
            problems += page.problems
            last = page.next_cursor
            if len(found) >= limit:
                break
        return RegistryPage(servers=tuple(found), next_cursor=last, problems=tuple(problems))

    async def server(self, name: str, version: str = "latest") -> PublishedServer:
        """Return one version of a server, also a deprecated or deleted one.

        Raises:
            RegistryError: The server does not exist (`NOT_FOUND`), the registry cannot be reached, or its response is
                not a server.
        """
        path = f"{quote(name, safe='')}/versions/{quote(version, safe='')}"
        server = read_server(await self._get(f"{self.url}/v0.1/servers/{path}", f"the server {shown(name)!r}"))
        # What is installed is what was asked for: an answer about another server is not used, whatever it says.
        if server.name != name:
            raise RegistryError(f"asked for {shown(name)!r}, the registry answered {shown(server.name)!r}")
        return server

    async def bundle(self, url: str, sha256: str) -> bytes:
        """Download a bundle, through redirects to other hosts, and check its SHA-256.

        Raises:
            RegistryError: It cannot be downloaded, or it is not the file that the registry's entry is about.
        """
        if not _SHA256.fullmatch(sha256):
            raise RegistryError(f"the bundle {shown_url(url)} has no SHA-256 in the registry, so it is not downloaded")
        fetch = GuardedFetch([self.url], seconds=_BUNDLE_SECONDS, max_bytes=MAX_BUNDLE_BYTES, elsewhere=True)
        answer = await _get(fetch, url, "the bundle", {"accept": "*/*"})
        # The file is on any host that the publisher chose, behind redirects. The digest of the registry's entry is what
        # ties it to the entry, so nothing is read of it before they agree.
        found = hashlib.sha256(answer.body).hexdigest()
        if found != sha256:
            raise RegistryError(
                f"the bundle {shown_url(url)} is not the file that the registry's entry is about: "
                f"its SHA-256 is {found}, expected {sha256}; nothing of it was used"
            )
        return answer.body

    async def _pages(self, word: str, cursor: str, limit: int) -> AsyncIterator[RegistryPage]:
        # The registry chooses the cursors, so there are two bounds: the number of pages, and a cursor that comes again.
        seen = {cursor}
        for _ in range(_MAX_PAGES):
            page = await self.page(word, cursor=cursor, limit=limit)
            yield page
            cursor = page.next_cursor
            if not cursor:
                return
            if cursor in seen:
                raise RegistryError(f"the registry {shown_url(self.url)} sends its pages in a circle")
            seen.add(cursor)

    async def _get(self, url: str, what: str) -> JsonObject:
        answer = await _get(self._fetch, url, what, {})
        try:
            return answer.decoded(Json)
        except FetchFailed as exc:
            raise RegistryError(str(exc)) from None

    def __repr__(self) -> str:
        return f"<McpRegistry {shown_url(self.url)}>"


async def _get(fetch: GuardedFetch, url: str, what: str, headers: Mapping[str, str]) -> FetchedAnswer:
    """Return the successful response to a GET.

    Raises:
        RegistryError: The request failed, or the response has another status than 200.
    """
    try:
        answer = await fetch.get(url, what, headers=headers)
    except FetchFailed as exc:
        raise RegistryError(str(exc), kind=ErrorKind.PROTOCOL if exc.final else ErrorKind.NOT_SENT) from None
    if answer.status == 404:
        raise RegistryError(f"{what} is not there: {shown_url(url)} answered 404", kind=ErrorKind.NOT_FOUND)
    if answer.status >= 500 or answer.status == 429:
        raise RegistryError(
            f"{shown_url(url)} answered {answer.status}: it is overloaded or broken; try again later",
            kind=ErrorKind.NOT_SENT,
        )
    if answer.status != 200:
        raise RegistryError(f"{shown_url(url)} answered {answer.status}, where {what} was expected")
    return answer


def _matches(server: PublishedServer, words: list[str]) -> bool:
    text = f"{server.name} {server.title} {server.description}".casefold()
    return all(word in text for word in words)
