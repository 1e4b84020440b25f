"""`toolweave pin`: the definitions of tools are written into `toolweave.lock`, compared with it, allowed in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from toolweave.cli._command import Command, CommandGroup, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, Target, complete_servers
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.config import LoadedConfig
    from toolweave.trust import PinChange, Pins

_HELP = """Pin the tool definitions of servers, and see the differences.

A server can change what a tool is said to do after you have looked at it. toolweave.lock, beside the config file, holds
the definitions that you trust: commit it. With "pins": "block" in the config, what is new or differs is withheld until
you allow it; with "warn", which is what a pinned server gets by itself, it is reported.
"""
_EXAMPLES = {
    "write": """
toolweave pin
toolweave pin github --update
toolweave pin -- uvx mcp-server-time
""",
    "check": """
toolweave pin check
toolweave pin check --json
""",
    "allow": """
toolweave pin allow github:create_issue
""",
}


_ServerNames = Annotated[
    tuple[str, ...], Positional("SERVER", help="Which; all by default.", complete=complete_servers)
]
_LockOption = Annotated[
    Path | None,
    Option("--lock", metavar="FILE", help="The lock file; toolweave.lock beside the config file by default."),
]


def write_pins(
    target: Target,
    names: _ServerNames = (),
    update: Annotated[bool, Option("--update", help="Also pin definitions that differ from their pins.")] = False,
    lock: _LockOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Write the tool definitions of servers into toolweave.lock.

    A server that is pinned already and differs is shown with the difference, and left as it is, unless --update is
    given. Exits with 1 if any was left.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # imports are late: --help imports this module

        async with open_fleet(await _selected(target, names)) as fleet:
            locks = _LockFiles(lock)
            left: dict[str, list[PinChange]] = {}
            for name in fleet.answered:
                changes = locks.changes(fleet, name)
                if locks.has(fleet, name) and changes and not update:
                    left[name] = changes
                else:
                    locks.pin(fleet, name)
            locks.write()
            if as_json:
                answer_json({"locks": [str(path) for path in locks.paths], "left": _json(left), **_failures(fleet)})
            else:
                _show_changes(left)
                for name in fleet.answered:
                    if name not in left:
                        tools = len(fleet.hub.clients[name].snapshot())
                        note(f"{name}: {tools} tool{'s' * (tools != 1)} pinned in {locks.path(fleet, name)}")
                if left:
                    note("hint: --update pins what differs, toolweave pin allow SERVER:TOOL one tool")
                fleet.show_failures()
            return _code(fleet, bool(left))

    return run(body, verbose=target.verbose)


def check(target: Target, names: _ServerNames = (), lock: _LockOption = None, as_json: JsonOption = False) -> ExitCode:
    """Compare the tool definitions of servers with toolweave.lock.

    Exits with 1 if anything differs, with 3 if a server does not answer.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # late, as above

        async with open_fleet(await _selected(target, names)) as fleet:
            locks = _LockFiles(lock)
            found = {name: changes for name in fleet.answered if (changes := locks.changes(fleet, name))}
            if as_json:
                answer_json({"ok": not found and not fleet.errors, "servers": _json(found), **_failures(fleet)})
            else:
                _show_changes(found)
                if not found and fleet.answered:
                    note(f"as pinned: {', '.join(fleet.answered)}")
                fleet.show_failures()
            return _code(fleet, bool(found))

    return run(body, verbose=target.verbose)


