"""How far a run may go. Values and one pure function."""

from __future__ import annotations

from dataclasses import dataclass

from toolweave.agent.events import StopReason
from toolweave.models.base import Usage

__all__ = ["Limits", "passed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one run; None is no bound. A run that passes one ends with its `stop_reason`, it raises nothing.

    Attributes:
        tokens: Input and output of all turns, in tokens; no turn is begun at or over it.
        cost: The same in US dollars, as far as models tell.
        seconds: From the first turn to the last, waits for approval included; a resumed run has them anew.
        tool_calls: Calls in all; a turn that would pass it runs none of its own.
        parallel_per_server: Calls that run at the same time on one MCP server, over all runs of the agent (C28).
        call_seconds: Silence of a tool until its call is given up; None takes the toolset's own bound, which functions
            of this process do not have.
        approval_seconds: How long a person may take to allow a call; it is denied then.
        output_retries: How often an answer that does not fit `output_type` is sent back with its problems.
        turn_retries: How often in a row the model is asked again after a turn that is of no use: an empty one, one
            whose call was cut off or could not be read.
        tool_failures: Turns in a row in which a tool does nothing but fail until the run ends; None is no bound.
        depth: How deep agents may call agents.
    """

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = 3600.0
    tool_calls: int | None = None
    parallel_per_server: int = 8
    call_seconds: float | None = None
    approval_seconds: float = 600.0
    output_retries: int = 2
    turn_retries: int = 2
    tool_failures: int | None = None
    depth: int = 5

    def __post_init__(self) -> None:
        if self.parallel_per_server < 1:
            raise ValueError(f"parallel_per_server is at least 1, not {self.parallel_per_server!r}")


def passed(limits: Limits, usage: Usage, steps: int, max_steps: int) -> StopReason | None:
    """Return the bound that forbids another turn of the model, or None."""
    if steps >= max_steps:
        return "max_steps"
    if limits.tokens is not None and usage.input_tokens + usage.output_tokens >= limits.tokens:
        return "token_limit"
    if limits.cost is not None and (usage.cost or 0.0) >= limits.cost:
        return "cost_limit"
    return None
