"""Whoever watches an agent's tools costs each toolset one subscription, however often the tools change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolweave import Agent, ScriptedModel, ToolRegistry, tool


class Counted(ToolRegistry):
    """A toolset that counts its subscriptions."""

    subscriptions = 0

    def subscribe(self, listener: Any) -> Callable[[], None]:
        end = super().subscribe(listener)
        self.subscriptions += 1

        def unsubscribe() -> None:
            self.subscriptions -= 1
            end()

        return unsubscribe


@tool
def one() -> int:
    """Return one."""
    return 1


def test_a_toolset_is_subscribed_to_once_however_many_are_added_after_it() -> None:
    first = Counted([one])
    agent = Agent(ScriptedModel(["ok"]), tools=[first])
    agent.tools.subscribe(lambda _: None)
    watched = first.subscriptions
    for name in "abc":
        agent.tools.add(ToolRegistry([one]), prefix=name)

    assert watched >= 1
    assert first.subscriptions == watched
