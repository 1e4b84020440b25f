"""Deadlines of runs that wait for a person: reminders, and the end of a wait without an answer.

The deadline of a run is in its record, so any process can apply it. Workers do so about once a minute.

Why a notice is given once. The process that gives it has to create a document first, and of several one succeeds. A
run is denied or cancelled by a write that does nothing when it is repeated. That document expires after a minute, so
that another process does it if the first one dies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from toolweave._option_checks import check_choice, check_duration
from toolweave.agent._stored.run_index import WAITING, agent_prefix, run_id_of
from toolweave.agent.approval import WaitingCall
from toolweave.state import Store, iter_documents

NOTICES = "run-notices"
"""The notices that were given of runs that wait, below their ids."""
_CLAIM_SECONDS = 60.0
WAITING_SECONDS = 14 * 86_400.0
"""Seconds that a run waits for a person by default."""

WhenDue: TypeAlias = Literal["deny", "cancel"]
"""The end of a wait at its deadline: the calls are denied and the model continues, or the run is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingNotice:
    """Something that happened to a run that waits for a person.

    Attributes:
        kind: `"reminder"` before the deadline; `"denied"` or `"cancelled"` at the deadline.
        session: The session of the run, or None.
        due_at: The deadline, in seconds since the epoch.
        calls: The calls without an answer.
    """

    kind: Literal["reminder", "denied", "cancelled"]
    run_id: str
    agent: str
    session: str | None
    due_at: float
    calls: Sequence[WaitingCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPolicy:
    """The bound of the time that runs wait for a person, without a process (`attended="later"`).

    Attributes:
        seconds: Seconds until the deadline, from the moment when the run begins to wait; None for no deadline: the run
            is deleted with all others.
        remind_seconds: Seconds before the deadline at which a reminder is given; None for none. A run that waits
            shorter than that gets none.
        when_due: `"deny"` denies the calls that wait, and the model continues; `"cancel"` ends the run.
        notify: Called by the worker with each reminder and each deadline, once over all workers. A notice is lost if
            its worker dies before this returns.

    Raises:
        TypeError: A duration is not a number.
        ValueError: A duration is not more than 0 and finite, or `when_due` has another value.
    """

    seconds: float | None = WAITING_SECONDS
    remind_seconds: float | None = 86_400.0
    when_due: WhenDue = "deny"
    notify: Callable[[WaitingNotice], Awaitable[object]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("seconds", "remind_seconds"):
            value = getattr(self, name)
            if value is not None:
                check_duration(name, value)
        check_choice("when_due", self.when_due, ("deny", "cancel"))

    def times(self, now: float) -> tuple[float | None, float | None]:
        """Return the time of the deadline and that of the reminder, for a run that begins to wait now."""
        if self.seconds is None:
            return None, None
        due_at = now + self.seconds
        if self.remind_seconds is None or self.remind_seconds >= self.seconds:
            return due_at, None
        return due_at, due_at - self.remind_seconds


@dataclass(frozen=True, slots=True)
class DueNotice:
    """A notice that has to be given.

    Attributes:
        is_reminder: Whether the deadline is still to come.
    """

    run_id: str
    due_at: float
    is_reminder: bool

    async def claim(self, store: Store, now: float) -> bool:
        """Return whether this process has to give it.

        Raises:
            StoreError: The store cannot be written.
        """
        # Only a document that does not exist yet can be created, so one of several processes gets the notice. The key
        # has the deadline: a run that waits again has other notices.
        kind = "reminder" if self.is_reminder else "deadline"
        seconds = self.due_at - now + _CLAIM_SECONDS if self.is_reminder else _CLAIM_SECONDS
        key = f"{self.run_id}/{kind}/{self.due_at:.6f}"
        return await store.put(NOTICES, key, True, ttl=seconds, expect=0) is not None


async def due_notices(store: Store, agent: str | None, now: float) -> Sequence[DueNotice]:
    """Return the notices that are due, of an agent or of all.

    Raises:
        StoreError: The store cannot be read.
    """
    due: list[DueNotice] = []
    async for found in iter_documents(store, WAITING, agent_prefix(agent)):
        # The entry is a hint: a run that was answered meanwhile is found by its record when the notice is given.
        due_at, remind_at = found.value
        run_id = run_id_of(found)
        if due_at is not None and due_at <= now:
            due.append(DueNotice(run_id, due_at, is_reminder=False))
        elif due_at is not None and remind_at is not None and remind_at <= now:
            due.append(DueNotice(run_id, due_at, is_reminder=True))
    return due
