"""Pins while a program runs: new or changed definitions are reported, or withheld until they are allowed.

The lock file is read again when it changed, so that an allowed tool appears with the next listing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from toolweave._value import Value
from toolweave.config import ServerConfig
from toolweave.errors import ConfigError
from toolweave.tools._names import aliases
from toolweave.tools._spec import ToolSpec
from toolweave.trust._drift import PinChange, drift
from toolweave.trust._pins import LOCK, Pins, ServerIdentity, lock_path
from toolweave.trust._scan import Finding, ScanBudget, scan_tool

PinMode: TypeAlias = Literal["off", "warn", "block"]
"""Nothing is compared; differences are reported; differing definitions are withheld too."""

_MOST_PROBLEMS = 200
_DIFF_LINES = 8
_WITHHELD = frozenset({"added", "changed", "renamed"})


class PinVerdict(Value, frozen=True, kw_only=True):
    """The outcome of a comparison with the pins.

    Attributes:
        changes: What differs.
        withheld: The tools that may not be used, by their own names, each with the reason.
        problems: The differences for people, each with a diff.
    """

    changes: Sequence[PinChange] = ()
    withheld: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    problems: Sequence[str] = ()


class LockFileReader:
    """The pins in a lock file, read again when the file changed."""

    __slots__ = ("_known", "_pins", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[int, int, int] | None = None
        self._pins = Pins()

    def read(self) -> Pins:
        """Return the pins of the file as it is now; none if there is no file.

        Raises:
            ConfigError: The file cannot be read, or is no lock.
        """
        try:
            status = self.path.stat()
        except OSError:
            self._known = None
            return Pins()
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._known:
            self._pins = Pins.read(self.path)
            self._known = seen
        return self._pins


def enforce(
    pins: Pins, mode: PinMode, server: str, specs: Sequence[ToolSpec], identity: ServerIdentity | None = None
) -> PinVerdict:
    """Compare the definitions of a server with its pins.

    Args:
        pins: What was trusted.
        mode: Whether what differs is withheld.
        server: The server's name in the config.
        specs: Its definitions.
        identity: What is known of the server itself; if it is another one, all its tools are withheld.
    """
    if mode == "off":
        return PinVerdict()
    changes = drift(server, pins.servers.get(server), identity, specs)
    withheld: dict[str, str] = {}
    if mode == "block":
        another = next((change for change in changes if change.kind == "server"), None)
        if another is not None:
            withheld = {spec.original_name: _reason(server, spec.original_name, another) for spec in specs}
        withheld |= {one.tool: _reason(server, one.tool, one) for one in changes if one.kind in _WITHHELD}
    problems = [_problem(change, withheld) for change in changes[:_MOST_PROBLEMS]]
    if len(changes) > _MOST_PROBLEMS:
        problems.append(f"{len(changes) - _MOST_PROBLEMS} more differences from the pins")
    return PinVerdict(changes=changes, withheld=withheld, problems=problems)


class ServerGuard:
    """Checks the definitions of one server: compares them with the pins at once, and scans them when asked to.

    A finding withholds nothing, so no listing waits for the scan: `scan` goes through the definitions step by step,
    and whoever reads the findings meanwhile gets all of them.

    Attributes:
        identity: What is known of the server; set after each handshake.
        verdict: The outcome of the last comparison with the pins.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.identity = ServerIdentity(origin="")
        self.verdict = PinVerdict()
        self._config = config
        self._lock: LockFileReader | None = None
        self._specs: dict[str, ToolSpec] = {}
        self._unscanned: deque[ToolSpec] = deque()
        self._budget = ScanBudget()
        self._in_definitions: dict[str, tuple[Finding, ...]] = {}
        self._in_results: dict[tuple[str, str], Finding] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings in the definitions as they are now, and in results so far."""
        return (*self._found_in_definitions(), *self._in_results.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """The findings for people: the first 200 in definitions, and those in results."""
        return tuple(map(str, (*islice(self._found_in_definitions(), _MOST_PROBLEMS), *self._in_results.values())))

    @property
    def is_scanned(self) -> bool:
        """Whether the scan has read all definitions as they are now."""
        return not self._unscanned

    def identify(self, server_info: Mapping[str, Any]) -> None:
        """Note the server's own name and version."""
        if self._config.pins != "off":
            self.identity = ServerIdentity.of(self._config, server_info)

    def judge(self, specs: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
        """Return the definitions that may be offered, and the differences from the pins; scan none of them yet."""
        if self._config.scan:
            self._hold(specs)
        self.verdict = self._compared(specs)
        withheld = self.verdict.withheld
        offered = tuple(spec for spec in specs if spec.original_name not in withheld) if withheld else specs
        return offered, tuple(self.verdict.problems)

    def scan(self, most: int | None = None) -> None:
        """Scan the definitions that were not scanned yet: at most so many of them, or all."""
        for _ in range(len(self._unscanned) if most is None else most):
            try:
                spec = self._unscanned.popleft()
            except IndexError:  # the last one; a thread that reads the findings may have taken some of them, too
                return
            if found := scan_tool(spec, self._budget):
                self._in_definitions[spec.original_name] = found

    def note_result(self, findings: Iterable[Finding]) -> list[Finding]:
        """Keep the findings of a result, once for each tool and kind; return the new ones."""
        new = [one for one in findings if (one.tool, one.kind) not in self._in_results]
        room = _MOST_PROBLEMS - len(self._in_results)
        self._in_results |= {(one.tool, one.kind): one for one in new[: max(0, room)]}
        return new[: max(0, room)]

    def refusal(self, name: str) -> str | None:
        """Return why a tool may not be called by this name or alias, or None if nothing is known against it."""
        for own, reason in self.verdict.withheld.items():
            prefix = self._config.tool_prefix or ""
            if name in (own, prefix + own, *aliases(self._config.name, own)):
                return reason
        return None

    @property
    def blocks(self) -> bool:
        """Whether only pinned tools may be called."""
        return self._config.pins == "block"

    def _hold(self, specs: Iterable[ToolSpec]) -> None:
        """Replace the definitions; one that is the same as before keeps its findings, or its turn to be scanned."""
        waiting = {spec.original_name for spec in self._unscanned}
        scanned = {name: spec for name, spec in self._specs.items() if name not in waiting}
        self._specs = {spec.original_name: spec for spec in specs}
        self._unscanned = deque(spec for name, spec in self._specs.items() if scanned.get(name) is not spec)
        self._budget = ScanBudget()
        for name in [one for one in self._in_definitions if self._specs.get(one) is not scanned.get(one)]:
            del self._in_definitions[name]

    def _found_in_definitions(self) -> Iterator[Finding]:
        """Yield the findings in the definitions, in the order of the list, after scanning those that were not yet."""
        self.scan()
        return chain.from_iterable(self._in_definitions.get(name, ()) for name in self._specs)

    def _compared(self, specs: Sequence[ToolSpec]) -> PinVerdict:
        config = self._config
        if config.pins == "off" or (config.pins is None and config.source is None):
            return PinVerdict()
        if self._lock is None:
            self._lock = LockFileReader(lock_path(config))
        try:
            pins = self._lock.read()
        except ConfigError as error:
            reason = f"the pins of server {config.name!r} cannot be read: {error}"
            withheld = {spec.original_name: reason for spec in specs} if config.pins == "block" else {}
            return PinVerdict(withheld=withheld, problems=(reason,))
        mode = config.pins or ("warn" if config.name in pins.servers else "off")
        verdict = enforce(pins, mode, config.name, specs, self.identity)
        if mode != "off" and config.name not in pins.servers:
            text = f"nothing of it is pinned in {self._lock.path}; `toolweave pin {config.name}` pins what there is"
            return PinVerdict(changes=verdict.changes, withheld=verdict.withheld, problems=(text,))
        return verdict


def _reason(server: str, tool: str, change: PinChange) -> str:
    if change.kind == "server":
        return (
            f"tool {tool!r} of server {server!r} is withheld: {change.text}; "
            f"`toolweave pin {server} --update` allows it"
        )
    return (
        f"tool {tool!r} of server {server!r} is withheld: {change.text}; `toolweave pin check` shows the difference, "
        f"`toolweave pin allow {server}:{tool}` allows it (its pins are in {LOCK})"
    )


def _problem(change: PinChange, withheld: Mapping[str, str]) -> str:
    kept = " (withheld)" if change.tool in withheld or (change.kind == "server" and withheld) else ""
    lines = change.diff() if change.kind in ("changed", "renamed", "server", "version") else []
    more = len(lines) - _DIFF_LINES
    shown = [*lines[:_DIFF_LINES], *([f"... {more} more lines, see `toolweave pin check`"] if more > 0 else [])]
    return "\n".join([f"{change.text}{kept}", *(f"  {line}" for line in shown)])
