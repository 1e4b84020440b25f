"""Requests of a client to an authorization server: authenticated, with a proof if tokens are bound, answers checked."""

from __future__ import annotations

import base64
import importlib
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, quote

import anyio.to_thread
import msgspec

from toolweave._json_types import as_number, as_text, text_or_empty
from toolweave._masking import mask_foreign
from toolweave._value import Value
from toolweave.config import OAuth, OAuthSecret, Secret, reveal
from toolweave.config.validation import kind_of
from toolweave.http import origin_of
from toolweave.oauth._odd_answers import OddAnswers
from toolweave.oauth._records import ClientRegistration
from toolweave.oauth.fetch import FetchedAnswer, FetchFailed, GuardedFetch, quoted
from toolweave.oauth.metadata import AuthorizationServer

if TYPE_CHECKING:
    from toolweave.oauth._jose import ProofKey

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,512}")
_MAX_NONCES = 2
"""The number of times that a request is sent again with a new nonce. Some servers have another one for each try."""
_MAX_SECONDS = 10 * 365 * 86_400
_SECRET_FIELDS = (
    *("code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "assertion", "subject_token"),
    *("token", "device_code"),
)
_FORM = "application/x-www-form-urlencoded"
_MAX_FORM_FIELDS = 100
_DPOP = "DPoP"
_NO_RESOURCE = "invalid_target"
CLIENT_REFUSALS = ("invalid_client", "unauthorized_client")
"""The errors of a client that is unknown, or not authenticated as the server expects."""


def refusal_text(who: str, code: str, reason: str) -> str:
    """Return the text of a refusal, with the next step where no other try of ours can help.

    Args:
        who: What refuses.
        code: The error code.
        reason: The code and its description, quoted.
    """
    text = f"{who} refuses: {reason}"
    if code == _NO_RESOURCE:  # MCP requires the parameter, and a token without it could be used elsewhere
        text += (
            "; it gives no tokens for this server: let its administrator add the server's URL as a resource "
            "(RFC 8707), or set a token of yours in 'headers'"
        )
    return text


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
    error_description: str | list[str] | None = None

    @property
    def text(self) -> str:
        """The error and its description, which some servers give as a list of texts."""
        described = self.error_description
        if isinstance(described, list):
            described = " ".join(described)
        if not described:
            return self.error
        return f"{self.error}: {described}"


class _Outcome(Value, frozen=True):
    """The members by which a refusal differs from a success, at any HTTP status."""

    error: Any = None
    access_token: Any = None
    device_code: Any = None

    @property
    def is_refusal(self) -> bool:
        """Whether there is an error and nothing that was asked for."""
        if any((self.access_token, self.device_code)):
            return False
        return text_or_empty(self.error) != ""


class TokenResponse(Value, frozen=True):
    """The successful response of a token endpoint (RFC 6749, 5.1), unchanged.

    Only the token is strictly read. The other members have several forms among the servers in use.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token"})

    access_token: str
    token_type: str | None = None
    expires_in: Any = None
    refresh_token: str | None = None
    scope: str | list[str] | None = None
    issued_token_type: str | None = None

    @property
    def seconds(self) -> float | None:
        """The lifetime of the token in seconds; None if it is missing or not plausible."""
        seconds = number_of(self.expires_in)
        if seconds is None:
            return None
        if 0 < seconds <= _MAX_SECONDS:
            return seconds
        return None

    @property
    def oddities(self) -> list[str]:
        """The members that are missing or have another form than that of the standard, and their readings."""
        found: list[str] = []
        if not self.token_type:
            found.append("no 'token_type', read as 'Bearer'")
        if self.expires_in is not None and as_number(self.expires_in) is None:
            read = "a number" if number_of(self.expires_in) is not None else "no end"
            found.append(f"'expires_in' as {kind_of(self.expires_in)}, read as {read}")
        if isinstance(self.scope, list):
            found.append("'scope' as an array, read as a text")
        if self.refresh_token == "":
            found.append("an empty 'refresh_token', read as none")
        return found

    @property
    def kind(self) -> str:
        """The type of the token, `"Bearer"` where the response has none."""
        if not self.token_type:
            return "Bearer"
        return self.token_type

    @property
    def renewal(self) -> str | None:
        """The refresh token; some servers send an empty text for none."""
        if not self.refresh_token:
            return None
        return self.refresh_token

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes of the token; None if the response has none, so that they are the requested ones."""
        if self.scope is None:
            return None
        if isinstance(self.scope, str):
            return tuple(self.scope.split())
        return tuple(self.scope)


@dataclass(slots=True, kw_only=True)
class TokenEndpoint:
    """The token endpoint and its neighbours at an authorization server, for one client.

    Attributes:
        registration: The client. Its method becomes `other_method` once the server refuses the first one.
        other_method: Another method to try if the server refuses the authentication of the client.
        key: The key that its tokens are bound to, if they are bound.
        id_with_basic: Send `client_id` in the form beside HTTP Basic, for servers of the official Python SDK.
        nonces: The last nonce of each origin, which the proofs of the next request carry (RFC 9449, 8).
        odd: Notes answers that differ from the standards.
    """

    fetch: GuardedFetch
    server: AuthorizationServer
    registration: ClientRegistration
    settings: OAuth
    odd: OddAnswers = field(repr=False)
    other_method: str | None = None
    key: ProofKey | None = None
    id_with_basic: bool = True
    nonces: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    async def request(self, form: Mapping[str, str]) -> TokenResponse:
        """Ask for a token.

        Raises:
            TokenRefused: It is refused.
            FetchFailed: No answer arrived, or it is not accepted.
        """
        if self.server.token_endpoint is None:
            raise FetchFailed("its authorization server has no token endpoint", final=True)
        answer = await self.post(self.server.token_endpoint, "the token endpoint", form)
        tokens = self.tokens_in(answer)
        # It becomes part of a header, which a line break in it would end.
        if not _TOKEN.fullmatch(tokens.access_token):
            raise FetchFailed("the token endpoint returned no token", final=True)
        return tokens

    def tokens_in(self, answer: FetchedAnswer) -> TokenResponse:
        """Return the tokens of an answer, and note the members that differ from the standard.

        Raises:
            FetchFailed: The answer is not accepted.
        """
        tokens = answer.decoded(TokenResponse)
        for oddity in tokens.oddities:
            self.odd.note(f"the token endpoint gives {oddity}")
        return tokens

    def bound(self, tokens: TokenResponse) -> TokenResponse:
        """Return tokens that have the requested type: if there is a key, they must be bound to it.

        Raises:
            FetchFailed: The tokens have another type.
        """
        wanted = "Bearer" if self.key is None else _DPOP
        # A token that is not bound although a proof was sent could be used by anybody who gets hold of it.
        given = tokens.kind
        if given.lower() != wanted.lower():
            text = f"the token endpoint gives a token of type {quoted(given)!r} instead of {wanted!r}"
            raise FetchFailed(f"{text}: it is not used", final=True)
        return tokens.replace(token_type=wanted)

    async def post(self, url: str, what: str, form: Mapping[str, str]) -> FetchedAnswer:
        """Post a form as this client and return a successful response.

        The form is sent again if the server requires a nonce in the proof, and once with the other method of
        authentication.

        Raises:
            TokenRefused: It is refused.
            FetchFailed: No answer arrived.
        """
        tries = 0
        while True:
            headers, named = await self._authentication()
            if self.key is not None:
                headers["dpop"] = self.key.proof("POST", url, nonce=self.nonces.get(origin_of(url)))
            sent = {**form, **named}
            received = await self.fetch.post(url, what, sent, headers=headers)
            answer = _with_json(received)
            if answer is not received:
                self.odd.note(f"{what} answers with a form, not with JSON")
            renewed = store_nonce(self.nonces, url, answer.headers)
            if 200 <= answer.status < 300 and not _is_refusal(answer):
                return answer
            refusal = _refusal(answer, what, self._secrets_in(sent))
            if answer.status < 300:
                self.odd.note(f"{what} refuses with the status of a success, {answer.status}")
            # Metadata may name methods that the server does not accept, or omit the one that it does. The one that
            # works is stored with the registration.
            if refusal.code in CLIENT_REFUSALS and self.other_method is not None:
                self.registration = self.registration.replace(method=self.other_method)
                self.other_method = None
                continue
            # a nonce that is not new would only be refused again
            can_repeat = self.key is not None and renewed
            tries += 1
            if tries > _MAX_NONCES or not can_repeat or refusal.code != "use_dpop_nonce":
                raise refusal

    def _secrets_in(self, sent: Mapping[str, str]) -> list[str]:
        """Return the secrets of a request: those of its form, and the one in its `Authorization` header."""
        secrets = [sent[name] for name in _SECRET_FIELDS if name in sent]
        secret = self.registration.client_secret
        if secret is not None:
            # HTTP Basic encodes the secret before the base64
            secrets += [secret, quote(secret, safe="")]
        return secrets

    async def revoke(self, token: str, hint: str) -> None:
        """Revoke a token (RFC 7009).

        Raises:
            TokenRefused: It is refused.
            FetchFailed: The server does not revoke tokens, or no answer arrived.
        """
        if self.server.revocation_endpoint is None:
            raise FetchFailed("its authorization server does not support revocation", final=True)
        form = {"token": token, "token_type_hint": hint}
        await self.post(self.server.revocation_endpoint, "the revocation endpoint", form)

    async def _authentication(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers and the members of the form with which the client names or authenticates itself."""
        client = self.registration.client_id
        secret = self.registration.client_secret
        match self.registration.method:
            case "private_key_jwt":
                jose = await load_jose()
                assertion = jose.client_assertion(
                    client_id=client,
                    audience=self.server.issuer,
                    key=await revealed(self.settings.private_key) or "",
                    algorithm=self.settings.algorithm,
                )
                named = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
                return {}, {"client_id": client, **named}
            case "client_secret_basic" if secret is not None:
                # both are form-encoded first (RFC 6749, 2.3.1)
                pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
                headers = {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
                if self.id_with_basic:
                    return headers, {"client_id": client}
                return headers, {}
            case "client_secret_post" if secret is not None:
                return {}, {"client_id": client, "client_secret": secret}
            case _ if client:
                return {}, {"client_id": client}
            case _:
                return {}, {}


async def load_jose() -> Any:
    """Return the module of signed JWTs; imported in a thread, since the libraries below take a tenth of a second."""
    return await anyio.to_thread.run_sync(importlib.import_module, "toolweave.oauth._jose")


async def revealed(secret: OAuthSecret | None) -> str | None:
    """Return a secret, calling the callable that makes it if there is one."""
    if callable(secret):
        made = secret()
        if inspect.isawaitable(made):
            made = await made
        if isinstance(made, Secret):
            return made.reveal()
        return str(made)
    if secret is None:
        return None
    return reveal(secret)


def store_nonce(nonces: dict[str, str], url: str, headers: Mapping[str, str]) -> bool:
    """Store the nonce of an answer for its origin; return whether it is a new one."""
    nonce = headers.get("dpop-nonce")
    if nonce is None or not _NONCE.fullmatch(nonce):
        return False
    origin = origin_of(url)
    if nonces.get(origin) == nonce:
        return False
    nonces[origin] = nonce
    return True


def number_of(value: object) -> float | None:
    """Return a number that a server may have sent as text; None if it is not a finite number."""
    text = as_text(value)
    if text is None:
        text = str(as_number(value))
    try:
        number = float(text)
    except (ValueError, OverflowError):
        return None
    if math.isfinite(number):
        return number
    return None


def _with_json(answer: FetchedAnswer) -> FetchedAnswer:
    """Return an answer with a JSON body: servers older than RFC 6749 answer with a form."""
    if answer.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return answer
    try:
        members = dict(parse_qsl(answer.body.decode(), max_num_fields=_MAX_FORM_FIELDS))
    except ValueError:
        return answer
    return answer.replace(body=msgspec.json.encode(members))


def _is_refusal(answer: FetchedAnswer) -> bool:
    """Whether an answer with the status of a success is a refusal, as from servers that have one status for all."""
    try:
        return answer.decoded(_Outcome).is_refusal
    except FetchFailed:
        return False


def _refusal(answer: FetchedAnswer, what: str, secrets: Iterable[str]) -> TokenRefused:
    """Return the refusal in an answer, without the secrets that it may repeat.

    Raises:
        FetchFailed: The answer is not an OAuth error: the server is overloaded, or not an authorization server.
    """
    temporary = answer.status == 429 or answer.status >= 500
    try:
        body = answer.decoded(RefusalBody)
    except FetchFailed:
        raise FetchFailed(f"{what} answers HTTP {answer.status}", final=not temporary) from None
    text = mask_foreign(body.text, secrets)
    # Even with an OAuth error in it: an overloaded server has not judged the token, which must not be dropped.
    if temporary:
        raise FetchFailed(f"{what} answers HTTP {answer.status}: {quoted(text)}", final=False)
    return TokenRefused(body.error, refusal_text(what, body.error, quoted(text)))
