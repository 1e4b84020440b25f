"""`toolweave chat`: a conversation with a model that uses the servers' tools."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave.cli._chat.options import ChatOptions
from toolweave.cli._command import Command, Option
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption
from toolweave.cli._runner import run
from toolweave.cli._screen import answer_json, note, wide
from toolweave.errors import ErrorKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolweave.agent import Run, RunResult, ToolFinished
    from toolweave.cli._chat.repl import ChatSession

_EXAMPLES = """
toolweave chat
toolweave chat -m "What changed in this repository today?"
toolweave chat --model ollama:qwen3 -- uvx mcp-server-time
toolweave chat --model command -m '/call time_get_current_time {"timezone": "UTC"}'
git diff | toolweave chat --config mcp.json --confirm always
"""


def chat(
    options: ChatOptions,
    message: Annotated[
        str | None, Option("--message", "-m", metavar="TEXT", help="Send this, print the answer, and end.")
    ] = None,
    run_id: Annotated[str | None, Option("--run-id", hidden=True)] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Talk to a model that uses the servers' tools.

    Without --model, the model is that of TOOLWEAVE_MODEL or of the provider whose API key is set. The model "command"
    needs no key and no network: it runs /call TOOL {JSON}, and searches tools for other words. Piped input is one
    message, like -m. The exit code is 1 if its last calls were all refused or failed. You are asked before a tool
    runs that may destroy something. If no one can be asked, it does not run.
    """
    if run_id is not None:
        return run(lambda: _spawned(options, run_id))
    if message is None and not wide(sys.stdin):
        from toolweave.cli._stdin import read_all  # imports are late: --help imports this module

        message = read_all()
    if message is None and not as_json:
        return _converse(options)
    from toolweave.cli._arguments import as_utf8  # late, as above

    said = as_utf8(message or "").strip()
    if not said:
        raise CommandError("the message is empty", hint="-m TEXT, or a text on standard input")
    return run(lambda: _once(options, said, as_json=as_json), verbose=options.verbose)


async def _once(options: ChatOptions, message: str, *, as_json: bool) -> ExitCode:
    from toolweave.cli._chat.render import RunView
    from toolweave.cli._chat.startup import opened  # late, as above
    from toolweave.cli._stdin import can_ask

    async with opened(options) as here:
        sent = here.agent.send(message, session=options.resume, attended=can_ask())
        watch = RunView(text=not as_json)
        result = await watch.show(sent)
    if as_json:
        answer_json(_result_json(sent, result))
    elif result.status != "completed":
        note(f"ended early: {result.why}")
    if result.status != "completed":
        return ExitCode.TOOL_ERROR
    return _of_calls(watch.failed)


def _of_calls(failed: Sequence[ToolFinished]) -> ExitCode:
    """Return the exit code for an answer whose last turn of calls had these denied or failed ones."""
    if any(call.result.require_error().kind is ErrorKind.DENIED for call in failed):
        note("hint: --confirm never runs such calls without a question")
    if failed:
        return ExitCode.TOOL_ERROR
    return ExitCode.OK


def _converse(options: ChatOptions) -> ExitCode:
    talk: ChatSession | None = None

    async def body() -> ExitCode:
        nonlocal talk
        from toolweave.cli._chat.history import SavedConversations
        from toolweave.cli._chat.repl import ChatSession
        from toolweave.cli._chat.startup import (
            OFFLINE,  # late, as above
            opened,
        )

        async with opened(options) as here:
            kept = SavedConversations(here.store, here.agent.name)
            session = options.resume or kept.new_name()
            offline = here.agent.model.name == OFFLINE
            talk = ChatSession(here.agent, here.fleet, kept, session=session, offline=offline)
            await talk.until_the_end()
        return ExitCode.OK

    return run(body, verbose=options.verbose, interrupt=lambda: talk is not None and talk.interrupted())


async def _spawned(options: ChatOptions, run_id: str) -> ExitCode:
    from toolweave.cli._chat.spawn import failing
    from toolweave.cli._chat.startup import opened  # late, as above

    async with failing(options.store, run_id), opened(options, attended="later") as here:
        await here.agent.begin(run_id=run_id, attended="later")
    return ExitCode.OK


def _result_json(sent: Run, result: RunResult) -> Json:
    return {
        "run_id": sent.id,
        "status": result.status,
        "stop_reason": result.stop_reason,
        "text": result.text,
        "steps": result.steps,
        "usage": asdict(result.usage),
    }


COMMAND = Command(chat, examples=_EXAMPLES)
