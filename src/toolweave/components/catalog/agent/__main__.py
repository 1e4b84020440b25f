"""Talk to the agent: one message, as words or on standard input; or a conversation."""

from __future__ import annotations

import os
import sys

import anyio

from toolweave import Agent, ToolweaveError
from toolweave.agent import (
    ApprovalRequested,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnRestarted,
)

from .agent import create_agent


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def ask(question: str) -> str:
    """Return the line that the user types; empty at the end of the input."""
    print(question, end="", file=sys.stderr, flush=True)
    await anyio.wait_readable(sys.stdin.fileno())
    return os.read(sys.stdin.fileno(), 65536).decode(errors="replace")


async def answer(agent: Agent, message: str) -> None:
    """Send a message, and print what happens until it is answered."""
    run = agent.send(message, session="terminal", attended=sys.stdin.isatty())
    async for event in run:
        match event:
            case TextDelta(text=text):
                print(text, end="", flush=True)
            case TurnRestarted(
                error=error
            ):  # what was printed of this answer does not count
                note(f"[{error}; asking again]")
            case ToolStarted(call=call):
                note(f"[{call.name} {call.arguments}]")
            case ToolFinished(call=call, result=result) if result.is_error:
                note(f"[{call.name}: {result.text}]")
            case ApprovalRequested(call=call):
                line = await ask(f"run {call.name} {call.arguments}? [y/N] ")
                decide = run.approve if line.strip().lower() == "y" else run.deny
                decide(event)
            case _:
                pass
    print()
    (await run).check()


async def main(message: str) -> None:
    async with create_agent() as agent:
        if message or not sys.stdin.isatty():
            await answer(agent, message or sys.stdin.read())
            return
        while line := await ask("> "):
            if not line.strip():
                continue
            try:
                await answer(agent, line.strip())
            except ToolweaveError as error:
                note(str(error))


if __name__ == "__main__":
    try:
        anyio.run(main, " ".join(sys.argv[1:]))
    except ToolweaveError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
