"""The commands, one module each: its options, its calls of the library, its output.

A module is imported when its command is executed or completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.cli._command import Command, CommandGroup

__all__ = ["COMMANDS", "OPTIONS", "load_command"]

COMMANDS: Mapping[str, str] = {
    "tools": "List the tools of every server.",
    "explain": "Explain why a tool is offered or not, and how models see it.",
    "call": "Call one tool and print its answer.",
    "resources": "List the resources of every server, or read one.",
    "prompts": "List the prompts of every server, or fill one in.",
    "status": "Show which servers answer, and how fast.",
    "doctor": "Diagnose why a server does not answer, or misbehaves.",
    "chat": "Talk to a model that uses the servers' tools.",
    "serve": "Serve functions, apps, APIs, a folder or a config as one server.",
    "gateway": "Serve a config as one gateway that follows it while it runs.",
    "worker": "Execute submitted runs and tasks.",
    "init": "Write a first config file.",
    "search": "Find servers in the registry of MCP servers, or at an address.",
    "install": "Write a published server into a config; nothing is started.",
    "add": "Copy a component's source code into this project.",
    "demo": "Show everything once, offline.",
    "auth": "Sign in to servers, list the sign-ins, and sign out.",
    "components": "See, update and remove components that `toolweave add` copied.",
    "config": "Show the config files as they are read.",
    "pin": "Pin the definitions of servers, and see the differences.",
    "runs": "Start, list, resume, stop, answer and delete runs of agents.",
    "sessions": "List and delete the conversations of agents.",
    "users": "Erase the data of a user.",
}
"""Each command with the first line of its help, so that the list is shown without importing any."""

OPTIONS: Sequence[tuple[str, str]] = (
    ("-V, --version", "Print the version and exit."),
    ("--install-completion", "Install completion for the current shell."),
    ("--show-completion", "Show completion for the current shell, to copy it or customize the installation."),
)
"""The options that can be given instead of a command, beside that for help."""


def load_command(name: str) -> Command | CommandGroup:
    """Import the module of one of `COMMANDS`."""
    return import_module(f"toolweave.cli._commands.{name}").COMMAND
