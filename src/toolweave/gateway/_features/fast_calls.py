"""Plain calls of tools, sent at once: the fast path of a gateway (`serve/_http/fast_path.py` is the way there).

A call is sent where the session of its upstream can take it, and nothing but the answer and progress is
expected: no task, no question that may come over the same pipe, no log messages, no arguments in headers. What its
`_meta` has beside the envelope goes up with it. Its result goes to the caller as the text that arrived, with the
members that differ from hop to hop exchanged. Every other call takes the full path through `Endpoint`, `Calls` and
`Relay`, before the call is sent or, with `Request.sent`, after it: the first notification of progress is such a moment.
The functions that translate a result between eras are those of the full path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from toolweave._json import JsonDecoder
from toolweave._json_types import as_object
from toolweave.connect import McpConnection
from toolweave.connect._direct import CallNews, DirectCall, DirectCalls
from toolweave.connect._output_check import masked
from toolweave.connect._session import ClientDeclaration, Session
from toolweave.errors import ProtocolError
from toolweave.gateway._features.fitting import ArgumentFitter
from toolweave.gateway._relay.relay import Relay
from toolweave.gateway._relay.relayed_call import HOPS
from toolweave.gateway._relay.routes import Route, Routes
from toolweave.middleware import Observer, Observers, RequestEnd
from toolweave.middleware._observers import report
from toolweave.middleware._outcome import is_failed, shown_name
from toolweave.protocol import methods
from toolweave.protocol.component_meta import VERSION
from toolweave.protocol.eras import ALL_BLOCKS_SINCE, abilities, legacy_result, modern_result, passed_capabilities
from toolweave.protocol.headers import mirrored_arguments
from toolweave.protocol.jsonrpc import RequestId, encode_result, encode_value, value_of
from toolweave.protocol.lenient_messages import RawResult
from toolweave.protocol.lenient_results import BareResult, has_odd_outcome
from toolweave.protocol.meta import LOG_LEVEL
from toolweave.protocol.spellings import RESULT_NAMES
from toolweave.protocol.tasks import declares_tasks, is_task
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.schema import Validator
from toolweave.serve import Client, Endpoint, Middleware, Request
from toolweave.serve._envelope import is_progress_token
from toolweave.serve._plain_calls import ENVELOPE, PlainToolCall
from toolweave.serve.request import Json
from toolweave.tools import IDEMPOTENCY_KEY, Toolset, ToolSnapshot, ToolSpec
from toolweave.tools.mcp import wraps_results

_CALL = methods.TOOLS_CALL
_COMPLETE = "complete"
_BRACE = ord("{")
_COMPLETE_TEXT = encode_value(_COMPLETE)
_UNSET = msgspec.Raw(b"null")
_FLAGS = (b"false", b"true", b"null")
_OF_HOPS = ("resultType", "ttlMs", "cacheScope", "_meta")
_MAX_CLIENTS = 2048
_MAX_ROUTES = 20_000
_MAX_HOPS = 256
_MAX_META = 1024  # bytes
_PROGRESS = "progressToken"
_DECIDING = HOPS | {LOG_LEVEL, VERSION, IDEMPOTENCY_KEY}
"""The members of a `_meta` that decide about a call, and are read by the full path."""


class _Target(msgspec.Struct, eq=False):
    """A tool that plain calls are sent to, with the texts around their arguments, and the last connection to it.

    Attributes:
        route: The upstream.
        bare: The text of a call without arguments, up to its end.
        before: The text before the arguments.
        wraps: Whether handshake-era callers get its structured content as the member of an object.
        connection: The last connection to the upstream.
        direct: The direct calls over it.
        check: The validator of its arguments, if those that do not fit are to be made to fit.
    """

    route: Route
    bare: bytes
    before: bytes
    wraps: bool
    connection: McpConnection | None = None
    direct: DirectCalls | None = None
    check: Validator | None = None

    def fits(self, arguments: Json | None) -> bool:
        """Return whether a call may be sent at once; the full path makes other arguments fit."""
        if not arguments:
            return True
        if self.check is None:
            return True
        return self.check.is_valid(arguments)


class _Tail(msgspec.Struct, frozen=True, eq=False):
    """The end of the text of a call: the `_meta` of a session, and the brackets.

    Attributes:
        stamp: The `_meta` of the session that it was made of.
        members: The members of the `_meta` as JSON, without the brackets; None where the full path is needed.
        bare: The end of a call whose own `_meta` has nothing else.
    """

    stamp: object
    members: bytes | None
    bare: bytes | None

    def with_members(self, own: Json) -> bytes:
        """Return the end of a call with its own members before those of the session."""
        text = encode_value(own)[1:-1]
        if self.members:
            text += b"," + self.members
        return b',"_meta":{%b}}}' % text


class _Caller(msgspec.Struct, eq=False):
    """A client, as its calls are sent; the same for each identity, which upstreams do not see.

    Attributes:
        version: Its revision.
        capabilities: Its capabilities as received.
        client_info: Its `Implementation` object as received, or None.
        modern: Whether it is of the modern era.
        declared: Its capabilities and info, as modern upstreams receive them.
        asked: Whether a legacy upstream could ask it something, on its own connection.
        tails: The ends of the texts of its calls by upstream; None for an upstream that could ask it something.
    """

    version: str
    capabilities: Mapping[str, Any]
    client_info: Mapping[str, Any] | None
    modern: bool
    declared: ClientDeclaration
    asked: bool
    tails: dict[str, _Tail]

    def is_of(self, client: Client) -> bool:
        """Whether upstreams see a client so."""
        if client.capabilities is not self.capabilities:
            return False
        if client.info is not self.client_info:
            return False
        return client.version == self.version


class FastCalls:
    """Sends plain calls.

    Args:
        tools: The tools that callers see.
        routes: Finds their upstreams.
        relay: Knows which connection a call goes to.
        endpoint: The gateway's endpoint, whose middleware decides whether anything may pass it by.
        fitter: Makes arguments fit.
        slow: Whether slow calls of clients that take tasks become such.

    Attributes:
        routes: Finds their upstreams.
        observers: Receive the end of each call that was answered.
    """

    def __init__(
        self,
        tools: Toolset,
        routes: Routes,
        relay: Relay,
        endpoint: Endpoint,
        *,
        fitter: ArgumentFitter,
        slow: bool = False,
    ) -> None:
        self.routes = routes
        self.observers: tuple[Observer, ...] = ()
        self._tools = tools
        self._relay = relay
        self._upstreams = relay.shared
        self._endpoint = endpoint
        self._fitter = fitter
        self._slow = slow
        self._snapshot: ToolSnapshot | None = None
        self._targets: dict[str, _Target | None] = {}
        self._callers: dict[int, _Caller] = {}
        self._middleware: tuple[Middleware, ...] | None = None
        self._layered = False
        self._info: Mapping[str, Any] | None = None
        self._hops: dict[tuple[bool, bytes | None, str], Json | None] = {}

    @property
    def layered(self) -> bool:
        """Whether calls go through the middleware: some of it does more than to observe."""
        middleware = self._endpoint.middleware
        # Identity of the tuple: middleware is replaced as a whole and never changed in place, so one comparison says
        # that nothing changed.
        if middleware is not self._middleware:
            self._middleware = middleware
            self._layered = any(getattr(one, "sees_plain_calls", True) for one in middleware)
            groups = [one.observers for one in middleware if isinstance(one, Observers)]
            self.observers = tuple(observer for group in groups for observer in group)
        return self._layered

    def takes(self, name: str) -> bool:
        """Whether plain calls of that tool can be sent at once while its connection is open."""
        return self._target(name) is not None

    def send_for(self, request: Request) -> SentToolCall | None:
        """Send the call of a request at once; None, with nothing sent, if it is not plain or takes the full path."""
        call = _plain_call(request)
        if call is None:
            return None
        return self.send(call, request.client, asyncio.get_running_loop())

    def send(self, call: PlainToolCall, client: Client, loop: asyncio.AbstractEventLoop) -> SentToolCall | None:
        """Send a call at once; None, with nothing sent, if it takes the full path."""
        target = self._target(call.name)
        if target is None:
            return None
        route = target.route
        connection = self._connection(client, route.server)
        if connection is None:
            return None
        # A restart keeps the connection, a replacement makes another: the property chain to its direct calls is
        # followed once for each.
        if connection is not target.connection:
            target.connection = connection
            target.direct = connection.gateway_side.direct_calls
            target.check = self._check(route, connection)
        direct = target.direct
        if direct is None or not target.fits(call.arguments):
            return None
        session = direct.session_for(route.name, loop)
        if session is None:
            return None
        # What a modern session answers has to be wrapped for this caller, for which it is read.
        if target.wraps and client.version != MODERN_VERSION and session.conversation.agreement.modern:
            return None
        tail = self._tail(client, connection, route.server, session.conversation)
        beginning = _beginning(target, call)
        if beginning is None:
            return None
        end, news = _end(call, tail, direct)
        if end is None:
            return None
        sent = direct.send(session, route.name, beginning + end, loop, news)
        if sent is None:
            return None
        return SentToolCall(self, call, client, route, connection, sent)

    def _connection(self, client: Client, server: str) -> McpConnection | None:
        """Return the connection that a client's plain calls to an upstream take; None if they take the full path."""
        connection = self._upstreams.get(server)
        # A connection of the caller's own may be another process, with other tools.
        if connection is None or self._relay.has_own(client, connection):
            return None
        if client.version == MODERN_VERSION:
            return connection
        return self._relay.handshakes.for_plain_calls(connection)

    def _check(self, route: Route, connection: McpConnection) -> Validator | None:
        """Return the validator whose schema the arguments of a tool are made to fit, as its server's entry says."""
        if route.spec is None:
            return None
        return self._fitter.check(route.spec, connection.config)

    def _target(self, name: str) -> _Target | None:
        """Return the target of a name in the current tools; None for one whose calls take the full path."""
        snapshot = self._tools.snapshot()
        # A new snapshot may name other tools: every target is learned again at its first call, none is patched.
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._targets.clear()
        try:
            return self._targets[name]
        except KeyError:
            return self._learn(name)

    def _learn(self, name: str) -> _Target | None:
        """Return the target of a name; None for one whose calls take the full path."""
        route = self.routes.tool(name)
        target = None
        spec = None if route is None else route.spec
        if route is not None and spec is not None and _is_plain(spec):
            bare = b',"method":"tools/call","params":{"name":%b' % encode_value(route.name)
            target = _Target(route, bare, bare + b',"arguments":', wraps_results(spec.output_schema))
        # Names that no tool has are cached too, as None; without the bound a caller could fill the memory with names.
        if len(self._targets) >= _MAX_ROUTES:
            self._targets.clear()  # of names that callers made up
        self._targets[name] = target
        return target

    def _meet(self, client: Client) -> _Caller:
        modern = client.modern
        tasks = not modern or declares_tasks(client.capabilities)
        capabilities = passed_capabilities(client.capabilities, version=client.version, tasks=tasks)
        declared = ClientDeclaration(capabilities=capabilities, info=client.info)
        if len(self._callers) >= _MAX_CLIENTS:
            self._callers.clear()
        asked = bool(abilities(capabilities))
        made = _Caller(client.version, client.capabilities, client.info, modern, declared, asked, {})
        self._callers[id(client.capabilities)] = made
        return made

    def _tail(self, client: Client, connection: McpConnection, server: str, session: Session) -> _Tail:
        """Return the end of the text of a client's call."""
        caller = self._callers.get(id(client.capabilities))
        # The id of capabilities that have gone may be that of others now, so they themselves are compared.
        if caller is None or not caller.is_of(client):
            caller = self._meet(client)
        if not caller.modern and self._relay.asks_for_logs(client, connection):
            return _NO_TAIL
        tail = caller.tails.get(server)
        # The stamp of the session is part of the text: after a reconnection it is another object.
        if tail is None or tail.stamp is not session.meta:
            tail = caller.tails[server] = self._made_tail(caller, session)
        return tail

    def _made_tail(self, caller: _Caller, session: Session) -> _Tail:
        """Return the end of the text of a call in a session.

        It is empty where the client cannot be served so: this path lacks its era, a legacy upstream might ask it, or
        its call may become a task.
        """
        nothing = _Tail(session.meta, None, None)
        if self._slow and caller.modern and declares_tasks(caller.capabilities):
            return nothing
        if not self._endpoint.serves(_CALL, modern=caller.modern):
            return nothing
        if caller.asked and not session.agreement.modern:
            return nothing
        params = session.stamped(None, None, caller.declared)
        if not params:
            return _Tail(session.meta, b"", b"}}")
        text = encode_value(params["_meta"])
        return _Tail(session.meta, text[1:-1], b',"_meta":%b}}' % text)

    def passed_on(self, raw: Mapping[str, msgspec.Raw], version: str) -> Json | None:
        """Return a complete result for a client of a revision, with all members as texts; None for any other result.

        Only those members are read that differ from hop to hop. An upstream sends them alike with each result, so what
        the functions of the full path make of them is cached.
        """
        modern = version == MODERN_VERSION
        if not _can_be_passed_on(raw, modern=modern):
            return None
        kind = raw.get("resultType")
        meta = raw.get("_meta")
        info = self._endpoint.info
        if info is not self._info or len(self._hops) >= _MAX_HOPS:
            self._info = info
            self._hops.clear()
        # By the bytes of `_meta`: equal bytes give an equal result, and comparing them costs less than reading them.
        key = kind is not None, None if meta is None else bytes(meta), version
        try:
            hop = self._hops[key]
        except KeyError:
            # Made by the functions of the full path, so that both paths give the same result by construction.
            hop = self._hop(*key)
            # A server that writes something new into each `_meta` would only fill the cache with what never returns.
            if len(key[1] or b"") <= _MAX_META:
                self._hops[key] = hop
        if hop is None:
            return None
        if modern:
            return {**raw, **hop}
        made: Json = dict(raw)
        for name in _OF_HOPS:
            made.pop(name, None)
        made.update(hop)
        return made

    def _hop(self, kind: bool, meta: bytes | None, version: str) -> Json | None:
        """Return the members of a result that differ from hop to hop, as texts; None where they cannot be read."""
        result: Json = {"content": []}
        if kind:
            result["resultType"] = _COMPLETE
        if meta is not None:
            try:
                result["_meta"] = _decode_object(meta)
            except (msgspec.MsgspecError, RecursionError):
                return None
        made = self.made(result, version)
        return {name: msgspec.Raw(encode_value(value)) for name, value in made.items() if name in _OF_HOPS}

    def made(self, result: Json, version: str) -> Json:
        """Return a complete result for a client of a revision."""
        if version == MODERN_VERSION:
            return self._endpoint.stamped(_CALL, modern_result(_CALL, result))
        return legacy_result(_CALL, result, version)


