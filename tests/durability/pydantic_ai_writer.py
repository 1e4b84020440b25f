"""The writer of `killed.py` as an agent of Pydantic AI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent, AgentRunResult, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.durability.killed import Decider, Outcome, Writer
from toolweave.durability import DurableAgent, durable
from toolweave.state import Store

INPUT = "write all lines"


def answering(writer: Decider) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
    """Return the model's function."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        lines: dict[str, str] = {}
        outcomes: list[Outcome] = []
        for part in (part for message in messages for part in message.parts):
            if isinstance(part, ToolCallPart):
                lines[part.tool_call_id] = part.args_as_dict().get("line", "")
            elif isinstance(part, ToolReturnPart):
                text = part.model_response_str()
                outcomes.append(Outcome(part.tool_name, lines[part.tool_call_id], text))
        said = writer.decide(outcomes)
        if isinstance(said, str):
            return ModelResponse(parts=[TextPart(said)])
        return ModelResponse(parts=[ToolCallPart(one.name, dict(one.arguments), one.id) for one in said])

    return answer


def agent_of(
    writer: Writer, store: Store, *, approved: bool = False
) -> DurableAgent[AgentRunResult[str | DeferredToolRequests]]:
    """Return the durable agent."""
    agent = Agent(FunctionModel(answering(writer)), name="writer", output_type=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=approved)(writer.write)
    agent.tool_plain(metadata={"annotations": {"readOnlyHint": True}})(writer.look)
    return durable(agent, store)


def answer_of(result: AgentRunResult[Any]) -> Any:
    """Return the answer."""
    return result.output
