"""Options of a gateway that is run from a config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import msgspec

from toolweave._option_checks import (
    FLAG,
    NUMBER,
    SECRETS,
    TEXT,
    TEXTS,
    OptionKind,
    check_duration,
    check_kinds,
    check_number,
    instance_of,
)
from toolweave._value import DeferredTypes
from toolweave.errors import ConfigError, StoreError
from toolweave.gateway._config.config import GatewayConfig
from toolweave.gateway._replicas.replicas import Replicas, shared_redis
from toolweave.oauth import TokenStore
from toolweave.serve import Middleware
from toolweave.serve._middleware import checked
from toolweave.serve._option_kinds import PAGE_SIZE
from toolweave.serve._option_types import check_auth
from toolweave.state.checks import STORE
from toolweave.tools import Toolset

if TYPE_CHECKING:
    from toolweave.gateway._observe.runs import RunsPlace, StoredRuns
    from toolweave.serve import HttpOptions, TokenAuth


_STATE_KEYS = SECRETS.or_none
_TOKEN_STORE = instance_of(TokenStore, "a token store, such as FileTokenStore(path)").or_none
_REPLICAS = instance_of(Replicas, "Replicas(...)").or_none
_KINDS: Mapping[str, OptionKind] = {
    "name": TEXT,
    "version": TEXT,
    "title": TEXT.or_none,
    "instructions": TEXT.or_none,
    "tools": instance_of(Toolset, "a toolset, such as hub.filtered([...])").or_none,
    "state_keys": _STATE_KEYS,
    "page_size": PAGE_SIZE,
    "url": TEXT.or_none,
    "token_store": _TOKEN_STORE,
    "replicas": _REPLICAS,
    "task_store": STORE.or_none,
}
_CONFIGURED_KINDS: Mapping[str, OptionKind] = {
    "names": TEXTS,
    "name": TEXT.or_none,
    "token_store": _TOKEN_STORE,
    **dict.fromkeys(("metrics", "tracing", "watch"), FLAG),
    "state_keys": _STATE_KEYS,
    "replicas": _REPLICAS,
    "ui": FLAG.or_none,
}


def check_gateway_options(options: Mapping[str, object]) -> None:
    """Check the options of `create_gateway`.

    Raises:
        ConfigError: A number of seconds is negative or not finite.
        TypeError: An option has another type; the error names it and shows no value.
        ValueError: Another value is invalid.
    """
    check_kinds(options, _KINDS)
    check_auth(options["auth"])
    if options["replicas"] is not None and options["state_keys"] is None:
        raise ValueError("replicas must share their state_keys")
    for name in ("patience", "idle_seconds"):
        check_number(name, options[name])
    check_duration("task_seconds", options["task_seconds"])
    slow = options["slow_call_seconds"]
    if slow is not None:
        check_kinds(options, {"slow_call_seconds": NUMBER})
    if slow is not None and not cast("float", slow) > 0:
        raise ValueError(f"slow_call_seconds must be more than 0, or None for never, not {slow!r}")
    size = options["page_size"]
    if size is not None and cast("int", size) < 1:
        raise ValueError(f"page_size must be 1 or more, or None for one page, not {size!r}")


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True, metaclass=DeferredTypes):
    """Options of a gateway.

    Attributes:
        names: Only these servers of the config; empty is all.
        name: The gateway's name; else that of the config.
        wait: Seconds that the start waits for slow servers; None waits for those that show signs of life.
        middleware: Middleware around every request of all its servers, outermost first.
        auth: The authorization of requests over HTTP; else that of the config.
        token_store: Keeps the tokens of callers who sign in at upstreams; by default this machine, or, encrypted, the
            store of the replicas, where `TOOLWEAVE_TOKEN_KEY` has a key.
        metrics: Whether to count and measure requests for Prometheus, at `/metrics`; needs the extra `metrics`.
        tracing: Whether to make OpenTelemetry spans and histograms of durations; needs the extra `otel`.
        watch: Whether to look at the config files for changes; `reload` reads them again in any case.
        state_keys: Secrets that replicas share, for questions to callers and sessions of older clients; by default made
            for this process.
        replicas: The state shared with other replicas beside the keys; by default over the config's Redis, if it has
            one. Those of one group follow each other's changes.
        ui: Whether to serve the console at `/ui`; needs the extra `console` and an admin token. None: as the config
            says, else where only this machine reaches it and the extra is installed.
        runs: Where the runs of agents are that the console shows and answers: the URL or path of a store, a store, or a
            backend, whose workers continue answered runs; else as the config says.

    Raises:
        TypeError: A value has another type.
    """

    names: tuple[str, ...] = ()
    name: str | None = None
    wait: float | None = None
    middleware: tuple[Middleware, ...] = ()
    auth: TokenAuth | None = None
    token_store: TokenStore | None = None
    metrics: bool = False
    tracing: bool = False
    watch: bool = True
    state_keys: tuple[str | bytes, ...] | None = None
    replicas: Replicas | None = None
    ui: bool | None = None
    runs: RunsPlace | None = None

    def __post_init__(self) -> None:
        check_kinds(self, _CONFIGURED_KINDS, owner="GatewayOptions")
        checked(self.middleware)
        check_auth(self.auth)


def replicas_of(config: GatewayConfig, options: GatewayOptions) -> Replicas | None:
    """Return the replicas that the options or the config declare.

    Raises:
        ConfigError: There are no keys that replicas share.
    """
    if options.replicas is not None or config.redis is None:
        return options.replicas
    if options.state_keys is None:
        text = "replicas that share a Redis need the same state keys, such as by --state-keys-env"
        raise ConfigError(text, field="gateway.redis")
    try:
        return Replicas(shared_redis(config.redis.reveal()), options.state_keys)
    except (StoreError, ValueError) as error:
        raise ConfigError(str(error), field="gateway.redis") from None


def tokens_in(replicas: Replicas | None) -> TokenStore | None:
    """Return a token store within the replicas' store, if there is a key for tokens in the environment.

    Workers of one machine share its token store anyway; their shared store ends with them.

    Raises:
        ConfigError: The key is not valid.
    """
    if replicas is None or not os.environ.get("TOOLWEAVE_TOKEN_KEY"):
        return None
    from toolweave.oauth import SharedTokenStore  # it needs cryptography
    from toolweave.state import SqliteStore

    if isinstance(replicas.store, SqliteStore):
        return None
    try:
        return SharedTokenStore(replicas.store)
    except StoreError as error:
        raise ConfigError(str(error), field="gateway.redis") from None


def runs_of(config: GatewayConfig, options: GatewayOptions) -> StoredRuns | None:
    """Return the runs that the console shows, if the options or the config name a store.

    Raises:
        ConfigError: They name none that can be used.
    """
    if options.runs is not None or config.runs is None:
        place = options.runs
    else:
        place = config.runs.reveal()
    if place is None:
        return None
    from toolweave.gateway._observe.runs import StoredRuns  # it loads agents and queues

    return StoredRuns(place)


def add_http_options(options: HttpOptions, config: GatewayConfig, *, shared: bool) -> None:
    """Add the settings of the config to the options of an app that lacks them.

    Args:
        options: The options.
        config: The config.
        shared: Whether replicas share a store, which keeps the events of all of them.

    Raises:
        ConfigError: Both the config and the replicas keep events.
    """
    from toolweave.serve._http.events import RETRY_SECONDS, event_options  # only where HTTP is served

    if config.rest is not None:
        options.setdefault("rest", config.rest)
    if config.server_card is False:
        options.setdefault("server_card", False)
    elif config.url is not None:
        options.setdefault("server_card", config.url)
    if config.event_store is not None and shared:
        text = "'gateway.event_store' is for one process: replicas and workers keep events in the store that they share"
        raise ConfigError(text, field="gateway.event_store")
    found = event_options(config.event_store, config.retry_seconds)
    if shared:
        found.setdefault("retry_interval", round(RETRY_SECONDS * 1000))
    if "event_store" in found:
        options.setdefault("event_store", found["event_store"])
    if "retry_interval" in found:
        options.setdefault("retry_interval", found["retry_interval"])
