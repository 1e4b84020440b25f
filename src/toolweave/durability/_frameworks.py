"""`durable`: the framework of an agent is found by its class, without importing the others."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar, overload

from toolweave._json_types import Json
from toolweave._option_checks import check_kind
from toolweave.agent import WaitingPolicy
from toolweave.agent._option_checks import WAITING_POLICY
from toolweave.agent._stored.durable import make_durable
from toolweave.durability._durable_agent import DurableAgent, Framework, UnknownPolicy, check_policy
from toolweave.errors import ConfigError
from toolweave.jobs import Retention, WorkBackend
from toolweave.jobs.retention import RETENTION
from toolweave.state import Store

if TYPE_CHECKING:
    from agents import Agent as OpenAiAgent
    from agents import RunResult
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs] - it is typed itself
    from pydantic_ai import AgentRunResult
    from pydantic_ai.agent import AbstractAgent

    OutputT = TypeVar("OutputT")


_PYDANTIC_AI = (2, 68)
"""The first version of Pydantic AI with the hooks of durable runs, as the extra `pydantic-ai-durable` has it."""


@overload
def durable(
    agent: AbstractAgent[Any, OutputT],
    store: Store | WorkBackend,
    *,
    name: str | None = None,
    retention: Retention | None = None,
    waiting: WaitingPolicy | None = None,
    on_unknown: UnknownPolicy = "error",
    repeatable: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> DurableAgent[AgentRunResult[OutputT]]: ...


@overload
def durable(
    agent: OpenAiAgent[Any],
    store: Store | WorkBackend,
    *,
    name: str | None = None,
    retention: Retention | None = None,
    waiting: WaitingPolicy | None = None,
    on_unknown: UnknownPolicy = "error",
    repeatable: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> DurableAgent[RunResult]: ...


@overload
def durable(
    agent: Pregel[Any, Any, Any, Any],
    store: Store | WorkBackend,
    *,
    name: str | None = None,
    retention: Retention | None = None,
    waiting: WaitingPolicy | None = None,
    on_unknown: UnknownPolicy = "error",
    repeatable: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> DurableAgent[Json]: ...


def durable(
    agent: Any,  # of one of the frameworks, none of which is imported here
    store: Store | WorkBackend,
    *,
    name: str | None = None,
    retention: Retention | None = None,
    waiting: WaitingPolicy | None = None,
    on_unknown: UnknownPolicy = "error",
    repeatable: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> DurableAgent[Any]:
    """Return an agent of another framework whose runs outlive their process.

    Each answer of the model and each outcome of a tool is recorded in the store, and a run continues after the last,
    in any process, under the framework's own loop. A call during which its process died is made again if its tool says
    that this does no harm (`readOnlyHint`, `idempotentHint`); else the model reads that the outcome is unknown.

    Args:
        agent: An agent of Pydantic AI, one of the OpenAI Agents SDK, or a compiled graph of LangGraph. It is not
            changed.
        store: Keeps the runs; a `Backend` also lets workers execute submitted runs.
        name: The name under which runs are kept, by default the agent's own; needed when it has none.
        retention: How long its runs are kept; by default as the backend has it, else for 30 days.
        waiting: How long its runs wait for a person, and what happens then.
        on_unknown: `"error"`: the model reads that the outcome of such a call is unknown; `"rerun"`: it is made again.
        repeatable: Names of further tools whose calls may be repeated, for tools without annotations.
        options: The framework's own keyword arguments of each run, such as `deps` of Pydantic AI.

    Raises:
        TypeError: The agent is of another framework, or `store` is neither a store nor a backend.
        ValueError: It has no name, something in it cannot be recorded, or the policy is unknown.
        ConfigError: The installed version of the framework is too old.
    """
    check_policy(on_unknown)
    if not isinstance(store, (Store, WorkBackend)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers pass anything
        kind = type(store).__name__
        raise TypeError(f"durable() keeps runs in a store, such as SqliteStore(), or a Backend, not in {kind}")
    framework = _framework(agent)
    named = name or getattr(agent, "name", None)
    if not named:
        raise ValueError(f"durable(): the {framework.name} agent has no name to keep its runs under; pass name=")
    is_backend = isinstance(store, WorkBackend)
    check_kind("retention", retention, RETENTION)
    check_kind("waiting", waiting, WAITING_POLICY)
    kept = make_durable(
        named,
        None if is_backend else store,
        store if is_backend else None,
        on_unknown,
        retention=retention,
        waiting=waiting,
    )
    assert kept is not None  # there is one of both
    return DurableAgent(framework, kept, options=options or {}, repeatable=repeatable)


def _framework(agent: Any) -> Framework[Any]:
    if _is(agent, "pydantic_ai.agent", "AbstractAgent"):
        _check_pydantic_ai()
        from toolweave.durability._pydantic_ai import PydanticAiAgent

        return PydanticAiAgent(agent)
    if _is(agent, "agents", "Agent"):
        from toolweave.durability._openai_agents import OpenAiAgentsAgent

        return OpenAiAgentsAgent(agent)
    if _is(agent, "langgraph.pregel", "Pregel"):
        from toolweave.durability._langgraph import LangGraphAgent

        return LangGraphAgent(agent)
    raise TypeError(
        f"durable() takes an agent of Pydantic AI, one of the OpenAI Agents SDK or a compiled graph of LangGraph, not "
        f"{type(agent).__name__}; an Agent of Toolweave is durable by itself: Agent(..., store=...)"
    )


def _check_pydantic_ai() -> None:
    """Check that the installed Pydantic AI has the hooks of durable runs.

    Raises:
        ConfigError: It is too old.
    """
    try:
        installed = version("pydantic-ai-slim")
    except PackageNotFoundError:  # a copy without metadata
        return
    found = re.match(r"(\d+)\.(\d+)", installed)
    if found and (int(found[1]), int(found[2])) < _PYDANTIC_AI:
        needed = ".".join(map(str, _PYDANTIC_AI))
        raise ConfigError(
            f"durable runs of Pydantic AI need pydantic-ai-slim {needed} or newer, and {installed} is installed: "
            "pip install 'toolweave[pydantic-ai-durable]'"
        )


def _is(agent: Any, module: str, name: str) -> bool:
    """Whether an object is of a class of a framework: one that is not loaded made none."""
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and isinstance(agent, known)
