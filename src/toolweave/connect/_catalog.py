"""The current tools of one connection: snapshots, changes and validators.

Lists through a given session and caches; knows nothing of how the session was opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.config import ServerConfig
from toolweave.connect._feed.list_cache import ListChanged, LiveList
from toolweave.connect._feed.list_reader import ParsedList, SendRequest, ToolRefusal, tool_reader
from toolweave.connect._repairs import Repairs
from toolweave.definitions import scan_result
from toolweave.definitions._enforcement import ServerGuard
from toolweave.definitions._scan import is_plain_result
from toolweave.errors import ErrorKind, SchemaError, ToolError
from toolweave.protocol.eras import RESULT, WRAP_MARK
from toolweave.protocol.skipped_parts import SkippedPart, skipped_parts_in
from toolweave.schema import Validator
from toolweave.schema._pydantic_models import loader_for_schema
from toolweave.schema._type_loader import TypeLoader
from toolweave.schema.fitting import fitted
from toolweave.tools import CallContext, ToolResult, ToolsChanged, ToolSnapshot, ToolSpec
from toolweave.tools.names import ANY_TOOL, selected, unmatched
from toolweave.tools.result import invalid_input
from toolweave.tools.spec import is_destructive

if TYPE_CHECKING:
    from toolweave.definitions._argument_rules import ShapedCalls
    from toolweave.definitions._rules import Shaper

_log = logging.getLogger("toolweave.connect")
_QUIET_SECONDS = 0.1
_MAX_RESTLESS_SECONDS = 3.0
_UNKNOWN = object()
"""Takes the place of a schema that was not compiled yet; None is a schema that a tool does not have."""
_SCANNED_AT_ONCE = 50
"""Definitions between two turns of the event loop, about half a millisecond."""


class CallTarget(Value, frozen=True):
    """The facts about a tool that a call needs, looked up once for all calls until the next listing.

    Attributes:
        name: The name to send.
        spec: None for a tool that is not listed.
        schema: Its input schema, as the server has it.
        check: The validator of the arguments, or None.
        has_execution: Whether its definition has an `execution` member.
        repairs: Whether arguments that nearly fit are made to fit.
        shaped: Makes the arguments that the server takes, and checks them, instead of `check`; None without rules.
        note: Called with the server's name of the tool, and the kinds of changes of repaired arguments.
    """

    name: str
    spec: ToolSpec | None = None
    schema: JsonObject | None = None
    check: Validator | None = None
    has_execution: bool = False
    repairs: bool = True
    shaped: ShapedCalls | None = None
    note: Callable[[str, Sequence[str]], None] | None = None

    def sent(self, arguments: JsonObject, ctx: CallContext) -> JsonObject | ToolResult:
        """Return the arguments that the server takes, or the error result for wrong ones."""
        spec = self.spec
        check = self.check
        shaped = self.shaped
        if check is not None and not check.is_valid(arguments):
            return self._fitted(check, arguments)
        if spec is None or shaped is None:
            return arguments
        try:
            return shaped.arguments(spec, arguments, ctx)
        except ToolError as error:
            return ToolResult.failure(error)

    def _fitted(self, check: Validator, arguments: JsonObject) -> JsonObject | ToolResult:
        """Return arguments that the schema refuses as the server takes them, or the error result."""
        found = fitted(check, arguments) if self.repairs else None
        if found is not None:
            repaired, kinds = found
            if self.note is not None:
                self.note(self.name, kinds)
            return repaired
        problems = check.problems(arguments)
        if problems:
            # the caller's name of the tool, which a prefix or a rule may have made
            name = self.name if self.spec is None else self.spec.name
            return invalid_input(name, problems)
        return arguments


class Catalog:
    """One server's tools: an immutable snapshot that is replaced as a whole.

    The caches of validators, loaders and call targets belong to one snapshot. They are cleared with its replacement,
    in the same turn of the event loop, so a call never meets the schema of another listing. Those of schemas are
    compared with the schema too, since a versioned call brings another one.

    `on_change` is called once after every change of the snapshot, for any caller that requested the listing.

    Attributes:
        snapshot: The current tools; version 0 before the first listing.
        live: The list behind it.
        repairs: What the server sent outside of the specification.
        argument_repairs: What callers sent outside of the schemas of its tools.
        guard: Checks the listed tools against the pins and the scan.
        excluded_tools: The reasons why the config leaves tools out, by the server's names.
        filter_problems: The names in `include`, `exclude` and `confirm` that are of no tool, each with the nearest.
    """

    def __init__(self, config: ServerConfig, on_change: Callable[[ToolsChanged], None]) -> None:
        self.snapshot: ToolSnapshot = ToolSnapshot()
        self.repairs: Repairs = Repairs(config.name, config.redact, refuse=not config.repair_messages)
        self.live: LiveList[ToolSpec] = LiveList(
            config.name,
            "tools",
            identity=lambda spec: spec.name,
            judge=self._judge,
            on_change=self._swap,
            max_bytes=config.max_list_bytes,
            note=self.repairs.note,
            redact=config.redact,
        )
        self.guard: ServerGuard = ServerGuard(config)
        self.argument_repairs: Repairs = Repairs(config.name, config.redact)
        self._config = config
        self._on_change = on_change
        self.excluded_tools: dict[str, str] = {}
        self.filter_problems: tuple[str, ...] = ()
        self._read: dict[str, ToolSpec] = {}
        self._shaper: Shaper | None = None
        self._shaped_calls: ShapedCalls | None = None
        if config.shape:
            from toolweave.definitions._argument_rules import ShapedCalls  # for servers with rules
            from toolweave.definitions._rules import Shaper

            self._shaper = Shaper(config.shape, prefix=config.tool_prefix or "")
            self._shaped_calls = ShapedCalls(validate=config.validate_input, repair=config.repair_arguments)
        self._by_original: dict[str, ToolSpec] = {}
        self._loads: dict[str, tuple[object, TypeLoader | None]] = {}
        self._validators: dict[tuple[str, str], tuple[object, Validator | None]] = {}
        self._call_targets: dict[str, CallTarget] = {}
        self._was_listed = anyio.Event()
        self._logged: set[str] = set()

    @property
    def fresh(self) -> bool:
        """Whether the snapshot may be used without asking the server again."""
        return self.live.fresh

    @property
    def problems(self) -> tuple[str, ...]:
        """The entries left out of the last listing or withheld, and suspicious ones and results, with the reasons."""
        found = (*self.live.problems, *self.guard.problems)
        return (*found, *self.repairs.problems, *self.argument_repairs.problems)

    @property
    def skipped_by_server(self) -> tuple[SkippedPart, ...]:
        """The tools that the server says it leaves out of the last listing, with its reasons."""
        return skipped_parts_in(self.live.members.get("_meta"))

    @property
    def pages(self) -> int:
        """The number of requests of the last listing."""
        return self.live.pages

    def find(self, name: str) -> ToolSpec | None:
        """Return the tool of this exposed name, alias or original name."""
        return self.snapshot.find(name) or self._by_original.get(name)

    def call_target(self, name: str, version: str | None = None) -> CallTarget:
        """Return the facts about the tool that `find` returns for a name; only the name for an unlisted tool.

        So for another version than the one that is listed, whose definition only the server knows.

        Raises:
            ToolError: The tool is withheld.
        """
        # Asked first, without the cache: a versioned call must not be answered with the target of the newest one.
        if version is not None:
            newest = self.call_target(name)
            if newest.spec is None or newest.spec.version == version:
                return newest
            if newest.shaped is not None:
                return newest  # rules hold for every version
            return CallTarget(newest.name)
        # One lookup for each call after the first. The cache belongs to the snapshot and is cleared with it, in one
        # turn of the event loop. Names that are not listed are not cached: callers could fill it with any.
        known = self._call_targets.get(name)
        if known is not None:
            return known
        spec = self.find(name)
        if spec is None:
            self._check_unlisted(name)
            return CallTarget(name)
        own = spec.unshaped
        shaped = None if spec.shape is None else self._shaped_calls
        if self._config.validate_input and shaped is None:
            check = self.validator(own, "input")
        else:
            check = None
        made = CallTarget(
            spec.original_name,
            spec,
            own.input_schema,
            check,
            "execution" in spec.raw,
            self._config.repair_arguments,
            shaped,
            self.note_arguments,
        )
        self._call_targets[name] = made
        return made

    def original_target(self, name: str) -> CallTarget:
        """Return the facts about the tool that the server itself calls by this name.

        Raises:
            ToolError: The tool is withheld.
        """
        spec = self._by_original.get(name)
        if spec is None:
            self._check_unlisted(name)
            return CallTarget(name)
        return self.call_target(spec.name)

    def listed_again(self, target: CallTarget) -> CallTarget:
        """Return a target as its server lists it now; as it was if the server does not list it any more."""
        if target.spec is None:
            return target
        listed = self.call_target(target.spec.name)
        if listed.spec is None:
            return target
        return listed

    def lists(self, name: str) -> bool:
        """Whether the server lists a tool that it calls by this name, and it is not withheld."""
        return name in self._by_original

    async def refresh(self, request: SendRequest, refusal: ToolRefusal | None = None) -> ToolsChanged:
        """List all tools again; see `LiveList.refresh`.

        Raises:
            ServerError: The list could not be read; the old snapshot stays.
        """
        return _tools_changed(await self.live.refresh(request, refusal))

    async def scan_definitions(self) -> None:
        """Scan listed definitions in quiet moments, and report the findings that are new, until cancelled.

        Neither the first tool nor a call waits for it, and a list that is replaced at once is not scanned at all. One
        that never rests is scanned every three seconds. Findings that are left are reported on cancellation.
        """
        try:
            while True:
                if self.guard.is_scanned:
                    await self._was_listed.wait()
                with anyio.move_on_after(_MAX_RESTLESS_SECONDS):
                    await self._quiet()
                while not self.guard.is_scanned:
                    self.guard.scan(_SCANNED_AT_ONCE)
                    await anyio.lowlevel.checkpoint()
                self._report_new()
        finally:
            self._report_new()  # a program may be shorter than the wait for a quiet moment

    def _report_new(self) -> None:
        """Report the findings that were not reported yet."""
        found = self.guard.problems
        for problem in found:
            if problem not in self._logged:
                self.live.report(problem)
        self._logged = set(found)

    async def _quiet(self) -> None:
        """Wait until nothing was listed for a moment, and nothing is being listed."""
        while True:
            self._was_listed = anyio.Event()
            await anyio.sleep(_QUIET_SECONDS)
            if not self._was_listed.is_set() and not self.live.is_being_read:
                return

    def validator(self, spec: ToolSpec, which: str) -> Validator | None:
        """Return the compiled `"input"` or `"output"` schema of a tool; None when the schema cannot be used."""
        if which == "input":
            schema = spec.input_schema
        else:
            schema = spec.output_schema
        # Compared by identity: an unchanged definition keeps its object through listings, and a comparison by value
        # could cost more than compiling. `_UNKNOWN` is not a schema, since None and False are.
        known_schema, known = self._validators.get((spec.original_name, which), (_UNKNOWN, None))
        if known_schema is schema:
            return known
        compiled: Validator | None = None
        if schema is not None:
            try:
                compiled = Validator(schema)
            except SchemaError as exc:  # permissive, and logged once
                compiled = self._repaired_validator(spec, which, schema, exc)
        self._validators[spec.original_name, which] = (schema, compiled)
        return compiled

    def _repaired_validator(
        self, spec: ToolSpec, which: str, schema: JsonObject | bool, error: SchemaError
    ) -> Validator | None:
        """Return a validator for the readable part of an invalid schema, and log the rest once."""
        start = f"server {self._config.name!r}: tool {spec.original_name!r}: its {which} schema"
        try:
            compiled, changes = Validator.repaired(schema if isinstance(schema, Mapping) else {})
        except SchemaError:
            _log.warning("%s cannot be used, so nothing is checked against it: %s", start, error)
            return None
        _log.warning("%s is checked without its malformed parts: %s (%s)", start, error, "; ".join(changes))
        return compiled

    def note_arguments(self, name: str, changes: Sequence[str]) -> None:
        """Count the repairs of the arguments of a call.

        Args:
            name: The server's name of the tool.
            changes: The kinds of changes, as `fitted` returned them.
        """
        for change in changes:
            self.argument_repairs.add(f"tool {name!r}: its argument {change}")

    def load(self, spec: ToolSpec) -> TypeLoader | None:
        """Return the cached converter to the types of a tool's output schema; None where that names no type."""
        schema = spec.output_schema
        known_schema, known = self._loads.get(spec.original_name, (_UNKNOWN, None))
        if known_schema is schema:
            return known
        load: TypeLoader | None = None
        if schema is not None:
            load = loader_for_schema(schema, f"{spec.original_name} result", wrap_mark=WRAP_MARK, member=RESULT)
        self._loads[spec.original_name] = (schema, load)
        return load

    async def _judge(self, entries: list[Any], refusal: ToolRefusal | None) -> ParsedList[ToolSpec]:
        config = self._config
        prefix = config.tool_prefix or ""
        reader = tool_reader(
            entries, server=config.name, prefix=prefix, refusal=refusal, known=self._read, note=self.repairs.note
        )
        read = await reader.read_in_steps()
        # Everything that was read, including tools that are left out below: an entry that comes unchanged in the next
        # listing keeps its object, so an unchanged list is recognized by identity.
        self._read = {spec.original_name: spec for spec in read.items}
        self._was_listed.set()
        # Filters, then rules, then pins and scan: what an owner excluded is neither shaped nor scanned. Pins are
        # compared with the server's own words, so that a changed rule of the owner is not taken for a changed server.
        kept = self._kept(read.items)
        wanted = {spec.original_name for spec in kept}
        if config.include:
            why = "'include' does not name it"
        else:
            why = "'exclude' names it"
        self.excluded_tools = {name: why for name in self._read if name not in wanted}
        if self._shaper is None:
            offered, problems = self.guard.judge(kept)
            return ParsedList(items=offered, problems=(*read.problems, *self.filter_problems, *problems))
        shaped = self._shaper.shape(kept)
        own = {spec.name: spec.original_name for spec in kept}
        self.excluded_tools |= {own[name]: reason for name, reason in shaped.hidden.items()}
        # of the server's own words
        offered, problems = self.guard.judge(tuple(spec for spec, _ in shaped.offered))
        allowed = set(map(id, offered))
        items = tuple(made for spec, made in shaped.offered if id(spec) in allowed)
        of_rules = (*self.filter_problems, *shaped.problems, *shaped.unused)
        return ParsedList(items=items, problems=(*read.problems, *of_rules, *problems))

    def _kept(self, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """Return the tools that `include` and `exclude` leave, and note the names in these that are of no tool."""
        config = self._config
        problems = list[str]()
        for field, filters in (("include", config.include), ("exclude", config.exclude), ("confirm", config.confirm)):
            if filters and specs:  # a server without tools may offer some later
                missing = unmatched(filters, self._read, server=config.name)
                problems += [f"{field!r}: {text}" for text in missing]
        self.filter_problems = tuple(problems)
        if config.include or config.exclude:
            specs = tuple(filter(self._is_selected, specs))
        if config.confirm:
            return tuple(map(self._with_approval, specs))
        return specs

    def _is_selected(self, spec: ToolSpec) -> bool:
        config = self._config
        return selected(spec.original_name, include=config.include, exclude=config.exclude, server=config.name)

    def _with_approval(self, spec: ToolSpec) -> ToolSpec:
        modes = self._config.confirm
        mode = modes.get(spec.original_name, modes.get(ANY_TOOL, "never"))
        reads = spec.hint("readOnlyHint") is True
        needed = {"always": True, "writes": not reads, "destructive": is_destructive(spec), "never": False}
        if needed[mode]:
            return spec.replace(needs_approval=True)
        return spec

    def note_result(self, spec: ToolSpec | None, name: str, result: ToolResult) -> None:
        """Look for hidden characters in a result; quick for one without."""
        if not self._config.scan or is_plain_result(result):
            return
        tool = name if spec is None else spec.original_name
        for finding in self.guard.note_result(scan_result(result, tool=tool, server=self._config.name)):
            self._logged.add(str(finding))
            self.live.report(str(finding))

    def _check_unlisted(self, name: str) -> None:
        """Raise `ToolError` for a tool that the server may have, and that this connection withholds or excludes."""
        tool = f"tool {name!r} of server {self._config.name!r}"
        own = name.removeprefix(self._config.tool_prefix or "")
        excluded = self.excluded_tools.get(name, self.excluded_tools.get(own))
        reason = self.guard.refusal(name)
        if reason is None:
            if excluded is not None:
                reason = f"{tool} is not offered: {excluded}"
            elif self.guard.blocks:
                reason = f"{tool} is not pinned, so it is not called"
            else:
                return
        raise ToolError(reason, kind=ErrorKind.DENIED)

    def _swap(self, change: ListChanged) -> None:
        self.snapshot = ToolSnapshot(self.live.items, version=change.version)
        self._by_original = {spec.original_name: spec for spec in self.live.items}
        self._validators.clear()
        self._loads.clear()
        self._call_targets.clear()
        if change:
            self._on_change(_tools_changed(change))


def _tools_changed(change: ListChanged) -> ToolsChanged:
    return ToolsChanged(added=change.added, removed=change.removed, changed=change.changed, version=change.version)
