"""What it costs to list many paged tools into a client's own kind of tool, and what memory a connection takes."""

from __future__ import annotations

from benchmarks.crew import hired
from benchmarks.measure import Figure, compare
from benchmarks.settings import Settings

__all__ = ["discovery", "memory"]

MANY = "10,000 tools held"
OWN_TOOLS = 3
"""The tools that the server always has."""


def discovery(settings: Settings) -> list[Figure]:
    """Measure 1,000 and 10,000 tools of 1.7 kB in pages of 100, over stdio."""
    figures: list[Figure] = []
    for count in (1_000,) if settings.quick else (1_000, 10_000):
        title = f"{count:,} tools"
        if settings.wants(title):
            with hired("stdio", settings.names(benchmark="discovery"), "--tools", count) as crew:
                job = {"do": "list", "expected": count + OWN_TOOLS}
                figures += compare(
                    "discovery", title, crew.rounds(job, min(settings.rounds, 5 if count == 1_000 else 3))
                )
    return figures


def memory(settings: Settings) -> list[Figure]:
    """Measure the resident memory after connecting and listing once, and the CPU of the process until then."""
    cases = [(transport, f"{transport}, connected", 0) for transport in settings.transports]
    if not settings.quick:
        cases.append(("stdio", MANY, 10_000))
    figures: list[Figure] = []
    for transport, title, tools in cases:
        if settings.wants(title):
            with hired(transport, settings.names(), "--tools", tools) as crew:
                figures += compare("memory", title, crew.rounds({"do": "memory"}, 1))
    return figures