class SentToolCall(msgspec.Struct, eq=False):
    """A call that was sent; see `SentCall`.

    Attributes:
        calls: Sent it.
        call: The call.
        client: The client that called, with its identity.
        route: The upstream, and its name of the tool.
        connection: The connection to it.
        direct: The call as the connection knows it.
    """

    calls: FastCalls
    call: PlainToolCall
    client: Client
    route: Route
    connection: McpConnection
    direct: DirectCall

    @property
    def answer(self) -> asyncio.Future[Any]:
        """The answer to come."""
        return self.direct.answer

    def renew(self) -> None:
        """End the wait for `answer`, which another one replaces."""
        self.direct.renew()

    def end(self) -> None:
        """Forget the call."""
        self.direct.forget()

    async def give_up(self) -> None:
        """Cancel the call at the upstream; bounded."""
        await self.direct.give_up()

    def members(self, answer: Any, *, texts: bool) -> Json | None:
        """Return the members of the result for the caller, or None where the relay has to make them; see `SentCall`."""
        made = self._made(answer)
        if made is None:
            return None
        try:
            for name in _OF_HOPS if texts else tuple(made):
                if type(value := made.get(name)) is msgspec.Raw:
                    made[name] = value_of(value)
        except ValueError:  # a number that is out of range
            return None
        return made

    def _made(self, answer: Any) -> Json | None:
        """Return the members of the result for the caller, as texts where they can be passed on."""
        version = self.client.version
        # URIs in the content would have to be rewritten, for which it must be read.
        if self.calls.routes.renamed_uris(self.route.server):
            return None
        made: Json | None = None
        if type(answer) is RawResult and version >= ALL_BLOCKS_SINCE:  # the modern revision is later than all of these
            made = self.calls.passed_on(answer.result, version)
        if made is None and (result := self._read(answer)) is not None:
            made = self.calls.made(result, version)
        if made is not None and is_failed(made):
            return self._masked(made)
        return made

    def _masked(self, made: Json) -> Json | None:
        """Return the members of an error without our credentials, which it may quote; None if it is unreadable."""
        try:
            plain = {name: value_of(value) if type(value) is msgspec.Raw else value for name, value in made.items()}
        except ValueError:  # a number that is out of range
            return None
        hidden = masked(plain, self.connection.redact)
        if hidden == plain:
            return made
        return hidden

    def text(self, request_id: RequestId, answer: Any) -> bytes | None:
        """Return the whole answer for the caller, or None where the relay has to make it."""
        made = self._made(answer)
        if made is None:
            return None
        try:
            text = encode_result(request_id, made)
        except (TypeError, ValueError):
            return None
        if self.calls.observers:
            self._report(made)
        return text

    def _read(self, answer: Any) -> Json | None:
        """Return a result that was or has to be read as a whole, if it is complete."""
        try:
            result = self.direct.wire.result_in(answer)
        except ProtocolError:
            return None
        if result.get("resultType", _COMPLETE) != _COMPLETE or is_task(result):
            return None
        # The relay reads such a result leniently, and notes that.
        if isinstance(result, BareResult):
            return None
        if has_odd_outcome(result):
            return None
        # A result that is passed on unread is not scanned. This one is read, so it is scanned as on the full path.
        self.connection.gateway_side.note_forwarded(self.route.name, result)
        return result

    def _report(self, made: Json) -> None:
        end = RequestEnd(
            method=_CALL,
            name=shown_name(self.call.name),
            server=self.route.server,
            tool=self.route.name,
            arguments=self.call.arguments,
            client=self.client,
            seconds=self.direct.answer.get_loop().time() - self.direct.since,
            outcome="tool_error" if is_failed(made) else "ok",
            result=made,
        )
        report(self.calls.observers, end)


