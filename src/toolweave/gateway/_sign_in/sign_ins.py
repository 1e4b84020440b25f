"""Sign-ins of callers at upstreams: begun by a link, ended by a code that the caller brings back.

The person who opens a link may not be the one it was made for. A link that one person sends to another would otherwise
give the tokens of the one who follows it to the one who sent it (the confused deputy). So the tokens of a sign-in are
unused until the caller sends the code that the last page showed, in its own request: only a viewer of that page
knows it. A link is good once, for ten minutes, and for one browser; the redirect is bound to that browser and to the
state.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import anyio

from toolweave.config import ServerConfig
from toolweave.errors import (
    AuthRequiredError,
    ConnectionClosedError,
    RequestError,
    ServerError,
    StoreError,
    printable,
)
from toolweave.gateway._callers.hubs import CallerHubs, signs_in
from toolweave.gateway._replicas.replicas import ReplicaGone, Replicas, UnknownToReplica
from toolweave.hub import Hub
from toolweave.oauth import (
    AuthorizationResponse,
    DevicePrompt,
    MemoryTokenStore,
    TokenKey,
    TokenRecord,
    TokenStore,
    resource_of,
    sign_in,
    sign_out,
)
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.serve._changes import nothing_to_end
from toolweave.serve._task_spawner import ServingGroups

_log = logging.getLogger("toolweave.gateway")

LINK = "/auth/sign-in"
"""The path below which each link is."""
CALLBACK = "/auth/callback"
"""The path of the redirect."""
_SECONDS = 600.0
_MOST = 10_000
_MAX_OF_ONE = 3
"""Sign-ins of one caller at one upstream at the same time; a new one does not end one in progress."""
_TRIES = 5
_DIGITS = 8
_KIND = "sign-in code"


class _WebUserAgent:
    """The `UserAgent` of one sign-in: the person is in a browser, which pages of the gateway lead on."""

    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        self.url = self.state = ""
        self.asked: anyio.Event = anyio.Event()
        self._answered = anyio.Event()
        self._answer = AuthorizationResponse()

    @asynccontextmanager
    async def listener(self, *, server: str, seconds: float, port: int | None = None) -> AsyncGenerator[_WebUserAgent]:
        """Return itself: the gateway listens already."""
        yield self

    async def response(self, url: str, *, state: str) -> AuthorizationResponse:
        """Let the browser be led to the authorization URL, and wait for the redirect that carries this state."""
        self.url: str = url
        self.state: str = state
        self.asked.set()
        await self._answered.wait()
        return self._answer

    def answer(self, answer: AuthorizationResponse) -> bool:
        """Take the redirect; False when there was one before."""
        # A redirect that is loaded twice, by a reload or by an attacker who saw the address, changes nothing.
        first = not self._answered.is_set()
        if first:
            self._answer = answer
            self._answered.set()
        return first

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Refuse: there is a browser.

        Raises:
            AuthRequiredError: Always.
        """
        raise AuthRequiredError("callers sign in in a browser", server=server)


class _StagedTokens(MemoryTokenStore):
    """Tokens of an unconfirmed sign-in, and the client that the gateway has registered before."""

    def __init__(self, kept: TokenStore) -> None:
        super().__init__()
        self._kept = kept

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return a record, or one with the gateway's own registration alone."""
        record = await super().load(key)
        if record is not None:
            return record
        shared = await self._kept.load(key.replace(principal=""))
        if shared is None or shared.registration is None:
            return None
        return TokenRecord(key=key, registration=shared.registration)


