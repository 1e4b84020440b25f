"""`toolweave runs`: what agents did and do, from the store; and work that goes on without a terminal."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolweave.cli.chatting.options import ChatOptions, StoreOption
from toolweave.cli.exits import CommandError, ExitCode
from toolweave.cli.options import JsonOption
from toolweave.cli.runner import run
from toolweave.cli.screen import answer, answer_json, note, show

if TYPE_CHECKING:
    from toolweave.agent.status import RunInfo, RunStatuses
    from toolweave.state import SqliteStore

__all__ = ["EXAMPLES", "HELP", "Filter", "cancel", "list_runs", "show_run", "spawn"]

HELP = "List, show, begin and stop runs of agents."
EXAMPLES = {
    "spawn": """
toolweave runs spawn "Summarise the notes" --config mcp.json
toolweave runs spawn '/call time_get_current_time {"timezone": "UTC"}' --model command
""",
    "list": """
toolweave runs list
toolweave runs list --status interrupted --json
""",
    "show": """
toolweave runs show 496e77
""",
    "cancel": """
toolweave runs cancel 496e77
""",
}

_SHORT = 8
_PROMPT = 60
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or how it begins.")]


class Filter(StrEnum):
    """Which runs are listed."""

    ALL = "all"
    ACTIVE = "active"
    INTERRUPTED = "interrupted"


def spawn(
    options: ChatOptions,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What the model is to do.")],
    as_json: JsonOption = False,
) -> ExitCode:
    """Begin a run that goes on without this terminal.

    Prints its id; `toolweave runs show` tells what came of it. Nobody can be asked about its tool calls: those of tools
    that may destroy something are not made, unless --confirm says never.
    """
    if not message.strip():
        raise CommandError("the message is empty")

    async def body() -> ExitCode:
        from toolweave.cli.chatting.choice import choose_model  # imports are late: --help imports this module
        from toolweave.cli.chatting.opened import servers_of
        from toolweave.cli.chatting.spawned import spawn as begin

        servers_of(options)  # what is wrong here is better told now than found in the store later
        await choose_model(options.model)
        run_id = await begin(options, message)
        if as_json:
            answer_json({"run_id": run_id})
        else:
            answer(run_id)
            note(f"toolweave runs show {run_id[:_SHORT]} tells what came of it")
        return ExitCode.OK

    return run(body, verbose=options.verbose)


def list_runs(
    which: Annotated[Filter, typer.Option("--status", help="Which runs.")] = Filter.ALL,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, the newest.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """List the runs that were begun last."""

    async def body(_: SqliteStore, statuses: RunStatuses) -> ExitCode:
        if which is Filter.ALL:
            found = await statuses.recent(limit)
        else:
            some = await (statuses.active() if which is Filter.ACTIVE else statuses.interrupted())
            found = list(reversed(some))[:limit]
        if as_json:
            answer_json({"runs": [_run_json(one) for one in found]})
        elif found:
            from toolweave.cli.render.views import table  # late, as above

            rows = [
                (one.run_id[:_SHORT], one.status, one.record.agent, _when(one), _one_line(one.record.prompt))
                for one in found
            ]
            show(table(["run", "status", "agent", "begun", "message"], rows))
        else:
            note("there are no such runs")
        return ExitCode.OK

    return _with_store(store, body)


def show_run(run_id: RunId, store: StoreOption = None, as_json: JsonOption = False) -> ExitCode:
    """Show one run: where it is, what it was asked, what came of it, and the runs that it started."""

    async def body(open_store: SqliteStore, statuses: RunStatuses) -> ExitCode:
        from toolweave.agent.tree import run_tree  # late, as above

        one = await _found(statuses, run_id)
        tree = await run_tree(open_store, one.run_id)
        below = [] if tree is None else [(level, child) for level, child in tree.walk() if level]
        if as_json:
            answer_json({**_run_json(one), "children": [_run_json(child) for _, child in below]})
            return ExitCode.OK
        record = one.record
        parts = [f"{record.steps} steps", f"{record.usage.input_tokens + record.usage.output_tokens} tokens"]
        reason = f" ({record.stop_reason})" if record.stop_reason not in (None, "end") else ""
        note(f"{one.run_id}  {one.status}{reason}  {_when(one)}  {', '.join(parts)}")
        note(f"> {record.prompt}")
        for level, child in below:
            note(f"{'  ' * level}{child.run_id[:_SHORT]}  {child.status}  {_one_line(child.record.prompt)}")
        if record.error is not None:
            note(f"error: {record.error}")
        if record.text:
            answer(record.text)
        return ExitCode.OK

    return _with_store(store, body)


def cancel(run_id: RunId, store: StoreOption = None, as_json: JsonOption = False) -> ExitCode:
    """Stop a run and all that it started, wherever they run.

    One that runs elsewhere is told within seconds. Exits with 1 when it has ended already.
    """

    async def body(_: SqliteStore, statuses: RunStatuses) -> ExitCode:
        one = await _found(statuses, run_id)
        cancelled = await statuses.cancel(one.run_id)
        if as_json:
            answer_json({"run_id": one.run_id, "cancelled": cancelled})
        else:
            note(f"{one.run_id} {'is asked to stop' if cancelled else f'has ended already: {one.status}'}")
        return ExitCode.OK if cancelled else ExitCode.TOOL_ERROR

    return _with_store(store, body)


def _with_store(path: Path | None, body: Callable[[SqliteStore, RunStatuses], Awaitable[ExitCode]]) -> ExitCode:
    async def opened() -> ExitCode:
        from toolweave.agent.status import RunStatuses  # late, as above
        from toolweave.state import SqliteStore

        async with SqliteStore(path) as store:
            return await body(store, RunStatuses(store))

    return run(opened)


async def _found(statuses: RunStatuses, run_id: str) -> RunInfo:
    """Return the run of an id or of its beginning."""
    one = await statuses.get(run_id)
    if one is not None:
        return one
    begun = [one for one in await statuses.recent(10_000) if run_id and one.run_id.startswith(run_id)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise CommandError(f"{len(begun)} runs begin with {run_id!r}", hint="write more of the id")
    raise CommandError(f"there is no run {run_id!r}", hint="toolweave runs list shows those that there are")


def _run_json(one: RunInfo) -> dict[str, Any]:
    record = asdict(one.record)
    record.pop("revision", None)
    return {**record, "status": one.status}


def _when(one: RunInfo) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(one.record.created_at))


def _one_line(text: str) -> str:
    from toolweave.cli.render.text import clip  # late, as above

    return clip(" ".join(text.split()), _PROMPT)
