"""Repairs of malformed messages and results of one server: each kind is reported once, and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from toolweave.errors import printable

_log = logging.getLogger("toolweave.connect")

_MAX_KINDS = 50


class Repairs:
    """The repairs of one server's messages and results.

    Attributes:
        on_problem: Called with each kind of repair the first time.
    """

    def __init__(self, server: str) -> None:
        self.on_problem: Callable[[str], None] = lambda problem: None
        self._server = server
        self._counts: dict[str, int] = {}

    def add(self, problem: str) -> None:
        """Count a repair; log and report the first of its kind."""
        if problem in self._counts:
            self._counts[problem] += 1
            return
        if len(self._counts) >= _MAX_KINDS:
            return
        self._counts[problem] = 1
        _log.warning("server %r: %s", self._server, printable(problem))
        self.on_problem(problem)

    def of_tool(self, name: str) -> Callable[[str], None]:
        """Return a callback that counts an oddity of a tool's result."""
        return lambda change: self.add(f"tool {name!r}: its result {change}")

    @property
    def problems(self) -> tuple[str, ...]:
        """The kinds of repairs, each with the number of times after the first."""
        return tuple(
            problem if count == 1 else f"{problem} ({count:,} times)" for problem, count in self._counts.items()
        )
