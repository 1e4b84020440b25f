"""A run of an agent of the OpenAI Agents SDK that fails, and goes on without doing anything twice."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from toolweave import SqliteStore
from toolweave.durability import durable


class StandIn(Model):
    """Stand in for a model: call the tool, break once, then answer."""

    away = True

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        """Return the next answer."""
        if len(options["input"]) == 1:
            call = ResponseFunctionToolCall(type="function_call", call_id="c1", name="pay", arguments='{"amount": 5}')
            return ModelResponse(output=[call], usage=Usage(requests=1), response_id=None)
        if self.away:
            raise ConnectionError("the model is away")
        text = ResponseOutputText(type="output_text", text="It is paid.", annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[message], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        """Stream nothing."""
        raise NotImplementedError


@function_tool
def pay(amount: int) -> str:
    """Pay."""
    print("paying", amount)
    return "paid"


async def main() -> None:
    model = StandIn()
    agent = Agent(name="payer", model=model, tools=[pay])
    async with SqliteStore("runs.db") as store:
        payer = durable(agent, store, options={"run_config": RunConfig(tracing_disabled=True)})
        try:
            await payer.run("Pay 5.", run_id="order-17")
        except ConnectionError as error:
            print(error)

        model.away = False  # later, or in another process
        result = await payer.resume("order-17")
        print(result.final_output, result.context_wrapper.usage.requests)


asyncio.run(main())
