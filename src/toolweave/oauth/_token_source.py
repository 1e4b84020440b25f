"""The headers of requests to one MCP server, by OAuth: a stored token, renewed in time and replaced when it is refused.

An `AuthHook` of `toolweave.connect`, which it does not know.
"""

# Why concurrent refusals lead to one renewal: each compares the token that its request was sent with to the current
# one, before and inside the single flight. If they differ, another request has renewed already, and the new token is
# used. So a late refusal of an old token never discards a new one. Between processes, `SignIn.renew` holds the lock of
# the record and reads it again, so that a refresh token is sent once, as its rotation requires (RFC 9700, 4.14).

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
from toolweave._json_types import object_or_empty
from toolweave.config import OAuth
from toolweave.errors import AuthRequiredError, ConnectError, ServerError, StoreError
from toolweave.http import origin_of
from toolweave.oauth._auth_challenge import MAX_RESENDS, AuthChallenge
from toolweave.oauth._challenges import Challenge, challenge_for, parse_challenges
from toolweave.oauth._defaults import default_token_store, default_user_agent
from toolweave.oauth._discovery import AuthServerInfo
from toolweave.oauth._records import TokenRecord
from toolweave.oauth._sign_in import PERSONAL, SignIn
from toolweave.oauth._single_flight import SingleFlight
from toolweave.oauth._token_endpoint import store_nonce
from toolweave.oauth.metadata import resource_of

if TYPE_CHECKING:
    from toolweave.oauth._jose import ProofKey

_MARGIN_SECONDS = 30.0
_MARGIN_SHARE = 0.1
"""The part of its life before which a token is renewed that lives for less than five minutes."""
_MAX_STEPS = 3
_MAX_OPERATIONS = 1_000
_MAX_SOURCES = 1_000
_USELESS_SECONDS = 60.0


