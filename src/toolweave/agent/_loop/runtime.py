"""The values that the run loop reads: the state shared by the runs of an agent, and the request of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio

from toolweave.agent._events import Event
from toolweave.agent._history import History
from toolweave.agent._journal import Journal, OpenJournal
from toolweave.agent._lifespan import AgentLifespan, LifespanPeriod, ToolsetSource
from toolweave.agent._loop.agent_tools import AgentTools
from toolweave.agent._loop.step import RunRules
from toolweave.agent._questions import RunQuestions
from toolweave.agent._run_hooks import RunHooks
from toolweave.agent._sessions import ConversationStore, SessionStates
from toolweave.agent.approval import Approvals, Attended, Confirm, Grants
from toolweave.models import Message, Model
from toolweave.tools import CallContext, ToolSpec
from toolweave.tools._call import NO_CONTEXT

if TYPE_CHECKING:
    from toolweave.agent._loop.telemetry import RunTelemetry

HoldSession: TypeAlias = "Callable[[str | None, str], AbstractAsyncContextManager[None]]"
"""Holds a session for a run of this id."""


class PerServerLimiter:
    """Limits the number of concurrent calls on each server."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._servers: dict[str, anyio.Semaphore] = {}

    def slot(self, tool: ToolSpec) -> AbstractAsyncContextManager[object]:
        """Return the context manager that a call of a tool holds while it runs."""
        if tool.server is None:
            return nullcontext()
        return self._servers.setdefault(tool.server, anyio.Semaphore(self._max_calls))


@dataclass(slots=True, kw_only=True)
class AgentRuntime:
    """State and settings that all runs of an agent share.

    Attributes:
        limiter: Limits the concurrent calls on each server.
        raises: Whether a transport error of a server ends a run.
        strict: Whether a toolset that cannot be opened ends a run.
        errors: Errors of the toolsets that could not be opened, by name.
        durable: Whether its runs are kept in a store.
        hooks: Returns the hooks of a run.
        hold_session: Holds a session during a block, so that no run of another process is in it.
        defer_tokens: Tokens of definitions above which the model gets a search tool; None sends all of them.
        history: Function that returns the messages to send of a conversation; None sends all of them.
    """

    name: str
    model: Model
    rules: RunRules
    tools: AgentTools
    lifespan: AgentLifespan
    sessions: SessionStates
    conversations: ConversationStore
    open_journal: OpenJournal
    hooks: Callable[[], RunHooks]
    confirm: Confirm
    allowed: Grants
    limiter: PerServerLimiter
    raises: bool
    strict: bool
    errors: dict[str, Exception]
    durable: bool
    hold_session: HoldSession
    defer_tokens: int | None
    history: History | None = None

    async def opened(self, period: LifespanPeriod, extra: Sequence[ToolsetSource] = ()) -> Mapping[str, Exception]:
        """Open the agent's toolsets and those of a run; return the errors by name, which are also in `errors`."""
        sources = (*self.tools.sources, *extra)
        if not sources:
            return {}
        failed = await period.open(sources)
        for source in sources:
            self.errors.pop(source.name, None)
        self.errors.update(failed)
        return failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The request for one run: its messages, rules and options.

    Attributes:
        attended: Whether a person can approve calls; None is the recorded value, and True for a new run.
    """

    sent: tuple[Message, ...]
    rules: RunRules
    session: str | None = None
    tools: AgentTools | None = None
    ctx: CallContext = NO_CONTEXT
    attended: Attended | None = None
    run_id: str | None = None
    parent_id: str | None = None
    depth: int = 0
    journal: Journal | None = None


class RunControl(Protocol):
    """A run, as its loop sees it."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def parent(self) -> RunControl | None:
        """The run of this process whose tool started it, or None."""
        ...

    @property
    def parent_id(self) -> str | None:
        """The id of the run whose tool started it."""
        ...

    @property
    def depth(self) -> int:
        """Nesting depth: the number of runs above it."""
        ...

    @property
    def approvals(self) -> Approvals:
        """The approvals of its calls."""
        ...

    @property
    def questions(self) -> RunQuestions:
        """The questions of servers in its calls."""
        ...

    @property
    def cancelling(self) -> bool:
        """Whether its cancellation was requested."""
        ...

    def cancel(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    """The environment shared by the turns and the calls of one run.

    Attributes:
        runtime: The state shared by the runs of its agent.
        run: The run.
        emit: Publishes an event of the run.
        journal: The journal of the run.
        telemetry: Makes the spans of turns and calls; None without tracing.
    """

    runtime: AgentRuntime
    run: RunControl
    emit: Callable[[Event], None]
    journal: Journal
    telemetry: RunTelemetry | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.id
