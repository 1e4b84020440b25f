"""The limits of a run. Values and one pure function."""

from __future__ import annotations

from dataclasses import dataclass

from toolweave.agent._events import StopReason
from toolweave.models import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one run. A run that passes one ends with its `stop_reason`, and raises nothing.

        agent = Agent(model, limits=Limits(tool_calls=20, seconds=60))

    Attributes:
        tokens: Input and output of all turns, in tokens; no turn is begun at or over it.
        cost: Cost of all turns in US dollars, as far as it is known.
        seconds: From the first turn to the last, waits for approval included; a resumed run starts at zero.
        tool_calls: Calls in all; a turn that would pass it makes no call.
        parallel_per_server: Calls that run at the same time on one MCP server, over all runs of the agent.
        call_seconds: Idle timeout of a tool call; None takes the toolset's own, which functions of this process do not
            have.
        approval_seconds: Time limit for a person's approval of a call, which is denied after it.
        output_retries: Maximum number of times that an answer that does not fit `output_type` is sent back.
        turn_retries: Maximum number of retries in a row after a useless turn: an empty one, or one whose call was cut
            off or could not be parsed.
        tool_failures: Turns in a row with nothing but failed calls of a tool until the run ends; None without a bound.
        depth: Maximum nesting depth of agents that call agents.

    Raises:
        ValueError: A bound is negative, or `parallel_per_server` is not at least 1.
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
        for name in self.__slots__:
            bound = getattr(self, name)
            if bound is None:
                continue
            if not isinstance(bound, int | float) or not bound >= 0:  # NaN fails the comparison
                raise ValueError(f"{name} is 0 or more, or None for no bound, not {bound!r}")
        if self.parallel_per_server < 1:
            raise ValueError(f"parallel_per_server is at least 1, not {self.parallel_per_server!r}")


def passed(limits: Limits, usage: Usage, steps: int, max_steps: int) -> StopReason | None:
    """Return the limit that forbids another turn of the model, or None."""
    if steps >= max_steps:
        return "max_steps"
    tokens = usage.input_tokens + usage.output_tokens
    if limits.tokens is not None and tokens >= limits.tokens:
        return "token_limit"
    cost = 0.0 if usage.cost is None else usage.cost
    if limits.cost is not None and cost >= limits.cost:
        return "cost_limit"
    return None
