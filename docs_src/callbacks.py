"""What a server may ask of its client: the same callbacks in the oldest way and in the newest."""

from __future__ import annotations

import asyncio

from toolweave import Callbacks, Progress, connect_mcp
from toolweave.connect import ElicitationRequest, ElicitationResult, LogMessage, SamplingRequest, SamplingResult
from toolweave.testing import stdio_server_command


# region callbacks
async def sample(request: SamplingRequest) -> SamplingResult:
    """Ask your language model here."""
    question = request.messages[-1].text
    print(f"{request.server!r} wants a completion of: {question}")
    return SamplingResult(content=f"You said: {question}", model="parrot-1")


async def elicit(request: ElicitationRequest) -> ElicitationResult:
    """Ask your user here, and say who wants to know."""
    print(f"{request.server!r} asks: {request.message} ({request.mode})")
    if request.mode == "url":
        return ElicitationResult.decline()
    return ElicitationResult.accept({"name": "Ada"})


def log(message: LogMessage) -> None:
    print(f"{message.server!r} logs: {message.level}")


callbacks = Callbacks(sampling=sample, elicitation=elicit, roots=["/srv/data"], logging=log, log_level="alert")
# endregion


# region calls
def show(progress: Progress) -> None:
    print(f"{progress.progress:g} of {progress.total:g}")


async def visit(revision: str) -> None:
    command = stdio_server_command("--asks", "--version", revision)
    async with connect_mcp(command, name="nosy", callbacks=callbacks) as nosy:
        print(nosy.protocol_version)
        for tool in ("sample", "elicit", "elicit_url", "chatter"):
            await nosy.call_tool(tool)
        result = await nosy.call_tool("steps_later", {"steps": 2}, on_progress=show)  # becomes a task
        print(result.text)


async def main() -> None:
    await visit("2025-11-25")
    await visit("2026-07-28")


# endregion
asyncio.run(main())
