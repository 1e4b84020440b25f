"""Agents and their runs for synchronous code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, Unpack

import toolweave.compose._agent as compose
from toolweave.agent import AgentTools, ApprovalRequested, Event, InputRequested, Run, RunResult
from toolweave.agent._prompt import Sendable
from toolweave.compose._agent_options import SendOptions
from toolweave.sync._blocking import blocking, forwarded, with_signature_of
from toolweave.tools import ElicitationResult
from toolweave.tools._portal import PORTAL, check_process

P = ParamSpec("P")


class SyncRun:
    """A run of an agent for synchronous code; iterating yields its events, any number of times. See `toolweave.Run`.

    Attributes:
        wrapped: The async run.
    """

    def __init__(self, wrapped: Run) -> None:
        self.wrapped = wrapped
        # A forked process does not have the portal's thread, so a wait for it would never end. `check_process` raises
        # instead.
        self._process = os.getpid()

    @property
    def id(self) -> str:
        """Unique."""
        return self.wrapped.id

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.wrapped.done

    @property
    def final(self) -> RunResult:
        """The result: waits for the run's end, and raises the exception that made it fail."""
        check_process("a run", self._process)
        return PORTAL.run(self.wrapped.outcome)

    def start(self) -> Self:
        """Start the run, if it has not started."""
        check_process("a run", self._process)

        # In the portal, because the tasks of a run belong to the event loop that starts it.
        async def start() -> None:
            self.wrapped.start()

        PORTAL.run(start)
        return self

    def cancel(self, reason: str = "cancelled") -> None:
        """End the run; its result says `"cancelled"`."""
        self.wrapped.cancel(reason)

    def approve(self, call: str | ApprovalRequested, *, remember: Any = None, reason: str | None = None) -> bool:
        """Allow a call that waits; see `Run.approve`."""
        return self._decide(lambda: self.wrapped.approve(call, remember=remember, reason=reason))

    def deny(self, call: str | ApprovalRequested, *, reason: str | None = None) -> bool:
        """Deny a waiting call; the model reads the reason."""
        return self._decide(lambda: self.wrapped.deny(call, reason=reason))

    def answer(self, question: str | InputRequested, answer: ElicitationResult | Mapping[str, Any]) -> bool:
        """Answer a question of a server; see `Run.answer`."""
        return self._decide(lambda: self.wrapped.answer(question, answer))

    def __iter__(self) -> Iterator[Event]:
        check_process("a run", self._process)
        return PORTAL.iterate(aiter(self.wrapped))

    def __repr__(self) -> str:
        return f"<SyncRun {self.wrapped!r}>"

    def _decide(self, decide: Callable[[], bool]) -> bool:
        check_process("a run", self._process)

        # In the portal: a decision wakes a task, which only its own event loop may do.
        async def decided() -> bool:
            return decide()

        return PORTAL.run(decided)


def _with_agent_signature(
    make: Callable[P, Any],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Agent, P], None]]:
    """Give `Agent.__init__` the parameters of the async agent, and its docstring that describes them."""

    def sign(init: Callable[..., None]) -> Callable[Concatenate[Agent, P], None]:
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        init.__signature__ = inspect.Signature([own, *inspect.signature(make).parameters.values()])  # type: ignore[attr-defined]
        init.__doc__ = make.__doc__
        return init

    return sign


class _Send(Protocol):
    """The type of `Agent.send` and `Agent.run` for all that can be sent; a copied signature has one overload only."""

    def __call__(self, agent: compose.Agent[Any], sent: Sendable, /, **options: Unpack[SendOptions]) -> Run[Any]: ...


def _for_all_sendable(method: _Send) -> _Send:
    """Return a method as it is, with one signature in place of its overloads."""
    return method


class Agent:
    """A model that works with tools until it has an answer, for synchronous code; same arguments as `toolweave.Agent`.

    Its tools may include connections, hubs and tools of `toolweave.sync`. In a `with` block the resources of its tools
    stay open; otherwise they are opened and closed for each run.

    Attributes:
        wrapped: The async agent.
    """

    wrapped: compose.Agent

    @_with_agent_signature(compose.Agent)
    def __init__(self, *args: Any, **kwargs: Any) -> None:  # the parameters of the async one
        self.wrapped = compose.Agent(*args, **kwargs)

    @property
    def name(self) -> str:
        """Its name."""
        return self.wrapped.name

    @property
    def tools(self) -> AgentTools:
        """Its tools, to add, remove and get."""
        return self.wrapped.tools

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The errors of the tool sources that could not be opened, by name."""
        return self.wrapped.errors

    send = forwarded(_for_all_sendable(compose.Agent.send), SyncRun)
    run = blocking(_for_all_sendable(compose.Agent.run))
    run_sync = run
    stream_text = forwarded(compose.Agent.stream_text, PORTAL.iterate)

    def close(self) -> None:
        """Cancel running work and close the agent's resources; it may be used again."""
        PORTAL.run(self.wrapped.close)
        PORTAL.release(self.wrapped)

    def __enter__(self) -> Self:
        PORTAL.run(self.wrapped.__aenter__)
        PORTAL.hold(self.wrapped)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        PORTAL.run(lambda: self.wrapped.__aexit__(exc_type, exc, traceback))
        PORTAL.release(self.wrapped)

    def __repr__(self) -> str:
        return f"<Sync{repr(self.wrapped)[1:]}"


@with_signature_of(compose.generate)
def generate(*args: Any, **kwargs: Any) -> RunResult:  # the parameters of the async one
    """Run a model with tools once and return the result; same arguments as `toolweave.generate`."""
    return PORTAL.run(lambda: compose.generate(*args, **kwargs))


@with_signature_of(compose.stream)
def stream(*args: Any, **kwargs: Any) -> SyncRun:  # the same
    """Return a run of a model with tools, to iterate over its events; same arguments as `toolweave.stream`."""
    return SyncRun(compose.stream(*args, **kwargs))
