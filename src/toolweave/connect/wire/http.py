"""Our own `Wire` over Streamable HTTP: one POST per request, no task and no queue on the way of a call.

Speaks both eras (sessions and stateless, PROTOCOL 1.3). A fault of one request stays with that request.
Proxies, authorization flows and the older HTTP+SSE transport are left to the SDK's lane.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import msgspec

from toolweave.connect.fault import Fault, HttpSettings, answer_fault, excerpt, http_error, is_rpc_error
from toolweave.connect.session import Peer
from toolweave.connect.shapes import as_object, as_text
from toolweave.connect.wire.answers import invalid, request_text, result_of
from toolweave.connect.wire.endpoint import EVENTS, INVALID_REQUEST, JSON, Endpoint
from toolweave.connect.wire.headers import argument_headers, find_refusal, mirrored_arguments, modern_headers
from toolweave.connect.wire.http1 import NoAnswer, Response
from toolweave.connect.wire.incoming import Incoming
from toolweave.connect.wire.jsonrpc import Message, answer_id, decode, encode_notification, without_deep_entries
from toolweave.connect.wire.sse import EventParser
from toolweave.errors import ConnectionLostError, ProtocolError, ServerError

__all__ = ["HttpWire", "http_wire"]

_log = logging.getLogger("toolweave.connect")
_REVISION_KEY = "io.modelcontextprotocol/protocolVersion"
_UNCANCELLABLE = frozenset({"initialize", "server/discover"})
_COURTESY_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 30.0
_MAX_RESUMPTIONS = 3
_MAX_MIRRORED = 10_000

Loss = Callable[[bool], ServerError]
"""Makes the error of a lost connection; the argument says whether the request was sent."""


class HttpWire:
    """One conversation over Streamable HTTP.

    Attributes:
        late_answers: How many answers came for no request of ours.
    """

    def __init__(
        self,
        settings: HttpSettings,
        endpoint: Endpoint,
        peer: Peer,
        tasks: anyio.abc.TaskGroup,
        *,
        server: str,
        loss: Loss,
    ) -> None:
        self.late_answers = 0
        self._settings = settings
        self._endpoint = endpoint
        self._tasks = tasks
        self._server = server
        self._loss = loss
        self._incoming = Incoming(peer, tasks, self._reply, server=server)
        self._ids = itertools.count(1)
        self._over = anyio.Event()
        self._revision: str | None = None
        self._session: str | None = None
        self._mirrored: dict[int, tuple[Mapping[str, Any], Any]] = {}

    # Wire

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        schema: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result as it came; see `Wire.request`."""
        if self._over.is_set():
            raise self._loss(False)
        key = next(self._ids) if request_id is None else request_id
        text = request_text(key, method, params)
        if method == "initialize":  # what the probe said counts no more
            self._revision = self._session = None
        headers = self._headers(method, params, schema)
        try:
            with await self._endpoint.send("POST", headers, text, repeatable=method != "tools/call") as response:
                if method == "initialize":
                    self._session = response.headers.get("mcp-session-id")
                result = await self._answer(response, key, method)
                response.finish()
        except asyncio.CancelledError:
            if "mcp-method" not in headers and method not in _UNCANCELLABLE and not self.over:
                await self._cancel(key)
            raise  # to a modern server the closed stream says it
        if method == "initialize":
            self._revision = as_text(result.get("protocolVersion"))
        return result

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; nothing is raised when the server is gone."""
        try:
            await self._post(encode_notification(method, params), self._headers(method, params, None))
        except ServerError as exc:
            _log.debug("server %r: a notification %r was not taken: %s", self._server, method, exc)
        if method == "notifications/initialized" and self._session is not None:
            self._tasks.start_soon(self._listen)

    @property
    def over(self) -> bool:
        """Whether the conversation is over."""
        return self._over.is_set()

    async def ended(self) -> None:
        """Return when the conversation is over without our doing."""
        await self._over.wait()

    def refusal(self, schema: Mapping[str, Any]) -> str | None:
        """Return why a tool with this input schema must not be offered over HTTP (SEP-2243), or None."""
        return find_refusal(schema)

    async def end(self) -> None:
        """Mark the conversation as over and end the session on the server; bounded."""
        gone = self._over.is_set()
        self._over.set()
        if self._session is None or gone:
            return
        with anyio.move_on_after(_COURTESY_SECONDS, shield=True):
            try:
                (await self._endpoint.send("DELETE", self._session_headers())).close()
            except ServerError as exc:
                _log.debug("server %r: its session was not ended: %s", self._server, exc)

    # out

    async def _post(self, text: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that has no answer."""
        with await self._endpoint.send("POST", headers, text, repeatable=True) as response:
            if response.status >= 400:
                raise await self._refused(response)

    async def _reply(self, text: bytes) -> None:
        try:
            await self._post(text, self._session_headers())
        except ServerError as exc:
            raise OSError(str(exc)) from None

    async def _cancel(self, key: int | str) -> None:
        """Tell a legacy server that nobody waits any more; bounded, so that a slow one holds nobody."""
        with anyio.move_on_after(_COURTESY_SECONDS, shield=True):
            await self.notify("notifications/cancelled", {"requestId": key, "reason": "the caller gave up"})

    def _headers(self, method: str, params: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, str]:
        meta = as_object(params.get("_meta"))
        revision = meta.get(_REVISION_KEY) if meta is not None else None
        if not isinstance(revision, str):
            return self._session_headers()
        headers = modern_headers(method, params, revision)
        if schema is not None:
            known = self._mirrored.get(id(schema))
            if known is None or known[0] is not schema:
                if len(self._mirrored) >= _MAX_MIRRORED:  # schemas of lists long gone
                    self._mirrored.clear()
                known = self._mirrored[id(schema)] = (schema, mirrored_arguments(schema))
            headers.update(argument_headers(known[1], params.get("arguments")))
        return headers

    def _session_headers(self) -> dict[str, str]:
        named = {"mcp-session-id": self._session, "mcp-protocol-version": self._revision}
        return {name: value for name, value in named.items() if value is not None}

    # in

    async def _answer(self, response: Response, key: int | str, method: str) -> dict[str, Any]:
        if response.status == 202:
            raise self._lost("server answered a request with 202 Accepted")
        if response.status >= 300:
            raise await self._refused(response)
        kind = response.headers.get("content-type", "").lower()
        if kind.startswith(EVENTS):
            self._check_encoding(response)
            return await self._streamed(response, key, method)
        if not kind.startswith(JSON):
            raise self._protocol_error(f"Unexpected content type: {kind}", code=INVALID_REQUEST)
        body = await self._read(response)
        try:
            result = self._take(body, key, method)
        except ValueError as exc:
            if _is_json(body):
                raise invalid(self._server, str(exc)) from None
            fault = Fault(status=response.status, text=f"its answer is not valid JSON: {excerpt(body)}")
            raise http_error(fault, server=self._server) from None
        if result is None:
            raise invalid(self._server, "it answers another request")
        return result

    async def _streamed(self, response: Response, key: int | str, method: str) -> dict[str, Any]:
        parser = EventParser(self._settings.max_bytes)
        result, cause = await self._read_events(response, parser, key, method)
        failures = 0
        while result is None:
            if parser.last_id is None or self._revision is None or failures >= _MAX_RESUMPTIONS:
                raise self._lost(f"SSE stream {cause}")
            await anyio.sleep(_delay(parser, failures))
            before = parser.last_id
            parser = parser.resumed()
            try:
                with await self._open_stream(parser.last_id) as resumed:
                    result, cause = await self._read_events(resumed, parser, key, method)
                failures = 0 if parser.last_id != before else failures + 1
            except ServerError as exc:
                failures, cause = failures + 1, f"could not be resumed: {exc.message}"
        return result

    async def _open_stream(self, last_id: str | None) -> Response:
        headers = self._session_headers() | {"accept": EVENTS}
        if last_id is not None:
            headers["last-event-id"] = last_id
        response = await self._endpoint.send("GET", headers, repeatable=True)
        if response.status == 200 and response.headers.get("content-type", "").lower().startswith(EVENTS):
            return response
        response.close()
        if response.status >= 500 or response.status == 429:
            raise self._lost(f"HTTP {response.status} to a GET")
        raise self._protocol_error(f"HTTP {response.status} to a GET", code=INVALID_REQUEST)

    async def _read_events(
        self, response: Response, parser: EventParser, key: int | str | None, method: str
    ) -> tuple[dict[str, Any] | None, str]:
        """Take events until the answer to `key`; return it, or why there is none."""
        while True:
            try:
                piece = await response.piece()
                events = parser.feed(piece)
            except (NoAnswer, ValueError) as exc:
                return None, f"failed: {exc}"
            for event in events:
                if event.type != "message":
                    continue
                try:
                    result = self._take(event.data, key, method)
                except ValueError:
                    if key is None:
                        _log.debug("server %r: an event that is no JSON-RPC message was skipped", self._server)
                        continue
                    text = "its event stream holds an event that is no JSON-RPC message"
                    raise self._protocol_error(text) from None
                if result is not None:
                    return result, ""
            if not piece:
                return None, "ended without a response"

    def _take(self, text: bytes, key: int | str | None, method: str) -> dict[str, Any] | None:
        """Take one JSON text; return the result that answers `key`, if it is in there.

        Raises:
            ValueError: It is no JSON-RPC message.
            ProtocolError: The answer is an error, or no proper answer.
        """
        try:
            messages = decode(text)
        except RecursionError:
            named = answer_id(text)
            if key is None or (named is not None and str(named) != str(key)):
                self.late_answers += 1
                return None
            if not method.endswith("/list"):
                raise invalid(self._server, "it is nested too deeply") from None
            messages = decode(without_deep_entries(text))
        answer: Message | None = None
        for message in messages:
            if message.method is not msgspec.UNSET:
                self._incoming.take(message)
            elif key is not None and _answers(message, key):
                answer = message
            else:
                self.late_answers += 1
        return result_of(answer, self._server) if answer is not None else None

    async def _listen(self) -> None:
        """Keep the stream open on which a legacy server sends what belongs to no request."""
        parser = EventParser(self._settings.max_bytes)
        failures = 0
        while not self.over:
            parser = parser.resumed()
            before = parser.last_id
            try:
                with await self._open_stream(parser.last_id) as stream:
                    await self._read_events(stream, parser, None, "")
                # a server that only ever closes it is asked less and less often
                failures = 0 if parser.taken or parser.last_id != before else failures + 1
            except ProtocolError as exc:
                _log.debug("server %r: no stream of its own: %s", self._server, exc)
                return
            except ServerError:
                failures += 1
            await anyio.sleep(_delay(parser, failures))

    async def _read(self, response: Response) -> bytes:
        self._check_encoding(response)
        try:
            return await response.read(self._settings.max_bytes)
        except NoAnswer as exc:
            raise self._endpoint.error(exc) from None

    async def _refused(self, response: Response) -> ServerError:
        """Return the error of an answer with an HTTP error status."""
        encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
        body = b"" if encoded else await self._read(response)
        in_session = self._session is not None
        fault = answer_fault(response.status, response.reason, response.headers, body, in_session=in_session)
        if fault.session_gone:
            self._over.set()
        elif response.status not in (401, 403) and is_rpc_error(body):
            return _rpc_error(body, self._server)
        return http_error(fault, server=self._server)

    def _check_encoding(self, response: Response) -> None:
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            text = f"its answer is encoded as {encoding!r}, which nobody asked for; switch compression off for it"
            raise http_error(Fault(status=response.status, text=text), server=self._server)

    def _lost(self, why: str) -> ServerError:
        return ConnectionLostError(f"the answer did not come: {why}", server=self._server, sent=True)

    def _protocol_error(self, text: str, *, code: int = -32603) -> ProtocolError:
        return ProtocolError(text, server=self._server, code=code)