class TokenSource:
    """The authorization of the requests of one identity to one MCP server.

    For a valid token, only the clock is read. One flight at a time renews it or signs in, and no request waits for
    another request.

    Attributes:
        max_resends: The maximum number of times that one refused request is sent again.
        signing_in: Whether a sign-in is in progress, for which a person may need minutes.
    """

    max_resends = MAX_RESENDS

    def __init__(self, way: SignIn) -> None:
        self.signing_in: bool = False
        self._way = way
        self._origin = origin_of(way.url)
        # The store is read once, before the first request; from then on `_adopt` alone changes the fields
        # that describe the current token, in one step without a wait.
        self._looked = False
        self._record: TokenRecord | None = None
        self._key: ProofKey | None = None
        self._bearer: Mapping[str, str] | None = None
        self._due = math.inf
        self._end = math.inf
        self._found: AuthServerInfo | None = None
        self._asked: tuple[str, ...] = ()
        self._granted = ""
        # A token that the MCP server refused right after the sign-in that gave it, and when: another sign-in would end
        # in the same refusal, so none is made for a while.
        self._useless = ("", -math.inf)
        # The sets of scopes that were asked for, by operation: a server that always wants more is asked a few times.
        self._steps: OrderedDict[str, set[frozenset[str]]] = OrderedDict()
        self._work = SingleFlight[None](again=_repeated)

    @property
    def problems(self) -> tuple[str, ...]:
        """The answers of the authorization server that differ from the standards, each once."""
        return self._way.odd.problems

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; none until there is a token.

        Raises:
            ConnectError: The token has expired, and could not be renewed now.
            StoreError: The store cannot be read.
        """
        # A token is for one resource (RFC 8707): a redirect or an endpoint on another host never gets it.
        if origin_of(url) != self._origin:
            return {}
        if not self._looked:
            record = await self._way.find()
            # a request that was refused meanwhile may have a newer one
            if not self._looked:
                await self._adopt(record)
        if time.time() >= self._due:
            await self._renew_in_time()
        return self._made(method, url)

    async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
        """Return the headers with which a refused request is sent again, or None to leave it refused.

        Raises:
            AuthRequiredError: A sign-in is needed and no user agent is configured, or it was refused.
            ConnectError: It did not work now.
            StoreError: The store cannot be read or written.
        """
        if origin_of(challenge.url) != self._origin:
            return None
        store_nonce(self._way.nonces, challenge.url, challenge.headers)
        challenges = parse_challenges(challenge.headers.get("www-authenticate", ""))
        errors = {each.parameters.get("error") for each in challenges}
        sent = _token_in(challenge.sent)
        # The proof was refused, not the token (RFC 9449, 9). The nonce is read from the proof that was sent, because a
        # concurrent response may have replaced the stored one since. With the same nonce, the server would refuse
        # again.
        if self._key is not None and "use_dpop_nonce" in errors:
            changed = self._way.nonces.get(self._origin) != _nonce_in(challenge.sent)
        elif challenge.status != 403:
            changed = await self._replace(challenge, sent, challenges)
        elif "insufficient_scope" in errors:
            changed = await self._step_up(challenge, sent, challenges)
        else:
            # A 403 without `insufficient_scope` is about the operation (RFC 6750, 3.1): no other token changes it.
            changed = False
        if changed:
            return self._made(challenge.method, challenge.url)
        return None

    def answered(self, url: str, headers: Mapping[str, str]) -> None:
        """Store the nonce of an answer for the next proof (RFC 9449, 8.2), which is then not refused first."""
        if self._key is not None:
            store_nonce(self._way.nonces, url, headers)

    # the current token

    async def _adopt(self, record: TokenRecord | None) -> None:
        """Make a record the current one."""
        key = None
        if record is not None:
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
            # Before its end, so that a token does not expire on the way. Only a share of a short life: with the full
            # margin, a token of 20 s would be renewed for each request.
            self._due = record.expires_at - min(_MARGIN_SECONDS, _MARGIN_SHARE * left)

    def _made(self, method: str, url: str) -> Mapping[str, str]:
        record = self._record
        key = self._key
        if self._bearer is not None:
            return self._bearer
        if record is None or key is None:
            return {}
        token = record.access_token
        nonce = self._way.nonces.get(self._origin)
        return {"Authorization": f"DPoP {token}", "DPoP": key.proof(method, url, token=token, nonce=nonce)}

    def _holds_another(self, sent: str) -> bool:
        record = self._record
        return record is not None and record.access_token not in ("", sent)

    async def _found_elsewhere(self, sent: str) -> bool:
        """Adopt another, valid token that is in the store, perhaps of another process; return whether there is one."""
        kept = await self._way.find()
        if kept is None or kept.access_token in ("", sent):
            return False
        if not _is_valid(kept):
            return False
        await self._adopt(kept)
        return True

    # one flight at a time

    async def _renew_in_time(self) -> None:
        """Renew a token that ends soon if its authorization server is known, else its refusal will name the server."""
        record = self._record
        found = self._found
        if record is None or found is None:
            return
        # A refresh token is sent to its issuer alone: another server could use it there.
        if found.server.issuer != record.key.issuer:
            return
        if record.refresh_token is None and not self._signs_in_alone:
            return

        async def work() -> None:
            if self._record is record:
                await self._renew_now(found, record)

        try:
            await self._work.run(None, work)
        except (ConnectError, StoreError):
            # the token can still be used until its end, and each request until then tries again
            if time.time() >= self._end:
                raise

    @property
    def _signs_in_alone(self) -> bool:
        return self._way.settings.grant not in PERSONAL

    async def _renew_now(self, found: AuthServerInfo, record: TokenRecord) -> None:
        renewed = None
        if record.refresh_token is not None:
            renewed = await self._way.renew(found, record)
        if renewed is None and self._signs_in_alone:
            renewed = await self._way.authorize(found, self._asked or record.scopes)
        if renewed is not None:
            await self._adopt(renewed)
        else:
            # no request tries again: the refusal of the token will lead to a sign-in
            self._due = math.inf

    async def _replace(self, refused: AuthChallenge, sent: str, challenges: Sequence[Challenge]) -> bool:
        """Get another token than the refused one: from the store, by renewing, or by signing in."""
        if self._holds_another(sent) or await self._found_elsewhere(sent):
            return True
        kept = await self._way.find()
        if kept is None and not self._way.can_ask:
            await self._adopt(None)
            raise self._way.missing_person(status=refused.status)
        if self._is_useless(sent, refused):
            return False

        async def work() -> None:
            if not self._holds_another(sent):
                await self._another(kept, challenges, refused.status)

        await self._work.run(None, work)
        return self._holds_another(sent)

    def _is_useless(self, sent: str, refused: AuthChallenge) -> bool:
        """Return whether the server refuses the tokens that its own authorization server gives."""
        if not sent:
            return False
        now = time.monotonic()
        if refused.attempt and sent == self._granted:
            self._useless = (sent, now)
        token, since = self._useless
        return sent == token and now < since + _USELESS_SECONDS

    async def _another(self, kept: TokenRecord | None, challenges: Sequence[Challenge], status: int) -> None:
        """Find the authorization server, which may have changed; renew a token that it issued, or sign in."""
        way = self._way
        issuer = ""
        if kept is not None:
            issuer = kept.key.issuer
        found = self._found = await way.discover(challenges, issuer=issuer)
        is_of_server = issuer == found.server.issuer
        if kept is not None and kept.refresh_token is not None and is_of_server:
            renewed = await way.renew(found, kept)
            if renewed is not None:
                await self._adopt(renewed)
                return
        if not way.can_ask:
            raise way.missing_person(status=status)
        challenge = challenge_for(challenges)
        if challenge is None:
            scopes = way.scopes(found, [])
        else:
            scopes = way.scopes(found, [challenge])
        await self._sign_in(found, scopes)

    async def _sign_in(self, found: AuthServerInfo, scopes: Sequence[str]) -> None:
        self.signing_in = True
        try:
            record = await self._way.authorize(found, scopes)
        finally:
            self.signing_in = False
        self._asked = tuple(scopes)
        self._granted = record.access_token
        await self._adopt(record)

    async def _step_up(self, refused: AuthChallenge, sent: str, challenges: Sequence[Challenge]) -> bool:
        """Ask for the scopes that an operation needs beside the current ones: once for each such set."""
        if self._holds_another(sent):
            return True
        more = _missing_scopes(challenges)
        if not more:
            return False
        if await self._found_elsewhere(sent):
            return True
        # The new token replaces the current one, so it also needs the scopes of that one.
        union = tuple(dict.fromkeys((*self._current_scopes(), *more)))
        if not self._way.can_ask:
            missing = self._way.missing_person(more, status=403)
            missing.scopes = union
            raise missing
        if not self._may_step(refused.operation, frozenset(union)):
            return False

        async def work() -> None:
            if self._holds_another(sent):
                return
            if self._found is None:
                self._found = await self._way.discover(challenges)
            await self._sign_in(self._found, union)

        try:
            await self._work.run(None, work)
        except AuthRequiredError as exc:
            # only this operation is refused: the connection itself is authorized
            exc.status = 403
            raise
        return self._holds_another(sent)

    def _current_scopes(self) -> tuple[str, ...]:
        if self._asked or self._record is None:
            return self._asked
        return self._record.scopes

    def _may_step(self, operation: str, scopes: frozenset[str]) -> bool:
        tried = self._steps.setdefault(operation, set())
        self._steps.move_to_end(operation)
        if len(self._steps) > _MAX_OPERATIONS:
            self._steps.popitem(last=False)
        if scopes in tried or len(tried) >= _MAX_STEPS:
            return False
        tried.add(scopes)
        return True


def _missing_scopes(challenges: Sequence[Challenge]) -> tuple[str, ...]:
    """Return the scopes that challenges with an error name, each once."""
    found: list[str] = []
    for each in challenges:
        if "error" in each.parameters:
            found += each.parameters.get("scope", "").split()
    return tuple(dict.fromkeys(found))


def _header(headers: Mapping[str, str], wanted: str) -> str:
    for name, value in headers.items():
        if name.lower() == wanted:
            return value
    return ""


def _token_in(headers: Mapping[str, str]) -> str:
    """Return the token of a request's headers."""
    return _header(headers, "authorization").partition(" ")[2]


