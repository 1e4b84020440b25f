"""The rules around any toolset: functions, a connection, a hub, the tools of a gateway."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, cast

from toolweave.config import ShapeRule
from toolweave.config._shaping import read_rule
from toolweave.definitions._argument_rules import ShapedCalls
from toolweave.definitions._rules import ShapedTools, Shaper
from toolweave.errors import ErrorKind, ToolError, as_tool_error, printable
from toolweave.tools import CallContext, ToolCall, ToolResult, Toolset, ToolSnapshot, WrapperToolset
from toolweave.tools.names import unknown_tool

_log = logging.getLogger("toolweave.definitions")


class ShapedToolset(WrapperToolset):
    """A toolset whose definitions are shaped by rules; see `shaped`."""

    __slots__ = ("_calls", "_inner", "_logged", "_offered", "_seen", "_shaper", "_tools")

    def __init__(
        self, toolset: Toolset, rules: Iterable[ShapeRule | Mapping[str, Any]], *, where: str = "shape"
    ) -> None:
        super().__init__(toolset)
        given: object = rules
        if isinstance(given, (ShapeRule, Mapping, str)):
            kind = type(cast("object", given)).__name__
            raise TypeError(f"rules are a sequence of rules, not {kind}: put the one into a list")
        read = tuple(read_rule(rule, f"{where}[{index}]") for index, rule in enumerate(rules))
        self._shaper = Shaper(read, where=where)
        self._calls = ShapedCalls()
        self._seen: ToolSnapshot | None = None
        self._tools = ShapedTools()
        self._offered = ToolSnapshot()
        self._inner: dict[str, str] = {}
        self._logged: set[str] = set()

    def around(self, *toolsets: Toolset) -> Toolset | None:
        """Return a copy around another toolset; see `WrapperToolset.around`."""
        made = copy(self)
        made._wrap(toolsets)  # noqa: SLF001 - its own kind
        return made

    def _wrap(self, toolsets: tuple[Toolset, ...]) -> None:
        """Be around another toolset, with nothing known of the one before."""
        self._toolsets = toolsets
        # It remembers definitions of the other toolset.
        self._shaper = copy(self._shaper)
        self._seen = None

    @property
    def problems(self) -> tuple[str, ...]:
        """The rules, and parts of them, that could not be applied or fit nothing, in words."""
        self.snapshot()
        return (*self._tools.problems, *self._tools.unused)

    @property
    def hidden(self) -> Mapping[str, str]:
        """The reasons why tools are not offered, by their names in the toolset."""
        self.snapshot()
        return self._tools.hidden

    def snapshot(self) -> ToolSnapshot:
        """Return the shaped tools; see `Toolset.snapshot`."""
        inner = self._toolsets[0].snapshot()
        if inner is not self._seen:
            self._tools = self._shaper.shape(inner)
            self._warn(self._tools.problems)
            self._inner = {made.name: spec.name for spec, made in self._tools.offered}
            self._offered = ToolSnapshot((made for _, made in self._tools.offered), version=inner.version)
            self._seen = inner
        return self._offered

    def _warn(self, problems: Iterable[str]) -> None:
        """Log each problem once, and again when it recurs; a rule that fits nothing may wait for tools to come."""
        texts = set(problems)
        for text in sorted(texts - self._logged):
            _log.warning("%s", printable(text))
        self._logged = texts

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool with the arguments that its producer takes; see `Toolset.call`."""
        spec = self.snapshot().find(call.name)
        if spec is None:
            return ToolResult.failure(unknown_tool(call.name, self._offered.by_name), kind=ErrorKind.NOT_FOUND)
        toolset = self._toolsets[0]
        name = self._inner[spec.name]
        try:
            arguments = call.arguments
            if spec.shape is not None:
                if self._seen is None:
                    until = None
                else:
                    until = self._seen.by_name.get(name)
                if spec is not until:
                    arguments = self._calls.arguments(spec, arguments, ctx, until=until)
            return await toolset.call(call.replace(name=name, arguments=arguments), ctx)
        except ToolError as error:
            return ToolResult.failure(error)
        except Exception as exc:
            # Boundary: user code, and third-party toolsets that raise.
            return ToolResult.failure(as_tool_error(exc))


def shaped(toolset: Toolset, rules: Iterable[ShapeRule | Mapping[str, Any]]) -> ShapedToolset:
    """Return the toolset with other definitions: tools and arguments renamed, described, hidden, bound, injected.

    Rules apply in their order, each to what those before it made. Calls are checked against the shaped schema, and
    arrive with the arguments that the toolset takes; what a rule sends cannot be given by a model. Rules without an
    effect are in `problems`. Tools that are hidden cannot be called either.

    Args:
        toolset: The toolset.
        rules: The rules, each a `ShapeRule` or a mapping as in the `shape` of a config's server.

    Raises:
        ConfigError: A rule is wrong; names the mistake.
        TypeError: The rules are not a sequence.
    """
    return ShapedToolset(toolset, rules)
