"""The persistence of an agent in a store: journals of its runs, conversations of its sessions, and approvals."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from copy import copy

import anyio

from toolweave._json_types import Json
from toolweave._option_checks import check_kind
from toolweave.agent._journal import OnUnknown
from toolweave.agent._option_checks import UNKNOWN_POLICIES, unknown_policy_error
from toolweave.agent._stored.deadlines import WAITING_SECONDS, WaitingPolicy
from toolweave.agent._stored.records import (
    APPROVALS,
    CONVERSATIONS,
    common,
    conversation,
    conversation_form,
    conversation_key,
    messages_in_document,
    run_topic,
)
from toolweave.agent._stored.run_index import SESSION_NAMES, session_key
from toolweave.agent.approval import definition_digest
from toolweave.jobs import Retention, WorkBackend, WorkQueue
from toolweave.jobs._kind import JobTopic
from toolweave.jobs._lease import LEASE_SECONDS
from toolweave.jobs.retention import retention_of
from toolweave.models import Message
from toolweave.models._serialization import (
    messages_from_json,
    messages_to_json,
)
from toolweave.state import Document, Put, Store, iter_documents
from toolweave.state.checks import STORE
from toolweave.tools import ToolSpec

_log = logging.getLogger("toolweave.agent")

WORKER_LEASE_SECONDS = 5.0
"""Time to live of the lease of a run that workers execute; a worker that does not renew it in time loses the run."""


class Durable:
    """An agent's persistence in a store: runs, conversations and approvals.

    Args:
        store: The store.
        agent: The agent's name, which prefixes the keys of its conversations.
        on_unknown: Policy for calls with an unknown outcome.
        clock: Returns the time in seconds.
        lease_seconds: Seconds until the run of a silent process may be taken over.
        sleep: Waits between lease renewals, and between polls of another process's run.
        retention: How long runs and conversations are kept.
        waiting: How long runs wait for a person.
        queue: Queue of the runs for workers; without one, spawned runs execute in this process.

    Attributes:
        keep_seconds: Seconds that its runs are kept.
        conversations: Its conversations, by session.
        jobs: Its runs as jobs of workers, or None without a queue.
        known: The record and the start of one run, if they were just read.
    """

    def __init__(  # noqa: PLR0913 - keyword-only, each with a default
        self,
        store: Store,
        *,
        agent: str = "agent",
        on_unknown: OnUnknown = "error",
        clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        retention: Retention | None = None,
        waiting: WaitingPolicy | None = None,
        queue: WorkQueue | None = None,
    ) -> None:
        check_kind("Durable.store", store, STORE)
        self.store = store
        self.queue = queue
        kept = retention or Retention()
        self.keep_seconds: float = kept.run_seconds
        if queue is None:
            self.jobs: JobTopic | None = None
        else:
            self.jobs = run_topic(agent, store, queue, clock=clock, keep_seconds=self.keep_seconds)
        self.agent = agent
        if on_unknown not in UNKNOWN_POLICIES:
            raise unknown_policy_error(on_unknown)
        self.on_unknown: OnUnknown = on_unknown
        self.clock = clock
        self.waiting: WaitingPolicy = waiting or WaitingPolicy()
        self.conversations: StoreConversations = StoreConversations(
            store, agent, keep_seconds=kept.conversation_seconds
        )
        self.lease_seconds = lease_seconds
        self.known: tuple[Document, Document | None] | None = None
        self.sleep = sleep

    def with_unknown_policy(self, on_unknown: OnUnknown | None) -> Durable:
        """Return a copy with another policy for calls with an unknown outcome; None keeps the present one."""
        other = copy(self)
        if on_unknown not in UNKNOWN_POLICIES:
            raise unknown_policy_error(on_unknown)
        other.on_unknown = on_unknown or self.on_unknown
        return other

    def with_record(self, found: Document, start: Document | None) -> Durable:
        """Return a copy for one run, whose record and start were just read."""
        other = copy(self)
        other.known = (found, start)
        return other

    async def allowed(self) -> frozenset[str]:
        """Return the `definition_digest`s of the tools that are permanently allowed."""
        known = iter_documents(self.store, APPROVALS, f"{self.agent}/")
        return frozenset([found.value async for found in known if found.key == f"{self.agent}/{found.value}"])

    async def allow(self, tool: ToolSpec) -> None:
        """Allow a tool permanently, by its present definition."""
        digest = definition_digest(tool)
        await self.store.put(APPROVALS, f"{self.agent}/{digest}", digest)


def make_durable(
    name: str,
    store: Store | None,
    backend: WorkBackend | None,
    on_unknown: OnUnknown = "error",
    *,
    retention: Retention | None = None,
    waiting: WaitingPolicy | None = None,
) -> Durable | None:
    """Return an agent's persistence in a store or a backend; None without either.

    Raises:
        ValueError: There are both, or runs would be deleted before their deadline.
    """
    if backend is None:
        if store is None:
            return None
        queue = None
    elif store is not None:
        raise ValueError(f"agent {name!r}: a backend has a store; give it to that: Backend(url, store=...)")
    else:
        store = backend.store
        queue = backend.queue
    kept = retention or retention_of(backend)
    if waiting is None:
        # A run has to reach its deadline before it is deleted.
        waiting = WaitingPolicy(seconds=min(WAITING_SECONDS, kept.run_seconds / 2))
    elif waiting.seconds is not None and waiting.seconds >= kept.run_seconds:
        raise ValueError(
            f"agent {name!r}: a run that waits for {waiting.seconds:g} s is deleted after {kept.run_seconds:g} s; "
            "shorten waiting.seconds, or keep runs longer: retention=Retention(run_seconds=...)"
        )
    return Durable(
        store,
        agent=name,
        queue=queue,
        on_unknown=on_unknown,
        lease_seconds=LEASE_SECONDS if queue is None else WORKER_LEASE_SECONDS,
        retention=kept,
        waiting=waiting,
    )


class StoreConversations:
    """Conversations in a store, under the agent's name."""

    def __init__(self, store: Store, agent: str, *, keep_seconds: float | None = None) -> None:
        self._store = store
        self._agent = agent
        self._keep_seconds = keep_seconds

    async def load(self, session: str) -> Sequence[Message]:
        """Return the conversation so far; empty for a new one."""
        return messages_from_json(await conversation(self._store, self._agent, session))

    async def save(self, session: str, messages: Sequence[Message]) -> None:
        """Save a conversation, merged with messages that other processes or runs have added meanwhile."""
        wanted = messages_to_json(messages)
        key = conversation_key(self._agent, session)
        # Optimistic: two runs of a session in two processes both add their messages, and the one that is refused merges
        # again.
        while True:
            found = await self._store.get(CONVERSATIONS, key)
            kept = [] if found is None else messages_in_document(found)
            value = conversation_form(_merged(kept, wanted))
            revision = 0 if found is None else found.revision
            changes = [
                Put(collection=CONVERSATIONS, key=key, value=value, ttl=self._keep_seconds, expect=revision),
                Put(
                    collection=SESSION_NAMES,
                    key=session_key(self._agent, session),
                    value=True,
                    ttl=self._keep_seconds,
                ),
            ]
            if await self._store.write(changes) is not None:
                return


def _merged(kept: list[Json], wanted: list[Json]) -> list[Json]:
    """Return a conversation with the messages that a run added, though others may have extended it meanwhile."""
    shared = common(kept, wanted)
    rest = kept[shared:]
    completes = (
        len(rest) == 1 and shared < len(wanted) and rest[0]["role"] == "tool" and wanted[shared]["role"] == "tool"
    )
    if not rest or completes:
        return wanted
    return [*kept, *wanted[shared:]]
