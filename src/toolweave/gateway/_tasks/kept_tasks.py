"""Tasks that no upstream can be asked about, or only that of one replica: kept for all of them in the store they share.

Those are calls that were over when a task was wanted, and the tasks of servers that run as processes, of which each
replica has its own. While such a task runs, its replica is asked; how it ended is kept, also after that is gone.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, TypeAlias

import anyio

from toolweave._json_types import as_object
from toolweave.errors import RequestError, StoreError
from toolweave.gateway._replicas.replicas import ReplicaGone, Replicas, UnknownToReplica
from toolweave.jobs.retention import TASK_SECONDS, milliseconds
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.tasks import ENDED, TASK_ID, created, failed, with_outcome
from toolweave.serve import Client, Request
from toolweave.serve._changes import nothing_to_end
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.gateway")

_ENDED_CALLS = "gateway-ended-calls"
_TASKS = "gateway-tasks"
_KIND = "upstream task"
_MIN_POLL_MS = 50
_MAX_KEPT = 1_000
_RUNNING_SECONDS = 86_400.0
_AGAIN_SECONDS = 1.0
_MAX_ENDED = 256
"""Maximum number of ended tasks that this replica keeps in memory, because the store may lose how they ended."""
_MAX_BEGUN = 10_000
"""Maximum number of tasks that are known to be of this replica, also while the store is away."""
_REFUSED = "refused"

Act: TypeAlias = Callable[[Request, str], Awaitable[Json]]
"""Applies a task request to an upstream of this replica; returns the task's state in the form of the extension."""


class EndedCalls:
    """Calls that were over when their callers, of 2025-11-25, wanted a task; their results are kept for a while.

    Args:
        replicas: The other replicas, for which they are also kept; None if nothing is shared.
        seconds: Seconds for which a result is kept.
    """

    def __init__(self, replicas: Replicas | None = None, *, seconds: float = TASK_SECONDS) -> None:
        self._replicas = replicas
        self._seconds = seconds
        self._kept: OrderedDict[str, tuple[str | None, float, Json]] = OrderedDict()

    async def add(self, principal: str | None, result: Mapping[str, Any]) -> Json:
        """Keep a result and return the task that it is the outcome of, in the form of the extension."""
        now = time.time()
        ttl_ms = milliseconds(self._seconds)
        shown = created(secrets.token_urlsafe(24), ttl_ms=ttl_ms, poll_ms=_MIN_POLL_MS, now=now)
        ended = with_outcome(shown, result)
        # All are kept equally long, so the one that ends first stands first.
        self._kept[shown[TASK_ID]] = principal, now + self._seconds, ended
        while len(self._kept) > _MAX_KEPT or next(iter(self._kept.values()))[1] < now:
            self._kept.popitem(last=False)
        if self._replicas is not None:
            value = {"principal": principal, "task": ended}
            await _put(self._replicas, _ENDED_CALLS, shown[TASK_ID], value, self._seconds)
        return ended

    async def find(self, principal: str | None, name: str) -> Json | None:
        """Return the task of this id, if it is of this principal.

        Raises:
            RequestError: It is not of this replica, and the store is away.
        """
        kept = self._kept.get(name)
        if kept is not None:
            # An id alone opens nothing: the same answer as for an unknown one, so that ids cannot be found out by
            # trying.
            if kept[0] == principal:
                return kept[2]
            return None
        if self._replicas is None:
            found = None
        else:
            found = await _get(self._replicas, _ENDED_CALLS, name)
        if found is None or found["principal"] != principal:
            return None
        return _json(found["task"])


