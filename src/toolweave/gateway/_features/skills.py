"""The skills of all upstreams (SEP-2640): listed together, found at their upstream, and the folders that they are in.

A skill keeps its URIs, unless another upstream's has the same; then all of its URIs begin with its upstream's name.
Callers find the skills of the connections that they reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from toolweave._json_types import object_or_empty, without_members
from toolweave.errors import RequestError
from toolweave.gateway._callers.perspectives import Perspective, Perspectives
from toolweave.gateway._relay.relay import Relay
from toolweave.gateway._relay.routes import Route
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolweave.protocol.skills import read_skill, skill_settings, with_prefix
from toolweave.serve import Request
from toolweave.serve._offers.pagination import DEFAULT_PAGE_SIZE, list_page, only_for_caller
from toolweave.serve.request import Json, Method, may_use

_UNKNOWN = frozenset({INVALID_PARAMS, RESOURCE_NOT_FOUND, METHOD_NOT_FOUND})


class UpstreamSkills:
    """The feature: the skills of upstreams.

    Args:
        hub: The upstreams.
        perspectives: Finds the skills as callers see them.
        relay: Sends the requests.
        page_size: Entries on a page; None puts all on one.
    """

    def __init__(
        self, hub: Hub, perspectives: Perspectives, relay: Relay, *, page_size: int | None = DEFAULT_PAGE_SIZE
    ) -> None:
        self._hub = hub
        self._perspectives = perspectives
        self._relay = relay
        self._page_size = page_size

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods of the extension."""
        return {
            methods.SKILLS_LIST: self._list,
            methods.SKILLS_GET: self._get,
            methods.RESOURCES_DIRECTORY_READ: self._read_directory,
        }

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return nothing: the capabilities are those of the upstreams taken together."""
        return {}

    async def _list(self, request: Request) -> Json:
        perspective = self._required(request)
        may = request.client.may
        entries: list[Json] = []
        for skill, prefix in await perspective.offers.skills():
            if may_use(may, "resources", prefix + skill.uri, server=skill.server):
                entries.append(with_prefix(skill.json(), prefix))
        found = list_page("skills", entries, request.params.get("cursor"), self._page_size, key=itemgetter("uri"))
        return found | ({} if may is None else only_for_caller(request))

    async def _get(self, request: Request) -> Json:
        uri = request.text("uri")
        perspective = self._required(request)
        for route in await self._asked(request, perspective, uri):
            result = await self._answer(request, route)
            if result is None:
                continue
            try:
                skill = read_skill(object_or_empty(result.get("skill")), server=route.server)
            except ValueError:
                continue  # no host may load it
            prefix = perspective.offers.skill_prefix(skill)
            if prefix is None or prefix + skill.uri != uri:
                continue
            if request.client.may is None:
                limited = {}
            else:
                limited = only_for_caller(request)
            return {**result, "skill": with_prefix(skill.json(), prefix), **limited}
        raise RequestError(f"No skill is served at {uri}", code=INVALID_PARAMS, data={"uri": uri})

    async def _read_directory(self, request: Request) -> Json:
        uri = request.text("uri")
        for route in await self._asked(request, self._required(request), uri):
            result = await self._answer(request, route)
            if result is not None and uri.endswith(route.name):
                return with_prefix(result, uri.removesuffix(route.name))
        raise RequestError(f"{uri} is not a directory resource", code=INVALID_PARAMS, data={"uri": uri})

    async def _asked(self, request: Request, perspective: Perspective, uri: str) -> list[Route]:
        """Return the upstreams to ask about a URI: its own where that is known, else all that may have it."""
        if not perspective.offers.knows_skill(uri):
            await perspective.offers.skills()  # learns the names
        directories = request.method == methods.RESOURCES_DIRECTORY_READ
        may = request.client.may
        found: list[Route] = []
        for route in await perspective.routes.resources(uri):
            if not skill_settings(perspective.clients[route.server].capabilities)[directories]:
                continue
            if may_use(may, "resources", uri, server=route.server):
                found.append(route)
        return found

    async def _answer(self, request: Request, route: Route) -> Json | None:
        """Return the answer of an upstream, or None when it does not know the URI."""
        params = without_members(request.params, "_meta")
        try:
            return await self._relay.request(request, route, request.method, params | {"uri": route.name})
        except RequestError as exc:
            if exc.code not in _UNKNOWN:
                raise
            return None

    def _required(self, request: Request) -> Perspective:
        """Return the upstreams as the caller sees them; refuse the methods of an extension that none declares."""
        perspective = self._perspectives.of(request.client)
        if not perspective.offers.with_skills() and not caller_servers(self._hub).configs:
            raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)
        return perspective
