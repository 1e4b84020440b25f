"""Token usage of child runs, for the limits and the result of their parent. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from toolweave.models import Usage


class ChildUsage:
    """Token usage of child runs, counted once for each run id, because a resumed child reports its total again."""

    def __init__(self) -> None:
        self._took: dict[str, Usage] = {}
        self._unrecorded: dict[str, Usage] = {}

    def count(self, run_id: str, took: Usage) -> None:
        """Add the usage of a child run that has ended."""
        if self._took.get(run_id) != took:
            self._took[run_id] = self._unrecorded[run_id] = took

    def restore(self, recorded: Mapping[str, Usage]) -> None:
        """Add the recorded usage of child runs."""
        self._took.update(recorded)

    def unrecorded(self) -> Mapping[str, Usage]:
        """Return the usage added since the last call of this method, to be recorded."""
        new = self._unrecorded
        self._unrecorded = {}
        return new

    @property
    def usage(self) -> Usage:
        """Total usage of all child runs."""
        return sum(self._took.values(), Usage())
