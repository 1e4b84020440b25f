"""This server as a client of the provider: the redirect to it, and the validation of its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from toolweave._json_types import Json, JsonObject
from toolweave.config import OAuth, reveal
from toolweave.oauth import ClientRegistration
from toolweave.oauth._encoding import code_challenge
from toolweave.oauth._odd_answers import OddAnswers
from toolweave.oauth._token_endpoint import TokenEndpoint, TokenRefused, TokenResponse
from toolweave.oauth.fetch import FetchFailed, GuardedFetch
from toolweave.oauth.metadata import AuthorizationServer
from toolweave.serve._auth.documents import NoDocument, url_in
from toolweave.serve._auth.issuer_keys import PublishedKeys, issuer_metadata
from toolweave.serve._auth.refusal import IssuerUnavailable
from toolweave.serve._oauth_server.upstream import Upstream

_METADATA_SECONDS = 3600.0
_LEEWAY = 60


class SignInFailed(Exception):
    """A private signal: the provider returned no user; the text is safe to log.

    Attributes:
        temporary: Whether the provider could not be reached.
    """

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary


class SignedIn:
    """A person who signed in.

    Attributes:
        subject: The identifier of the person at the provider.
        claims: The provider's claims about the person.
        tokens: The provider's tokens, as they are kept.
    """

    def __init__(self, subject: str, claims: JsonObject, tokens: Json) -> None:
        self.subject = subject
        self.claims = claims
        self.tokens = tokens


class UpstreamClient:
    """The client that an authorization server is at its provider."""

    def __init__(self, upstream: Upstream, redirect_uri: str) -> None:
        self.upstream = upstream
        self._redirect_uri = redirect_uri
        self._fetch = GuardedFetch([upstream.named, upstream.userinfo_endpoint])
        self._keys: PublishedKeys | None = None
        if upstream.issuer:
            self._keys = PublishedKeys(upstream.issuer, None, upstream.algorithms)
        self._known: tuple[float, AuthorizationServer] | None = None
        self._odd = OddAnswers(f"provider {upstream.named!r}")

    async def authorization_url(self, *, state: str, verifier: str, nonce: str) -> str:
        """Return the URL where a person signs in, for one try.

        Raises:
            SignInFailed: The provider's metadata cannot be read.
        """
        server = await self._server()
        upstream = self.upstream
        asked = {
            **upstream.parameters,
            "response_type": "code",
            "client_id": upstream.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(upstream.scopes),
            "state": state,
            "code_challenge": code_challenge(verifier),
            "code_challenge_method": "S256",
        }
        if upstream.issuer:
            asked["nonce"] = nonce
        parts = urlsplit(server.authorization_endpoint or "")
        # The parameters of the sign-in are last: the endpoint's URL may have a query, and must not replace the state.
        query = urlencode({**dict(parse_qsl(parts.query)), **asked})
        return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))

    async def signed_in(self, code: str, *, verifier: str, nonce: str, issuer: str | None) -> SignedIn:
        """Redeem a code; return the user who signed in.

        Raises:
            SignInFailed: The provider returned no valid user.
        """
        # RFC 9207: the code of another provider must not be redeemed at this one
        expected = self.upstream.issuer
        if issuer is not None and expected and issuer != expected:
            raise SignInFailed("the answer is of another issuer")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        answer, raw = await self._tokens(form)
        if self._keys:
            claims = await self._id_claims(raw.get("id_token"), nonce)
        else:
            claims = await self._profile(answer)
        subject = claims.get(self.upstream.subject)
        # GitHub has numbers. Any other type would become a text that several people may share, such as `None`.
        is_text_or_number = isinstance(subject, str | int) and not isinstance(subject, bool)
        if not is_text_or_number or subject == "":
            raise SignInFailed(f"the provider names no user in {self.upstream.subject!r}")
        return SignedIn(str(subject), claims, _kept(answer, None))

    async def renewed(self, tokens: JsonObject) -> Json | None:
        """Return the provider's tokens, renewed if they are about to expire; None if they cannot be renewed.

        Raises:
            SignInFailed: The provider cannot be reached.
        """
        expires = tokens.get("expires_at")
        refresh = tokens.get("refresh_token")
        # Nothing to ask the provider with. The grant ends by its own time.
        if refresh is None or expires is None:
            return dict(tokens)
        if expires > time.time() + _LEEWAY:
            return dict(tokens)
        try:
            answer, _ = await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh})
        except SignInFailed as exc:
            if exc.temporary:
                raise
            return None
        return _kept(answer, refresh)

    async def _server(self) -> AuthorizationServer:
        upstream = self.upstream
        if not upstream.issuer:
            return AuthorizationServer(
                issuer=upstream.named,
                authorization_endpoint=upstream.authorization_endpoint,
                token_endpoint=upstream.token_endpoint,
            )
        if self._known is not None and time.monotonic() < self._known[0]:
            return self._known[1]
        try:
            document = await issuer_metadata(upstream.issuer)
            found = AuthorizationServer(
                issuer=upstream.issuer,
                authorization_endpoint=url_in(document, "authorization_endpoint"),
                token_endpoint=url_in(document, "token_endpoint"),
            )
        except NoDocument as exc:
            raise SignInFailed(f"the provider's metadata cannot be read: {exc}", temporary=True) from None
        self._known = (time.monotonic() + _METADATA_SECONDS, found)
        return found

    async def _tokens(self, form: Mapping[str, str]) -> tuple[TokenResponse, Json]:
        upstream = self.upstream
        registration = ClientRegistration(client_id=upstream.client_id, method="none")
        if upstream.client_secret is not None:
            secret = reveal(upstream.client_secret)
            registration = registration.replace(client_secret=secret, method=upstream.method)
        endpoint = TokenEndpoint(
            fetch=self._fetch,
            server=await self._server(),
            registration=registration,
            settings=OAuth(),
            odd=self._odd,
        )
        try:
            answer = await endpoint.post(endpoint.server.token_endpoint or "", "the provider's token endpoint", form)
            return endpoint.tokens_in(answer), answer.decoded(Json)
        except TokenRefused as exc:
            raise SignInFailed(str(exc)) from None
        except FetchFailed as exc:
            raise SignInFailed(str(exc), temporary=not exc.final) from None

    async def _id_claims(self, token: object, nonce: str) -> JsonObject:
        """Return the claims of an ID token (OpenID Connect Core, 3.1.3.7)."""
        import jwt

        assert self._keys is not None
        if not isinstance(token, str):
            raise SignInFailed("the provider gave no ID token")
        try:
            key = await self._keys.find(jwt.get_unverified_header(token).get("kid"))
            if key is None:
                raise SignInFailed("the ID token is signed with an unknown key")
            claims = key.claims_of(
                token,
                self.upstream.algorithms,
                audience=self.upstream.client_id,
                issuer=self.upstream.issuer,
                leeway=_LEEWAY,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.InvalidTokenError as exc:
            raise SignInFailed(f"the ID token does not hold: {type(exc).__name__}") from None
        except IssuerUnavailable:
            raise SignInFailed("the provider's keys cannot be fetched", temporary=True) from None
        # The token belongs to this browser's sign-in: one that was stolen elsewhere has another nonce.
        if claims.get("nonce") != nonce:
            raise SignInFailed("the ID token is of another sign-in")
        if claims.get("azp", self.upstream.client_id) != self.upstream.client_id:
            raise SignInFailed("the ID token is for another client")
        return claims

    async def _profile(self, answer: TokenResponse) -> JsonObject:
        headers = {"authorization": f"Bearer {answer.access_token}"}
        try:
            found = await self._fetch.get(self.upstream.userinfo_endpoint, "the provider's API", headers=headers)
            if found.status != 200:
                raise SignInFailed(f"the provider's API answers with status {found.status}")
            return found.decoded(Json)
        except FetchFailed as exc:
            raise SignInFailed(str(exc), temporary=not exc.final) from None


def _kept(answer: TokenResponse, refresh: str | None) -> Json:
    """Return tokens for the store, with the current refresh token if there is no new one."""
    expires_at = None
    if answer.seconds is not None:
        expires_at = time.time() + answer.seconds
    return {
        "access_token": answer.access_token,
        "expires_at": expires_at,
        "refresh_token": answer.refresh_token or refresh,
        "scope": answer.scope,
    }
