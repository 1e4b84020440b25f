"""The headers of requests to one MCP server, by OAuth: a token that is kept, renewed, and asked for when it is refused.

An `AuthHook` of `toolweave.connect`, which it does not know.

Why concurrent refusals lead to one renewal: each compares the token that its request was sent with to the current one,
before and inside the single flight. If they differ, another request has renewed already, and the new token is used; so
a late refusal of an old token never discards a new one. Between processes, `SignIn.renew` holds the lock of the record
and reads it again, so that a refresh token is sent once, as its rotation needs (RFC 9700, 4.14).
"""

from __future__ import annotations

import asyncio
import base64
import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from toolweave._json import decode_json
from toolweave.config import OAuth
from toolweave.errors import AuthRequiredError, ConnectError, ServerError, StoreError
from toolweave.http import origin_of
from toolweave.oauth._auth_challenge import MOST_RESENDS, AuthChallenge
from toolweave.oauth._challenges import Challenge, challenge_for, parse_challenges
from toolweave.oauth._defaults import default_token_store, default_user_agent
from toolweave.oauth._discovery import Discovered
from toolweave.oauth._metadata import resource_of
from toolweave.oauth._records import TokenRecord
from toolweave.oauth._sign_in import PERSONAL, SignIn
from toolweave.oauth._single_flight import SingleFlight
from toolweave.oauth._token_endpoint import take_nonce
from toolweave.protocol.json_types import as_object

if TYPE_CHECKING:
    from toolweave.oauth._jose import ProofKey

_MARGIN_SECONDS = 30.0
_MARGIN_SHARE = 0.1  # of a token that lives for less than five minutes
_MAX_STEPS = 3
_MAX_OPERATIONS = 1_000
_MAX_SOURCES = 1_000
_USELESS_SECONDS = 60.0