def _nonce_in(headers: Mapping[str, str]) -> object:
    """Return the nonce in the proof that a request was sent with."""
    parts = _header(headers, "dpop").split(".")
    if len(parts) != 3:
        return None
    payload = parts[1]
    padding = "=" * (-len(payload) % 4)
    try:
        claims = decode_json(base64.urlsafe_b64decode(payload + padding))
    except (ValueError, msgspec.DecodeError):
        return None
    return object_or_empty(claims).get("nonce")


def _is_valid(record: TokenRecord) -> bool:
    return record.expires_at is None or record.expires_at > time.time()


def _repeated(error: Exception) -> Exception:
    """Return a copy of an error for another waiter: an exception that is raised twice has both tracebacks."""
    if isinstance(error, AuthRequiredError):
        return AuthRequiredError(error.message, server=error.server, status=error.status, challenge=error.challenge)
    if isinstance(error, ServerError):
        return ConnectError(error.message, server=error.server)
    if isinstance(error, StoreError):
        return StoreError(str(error))
    return error


# By event loop, because the lock of a source belongs to a loop, and weakly, so that a loop that has ended is freed. The
# least recently used source is dropped when there are too many: its connections keep it, only new ones get another.
_sources: WeakKeyDictionary[asyncio.AbstractEventLoop, OrderedDict[tuple[object, ...], TokenSource]] = (
    WeakKeyDictionary()
)


def token_source(
    settings: OAuth, url: str, *, server: str, revision: str = "", configured: bool = False
) -> TokenSource:
    """Return the source of tokens of an identity at the MCP server at a URL; connections of one event loop share it.

    A token is renewed once for all connections, and a refusal is remembered when one connects again. `configured` is
    whether `server` names an entry of a config file.
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
