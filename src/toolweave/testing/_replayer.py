"""Replay of recorded sessions: a target that gives a server's recorded answers, without the server.

Requests find their recording by method and params, in any order; ids, progress tokens and `_meta` do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel

from toolweave._json_types import Json, object_or_empty
from toolweave.connect import Report, ServerProcess, Wire
from toolweave.connect._session import ClientHandlers, OnNotification
from toolweave.connect._transports import ConnectPlan
from toolweave.connect._wire.request_encoder import request_text
from toolweave.errors import AuthRequiredError, ConnectError, ConnectionLostError, ProtocolError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.testing._cassette import Entry, read_cassette, same

_HANDSHAKE = (methods.SERVER_DISCOVER, methods.INITIALIZE)
_CALL = methods.TOOLS_CALL
_SHOWN = 200
_MOMENT = 0.05


def replay(path: Path | str, *, repeat: bool = False) -> Replay:
    """Return a target for `connect_mcp` that plays back a cassette written by `record`.

    Results, errors, broken connections and missing answers are all repeated. Answers to one and the same request are
    played in their order, those that changed after a tool call only after that call. When they are used up, lists are
    answered with the last answer; a tool call is only with `repeat`.

    Raises:
        FileNotFoundError: There is no cassette.
        ValueError: The file is not a cassette of this version.
    """
    return Replay(Path(path), repeat=repeat)


@dataclass(slots=True)
class RecordedExchange:
    """One recorded request, with its answer and the messages around it.

    Attributes:
        unprompted: The messages that the server sent unprompted before or right after the answer, in order.
        outcome: The line that ended it: an answer or a failure; None when there was none.
        calls_before: How many tool calls were made before it.
        ends: Whether the conversation ended with it, or next after it.
    """

    method: str
    params: Json
    token: Any = None
    unprompted: list[Json] = field(default_factory=list[Json])
    outcome: Entry | None = None
    calls_before: int = 0
    ends: bool = False
    played: bool = False


class Replay:
    """The recorded sessions of one cassette; made by `replay`.

    Attributes:
        name: The server's name, as it was when it was recorded.
        unrecorded: The requests that the cassette had no answer for, as human-readable messages.
    """

    def __init__(self, path: Path, *, repeat: bool = False) -> None:
        self.name: str
        self.name, entries = read_cassette(path)
        self.unrecorded: list[str] = []
        self._path = path
        self._repeat = repeat
        self._first: list[Json] = []
        self._refusals: list[Json] = []
        self._calls: list[RecordedExchange] = []
        self._exchanges = self._read(entries)

    @property
    def unused(self) -> tuple[str, ...]:
        """The recorded requests that were not made again, as human-readable texts; the handshake does not count."""
        unused: list[str] = []
        for one in self._exchanges:
            is_left = not one.played and one.method not in _HANDSHAKE
            if is_left:
                unused.append(_shown(one.method, one.params))
        return tuple(unused)

    @asynccontextmanager
    async def open_wire(
        self, config: Any, attempt: ConnectPlan, peer: ClientHandlers, report: Report
    ) -> AsyncGenerator[tuple[Wire, ServerProcess | None], None]:
        """Open a wire to the recording; see `WireOpener`."""
        first = self._first
        self._first = []
        wire = _ReplayWire(self, peer, config.name)
        for message in first:
            await wire.deliver(message)
        yield wire, None

    def find(self, method: str, params: Json, server: str) -> RecordedExchange:
        """Return the recording of a request, the first that was not played yet.

        Raises:
            ProtocolError: There is none; names the nearest.
        """
        of_method = [one for one in self._exchanges if one.method == method]
        fitting = [one for one in of_method if same(one.params, params)]
        if method in _HANDSHAKE:
            # For any client: the server was this one.
            fitting = fitting or of_method
        call = method == _CALL
        if not call:
            fitting = self._after_latest_call(fitting)
        for one in fitting:
            if not one.played:
                return one
        if fitting and (self._repeat or not call):
            return fitting[-1]
        message = (
            f"cassette {self._path.name!r} has no {_shown(method, params)}; {self._nearest(fitting, of_method, params)}"
        )
        if method not in _HANDSHAKE:
            self.unrecorded.append(message)
        raise ProtocolError(message, server=server, code=INTERNAL_ERROR)

    def refusal(self, schema: Mapping[str, Any]) -> str | None:
        """Return why a tool with this input schema was not offered, or None."""
        for refused in self._refusals:
            if refused["schema"] == schema:
                return str(refused["reason"])
        return None

    def __repr__(self) -> str:
        return f"<Replay of {self.name!r} from {self._path}>"

    def _after_latest_call(self, fitting: list[RecordedExchange]) -> list[RecordedExchange]:
        """Return those recordings that were made after the latest of the tool calls played so far.

        A list that a call changed must show the change after that call and not before, and the number of requests in
        between depends on timing: recordings from before the call that are not played by now are skipped.
        """
        played = len(list(takewhile(lambda call: call.played, self._calls)))
        due = [one for one in fitting if one.calls_before <= played] or fitting[:1]
        calls = max((one.calls_before for one in due), default=0)
        for one in due:
            if one.calls_before < calls and _is_list(one):
                one.played = True
        return [one for one in due if one.calls_before == calls]

    def _nearest(self, fitting: list[RecordedExchange], of_method: list[RecordedExchange], params: Json) -> str:
        if fitting:
            return (
                f"it was recorded {len(fitting)} times and played as often: record again, or replay(..., repeat=True)"
            )
        if of_method:
            texts = [json.dumps(one.params, sort_keys=True) for one in of_method]
            wanted = json.dumps(params, sort_keys=True)
            near = max(range(len(texts)), key=lambda at: difflib.SequenceMatcher(None, texts[at], wanted).ratio())
            return f"the nearest that it has is {_shown(of_method[near].method, of_method[near].params)}"
        recorded = ", ".join(sorted({one.method for one in self._exchanges} - {*_HANDSHAKE}))
        return f"it has only {recorded or 'a handshake'}"

    def _read(self, entries: list[Entry]) -> list[RecordedExchange]:
        exchanges: dict[Any, RecordedExchange] = {}
        last: RecordedExchange | None = (
            None  # what the server's own messages follow; nothing, once the conversation is over
        )
        for entry in entries:
            (what, value), *_ = cast("dict[str, Json]", entry).items()
            match what:
                case "send" if "method" in value and "id" in value:
                    exchange = exchanges[value["id"]] = _exchange(value, len(self._calls))
                    if exchange.method == _CALL:
                        self._calls.append(exchange)
                    last = _follows(exchange, last)
                case "receive" if "method" in value:
                    self._list_for(value, exchanges.values(), last).append(value)
                case "receive" | "failed":
                    exchange = exchanges[value["id"]]
                    exchange.outcome = entry
                    if value.get("over"):
                        last = _ended(last)
                    else:
                        last = _follows(exchange, last)
                case "end":
                    last = _ended(last)
                case "refused":
                    self._refusals.append(value)
                case _:
                    pass
        return list(exchanges.values())

    def _list_for(
        self, message: Json, exchanges: Collection[RecordedExchange], last: RecordedExchange | None
    ) -> list[Json]:
        """Return the list for an unprompted message: that of the call whose progress it is, or of the last."""
        token = (object_or_empty(message.get("params"))).get("progressToken")
        if token is not None:
            last = next((one for one in exchanges if one.token == token), last)
        if last is None:
            return self._first
        return last.unprompted


def _follows(exchange: RecordedExchange, last: RecordedExchange | None) -> RecordedExchange | None:
    # lists are requested again when they changed or are old: later server messages do not follow from that
    if _is_list(exchange):
        return last
    return exchange


def _is_list(exchange: RecordedExchange) -> bool:
    return exchange.method.endswith("/list")


def _ended(last: RecordedExchange | None) -> None:
    if last is not None:
        last.ends = True


def _answered(outcome: Entry | None) -> bool:
    return outcome is not None and not outcome.get("failed", {}).get("over")


def _exchange(message: Json, calls_before: int) -> RecordedExchange:
    params = dict(object_or_empty(message.get("params")))
    meta = object_or_empty(params.pop("_meta", None))
    token = meta.get("progressToken")
    return RecordedExchange(method=message["method"], params=params, token=token, calls_before=calls_before)


class _ReplayWire:
    """A `Wire` to a recording."""

    def __init__(self, tape: Replay, peer: ClientHandlers, server: str) -> None:
        self._tape = tape
        self._peer = peer
        self._server = server
        self._over = anyio.Event()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        schema: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        on_notification: OnNotification | None = None,
    ) -> dict[str, Any]:
        if self._over.is_set():
            raise ConnectionLostError("the connection ended", server=self._server, sent=False)
        sent: Json = json.loads(request_text(1, method, params))["params"]
        meta = object_or_empty(sent.pop("_meta", None))
        exchange = self._tape.find(method, sent, self._server)
        again = exchange.played
        exchange.played = True
        # A real wire yields here, so that cancellation and other tasks also get their turn in a replay.
        await anyio.lowlevel.checkpoint()
        for message in () if again else exchange.unprompted:
            await self.deliver(message, meta.get("progressToken"))
        outcome = exchange.outcome
        if exchange.ends and not again:
            if _answered(outcome):
                # It ended some time after the answer.
                asyncio.get_running_loop().call_later(_MOMENT, self._over.set)
            else:
                self._over.set()
        if outcome is None:
            # The recorded server did not respond, so the client's own timeout has to end the wait, as it did then.
            await anyio.sleep_forever()
        elif outcome.get("failed", {}).get("over"):
            await self._over.wait()
        return self._outcome(cast("Entry", outcome))

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        # A real wire yields at each message too: cancellation and other tasks get their turn as they would there.
        await anyio.lowlevel.checkpoint()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    async def ended(self) -> None:
        await self._over.wait()

    def refusal(self, schema: Mapping[str, Any]) -> str | None:
        return self._tape.refusal(schema)

    async def deliver(self, message: Json, token: Any = None) -> None:
        """Send an unprompted message of the server: a notification, or a request whose answer is ignored."""
        params = dict(object_or_empty(message.get("params")))
        if "id" in message:
            with contextlib.suppress(ProtocolError):
                await self._peer.request(message["method"], params)
            return
        # Each request has a new token: with the recorded one, the progress would belong to no request.
        if "progressToken" in params:
            params["progressToken"] = token
        self._peer.notification(message["method"], params)

    def _outcome(self, entry: Entry) -> dict[str, Any]:
        if "failed" in entry:
            raise _failure(entry["failed"], self._server)
        answer = entry["receive"]
        if "error" in answer:
            error = answer["error"]
            raise ProtocolError(error["message"], server=self._server, code=error["code"], data=error.get("data"))
        return answer["result"]


def _failure(failed: Json, server: str) -> ServerError:
    message = failed["message"]
    match failed["error"]:
        case "ConnectionLostError":
            return ConnectionLostError(message, server=server, sent=failed["sent"])
        case "AuthRequiredError":
            return AuthRequiredError(
                message, server=server, status=failed.get("status"), challenge=failed.get("challenge")
            )
        case _:
            return ConnectError(message, server=server)


def _shown(method: str, params: Json) -> str:
    text = json.dumps(params, ensure_ascii=False)
    return f"{method} {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
