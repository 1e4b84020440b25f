"""The last calls of a gateway, kept in memory for its console: caller, tool, duration and outcome of each.

Of arguments it keeps names and types, never values; of an error the beginning of its text.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from toolweave.errors import RequestError
from toolweave.gateway._fast_calls import AnsweredCall
from toolweave.gateway._recent_tasks import RecentTasks, TaskAnswerer, TasksSeen
from toolweave.gateway._telemetry import first_text, subject_of
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.middleware._outcome import outcome_of, shape_of, word_of
from toolweave.middleware._outcome import subject_of as name_of
from toolweave.protocol import methods
from toolweave.serve._request import CallNext, Client, Json, Middleware, Request, principal_name

_MOST = 500
_LONGEST = 300
_MASKED_TIMES = 10
_DEEPEST = 2
_MOST_FLAT = 16
_MOST_CLIENTS = 2048
_NESTED = frozenset[object]({dict, list})
_CALLS = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ, methods.COMPLETION_COMPLETE})


class RecentCall(NamedTuple):
    """One call.

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
        arguments: The names and types of the arguments, as JSON; "" for none.
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
    arguments: str


class _KeptCall(msgspec.Struct, frozen=True):
    """A call of the fast path, as little as `RecentCall` is made of.

    Attributes:
        shape: The names of flat arguments and their kinds, a type or the length of a text; or the shape itself.
    """

    at: float
    seconds: float
    name: str
    server: str
    principal: str
    client: str
    revision: str
    outcome: str
    error: str
    shape: tuple[Iterable[str], Iterable[object]] | str

    def told(self) -> RecentCall:
        """Return it as a call like any other."""
        shape = self.shape
        if not isinstance(shape, str):
            shape = _text_of({name: word_of(kind) for name, kind in zip(*shape, strict=True)})
        return RecentCall(
            at=self.at,
            seconds=self.seconds,
            method=methods.TOOLS_CALL,
            name=self.name[:_LONGEST],
            server=self.server,
            principal=self.principal,
            client=self.client,
            revision=self.revision,
            outcome=self.outcome,
            code=None,
            error=self.error,
            arguments=shape,
        )


class RecentCalls:
    """Middleware that keeps the last 500 calls of tools, prompts, resources and completions, and other failures.

    Args:
        hub: The upstreams. Secrets of their configs are masked in the texts of errors.

    Attributes:
        tasks: Keeps the tasks that calls became.
    """

    reads_results = False  # but those of calls, which are never left as texts

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.tasks = RecentTasks(self._masked)
        self._kept: deque[RecentCall | _KeptCall] = deque(maxlen=_MOST)
        self._software: dict[int, tuple[Mapping[str, Any] | None, str]] = {}

    def before(self, endpoint: TaskAnswerer) -> Sequence[Middleware]:
        """Return the middleware of an endpoint by which its calls and tasks are kept."""
        return self, TasksSeen(self.tasks, endpoint)

    @property
    def newest_first(self) -> Sequence[RecentCall]:
        """The calls that are kept."""
        return tuple(one if isinstance(one, RecentCall) else one.told() for one in reversed(self._kept))

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request, and record it."""
        server = subject_of(request).upstream if request.method in _CALLS else ""
        begun = time.perf_counter()
        try:
            result = await call_next(request)
        except BaseException as error:
            if request.method in _CALLS or isinstance(error, Exception):  # a stream that is left is no failure
                self._note(request, server, time.perf_counter() - begun, {}, error)
            raise
        if request.method in _CALLS:
            seconds, arguments, name = time.perf_counter() - begun, request.params.get("arguments"), name_of(request)
            if request.method != methods.TOOLS_CALL or not (arguments is None or isinstance(arguments, dict)):
                self._note(request, server, seconds, result, None)
                return result
            outcome, client = outcome_of(result), request.client
            error = first_text(result) if outcome == "tool_error" else ""
            given = cast("Json | None", arguments)
            self._keep_answered(client, given, client.principal, (seconds, name or "", server), outcome, error)
        return result

    def note_call(self, call: AnsweredCall) -> None:
        """Record a call of the fast path."""
        self._keep_answered(
            call.client,
            call.arguments,
            call.principal,
            (call.seconds, call.name, call.server),
            call.outcome,
            call.error,
        )

    def _keep_answered(
        self,
        client: Client,
        arguments: Mapping[str, Any] | None,
        caller: str | None,
        about: tuple[float, str, str],
        outcome: str,
        error: str,
    ) -> None:
        """Record a call that has a result; its texts are made when the console asks for them."""
        info = client.info
        known = self._software.get(id(info))
        if known is None or known[0] is not info:
            known = self._meet(info)
        shape: tuple[Iterable[str], Iterable[object]] | str = ""
        if arguments is not None:
            kinds: list[object] = [len(one) if type(one) is str else type(one) for one in arguments.values()]
            is_flat = _NESTED.isdisjoint(kinds) and len(kinds) <= _MOST_FLAT and sum(map(len, arguments)) <= _LONGEST
            shape = (tuple(arguments), kinds) if is_flat else _shape(arguments)
        principal = "" if caller is None else principal_name(caller)[:_LONGEST]
        kept = *about, principal, known[1], client.version, outcome, self._masked(about[2], error), shape
        self._kept.append(_KeptCall(time.time(), *kept))

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
        if len(self._software) >= _MOST_CLIENTS:
            self._software.clear()
        known = self._software[id(info)] = info, _software(info)
        return known

    def _note(self, request: Request, server: str, seconds: float, result: Json, error: BaseException | None) -> None:
        """Keep a request that was answered, refused or cancelled."""
        outcome, code, text = outcome_of(result), None, ""
        if isinstance(error, RequestError):
            outcome, code, text = "error", error.code, error.message
        elif error is not None:
            outcome = "error" if isinstance(error, Exception) else "cancelled"
        elif outcome == "tool_error":
            text = first_text(result)
        self._keep(
            request.client,
            method=request.method[:_LONGEST],
            name=name_of(request) or "",
            server=server,
            principal=principal_name(request.client.principal or "")[:_LONGEST],
            seconds=seconds,
            outcome=outcome,
            code=code,
            error=self._masked(server, text),
            arguments=request.params.get("arguments"),
        )

    def _keep(self, client: Client, *, name: str, error: str, arguments: object, **facts: Any) -> None:
        self._kept.append(
            RecentCall(
                at=time.time(),
                name=name[:_LONGEST],
                client=_software(client.info),
                revision=client.version,
                error=error[:_LONGEST],
                arguments="" if arguments is None else _shape(arguments),
                **facts,
            )
        )


def _shape(arguments: object) -> str:
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
