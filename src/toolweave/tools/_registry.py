"""A mutable toolset: functions and tools that are added and removed at run time.

Whole toolsets are joined by `combined`.
"""

from __future__ import annotations

import logging
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal, TypeAlias, cast, get_args

from toolweave._json_types import Json, only_members
from toolweave._option_checks import check_choice, type_error
from toolweave.errors import DuplicateToolError, ErrorKind, SchemaError
from toolweave.protocol.component_meta import DEPRECATED, version_key, versioned, with_versions
from toolweave.tools._call import CallContext, ToolCall
from toolweave.tools._function import check_tool, is_unbound
from toolweave.tools._function import tool as function_tool
from toolweave.tools._wrappers import RoutingToolset, route_of
from toolweave.tools.names import free_name, unknown_tool
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import Listeners, Tool, ToolList, ToolsChanged, Toolset, ToolSnapshot, Unsubscribe

_log = logging.getLogger("toolweave.tools")

OnConflict: TypeAlias = Literal["error", "skip", "rename", "replace"]
"""The policy for a tool whose name is taken."""


@dataclass(slots=True, kw_only=True)
class Alias:
    """Another name of a tool.

    Attributes:
        name: The other name.
        target: The name it stands for.
        deprecated: The warning for its users, or None when both names are fine.
        sunset: The day from which on it is refused, in UTC, or None.
        uses: Calls made by this name.
    """

    name: str
    target: str
    deprecated: str | None = None
    sunset: date | None = None
    uses: int = 0

    @property
    def notice(self) -> Json | None:
        """The notice for callers (`_meta["io.toolweave/deprecated"]`), or None if both names are fine."""
        if self.deprecated is None and self.sunset is None:
            return None
        made: Json = {"name": self.name, "use": self.target}
        made["message"] = self.deprecated or f"use {self.target!r}"
        if self.sunset is not None:
            made["sunset"] = self.sunset.isoformat()
        return made

    @property
    def is_over(self) -> bool:
        """Whether its day has come."""
        return self.sunset is not None and datetime.fromtimestamp(time.time(), UTC).date() >= self.sunset


def _day(sunset: object) -> date | None:
    """Return the day of a sunset in UTC; a time is not compared with days, and a call would fail by it."""
    if isinstance(sunset, datetime):
        return (sunset if sunset.tzinfo is None else sunset.astimezone(UTC)).date()
    if sunset is None or isinstance(sunset, date):
        return sunset
    raise type_error("sunset", sunset, "a date")


