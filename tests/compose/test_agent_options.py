"""The types of an agent's options name the parameters that there are."""

from __future__ import annotations

import inspect

from toolweave import Agent
from toolweave.compose._agent_options import AgentOptions, SendOptions


def test_the_types_of_options_name_every_parameter_of_an_agent_and_of_a_run() -> None:
    assert AgentOptions.__annotations__.keys() == inspect.signature(Agent).parameters.keys() - {"model", "output_type"}
    assert SendOptions.__annotations__.keys() == inspect.signature(Agent.send).parameters.keys() - {"self", "sent"}