@asynccontextmanager
async def http_wire(settings: HttpSettings, peer: Peer, *, server: str, loss: Loss) -> AsyncGenerator[HttpWire, None]:
    """Open a wire over Streamable HTTP for as long as the block lasts."""
    endpoint = Endpoint(settings, server=server)
    try:
        async with anyio.create_task_group() as tasks:
            wire = HttpWire(settings, endpoint, peer, tasks, server=server, loss=loss)
            try:
                yield wire
            finally:
                tasks.cancel_scope.cancel()
                await wire.end()
    finally:
        endpoint.close()


def _answers(message: Message, key: int | str) -> bool:
    """Whether an answer is the one to a request; some servers turn ids into strings or leave them out of errors."""
    return message.id == key or str(message.id) == str(key) or message.id is None or message.id is msgspec.UNSET


def _rpc_error(body: bytes, server: str) -> ServerError:
    try:
        result_of(msgspec.json.decode(body, type=Message), server)
    except ProtocolError as exc:
        return exc
    except msgspec.DecodeError as exc:
        return invalid(server, str(exc))
    return invalid(server, "an HTTP error with a result")


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _delay(parser: EventParser, failures: int) -> float:
    wanted = _RETRY_SECONDS if parser.retry_seconds is None else parser.retry_seconds
    return min(wanted * 2 ** min(failures, 10), _MAX_RETRY_SECONDS)
