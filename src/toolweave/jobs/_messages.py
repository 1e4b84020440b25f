"""Docket without pickles: its messages in Redis hold plain JSON, which is checked before docket reads it.

A client that can write to the Redis can add, remove and change jobs, but nothing that it writes is unpickled.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from docket import Docket, Execution
from docket.strikelist import StrikeList

from toolweave.state._redis_connections import is_failed_over

_log = logging.getLogger("toolweave.jobs")

FUNCTION = "job"
"""The one function of every docket."""
_NOTHING = pickle.dumps({})
_MAX_ATTEMPTS = 1_000_000
_TRACING = (b"traceparent", b"tracestate")

Messages: TypeAlias = list[tuple[bytes, Mapping[bytes, bytes]]]
"""Messages of a stream with their ids; one that was deleted meanwhile is empty."""


class Reader(Protocol):
    """The source of one worker's messages, instead of docket's own reads; see `TopicWorker`."""

    async def read(self, redis: Any, **arguments: Any) -> Sequence[tuple[bytes, Messages]]:
        """Read as `XREADGROUP` does; the stream `b"__redelivery__"` means redelivered messages."""
        ...

    async def take_over(self, redis: Any, **arguments: Any) -> Sequence[Any]:
        """Claim messages as `XAUTOCLAIM` does."""
        ...


class PlainDocket(Docket):
    """A docket of one function that takes one JSON text; nothing in Redis is unpickled.

    It has no strikes: docket keeps them as pickles, in a stream that every worker would read.

    Args:
        name: The prefix of its keys.
        url: As docket expects it.

    Attributes:
        readers: The readers of its workers in this process, by name.
    """

    def __init__(self, name: str, url: str) -> None:
        # no results are kept
        super().__init__(name=name, url=url, execution_ttl=timedelta(0))
        # Registered by docket for every docket; any program that writes to the Redis could call them.
        self.tasks = {}  # docket's own examples must not be called
        self.readers: dict[str, Reader] = {}

    @property
    def strike_list(self) -> StrikeList:
        """Nothing is stricken."""
        return self._strikes

    @strike_list.setter
    def strike_list(self, given: StrikeList) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._strikes = StrikeList()  # one without a URL reads nothing

    @asynccontextmanager
    async def redis(self) -> AsyncGenerator[Any, None]:
        """Yield the client, whose reads of messages go through this docket's readers.

        After a failover its idle connections are closed, so that the next user connects anew: the old primary keeps
        them, and refuses whatever is written.
        """
        async with super().redis() as client:
            shared: Any = client
            try:
                yield _Client(shared, self)
            except Exception as exc:
                if is_failed_over(exc):
                    await shared.connection_pool.disconnect(inuse_connections=False)
                raise

    async def checked(self, redis: Any, messages: Messages) -> Messages:
        """Return the messages that are safe for docket; any other is removed from the stream and logged."""
        good: Messages = []
        for number, message in messages:
            if not message:
                continue
            plain = _checked(message)
            if plain is not None:
                good.append((number, plain))
                continue
            _log.warning("%s: a message was dropped: it is not a job of this version of Toolweave", self.name)
            # Acknowledged and deleted: a message that stays pending would be delivered again, for ever, to every
            # worker.
            await redis.xack(self.stream_key, self.worker_group_name, number)
            await redis.xdel(self.stream_key, number)
        return good


def in_plain(execution: Execution) -> Execution:
    """Return an execution that is written to Redis as plain JSON text, without a pickle."""
    (payload,) = execution.args

    def as_message() -> dict[bytes, bytes]:
        return {
            b"key": execution.key.encode(),
            b"when": execution.when.isoformat().encode(),
            b"function": FUNCTION.encode(),
            b"args": payload.encode(),
            b"kwargs": b"",
            b"attempt": str(execution.attempt).encode(),
            b"generation": str(execution.generation).encode(),
        }

    # docket pickles the arguments in `as_message`, its one place that writes a message. It is replaced on this object
    # and not in a subclass, because docket makes the object itself when it delivers a job again, and keeps in it
    # whether the message was acknowledged.
    execution.as_message = as_message
    return execution


class _Client:
    """The Redis client that docket uses; forwards everything except reads of messages."""

    def __init__(self, client: Any, docket: PlainDocket) -> None:
        self._client = client
        self._docket = docket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def xreadgroup(self, **arguments: Any) -> Sequence[tuple[bytes, Messages]]:
        return await self._docket.readers[arguments["consumername"]].read(self._client, **arguments)

    async def xautoclaim(self, **arguments: Any) -> Sequence[Any]:
        return await self._docket.readers[arguments["consumername"]].take_over(self._client, **arguments)


def _checked(message: Mapping[bytes, bytes]) -> Mapping[bytes, bytes] | None:
    """Return a message in which docket unpickles only values made by this function; None for one that is not a job."""
    try:
        text = {name: message[name].decode() for name in (b"key", b"when", b"function", b"args", b"attempt")}
        generation = int(message.get(b"generation", b"0"))
        datetime.fromisoformat(text[b"when"]).timestamp()
        attempt = int(text[b"attempt"])
    except (KeyError, ValueError, OverflowError, OSError):
        return None
    if text[b"function"] != FUNCTION or generation < 0:
        return None
    if not 0 < attempt < _MAX_ATTEMPTS:
        return None
    return {
        **{name: message[name] for name in _TRACING if name in message},
        **{name: message[name] for name in (b"key", b"when", b"function", b"attempt")},
        b"generation": str(generation).encode(),
        # A text that was checked, pickled here: docket unpickles these bytes, and nothing that came from Redis.
        b"args": pickle.dumps((text[b"args"],)),
        b"kwargs": _NOTHING,
    }
