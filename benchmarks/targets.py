"""The limits that this project has set itself, checked against figures. A report; only `--check` makes it a judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.measure import Figure, callers_named

__all__ = ["Verdict", "judge", "limit_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target, its worst row and whether that row is within the limit."""

    target: str
    limit: float
    worst: float
    case: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit on one value of some rows."""

    text: str
    limit: float
    applies: Callable[[Figure], bool]
    value: Callable[[Figure], float | None]


def cpu(row: Figure) -> float | None:
    """Return the CPU in units of the baseline's."""
    return row.cpu_ratio


def wall(row: Figure) -> float | None:
    """Return the time in units of the baseline's; at many callers, calls per second are its inverse."""
    return row.wall_ratio


def ours(benchmark: str, *cases: str) -> Callable[[Figure], bool]:
    """Return what picks our own rows of some cases."""
    return lambda row: row.benchmark == benchmark and row.contender == "toolweave" and row.case in cases


def on(*shapes: str) -> tuple[str, ...]:
    """Return a case's name for both eras of stdio."""
    return tuple(f"{transport}, {shape}" for transport in ("stdio", "stdio modern") for shape in shapes)


def over(*shapes: str) -> tuple[str, ...]:
    """Return a case's name for both eras of HTTP."""
    return tuple(f"{transport}, {shape}" for transport in ("http", "http legacy") for shape in shapes)


def calls_of(contender: str, cases: Callable[..., tuple[str, ...]], limits: dict[int, float]) -> list[Target]:
    """Return the limits on the CPU of calls of 100 B, by the number of callers."""
    return [
        Target(
            text=f"{contender}: {cases('100 B')[0]}, {callers_named(callers)}: CPU of raw",
            limit=limit,
            applies=limited("calls", contender, *cases(f"100 B, {callers_named(callers)}")),
            value=cpu,
        )
        for callers, limit in limits.items()
    ]


def limited(benchmark: str, contender: str, *cases: str) -> Callable[[Figure], bool]:
    """Return what picks the rows of one contender in some cases."""
    return lambda row: row.benchmark == benchmark and row.contender == contender and row.case in cases


def served(limit: float, contender: str, *cases: str) -> Target:
    """Return a limit on the CPU of a served call."""
    return Target(
        text=f"{contender}: {cases[0]}: CPU of raw",
        limit=limit,
        applies=limited("serving", contender, *cases),
        value=cpu,
    )


def through(limits: dict[int, float], more: str = "", contender: str = "toolweave") -> list[Target]:
    """Return the limits on the CPU of calls through a gateway, by the number of callers."""
    return [
        Target(
            text=f"{contender}: a call through a gateway{more}, {callers_named(callers)}: CPU of the pass-through",
            limit=limit,
            applies=limited("gateway", contender, f"config served, 100 B, {callers_named(callers)}{more}"),
            value=cpu,
        )
        for callers, limit in limits.items()
    ]


def process(contender: str, limit: float) -> Target:
    """Return a limit on the CPU of a whole process, in units of a Python that does nothing."""
    return Target(
        text=f"{contender}: CPU of `python -c pass`",
        limit=limit,
        applies=lambda row: row.case == "whole process" and row.contender == contender,
        value=cpu,
    )


