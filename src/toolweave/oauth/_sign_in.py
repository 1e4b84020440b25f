"""The sign-in of one identity at the authorization server of one MCP server: found, asked, kept, renewed, revoked."""

from __future__ import annotations

import shlex
import time
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from toolweave._value import Value
from toolweave.config import OAuth
from toolweave.errors import AuthRequiredError, ConfigError, ConnectError
from toolweave.oauth._challenges import Challenge, parse_challenges
from toolweave.oauth._code_flow import OFFLINE_ACCESS, begin, check_pkce, redeemed
from toolweave.oauth._discovery import AuthServerInfo, discover
from toolweave.oauth._grants import device_tokens, machine_tokens
from toolweave.oauth._odd_answers import OddAnswers
from toolweave.oauth._records import ClientRegistration, TokenKey, TokenRecord, TokenStore
from toolweave.oauth._registration import given_client, other_method, register, usable
from toolweave.oauth._token_endpoint import CLIENT_REFUSALS, TokenEndpoint, TokenRefused, TokenResponse, load_jose
from toolweave.oauth._user_agent import RedirectListener, UserAgent
from toolweave.oauth.fetch import FetchFailed, GuardedFetch, shown_url
from toolweave.oauth.metadata import AuthorizationServer, is_same_issuer, resource_of

if TYPE_CHECKING:
    from toolweave.oauth._jose import ProofKey

PERSONAL = ("authorization_code", "device_code")
"""The grants that need a person."""
LOCK_SECONDS = 30.0
"""The wait for another process that renews the same token."""
_DROPPING = ("invalid_grant", *CLIENT_REFUSALS)
_PROBE = {"accept": "application/json, text/event-stream"}
_COMMAND_HAS = frozenset(
    {"grant", "scopes", "principal", "timeout", "user_agent", "client_name", "redirect_port", "options"}
)
"""The settings of a sign-in from code that the command gives as well, or does without."""


class SignedOut(Value, frozen=True):
    """A token that was given up.

    Attributes:
        key: The identity of the token.
        revoked: Whether it was revoked at its authorization server.
        problem: The reason why it was not revoked; empty if it was.
    """

    key: TokenKey
    revoked: bool
    problem: str = ""


