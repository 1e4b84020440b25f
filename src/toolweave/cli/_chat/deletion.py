"""Deletes runs and sessions after a question, and clears the store of their traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolweave._text import counted
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._screen import answer_json, note
from toolweave.errors import RunError, StoreError
from toolweave.state.store import CompactableStore

if TYPE_CHECKING:
    from toolweave.agent import RunStatuses
    from toolweave.state import Store

_ENDED = ("completed", "stopped", "failed", "cancelled")
_MAX_RUNS = 1_000_000


async def ended_before(statuses: RunStatuses, at: float) -> list[str]:
    """Return the ids of the runs that ended before a time, without those below another of them."""
    ended = {
        one.run_id: one
        for one in await statuses.recent(_MAX_RUNS)
        if one.status in _ENDED and one.record.changed_at < at
    }
    return [run_id for run_id, one in ended.items() if one.record.parent_id not in ended]


async def delete_runs(
    store: Store, statuses: RunStatuses, run_ids: Sequence[str], *, yes: bool, as_json: bool
) -> ExitCode:
    """Delete runs after a question, and report how many.

    Raises:
        CommandError: The answer is no, no one can be asked, or a run has not ended.
    """
    if run_ids:
        await confirm(f"{counted(len(run_ids), 'run')}, and what they started", yes=yes)
    deleted = 0
    for run_id in dict.fromkeys(run_ids):
        try:
            deleted += await statuses.delete(run_id)
        except RunError as error:
            hint = f"toolweave runs cancel {run_id[:8]} ends it"
            raise CommandError(str(error), hint=hint, code=ExitCode.TOOL_ERROR) from None
    if deleted:
        await erase_traces(store)
    if as_json:
        answer_json({"deleted": deleted})
    else:
        note(f"deleted {counted(deleted, 'run')}")
    return ExitCode.OK


async def confirm(what: str, *, yes: bool) -> None:
    """Ask whether to delete something.

    Raises:
        CommandError: The answer is no, or no one can be asked.
    """
    from toolweave.cli._questions import ask_line  # imports are late: the commands import this module
    from toolweave.cli._stdin import can_ask

    if yes:
        return
    if not can_ask():
        raise CommandError(f"no one can be asked whether to delete {what}", hint="--yes deletes without asking")
    typed = (await ask_line(f"delete {what}, for ever? [y]es, [n]o: ") or "").strip().lower()
    if typed not in ("y", "yes"):
        raise CommandError("nothing was deleted", code=ExitCode.TOOL_ERROR)


async def erase_traces(store: Store) -> None:
    """Clear a store of the traces of deleted documents; warn if that fails."""
    if not isinstance(store, CompactableStore):
        return
    try:
        await store.compact()
    except StoreError as error:
        note(f"warning: it is deleted, but traces stay in the store for now: {error}")
