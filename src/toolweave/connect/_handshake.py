"""Negotiation of the protocol revision with a server of any era, over a bare `Wire`.

`server/discover` first: a proper answer proves a modern server; any other one a legacy server, which gets
`initialize`; a missing one proves neither. Knows nothing of transports; an exception asks for a new connection.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any

import anyio
import msgspec

from toolweave._json_types import Json, JsonObject, array_or_empty, as_object, as_text, object_or_empty
from toolweave._value import Value
from toolweave.connect._report import Report, Step
from toolweave.connect._session import Agreement, ClientHandlers, Session, Wire, ask, envelope
from toolweave.errors import ConnectionLostError, ProtocolError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.codes import METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from toolweave.protocol.lenient_handshake import meant_revision, readable_handshake
from toolweave.protocol.meta import SERVER_INFO
from toolweave.protocol.spellings import SERVER_NAMES
from toolweave.protocol.uris import safe_icons
from toolweave.protocol.versions import HANDSHAKE_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_VERSION, MODERN_VERSIONS
from toolweave.version import VERSION

_GRACE_SECONDS = 0.5
_OF_VERSIONS = r"(?i)protocol[ _-]?versions?\b|protocol revision"
"""The words of a refusal that is about the revision."""
_log = logging.getLogger("toolweave.connect")


class ProbeRefused(Exception):
    """The server ended the conversation on the probe: connect again and start with `initialize`."""


async def shake_hands(
    wire: Wire, *, era: str, probe_seconds: float, server: str, report: Report, handlers: ClientHandlers
) -> Session:
    """Negotiate a revision and return the session.

    `era` is `"auto"`, `"legacy"`, or one revision to insist on; `handlers` has this client's capabilities. In era
    `"auto"` no timeout decides: after `probe_seconds` without an answer `initialize` is sent beside the probe, and the
    server's answers determine the era. Only the caller's own bound ends the wait.

    Raises:
        ProbeRefused: Only in era `"auto"`: the server ended, and the probe may be why.
        ProtocolError: The server has no common revision, or its answer is not MCP.
        ConnectionLostError: The server went away.
    """
    hands = _Handshakes(wire, server, report, handlers)
    if era == "legacy" or era in HANDSHAKE_VERSIONS:
        is_open = era == "legacy"
        return await hands.initialize(LATEST_HANDSHAKE_VERSION if is_open else era, or_older=is_open)
    # The only way in which nothing is known: see `_Negotiation`. A revision that was asked for is never exchanged for
    # another one.
    if era == "auto":
        return await _Negotiation(hands, probe_seconds).settle()
    wanted = MODERN_VERSION if era == "modern" else era
    if wanted not in MODERN_VERSIONS:
        raise ProtocolError(
            f"protocol revision {era!r} is unknown; there are {', '.join(HANDSHAKE_VERSIONS + MODERN_VERSIONS)}",
            server=server,
            code=UNSUPPORTED_VERSION,
        )
    return await hands.discover(wanted)


class _NotModern(Exception):
    """The probe's answer is not that of a modern server; `named` is a modern revision that it still names."""

    def __init__(self, why: str, named: str | None = None) -> None:
        super().__init__(why)
        self.named = named


