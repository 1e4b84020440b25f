"""Rounds of input of upstreams that are processes of one replica: their answers are passed on to that replica.

The state of such an upstream can be read by its process alone. So the sealed state names the replica that runs it, and
the whole request of the caller is sent there, with the route that this replica has found. A message between replicas is
received once, so a round reaches the upstream once at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from toolweave.errors import ProtocolError, RequestError
from toolweave.gateway._relay.relayed_call import RelayedCall
from toolweave.gateway._relay.routes import Route
from toolweave.gateway._replicas.replicas import ReplicaGone, Replicas, UnknownToReplica
from toolweave.gateway._tasks.kept_tasks import NO_REPLY_CHANNEL
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.serve import Client, Request
from toolweave.serve._changes import nothing_to_end
from toolweave.serve.request import Json

_KIND = "round"

RelayRound: TypeAlias = Callable[[Request, Route, str, Mapping[str, Any], bool], Awaitable[Json | None]]
"""Sends a round to an upstream of this replica; None if its state is of another gateway of this process."""


class RoundsElsewhere:
    """Passes rounds of input on to the replica whose upstream has asked.

    Args:
        here: The name of this replica.
        replicas: The other replicas; None if no store is shared.

    Attributes:
        here: The name of this replica.
    """

    def __init__(self, here: str, replicas: Replicas | None) -> None:
        self.here = here
        self._replicas = replicas

    def listen(self, relay_round: RelayRound) -> Callable[[], object]:
        """Relay rounds for other replicas from now on; return a function that stops it."""

        async def asked(body: Json) -> Json | None:
            client = Client(
                version=body["version"],
                capabilities=body["capabilities"],
                info=body["info"],
                principal=body["principal"],
            )
            request = Request(body["method"], body["params"], client, NO_REPLY_CHANNEL, 0)
            route = Route(server=body["server"], name=body["name"])
            try:
                result = await relay_round(request, route, body["sent"], body["sent_params"], body["follow_tasks"])
            except RequestError as error:
                return {"refused": {"message": error.message, "code": error.code, "data": error.data}}
            if result is None:
                return None
            return {"result": result}

        if self._replicas is None:
            return nothing_to_end
        return self._replicas.on(_KIND, asked)

    async def relay(self, replica: str, call: RelayedCall, send_here: Callable[[], Awaitable[Json]]) -> Json:
        """Pass a round on; return its result.

        Without a store that replicas share, the process of this replica is asked: its server may read the states of all
        its processes, and refuses any other.

        Raises:
            RequestError: The replica is gone, cannot be reached, or its upstream refused.
        """
        if self._replicas is None:
            try:
                return await send_here()
            except ProtocolError as exc:
                raise RequestError(
                    f"{exc.message}; server {call.route.server!r} asked for this input in another process of the "
                    "gateway, which shares no store with this one: repeat the request without its requestState, or "
                    "give the replicas a store",
                    code=exc.code,
                    data=exc.data,
                ) from None
        client = call.request.client
        body: Json = {
            "method": call.request.method,
            "params": call.request.params,
            "version": client.version,
            "capabilities": client.capabilities,
            "info": client.info,
            "principal": client.principal,
            "server": call.route.server,
            "name": call.route.name,
            "sent": call.method,
            "sent_params": call.params,
            "follow_tasks": call.follow_tasks,
        }
        try:
            reply = await self._replicas.ask(replica, _KIND, body)
        except ReplicaGone:
            raise RequestError(
                f"the process of the gateway whose server {call.route.server!r} asked for this input has ended, and "
                "these answers were not sent; check what the server did before it asked, then repeat the request "
                "without its requestState",
                code=INTERNAL_ERROR,
            ) from None
        except UnknownToReplica:
            raise RequestError(
                f"server {call.route.server!r} is not there any more where it asked for this input; repeat the "
                "request without its requestState",
                code=INVALID_PARAMS,
            ) from None
        if "refused" in reply:
            refused = reply["refused"]
            raise RequestError(refused["message"], code=refused["code"], data=refused["data"])
        return reply["result"]
