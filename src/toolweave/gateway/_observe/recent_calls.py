"""The last calls of a gateway, kept in memory for its console: caller, tool, duration and outcome of each.

Of arguments it keeps names and types, never values; of an error the beginning of its text.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from toolweave.errors import RequestError
from toolweave.gateway._observe.recent_tasks import RecentTasks, TaskAnswerer
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.middleware import Observer, RequestEnd
from toolweave.middleware._outcome import shape_of, word_of
from toolweave.protocol import methods
from toolweave.serve.request import principal_name

_MOST = 500
_LONGEST = 300
_MASKED_TIMES = 10
_DEEPEST = 2
_MAX_FLAT = 16
_MAX_CLIENTS = 2048
_NESTED = frozenset[object]({dict, list})
_CALLS = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ, methods.COMPLETION_COMPLETE})


_Shape: TypeAlias = "tuple[Iterable[str], Iterable[object]] | str"


class _CallFacts(msgspec.Struct, frozen=True, array_like=True):
    """One call without its arguments.

    Attributes:
        at: When its answer was there, in seconds since the epoch.
        seconds: The time until then.
        method: Its method.
        name: The name or URI that it is about; "" for none.
        server: The upstream; "" where it is not known.
        principal: The caller by its token: subject or client; "" without one.
        client: The name and version that the caller gives itself.
        revision: The protocol revision.
        outcome: `ok`, `tool_error`, `input_required`, `task`, `cancelled`, `error`.
        code: The code of a JSON-RPC error, or None.
        error: The beginning of the error's text; "" for none.
    """

    at: float
    seconds: float
    method: str
    name: str
    server: str
    principal: str
    client: str
    revision: str
    outcome: str
    code: int | None
    error: str


class RecentCall(_CallFacts, frozen=True, array_like=True):
    """One call, as the console shows it.

    Attributes:
        arguments: The names and types of the arguments, as JSON; "" for none.
    """

    arguments: str


class _KeptCall(_CallFacts, frozen=True):
    """A call as it is kept: the text of its arguments is made when the console asks for it.

    Attributes:
        shape: The names of flat arguments and their kinds, a type or the length of a text; or the shape itself.
    """

    shape: _Shape

    def as_recent(self) -> RecentCall:
        """Return it with the text of its arguments."""
        shape = self.shape
        if not isinstance(shape, str):
            shape = _text_of({name: word_of(kind) for name, kind in zip(*shape, strict=True)})
        facts: dict[str, Any] = {name: getattr(self, name) for name in _CallFacts.__struct_fields__}
        return RecentCall(arguments=shape, **facts)


class RecentCalls:
    """Keeps the last 500 calls of tools, prompts, resources and completions, and other failures.

    Args:
        hub: The upstreams. Secrets of their configs are masked in the texts of errors.

    Attributes:
        tasks: Keeps the tasks that calls became.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.tasks: RecentTasks = RecentTasks(self._masked)
        self._kept: deque[_KeptCall] = deque(maxlen=_MOST)
        self._software: dict[int, tuple[Mapping[str, Any] | None, str]] = {}

    def observers(self, endpoint: TaskAnswerer) -> Sequence[Observer]:
        """Return the observers of an endpoint by which its calls and tasks are kept."""
        return self.request_ended, partial(self.tasks.request_ended, endpoint)

    @property
    def newest_first(self) -> Sequence[RecentCall]:
        """The calls that are kept."""
        return tuple(one.as_recent() for one in reversed(self._kept))

    def request_ended(self, end: RequestEnd) -> None:
        """Keep a call, or another request that failed."""
        info = end.client.info
        principal = end.client.principal
        exception = end.exception
        if end.method not in _CALLS:
            has_failed = exception is not None and end.outcome != "cancelled"  # a client may leave its stream
            if not has_failed:
                return
        known = self._software.get(id(info))
        if known is None or known[0] is not info:
            known = self._meet(info)
        self._kept.append(
            _KeptCall(
                time.time(),
                end.seconds,
                end.method[:_LONGEST],
                "" if end.name is None else end.name[:_LONGEST],
                end.server,
                "" if principal is None else principal_name(principal)[:_LONGEST],
                known[1],
                end.client.version,
                end.outcome,
                exception.code if isinstance(exception, RequestError) else None,
                "" if end.outcome == "ok" else self._masked(end.server, end.error),
                "" if end.arguments is None else _shape_of(end.arguments),
            )
        )

    def _masked(self, server: str, text: str) -> str:
        """Return the beginning of an error's text, without the secrets of the config of its server."""
        if not text:
            return ""
        # A secret that is cut in two is not recognised, so more is masked than is kept.
        text = text[: _MASKED_TIMES * _LONGEST]
        connection = self._hub.clients.get(server)
        config = caller_servers(self._hub).configs.get(server)
        if connection is not None:
            text = connection.redact(text)
        elif config is not None:  # a server that is called as each caller
            text = config.redact(text)
        return text[:_LONGEST]

    def _meet(self, info: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, str]:
        if len(self._software) >= _MAX_CLIENTS:
            self._software.clear()
        known = self._software[id(info)] = info, _software(info)
        return known


def _shape_of(arguments: Any) -> _Shape:
    """Return the names and kinds of flat arguments, or the text of the shape of others."""
    if arguments.__class__ is dict:
        kinds: list[object] = [len(one) if type(one) is str else type(one) for one in arguments.values()]
        if len(kinds) <= _MAX_FLAT and _NESTED.isdisjoint(kinds) and sum(map(len, arguments)) <= _LONGEST:
            return tuple(arguments), kinds
    return _text_of(shape_of(arguments, _DEEPEST))


def _text_of(shape: object) -> str:
    try:
        return msgspec.json.encode(shape).decode()[:_LONGEST]
    except (UnicodeEncodeError, TypeError):  # a name with half a character
        return "?"


def _software(info: Mapping[str, Any] | None) -> str:
    if info is None:
        return ""
    return f"{info.get('name', '')} {info.get('version', '')}".strip()[:_LONGEST]
