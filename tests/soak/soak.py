"""`scripts/soak`: many servers, many callers, blows by a seed; then every call against the servers' own logs.

Exit code 1 when a promise was broken: an answer lost or doubled, a call executed twice or though said not to be sent,
memory that grows, a task, file descriptor or process that stays.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

from tests.leftovers import descendants, processes
from tests.soak.fleet import Chaos, Target, make_targets
from tests.soak.traffic import Traffic, read_records
from tests.soak.verdict import Violation, executions, judge, memory_growth
from toolweave import connect_mcp_servers
from toolweave.hub import Hub

__all__ = ["Options", "Report", "run"]

COMEBACK_SECONDS = 90.0
CLOSE_SECONDS = 60.0
SETTLE_SECONDS = 5.0
MEMORY_FACTOR, MEMORY_BYTES = 1.1, 8_000_000
"""What memory may grow by after the warm-up: the noise of an allocator that is never still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be soaked, for how long, by which seed; `pause` is the mean time between two blows, in seconds."""

    seconds: float
    seed: int = 1
    servers: int = 20
    callers: int = 16
    transport: str = "mixed"
    pause: float = 0.4


@dataclass(slots=True, kw_only=True)
class Report:
    """What came out."""

    options: Options
    calls: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    blows: dict[str, int] = field(default_factory=dict[str, int])
    restarts: int = 0
    memory: dict[str, int] = field(default_factory=dict[str, int])
    before: dict[str, int] = field(default_factory=dict[str, int])
    after: dict[str, int] = field(default_factory=dict[str, int])
    violations: list[Violation] = field(default_factory=list[Violation])

    def broken(self, rule: str, detail: str) -> None:
        """Note a broken promise."""
        self.violations.append(Violation(rule=rule, detail=detail))


def holdings() -> dict[str, int]:
    """Return how many tasks, file descriptors and child processes this process has."""
    gc.collect()
    folder = Path("/dev/fd")
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(list(folder.iterdir())) - 1 if folder.exists() else 0,  # the listing's own is one
        "processes": len(descendants(processes(), os.getpid())),
    }


def resident() -> int:
    """Return the resident bytes of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


async def run(options: Options, folder: Path) -> Report:
    """Soak, then judge."""
    report = Report(options=options)
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: report.broken(
            "the event loop reported an error", repr(context.get("exception") or context)
        )
    )
    await warm_up(folder)
    report.before = holdings()
    targets = make_targets(options.servers, options.transport, folder)
    with ExitStack() as stack:
        for target in targets:
            if target.http is not None:
                target.http.start()
                stack.callback(target.http.stop)
        for target in targets:
            if target.http is not None:
                with anyio.fail_after(COMEBACK_SECONDS):
                    await target.http.listening()
        chaos = await soaked(options, targets, report, folder)
    await settle(report)
    report.blows = dict(Counter(blow.act for blow in chaos.disturbances))
    executed: Counter[str] = Counter()
    for target in targets:
        if target.log.exists():
            with target.log.open(encoding="ascii") as lines:
                executed += executions(lines)
    with (folder / "records").open(encoding="utf-8") as lines:
        report.violations += judge(read_records(lines), executed, chaos.disturbances)
    return report


async def warm_up(folder: Path) -> None:
    """Open and close a small hub, so that what is made once for ever is there before anything is counted."""
    (target,) = make_targets(1, "stdio", folder / "..")
    target.config["args"][target.config["args"].index("--log") + 1] = os.devnull
    async with connect_mcp_servers({"mcpServers": {"warm": target.config}}):
        pass


async def soaked(options: Options, targets: list[Target], report: Report, folder: Path) -> Chaos:
    """Open the hub, let callers and chaos loose for the time, see every server come back, close."""
    config = {"mcpServers": {target.name: target.config for target in targets}}
    hub = await connect_mcp_servers(config)
    try:
        chaos = Chaos(targets, options.seed, options.pause)
        with (folder / "records").open("w", encoding="utf-8") as records:
            traffic = Traffic(hub, [target.name for target in targets], records, options.seed)
            samples = await storm(options, targets, traffic, chaos, report)
            await comeback(traffic, targets, report)
        await same_tools(hub, targets, report)
        report.calls, report.outcomes = traffic.begun, dict(traffic.ended)
        if traffic.begun != sum(traffic.ended.values()):
            report.broken("a call never ended", f"{traffic.begun} begun, {sum(traffic.ended.values())} ended")
        report.restarts = sum(client.restarts for client in hub.clients.values())
        judge_memory(samples, report)
    finally:
        with anyio.move_on_after(CLOSE_SECONDS) as scope:
            await hub.close()
        if scope.cancelled_caught:
            report.broken("the hub did not close", f"within {CLOSE_SECONDS:g} s")
    return chaos


