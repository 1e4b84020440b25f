"""The client of an authorization server: a given one, one with a metadata document, or one that is registered.

In this order (specification, `basic/authorization/client-registration`). A client that is registered at one issuer is
unknown to every other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from toolweave._json import decode_json
from toolweave._value import Value
from toolweave.config import OAuth, is_loopback
from toolweave.oauth._odd_answers import OddAnswers
from toolweave.oauth._records import ClientRegistration
from toolweave.oauth._token_endpoint import RefusalBody, TokenRefused, number_of, revealed
from toolweave.oauth.fetch import FetchFailed, GuardedFetch, quoted
from toolweave.oauth.metadata import AuthorizationServer, first_of

_METHODS = ("none", "client_secret_basic", "client_secret_post")
_BASIC = "client_secret_basic"
_POST = "client_secret_post"
_OTHER_METHOD = {_BASIC: _POST, _POST: _BASIC}
_REFRESH = "refresh_token"
_SCOPE_REFUSALS = ("invalid_client_metadata", "invalid_scope", "insufficient_scope")
"""The errors with which servers refuse a registration for its `scope`; the last one is Keycloak's."""
_ENDPOINT = "the registration endpoint"
_GRANT_TYPES = {
    "authorization_code": "authorization_code",
    "device_code": "urn:ietf:params:oauth:grant-type:device_code",
    "jwt_bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}


class RegistrationAnswer(Value, frozen=True):
    """The answer to a registration (RFC 7591, 3.2.1)."""

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"client_secret"})

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | str | None = None
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
        # the assertion names the client
        return ClientRegistration(client_id="")
    return None


def other_method(settings: OAuth, server: AuthorizationServer, registration: ClientRegistration) -> str | None:
    """Return the other method to send the secret of a configured client, if the server may expect that one.

    A server lists the methods that it has, and each client is registered for one of them. The settings do not name the
    method, so a configured client may be refused for sending its secret in the wrong place.
    """
    if not settings.client_id or registration.client_secret is None:
        return None
    other = _OTHER_METHOD.get(registration.method)
    if other is None:
        return None
    offered = server.token_endpoint_auth_methods_supported
    if offered is None or other in offered:
        return other
    return None


def usable(registration: ClientRegistration | None, scopes: Iterable[str] = (), *, now: float | None = None) -> bool:
    """Whether a client that was registered before can still be used, to ask for these scopes."""
    if registration is None or not set(scopes).issubset(registration.scopes):
        return False
    if now is None:
        now = time.time()
    ends = registration.secret_expires_at
    return ends is None or ends > now


async def register(
    fetch: GuardedFetch,
    settings: OAuth,
    server: AuthorizationServer,
    redirect_uri: str | None,
    scopes: Sequence[str] = (),
    *,
    odd: OddAnswers,
) -> ClientRegistration:
    """Register a client (RFC 7591): a native application, or a web application if the redirect leads to a host.

    The registration names the scopes that are requested next, because a server may refuse a client all others. Other
    servers refuse a registration for its scopes, and get a second one without. `odd` notes members of the response that
    differ from the standard.

    Raises:
        TokenRefused: The server refuses the registration.
        FetchFailed: The server does not register clients, or its response cannot be used.
    """
    if server.registration_endpoint is None:
        text = f"its authorization server {server.issuer!r} registers no clients by itself"
        raise FetchFailed(f"{text}: register one there, and set 'oauth.client_id'", final=True)
    method = first_of(_METHODS, server.token_endpoint_auth_methods_supported, _BASIC)
    wanted: dict[str, object] = {
        "client_name": settings.client_name,
        # The default `web` excludes redirects to this machine (OpenID Connect Registration, 2).
        "application_type": "native",
        "grant_types": [_GRANT_TYPES[settings.grant], _REFRESH],
        "token_endpoint_auth_method": method,
        # without it the response type is `code`, which requires a redirect URI (RFC 7591, 2)
        "response_types": [],
    }
    redirect_uris = ()
    if redirect_uri is not None:
        redirect_uris = (redirect_uri,)
        wanted |= {"redirect_uris": [redirect_uri], "response_types": ["code"]}
        if not is_loopback(urlsplit(redirect_uri).hostname):
            wanted["application_type"] = "web"
    made = await _registered_with_scopes(fetch, server.registration_endpoint, wanted, scopes)
    if isinstance(made.client_secret_expires_at, str):
        odd.note(f"{_ENDPOINT} gives 'client_secret_expires_at' as a string, read as a number")
    method = made.token_endpoint_auth_method or _default_method(made)
    if not _can_authenticate(made, method):
        raise FetchFailed(f"{_ENDPOINT} makes a client that cannot be used, with {quoted(method)!r}", final=True)
    return ClientRegistration(
        client_id=made.client_id,
        client_secret=made.client_secret,
        method=method,
        redirect_uris=redirect_uris,
        # 0 is never
        secret_expires_at=number_of(made.client_secret_expires_at) or None,
        scopes=tuple(scopes),
    )


def _default_method(made: RegistrationAnswer) -> str:
    """Return the method of a client without one (RFC 7591, 2)."""
    if made.client_secret is None:
        return "none"
    return _BASIC


def _can_authenticate(made: RegistrationAnswer, method: str) -> bool:
    if not made.client_id or method not in _METHODS:
        return False
    return method == "none" or made.client_secret is not None


async def _registered_with_scopes(
    fetch: GuardedFetch, url: str, wanted: dict[str, object], scopes: Sequence[str]
) -> RegistrationAnswer:
    if scopes:
        try:
            return await _registered(fetch, url, {**wanted, "scope": " ".join(scopes)})
        except TokenRefused as exc:
            if exc.code not in _SCOPE_REFUSALS:
                raise
    return await _registered(fetch, url, wanted)


async def _registered(fetch: GuardedFetch, url: str, wanted: dict[str, object]) -> RegistrationAnswer:
    answer = await fetch.post(url, _ENDPOINT, msgspec.json.encode(wanted))
    if answer.status not in (200, 201):
        raise _refused(answer.status, answer.body)
    try:
        return answer.decoded(RegistrationAnswer)
    except FetchFailed as exc:
        # Some servers refuse with the status of a success; the reason explains more than a missing member.
        error = _refused(answer.status, answer.body)
        raise (error if isinstance(error, TokenRefused) else exc) from None


def _refused(status: int, body: bytes) -> Exception:
    if status == 429 or status >= 500:
        return FetchFailed(f"{_ENDPOINT} answers HTTP {status}", final=False)
    try:
        refusal = decode_json(body, RefusalBody)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return FetchFailed(f"{_ENDPOINT} answers HTTP {status}", final=True)
    return TokenRefused(refusal.error, f"{_ENDPOINT} refuses: {quoted(refusal.text)}")