class LinkedSignIn:
    """One sign-in of a caller at one upstream.

    Attributes:
        config: The upstream.
        principal: Whose it is.
        origin: The address of the gateway, as its browser knows it.
        scopes: Scopes to ask for beside those that the upstream wants.
        ticket: The random end of its link, after the name of the replica where there are several.
        name: Its name for the caller, which reveals nothing.
        until: When it is over, in seconds since the epoch.
        code: The code that the caller has to bring back, once a user has signed in.
        problem: The reason why the sign-in failed, or nothing.
        listeners: Called when a user has signed in; by the conversation that is notified.
    """

    def __init__(
        self, config: ServerConfig, principal: str, origin: str, scopes: Sequence[str] = (), *, replica: str = ""
    ) -> None:
        self.config = config
        self.principal = principal
        self.origin = origin
        self.scopes: tuple[str, ...] = tuple(scopes)
        self.ticket: str = (f"{replica}." if replica else "") + secrets.token_urlsafe(32)
        self.name: str = uuid.uuid4().hex
        self.until: float = time.time() + _SECONDS
        self.agent: _WebUserAgent | None = None
        self.code = ""
        self.problem = ""
        self.tries = 0
        self.record: TokenRecord | None = None
        self.staged: _StagedTokens | None = None
        self.over: anyio.Event = anyio.Event()
        self.listeners: dict[str, Callable[[], object]] = {}

    @property
    def url(self) -> str:
        """The link."""
        return f"{self.origin}{LINK}/{self.ticket}"

    @property
    def fresh(self) -> bool:
        """Whether its link can still be opened."""
        return self.agent is None and self.until > time.time()


class KnowsHub(Protocol):
    """The part of a caller's gateway that sign-ins use."""

    hub: Hub


