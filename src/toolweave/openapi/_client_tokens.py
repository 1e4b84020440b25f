"""The tokens that a client of an API gets for itself, with its id and its secret (RFC 6749, 4.4)."""

# All calls share one token. Calls that find it missing or near its end wait for one request (`SingleFlight`), which is
# shielded within its time bound, so that the cancellation of one call does not end the request of the others. A token
# is replaced as a whole: `_until` is set before `_token`, and there is no wait between them.

from __future__ import annotations

import time
from collections.abc import Iterable
from urllib.parse import urljoin

from toolweave._json_types import JsonObject, object_or_empty, text_or_empty
from toolweave.config import OAuth
from toolweave.errors import ConfigError, ErrorKind, ToolError
from toolweave.oauth import ClientRegistration
from toolweave.oauth._odd_answers import OddAnswers
from toolweave.oauth._single_flight import SingleFlight
from toolweave.oauth._token_endpoint import TokenEndpoint, TokenRefused, TokenResponse, revealed
from toolweave.oauth.fetch import FetchFailed, GuardedFetch
from toolweave.oauth.metadata import AuthorizationServer

_SECONDS = 30.0
_DEFAULT_LIFETIME = 300.0
"""Seconds for which a token without `expires_in` is used."""
_EARLY_SECONDS = 60.0


class ClientTokens:
    """Returns a token when it is called: the same one until shortly before it ends.

    Args:
        settings: The client: its id, its secret or key, and the scopes to ask for.
        token_url: The token endpoint, or "" if it is in the metadata.
        metadata_url: The metadata of the authorization server (RFC 8414, OpenID Connect Discovery), or "".
        trusted: The URLs that a person has given; the kinds of address that they have are allowed.
    """

    def __init__(self, settings: OAuth, *, token_url: str, metadata_url: str, trusted: Iterable[str]) -> None:
        self._settings = settings
        self._metadata_url = metadata_url
        self._fetch = GuardedFetch((*trusted, settings.metadata_url))
        self._server = AuthorizationServer(issuer=token_url, token_endpoint=token_url)
        if settings.private_key:
            self._methods = ["private_key_jwt"]
        else:
            self._methods = ["client_secret_basic", "client_secret_post"]
        self._flight = SingleFlight[str](_SECONDS)
        self._odd = OddAnswers(f"the token endpoint of {token_url or metadata_url}")
        self._token = ""
        self._until = 0.0

    async def __call__(self) -> str:
        """Return the token, and get a new one first if it has ended.

        Raises:
            ToolError: The authorization server gives no token.
        """
        if self._token and time.monotonic() < self._until:
            return self._token
        return await self._flight.run("token", self._fetched)

    def forget(self) -> None:
        """Get a new token for the next call, because the API refused this one."""
        self._token = ""

    async def _fetched(self) -> str:
        try:
            tokens = await self._asked()
        except TokenRefused as exc:
            raise ToolError(f"no token for this API: {exc}", kind=ErrorKind.AUTH_REQUIRED) from None
        except FetchFailed as exc:
            text = f"no token for this API: {exc}"
            raise ToolError(text, kind=ErrorKind.NOT_SENT, retryable=not exc.final) from None
        seconds = tokens.seconds or _DEFAULT_LIFETIME
        # Replaced early, so that no request is on its way when the token ends, but not before nine tenths of its life.
        early = min(_EARLY_SECONDS, seconds / 10)
        self._until = time.monotonic() + seconds - early
        self._token = tokens.access_token
        return self._token

    async def _asked(self) -> TokenResponse:
        if self._server.token_endpoint == "":
            answer = await self._fetch.get(self._metadata_url, "the metadata of the authorization server")
            if answer.status != 200:
                raise FetchFailed(f"its authorization server's metadata: HTTP {answer.status}", final=False)
            self._server = answer.decoded(AuthorizationServer)
        form = {"grant_type": "client_credentials"}
        if self._settings.scopes:
            form["scope"] = " ".join(self._settings.scopes)
        if self._settings.audience:
            form["audience"] = self._settings.audience
        secret = await revealed(self._settings.client_secret)
        while True:
            client = ClientRegistration(self._settings.client_id, secret, self._methods[0])
            endpoint = TokenEndpoint(
                fetch=self._fetch,
                server=self._server,
                registration=client,
                settings=self._settings,
                # MCP wants the id twice; other servers may refuse a parameter they do not expect
                id_with_basic=False,
                odd=self._odd,
            )
            try:
                return endpoint.bound(await endpoint.request(form))
            except TokenRefused as exc:
                if exc.code != "invalid_client" or len(self._methods) == 1:
                    raise
                # some servers read the secret only in the form
                del self._methods[0]


def client_tokens(
    name: str, scheme: JsonObject, settings: OAuth, *, url: str | None, trusted: Iterable[str]
) -> ClientTokens:
    """Return the tokens of a client for a security scheme of a document.

    Args:
        name: The name of the scheme.
        scheme: The scheme.
        settings: The client.
        url: The URL of the document, for relative URLs.
        trusted: The URLs that a person has given.

    Raises:
        ConfigError: The settings are not the settings of a client, or no token endpoint is known.
    """
    settings = settings.of_client()
    metadata_url = settings.metadata_url
    if not metadata_url and scheme.get("type") == "openIdConnect":
        metadata_url = text_or_empty(scheme.get("openIdConnectUrl"))
    token_url = ""
    if not metadata_url:
        flow = object_or_empty(object_or_empty(scheme.get("flows")).get("clientCredentials"))
        token_url = text_or_empty(flow.get("tokenUrl"))
    if not token_url and not metadata_url:
        raise ConfigError(
            f"the security scheme {name!r} does not say where a client gets tokens: give 'metadata_url' of its "
            "authorization server",
            field=f"auth.{name}",
        )
    return ClientTokens(
        settings,
        token_url=_absolute(url, token_url),
        metadata_url=_absolute(url, metadata_url),
        trusted=trusted,
    )


def _absolute(base: str | None, url: str) -> str:
    if base is None or not url:
        return url
    return urljoin(base, url)
