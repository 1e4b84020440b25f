"""Agents: what one turn with local tools costs beside others' agents, and a provider's request from many tools.

The model says what it is told to and the transport is a mock, so that what is left is the framework's own work. Each
contender is a process of its own in every round (`python -m benchmarks.agents CONTENDER CASE`).
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

__all__ = ["agents"]

WARM_UP_SECONDS = 0.3
TURN_SECONDS = 0.5
TOOLS = 1000
BUNDLE = {"type": "object", "properties": {"id": {"type": "string"}, "count": {"type": "integer", "minimum": 0}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        f"field_{number}": {
            "description": "What it is for, in a sentence that is about as long as they are.",
            **({"type": "string"} if number % 2 else {"type": "array", "items": BUNDLE}),
        }
        for number in range(6)
    },
    "required": ["field_1"],
}
DESCRIBED = (
    "Does something with its fields, said in a few sentences. Use it where nothing else fits. It changes nothing."
)

Do = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Task:
    """What is measured, and what is subtracted from it because it is none of the framework's work."""

    do: Do
    less: Do


class Echo:
    """Makes the tool of all agents, and sees what is done with it."""

    def __init__(self) -> None:
        self.done = self.running = self.most = 0

    def function(self) -> Callable[[str], Awaitable[str]]:
        """Return the tool."""

        async def echo(text: str) -> str:
            """Say a text again."""
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            self.done += 1
            return text

        return echo


def texts(calls: int) -> list[str]:
    """Return what the model has the tool say."""
    return [f"text {number}" for number in range(calls)]


async def turn_toolweave(stack: AsyncExitStack, calls: int, echo: Callable[[str], Awaitable[str]]) -> Do:
    """Take a turn with our agent."""
    from toolweave import Agent
    from toolweave.models import ModelRequest, ScriptedModel, tool_call

    asked = [tool_call("echo", {"text": text}) for text in texts(calls)]

    def say(request: ModelRequest) -> object:
        return "done" if len(request.messages) > 1 else asked

    model = ScriptedModel(say)
    agent = await stack.enter_async_context(Agent(model, tools=[echo]))

    async def turn() -> object:
        model.requests.clear()  # it keeps them all, for tests
        return (await agent.send("go")).text

    return turn


async def turn_pydantic_ai(stack: AsyncExitStack, calls: int, echo: Callable[[str], Awaitable[str]]) -> Do:
    """Take a turn with pydantic-ai's agent."""
    ai: Any = importlib.import_module("pydantic_ai")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    function: Any = importlib.import_module("pydantic_ai.models.function")
    asked = [
        messages.ToolCallPart("echo", {"text": text}, tool_call_id=f"call_{number}")
        for number, text in enumerate(texts(calls))
    ]

    def say(history: list[Any], _: object) -> object:
        return messages.ModelResponse(parts=[messages.TextPart("done")] if len(history) > 1 else list(asked))

    agent = await stack.enter_async_context(ai.Agent(function.FunctionModel(say), tools=[ai.Tool(echo)]))

    async def turn() -> object:
        return (await agent.run("go")).output

    return turn


async def turn_openai_agents(stack: AsyncExitStack, calls: int, echo: Callable[[str], Awaitable[str]]) -> Do:
    """Take a turn with openai-agents' runner, without its tracing."""
    sdk: Any = importlib.import_module("agents")
    parts: Any = importlib.import_module("openai.types.responses")
    asked = [
        parts.ResponseFunctionToolCall(
            type="function_call",
            name="echo",
            arguments=json.dumps({"text": text}),
            call_id=f"c{number}",
            id=f"c{number}",
        )
        for number, text in enumerate(texts(calls))
    ]
    text = parts.ResponseOutputText(type="output_text", text="done", annotations=[])
    done = parts.ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])

    async def say(_: object, **request: Any) -> object:
        history: Any = request["input"]
        again = not isinstance(history, str) and len(history) > 1
        return sdk.ModelResponse(output=[done] if again else list(asked), usage=sdk.Usage(), response_id=None)

    model: Any = type("Scripted", (sdk.Model,), {"get_response": say, "stream_response": None})
    agent = sdk.Agent(name="bench", model=model(), tools=[sdk.function_tool(echo)])
    config = sdk.RunConfig(tracing_disabled=True)

    async def turn() -> object:
        return (await sdk.Runner.run(agent, "go", run_config=config)).final_output

    return turn


