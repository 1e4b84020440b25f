"""A toolset as function tools of the OpenAI Agents SDK; the SDK is imported when the first is made."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from toolweave._json_types import Json, JsonObject
from toolweave.export._approval_hints import ApprovalHints, ConfirmCalls
from toolweave.providers._openai import MAX_DESCRIPTION
from toolweave.providers._openai_content import chat_text, responses_content
from toolweave.providers._tool_calls import reporting_to, run_call
from toolweave.providers._tool_export import ToolExport
from toolweave.providers._wire_tools import WireTool
from toolweave.tools import Progress, ToolCall, ToolResult, ToolSource, ToolSpec

if TYPE_CHECKING:
    from agents import AgentBase, FunctionTool, RunContextWrapper, Tool
    from agents.tool_context import ToolContext

OnToolProgress: TypeAlias = Callable[[Progress, "ToolContext[Any]"], Awaitable[None] | None]
"""Called with each progress notification of a call and the SDK's context of that call; sync or async."""


def openai_agents_tools(
    source: ToolSource,
    *,
    strict: bool = False,
    confirm: ConfirmCalls = "never",
    on_progress: OnToolProgress | None = None,
    live: bool = False,
) -> list[Tool]:
    """Return the tools of a toolset for `agents.Agent(tools=...)`.

    A tool that the toolset no longer offers is disabled at the next turn of the model; one that is new is in the next
    list. Arguments with names that some model APIs refuse, such as `filter[name]`, have legal ones. Errors are text for
    the model to read, and never end a run.

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        strict: Enforce the schemas of those tools whose schemas OpenAI's strict mode can express.
        confirm: The calls that need a person's approval (`needs_approval`): the run ends with them as `interruptions`.
        on_progress: Receives the progress of calls; the SDK's streams have no place for it.
        live: Return a list that also shows new tools at the next turn. It needs a separate agent for each run, such
            as `agent.clone(tools=...)`: the SDK refuses concurrent runs of an agent whose list changes.

    Raises:
        ModuleNotFoundError: The SDK is missing: `pip install 'toolweave[openai-agents]'`.
        ValueError: `confirm` does not name a policy.
    """
    listing = ToolExport(
        source,
        "openai",
        _parts,
        strict="openai-strict" if strict else None,
        max_description=MAX_DESCRIPTION,
        any_api=True,
    )
    made = _FunctionTools(listing, ApprovalHints(confirm, listing.toolset), on_progress)
    if live:
        return LiveTools(made.now)
    return made.now()


class LiveTools(list[Any]):
    """A list of tools that is brought up to date whenever it is iterated, as the SDK does before each turn.

    Tools that others add stay, behind these tools.
    """

    def __init__(self, current: Callable[[], Sequence[Any]]) -> None:
        self._current = current
        self._shown: Sequence[Any] = current()
        super().__init__(self._shown)

    def __iter__(self) -> Iterator[Any]:
        before = set(map(id, self._shown))
        others = [one for one in super().__iter__() if id(one) not in before]
        self._shown = self._current()
        self[:] = [*self._shown, *others]
        return super().__iter__()

    def mapped(self, change: Callable[[Any], Any]) -> LiveTools:
        """Return a live list of the same tools, each changed once."""
        # with the tool itself, so that its id stays its own
        made: dict[int, tuple[Any, Any]] = {}

        def now() -> list[Any]:
            return [made.setdefault(id(one), (one, change(one)))[1] for one in self]

        return LiveTools(now)


def _parts(tool: WireTool) -> Json:
    return {"tool": tool}


class _FunctionTools:
    """The function tools of one export; a definition that did not change keeps its tool."""

    def __init__(self, listing: ToolExport, hints: ApprovalHints, on_progress: OnToolProgress | None) -> None:
        self._listing = listing
        self._hints = hints
        self._on_progress = on_progress
        self._made: dict[str, tuple[Any, FunctionTool]] = {}

    def now(self) -> list[Any]:
        """Return the tools that are offered now."""
        snapshot = self._listing.toolset.snapshot()
        wire = self._listing.now()
        made: dict[str, tuple[Any, FunctionTool]] = {}
        for one in wire.definitions:
            tool: WireTool = one["tool"]
            definition = tool, snapshot.find(wire.call_name(tool.name))
            known = self._made.get(tool.name)
            if known is None or known[0] != definition:
                known = definition, self._function_tool(*definition)
            made[tool.name] = known
        self._made = made
        return [one for _, one in made.values()]

    def _function_tool(self, tool: WireTool, spec: ToolSpec | None) -> FunctionTool:
        from agents import FunctionTool

        listing = self._listing
        toolset = self._listing.toolset
        name = tool.name if spec is None else spec.name

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            call = listing.call(tool.name, arguments, context.tool_call_id)
            return _output(await self._run(call, context) if isinstance(call, ToolCall) else call)

        setattr(invoke, "toolweave_annotations", spec.annotations if spec else None)  # noqa: B010 - a function has no such member

        async def needs_approval(context: RunContextWrapper[Any], arguments: JsonObject | None, call_id: str) -> bool:
            call = listing.call(tool.name, arguments, call_id)
            # A malformed one is answered by an error.
            return isinstance(call, ToolCall) and self._hints.of_call(call)

        def is_offered(context: RunContextWrapper[Any], agent: AgentBase[Any]) -> bool:
            return name in toolset.snapshot().by_name

        always = spec is not None and self._hints.of_tool(spec)
        return FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=dict(tool.schema),
            on_invoke_tool=invoke,
            strict_json_schema=tool.strict,
            is_enabled=is_offered,
            needs_approval=needs_approval if self._hints.varies else always,
        )

    async def _run(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        on_progress = self._on_progress
        if on_progress is None:
            return await run_call(self._listing.toolset, call)

        async def report(progress: Progress) -> None:
            outcome = on_progress(progress, context)
            if inspect.isawaitable(outcome):
                await outcome

        return await run_call(self._listing.toolset, call, reporting_to(report))


def _output(result: ToolResult) -> str | list[Json]:
    """Return a result in the SDK's form: a string, or parts if it is more than text."""
    parts = responses_content(result)
    if isinstance(parts, str):
        return chat_text(result)
    return list(map(_part, parts))


def _part(part: Json) -> Json:
    return {**part, "type": part["type"].removeprefix("input_")}
