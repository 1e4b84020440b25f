"""Pins while a program runs: new or changed definitions are reported, or withheld until they are allowed.

The lock file is read again when it changed, so that an allowed definition appears with the next listing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from toolweave._json_types import JsonObject, as_object
from toolweave._value import Value
from toolweave.config import ServerConfig
from toolweave.definitions._definition import OfferPart
from toolweave.definitions._drift import PinChange, drift, identity_drift, instructions_drift, offer_drift
from toolweave.definitions._pins import LOCK, PinnedServer, Pins, ServerIdentity, lock_path
from toolweave.definitions._scan import Finding, ScanBudget, scan_tool
from toolweave.errors import ConfigError
from toolweave.protocol.uris import has_parts_in_order, normal_uri
from toolweave.tools import ToolSpec, aliases

PinMode: TypeAlias = Literal["off", "warn", "block"]
"""Nothing is compared; differences are reported; differing definitions are also withheld."""

_MAX_PROBLEMS = 200
_DIFF_LINES = 8
_WITHHELD = frozenset({"added", "changed", "renamed"})
_AGAINST = _WITHHELD | {"server"}
_EXPRESSION = re.compile(r"\{[^{}]*\}")
"""A variable of a URI template."""


class PinVerdict(Value, frozen=True, kw_only=True):
    """The outcome of a comparison with the pins.

    Attributes:
        changes: The differences.
        withheld: The definitions that may not be used, by their own names, each with the reason.
        problems: The differences in words, each with a diff.
    """

    changes: Sequence[PinChange] = ()
    withheld: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    problems: Sequence[str] = ()


class LockFileReader:
    """The pins in a lock file, read again when the file changed."""

    __slots__ = ("_known", "_pins", "path")

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._known: tuple[int, int, int] | None = None
        self._pins = Pins()

    def read(self) -> Pins:
        """Return the pins of the file as it is now; none without a file.

        Raises:
            ConfigError: The file cannot be read, or is not a lock file.
        """
        try:
            status = self.path.stat()
        except OSError:
            self._known = None
            return Pins()
        # A file that is replaced within one tick of the clock has another inode, and one that is rewritten in place
        # nearly always another size.
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
        pins: The trusted definitions.
        mode: Whether what differs is withheld.
        server: The server's name in the config.
        specs: Its definitions.
        identity: The known identity of the server; if it is another one, all its tools are withheld.
    """
    if mode == "off":
        return PinVerdict()
    changes = drift(server, pins.servers.get(server), identity, specs)
    return _verdict(mode, changes, [spec.original_name for spec in specs])


def _server_change(changes: Iterable[PinChange]) -> PinChange | None:
    """Return the difference that makes a server another one than the pinned, if there is one."""
    for change in changes:
        if change.kind == "server":
            return change
    return None


def _verdict(mode: PinMode, changes: Sequence[PinChange], names: Iterable[str]) -> PinVerdict:
    """Return the outcome for the definitions of one part: the differences, and the names that are withheld."""
    withheld: dict[str, str] = {}
    if mode == "block":
        another = _server_change(changes)
        # Another server has no trusted definitions at all, so all of its names are withheld, equal or not.
        if another is not None:
            withheld = dict.fromkeys(names, another_server(another))
        for change in changes:
            if change.kind in _WITHHELD:
                withheld[change.name] = _reason(change)
    problems = [_problem(change, withheld) for change in changes[:_MAX_PROBLEMS]]
    if len(changes) > _MAX_PROBLEMS:
        problems.append(f"{len(changes) - _MAX_PROBLEMS} more differences from the pins")
    return PinVerdict(changes=changes, withheld=withheld, problems=problems)