class ToolRegistry(RoutingToolset):
    """A `Toolset` of functions and tools that are added and removed at run time.

        registry = ToolRegistry([area])
        result = await registry.execute("area", {"width": 3})

    Entering it opens nothing: a connection is opened and closed by its owner. Several versions of one name may be
    there: the newest is listed and called, an older one is called as `add@1.2`.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = (), *, on_conflict: OnConflict = "error") -> None:
        check_choice("on_conflict", on_conflict, get_args(OnConflict))
        self._on_conflict: OnConflict = on_conflict
        self._tools: dict[str, tuple[ToolSpec, Tool]] = {}
        self._aliases: dict[str, Alias] = {}
        # By name and by versioned name.
        self._older: dict[str, dict[str, tuple[ToolSpec, Tool]]] = {}
        # A tool's definition, and as it is shown.
        self._as_shown: dict[str, tuple[ToolSpec, ToolSpec]] = {}
        self._listeners = Listeners()
        # None: changed, and made again on request.
        self._snapshot: ToolSnapshot | None = ToolSnapshot()
        self._version = 0
        for item in tools:
            self._insert(item, on_conflict)
        # All the tools that it begins with are its first version.
        self._version = min(self._version, 1)

    def add(self, item: Tool | Callable[..., Any], *, on_conflict: OnConflict | None = None) -> Tool:
        """Add a tool or a function and return the tool; also a decorator.

        Args:
            item: A `Tool`, or a function that becomes one as with `@tool`.
            on_conflict: The policy when the name is taken; the registry's by default. A name that has another version
                is not: both stay.

        Raises:
            DuplicateToolError: The name is taken and `on_conflict` is `"error"`.
            SchemaError: The function's signature cannot be described, it is a method without its object, or a schema
                that its author gave is not valid: names the tool, the schema and the JSON pointer.
            TypeError: The item is neither; a whole toolset is joined with `combined(registry, toolset)`.
        """
        check_choice("on_conflict", on_conflict, (*get_args(OnConflict), None))
        return self._insert(item, on_conflict or self._on_conflict)

    def remove(self, name: str) -> Tool:
        """Remove a tool in all its versions, and its aliases, and return the newest.

        A name as `add@1.2` removes that version alone, if it is not the newest.

        Raises:
            KeyError: No tool has this name.
        """
        base = name.rpartition("@")[0]
        if name in self._older.get(base, ()):
            _, older = self._older[base].pop(name)
            self._publish(changed=(base,))
            return older
        if name not in self._tools:
            raise KeyError(unknown_tool(name, self._tools))
        removed = self.get(name)
        assert removed is not None
        del self._tools[name]
        self._older.pop(name, None)
        self._as_shown.pop(name, None)
        self._aliases = {alias.name: alias for alias in self._aliases.values() if alias.target != name}
        self._publish(removed=(name,))
        return removed

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name or alias, or None."""
        spec = self.snapshot().find(name)
        if spec is None:
            return None
        return self._tool(spec)

    @property
    def tools(self) -> ToolList:
        """The tools in the order they were added, as the objects that were given."""
        return ToolList(self._tool(spec) for spec in self.snapshot())

    def list(self) -> ToolList:
        """Return `tools`."""
        return self.tools

    def alias(
        self, name: str, target: str, *, deprecated: str | bool | None = None, sunset: date | None = None
    ) -> Alias:
        """Add another name of a tool.

        Args:
            name: The other name.
            target: The tool's name.
            deprecated: Log a warning at the first use, and warn callers in each result; a text is added to both.
            sunset: The day in UTC from which on calls by the other name are refused; callers see a warning before. The
                name is then deprecated. Of a time, its day counts.

        Raises:
            DuplicateToolError: The other name is taken.
            KeyError: No tool is named `target`.
            TypeError: `sunset` is not a date, or `deprecated` is neither a text nor a boolean.
        """
        if not isinstance(deprecated, str | bool | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise type_error("deprecated", deprecated, "a text, True, False or None")
        sunset = _day(sunset)
        if target not in self._tools:
            raise KeyError(unknown_tool(target, self._tools))
        if name in self._tools or name in self._aliases:
            raise DuplicateToolError(name)
        reason = deprecated if isinstance(deprecated, str) else ""
        needs_reason = deprecated is True or sunset is not None
        if needs_reason and not reason:
            reason = f"use {target!r}"
        made = self._aliases[name] = Alias(name=name, target=target, deprecated=reason or None, sunset=sunset)
        self._publish(changed=(target,))
        return made

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """The aliases by name, with the number of their uses."""
        return dict(self._aliases)

    def route(self, name: str) -> tuple[Toolset, str] | None:
        """Return where a call by this name ends; see `RoutingToolset.route`. It counts how often an alias is used."""
        entry = self._tools.get(name)
        if entry is None:
            spec = self.snapshot().find(name)
            if spec is None:
                return None
            alias = self._aliases.get(name)
            if alias is not None and alias.notice is not None:
                return self, name  # its results have a notice
            if alias is not None:
                self._count(alias)
            entry = self._entry(spec.name)
        tool = entry[1]
        return route_of(tool.toolset, tool.spec.name)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool; see `Toolset.call`. A deprecated name is refused from its sunset on."""
        alias = self._aliases.get(call.name)
        if alias is None or call.name in self._tools:
            notice = None
        else:
            notice = alias.notice
        if alias is None or notice is None:
            return await super().call(call, ctx)
        self._count(alias)
        if alias.is_over:
            text = f"tool name {alias.name!r} is gone since {notice['sunset']}: {notice['message']}"
            result = ToolResult.failure(text, kind=ErrorKind.NOT_FOUND)
        else:
            result = await super().call(call.replace(name=alias.target), ctx)
        meta = {**result.meta, DEPRECATED: notice}
        # A gateway sends the server's result from `raw`, so the notice also has to be there.
        raw = result.raw
        if isinstance(raw, dict):
            raw = {**cast("dict[str, Any]", raw), "_meta": meta}
        return result.replace(meta=meta, raw=raw)

    def snapshot(self) -> ToolSnapshot:
        """Return the definitions in the order they were added."""
        if self._snapshot is None:
            older: dict[str, list[ToolSpec]] = {}
            for name, versions in self._older.items():
                if versions:
                    older[name] = [spec for spec, _ in self._sorted(name)]
            self._snapshot = ToolSnapshot(self._specs(), version=self._version, older=older)
        return self._snapshot

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        return self._listeners.subscribe(listener)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.snapshot().find(name) is not None

    def __repr__(self) -> str:
        return f"ToolRegistry({list(self._tools)!r})"

    def _insert(self, item: Tool | Callable[..., Any], on_conflict: OnConflict) -> Tool:
        item = _checked(item)
        spec = item.spec
        if self._is_another_version(spec):
            return self._insert_version(spec, item)
        taken = ChainMap[str, Any](self._tools, self._aliases)
        if spec.name in taken:
            if on_conflict == "error":
                raise DuplicateToolError(spec.name)
            # "replace" takes the place of a tool, and never that of another tool's alias.
            if on_conflict == "replace" and spec.name in self._aliases:
                raise DuplicateToolError(spec.name)
            if on_conflict == "skip":
                return item
            if on_conflict == "rename":
                spec = spec.replace(name=free_name(spec.name, spec.server, taken))
        before = self._tools.get(spec.name)
        self._tools[spec.name] = (spec, item)
        if before is None:
            self._publish(added=(spec.name,))
        else:
            self._publish(changed=(spec.name,) if before[0] != spec else ())
        return self._tool(spec)

    def _is_another_version(self, spec: ToolSpec) -> bool:
        """Whether a definition is another version of a registered tool."""
        if spec.name not in self._tools:
            return False
        older = self._older.get(spec.name, {})
        known = [one.version for one, _ in (self._tools[spec.name], *older.values())]
        # A tool without a version is replaced and not added to; only a versioned one can have older ones.
        if None in (spec.version, known[0]):
            return False
        return spec.version not in known

    def _insert_version(self, spec: ToolSpec, item: Tool) -> Tool:
        """Add a version of a tool that is there; the newest of all is listed."""
        newest = self._tools[spec.name]
        added = (spec, item)
        if version_key(spec.version or "") > version_key(newest[0].version or ""):
            self._tools[spec.name], added = added, newest
        own, tool = added
        name = versioned(spec.name, own.version or "")
        self._older.setdefault(spec.name, {})[name] = (own.replace(name=name), tool)
        self._publish(changed=(spec.name,))
        return item

    def _sorted(self, name: str) -> list[tuple[ToolSpec, Tool]]:
        """Return the older versions of a tool, newest first."""
        found = self._older.get(name)
        if found:
            return sorted(found.values(), key=lambda one: version_key(one[0].version or ""), reverse=True)
        return []

    def _entry(self, name: str) -> tuple[ToolSpec, Tool]:
        """Return the definition and the tool of an exposed name, or of one as `add@1.2`."""
        if name in self._tools:
            return self._tools[name]
        return self._older[name.rpartition("@")[0]][name]

    def _tool(self, spec: ToolSpec) -> Tool:
        own, tool = self._entry(spec.name)
        if own is tool.spec:
            return tool
        return Tool(own, self)

    def _publish(
        self, *, added: tuple[str, ...] = (), removed: tuple[str, ...] = (), changed: tuple[str, ...] = ()
    ) -> None:
        """Publish a change, in constant time; the snapshot is built when it is next requested."""
        self._version += 1
        # Not built at once: a program that adds a thousand tools would build a thousand lists.
        self._snapshot = None
        self._listeners.emit(ToolsChanged(added=added, removed=removed, changed=changed, version=self._version))

    def _specs(self) -> Iterator[ToolSpec]:
        also: dict[str, list[str]] = {}
        for alias in self._aliases.values():
            also.setdefault(alias.target, []).append(alias.name)
        for name, (spec, _) in self._tools.items():
            plain = name not in also and not self._older.get(name)
            yield spec if plain else self._shown(spec, (*spec.aliases, *also.get(name, ())))

    def _shown(self, spec: ToolSpec, aliases: tuple[str, ...]) -> ToolSpec:
        """Return a definition with its aliases and versions; the same object while it is equal: others cache it."""
        versions = [one.version or "" for one, _ in self._sorted(spec.name)]
        meta = with_versions(spec.meta, [spec.version or "", *versions])
        own = only_members(self._aliases, aliases).values()
        notices = [alias.notice for alias in own if alias.notice is not None]
        if notices:
            meta = {**meta, DEPRECATED: notices}
        shown = spec.replace(aliases=aliases, meta=meta)
        # Others cache by the identity of a definition, so an equal one must stay the same object.
        known = self._as_shown.get(spec.name)
        if known is not None and known[0] is spec and known[1] == shown:
            return known[1]
        self._as_shown[spec.name] = (spec, shown)
        return shown

    def _count(self, alias: Alias) -> None:
        alias.uses += 1
        if alias.deprecated is not None and alias.uses == 1:
            when = "gone since" if alias.is_over else "goes away on"
            if alias.sunset is not None:
                until = f" ({when} {alias.sunset.isoformat()})"
            else:
                until = ""
            _log.warning("tool name %r is deprecated%s: %s", alias.name, until, alias.deprecated)


def _checked(item: Tool | Callable[..., Any]) -> Tool:
    """Return a tool, or that of a function, that can be offered; see `ToolRegistry.add`."""
    if not isinstance(item, Tool):
        if not callable(item):
            raise no_tools(item, "a Tool or a function, or join a whole toolset with `combined`")
        item = function_tool(item)
    if is_unbound(item):
        raise SchemaError(f"function {item.name!r} needs its self: pass the method of an object")
    if item.spec.server is None:
        # A server's are judged where its tools are listed.
        check_tool(item)
    return item


def no_tools(item: object, wanted: str) -> TypeError:
    """Return the error for an object that offers no tools, such as a connection that was not awaited."""
    if hasattr(item, "__await__"):
        return TypeError(f"{item!r} offers no tools yet; give what awaiting it returns")
    return TypeError(f"an object of type {type(item).__name__} offers no tools; give {wanted}")