class _Handshakes(Value, frozen=True):
    """The handshakes of both eras on one wire."""

    wire: Wire
    server: str
    report: Report
    handlers: ClientHandlers

    async def probe(self, wanted: str) -> Agreement:
        """Ask `server/discover` once.

        Raises:
            _NotModern: The answer is not that of a modern server.
        """
        try:
            result = await ask(self.wire, methods.SERVER_DISCOVER, {"_meta": self._envelope(wanted)})
        except ProtocolError as exc:
            # -32022 is a modern server's own way to say no: its `data.supported` has the revisions that it does speak.
            # Any other refusal, of whatever code, is how servers from before 2026-07-28 answer a method that they do
            # not know.
            if exc.code == UNSUPPORTED_VERSION:
                named = _common(exc.data)
            else:
                named = []
            if named:
                raise _NotModern(f"the server names {named[-1]}", named[-1]) from None
            raise _NotModern(f"{exc.message}: taken as a legacy server") from None
        if not SERVER_NAMES.exact.issuperset(result) or type(result.get("capabilities")) is not dict:
            result = self._readable(result, methods.SERVER_DISCOVER)
        agreement = _read_discovery(result)
        if agreement is None:
            raise _NotModern("it names no modern revision")
        return agreement

    async def hello(self, offered: str, *, or_older: bool) -> Agreement:
        """Ask `initialize`; with `or_older` with an older revision, too, each time the server refuses one."""
        # Lifecycle, version negotiation: a server answers with another revision if it does not have the one that is
        # offered. Many refuse it instead. `initialize` has no effect, so it can be asked again; the list of revisions
        # gets shorter each time.
        left: Sequence[str] = ()
        if or_older:
            left = HANDSHAKE_VERSIONS[: HANDSHAKE_VERSIONS.index(offered)]
        capabilities = self.handlers.capabilities(modern=False)
        result: JsonObject | None = None
        while result is None:
            offer = {"protocolVersion": offered, "capabilities": capabilities, "clientInfo": _client_info()}
            try:
                result = await ask(self.wire, methods.INITIALIZE, offer)
            except ProtocolError as exc:
                left = _older_revisions(exc, left)
                if not left:
                    raise
                offered = left[-1]
                left = left[:-1]
        if not SERVER_NAMES.exact.issuperset(result) or type(result.get("capabilities")) is not dict:
            result = self._readable(result, methods.INITIALIZE)
        agreed = result.get("protocolVersion")
        if agreed not in HANDSHAKE_VERSIONS:
            agreed = meant_revision(result, self._noted(methods.INITIALIZE))
        # Lifecycle, version negotiation: the server may answer with another version, and a client that does not support
        # it disconnects.
        if agreed not in HANDSHAKE_VERSIONS:
            raise ProtocolError(
                f"it answered initialize with protocol version {agreed!r}; "
                f"expected one of {', '.join(HANDSHAKE_VERSIONS)}",
                server=self.server,
                code=UNSUPPORTED_VERSION,
            )
        return _agreement(str(agreed), False, result, result.get("serverInfo"))

    def _readable(self, result: JsonObject, method: str) -> JsonObject:
        """Return an answer as it is meant, with a report of each change."""
        return readable_handshake(result, self._noted(method))

    def _noted(self, method: str) -> Callable[[str], None]:
        return lambda change: self.handlers.on_repair(f"its answer to {method} {change}")

    async def discover(self, wanted: str) -> Session:
        """Start a session with a modern server."""
        # Twice at most: with our revision, then with one that the server named.
        for _ in range(2):
            with self.report.step("discover") as step:
                try:
                    agreement = await self.probe(wanted)
                except _NotModern as exc:
                    step.outcome = "skipped"
                    step.detail = str(exc)
                    if exc.named is None:
                        break
                    wanted = exc.named
                else:
                    step.detail = agreement.version
                    return await self.modern(agreement)
        raise ProtocolError(
            f"it does not speak protocol revision {wanted}; use protocol='auto'",
            server=self.server,
            code=UNSUPPORTED_VERSION,
        )

    async def initialize(self, offered: str, *, or_older: bool) -> Session:
        """Start a session with a legacy server."""
        with self.report.step(methods.INITIALIZE) as step:
            agreement = await self.hello(offered, or_older=or_older)
            step.detail = agreement.version
            return await self.legacy(agreement)

    async def legacy(self, agreement: Agreement) -> Session:
        """Return the session of an `initialize` that was answered."""
        # Required before any other request (lifecycle, initialization); servers queue or refuse what comes earlier.
        await self.wire.notify(methods.NOTIFICATIONS_INITIALIZED, {})
        return Session(self.wire, agreement, {})

    async def modern(self, agreement: Agreement) -> Session:
        """Return the session of a probe that was answered."""
        session = Session(self.wire, agreement, self._envelope(agreement.version))
        if self.handlers.modern_log_level is not None:
            await session.set_log_level(self.handlers.modern_log_level)
        return session

    def _envelope(self, revision: str) -> Json:
        return envelope(revision, _client_info(), self.handlers.capabilities(modern=True))


class _HandshakeRequest(msgspec.Struct):
    """One handshake request under way, and its outcome."""

    done: bool = False
    agreement: Agreement | None = None
    error: Exception | None = None


