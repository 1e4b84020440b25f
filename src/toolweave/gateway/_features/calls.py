"""The requests that are relayed: calls of tools, prompts, resources that are read, completions.

Finds the upstream and its own name of the thing; everything else of a request goes up as it is, members that this
version does not know included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolweave._json_types import without_members
from toolweave.config import ServerConfig
from toolweave.connect import ConnectionState
from toolweave.errors import RequestError, ToolError
from toolweave.gateway._callers.perspectives import Perspectives
from toolweave.gateway._features.capabilities import declares, require_offered
from toolweave.gateway._features.fast_calls import SentToolCall
from toolweave.gateway._features.fitting import ArgumentFitter
from toolweave.gateway._features.unreached import UnreachedUpstreams
from toolweave.gateway._relay.relay import Relay
from toolweave.gateway._relay.routes import Route, Routes
from toolweave.gateway._tasks.slow_calls import SlowCalls
from toolweave.gateway._tasks.tasks import UpstreamTasks
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolweave.protocol.resource_uris import with_uris
from toolweave.protocol.server_features import completion_json, read_reference
from toolweave.serve import Request
from toolweave.serve._plain_calls import answer_of
from toolweave.serve._unknown import not_offered, unknown_reference
from toolweave.serve.request import Feature, Json, Method, OfferKind, may_use
from toolweave.tools import ToolResult, ToolSpec
from toolweave.tools.mcp import call_result

if TYPE_CHECKING:
    from toolweave.definitions._argument_rules import ShapedCalls

_UNKNOWN = frozenset({INVALID_PARAMS, RESOURCE_NOT_FOUND, METHOD_NOT_FOUND})
"""Error codes by which an upstream answers that it does not have a resource."""
_READABLE = (dict, NoneType)
"""The types of `arguments` that are read as they are; null means none."""
_OURS = frozenset({"_meta", "task"})
"""Parameters of this hop; a task is asked for in the form of the upstream."""


class Calls:
    """The feature: requests that one upstream answers.

    Args:
        perspectives: Finds the upstream, as callers see them.
        relay: Sends the requests.
        tasks: Knows which calls become tasks of their callers.
        local: Answers calls of tools that no upstream offers.
        unreached: Answers requests for what an upstream may have that could not be reached so far.
        fitter: Makes arguments fit.
        send: Sends a call at once, if it is a plain one, and returns None for any other.
        slow: Turns calls that take long into tasks; None leaves all as they are.
    """

    def __init__(
        self,
        perspectives: Perspectives,
        relay: Relay,
        tasks: UpstreamTasks,
        *,
        local: Feature,
        unreached: UnreachedUpstreams,
        fitter: ArgumentFitter,
        send: Callable[[Request], SentToolCall | None],
        slow: SlowCalls | None = None,
    ) -> None:
        self._perspectives = perspectives
        self._shared_routes = perspectives.shared.routes
        self._relay = relay
        self._upstreams = relay.shared
        self._tasks = tasks
        self._local = local
        self._unreached = unreached
        self._fitter = fitter
        self._send = send
        self._slow = slow
        self._shaped_calls: dict[tuple[bool, bool], ShapedCalls] = {}

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods that are relayed."""
        return {
            methods.TOOLS_CALL: self._call,
            methods.PROMPTS_GET: self._get_prompt,
            methods.RESOURCES_READ: self._read,
            methods.COMPLETION_COMPLETE: self._complete,
        }

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return nothing: the capabilities are those of the upstreams taken together."""
        return {}

    def _routes(self, request: Request) -> Routes:
        return self._perspectives.of(request.client).routes

    def _completes(self, request: Request, server: str) -> bool:
        return declares(self._perspectives.of(request.client).clients[server], "completions")

    def _require(self, request: Request, capability: str) -> None:
        """Refuse a method of a capability that the caller was not shown.

        Nothing is sent for it, so a client that asks for what no upstream has gets the error of a server without it.
        """
        perspective = self._perspectives.of(request.client)
        require_offered(perspective.hub, capability, request, clients=perspective.clients)

    async def _call(self, request: Request) -> Json:
        name = request.text("name")
        if type(request.params.get("arguments")) not in _READABLE:
            route = self._routes(request).tool(name)
            if route is not None:
                request = self._with_object(request, route)
            request.object("arguments")  # anything else is refused
        sent = None if request.sent is not None else self._send(request)
        if sent is None:
            return await self._relayed(request, name)
        try:
            answer = await answer_of(sent)
            if answer is None:
                result = None
            else:
                result = sent.members(answer, texts=request.takes_texts)
            if result is None:
                return await self._relayed(request.replace(sent=sent), name)
            return result
        finally:
            sent.end()

    async def _relayed(self, request: Request, name: str) -> Json:
        """Answer a call by the relay, whether it was sent already or not."""
        sent = _sent_for(request)
        if sent is None:
            route = self._routes(request).tool(name)
        else:
            route = sent.route
        if route is None and (answer := self._unreached.called(request, name)) is not None:
            return answer
        if route is None:
            elsewhere = self._listed_elsewhere(request, name)
            if elsewhere is not None:
                return self._not_listed(request, name, elsewhere.server)
            route = self._unlisted(request, name)
        if route is None:
            return await self._local.methods(modern=request.modern)[methods.TOOLS_CALL](request)
        if self._slow is None or route.spec is None:
            return await self._call_at(route, request)
        return await self._slow.run(request, route.spec, partial(self._call_at, route))

    def _unlisted(self, request: Request, name: str) -> Route | None:
        """Return the route of something that no upstream lists; None where it stays unknown."""
        server = self._unreached.holder_of_unlisted(request, name)
        if server is None:
            return None
        return Route(server, name)

    def _listed_elsewhere(self, request: Request, name: str) -> Route | None:
        """Return the route of a tool without one for the caller that an upstream offers on another connection.

        It is not offered to the caller: neither rules nor pins judge it for this caller. None for a tool of this
        process, and for no tool.
        """
        perspective = self._perspectives.of(request.client)
        if perspective is self._perspectives.shared or perspective.tools.snapshot().find(name) is not None:
            return None
        return self._shared_routes.tool(name)

    def _not_listed(self, request: Request, name: str, server: str) -> Json:
        """Answer a call of a tool that the connection to the server which the caller reaches does not list.

        Raises:
            RequestError: The connection has listed its tools, and this is not one of them.
        """
        reached = self._perspectives.of(request.client).clients[server]
        # While its tools cannot be listed, as when its server dies, nothing is known of this one.
        if reached.state is ConnectionState.DEGRADED:
            return self._unreached.unlisted(request, server, name)
        raise not_offered("tools", name, modern=request.modern)

    async def _call_at(self, route: Route, request: Request) -> Json:
        """Call a tool at its upstream."""
        params = _params(request, name=route.name)
        if params.get("arguments", params) is None:  # some clients write null for none
            params["arguments"] = {}
        if route.spec is not None:
            try:
                self._set_arguments(request, route, route.spec, params)
            except ToolError as error:
                return call_result(ToolResult.failure(error), modern=request.modern)
        params |= self._tasks.wanted(request, route.spec)
        follow = not self._tasks.takes(request)
        sent = _sent_for(request)
        direct = None if sent is None else sent.direct
        places: list[str] = []
        result = await self._relay.request(
            request, route, request.method, params, follow_tasks=follow, sent=direct, on_place=places.append
        )
        sent_to = replace(route, place=places[-1]) if places else route
        return await self._tasks.shown(request, sent_to, self._named(route, result))

    def _set_arguments(self, request: Request, route: Route, spec: ToolSpec, params: Json) -> None:
        """Replace the arguments of a call by those that the upstream gets.

        Raises:
            ToolError: They are wrong, or a value that a rule sends is not there.
        """
        connection = self._upstreams.get(route.server)
        if connection is None:  # the relay says so
            return
        given: Mapping[str, Any] = params.get("arguments", {})
        found = self._fitter.fitted(spec, connection.config, request.params, given)
        if found is not None:
            params["arguments"] = given = found.arguments
            connection.gateway_side.note_arguments(route.name, found.changes)
        if spec.shape is not None:
            params["arguments"] = self._shaped(request, spec, given, connection.config)

    def _shaped(
        self, request: Request, spec: ToolSpec, arguments: Mapping[str, Any], config: ServerConfig
    ) -> Mapping[str, Any]:
        """Return the arguments that the upstream takes of those that a shaped definition asks for.

        Raises:
            ToolError: They are wrong, or a value that a rule sends is not there.
        """
        from toolweave.definitions._argument_rules import CallFacts, ShapedCalls  # for tools with rules

        switches = config.validate_input, config.repair_arguments
        calls = self._shaped_calls.get(switches)
        if calls is None:
            made = ShapedCalls(validate=config.validate_input, repair=config.repair_arguments)
            calls = self._shaped_calls[switches] = made
        client = request.client
        return calls.arguments(spec, arguments, CallFacts(principal=client.principal, claims=client.claims))

    async def _get_prompt(self, request: Request) -> Json:
        name = request.text("name")
        route = await self._routes(request).prompt(name) or self._unlisted(request, name)
        if route is None or not _may(request, "prompts", name, route):
            self._require(request, "prompts")
            if route is None:
                error = self._unreached.error_for_prompt(request, name)
            else:
                error = None
            raise error or not_offered("prompts", name, modern=request.modern)
        params = _params(self._with_object(request, route), name=route.name)
        return self._named(route, await self._relay.request(request, route, request.method, params))

    def _with_object(self, request: Request, route: Route) -> Request:
        """Return a request whose arguments are an object, as the entry of its upstream says."""
        if isinstance(request.params.get("arguments", {}), dict):
            return request
        connection = self._upstreams.get(route.server)
        if connection is None:
            return request
        return self._fitter.with_object(request, connection, route.name)

    async def _read(self, request: Request) -> Json:
        uri = request.text("uri")
        routes = [
            route for route in await self._routes(request).resources(uri) if _may(request, "resources", uri, route)
        ]
        # Several upstreams may offer one URI. A call that answers questions goes back to the upstream that asked them.
        resumed = self._relay.resumed(request)
        if resumed is not None:  # the upstream that asked, even if another has the same name
            routes = [route for route in routes if route.server == resumed.server]
        for route in routes:
            try:
                result = await self._relay.request(request, route, request.method, _params(request, uri=route.name))
            # "No such resource" of one upstream says nothing about the next one, and nothing has been read yet, so
            # trying on repeats no effect. Any other error is the answer.
            except RequestError as exc:
                others = len(routes) > 1 or self._unreached.names(request.client.may)
                if exc.code not in _UNKNOWN or not others:
                    raise
                continue
            self._shared_routes.keep_resource(uri, route)
            if route.name == uri:
                own = result
            else:
                own = with_uris(result, {route.name: uri})
            return self._named(route, own) | ({"cacheScope": "private"} if _is_limited(request) else {})
        if not routes:
            self._require(request, "resources")
        raise self._unreached.no_resource(request, uri)

    async def _complete(self, request: Request) -> Json:
        ref = request.object("ref")
        try:
            kind, name = read_reference(ref)
        except ValueError as exc:
            raise RequestError(f"{request.method} needs 'ref': {exc}", code=INVALID_PARAMS) from None
        route = await (self._routes(request).prompt(name) if kind == "prompt" else self._routes(request).template(name))
        # What the caller may not use is unknown to it: the error is the same as for a name that nobody offers.
        route = route or self._unlisted(request, name)
        if route is None or not _may(request, "prompts" if kind == "prompt" else "resources", name, route):
            if kind == "prompt" and route is None:
                error = self._unreached.error_for_prompt(request, name)
            else:
                error = None
            raise error or unknown_reference(kind, name)
        if route.server not in self._upstreams or not self._completes(request, route.server):
            self._require(request, "completions")
            return completion_json((), total=0, has_more=False)
        own = {member: route.name if value == name and member != "type" else value for member, value in ref.items()}
        return await self._relay.request(request, route, request.method, _params(request, ref=own))

    def _named(self, route: Route, result: Json) -> Json:
        """Return a result with the URIs under which callers know the resources in it."""
        renamed = self._shared_routes.renamed_uris(route.server)
        if renamed:
            return with_uris(result, renamed)
        return result


def _params(request: Request, **changed: Any) -> Json:
    """Return the parameters that go up: all of the caller's but those of this hop."""
    return without_members(request.params, *_OURS) | changed


def _sent_for(request: Request) -> SentToolCall | None:
    """Return the call that was sent for a request already, or None."""
    if isinstance(request.sent, SentToolCall):
        return request.sent
    return None


def _may(request: Request, kind: OfferKind, name: str, route: Route) -> bool:
    """Return whether the caller may use the upstream's offer of that name."""
    return may_use(request.client.may, kind, name, server=route.server)


def _is_limited(request: Request) -> bool:
    """Return whether the caller's view of lists is its own."""
    return request.modern and request.client.may is not None