async def request_toolweave(stack: AsyncExitStack) -> Callable[[int], Do]:
    """Make the body of our request, as bytes."""
    from toolweave import ToolSpec
    from toolweave.models import ModelRequest, OpenAICompatibleModel, UserMessage
    from toolweave.tools import TextContent
    from toolweave.tools.arguments import encode

    specs = [ToolSpec(name=f"tool_{number}", description=DESCRIBED, input_schema=SCHEMA) for number in range(TOOLS)]
    model = OpenAICompatibleModel("http://localhost/v1", model="bench")
    messages = [UserMessage(content=(TextContent(text="go"),))]

    def of(count: int) -> Do:
        async def build() -> object:
            request = ModelRequest(messages=messages, tools=specs[:count])  # a new list each time, the same tools
            model.wire_tools(request.tools)  # `stream` looks them up for itself too
            return encode(model.body(request))

        return build

    return of


def mocked(stack: AsyncExitStack, bodies: list[bytes]) -> Any:
    """Return OpenAI's client over a transport that keeps the last body and answers at once."""
    openai: Any = importlib.import_module("openai")
    http: Any = importlib.import_module("httpx2")
    message = {"role": "assistant", "content": "done"}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "bench"}
    answer |= {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    def handle(request: Any) -> Any:
        bodies[:] = [request.content]
        return http.Response(200, json=answer)

    client = http.AsyncClient(transport=http.MockTransport(handle))
    stack.push_async_callback(client.aclose)
    return openai.AsyncOpenAI(api_key="none", base_url="http://localhost/v1", http_client=client)


async def request_pydantic_ai(stack: AsyncExitStack) -> Callable[[int], Do]:
    """Make the request of pydantic-ai."""
    models: Any = importlib.import_module("pydantic_ai.models")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    tools: Any = importlib.import_module("pydantic_ai.tools")
    chat: Any = importlib.import_module("pydantic_ai.models.openai")
    providers: Any = importlib.import_module("pydantic_ai.providers.openai")
    bodies: list[bytes] = []
    model = chat.OpenAIChatModel("bench", provider=providers.OpenAIProvider(openai_client=mocked(stack, bodies)))
    offered = [
        tools.ToolDefinition(name=f"tool_{number}", description=DESCRIBED, parameters_json_schema=SCHEMA, strict=False)
        for number in range(TOOLS)
    ]
    history = [messages.ModelRequest(parts=[messages.UserPromptPart("go")])]

    def of(count: int) -> Do:
        async def build() -> object:
            await model.request(history, None, models.ModelRequestParameters(function_tools=offered[:count]))
            return bodies[0]

        return build

    return of


async def request_openai_agents(stack: AsyncExitStack) -> Callable[[int], Do]:
    """Make the request of openai-agents."""
    sdk: Any = importlib.import_module("agents")
    tracing: Any = importlib.import_module("agents.models.interface").ModelTracing.DISABLED
    bodies: list[bytes] = []
    model = sdk.OpenAIChatCompletionsModel("bench", mocked(stack, bodies))
    settings = sdk.ModelSettings()

    async def invoke(_: object, arguments: str) -> str:
        return arguments

    offered = [
        sdk.FunctionTool(
            name=f"tool_{number}",
            description=DESCRIBED,
            params_json_schema=SCHEMA,
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )
        for number in range(TOOLS)
    ]

    def of(count: int) -> Do:
        async def build() -> object:
            await model.get_response(None, "go", settings, offered[:count], None, [], tracing)
            return bodies[0]

        return build

    return of


TURNS = {"toolweave": turn_toolweave, "pydantic-ai": turn_pydantic_ai, "openai-agents": turn_openai_agents}
REQUESTS = {"toolweave": request_toolweave, "pydantic-ai": request_pydantic_ai, "openai-agents": request_openai_agents}
MODULES = {"toolweave": ("toolweave",), "pydantic-ai": ("pydantic_ai", "openai"), "openai-agents": ("agents",)}
"""Contender -> the modules it needs."""


async def turns(calls: int, name: str, stack: AsyncExitStack) -> Task:
    """Return one turn, less the tools' own work; raise when it does not call them, or not at once."""
    echo = Echo()
    function = echo.function()
    turn = await TURNS[name](stack, calls, function)
    said = await turn()
    if (said, echo.done, echo.most) != ("done", calls, calls):
        raise RuntimeError(f"{name} said {said!r} after {echo.done} calls, {echo.most} at once, instead of {calls}")

    async def bare() -> None:
        for text in texts(calls):
            await function(text)

    return Task(turn, bare)


async def requests(name: str, stack: AsyncExitStack) -> Task:
    """Return a request with all tools, less one with none; raise when they are not all in its body."""
    of = await REQUESTS[name](stack)
    whole = of(TOOLS)
    body: Any = await whole()
    first, count = json.loads(body)["tools"][0]["function"], len(json.loads(body)["tools"])
    if (count, first["parameters"]["properties"].keys()) != (TOOLS, SCHEMA["properties"].keys()):
        raise RuntimeError(f"{name} sent {count} tools: {first}")
    return Task(whole, of(0))


CASES: dict[str, Callable[[str, AsyncExitStack], Awaitable[Task]]] = {
    "one turn, 1 local call": partial(turns, 1),
    "one turn, 32 local calls at once": partial(turns, 32),
    "request from 1,000 tools, second time": requests,
}


async def work(name: str, case: str) -> dict[str, float]:
    """Do a case over and over, first untimed, then timed; return what one costs above what is subtracted."""
    async with AsyncExitStack() as stack:
        task = await CASES[case](name, stack)
        gc.collect()
        whole, less = await spend(task.do), await spend(task.less)
        return {"cpu": whole[0] - less[0], "wall": whole[1] - less[1]}


async def spend(do: Do) -> tuple[float, float]:
    """Return the CPU and the time of one."""
    await repeat(do, WARM_UP_SECONDS)
    cpu, wall = time.process_time(), time.perf_counter()
    count = await repeat(do, TURN_SECONDS)
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


async def repeat(do: Do, seconds: float) -> int:
    """Do it until so much CPU is used, at least once; return how often."""
    count, end = 0, time.process_time() + seconds
    while not count or time.process_time() < end:
        await do()
        count += 1
    return count


def agents(settings: Any) -> list[Any]:
    """Measure every contender that is installed, in turn."""
    from benchmarks.crew import ROOT
    from benchmarks.measure import Figure, Sample, compare

    names = [name for name, modules in MODULES.items() if all(map(find_spec, modules))]
    if settings.clients:
        names = [name for name in names if name in ("toolweave", *settings.clients)]
    for name in set(MODULES) - set(names):
        sys.stderr.write(f"{name}: not measured, its rows are left out\n")
    figures: list[Figure] = []
    for case in filter(settings.wants, CASES):
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        for _ in range(settings.rounds):
            for name in list(samples):
                command = [sys.executable, "-m", "benchmarks.agents", name, case]
                done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False)
                if done.returncode:
                    last = done.stderr.decode().strip().splitlines()[-1:]
                    sys.stderr.write(f"{name}, {case}: its rows are left out: {''.join(last)}\n")
                    del samples[name]
                    continue
                samples[name].append(Sample(**json.loads(done.stdout)))
        figures += compare("agents", case, samples, baseline="toolweave")
    return figures


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asyncio.run(work(sys.argv[1], sys.argv[2]))))
