"""Server features beside tools: resources, prompts, completions and ping.

Knows nothing of the connection's lifecycle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import anyio

from toolweave._json_types import Json, JsonObject, array_or_empty, object_or_empty
from toolweave.config import ServerConfig
from toolweave.connect._catalog import Catalog
from toolweave.connect._events import EventListeners
from toolweave.connect._feed.list_cache import ListChanged, LiveList
from toolweave.connect._feed.list_reader import (
    READ_PROMPTS_AGAIN,
    READ_RESOURCES_AGAIN,
    READ_TEMPLATES_AGAIN,
    EntryReader,
    ParsedList,
    SecondReading,
    ToolRefusal,
)
from toolweave.connect._feed.refresher import CAPABILITIES, CHANGED_EVENTS, ListRefresher
from toolweave.connect._feed.subscriptions import ResourceUpdated
from toolweave.connect._off_loop import make_off_loop
from toolweave.connect._requester import Requester
from toolweave.connect._transports import OpenSession
from toolweave.connect._wire.request_encoder import request_text
from toolweave.definitions import OfferedDefinitions
from toolweave.definitions._definition import NAME_MEMBERS, OfferPart, offer_definitions
from toolweave.errors import ErrorKind, ProtocolError, ToolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from toolweave.protocol.component_meta import asking_for
from toolweave.protocol.content import EmbeddedResource
from toolweave.protocol.server_features import (
    Completion,
    Prompt,
    PromptResult,
    Resource,
    ResourceTemplate,
    completion_params,
    read_completion,
    read_prompt,
    read_prompt_result,
    read_reference,
    read_resource,
    read_resource_contents,
    read_template,
)
from toolweave.tools import Unsubscribe
from toolweave.tools.mcp import MAX_BLOCKS, too_many_blocks

ItemT = TypeVar("ItemT")
_OfferT = TypeVar("_OfferT", Prompt, Resource, ResourceTemplate)
_SECOND_READINGS: Mapping[OfferPart, SecondReading] = {
    "prompt": READ_PROMPTS_AGAIN,
    "resource": READ_RESOURCES_AGAIN,
    "template": READ_TEMPLATES_AGAIN,
}
_READS = frozenset({methods.RESOURCES_READ, methods.RESOURCES_DIRECTORY_READ, methods.RESOURCES_SUBSCRIBE})


class ServerFeatures:
    """The base class of `McpConnection` with the server features beside tools."""

    config: ServerConfig
    _requester: Requester
    _catalog: Catalog
    _events: EventListeners
    _list_refresher: ListRefresher

    def _follow_offers(self) -> None:
        """Set up the lists; needs `_catalog`, `_events` and `_list_refresher`."""
        server = self.config.name
        limit = self.config.max_list_bytes
        note = self._catalog.repairs.note
        self._listed: dict[OfferPart, Mapping[str, JsonObject]] = {}
        self._prompts: LiveList[Prompt] = LiveList(
            server,
            "prompts",
            identity=lambda prompt: prompt.name,
            judge=self._judge("prompt", read_prompt),
            on_change=self._list_changed,
            max_bytes=limit,
            note=note,
            redact=self.config.redact,
        )
        self._resources: LiveList[Resource] = LiveList(
            server,
            "resources",
            identity=lambda resource: resource.uri,
            judge=self._judge("resource", read_resource),
            on_change=self._list_changed,
            max_bytes=limit,
            note=note,
            redact=self.config.redact,
        )
        self._templates: LiveList[ResourceTemplate] = LiveList(
            server,
            "resourceTemplates",
            identity=lambda template: template.uri_template,
            judge=self._judge("template", read_template),
            on_change=self._list_changed,
            max_bytes=limit,
            note=note,
            redact=self.config.redact,
        )
        self._offer_lists: tuple[LiveList[Any], ...] = (self._prompts, self._resources, self._templates)
        for live in self._offer_lists:
            live.on_problem = partial(self._events.emit, "problem")
            self._list_refresher.track(live, partial(self._read, live))

    async def list_resources(self, *, refresh: bool = False, timeout: float | None = None) -> tuple[Resource, ...]:
        """Return all the server's resources, every page of them; none when it offers no resources.

        The list is cached while it is known to be current: until its `ttlMs` has run out, or until
        the server notifies of a change. `refresh` ignores the cache.

        Raises:
            ServerError: The list could not be read.
        """
        return await self._list(self._resources, refresh, timeout)

    async def list_resource_templates(
        self, *, refresh: bool = False, timeout: float | None = None
    ) -> tuple[ResourceTemplate, ...]:
        """Return all the server's resource templates, every page of them; cached as in `list_resources`."""
        return await self._list(self._templates, refresh, timeout)

    async def subscribe_resource(
        self, uri: str, listener: Callable[[ResourceUpdated], Any], *, timeout: float | None = None
    ) -> Unsubscribe:
        """Call `listener` whenever a resource is updated; return the unsubscribe once the server has agreed.

        The subscription outlives a restart of the server. An update may be reported twice, and after an
        interruption one is reported that may not have happened (`missed`), but none is lost.

        Raises:
            ProtocolError: The server does not offer subscriptions, or refuses this one.
            RequestTimeoutError: It has not agreed within `timeout` or the server's `timeout.read`.
            ToolError: The URI has no form in JSON, or the resource is withheld by its pins.
        """
        if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a URI is a string, not {type(uri).__name__}")
        # an unsendable URI must not reach the shared stream
        request_text(0, methods.RESOURCES_SUBSCRIBE, {"uri": uri})
        session = await self._requester.session()
        await self._check_pins(methods.RESOURCES_SUBSCRIBE, {"uri": uri})
        offered = object_or_empty(session.conversation.agreement.capabilities.get("resources"))
        if not offered.get("subscribe"):
            text = "it does not offer subscriptions to resources (its capabilities lack resources.subscribe)"
            raise ProtocolError(text, server=self.config.name, code=METHOD_NOT_FOUND)
        if timeout is None:
            seconds = self.config.timeout.read
        else:
            seconds = timeout
        with anyio.move_on_after(seconds):
            return await self._requester.with_reconnect(lambda _line: self._list_refresher.subscribe(uri, listener))
        raise self._requester.too_slow(f"the subscription to {uri!r}", seconds)

    async def read_resource(
        self, uri: str, *, version: str | None = None, timeout: float | None = None
    ) -> tuple[EmbeddedResource, ...]:
        """Return the contents of a resource; of a server of Toolweave also in a `version` that is not the newest.

        Raises:
            ProtocolError: The server does not know it (code -32602, or -32002 from older servers).
            ToolError: The resource is withheld by its pins.
        """
        method = methods.RESOURCES_READ
        raw = await self._requester.request(method, {"uri": uri}, timeout, meta=asking_for(version))
        note = self._catalog.repairs.of_answer(method)
        return await self._made(method, raw.get("contents"), partial(read_resource_contents, raw, uri=uri, note=note))

    async def list_prompts(self, *, refresh: bool = False, timeout: float | None = None) -> tuple[Prompt, ...]:
        """Return all the server's prompts, every page of them; cached as in `list_resources`."""
        return await self._list(self._prompts, refresh, timeout)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        version: str | None = None,
        timeout: float | None = None,
    ) -> PromptResult:
        """Return a prompt filled in with string arguments; of a server of Toolweave also in another `version`.

        Raises:
            ProtocolError: The server does not know it (code -32602), or refuses the arguments.
            ToolError: The prompt is withheld by its pins.
        """
        method = methods.PROMPTS_GET
        params = {"name": name, "arguments": dict(arguments or {})}
        raw = await self._requester.request(method, params, timeout, meta=asking_for(version))
        note = self._catalog.repairs.of_answer(method)
        return await self._made(method, raw.get("messages"), partial(read_prompt_result, raw, note=note))

    async def complete(
        self,
        ref: Mapping[str, str],
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Completion:
        """Return values that complete an argument of a prompt or of a resource template.

        `ref` is `{"type": "ref/prompt", "name": ...}` or `{"type": "ref/resource", "uri": ...}`.
        """
        params = completion_params(ref, argument, value, context=context)
        raw = await self._requester.request(methods.COMPLETION_COMPLETE, params, timeout)
        return read_completion(raw, note=self._catalog.repairs.of_answer(methods.COMPLETION_COMPLETE))

    async def offered_definitions(self, *, timeout: float | None = None) -> OfferedDefinitions:
        """Return the definitions beside tools that pins cover, as the server has them now, withheld ones included.

        They are for `PinnedServer.of` and `drift`. `timeout` is seconds for each list.

        Raises:
            ServerError: A list could not be read.
        """
        await self._requester.session()
        for live in self._offer_lists:
            await self._list(live, refresh=True, timeout=timeout)
        listed = self._listed
        return OfferedDefinitions(
            instructions=self._catalog.guard.original_instructions or "",
            prompts=listed.get("prompt", offer_definitions("prompt", self._prompts.items)),
            resources=listed.get("resource", offer_definitions("resource", self._resources.items)),
            templates=listed.get("template", offer_definitions("template", self._templates.items)),
        )

    async def request(self, method: str, params: JsonObject | None = None, *, timeout: float | None = None) -> Json:
        """Send any request, such as one of an extension, and return its result as it came.

        The `_meta` of the era is added; nothing is validated, cached, or retried when it may have run.

        Raises:
            ProtocolError: The server answered with a JSON-RPC error.
            ServerError: It did not answer.
        """
        return await self._requester.request(method, params or {}, timeout)

    async def ping(self) -> None:
        """Ping the server: `ping`, or `server/discover` in revisions without it (2026-07-28)."""
        session = await self._requester.session()
        await self._requester.request(
            methods.SERVER_DISCOVER if session.conversation.agreement.modern else methods.PING, {}
        )

    async def _made(self, method: str, parts: object, make: Callable[[], ItemT]) -> ItemT:
        number = len(array_or_empty(parts))
        if number > MAX_BLOCKS:
            raise too_many_blocks(number, self.config.name)
        try:
            return await make_off_loop(parts, make)
        except ValueError as exc:
            text = f"its answer to {method} {exc}"
            raise ProtocolError(text, server=self.config.name, code=INTERNAL_ERROR) from None

    async def _list(self, live: LiveList[ItemT], refresh: bool, timeout: float | None) -> tuple[ItemT, ...]:
        await self._requester.session()
        capability = CAPABILITIES[live.kind]
        offered = object_or_empty(self._offered.get(capability))
        promised = live.ttl_seconds is not None or offered.get("listChanged") is True
        if live.fresh and promised and not refresh:
            return live.items
        try:
            await self._requester.with_reconnect(lambda session: self._read(live, session, timeout))
        except ProtocolError:
            # many servers answer oddly to lists that they do not offer: an empty list, not a fault
            if capability not in self._offered:
                return ()
            raise
        return live.items

    async def _read(self, live: LiveList[Any], session: OpenSession, timeout: float | None = None) -> None:
        if timeout is None:
            seconds = self.config.timeout.list
        else:
            seconds = timeout
        await self._requester.bounded(lambda _: live.refresh(session.conversation.request), live.method, seconds)

    def _judge(
        self, part: OfferPart, read: Callable[[JsonObject], _OfferT]
    ) -> Callable[[list[Any], ToolRefusal | None], Awaitable[ParsedList[_OfferT]]]:
        """Return a function that reads the entries of a list, and leaves out those that the pins withhold.

        Entries without a name are left out as well, each with its reason.
        """
        noun = "resource template" if part == "template" else part
        second = _SECOND_READINGS[part]
        note = self._catalog.repairs.note

        async def judge(entries: list[Any], refusal: ToolRefusal | None) -> ParsedList[_OfferT]:
            reader = EntryReader(entries, NAME_MEMBERS[part], read, noun=noun, second=second, note=note)
            found = await reader.read_in_steps()
            guard = self._catalog.guard
            if not guard.compares:
                return found
            definitions = offer_definitions(part, found.items)
            self._listed[part] = definitions
            withheld, problems = guard.judge_offers(part, definitions)
            # Definitions are in the order of the items, and each name is there once.
            offered = tuple(item for item, name in zip(found.items, definitions, strict=True) if name not in withheld)
            return ParsedList(items=offered, problems=(*found.problems, *problems))

        return judge

    async def _check_pins(self, method: str, params: JsonObject) -> None:
        """Refuse a request for a prompt, a resource or a template that the pins withhold.

        The lists are read before, if they are not current: a definition may have changed since it was listed.

        Raises:
            ToolError: It is withheld, or not pinned.
            ServerError: A list could not be read.
        """
        guard = self._catalog.guard
        if not guard.blocks:
            return
        requested = _requested(method, params)
        if requested is None:
            return
        part, name = requested
        for live in self._offer_lists:
            if (live.kind == "prompts") != (part == "prompt"):
                continue
            await self._list(live, refresh=False, timeout=None)
        reason = guard.offer_refusal(part, name)
        if reason is not None:
            raise ToolError(reason, kind=ErrorKind.DENIED)

    def _list_changed(self, change: ListChanged) -> None:
        if change:
            self._events.emit(CHANGED_EVENTS[change.kind], change)

    @property
    def _offered(self) -> JsonObject:
        session = self._requester.last_session
        if session:
            return session.conversation.agreement.capabilities
        return {}


def _requested(method: str, params: JsonObject) -> tuple[OfferPart, str] | None:
    """Return the part and the name of the definition that a request uses, or None if it uses none."""
    if method == methods.PROMPTS_GET:
        return "prompt", str(params.get("name"))
    if method in _READS:
        return "resource", str(params.get("uri"))
    if method != methods.COMPLETION_COMPLETE:
        return None
    try:
        kind, name = read_reference(object_or_empty(params.get("ref")))
    except ValueError:
        return None  # the server refuses it
    return "prompt" if kind == "prompt" else "template", name
