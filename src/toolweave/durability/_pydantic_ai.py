"""An agent of Pydantic AI on our journal: a capability of each run records and replays.

Imported when one is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import TypeAdapter
from pydantic_ai import AgentRunResult, DeferredToolRequests, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ToolReturn,
    UserContent,
)
from pydantic_ai.messages import ToolCallPart as TheirCall
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDefinition, ToolDenied

from toolweave._json_types import Json, without_members
from toolweave.durability._durable_agent import FrameworkInput, FrameworkOutcome
from toolweave.durability._recorder import APPROVED, KeptOutcome, RunRecorder
from toolweave.models import ToolCallPart, Usage
from toolweave.tools import ToolSpec

_NAME = "pydantic-ai"
_PROMPT: TypeAdapter[Any] = TypeAdapter(str | list[UserContent] | None)
_RETURN: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)
_ANSWERS: TypeAdapter[DeferredToolResults] = TypeAdapter(DeferredToolResults)
_INPUT = ("message_history", "deferred_tool_results")
"""The options of a run that belong to its input."""
_REFUSED = {
    "conversation": "pass message_history=",
    "run_id": "pass run_id= to the durable agent",
}


class PydanticAiAgent:
    """A Pydantic AI agent, run by a recorder."""

    name = _NAME

    def __init__(self, agent: AbstractAgent[Any, Any]) -> None:
        self._agent = agent

    def record_input(self, sent: Any, options: Mapping[str, Any]) -> FrameworkInput:
        for name, instead in _REFUSED.items():
            if options.get(name) is not None:
                raise ValueError(f"{name}= does not go together with a durable run; {instead}")
        more: Json = {}
        if history := options.get("message_history"):
            more["message_history"] = ModelMessagesTypeAdapter.dump_python(list(history), mode="json")
        if (answers := options.get("deferred_tool_results")) is not None:
            more["deferred_tool_results"] = _ANSWERS.dump_python(answers, mode="json")
        if isinstance(sent, str) and not more:
            return FrameworkInput(text=sent)
        if sent is None:
            prompt = None
            text = ""
        elif isinstance(sent, str):
            prompt = _PROMPT.dump_python(sent, mode="json")
            text = sent
        else:
            prompt = _PROMPT.dump_python(list(sent), mode="json")
            text = json.dumps(prompt)
        return FrameworkInput(text=text, value=json.dumps({"prompt": prompt, **more}))

    async def execute(
        self, run_input: FrameworkInput, options: Mapping[str, Any], recorder: RunRecorder, answer: Any
    ) -> AgentRunResult[Any]:
        prompt = run_input.text
        given = without_members(options, *_INPUT)
        if run_input.value is not None:
            data = json.loads(run_input.value)
            prompt = _PROMPT.validate_python(data["prompt"])
            if "message_history" in data:
                given["message_history"] = ModelMessagesTypeAdapter.validate_python(data["message_history"])
            if "deferred_tool_results" in data:
                given["deferred_tool_results"] = _ANSWERS.validate_python(data["deferred_tool_results"])
        given["capabilities"] = [*(given.get("capabilities") or ()), RecordingCapability(recorder)]
        return await self._agent.run(prompt, run_id=recorder.run_id, **given)

    def continues(self, sent: Any) -> bool:
        return False

    def outcome(self, result: AgentRunResult[Any]) -> FrameworkOutcome:
        output = result.output
        if isinstance(output, str):
            return FrameworkOutcome(text=output)
        if isinstance(output, DeferredToolRequests):
            if output.approvals:
                return FrameworkOutcome(waits=True, calls=[call.tool_call_id for call in output.approvals])
            waiting = ", ".join(call.tool_name for call in output.calls)
            return FrameworkOutcome(text=f"ended with calls for its caller to answer: {waiting}")
        return FrameworkOutcome(text=result.response.text or "", output=_json(output))


class RecordingCapability(AbstractCapability[Any]):
    """Record and replay one run, as its outermost capability."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost")

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        recorded = await self._recorder.answer(ctx.run_step)
        if recorded is not None:
            return cast("ModelResponse", ModelMessagesTypeAdapter.validate_json(recorded)[0])
        response: ModelResponse = await handler(request_context)
        messages: list[ModelMessage] = [response]
        took = response.usage
        await self._recorder.answered(
            ctx.run_step,
            ModelMessagesTypeAdapter.dump_json(messages).decode(),
            framework=_NAME,
            text=response.text or "",
            calls=[
                ToolCallPart(id=part.tool_call_id, name=part.tool_name, arguments=_arguments(part))
                for part in response.parts
                if isinstance(part, TheirCall)
            ],
            usage=Usage(
                input_tokens=took.input_tokens,
                output_tokens=took.output_tokens,
                cached_tokens=took.cache_read_tokens,
                cache_written_tokens=took.cache_write_tokens,
            ),
        )
        return response

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: TheirCall, tool_def: ToolDefinition, args: Json, handler: Any
    ) -> Any:
        # a call that asked for approval, or raised `ApprovalRequired`, is made again under its id when it was approved
        if ctx.tool_call_approved:
            key = f"{call.tool_call_id}{APPROVED}"
        else:
            key = call.tool_call_id
        ours = ToolCallPart(id=key, name=call.tool_name, arguments=_arguments(call))
        annotations = (tool_def.metadata or {}).get("annotations")
        return await self._recorder.call(ctx.run_step, ours, annotations, lambda: handler(args), _FORM)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Return the recorded answers of a person; the rest is for the agent's own handlers, or has the run wait."""
        decided: dict[str, bool | ToolApproved | ToolDenied] = {}
        for call in requests.approvals:
            ours = ToolCallPart(id=call.tool_call_id, name=call.tool_name, arguments=_arguments(call))
            given = await self._recorder.decision(ctx.run_step, ours, _spec(ctx, call.tool_name))
            if given is not None:
                decided[call.tool_call_id] = ToolApproved() if given.approved else _denied(given.reason)
        if decided:
            return DeferredToolResults(approvals=decided)
        return None


