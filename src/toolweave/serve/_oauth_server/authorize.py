"""The pages of a sign-in: the request of a client, the person's consent, the provider, and back to the client."""

# Each step proves that it belongs to the step before: the form by a token that is bound to browser and sign-in, the
# answer of the provider by a state and a PKCE challenge of ours, the return by a cookie that was set with the consent.
# An error is sent to the client only after its redirect URI was found among those that it registered. Before that, the
# redirect could lead anywhere, so an error is a page.

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from toolweave._json_types import JsonObject
from toolweave.errors import StoreError, printable
from toolweave.serve._auth.claims import plain_resource
from toolweave.serve._auth.dpop import ProofChecker
from toolweave.serve._auth.refusal import IssuerUnavailable
from toolweave.serve._oauth_server.browser import Browser, BrowserCookies
from toolweave.serve._oauth_server.clients import Clients, KnownClient, OAuthRefusal
from toolweave.serve._oauth_server.exchange import OAuthExchange
from toolweave.serve._oauth_server.grants import GrantStore, PendingSignIn
from toolweave.serve._oauth_server.keys import new_secret
from toolweave.serve._oauth_server.pages import consent_page, error_page, send_page
from toolweave.serve._oauth_server.redirect_uris import registered_uri
from toolweave.serve._oauth_server.upstream_client import SignInFailed, UpstreamClient

_log = logging.getLogger("toolweave.serve._oauth_server")

_SHA256 = re.compile(r"[A-Za-z0-9_-]{43}")
_MAX_STATE = 4096


class ServerFacts(Protocol):
    """The part of an `OAuthServer` that its endpoints use."""

    issuer: str
    resource_url: str
    resources: set[str]
    all_scopes: tuple[str, ...]
    clients: Clients
    grants: GrantStore
    proofs: ProofChecker
    provider: UpstreamClient
    allow: Callable[[JsonObject], bool | Awaitable[bool]] | None


