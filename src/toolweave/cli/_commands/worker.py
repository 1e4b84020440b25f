"""`toolweave worker`: a process that executes submitted runs and tasks, on one machine or on many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from toolweave.cli._chat.options import AgentTarget, chat_options
from toolweave.cli._chat.stores import BACKEND, NO_WORKERS, backend_named, opened_backend
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import given_options
from toolweave.cli._runner import run

if TYPE_CHECKING:
    from toolweave.cli._worker.discover import WorkerTargets

_EXAMPLES = """
toolweave worker app.py --backend redis://localhost:6379/0
toolweave worker mypackage.agents:researcher mypackage.server:server --concurrency 4
toolweave worker --config mcp.json --model anthropic:claude-sonnet-4-5
TOOLWEAVE_BACKEND=rediss://redis.example/0 toolweave worker app.py --json
"""


class Unknown(StrEnum):
    """Policy for calls with an unknown outcome; `ask` has the run wait for a person."""

    ASK = "ask"
    ERROR = "error"
    RERUN = "rerun"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions(AgentTarget):
    """The options of `toolweave worker`; each attribute is an option."""

    backend: Annotated[
        str | None,
        Option("--backend", metavar="URL", help="redis://..., rediss:// or unix://; else TOOLWEAVE_BACKEND."),
    ] = None
    concurrency: Annotated[
        int, Option("--concurrency", minimum=1, help="How many jobs of each agent and server run at a time.")
    ] = 10
    on_unknown: Annotated[
        Unknown | None,
        Option("--on-unknown", help="Policy for calls in which a worker died; by default the agent's."),
    ] = None
    max_deaths: Annotated[int, Option("--max-deaths", minimum=1, help="How many workers may die of a run.")] = 3
    grace: Annotated[
        float,
        Option("--grace", metavar="SECONDS", minimum=0, help="How long turns and calls may take to end at SIGTERM."),
    ] = 20.0
    wait: Annotated[
        float,
        Option("--wait", metavar="SECONDS", minimum=0, help="How long the start waits for a backend that is away."),
    ] = 60.0
    http: Annotated[
        str | None,
        Option("--http", metavar="[HOST:]PORT", help="Serve /healthz and /readyz for orchestrators; port 0: any."),
    ] = None
    metrics: Annotated[bool, Option("--metrics", help="Count jobs for Prometheus, at /metrics.", needs=["--http"])] = (
        False
    )
    quiet: Annotated[bool, Option("--quiet", "-q", help="Report only errors.")] = False
    as_json: Annotated[bool, Option("--json", help="Report events as JSON, one object a line.")] = False


def worker(
    options: WorkerOptions,
    targets: Annotated[tuple[str, ...], Positional("TARGET", help="FILE.py[:OBJECT] or MODULE:OBJECT.")] = (),
) -> ExitCode:
    """Execute submitted runs and tasks.

    TARGET names agents and servers, or durable agents of other frameworks. Without OBJECT, the worker executes the runs
    of all in the file or module. Without TARGET, it executes those of `toolweave runs spawn`, with an agent made of
    --config, --model and the other options. Start as many workers as you like, on as many machines. Each run is
    executed once, and continues at another worker if its worker dies. If a tool call needs an approval, the run waits
    for `toolweave runs approve`, and the worker continues with other runs.

    At the first SIGTERM or Ctrl-C, turns and calls under way have --grace seconds to end. Then runs are handed over to
    other workers, and the exit code is 0. A second signal ends at once.
    """
    url = backend_named(options.backend)
    if url is None:
        if os.environ.get(BACKEND, "").strip():
            named = f"{BACKEND} is {NO_WORKERS}"
        else:
            named = "no backend is named"
        raise CommandError(named, hint=f"--backend redis://HOST:6379/0, or set {BACKEND}")
    _check(options, targets)
    os.environ[BACKEND] = url  # what the code below makes of the environment is this one
    found = None
    if targets:
        from toolweave.cli._worker.discover import find_all  # imports are late: --help imports this module

        found = find_all(targets)
    return run(lambda: _work(options, url, found), verbose=options.verbose)


def _check(options: WorkerOptions, targets: Sequence[str]) -> None:
    """Reject options that contradict each other."""
    if options.quiet and options.as_json:
        raise CommandError("--quiet and --json exclude each other")
    if not targets:
        return
    given = given_options(options, AgentTarget, but=("verbose",))
    if given:
        raise CommandError(f"{given[0]} is for the worker without a TARGET; an agent has its own model and servers")


async def _work(options: WorkerOptions, url: str, found: WorkerTargets | None) -> ExitCode:
    import anyio  # late, as above

    from toolweave.agent import RunStatuses, work_runs
    from toolweave.cli._chat.startup import opened
    from toolweave.cli._worker.discover import open_all
    from toolweave.cli._worker.log import ReportingBackend, WorkerReporter
    from toolweave.cli._worker.probes import WorkerProbes, worker_metrics
    from toolweave.cli._worker.signals import ended_by_signals

    reporter: WorkerReporter | None = None

    def stopping() -> None:
        if reporter is not None:
            reporter.stopping()

    with ended_by_signals(stopping, grace_seconds=options.grace) as shutdown:
        async with AsyncExitStack() as stack:
            probes = WorkerProbes()
            if options.http is not None:
                await stack.enter_async_context(probes.serving(options.http))
            backend = await stack.enter_async_context(opened_backend(url, wait_seconds=options.wait))
            if options.metrics:
                probes.metrics = worker_metrics(backend.store)
            reporter = WorkerReporter(
                statuses=RunStatuses(backend.store), probes=probes, as_json=options.as_json, quiet=options.quiet
            )
            reporting = ReportingBackend(backend, reporter)
            if found is None:
                chat = opened(chat_options(options), backend=reporting)
                opened_agent = await stack.enter_async_context(chat)
                agents = [opened_agent.agent]
                tasks = None
            else:
                agents = found.agents
                tasks = await open_all(found, reporting, stack)
            with anyio.CancelScope() as shutdown.work:
                await work_runs(
                    agents,
                    reporting,
                    also=tasks,
                    concurrency=options.concurrency,
                    on_unknown=None if options.on_unknown is None else options.on_unknown.value,
                    max_deaths=options.max_deaths,
                    grace_seconds=options.grace,
                )
    return ExitCode.OK


COMMAND = Command(worker, examples=_EXAMPLES)
