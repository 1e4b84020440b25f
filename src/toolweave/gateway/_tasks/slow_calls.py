"""Slow calls become tasks of callers that take tasks: the call keeps running, and its caller polls for the outcome.

A call is not restarted for that. Questions of its upstream after it became a task are questions of the task; its
notifications are dropped, since the request that they would go to is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import anyio
import msgspec

from toolweave._json_types import as_object
from toolweave.errors import ErrorKind, RequestError, ToolError
from toolweave.gateway._relay.parking import LiveCall
from toolweave.gateway._relay.relay import Relay
from toolweave.gateway._tasks.tasks import UpstreamTasks
from toolweave.protocol.codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from toolweave.protocol.input_required import (
    INPUT_REQUIRED,
    INPUT_RESPONSES,
    REQUEST_STATE,
    read_input_request,
    read_input_required,
)
from toolweave.protocol.tasks import is_task
from toolweave.serve import ReplyChannel, Request
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve._tasks import TasksFeature
from toolweave.serve._tasks.rules import declared
from toolweave.serve.request import Json, Method
from toolweave.tools import CallContext, Question, ToolSpec


class _DetachableReplyChannel:
    """The reply channel of a request, until the request is answered; None for one that is answered already."""

    def __init__(self, reply_channel: ReplyChannel | None = None) -> None:
        self._reply_channel = reply_channel

    def detach(self) -> None:
        """Stop forwarding to the original request."""
        self._reply_channel = None

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, as long as there is a request that it is for."""
        if self._reply_channel is not None:
            await self._reply_channel.notify(method, params)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Refuse: callers of modern revisions are asked by results.

        Raises:
            RequestError: Always.
        """
        raise RequestError(f"this caller cannot be sent {method}", code=METHOD_NOT_FOUND)

    async def release(self) -> None:
        """Do nothing: no modern response can be resumed."""


class _RelayedQuestion(msgspec.Struct, frozen=True):
    """A question of an upstream, which is put as it is and whose answer is passed on as it is."""

    key: str
    method: str
    members: Mapping[str, Any]

    def needs(self) -> Mapping[str, Any]:
        """Return nothing: the upstream has received the capabilities that the caller declared."""
        return {}

    def params(self, *, modern: bool) -> Json:
        """Return the request's parameters."""
        return dict(self.members)

    def read(self, answer: object) -> Json:
        """Return the answer.

        Raises:
            ToolError: It is not an object.
        """
        read = as_object(answer)
        if read is None:
            raise ToolError(f"the answer {self.key!r} must be an object", kind=ErrorKind.INVALID_INPUT)
        return dict(read)


class SlowCalls:
    """Turns calls that take long into tasks.

    Args:
        seconds: Seconds after which a call becomes a task.
        tasks: Keeps the tasks.
        upstream: Also follows calls that become tasks at their upstream.
        relay: Ends calls that wait for answers which no caller will give.
        groups: The task groups of calls that outlive a request.
    """

    def __init__(
        self, seconds: float, *, tasks: TasksFeature, upstream: UpstreamTasks, relay: Relay, groups: ServingGroups
    ) -> None:
        self._seconds = seconds
        self._tasks = tasks
        self._upstream = upstream
        self._relay = relay
        self._groups = groups

    async def run(self, request: Request, spec: ToolSpec, call: Method) -> Json:
        """Make a call, and return its result, or the task that it has become.

        Args:
            request: The call of a tool.
            spec: The tool.
            call: Makes it, and each further round of it.

        Raises:
            RequestError: The answer is a JSON-RPC error.
        """
        # A round with request state continues a call that some request has already waited for; a task has its own way
        # to bring answers (`tasks/update`).
        if not (request.modern and declared(request)) or REQUEST_STATE in request.params:
            return await call(request)
        # A task has no channel for progress: a caller that asked for progress keeps its request open.
        if "progressToken" in request.meta:
            return await call(request)
        reply_channel = _DetachableReplyChannel(request.reply_channel)
        live = LiveCall()

        async def work(_: LiveCall) -> Json:
            return await call(request.replace(reply_channel=reply_channel))

        # In the group of the server: the call continues when the request has been answered with the task.
        self._groups.current().start_soon(live.run, work)
        try:
            with anyio.move_on_after(self._seconds):
                await live.ended()
            # It may have ended in the moment in which the time was over.
            if not live.over:
                try:
                    created = await self._tasks.start(request, spec, partial(self._end_of, request, live, call))
                except RequestError:  # there are too many: the caller waits, as callers without tasks do
                    await live.ended()
                else:
                    # After the task exists: until then, notifications still have a request to belong to.
                    reply_channel.detach()
                    return created
        except BaseException:  # the caller broke the request off
            live.scope.cancel()
            raise
        return live.outcome()

    async def _end_of(self, request: Request, live: LiveCall, call: Method, ctx: CallContext) -> Json:
        """Return the result of a call once it has ended, putting its questions to the caller on the way."""
        try:
            await live.ended()
        except BaseException:  # the task was cancelled, or its time is over
            live.scope.cancel()
            raise
        result = live.outcome()
        # Not bounded by a number: each round waits for a person, and the lifetime of the task bounds them all.
        while result.get("resultType") == INPUT_REQUIRED:
            result = await call(await self._next_round(request, result, ctx))
        if not is_task(result):
            return result
        return await self._upstream.followed(
            request.replace(reply_channel=_DetachableReplyChannel()), result, partial(self._answers, ctx)
        )

    async def _next_round(self, request: Request, result: Json, ctx: CallContext) -> Request:
        """Return the request that brings the answers to the questions of a result.

        Raises:
            RequestError: The questions cannot be read.
            ToolError: The answers are refused.
        """
        try:
            requests, state = read_input_required(result)
        except ValueError as exc:
            raise RequestError(f"tool {request.text('name')!r}: {exc}", code=INTERNAL_ERROR) from None
        # A result without state is continued without it (SEP-2322): an empty one would be another value.
        if state is None:
            params = {**request.params}
        else:
            params = {**request.params, REQUEST_STATE: state}
        waiting = request.replace(params=params, reply_channel=_DetachableReplyChannel())
        try:
            answers = await self._answers(ctx, requests)
        except BaseException:  # the task was cancelled, or its time is over: no answers will come
            # The call may be parked here, with an upstream that still waits for the answers.
            self._relay.give_up(waiting)
            raise
        return waiting.replace(params={**params, INPUT_RESPONSES: answers})

    async def _answers(self, ctx: CallContext, requests: Mapping[str, Any]) -> Json:
        """Put questions to the client that follows the task; return the answers by key."""
        asked = [_RelayedQuestion(key, *read_input_request(one)) for key, one in requests.items()]
        # A round without questions only asks to be repeated, with its state.
        if not asked or ctx.caller is None:
            return {}
        answers = await ctx.caller.ask(cast("Sequence[Question]", asked))
        return dict(zip(requests, answers, strict=True))
