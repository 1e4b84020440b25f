"""Merge the shared gateway with the caller's own, whose upstreams use the caller's credentials.

Comes before the other features of a gateway. Lists are those of both, one after the other; a name belongs to the
shared gateway if that knows it, else to the caller's. Without upstreams that use callers' credentials, it does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary, ref

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import array_or_empty, as_object, as_text, object_or_empty, without_members
from toolweave._text import counted
from toolweave.connect import ConnectionState
from toolweave.errors import AuthRequiredError, RequestError, ToolError, as_tool_error
from toolweave.gateway._callers.gateways import CallerGateways, InnerGateway
from toolweave.gateway._callers.hubs import signs_in
from toolweave.gateway._relay.routes import Routes
from toolweave.gateway._sign_in.sign_in_first import SignInFirst, sign_in_tool, without_round
from toolweave.gateway._sign_in.sign_ins import SignIns
from toolweave.gateway._tasks.names import TaskNames
from toolweave.hub._hub import down_servers
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolweave.protocol.tasks import TASK_ID
from toolweave.serve import CallNext, Offered, OfferLookup, Request
from toolweave.serve._changes import Changes
from toolweave.serve.request import Feature, Json, Method, may_use
from toolweave.tools import ToolResult, ToolSpec
from toolweave.tools.mcp import call_result

_LISTS: Mapping[str, str] = {
    methods.TOOLS_LIST: "tools",
    methods.PROMPTS_LIST: "prompts",
    methods.RESOURCES_LIST: "resources",
    methods.RESOURCES_TEMPLATES_LIST: "resourceTemplates",
    methods.SKILLS_LIST: "skills",
}
_TASKS = frozenset({methods.TASKS_GET, methods.TASKS_RESULT, methods.TASKS_UPDATE, methods.TASKS_CANCEL})
_FOLLOWING = frozenset({methods.RESOURCES_SUBSCRIBE, methods.SUBSCRIPTIONS_LISTEN})
_OF_URI = frozenset({methods.RESOURCES_READ, methods.SKILLS_GET, methods.RESOURCES_DIRECTORY_READ})
_CURSOR = "caller."
"""The beginning of cursors of the caller's own lists."""
_UNKNOWN = frozenset({INVALID_PARAMS, RESOURCE_NOT_FOUND, METHOD_NOT_FOUND})
Owns: TypeAlias = Callable[[Request, InnerGateway], Awaitable[bool]]
OwnAnswer: TypeAlias = Callable[[Method, Request, InnerGateway], Awaitable[Json]]


class OuterGateway(OfferLookup, Protocol):
    """The shared gateway, as it is used in this module.

    Attributes:
        routes: Finds the upstream of a name or URI.
        changes: The subscribers.
        callers: The gateways of its callers.
        sign_ins: The sign-ins of callers.
    """

    routes: Routes
    changes: Changes
    callers: CallerGateways
    sign_ins: SignIns

    def serves_to_callers(self, server: str) -> bool:
        """Whether anything of a server that is called as its callers is shown."""
        ...

    async def is_of_caller(self, uri: str, inner: InnerGateway) -> bool:
        """Whether the gateway of a caller has a resource that this one has not."""
        ...


