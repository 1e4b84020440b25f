"""`toolweave worker`: a process that does the runs and tasks that others submitted, on this machine or on many."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolweave.cli.chatting.options import CHAT_DEFAULTS, ChatOptions, Confirm
from toolweave.cli.chatting.places import BACKEND, backend_named, opened_backend
from toolweave.cli.exits import CommandError, ExitCode
from toolweave.cli.options import TARGET_DEFAULTS, Target
from toolweave.cli.runner import run

if TYPE_CHECKING:
    from toolweave.cli.working.objects import Found

__all__ = ["DEFAULTS", "EXAMPLES", "WorkerOptions", "worker"]

EXAMPLES = """
toolweave worker app.py --backend redis://localhost:6379/0
toolweave worker mypackage.agents:researcher mypackage.server:server --concurrency 4
toolweave worker --config mcp.json --model anthropic:claude-sonnet-4-5
TOOLWEAVE_BACKEND=rediss://redis.example/0 toolweave worker app.py --json
"""


class Unknown(Enum):
    """Policy for calls with an unknown outcome: a worker cannot ask anybody."""

    ERROR = "error"
    RERUN = "rerun"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions(Target):
    """What a worker was asked for.

    Attributes:
        model: The model of the chat agent, or None for that of the environment.
        system: What it is told first.
        confirm: Which of its calls a person would have to allow; as there is nobody, they are refused.
        backend: The URL of the backend, or None for that of the environment.
        concurrency: How many jobs of an agent or a server are done at the same time.
        on_unknown: What is done about calls whose outcome nobody knows, or None for what each agent says.
        most_deaths: How many workers may die of a run until it fails.
        quiet: Tell only what went wrong.
        as_json: Tell what happens as JSON lines.
    """

    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model; by default what TOOLWEAVE_MODEL says.")
    ]
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="What it is told first.")]
    confirm: Annotated[
        Confirm,
        typer.Option("--confirm", help="Which calls need somebody's word; they are refused.", show_default=True),
    ]
    backend: Annotated[
        str | None,
        typer.Option("--backend", metavar="URL", help="redis://..., rediss:// or unix://; else TOOLWEAVE_BACKEND."),
    ]
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", min=1, help="How many jobs of each agent and server run at a time.", show_default=True
        ),
    ]
    on_unknown: Annotated[
        Unknown | None,
        typer.Option("--on-unknown", help="What is done about calls in which a worker died; else what the agent says."),
    ]
    most_deaths: Annotated[
        int,
        typer.Option("--most-deaths", min=1, help="How many workers may die of a run.", show_default=True),
    ]
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Tell only what went wrong.")]
    as_json: Annotated[bool, typer.Option("--json", help="Tell what happens as JSON, one object a line.")]


DEFAULTS: dict[str, Any] = {  # what each option is when it is not given
    **TARGET_DEFAULTS,
    "model": None,
    "system": None,
    "confirm": Confirm.DESTRUCTIVE,
    "backend": None,
    "concurrency": 10,
    "on_unknown": None,
    "most_deaths": 3,
    "quiet": False,
    "as_json": False,
}


def worker(
    options: WorkerOptions,
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="FILE.py[:OBJECT] or MODULE:OBJECT.", show_default=False),
    ] = None,
) -> ExitCode:
    """Do the runs and tasks that were submitted.

    Those of the agents and servers that are named; without OBJECT, of all in the file or module. Without TARGET,
    those of the agent of `toolweave runs spawn`, made of --config, --model and the like. Start as many workers as you
    like, on as many machines: each run is done once, and goes on elsewhere when its worker dies. Nobody can be asked
    about tool calls here.

    The first SIGTERM or Ctrl-C hands over what runs and exits with 0; a second one ends at once.
    """
    url = backend_named(options.backend)
    if url is None:
        raise CommandError("no backend is named", hint=f"--backend redis://HOST:6379/0, or set {BACKEND}")
    _check(options, targets or [])
    os.environ[BACKEND] = url  # what the code below makes of the environment is this one
    found = None
    if targets:
        from toolweave.cli.working.objects import find_all  # imports are late: --help imports this module

        found = find_all(targets)
    return run(lambda: _work(options, url, found), verbose=options.verbose)


def _check(options: WorkerOptions, targets: list[str]) -> None:
    """Refuse options that mean nothing together."""
    if options.quiet and options.as_json:
        raise CommandError("--quiet and --json exclude each other")
    if not targets:
        return
    given = [name for name in CHAT_DEFAULTS if getattr(options, name, CHAT_DEFAULTS[name]) != CHAT_DEFAULTS[name]]
    given = [f"--{name.replace('_', '-')}" for name in given if name != "verbose"] + ["--"] * bool(options.command)
    if given:
        raise CommandError(f"{given[0]} is for the worker without a TARGET; an agent has its own model and servers")


async def _work(options: WorkerOptions, url: str, found: Found | None) -> ExitCode:
    from toolweave.agent import RunStatuses, work_runs  # late, as above
    from toolweave.cli.chatting.opened import opened
    from toolweave.cli.working.ending import ended_by_signals
    from toolweave.cli.working.opening import open_all
    from toolweave.cli.working.telling import Telling, ToldBackend

    telling: Telling | None = None

    def stopping() -> None:
        if telling is not None:
            telling.stopping()

    with ended_by_signals(stopping):
        async with AsyncExitStack() as stack:
            backend = await stack.enter_async_context(opened_backend(url))
            telling = Telling(statuses=RunStatuses(backend.store), as_json=options.as_json, quiet=options.quiet)
            told = ToldBackend(backend, telling)
            if found is None:
                chat = opened(_of_the_chat(options), attended=False, backend=told)
                agents, tasks = [(await stack.enter_async_context(chat)).agent], None
            else:
                agents, tasks = found.agents, await open_all(found, told, stack)
            await work_runs(
                agents,
                told,
                also=tasks,
                concurrency=options.concurrency,
                on_unknown=None if options.on_unknown is None else options.on_unknown.value,
                most_deaths=options.most_deaths,
            )
    return ExitCode.OK


def _of_the_chat(options: WorkerOptions) -> ChatOptions:
    """Return the options of the chat agent."""
    return ChatOptions(
        **{one.name: getattr(options, one.name) for one in fields(Target)},
        model=options.model,
        system=options.system,
        confirm=options.confirm,
        resume=None,
        store=None,
    )
