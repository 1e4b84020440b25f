"""Calls that wait for their callers, in this replica or in another one that lives.

A parked call stays where it runs: its upstream's connection is there. Its handle names that replica, so the answers of
its caller find it from any of them, through the store that all share.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from toolweave.errors import (
    ConnectError,
    ConnectionLostError,
    ProtocolError,
    RequestError,
    ServerError,
    ToolError,
    ToolweaveError,
    as_tool_error,
)
from toolweave.gateway._relay.caller_stream import CallerStream
from toolweave.gateway._relay.parking import LiveCall, ParkedRound, Parking, ParkingFull
from toolweave.gateway._relay.relayed_errors import caller_error
from toolweave.gateway._relay.rounds_elsewhere import RoundsElsewhere
from toolweave.gateway._replicas.replicas import ReplicaGone, Replicas, UnknownToReplica
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.eras import question_for
from toolweave.protocol.input_required import input_request
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve._changes import nothing_to_end
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve.request import Json

_KIND = "parked"


class CallIsGone(Exception):
    """The replica in which a parked call ran does not live any more."""


class ParkedCalls:
    """Begins calls that may have to wait for their callers, and resumes them.

    Args:
        parking: The parked calls of this replica.
        groups: The task groups of calls that outlive a request.
        replicas: The other replicas; None if no store is shared.

    Attributes:
        rounds: Rounds of input that only the process of one replica can continue.
    """

    def __init__(self, parking: Parking, groups: ServingGroups, replicas: Replicas | None = None) -> None:
        self._parking = parking
        self._groups = groups
        self._replicas = replicas
        if replicas is None:
            self._here = secrets.token_hex(8)
        else:
            self._here = replicas.id
        self.rounds: RoundsElsewhere = RoundsElsewhere(self._here, replicas)

    def listen(self) -> Callable[[], object]:
        """Resume calls for other replicas from now on; return a function that stops it."""
        if self._replicas is None:
            return nothing_to_end
        return self._replicas.on(_KIND, self._asked)

    async def begin(
        self, work: Callable[[LiveCall], Awaitable[Json]], stream: CallerStream, caller: str | None
    ) -> ParkedRound:
        """Begin a call and return its end, or the first round of its questions.

        Raises:
            ToolweaveError: It failed, or too many calls wait.
        """
        # In a task group of the server, not of the request: the call has to outlive the request that began it.
        live = LiveCall()
        live.stream = stream
        self._groups.current().start_soon(live.run, work)
        return await self._next(live, caller)

    async def resume(
        self, handle: str, answers: Mapping[str, Any], stream: CallerStream, caller: str | None
    ) -> ParkedRound:
        """Give a call the answers to its questions; return its end, or the next round.

        Raises:
            CallIsGone: Its replica does not live any more, and the call with it.
            ToolweaveError: It failed, does not wait any more, or cannot be reached now.
        """
        replica, _, own = handle.partition(".")
        if replica == self._here:
            return await self._resumed(own, answers, stream, caller)
        if self._replicas is None:
            raise RequestError(
                "the call that asked for this input runs in another process of the gateway, which shares no store with "
                "this one; repeat the request",
                code=INTERNAL_ERROR,
            )
        body: Json = {"handle": own, "answers": answers, "caller": caller}
        try:
            reply = await self._replicas.ask(replica, _KIND, body)
        # The questions are lost with the process. The caller of this function may make the call again if that does no
        # harm.
        except ReplicaGone:
            raise CallIsGone from None
        except UnknownToReplica:
            text = "the call that asked for this input is not waiting any more; repeat the request"
            raise RequestError(text, code=INVALID_PARAMS) from None
        if "error" in reply:
            raise _error(reply["error"])
        found = msgspec.convert(reply, ParkedRound)
        if found.handle is None:
            return found
        # The next round is at the same replica, since the call has not moved.
        return msgspec.structs.replace(found, handle=f"{replica}.{found.handle}")

    def give_up(self, handle: str) -> None:
        """End a call of this replica that no caller will resume."""
        replica, _, own = handle.partition(".")
        if replica == self._here:
            self._parking.give_up(own)

    async def _asked(self, body: Json) -> Json | None:
        """Resume a call for another replica; None when it is not parked in this one."""
        own = str(body["handle"])
        # None means "not here" to the replicas; an error would be final.
        if not self._parking.knows(own):
            return None
        try:
            # Without the stream: it belongs to a request of the other replica, so progress of this round is not
            # forwarded.
            found = await self._resumed(own, body["answers"], None, body["caller"])
        except ToolweaveError as exc:
            return {"error": _members(exc)}
        if found.handle is not None:  # the replica that asked knows where it is
            found = msgspec.structs.replace(found, handle=found.handle.partition(".")[2])
        return msgspec.to_builtins(found)

    async def _resumed(
        self, own: str, answers: Mapping[str, Any], stream: CallerStream | None, caller: str | None
    ) -> ParkedRound:
        taken = self._parking.take(own)
        if isinstance(taken, ParkedRound):
            return taken
        # `take` has removed the call from the parked ones, so this request alone is responsible for it: if the answers
        # are not valid, the call is ended, since no handle leads to it any more.
        taken.stream = stream
        try:
            taken.answer(answers)
        except BaseException:
            taken.scope.cancel()
            raise
        found = await self._next(taken, caller)
        # A caller may repeat its request after a lost response: it gets the same round, and the answers are not given
        # twice.
        self._parking.keep(own, found)
        return found

    async def _next(self, live: LiveCall, caller: str | None) -> ParkedRound:
        """Wait until a call has ended or asks; then it is parked."""
        try:
            await live.settled()
        except BaseException:  # the caller broke the request off: no caller can resume this call
            live.scope.cancel()
            raise
        if live.over:
            return ParkedRound(result=live.outcome())
        questions = {
            key: input_request(question.method, question_for(question.method, question.params, MODERN_VERSION))
            for key, question in live.questions.items()
        }
        try:
            own = self._parking.park(live, caller, self._groups.current())
        # Without a handle no caller could continue it, and it would wait until its own time is over.
        except ParkingFull:
            live.scope.cancel()
            raise
        return ParkedRound(questions=questions, handle=f"{self._here}.{own}")


def _members(error: ToolweaveError) -> Json:
    """Return an error for another replica."""
    if isinstance(error, ProtocolError):
        return {"server": error.server, "message": error.message, "code": error.code, "data": error.data}
    if isinstance(error, RequestError):
        return {"message": error.message, "code": error.code, "data": error.data}
    if isinstance(error, (ConnectError, ConnectionLostError)):
        return caller_error(error).to_dict()
    return as_tool_error(error).to_dict()


def _error(members: Mapping[str, Any]) -> ProtocolError | RequestError | ToolError | ServerError:
    """Return the error that another replica reported."""
    message = str(members["message"])
    code = members.get("code")
    data = members.get("data")
    # The kinds are recognized by members that only one of them has, in the order of `_members`.
    if "server" in members:
        return ProtocolError(message, server=str(members["server"]), code=int(members["code"]), data=data)
    if "kind" not in members:
        return RequestError(message, code=int(members["code"]), data=data)
    return ToolError(message, kind=members["kind"], code=code, retryable=members["retryable"] is True, data=data)