class CallerRequests:
    """The feature: the methods of other features, for both gateways.

    Args:
        outer: The shared gateway.
        features: Its features.
        first: Answers requests of callers who are not signed in yet.
        names: Reads the ids of tasks.
    """

    def __init__(
        self, outer: OuterGateway, features: Sequence[Feature], *, first: SignInFirst, names: TaskNames
    ) -> None:
        self._outer = outer
        self._features = tuple(features)
        self._first = first
        self._names = names
        self._lookups: WeakKeyDictionary[InnerGateway, _CallerOffers] = WeakKeyDictionary()
        self._owns: Mapping[str, Owns] = {
            methods.PROMPTS_GET: self._owns_prompt,
            **dict.fromkeys(_OF_URI, self._owns_resource),
            methods.COMPLETION_COMPLETE: self._owns_reference,
            **dict.fromkeys(_TASKS, self._owns_task),
        }
        self._looked_up = {*_LISTS, *self._owns, methods.TOOLS_CALL, *_FOLLOWING}

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods of lists, and those that are about one thing."""
        found: dict[str, Method] = {}
        for feature in self._features:
            for name, answer in feature.methods(modern=modern).items():
                found.setdefault(name, answer)
        own: dict[str, OwnAnswer] = {
            **dict.fromkeys(_LISTS, self._list),
            **{name: partial(self._one, owns) for name, owns in self._owns.items()},
            methods.TOOLS_CALL: self._call,
            methods.LOGGING_SET_LEVEL: self._set_level,
        }
        return {name: partial(self._before_both, own[name], answer) for name, answer in found.items() if name in own}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return nothing: the capabilities are those of the upstreams taken together."""
        return {}

    def look_up(self, request: Request, call_next: CallNext) -> Awaitable[Json]:
        """Answer a request through further middleware, which also finds the offers of the caller's own servers."""
        if request.method not in self._looked_up or not self._has_own(request):
            return call_next(request)

        async def found(call_next: CallNext, request: Request, inner: InnerGateway) -> Json:
            # what this caller alone is listed
            if request.server is not None and request.server is not self._outer:
                lookup = _CallerOffers(request.server, inner, self._sign_in_tools)
                return await call_next(self._first.settled(request.replace(server=lookup)))
            lookup = self._lookups.get(inner)
            # one for each gateway of a caller: middleware that keeps something keeps it by this
            if lookup is None:
                lookup = self._lookups[inner] = _CallerOffers(self._outer, inner, self._sign_in_tools)
            return await call_next(self._first.settled(request.replace(server=lookup)))

        return self._before_both(found, call_next, request)

    async def _before_both(self, answer: OwnAnswer, own: Method, request: Request) -> Json:
        """Answer a request by `answer`, which gets the caller's gateway; by `own` if it has none."""
        if not self._has_own(request) or self._is_everybodys(request):
            return await own(request)
        try:
            async with self._outer.callers.lease(request) as inner:
                return await (own(request) if inner is None else answer(own, request, inner))
        except ToolError as exc:
            if request.method == methods.TOOLS_CALL:
                return call_result(ToolResult.failure(exc), modern=request.modern)
            raise RequestError(exc.message, code=INTERNAL_ERROR, data=exc.data) from None

    def _has_own(self, request: Request) -> bool:
        """Whether the caller of a request may have its own servers."""
        return self._outer.callers.hubs.serves(request)

    def _is_everybodys(self, request: Request) -> bool:
        """Whether a request calls a tool of the shared gateway, and so needs no gateway of the caller."""
        name = request.params.get("name")
        is_call = request.method == methods.TOOLS_CALL
        return is_call and (not isinstance(name, str) or self._outer.find_tool(name) is not None)

    # lists

    async def _list(self, own: Method, request: Request, inner: InnerGateway) -> Json:
        """Return a list page: shared entries first, then the caller's."""
        self._outer.changes.hear(request.client.conversation, self._outer.callers.topic(request) or "")
        kind = _LISTS[request.method]
        cursor = request.params.get("cursor")
        if isinstance(cursor, str) and cursor.startswith(_CURSOR):
            params = {**request.params, "cursor": cursor.removeprefix(_CURSOR)}
            return await self._own_page(kind, request.replace(params=params), inner)
        result = await own(request)
        if "nextCursor" in result and cursor is not None:
            return result
        mine = await self._own_page(kind, request.replace(params=_without_cursor(request.params)), inner)
        statuses = object_or_empty(mine.get("_meta") if cursor is None else None)
        if "nextCursor" in result:
            return _with_statuses(result, statuses)
        joined = {**result, kind: [*_entries(result, kind), *_entries(mine, kind)]}
        if "nextCursor" in mine:
            joined["nextCursor"] = mine["nextCursor"]
        if request.modern:
            joined |= {"ttlMs": 0, "cacheScope": "private"}
        return _with_statuses(joined, statuses)

    async def _own_page(self, kind: str, request: Request, inner: InnerGateway) -> Json:
        """Return a page of the caller's own list, and before it the tools that sign in."""
        if kind == "tools":
            await self._outer.sign_ins.signed_in_elsewhere(inner, str(request.client.principal))
        try:
            found: Json = dict(await _method_of(inner, request)(request))
        except RequestError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise
            found = {kind: []}  # none of them offers such things
        if kind == "tools":
            entries = [one for one in _entries(found, kind) if self._outer.find_tool(one["name"]) is None]
            first = request.params.get("cursor") is None
            offered = [one for one in self._sign_in_tools(inner) if first and self._may(request, one)]
            found[kind] = [*map(_definition, offered), *entries]
        if "nextCursor" in found:
            found["nextCursor"] = _CURSOR + found["nextCursor"]
        return found

    def _sign_in_tools(self, inner: InnerGateway) -> Sequence[ToolSpec]:
        """Return the tools by which the caller signs in where it has yet to, or is about to."""
        found: list[ToolSpec] = []
        if not inner.of_caller:
            return found
        for name, config in self._outer.callers.hubs.configs.items():
            if not signs_in(config) or not self._outer.serves_to_callers(name):
                continue
            # A tool whose link was opened stays although its server is usable: its user may have a code to give to it.
            if not _is_usable(inner, name) or self._outer.sign_ins.begun(name, str(inner.of_caller)):
                found.append(sign_in_tool(name, config.tool_prefix))
        return found

    def _may(self, request: Request, tool: ToolSpec) -> bool:
        return may_use(request.client.may, "tools", tool.name, server=tool.server)

    # signing in

    async def _after_sign_in(
        self, request: Request, inner: InnerGateway, tool: ToolSpec, scopes: Sequence[str] = ()
    ) -> Json:
        """Answer a request whose caller has to sign in before."""
        result = await self._first.answer(request, tool, scopes)
        if result is not None:
            return result
        if request.method != methods.TOOLS_CALL or request.params.get("name") != tool.name:
            return self._first.request_repeat(request, str(tool.server))
        count = sum(one.server == tool.server for one in inner.tools.snapshot())
        text = f"You are signed in at {tool.server}: {counted(count, 'tool')} of it can be used now."
        return call_result(ToolResult.of(text), modern=request.modern)

    async def _refused(self, request: Request, inner: InnerGateway, exc: AuthRequiredError) -> Json:
        """Answer a request whose credentials a server of the caller refused.

        Raises:
            ToolError: Another sign-in would not help.
        """
        config = self._outer.callers.hubs.configs.get(exc.server)
        if config is None or not signs_in(config) or request.method not in methods.INPUT_REQUIRED:
            raise as_tool_error(exc) from None
        # A 403 asks for more scopes. One that names none, or those that were granted a moment ago, would ask the user
        # for the same grant forever.
        principal = str(inner.of_caller)
        asked = not exc.scopes or self._outer.sign_ins.asked_lately(str(exc.server), principal, exc.scopes)
        if exc.status == 403 and asked:
            raise as_tool_error(exc) from None
        tool = sign_in_tool(config.name, config.tool_prefix)
        return await self._after_sign_in(request, inner, tool, exc.scopes)

    def _resumed(self, request: Request, inner: InnerGateway) -> tuple[Request, ToolSpec | None]:
        """Return a request, and the sign-in tool of its round; without the round if the sign-in is done."""
        request = self._first.settled(request)
        if request.method in methods.INPUT_REQUIRED:
            round_ = self._first.resumed(request)
        else:
            round_ = None
        if round_ is None:
            return request, None
        config = self._outer.callers.hubs.configs.get(round_.server)
        sign_ins = self._outer.sign_ins
        # it may be another replica's
        waits = sign_ins.replica or sign_ins.current(round_.server, str(inner.of_caller))
        # done meanwhile, or the server is gone
        if config is None or (not waits and _is_usable(inner, round_.server)):
            return without_round(request), None
        return request, sign_in_tool(config.name, config.tool_prefix)

    # one thing

    async def _one(self, owns: Owns, own: Method, request: Request, inner: InnerGateway) -> Json:
        """Answer a request about one thing by the gateway that has it."""
        request, tool = self._resumed(request, inner)
        if tool is not None:
            return await self._after_sign_in(request, inner, tool)
        mine = await owns(request, inner)
        answers = [_method_of(inner, request)] if mine else [own]
        if not mine and request.method in _OF_URI and inner.hub.clients:
            answers.append(_method_of(inner, request))  # it may be of a template of theirs
        unknown: RequestError | None = None
        for answer in answers:
            try:
                return await answer(request)
            except AuthRequiredError as exc:
                return await self._refused(request, inner, exc)
            except RequestError as exc:
                if mine or exc.code not in _UNKNOWN:
                    raise
                unknown = unknown or exc
        missing = self._missing_for(request, inner)
        if missing is None:
            assert unknown is not None
            raise unknown
        return await self._after_sign_in(request, inner, missing)

    def _missing_for(self, request: Request, inner: InnerGateway) -> ToolSpec | None:
        """Return the tool that signs in where a tool or prompt of this name would be, if there is one."""
        name = request.params.get("name")
        if request.method not in (methods.TOOLS_CALL, methods.PROMPTS_GET) or not isinstance(name, str):
            return None
        missing = [one for one in self._sign_in_tools(inner) if not _is_usable(inner, str(one.server))]
        found = next((one for one in missing if _is_of(name, one)), None)
        if found is not None and self._may(request, found):
            return found
        return None

    async def _owns_prompt(self, request: Request, inner: InnerGateway) -> bool:
        name = request.params.get("name")
        return isinstance(name, str) and await self._has_prompt(name, inner)

    async def _has_prompt(self, name: str, inner: InnerGateway) -> bool:
        return await self._outer.routes.prompt(name) is None and await inner.routes.prompt(name) is not None

    async def _owns_resource(self, request: Request, inner: InnerGateway) -> bool:
        uri = request.params.get("uri")
        return isinstance(uri, str) and await self._outer.is_of_caller(uri, inner)

    async def _owns_reference(self, request: Request, inner: InnerGateway) -> bool:
        ref = object_or_empty(request.params.get("ref"))
        name = as_text(ref.get("name"))
        uri = as_text(ref.get("uri"))
        if name is not None and uri is None:
            return await self._has_prompt(name, inner)
        if uri is None:
            return False
        return await self._outer.routes.template(uri) is None and await inner.routes.template(uri) is not None

    async def _owns_task(self, request: Request, inner: InnerGateway) -> bool:
        name = as_text(request.params.get(TASK_ID))
        if name is None:
            read = None
        else:
            read = self._names.read(request.client.principal, name)
        return read is not None and read.server in self._outer.callers.hubs.configs

    async def _set_level(self, own: Method, request: Request, inner: InnerGateway) -> Json:
        """Set the level of log messages of both."""
        with suppress(RequestError):  # none of them logs
            await _method_of(inner, request)(request)
        return await own(request)

    # calls

    async def _call(self, own: Method, request: Request, inner: InnerGateway) -> Json:
        name = request.text("name")
        await self._outer.sign_ins.signed_in_elsewhere(inner, str(request.client.principal))
        request, tool = self._resumed(request, inner)
        # exactly: rules apply to the called name
        if tool is None and name not in inner.tools.snapshot().by_name:
            named = (one for one in self._sign_in_tools(inner) if one.name == name)
            tool = next((one for one in named if self._may(request, one)), None) or self._missing_for(request, inner)
            if tool is None and down_servers(inner.hub).owner(name) is None:
                return await own(request)
        if tool is not None:
            return await self._after_sign_in(request, inner, tool)
        try:
            return await _method_of(inner, request)(request)
        except AuthRequiredError as exc:
            return await self._refused(request, inner, exc)