class _Negotiation:
    """The negotiation of the era with an unknown server, by its answers.

    The probe goes first. A server that is still starting answers it late, so that silence proves nothing: `initialize`
    is then sent beside it, and the server's answers decide. A modern answer to the probe counts whenever it comes;
    `initialize` refused as an unknown method also proves a modern server. The end of the conversation may be the
    probe's doing, before and after `initialize` was sent: that needs a new connection, without a probe.
    """

    def __init__(self, hands: _Handshakes, probe_seconds: float) -> None:
        self._hands = hands
        self._step = hands.report.step
        self._seconds = probe_seconds
        self._moved = anyio.Event()

    async def settle(self) -> Session:
        """Return the session; raises the errors of `shake_hands`."""
        outcome: Session | Exception | None = None
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                outcome = await self._settled()
            except (ProbeRefused, ServerError) as exc:
                # Anything else, such as the bound of the caller, passes the group as a cancellation and is not an
                # outcome.
                outcome = exc  # raised inside the group, it would leave as a group
            tasks.cancel_scope.cancel()
        if isinstance(outcome, Session):
            return outcome
        assert outcome is not None
        raise outcome

    async def _settled(self) -> Session:
        wanted = MODERN_VERSION
        report = self._hands.report
        # Legacy servers often print a traceback for the probe. Its lines are cut out of the report afterwards, or a
        # later fault would be explained by them.
        quiet = report.stderr_position
        probe = await self._probed(wanted)
        # It is modern, in another revision: one more probe with that one, still without `initialize`.
        other = _named_revision(probe)
        if other is not None:
            wanted = other
            probe = await self._probed(wanted)
        if probe.agreement is not None:
            return await self._hands.modern(probe.agreement)
        if probe.done:  # it complains of the probe, not of a later fault
            report.disregard_stderr(quiet)
        session, refusal = await self._initialized(probe)
        if session is not None:
            if not session.agreement.modern:
                report.disregard_stderr(quiet)
            return session
        assert refusal is not None
        # `initialize` was refused as only a modern server does. The probe may have been lost while the server started,
        # so it is sent again.
        version = [wanted, *_common(refusal.data)][-1]
        return await self._modern_after_all(version, probe, refusal)

    async def _probed(self, wanted: str) -> _HandshakeRequest:
        """Send the probe, and wait for its answer until `initialize` is due."""
        with self._step("discover") as step:
            probe = self._ask(self._hands.probe(wanted))
            with anyio.move_on_after(self._seconds):
                await self._answered(probe)
            if not probe.done:
                step.outcome = "skipped"
                step.detail = f"no answer within {self._seconds:g} s: initialize is tried too"
            elif probe.agreement is not None:
                step.detail = probe.agreement.version
            else:
                step.outcome = "skipped"
                step.detail = str(probe.error)
                self._check_alive(probe, step)
        return probe

    async def _initialized(self, probe: _HandshakeRequest) -> tuple[Session | None, ProtocolError | None]:
        """Send `initialize`, beside a probe that is not answered yet; return the session or the server's refusal."""
        with self._step(methods.INITIALIZE) as step:
            hello = self._ask(self._hands.hello(LATEST_HANDSHAKE_VERSION, or_older=True))
            if not probe.done:
                await self._answered(probe, hello)
                # Both requests are under way and `initialize` was answered first. Over HTTP each has another
                # connection, so the probe's answer may be a moment behind; a server that answers both is modern.
                if not probe.done and not _proves_modern(hello.error):
                    # HTTP keeps no order
                    with anyio.move_on_after(min(self._seconds, _GRACE_SECONDS)):
                        await self._answered(probe)
                self._check_alive(probe, step)
                if probe.agreement is not None:
                    step.outcome = "skipped"
                    step.detail = f"the probe was answered: {probe.agreement.version}"
                    self._hands.report.note("discover", probe.agreement.version)
                    # A server of both eras has opened a session for `initialize` and named it in `Mcp-Session-Id`.
                    # Modern requests must not carry it.
                    forget = getattr(self._hands.wire, "forget_session", None)
                    if forget is not None:
                        forget()
                    return await self._hands.modern(probe.agreement), None
            await self._answered(hello)
            self._check_alive(hello, step, beside=probe)
            if hello.agreement is None:
                assert isinstance(hello.error, ProtocolError)
                step.outcome = "failed"
                step.detail = str(hello.error)
                if _proves_modern(hello.error):
                    return None, hello.error
                raise hello.error
            step.detail = hello.agreement.version
            if not probe.done:
                # Silence proved nothing, yet something has to be chosen: said aloud, since a modern server spoken to as
                # a legacy one has fewer features.
                self._report_guess(step)
            return await self._hands.legacy(hello.agreement), None

    async def _modern_after_all(self, wanted: str, probe: _HandshakeRequest, refusal: ProtocolError) -> Session:
        """Send the probe again, beside an unanswered first one: a starting server may have dropped that."""
        with self._step("discover") as step:
            waiting = [self._ask(self._hands.probe(wanted)), *(() if probe.done else (probe,))]
            # The old and the new probe race: whichever is answered as a modern server does decides, refusals only
            # remove a candidate.
            while waiting:
                await self._answered(*waiting)
                for question in [question for question in waiting if question.done]:
                    waiting.remove(question)
                    if question.agreement is not None:
                        step.detail = question.agreement.version
                        return await self._hands.modern(question.agreement)
                    step.outcome = "failed"
                    step.detail = str(question.error)
                    self._check_alive(question, step)
        raise refusal

    def _ask(self, request: Coroutine[Any, Any, Agreement]) -> _HandshakeRequest:
        question = _HandshakeRequest()

        async def put() -> None:
            try:
                question.agreement = await request
            except (_NotModern, ServerError) as exc:
                question.error = exc
            # Set before the event: who is woken by it looks at `done` at once.
            question.done = True
            moved = self._moved
            self._moved = anyio.Event()
            moved.set()

        self._tasks.start_soon(put)
        return question

    async def _answered(self, *questions: _HandshakeRequest) -> None:
        """Wait until one of the requests is answered."""
        while not any(question.done for question in questions):
            await self._moved.wait()

    def _check_alive(self, question: _HandshakeRequest, step: Step, *, beside: _HandshakeRequest | None = None) -> None:
        """Raise the error of a request that failed otherwise than by a refusal.

        A lost connection may be the probe's doing: while the probe itself waited; while another request waited
        `beside` an unanswered probe; or after a refused probe, since a process may exit shortly after.
        """
        error = question.error
        if error is None or isinstance(error, (_NotModern, ProtocolError)):
            return
        if isinstance(error, ConnectionLostError):
            # A request that was never sent cannot have been ended by the probe. For one that was sent, the probe is to
            # blame as long as it was the last message that the server had to handle.
            is_last = beside is None or not beside.done
            if error.sent and is_last:
                blamed = True
            else:
                blamed = beside is not None and self._hands.wire.over
            if blamed:
                step.outcome = "skipped"
                step.detail = "the server ended on the probe: taken as a legacy server"
                raise ProbeRefused(str(error)) from error
        raise error

    def _report_guess(self, step: Step) -> None:
        step.detail += f"; the probe was not answered within {self._seconds:g} s"
        _log.warning(
            "server %r: it answered initialize and not server/discover within %g s, so it is spoken to as a legacy "
            "server; set 'protocol' to choose a revision",
            *(self._hands.server, self._seconds),
        )