STORM = "20,000 notifications before the answer"
TARGETS = (
    Target(
        text="an empty durable run on Redis: the worker's CPU of docket's",
        limit=2,
        applies=ours("durable", "empty run"),
        value=cpu,
    ),
    *calls_of("toolweave", on, {1: 1.3, 16: 2.3, 64: 2.4, 256: 2.5, 1_000: 2.6}),
    *calls_of("toolweave progress", on, {1: 1.4, 16: 3.8, 64: 4, 256: 4, 1_000: 4}),
    *calls_of("toolweave", over, dict.fromkeys((1, 16, 64, 256, 1_000), 1.1)),
    *calls_of("toolweave progress", over, dict.fromkeys((1, 16, 64, 256, 1_000), 1.3)),
    Target(
        text="20 structured rows, output validated: CPU of raw",
        limit=2,
        applies=ours("calls", *on("20 rows, 1 caller"), *over("20 rows, 1 caller")),
        value=cpu,
    ),
    served(
        2, "toolweave, run_http", "served over http, 100 B, 16 callers", "served over http legacy, 100 B, 16 callers"
    ),
    served(2.7, "toolweave, run_http, def", "served over http, 100 B, 16 callers"),
    served(2.1, "toolweave, run_http", "served over http, 100 B, 16 callers, a bearer token"),
    served(2.8, "toolweave, run_http", "served over http, 100 B, 16 callers, a progress token"),
    served(4, "toolweave", "served over stdio, 100 B, 16 callers", "served over stdio modern, 100 B, 16 callers"),
    served(6, "toolweave, run_http, def", "served over stdio, 100 B, 16 callers"),
    *through({16: 1.2, 64: 1.2}),
    *through({16: 1.5, 64: 1.5}, ", handshake-era clients"),
    *through({16: 1.3, 64: 1.4}, ", a `_meta` key"),
    *through({16: 1.4, 64: 1.4}, ", a progress token"),
    *through({16: 1.3, 64: 1.4}, ", a bearer token"),
    *through({16: 1.6, 64: 1.8}, ", upstreams over HTTP"),
    *through({16: 1.8, 64: 2.2}, ", upstreams over HTTP, a progress token"),
    *through({16: 2.6, 64: 2.9}, ", upstreams over HTTP with streams"),
    *through({16: 2.7, 64: 2.9}, contender="toolweave,rules"),
    *through({16: 3.3, 64: 3.9}, ", upstreams over HTTP", contender="toolweave,rules"),
    process("toolweave call", 15),
    process("toolweave tools", 16),
    process("from toolweave import connect_mcp", 9),
    Target(
        text="one call over stdio, 1 MB: CPU of raw", limit=1.5, applies=ours("calls", *on("1 MB, 1 caller")), value=cpu
    ),
    Target(
        text="16 callers, 100 B: time of raw (calls/s at least 0.4 of raw)",
        limit=2.5,
        applies=ours("calls", *on("100 B, 16 callers"), *over("100 B, 16 callers")),
        value=wall,
    ),
    Target(
        text="tools listed, CPU of raw",
        limit=2.5,
        applies=ours("discovery", "1,000 tools", "10,000 tools"),
        value=cpu,
    ),
    Target(
        text="10,000 tools scanned, CPU of listing them",
        limit=1,
        applies=ours("scan", "10,000 tools listed, stdio", "10,000 tools listed, http"),
        value=cpu,
    ),
    Target(
        text="a result scanned, CPU of its call",
        limit=0.02,
        applies=ours("scan", "one call, 100 B"),
        value=cpu,
    ),
    Target(
        text="a call with the token of a sign-in, CPU of one with a fixed token",
        limit=1.05,
        applies=ours("sign_in", "one call over http, 100 B"),
        value=cpu,
    ),
    Target(
        text="10,000 tools held, memory of raw",
        limit=1.5,
        applies=ours("memory", "10,000 tools held"),
        value=lambda row: row.memory_ratio,
    ),
    Target(
        text="20 stdio servers on the SDK listed, time of raw",
        limit=1.1,
        applies=ours("start", "sdk server: 20 servers, all listed"),
        value=wall,
    ),
    Target(
        text="`import toolweave`, CPU of `import msgspec`",
        limit=2.5,
        applies=lambda row: row.case == "above bare Python" and row.contender == "import toolweave",
        value=cpu,
    ),
    Target(
        text="memory after connecting, MB",
        limit=75,
        applies=lambda row: row.case.endswith(", connected") and row.contender.startswith("toolweave"),
        value=lambda row: row.memory / 1e6 if row.memory else None,
    ),
    Target(
        text="50 MB, time of raw",
        limit=3,
        applies=ours("extremes", *on("50 MB"), *over("50 MB")),
        value=wall,
    ),
    Target(
        text="20,000 notifications before an answer, seconds",
        limit=1,
        applies=ours("extremes", *on(STORM), *over(STORM)),
        value=lambda row: row.wall,
    ),
    Target(
        text="16 callers of a gateway: time of raw ASGI (calls/s at least 0.7)",
        limit=1.43,
        applies=ours("gateway", "config served, 100 B, 16 callers"),
        value=wall,
    ),
    Target(
        text="64 callers of a gateway: time of raw ASGI (calls/s at least 0.8)",
        limit=1.25,
        applies=ours("gateway", "config served, 100 B, 64 callers"),
        value=wall,
    ),
    Target(
        text="one caller of a gateway: time of raw ASGI",
        limit=1.3,
        applies=ours("gateway", "config served, 100 B, 1 caller"),
        value=wall,
    ),
    Target(
        text="memory of a gateway, MB",
        limit=110,
        applies=lambda row: row.benchmark == "gateway" and row.contender == "toolweave",
        value=lambda row: row.memory / 1e6 if row.memory else None,
    ),
)
HANG = ("{} server: 1 of 20 hangs, first tool", "{} server: 20 servers, first tool")


