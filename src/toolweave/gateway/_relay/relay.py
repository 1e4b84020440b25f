"""Relay one request between a caller and an upstream of any era.

Four cases: a modern caller before a modern upstream passes rounds of input on, with sealed state; before a legacy
upstream, which asks while the call runs, the live call is parked between rounds; a legacy caller before a modern
upstream is asked by the gateway in a loop; before a legacy upstream questions pass on as they come.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import msgspec

from toolweave._json_types import without_members
from toolweave.connect import McpConnection
from toolweave.connect._direct import DirectCall
from toolweave.connect._session import Agreement, ClientDeclaration
from toolweave.errors import (
    AuthRequiredError,
    ConnectError,
    ConnectionLostError,
    ErrorKind,
    ProtocolError,
    RequestError,
    ServerError,
    ToolError,
)
from toolweave.gateway._relay.caller_abilities import (
    check_able,
    check_questions,
    declared_to_legacy,
    declared_to_modern,
    put_question,
)
from toolweave.gateway._relay.caller_stream import CallerStream
from toolweave.gateway._relay.connections import AskingConnection, AskingConnections, owner_of
from toolweave.gateway._relay.handshake_connections import HANDSHAKE, HandshakeConnections, is_unsent, refuses_handshake
from toolweave.gateway._relay.page_visits import PageVisits, all_visited
from toolweave.gateway._relay.parked_calls import CallIsGone, ParkedCalls
from toolweave.gateway._relay.parking import LiveCall, ParkedRound
from toolweave.gateway._relay.relayed_call import RelayedCall
from toolweave.gateway._relay.relayed_errors import failure_result
from toolweave.gateway._relay.routes import Route
from toolweave.gateway._relay.sealed_state import SealedRound, StateCipher
from toolweave.gateway._tasks.places import HANDSHAKE_PLACE, TaskPlaces, has_only
from toolweave.hub import Hub
from toolweave.protocol import methods
from toolweave.protocol.client_requests import ABILITIES, can_answer
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, URL_ELICITATION_REQUIRED
from toolweave.protocol.eras import (
    abilities,
    capabilities_at,
    legacy_result,
    modern_result,
    page_questions,
)
from toolweave.protocol.input_required import INPUT_REQUIRED, INPUT_RESPONSES, REQUEST_STATE, input_required
from toolweave.protocol.tasks import TASK_ID, is_task, related
from toolweave.protocol.versions import MODERN_VERSIONS
from toolweave.serve import Client, Request
from toolweave.serve._logs import Logs
from toolweave.serve.request import Json
from toolweave.tools.mcp import wraps_results

LeaseConnection: TypeAlias = Callable[[], AbstractAsyncContextManager[AskingConnection]]
"""Gives a connection to a legacy upstream for one call."""

_OF_BOTH_ERAS = methods.INPUT_REQUIRED | {
    *(methods.COMPLETION_COMPLETE, methods.SKILLS_GET, methods.RESOURCES_DIRECTORY_READ),
}
"""The methods that reach an upstream of both eras in the era of the caller."""
_COMPLETE = "complete"
PIPED = frozenset({"stdio", "inprocess"})
"""The transports on which nothing but answers and progress says which request it belongs to."""


class Relay:
    """Sends requests to upstreams on behalf of callers.

    Args:
        hub: The upstreams.
        logs: Knows which log messages a caller wants.
        cipher: Seals the state of rounds of input.
        connections: The connections to legacy upstreams that may ask.
        parked: The calls that wait for their callers.
        handshakes: The connections in the handshake era to upstreams that speak both.
        visits: The pages that callers have to visit.
        of_caller: Whether the upstreams are called as one caller, and a refusal of its credentials is raised.

    Attributes:
        on_leased: Called with a caller whenever its own connection is open for a call.
        shared: The connections that all callers share, by upstream.
        handshakes: The connections in the handshake era to upstreams that speak both.
        places: The connections on which tasks run.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        logs: Logs,
        cipher: StateCipher,
        connections: AskingConnections,
        parked: ParkedCalls,
        handshakes: HandshakeConnections,
        visits: PageVisits,
        of_caller: bool = False,
    ) -> None:
        self.shared: Mapping[str, McpConnection] = hub.clients
        self.handshakes = handshakes
        self.places: TaskPlaces = TaskPlaces(connections, handshakes)
        self._visits = visits
        self._hub = hub
        self._logs = logs
        self._cipher = cipher
        self._connections = connections
        self._parked = parked
        self._of_caller = of_caller
        self.on_leased: Callable[[Client], object] = _ignore

    def resumed(self, request: Request) -> SealedRound | None:
        """Return the round of input that a request continues, or None when it begins.

        Raises:
            RequestError: Its state is not of this request (-32602).
        """
        if not request.modern or REQUEST_STATE not in request.params:
            return None
        return self._cipher.open(request, request.params[REQUEST_STATE])

    def listen(self) -> Callable[[], object]:
        """Resume parked calls and relay rounds of input for other replicas; return a function that stops it."""
        ends = (self._parked.listen(), self._parked.rounds.listen(self._round_from_elsewhere))

        def end() -> None:
            for one in ends:
                one()

        return end

    async def _round_from_elsewhere(
        self, request: Request, route: Route, method: str, params: Mapping[str, Any], follow_tasks: bool
    ) -> Json | None:
        """Relay a round for another replica; return None if it is for another gateway of this process."""
        try:
            resumed = self.resumed(request)
        except RequestError:  # sealed for another view
            return None
        if resumed is None or resumed.replica != self._parked.rounds.here or route.server not in self.shared:
            return None
        return await self.request(request, route, method, params, follow_tasks=follow_tasks)

    async def request(
        self,
        request: Request,
        route: Route,
        method: str,
        params: Mapping[str, Any],
        *,
        follow_tasks: bool = True,
        sent: DirectCall | None = None,
        on_place: Callable[[str], object] | None = None,
    ) -> Json:
        """Forward a request and return the result in the form of the caller's era, complete or `input_required`.

        Questions of the upstream go to this caller and no other; progress and log messages go to the stream
        of `request`; its cancellation reaches the upstream.

        Args:
            request: The caller's request: its client, `_meta`, state and input responses, and reply channel.
            route: The upstream; `route.spec` is the called tool.
            method: The method to send, which may differ from the caller's.
            params: The parameters without `_meta`, in the upstream's own names.
            follow_tasks: Whether a call that becomes a task is held until that has ended; else the task is the result.
            sent: The call as it was sent already, over the shared connection, and nothing but its answer was expected.
            on_place: Called with the place of the connection that the call is sent on, if that is not the one of the
                hub; see `TaskPlaces`.

        Raises:
            RequestError: The answer is a JSON-RPC error: the upstream's own, with its code and data, or ours.
            AuthRequiredError: The upstream, which is called as one caller, wants another sign-in.
        """
        resumed = None
        if method in methods.INPUT_REQUIRED:
            resumed = self.resumed(request)
            params = without_members(params, INPUT_RESPONSES, REQUEST_STATE)
        if resumed is not None and resumed.server != route.server:
            raise RequestError(f"{REQUEST_STATE} is of another upstream; repeat the request", code=INVALID_PARAMS)
        call = RelayedCall(
            request=request,
            route=route,
            method=method,
            params=params,
            stream=CallerStream(request, self._logs),
            resumed=resumed,
            follow_tasks=follow_tasks,
            sent=sent,
            on_place=on_place,
        )
        try:
            async with call.stream.delivered():
                result = await self._sent(call, self._connection(route.server))
        except (ServerError, ToolError) as exc:
            if self._of_caller and isinstance(exc, AuthRequiredError):
                raise  # to the code that leads the caller to a sign-in
            return failure_result(call, exc, self._visits)
        of_a_task = not follow_tasks and (method != methods.TOOLS_CALL or is_task(result))
        if request.modern or of_a_task:  # the code that asked for a task translates it to the caller's era
            return modern_result(method, result)
        wraps = route.spec is not None and wraps_results(route.spec.output_schema)
        return legacy_result(method, self._whole(call, result), request.client.version, wraps=wraps)

    def asks_for_logs(self, client: Client, connection: McpConnection) -> bool:
        """Whether a caller in a session has calls to an upstream over pipes on its own connection, for logs."""
        return not client.modern and self._logs.leveled(client) and "logging" in connection.capabilities

    def has_own(self, client: Client, connection: McpConnection) -> bool:
        """Whether a caller has its own connection to the upstream of a connection of the hub."""
        return self._connections.first_of(client, connection.config) is not None

    def _connection(self, server: str) -> McpConnection:
        connection = self.shared.get(server)
        if connection is None:
            reason = "cannot be reached now" if server in self._hub.errors else "is gone"
            raise ToolError(f"MCP error: server {server!r} {reason}", kind=ErrorKind.NOT_SENT)
        return connection

    def give_up(self, request: Request) -> None:
        """End the call that waits for the answers which a request would bring, if one waits in this process."""
        resumed = self.resumed(request)
        if resumed is not None and resumed.handle is not None:
            self._parked.give_up(resumed.handle)

    async def _sent(self, call: RelayedCall, connection: McpConnection) -> Json:
        rounds = self._parked.rounds
        if call.resumed is not None and call.resumed.replica not in ("", rounds.here):
            return await rounds.relay(call.resumed.replica, call, partial(self._sent_here, call, connection))
        return await self._sent_here(call, connection)

    async def _sent_here(self, call: RelayedCall, connection: McpConnection) -> Json:
        if call.route.place:
            return await self._at_place(call, self.places.connection(call.request.client, connection, call.route))
        if call.sent is None:
            agreement = await connection.gateway_side.agreement()
        else:
            agreement = call.sent.session.conversation.agreement
        in_both = self._has_both_eras(call, connection)
        try:
            return await self._in_era(call, connection, agreement)
        except (ConnectError, ConnectionLostError) as error:
            # Nothing was sent in the era that the upstream had, because another version of it has another one.
            has_one_left = False
            if refuses_handshake(error):
                has_one_left = in_both
            elif not is_unsent(error):
                raise
            if has_one_left:
                await self.handshakes.forget(connection)
            now = await connection.gateway_side.checked_agreement()
            if (now.modern, has_one_left) == (agreement.modern, False):
                raise
        return await self._in_era(msgspec.structs.replace(call, sent=None), connection, now)

    async def _in_era(self, call: RelayedCall, connection: McpConnection, agreement: Agreement) -> Json:
        """Send a request in the era that the upstream agreed to; or finish a call that was sent in it."""
        if call.sent is not None:
            return await self._answered(call, connection, call.sent)
        if not agreement.modern:
            return await self._to_legacy(call, connection, agreement.version)
        if self._has_both_eras(call, connection):
            result = await self._in_own_era(call, connection)
            if result is not None:
                return result
        return await self._to_modern(call, connection, agreement.version)

    async def _at_place(self, call: RelayedCall, connection: McpConnection) -> Json:
        """Send a request about a task on the connection on which the task runs."""
        request = call.request
        agreement = await connection.gateway_side.agreement()
        able = abilities(capabilities_at(agreement.version, declared_to_legacy(request.client)))

        async def answer(method: str, params: Mapping[str, Any]) -> Json:
            check_able(method, params, able)
            return await put_question(request, method, params, self._cipher.ttl, related(request.text(TASK_ID)))

        with self.places.held(request.client, call.route, answer):
            if agreement.modern:
                return await (self._rounds if request.modern else self._loop)(call, connection)
            return await connection.forward(call.forwarded(None))

    async def _answered(self, call: RelayedCall, connection: McpConnection, sent: DirectCall) -> Json:
        """Return the result of a call that was sent already, over the connection that it was sent on."""
        if sent.session.conversation.agreement.modern:
            return await (self._rounds if call.request.modern else self._loop)(call, connection)
        if sent.calls is not connection.gateway_side.direct_calls:
            connection = self.handshakes.known(connection) or connection
        return await connection.forward(call.forwarded(None))

    async def _to_modern(self, call: RelayedCall, connection: McpConnection, version: str) -> Json:
        send = self._rounds if call.request.modern else self._loop
        first = self._first(call, connection)
        if first is not None and first.connection.protocol_version not in MODERN_VERSIONS:
            first = None  # of the other era, in which this request cannot be sent
        if not self._needs_logs(call, connection) and first is None:
            return await send(call, connection)
        if first is not None and call.method not in methods.INPUT_REQUIRED:
            with first.used():
                return await send(call, first.connection)
        async with self._lease(call, connection, version, {}) as own:
            return await send(msgspec.structs.replace(call, sole=True), own.connection)

    async def _to_legacy(self, call: RelayedCall, connection: McpConnection, version: str) -> Json:
        client = call.request.client
        declared = capabilities_at(version, declared_to_legacy(client))
        able = abilities(declared)
        logs = self._needs_logs(call, connection)
        first = self._first(call, connection)
        if first is not None and call.method not in methods.INPUT_REQUIRED:
            with first.used():
                return await first.connection.forward(call.forwarded(None))
        if call.method not in methods.INPUT_REQUIRED:
            return await connection.forward(call.forwarded(None))
        if first is None:
            # Any later request about a task has to find it: it is made on the shared connection. Without questions and
            # logs, which would reach the wrong caller there, a call does not need a connection to itself.
            in_shared = "task" in call.params
            if in_shared or not (able or logs):
                return await connection.forward(call.forwarded(None))
        leased = partial(self._lease, call, connection, version, declared)
        if not client.modern:
            return await self._asked(call, leased, able)
        return await self._kept(call, leased, able)

    @asynccontextmanager
    async def _lease(
        self, call: RelayedCall, connection: McpConnection, version: str, declared: Mapping[str, Any]
    ) -> AsyncGenerator[AskingConnection]:
        """Lease a connection for one call of a caller, which declares these capabilities."""
        client = call.request.client
        first = self._first(call, connection)
        lease = self._connections.lease(
            connection.config,
            version,
            declared,
            client.key,
            principal=client.principal,
            owner=owner_of(client),
            first_only=first is not None and has_only(first.connection, connection, call.method, call.params),
            shared=connection,
        )
        async with lease as asking:
            self.on_leased(client)
            if asking.owner is not None:
                call.note_place(asking.id)
            yield asking

    def _first(self, call: RelayedCall, connection: McpConnection) -> AskingConnection | None:
        """Return the connection whose lists the caller sees, if it has its own, for a request about these.

        A task begins there only if the shared connection does not list its tool.
        """
        first = self._connections.first_of(call.request.client, connection.config)
        if first is None or call.method not in _OF_BOTH_ERAS:
            return None
        on_shared = call.may_become_task and not has_only(first.connection, connection, call.method, call.params)
        if on_shared:
            return None
        return first

    # handshake caller, upstream of both eras

    def _has_both_eras(self, call: RelayedCall, connection: McpConnection) -> bool:
        """Whether a call of a handshake caller may reach a modern upstream in the caller's own era.

        Not one that may become a task, unless its tool is listed in that era alone: in which era a task is depends on
        the connection of the hub.
        """
        client = call.request.client
        if client.modern or call.method not in _OF_BOTH_ERAS:
            return False
        if call.may_become_task and self.places.elsewhere(client, connection, call.route.name) is None:
            return False
        return self.handshakes.may_speak(connection)

    async def _in_own_era(self, call: RelayedCall, connection: McpConnection) -> Json | None:
        """Send a call in the handshake era; None, with nothing sent, if the upstream cannot be reached in it."""
        declared = declared_to_legacy(call.request.client)
        if call.method in methods.INPUT_REQUIRED:
            able = abilities(declared)
        else:
            able = {}
        first = self._first(call, connection)
        if first is not None and call.method not in methods.INPUT_REQUIRED:
            with first.used():
                return await first.connection.forward(call.forwarded(None))
        asked = not call.may_become_task and (bool(able) or self._needs_logs(call, connection))
        private = asked or first is not None  # a task begins where its tool is listed
        if connection.config.transport == "stdio" and private:  # the shared one would be a process without use
            return await self._on_private_process(call, connection, declared, able)
        own = await self.handshakes.opened(connection)
        if own is None:
            return None
        if not private:
            call.note_place(HANDSHAKE_PLACE)
            return await own.forward(call.forwarded(None))
        return await self._asked(call, partial(self._lease, call, connection, HANDSHAKE, declared), able)

    async def _on_private_process(
        self, call: RelayedCall, connection: McpConnection, declared: Json, able: Json
    ) -> Json | None:
        """Send a call to a process of the caller's own; None if the server refused the handshake, so nothing was sent.

        Raises:
            ServerError: The process cannot be started, or the call failed.
        """
        result: Json | None = None
        async with AsyncExitStack() as stack:
            try:
                asking = await stack.enter_async_context(self._lease(call, connection, HANDSHAKE, declared))
            except ServerError as error:
                if not refuses_handshake(error):
                    raise
                self.handshakes.refused(connection)
            else:
                result = await self._asked(call, partial(nullcontext, asking), able)
        return result

    def _needs_logs(self, call: RelayedCall, connection: McpConnection) -> bool:
        """Whether a call needs its own connection for its log messages: over pipes they do not say whose they are.

        Only calls of callers that asked for messages do, at a server that sends some.
        """
        piped = connection.config.transport in PIPED and "logging" in connection.capabilities
        is_call = call.method == methods.TOOLS_CALL and not call.becomes_task_of(connection.capabilities)
        return piped and is_call and self._logs.asked(call.request)

    async def _take_level(self, call: RelayedCall, own: AskingConnection) -> None:
        """Ask a legacy upstream for log messages of the caller's level, on a connection of the caller's own."""
        level = self._logs.level(call.request)
        if level is not None and level != own.level and "logging" in own.connection.capabilities:
            await own.connection.set_log_level(level)
            own.level = level

    def _declared(self, call: RelayedCall) -> ClientDeclaration:
        """Return the client capabilities and info to send to modern upstreams."""
        client = call.request.client
        level = self._logs.level(call.request)
        return ClientDeclaration(capabilities=declared_to_modern(client), info=client.info, log_level=level)

    # modern caller, modern upstream

    async def _rounds(self, call: RelayedCall, connection: McpConnection) -> Json:
        """Pass a round of input on; the upstream's state is sealed on its way down, and opened on its way up."""
        params = dict(call.params)
        if call.method in methods.INPUT_REQUIRED:
            if INPUT_RESPONSES in call.request.params:
                params[INPUT_RESPONSES] = call.request.params[INPUT_RESPONSES]
            if call.resumed is not None and call.resumed.state is not None:
                params[REQUEST_STATE] = call.resumed.state
        declared = self._declared(call)
        result = await connection.forward(call.forwarded(declared, params=params))
        if result.get("resultType") != INPUT_REQUIRED:
            return result
        check_questions(result, declared.capabilities)
        state = result.get(REQUEST_STATE)
        if state is not None and not isinstance(state, str):
            raise _odd(call, f"{REQUEST_STATE} that is not a text")
        is_bound = state is not None and connection.config.transport in PIPED
        replica = self._parked.rounds.here if is_bound else ""
        round_ = SealedRound(server=call.route.server, number=call.number, state=state, replica=replica)
        return {**result, REQUEST_STATE: self._cipher.seal(call.request, round_)}

    # legacy caller, modern upstream

    async def _loop(self, call: RelayedCall, connection: McpConnection) -> Json:
        """Ask the caller for the input of every round, on the stream of its request."""
        refusals: list[RequestError] = []
        declared = self._declared(call)

        async def answer(method: str, params: Mapping[str, Any]) -> Json:
            try:
                check_able(method, params, declared.capabilities)
                return await put_question(call.request, method, params, self._cipher.ttl)
            except RequestError as exc:
                refusals.append(exc)
                text = f"the client refused {method}: {exc.message}"
                raise RequestError(text, code=INTERNAL_ERROR, data=exc.data) from None

        try:
            return await connection.forward(call.forwarded(declared, answer=answer))
        except ProtocolError as exc:
            if not refusals:
                raise
            raise ToolError(exc.message, kind=ErrorKind.PROTOCOL, code=refusals[0].code, data=exc.data) from None

    # legacy caller, legacy upstream

    async def _asked(self, call: RelayedCall, lease: LeaseConnection, able: Json) -> Json:
        """Pass the questions of the upstream on as they come."""
        async with lease() as asking:

            async def answer(method: str, params: Mapping[str, Any]) -> Json:
                check_able(method, params, able)
                return await put_question(call.request, method, params, self._cipher.ttl)

            asking.handler = answer
            await self._take_level(call, asking)
            return await asking.connection.forward(call.forwarded(None, sole=True))

    # modern caller, legacy upstream

    async def _kept(self, call: RelayedCall, lease: LeaseConnection, able: Json) -> Json:
        """Begin a call that may be parked, or resume one."""
        resumed = call.resumed
        answers = call.answers
        caller = call.request.client.key
        if resumed is not None and resumed.pages and not all_visited(resumed.pages, answers):
            raise ToolError("the user did not consent to visit the page that this request needs", kind=ErrorKind.DENIED)
        try:
            round_ = None
            if resumed is not None and resumed.handle is not None:
                round_ = await self._resumed(call, resumed.handle, answers)
            if round_ is None:
                round_ = await self._parked.begin(partial(self._live, call, lease, able), call.stream, caller)
        except ProtocolError as exc:
            return self._to_visit(call, exc)
        return self._shown(call, round_)

    async def _resumed(self, call: RelayedCall, handle: str, answers: Json) -> ParkedRound | None:
        """Resume a parked call; None if it was lost and may be retried.

        Raises:
            RequestError: It was lost, and its outcome is unknown (-32603).
        """
        try:
            return await self._parked.resume(handle, answers, call.stream, call.request.client.key)
        except CallIsGone:
            if call.repeatable:
                return None
            raise RequestError(
                f"the process of the gateway in which this request waited has ended, and it is unknown what server "
                f"{call.route.server!r} did for it: the outcome is unknown",
                code=INTERNAL_ERROR,
            ) from None

    async def _live(self, call: RelayedCall, lease: LeaseConnection, able: Json, live: LiveCall) -> Json:
        async with lease() as asking:

            async def answer(method: str, params: Mapping[str, Any]) -> Json:
                check_able(method, params, able)
                return await live.ask(method, params)

            asking.handler = answer
            await self._take_level(call, asking)
            progress = live.progress if call.stream.wants_progress else None
            forwarded = call.forwarded(None, sole=True, on_progress=progress, on_news=live.news)
            return await asking.connection.forward(forwarded)

    def _shown(self, call: RelayedCall, round_: ParkedRound) -> Json:
        """Return a round as the result of the request."""
        if round_.handle is None:
            return round_.result or {}
        state = SealedRound(server=call.route.server, number=call.number, handle=round_.handle)
        try:
            return input_required(round_.questions or {}, self._cipher.seal(call.request, state))
        except RequestError:
            self._parked.give_up(round_.handle)
            raise

    def _to_visit(self, call: RelayedCall, exc: ProtocolError) -> Json:
        """Return the request to visit the pages that an error names; the caller repeats its request afterwards.

        Raises:
            ProtocolError: It is another error, or the caller cannot lead its user to a page.
        """
        if exc.code == URL_ELICITATION_REQUIRED:
            pages = page_questions(exc.data)
        else:
            pages = {}
        if not pages or not can_answer(ABILITIES["elicitation.url"], call.request.client.capabilities):
            raise exc
        round_ = SealedRound(server=call.route.server, number=call.number, pages=tuple(pages))
        return input_required(pages, self._cipher.seal(call.request, round_))

    # ends

    def _whole(self, call: RelayedCall, result: Json) -> Json:
        """Return a result for a legacy caller, which accepts only complete ones.

        Raises:
            RequestError: It is something else.
        """
        if result.get("resultType", _COMPLETE) != _COMPLETE:
            raise _odd(call, f"resultType {str(result['resultType'])[:80]!r}, which revisions with a handshake lack")
        return result


def _ignore(client: Client) -> None:
    """Do nothing."""


def _odd(call: RelayedCall, what: str) -> RequestError:
    return RequestError(f"server {call.route.server!r} answered {call.method} with {what}", code=INTERNAL_ERROR)
