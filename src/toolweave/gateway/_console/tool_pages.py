"""The pages about offers and calls: tools to search and to try, prompts and resources, the last calls."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from toolweave._text import counted
from toolweave.definitions import tool_hash
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._console.app_pages import AppHost, ShownApp, app_uri
from toolweave.gateway._console.fleet_rows import newest_rows, read_replies
from toolweave.gateway._console.forms import FormField, fields_of, read_fields, read_json
from toolweave.gateway._console.rendering import ConsolePages
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest, policy
from toolweave.gateway._console.trial import TrialOutcome, try_tool
from toolweave.gateway._observe.recent_calls import RecentCall, RecentCalls
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json
from toolweave.tools import ToolSpec

_MAX_SHOWN = 200
_LISTS_SECONDS = 5
_CALLS_SECONDS = 2
_HINTS = {
    "readOnlyHint": ("only reads", "may change something"),
    "destructiveHint": ("may destroy something", "destroys nothing"),
    "idempotentHint": ("may be repeated", "counts each time"),
    "openWorldHint": ("reaches the world outside", "stays inside"),
}


class CallsHere(msgspec.Struct, frozen=True, kw_only=True):
    """The last calls at one replica.

    Attributes:
        total: The number of calls that it keeps.
        failed: How many of them failed.
        calls: The newest of them, all or those that failed.
    """

    total: int
    failed: int
    calls: tuple[RecentCall, ...]


class OfferPages:
    """The pages about offers and calls.

    Args:
        gateway: The gateway.
        pages: Renders them.
        calls: Keeps the last calls.
        apps: Shows the pages of tools.
    """

    def __init__(self, gateway: ManagedGateway, pages: ConsolePages, calls: RecentCalls, apps: AppHost) -> None:
        self._gateway = gateway
        self._pages = pages
        self._calls = calls
        self._apps = apps
        gateway.fleet.on("calls", self._calls_here)
        self.shown: Mapping[str, ConsolePage] = {
            "/tools": self.tools,
            "/tool": self.tool,
            "/offers": self.offers,
            "/calls": self.calls,
        }
        self.changing: Mapping[str, ConsolePage] = {"/tool": self.call}

    async def tools(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the tools whose names, descriptions or servers have all words that are searched for."""
        every = self._gateway.hub.snapshot()
        words = asked.query.get("q", "").casefold().split()
        found = [spec for spec in every if _has(spec, words)]
        if words:  # the name says more than the description
            found.sort(key=lambda spec: not all(word in spec.name.casefold() for word in words))
        shown = found[:_MAX_SHOWN]
        if words:
            count = f"{len(found)} of {counted(len(every), 'tool')}"
        else:
            count = counted(len(every), "tool")
        summary = count + (f", the first {_MAX_SHOWN} are shown" if len(found) > _MAX_SHOWN else "")
        return self._pages.live(asked, "tools.html", summary=summary, seconds=_LISTS_SECONDS, tools=shown)

    async def tool(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show a tool, and a form to try it."""
        return await self._tool_page(asked, self._spec(asked), {}, {}, None)

    async def call(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Call a tool with the arguments of a form."""
        spec = self._spec(asked)
        if asked.form.get("seen") != tool_hash(spec.input_schema):
            wrong = {"": "The definition of this tool has changed. Look at its form again."}
            return await self._tool_page(asked, spec, {}, wrong, None)
        fields = fields_of(spec.input_schema)
        wrong = dict[str, str]()
        if fields is None or "json" in asked.form:
            try:
                arguments = read_json(asked.form.get("json", ""))
            except ValueError as error:
                arguments = {}
                wrong = {"json": str(error)}
        else:
            arguments, wrong = read_fields(fields, asked.form)
        if wrong:
            return await self._tool_page(asked, spec, asked.form, wrong, None)
        outcome = await try_tool(self._gateway, spec.name, arguments, receive)
        app = await self._apps.show(asked, spec, arguments, outcome.result, receive)
        return await self._tool_page(asked, spec, asked.form, {}, outcome, app)

    async def offers(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the prompts and resources that are known."""
        sides = {name: client.gateway_side for name, client in self._gateway.hub.clients.items()}
        prompts = [(name, one) for name, side in sides.items() for one in side.list_facts("prompts").items]
        resources = [(name, one) for name, side in sides.items() for one in side.list_facts("resources").items]
        templates = [(name, one) for name, side in sides.items() for one in side.list_facts("resourceTemplates").items]
        summary = ", ".join(
            (counted(len(prompts), "prompt"), counted(len(resources), "resource"), counted(len(templates), "template"))
        )
        return self._pages.live(
            asked,
            "offers.html",
            summary=summary,
            seconds=_LISTS_SECONDS,
            prompts=prompts[:_MAX_SHOWN],
            resources=resources[:_MAX_SHOWN],
            templates=templates[:_MAX_SHOWN],
        )

    async def calls(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the last calls at all replicas, all or those that failed."""
        only = "failed" if asked.query.get("only") == "failed" else ""
        replies = await self._gateway.fleet.look("calls", {"only": only})
        found, silent = read_replies(replies, CallsHere)
        rows = [(one.at, peer, one) for peer, here in found.items() for one in here.calls]
        total = sum(here.total for here in found.values())
        failed = sum(here.failed for here in found.values())
        return self._pages.live(
            asked,
            "calls.html",
            summary=f"{counted(total, 'call')}, {failed} failed",
            seconds=_CALLS_SECONDS,
            calls=[(one, _failed(one), peer) for peer, one in newest_rows(rows, _MAX_SHOWN)],
            several=len(found) + len(silent) > 1,
            silent=silent,
            only=only,
        )

    async def _calls_here(self, body: Json) -> Json:
        every = self._calls.newest_first
        failed = [one for one in every if _failed(one)]
        shown = failed if body.get("only") == "failed" else every
        found = CallsHere(total=len(every), failed=len(failed), calls=tuple(shown[:_MAX_SHOWN]))
        return msgspec.to_builtins(found)

    def _spec(self, asked: ConsoleRequest) -> ToolSpec:
        spec = self._gateway.hub.snapshot().find(asked.query.get("name", ""))
        if spec is None:
            raise ConsoleRefusal(404, f"Tool {asked.query.get('name', '')!r} was not found, or its server is away.")
        return spec

    async def _tool_page(
        self,
        asked: ConsoleRequest,
        spec: ToolSpec,
        sent: Mapping[str, str],
        wrong: Mapping[str, str],
        outcome: TrialOutcome | None,
        app: ShownApp | None = None,
    ) -> ConsoleReply:
        fields = fields_of(spec.input_schema)
        values = _values(fields or (), sent)
        frames = await self._apps.frames(asked, spec)
        page = self._pages.page(
            asked,
            "tool.html",
            status=422 if wrong else 200,
            spec=spec,
            hints=_hints(spec),
            fields=fields,
            values=values,
            as_json=sent.get("json", "" if sent else _example(spec)),
            wrong=wrong,
            labels={one.key: one.name for one in fields or ()} | {"json": "Arguments as JSON"},
            outcome=outcome,
            app=app,
            at=time.time(),
            seen=tool_hash(spec.input_schema),
            has_app=app_uri(spec) is not None,
            frames=tuple(frames),
        )
        if not frames:
            return page
        return page._replace(headers=[*page.headers, policy(tuple(frames.values()))])


def _values(fields: Sequence[FormField], sent: Mapping[str, str]) -> dict[str, str]:
    """Return the text in each field: the sent value, or the default."""
    by_fields = bool(sent) and "json" not in sent
    return {one.key: sent.get(one.key, "") if by_fields else one.value for one in fields}


def _has(spec: ToolSpec, words: Sequence[str]) -> bool:
    if not words:
        return True
    text = f"{spec.name} {spec.title or ''} {spec.description} {spec.server or ''}".casefold()
    return all(word in text for word in words)


def _hints(spec: ToolSpec) -> list[str]:
    found = [words[not said] for name, words in _HINTS.items() if (said := spec.hint(name)) is not None]
    if spec.for_models:
        return found
    return [*found, "only its page may call it"]


def _failed(call: RecentCall) -> bool:
    return call.outcome in ("tool_error", "error", "cancelled")


def _example(spec: ToolSpec) -> str:
    if fields_of(spec.input_schema) is not None:
        return ""
    return "{}"
