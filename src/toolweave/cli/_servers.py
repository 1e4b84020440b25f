"""The servers of a command: opened together, accessed by name, closed together.

Adds the terminal's needs to the hub: a progress line, rows for views, an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from toolweave._json_types import Json
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._progress import starting
from toolweave.cli._render.text import safe_text
from toolweave.cli._screen import complain, note, wrapped
from toolweave.cli._targets import names_in
from toolweave.config import LoadedConfig, ServerConfig, merge_loaded
from toolweave.connect import Callbacks, ConnectionState, McpConnection, StateChanged
from toolweave.connect._hints import hint_of
from toolweave.errors import AuthRequiredError, ConfigError, ServerError, ToolweaveError
from toolweave.hub import Hub, connect_mcp_servers
from toolweave.tools import ToolSpec

_MAX_OUTPUT_LINES = 5
AnswerT = TypeVar("AnswerT")

_STARTING = frozenset({ConnectionState.IDLE, ConnectionState.CONNECTING})


class OpenServers:
    """The opened servers of one command.

    Attributes:
        hub: The hub that holds them.
        selection: The requested servers.
    """

    def __init__(self, hub: Hub, selection: LoadedConfig) -> None:
        self.hub = hub
        self.selection = selection
        # a failed one leaves the hub
        self._begun: Mapping[str, McpConnection] = dict(hub.clients)

    @property
    def answered(self) -> list[str]:
        """The names of the servers that answered, in the config's order."""
        up = {name for name, client in self.hub.clients.items() if client.state not in _STARTING}
        return [name for name in names_in(self.selection) if name in up and name not in self.errors]

    @property
    def errors(self) -> Mapping[str, Exception]:
        """Errors of wrong entries and of servers that failed, by name."""
        return self.hub.errors

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools of all servers, in the servers' order."""
        return list(self.hub.snapshot())

    def specs_of(self, name: str) -> list[ToolSpec]:
        """Return the tools of one server."""
        return [spec for spec in self.specs if spec.server == name]

    def connections(self) -> list[McpConnection]:
        """Return the connections that answered, in the config's order."""
        return [self.hub.clients[name] for name in self.answered]

    def servers_json(self) -> Json:
        """Return the JSON of every server, by its name."""
        return {name: self.server_json(name) for name in names_in(self.selection)}

    def server_json(self, name: str) -> Json:
        """Return one server as JSON: its identity and start-up time, or its error."""
        connection = self._begun.get(name)
        error = self.errors.get(name)
        row: Json = {
            "state": _state(connection, error),
            "protocol_version": None,
            "server_info": None,
            "tools": len(self.specs_of(name)),
            "error": None if error is None else str(error),
            "seconds": 0.0,
        }
        if connection is None:
            return row
        row["protocol_version"] = connection.protocol_version
        row["server_info"] = dict(connection.server_info) or None
        row["seconds"] = round(connection.report.seconds, 3)
        if connection.state in _STARTING:
            silence = self.hub.silences.get(name, 0)
            row["error"] = f"server {name!r}: no sign of life for {silence:.0f} s; it is still starting"
        return row

    async def ask(self, question: Callable[[McpConnection], Awaitable[AnswerT]]) -> dict[str, AnswerT]:
        """Query all connected servers concurrently; one that fails is left out, with a note."""
        answers: dict[str, AnswerT] = {}

        async def one(connection: McpConnection) -> None:
            try:
                answers[connection.name] = await question(connection)
            except ServerError as error:
                complain(error, label="failed")

        connections = self.connections()
        async with anyio.create_task_group() as tasks:
            for connection in connections:
                tasks.start_soon(one, connection)
        return {one.name: answers[one.name] for one in connections if one.name in answers}

    async def add(self, selection: LoadedConfig) -> None:
        """Open more servers; one that fails is in `errors`."""
        self.selection = merge_loaded([self.selection, selection])
        async with anyio.create_task_group() as tasks:
            for name, config in selection.servers.items():
                tasks.start_soon(self._add_one, name, config)

    async def _add_one(self, name: str, config: ServerConfig) -> None:
        try:
            await self.hub.connect(name, config)
        except ToolweaveError:
            return  # the hub keeps it in `errors`

    def show_failures(self) -> None:
        """Show the servers that failed on standard error, each with its error and a hint."""
        for name, error in self.errors.items():
            config = self.selection.servers.get(name)
            note(wrapped(safe_text(_brief(f"failed: {error}"), multiline=True), stream=sys.stderr))
            hint = hint_of(config, error)
            if hint:
                note(wrapped(f"hint: {hint}", stream=sys.stderr))

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """Return `OK` when any server answered, and with `strict` only when all did."""
        if self.answered:
            is_enough = not strict or not self.errors
            return ExitCode.OK if is_enough else ExitCode.UNREACHABLE
        errors = self.errors.values()
        if errors and all(isinstance(error, ConfigError) for error in errors):
            return ExitCode.USAGE
        return ExitCode.UNREACHABLE

    def none_reached(self) -> CommandError:
        """Return the error of a command that found no server to ask."""
        return CommandError(
            "no server could be reached", code=self.exit_code(), hint="toolweave doctor finds out why, step by step"
        )

    async def settled(self) -> None:
        """Wait until no responsive server is starting any more, or no server at all while none is up.

        A line on the terminal names the servers it waits for.
        """
        # Listeners are added before the first wait, so that no change of state is missed: a server that is ready before
        # is not among the names.
        names = [name for name, connection in self._begun.items() if connection.state in _STARTING]
        with starting(names, lambda: self.hub.silences) as done:

            def changed(change: StateChanged) -> None:
                if change.state not in _STARTING:
                    done(change.server)

            for connection in self._begun.values():
                connection.on("state", changed)
            await self.hub.settled("alive")
            if not self.hub.snapshot() and not self.answered:
                await self.hub.settled("all")
        for name, connection in self._begun.items():
            if connection.state in _STARTING:
                note(f"left out: server {name!r} is still starting, without a sign of life for some seconds")


def _brief(text: str) -> str:
    """Return an error with only the last lines of the process's output, indented so that they cannot pass for ours."""
    first, *output = text.split("\n")
    if len(output) > _MAX_OUTPUT_LINES:
        output = ["... (toolweave doctor shows more)", *output[-_MAX_OUTPUT_LINES:]]
    return "\n  ".join([first, *output])


@asynccontextmanager
async def open_fleet(selection: LoadedConfig, *, callbacks: Callbacks | None = None) -> AsyncGenerator[OpenServers]:
    """Open these servers and wait until each is ready or has failed; a failing one stops no other."""
    # `settled` waits instead, with a line on the terminal.
    async with connect_mcp_servers(selection, wait=0, callbacks=callbacks or Callbacks()) as hub:
        fleet = OpenServers(hub, selection)
        await fleet.settled()
        yield fleet


def _state(connection: McpConnection | None, error: Exception | None) -> str:
    if connection is not None:
        return str(connection.state)
    return str(ConnectionState.AUTH_REQUIRED if isinstance(error, AuthRequiredError) else ConnectionState.FAILED)
