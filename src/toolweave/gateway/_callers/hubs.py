"""The connections of callers: one hub for each, with its own tokens and headers, to the servers that are called as it.

Users never cross by construction: a request finds the hub of its principal or none, and a hub holds
connections of one principal alone. The token of a caller is given to an authorization server where one is configured
for that (RFC 8693), and to no server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from toolweave.config import LoadedConfig, Secret, ServerConfig
from toolweave.gateway._callers.headers import Values, digest_of, values_for, with_headers
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.oauth import MemoryTokenStore, TokenStore, default_token_store
from toolweave.serve import Request

_START_SECONDS = 10.0
"""Seconds that the first request of a caller waits for servers that are slow to start."""


class GatewayCaller(msgspec.Struct, frozen=True):
    """The caller whose credentials are used at upstreams.

    Attributes:
        key: Its unique name; where its token is exchanged, the digest of that is part of it, so that tokens
            obtained for one token are never used with another.
        principal: Its principal; `""` for callers without one, who differ by their headers alone.
        token: Its token, where it is exchanged.
        expires_at: The end of its token, in seconds since the epoch; None for never.
        headers: The headers that servers get for it, by server; a server that it lacks a claim for is missing.
        topic: The name under which changes of its servers are announced: its principal, and a digest of its headers.
    """

    key: str
    principal: str
    token: Secret | None = None
    expires_at: float | None = None
    headers: Values = {}
    topic: str = ""

    def __post_init__(self) -> None:
        if not self.topic:
            msgspec.structs.force_setattr(self, "topic", self.principal)


def _no_token() -> str:
    """Return nothing: this caller was not authenticated by a token of an issuer."""
    return ""


def exchanges(config: ServerConfig) -> bool:
    """Whether a server is called with a token that is got for that of the caller."""
    if config.auth is None or config.auth.oauth is None:
        return False
    return config.auth.oauth.grant == "token_exchange"


def gets_headers(config: ServerConfig) -> bool:
    """Whether a server gets headers of each caller."""
    return bool(config.forward_headers or config.claim_headers)


def signs_in(config: ServerConfig) -> bool:
    """Whether callers sign in to a server themselves."""
    return config.signs_in_callers and not exchanges(config)


class CallerHubs:
    """The hubs of callers, shared by a gateway and its virtual servers.

    Args:
        hub: The hub of the gateway, which knows the settings of the servers.
        store: Keeps the tokens of callers who signed in; by default the token store of this machine.
    """

    def __init__(self, hub: Hub, store: TokenStore | None = None) -> None:
        self._hub = hub
        self._store = store
        self._hubs: dict[tuple[str, int], tuple[Hub, GatewayCaller]] = {}
        self._users: dict[tuple[str, int], int] = {}

    @property
    def configs(self) -> Mapping[str, ServerConfig]:
        """The settings of the servers by name."""
        return caller_servers(self._hub).configs

    @property
    def generation(self) -> int:
        """Grows with each change of the settings; hubs of before are not used any more."""
        return caller_servers(self._hub).generation

    @property
    def store(self) -> TokenStore:
        """The store of the tokens of callers who signed in."""
        if self._store is None:
            self._store = default_token_store()
        return self._store

    def exchange(self) -> bool:
        """Whether the token of a caller is given for another one, for a server."""
        return any(map(exchanges, self.configs.values()))

    def serves(self, request: Request) -> bool:
        """Whether some server may be called for the caller of a request."""
        configs = self.configs
        if not configs:
            return False
        return request.client.principal is not None or any(not one.signs_in_callers for one in configs.values())

    def caller(self, request: Request) -> GatewayCaller | None:
        """Return the caller of a request, or None if no server can be called for it.

        Raises:
            ToolError: A header that is sent on has no usable value.
        """
        if request.client.principal is None and not self.serves(request):
            return None
        identity = request.client.identity
        principal = request.client.principal or ""
        key = topic = principal
        headers = self._headers(request)
        if headers:
            key = topic = f"{principal} headers {digest_of(headers)}"
        token = None if identity is None else identity.token
        if token is None or not self.exchange():
            return GatewayCaller(key, principal, headers=headers, topic=topic)
        digest = hashlib.sha256(token.reveal().encode("utf-8", "surrogateescape")).hexdigest()
        expires_at = None if identity is None else identity.expires_at
        return GatewayCaller(f"{key} {digest}", principal, token, expires_at, headers, topic)

    def _headers(self, request: Request) -> Values:
        """Return the headers of a caller, by server."""
        configs = [one for one in self.configs.values() if gets_headers(one)]
        return values_for(configs, request.headers, request.client)

    def _servers(self, caller: GatewayCaller) -> dict[str, ServerConfig]:
        """Return the servers of a caller: those that it signs in to, and those whose headers it has."""
        found: dict[str, ServerConfig] = {}
        for name, config in self.configs.items():
            if gets_headers(config) and name not in caller.headers:
                continue
            if config.signs_in_callers and not caller.principal:
                continue
            found[name] = self.of_caller(config, caller)
        return found

    def take(self, caller: GatewayCaller) -> Hub:
        """Return the hub of a caller, which `leave` gives back."""
        place = caller.key, self.generation
        if place not in self._hubs:
            self._hubs[place] = Hub(LoadedConfig(servers=self._servers(caller)), wait=_START_SECONDS), caller
        self._users[place] = self._users.get(place, 0) + 1
        return self._hubs[place][0]

    def leave(self, hub: Hub) -> None:
        """Give a hub back; with its last user it is forgotten, and the next one gets another."""
        place = next(place for place, (one, _) in self._hubs.items() if one is hub)
        self._users[place] -= 1
        if not self._users[place]:
            del self._users[place], self._hubs[place]

    def all(self) -> list[Hub]:
        """Return the hubs of all callers."""
        return [hub for hub, _ in self._hubs.values()]

    def hubs_of(self, principal: str) -> list[Hub]:
        """Return the hubs of a principal."""
        return [hub for hub, caller in self._hubs.values() if caller.principal == principal]

    def of_hub(self, config: ServerConfig, hub: Hub, principal: str) -> ServerConfig:
        """Return the settings of a server for the caller of a hub, whose principal this is."""
        callers = (caller for one, caller in self._hubs.values() if one is hub)
        return self.of_caller(config, next(callers, GatewayCaller(principal, principal)))

    def of_caller(self, config: ServerConfig, caller: GatewayCaller) -> ServerConfig:
        """Return the settings of a server for one caller."""
        if gets_headers(config):
            config = with_headers(config, caller.headers.get(config.name, {}))
        if not config.signs_in_callers:
            return config
        assert config.auth is not None
        assert config.auth.oauth is not None
        oauth = config.auth.oauth
        # exchanged tokens live no longer than the caller's, and are not stored
        if exchanges(config):
            token = caller.token or _no_token
            own = oauth.replace(
                identity="own", principal=caller.key, store=MemoryTokenStore(), subject_token=token, user_agent=None
            )
        else:
            store = oauth.store or self.store
            own = oauth.replace(identity="own", principal=caller.principal, store=store, user_agent=None)
        return config.replace(auth=config.auth.replace(oauth=own))
