"""A registry of agents, each with its own selection of the shared tools. Runs nothing itself."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from toolweave.compose._agent import Agent
from toolweave.models import Model
from toolweave.tools import Toolset, ToolSource, ToolSpec, as_toolset, filtered
from toolweave.tools.names import unknown_tool

_log = logging.getLogger("toolweave.compose")


class _Registration(NamedTuple):
    agent: Agent
    tool_names: tuple[str, ...]


class AgentRegistry:
    """Agents that share tools and, unless they have their own, a model.

        agents = AgentRegistry("anthropic:claude-sonnet-4-5", tools=[get_weather, hub])
        agents.register("dev-assistant", tool_names=["get_weather", "github:create_issue"])
        result = await agents.get("dev-assistant").send("Open an issue: it rains.")

    Tool names are resolved whenever a tool appears, also after the agent was registered.

    Args:
        model: The default model of the agents.
        tools: The shared tools: a `ToolRegistry`, a hub, functions, or a sequence of these.
        **options: Further options of all agents; see `Agent`.

    Attributes:
        tools: The shared tools.
    """

    def __init__(self, model: Model | str, *, tools: ToolSource = (), **options: Any) -> None:
        self.tools: Toolset = as_toolset(tools)
        self._options: dict[str, Any] = {"model": model, **options}
        self._agents: dict[str, _Registration] = {}

    def __repr__(self) -> str:
        return f"<AgentRegistry of {', '.join(map(repr, self._agents)) or 'no agents'}>"

    def register(self, name: str, *, tool_names: Iterable[str] = (), **options: Any) -> Agent:
        """Make an agent and keep it under its name.

        Args:
            name: The agent's name.
            tool_names: The shared tools that the agent gets, by name, `server:tool` or `server/tool`. If a tool does
                not exist yet, a warning is logged, and the agent gets the tool as soon as it exists.
            **options: See `Agent`; `tools` are the agent's own, beside the shared ones.

        Raises:
            ValueError: There is an agent of this name.
            TypeError: An agent was given in place of a name.
        """
        if isinstance(name, Agent):
            raise TypeError("register() makes the agent: give its name and options, register('name', model=...)")
        if name in self._agents:
            raise ValueError(f"agent {name!r} is registered already; choose another name")
        if isinstance(tool_names, str):
            selected = (tool_names,)
        else:
            selected = tuple(dict.fromkeys(tool_names))
        agent = Agent(**{**self._options, **options}, name=name)
        if selected:
            names = frozenset(selected)

            def is_selected(spec: ToolSpec) -> bool:
                return spec.name in names or not names.isdisjoint(spec.aliases)

            # A filter and not a copy: a tool that appears later, as with a server that starts slowly, is there at once.
            agent.tools.add(filtered(self.tools, predicate=is_selected))
        self._agents[name] = _Registration(agent, selected)
        offered = self.tools.snapshot().by_name
        for missing in self.missing(name):
            _log.warning("agent %r: %s (yet)", name, unknown_tool(missing, offered))
        return agent

    def get(self, name: str) -> Agent:
        """Return the agent of this name.

        Raises:
            KeyError: No agent has this name.
        """
        return self._registration(name).agent

    def list(self) -> tuple[Agent, ...]:
        """Return the agents in the order they were registered."""
        return tuple(registration.agent for registration in self._agents.values())

    def missing(self, name: str) -> tuple[str, ...]:
        """Return the tool names of an agent that are not available now.

        Raises:
            KeyError: No agent has this name.
        """
        snapshot = self.tools.snapshot()
        tool_names = self._registration(name).tool_names
        return tuple(tool_name for tool_name in tool_names if snapshot.find(tool_name) is None)

    def _registration(self, name: str) -> _Registration:
        registration = self._agents.get(name)
        if registration is not None:
            return registration
        similar = difflib.get_close_matches(name, self._agents, n=1)
        if similar:
            hint = f"did you mean {similar[0]!r}?"
        else:
            hint = f"there are {', '.join(self._agents) or 'none'}"
        raise KeyError(f"no agent {name!r}; {hint}")
