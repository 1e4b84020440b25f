"""Agents: the loop in which a model works with tools, and everything around it.

Depends on the `Model` and `Toolset` protocols, not on a provider or a connection. Exports the public names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.agent._events import (
        ApprovalGiven,
        ApprovalRequested,
        ChildFinished,
        ChildStarted,
        Event,
        InputGiven,
        InputRequested,
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
    from toolweave.agent._history import History, trim_history
    from toolweave.agent._journal import Ask, Journal, OnUnknown, Recorded, RunStart
    from toolweave.agent._lifespan import ToolsetSource
    from toolweave.agent._limits import Limits
    from toolweave.agent._loop.agent_tools import AgentTools, ClientTool
    from toolweave.agent._loop.tool_search import RequestTools, ToolSearchToolset
    from toolweave.agent._prompt import Prompt
    from toolweave.agent._questions import Asked, RunQuestions
    from toolweave.agent._run import Run, current_run
    from toolweave.agent._sessions import ConversationStore
    from toolweave.agent._stored.deadlines import WaitingNotice, WaitingPolicy
    from toolweave.agent._stored.durable import Durable
    from toolweave.agent._stored.records import RunRecord
    from toolweave.agent._stored.status import RunInfo, RunStats, RunStatuses, SessionInfo
    from toolweave.agent._stored.store_journal import StoreJournal
    from toolweave.agent._stored.tree import RunTree, root_of, run_tree
    from toolweave.agent._tool import parallelize
    from toolweave.agent._workers.spawn import SpawnTools, spawn_tools
    from toolweave.agent._workers.submit import SubmittedRun
    from toolweave.agent._workers.worker import resubmit_runs, run_handlers, work_runs
    from toolweave.agent.approval import Approval, Approvals, Confirm, WaitingCall, WaitingQuestion
    from toolweave.tools import ResultPolicy
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".tools._truncation": ("ResultPolicy",),
            "approval": (
                "Approval",
                "Approvals",
                "Confirm",
                "WaitingCall",
                "WaitingQuestion",
            ),
            "_events": (
                "ApprovalGiven",
                "ApprovalRequested",
                "ChildFinished",
                "ChildStarted",
                "Event",
                "InputGiven",
                "InputRequested",
                "ModelFailed",
                "RunFinished",
                "RunResult",
                "RunStarted",
                "StepStarted",
                "TextDelta",
                "ThinkingDelta",
                "ToolArguments",
                "ToolCallStarted",
                "ToolFinished",
                "ToolProgress",
                "ToolStarted",
                "TurnRestarted",
                "UsageReported",
            ),
            "_history": (
                "History",
                "trim_history",
            ),
            "_journal": (
                "Ask",
                "Journal",
                "OnUnknown",
                "Recorded",
                "RunStart",
            ),
            "_lifespan": ("ToolsetSource",),
            "_limits": ("Limits",),
            "_loop.agent_tools": (
                "AgentTools",
                "ClientTool",
            ),
            "_loop.tool_search": (
                "RequestTools",
                "ToolSearchToolset",
            ),
            "_prompt": ("Prompt",),
            "_questions": (
                "Asked",
                "RunQuestions",
            ),
            "_run": (
                "Run",
                "current_run",
            ),
            "_sessions": ("ConversationStore",),
            "_stored.deadlines": (
                "WaitingNotice",
                "WaitingPolicy",
            ),
            "_stored.durable": ("Durable",),
            "_stored.records": ("RunRecord",),
            "_stored.status": (
                "RunInfo",
                "RunStats",
                "RunStatuses",
                "SessionInfo",
            ),
            "_stored.store_journal": ("StoreJournal",),
            "_stored.tree": (
                "RunTree",
                "root_of",
                "run_tree",
            ),
            "_tool": ("parallelize",),
            "_workers.spawn": (
                "SpawnTools",
                "spawn_tools",
            ),
            "_workers.submit": ("SubmittedRun",),
            "_workers.worker": (
                "resubmit_runs",
                "run_handlers",
                "work_runs",
            ),
        },
    )

__all__ = [
    "AgentTools",
    "Approval",
    "ApprovalGiven",
    "ApprovalRequested",
    "Approvals",
    "Ask",
    "Asked",
    "ChildFinished",
    "ChildStarted",
    "ClientTool",
    "Confirm",
    "ConversationStore",
    "Durable",
    "Event",
    "History",
    "InputGiven",
    "InputRequested",
    "Journal",
    "Limits",
    "ModelFailed",
    "OnUnknown",
    "Prompt",
    "Recorded",
    "RequestTools",
    "ResultPolicy",
    "Run",
    "RunFinished",
    "RunInfo",
    "RunQuestions",
    "RunRecord",
    "RunResult",
    "RunStart",
    "RunStarted",
    "RunStats",
    "RunStatuses",
    "RunTree",
    "SessionInfo",
    "SpawnTools",
    "StepStarted",
    "StoreJournal",
    "SubmittedRun",
    "TextDelta",
    "ThinkingDelta",
    "ToolArguments",
    "ToolCallStarted",
    "ToolFinished",
    "ToolProgress",
    "ToolSearchToolset",
    "ToolStarted",
    "ToolsetSource",
    "TurnRestarted",
    "UsageReported",
    "WaitingCall",
    "WaitingNotice",
    "WaitingPolicy",
    "WaitingQuestion",
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
