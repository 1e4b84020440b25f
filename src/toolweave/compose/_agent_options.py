"""The types of the options of an agent and of its runs, for overloads; `Agent` explains them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from toolweave._option_checks import (
    COUNT,
    FUNCTION,
    TEXT,
    OptionKind,
    check_choice,
    check_kind,
    check_kinds,
    instance_of,
)
from toolweave.agent import Confirm, History, Limits, OnUnknown, WaitingPolicy
from toolweave.agent._loop.agent_tools import ToolLike
from toolweave.agent._option_checks import UNKNOWN_POLICIES, WAITING_POLICY
from toolweave.agent.approval import Attended
from toolweave.jobs import Retention, WorkBackend
from toolweave.jobs.retention import RETENTION
from toolweave.models import Model, ModelSettings
from toolweave.state import Store
from toolweave.state.checks import STORE
from toolweave.tools import CallContext, ResultPolicy


class AgentOptions(TypedDict, total=False):
    """The parameters of `Agent` beside the model and the type of its answers."""

    name: str
    system: str | None
    description: str | None
    tools: ToolLike | Iterable[ToolLike]
    mcp_servers: Any
    store: Store | None
    backend: WorkBackend | None
    retention: Retention | None
    waiting: WaitingPolicy | None
    on_unknown: OnUnknown
    max_steps: int
    confirm: Confirm | None
    on_transport_error: Literal["result", "raise"]
    on_error: Literal["skip", "raise"]
    limits: Limits | None
    settings: ModelSettings | None
    result_policy: ResultPolicy | None
    defer_tools: int | None
    history: History | None
    questions: bool


class SendOptions(TypedDict, total=False):
    """The parameters of `Agent.send` beside the message."""

    session: str | None
    tools: ToolLike | Iterable[ToolLike] | None
    ctx: CallContext
    attended: Attended
    key: str | None


_KINDS: Mapping[str, OptionKind] = {
    "name": TEXT,
    "system": TEXT.or_none,
    "limits": instance_of(Limits, "Limits(...)").or_none,
    "settings": instance_of(ModelSettings, "ModelSettings(...)").or_none,
    "result_policy": instance_of(ResultPolicy, "ResultPolicy(...)").or_none,
    "backend": instance_of(WorkBackend, "a backend, such as Backend(url)").or_none,
    "retention": RETENTION,
    "waiting": WAITING_POLICY,
    "history": FUNCTION._replace(shown="a function of the messages").or_none,
    "max_steps": COUNT._replace(shown="a number of turns"),
    "defer_tools": COUNT._replace(shown="a number of tokens").or_none,
}


def check_options(*given: AgentOptions) -> None:
    """Check the options of an agent as they are given in Python.

    Raises:
        TypeError: One is of another type.
        ValueError: One has another value than its few, or is too small.
    """
    options: dict[str, Any] = {name: value for part in given for name, value in part.items()}
    check_kinds(options, _KINDS)
    if options["store"] is not None:
        check_kind("store", options["store"], STORE)
    if options["max_steps"] < 1:
        raise ValueError(f"max_steps is at least 1, not {options['max_steps']}")
    check_choice("on_unknown", options["on_unknown"], UNKNOWN_POLICIES[:-1])
    check_choice("on_transport_error", options["on_transport_error"], ("result", "raise"))
    check_choice("on_error", options["on_error"], ("skip", "raise"))


def model_of(model: Model | str) -> Model:
    """Return a model; a text names one.

    Raises:
        ConfigError: The text does not name a model.
        TypeError: It is neither.
    """
    if isinstance(model, str):
        from toolweave.models import model_from  # only needed for a model given as text

        return model_from(model)
    if not callable(getattr(model, "stream", None)):
        raise TypeError(f"model is a Model or a text such as 'anthropic:claude-sonnet-4-5', not {type(model).__name__}")
    return model
