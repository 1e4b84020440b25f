"""Requests of a client to an authorization server: authenticated, proved where tokens are bound, answers checked."""

from __future__ import annotations

import base64
import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import anyio.to_thread

from toolweave._value import Value
from toolweave.config import OAuth, OAuthSecret, Secret
from toolweave.http import origin_of
from toolweave.oauth._fetch import FetchedAnswer, GuardedFetch, NotFetched, quoted
from toolweave.oauth._metadata import AuthorizationServer
from toolweave.oauth._records import ClientRegistration

if TYPE_CHECKING:
    from toolweave.oauth._jose import ProofKey

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,512}")
_NONCES = 2  # a server that has yet another one for each try is not followed
_MOST_SECONDS = 10 * 365 * 86_400
_SECRET_FIELDS = (
    *("code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "assertion", "subject_token"),
    *("token", "device_code"),
)
_HIDDEN_FROM = 4
_DPOP = "DPoP"
CLIENT_REFUSALS = ("invalid_client", "unauthorized_client")
"""The errors of a client that is unknown, or not authenticated as the server expects."""


class TokenRefused(Exception):
    """An authorization server has refused a request (RFC 6749, 5.2).

    Attributes:
        code: Its error code.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class RefusalBody(Value, frozen=True):
    """The body of a refusal (RFC 6749, 5.2)."""

    error: str
    error_description: str | None = None


class AnswerOfTokens(Value, frozen=True):
    """The successful answer of a token endpoint (RFC 6749, 5.1), as it came."""

    quiet: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token"})

    access_token: str
    token_type: str = "Bearer"  # noqa: S105
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None

    @property
    def seconds(self) -> float | None:
        """The seconds for which it is good; None if it does not say so, or nothing that makes sense."""
        try:
            seconds = float(self.expires_in or "")
        except ValueError:
            return None
        if 0 < seconds <= _MOST_SECONDS:
            return seconds
        return None


@dataclass(slots=True, kw_only=True)
class TokenEndpoint:
    """An authorization server as one client of it sees it.

    Attributes:
        registration: The client. Its method becomes `other_method` once the server refuses the first one.
        other_method: Another method to try where the server does not accept the client as it authenticates.
        key: The key that its tokens are to be bound to, if they are.
        id_with_basic: Send `client_id` in the form beside HTTP Basic, for servers of the official Python SDK.
        nonces: The last nonce of each origin, which the proofs of the next request carry (RFC 9449, 8).
    """

    fetch: GuardedFetch
    server: AuthorizationServer
    registration: ClientRegistration
    settings: OAuth
    other_method: str | None = None
    key: ProofKey | None = None
    id_with_basic: bool = True
    nonces: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    async def request(self, form: Mapping[str, str]) -> AnswerOfTokens:
        """Ask for a token.

        Raises:
            TokenRefused: It is refused.
            NotFetched: There is no answer, or none that is accepted.
        """
        if self.server.token_endpoint is None:
            raise NotFetched("its authorization server has no token endpoint", final=True)
        answer = await self.post(self.server.token_endpoint, "the token endpoint", form)
        tokens = answer.decoded(AnswerOfTokens)
        if not _TOKEN.fullmatch(tokens.access_token):
            raise NotFetched("the token endpoint returned no token", final=True)
        return tokens

    def bound(self, tokens: AnswerOfTokens) -> AnswerOfTokens:
        """Return tokens whose type is the one that was asked for: one that is not bound to the key is not taken.

        Raises:
            NotFetched: It is another one.
        """
        wanted = "Bearer" if self.key is None else _DPOP
        if tokens.token_type.lower() != wanted.lower():
            text = f"the token endpoint gives a token of type {quoted(tokens.token_type)!r} instead of {wanted!r}"
            raise NotFetched(f"{text}: it is not used", final=True)
        return tokens.replace(token_type=wanted)

    async def post(self, url: str, what: str, form: Mapping[str, str]) -> FetchedAnswer:
        """Post a form as this client and return a successful response.

        The form is sent again where the server asks for a nonce in the proof, and once with the other method of
        authentication.

        Raises:
            TokenRefused: It is refused.
            NotFetched: There is no answer.
        """
        tries = 0
        while True:
            headers, named = await self._authentication()
            if self.key is not None:
                headers["dpop"] = self.key.proof("POST", url, nonce=self.nonces.get(origin_of(url)))
            sent = {**form, **named}
            answer = await self.fetch.post(url, what, sent, headers=headers)
            renewed = take_nonce(self.nonces, url, answer.headers)
            if 200 <= answer.status < 300:
                return answer
            refusal = _refusal(answer, what, sent)
            if refusal.code in CLIENT_REFUSALS and self.other_method is not None:
                self.registration = self.registration.replace(method=self.other_method)
                self.other_method = None
                continue
            tries += 1
            if not (self.key and renewed and refusal.code == "use_dpop_nonce" and tries <= _NONCES):
                raise refusal

    async def revoke(self, token: str, hint: str) -> None:
        """Revoke a token (RFC 7009).

        Raises:
            TokenRefused: It is refused.
            NotFetched: The server revokes none, or there is no answer.
        """
        if self.server.revocation_endpoint is None:
            raise NotFetched("its authorization server revokes no tokens", final=True)
        form = {"token": token, "token_type_hint": hint}
        await self.post(self.server.revocation_endpoint, "the revocation endpoint", form)

    async def _authentication(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers and the members of the form with which the client names or authenticates itself."""
        client = self.registration.client_id
        secret = self.registration.client_secret
        match self.registration.method:
            case "private_key_jwt":
                key = await revealed(self.settings.private_key) or ""
                jose = await load_jose()
                assertion = jose.client_assertion(
                    client_id=client, audience=self.server.issuer, key=key, algorithm=self.settings.algorithm
                )
                named = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
                return {}, {"client_id": client, **named}
            case "client_secret_basic" if secret is not None:
                pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
                named = {"client_id": client} if self.id_with_basic else {}
                return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, named
            case "client_secret_post" if secret is not None:
                return {}, {"client_id": client, "client_secret": secret}
            case _:
                return {}, {"client_id": client} if client else {}


async def load_jose() -> Any:
    """Return the module of signed JWTs; imported in a thread, since the libraries below take a tenth of a second."""
    return await anyio.to_thread.run_sync(importlib.import_module, "toolweave.oauth._jose")


async def revealed(secret: OAuthSecret | None) -> str | None:
    """Return a secret, calling the callable that makes it if there is one."""
    if callable(secret):
        made = secret()
        made = await made if inspect.isawaitable(made) else made
        if isinstance(made, Secret):
            return made.reveal()
        return str(made)
    if secret is None:
        return None
    return secret.reveal()


def take_nonce(nonces: dict[str, str], url: str, headers: Mapping[str, str]) -> bool:
    """Keep the nonce of an answer for its origin; return whether it is another one than before."""
    nonce = headers.get("dpop-nonce")
    origin = origin_of(url)
    if nonce is None or not _NONCE.fullmatch(nonce) or nonces.get(origin) == nonce:
        return False
    nonces[origin] = nonce
    return True


def _refusal(answer: FetchedAnswer, what: str, sent: Mapping[str, str]) -> TokenRefused:
    """Return the refusal in an answer, without the secrets that it may repeat.

    Raises:
        NotFetched: It is none: the server is not well, or no authorization server.
    """
    temporary = answer.status == 429 or answer.status >= 500
    try:
        body = answer.decoded(RefusalBody)
    except NotFetched:
        raise NotFetched(f"{what} answers HTTP {answer.status}", final=not temporary) from None
    if body.error_description is None:
        text = body.error
    else:
        text = f"{body.error}: {body.error_description}"
    for name in _SECRET_FIELDS:
        value = sent.get(name, "")
        if len(value) >= _HIDDEN_FROM:
            text = text.replace(value, "***")
    if temporary:
        raise NotFetched(f"{what} answers HTTP {answer.status}: {quoted(text)}", final=False)
    return TokenRefused(body.error, f"{what} refuses: {quoted(text)}")