_decode_object = JsonDecoder(dict[str, Any])
_NO_TAIL = _Tail(None, None, None)


def _beginning(target: _Target, call: PlainToolCall) -> bytes | None:
    """Return the text of a call behind its id and before its `_meta`; None where its arguments are not JSON."""
    arguments = call.arguments
    if arguments is None:
        return target.bare
    try:
        return target.before + encode_value(arguments)
    # Nothing was sent yet, so the full path may still answer with a proper error.
    except (TypeError, ValueError):  # nested too deeply, or no JSON: middleware may have made them
        return None


def _end(call: PlainToolCall, tail: _Tail, direct: DirectCalls) -> tuple[bytes | None, CallNews | None]:
    """Return the end of a call, with the further members of its `_meta`, and the receiver of its progress.

    `(None, None)` stands for a `_meta` that decides about the call, which the full path reads. A progress token is the
    caller's own, and another one is sent in its place.
    """
    if tail.bare is None or not call.has_more:
        return tail.bare, None
    own = {name: value for name, value in (call.meta or {}).items() if name not in ENVELOPE}
    if not _DECIDING.isdisjoint(own):
        return None, None
    news: CallNews | None = None
    if _PROGRESS in own:
        if not is_progress_token(own[_PROGRESS]):
            return None, None
        news = direct.news()
        own[_PROGRESS] = news.progress_token()
    try:
        return tail.with_members(own), news
    except (TypeError, ValueError):  # no JSON: middleware may have made them
        if news is not None:
            news.end()
        return None, None


