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

    def __init__(self, sign_in_flow: SignIn) -> None:
        self.signing_in: bool = False
        self._sign_in_flow = sign_in_flow
        self._origin = origin_of(sign_in_flow.url)
        # The store is read once, before the first request; from then on `_adopt` alone changes the fields
        # that describe the current token, in one step without a wait.
        self._store_was_read = False
        self._record: TokenRecord | None = None
        self._key: ProofKey | None = None
        self._bearer: Mapping[str, str] | None = None
        self._renew_at = math.inf
        self._expires_at = math.inf
        self._auth_server: AuthServerInfo | None = None
        self._requested_scopes: tuple[str, ...] = ()
        self._sign_in_token = ""
        # A token that the MCP server refused right after the sign-in that gave it, and when: another sign-in would end
        # in the same refusal, so none is made for a while.
        self._useless = ("", -math.inf)
        # The sets of scopes that were asked for, by operation: a server that always wants more is asked a few times.
        self._requested_by_operation: OrderedDict[str, set[frozenset[str]]] = OrderedDict()
        self._flight = SingleFlight[None](again=_repeated)

    @property
    def problems(self) -> tuple[str, ...]:
        """The answers of the authorization server that differ from the standards, each once."""
        return self._sign_in_flow.odd.problems

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; none until there is a token.

        Raises:
            ConnectError: The token has expired, and could not be renewed now.
            StoreError: The store cannot be read.
        """
        # A token is for one resource (RFC 8707): a redirect or an endpoint on another host never gets it.
        if origin_of(url) != self._origin:
            return {}
        if not self._store_was_read:
            record = await self._sign_in_flow.stored_record()
            # A request that was refused meanwhile may have obtained a newer one.
            if not self._store_was_read:
                await self._adopt(record)
        if time.time() >= self._renew_at:
            await self._renew_in_time()
        return self._auth_headers(method, url)

    async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
        """Return the headers with which a refused request is sent again, or None to leave it refused.

        Raises:
            AuthRequiredError: A sign-in is needed, and no user agent is configured or the sign-in was refused.
            ConnectError: The authorization server did not respond.
            StoreError: The store cannot be read or written.
        """
        if origin_of(challenge.url) != self._origin:
            return None
        store_nonce(self._sign_in_flow.nonces, challenge.url, challenge.headers)
        challenges = parse_challenges(challenge.headers.get("www-authenticate", ""))
        errors = {each.parameters.get("error") for each in challenges}
        sent = _token_in(challenge.sent)
        # The proof was refused, not the token (RFC 9449, 9). The nonce is read from the proof that was sent, because a
        # concurrent response may have replaced the stored one since. With the same nonce, the server would refuse
        # again.
        if self._key is not None and "use_dpop_nonce" in errors:
            changed = self._sign_in_flow.nonces.get(self._origin) != _nonce_in(challenge.sent)
        elif challenge.status != 403:
            changed = await self._replace(challenge, sent, challenges)
        elif "insufficient_scope" in errors:
            changed = await self._step_up(challenge, sent, challenges)
        else:
            # A 403 without `insufficient_scope` is about the operation (RFC 6750, 3.1): no other token changes it.
            changed = False
        if changed:
            return self._auth_headers(challenge.method, challenge.url)
        return None

    def answered(self, url: str, headers: Mapping[str, str]) -> None:
        """Store the nonce of an answer for the next proof (RFC 9449, 8.2), which is then not refused first."""
        if self._key is not None:
            store_nonce(self._sign_in_flow.nonces, url, headers)

    # the current token

    async def _adopt(self, record: TokenRecord | None) -> None:
        """Make a record the current one."""
        key = None
        if record is not None:
            key = await self._sign_in_flow.proof_key(record)
        self._store_was_read = True
        self._record = record
        self._key = key
        self._bearer = None
        self._renew_at = math.inf
        self._expires_at = math.inf
        if record is None or not record.access_token:
            return
        if key is None:
            self._bearer = {"Authorization": f"Bearer {record.access_token}"}
        if record.expires_at is not None:
            lifetime = max(0.0, record.expires_at - record.saved_at)
            self._expires_at = record.expires_at
            # Before it expires, so that a token does not expire on the way. Only a share of a short life: with the full
            # margin, a token of 20 s would be renewed for each request.
            self._renew_at = record.expires_at - min(_MARGIN_SECONDS, _MARGIN_SHARE * lifetime)

    def _auth_headers(self, method: str, url: str) -> Mapping[str, str]:
        record = self._record
        key = self._key
        if self._bearer is not None:
            return self._bearer
        if record is None or key is None:
            return {}
        token = record.access_token
        nonce = self._sign_in_flow.nonces.get(self._origin)
        return {"Authorization": f"DPoP {token}", "DPoP": key.proof(method, url, token=token, nonce=nonce)}

    def _holds_other_token(self, sent: str) -> bool:
        record = self._record
        return record is not None and record.access_token not in ("", sent)

    async def _adopt_stored(self, sent: str) -> bool:
        """Adopt another, valid token of the store, perhaps of another process; return false if there is none."""
        stored = await self._sign_in_flow.stored_record()
        if stored is None or stored.access_token in ("", sent):
            return False
        if not _is_valid(stored):
            return False
        await self._adopt(stored)
        return True

    # one flight at a time

    async def _renew_in_time(self) -> None:
        """Renew a token that expires soon.

        If its authorization server is not known yet, nothing is done: the refusal of the token will name the server.
        """
        record = self._record
        auth_server = self._auth_server
        if record is None or auth_server is None:
            return
        # A refresh token is sent to its issuer alone: another server could use it there.
        if auth_server.server.issuer != record.key.issuer:
            return
        if record.refresh_token is None and not self._signs_in_alone:
            return

        async def renew() -> None:
            if self._record is record:
                await self._renew_now(auth_server, record)

        try:
            await self._flight.run(None, renew)
        except (ConnectError, StoreError):
            # The token can be used until it expires, and each request until then tries to renew it.
            if time.time() >= self._expires_at:
                raise

    @property
    def _signs_in_alone(self) -> bool:
        return self._sign_in_flow.settings.grant not in PERSONAL

    async def _renew_now(self, auth_server: AuthServerInfo, record: TokenRecord) -> None:
        renewed = None
        if record.refresh_token is not None:
            renewed = await self._sign_in_flow.renew(auth_server, record)
        if renewed is None and self._signs_in_alone:
            renewed = await self._sign_in_flow.authorize(auth_server, self._requested_scopes or record.scopes)
        if renewed is not None:
            await self._adopt(renewed)
        else:
            # No request tries again: the refusal of the token will lead to a sign-in.
            self._renew_at = math.inf

    async def _replace(self, refused: AuthChallenge, sent: str, challenges: Sequence[Challenge]) -> bool:
        """Obtain a token to use instead of the refused one; return false if the request should stay refused.

        Tries, in this order: the token that another request has obtained meanwhile, a token that another process has
        stored, the refresh token, a new sign-in.

        Raises:
            AuthRequiredError: A sign-in is needed, and there is no user to sign in, or the sign-in was refused.
            ConnectError: The authorization server did not respond.
            StoreError: The token store failed.
        """
        if self._holds_other_token(sent) or await self._adopt_stored(sent):
            return True
        stored = await self._sign_in_flow.stored_record()
        if stored is None and not self._sign_in_flow.can_run:
            await self._adopt(None)
            raise self._sign_in_flow.auth_required(status=refused.status)
        if self._is_useless(sent, refused):
            return False

        async def obtain() -> None:
            # Checked again inside the single flight: the request before this one may have obtained a token.
            if not self._holds_other_token(sent):
                await self._renew_or_sign_in(stored, challenges, refused.status)

        await self._flight.run(None, obtain)
        return self._holds_other_token(sent)

    def _is_useless(self, sent: str, refused: AuthChallenge) -> bool:
        """Return whether the server refuses the tokens that its own authorization server gives."""
        if not sent:
            return False
        now = time.monotonic()
        if refused.attempt and sent == self._sign_in_token:
            self._useless = (sent, now)
        token, since = self._useless
        return sent == token and now < since + _USELESS_SECONDS

    async def _renew_or_sign_in(self, stored: TokenRecord | None, challenges: Sequence[Challenge], status: int) -> None:
        """Find the authorization server, which may have changed; renew a token that it issued, or sign in."""
        flow = self._sign_in_flow
        issuer = ""
        if stored is not None:
            issuer = stored.key.issuer
        auth_server = await flow.discover(challenges, issuer=issuer)
        self._auth_server = auth_server
        # A refresh token is sent to its issuer alone: another server could use it there.
        is_issuer = issuer == auth_server.server.issuer
        if stored is not None and stored.refresh_token is not None and is_issuer:
            renewed = await flow.renew(auth_server, stored)
            if renewed is not None:
                await self._adopt(renewed)
                return
        if not flow.can_run:
            raise flow.auth_required(status=status)
        challenge = challenge_for(challenges)
        if challenge is None:
            scopes = flow.scopes(auth_server, [])
        else:
            scopes = flow.scopes(auth_server, [challenge])
        await self._sign_in(auth_server, scopes)

    async def _sign_in(self, auth_server: AuthServerInfo, scopes: Sequence[str]) -> None:
        self.signing_in = True
        try:
            record = await self._sign_in_flow.authorize(auth_server, scopes)
        finally:
            self.signing_in = False
        self._requested_scopes = tuple(scopes)
        self._sign_in_token = record.access_token
        await self._adopt(record)

    async def _step_up(self, refused: AuthChallenge, sent: str, challenges: Sequence[Challenge]) -> bool:
        """Sign in again for the scopes that an operation lacks; return false if the request should stay refused.

        Raises:
            AuthRequiredError: A sign-in is needed, and there is no user to sign in, or the sign-in was refused.
            ConnectError: The authorization server did not respond.
            StoreError: The token store failed.
        """
        if self._holds_other_token(sent):
            return True
        missing = _missing_scopes(challenges)
        if not missing:
            return False
        if await self._adopt_stored(sent):
            return True
        # The new token replaces the current one, so it also needs the scopes of that one.
        union = tuple(dict.fromkeys((*self._current_scopes(), *missing)))
        if not self._sign_in_flow.can_run:
            error = self._sign_in_flow.auth_required(missing, status=403)
            error.scopes = union
            raise error
        if not self._may_step_up(refused.operation, frozenset(union)):
            return False

        async def sign_in() -> None:
            # Checked again inside the single flight: the request before this one may have obtained a token.
            if self._holds_other_token(sent):
                return
            if self._auth_server is None:
                self._auth_server = await self._sign_in_flow.discover(challenges)
            await self._sign_in(self._auth_server, union)

        try:
            await self._flight.run(None, sign_in)
        except AuthRequiredError as exc:
            # Only this operation is refused. The connection itself is authorized.
            exc.status = 403
            raise
        return self._holds_other_token(sent)

    def _current_scopes(self) -> tuple[str, ...]:
        if self._requested_scopes or self._record is None:
            return self._requested_scopes
        return self._record.scopes

    def _may_step_up(self, operation: str, scopes: frozenset[str]) -> bool:
        tried = self._requested_by_operation.setdefault(operation, set())
        self._requested_by_operation.move_to_end(operation)
        if len(self._requested_by_operation) > _MAX_OPERATIONS:
            self._requested_by_operation.popitem(last=False)
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
