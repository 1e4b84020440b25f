"""The tokens that a client of an API gets for itself, with its id and its secret (RFC 6749, 4.4)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urljoin

from toolweave.config import OAuth
from toolweave.errors import ConfigError, ErrorKind, ToolError
from toolweave.oauth._fetch import GuardedFetch, NotFetched
from toolweave.oauth._metadata import AuthorizationServer
from toolweave.oauth._records import ClientRegistration
from toolweave.oauth._single_flight import SingleFlight
from toolweave.oauth._token_endpoint import AnswerOfTokens, TokenEndpoint, TokenRefused, revealed
from toolweave.protocol.json_types import as_object

_SECONDS = 30.0
_UNSAID_SECONDS = 300.0
_EARLY_SECONDS = 60.0


class ClientTokens:
    """Returns a token when it is called: the same one until shortly before it ends.

    Args:
        settings: The client: its id, its secret or key, and the scopes to ask for.
        token_url: The token endpoint; "" where the metadata say it.
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
        self._token = ""
        self._until = 0.0

    async def __call__(self) -> str:
        """Return the token, asking for one where there is none.

        Raises:
            ToolError: There is none to be had.
        """
        if self._token and time.monotonic() < self._until:
            return self._token
        return await self._flight.run("token", self._fetched)

    def forget(self) -> None:
        """Ask for another one next time: this one was refused."""
        self._token = ""

    async def _fetched(self) -> str:
        try:
            tokens = await self._asked()
        except TokenRefused as exc:
            raise ToolError(f"there is no token for this API: {exc}", kind=ErrorKind.AUTH_REQUIRED) from None
        except NotFetched as exc:
            text = f"there is no token for this API: {exc}"
            raise ToolError(text, kind=ErrorKind.NOT_SENT, retryable=not exc.final) from None
        seconds = tokens.seconds or _UNSAID_SECONDS
        self._token, self._until = tokens.access_token, time.monotonic() + seconds - min(_EARLY_SECONDS, seconds / 10)
        return self._token

    async def _asked(self) -> AnswerOfTokens:
        if self._server.token_endpoint == "":
            answer = await self._fetch.get(self._metadata_url, "the metadata of the authorization server")
            if answer.status != 200:
                raise NotFetched(f"its authorization server's metadata: HTTP {answer.status}", final=False)
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
                id_with_basic=False,  # such servers know nothing of MCP, and may refuse what they do not know
            )
            try:
                return endpoint.bound(await endpoint.request(form))
            except TokenRefused as exc:
                if exc.code != "invalid_client" or len(self._methods) == 1:
                    raise
                del self._methods[0]  # some read the secret in the form alone


def client_tokens(
    name: str, scheme: Mapping[str, Any], settings: OAuth, *, url: str | None, trusted: Iterable[str]
) -> ClientTokens:
    """Return the tokens of a client for a security scheme of a document.

    Args:
        name: The name of the scheme.
        scheme: The scheme.
        settings: The client.
        url: The URL of the document, from which a relative URL starts.
        trusted: The URLs that a person has given.

    Raises:
        ConfigError: The settings are of no client, or nothing says where its tokens are.
    """
    settings = settings.of_client()
    flow = as_object((as_object(scheme.get("flows")) or {}).get("clientCredentials")) or {}
    token_url = flow.get("tokenUrl")
    metadata_url = settings.metadata_url
    if not metadata_url and scheme.get("type") == "openIdConnect":
        metadata_url = str(scheme.get("openIdConnectUrl") or "")
    if metadata_url or not isinstance(token_url, str):
        token_url = ""
    if not token_url and not metadata_url:
        raise ConfigError(
            f"the security scheme {name!r} does not say where a client gets tokens: give 'metadata_url' of its "
            "authorization server",
            field=f"auth.{name}",
        )
    base = url or ""
    return ClientTokens(
        settings,
        token_url=urljoin(base, token_url) if token_url else "",
        metadata_url=urljoin(base, metadata_url) if metadata_url else "",
        trusted=trusted,
    )
