"""What the command line asks for, as a value that every benchmark takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.clients import CLIENTS
from benchmarks.crew import TRANSPORTS
from benchmarks.peers import available

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much to measure.

    Attributes:
        rounds: Interleaved rounds of a case.
        quick: Small cases only.
        only: Cases whose name holds one of these texts; empty: all.
        clients: Names of contenders; empty: all that are installed.
        transports: Names of `TRANSPORTS`.
    """

    rounds: int = 9
    quick: bool = False
    only: Sequence[str] = ()
    clients: Sequence[str] = ()
    transports: Sequence[str] = TRANSPORTS

    def wants(self, case: str) -> bool:
        """Whether a case shall be measured."""
        return not self.only or any(text in case for text in self.only)

    def names(self, *but: str, benchmark: str = "") -> list[str]:
        """Return the contenders of a benchmark, the baseline always."""
        wanted = {"raw", *(self.clients or CLIENTS)} - set(but)
        known = {name: one for name, one in CLIENTS.items() if not one.only or benchmark in one.only}
        return [name for name, client in known.items() if name in wanted and available(client)]