class SignIns:
    """The sign-ins of callers that are under way.

    Args:
        hubs: The connections of callers, which begin when they have signed in.
        groups: The task groups in which the gateway is served.
        replicas: The other replicas, where sign-ins may also be under way; None if nothing is shared.

    Attributes:
        url: The address by which browsers reach the gateway; None to take it from each request.
        replica: The name of this replica, or nothing.
    """

    def __init__(self, hubs: CallerHubs, groups: ServingGroups, replicas: Replicas | None = None) -> None:
        self.url: str | None = None
        self.replica: str = "" if replicas is None else replicas.id
        self._replicas = replicas
        self._hubs = hubs
        self._groups = groups
        self._links: dict[str, LinkedSignIn] = {}  # by ticket, the oldest first
        self._of: dict[tuple[str, str], list[LinkedSignIn]] = {}
        self._asked_scopes: dict[tuple[str, str], tuple[float, frozenset[str]]] = {}
        self._tried: WeakKeyDictionary[Hub, dict[str, str]] = WeakKeyDictionary()

    # for the caller

    def link(self, server: str, principal: str, origin: str, scopes: Sequence[str] = ()) -> LinkedSignIn:
        """Return the sign-in of a caller: the one whose link is unused, else a new one."""
        mine = self.current(server, principal)
        for one in mine:
            if one.fresh and one.origin == origin and set(scopes) <= set(one.scopes):
                return one
        # The oldest ones make room, so a caller cannot fill the memory, and a user who is in the middle of a sign-in
        # keeps it while the caller asks for one or two more links.
        for one in mine[: max(0, len(mine) + 1 - _MAX_OF_ONE)]:
            self._drop(one)
        made = LinkedSignIn(self._hubs.configs[server], principal, origin, scopes, replica=self.replica)
        self._links[made.ticket] = made
        self._of.setdefault((principal, server), []).append(made)
        return made

    def current(self, server: str, principal: str) -> Sequence[LinkedSignIn]:
        """Return the sign-ins of a caller that are under way, the oldest first."""
        self._drop_old()
        mine = list(self._of.get((principal, server), ()))
        for one in mine:
            if one.config is not self._hubs.configs.get(server):  # its settings have changed
                self._drop(one)
        return [one for one in mine if one.ticket in self._links]

    def begun(self, server: str, principal: str) -> bool:
        """Return whether a link of a caller was opened, so that the caller may have a code for it."""
        return any(one.agent is not None and not one.problem for one in self.current(server, principal))

    def give_up(self, server: str, principal: str) -> None:
        """End the sign-ins of a caller at a server, and revoke their tokens."""
        for one in self.current(server, principal):
            self._drop(one)

    async def signed_in_elsewhere(self, gateway: KnowsHub, principal: str) -> None:
        """Connect to the upstreams at which a caller has signed in meanwhile by another process; each sign-in once."""
        tried = self._tried.setdefault(gateway.hub, {})
        for name, config in self._hubs.configs.items():
            if not signs_in(config) or not isinstance(gateway.hub.errors.get(name), AuthRequiredError):
                continue
            own = self._hubs.of_hub(config, gateway.hub, principal)
            record = await self._newest(own)
            # Once for each token: a server that refuses it would otherwise be dialled with each request of the caller.
            if record is None or tried.get(name) == record.access_token:
                continue
            tried[name] = record.access_token
            with suppress(ServerError):
                await gateway.hub.connect(name, own)

    async def _newest(self, own: ServerConfig) -> TokenRecord | None:
        oauth = own.auth.oauth if own.auth is not None else None
        if oauth is None:
            return None
        records = await oauth.store.records(resource=resource_of(own.url), principal=oauth.principal)
        return next((one for one in records if one.access_token), None)

    async def confirm(self, server: str, principal: str, code: str) -> bool:
        """Let the sign-in of this code count, whichever replica it is under way in.

        With too many wrong codes all that wait for theirs are thrown away.

        Raises:
            StoreError: The tokens cannot be kept.
            ServerError: The upstream cannot be reached with them.
        """
        given = "".join(character for character in code if character.isdigit() and character.isascii())
        config = self._hubs.configs.get(server)
        if config is None:
            return False
        here = await self._count(server, principal, given)
        if not here and not await self._count_elsewhere(server, principal, given):
            return False
        for hub in self._hubs.hubs_of(principal):
            # it is ending: the next request gets another one
            with suppress(ConnectionClosedError):
                await hub.connect(server, self._hubs.of_hub(config, hub, principal))
        return True

    async def _count(self, server: str, principal: str, given: str) -> bool:
        """Keep the tokens of the sign-in of this code, if this replica has it."""
        waiting = [one for one in self.current(server, principal) if one.record is not None]
        # Compared in constant time, and each wrong code counts for every sign-in that waits: eight digits stand five
        # guesses, not five for each of several sign-ins.
        found = next((one for one in waiting if hmac.compare_digest(given.encode(), one.code.encode())), None)
        if found is None or found.record is None:
            for one in waiting:
                one.tries += 1
                if one.tries >= _TRIES:
                    self._drop(one)
            return False
        # Taken out before the others are given up: `give_up` drops this sign-in too, and revokes the tokens of a
        # record that it still has. No await stands before this, so a second request with the code finds none.
        record = found.record
        found.record = None
        self.give_up(server, principal)
        await self._keep(found, record)
        if found.scopes:
            known = self._scopes_lately(server, principal)
            self._asked_scopes[server, principal] = time.time() + _SECONDS, known.union(found.scopes)
            while len(self._asked_scopes) > _MOST:
                del self._asked_scopes[next(iter(self._asked_scopes))]
        return True

    def asked_lately(self, server: str, principal: str, scopes: Sequence[str]) -> bool:
        """Whether a caller has just signed in for these scopes, so that once more would give it no more rights."""
        return self._scopes_lately(server, principal).issuperset(scopes)

    def _scopes_lately(self, server: str, principal: str) -> frozenset[str]:
        until, scopes = self._asked_scopes.get((server, principal), (0.0, frozenset[str]()))
        if until > time.time():
            return scopes
        return frozenset()

    async def _count_elsewhere(self, server: str, principal: str, given: str) -> bool:
        """Ask the other replicas to keep the tokens of the sign-in of this code, which one of them does."""
        if self._replicas is None or not given:
            return False
        asked = {"server": server, "principal": principal, "code": given}
        try:
            for replica in await self._replicas.living():
                with suppress(ReplicaGone, UnknownToReplica):
                    await self._replicas.ask(replica, _KIND, asked)
                    return True
        except RequestError as exc:
            raise StoreError(exc.message) from None
        return False

    def listen(self) -> Callable[[], object]:
        """Accept codes that reached other replicas from now on; return a function that stops it."""
        if self._replicas is None:
            return nothing_to_end
        return self._replicas.on(_KIND, self._asked)

    async def _asked(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Accept a code that reached another replica; None when it is of no sign-in in this one."""
        try:
            if await self._count(body["server"], body["principal"], body["code"]):
                return {}
            return None
        except StoreError as exc:
            raise RequestError(str(exc), code=INTERNAL_ERROR) from None

    async def _keep(self, one: LinkedSignIn, record: TokenRecord) -> None:
        """Keep the tokens of a caller, and the client that was registered for all of them."""
        if one.config.auth is not None:
            oauth = one.config.auth.oauth
        else:
            oauth = None
        store: TokenStore = (None if oauth is None else oauth.store) or self._hubs.store
        await store.save(record)
        if record.registration is not None and not record.key.client:
            shared = record.key.replace(principal="")
            if await store.load(shared) is None:
                await store.save(TokenRecord(key=shared, registration=record.registration, saved_at=time.time()))

    # for the pages

    def by_ticket(self, ticket: str) -> LinkedSignIn | None:
        """Return the sign-in of a link."""
        self._drop_old()
        # found by its hash: the time taken reveals nothing about existing tickets
        return self._links.get(ticket)

    def by_state(self, state: str) -> LinkedSignIn | None:
        """Return the sign-in whose redirect carries this state."""
        self._drop_old()
        return next((one for one in self._links.values() if one.agent is not None and one.agent.state == state), None)

    async def begin(self, one: LinkedSignIn) -> str:
        """Begin a sign-in, once; return the URL to lead the browser to, or nothing with `problem` set."""
        # `agent` is set before the first await: the link is not fresh from here, so a second opening begins nothing.
        agent = one.agent = _WebUserAgent(one.origin + CALLBACK)
        self._groups.current().start_soon(self._run, one, agent)
        await agent.asked.wait()
        return agent.url

    async def _run(self, one: LinkedSignIn, agent: _WebUserAgent) -> None:
        config = one.config
        try:
            assert config.auth is not None
            assert config.auth.oauth is not None
            oauth = config.auth.oauth
            staged = one.staged = _StagedTokens(oauth.store or self._hubs.store)
            settings = oauth.replace(identity="own", principal=one.principal, timeout=min(oauth.timeout, _SECONDS))
            one.record = await sign_in(
                settings,
                config.url,
                server=config.name,
                store=staged,
                user_agent=agent,
                scopes=one.scopes,
                revision=config.protocol,
            )
            one.code = f"{secrets.randbelow(10**_DIGITS):0{_DIGITS}d}"
        except (ServerError, StoreError) as exc:
            one.problem = printable(str(exc))
            _log.warning("a sign-in of a caller failed: %s", exc)
        except Exception:  # boundary: one person's sign-in must not end the gateway
            one.problem = "it did not work; see the log of the gateway"
            _log.exception("a sign-in of a caller at server %r failed", config.name)
        finally:
            # Both, whatever happened: `begin` waits for the first, and would hang on a sign-in that failed before it
            # had a URL; the page after the redirect waits for the second.
            agent.asked.set()
            one.over.set()
        if one.ticket not in self._links:  # it was given up meanwhile
            await self._revoke(one)
        elif one.code:
            for notify in one.listeners.values():
                notify()

    # ends

    def _drop_old(self) -> None:
        now = time.time()
        # Every link has the same lifetime and dictionaries keep their order, so those that are over stand first.
        while self._links:
            oldest = next(iter(self._links.values()))
            if oldest.until > now and len(self._links) <= _MOST:
                return
            self._drop(oldest)

    def _drop(self, one: LinkedSignIn) -> None:
        """Remove a sign-in, and revoke its tokens."""
        del self._links[one.ticket]
        mine = self._of[one.principal, one.config.name]
        mine.remove(one)
        if not mine:
            del self._of[one.principal, one.config.name]
        if one.record is not None:
            self._groups.current().start_soon(self._revoke, one)

    async def _revoke(self, one: LinkedSignIn) -> None:
        if one.config.auth is None:
            oauth = None
        else:
            oauth = one.config.auth.oauth
        if oauth is None or one.record is None or one.staged is None:
            return
        one.code = ""
        one.problem = "it was given up"
        try:
            settings = oauth.replace(identity="own", principal=one.principal)
            await sign_out(settings, one.config.url, server=one.config.name, store=one.staged)
        except (ServerError, StoreError) as exc:
            _log.info("the tokens of a sign-in that was not confirmed were not revoked: %s", exc)
