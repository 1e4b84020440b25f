"""Retention of the data of agents and of the tasks of servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from toolweave._option_checks import check_duration, instance_of

__all__ = ["KEEP_SECONDS", "RETENTION", "TASK_SECONDS", "RetainingBackend", "Retention", "milliseconds", "retention_of"]

KEEP_SECONDS = 30 * 86_400.0
"""Seconds that a run is kept after its last change by default."""

TASK_SECONDS = 3_600.0
"""Seconds from the start of a task until its result may be deleted, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The time that the data of agents and tasks is kept; the store deletes expired data.

    A change is for runs, conversations and tasks that are written after it.

    Attributes:
        run_seconds: Seconds that a run is kept after its last change, with its messages and results.
        conversation_seconds: Seconds that the conversation of a session is kept after its last message; None keeps it
            until it is deleted.
        task_seconds: Seconds from the start of a task of a server until its result may be deleted. Work that takes
            longer is cancelled.

    Raises:
        TypeError: A value is not a number.
        ValueError: A value is not more than 0, or not finite.
    """

    run_seconds: float = KEEP_SECONDS
    conversation_seconds: float | None = None
    task_seconds: float = TASK_SECONDS

    def __post_init__(self) -> None:
        check_duration("run_seconds", self.run_seconds)
        check_duration("task_seconds", self.task_seconds)
        if self.conversation_seconds is not None:
            check_duration("conversation_seconds", self.conversation_seconds)


RETENTION = instance_of(Retention, "Retention(...)").or_none
"""The type of an option that is the retention."""


@runtime_checkable
class RetainingBackend(Protocol):
    """A backend that decides how long the data of its agents is kept."""

    @property
    def retention(self) -> Retention | None:
        """The retention of agents without a setting of their own; None for the default."""
        ...


def retention_of(backend: object) -> Retention:
    """Return the retention of the data of a backend: its own, or the default."""
    if isinstance(backend, RetainingBackend):
        return backend.retention or Retention()
    return Retention()


def milliseconds(seconds: float) -> int:
    """Return the lifetime of a task in whole milliseconds, as MCP has it: 1 or more."""
    return max(1, round(1000 * seconds))
