"""Agents of other frameworks as durable runs: Pydantic AI, the OpenAI Agents SDK, LangGraph.

`durable(agent, store)` executes an agent of theirs under their loop and on our journal: model answers and tool results
are recorded in a store, a lease keeps a run in one process, workers execute submitted runs. A framework is imported
when one of its agents is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.durability._durable_agent import DurableAgent
    from toolweave.durability._frameworks import durable
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_durable_agent": ("DurableAgent",),
            "_frameworks": ("durable",),
        },
    )

__all__ = ["DurableAgent", "durable"]
