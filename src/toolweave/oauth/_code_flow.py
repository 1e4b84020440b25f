"""The authorization code flow with PKCE (OAuth 2.1, RFC 7636, 9207): the URL for a person, the redirect back. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from toolweave._value import Value
from toolweave.oauth._discovery import AuthServerInfo
from toolweave.oauth._encoding import code_challenge
from toolweave.oauth._token_endpoint import refusal_text
from toolweave.oauth._user_agent import AuthorizationResponse
from toolweave.oauth.fetch import FetchFailed, quoted
from toolweave.oauth.metadata import AuthorizationServer

OFFLINE_ACCESS = "offline_access"


class AuthorizationRequest(Value, frozen=True):
    """An authorization request, with the secrets that are needed until its answer arrives.

    Attributes:
        url: The URL to show a person.
        state: The state that the answer must have.
        verifier: The PKCE verifier.
        redirect_uri: The URI for the answer.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"url", "state", "verifier"})

    url: str
    state: str
    verifier: str
    redirect_uri: str


def check_pkce(found: AuthServerInfo) -> None:
    """Check that the authorization server declares PKCE with S256: without it a code can be injected.

    Raises:
        FetchFailed: It does not declare it, which only revision 2025-03-26 allows.
    """
    methods = found.server.code_challenge_methods_supported
    if methods is None and found.lenient:
        return
    if methods is None or "S256" not in methods:
        text = f"its authorization server {found.server.issuer!r} does not say that it supports PKCE with S256"
        raise FetchFailed(f"{text} ('code_challenge_methods_supported'): refusing to sign in there", final=True)


def begin(
    found: AuthServerInfo, client_id: str, redirect_uri: str, scopes: Sequence[str], *, thumbprint: str | None = None
) -> AuthorizationRequest:
    """Make an authorization request; `thumbprint` is the thumbprint of the key for the code (RFC 9449, 10).

    Raises:
        FetchFailed: The authorization server has no endpoint for it.
    """
    endpoint = found.server.authorization_endpoint
    if endpoint is None:
        raise FetchFailed("its authorization server has no authorization endpoint", final=True)
    verifier = secrets.token_urlsafe(48)
    state = secrets.token_urlsafe(32)
    wanted = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": found.resource,
    }
    if scopes:
        wanted["scope"] = " ".join(scopes)
    if OFFLINE_ACCESS in scopes:
        # without consent the scope is ignored (OpenID Connect Core, 11)
        wanted["prompt"] = "consent"
    if thumbprint is not None:
        wanted["dpop_jkt"] = thumbprint
    parts = urlsplit(endpoint)
    # The endpoint keeps its own query (RFC 6749, 3.1), which cannot set a parameter of the request.
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in wanted]
    query = urlencode([*kept, *wanted.items()])
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
    return AuthorizationRequest(url=url, state=state, verifier=verifier, redirect_uri=redirect_uri)


def redeemed(
    request: AuthorizationRequest, response: AuthorizationResponse, server: AuthorizationServer, resource: str
) -> dict[str, str]:
    """Return the form that redeems the code of a redirect.

    The issuer is compared before anything else of it is read: the redirect of another server could lure a person by its
    `error_description`, or bring that server's code to this one (RFC 9207, 2.4).

    Raises:
        FetchFailed: The redirect is not this request's, is another server's, or is a refusal.
    """
    state = response.state or ""
    if not secrets.compare_digest(state.encode(), request.state.encode()):
        raise FetchFailed("the redirect does not belong to this sign-in: its 'state' is another one", final=True)
    # Without `iss`, the redirect of another server could pass for this one's (RFC 9207, 2.4).
    if response.issuer is None and server.authorization_response_iss_parameter_supported is True:
        raise FetchFailed("the redirect does not say which authorization server it comes from ('iss')", final=True)
    if response.issuer is not None and response.issuer != server.issuer:
        raise FetchFailed("the redirect comes from another authorization server ('iss'): it is not used", final=True)
    if response.error is not None:
        reason = quoted(response.error)
        if response.error_description:
            reason += f": {quoted(response.error_description)}"
        raise FetchFailed(refusal_text("the authorization server", response.error, reason), final=True)
    if not response.code:
        raise FetchFailed("the redirect has no code", final=True)
    return {
        "grant_type": "authorization_code",
        "code": response.code,
        "redirect_uri": request.redirect_uri,
        "code_verifier": request.verifier,
        "resource": resource,
    }
