"""The base of exports of definitions: the tools offered now, under names that every API accepts.

Definitions are written once per snapshot; names go out and come back by the map of the last listing, so a tool that
comes in between cannot take over a name that a model was shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolweave.providers._profiles import SchemaProfile
from toolweave.providers._tool_calls import run_calls
from toolweave.providers._wire_tools import Form, ToolWriter, WireTools
from toolweave.schema import Problem
from toolweave.tools import CallContext, ToolCall, ToolResult, Toolset, ToolSource, filtered
from toolweave.tools.arguments import read_arguments
from toolweave.tools.result import invalid_input
from toolweave.tools.sources import borrowed_toolset


class ToolExport:
    """A toolset's definitions in one provider's form, and the mapping of a model's calls back to the toolset's.

    Args:
        source: Anything that `as_toolset` accepts; borrowed.
        profile: The profile of JSON Schema that the API accepts.
        form: Returns a tool's definition in the API's form.
        strict: The profile of structured outputs, for tools whose schemas it can express.
        max_description: Characters that a description may have.
        any_api: Whether arguments get names that every model API accepts: a framework chooses the model later.
    """

    __slots__ = ("_listed", "_writer", "toolset")

    def __init__(
        self,
        source: ToolSource,
        profile: SchemaProfile,
        form: Form,
        *,
        strict: SchemaProfile | None = None,
        max_description: int | None = None,
        any_api: bool = False,
    ) -> None:
        self.toolset: Toolset = filtered(borrowed_toolset(source), predicate=lambda spec: spec.for_models)
        self._writer = ToolWriter(profile, form, strict=strict, max_description=max_description, any_api=any_api)
        self._listed: WireTools | None = None

    def now(self) -> WireTools:
        """Return the tools offered now, and remember them as shown to a model."""
        self._listed = self._writer.of(self.toolset.snapshot())
        return self._listed

    @property
    def quarantined(self) -> Mapping[str, str]:
        """The tools that the API cannot accept, by exposed name, each with the reason."""
        return self._writer.of(self.toolset.snapshot()).quarantined

    def call(self, name: Any, arguments: Any, call_id: Any) -> ToolCall | ToolResult:
        """Return the toolset's call for a model's call, or the error result that answers a malformed one."""
        wire = self._listed or self.now()
        exposed = wire.names.exposed(str(name))
        if exposed is None:
            # A tool that was added since the export.
            exposed = self._writer.of(self.toolset.snapshot()).call_name(str(name))
        if isinstance(arguments, Mapping):
            given = dict(cast("Mapping[str, Any]", arguments))
            malformed = None
        elif arguments is None or isinstance(arguments, str):
            given, malformed = read_arguments(arguments or "")
        else:
            given = {}
            malformed = str(arguments)
        if malformed is not None:
            problem = Problem(path="", message=f"the arguments are not a JSON object: {malformed[:200]!r}")
            return invalid_input(exposed, [problem])
        return ToolCall(name=exposed, arguments=wire.arguments(exposed, given), id=str(call_id))


class ApiTools(ABC):
    """The tools of a toolset for one model API; the base of the exports that answer a model's calls.

    Args:
        listing: The definitions in the API's form.
    """

    def __init__(self, listing: ToolExport) -> None:
        self._listing = listing

    @property
    def quarantined(self) -> Mapping[str, str]:
        """The tools that are left out because the API cannot accept them, each with the reason."""
        return self._listing.quarantined

    async def _run(self, made: Iterable[object], ctx: CallContext | None) -> list[ToolResult]:
        """Run the calls that a model made, at the same time, and return their results in the order of the calls."""
        return await run_calls(self._listing.toolset, [self._call(one) for one in made], ctx)

    @abstractmethod
    def _call(self, made: object) -> ToolCall | ToolResult:
        """Return the toolset's call for one call of the API's form, or the error result that answers it."""


def member(item: object, name: str) -> Any:
    """Return a member of an SDK's object, or of the same as JSON; None when it has none."""
    if isinstance(item, Mapping):
        return cast("Mapping[str, Any]", item).get(name)
    return getattr(item, name, None)
