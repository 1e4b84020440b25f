"""What the server is called and what it offers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the server.

    Attributes:
        name: Its name, for programs.
        version: Its own version.
        instructions: What it tells models about itself, or None.
        tools: The tools it offers by name; empty for all of `TOOLS`.
        agents: The agents it offers by name; none by default.
        show_errors: Let clients read the message of an unexpected exception.
    """

    name: str = "my-server"
    version: str = "0.1.0"
    instructions: str | None = None
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    show_errors: bool = False