class ServerGuard:
    """Checks the definitions of one server: compares them with the pins at once, and scans them when asked to.

    A finding withholds nothing, so no listing waits for the scan: `scan` goes through the definitions step by step,
    and a reader of the findings gets all of them at any time.

    Attributes:
        identity: The known identity of the server; set after each handshake.
        verdict: The outcome of the last comparison with the pins.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.identity: ServerIdentity = ServerIdentity(origin="")
        self.verdict: PinVerdict = PinVerdict()
        self._config = config
        self._capabilities: JsonObject = {}
        self._instructions: str | None = None
        self._offers: dict[OfferPart, PinVerdict] = {}
        self._offered: dict[OfferPart, frozenset[str]] = {}
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
        """The findings in words: the first 200 in definitions, and those in results."""
        return tuple(map(str, (*islice(self._found_in_definitions(), _MAX_PROBLEMS), *self._in_results.values())))

    @property
    def is_scanned(self) -> bool:
        """Whether the scan has read all definitions as they are now."""
        return not self._unscanned

    @property
    def changes(self) -> tuple[PinChange, ...]:
        """The differences from the pins, as far as the server was listed: of itself, its tools and the rest."""
        verdicts = (self.verdict, self._judged_instructions(), *self._offers.values())
        return tuple(chain.from_iterable(verdict.changes for verdict in verdicts))

    @property
    def pin_problems(self) -> tuple[str, ...]:
        """The same as texts, each with a diff."""
        verdicts = (self.verdict, self._judged_instructions(), *self._offers.values())
        return tuple(dict.fromkeys(text for verdict in verdicts for text in verdict.problems))

    @property
    def pinned_as(self) -> tuple[str, ...]:
        """Other names under which the lock file has pins of this server, if it has none under its own."""
        found = self._pins(())
        if isinstance(found, PinVerdict):
            return ()
        if not self.identity.name:
            return ()
        pinned = found[1].servers
        if self._config.name in pinned:
            return ()
        names: list[str] = []
        for name, server in pinned.items():
            if (server.identity.name, server.identity.origin) == (self.identity.name, self.identity.origin):
                names.append(name)
        return tuple(names)

    @property
    def instructions(self) -> str | None:
        """The server's instructions, or None if it has none or they are withheld."""
        if self._judged_instructions().withheld:
            return None
        return self._instructions

    def identify(
        self,
        server_info: JsonObject,
        capabilities: JsonObject | None = None,
        instructions: str | None = None,
    ) -> None:
        """Note the result of a handshake: the server's own name and version, its capabilities and instructions."""
        self._instructions = instructions
        self._capabilities = capabilities or {}
        if self._config.pins != "off":
            self.identity = ServerIdentity.of(self._config, server_info)

    def judge(self, specs: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
        """Return the definitions that may be offered, and the differences from the pins; scan none of them yet."""
        if self._config.scan:
            self._hold(specs)
        self.verdict = self._compared(specs)
        withheld = self.verdict.withheld
        if withheld:
            offered = tuple(spec for spec in specs if spec.original_name not in withheld)
        else:
            offered = specs
        return offered, (*self.verdict.problems, *self._judged_instructions().problems)

    def judge_offers(
        self, part: OfferPart, definitions: Mapping[str, JsonObject]
    ) -> tuple[Mapping[str, str], tuple[str, ...]]:
        """Compare listed prompts, resources or templates with the pins.

        Args:
            part: Which of these.
            definitions: Their definitions by name.

        Returns:
            The names that are withheld, each with the reason, and the differences as texts.
        """
        verdict = self._offers[part] = self._compared_offers(part, definitions)
        self._offered[part] = frozenset(name for name in definitions if name not in verdict.withheld)
        return verdict.withheld, tuple(verdict.problems)

    def offer_refusal(self, part: OfferPart, name: str) -> str | None:
        """Return why a prompt, a resource or a template may not be used, or None if nothing is against it.

        Of a resource that no list names, the templates are judged that it may be of: its content is not pinned, and no
        pin could allow it.
        """
        if not self.blocks:
            return None
        found = self._pins([name])
        if isinstance(found, PinVerdict):
            return found.withheld.get(name)
        another = _server_change(self._identity_changes())
        if another is not None:
            return another_server(another)
        if part != "resource":
            return self._refusal_of_listed(part, name)
        return self._refusal_of_resource(name)

    def _refusal_of_resource(self, name: str) -> str | None:
        """Return why a resource may not be used. Offered definitions win: one name may fit several templates."""
        uri = normal_uri(name)
        if uri in map(normal_uri, self._offered.get("resource", ())):
            return None
        for one, reason in self._withheld("resource").items():
            if normal_uri(one) == uri:
                return reason
        if any(matches_template(one, name) for one in self._offered.get("template", ())):
            return None
        for template, reason in self._withheld("template").items():
            if matches_template(template, name):
                return reason
        return None

    def _refusal_of_listed(self, part: OfferPart, name: str) -> str | None:
        """Return why a prompt or a template may not be used: one that is not listed cannot be pinned."""
        reason = self._withheld(part).get(name)
        if reason is not None or name in self._offered.get(part, ()):
            return reason
        found = self._pins(())
        if isinstance(found, PinVerdict):
            pinned = None
        else:
            pinned = found[1].servers.get(self._config.name)
        if pinned is not None and pinned.listed(part) is None:
            return None  # it is not compared
        noun = "resource template" if part == "template" else part
        return f"{noun} {name!r} of server {self._config.name!r} is not pinned, so it is not used"

    def _withheld(self, part: OfferPart) -> Mapping[str, str]:
        verdict = self._offers.get(part)
        if verdict is None:
            return {}
        return verdict.withheld

    def scan(self, most: int | None = None) -> None:
        """Scan the definitions that were not scanned yet: at most so many of them, or all."""
        for _ in range(len(self._unscanned) if most is None else most):
            try:
                spec = self._unscanned.popleft()
            except IndexError:
                # The last one: a thread that reads the findings may have taken some of them.
                return
            if found := scan_tool(spec, self._budget):
                self._in_definitions[spec.original_name] = found

    def note_result(self, findings: Iterable[Finding]) -> list[Finding]:
        """Keep the findings of a result, once for each tool and kind; return the new ones."""
        new: list[Finding] = []
        room = _MAX_PROBLEMS - len(self._in_results)
        for finding in findings:
            key = (finding.tool, finding.kind)
            if key not in self._in_results and len(new) < room:
                self._in_results[key] = finding
                new.append(finding)
        return new

    def refusal(self, name: str) -> str | None:
        """Return why a tool may not be called by this name or alias, or None if nothing is known against it."""
        for own, reason in self.verdict.withheld.items():
            # All names by which a call can reach the tool: otherwise a withheld tool could be called by its alias.
            prefix = self._config.tool_prefix or ""
            if name in (own, prefix + own, *aliases(self._config.name, own)):
                return reason
        return None

    @property
    def blocks(self) -> bool:
        """Whether only pinned definitions may be used."""
        return self._config.pins == "block"

    @property
    def compares(self) -> bool:
        """Whether the server may have pins: not one whose pins are off, or that no file configures."""
        if self._config.pins is None:
            return self._config.source is not None
        return self._config.pins != "off"

    @property
    def original_instructions(self) -> str | None:
        """The server's instructions, withheld or not."""
        return self._instructions

    def _hold(self, specs: Iterable[ToolSpec]) -> None:
        """Replace the definitions; one that is the same as before keeps its findings, or its turn to be scanned."""
        scanned = dict(self._specs)
        for spec in self._unscanned:
            del scanned[spec.original_name]
        self._specs = {spec.original_name: spec for spec in specs}
        self._unscanned = deque(spec for name, spec in self._specs.items() if scanned.get(name) is not spec)
        self._budget = ScanBudget()
        for name in tuple(self._in_definitions):
            if self._specs.get(name) is not scanned.get(name):
                del self._in_definitions[name]

    def _found_in_definitions(self) -> Iterator[Finding]:
        """Yield the findings in the definitions, in the order of the list, after scanning those that were not yet."""
        self.scan()
        return chain.from_iterable(self._in_definitions.get(name, ()) for name in self._specs)

    def _compared(self, specs: Sequence[ToolSpec]) -> PinVerdict:
        names = [spec.original_name for spec in specs]
        found = self._pins(names)
        if isinstance(found, PinVerdict):
            return found
        mode, pins = found
        name = self._config.name
        verdict = enforce(pins, mode, name, specs, self.identity)
        if mode != "off" and name not in pins.servers:
            assert self._lock is not None
            text = f"nothing of it is pinned in {self._lock.path}; `toolweave pin {name}` pins what there is"
            return PinVerdict(changes=verdict.changes, withheld=verdict.withheld, problems=(text,))
        if mode == "off":
            return verdict
        unpinned = self._unpinned_parts(pins.servers[name])
        if unpinned:
            if len(unpinned) > 1:
                listed = f"{', '.join(unpinned[:-1])} and {unpinned[-1]}"
            else:
                listed = unpinned[0]
            text = f"its {listed} are not pinned, so they are not compared; `toolweave pin {name}` pins them"
            return verdict.replace(problems=(*verdict.problems, text))
        return verdict

    def _compared_offers(self, part: OfferPart, definitions: Mapping[str, JsonObject]) -> PinVerdict:
        found = self._pins(definitions)
        if isinstance(found, PinVerdict):
            return found
        mode, pins = found
        name = self._config.name
        if mode == "off":
            return PinVerdict()
        pinned = pins.servers.get(name)
        changes = offer_drift(name, pinned or PinnedServer.nothing(), part, definitions)
        verdict = _verdict(mode, [*identity_drift(name, pinned, self.identity), *changes], definitions)
        # The tools' verdict has the server's own differences, and the one text for a server without pins.
        if pinned is None:
            problems = ()
        else:
            problems = [_problem(one, verdict.withheld) for one in changes[:_MAX_PROBLEMS]]
        return PinVerdict(changes=changes, withheld=verdict.withheld, problems=problems)

    def _judged_instructions(self) -> PinVerdict:
        """Compare the instructions with the pins; the lock may have changed since the handshake."""
        found = self._pins(["instructions"])
        if isinstance(found, PinVerdict):
            # The tools' verdict has the text.
            return PinVerdict(withheld=found.withheld)
        mode, pins = found
        if mode == "off":
            return PinVerdict()
        name = self._config.name
        pinned = pins.servers.get(name)
        changes = instructions_drift(name, pinned or PinnedServer.nothing(), self._instructions or "")
        withheld: dict[str, str] = {}
        if mode == "block":
            for change in (*self._identity_changes(), *changes):
                if change.kind in _AGAINST:
                    withheld["instructions"] = _reason(change)
                    break
        if pinned is None:
            problems = ()
        else:
            problems = [_problem(one, withheld) for one in changes]
        return PinVerdict(changes=changes, withheld=withheld, problems=problems)

    def _identity_changes(self) -> Sequence[PinChange]:
        found = self._pins(())
        if isinstance(found, PinVerdict):
            return ()
        name = self._config.name
        return identity_drift(name, found[1].servers.get(name), self.identity)

    def _pins(self, names: Iterable[str]) -> tuple[PinMode, Pins] | PinVerdict:
        """Return the mode and the pins as they are now; a verdict about these names if they cannot be read."""
        config = self._config
        if not self.compares:
            return PinVerdict()
        if self._lock is None:
            self._lock = LockFileReader(lock_path(config))
        try:
            pins = self._lock.read()
        except ConfigError as error:
            reason = f"the pins of server {config.name!r} cannot be read: {error}"
            # Only what is pinned may be used, and an unreadable lock proves no pin. In the other modes it is only
            # reported, so that a broken file does not stop the server.
            if config.pins == "block":
                withheld = dict.fromkeys(names, reason)
            else:
                withheld = {}
            return PinVerdict(withheld=withheld, problems=(reason,))
        # Without a setting, a server is compared once it has pins: to pin it is to ask for that.
        return config.pins or ("warn" if config.name in pins.servers else "off"), pins

    def _unpinned_parts(self, pinned: PinnedServer) -> list[str]:
        """Return the parts that the server has and its pins do not know, such as those of an older lock."""
        found: list[str] = []
        if pinned.instructions is None and self._instructions:
            found.append("instructions")
        if pinned.prompts is None and as_object(self._capabilities.get("prompts")) is not None:
            found.append("prompts")
        lacks_resources = pinned.resources is None or pinned.templates is None
        if lacks_resources and as_object(self._capabilities.get("resources")) is not None:
            found.append("resources")
        return found


def matches_template(template: str, uri: str) -> bool:
    """Whether a URI may be of a template: its literal parts stand in it, in their order. Linear in both."""
    parts = _EXPRESSION.split(template)
    if len(parts) == 1:
        return normal_uri(uri) == normal_uri(template)
    return has_parts_in_order(uri, parts)


def another_server(change: PinChange) -> str:
    """Return the reason why nothing of a server may be used that is another than the pinned one."""
    return f"server {change.server!r} is withheld: {change.text}; `toolweave pin {change.server} --update` allows it"


def _reason(change: PinChange) -> str:
    server = change.server
    name = change.name
    if change.kind == "server":
        return another_server(change)
    if change.part == "instructions":
        subject = "the instructions"
        allowed = f"toolweave pin allow {server} --kind instructions"
    elif change.part == "tool":
        subject = f"tool {name!r}"
        allowed = f"toolweave pin allow {server}:{name}"
    else:
        subject = f"{change.part} {name!r}"
        allowed = f"toolweave pin allow {server}:{name} --kind {change.part}"
    return (
        f"{subject} of server {server!r} {'are' if change.part == 'instructions' else 'is'} withheld: {change.text}; "
        f"`toolweave pin check` shows the difference, `{allowed}` allows it (its pins are in {LOCK})"
    )


def _problem(change: PinChange, withheld: Mapping[str, str]) -> str:
    key = "instructions" if change.part == "instructions" else change.name
    is_withheld = key in withheld
    if change.kind == "server":
        # Another server costs all names, so its own difference has no name to look for.
        is_withheld = bool(withheld)
    text = change.text
    if is_withheld:
        text += " (withheld)"
    lines: list[str] = []
    if change.part == "instructions" or change.kind in ("changed", "renamed", "server", "version"):
        lines = change.diff()
    for line in lines[:_DIFF_LINES]:
        text += f"\n  {line}"
    if len(lines) > _DIFF_LINES:
        text += f"\n  ... {len(lines) - _DIFF_LINES} more lines, see `toolweave pin check`"
    return text