class CallerLayer:
    """The outermost middleware, which adds the offers of the caller's own servers to those that other middleware sees.

    Args:
        requests: The requests of callers.
    """

    reads_results = False
    sees_plain_calls = False  # calls to the servers of one caller are never sent at once

    def __init__(self, requests: CallerRequests) -> None:
        self._requests = requests

    def __call__(self, request: Request, call_next: CallNext) -> Awaitable[Json]:
        """Answer a request."""
        return self._requests.look_up(request, call_next)


def _method_of(inner: InnerGateway, request: Request) -> Method:
    return inner.methods(modern=request.modern)[request.method]


def _is_usable(inner: InnerGateway, server: str) -> bool:
    connection = inner.hub.clients.get(server)
    if connection is None:
        error = inner.hub.errors.get(server)
        # signing in would not help
        return error is not None and not isinstance(error, AuthRequiredError)
    return connection.state is not ConnectionState.AUTH_REQUIRED


def _is_of(name: str, tool: ToolSpec) -> bool:
    """Whether a name is one that tools of the same server have."""
    prefix = tool.name.removesuffix(tool.original_name)
    return bool(prefix) and name.startswith(prefix)


def _definition(tool: ToolSpec) -> Json:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations,
    }


def _entries(result: Mapping[str, Any], kind: str) -> list[Any]:
    """Return the entries of a list, which may be kept as one JSON text."""
    entries = result.get(kind, [])
    if isinstance(entries, msgspec.Raw):
        return decode_json(entries)
    return array_or_empty(entries)


