"""What the runs below one took, for its limits and its result. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from toolweave.models.base import Usage

__all__ = ["Below"]


class Below:
    """Counts each run once, however often it is told: one that goes on after a crash tells all that it took again."""

    def __init__(self) -> None:
        self._took: dict[str, Usage] = {}
        self._unrecorded: dict[str, Usage] = {}

    def count(self, run_id: str, took: Usage) -> None:
        """Count what a run took that has ended."""
        if self._took.get(run_id) != took:
            self._took[run_id] = self._unrecorded[run_id] = took

    def restore(self, recorded: Mapping[str, Usage]) -> None:
        """Count what was recorded."""
        self._took.update(recorded)

    def unrecorded(self) -> Mapping[str, Usage]:
        """Return what was counted since this was asked for last, to be recorded."""
        new, self._unrecorded = self._unrecorded, {}
        return new

    @property
    def usage(self) -> Usage:
        """What all of them took."""
        return sum(self._took.values(), Usage())
