"""What `tools/call` costs the client: by transport, size of the answer and number of callers; also the extremes."""

from __future__ import annotations

from typing import Any

from benchmarks.crew import hired
from benchmarks.measure import Figure, callers_named, compare
from benchmarks.settings import Settings

__all__ = ["calls", "extremes"]

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "100 B": ("payload", {"size": 100}),
    "10 kB": ("payload", {"size": 10_000}),
    "1 MB": ("payload", {"size": 1_000_000}),
    "20 rows": ("rows", {}),
}
"""Case -> tool and arguments; the rows are structured content with an output schema."""
CALLERS = (1, 16, 64)
MANY_CALLERS = (256, 1_000)
"""For 100 B only: more than any pool of connections holds, and than a pipe takes at once."""
SLOW_AT_EXTREMES = ("sdk", "fastmcp", "pydantic-ai", "langchain")
"""Those that take a minute for what the others do in a second."""
STORM = 20_000
LARGE = 50_000_000


def calls(settings: Settings) -> list[Figure]:
    """Measure the matrix of transports, shapes and callers."""
    figures: list[Figure] = []
    for transport in settings.transports:
        cases = [
            (f"{transport}, {shape}, {callers_named(callers)}", shape, callers)
            for shape in SHAPES
            for callers in (CALLERS if shape != "100 B" else CALLERS + MANY_CALLERS)
            if not settings.quick or (shape != "1 MB" and callers < 64)
        ]
        cases = [case for case in cases if settings.wants(case[0])]
        if not cases:
            continue
        with hired(transport, settings.names(benchmark="calls")) as crew:
            for title, shape, callers in cases:
                tool, arguments = SHAPES[shape]
                job = {"do": "call", "tool": tool, "arguments": arguments, "callers": callers}
                rounds = settings.rounds if shape != "1 MB" else max(1, settings.rounds // 2)
                figures += compare("calls", title, crew.rounds(job, rounds))
    return figures


def extremes(settings: Settings) -> list[Figure]:
    """Measure 20,000 notifications before an answer, and an answer of 50 MB, while another task ticks."""
    figures: list[Figure] = []
    kinds = {
        f"{STORM:,} notifications before the answer": {"tool": "storm", "arguments": {"size": STORM}},
        "50 MB": {"tool": "payload", "arguments": {"size": LARGE}},
    }
    for transport in settings.transports:
        for kind, job in kinds.items():
            title = f"{transport}, {kind}"
            if not settings.wants(title):
                continue
            takes_a_minute = kind == "50 MB" and not transport.startswith("http")
            left_out = SLOW_AT_EXTREMES if settings.quick or takes_a_minute else ()
            with hired(transport, settings.names(*left_out)) as crew:
                samples = crew.rounds({"do": "watched_call", **job}, min(settings.rounds, 3), warm_up=True)
            figures += compare("extremes", title, samples)
    return figures
