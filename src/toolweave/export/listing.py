"""What every export of definitions shares: the tools of the moment under names that every API takes.

Definitions are written once per snapshot; names go out and come back by the map of the last listing, so a tool that
comes in between cannot take over a name that a model was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolweave.schema.dialects import Dialect
from toolweave.schema.problems import Problem
from toolweave.tools.arguments import read_arguments
from toolweave.tools.call import ToolCall
from toolweave.tools.result import ToolResult, invalid_input
from toolweave.tools.sources import ToolSource, as_toolset
from toolweave.tools.toolset import Toolset
from toolweave.tools.wire_tools import Form, ToolWriter, WireTools

__all__ = ["Listing", "member"]


class Listing:
    """A toolset's definitions in one form, and the way back from a model's call to the toolset's.

    Args:
        source: Whatever `as_toolset` takes; borrowed.
        dialect: Whose rules schemas have to follow.
        form: Puts a tool into the members that the API wants.
        strict: The dialect of structured outputs, for tools that it has words for.
        max_description: Characters that a description may have.
    """

    __slots__ = ("_listed", "_writer", "toolset")

    def __init__(
        self,
        source: ToolSource,
        dialect: Dialect,
        form: Form,
        *,
        strict: Dialect | None = None,
        max_description: int | None = None,
    ) -> None:
        self.toolset: Toolset = as_toolset(source)
        self._writer = ToolWriter(dialect, form, strict=strict, max_description=max_description)
        self._listed: WireTools | None = None

    def now(self) -> WireTools:
        """Return what is offered now, and remember that a model was shown it."""
        self._listed = self._writer.of(self.toolset.snapshot())
        return self._listed

    @property
    def quarantined(self) -> Mapping[str, str]:
        """The tools that the API has no way to take, by exposed name, each with the reason."""
        return self._writer.of(self.toolset.snapshot()).quarantined

    def call(self, name: Any, arguments: Any, call_id: Any) -> ToolCall | ToolResult:
        """Return the call that a model means, or the error result that answers a malformed one."""
        wire = self._listed or self.now()
        exposed = wire.names.exposed(str(name)) or self._writer.of(self.toolset.snapshot()).call_name(str(name))
        if isinstance(arguments, Mapping):
            given, malformed = dict(cast("Mapping[str, Any]", arguments)), None
        elif arguments is None or isinstance(arguments, str):
            given, malformed = read_arguments(arguments or "")
        else:
            given, malformed = {}, str(arguments)
        if malformed is not None:
            problem = Problem(path="", message=f"the arguments are no JSON object: {malformed[:200]!r}")
            return invalid_input(exposed, [problem])
        return ToolCall(name=exposed, arguments=wire.arguments(exposed, given), id=str(call_id))


def member(item: Any, name: str) -> Any:
    """Return a member of what an SDK made, or of the same as JSON; None when it has none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - any SDK's object
