"""The servers a command works with: opened together, looked at by name, closed together.

Adds to the hub only what a terminal needs: a line that moves meanwhile, rows for views, an exit code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolweave.cli.advice import advise
from toolweave.cli.exits import ExitCode, exit_code_of
from toolweave.cli.live import starting
from toolweave.cli.options import Target
from toolweave.cli.screen import note
from toolweave.cli.targets import Selection, select
from toolweave.config import ServerConfig
from toolweave.connect import McpConnection
from toolweave.errors import ConfigError
from toolweave.hub import Hub, connect_mcp_servers
from toolweave.tools import ToolSpec

__all__ = ["Fleet", "open_fleet"]


class Fleet:
    """The opened servers of one command.

    Attributes:
        hub: The hub that holds them.
        selection: What was asked for.
    """

    def __init__(self, hub: Hub, selection: Selection) -> None:
        self.hub = hub
        self.selection = selection

    @property
    def answered(self) -> list[str]:
        """The names of the servers that answered, in the config's order."""
        return [name for name in self.selection.names if name in self.hub.clients and name not in self.errors]

    @property
    def errors(self) -> Mapping[str, Exception]:
        """Why a server did not answer, by its name: entries that are wrong and servers that failed."""
        return {**self.selection.errors, **self.hub.errors}

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools of all servers, in the servers' order."""
        return list(self.hub.snapshot())

    def specs_of(self, name: str) -> list[ToolSpec]:
        """Return the tools of one server."""
        return [spec for spec in self.specs if spec.server == name]

    def connection(self, name: str) -> McpConnection:
        """Return the connection of a server that answered."""
        return self.hub.clients[name]

    def servers_json(self) -> dict[str, Any]:
        """Return the JSON of every server, by its name."""
        return {name: self.server_json(name) for name in self.selection.names}

    def server_json(self, name: str) -> dict[str, Any]:
        """Return one server as JSON: what answered, how fast, or why not."""
        connection = self.hub.clients.get(name)
        error = self.errors.get(name)
        return {
            "state": str(connection.state) if connection is not None else "failed",
            "protocol_version": connection.protocol_version if connection is not None else None,
            "server_info": dict(connection.server_info) if connection is not None else None,
            "tools": len(self.specs_of(name)),
            "error": str(error) if error is not None else None,
            "seconds": round(connection.report.seconds, 3) if connection is not None else None,
        }

    def show_failures(self) -> None:
        """Tell on standard error which servers failed, why, and what to do."""
        for name, error in self.errors.items():
            config = self.selection.servers.get(name)
            note(f"failed: {error}")
            hint = advise(error, program=program_of(config))
            if hint is not None:
                note(f"hint: {hint}")

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """Return `OK` when any server answered, and with `strict` only when all did."""
        if strict and self.errors:
            return ExitCode.UNREACHABLE
        return ExitCode.OK if self.answered else failed_code(self.errors.values())


def failed_code(errors: Iterable[Exception]) -> ExitCode:
    """Return the code for servers that all failed: `USAGE` when each entry was wrong, else `UNREACHABLE`."""
    codes = {exit_code_of(error) for error in errors if isinstance(error, ConfigError)}
    return ExitCode.USAGE if codes == {ExitCode.USAGE} and all(isinstance(e, ConfigError) for e in errors) else (
        ExitCode.UNREACHABLE
    )


def program_of(config: ServerConfig | None) -> str:
    """Return the base name of a server's command, `""` when it has none."""
    from toolweave.config import program_name

    return program_name(config.command) if config is not None else ""


@asynccontextmanager
async def open_fleet(target: Target, names: Sequence[str] | None = None) -> AsyncGenerator[Fleet]:
    """Open the servers a command is about, or those of them in `names`; a failing one stops no other.

    Raises:
        CommandError: There is no config, or no such server.
        ConfigError: A config file cannot be read.
    """
    selection = select(target, names)
    with starting(list(selection.servers)) as done:
        hub = await connect_mcp_servers(selection.servers, on_event=lambda event: done(event.server))
    async with hub:
        yield Fleet(hub, selection)
