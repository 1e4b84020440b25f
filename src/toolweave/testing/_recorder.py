"""Recording of sessions with a server: a wrapper around the wire of a connection, for any transport.

Records every request, notification and outcome in a cassette. The config is passed on unchanged, except for callables
that return credentials: these are wrapped to learn the secrets to mask.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio

from toolweave._json_types import without_members
from toolweave._masking import mask_foreign
from toolweave.connect import Report, ServerProcess, Wire
from toolweave.connect._session import ClientHandlers, OnNotification
from toolweave.connect._transports import ConnectPlan, open_wire, through
from toolweave.errors import AuthRequiredError, ConnectionLostError, ProtocolError, ServerError
from toolweave.testing._cassette import Entry, masked, write_cassette


def record(target: Any, path: Path | str, *, secrets: Iterable[str] = ()) -> Any:
    """Return a target for `connect_mcp` that reaches the same server and writes each session to a cassette.

    The file is replaced whenever a session ends; it holds all sessions of the recording.
    Credentials of the target (its headers, its auth, secret-looking variables) are masked wherever they show up.

    Args:
        target: Any target of `connect_mcp`, its headers and auth included.
        path: The cassette, by convention `NAME.jsonl`; folders are made.
        secrets: Further texts to mask.

    Raises:
        ConfigError: The target cannot be right.
    """
    return through(target, lambda server: Recorder(server, Path(path), secrets=secrets))


class Recorder:
    """Opens the wires of one target and records their messages; made by `record`.

    Attributes:
        entries: The messages recorded so far, unmasked.
    """

    def __init__(self, server: Any, path: Path, *, secrets: Iterable[str] = ()) -> None:
        self.entries: list[Entry] = []
        self._server = server
        self._path = path
        self._secrets = {*secrets}
        self._ids = itertools.count(1)

    @asynccontextmanager
    async def open_wire(
        self, config: Any, attempt: ConnectPlan, handlers: ClientHandlers, report: Report
    ) -> AsyncGenerator[tuple[Wire, ServerProcess | None], None]:
        """Open the target's wire, wrapped by this recorder; see `WireOpener`."""
        inner = self._watching(config.replace(server=self._server))
        tapped = cast("ClientHandlers", _TappedPeer(handlers, self))
        self.note("open", {"transport": attempt.transport})
        try:
            async with open_wire(inner, attempt, tapped, report) as (wire, process):
                try:
                    yield cast("Wire", _TappedWire(wire, self)), process
                finally:
                    if wire.over:
                        self.note("end", {})
        finally:
            # Also after an error: a server that refuses a connection is worth a recording.
            self._save(config)

    def note(self, what: str, value: Mapping[str, Any]) -> None:
        """Record one event of the session."""
        self.entries.append({what: dict(value)})

    def next_id(self) -> int:
        """Return the id of the next request."""
        return next(self._ids)

    def _save(self, config: Any) -> None:
        def redact(text: str) -> str:
            return config.redact(mask_foreign(text, self._secrets))

        write_cassette(self._path, config.name, (masked(entry, redact) for entry in self.entries))

    def _watching(self, config: Any) -> Any:
        """Return the config with its credential callables wrapped, so that their results are masked."""
        changes: dict[str, Any] = {}
        if callable(config.headers):
            changes["headers"] = self._learning(config.headers)
        auth: Any = config.auth
        if auth is not None and callable(auth.provider) and not hasattr(auth.provider, "async_auth_flow"):
            changes["auth"] = auth.replace(provider=self._learning(auth.provider))
        if changes:
            return config.replace(**changes)
        return config

    def _learning(self, give: Callable[[], Any]) -> Callable[[], Any]:
        async def learned() -> Any:
            value: Any = give()
            if inspect.isawaitable(value):
                value = await value
            if isinstance(value, Mapping):
                values = cast("Mapping[str, Any]", value).values()
            else:
                values = (value,)
            for one in values:
                text = str(one.reveal() if hasattr(one, "reveal") else one)
                # Also the token alone of `Bearer TOKEN`.
                self._secrets |= {text, text.partition(" ")[2]}
            return cast("Any", value)

        return learned


class _TappedWire:
    """A `Wire` that records the messages of another."""

    def __init__(self, wire: Wire, recorder: Recorder) -> None:
        self._wire = wire
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        note = self._recorder.note
        number = self._recorder.next_id()
        note("send", {"id": number, "method": method, "params": _without_envelope(params)})
        try:
            result = await self._wire.request(method, params, **options)
        except ServerError as exc:
            note(*self._outcome(number, exc))
            raise
        except anyio.get_cancelled_exc_class():
            note("cancelled", {"id": number})
            raise
        note("receive", {"id": number, "result": result})
        return result

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._recorder.note("send", {"method": method, "params": params})
        await self._wire.notify(method, params)

    def refusal(self, schema: Mapping[str, Any]) -> str | None:
        reason = self._wire.refusal(schema)
        if reason is not None:
            self._recorder.note("refused", {"schema": schema, "reason": reason})
        return reason

    def _outcome(self, number: int, exc: ServerError) -> tuple[str, dict[str, Any]]:
        if isinstance(exc, ProtocolError):
            return "receive", {"id": number, "error": _error(exc)}
        failed: dict[str, Any] = {"id": number, "error": type(exc).__name__, "message": exc.message}
        if isinstance(exc, ConnectionLostError):
            failed |= {"sent": exc.sent, "over": self._wire.over}
        if isinstance(exc, AuthRequiredError):
            failed |= {"status": exc.status, "challenge": exc.challenge}
        return "failed", failed


class _TappedPeer:
    """Client handlers that record the unprompted messages of the server."""

    def __init__(self, handlers: ClientHandlers, recorder: Recorder) -> None:
        self._peer = handlers
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)

    def notification(
        self,
        method: str,
        params: Mapping[str, Any],
        listener: OnNotification | None = None,
        *,
        repaired: str = "",
    ) -> None:
        self._recorder.note("receive", {"method": method, "params": params})
        self._peer.notification(method, params, listener, repaired=repaired)

    async def request(self, method: str, params: Mapping[str, Any], *rest: Any, **options: Any) -> Any:
        note = self._recorder.note
        key = f"server-{self._recorder.next_id()}"
        note("receive", {"id": key, "method": method, "params": params})
        try:
            result = await self._peer.request(method, params, *rest, **options)
        except ProtocolError as exc:
            note("send", {"id": key, "error": _error(exc)})
            raise
        note("send", {"id": key, "result": result})
        return result


def _error(exc: ProtocolError) -> dict[str, Any]:
    return {"code": exc.code, "message": exc.message} | ({} if exc.data is None else {"data": exc.data})


def _without_envelope(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params without `_meta`, except its progress token: the rest differs between clients."""
    kept = without_members(params, "_meta")
    meta = params.get("_meta")
    if isinstance(meta, Mapping) and "progressToken" in meta:
        kept["_meta"] = {"progressToken": meta["progressToken"]}
    return kept
