"""The ASGI app in front of a protected endpoint: reads the credentials, and puts the identity into the scope.

The app behind it gets an `Identity`, never the token. A token is only read from the header `Authorization`, never from
a URL or a form (RFC 6750, 5.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from toolweave.config import Secret
from toolweave.serve._auth.dpop import BadProof, ProofChecker, ProofTarget
from toolweave.serve._auth.refusal import Challenges, IssuerUnavailable, Refused, TooManyTokens
from toolweave.serve._auth.scopes import Access
from toolweave.serve._http.asgi import ADDRESS, App, Message, Receive, Scope, Send
from toolweave.serve.request import Identity, MayUse, OfferKind

_log = logging.getLogger("toolweave.serve._auth")
_IDENTITY = "toolweave.identity"
_SCHEME = "toolweave.scheme"
_MAY = "toolweave.may"


def _never() -> bool:
    return False


class KeptTokens:
    """Whether tokens stay with the identities of requests, so that they can be exchanged for others (RFC 8693).

    Shared by the authorizations of an endpoint and of those below it.

    Attributes:
        wanted: Returns whether tokens stay: only in front of a gateway that needs them.
    """

    def __init__(self) -> None:
        self.wanted: Callable[[], bool] = _never


class AuthorizesTokens(Protocol):
    """The part of a `TokenAuth` that the middleware uses."""

    required_scopes: tuple[str, ...]
    resource: str | None
    access: Access
    challenges: Challenges
    proofs: ProofChecker
    kept: KeptTokens

    async def identify(self, token: str, address: str = "") -> Identity | None:
        """Return the identity of a token that an address sent; None if it is invalid."""
        ...

    def warn_if_unreachable(self, root_path: str) -> None:
        """Warn once if clients cannot reach its pages because the app is mounted at a path."""
        ...


def challenges_for(auth: AuthorizesTokens, scope: Scope) -> Challenges:
    """Return the challenges of an endpoint as a request reaches it: its app may be mounted below another one."""
    return auth.challenges.mounted_at(scope.get("root_path", ""))


def identity_of(scope: Scope) -> Identity | None:
    """Return the identity of an authorized request."""
    return scope.get(_IDENTITY)


def scheme_of(scope: Scope) -> str:
    """Return the scheme of the credentials of an authorized request, as challenges name it."""
    return scope.get(_SCHEME, "Bearer")


def principal(scope: Scope) -> str | None:
    """Return the principal of an authorized request."""
    identity = identity_of(scope)
    if identity is None:
        return None
    return identity.principal


def may_of(scope: Scope) -> MayUse | None:
    """Return a function that returns whether lists show an offer to this caller; None shows all."""
    return scope.get(_MAY)


class Authorization:
    """Refuses requests without a valid token with enough scopes; the others go to `app`."""

    def __init__(self, app: App, auth: AuthorizesTokens) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        auth = self._auth
        try:
            identity, scheme, nonce = await self._authenticate(scope)
            granted = auth.access.granted(identity.scopes)
            if not granted.issuperset(auth.required_scopes):
                raise Refused(challenges_for(auth, scope).insufficient_scope(auth.required_scopes, scheme=scheme))
        except Refused as refused:
            auth.warn_if_unreachable(scope.get("root_path", ""))
            await refused.refusal.send(send)
            return
        except IssuerUnavailable as exc:
            await auth.challenges.unavailable(exc.retry_after).send(send)
            return
        except TooManyTokens as exc:
            await auth.challenges.slow_down(exc.retry_after).send(send)
            return
        # an API key was not issued by an issuer, and is not exchanged
        if identity.issuer is not None and auth.kept.wanted():
            identity = replace(identity, token=Secret(_credentials(scope)[1] or ""))
        known = {**scope, _IDENTITY: identity, _SCHEME: scheme}
        if auth.access.rules.hide:
            known[_MAY] = partial(may_use, auth.access, granted)
        if nonce is not None:
            send = _with_nonce(send, nonce)
        await self._app(known, receive, send)

    async def _authenticate(self, scope: Scope) -> tuple[Identity, str, str | None]:
        """Return the identity of a request, its scheme, and a nonce for the next proof."""
        auth = self._auth
        scheme, token = _credentials(scope)
        if token is None:
            raise Refused(challenges_for(auth, scope).no_token())
        identity = await auth.identify(token, scope.get(ADDRESS, ""))
        if identity is None:
            raise Refused(challenges_for(auth, scope).invalid_token())
        if scheme == "Bearer":
            # RFC 9449, 7.2: without the proof, any observer could use it
            if identity.key_thumbprint is not None or auth.proofs.rules.required:
                raise self._refused(scope, "invalid_token", "The token must be sent with a proof of its key, as DPoP")
            return identity, scheme, None
        # A proof of an unbound token proves nothing about it; a client that sends one believes that it is protected.
        if identity.key_thumbprint is None:
            raise self._refused(scope, "invalid_token", "The token is not bound to a key; it is sent as Bearer")
        return identity, scheme, await self._proved(scope, token, identity.key_thumbprint)

    async def _proved(self, scope: Scope, token: str, thumbprint: str) -> str | None:
        proofs = [value.decode("latin-1") for name, value in scope["headers"] if name == b"dpop"]
        target = ProofTarget(
            method=scope["method"], url=self._auth.resource or _url(scope), token=token, thumbprint=thumbprint
        )
        try:
            _, nonce = await self._auth.proofs.check(proofs, target)
        except BadProof as exc:
            raise self._refused(scope, exc.error, str(exc), exc.nonce) from None
        return nonce

    def _refused(self, scope: Scope, error: str, description: str, nonce: str | None = None) -> Refused:
        _log.info("a token was refused: %s", description)
        algorithms = self._auth.proofs.rules.algorithms
        challenges = challenges_for(self._auth, scope)
        return Refused(challenges.invalid_proof(error, description, algorithms=algorithms, nonce=nonce))


def may_use(
    access: Access,
    granted: frozenset[str],
    kind: OfferKind,
    name: str,
    declared: Iterable[str] = (),
    server: str | None = None,
    /,
) -> bool:
    """Whether a token with these scopes may use an offer; see `MayUse`."""
    return granted.issuperset(access.rules.required(kind, name, declared))


_SCHEMES = {b"bearer": "Bearer", b"dpop": "DPoP"}


def _credentials(scope: Scope) -> tuple[str, str | None]:
    """Return the scheme and the token of a request; the token is None if none of a known scheme was sent."""
    value = _header(scope, b"authorization")
    scheme, _, token = value.partition(b" ")
    named = _SCHEMES.get(scheme.lower())
    if named is None:
        return "", None
    return named, token.strip().decode("latin-1") or None


def _header(scope: Scope, wanted: bytes) -> bytes:
    for name, value in scope["headers"]:
        if name == wanted:
            return value
    return b""


def _url(scope: Scope) -> str:
    """Return the URL of a request. The guard has checked its `Host`."""
    host = _header(scope, b"host").decode("latin-1")
    return f"{scope.get('scheme', 'http')}://{host}{scope['path']}"


def _with_nonce(send: Send, nonce: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (b"dpop-nonce", nonce.encode())]
            message = {**message, "headers": headers}
        await send(message)

    return sending
