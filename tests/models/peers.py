"""The rules of provider streams played against Toolweave and two others: the table of docs/model-apis.md.

`scripts/wires` runs it. Each cell is one agent of the library with two tools, at an endpoint that answers with the
bytes of the rule and then with a text.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.docs.measured import measured_part, write_measured_part
from tests.models import fake_anthropic, fake_openai
from tests.models.http_server import Answer, Received, serve
from tests.models.run_rules import RUNS, Ended, RunRule, answer_of
from tests.models.stream_rules import BROKEN, ONE_CALL, PATH, TWO_CALLS
from toolweave import Agent, tool
from toolweave.models import Retry

__all__ = ["LIBRARIES", "PAGE", "RULES", "played", "table", "table_on_the_page"]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "model-apis.md"
SECONDS = 20
Run = tuple[str, dict[str, Any]]
Called = Callable[[str, Any], str]
"""Is told of each call of a tool, and returns its result."""


@dataclass(frozen=True, kw_only=True)
class Play:
    """One run for a player.

    Attributes:
        wire: The API of the endpoint.
        url: The endpoint.
        next_url: The endpoint at which the conversation continues, or None.
        called: Reports a call of a tool.
        rule: The rule.
    """

    wire: Wire
    url: str
    next_url: str | None
    called: Called
    rule: RunRule

    def wipe(self, path: str | None = None) -> str:
        return self.called("wipe", path)

    def get(self, path: str | None = None) -> str:
        return self.called("get", path)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer of an agent of a library: see `Ended`."""

    text: str
    is_whole: bool = True
    value: Any = None
    input_tokens: int = 0


class Number(BaseModel):
    """The structured answer."""

    n: int


Player = Callable[[Play], Awaitable[Answered]]
"""Runs an agent of a library."""

ONE: list[Run] = [("wipe", PATH)]
TWO: list[Run] = [("get", PATH), ("wipe", PATH)]


def _runs(expected: list[Run]) -> Callable[[Ended], bool]:
    return lambda end: end.error is None and sorted(end.runs, key=str) == expected


def _fails(end: Ended) -> bool:
    return end.error is not None and not end.runs


def _each(row: Mapping[Wire, Answer]) -> Mapping[Wire, Sequence[Answer]]:
    return {wire: [answer] for wire, answer in row.items()}


RULES: Mapping[str, RunRule] = {
    **{f"one call: {rule}": RunRule(_each(row), _runs(ONE)) for rule, row in ONE_CALL.items()},
    **{f"two calls: {rule}": RunRule(_each(row), _runs(TWO)) for rule, row in TWO_CALLS.items()},
    **{f"an error: {rule}": RunRule(_each(row), _fails, is_endless=True) for rule, row in BROKEN.items()},
    **RUNS,
}
"""Every rule."""


async def toolweave(play: Play) -> Answered:
    """Run an agent of this library."""
    tools = [tool(play.wipe), tool(play.get)]
    retry = Retry(attempts=3, first=0) if play.rule.retries else Retry(attempts=1)
    output = Number if play.rule.is_structured else None
    async with (
        wires.model_at(play.wire, play.url, retry=retry) as model,
        Agent(model, tools=tools, output_type=output) as agent,
    ):
        result = await agent.send("go")
    if play.next_url is not None:
        async with wires.model_at(play.wire, play.next_url) as other, Agent(other, tools=tools) as agent:
            await agent.send([*result.messages, "go on"])
    return Answered(
        text=result.text,
        is_whole=result.status == "completed",
        value=None if output is None or result.output is None else result.output.n,
        input_tokens=result.usage.input_tokens,
    )


async def pydantic_ai(play: Play) -> Answered:
    """Run an agent of Pydantic AI, which streams."""
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai import NativeOutput, PromptedOutput

    output: Any = str
    if play.rule.is_structured:
        output = PromptedOutput(Number) if play.wire == "anthropic" else NativeOutput(Number)

    def agent_at(url: str, output: Any) -> Any:
        agent: Any = PydanticAgent(_pydantic_model(play, url), output_type=output)
        agent.tool_plain(play.wipe)
        agent.tool_plain(play.get)
        return agent

    async def watch(_context: Any, events: Any) -> None:
        async for _ in events:
            pass

    result = await agent_at(play.url, output).run("go", event_stream_handler=watch)
    if play.next_url is not None:
        history = result.all_messages()
        await agent_at(play.next_url, str).run("go on", message_history=history, event_stream_handler=watch)
    usage: Any = result.usage
    return Answered(
        text=str(result.output),
        is_whole=result.response.finish_reason in ("stop", "tool_call"),
        value=getattr(result.output, "n", None),
        input_tokens=usage.input_tokens,
    )


