"""The endpoint: dispatches requests of every protocol revision to the features, on any transport.

Combines the features, negotiates the revision, and adds the members that an era requires of every result. Independent
of transports and of the SDK; each method is implemented by the feature that offers it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import object_or_empty
from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from toolweave.protocol.meta import SERVER_INFO
from toolweave.protocol.versions import (
    HANDSHAKE_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    MODERN_VERSION,
    TASKS_VERSION,
    versions_of,
)
from toolweave.serve._middleware import chained, checked
from toolweave.serve.request import Feature, Json, MayUse, Method, Middleware, OfferLookup, Request

_log = logging.getLogger("toolweave.serve")


class Endpoint:
    """Answers requests; one for all clients of a server.

    Args:
        info: The server's `Implementation` object, or a function that returns it as it is now: the same object while
            nothing has changed.
        instructions: Its instructions for models, or None, or a function that returns them as they are now for a client
            that may use the offers its argument allows, None for everything.
        features: Its features; the first that has a method answers it.
        ttl_ms: How long clients may keep lists and resources, in milliseconds; 0 asks them not to.
        cache_scope: `"private"`, or `"public"` when every caller gets the same offers.
        before_handshake: Awaited with each `initialize` request before its answer is made; it may change the offers.

    Attributes:
        versions: The revisions that it speaks, newest first.
        middleware: The middleware around every request, outermost first.
    """

    versions: tuple[str, ...]
    middleware: tuple[Middleware, ...] = ()
    _handshakes: tuple[str, ...]

    def __init__(
        self,
        info: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        *,
        instructions: str | Callable[[MayUse | None], str | None] | None = None,
        features: Sequence[Feature] = (),
        ttl_ms: int = 0,
        cache_scope: str = "private",
        before_handshake: Callable[[Request], Awaitable[None]] | None = None,
    ) -> None:
        self._before_handshake = before_handshake
        if not callable(info):
            own = dict(info)
            self._info: Callable[[], Mapping[str, Any]] = lambda: own
        else:
            self._info = info
        self._instructions = instructions
        self._features = tuple(features)
        self._stamp = {SERVER_INFO: self._info()}
        self._kept = {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        self._chain: Method | None = None
        self._reads = True
        self._server: OfferLookup | None = None
        self.speak("auto")

    @property
    def info(self) -> Mapping[str, Any]:
        """The server's `Implementation` object as it is now."""
        return self._info()

    @property
    def instructions(self) -> str | None:
        """The server's instructions for models as they are now, for a client that may use everything, or None."""
        return self._instructions_for(None)

    def _instructions_for(self, may: MayUse | None) -> str | None:
        if callable(self._instructions):
            return self._instructions(may)
        return self._instructions

    def speak(self, protocol: str) -> None:
        """Speak only some revisions from now on; in an era without any of them, no method exists.

        Args:
            protocol: `"auto"` for all, `"legacy"` for those with a handshake, else the one.

        Raises:
            ValueError: The revision is not known.
        """
        spoken = versions_of(protocol)
        self.versions = spoken[::-1]
        self._handshakes = tuple(version for version in spoken if version in HANDSHAKE_VERSIONS)
        if MODERN_VERSION in spoken:
            self._modern = self._methods(modern=True)
        else:
            self._modern = {}
        if self._handshakes:
            self._legacy = self._methods(modern=False)
        else:
            self._legacy = {}

    def _methods(self, *, modern: bool) -> dict[str, Method]:
        found: dict[str, Method] = {methods.INITIALIZE: self._initialize, methods.PING: _pong}
        if modern:
            found = {methods.SERVER_DISCOVER: self._discover}
        for feature in self._features:
            for method, answer in feature.methods(modern=modern).items():
                found.setdefault(method, answer)
        return found

    def serves(self, method: str, *, modern: bool) -> bool:
        """Whether the method exists in that era."""
        return method in (self._modern if modern else self._legacy)

    def use(self, middleware: Iterable[Middleware], server: OfferLookup) -> None:
        """Put middleware around every request from now on, instead of any that is there.

        Args:
            middleware: The middleware, outermost first.
            server: The value of `request.server` for middleware.

        Raises:
            TypeError: An item is not middleware.
        """
        self.middleware = checked(middleware)
        self._server = server
        self._reads = any(getattr(one, "reads_results", True) for one in self.middleware)
        if self.middleware:
            self._chain = chained(self.middleware, self._innermost)
        else:
            self._chain = None

    def answer(self, request: Request) -> Coroutine[Any, Any, Json]:
        """Return the result of a request, complete for its era.

        Raises:
            RequestError: The answer is a JSON-RPC error; internal errors are masked and logged.
        """
        if self._chain is None:
            return self.dispatch(request)
        return self._through(self._chain, request)

    async def dispatch(self, request: Request) -> Json:
        """Answer a request without middleware.

        Raises:
            RequestError: The answer is a JSON-RPC error; internal errors are masked and logged.
        """
        modern = request.modern
        method = (self._modern if modern else self._legacy).get(request.method)
        if method is None:
            raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)
        try:
            result = await method(request)
        except RequestError:
            raise
        except Exception:
            _log.exception("%s failed", request.method)
            raise RequestError("Internal error", code=INTERNAL_ERROR) from None
        if modern:
            return self.stamped(request.method, result)
        return result

    async def _through(self, chain: Method, request: Request) -> Json:
        """Answer a request through the middleware."""
        request.server = self._server
        return self._whole(request, await chain(request))

    async def _innermost(self, request: Request) -> Json:
        """Answer a request behind the middleware, which finds plain values where lists are kept as JSON texts."""
        # Middleware that reads results must find values. Without any, a list stays the text that was encoded before.
        request.takes_texts = request.takes_texts and not self._reads
        result = await self.dispatch(request)
        if not self._reads:
            return result
        for name, value in result.items():
            if isinstance(value, msgspec.Raw):
                result[name] = decode_json(value)
        return result

    def _whole(self, request: Request, result: Json) -> Json:
        """Return a result of middleware with the members that its era and the transports require.

        Raises:
            RequestError: The result cannot be sent.
        """
        meta = result.get("_meta")
        problem = None
        if meta is not None and not isinstance(meta, dict):
            problem = "'_meta' is not an object"
        elif request.method == methods.INITIALIZE and result.get("protocolVersion") not in self._handshakes:
            problem = "'protocolVersion' is not a revision that the server serves"
        if problem is not None:
            _log.error("the middleware answered %s with a result that cannot be sent: %s", request.method, problem)
            raise RequestError("Internal error", code=INTERNAL_ERROR)
        if request.modern:
            return self.stamped(request.method, dict(result))
        return result

    def capabilities(self, *, modern: bool) -> Json:
        """Return the `ServerCapabilities` of that era as they are now."""
        capabilities: Json = {}
        for feature in self._features:
            for name, value in feature.capabilities(modern=modern).items():
                there = capabilities.get(name)
                if isinstance(there, dict):
                    capabilities[name] = {**there, **value}
                else:
                    capabilities[name] = value
        return capabilities

    def negotiate(self, offered: object) -> str:
        """Return the negotiated legacy revision: the client's own when it is known, else our newest."""
        if isinstance(offered, str) and offered in self._handshakes:
            return offered
        if self._handshakes:
            return self._handshakes[-1]
        return LATEST_HANDSHAKE_VERSION

    def stamped(self, method: str, result: Json) -> Json:
        """Add the members that the era requires of every result to that of a stateless request, in place."""
        if "resultType" not in result:
            result["resultType"] = "complete"
        if method in methods.CACHEABLE and result["resultType"] == "complete":
            for name, value in self._kept.items():
                result.setdefault(name, value)
        info = self._info()
        # By identity, once for each request: the object is the same while nothing has changed, and so is the stamp.
        if info is not self._stamp[SERVER_INFO]:
            self._stamp = {SERVER_INFO: info}
        meta = result.get("_meta")
        if meta is None:
            result["_meta"] = self._stamp
        else:
            # The result's own members win, such as those that middleware has set.
            result["_meta"] = {**self._stamp, **object_or_empty(meta)}
        return result

    async def _discover(self, request: Request) -> Json:
        found: Json = {"supportedVersions": list(self.versions), "capabilities": self.capabilities(modern=True)}
        return self._with_instructions(found, request)

    def _with_instructions(self, result: Json, request: Request) -> Json:
        instructions = self._instructions_for(request.client.may)
        if instructions:
            result["instructions"] = instructions
        return result

    async def _initialize(self, request: Request) -> Json:
        params = request.params
        declared: object = params.get("capabilities", False)
        is_readable = declared in (None, []) or isinstance(declared, dict)
        if not isinstance(params.get("protocolVersion"), str) or not is_readable:
            raise RequestError(
                "initialize needs 'protocolVersion', a string, and 'capabilities', an object", code=INVALID_PARAMS
            )
        version = self.negotiate(params["protocolVersion"])
        if self._before_handshake is not None:
            await self._before_handshake(request)
        capabilities = self.capabilities(modern=False)
        if version != TASKS_VERSION:
            capabilities.pop("tasks", None)  # only that revision has them
        agreed: Json = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": self.info,
        }
        return self._with_instructions(agreed, request)


async def _pong(request: Request) -> Json:
    return {}