def allow(
    target: Target,
    tools: Annotated[tuple[str, ...], Positional("TOOL", help="Which, as SERVER:TOOL.")],
    lock: _LockOption = None,
) -> ExitCode:
    """Pin single tools as they are now.

    A tool that is gone is unpinned; of a renamed one the old name is.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # late, as above

        wanted = [_split(tool) for tool in tools]
        async with open_fleet(await _selected(target, [server for server, _ in wanted])) as fleet:
            locks = _LockFiles(lock)
            for server, tool in wanted:
                if server in fleet.answered:
                    note(locks.allow(fleet, server, tool))
            locks.write()
            fleet.show_failures()
            return _code(fleet, differs=False)

    return run(body, verbose=target.verbose)


class _LockFiles:
    """The lock files of some servers, read once and written at the end."""

    def __init__(self, given: Path | None) -> None:
        self._given = given
        self._before: dict[Path, Pins] = {}
        self._pins: dict[Path, Pins] = {}

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were used."""
        return tuple(self._pins)

    def path(self, fleet: OpenServers, name: str) -> Path:
        """Return the lock file of a server."""
        from toolweave.trust import lock_path

        return self._given or lock_path(fleet.hub.clients[name].config)

    def has(self, fleet: OpenServers, name: str) -> bool:
        """Whether anything of a server is pinned."""
        return name in self._read(self.path(fleet, name)).servers

    def changes(self, fleet: OpenServers, name: str) -> list[PinChange]:
        """Return how a server differs from its pins."""
        from toolweave.trust import ServerIdentity, drift

        connection = fleet.hub.clients[name]
        identity = ServerIdentity.of(connection.config, connection.server_info)
        pinned = self._read(self.path(fleet, name)).servers.get(name)
        return drift(name, pinned, identity, connection.snapshot())

    def pin(self, fleet: OpenServers, name: str) -> None:
        """Pin a server with all its tools as they are."""
        from toolweave.trust import PinnedServer, ServerIdentity

        connection, path = fleet.hub.clients[name], self.path(fleet, name)
        identity = ServerIdentity.of(connection.config, connection.server_info)
        server = PinnedServer.of(identity, connection.snapshot())
        self._pins[path] = self._read(path).with_server(name, server)

    def allow(self, fleet: OpenServers, name: str, tool: str) -> str:
        """Pin one tool as it is; return a description of that."""
        from toolweave.trust import ServerIdentity, allow

        connection, path = fleet.hub.clients[name], self.path(fleet, name)
        pins = self._read(path)
        offered = any(tool == spec.original_name for spec in connection.snapshot())
        server = pins.servers.get(name)
        if offered:
            identity = ServerIdentity.of(connection.config, connection.server_info)
            for change in self.changes(fleet, name):
                pins = allow(pins, change, identity) if change.tool == tool else pins
        elif server is not None and tool in server.tools:
            pins = pins.with_server(name, server.with_tools((), without=[tool]))
        else:
            raise CommandError(f"server {name!r} has no tool {tool!r}", hint=f"toolweave tools --server {name}")
        self._pins[path] = pins
        return f"{name}: tool {tool!r} is {'pinned' if offered else 'no longer pinned'} in {path}"

    def write(self) -> None:
        """Write the files that changed."""
        for path, pins in self._pins.items():
            if pins != self._before[path]:
                pins.write(path)

    def _read(self, path: Path) -> Pins:
        from toolweave.trust import Pins

        if path not in self._pins:
            self._before[path] = self._pins[path] = Pins.read(path)
        return self._pins[path]


async def _selected(target: Target, names: Iterable[str]) -> LoadedConfig:
    """Return the servers, with the pins off: all that they say has to be seen."""
    from toolweave.cli._targets import select  # late, as above

    chosen = tuple(dict.fromkeys((*target.server, *names)))
    loaded = await select(replace(target, server=chosen) if not target.ad_hoc else target)
    servers = {name: config.replace(pins="off") for name, config in loaded.servers.items()}
    return loaded.replace(servers=servers)


def _split(tool: str) -> tuple[str, str]:
    server, colon, name = tool.partition(":")
    if not colon or not server or not name:
        raise CommandError(f"{tool!r} names no server", hint="write it as SERVER:TOOL, such as github:create_issue")
    return server, name


def _show_changes(found: Mapping[str, Sequence[PinChange]]) -> None:
    from toolweave.cli._render.text import safe_text  # late, as above

    for name, changes in found.items():
        answer(f"{safe_text(name)}: {len(changes)} difference{'s' * (len(changes) != 1)} from its pins")
        for change in changes:
            answer(f"  {safe_text(change.text)}")
            for line in change.diff():
                answer(f"    {safe_text(line)}")


def _json(found: Mapping[str, Sequence[PinChange]]) -> dict[str, Any]:
    return {
        name: [
            {
                "kind": one.kind,
                "tool": one.tool,
                "fields": list(one.fields),
                "text": one.text,
                "before": one.before,
                "after": one.after,
            }
            for one in changes
        ]
        for name, changes in found.items()
    }


def _failures(fleet: OpenServers) -> dict[str, Any]:
    return {"errors": {name: str(error) for name, error in fleet.errors.items()}}


def _code(fleet: OpenServers, differs: bool) -> ExitCode:
    code = fleet.exit_code(strict=True)
    return ExitCode.TOOL_ERROR if differs else code


COMMAND = CommandGroup(
    _HELP,
    {
        "write": Command(write_pins, examples=_EXAMPLES["write"]),
        "check": Command(check, examples=_EXAMPLES["check"]),
        "allow": Command(allow, examples=_EXAMPLES["allow"]),
    },
    default="write",
)
