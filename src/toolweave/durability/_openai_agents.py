"""An agent of the OpenAI Agents SDK on our journal: its model and its tools are wrapped, also those of handoffs.

Imported when one is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    ToolApprovalItem,
    ToolSearchTool,
    Usage,
    WebSearchTool,
)
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputItem
from pydantic import BaseModel, TypeAdapter

from toolweave._json_types import Json, JsonObject, as_array, as_object
from toolweave.durability._durable_agent import FrameworkInput, FrameworkOutcome
from toolweave.durability._recorder import KeptOutcome, RunRecorder
from toolweave.models import ToolCallPart
from toolweave.models import Usage as OurUsage
from toolweave.tools import ToolSpec

_NAME = "openai-agents"
_OUTPUT: TypeAdapter[list[ResponseOutputItem]] = TypeAdapter(list[ResponseOutputItem])
_USAGE: TypeAdapter[Usage] = TypeAdapter(Usage)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_HOSTED = (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    ToolSearchTool,
    WebSearchTool,
)
_HINTS = "toolweave_annotations"
"""The member of an exported tool's function that holds its annotations."""
_REFUSED = ("session", "previous_response_id", "auto_previous_response_id", "conversation_id")
"""Options with which a conversation is kept elsewhere: a replayed run would append to it twice."""


class OpenAiAgentsAgent:
    """An agent of the OpenAI Agents SDK, run by a recorder.

    Raises:
        ValueError: The agent, or one it hands off to, has tools whose calls cannot be recorded.
    """

    name = _NAME

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent
        _check(agent, set())

    def record_input(self, sent: Any, options: Mapping[str, Any]) -> FrameworkInput:
        for name in _REFUSED:
            if options.get(name):
                raise ValueError(f"{name}= does not go together with a durable run; pass the conversation as its input")
        if isinstance(sent, str):
            return FrameworkInput(text=sent)
        if isinstance(sent, RunState):
            state = cast("RunState[Any, Any]", sent).to_json()
            return FrameworkInput(text="continues after its approvals", value=json.dumps({"state": state}))
        if isinstance(sent, list):
            items = _ANY.dump_python(sent, mode="json")
            return FrameworkInput(text=_last_text(items), value=json.dumps({"items": items}))
        raise TypeError(f"the input of a run is a text, a list of items or a RunState, not {type(sent).__name__}")

    async def execute(
        self, run_input: FrameworkInput, options: Mapping[str, Any], recorder: RunRecorder, answer: Any
    ) -> RunResult:
        runner_options = dict(options)
        config = runner_options.pop("run_config", None) or RunConfig()
        agent = RecordedAgents(recorder, config).view(self._agent)
        # A model of the config would replace the models of the views, which record. They use it themselves.
        runner_options["run_config"] = replace(config, model=None)
        sent: Any = run_input.text
        if run_input.value is not None:
            data = json.loads(run_input.value)
            if "items" in data:
                sent = data["items"]
            else:
                sent = await RunState.from_json(agent, data["state"])
        result = await Runner.run(agent, sent, **runner_options)
        while result.interruptions:
            state = result.to_state()
            if not await _apply_decisions(state, result.interruptions, recorder):
                break
            result = await Runner.run(agent, state, **runner_options)
        return result

    def outcome(self, result: RunResult) -> FrameworkOutcome:
        if result.interruptions:
            return FrameworkOutcome(waits=True, calls=[one.call_id or "" for one in result.interruptions])
        output = result.final_output
        if isinstance(output, str):
            return FrameworkOutcome(text=output)
        return FrameworkOutcome(output=_json(output))

    def continues(self, sent: Any) -> bool:
        return False


def _check(agent: Agent[Any], seen: set[int]) -> None:
    seen.add(id(agent))
    if agent.mcp_servers:
        raise ValueError(
            f"durable(): agent {agent.name!r} has mcp_servers, whose calls cannot be recorded; connect them here and "
            "pass tools=openai_agents_tools(...)"
        )
    for one in agent.tools:
        if not isinstance(one, (FunctionTool, *_HOSTED)):
            raise ValueError(f"durable(): calls of {type(one).__name__} of agent {agent.name!r} cannot be recorded")
    for one in agent.handoffs:
        if isinstance(one, Agent) and id(one) not in seen:
            _check(one, seen)


async def _apply_decisions(
    state: RunState[Any, Any], interruptions: Sequence[ToolApprovalItem], recorder: RunRecorder
) -> bool:
    """Approve or reject the waiting calls of a state; return false if a person has not decided on all of them yet."""
    all_decided = True
    for item in interruptions:
        call = ToolCallPart(id=item.call_id or "", name=item.name or "", arguments=_arguments(item.arguments or ""))
        decision = await recorder.decision(recorder.answers, call, _spec(item.agent, call.name))
        if decision is None:
            all_decided = False
        elif decision.approved:
            state.approve(item)
        elif decision.reason is None:
            state.reject(item, rejection_message=None)
        else:
            state.reject(item, rejection_message=f"The call was not approved: {decision.reason}")
    return all_decided


def _spec(agent: Any, name: str) -> ToolSpec:
    """Return the present definition of a tool: a decision counts for this definition only."""
    tools: list[Any] = agent.tools if isinstance(agent, Agent) else []
    for tool in tools:
        if isinstance(tool, FunctionTool) and tool.qualified_name == name:
            return ToolSpec(
                name=name,
                description=tool.description,
                input_schema=tool.params_json_schema,
                annotations=_annotations(tool),
            )
    return ToolSpec(name=name)