def _named_revision(probe: _HandshakeRequest) -> str | None:
    """Return the modern revision that a server named when it refused the one of the probe, or None."""
    if probe.agreement is None and isinstance(probe.error, _NotModern):
        return probe.error.named
    return None


def _proves_modern(error: Exception | None) -> bool:
    """Return whether an error of `initialize` can only be that of a server without that handshake."""
    if not isinstance(error, ProtocolError):
        return False
    # A legacy server has `initialize` by definition, so "method not found" excludes one; so does a refusal that names
    # a modern revision.
    if error.code == UNSUPPORTED_VERSION:
        return bool(_common(error.data))
    return error.code == METHOD_NOT_FOUND


def _older_revisions(refusal: ProtocolError, left: Sequence[str]) -> Sequence[str]:
    """Return the revisions to offer next, oldest first: those that a refusal names, else all; none else."""
    if _proves_modern(refusal):
        return ()
    text = f"{refusal.message} {object_or_empty(refusal.data).get('supported', '')}"
    if refusal.code != UNSUPPORTED_VERSION and re.search(_OF_VERSIONS, text) is None:
        return ()
    return [one for one in left if one in text] or left


def _read_discovery(result: JsonObject) -> Agreement | None:
    common = _common({"supported": result.get("supportedVersions")})
    if not common or as_object(result.get("capabilities", {})) is None:
        return None
    info = object_or_empty(result.get("_meta")).get(SERVER_INFO)
    if info is None:
        info = result.get("serverInfo")
    return _agreement(common[-1], True, result, info)


def _safe_info(info: JsonObject) -> JsonObject:
    """Return the description of a server without icons that a client must not load."""
    if "icons" in info:
        return {**info, "icons": list(safe_icons(info["icons"]))}
    return info


def _agreement(version: str, modern: bool, result: JsonObject, info: Any) -> Agreement:
    return Agreement(
        version=version,
        modern=modern,
        server_info=_safe_info(object_or_empty(info)),
        capabilities=object_or_empty(result.get("capabilities")),
        instructions=as_text(result.get("instructions")),
        raw=result,
    )


def _common(data: object) -> list[str]:
    supported = array_or_empty(object_or_empty(data).get("supported"))
    # In our order, oldest first, whatever the server's is: the callers use the last.
    return [name for name in MODERN_VERSIONS if name in supported]


@cache
def _client_info() -> dict[str, str]:
    return {"name": "toolweave", "version": VERSION}
