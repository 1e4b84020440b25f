"""`generate` and `stream`: one run without an `Agent` object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolweave.agent.agent import Agent
from toolweave.agent.prompt import Sendable
from toolweave.agent.run import Run
from toolweave.agent.toolbox import ToolLike
from toolweave.models.base import Model

__all__ = ["generate", "stream"]


def generate(
    model: Model | str, messages: Sendable, *, tools: ToolLike | Iterable[ToolLike] = (), **options: Any
) -> Run:
    """Return a run of a model with tools, to be awaited.

    `options` are those of `Agent`: `result = await generate(model, "What is new?", tools=[search], name="reader")`.
    """
    return Agent(model, tools=tools, **options).send(messages)


stream = generate
"""Alias of `generate`, to be iterated: `async for event in stream(model, "...")`."""
