"""The client of an authorization server: a given one, one with a metadata document, or one that is registered.

In this order (specification, `basic/authorization/client-registration`). What is registered at one issuer is unknown to
every other.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import msgspec

from toolweave._value import Value
from toolweave.config import OAuth, is_loopback
from toolweave.oauth._fetch import GuardedFetch, NotFetched, quoted
from toolweave.oauth._metadata import AuthorizationServer, first_of
from toolweave.oauth._records import ClientRegistration
from toolweave.oauth._token_endpoint import RefusalBody, TokenRefused, revealed

_METHODS = ("none", "client_secret_basic", "client_secret_post")
_BASIC = "client_secret_basic"
_REFRESH = "refresh_token"
_GRANT_TYPES = {
    "authorization_code": "authorization_code",
    "device_code": "urn:ietf:params:oauth:grant-type:device_code",
    "jwt_bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}


class RegistrationAnswer(Value, frozen=True):
    """The answer to a registration (RFC 7591, 3.2.1)."""

    quiet = frozenset({"client_secret"})

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None
    redirect_uris: list[str] | None = None


async def given_client(settings: OAuth, server: AuthorizationServer) -> ClientRegistration | None:
    """Return the client that needs no registration: a configured one, or the one of a metadata document."""
    if settings.client_id:
        secret = await revealed(settings.client_secret)
        if settings.private_key:
            method = "private_key_jwt"
        elif secret is None:
            method = "none"
        else:
            method = first_of(_METHODS[1:], server.token_endpoint_auth_methods_supported, _BASIC)
        return ClientRegistration(client_id=settings.client_id, client_secret=secret, method=method)
    if settings.client_metadata_url and server.client_id_metadata_document_supported is True:
        method = "private_key_jwt" if settings.private_key else "none"
        return ClientRegistration(client_id=settings.client_metadata_url, method=method)
    if settings.grant == "jwt_bearer":
        return ClientRegistration(client_id="")  # the assertion says who it is
    return None


def usable(registration: ClientRegistration | None, *, now: float | None = None) -> bool:
    """Whether a client that was registered before can still be used."""
    if registration is None:
        return False
    ends = registration.secret_expires_at
    return ends is None or ends > (time.time() if now is None else now)


async def register(
    fetch: GuardedFetch, settings: OAuth, server: AuthorizationServer, redirect_uri: str | None
) -> ClientRegistration:
    """Register a client (RFC 7591): a native application, or a web application where people come back to a host.

    Raises:
        TokenRefused: It is refused.
        NotFetched: The server registers none, or there is no answer that is accepted.
    """
    if server.registration_endpoint is None:
        text = f"its authorization server {server.issuer!r} registers no clients by itself"
        raise NotFetched(f"{text}: register one there, and set 'oauth.client_id'", final=True)
    method = first_of(_METHODS, server.token_endpoint_auth_methods_supported, _BASIC)
    remote = redirect_uri is not None and not is_loopback(urlsplit(redirect_uri).hostname)
    wanted: dict[str, object] = {
        "client_name": settings.client_name,
        "application_type": "web" if remote else "native",
        "grant_types": [_GRANT_TYPES[settings.grant], _REFRESH],
        "token_endpoint_auth_method": method,
    }
    if redirect_uri is not None:
        wanted |= {"redirect_uris": [redirect_uri], "response_types": ["code"]}
    else:
        wanted["response_types"] = []  # else it is `code`, which needs a redirect URI (RFC 7591, 2)
    what = "the registration endpoint"
    answer = await fetch.post(server.registration_endpoint, what, msgspec.json.encode(wanted))
    if answer.status not in (200, 201):
        raise _refused(answer.status, answer.body, what)
    made = answer.decoded(RegistrationAnswer)
    default = "none" if made.client_secret is None else _BASIC  # RFC 7591, 2
    method = made.token_endpoint_auth_method or default
    if method not in _METHODS or not made.client_id or (method != "none" and made.client_secret is None):
        raise NotFetched(f"{what} makes a client that cannot be used, with {quoted(method)!r}", final=True)
    return ClientRegistration(
        client_id=made.client_id,
        client_secret=made.client_secret,
        method=method,
        redirect_uris=() if redirect_uri is None else (redirect_uri,),
        secret_expires_at=made.client_secret_expires_at or None,  # 0 is never
    )


def _refused(status: int, body: bytes, what: str) -> Exception:
    if status == 429 or status >= 500:
        return NotFetched(f"{what} answers HTTP {status}", final=False)
    try:
        refusal = msgspec.json.decode(body, type=RefusalBody)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return NotFetched(f"{what} answers HTTP {status}", final=True)
    text = f"{refusal.error}: {refusal.error_description}" if refusal.error_description else refusal.error
    return TokenRefused(refusal.error, f"{what} refuses: {quoted(text)}")