def known_scopes(asked: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the known scopes of a request, or all known scopes if it has none of them.

    Clients ask for scopes of other servers (`openid profile email`) or for invented ones. They are ignored, and the
    response names the granted ones (RFC 6749, 3.3).
    """
    found = [scope for scope in dict.fromkeys(asked.split()) if scope in known]
    return tuple(found or known)


class AuthorizationPages:
    """The authorization endpoint, the consent form, and the provider's return."""

    def __init__(self, server: ServerFacts, cookies: BrowserCookies, paths: Mapping[str, str]) -> None:
        self._server = server
        self._cookies = cookies
        self._paths = paths

    async def authorize(self, exchange: OAuthExchange) -> None:
        """Begin a sign-in: ask the person for consent, or continue if they consented to this client before."""
        try:
            if exchange.method == "GET":
                asked = exchange.query()
            else:
                asked = await exchange.form()
            client = await self._client(asked)
            redirect_uri = asked.get("redirect_uri", "")
            if not registered_uri(redirect_uri, client.redirect_uris):
                raise OAuthRefusal("invalid_request", "This client did not register the address to go back to.")
        except OAuthRefusal as exc:
            await send_page(exchange.send, exc.status, error_page(str(exc)))
            return
        except IssuerUnavailable:
            await send_page(exchange.send, 503, error_page("The client cannot be looked up now. Try again later."))
            return
        try:
            sign_in = self._judged(asked, client, redirect_uri)
        except OAuthRefusal as exc:
            await exchange.redirect(self._back(redirect_uri, asked.get("state", ""), error=exc.error))
            return
        browser = self._cookies.of(exchange.headers)
        is_known = browser.has_consented(client.client_id, self._consented_to(sign_in))
        if is_known and not browser.cross_site:
            await self._to_provider(exchange, browser, sign_in, [])
        else:
            await self._ask(exchange, browser, client, sign_in)

    async def consent(self, exchange: OAuthExchange) -> None:
        """Handle the person's answer."""
        try:
            form = await exchange.form()
        except OAuthRefusal as exc:
            await send_page(exchange.send, exc.status, error_page(str(exc)))
            return
        name = form.get("sign_in", "")
        browser = self._cookies.of(exchange.headers)
        origin = exchange.headers.get(b"origin", self._server.issuer.encode()).decode("latin-1")
        # Browsers send `null` for a page with `referrer-policy: no-referrer`, as ours is. The form's token decides in
        # that case.
        is_ours = origin in (self._server.issuer, "null")
        if not is_ours or not browser.sent_form(form.get("token", ""), name):
            await send_page(exchange.send, 403, error_page("This form was not sent from its page. Begin again."))
            return
        sign_in = self._server.grants.of_form(name)
        if sign_in is None:
            await send_page(exchange.send, 400, error_page("This sign-in has expired. Begin again."))
        elif form.get("decision") != "allow":
            await exchange.redirect(self._back(sign_in.redirect_uri, sign_in.state, error="access_denied"))
        else:
            remembered = browser.consented(sign_in.client_id, self._consented_to(sign_in))
            await self._to_provider(exchange, browser, sign_in, [remembered])

    async def callback(self, exchange: OAuthExchange) -> None:
        """Handle the provider's answer, and send the person back to the client with a code."""
        try:
            asked = exchange.query()
        except OAuthRefusal as exc:
            await send_page(exchange.send, exc.status, error_page(str(exc)))
            return
        state = asked.get("state", "")
        browser = self._cookies.of(exchange.headers)
        if not browser.began(state):
            await send_page(exchange.send, 403, error_page("This sign-in was not begun in this browser. Begin again."))
            return
        sign_in = await self._server.grants.use_sign_in(state)
        if sign_in is None:
            await send_page(exchange.send, 400, error_page("This sign-in has expired. Begin again."))
            return
        try:
            answer = {"code": await self._granted(asked, sign_in)}
        except OAuthRefusal as exc:
            answer = {"error": exc.error}
        except SignInFailed as exc:
            _log.warning("a sign-in at the provider failed: %s", printable(str(exc)))
            answer = {"error": "access_denied"}
            if exc.temporary:
                answer = {"error": "temporarily_unavailable"}
        url = self._back(sign_in.redirect_uri, sign_in.state, **answer)
        await exchange.redirect(url, [browser.ends(state)])

    def _consented_to(self, sign_in: PendingSignIn) -> str:
        """Return the scope of a consent beside its client: the redirect URI, and an endpoint below our own."""
        if sign_in.resource in ("", self._server.resource_url):
            return sign_in.redirect_uri
        return f"{sign_in.redirect_uri} {sign_in.resource}"

    async def _client(self, asked: Mapping[str, str]) -> KnownClient:
        client = await self._server.clients.find(asked.get("client_id", ""))
        if client is None:
            raise OAuthRefusal("invalid_client", "This client is not known here; it has to register first.")
        return client

    def _judged(self, asked: Mapping[str, str], client: KnownClient, redirect_uri: str) -> PendingSignIn:
        """Return the sign-in that a valid request asks for.

        Raises:
            OAuthRefusal: It is not valid; the client gets the error.
        """
        if asked.get("response_type") != "code":
            raise OAuthRefusal("unsupported_response_type", "response_type must be 'code'")
        challenge = asked.get("code_challenge", "")
        if asked.get("code_challenge_method") != "S256" or not _SHA256.fullmatch(challenge):
            raise OAuthRefusal("invalid_request", "PKCE with S256 is required")
        resource = plain_resource(asked.get("resource", self._server.resource_url))
        if resource not in self._server.resources:
            raise OAuthRefusal("invalid_target", "no tokens are given for this resource here")
        thumbprint = asked.get("dpop_jkt", "")
        if thumbprint and not _SHA256.fullmatch(thumbprint):
            raise OAuthRefusal("invalid_request", "dpop_jkt is not the thumbprint of a key")
        state = asked.get("state", "")
        if len(state) > _MAX_STATE:
            raise OAuthRefusal("invalid_request", "state is too long")
        return PendingSignIn(
            client_id=client.client_id,
            redirect_uri=redirect_uri,
            state=state,
            challenge=challenge,
            scopes=known_scopes(asked.get("scope", ""), self._server.all_scopes),
            resource=resource,
            thumbprint=thumbprint,
        )

    async def _ask(
        self, exchange: OAuthExchange, browser: Browser, client: KnownClient, sign_in: PendingSignIn
    ) -> None:
        name = self._server.grants.form(sign_in)
        token, headers = browser.form_token(name)
        page = consent_page(
            client,
            sign_in.redirect_uri,
            sign_in.scopes,
            server=sign_in.resource or self._server.resource_url,
            action=self._paths["consent"],
            fields={"sign_in": name, "token": token},
        )
        await send_page(exchange.send, 200, page, headers)

    async def _to_provider(
        self, exchange: OAuthExchange, browser: Browser, sign_in: PendingSignIn, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Send the person to the provider; the sign-in continues under a state that only the provider receives."""
        verifier = new_secret()
        nonce = new_secret()
        try:
            state = await self._server.grants.begin(sign_in.replace(verifier=verifier, nonce=nonce))
            url = await self._server.provider.authorization_url(state=state, verifier=verifier, nonce=nonce)
        except (SignInFailed, StoreError) as exc:
            _log.error("the provider cannot be used to sign in: %s", printable(str(exc)))
            back = self._back(sign_in.redirect_uri, sign_in.state, error="temporarily_unavailable")
            await exchange.redirect(back)
            return
        await exchange.redirect(url, [*headers, browser.begins(state)])

    async def _granted(self, asked: Mapping[str, str], sign_in: PendingSignIn) -> str:
        """Return the code for a person who signed in.

        Raises:
            OAuthRefusal: The person, or the provider, refused.
            SignInFailed: The provider's answer does not hold.
        """
        if "error" in asked or "code" not in asked:
            raise OAuthRefusal("access_denied", "the provider returned no user")
        person = await self._server.provider.signed_in(
            asked["code"], verifier=sign_in.verifier, nonce=sign_in.nonce, issuer=asked.get("iss")
        )
        if not await self._is_admitted(person.claims):
            raise OAuthRefusal("access_denied", "the person is not allowed in")
        # Kept only now, after a person has signed in: a registration that nobody uses expires after a day.
        client = await self._server.clients.find(sign_in.client_id)
        if client is not None:
            await self._server.clients.keep(client)
        return await self._server.grants.grant(sign_in, person.subject, person.tokens)

    async def _is_admitted(self, claims: JsonObject) -> bool:
        if self._server.allow is None:
            return True
        admitted = self._server.allow(claims)
        if isinstance(admitted, Awaitable):
            admitted = await admitted
        return bool(admitted)

    def _back(self, redirect_uri: str, state: str, **answer: str) -> str:
        """Return the URL that sends an answer to a client, with our issuer (RFC 9207)."""
        parts = urlsplit(redirect_uri)
        # The query of the redirect URI stays (RFC 6749, 3.1.2): the client may have its own routing in it.
        parameters = [*parse_qsl(parts.query, keep_blank_values=True), *answer.items()]
        if state:
            parameters.append(("state", state))
        parameters.append(("iss", self._server.issuer))
        query = urlencode(parameters)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
