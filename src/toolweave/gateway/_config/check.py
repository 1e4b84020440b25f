"""Check a config before it is served: start each upstream, and list the tools of each caller.

Serves nothing, calls no tool, opens no shared store and writes no line of an audit log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import array_or_empty
from toolweave.connect import ConnectionState
from toolweave.connect._hints import hint_of
from toolweave.errors import RequestError
from toolweave.gateway._callers.auth import CallerAuth
from toolweave.gateway._config.config import GatewayConfig, GatewaySource, VirtualServer, load_gateway_config
from toolweave.gateway._gateway import Gateway, create_gateway
from toolweave.gateway._tasks.kept_tasks import NO_REPLY_CHANNEL
from toolweave.gateway._views import ViewMiddleware, caller_view, virtual_tools
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.middleware import AuditLog, CallBudget, RateLimit, ResponseCache, middleware_from_config
from toolweave.protocol import methods
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve import Client, Identity, Middleware, Request, TokenAuth
from toolweave.serve.request import Json

_LIST_SECONDS = 60.0
_SIGNED_IN = "(signed in)"
_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})


class CheckedServer(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream as it started.

    Attributes:
        name: Its name in the config.
        ok: Whether it can be used. One that is called as each caller can.
        endpoint: Its command line or URL, secrets masked.
        tools: The number of its tools.
        as_callers: Whether it is called as each caller, so that it was started for those alone.
        error: The reason why it cannot be used, or None.
        next_step: The next step for the error, or None.
        problems: Definitions that are left out, withheld or suspicious, with the reasons.
    """

    name: str
    ok: bool
    endpoint: str = ""
    tools: int = 0
    as_callers: bool = False
    error: str | None = None
    next_step: str | None = None
    problems: tuple[str, ...] = ()


class CheckedCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a gateway, or of one of its virtual servers, as one caller has them.

    Attributes:
        caller: The name of an API key; `(signed in)` for users of a sign-in, without claims; `""` for anyone.
        path: The path of the endpoint, such as `/mcp/readers`.
        tools: The names of the tools that the caller is listed and may call.
        refused: The names of the others.
        error: The reason why the caller gets nothing, or None.
    """

    caller: str
    path: str
    tools: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    error: str | None = None


class GatewayCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check.

    Attributes:
        servers: The upstreams.
        callers: The tools of each caller, by endpoint.
        warnings: Remarks about the config, its servers and its audit log.
    """

    servers: tuple[CheckedServer, ...]
    callers: tuple[CheckedCaller, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every upstream can be used and no caller is refused as a whole."""
        return all(one.ok for one in self.servers) and all(one.error is None for one in self.callers)


class _ConfiguredCaller(msgspec.Struct, frozen=True):
    """A caller of the config: its name, its identity, and why it gets nothing."""

    name: str
    identity: Identity | None = None
    error: str | None = None


async def check_gateway(source: GatewaySource, *, names: Iterable[str] = ()) -> GatewayCheck:
    """Start each upstream of a config, and list the tools of each caller.

    The upstreams start in this process, with its user and its PATH, and end with the check. Callers are the API keys of
    `gateway.auth`, which need not be known: a hash is enough.

    Args:
        source: A config file, several, or the content of one.
        names: Only these servers; all by default.

    Raises:
        ConfigError: The config cannot be read, or its section `gateway` is wrong.
    """
    config = load_gateway_config(source, names=names)
    auth = None if config.auth is None else config.auth.build()
    rules, warnings = _rules_of(config)
    hub = Hub(config.servers, wait="alive")
    async with AsyncExitStack() as stack:
        whole = create_gateway(hub, page_size=None, middleware=rules[""])
        await stack.enter_async_context(whole.running())
        served = {"/mcp": whole}
        for view in config.virtual.values():
            made = _virtual(whole, view, [*rules[""], *rules[view.name]])
            await stack.enter_async_context(made.running())
            served[f"/mcp/{view.name}"] = made
        callers = [
            await _seen(gateway, path, caller, auth)
            for path, gateway in served.items()
            for caller in _callers(config.auth, auth)
        ]
        servers = tuple(_servers(config, hub))
        warnings += [*config.warnings, *hub.warnings]
    return GatewayCheck(servers=servers, callers=tuple(callers), warnings=tuple(dict.fromkeys(warnings)))


def _rules_of(config: GatewayConfig) -> tuple[Mapping[str, Sequence[Middleware]], list[str]]:
    """Return the middleware that hides offers, by virtual server, and warnings about the rest."""
    lists = {"": config.middleware, **{name: view.middleware for name, view in config.virtual.items()}}
    found: dict[str, Sequence[Middleware]] = {}
    warnings: list[str] = []
    for name, entries in lists.items():
        where = f"gateway.virtual.{name}.middleware" if name else "gateway.middleware"
        made = middleware_from_config(entries, where=where)
        # Nobody has called: a check is not counted, not kept and not logged as one.
        found[name] = [one for one in made if not isinstance(one, (AuditLog, RateLimit, CallBudget, ResponseCache))]
        logs = [one.path for one in made if isinstance(one, AuditLog)]
        warnings += [f"{where}: {text}" for path in logs if path is not None and (text := _unwritable(Path(path)))]
    return found, warnings


def _unwritable(path: Path) -> str:
    """Return why an audit log cannot be written; `""` if it can."""
    place = path if path.exists() else path.parent
    if not place.exists():
        return f"the folder {str(place)!r} of the audit log does not exist; make it"
    if not os.access(place, os.W_OK):
        return f"{str(path)!r} cannot be written by this user; give the user the right to, or name another path"
    return ""


def _virtual(whole: Gateway, view: VirtualServer, rules: Sequence[Middleware]) -> Gateway:
    made = create_gateway(
        whole.hub,
        tools=virtual_tools(whole.hub, view),
        page_size=None,
        middleware=[*([ViewMiddleware(view)] if view.servers else []), *rules],
    )
    made.share_callers(whole, caller_view(view))
    return made


def _servers(config: GatewayConfig, hub: Hub) -> Iterable[CheckedServer]:
    per_caller = caller_servers(hub).configs
    for name in dict.fromkeys((*config.servers.servers, *config.servers.errors)):
        settings = config.servers.servers.get(name)
        endpoint = "" if settings is None else settings.endpoint
        client = hub.clients.get(name)
        error = hub.errors.get(name)
        if name in per_caller:
            yield CheckedServer(name=name, ok=True, endpoint=endpoint, as_callers=True)
        elif client is not None and client.state in _USABLE:
            tools = len(client.snapshot())
            yield CheckedServer(name=name, ok=True, endpoint=endpoint, tools=tools, problems=client.problems)
        else:
            known = error or (None if client is None else client.error)
            yield CheckedServer(
                name=name,
                ok=False,
                endpoint=endpoint,
                error="it is not ready" if known is None else str(known),
                next_step=None if known is None else hint_of(settings, known, in_service=True),
            )


def _callers(section: CallerAuth | None, auth: TokenAuth | None) -> Iterable[_ConfiguredCaller]:
    """Yield the callers of a config; of several keys of one name, the first that has not expired."""
    if section is None or auth is None:
        yield _ConfiguredCaller("")
        return
    identities: dict[str, Identity] = {}
    for key in section.api_keys:
        known = identities.get(key.name)
        if known is None or _expired(known):
            identities[key.name] = key.identity
    for name, identity in identities.items():
        lacking = set(auth.required_scopes) - auth.access.granted(identity.scopes)
        if _expired(identity):
            yield _ConfiguredCaller(name, identity, "its key has expired; give it another one")
        elif lacking:
            scopes = ", ".join(sorted(lacking))
            yield _ConfiguredCaller(name, identity, f"its key lacks scopes of 'gateway.auth.required_scopes': {scopes}")
        else:
            yield _ConfiguredCaller(name, identity)
    if section.issuer is not None:
        yield _ConfiguredCaller(_SIGNED_IN, Identity(client_id=_SIGNED_IN, scopes=tuple(auth.required_scopes)))


def _expired(identity: Identity) -> bool:
    return identity.expires_at is not None and identity.expires_at <= time.time()


async def _seen(gateway: Gateway, path: str, caller: _ConfiguredCaller, auth: TokenAuth | None) -> CheckedCaller:
    """Return the tools of an endpoint as one caller has them."""
    every = [spec.name for spec in gateway.tools.snapshot()]
    if caller.error is not None:
        return CheckedCaller(caller=caller.name, path=path, refused=tuple(every), error=caller.error)
    identity = caller.identity
    may = None
    if auth is not None and identity is not None:
        may = auth.offers_for(identity)
    principal = None if identity is None else identity.principal
    client = Client(version=MODERN_VERSION, principal=principal, identity=identity, may=may)
    meta: Json = {PROTOCOL_VERSION: MODERN_VERSION, CLIENT_CAPABILITIES: {}}
    request = Request(methods.TOOLS_LIST, {"_meta": meta}, client, NO_REPLY_CHANNEL, "check")
    try:
        with anyio.fail_after(_LIST_SECONDS):
            result = await gateway.endpoint.answer(request)
    except RequestError as error:
        return CheckedCaller(caller=caller.name, path=path, refused=tuple(every), error=error.message)
    except TimeoutError:
        text = f"no list of tools within {_LIST_SECONDS:g} s"
        return CheckedCaller(caller=caller.name, path=path, refused=tuple(every), error=text)
    entries: Any = result.get("tools")
    listed = decode_json(entries) if isinstance(entries, msgspec.Raw) else array_or_empty(entries)
    names = tuple(str(one["name"]) for one in listed)
    refused = tuple(name for name in every if name not in names)
    return CheckedCaller(caller=caller.name, path=path, tools=names, refused=refused)