def _denied(reason: str | None) -> ToolDenied:
    if reason is None:
        return ToolDenied()
    return ToolDenied(f"The tool call was denied: {reason}")


def _spec(ctx: RunContext[Any], name: str) -> ToolSpec:
    """Return the present definition of a tool, to which an answer is bound."""
    tools = (ctx.tool_manager.tools if ctx.tool_manager is not None else None) or {}
    found = tools.get(name)
    if found is None:
        return ToolSpec(name=name)
    definition = found.tool_def
    metadata = definition.metadata or {}
    return ToolSpec(
        name=name,
        server=metadata.get("server"),
        description=definition.description or "",
        input_schema=definition.parameters_json_schema,
        annotations=metadata.get("annotations"),
    )


class ToolReturnForm:
    """The form of a return, and of the exceptions with which a tool steers the loop."""

    def of_value(self, value: Any) -> KeptOutcome:
        if isinstance(value, ToolReturn):
            returned = cast("ToolReturn[Any]", value)
            return KeptOutcome(kind="tool-return", value=_dumped(returned), text=str(returned.return_value))
        return KeptOutcome(kind="value", value=_dumped(ToolReturn(return_value=value)), text=str(value))

    def of_error(self, error: Exception) -> KeptOutcome | Literal["undone"] | None:
        match error:
            case SkipToolExecution():
                return self.of_value(error.result)
            case ModelRetry() | ToolRetryError():
                return KeptOutcome(kind="retry", value=str(error), text=str(error), is_error=True)
            case ToolFailed() | ToolFailedError():
                return KeptOutcome(kind="failed", value=str(error), text=str(error), is_error=True)
            case CallDeferred():
                value = {"metadata": error.metadata, "kind": error.kind}
                return KeptOutcome(kind="deferred", value=value, text="deferred")
            case ApprovalRequired():
                return KeptOutcome(kind="approval", value={"metadata": error.metadata}, text="needs approval")
            case _:
                return None

    def replayed(self, kept: KeptOutcome) -> Any:
        match kept.kind:
            case "retry":
                raise ModelRetry(kept.value)
            case "failed":
                raise ToolFailed(kept.value)
            case "deferred":
                raise CallDeferred(kept.value["metadata"], kind=kept.value["kind"])
            case "approval":
                raise ApprovalRequired(kept.value["metadata"])
            case _:
                returned = _RETURN.validate_python(kept.value)
                # as a skipped execution it counts as a call, as it did when it was made
                raise SkipToolExecution(returned if kept.kind == "tool-return" else returned.return_value)

    def unknown(self, message: str) -> Any:
        raise ToolFailed(message)


_FORM = ToolReturnForm()


def _dumped(value: ToolReturn[Any]) -> Any:
    return _RETURN.dump_python(value, mode="json")


def _arguments(call: TheirCall) -> Json:
    try:
        return call.args_as_dict()
    except ValueError:
        # No JSON object: it is refused before it is made.
        return {}


def _json(output: Any) -> Any:
    try:
        return TypeAdapter(Any).dump_python(output, mode="json")
    except ValueError:
        return str(output)