async def storm(options: Options, targets: list[Target], traffic: Traffic, chaos: Chaos, report: Report) -> list[int]:
    """Let everything loose for the time; return the memory, second by second."""
    samples: list[int] = []
    async with anyio.create_task_group() as servers:
        for number, target in enumerate(targets):
            if target.http is not None:
                servers.start_soon(target.http.keep, random.Random(f"http {options.seed} {number}"))
        async with anyio.create_task_group() as callers:
            for number in range(options.callers):
                callers.start_soon(traffic.caller, number)
            async with anyio.create_task_group() as blows:
                blows.start_soon(chaos.run)
                ends = time.monotonic() + options.seconds
                while time.monotonic() < ends:
                    await anyio.sleep(min(1.0, options.seconds / 20))
                    samples.append(resident())
                    if sys.stderr.isatty():
                        sys.stderr.write(f"\r{int(ends - time.monotonic()):4} s, {traffic.begun} calls ")
                blows.cancel_scope.cancel()
            traffic.stopping = True
            with anyio.move_on_after(COMEBACK_SECONDS) as scope:
                while traffic.begun != sum(traffic.ended.values()):
                    await anyio.sleep(0.05)
            if scope.cancelled_caught:
                report.broken("a call hangs", f"{traffic.begun - sum(traffic.ended.values())} after the last blow")
                callers.cancel_scope.cancel()
        servers.cancel_scope.cancel()
    for target in targets:
        if target.http is not None and (target.http.process is None or target.http.process.poll() is not None):
            target.http.stop()
            target.http.start()
    return samples


async def comeback(traffic: Traffic, targets: list[Target], report: Report) -> None:
    """See that every server answers once more."""
    for target in targets:
        outcome = "no answer"
        with anyio.move_on_after(COMEBACK_SECONDS):
            for attempt in range(20):
                record = await traffic.call(f"last-{target.name}-{attempt}", target.name, "again", Calm())
                outcome = f"{record.outcome} {record.detail}"
                if record.outcome == "ok":
                    break
                await anyio.sleep(0.5)
        if not outcome.startswith("ok"):
            report.broken("a server did not come back", f"{target.name}: {outcome}")


async def same_tools(hub: Hub, targets: list[Target], report: Report) -> None:
    """See that the tools known of every server become those that it has."""
    for target in targets:
        client = hub.clients.get(target.name)
        known, there = -1, target.tools()
        with anyio.move_on_after(COMEBACK_SECONDS / 3):
            while client is not None and (known := len(client.snapshot())) != there:
                await anyio.sleep(0.1)
        if known != there:
            report.broken("a tool list is stale", f"{target.name}: {known} tools known, {there} there")


class Calm(random.Random):
    """No caller gives up, nothing is slow."""

    def random(self) -> float:
        """Return the largest number."""
        return 0.999


def judge_memory(samples: list[int], report: Report) -> None:
    """Compare the memory after the warm-up with the memory at the end."""
    early, late = memory_growth(samples)
    report.memory = {"after the warm-up": early, "at the end": late}
    if late > early * MEMORY_FACTOR + MEMORY_BYTES:
        report.broken("memory grows", f"from {early:,} to {late:,} bytes")


async def settle(report: Report) -> None:
    """Wait a moment for what is closing, then compare what is held with what was before."""
    with anyio.move_on_after(SETTLE_SECONDS):
        while any(count > report.before[what] for what, count in holdings().items()):
            await anyio.sleep(0.1)
    report.after = holdings()
    for what, count in report.after.items():
        if count > report.before[what]:
            detail = f"{report.before[what]} before, {count} after"
            if what == "tasks":
                detail += ": " + ", ".join(sorted(task.get_name() for task in asyncio.all_tasks()))
            report.broken(f"{what} are left", detail)


def show(console: Console, report: Report) -> None:
    """Print what came out."""
    table = Table("what", "count", title=f"soak, seed {report.options.seed}", title_justify="left")
    table.add_row("calls", f"{report.calls:,}")
    for outcome, count in sorted(report.outcomes.items(), key=lambda pair: -pair[1]):
        table.add_row(f"  {outcome}", f"{count:,}")
    table.add_row("blows", f"{sum(report.blows.values()):,}")
    for act, count in sorted(report.blows.items()):
        table.add_row(f"  {act}", f"{count:,}")
    table.add_row("restarts", f"{report.restarts:,}")
    for when, size in report.memory.items():
        table.add_row(f"memory {when}", f"{size / 1e6:.1f} MB")
    for what, count in report.after.items():
        table.add_row(f"{what} before, after", f"{report.before[what]}, {count}")
    console.print(table)
    rules = Counter(violation.rule for violation in report.violations)
    for rule, count in rules.most_common():
        console.print(f"[red]{rule}[/]: {count}")
        for violation in [one for one in report.violations if one.rule == rule][:5]:
            console.print(f"  {violation.detail}", highlight=False, markup=False)
    console.print("[red]broken[/]" if rules else "[green]kept[/]: no promise was broken")


def parse() -> tuple[Options, argparse.Namespace]:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, help="instead of --minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--transport", choices=["stdio", "http", "mixed"], default="mixed")
    parser.add_argument("--pause", type=float, default=0.4, help="mean seconds between two blows")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the logs there")
    parser.add_argument("--json", action="store_true")
    read = parser.parse_args()
    seconds = read.minutes * 60 if read.seconds is None else read.seconds
    return (
        Options(
            seconds=seconds,
            seed=read.seed,
            servers=read.servers,
            callers=read.callers,
            transport=read.transport,
            pause=read.pause,
        ),
        read,
    )


def main() -> None:
    """Soak and print what came out."""
    options, read = parse()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = read.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        report = asyncio.run(run(options, folder))
    if read.json:
        facts: dict[str, Any] = asdict(report)
        print(json.dumps(facts, indent=2))
    else:
        show(Console(width=None if sys.stdout.isatty() else 150), report)
    raise SystemExit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
