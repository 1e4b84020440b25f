"""The hooks of a run: called, and awaited, by its loop at the start, before each turn and at the end."""

from __future__ import annotations

from toolweave.agent._events import RunResult


class RunHooks:
    """Hooks of one run that do nothing; subclasses override them.

    An exception of any hook fails the run.
    """

    async def started(self) -> None:
        """React to the start of the run, which its journal has accepted."""

    async def turn_starting(self, step: int) -> None:
        """React before a turn of the model, requested or replayed."""

    async def waiting(self) -> None:
        """React when the run ends its execution to wait for a person."""

    async def finished(self, result: RunResult) -> None:
        """React to the end of the run."""
