"""Which model the agent asks, how it is told to behave, and which servers it uses."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the agent.

    Attributes:
        name: Its name, also as a tool: `agent_<name>`.
        model: By default what `TOOLWEAVE_MODEL` says, such as `openai:gpt-5.1` or
            `http://localhost:8080/v1#qwen3`. `command` needs no key and no network:
            it takes `/tools` and `/call TOOL {JSON}`, and searches for other words.
        system: What it is told before everything else.
        servers: A config file of any editor; used if it is there.
        max_steps: Turns of the model until it has to be done.
    """

    name: str = "helper"
    model: str = field(
        default_factory=lambda: os.environ.get("TOOLWEAVE_MODEL", "command")
    )
    system: str = "Answer briefly. Use the tools instead of guessing."
    servers: Path = Path("mcp.json")
    max_steps: int = 20