class SignIn:
    """One identity at one MCP server: its record in the store, and the ways to a new one.

    It has no state but nonces: `TokenSource` holds the token, and its single flight orders the calls.

    Attributes:
        settings: The settings.
        url: The URL of the MCP server.
        server: Its name, for messages.
        configured: Whether `server` names an entry of a config file, where the command `toolweave auth login` finds it.
        nonces: The last nonces of authorization servers and of the MCP server, by origin.
        odd: Notes answers of the authorization server that differ from the standards.

    Raises:
        AuthRequiredError: In each method: it is refused, or a person is missing; another try is useless.
        ConnectError: In each method: it did not work this time.
    """

    def __init__(
        self,
        settings: OAuth,
        url: str,
        *,
        server: str,
        store: TokenStore,
        user_agent: UserAgent | None = None,
        revision: str = "",
        configured: bool = False,
    ) -> None:
        self.settings = settings
        self.url = url
        self.server = server
        self.configured = configured
        self.nonces: dict[str, str] = {}
        self.odd: OddAnswers = OddAnswers(f"server {server!r}: signing in")
        self._store = store
        self._user_agent = user_agent
        self._revision = revision
        self._resource = resource_of(url)
        vouched = (settings.issuer, settings.metadata_url, settings.idp_token_endpoint)
        self._fetch = GuardedFetch((url, *vouched))

    @property
    def can_run(self) -> bool:
        """Whether the grant can run: one that needs a person requires a user agent."""
        return self._user_agent is not None or self.settings.grant not in PERSONAL

    async def stored_record(self) -> TokenRecord | None:
        """Return the newest stored record with a token of this identity; only of a configured issuer if there is one.

        Raises:
            StoreError: The store cannot be read.
        """
        for record in await self._records():
            if record.access_token or record.refresh_token:
                return record
        return None

    async def discover(self, challenges: Sequence[Challenge] = (), *, issuer: str = "") -> AuthServerInfo:
        """Find the authorization server; `issuer` is the issuer of the current token."""
        with self._as_server_errors():
            found = await discover(
                self._fetch, self.settings, self.url, challenges, revision=self._revision, issuer=issuer
            )
        for oddity in found.oddities:
            self.odd.note(oddity)
        if found.other_spelling:
            own = shown_url(found.server.issuer)
            self.odd.note(f"the server names the issuer {shown_url(found.other_spelling)!r}, its metadata {own!r}")
        return found

    def scopes(self, found: AuthServerInfo, challenges: Sequence[Challenge]) -> tuple[str, ...]:
        """Return the scopes to ask for: the configured ones, the challenge's, those of the metadata, or none."""
        if self.settings.scopes:
            return tuple(self.settings.scopes)
        scopes = found.scopes
        for challenge in challenges:
            if "scope" in challenge.parameters:
                scopes = tuple(dict.fromkeys(challenge.parameters["scope"].split()))
                break
        if not scopes or OFFLINE_ACCESS in scopes:
            return scopes
        # for a refresh token, so that the person does not have to sign in each time the token ends
        if self.settings.grant in PERSONAL and OFFLINE_ACCESS in (found.server.scopes_supported or ()):
            return (*scopes, OFFLINE_ACCESS)
        return scopes

    async def authorize(self, found: AuthServerInfo, scopes: Sequence[str]) -> TokenRecord:
        """Get a new token by the grant of the settings, and keep it.

        Raises:
            StoreError: It cannot be kept.
        """
        if not self.can_run:
            raise self.auth_required()
        kept = await self._kept(found.server)
        if not usable(kept, scopes):
            kept = None
        with self._as_server_errors(found.server):
            key = await self._proof_key(found)
            if self.settings.grant == "authorization_code":
                endpoint, tokens = await self._by_code(found, scopes, kept, key)
            else:
                client = await given_client(self.settings, found.server) or kept
                if client is None:
                    client = await register(self._fetch, self.settings, found.server, None, scopes, odd=self.odd)
                endpoint = self._endpoint(found.server, client, key)
                if self.settings.grant == "device_code":
                    assert self._user_agent is not None
                    tokens = await device_tokens(
                        endpoint, found, scopes, user_agent=self._user_agent, server=self.server
                    )
                else:
                    tokens = await machine_tokens(endpoint, found, scopes)
                tokens = endpoint.bound(tokens)
        return await self._saved(found.server.issuer, tokens, scopes, endpoint.registration, key)

    async def renew(self, found: AuthServerInfo, record: TokenRecord) -> TokenRecord | None:
        """Renew a token, once among all processes that share the store; None where a new sign-in is needed.

        Raises:
            StoreError: The store cannot be read or written, or another process holds the record for too long.
        """
        async with self._store.locked(record.key, seconds=LOCK_SECONDS):
            current = await self._store.load(record.key)
            if current is None:
                # signed out meanwhile
                return None
            if current.access_token != record.access_token:
                # another process was first
                return current
            if current.refresh_token is None or current.registration is None:
                return None
            # The server may have replaced the refresh token when its answer is lost, and then the session is lost. So
            # a cancellation waits for the answer, within the time bound of the request.
            with anyio.CancelScope(shield=True):
                return await self._refreshed(found, current, current.refresh_token, current.registration)

    async def revoke(self, record: TokenRecord) -> str:
        """Revoke a record's tokens at its issuer (RFC 7009); return the reason why that cannot be done, or nothing."""
        try:
            found = await discover(
                self._fetch, self.settings, self.url, revision=self._revision, issuer=record.key.issuer
            )
            if found.server.issuer != record.key.issuer:
                return "its authorization server has moved since: the token is not sent to another one"
            if record.registration is None:
                return "the client it was issued to is not known"
            endpoint = self._endpoint(found.server, record.registration, await self._read_key(record))
            # The refresh token first: it lives longer, and its revocation should end the access tokens of the grant as
            # well (RFC 7009, 2.1), even if the second request fails.
            if record.refresh_token:
                await endpoint.revoke(record.refresh_token, "refresh_token")
            await endpoint.revoke(record.access_token, "access_token")
        except (FetchFailed, TokenRefused, ConfigError) as exc:
            return str(exc)
        return ""

    async def forget(self, record: TokenRecord) -> SignedOut:
        """Revoke a record's tokens if that is possible, and delete it."""
        problem = "it had no token"
        if record.access_token:
            problem = await self.revoke(record)
        await self._store.delete(record.key)
        return SignedOut(key=record.key, revoked=not problem, problem=problem)

    async def probe(self) -> list[Challenge]:
        """Return the challenges with which the MCP server answers a request without a token."""
        with self._as_server_errors():
            answer = await self._fetch.get(self.url, "the response of the server", headers=_PROBE)
        return parse_challenges(answer.headers.get("www-authenticate", ""))

    def auth_required(self, scopes: Sequence[str] = (), *, status: int | None = None) -> AuthRequiredError:
        """Return the error of a connection that cannot sign in, with what to do."""
        text = f"a sign-in is required: {self._remedy(scopes)}, then try again"
        return AuthRequiredError(text, server=self.server, status=status)

    def _remedy(self, scopes: Sequence[str]) -> str:
        """Return the command that signs in, or the function if the command cannot be given these settings."""
        settings = self.settings
        if not self.configured and not _COMMAND_HAS.issuperset(settings.without_defaults()):
            named = ""
            if scopes:
                named = f" and the scopes {' '.join(scopes)!r}"
            return f"call `toolweave.oauth.sign_in` with the same settings{named}"
        words = ["toolweave", "auth", "login"]
        wanted = tuple(scopes)
        if self.configured:
            words.append(self.server)
        else:
            # the command does not know these settings, so they are arguments
            words.append(self.url)
            wanted = (*settings.scopes, *scopes)
            if settings.grant == "device_code":
                words.append("--device")
        if settings.principal:
            words += ["--principal", settings.principal]
        for scope in dict.fromkeys(wanted):
            words += ["--scope", scope]
        return f"run `{shlex.join(words)}`"

    async def proof_key(self, record: TokenRecord) -> ProofKey | None:
        """Return the key that a record's token is bound to."""
        with self._as_server_errors():
            return await self._read_key(record)

    # the parts

    async def _records(self) -> list[TokenRecord]:
        found = await self._store.records(resource=self._resource, principal=self.settings.principal)
        return [one for one in found if self._is_mine(one.key)]

    def _is_mine(self, key: TokenKey) -> bool:
        issuer = self.settings.issuer
        if issuer and not is_same_issuer(issuer, key.issuer):
            return False
        return key.client == self._client

    @property
    def _client(self) -> str:
        return self.settings.client_id or self.settings.client_metadata_url

    def _key(self, issuer: str) -> TokenKey:
        return TokenKey(issuer=issuer, resource=self._resource, client=self._client, principal=self.settings.principal)

    async def _kept(self, server: AuthorizationServer) -> ClientRegistration | None:
        """Return the client that is registered at a server; a configured one is not used at another server.

        Raises:
            AuthRequiredError: The configured client belongs to another server.
        """
        record = await self._store.load(self._key(server.issuer))
        if record is not None:
            return record.registration
        if self.settings.client_id and not self.settings.issuer:
            others = sorted({one.key.issuer for one in await self._records()})
            if others:
                text = (
                    f"its authorization server is {server.issuer!r} now, and was {others[0]!r}: 'oauth.client_id' is "
                    "not sent there; make sure that it has moved, register anew there, and set 'oauth.issuer' with it"
                )
                raise AuthRequiredError(text, server=self.server)
        return None

    async def _proof_key(self, found: AuthServerInfo) -> ProofKey | None:
        """Return a new key if tokens are to be bound to one."""
        wanted = self.settings.dpop
        if wanted is None:
            binds = found.dpop
        else:
            binds = wanted
        if not binds:
            return None
        offered = found.server.dpop_signing_alg_values_supported or ()
        # a server that requires proofs by itself is tried even if it does not list the algorithm
        if wanted and "ES256" not in offered:
            text = f"its authorization server {found.server.issuer!r} binds no tokens to keys with ES256"
            raise FetchFailed(f"{text}, which 'oauth.dpop' demands", final=True)
        return (await load_jose()).ProofKey.new()

    async def _read_key(self, record: TokenRecord) -> ProofKey | None:
        if record.dpop_key is None:
            return None
        try:
            return (await load_jose()).ProofKey.of(record.dpop_key)
        except ValueError as exc:
            raise FetchFailed(f"the key of its token cannot be read: {exc}", final=True) from None

    async def _by_code(
        self, found: AuthServerInfo, scopes: Sequence[str], kept: ClientRegistration | None, key: ProofKey | None
    ) -> tuple[TokenEndpoint, TokenResponse]:
        """Let a person sign in in a browser, and redeem the code."""
        check_pkce(found)
        if found.server.authorization_endpoint is not None:
            await self._fetch.judged(found.server.authorization_endpoint, "the authorization endpoint")
        given = await given_client(self.settings, found.server)
        if given is not None:
            kept = None
        thumbprint = None
        if key is not None:
            thumbprint = key.thumbprint
        async with AsyncExitStack() as stack:
            # Before the registration, because the port of the listener is part of the redirect URI that is registered.
            listener, kept = await self._listener(stack, kept)
            client = given or kept
            if client is None:
                redirect_uri = listener.redirect_uri
                client = await register(self._fetch, self.settings, found.server, redirect_uri, scopes, odd=self.odd)
            request = begin(found, client.client_id, listener.redirect_uri, scopes, thumbprint=thumbprint)
            with anyio.fail_after(self.settings.timeout):
                response = await listener.response(request.url, state=request.state)
            form = redeemed(request, response, found.server, found.resource)
        endpoint = self._endpoint(found.server, client, key)
        return endpoint, endpoint.bound(await endpoint.request(form))

    async def _listener(
        self, stack: AsyncExitStack, kept: ClientRegistration | None
    ) -> tuple[RedirectListener, ClientRegistration | None]:
        """Open the listener on the port of a registered client, or on a free port without that client."""
        assert self._user_agent is not None
        server = self.server
        seconds = self.settings.timeout
        registered = ""
        if kept is not None and kept.redirect_uris:
            registered = kept.redirect_uris[0]
        port = self.settings.redirect_port or urlsplit(registered).port
        try:
            opening = self._user_agent.listener(server=server, seconds=seconds, port=port)
            listener = await stack.enter_async_context(opening)
        except OSError as exc:
            if self.settings.redirect_port is not None:
                text = f"the port {port} of 'oauth.redirect_port' cannot be listened on: {exc}"
                raise FetchFailed(text, final=False) from None
            listener = await stack.enter_async_context(self._user_agent.listener(server=server, seconds=seconds))
        if listener.redirect_uri != registered:
            # some servers compare the port as well, so the client is registered again
            return listener, None
        return listener, kept

    async def _refreshed(
        self, found: AuthServerInfo, record: TokenRecord, refresh_token: str, registration: ClientRegistration
    ) -> TokenRecord | None:
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "resource": found.resource}
        with self._as_server_errors(found.server):
            try:
                endpoint = self._endpoint(found.server, registration, await self._read_key(record))
                tokens = endpoint.bound(await endpoint.request(form))
            except TokenRefused as exc:
                # After any other error, such as of a server that is down, the refresh token can still be used.
                if exc.code not in _DROPPING:
                    raise FetchFailed(str(exc), final=False) from None
                known: ClientRegistration | None = registration
                if exc.code in CLIENT_REFUSALS and not self.settings.client_id:
                    # the server has forgotten the client, which is registered again
                    known = None
                await self._store.save(record.replace(refresh_token=None, registration=known, saved_at=time.time()))
                return None
        # Without a new refresh token, the old one stays valid (RFC 6749, 6).
        tokens = tokens.replace(refresh_token=tokens.refresh_token or refresh_token)
        client = endpoint.registration
        return await self._saved(record.key.issuer, tokens, record.scopes, client, None, record.dpop_key)

    def _endpoint(self, server: AuthorizationServer, client: ClientRegistration, key: ProofKey | None) -> TokenEndpoint:
        return TokenEndpoint(
            fetch=self._fetch,
            server=server,
            registration=client,
            settings=self.settings,
            other_method=other_method(self.settings, server, client),
            key=key,
            nonces=self.nonces,
            odd=self.odd,
        )

    async def _saved(
        self,
        issuer: str,
        tokens: TokenResponse,
        scopes: Sequence[str],
        client: ClientRegistration,
        key: ProofKey | None,
        pem: str | None = None,
    ) -> TokenRecord:
        now = time.time()
        expires_at = None
        if tokens.seconds is not None:
            expires_at = now + tokens.seconds
        # An omitted scope means that all the requested ones were granted (RFC 6749, 5.1).
        if tokens.scopes is not None:
            scopes = tokens.scopes
        if key is not None:
            pem = key.pem()
        record = TokenRecord(
            key=self._key(issuer),
            access_token=tokens.access_token,
            token_type=tokens.kind,
            expires_at=expires_at,
            refresh_token=tokens.renewal,
            scopes=tuple(scopes),
            registration=client,
            dpop_key=pem,
            saved_at=now,
        )
        await self._store.save(record)
        return record

    @contextmanager
    def _as_server_errors(self, server: AuthorizationServer | None = None) -> Generator[None, None, None]:
        """Turn errors within the block into errors of the server, without a secret in them."""
        where = ""
        if server is not None:
            where = f" at {server.issuer!r}"
        try:
            yield
        except (TokenRefused, ConfigError) as exc:
            raise AuthRequiredError(f"signing in{where} was refused: {exc}", server=self.server) from None
        except FetchFailed as exc:
            if exc.final:
                raise AuthRequiredError(f"signing in{where} is not possible: {exc}", server=self.server) from None
            raise ConnectError(f"signing in{where} failed: {exc}", server=self.server) from None
        except TimeoutError:
            text = f"the sign-in was not completed within {self.settings.timeout:g} s; try again"
            raise AuthRequiredError(text, server=self.server) from None