def _plain_call(request: Request) -> PlainToolCall | None:
    """Return the call of a request, which middleware may have changed; None if it is not a plain one."""
    params: Mapping[str, Any] = request.params
    name = params.get("name")
    given = "arguments" in params
    has_meta = "_meta" in params
    if request.method != _CALL or type(name) is not str or len(params) != 1 + given + has_meta:
        return None
    arguments: Any = params["arguments"] if given else None
    if given and type(arguments) is not dict:
        return None
    meta = as_object(params["_meta"]) if has_meta else None
    has_more = meta is not None and not ENVELOPE.issuperset(meta)
    return PlainToolCall(request.id, name, cast("Json | None", arguments), meta=meta, has_more=has_more)


def _can_be_passed_on(raw: Mapping[str, msgspec.Raw], *, modern: bool) -> bool:
    """Return whether a result is complete and has the form of the caller's era, as far as its bytes show."""
    if "content" not in raw:
        return False
    # One block, or a whole result with its own error flag. A view, since content may be large.
    if memoryview(raw["content"])[0] == _BRACE:
        return False
    if "task" in raw:
        return False
    if bytes(raw.get("isError", _UNSET)) not in _FLAGS:
        return False
    if not RESULT_NAMES.exact.issuperset(raw) and RESULT_NAMES.misspelled(raw):
        return False
    kind = raw.get("resultType")
    if kind is not None and bytes(kind) != _COMPLETE_TEXT:
        return False
    # Before 2026-07-28 structured content is an object; anything else takes the full path, which wraps it.
    return modern or "structuredContent" not in raw or bytes(raw["structuredContent"])[:1] == b"{"


def _is_plain(spec: ToolSpec) -> bool:
    """Whether a tool is called with nothing but its arguments: no scopes, no tasks, no headers, no rules for them."""
    return (
        spec.shape is None
        and not spec.scopes
        and "execution" not in spec.raw
        and not mirrored_arguments(spec.input_schema)
    )