class TokenSource:
    """The authorization of the requests of one identity to one MCP server.

    A token that is good costs a look at the clock. One flight at a time renews it or signs in, and no request is held
    up by another request.

    Attributes:
        max_resends: The number of times that one refused request is sent again at most.
        signing_in: Whether a sign-in is under way, for which a person may need minutes.
    """

    max_resends = MOST_RESENDS

    def __init__(self, way: SignIn) -> None:
        self.signing_in: bool = False
        self._way = way
        self._origin = origin_of(way.url)
        self._looked = False
        self._record: TokenRecord | None = None
        self._key: ProofKey | None = None
        self._bearer: Mapping[str, str] | None = None
        self._due = self._end = math.inf
        self._found: Discovered | None = None
        self._asked: tuple[str, ...] = ()
        self._granted = ""
        self._useless = ("", -math.inf)
        self._steps: OrderedDict[str, set[frozenset[str]]] = OrderedDict()
        self._work = SingleFlight[None](again=_repeated)

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; none as long as there is no token.

        Raises:
            ConnectError: The token has expired, and could not be renewed now.
            StoreError: The store cannot be read.
        """
        if origin_of(url) != self._origin:
            return {}
        if not self._looked:
            record = await self._way.find()
            if not self._looked:
                await self._adopt(record)
        if time.time() >= self._due:
            await self._renew_in_time()
        return self._made(method, url)

    async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
        """Return the headers with which a refused request is sent again, or None to leave it refused.

        Raises:
            AuthRequiredError: A sign-in is needed and there is no person, or it was refused.
            ConnectError: It did not work now.
            StoreError: The store cannot be read or written.
        """
        if origin_of(challenge.url) != self._origin:
            return None
        take_nonce(self._way.nonces, challenge.url, challenge.headers)
        challenges = parse_challenges(challenge.headers.get("www-authenticate", ""))
        errors = {each.parameters.get("error") for each in challenges}
        if self._key is not None and "use_dpop_nonce" in errors:
            stale = self._way.nonces.get(self._origin) != _nonce_in(challenge.sent)
            if stale:
                return self._made(challenge.method, challenge.url)
            return None
        sent = _token_in(challenge.sent)
        if challenge.status == 403:
            changed = "insufficient_scope" in errors and await self._step_up(challenge, sent, challenges)
        else:
            changed = await self._replace(challenge, sent, challenges)
        if changed:
            return self._made(challenge.method, challenge.url)
        return None

    def answered(self, url: str, headers: Mapping[str, str]) -> None:
        """Keep the nonce that an answer brings for the next proof (RFC 9449, 8.2), which then is not refused first."""
        if self._key is not None:
            take_nonce(self._way.nonces, url, headers)

    # what is held

    async def _adopt(self, record: TokenRecord | None) -> None:
        """Take a record as the current one."""
        if record is None:
            key = None
        else:
            key = await self._way.proof_key(record)
        self._looked = True
        self._record = record
        self._key = key
        self._bearer = None
        self._due = math.inf
        self._end = math.inf
        if record is None or not record.access_token:
            return
        if key is None:
            self._bearer = {"Authorization": f"Bearer {record.access_token}"}
        if record.expires_at is not None:
            left = max(0.0, record.expires_at - record.saved_at)
            self._end = record.expires_at
            self._due = record.expires_at - min(_MARGIN_SECONDS, _MARGIN_SHARE * left)

    def _made(self, method: str, url: str) -> Mapping[str, str]:
        record = self._record
        key = self._key
        if self._bearer is not None or record is None or key is None:
            return self._bearer or {}
        token = record.access_token
        nonce = self._way.nonces.get(self._origin)
        return {"Authorization": f"DPoP {token}", "DPoP": key.proof(method, url, token=token, nonce=nonce)}

    def _holds_another(self, sent: str) -> bool:
        record = self._record
        return record is not None and record.access_token not in ("", sent)

    async def _found_elsewhere(self, sent: str) -> bool:
        """Return whether the store has another, valid token, perhaps of another process, and take it."""
        kept = await self._way.find()
        if kept is None or kept.access_token in ("", sent) or not _good(kept):
            return False
        await self._adopt(kept)
        return True

    # one flight at a time

    async def _renew_in_time(self) -> None:
        """Renew a token that ends soon, where its authorization server is known; else its refusal will name that."""
        record = self._record
        found = self._found
        if record is None or found is None or found.server.issuer != record.key.issuer:
            return
        alone = self._way.settings.grant not in PERSONAL
        if record.refresh_token is None and not alone:
            return

        async def work() -> None:
            if self._record is not record:
                return
            if record.refresh_token is None:
                renewed = None
            else:
                renewed = await self._way.renew(found, record)
            if renewed is None and alone:
                renewed = await self._way.authorize(found, self._asked or record.scopes)
            if renewed is not None:
                await self._adopt(renewed)
            else:
                self._due = math.inf  # its refusal will lead to a sign-in

        try:
            await self._work.run(None, work)
        except (ConnectError, StoreError):
            if time.time() >= self._end:
                raise

    async def _replace(self, refused: AuthChallenge, sent: str, challenges: Sequence[Challenge]) -> bool:
        """Get another token than the refused one: from the store, by renewing, or by signing in."""
        if self._holds_another(sent):
            return True
        if await self._found_elsewhere(sent):
            return True
        kept = await self._way.find()
        if kept is None and not self._way.can_ask:
            await self._adopt(None)
            raise self._way.missing_person(status=refused.status)
        if sent and sent == self._granted and refused.attempt:
            self._useless = (sent, time.monotonic())
        if sent and sent == self._useless[0] and time.monotonic() < self._useless[1] + _USELESS_SECONDS:
            return False  # the server does not take what its own authorization server gives

        async def work() -> None:
            if not self._holds_another(sent):
                await self._another(kept, challenges, refused.status)

        await self._work.run(None, work)
        return self._holds_another(sent)

    async def _another(self, kept: TokenRecord | None, challenges: Sequence[Challenge], status: int) -> None:
        """Find the authorization server, which may have changed; renew a token of its own, or sign in."""
        way = self._way
        issuer = "" if kept is None else kept.key.issuer
        found = self._found = await way.discover(challenges, issuer=issuer)
        if kept is not None and kept.refresh_token is not None and issuer == found.server.issuer:
            renewed = await way.renew(found, kept)
            if renewed is not None:
                await self._adopt(renewed)
                return
        if not way.can_ask:
            raise way.missing_person(status=status)
        asked = challenge_for(challenges)
        await self._sign_in(found, way.scopes(found, [] if asked is None else [asked]))

    async def _sign_in(self, found: Discovered, scopes: Sequence[str]) -> None:
        self.signing_in = True
        try:
            record = await self._way.authorize(found, scopes)
        finally:
            self.signing_in = False
        self._asked = tuple(scopes)
        self._granted = record.access_token
        await self._adopt(record)

    async def _step_up(self, refused: AuthChallenge, sent: str, challenges: Sequence[Challenge]) -> bool:
        """Ask for the scopes that an operation needs beside those that were asked for: once for each such set."""
        if self._holds_another(sent):
            return True
        wanted = [each.parameters.get("scope", "").split() for each in challenges if "error" in each.parameters]
        more = tuple(dict.fromkeys(scope for scopes in wanted for scope in scopes))
        held = self._asked or (() if self._record is None else self._record.scopes)
        union = tuple(dict.fromkeys((*held, *more)))
        if not more or await self._found_elsewhere(sent):
            return bool(more)
        if not self._way.can_ask:
            missing = self._way.missing_person(more, status=403)
            missing.scopes = union
            raise missing
        if not self._may_step(refused.operation, frozenset(union)):
            return False

        async def work() -> None:
            if not self._holds_another(sent):
                found = self._found = self._found or await self._way.discover(challenges)
                await self._sign_in(found, union)

        try:
            await self._work.run(None, work)
        except AuthRequiredError as exc:
            exc.status = 403  # it is about this operation alone
            raise
        return self._holds_another(sent)

    def _may_step(self, operation: str, scopes: frozenset[str]) -> bool:
        tried = self._steps.setdefault(operation, set())
        self._steps.move_to_end(operation)
        if len(self._steps) > _MAX_OPERATIONS:
            self._steps.popitem(last=False)
        if scopes in tried or len(tried) >= _MAX_STEPS:
            return False
        tried.add(scopes)
        return True


def _token_in(headers: Mapping[str, str]) -> str:
    """Return the token of a request's headers."""
    value = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
    return value.partition(" ")[2]


