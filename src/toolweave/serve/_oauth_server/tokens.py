"""The endpoints for clients: codes and refresh tokens are exchanged, tokens are revoked, clients are registered."""

# A code or a refresh token is marked as used, by its revision in the store, before a token is made from it. So of two
# requests with the same one, on any replica, one succeeds, and the other one revokes the grant: one of the two senders
# has stolen it.

from __future__ import annotations

import hmac
import re
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import unquote_plus

from toolweave._json_types import Json, JsonObject
from toolweave.errors import StoreError
from toolweave.oauth._encoding import code_challenge
from toolweave.serve._auth.claims import TokenProblem, plain_resource
from toolweave.serve._auth.dpop import BadProof, ProofTarget
from toolweave.serve._auth.refusal import IssuerUnavailable
from toolweave.serve._oauth_server.authorize import ServerFacts
from toolweave.serve._oauth_server.clients import KnownClient, OAuthRefusal
from toolweave.serve._oauth_server.exchange import OAuthExchange
from toolweave.serve._oauth_server.grants import Grant, RefreshToken
from toolweave.serve._oauth_server.keys import ServerKeys, new_secret
from toolweave.serve._oauth_server.upstream_client import SignInFailed

_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


class TokenPages:
    """The token, revocation and registration endpoints.

    Args:
        server: The server.
        keys: Signs its tokens.
        seconds: How long an access token lasts.
    """

    def __init__(self, server: ServerFacts, keys: ServerKeys, seconds: int) -> None:
        self._server = server
        self._keys = keys
        self._seconds = seconds

    async def token(self, exchange: OAuthExchange) -> None:
        """Answer the token endpoint."""
        await self._answered(exchange, self._token)

    async def revoke(self, exchange: OAuthExchange) -> None:
        """Answer the revocation endpoint (RFC 7009)."""
        await self._answered(exchange, self._revoke)

    async def register(self, exchange: OAuthExchange) -> None:
        """Answer the registration endpoint (RFC 7591)."""
        await self._answered(exchange, self._register)

    async def _answered(
        self, exchange: OAuthExchange, work: Callable[[OAuthExchange], Awaitable[tuple[int, JsonObject]]]
    ) -> None:
        if exchange.method == "OPTIONS":
            await exchange.preflight()
            return
        try:
            status, value = await work(exchange)
        except BadProof as exc:
            await exchange.refuse(OAuthRefusal(exc.error, str(exc)), nonce=exc.nonce)
        except OAuthRefusal as exc:
            await exchange.refuse(exc)
        except (IssuerUnavailable, StoreError):
            text = "it cannot be answered now"
            await exchange.refuse(OAuthRefusal("temporarily_unavailable", text, status=503, retry_after=5))
        else:
            await exchange.answer(status, value)

    async def _register(self, exchange: OAuthExchange) -> tuple[int, JsonObject]:
        return 201, await self._server.clients.register(await exchange.json())

    async def _token(self, exchange: OAuthExchange) -> tuple[int, JsonObject]:
        form = await exchange.form()
        client = await self._authenticated(exchange, form)
        thumbprint = await self._proved(exchange)
        kind = form.get("grant_type")
        if kind == "authorization_code":
            return 200, await self._by_code(client, form, thumbprint)
        if kind == "refresh_token":
            return 200, await self._by_refresh(client, form, thumbprint)
        raise OAuthRefusal("unsupported_grant_type", "grant_type is 'authorization_code' or 'refresh_token'")

    async def _proved(self, exchange: OAuthExchange) -> str:
        """Return the thumbprint of the key in a client's proof, to which its tokens are bound; empty without a proof.

        Raises:
            BadProof: The proof is not valid, or it is missing although one is required.
        """
        proofs = self._server.proofs
        if not exchange.proofs and not proofs.rules.required:
            return ""
        target = ProofTarget(method=exchange.method, url=self._server.issuer + exchange.path)
        thumbprint, exchange.nonce = await proofs.check(exchange.proofs, target)
        return thumbprint

    async def _by_code(self, client: KnownClient, form: Mapping[str, str], thumbprint: str) -> JsonObject:
        name = form.get("code", "")
        verifier = form.get("code_verifier", "")
        code = await self._server.grants.code(name)
        # Before it is used up: another client that got hold of the code must not be able to invalidate it.
        if code is None or code.client_id != client.client_id:
            raise OAuthRefusal("invalid_grant", "the code is unknown, used or expired")
        if form.get("redirect_uri") != code.redirect_uri:
            raise OAuthRefusal("invalid_grant", "redirect_uri is not the one that the code went to")
        fits = hmac.compare_digest(code_challenge(verifier).encode(), code.challenge.encode())
        if not fits or not _VERIFIER.fullmatch(verifier):
            raise OAuthRefusal("invalid_grant", "code_verifier does not fit the code")
        resource = self._resource(form, code.resource)
        if code.thumbprint and code.thumbprint != thumbprint:
            raise BadProof("The code is to be redeemed with the key that was named when it was asked for")
        # Used up last, when everything else fits: a client that sends a wrong verifier can correct itself, and a thief
        # who lacks the verifier cannot use the code up.
        grant = await self._server.grants.use_code(name)
        if grant is None:
            raise OAuthRefusal("invalid_grant", "the code is unknown, used or expired")
        return await self._token_response(client, code.grant, grant, code.scopes, thumbprint, resource)

    async def _by_refresh(self, client: KnownClient, form: Mapping[str, str], thumbprint: str) -> JsonObject:
        grants = self._server.grants
        name = form.get("refresh_token", "")
        known = await grants.refresh(name)
        if known is None or known.client_id != client.client_id:
            raise OAuthRefusal("invalid_grant", "the refresh token is unknown, used or expired")
        resource = self._resource(form, known.resource)
        if known.thumbprint and known.thumbprint != thumbprint:
            raise BadProof("The refresh token is bound to another key")
        asked = [scope for scope in form.get("scope", "").split() if scope in self._server.all_scopes]
        scopes = tuple(dict.fromkeys(asked)) or known.scopes
        if not set(known.scopes).issuperset(scopes):
            raise OAuthRefusal("invalid_scope", "a scope was not granted")
        if not await grants.use_refresh(name):
            raise OAuthRefusal("invalid_grant", "the refresh token is unknown, used or expired")
        grant = await grants.find(known.grant)
        if grant is None:
            raise OAuthRefusal("invalid_grant", "the grant was revoked or has ended")
        await self._still_there(known.grant, grant, name)
        return await self._token_response(client, known.grant, grant, scopes, thumbprint, resource)

    def _resource(self, form: Mapping[str, str], granted: str) -> str:
        """Return the endpoint that a token is for, to which the person has consented.

        Raises:
            OAuthRefusal: The request names another endpoint.
        """
        known = granted or self._server.resource_url
        if plain_resource(form.get("resource", known)) != plain_resource(known):
            raise OAuthRefusal("invalid_target", "the token was granted for another resource")
        return known

    async def _still_there(self, name: str, grant: Grant, refresh: str) -> None:
        """Renew the provider's tokens if they expire: a person who has left the company gets no further tokens.

        Raises:
            OAuthRefusal: The provider does not renew them any longer, or cannot be reached.
        """
        grants = self._server.grants
        kept = grants.tokens_of(grant)
        try:
            renewed = await self._server.provider.renewed(kept)
        except SignInFailed:
            # It is usable again: the client did nothing wrong, and would otherwise revoke its grant by trying again.
            await grants.use_refresh(refresh, used=False)
            text = "the provider cannot be asked now"
            raise OAuthRefusal("temporarily_unavailable", text, status=503, retry_after=5) from None
        if renewed is None:
            await grants.revoke(name)
            raise OAuthRefusal("invalid_grant", "the provider has ended the sign-in")
        if renewed != kept:
            await grants.keep_tokens(name, grant, renewed)

    async def _token_response(
        self, client: KnownClient, name: str, grant: Grant, scopes: tuple[str, ...], thumbprint: str, resource: str
    ) -> JsonObject:
        """Issue the tokens of a grant; return the response of the token endpoint.

        Args:
            client: The client that gets them.
            name: The key of the grant in the store.
            grant: What a person has granted.
            scopes: The scopes of the access token: those of the grant, or fewer.
            thumbprint: The key that the access token is bound to (RFC 9449); empty for a bearer token.
            resource: The endpoint that the access token is for (RFC 8707).
        """
        now = int(time.time())
        # Never longer than the grant, which a person gave for a limited time.
        seconds = max(1, min(self._seconds, int(grant.ends_at) - now))
        claims: Json = {
            "iss": self._server.issuer,
            "aud": resource,
            "sub": grant.subject,
            "client_id": client.client_id,
            "scope": " ".join(scopes),
            "iat": now,
            "exp": now + seconds,
            "jti": new_secret(),
            "grant": name,
        }
        token_type = "Bearer"  # noqa: S105
        if thumbprint:
            claims["cnf"] = {"jkt": thumbprint}
            token_type = "DPoP"  # noqa: S105
        answer: Json = {
            "access_token": self._keys.token(claims),
            "token_type": token_type,
            "expires_in": seconds,
            "scope": " ".join(scopes),
        }
        if client.refreshes:
            # The refresh token of a client with a secret is bound by the secret (RFC 9449, 5): the client may change
            # its key.
            key = ""
            if client.method == "none":
                key = thumbprint
            made = RefreshToken(
                grant=name, client_id=client.client_id, scopes=grant.scopes, thumbprint=key, resource=resource
            )
            answer["refresh_token"] = await self._server.grants.refresh_token(made, grant)
        return answer

    async def _revoke(self, exchange: OAuthExchange) -> tuple[int, JsonObject]:
        form = await exchange.form()
        client = await self._authenticated(exchange, form)
        token = form.get("token", "")
        try:
            claims = self._keys.claims(token, issuer=self._server.issuer, audience=self._server.resources)
        except TokenProblem:
            # it may be a refresh token
            pass
        else:
            if claims["client_id"] == client.client_id:
                await self._server.grants.revoke(str(claims["grant"]))
            return 200, {}
        known = await self._server.grants.refresh(token)
        # Of another client: the same answer, and nothing happens (RFC 7009, 2.1 and 2.2).
        if known is not None and known.client_id == client.client_id:
            await self._server.grants.revoke(known.grant)
        return 200, {}

    async def _authenticated(self, exchange: OAuthExchange, form: Mapping[str, str]) -> KnownClient:
        """Return the client that sends a request.

        Raises:
            OAuthRefusal: It is unknown, or does not authenticate.
        """
        named, secret = _basic(exchange.headers.get(b"authorization", b""))
        client_id = named or form.get("client_id", "")
        if named is None:
            secret = form.get("client_secret", "")
        elif form.get("client_id", named) != named:
            raise OAuthRefusal("invalid_request", "the request names two clients")
        client = None
        if client_id:
            client = await self._server.clients.find(client_id)
        # One error for an unknown client and for a wrong secret, so that ids cannot be found out by trying.
        if client is not None and (client.method == "none" or client.has_secret(secret)):
            return client
        raise OAuthRefusal("invalid_client", "the client is unknown, or its secret is wrong", status=401)


def _basic(header: bytes) -> tuple[str | None, str]:
    """Return the id and the secret of HTTP Basic, form-decoded (RFC 6749, 2.3.1); the id is None without Basic."""
    scheme, _, value = header.partition(b" ")
    if scheme.lower() != b"basic":
        return None, ""
    try:
        name, _, secret = b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return unquote_plus(name), unquote_plus(secret)