def limit_of(row: Figure) -> list[tuple[Target, float]]:
    """Return the targets of a row, each with the row's value."""
    found = [(target, target.value(row)) for target in TARGETS if target.applies(row)]
    return [(target, value) for target, value in found if value is not None]


def judge(figures: Sequence[Figure]) -> list[Verdict]:
    """Return a verdict for every target that has rows."""
    verdicts: list[Verdict] = []
    for target in TARGETS:
        rows = [(value, row) for row in figures if target.applies(row) and (value := target.value(row)) is not None]
        if rows:
            worst, row = max(rows, key=lambda pair: pair[0])
            verdicts.append(verdict(target.text, target.limit, worst, f"{row.case}: {row.contender}"))
    return verdicts + pairs(figures)


def pairs(figures: Sequence[Figure]) -> list[Verdict]:
    """Return the verdicts that compare two rows of ours, or ours with another's."""
    walls = {(row.case, row.contender): row.wall for row in figures if row.benchmark == "start"}
    verdicts: list[Verdict] = []
    for kind in ("lean", "sdk"):
        hangs, healthy = (walls.get((case.format(kind), "toolweave")) for case in HANG)
        if hangs is not None and healthy is not None:
            text = "one of 20 servers hangs: time to the first tool of the healthy case"
            verdicts.append(verdict(text, 1.2, hangs / healthy, f"{kind} server"))
    verdicts += piped(figures) + agents(figures)
    posts = {row.contender: row.cpu for row in figures if row.benchmark == "post"}
    if {"toolweave", "aiohttp"} <= set(posts):
        text = "one POST through the lean lane: CPU of aiohttp"
        verdicts.append(verdict(text, 0.5, posts["toolweave"] / posts["aiohttp"], "one POST, 100 B"))
    return verdicts


def piped(figures: Sequence[Figure]) -> list[Verdict]:
    """Return the verdicts on the time that a client of a server over stdio waits."""
    rows = {(row.case, row.contender): row for row in figures if row.benchmark == "serving"}
    verdicts: list[Verdict] = []
    for (case, contender), row in rows.items():
        other = rows.get((case, "sdk"))
        if contender != "toolweave" or "over http" in case:
            continue
        if other is not None and row.p50 is not None and other.p50:
            text = "served tool over stdio: time of the SDK's MCPServer"
            verdicts.append(verdict(text, 1 / 3, row.p50 / other.p50, case))
    return verdicts


def agents(figures: Sequence[Figure]) -> list[Verdict]:
    """Return the verdicts on the agent: beside the better of the peers, whose rows are in units of ours."""
    peers: dict[str, list[float]] = {}
    for row in figures:
        if row.benchmark == "agents" and row.contender != "toolweave":
            peers.setdefault(row.case, []).append(row.cpu_ratio)
    verdicts: list[Verdict] = []
    for case, ratios in peers.items():
        what, limit = ("request from many tools", 1 / 5) if case.startswith("request") else ("agent's turn", 1 / 3)
        verdicts.append(verdict(f"{what}: CPU of the better peer", limit, 1 / max(min(ratios), 1e-9), case))
    return verdicts


def verdict(text: str, limit: float, value: float, case: str) -> Verdict:
    """Return a verdict."""
    return Verdict(target=text, limit=limit, worst=value, case=case, met=value <= limit)
