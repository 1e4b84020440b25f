"""The pages about trust: differences from the pins, with a way to allow them, and sign-ins at servers."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import msgspec

from toolweave._json_types import text_or_empty
from toolweave.config import OAuth, ServerConfig
from toolweave.connect import McpConnection
from toolweave.definitions import PinChange, lock_path
from toolweave.errors import StoreError
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._callers.hubs import signs_in
from toolweave.gateway._console.fleet_changes import outcome, report
from toolweave.gateway._console.fleet_rows import places_of, read_replies
from toolweave.gateway._console.rendering import ConsolePages, as_json
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest
from toolweave.gateway._replicas.pin_decisions import change_digest
from toolweave.gateway._sign_in.sign_in_first import sign_in_tool
from toolweave.oauth import SignInStatus, TokenKey, TokenStore, default_token_store, resource_of
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json, principal_name

_STORE_SECONDS = 10.0
_MAX_SHOWN = 200


class ShownChange(msgspec.Struct, frozen=True, kw_only=True):
    """A difference from the pins as it is shown.

    Attributes:
        text: The difference in one line.
        diff: Its lines.
        after: The definition as it is now, as JSON; "" for one that is gone.
        seen: A digest, so that exactly this difference is allowed.
    """

    text: str
    diff: tuple[str, ...]
    after: str
    seen: str


class PinnedView(msgspec.Struct, frozen=True, kw_only=True):
    """A server and its differences from the pins.

    Attributes:
        name: The server.
        lock: Its lock file.
        changes: The differences.
        withheld: The number of its tools that may not be used.
        findings: The findings of the scan of its definitions and results.
        problem: The reason why its pins cannot be compared; "" where they can.
    """

    name: str
    lock: str
    changes: tuple[ShownChange, ...]
    withheld: int
    findings: tuple[str, ...]
    problem: str


class PinsHere(msgspec.Struct, frozen=True, kw_only=True):
    """The differences from the pins at one replica.

    Attributes:
        servers: The servers with any.
    """

    servers: tuple[PinnedView, ...]


class TrustPages:
    """The pages about trust.

    Args:
        gateway: The gateway.
        pages: Renders them.
    """

    def __init__(self, gateway: ManagedGateway, pages: ConsolePages) -> None:
        self._gateway = gateway
        self._pages = pages
        gateway.fleet.on("pins", self._pins_here)
        gateway.fleet.on("allow", self._allow_here)
        self.shown: Mapping[str, ConsolePage] = {"/pins": self.pins, "/sign-ins": self.sign_ins}
        self.changing: Mapping[str, ConsolePage] = {"/pins": self.allow}

    async def pins(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the differences from the pins, and the findings of the scan of definitions."""
        found, silent = read_replies(await self._gateway.fleet.look("pins", {}), PinsHere)
        shown = places_of({peer: here.servers for peer, here in found.items()})
        total = sum(len(one.changes) for one, _ in shown)
        return self._pages.page(asked, "pins.html", servers=shown, total=total, silent=silent)

    async def _pins_here(self, body: Json) -> Json:
        views = map(_pinned, self._gateway.hub.clients.values())
        shown = tuple(one for one in views if one.changes or one.problem or one.findings)
        return msgspec.to_builtins(PinsHere(servers=shown))

    async def allow(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Pin one difference as it was shown, at each replica that has it; one that differs by now is not pinned."""
        name = asked.form.get("server", "")
        seen = asked.form.get("seen", "")
        if report(asked, await self._gateway.fleet.act("allow", {"server": name, "seen": seen})):
            problem = await self._gateway.pins.share(name, seen)
            if problem is not None:
                asked.signed_in.say(f"Server {name!r}: {problem}", problem=True)
        else:
            if name not in self._gateway.hub.clients:
                raise ConsoleRefusal(404, f"Server {name!r} was not found.")
            asked.signed_in.say("It is another difference by now: look at it again.", problem=True)
        return ConsoleReply.see(asked.url("/pins"))

    async def _allow_here(self, body: Json) -> Json:
        name = text_or_empty(body.get("server"))
        seen = text_or_empty(body.get("seen"))
        done = await self._gateway.pins.allow(name, seen)
        if done.problem is not None:
            return outcome(problems=[f"Server {name!r}: {done.problem}"])
        if not done.text:
            return outcome()
        return outcome(f"Server {name!r}: {done.text}; this is pinned now.")

    async def sign_ins(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the stored sign-ins; no token is shown, and none is renewed."""
        sign_ins: dict[TokenKey, SignInStatus] = {}
        problems: list[str] = []
        for store in self._token_stores():
            try:
                with anyio.fail_after(_STORE_SECONDS):
                    for record in await store.records():
                        sign_ins[record.key] = SignInStatus.of(record)
            except (StoreError, TimeoutError) as error:
                problems.append(str(error) or "the store of sign-ins did not answer in time")
        names = self._names_by_resource()
        rows: list[tuple[str, str, SignInStatus]] = []
        for sign_in in list(sign_ins.values())[:_MAX_SHOWN]:
            servers = ", ".join(names.get(sign_in.resource, ()))
            rows.append((servers, principal_name(sign_in.principal), sign_in))
        caller_configs = self._gateway.server.callers.hubs.configs.values()
        return self._pages.page(
            asked,
            "sign-ins.html",
            rows=rows,
            problems=problems,
            callers=list(map(_as_callers, caller_configs)),
        )

    def _names_by_resource(self) -> dict[str, list[str]]:
        """Return the names of the servers that have a URL, by the resource that tokens for them name."""
        configs = [client.config for client in self._gateway.hub.clients.values() if client.config.url]
        configs += self._gateway.server.callers.hubs.configs.values()
        names: dict[str, list[str]] = {}
        for config in configs:
            names.setdefault(resource_of(config.url), []).append(config.name)
        return names

    def _token_stores(self) -> list[TokenStore]:
        """Return the stores of the sign-ins at upstreams, each once; the default store if there is no other."""
        default = default_token_store()
        callers = self._gateway.server.callers.hubs
        stores: list[TokenStore] = []
        for client in self._gateway.hub.clients.values():
            settings = _oauth_of(client.config)
            if settings is not None:
                stores.append(settings.store or default)
        for config in callers.configs.values():
            settings = _oauth_of(config)
            if settings is not None and settings.store is not None:
                stores.append(settings.store)
            else:
                stores.append(callers.store)
        # By identity: a store need not be hashable.
        return list({id(store): store for store in stores or [default]}.values())


def _pinned(client: McpConnection) -> PinnedView:
    changes = client.pin_changes
    return PinnedView(
        name=client.name,
        lock=str(lock_path(client.config)),
        changes=tuple(map(_shown, changes[:_MAX_SHOWN])),
        withheld=len(client.withheld),
        findings=tuple(map(str, client.findings[:_MAX_SHOWN])),
        problem="" if changes else "\n".join(client.pin_problems),
    )


def _shown(change: PinChange) -> ShownChange:
    return ShownChange(
        text=change.text,
        diff=tuple(change.diff()),
        after="" if change.after is None else as_json(change.after),
        seen=change_digest(change),
    )


def _oauth_of(config: ServerConfig) -> OAuth | None:
    if config.auth is None:
        return None
    return config.auth.oauth


def _as_callers(config: ServerConfig) -> tuple[str, str, str]:
    """Return a server that is called as its callers, how they differ there, and the tool by which they sign in."""
    if signs_in(config):
        return config.name, "each caller signs in by the tool", sign_in_tool(config.name, config.tool_prefix).name
    if config.signs_in_callers:
        return config.name, "the token of each caller is exchanged", ""
    names = ", ".join((*config.forward_headers, *config.claim_headers))
    return config.name, f"each caller has its own headers: {names}", ""
