"""Tasks of upstreams, for callers that take tasks: under ids that name their upstream, in the caller's form.

For callers without tasks, the relay follows a task to its end.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import anyio

from toolweave._json_types import as_object, as_text, object_or_empty, without_members
from toolweave.connect import McpConnection
from toolweave.errors import RequestError
from toolweave.gateway._parts import GatewayParts
from toolweave.gateway._relay.relay import PIPED, Relay
from toolweave.gateway._relay.routes import Route
from toolweave.gateway._tasks.kept_tasks import NO_REPLY_CHANNEL, EndedCalls, ProcessTasks
from toolweave.gateway._tasks.names import is_upstreams
from toolweave.gateway._tasks.places import kept_until
from toolweave.gateway._tasks.slow_tasks import SlowTasks
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from toolweave.protocol.eras import legacy_result, modern_result, question_for
from toolweave.protocol.input_required import INPUT_RESPONSES, REQUEST_STATE, read_input_request
from toolweave.protocol.tasks import (
    ENDED,
    TASK_ID,
    capabilities,
    declares_tasks,
    in_core,
    in_extension,
    is_task,
    makes_tasks,
    read_task,
    related,
    support,
    task_result,
    task_support,
    with_outcome,
    with_task_id,
)
from toolweave.protocol.versions import MODERN_VERSIONS, TASKS_VERSION
from toolweave.serve import Request
from toolweave.serve._changes import nothing_to_end
from toolweave.serve._tasks.rules import declared, named_task, undeclared
from toolweave.serve.request import Json, Method
from toolweave.tools import ToolSpec

_log = logging.getLogger("toolweave.gateway")

_ANSWER_SECONDS = 600.0
_POLL_SECONDS = 1.0
_MIN_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 60.0
_CANCEL_SECONDS = 5.0
_OF_A_ROUND = frozenset({INPUT_RESPONSES, REQUEST_STATE})

PutQuestions: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Json]]
"""Puts questions to a caller, and returns the answers, by key."""


class _WatchedTasks(dict[str, Json]):
    """The tasks of one listen stream as they are, with the request that opened it."""

    request: Request


class UpstreamTasks:
    """The feature: calls that became tasks at their upstream, and the requests about them.

    Args:
        hub: The upstreams.
        relay: Sends the requests.
        parts: The parts of the gateway.

    Attributes:
        processes: The tasks of upstreams that other replicas cannot ask.
        until: The time until which an upstream may keep a task of this gateway.
    """

    method = methods.NOTIFICATIONS_TASKS

    def __init__(self, hub: Hub, relay: Relay, parts: GatewayParts) -> None:
        self._hub = hub
        self._relay = relay
        self._names = parts.secrets.tasks
        self._own: SlowTasks | None = None
        if parts.slow is not None:
            self._own = parts.slow.tasks
        seconds = parts.task_seconds
        self._ended = EndedCalls(parts.replicas, seconds=seconds)
        self.until = -math.inf
        self.processes = ProcessTasks(parts.replicas, parts.groups, self._act_here, seconds=seconds)

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods about tasks."""
        found: dict[str, Method] = {methods.TASKS_GET: self._get, methods.TASKS_CANCEL: self._cancel}
        found |= {methods.TASKS_UPDATE: self._update} if modern else {methods.TASKS_RESULT: self._result}
        if self._own is None or not modern:
            return found
        own = self._own.feature.methods(modern=True)
        return {method: partial(self._owned, own[method], answer) for method, answer in found.items()}

    async def _owned(self, own: Method, upstreams: Method, request: Request) -> Json:
        """Answer a request about a task: one of ours, or one of an upstream."""
        return await (upstreams if is_upstreams(named_task(request)) else own)(request)

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the extension, or the capability `tasks` of 2025-11-25, while an upstream has tasks in any form."""
        if self._offered or (modern and self._own is not None):
            return capabilities(modern=modern)
        return {}

    @property
    def _offered(self) -> bool:
        upstreams = self._hub.clients.values()
        if caller_servers(self._hub).configs:  # they may have tasks for each of them
            return True
        return any(_makes_legacy_tasks(one) or _has_extension(one) for one in upstreams)

    def support(self, spec: ToolSpec, modern: bool) -> Json:
        """Return the members of a definition for callers of 2025-11-25, whose tasks modern upstreams decide about."""
        upstream = self._hub.clients.get(spec.server or "")
        if modern or upstream is None or not _has_extension(upstream):
            return {}
        made = support("optional")
        return {name: {**object_or_empty(spec.raw.get(name)), **members} for name, members in made.items()}

    # calls

    def wanted(self, request: Request, spec: ToolSpec | None) -> Json:
        """Return the parameters by which a call asks its upstream for a task; none for a plain call.

        Raises:
            RequestError: The caller asked for a task, and the tool cannot be called as one (-32601).
        """
        shared = None if spec is None else self._hub.clients.get(spec.server or "")
        if spec is None or shared is None:
            if not self._asks_for_task(request):
                return {}
            raise _not_a_task(request)
        reached = self._relay.places.elsewhere(request.client, shared, spec.original_name) or shared
        word = task_support(spec.raw) if _makes_legacy_tasks(reached) else "forbidden"
        if request.modern:
            if word == "required" and declared(request):
                return {"task": {}}
            return {}
        # An upstream with the extension decides by itself which calls become tasks.
        if not self._asks_for_task(request) or _has_extension(reached):
            return {}
        if word != "forbidden":
            return {"task": request.object("task")}
        # The tool is listed as one that may become a task. If the call ends without one, its result is shown as a task.
        if _has_extension(shared):
            return {}
        raise _not_a_task(request)

    def takes(self, request: Request) -> bool:
        """Whether the caller of a tool takes a task for an answer; else the relay follows it."""
        if request.modern:
            return declared(request)
        return self._asks_for_task(request)

    async def shown(self, request: Request, route: Route, result: Json) -> Json:
        """Return the result of a call in the caller's form: one that names a task, under the id for this caller.

        A caller of 2025-11-25 that asked for a task gets one, also of a call that is over.

        Args:
            request: The call.
            route: The upstream, and the place of the connection that the call was sent on.
            result: The result.
        """
        asked = self._asks_for_task(request)
        if not is_task(result):
            if not asked:
                return result
            return task_result(await self._ended.add(request.client.principal, result), modern=False)
        older = as_object(result.get("task"))
        task = result if older is None else older
        own = as_text(task.get(TASK_ID))
        if not own:
            return result
        route = Route(server=route.server, name=own, place=route.place)
        lifetime = _lifetime_ms(task, modern=older is None)
        self.until = max(self.until, kept_until(lifetime))
        self._relay.places.keep(request.client, route, lifetime)
        named = with_task_id(task, self._names.exposed(request.client.principal, route))
        if self.processes.shared and self._is_of_replica(route):
            await self._keep(request, named[TASK_ID], named if older is None else in_extension(named))
        if older is None:
            if request.modern:
                return named
            return {"task": in_core(named)}
        if request.modern:
            return {"resultType": "task", **in_extension(named)}
        return {"task": named}

    async def _keep(self, request: Request, name: str, shown: Json) -> None:
        """Keep a task for other replicas, which have other processes of its server; follow it to its end."""
        plain = replace(request, method=methods.TASKS_GET, params={TASK_ID: name}, reply_channel=NO_REPLY_CHANNEL)
        members = without_members(shown, "resultType")

        async def ended() -> Json:
            while not _is_over(state := await self._state_here(plain, name)):
                await anyio.sleep(_poll_seconds(state))
            return state

        await self.processes.begun(name, members, ended)

    async def _act_here(self, request: Request, name: str) -> Json:
        """Apply a task request of another replica to an upstream of this one; return the task's state."""
        if request.method == methods.TASKS_CANCEL:
            with suppress(RequestError):  # it has ended already, as the state below shows
                await self._asked(request, methods.TASKS_CANCEL, name)
        elif request.method == methods.TASKS_UPDATE:
            await self._updated(request, name)
        return await self._state_here(request, name)

    def _asks_for_task(self, request: Request) -> bool:
        """Whether a caller of 2025-11-25 wants a task; where none is offered, the specification says to ignore that."""
        return request.client.version == TASKS_VERSION and "task" in request.params and self._offered

    # listen streams

    async def current(self, request: Request, names: Sequence[str]) -> Mapping[str, Json]:
        """Return the present state of those tasks that are this caller's, by id.

        Raises:
            RequestError: The caller did not declare the extension.
        """
        if not declared(request):
            raise undeclared()
        found = _WatchedTasks()
        found.request = request
        for name in names:
            try:
                found[name] = await self._now(request, name)
            except RequestError as error:
                _log.debug("a task is not watched: %s", error)
        return found

    async def watch(self, known: Mapping[str, Json], on_change: Callable[[str, Json], None]) -> None:
        """Report changes of tasks until all have ended.

        Each upstream is asked at the interval that it wishes, and whenever it says that a task has changed.
        """
        if isinstance(known, _WatchedTasks):
            async with anyio.create_task_group() as tasks:
                for name, state in known.items():
                    if self._is_asked_about(name):
                        tasks.start_soon(self._watch, known.request, name, state, on_change)

    async def _watch(self, request: Request, name: str, state: Json, on_change: Callable[[str, Json], None]) -> None:
        # Polled, and also woken by the upstream: a notification shortens the wait, and one that is lost costs an
        # interval. The event is replaced before the task is read: a change during the read is found by the next turn.
        news = [anyio.Event()]
        end = self._listen(request, name, lambda params: news[0].set())
        try:
            while not _is_over(state):
                with anyio.move_on_after(_poll_seconds(state)):
                    await news[0].wait()
                    await anyio.sleep(_MIN_POLL_SECONDS)  # however often it says something
                news[0] = anyio.Event()
                found = await self._now(request, name)
                if found != state:
                    on_change(name, found)
                state = found
        except RequestError as error:
            _log.debug("a task is no longer watched: %s", error)
        finally:
            end()

    def _listen(
        self, request: Request, name: str, listener: Callable[[Mapping[str, Any]], object]
    ) -> Callable[[], object]:
        """Have the upstream of a task say when it changes, if it can; return the end of that."""
        try:
            route = self._route(request, name)
            upstream = self._connection(request, route)
        except RequestError:
            return nothing_to_end
        if _has_extension(upstream):
            return upstream.listen_to_task(route.name, listener)
        return nothing_to_end

    def _is_asked_about(self, name: str) -> bool:
        """Return whether changes of a task are found by polling; this replica's slow calls report theirs."""
        return self._own is None or is_upstreams(name) or self._own.is_elsewhere(name)

    async def _now(self, request: Request, name: str) -> Json:
        """Return a task as it is now: one of ours, or one of an upstream."""
        if self._own is None or is_upstreams(name):
            return await self._state(request, name)
        found = await self._own.feature.current(request, [name])
        if name not in found:
            raise RequestError("Unknown task", code=INVALID_PARAMS)
        return found[name]

    # the methods

    async def _get(self, request: Request) -> Json:
        name = named_task(request)
        kept = await self._kept(request, name)
        if kept is not None:
            if request.modern:
                return kept
            return in_core(kept)
        if not request.modern and not self._is_modern(request, self._route(request, name)):
            found = await self._asked(request, methods.TASKS_GET, name)
            return with_task_id(await self._noted(request, name, found), name)
        state = await self._state_here(request, name)
        if request.modern:
            return state
        return in_core(state)

    async def _update(self, request: Request) -> Json:
        name = named_task(request)
        if INPUT_RESPONSES not in request.params:
            raise RequestError(f"{request.method} needs the object {INPUT_RESPONSES!r}", code=INVALID_PARAMS)
        request.object(INPUT_RESPONSES)
        if await self._kept(request, name) is None:
            await self._updated(request, name)
        return {}

    async def _updated(self, request: Request, name: str) -> None:
        if self._is_modern(request, self._route(request, name)):  # a task of a legacy upstream has no questions
            answers = {INPUT_RESPONSES: request.object(INPUT_RESPONSES)}
            await self._asked(request, methods.TASKS_UPDATE, name, answers)

    async def _kept(self, request: Request, name: str) -> Json | None:
        """Return a task that no upstream of this replica knows; the request was forwarded to where it runs."""
        if not is_upstreams(name):
            return await self._ended.find(request.client.principal, name)
        route = self._route(request, name)
        if not self.processes.shared or not self._is_of_replica(route):
            return None
        return await self.processes.elsewhere(request, name)

    def _is_of_replica(self, route: Route) -> bool:
        """Whether a task runs in a process or session of this replica, so that those of others know nothing of it."""
        if route.place:
            return True
        connection = self._hub.clients.get(route.server)
        return connection is not None and connection.config.transport in PIPED

    async def _cancel(self, request: Request) -> Json:
        name = named_task(request)
        kept = await self._kept(_about(request, name), name)
        if kept is not None and not _is_over(kept):  # it runs in another replica
            done = await self._kept(request, name)
            if request.modern:
                return {}
            return in_core(done or kept)
        if request.modern:
            if kept is None:
                await self._cancel_for_modern(request, name)
            return {}
        if kept is not None:
            raise _ended_already()
        if not self._is_modern(request, self._route(request, name)):
            return with_task_id(await self._asked(request, methods.TASKS_CANCEL, name), name)
        # A modern upstream accepts the cancellation of a task that has ended; 2025-11-25 wants an error for it.
        if _is_over(await self._state_here(request, name)):
            raise _ended_already()
        await self._asked(request, methods.TASKS_CANCEL, name)
        return in_core(await self._state_here(request, name))

    async def _cancel_for_modern(self, request: Request, name: str) -> None:
        """Cancel a task for a modern caller, for which one that has ended already is not an error."""
        is_modern = self._is_modern(request, self._route(request, name))
        try:
            await self._asked(request, methods.TASKS_CANCEL, name)
        except RequestError as error:
            if is_modern or error.code != INVALID_PARAMS:
                raise

    async def _result(self, request: Request) -> Json:
        """Return the result of a task to a legacy caller, once it has ended; until then put its questions to it."""
        name = named_task(request)
        kept = await self._kept(_about(request, name), name)
        if kept is not None and not _is_over(kept):
            kept = None
        elif kept is None and not self._is_modern(request, self._route(request, name)):
            found = await self._asked(request, methods.TASKS_RESULT, name)
            await self._noted(request, name, {})
            return _related(found, name)
        ended = kept or await self._end_of(request, name, partial(self._put_all, request, name))
        return _related(_outcome(request, ended), name)

    async def followed(self, request: Request, result: Json, put: PutQuestions) -> Json:
        """Return the result of a call that has become a task at its upstream, for a modern caller.

        Raises:
            RequestError: The task failed, or was cancelled.
        """
        name = str(result[TASK_ID])
        try:
            return _outcome(request, await self._end_of(request, name, put))
        except anyio.get_cancelled_exc_class():
            # The caller holds the call, not the task: nobody else could end the task at the upstream. Shielded and
            # bounded, because this runs during a cancellation.
            with anyio.move_on_after(_CANCEL_SECONDS, shield=True), suppress(RequestError):
                await self._give_up(request, name)
            raise

    async def _end_of(self, request: Request, name: str, put: PutQuestions) -> Json:
        """Return a task of an upstream once it has ended; until then its questions are put."""
        given: set[str] = set()
        while True:
            state = await self._state(request, name)
            if _is_over(state):
                return state
            # A task shows its questions until the answers have arrived. Those that were answered are remembered, else
            # the user would be asked the same thing again with the next poll.
            asked = without_members(read_task(state, modern=True).requests, *given)
            if asked:
                responses = await put(asked)
                given.update(asked)
                about = _about(request, name, methods.TASKS_UPDATE)
                await self._update(replace(about, params={**about.params, INPUT_RESPONSES: responses}))
            else:
                await anyio.sleep(_poll_seconds(state))

    async def _give_up(self, request: Request, name: str) -> None:
        """Cancel a task, wherever it runs."""
        about = _about(request, name, methods.TASKS_CANCEL)
        if await self._kept(about, name) is None:
            await self._asked(about, methods.TASKS_CANCEL, name)

    async def _put_all(self, request: Request, name: str, questions: Mapping[str, Any]) -> Json:
        return {key: await self._put(request, name, one) for key, one in questions.items()}

    async def _put(self, request: Request, name: str, question: object) -> Json:
        """Put a question of a task to a legacy caller, on the stream of its request for the result.

        Raises:
            RequestError: It refused, or did not answer in time; the task is cancelled, since it cannot continue.
        """
        method, params = read_input_request(question)
        put = question_for(method, params, request.client.version)
        put["_meta"] = {**object_or_empty(put.get("_meta")), **related(name)}
        try:
            with anyio.fail_after(_ANSWER_SECONDS):
                return await request.reply_channel.ask(method, put)
        except (RequestError, TimeoutError) as error:
            await self._give_up(request, name)
            if isinstance(error, RequestError):
                raise
            text = f"the client did not answer {method} within {_ANSWER_SECONDS:g} s"
            raise RequestError(text, code=INTERNAL_ERROR) from None

    async def _state(self, request: Request, name: str) -> Json:
        """Return a task in the form of the extension, with the outcome of one that has ended, wherever it runs."""
        kept = await self._kept(_about(request, name), name)
        if kept is None:
            return await self._state_here(request, name)
        return kept

    async def _state_here(self, request: Request, name: str) -> Json:
        """Return a task of an upstream of this replica; the end of one is stored for other replicas."""
        found = await self._state_at_upstream(request, name)
        if _is_over(found):
            await self.processes.note(name, found)
        return found

    async def _noted(self, request: Request, name: str, found: Json) -> Json:
        """Store how a task ended, before a legacy caller is notified; return the state to notify."""
        if self.processes.follows(name) and found.get("status", "completed") in ENDED:
            with suppress(RequestError):
                await self._state_here(_about(request, name), name)
        return found

    async def _state_at_upstream(self, request: Request, name: str) -> Json:
        found = await self._asked(request, methods.TASKS_GET, name)
        if self._is_modern(request, self._route(request, name)):
            return with_task_id(found, name)
        shown = with_task_id(in_extension(found), name)
        if shown.get("status") not in ("completed", "failed"):
            return shown
        try:
            return with_outcome(shown, await self._asked(request, methods.TASKS_RESULT, name))
        except RequestError as error:
            return with_outcome(shown, error)

    async def _asked(self, request: Request, method: str, name: str, more: Mapping[str, Any] | None = None) -> Json:
        """Ask the upstream of a task about it, by its own id."""
        route = self._route(request, name)
        params = without_members(request.params, *_OF_A_ROUND)
        plain = replace(request, params=params)  # no answers to a round of ours
        return await self._relay.request(
            plain, route, method, {TASK_ID: route.name, **(more or {})}, follow_tasks=False
        )

    def _route(self, request: Request, name: str) -> Route:
        found = self._names.read(request.client.principal, name)
        if found is None or found.server not in self._hub.clients:
            raise RequestError("Unknown task", code=INVALID_PARAMS)
        return found

    def _connection(self, request: Request, route: Route) -> McpConnection:
        """Return the connection on which a task runs.

        Raises:
            RequestError: It has ended, or belongs to another caller.
        """
        return self._relay.places.connection(request.client, self._hub.clients[route.server], route)

    def _is_modern(self, request: Request, route: Route) -> bool:
        return self._connection(request, route).protocol_version in MODERN_VERSIONS