def _pydantic_model(play: Play, url: str) -> Any:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    retries = 2 if play.rule.retries else 0
    if play.wire == "anthropic":
        client = AsyncAnthropic(base_url=url, api_key=fake_anthropic.KEY, max_retries=retries)
        return AnthropicModel("m", provider=AnthropicProvider(anthropic_client=client))
    openai = AsyncOpenAI(base_url=url, api_key=fake_openai.KEY, max_retries=retries)
    kind = OpenAIChatModel if play.wire == "chat" else OpenAIResponsesModel
    return kind("m", provider=OpenAIProvider(openai_client=openai))


async def openai_agents(play: Play) -> Answered:
    """Run an agent of OpenAI Agents, which streams."""
    from agents import Agent as OpenAiAgent
    from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    kind = OpenAIChatCompletionsModel if play.wire == "chat" else OpenAIResponsesModel

    async def run(url: str, given: Any, output: Any) -> Any:
        client = AsyncOpenAI(base_url=url, api_key=fake_openai.KEY, max_retries=2 if play.rule.retries else 0)
        agent: Any = OpenAiAgent(
            name="a",
            model=kind(model="m", openai_client=client),
            tools=[function_tool(play.wipe), function_tool(play.get)],
            output_type=output,
        )
        result = Runner.run_streamed(agent, given)
        async for _ in result.stream_events():
            pass
        return result

    result = await run(play.url, "go", Number if play.rule.is_structured else None)
    if play.next_url is not None:
        await run(play.next_url, [*result.to_input_list(), {"role": "user", "content": "go on"}], None)
    output = result.final_output
    return Answered(
        text=str(output),
        value=getattr(output, "n", None),
        input_tokens=result.context_wrapper.usage.input_tokens,
    )


LIBRARIES: Mapping[str, tuple[Player, tuple[Wire, ...]]] = {
    "Toolweave": (toolweave, tuple(WIRES)),
    "Pydantic AI": (pydantic_ai, tuple(WIRES)),
    "OpenAI Agents": (openai_agents, ("chat", "responses")),
}
"""Each library with its player and the wires that it has."""
_PACKAGES = {"Pydantic AI": "pydantic-ai-slim", "OpenAI Agents": "openai-agents"}


async def played(library: str, wire: Wire, rule: str) -> bool:
    """Return whether a library does what a rule says."""
    end = Ended()
    held = RULES[rule]
    answers = held.answers[wire]

    def called(name: str, path: Any) -> str:
        end.runs.append((name, {} if path is None else {"path": path}))
        return "ok"

    async def answering(request: Received) -> Answer:
        end.bodies.append(request.json)
        end.times.append(anyio.current_time())
        number = len(end.bodies) - 1
        if number < len(answers):
            return answer_of(answers[number])
        return answer_of(answers[-1]) if held.is_endless else wires.says(wire, "done")

    async def elsewhere(request: Received) -> Answer:
        end.elsewhere.append(request.json)
        return wires.says(wire, "done")

    async with serve(answering) as server, serve(elsewhere) as other:
        play = Play(wire=wire, url=server.url, next_url=other.url if held.moves else None, called=called, rule=held)
        try:
            with anyio.fail_after(SECONDS):
                answered = await LIBRARIES[library][0](play)
        except Exception as exc:  # boundary: whatever a library raises is what its user gets
            end.error = exc
        else:
            end.text, end.is_whole = answered.text, answered.is_whole
            end.value, end.input_tokens = answered.value, answered.input_tokens
    return held.right(end)


async def table(libraries: Mapping[str, Any] = LIBRARIES) -> str:
    """Return the table in Markdown: of each rule the wires on which each library is right."""
    heads = [f"{name} {version(_PACKAGES[name])}" if name in _PACKAGES else name for name in libraries]
    lines = [f"| rule | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    totals = {name: [0, 0] for name in libraries}
    for rule, told in RULES.items():
        cells: list[str] = []
        for name in libraries:
            has: list[Wire] = [wire for wire in LIBRARIES[name][1] if wire in told.answers]
            passed = {wire: await played(name, wire, rule) for wire in has}
            totals[name][0] += sum(passed.values())
            totals[name][1] += len(has)
            wrong = [wire for wire in has if not passed[wire]]
            cells.append("–" if not has else "✓" if not wrong else f"✗ {', '.join(_API[one] for one in wrong)}")
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    summed = " | ".join(f"{right} of {of}" for right, of in totals.values())
    return "\n".join([*lines, f"| **right, of the wires that it has** | {summed} |"])


_API: Mapping[str, str] = {"chat": "Chat Completions", "anthropic": "Messages", "responses": "Responses"}


def table_on_the_page() -> str:
    """Return the table as the page has it."""
    return measured_part(PAGE, "stream rules")


def main() -> None:
    """Play every rule, and write the table of the page."""
    parser = argparse.ArgumentParser(prog="scripts/wires", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of docs/model-apis.md")
    write: bool = parser.parse_args().write
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    made = asyncio.run(table())
    print(made)
    if write:
        write_measured_part(PAGE, "stream rules", made)


if __name__ == "__main__":
    main()