class RecordedAgents:
    """The agents of one run with their models and tools recorded; each agent has one view."""

    def __init__(self, recorder: RunRecorder, config: RunConfig) -> None:
        self._recorder = recorder
        self._config = config
        self._views: dict[int, Agent[Any]] = {}

    def view(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the view of an agent, whose handoffs lead to views."""
        known = self._views.get(id(agent))
        if known is not None:
            return known
        _check(agent, set())
        view = agent.clone(
            model=RecordingModel(lambda: self._model(agent), self._recorder),
            model_settings=agent.model_settings,
            tools=self._tools(agent.tools),
            handoffs=[],
        )
        # Agents may hand off to one another in a circle: the view is stored before its handoffs are made.
        self._views[id(agent)] = view
        view.handoffs.extend(map(self._handoff, agent.handoffs))
        return view

    def _model(self, agent: Agent[Any]) -> Model:
        chosen = self._config.model or agent.model
        if isinstance(chosen, Model):
            return chosen
        return self._config.model_provider.get_model(chosen)

    def _handoff(self, target: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(target, Agent):
            return self.view(target)
        invoke = target.on_invoke_handoff

        async def invoke_recorded(context: Any, arguments: str) -> Any:
            return self.view(await invoke(context, arguments))

        return replace(target, on_invoke_handoff=invoke_recorded)

    def _tools(self, tools: list[Any]) -> list[Any]:
        """Return tools with their calls recorded; a list of an export that changes by itself still does."""
        mapped = getattr(tools, "mapped", None)
        if mapped is None:
            return [self._tool(one) for one in tools]
        return mapped(self._tool)

    def _tool(self, tool: Any) -> Any:
        if not isinstance(tool, FunctionTool):
            return tool
        invoke = tool.on_invoke_tool
        hints = _annotations(tool)

        async def recorded(context: ToolContext[Any], arguments: str) -> Any:
            call = ToolCallPart(id=context.tool_call_id, name=tool.qualified_name, arguments=_arguments(arguments))
            step = self._recorder.answers
            return await self._recorder.call(step, call, hints, lambda: invoke(context, arguments), _FORM)

        setattr(recorded, _HINTS, hints)
        return replace(tool, on_invoke_tool=recorded)


class RecordingModel(Model):
    """A model whose answers are recorded by their number, and replayed."""

    def __init__(self, resolve: Callable[[], Model], recorder: RunRecorder) -> None:
        self._resolve = resolve
        self._recorder = recorder
        self._model: Model | None = None

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        # Attempts that failed have none.
        number = self._recorder.answers + 1
        recorded = await self._recorder.answer(number)
        if recorded is not None:
            data = json.loads(recorded)
            return ModelResponse(
                output=_OUTPUT.validate_python(data["output"]),
                usage=_USAGE.validate_python(data["usage"]),
                response_id=data["response_id"],
                request_id=data["request_id"],
            )
        response = await self._now().get_response(*args, **options)
        output = _OUTPUT.dump_python(response.output, mode="json", exclude_unset=True)
        kept = {
            "output": output,
            "usage": _USAGE.dump_python(response.usage, mode="json"),
            "response_id": response.response_id,
            "request_id": response.request_id,
        }
        calls = [one for one in response.output if isinstance(one, ResponseFunctionToolCall)]
        await self._recorder.answered(
            number,
            json.dumps(kept),
            framework=_NAME,
            text=_texts(output),
            calls=[ToolCallPart(id=one.call_id, name=one.name, arguments=_arguments(one.arguments)) for one in calls],
            usage=OurUsage(
                input_tokens=response.usage.input_tokens,
                output_tokens=response.usage.output_tokens,
                cached_tokens=response.usage.input_tokens_details.cached_tokens or 0,
            ),
        )
        return response

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError("a durable run is not streamed; run it with DurableAgent.run")

    def get_retry_advice(self, request: Any) -> Any:
        if self._model is None:
            return None
        return self._model.get_retry_advice(request)

    async def close(self) -> None:
        return None  # the model is its owner's

    def _now(self) -> Model:
        self._model = self._model or self._resolve()
        return self._model


class ToolOutputForm:
    """The form of a tool's output: a text, parts of content, or another value as JSON or as its text."""

    def of_value(self, value: Any) -> KeptOutcome:
        if isinstance(value, str):
            return KeptOutcome(kind="text", value=value, text=value)
        parts = as_array(value)
        if parts is None:
            parts = [value]
        plain = all(isinstance(one, (BaseModel, dict, str, int, float, bool, type(None))) for one in parts)
        if plain:
            dumped = _ANY.dump_python(value, mode="json")
        else:
            dumped = str(value)
        return KeptOutcome(kind="value", value=dumped, text=str(dumped))

    def of_error(self, error: Exception) -> KeptOutcome | Literal["undone"] | None:
        # A tool reports its failures to the model in texts.
        return None

    def replayed(self, kept: KeptOutcome) -> Any:
        return kept.value

    def unknown(self, message: str) -> Any:
        return f"Error: {message}"


_FORM = ToolOutputForm()


def _annotations(tool: FunctionTool) -> JsonObject | None:
    """Return the behaviour hints of an exported tool."""
    return getattr(tool.on_invoke_tool, _HINTS, None)


def _arguments(text: str) -> Json:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = text
    arguments = as_object(found)
    if arguments is None:
        return {"": found}
    return dict(arguments)


def _texts(output: list[Any]) -> str:
    text = ""
    for item in output:
        if item.get("type") == "message":
            text += "".join(part.get("text", "") for part in item.get("content", ()))
    return text


def _last_text(items: list[Any]) -> str:
    content = items[-1].get("content") if items else None
    if isinstance(content, str):
        return content
    return json.dumps(content)


def _json(output: Any) -> Any:
    try:
        return _ANY.dump_python(output, mode="json")
    except ValueError:
        return str(output)