def _with_statuses(result: Json, meta: Mapping[str, Any]) -> Json:
    """Replace the statuses of shared servers by those of the caller's own."""
    if not meta:
        return result
    there = object_or_empty(result.get("_meta"))
    objects = {name: found for name, it in meta.items() if (found := as_object(it)) is not None}
    joined: Json = {name: {**object_or_empty(there.get(name)), **it} for name, it in objects.items()}
    return {**result, "_meta": {**there, **joined}}


def _without_cursor(params: Mapping[str, Any]) -> Json:
    return without_members(params, "cursor")


class _CallerOffers:
    """The `OfferLookup` of one caller; the same as long as its gateway is there, which it does not keep.

    Args:
        outer: The shared gateway.
        inner: The gateway of the caller.
        sign_in_tools: Returns the tools by which the caller signs in.
    """

    def __init__(
        self, outer: OfferLookup, inner: InnerGateway, sign_in_tools: Callable[[InnerGateway], Sequence[ToolSpec]]
    ) -> None:
        self._outer = outer
        self._inner = ref(inner)
        self._sign_in_tools = sign_in_tools

    def find_tool(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool by its name, or None."""
        found = self._outer.find_tool(name)
        inner = self._inner()
        if found is not None or inner is None:
            return found
        own = inner.tools.snapshot().by_name.get(name)
        return own or next((one for one in self._sign_in_tools(inner) if one.name == name), None)

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:
        """List the definitions that `offers_of` needs from the servers of both gateways."""
        await self._outer.learn_offers(method, params)
        inner = self._inner()
        if inner is not None:
            await inner.learn_offers(method, params)

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, of both."""
        if method == methods.TOOLS_CALL:
            name = params.get("name")
            spec = self.find_tool(name) if isinstance(name, str) else None
            if spec is None:
                return ()
            return (Offered("tools", spec.name, spec.scopes, spec.server),)
        inner = self._inner()
        own = () if inner is None else inner.offers_of(method, params)
        return [*self._outer.offers_of(method, params), *own]