async def sign_in(
    settings: OAuth,
    url: str,
    *,
    server: str,
    store: TokenStore,
    user_agent: UserAgent | None = None,
    scopes: Sequence[str] = (),
    revision: str = "",
) -> TokenRecord:
    """Sign in to the MCP server at a URL by the grant of the settings, and keep the token.

    It is always a new sign-in, never a silent renewal. `scopes` are requested beside those that the server requires;
    `revision` is the configured protocol revision of the server.

    Raises:
        AuthRequiredError: It is refused, no user agent is given, or the metadata are not accepted.
        ConnectError: The server or its authorization server did not answer.
        StoreError: The token cannot be kept.
    """
    flow = SignIn(settings, url, server=server, store=store, user_agent=user_agent, revision=revision)
    if not flow.can_run:
        raise flow.auth_required(scopes)
    challenges = await flow.probe()
    found = await flow.discover(challenges)
    wanted = tuple(dict.fromkeys((*flow.scopes(found, challenges), *scopes)))
    return await flow.authorize(found, wanted)


async def sign_out(settings: OAuth, url: str, *, server: str, store: TokenStore) -> tuple[SignedOut, ...]:
    """Give up every token of a principal for the MCP server at a URL: each is revoked if possible, and deleted.

    Raises:
        StoreError: The store cannot be read or written.
    """
    flow = SignIn(settings, url, server=server, store=store)
    records = await store.records(resource=resource_of(url), principal=settings.principal)
    return tuple([await flow.forget(record) for record in records])
