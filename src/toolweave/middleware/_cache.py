"""A cache of results: lists and reads for as long as they say themselves, calls of tools that only read.

A result is given to the caller alone for whom it was made, unless it says that it is public. Results are kept as JSON
texts, so that a change to one does not change another. A request repeated while its result is made is made twice.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import finite_number, without_members
from toolweave._option_checks import FUNCTION
from toolweave._value import Value
from toolweave.middleware._options import as_tuples, at_least, of_kinds
from toolweave.middleware._outcome import is_failed
from toolweave.middleware._selection import SELECTIONS, OfferSelection, selected, target_of
from toolweave.protocol import methods
from toolweave.protocol.input_required import INPUT_RESPONSES, REQUEST_STATE
from toolweave.protocol.jsonrpc import encode_value
from toolweave.serve import CallNext, Client, OfferLookup, Request
from toolweave.serve._request_context import forwarded_meta
from toolweave.serve.request import Json

_UNCACHED = frozenset({INPUT_RESPONSES, REQUEST_STATE, "task"})
_PUBLIC = b""
_TRACE = frozenset({"traceparent", "tracestate", "baggage"})
_VOLATILE = frozenset({"exp", "iat", "nbf", "jti", "auth_time"})


_CacheKey: TypeAlias = tuple[OfferLookup | None, bytes, bytes]
"""The server, the caller, and its request."""


class _CachedResult(NamedTuple):
    """A result that is kept."""

    text: bytes
    until: float
    timed: bool  # its `ttlMs` counts down


class _Entries:
    """The results that are kept, the least recently used first."""

    def __init__(self) -> None:
        self._found: OrderedDict[_CacheKey, _CachedResult] = OrderedDict()
        self._bytes = 0

    def get(self, key: _CacheKey, now: float) -> _CachedResult | None:
        """Return a result that is still valid, or None."""
        kept = self._found.get(key)
        if kept is None:
            return None
        if kept.until <= now:
            self._drop(key)
            return None
        # The order of the dictionary is the order of use, from which `put` forgets.
        self._found.move_to_end(key)
        return kept

    def put(self, key: _CacheKey, kept: _CachedResult, max_bytes: int) -> None:
        """Keep a result, and forget others until all fit."""
        self._drop(key)
        if len(kept.text) > max_bytes // 4:
            # It would displace all others.
            return
        self._found[key] = kept
        self._bytes += len(kept.text)
        while self._bytes > max_bytes:
            self._drop(next(iter(self._found)))

    def _drop(self, key: _CacheKey) -> None:
        kept = self._found.pop(key, None)
        if kept is not None:
            self._bytes -= len(kept.text)


class ResponseCache(Value, frozen=True, kw_only=True):
    """Middleware that answers repeated requests from memory.

    Lists, `server/discover` and resources are kept for their `ttlMs`, which the modern revision has; calls of tools for
    `tools_seconds`, if the tool declares `readOnlyHint` and the call did not fail. Calls with rounds of input, with
    tasks or with `_meta` of their own are not kept.

    Attributes:
        tools_seconds: Seconds that results of tools are kept; 0 for not at all.
        tools: The tools whose results are kept, of those that only read; all where none are selected.
        max_bytes: Size of the cache, in bytes.
        clock: Returns monotonic seconds.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"clock", "_entries"})
    ports: ClassVar[frozenset[str]] = frozenset({"clock", "_entries"})
    # except for members that are never left as texts, and `isError`
    reads_results: ClassVar[bool] = False
    tools_seconds: float = 0.0
    tools: Sequence[OfferSelection] = ()
    max_bytes: int = 32 * 1024 * 1024
    clock: Callable[[], float] = time.monotonic
    _entries: _Entries = msgspec.field(default_factory=_Entries)

    def __post_init__(self) -> None:
        as_tuples(self, "tools")
        of_kinds(self, {"tools": SELECTIONS, "clock": FUNCTION})
        at_least(self, 0, "tools_seconds")
        at_least(self, 1, "max_bytes")

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request from memory, or keep its result."""
        if not self._may_keep(request):
            return await call_next(request)
        asked = _question(request)
        mine = _caller(request.client)
        same_for_all = request.client.may is None
        # A result for every caller is only for those whose view no rule limits.
        owners = (_PUBLIC, mine) if same_for_all else (mine,)
        for owner in owners:
            if owner is not None:
                kept = self._entries.get((request.server, owner, asked), self.clock())
                if kept is not None:
                    return self._opened(kept)
        result = await call_next(request)
        seconds = self._lifetime(request, result)
        if same_for_all and result.get("cacheScope") == "public":
            owner = _PUBLIC
        else:
            owner = mine
        if seconds > 0 and owner is not None:
            timed = "ttlMs" in result
            text = encode_value(result, errors="replace")
            self._entries.put(
                (request.server, owner, asked), _CachedResult(text, self.clock() + seconds, timed), self.max_bytes
            )
        return result

    def _may_keep(self, request: Request) -> bool:
        method = request.method
        params = request.params
        if method not in methods.CACHEABLE and method != methods.TOOLS_CALL:
            return False
        # A round of input or a task belongs to one call: its result given to another call would answer questions that
        # nobody was asked.
        if not _UNCACHED.isdisjoint(params):
            return False
        # Other metadata reaches the upstream, which may answer by it. Trace context differs for each request and
        # changes no result.
        if not _TRACE.issuperset(forwarded_meta(request)):
            return False
        if method != methods.TOOLS_CALL:
            # Results of earlier revisions have no `ttlMs`, so nothing says how long they are valid.
            return request.modern
        if self.tools_seconds <= 0:
            return False
        target = target_of(request)
        if target is None or target.spec is None:
            return False
        # Only an explicit hint: a call that has an effect must be made each time, whatever it returns.
        is_read_only = target.spec.hint("readOnlyHint") is True
        return is_read_only and selected(self.tools, target)

    def _lifetime(self, request: Request, result: Mapping[str, Any]) -> float:
        """Return the seconds that a result may be kept."""
        # A question to the user or a task is the state of one call, and an error may be gone at the next try.
        is_complete = result.get("resultType", "complete") == "complete" and "task" not in result
        if not is_complete or is_failed(result):
            return 0.0
        if request.method == methods.TOOLS_CALL:
            return self.tools_seconds
        return (finite_number(result.get("ttlMs")) or 0) / 1000

    def _opened(self, kept: _CachedResult) -> Json:
        result = cast("Json", decode_json(kept.text))
        if kept.timed:
            # Counted down, or each cache on the way would start the lifetime again and results would be older than
            # their server allows.
            result["ttlMs"] = max(0, int((kept.until - self.clock()) * 1000))
        return result


def _question(request: Request) -> bytes:
    """Return all that a result depends on but its caller."""
    # `_meta` has a new progress token each time. Metadata that may change the result has excluded the request before.
    params = without_members(request.params, "_meta")
    # A server may offer other content to a client with other capabilities, so they belong to the key.
    capabilities = request.client.capabilities
    return msgspec.json.encode((request.method, request.client.version, params, capabilities), order="deterministic")


def _caller(client: Client) -> bytes | None:
    """Return the caller that a private result is kept for; None for one that cannot be distinguished from others."""
    identity = client.identity
    if identity is None:
        if client.key is None:
            return None
        return client.key.encode()
    # Without these, each renewal of a token would begin an empty cache.
    claims = without_members(identity.claims, *_VOLATILE)
    return msgspec.json.encode((client.principal, identity.scopes, claims), order="deterministic")
