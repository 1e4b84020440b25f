"""Metadata of protected resources (RFC 9728) and of authorization servers (RFC 8414, OpenID Connect Discovery). Pure.

Both come from foreign servers: types are checked when they are decoded, URLs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit, urlunsplit

from toolweave._json_types import JsonObject, as_array, as_text, text_or_empty
from toolweave._value import Value
from toolweave.http import DEFAULT_PORTS, origin_of
from toolweave.oauth.fetch import FetchFailed, checked_url, shown_url

__all__ = [
    "AuthorizationServer",
    "ProtectedResource",
    "authorization_server_urls",
    "checked_server",
    "covers",
    "fallback_server",
    "first_of",
    "is_same_issuer",
    "protected_resource_urls",
    "repaired_members",
    "resource_of",
]

_PRM = "/.well-known/oauth-protected-resource"
_ASM = "/.well-known/oauth-authorization-server"
_OIDC = "/.well-known/openid-configuration"
_ENDPOINTS = (
    *("authorization_endpoint", "token_endpoint", "registration_endpoint"),
    *("revocation_endpoint", "device_authorization_endpoint"),
)
_MAX_SERVERS = 8
_WORDS = (
    *("scopes_supported", "grant_types_supported", "token_endpoint_auth_methods_supported"),
    "dpop_signing_alg_values_supported",
)
_LISTS = ("authorization_servers", *_WORDS)
_FLAGS = (
    *("dpop_bound_access_tokens_required", "client_id_metadata_document_supported"),
    "authorization_response_iss_parameter_supported",
)
_FLAG_WORDS = {"true": True, "false": False}


class ProtectedResource(Value, frozen=True):
    """The metadata of an MCP server as a protected resource; see RFC 9728, 2."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None

    @property
    def servers(self) -> tuple[str, ...]:
        """The issuers of its authorization servers; only the first eight are read."""
        return tuple(self.authorization_servers or ())[:_MAX_SERVERS]


class AuthorizationServer(Value, frozen=True):
    """The metadata of an authorization server; see RFC 8414, 2."""

    issuer: str
    token_endpoint: str | None = None
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


def repaired_members(members: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    """Return metadata with their lists and flags in the form of the standard, and the oddities that were read.

    Who is meant, and whether PKCE is supported, is never guessed: these members stay as they are.
    """
    repaired = dict(members)
    oddities: list[str] = []
    for name in _LISTS:
        text = as_text(members.get(name))
        listed = as_array(members.get(name))
        if text is not None:
            repaired[name] = text.split()
            oddities.append(f"{name!r} as a string, read as a list")
        elif listed is not None and name in _WORDS:
            words = [one for one in listed if isinstance(one, str)]
            if len(words) < len(listed):
                repaired[name] = words
                oddities.append(f"{name!r} with members that are not texts, read without them")
    for name in _FLAGS:
        flag = _FLAG_WORDS.get(text_or_empty(members.get(name)).lower())
        if flag is not None:
            repaired[name] = flag
            oddities.append(f"{name!r} as a string, read as a flag")
    return repaired, tuple(oddities)


def resource_of(url: str) -> str:
    """Return the canonical URL of an MCP server (RFC 8707, 2): no fragment or user info, host and scheme in lower case.

    Raises:
        ValueError: It is not a URL.
    """
    parts = urlsplit(url)
    netloc = (parts.hostname or "").lower()
    if ":" in netloc:
        netloc = f"[{netloc}]"
    if parts.port not in (None, DEFAULT_PORTS.get(parts.scheme)):
        netloc += f":{parts.port}"
    path = parts.path
    if path == "/":
        path = ""
    return urlunsplit((parts.scheme, netloc, path, parts.query, ""))


def covers(resource: str, url: str) -> bool:
    """Whether the `resource` of metadata is the MCP server at a URL, or an origin or path above it."""
    try:
        if origin_of(resource) != origin_of(url):
            return False
        named = urlsplit(resource)
        asked = urlsplit(url)
    except ValueError:
        return False
    if named.fragment or named.query not in ("", asked.query):
        return False
    folder = named.path.rstrip("/")
    # With the slash: `/mcp-other` is not below `/mcp`.
    return asked.path.rstrip("/") == folder or asked.path.startswith(f"{folder}/")


def protected_resource_urls(url: str) -> list[str]:
    """Return the well-known URLs of a server's metadata: with its path, then at the root (RFC 9728, 3.1)."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    with_path = urlunsplit((parts.scheme, parts.netloc, f"{_PRM}{path}", parts.query, ""))
    at_root = urlunsplit((parts.scheme, parts.netloc, _PRM, "", ""))
    return list(dict.fromkeys((with_path, at_root)))


def authorization_server_urls(issuer: str) -> list[str]:
    """Return the well-known URLs of an issuer's metadata, in the order in which they are tried."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    forms = [f"{_ASM}{path}", f"{_OIDC}{path}"]
    if path:
        # OpenID Connect Discovery appends to the path
        forms.append(f"{path}{_OIDC}")
    return [urlunsplit((parts.scheme, parts.netloc, form, "", "")) for form in forms]


def is_same_issuer(one: str, other: str) -> bool:
    """Return whether two texts name one issuer, which a slash at the end does not change.

    Both lead to the same metadata, since the slash is removed before the well-known path is inserted (RFC 8414, 3.1),
    so no other party can publish those of the other text. Nothing else is normalised.
    """
    return one.removesuffix("/") == other.removesuffix("/")


def checked_server(found: AuthorizationServer, issuer: str) -> AuthorizationServer:
    """Return metadata after a check that they are of this issuer and that their endpoints may be used.

    The issuer is compared as a string (RFC 8414, 3.3), without a slash at its end: see `is_same_issuer`.

    Raises:
        FetchFailed: They are the metadata of another issuer, or the URL of an endpoint is not allowed.
    """
    if not is_same_issuer(found.issuer, issuer):
        names = f"name the issuer {shown_url(found.issuer)!r} instead of {shown_url(issuer)!r}"
        if shown_url(found.issuer) == shown_url(issuer):
            names = f"spell the issuer {shown_url(issuer)!r} in another way"
        raise FetchFailed(f"the metadata of its authorization server {names}: they are not used", final=True)
    for name in _ENDPOINTS:
        url = getattr(found, name)
        if url is not None:
            checked_url(url, f"the {name} of its authorization server")
    return found


def fallback_server(url: str) -> AuthorizationServer:
    """Return the endpoints that revision 2025-03-26 assumes at the origin of an MCP server without metadata."""
    parts = urlsplit(url)
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    return AuthorizationServer(
        issuer=origin,
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
    )


def first_of(wanted: Sequence[str], offered: Iterable[str] | None, default: str) -> str:
    """Return the first of the wanted words that is offered, or the default."""
    words = set(offered or ())
    for word in wanted:
        if word in words:
            return word
    return default