def _not_a_task(request: Request) -> RequestError:
    return RequestError(f"tool {request.text('name')!r} cannot be called as a task", code=METHOD_NOT_FOUND)


def _ended_already() -> RequestError:
    return RequestError("the task has ended already", code=INVALID_PARAMS)


def _about(request: Request, name: str, method: str = methods.TASKS_GET) -> Request:
    """Return a request about a task, of the caller of another one."""
    meta = {key: value for key, value in request.params.items() if key == "_meta"}
    return replace(request, method=method, params={TASK_ID: name, **meta})


def _related(result: Json, name: str) -> Json:
    """Return the result of a task, with its id."""
    return {**result, "_meta": {**object_or_empty(result.get("_meta")), **related(name)}}


def _outcome(request: Request, state: Json) -> Json:
    """Return the result of a call that is over, in the form of the caller's era.

    Raises:
        RequestError: The task failed, or was cancelled.
    """
    result = as_object(state.get("result"))
    if result is not None:
        if request.modern:
            return modern_result(methods.TOOLS_CALL, result)
        return legacy_result(methods.TOOLS_CALL, result, request.client.version, wraps=None)
    error = object_or_empty(state.get("error"))
    message = as_text(error.get("message"))
    code = error.get("code")
    raise RequestError(
        message or f"the task is {state['status']}",
        code=code if isinstance(code, int) else INVALID_PARAMS,
        data=error.get("data"),
    )


def _makes_legacy_tasks(upstream: McpConnection) -> bool:
    return upstream.protocol_version == TASKS_VERSION and makes_tasks(upstream.capabilities)


def _has_extension(upstream: McpConnection) -> bool:
    return upstream.protocol_version in MODERN_VERSIONS and declares_tasks(upstream.capabilities)


def _is_over(state: Json) -> bool:
    return state.get("status") in ENDED


def _lifetime_ms(task: Mapping[str, Any], *, modern: bool) -> float | None:
    try:
        return read_task(task, modern=modern).ttl_ms
    except ValueError:
        return None


def _poll_seconds(state: Json) -> float:
    try:
        poll_ms = read_task(state, modern=True).poll_ms
    except ValueError:
        poll_ms = None
    seconds = _POLL_SECONDS if poll_ms is None else poll_ms / 1000
    return min(max(seconds, _MIN_POLL_SECONDS), _MAX_POLL_SECONDS)
