"""Conversations in the form that every provider requires: each tool call answered exactly once, at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolweave.models._messages import AssistantMessage, Message, ToolMessage, ToolOutcome, UserMessage
from toolweave.tools._result import ToolResult

_NO_RESULT = "no result: the run was interrupted before this call was answered"


def pair_tool_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with every tool call answered once, in the order of the calls, directly after them.

    A call without an outcome (of a run that was cancelled or cut) gets an error result that says so. An outcome
    without its call becomes a user's text that names the tool, so nothing is lost. Of two outcomes the first counts.
    """
    out: list[Message] = []
    waiting: AssistantMessage | None = None
    outcomes: list[ToolOutcome] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            outcomes += message.outcomes
            continue
        out += _answers(waiting, outcomes)
        out.append(message)
        waiting, outcomes = (message if isinstance(message, AssistantMessage) else None), []
    return out + _answers(waiting, outcomes)


def _answers(asked: AssistantMessage | None, outcomes: Iterable[ToolOutcome]) -> list[Message]:
    found: dict[str, ToolOutcome] = {}
    strays: list[ToolOutcome] = []
    known = {call.id for call in asked.tool_calls} if asked is not None else set[str]()
    for outcome in outcomes:
        if outcome.call_id in known:
            found.setdefault(outcome.call_id, outcome)
        else:
            strays.append(outcome)
    answers: list[Message] = []
    if asked is not None and asked.tool_calls:
        kept = (found.get(call.id) or _missing(call.id, call.name) for call in asked.tool_calls)
        answers.append(ToolMessage(outcomes=tuple(kept)))
    answers += [
        UserMessage.of(f"[result of an earlier call of {one.name!r}] {one.result.for_model().text}") for one in strays
    ]
    return answers


def _missing(call_id: str, name: str) -> ToolOutcome:
    return ToolOutcome(call_id=call_id, name=name, result=ToolResult.failure(_NO_RESULT))
