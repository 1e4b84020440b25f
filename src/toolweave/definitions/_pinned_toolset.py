"""The pins around any toolset: a hub, the tools of an agent, the tools of a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolweave.definitions._drift import PinChange
from toolweave.definitions._enforcement import LockFileReader, PinMode, PinVerdict, enforce
from toolweave.definitions._pins import LOCK, Pins
from toolweave.errors import ErrorKind
from toolweave.tools import CallContext, ToolCall, ToolResult, Toolset, ToolSnapshot, ToolSpec, WrapperToolset


class PinnedToolset(WrapperToolset):
    """A toolset whose tools are compared with their pins; see `pinned`."""

    __slots__ = ("_local", "_mode", "_offered", "_pins", "_seen", "_verdicts", "_withheld")

    def __init__(self, toolset: Toolset, pins: Pins | LockFileReader, mode: PinMode, local: str) -> None:
        super().__init__(toolset)
        self._pins = pins
        self._mode: PinMode = mode
        self._local = local
        self._seen: tuple[ToolSnapshot, Pins] | None = None
        self._offered = ToolSnapshot()
        self._verdicts: Sequence[PinVerdict] = ()
        self._withheld: dict[str, str] = {}

    @property
    def changes(self) -> tuple[PinChange, ...]:
        """The differences from the pins now."""
        self.snapshot()
        return tuple(change for verdict in self._verdicts for change in verdict.changes)

    @property
    def problems(self) -> tuple[str, ...]:
        """The same in words, each with a diff."""
        self.snapshot()
        return tuple(f"server {name!r}: {text}" for name, text in self._problem_texts())

    def snapshot(self) -> ToolSnapshot:
        """Return the tools that may be used now; see `Toolset.snapshot`."""
        inner = self._toolsets[0].snapshot()
        pins = self._read()
        known_inner, known_pins = self._seen or (None, None)
        if known_inner is not inner or known_pins is not pins:
            self._judge(inner, pins)
            self._seen = (inner, pins)
        return self._offered

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool; one that is withheld is refused. See `Toolset.call`."""
        self.snapshot()
        spec = self._toolsets[0].snapshot().find(call.name)
        if spec is None:
            refused = None
        else:
            refused = self._withheld.get(spec.name)
        if refused is not None:
            return ToolResult.failure(refused, kind=ErrorKind.DENIED)
        return await self._toolsets[0].call(call, ctx)

    def _read(self) -> Pins:
        if isinstance(self._pins, Pins):
            return self._pins
        return self._pins.read()

    def _judge(self, inner: ToolSnapshot, pins: Pins) -> None:
        by_server: dict[str, list[ToolSpec]] = {}
        for spec in inner:
            by_server.setdefault(spec.server or self._local, []).append(spec)
        self._verdicts = []
        self._withheld = {}
        for server, specs in by_server.items():
            verdict = enforce(pins, self._mode, server, specs)
            self._verdicts.append(verdict)
            for spec in specs:
                reason = verdict.withheld.get(spec.original_name)
                if reason is not None:
                    self._withheld[spec.name] = reason
        offered = (spec for spec in inner if spec.name not in self._withheld)
        # The pins may change while the tools stay the same, and the version has to grow then.
        self._offered = ToolSnapshot(offered, version=max(inner.version, self._offered.version + 1))

    def _problem_texts(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for verdict in self._verdicts:
            server = verdict.changes[0].server if verdict.changes else ""
            found += [(server, text) for text in verdict.problems]
        return found


def pinned(
    toolset: Toolset, pins: Pins | Path | str = LOCK, *, mode: PinMode = "block", local: str = "local"
) -> PinnedToolset:
    """Return the toolset with definitions that are new or changed since they were pinned withheld until allowed.

    A tool that is withheld is not listed, and a call of it is a `denied` error result that says what to do. Put this
    around the toolset before its definitions are changed by others (`enhanced`); other names make no difference.

    Args:
        toolset: The toolset.
        pins: The trusted definitions: a lock file, which is read again when it changed, or a value.
        mode: `"block"` withholds, `"warn"` only reports in `problems`, `"off"` does nothing.
        local: The name under which tools without a server are pinned.

    Raises:
        ConfigError: By `snapshot` and `call`, if the lock file cannot be read.
    """
    return PinnedToolset(toolset, pins if isinstance(pins, Pins) else LockFileReader(Path(pins)), mode, local)