def _nonce_in(headers: Mapping[str, str]) -> object:
    """Return the nonce in the proof that a request was sent with."""
    proof = next((value for name, value in headers.items() if name.lower() == "dpop"), "")
    payload = proof.split(".")[1] if proof.count(".") == 2 else ""
    try:
        claims = as_object(decode_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))
    except (ValueError, msgspec.DecodeError):
        return None
    if claims is None:
        return None
    return claims.get("nonce")


def _good(record: TokenRecord) -> bool:
    return record.expires_at is None or record.expires_at > time.time()


def _repeated(error: Exception) -> Exception:
    """Return an error for another waiter: each needs one with a traceback of its own."""
    if isinstance(error, AuthRequiredError):
        return AuthRequiredError(error.message, server=error.server, status=error.status, challenge=error.challenge)
    if isinstance(error, ServerError):
        return ConnectError(error.message, server=error.server)
    if isinstance(error, StoreError):
        return StoreError(str(error))
    return error


_sources: WeakKeyDictionary[asyncio.AbstractEventLoop, OrderedDict[tuple[object, ...], TokenSource]] = (
    WeakKeyDictionary()
)


def token_source(
    settings: OAuth, url: str, *, server: str, revision: str = "", configured: bool = False
) -> TokenSource:
    """Return the source of tokens of an identity at the MCP server at a URL; connections of one event loop share it.

    So a token is renewed once for all of them, and what was refused is remembered when one connects again. `configured`
    is whether `server` names an entry of a config file.
    """
    of_loop = _sources.setdefault(asyncio.get_running_loop(), OrderedDict())
    key = (resource_of(url), server, revision, configured, settings)
    source = of_loop.get(key)
    if source is None:
        way = SignIn(
            settings,
            url,
            server=server,
            store=settings.store or default_token_store(),
            user_agent=settings.user_agent or default_user_agent(),
            revision=revision,
            configured=configured,
        )
        source = of_loop[key] = TokenSource(way)
        if len(of_loop) > _MAX_SOURCES:
            of_loop.popitem(last=False)
    of_loop.move_to_end(key)
    return source
