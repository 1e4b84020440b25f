"""The types of the options of an agent and of its runs, for overloads; `Agent` explains them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

from toolweave.agent._agent_tools import ToolLike
from toolweave.agent._approval import Attended, Confirm
from toolweave.agent._history import History
from toolweave.agent._journal import OnUnknown
from toolweave.agent._limits import Limits
from toolweave.jobs import WorkBackend
from toolweave.models._base import ModelSettings
from toolweave.state import Store
from toolweave.tools._call import CallContext
from toolweave.tools._truncation import ResultPolicy


class AgentOptions(TypedDict, total=False):
    """The parameters of `Agent` beside the model and the type of its answers."""

    name: str
    system: str | None
    description: str | None
    tools: ToolLike | Iterable[ToolLike]
    mcp_servers: Any
    store: Store | None
    backend: WorkBackend | None
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
