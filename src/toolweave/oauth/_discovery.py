"""From a refused request to the authorization server that is asked: two documents, found and checked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from toolweave._value import Value
from toolweave.config import OAuth
from toolweave.http import origin_of
from toolweave.oauth._challenges import Challenge
from toolweave.oauth.fetch import FetchedAnswer, FetchFailed, GuardedFetch, T, checked_url, shown_url
from toolweave.oauth.metadata import (
    AuthorizationServer,
    ProtectedResource,
    authorization_server_urls,
    checked_server,
    covers,
    fallback_server,
    is_same_issuer,
    protected_resource_urls,
    repaired_members,
    resource_of,
)
from toolweave.protocol.versions import FIRST_AUTHORIZATION_VERSION

_log = logging.getLogger("toolweave.oauth")

_WEB_PAGE = "text/html"
_SERVER_METADATA = "the metadata of its authorization server"


@dataclass(frozen=True, slots=True)
class _MetadataReader:
    """Fetches metadata, and keeps the odd forms in which they came."""

    fetch: GuardedFetch
    oddities: list[str] = field(default_factory=list[str])

    async def get(self, url: str, what: str, shown: str) -> FetchedAnswer | None:
        """Return the answer of a URL at which metadata may be; None if there are none.

        Raises:
            FetchFailed: As `GuardedFetch.get`, or the server is down. One that is down has not denied that it has
                metadata, and another URL could name another authorization server.
        """
        answer = await self.fetch.get(url, what)
        if answer.status >= 500:
            raise FetchFailed(f"{shown} was not received: HTTP {answer.status}", final=False)
        if answer.status != 200:
            return None
        # An application in the browser is often served for every path that the server does not know.
        is_page = answer.headers.get("content-type", "").startswith(_WEB_PAGE)
        if is_page and answer.body.lstrip()[:1] == b"<":
            return None
        return answer

    def decoded(self, answer: FetchedAnswer, what: str, kind: type[T]) -> T:
        """Return metadata, read strictly, else with the forms of lists and flags that some servers have.

        Raises:
            FetchFailed: They are not metadata.
        """
        try:
            return answer.decoded(kind)
        except FetchFailed as exc:
            error = exc
        try:
            members, oddities = repaired_members(answer.decoded(dict[str, Any]))
        except FetchFailed:
            raise error from None
        found = answer.replace(body=msgspec.json.encode(members)).decoded(kind)
        self.oddities.extend(f"{what} have {oddity}" for oddity in oddities)
        return found


class AuthServerInfo(Value, frozen=True):
    """The authorization server of an MCP server, and the name of the MCP server there.

    Attributes:
        resource: The `resource` parameter of requests (RFC 8707), unchanged from the server's metadata.
        server: The metadata of the authorization server.
        scopes: The scopes that the server's metadata list.
        dpop: Whether the server requires tokens that are bound to a key.
        lenient: Whether it has revision 2025-03-26, in which metadata are optional.
        other_spelling: The issuer as the MCP server names it, if its own metadata differ by a slash at the end.
        oddities: The forms of the metadata that differ from the standards and were still read.
    """

    resource: str
    server: AuthorizationServer
    scopes: tuple[str, ...] = ()
    dpop: bool = False
    lenient: bool = False
    other_spelling: str = ""
    oddities: tuple[str, ...] = ()


async def discover(
    fetch: GuardedFetch,
    settings: OAuth,
    url: str,
    challenges: Sequence[Challenge] = (),
    *,
    revision: str = "",
    issuer: str = "",
) -> AuthServerInfo:
    """Return the authorization server of the MCP server at a URL.

    `challenges` are those of the refused request, `revision` is the configured protocol revision of the server, and
    `issuer` is the issuer of the current token, which has priority if a server names several.

    Raises:
        FetchFailed: The server names no authorization server, or its metadata are not accepted.
    """
    lenient = revision == FIRST_AUTHORIZATION_VERSION
    reader = _MetadataReader(fetch)
    found = await _protected_resource(reader, url, challenges)
    if found is None:
        server = await _unnamed(reader, settings, url, lenient=lenient)
        return AuthServerInfo(
            resource=resource_of(url), server=server, lenient=lenient, oddities=tuple(reader.oddities)
        )
    # Otherwise a hostile server could have a token made for another server, and get it (RFC 9728, 3.3).
    if not covers(found.resource, url):
        text = f"its metadata are those of {shown_url(found.resource)!r}, another resource: refusing to sign in"
        raise FetchFailed(text, final=True)
    schemes = {each.scheme for each in challenges}
    only_dpop = "dpop" in schemes and "bearer" not in schemes
    server = await _named(reader, settings, found.servers, issuer)
    return AuthServerInfo(
        resource=found.resource,
        server=server,
        other_spelling=_other_spelling(found.servers, server.issuer),
        scopes=tuple(dict.fromkeys(found.scopes_supported or ())),
        dpop=found.dpop_bound_access_tokens_required is True or only_dpop,
        lenient=lenient,
        oddities=tuple(reader.oddities),
    )


async def _protected_resource(
    reader: _MetadataReader, url: str, challenges: Sequence[Challenge]
) -> ProtectedResource | None:
    """Return the metadata at the URL of the challenge, else at a well-known URL; None if there are no metadata."""
    urls = protected_resource_urls(url)
    for challenge in challenges:
        named = challenge.parameters.get("resource_metadata")
        if named:
            urls.insert(0, checked_url(named, "the URL of its metadata"))
            break
    for candidate in dict.fromkeys(urls):
        answer = await reader.get(candidate, "its metadata", "its metadata")
        if answer is not None:
            return reader.decoded(answer, "its metadata", ProtectedResource)
    return None


async def _unnamed(reader: _MetadataReader, settings: OAuth, url: str, *, lenient: bool) -> AuthorizationServer:
    """Return the authorization server of an MCP server without metadata.

    A configured one, or, in the revision that has no such metadata, its own origin.
    """
    if settings.metadata_url:
        return await _configured(reader, settings)
    if settings.issuer:
        return await _published(reader, settings.issuer)
    if not lenient:
        text = (
            "it has no protected-resource metadata, so that its authorization server is not known: set 'oauth.issuer'"
            f", or 'protocol' to '{FIRST_AUTHORIZATION_VERSION}' for a server of that revision"
        )
        raise FetchFailed(text, final=True)
    own = fallback_server(url)
    found = await _metadata_of(reader, own.issuer)
    if found is None:
        return own
    return checked_server(found, own.issuer)


def _other_spelling(named: Sequence[str], issuer: str) -> str:
    """Return an issuer as it is named with another end, or an empty text if it is named as its own metadata have it."""
    if issuer in named:
        return ""
    for one in named:
        if is_same_issuer(one, issuer):
            return one
    return ""


async def _named(reader: _MetadataReader, settings: OAuth, issuers: Sequence[str], held: str) -> AuthorizationServer:
    """Return the first of the named authorization servers that answers; a configured one is the only one."""
    if settings.issuer:
        if not any(is_same_issuer(settings.issuer, one) for one in issuers):
            named = ", ".join(map(shown_url, issuers)) or "none"
            text = f"its authorization server is not {settings.issuer!r}, which is configured, but {named}"
            raise FetchFailed(f"{text}: make sure that it has moved, then change 'oauth.issuer'", final=True)
        issuers = [settings.issuer]
    if settings.metadata_url:
        return await _configured(reader, settings)
    problem = FetchFailed("its metadata name no authorization server", final=True)
    # the issuer of the current token first, the others in their order
    for issuer in sorted(issuers, key=lambda one: not is_same_issuer(one, held)):
        try:
            return await _published(reader, issuer)
        except FetchFailed as exc:
            # Only a server that does not answer is passed over. One whose metadata are wrong must not be replaced in
            # silence.
            if exc.final:
                raise
            _log.info("the authorization server %s: %s", shown_url(issuer), exc)
            problem = exc
    raise problem


async def _published(reader: _MetadataReader, issuer: str) -> AuthorizationServer:
    checked_url(issuer, "its authorization server")
    if urlsplit(issuer).query:
        raise FetchFailed(
            f"its authorization server {shown_url(issuer)!r} has a query, which no issuer has", final=True
        )
    found = await _metadata_of(reader, issuer)
    if found is None:
        raise FetchFailed(f"its authorization server {shown_url(issuer)!r} publishes no metadata", final=True)
    return checked_server(found, issuer)


async def _metadata_of(reader: _MetadataReader, issuer: str) -> AuthorizationServer | None:
    for candidate in authorization_server_urls(issuer):
        answer = await reader.get(candidate, _SERVER_METADATA, f"the metadata of {shown_url(issuer)}")
        if answer is not None:
            return reader.decoded(answer, _SERVER_METADATA, AuthorizationServer)
    return None


async def _configured(reader: _MetadataReader, settings: OAuth) -> AuthorizationServer:
    """Return the metadata at a configured URL, which may be those of any issuer at the same origin."""
    answer = await reader.fetch.get(settings.metadata_url, "'oauth.metadata_url'")
    if answer.status != 200:
        raise FetchFailed(f"'oauth.metadata_url' answers HTTP {answer.status}", final=answer.status < 500)
    found = reader.decoded(answer, _SERVER_METADATA, AuthorizationServer)
    checked_url(found.issuer, "the issuer at 'oauth.metadata_url'")
    if not settings.issuer and origin_of(found.issuer) != origin_of(settings.metadata_url):
        text = (
            f"'oauth.metadata_url' is of another place than its issuer {shown_url(found.issuer)!r}: set 'oauth.issuer'"
        )
        raise FetchFailed(text, final=True)
    return checked_server(found, settings.issuer or found.issuer)
