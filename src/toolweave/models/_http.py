"""A client for a provider's HTTP API: a POST, and the events of its answer.

One client per model and event loop, made at the first request. Every wait and every size is bounded, every fault is
a `ModelError`, and no key shows in errors, reprs or logs. Knows no provider's vocabulary.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote_plus, urlsplit, urlunsplit

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json
from toolweave._masking import mask_values
from toolweave._repairs import Repair
from toolweave.errors import ModelError
from toolweave.http import (
    PROXY_AUTHENTICATION_REQUIRED,
    BodyError,
    HttpClient,
    Response,
    TransportError,
    came_through,
    http_proxy_for,
    no_proxy_hint,
    refused_by_proxy,
    target_of,
)
from toolweave.models._provider_errors import refusal, short
from toolweave.models._retry import retry_after
from toolweave.protocol.lenient_json import mended
from toolweave.protocol.sse import EventParser, ServerSentEvent

BODY = "body"
"""Type of the single event for an answer in JSON, from a server that does not stream."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Maximum bytes of one event, and of an answer that is not a stream."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Maximum bytes of one whole turn."""

_HEADERS = {
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
_CONNECT_SECONDS = 15.0
_MAX_CONNECTIONS = 1_000
"""Connections of one model at a time. Each running turn holds one for as long as the model writes."""
_DRAIN_SECONDS = 0.5
_AFTER_END_SECONDS = 5.0
OPEN_TURN = Repair(
    given="a turn that has its stop reason, without its last event",
    read_as="a whole turn",
    limit=f"what follows within {_AFTER_END_SECONDS:g} s still counts; without a stop reason it is an error",
    switch="nothing: the turn is whole",
)
NEARLY_JSON = Repair(
    given="an event of a model API with `NaN`, half of a surrogate pair, or control characters in a text",
    read_as="null; U+FFFD; the character",
    limit="half of a surrogate pair in arguments of a call is an error, and so is other text that is not JSON",
    switch="nothing: the rest of the turn is whole",
)
OTHER_TYPE = Repair(
    given="an answer of a model API in JSON or in events, under the content type `text/plain` or `text/json`",
    read_as="the answer",
    limit="other text is an error",
    switch="nothing: the answer is whole",
)
_REPLACED = "\ufffd".encode()
_ARGUMENTS = re.compile(rb'arguments|"partial_json"|"input"')
_PLAIN_KINDS = frozenset({"text/plain", "text/json"})
_PING = re.compile("ping|keepalive")
"""The types of events that only keep a connection open. Comments of a stream do so without being events."""
_PING_DATA = re.compile(rb'\{\s*"type"\s*:\s*"(?:ping|keepalive)"')
_PINGED_TIMEOUTS = 5
"""Multiple of the idle timeout for which a provider may send pings alone."""
_MAX_ERROR_BYTES = 64 * 1024
_EXCERPT = 200
_SHORTEST_SECRET = 6
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_LEGAL_VALUE = re.compile(r"[\t -~]*")


class SecretLike(Protocol):
    """A secret, which prints masked and returns its text only by `reveal()`."""

    def reveal(self) -> str:
        """Return the text itself."""
        ...


class ProviderApi:
    """One provider's HTTP API.

    Raises:
        ValueError: The URL is not an HTTP URL or holds credentials, or a header cannot be sent.
    """

    def __init__(self, base_url: str, *, model: str, headers: Mapping[str, str | SecretLike]) -> None:
        try:
            parts = urlsplit(base_url)
        except ValueError as exc:
            raise ValueError(f"model {model!r}: base_url is not a URL: {exc}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"model {model!r}: base_url must be an http:// or https:// URL")
        if "@" in parts.netloc:
            raise ValueError(f"model {model!r}: base_url must hold no credentials; pass api_key or headers")
        self.model = model
        self.host: str = parts.hostname
        self._parts = parts
        self._headers = {name.lower(): _plain(model, name, value) for name, value in headers.items()}
        self._secrets = _secrets([*self._headers.items(), *parse_qsl(parts.query)])
        self._client: HttpClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The base URL for messages, without its query."""
        return urlunsplit((self._parts.scheme, self._parts.netloc, self._parts.path, "", ""))

    async def events(self, path: str, body: bytes, *, timeout: float) -> AsyncGenerator[ServerSentEvent, None]:
        """POST a JSON body and yield the events of the answer; closing the generator ends the request.

        `timeout` bounds each wait, in seconds: for the head, and for each piece of the answer. Pieces that only keep
        the connection open extend the wait for the next event to five times that. An answer in JSON is one event of
        the type `BODY`.

        Raises:
            ModelError: The provider refused, could not be reached, timed out, or sent something else.
        """
        response = await self._posted(path, body, timeout)
        try:
            if not 200 <= response.status < 300:
                raise await self._refused(response, timeout)
            async for event in self._answer(response, timeout):
                yield event
        finally:
            # A whole answer gives its connection back; one that is left early closes it, which ends the request.
            response.close()

    async def drain(self, events: AsyncGenerator[ServerSentEvent, None]) -> None:
        """Read the rest of the stream after the end of a turn, so that the connection can be reused."""
        with anyio.move_on_after(_DRAIN_SECONDS):
            async for _ in events:
                pass

    def redact(self, text: str) -> str:
        """Return a text with every secret of the headers masked."""
        return mask_values(text, self._secrets)

    def refusal(self, body: Any, *, status: int | None = None, wait: float | None = None) -> ModelError:
        """Return the error for a provider's error body, in a stream or as an answer, secrets masked."""
        return refusal(self.model, body, status=status, retry_after=wait, redact=self.redact)

    def protocol(self, message: str) -> ModelError:
        """Return the error for an answer that does not follow this API."""
        return ModelError(short(self.redact(message)), model=self.model, kind="protocol")

    def broken_off(self) -> ModelError:
        """Return the error for a stream that ended before the turn did."""
        return ModelError("the stream ended in the middle of the turn", model=self.model, kind="unreachable")

    def decode(self, data: bytes) -> Json:
        """Return an event's data as a JSON object.

        Raises:
            ModelError: The data is not a JSON object.
        """
        try:
            value = decode_json(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            readable = mended(data)
            # Half of a character must not become another one in the arguments of a call, which has effects.
            if readable is None or (_REPLACED in readable and _ARGUMENTS.search(data)):
                raise self.protocol(f"an event is not JSON: {self._beginning(data)}") from exc
            value = decode_json(readable)
        if not isinstance(value, dict):
            raise self.protocol(f"an event is not a JSON object: {self._beginning(data)}")
        return value  # pyright: ignore[reportUnknownVariableType] - any JSON object

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        # Taken out first, so that a request which begins meanwhile opens a client and does not get a closing one. A
        # client of another loop is left to that loop's end: its sockets cannot be closed from here.
        client = self._client
        loop = self._loop
        self._client = None
        self._loop = None
        if client is not None and loop is asyncio.get_running_loop():
            client.close()

    async def _posted(self, path: str, body: bytes, timeout: float) -> Response:
        """Send a request and return its answer as soon as the head has arrived."""
        client = self._open(min(timeout, _CONNECT_SECONDS))
        headers = {**_HEADERS, **self._headers}
        try:
            with anyio.fail_after(timeout):
                response = await client.send("POST", self._target(path), headers, body)
        except TimeoutError:
            raise self._silent(timeout) from None
        except TransportError as exc:
            raise self._unanswered(exc) from None
        if response.status == PROXY_AUTHENTICATION_REQUIRED and client.forwarded:
            response.close()
            raise self._unreachable(refused_by_proxy(response.status, response.reason, self.url))
        return response

    def _open(self, connect_seconds: float) -> HttpClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # Sockets live and die with the loop that made them.
            try:
                proxy = http_proxy_for(self.url)
            except ValueError as exc:
                raise self._unreachable(str(exc)) from None
            self._client = HttpClient(
                self.url, connect_seconds=connect_seconds, max_connections=_MAX_CONNECTIONS, proxy=proxy
            )
            self._loop = loop
        return self._client

    def _target(self, path: str) -> str:
        return target_of(urlunsplit(self._parts._replace(path=f"{self._parts.path.rstrip('/')}/{path}")))

    def _beginning(self, data: bytes) -> str:
        return repr(self.redact(data[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))[:_EXCERPT])

    async def _answer(self, response: Response, timeout: float) -> AsyncGenerator[ServerSentEvent, None]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            yield ServerSentEvent(BODY, await self._body(response, MAX_EVENT_BYTES, timeout))
            return
        if kind in _PLAIN_KINDS:
            for event in self._events_of(await self._body(response, MAX_EVENT_BYTES, timeout), kind):
                yield event
            return
        if kind not in ("text/event-stream", ""):
            text = self._beginning(await response.beginning(_MAX_ERROR_BYTES, timeout))
            raise self.protocol(f"expected an event stream from {self.url}, not {kind}: {text}")
        # Three bounds, each against another fault: of an event, against a line that never ends; of the whole, against a
        # stream that never ends; of the time without an event, against a provider that only keeps the connection open.
        parser = EventParser(MAX_EVENT_BYTES)
        size = 0
        last_event = anyio.current_time()
        while piece := await self._piece(response, timeout):
            size += len(piece)
            if size > MAX_STREAM_BYTES:
                raise self.protocol(f"the answer is larger than {MAX_STREAM_BYTES} bytes")
            try:
                events = parser.feed(piece)
            except ValueError as exc:
                raise self.protocol(str(exc)) from exc
            for event in events:
                yield event
            if any(not _is_ping(event) for event in events):
                # After the reader is done with them: its time is not the provider's.
                last_event = anyio.current_time()
            self._check_progress(last_event, timeout)

    def _events_of(self, body: bytes, kind: str) -> list[ServerSentEvent]:
        """Return the events of a whole answer that does not name its own content type."""
        if body.lstrip().startswith(b"{"):
            return [ServerSentEvent(BODY, body.strip())]
        if not body.startswith((b"data:", b"event:", b":")):
            text = self._beginning(body)
            raise self.protocol(f"expected an event stream from {self.url}, not {kind}: {text}")
        try:
            return list(EventParser(MAX_EVENT_BYTES).feed(body))
        except ValueError as exc:
            raise self.protocol(str(exc)) from exc

    def _check_progress(self, last_event: float, timeout: float) -> None:
        """Raise `ModelError` if the provider has only kept the connection open for too long."""
        seconds = _PINGED_TIMEOUTS * timeout
        if anyio.current_time() - last_event <= seconds:
            return
        text = f"{self.url} sent only pings for {seconds:g} s, {_PINGED_TIMEOUTS} times `ModelSettings.timeout`"
        raise ModelError(text, model=self.model, kind="timeout")

    async def _piece(self, response: Response, timeout: float) -> bytes:
        try:
            with anyio.fail_after(timeout):
                return await response.piece()
        except TimeoutError:
            raise self._silent(timeout) from None
        except TransportError as exc:
            raise self._unanswered(exc) from None

    async def _body(self, response: Response, limit: int, timeout: float) -> bytes:
        body = bytearray()
        last_event = anyio.current_time()
        while piece := await self._piece(response, timeout):
            body += piece
            if len(body) > limit:
                raise self.protocol(f"the answer is larger than {limit} bytes")
            if not piece.isspace():
                # Some providers send line ends until the model begins.
                last_event = anyio.current_time()
            self._check_progress(last_event, timeout)
        return bytes(body)

    async def _refused(self, response: Response, timeout: float) -> ModelError:
        if 300 <= response.status < 400 and "location" in response.headers:
            return self.protocol(f"{self.url} redirects (HTTP {response.status}); use the URL it points at")
        raw = await response.beginning(_MAX_ERROR_BYTES, timeout)
        try:
            body: Any = decode_json(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = raw.decode("utf-8", "replace")
        final = response.headers.get("x-should-retry", "").strip().lower() == "false"
        wait = math.inf if final else retry_after(response.headers)
        # A body that is not JSON may be a proxy's page.
        through = self._proxy_note() if isinstance(body, str) else ""
        return refusal(self.model, body, status=response.status, retry_after=wait, redact=self.redact, through=through)

    def _proxy_note(self) -> str:
        """Return a note that the response may be of the proxy; empty without one."""
        client = self._client
        if client is None or client.proxy is None:
            return ""
        if not client.forwarded:
            return ""
        return came_through(self.url, client.proxy)

    def _silent(self, timeout: float) -> ModelError:
        text = f"{self.url} gave no sign of life for {timeout:g} s; `ModelSettings.timeout` sets how long to wait"
        return ModelError(text, model=self.model, kind="timeout")

    def _unanswered(self, exc: TransportError) -> ModelError:
        if isinstance(exc, BodyError):
            return self.protocol(f"{self.url} sent an answer that cannot be read: {exc.detail}")
        if exc.sent:
            return self._unreachable(f"the connection to {self.url} broke: {exc}")
        proxy = None if self._client is None else self._client.proxy
        if proxy is not None:
            return self._unreachable(
                f"cannot reach {self.url} through the proxy {proxy}: {exc}{no_proxy_hint(self.url)}"
            )
        return self._unreachable(f"cannot reach {self.url}: {exc}; is the server running, and is the URL right?")

    def _unreachable(self, text: str) -> ModelError:
        return ModelError(short(self.redact(text)), model=self.model, kind="unreachable")

    def __repr__(self) -> str:
        return f"Api({self.url!r})"


def _is_ping(event: ServerSentEvent) -> bool:
    return _PING.fullmatch(event.type) is not None or _PING_DATA.match(event.data) is not None


async def until_end(
    events: AsyncGenerator[ServerSentEvent, None], ended: Callable[[], bool], *, timeout: float
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the events of an answer; after the end of its turn only those of a few more seconds.

    Usage or a last event may follow the end. The wait for it is not extended by pings, some servers send them without
    end, and never longer than `timeout` in seconds. A connection that breaks or falls silent in it is not a failure.

    Raises:
        ModelError: The events ended with it before the turn did.
    """
    # Before the end of the turn every failure is one of the turn. Afterwards the turn is whole, and a connection that
    # breaks costs only what may have followed, such as the usage.
    while not ended():
        if (event := await anext(events, None)) is None:
            return
        yield event
    deadline = anyio.current_time() + min(_AFTER_END_SECONDS, timeout)
    while True:
        event = None
        with anyio.CancelScope(deadline=deadline):
            try:
                event = await anext(events, None)
            except ModelError as exc:
                if exc.kind not in ("timeout", "unreachable"):
                    raise
        if event is None:
            return
        yield event


def _secrets(members: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the values of headers and of a query that must be masked, the longest first."""
    # The whole value, its last word (the token of `Bearer TOKEN`) and its form in a query: an error text may repeat any
    # of them. The longest first, else a mask of a part would leave the rest of a longer value visible.
    found = {
        part
        for name, value in members
        if _SECRET_NAME.search(name)
        for part in (value, value.rpartition(" ")[2], quote_plus(value))
        if len(part) >= _SHORTEST_SECRET
    }
    return tuple(sorted(found, key=len, reverse=True))


def _plain(model: str, name: str, value: str | SecretLike) -> str:
    text = (value if isinstance(value, str) else value.reveal()).strip()
    if not _LEGAL_VALUE.fullmatch(text):
        raise ValueError(f"model {model!r}: header {name!r} holds characters that no HTTP header can carry")
    return text
