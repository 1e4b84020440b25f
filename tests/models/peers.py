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
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.docs.measured import measured_part, write_measured_part
from tests.models import fake_anthropic, fake_openai
from tests.models.http_server import Answer, Received, serve
from tests.models.stream_rules import BROKEN, ONE_CALL, PATH, RUNS, TWO_CALLS, Ended, RunRule
from toolweave import Agent, tool
from toolweave.models import Retry

__all__ = ["LIBRARIES", "PAGE", "RULES", "played", "table", "table_on_the_page"]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "model-apis.md"
SECONDS = 20
Run = tuple[str, dict[str, Any]]
Called = Callable[[str, Any], str]
"""Is told of each call of a tool, and returns its result."""
Player = Callable[[Wire, str, Called, bool], Awaitable[str]]
"""Runs an agent of a library at a URL, with retries or without, and returns its answer."""

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
    **{f"an error: {rule}": RunRule(_each(row), _fails) for rule, row in BROKEN.items()},
    **RUNS,
}
"""Every rule."""
_FOREVER = [rule for rule in RULES if rule.startswith("an error: ")]
"""Rules whose answer is given to every request."""


async def toolweave(wire: Wire, url: str, called: Called, retries: bool) -> str:
    """Run an agent of this library."""

    @tool
    def wipe(path: str | None = None) -> str:
        return called("wipe", path)

    @tool
    def get(path: str | None = None) -> str:
        return called("get", path)

    retry = Retry(attempts=3, first=0) if retries else Retry(attempts=1)
    async with wires.model_at(wire, url, retry=retry) as model, Agent(model, tools=[wipe, get]) as agent:
        return (await agent.send("go")).text


async def pydantic_ai(wire: Wire, url: str, called: Called, retries: bool) -> str:
    """Run an agent of Pydantic AI, which streams."""
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if wire == "anthropic":
        client = AsyncAnthropic(base_url=url, api_key=fake_anthropic.KEY, max_retries=2 if retries else 0)
        model: Any = AnthropicModel("m", provider=AnthropicProvider(anthropic_client=client))
    else:
        openai = AsyncOpenAI(base_url=url, api_key=fake_openai.KEY, max_retries=2 if retries else 0)
        kind = OpenAIChatModel if wire == "chat" else OpenAIResponsesModel
        model = kind("m", provider=OpenAIProvider(openai_client=openai))
    agent: Any = PydanticAgent(model)

    @agent.tool_plain
    def wipe(path: str | None = None) -> str:  # pyright: ignore[reportUnusedFunction]
        return called("wipe", path)

    @agent.tool_plain
    def get(path: str | None = None) -> str:  # pyright: ignore[reportUnusedFunction]
        return called("get", path)

    async def watch(_context: Any, events: Any) -> None:
        async for _ in events:
            pass

    return str((await agent.run("go", event_stream_handler=watch)).output)


async def openai_agents(wire: Wire, url: str, called: Called, retries: bool) -> str:
    """Run an agent of OpenAI Agents, which streams."""
    from agents import Agent as OpenAiAgent
    from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key=fake_openai.KEY, max_retries=2 if retries else 0)
    kind = OpenAIChatCompletionsModel if wire == "chat" else OpenAIResponsesModel

    @function_tool
    def wipe(path: str | None = None) -> str:
        return called("wipe", path)

    @function_tool
    def get(path: str | None = None) -> str:
        return called("get", path)

    agent: Any = OpenAiAgent(name="a", model=kind(model="m", openai_client=client), tools=[wipe, get])
    result = Runner.run_streamed(agent, "go")
    async for _ in result.stream_events():
        pass
    return str(result.final_output)


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
    answers = RULES[rule].answers[wire]

    def called(name: str, path: Any) -> str:
        end.runs.append((name, {} if path is None else {"path": path}))
        return "ok"

    async def answering(request: Received) -> Answer:
        end.bodies.append(request.json)
        number = len(end.bodies) - 1
        if number < len(answers):
            return answers[number]
        return answers[-1] if rule in _FOREVER else wires.says(wire, "done")

    async with serve(answering) as server:
        try:
            with anyio.fail_after(SECONDS):
                end.text = await LIBRARIES[library][0](wire, server.url, called, RULES[rule].retries)
        except Exception as exc:  # boundary: whatever a library raises is what its user gets
            end.error = exc
    return RULES[rule].right(end)


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
