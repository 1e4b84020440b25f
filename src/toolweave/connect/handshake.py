"""Settles the protocol revision with a server of any era (PROTOCOL 1.3), over a bare `Wire`.

`server/discover` first: a proper answer is a modern server; anything else is a legacy one and gets
`initialize`. Knows nothing of transports; says by exception when another dial is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio

from toolweave.connect.codes import UNSUPPORTED_VERSION
from toolweave.connect.report import Report
from toolweave.connect.session import Agreement, Peer, Session, Wire, ask, envelope
from toolweave.connect.shapes import as_array, as_object, as_text
from toolweave.errors import ConnectionLostError, ProtocolError

__all__ = ["LEGACY_VERSIONS", "MODERN_VERSIONS", "ProbeRefused", "shake_hands"]

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions with an `initialize` handshake, oldest first."""
MODERN_VERSIONS = ("2026-07-28",)
"""Stateless revisions, oldest first."""


class ProbeRefused(Exception):
    """The server ended the conversation when it was probed: dial again and go straight to `initialize`."""


async def shake_hands(
    wire: Wire, *, era: str, probe_seconds: float, server: str, report: Report, peer: Peer
) -> Session:
    """Settle a revision and return the session.

    `era` is `"auto"`, `"legacy"`, or one revision to insist on; `peer` says what this client offers.

    Raises:
        ProbeRefused: Only in era `"auto"`: the server died of the probe.
        ProtocolError: No common revision, or the server's answer is no MCP.
        ConnectionLostError: The server went away.
    """
    hands = _Hands(wire, server, report, peer)
    if era == "legacy" or era in LEGACY_VERSIONS:
        return await hands.initialize(LEGACY_VERSIONS[-1] if era == "legacy" else era)
    wanted = MODERN_VERSIONS[-1] if era in ("auto", "modern") else era
    if wanted not in MODERN_VERSIONS:
        raise ProtocolError(
            f"protocol revision {era!r} is unknown; there are {', '.join(LEGACY_VERSIONS + MODERN_VERSIONS)}",
            server=server,
            code=UNSUPPORTED_VERSION,
        )
    session = await hands.discover(wanted, None if era != "auto" else probe_seconds)
    if session is not None:
        return session
    if era != "auto":
        raise ProtocolError(
            f"it does not speak protocol revision {wanted}; use protocol='auto'",
            server=server,
            code=UNSUPPORTED_VERSION,
        )
    try:
        return await hands.initialize(LEGACY_VERSIONS[-1])
    except ProtocolError as exc:
        # a slow server may have taken the late probe and be modern by now: its own refusal says so
        if exc.code != UNSUPPORTED_VERSION or not _common(exc.data):
            raise
        session = await hands.discover(_common(exc.data)[-1], None)
        if session is None:
            raise
        return session


@dataclass(frozen=True, slots=True)
class _Hands:
    """The two ways to begin, for one wire."""

    wire: Wire
    server: str
    report: Report
    peer: Peer

    async def discover(self, wanted: str, seconds: float | None) -> Session | None:
        """Begin as with a modern server; None when it is none."""
        for attempt in range(2):
            with self.report.step("discover") as step:
                try:
                    with anyio.fail_after(seconds):
                        result = await ask(self.wire, "server/discover", {"_meta": self._envelope(wanted)})
                except TimeoutError:
                    step.outcome, step.detail = "skipped", f"no answer within {seconds:.2g} s: taken as a legacy server"
                    return None
                except ConnectionLostError as exc:
                    if not exc.sent:
                        raise
                    step.outcome, step.detail = "skipped", "the server ended on the probe: taken as a legacy server"
                    raise ProbeRefused(str(exc)) from exc
                except ProtocolError as exc:
                    common = _common(exc.data) if exc.code == UNSUPPORTED_VERSION else []
                    step.outcome, step.detail = "skipped", f"{exc.message}: taken as a legacy server"
                    if common and attempt == 0:
                        wanted = common[-1]
                        step.detail = f"the server names {wanted}"
                        continue
                    return None
                agreement = _read_discovery(result)
                step.detail = agreement.version if agreement is not None else "it names no modern revision"
                return await self._modern(agreement) if agreement is not None else None
        return None

    async def initialize(self, offered: str) -> Session:
        """Begin as with a legacy server."""
        with self.report.step("initialize") as step:
            capabilities = self.peer.capabilities(modern=False)
            offer = {"protocolVersion": offered, "capabilities": capabilities, "clientInfo": _client_info()}
            result = await ask(self.wire, "initialize", offer)
            agreed = result.get("protocolVersion")
            if agreed not in LEGACY_VERSIONS:
                raise ProtocolError(
                    f"it answered initialize with protocol version {agreed!r}; "
                    f"expected one of {', '.join(LEGACY_VERSIONS)}",
                    server=self.server,
                    code=UNSUPPORTED_VERSION,
                )
            step.detail = str(agreed)
            await self.wire.notify("notifications/initialized", {})
        return Session(self.wire, _agreement(str(agreed), False, result, result.get("serverInfo")), {})

    async def _modern(self, agreement: Agreement) -> Session:
        session = Session(self.wire, agreement, self._envelope(agreement.version))
        if self.peer.modern_log_level is not None:
            await session.set_log_level(self.peer.modern_log_level)
        return session

    def _envelope(self, revision: str) -> dict[str, Any]:
        return envelope(revision, _client_info(), self.peer.capabilities(modern=True))


def _read_discovery(result: Mapping[str, Any]) -> Agreement | None:
    common = _common({"supported": result.get("supportedVersions")})
    if not common or not isinstance(result.get("capabilities", {}), Mapping):
        return None
    meta = as_object(result.get("_meta"))
    info = meta.get("io.modelcontextprotocol/serverInfo") if meta is not None else None
    return _agreement(common[-1], True, result, info if info is not None else result.get("serverInfo"))


def _agreement(version: str, modern: bool, result: Mapping[str, Any], info: Any) -> Agreement:
    return Agreement(
        version=version,
        modern=modern,
        server_info=as_object(info) or {},
        capabilities=as_object(result.get("capabilities")) or {},
        instructions=as_text(result.get("instructions")),
        raw=result,
    )


def _common(data: Any) -> list[str]:
    named = as_object(data)
    supported = as_array(named.get("supported")) if named is not None else None
    return [name for name in MODERN_VERSIONS if name in (supported or [])]


@cache
def _client_info() -> dict[str, str]:
    try:
        return {"name": "toolweave", "version": version("toolweave")}
    except PackageNotFoundError:  # run from a tree that is not installed
        return {"name": "toolweave", "version": "0"}
