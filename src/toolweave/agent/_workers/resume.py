"""Resuming runs: found in the store, and started again where their journal ends.

Knows an agent by the method that starts a run; the journal does the replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from toolweave.agent._journal import Journal, OnUnknown
from toolweave.agent._loop.agent_tools import ToolLike
from toolweave.agent._option_checks import UNKNOWN_POLICIES, unknown_policy_error
from toolweave.agent._run import Run
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.records import read_record, record_of
from toolweave.agent.approval import Attended
from toolweave.errors import RunError
from toolweave.tools import CallContext
from toolweave.tools._call import NO_CONTEXT


class Resumable(Protocol):
    """An agent whose runs can be resumed."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def durable(self) -> Durable | None:
        """Its persistence in a store, or None."""
        ...

    def open_journal(
        self, run_id: str, *, durable: Durable | None = None, on_unknown: OnUnknown | None = None
    ) -> Journal:
        """Return the journal of a run."""
        ...

    def begin(  # noqa: PLR0913 - keyword-only
        self,
        *,
        run_id: str,
        session: str | None,
        parent_id: str | None,
        depth: int,
        tools: ToolLike | Iterable[ToolLike] | None,
        ctx: CallContext,
        attended: Attended | None,
        output_type: Any,
        journal: Journal,
    ) -> Run:
        """Return a run with this identity."""
        ...


async def resume(
    agent: Resumable,
    run_id: str,
    *,
    tools: ToolLike | Iterable[ToolLike] | None = None,
    ctx: CallContext = NO_CONTEXT,
    attended: Attended | None = None,
    output_type: Any = None,  # any type, or a JSON Schema
    on_unknown: OnUnknown | None = None,
    durable: Durable | None = None,
) -> Run:
    """Return a stored run that continues where it ended; see `Agent.resume`.

    `durable` is the persistence of this run, if not the agent's own.

    Raises:
        RunError: The store has no such run, or it is another agent's.
        StoreError: A newer version of Toolweave wrote it.
        ValueError: The agent has no store, or an option has another value than its few.
    """
    if on_unknown not in UNKNOWN_POLICIES:
        raise unknown_policy_error(on_unknown)
    kept = durable or agent.durable
    if kept is None:
        raise ValueError(f"agent {agent.name!r} keeps nothing; give it a store: Agent(..., store=SqliteStore())")
    if kept.known:
        record = record_of(kept.known[0])
    else:
        record = await read_record(kept.store, run_id)
    if record is None:
        raise RunError("is not in the store", run_id=run_id, reason="error")
    if record.agent != agent.name:
        message = f"is one of agent {record.agent!r}, not of {agent.name!r}; resume it with that agent"
        raise RunError(message, run_id=run_id, reason="error")
    return agent.begin(
        run_id=run_id,
        session=record.session,
        parent_id=record.parent_id,
        depth=record.depth,
        tools=tools,
        ctx=ctx,
        attended=attended,
        output_type=output_type,
        journal=agent.open_journal(run_id, durable=kept, on_unknown=on_unknown),
    )
