"""Agents: the loop in which a model works with tools, and everything around it.

Depends on the `Model` and `Toolset` protocols; knows no provider and no connection. Exports the public names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.agent.agent import BaseAgent
    from toolweave.agent.agent_tools import AgentTools, ClientTool
    from toolweave.agent.approval import Approval, Confirm
    from toolweave.agent.durable import Durable, OnUnknown
    from toolweave.agent.events import (
        ApprovalGiven,
        ApprovalRequested,
        ChildFinished,
        ChildStarted,
        Event,
        ModelFailed,
        RunFinished,
        RunResult,
        RunStarted,
        StepStarted,
        TextDelta,
        ThinkingDelta,
        ToolArguments,
        ToolCallStarted,
        ToolFinished,
        ToolProgress,
        ToolStarted,
        TurnRestarted,
        UsageReported,
    )
    from toolweave.agent.history import History, trim_history
    from toolweave.agent.journal import Journal
    from toolweave.agent.limits import Limits
    from toolweave.agent.prompt import Prompt
    from toolweave.agent.records import RunRecord
    from toolweave.agent.run import Run, current_run
    from toolweave.agent.sessions import ConversationStore
    from toolweave.agent.spawn import SpawnTools, spawn_tools
    from toolweave.agent.status import RunInfo, RunStats, RunStatuses
    from toolweave.agent.submit import SubmittedRun
    from toolweave.agent.tool import parallelize
    from toolweave.agent.tool_search import ToolSearchToolset
    from toolweave.agent.tree import RunTree, root_of, run_tree
    from toolweave.agent.truncation import ResultPolicy
    from toolweave.agent.worker import resubmit_runs, run_handlers, work_runs

__all__ = [
    "AgentTools",
    "Approval",
    "ApprovalGiven",
    "ApprovalRequested",
    "BaseAgent",
    "ChildFinished",
    "ChildStarted",
    "ClientTool",
    "Confirm",
    "ConversationStore",
    "Durable",
    "Event",
    "History",
    "Journal",
    "Limits",
    "ModelFailed",
    "OnUnknown",
    "Prompt",
    "ResultPolicy",
    "Run",
    "RunFinished",
    "RunInfo",
    "RunRecord",
    "RunResult",
    "RunStarted",
    "RunStats",
    "RunStatuses",
    "RunTree",
    "SpawnTools",
    "StepStarted",
    "SubmittedRun",
    "TextDelta",
    "ThinkingDelta",
    "ToolArguments",
    "ToolCallStarted",
    "ToolFinished",
    "ToolProgress",
    "ToolSearchToolset",
    "ToolStarted",
    "TurnRestarted",
    "UsageReported",
    "current_run",
    "parallelize",
    "resubmit_runs",
    "root_of",
    "run_handlers",
    "run_tree",
    "spawn_tools",
    "trim_history",
    "work_runs",
]

_MODULES = {
    "agent": ("BaseAgent",),
    "approval": ("Approval", "Confirm"),
    "tool_search": ("ToolSearchToolset",),
    "durable": ("Durable", "OnUnknown"),
    "history": ("History", "trim_history"),
    "journal": ("Journal",),
    "limits": ("Limits",),
    "prompt": ("Prompt",),
    "records": ("RunRecord",),
    "run": ("Run", "current_run"),
    "sessions": ("ConversationStore",),
    "truncation": ("ResultPolicy",),
    "spawn": ("SpawnTools", "spawn_tools"),
    "status": ("RunInfo", "RunStats", "RunStatuses"),
    "submit": ("SubmittedRun",),
    "tool": ("parallelize",),
    "agent_tools": ("AgentTools", "ClientTool"),
    "tree": ("RunTree", "root_of", "run_tree"),
    "worker": ("resubmit_runs", "run_handlers", "work_runs"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
"""The module of each public name; names that are missing are in `events`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'events')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
