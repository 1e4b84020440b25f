"""A toolset as a toolset of Pydantic AI; Pydantic AI is imported when the first is made."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from toolweave._json_types import Json, JsonObject
from toolweave.export._approval_hints import ApprovalHints, ConfirmCalls
from toolweave.export._server_instructions import server_instructions
from toolweave.providers._media_parts import SHOWN, SOUNDS, Media, shown
from toolweave.providers._openai_content import chat_text
from toolweave.providers._tool_calls import reporting_to, run_call
from toolweave.providers._tool_export import ToolExport
from toolweave.providers._wire_tools import WireTool
from toolweave.tools import Progress, ProgressCallback, ToolCall, ToolResult, ToolSource, ToolSpec
from toolweave.tools.visible import shown_spec

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.toolsets import AbstractToolset

_TAKEN = SHOWN | frozenset(SOUNDS)
_PROGRESS = "toolweave_progress"
"""The name of progress events."""


def pydantic_ai_toolset(
    source: ToolSource,
    *,
    id: str | None = None,  # noqa: A002 - its name
    confirm: ConfirmCalls = "never",
    include_instructions: bool = False,
) -> AbstractToolset[Any]:
    """Return a toolset as one of Pydantic AI, for `Agent(toolsets=[...])`; a change is seen at the next step.

    It composes like any of theirs (`.filtered`, `.prefixed`, `.approval_required`). A failed call, malformed arguments
    included, is reported to the model and neither ends the run nor counts as a retry. Images, PDFs and sounds reach
    models that accept them. Progress of a call is a custom event of the run's stream with the name
    `toolweave_progress`, and `progress`, `total` and `message`.

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        id: A name that is unique among the agent's toolsets; durable execution needs one.
        confirm: The calls that need a person's approval. They end the run with `DeferredToolRequests`, which the agent
            needs among its output types, unless its `HandleDeferredToolCalls` answers them.
        include_instructions: Add what the servers say about their tools to the agent's instructions, as
            `server_instructions` quotes it: unchecked text of servers.

    Raises:
        ModuleNotFoundError: Pydantic AI is missing: `pip install 'toolweave[pydantic-ai]'`.
        ValueError: `confirm` does not name a policy.
    """
    return _toolset_class()(source, id, confirm, include_instructions)


def _parts(tool: WireTool) -> Json:
    return {"name": tool.name, "schema": tool.schema}


@cache
def _toolset_class() -> type[Any]:
    from pydantic_ai.exceptions import ApprovalRequired
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    class BorrowedToolset(AbstractToolset[Any]):
        """A Toolweave toolset as one of Pydantic AI."""

        def __init__(self, source: ToolSource, id: str | None, confirm: ConfirmCalls, instructed: bool) -> None:  # noqa: A002
            self._id = id
            self._listing = ToolExport(source, "openai", _parts, any_api=True)
            self._hints = ApprovalHints(confirm, self._listing.toolset)
            self._instructed = instructed

        @property
        def id(self) -> str | None:
            return self._id

        async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
            if self._instructed:
                return server_instructions(self._listing.toolset) or None
            return None

        async def get_tools(self, ctx: RunContext[Any]) -> Json:
            wire = self._listing.now()
            legal: dict[str, JsonObject] = {one["name"]: one["schema"] for one in wire.definitions}
            renamed = {wire.names.wire(name) for name in wire.renamed}
            offered = [spec for spec in self._listing.toolset.snapshot() if spec.name not in wire.quarantined]
            return {
                (name := wire.names.wire(spec.name)): ToolsetTool(
                    toolset=self,
                    tool_def=_definition(
                        name, spec, legal[name] if name in renamed else None, asks=self._hints.of_tool(spec)
                    ),
                    max_retries=1,
                    args_validator=_ArgumentsValidator(self._listing, name),
                )
                for spec in offered
            }

        async def call_tool(self, name: str, tool_args: Json, ctx: RunContext[Any], tool: Any) -> Any:
            call = self._listing.call(name, tool_args, ctx.tool_call_id)
            if not isinstance(call, ToolCall):
                return _returned(call)
            if not ctx.tool_call_approved and self._hints.of_call(call):
                raise ApprovalRequired
            return _returned(await run_call(self._listing.toolset, call, reporting_to(_progress_reporter(ctx))))

    return BorrowedToolset


@cache
def _progress_event() -> type[Any]:
    from dataclasses import dataclass

    from pydantic_ai.messages import CustomEvent

    @dataclass(kw_only=True)
    class ToolsetProgressEvent(CustomEvent, name=_PROGRESS):
        """Progress of a call, in the stream of its run."""

        progress: float
        total: float | None = None
        message: str | None = None

    return ToolsetProgressEvent


def _progress_reporter(ctx: RunContext[Any]) -> ProgressCallback:
    """Return a callback that reports progress to the stream of a run."""
    from pydantic_ai.exceptions import UserError

    async def report(progress: Progress) -> None:
        event = _progress_event()(progress=progress.progress, total=progress.total, message=progress.message)
        # Outside of a run there is not a stream.
        with suppress(UserError):
            await ctx.emit(event)

    return report


class _ArgumentsValidator:
    """Parses the arguments of a tool; the toolset validates them, with messages that a model can act on."""

    __slots__ = ("_listing", "_name")

    def __init__(self, listing: ToolExport, name: str) -> None:
        self._listing = listing
        self._name = name

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> Json:  # noqa: A002 - theirs
        if isinstance(input, str):
            text = input
        else:
            text = bytes(input).decode("utf-8", "replace")
        return self.validate_python(text, **options)

    def validate_python(self, input: Any, **options: Any) -> Json:  # noqa: A002
        """Return the arguments.

        Raises:
            ToolFailed: They are not a JSON object.
        """
        call = self._listing.call(self._name, input, None)
        if isinstance(call, ToolCall):
            return dict(call.arguments)
        return _returned(call)


def _definition(name: str, spec: ToolSpec, legal: JsonObject | None, *, asks: bool) -> Any:
    """Return a definition; `legal` is a schema with other names of arguments, where the tool's own are not legal."""
    from pydantic_ai.tools import ToolDefinition

    spec = shown_spec(spec)
    return ToolDefinition(
        name=name,
        description=spec.description or None,
        parameters_json_schema=dict(spec.input_schema if legal is None else legal),
        sequential=spec.sequential,
        kind="unapproved" if asks else "function",
        metadata={"name": spec.name, "server": spec.server, "annotations": dict(spec.annotations or {})},
    )


def _returned(result: ToolResult) -> Any:
    """Return the content for the model, with the rest as metadata for the application.

    Raises:
        ToolFailed: The result is an error.
    """
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.messages import BinaryContent, ToolReturn

    result = result.for_model()
    if result.is_error:
        raise ToolFailed(result.text if result.text.strip() else result.require_error().message)

    def part(one: str | Media) -> Any:
        if isinstance(one, str):
            return one
        return BinaryContent(data=one.decode(), media_type=one.mime_type)

    parts = list(map(part, shown(result.content, _TAKEN)))
    if all(isinstance(one, str) for one in parts):
        value = chat_text(result)
    else:
        value = parts
    metadata = {"structured_content": result.structured_content, "meta": dict(result.meta)}
    return ToolReturn(return_value=value, metadata=metadata)
