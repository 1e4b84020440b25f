"""A client for a provider's HTTP API: a POST, and the events of its answer.

One client per model and event loop, made at the first request. Every wait and every size is bounded, every fault is
a `ModelError`, and no key shows in errors, reprs or logs. Knows no provider's vocabulary.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, quote_plus, urlsplit, urlunsplit

import msgspec

from toolweave._json import decode_json
from toolweave.errors import ModelError
from toolweave.models._provider_errors import refusal, short
from toolweave.models._retry import retry_after
from toolweave.protocol.sse import EventParser, ServerSentEvent

if TYPE_CHECKING:
    import httpx2

BODY = "body"
"""Type of the single event for an answer in JSON, from a server that does not stream."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Maximum bytes of one event, and of an answer that is no stream."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Maximum bytes of one whole turn."""

_CONNECT_SECONDS = 15.0
_IDLE_SECONDS = 30.0
_DRAIN_SECONDS = 0.5
_AFTER_END_SECONDS = 5.0
_MAX_ERROR_BYTES = 64 * 1024
_EXCERPT = 200
_MASK = "***"
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
        ValueError: The URL is none of HTTP or holds credentials, or a header cannot be sent.
    """

    def __init__(self, base_url: str, *, model: str, headers: Mapping[str, str | SecretLike]) -> None:
        try:
            parts = urlsplit(base_url)
        except ValueError as exc:
            raise ValueError(f"model {model!r}: base_url is no URL: {exc}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"model {model!r}: base_url must be an http:// or https:// URL")
        if "@" in parts.netloc:
            raise ValueError(f"model {model!r}: base_url must hold no credentials; pass api_key or headers")
        self.model = model
        self.host = parts.hostname
        self._parts = parts
        self._headers = {name.lower(): _plain(model, name, value) for name, value in headers.items()}
        self._secrets = _secrets([*self._headers.items(), *parse_qsl(parts.query)])
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The base URL for messages, without its query."""
        return urlunsplit((self._parts.scheme, self._parts.netloc, self._parts.path, "", ""))

    async def events(self, path: str, body: bytes, *, timeout: float) -> AsyncGenerator[ServerSentEvent, None]:
        """POST a JSON body and yield the events of the answer; closing the generator ends the request.

        `timeout` is the idle timeout in seconds. An answer in JSON is one event of the type `BODY`.

        Raises:
            ModelError: The provider refused, could not be reached, timed out, or sent something else.
        """
        import httpx2  # heavy, and only a request needs it

        try:
            async with self._open().stream(
                "POST",
                self._endpoint(path),
                content=body,
                headers={"content-type": "application/json", **self._headers},
                timeout=httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
                extensions=self._target(path),
            ) as response:
                if not response.is_success:
                    raise await self._refused(response)
                async for event in self._answer(response):
                    yield event
            return
        except httpx2.TimeoutException as exc:
            failed = self._silent(exc, timeout)
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            failed = self._broken(exc)
        raise failed  # out here, since the library's exception holds the request with all its headers

    async def drain(self, events: AsyncGenerator[ServerSentEvent, None]) -> None:
        """Read the rest of the stream after the end of a turn, so that the connection can be reused."""
        import anyio  # the room is read without it

        with anyio.move_on_after(_DRAIN_SECONDS):
            async for _ in events:
                pass

    def redact(self, text: str) -> str:
        """Return a text with every secret of the headers masked."""
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text

    def refusal(self, body: Any, *, status: int | None = None, wait: float | None = None) -> ModelError:
        """Return the error for a provider's error body, in a stream or as an answer, secrets masked."""
        return refusal(self.model, body, status=status, retry_after=wait, redact=self.redact)

    def protocol(self, message: str) -> ModelError:
        """Return the error for an answer that does not follow this API."""
        return ModelError(short(self.redact(message)), model=self.model, kind="protocol")

    def broken_off(self) -> ModelError:
        """Return the error for a stream that ended before the turn did."""
        return ModelError("the stream ended in the middle of the turn", model=self.model, kind="unreachable")

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return an event's data as a JSON object.

        Raises:
            ModelError: It is none.
        """
        try:
            value = decode_json(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise self.protocol(f"an event is no JSON: {self._beginning(data)}") from exc
        if not isinstance(value, dict):
            raise self.protocol(f"an event is no JSON object: {self._beginning(data)}")
        return value  # pyright: ignore[reportUnknownVariableType] - any JSON object

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, loop, self._client, self._loop = self._client, self._loop, None, None
        if client is not None and loop is asyncio.get_running_loop():
            await client.aclose()

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # sockets live and die with the loop that made them
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=_IDLE_SECONDS)
            headers = {"accept": "text/event-stream, application/json", "accept-encoding": "identity"}
            self._client, self._loop = httpx2.AsyncClient(limits=limits, headers=headers), loop
        return self._client

    def _endpoint(self, path: str, query: str = "") -> str:
        whole = f"{self._parts.path.rstrip('/')}/{path}"
        return urlunsplit((self._parts.scheme, self._parts.netloc, whole, query, ""))

    def _target(self, path: str) -> dict[str, bytes]:
        """Return request extensions with the path and query, which the library would otherwise log with the URL."""
        import httpx2

        query = self._parts.query
        return {"target": httpx2.URL(self._endpoint(path, query)).raw_path} if query else {}

    def _beginning(self, data: bytes) -> str:
        return repr(self.redact(data[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))[:_EXCERPT])

    async def _answer(self, response: httpx2.Response) -> AsyncGenerator[ServerSentEvent, None]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            yield ServerSentEvent(BODY, await self._body(response, MAX_EVENT_BYTES))
            return
        if kind not in ("text/event-stream", ""):
            text = self._beginning(await self._body(response, _MAX_ERROR_BYTES, cut=True))
            raise self.protocol(f"expected an event stream from {self.url}, not {kind}: {text}")
        parser, size = EventParser(MAX_EVENT_BYTES), 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > MAX_STREAM_BYTES:
                raise self.protocol(f"the answer is larger than {MAX_STREAM_BYTES} bytes")
            try:
                events = parser.feed(piece)
            except ValueError as exc:
                raise self.protocol(str(exc)) from exc
            for event in events:
                yield event

    async def _body(self, response: httpx2.Response, most: int, *, cut: bool = False) -> bytes:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > most:
                if cut:
                    break
                raise self.protocol(f"the answer is larger than {most} bytes")
        return bytes(body[:most])

    async def _refused(self, response: httpx2.Response) -> ModelError:
        if response.is_redirect:
            return self.protocol(f"{self.url} redirects (HTTP {response.status_code}); use the URL it points at")
        raw = await self._body(response, _MAX_ERROR_BYTES, cut=True)
        try:
            body: Any = decode_json(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = raw.decode("utf-8", "replace")
        final = response.headers.get("x-should-retry", "").strip().lower() == "false"
        wait = math.inf if final else retry_after(response.headers)
        return self.refusal(body, status=response.status_code, wait=wait)

    def _silent(self, exc: httpx2.TimeoutException, timeout: float) -> ModelError:
        import httpx2

        if isinstance(exc, httpx2.ConnectTimeout):
            text = f"{self.url} takes no connection within {min(timeout, _CONNECT_SECONDS):g} s"
            return ModelError(text, model=self.model, kind="unreachable")
        text = f"{self.url} gave no sign of life for {timeout:g} s; `ModelSettings.timeout` sets how long to wait"
        return ModelError(text, model=self.model, kind="timeout")

    def _broken(self, exc: httpx2.HTTPError | httpx2.InvalidURL) -> ModelError:
        import httpx2

        why = short(self.redact(str(exc) or type(exc).__name__))
        if isinstance(exc, httpx2.InvalidURL):
            return ModelError(f"{self.url} is no URL: {why}", model=self.model, kind="invalid_request")
        if isinstance(exc, httpx2.ConnectError):
            text = f"cannot reach {self.url}: {why}; is the server running, and is the URL right?"
        elif isinstance(exc, httpx2.TransportError):
            text = f"the connection to {self.url} broke: {why}"
        else:
            return self.protocol(f"{self.url} sent an answer that cannot be read: {why}")
        return ModelError(text, model=self.model, kind="unreachable")

    def __repr__(self) -> str:
        return f"Api({self.url!r})"


async def until_end(
    events: AsyncGenerator[ServerSentEvent, None], ended: Callable[[], bool], *, timeout: float
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the events of an answer; after the end of its turn only those of a few more seconds.

    Usage or a last event may follow the end. The wait for it is not extended by pings, some servers send them without
    end, and never longer than `timeout` in seconds. A connection that breaks or falls silent in it is no failure.

    Raises:
        ModelError: The events ended with it before the turn did.
    """
    import anyio  # the room is read without it

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