class ProcessTasks:
    """The tasks of upstreams that run as processes of one replica, which the others know by its word alone.

    Args:
        replicas: The replicas; None if nothing is shared, and every task is of this process.
        groups: The task groups in which tasks are followed to their end.
        act: Acts on a task of this replica for another one.
        seconds: Seconds for which the end of a task is kept.
    """

    def __init__(
        self, replicas: Replicas | None, groups: ServingGroups, act: Act, *, seconds: float = TASK_SECONDS
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._act = act
        self._seconds = seconds
        self._followed: dict[str, Json] = {}
        self._ended: OrderedDict[str, tuple[float, Json]] = OrderedDict()
        self._begun: OrderedDict[str, None] = OrderedDict()

    @property
    def shared(self) -> bool:
        """Whether there are other replicas."""
        return self._replicas is not None

    def listen(self) -> Callable[[], object]:
        """Answer other replicas from now on; return a function that ends that."""
        if self._replicas is None:
            return nothing_to_end
        ends = self._replicas.on(_KIND, self._asked), self._replicas.on_return(self._store_again)

        def end() -> None:
            for one in ends:
                one()

        return end

    async def begun(self, name: str, shown: Json, ended: Callable[[], Awaitable[Json]]) -> None:
        """Keep a task that has begun in this replica, and how it ends.

        Args:
            name: Its id for callers.
            shown: The task, in the form of the extension.
            ended: Waits for its end, and returns it then; raises RequestError where its server knows it no more.
        """
        replicas = self._replicas
        if replicas is None or name in self._followed:
            return
        # Before the first await: a second announcement of the same task must not begin a second follower, and a
        # request that arrives meanwhile finds that the task is of this replica.
        self._followed[name] = shown
        self._begun[name] = None
        while len(self._begun) > _MAX_BEGUN:
            self._begun.popitem(last=False)
        await _put(replicas, _TASKS, name, {"by": replicas.id, "task": shown}, _RUNNING_SECONDS)
        # In a group and not in the request: the call that began the task ends long before it.
        self._groups.current().start_soon(self._follow, name, ended)

    def follows(self, name: str) -> bool:
        """Return whether a task has begun in this replica, and its end is not known yet."""
        return name in self._followed

    async def note(self, name: str, task: Json) -> bool:
        """Store how a task ended, before any client is notified; return whether the store was reachable."""
        replicas = self._replicas
        if replicas is None or name not in self._followed:
            return True
        # In memory first: the store may be away, or lose its last writes when another server takes over. From here
        # `_store_again` writes it once more.
        self._ended[name] = time.time(), task
        self._drop_ended()
        return await self._keep_ended(replicas, name, task)

    def _drop_ended(self) -> None:
        """Drop ended tasks that are too many, or that the store would not keep any longer."""
        oldest = time.time() - self._seconds
        while self._ended and (len(self._ended) > _MAX_ENDED or next(iter(self._ended.values()))[0] < oldest):
            self._ended.popitem(last=False)

    async def _keep_ended(self, replicas: Replicas, name: str, task: Json) -> bool:
        return await _put(replicas, _TASKS, name, {"by": replicas.id, "task": task}, self._seconds)

    async def _store_again(self) -> None:
        """Store the tasks of this replica in a store that may have lost them."""
        replicas = self._replicas
        if replicas is None:
            return
        for name, shown in list(self._followed.items()):
            await _put(replicas, _TASKS, name, {"by": replicas.id, "task": shown}, _RUNNING_SECONDS)
        self._drop_ended()
        # last: a task may have ended while it was stored as running
        for name, (_, ended) in list(self._ended.items()):
            await self._keep_ended(replicas, name, ended)

    async def _follow(self, name: str, ended: Callable[[], Awaitable[Json]]) -> None:
        try:
            found = await ended()
            # The task is followed until the store has its end: else the other replicas would read for a day that it
            # runs.
            while not await self.note(name, found):
                await anyio.sleep(_AGAIN_SECONDS)
        except RequestError as error:
            _log.info("a task is no longer followed: %s", error)
        finally:
            self._followed.pop(name, None)

    async def elsewhere(self, request: Request, name: str) -> Json | None:
        """Forward a task request to the replica that runs the task; return its state.

        Returns:
            The task in the form of the extension; None for one that this replica's own upstream can be asked about.

        Raises:
            RequestError: Its replica, or the upstream there, refused; or the store is away.
        """
        replicas = self._replicas
        if replicas is None or name in self._followed:
            return None
        try:
            found = await _get(replicas, _TASKS, name)
        except RequestError:
            if name in self._begun:  # its server is a process of this replica
                return None
            raise
        task = None if found is None else _json(found["task"])
        if found is None or task is None:
            return None
        # An end does not change any more, so nobody has to be asked, and its replica may be gone.
        if task.get("status") in ENDED:
            return task
        # Of this replica, but not followed any more: its upstream is asked as if nothing was shared.
        if found["by"] == replicas.id:
            return None
        client = request.client
        body: Json = {
            "name": name,
            "method": request.method,
            "params": request.params,
            "version": client.version,
            "capabilities": client.capabilities,
            "principal": client.principal,
            "conversation": client.conversation,
        }
        try:
            reply = await replicas.ask(str(found["by"]), _KIND, body)
        except UnknownToReplica:  # it has ended meanwhile, or its server has forgotten it
            return await self._end_of(replicas, name, task, "the server that ran this task does not know it any more")
        except ReplicaGone:
            gone = "the process of the gateway whose server ran this task has ended"
            return await self._end_of(replicas, name, task, gone)
        refused = _json(reply.get(_REFUSED))
        if refused is not None:
            raise RequestError(refused["message"], code=refused["code"], data=refused.get("data"))
        return _json(reply["task"])

    async def _end_of(self, replicas: Replicas, name: str, task: Json, why: str) -> Json:
        """Return how a task ended, one whose replica does not follow it any more."""
        # Read once more: the replica may have stored the end after our first look, as the last thing that it did.
        found = await _get(replicas, _TASKS, name)
        last = None if found is None else _json(found["task"])
        if last is not None and last.get("status") in ENDED:
            return last
        error = RequestError(f"{why}: the outcome is unknown", code=INTERNAL_ERROR)
        return failed(task, time.time(), error)

    async def _asked(self, body: Json) -> Json | None:
        """Apply a request of another replica to a task of this one; None when this replica knows nothing of it."""
        name = str(body["name"])
        ended = self._ended.get(name)
        if ended is not None and self._replicas is not None:  # the store has lost how it ended
            await self._keep_ended(self._replicas, name, ended[1])
            return {"task": ended[1]}
        if name not in self._followed:
            return None
        client = Client(
            version=body["version"],
            capabilities=body["capabilities"],
            principal=body["principal"],
            conversation=body.get("conversation"),
        )
        request = Request(str(body["method"]), body["params"], client, NO_REPLY_CHANNEL, 0)
        try:
            return {"task": await self._act(request, name)}
        except RequestError as error:
            # As a value: an exception would count as a failure of this replica, and the caller would lose the
            # upstream's code.
            return {_REFUSED: {"message": error.message, "code": error.code, "data": error.data}}


class _NoReplyChannel:
    """A reply channel that discards everything."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop it."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Refuse."""
        raise RequestError(f"{method} cannot be sent: the caller of the task is not there", code=INTERNAL_ERROR)

    async def release(self) -> None:
        """Do nothing."""


NO_REPLY_CHANNEL = _NoReplyChannel()
"""The reply channel of a request whose caller is not there."""


async def _put(replicas: Replicas, collection: str, name: str, value: Json, seconds: float) -> bool:
    """Keep something by the id of a task; return whether the store was there."""
    # Hashed, because an id is a secret of its caller and the keys of a store are shown by its tools. The value is
    # bound to its key, so that one stored value cannot be put in the place of another.
    key = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    if replicas.away is not None:
        return False
    try:
        await replicas.store.put(collection, key, replicas.sealed(value, f"{collection} {key}"), ttl=seconds)
    except StoreError as exc:
        replicas.lost(exc)
        return False
    return True


async def _get(replicas: Replicas, collection: str, name: str) -> Json | None:
    """Return the stored value of a task id, or None if nothing is stored.

    Raises:
        RequestError: The store is away, so that nothing is known of the task.
    """
    key = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    if replicas.away is not None:
        raise replicas.unreachable()
    try:
        found = await replicas.store.get(collection, key)
    except StoreError as exc:
        raise replicas.lost(exc) from None
    if found is None:
        return None
    return _json(replicas.opened(found.value, f"{collection} {key}"))


def _json(value: object) -> Json | None:
    """Return an object of a stored value, None for anything else."""
    found = as_object(value)
    if found is None:
        return None
    return dict(found)
