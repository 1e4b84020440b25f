"""The writer of `killed.py` as an agent of the OpenAI Agents SDK."""

from __future__ import annotations

import json
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, RunResult, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from tests.durability.killed import Decider, Outcome, Writer
from toolweave.durability import DurableAgent, durable
from toolweave.state import Store

INPUT = "write all lines"


def said(text: str) -> ResponseOutputMessage:
    """Return a message of the model."""
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


class WriterModel(Model):
    """The model that decides."""

    def __init__(self, writer: Decider) -> None:
        self._writer = writer

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> ModelResponse:
        items: list[Any] = [] if isinstance(input, str) else input
        calls = {item["call_id"]: item for item in items if item.get("type") == "function_call"}
        outcomes = [
            Outcome(
                calls[item["call_id"]]["name"],
                json.loads(calls[item["call_id"]]["arguments"]).get("line", ""),
                item["output"],
            )
            for item in items
            if item.get("type") == "function_call_output"
        ]
        now = self._writer.decide(outcomes)
        output: list[Any] = (
            [said(now)]
            if isinstance(now, str)
            else [
                ResponseFunctionToolCall(
                    type="function_call", name=one.name, arguments=json.dumps(one.arguments), call_id=one.id, id=one.id
                )
                for one in now
            ]
        )
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError


def agent_of(writer: Writer, store: Store, *, approved: bool = False) -> DurableAgent[RunResult]:
    """Return the durable agent."""
    tools: list[Any] = [function_tool(writer.write, needs_approval=approved), function_tool(writer.look)]
    agent = Agent[None](name="writer", model=WriterModel(writer), tools=tools)
    return durable(agent, store, repeatable=["look"], options={"run_config": RunConfig(tracing_disabled=True)})


def answer_of(result: RunResult) -> Any:
    """Return the answer."""
    return result.final_output
