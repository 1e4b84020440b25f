"""`toolweave pin`: the definitions of servers are written into `toolweave.lock`, compared with it, allowed in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave._text import counted
from toolweave.cli._command import Command, CommandGroup, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, Target, complete_servers
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.config import LoadedConfig
    from toolweave.definitions import OfferedDefinitions, PinChange, Pins

_HELP = """Pin the definitions of servers, and see the differences.

A server can change its definitions after you have looked at them: its tools, prompts, resources and instructions.
toolweave.lock, beside the config file, holds the definitions that you trust: commit it. With "pins": "block" in the
config, new or changed definitions are withheld until you allow them. With "warn", which is the default for a pinned
server, they are reported.
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
toolweave pin allow github:review --kind prompt
toolweave pin allow github --kind instructions
""",
}


_ServerNames = Annotated[
    tuple[str, ...], Positional("SERVER", help="The servers; by default all.", complete=complete_servers)
]
_LockOption = Annotated[
    Path | None,
    Option("--lock", metavar="FILE", help="The lock file; toolweave.lock beside the config file by default."),
]


class PinKind(StrEnum):
    """The kinds of definitions that are pinned."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "template"
    INSTRUCTIONS = "instructions"


def write_pins(
    target: Target,
    names: _ServerNames = (),
    update: Annotated[bool, Option("--update", help="Also pin definitions that differ from their pins.")] = False,
    lock: _LockOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Write the definitions of servers into toolweave.lock: tools, prompts, resources, templates and instructions.

    If a pinned server differs, the command shows the difference and keeps the pins, unless you give --update. Then
    the exit code is 1.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # imports are late: --help imports this module

        async with open_fleet(await _selected(target, names)) as fleet:
            locks = _LockFiles(lock, await _offers(fleet))
            left: dict[str, list[PinChange]] = {}
            for name in locks.readable(fleet):
                changes = locks.changes(fleet, name)
                if locks.has(fleet, name) and changes and not update:
                    left[name] = changes
                else:
                    locks.pin(fleet, name)
            locks.write()
            if as_json:
                answer_json({"locks": list(map(str, locks.paths)), "left": _json(left), **_failures(fleet, locks)})
            else:
                _show_changes(left)
                for name in locks.readable(fleet):
                    if name not in left:
                        note(f"{name}: {locks.described(fleet, name)} pinned in {locks.path(fleet, name)}")
                if left:
                    note("hint: --update pins the differences, toolweave pin allow SERVER:TOOL one tool")
                fleet.show_failures()
            return _code(fleet, locks, differs=bool(left))

    return run(body, verbose=target.verbose)


def check(target: Target, names: _ServerNames = (), lock: _LockOption = None, as_json: JsonOption = False) -> ExitCode:
    """Compare the definitions of servers with toolweave.lock.

    Exits with 1 if anything differs, with 3 if a server does not answer.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # late, as above

        async with open_fleet(await _selected(target, names)) as fleet:
            locks = _LockFiles(lock, await _offers(fleet))
            compared = locks.readable(fleet)
            found: dict[str, list[PinChange]] = {}
            for name in compared:
                changes = locks.changes(fleet, name)
                if changes:
                    found[name] = changes
            if as_json:
                failures = _failures(fleet, locks)
                answer_json({"ok": not found and not failures["errors"], "servers": _json(found), **failures})
            else:
                _show_changes(found)
                if not found and compared:
                    note(f"as pinned: {', '.join(compared)}")
                for name in compared:
                    locks.note_unpinned(fleet, name)
                fleet.show_failures()
            return _code(fleet, locks, differs=bool(found))

    return run(body, verbose=target.verbose)


def allow(
    target: Target,
    names: Annotated[
        tuple[str, ...],
        Positional("NAME", help="SERVER:TOOL, SERVER:URI for a resource, or SERVER for instructions."),
    ],
    kind: Annotated[PinKind, Option("--kind", help="The kind of these definitions.")] = PinKind.TOOL,
    lock: _LockOption = None,
) -> ExitCode:
    """Pin single definitions as they are now: tools, or others with --kind.

    A definition that no longer exists is unpinned, like the old name of a renamed one.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # late, as above

        wanted = [_split(name, kind) for name in names]
        async with open_fleet(await _selected(target, [server for server, _ in wanted])) as fleet:
            locks = _LockFiles(lock, await _offers(fleet))
            for server, name in wanted:
                if server in locks.readable(fleet):
                    note(locks.allow(fleet, server, kind, name))
            locks.write()
            fleet.show_failures()
            return _code(fleet, locks, differs=False)

    return run(body, verbose=target.verbose)


class _LockFiles:
    """The lock files of some servers, read once and written at the end."""

    def __init__(self, given: Path | None, offers: Mapping[str, OfferedDefinitions]) -> None:
        self._given = given
        self._offers = offers
        self._before: dict[Path, Pins] = {}
        self._pins: dict[Path, Pins] = {}

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were used."""
        return tuple(self._pins)

    def path(self, fleet: OpenServers, name: str) -> Path:
        """Return the lock file of a server."""
        from toolweave.definitions import lock_path

        return self._given or lock_path(fleet.hub.clients[name].config)

    def readable(self, fleet: OpenServers) -> list[str]:
        """Return the servers that answered with all their lists."""
        # A list that could not be read would look as if its definitions were gone, and would be pinned so.
        return [name for name in fleet.answered if name in self._offers]

    def unreadable(self, fleet: OpenServers) -> list[str]:
        """Return the servers that answered, but not with all their lists."""
        return [name for name in fleet.answered if name not in self._offers]

    def described(self, fleet: OpenServers, name: str) -> str:
        """Return the numbers of the definitions of a server, such as `3 tools, 1 prompt`."""
        offers = self._offers[name]
        counts = {
            "prompt": len(offers.prompts or ()),
            "resource": len(offers.resources or ()),
            "resource template": len(offers.templates or ()),
        }
        tools = len(fleet.hub.clients[name].snapshot())
        found = [counted(tools, "tool")]
        found += [counted(count, noun) for noun, count in counts.items() if count]
        if offers.instructions:
            found.append("instructions")
        return ", ".join(found)

    def note_unpinned(self, fleet: OpenServers, name: str) -> None:
        """Name the parts of a server that its pins do not cover, such as those of an older lock."""
        pinned = self._read(self.path(fleet, name)).servers.get(name)
        if pinned is None:
            return
        offers = self._offers[name]
        parts = {
            "instructions": (pinned.instructions, offers.instructions),
            "prompts": (pinned.prompts, offers.prompts),
            "resources": (pinned.resources, offers.resources),
            "resource templates": (pinned.templates, offers.templates),
        }
        missing = [part for part, (known, now) in parts.items() if known is None and now]
        if missing:
            note(f"{name}: not pinned, so not compared: {', '.join(missing)}; toolweave pin {name} pins them")

    def has(self, fleet: OpenServers, name: str) -> bool:
        """Return whether anything of a server is pinned."""
        return name in self._read(self.path(fleet, name)).servers

    def changes(self, fleet: OpenServers, name: str) -> list[PinChange]:
        """Return how a server differs from its pins."""
        from toolweave.definitions import ServerIdentity, drift

        connection = fleet.hub.clients[name]
        identity = ServerIdentity.of(connection.config, connection.server_info)
        pinned = self._read(self.path(fleet, name)).servers.get(name)
        return drift(name, pinned, identity, connection.snapshot(), self._offers[name])

    def pin(self, fleet: OpenServers, name: str) -> None:
        """Pin a server with all its definitions as they are."""
        from toolweave.definitions import PinnedServer, ServerIdentity

        connection = fleet.hub.clients[name]
        path = self.path(fleet, name)
        identity = ServerIdentity.of(connection.config, connection.server_info)
        server = PinnedServer.of(identity, connection.snapshot(), self._offers[name])
        self._pins[path] = self._read(path).with_server(name, server)

    def allow(self, fleet: OpenServers, server: str, kind: PinKind, name: str) -> str:
        """Pin one definition as it is; return a description of that."""
        from toolweave.definitions import ServerIdentity, allow

        connection = fleet.hub.clients[server]
        path = self.path(fleet, server)
        pins = self._read(path)
        identity = ServerIdentity.of(connection.config, connection.server_info)
        changes = self.changes(fleet, server)
        found = [change for change in changes if (change.part, change.name) == (kind.value, name)]
        if not found and not self._offered(fleet, server, kind, name):
            raise CommandError(f"server {server!r} has no {kind.value} {name!r}", hint=_hint(server, kind))
        for change in found:
            pins = allow(pins, change, identity)
        self._pins[path] = pins
        removed = any(change.kind == "removed" for change in found)
        if kind is PinKind.INSTRUCTIONS:
            subject = "the instructions"
        else:
            subject = f"{kind.value} {name!r}"
        verb = "are" if kind is PinKind.INSTRUCTIONS else "is"
        return f"{server}: {subject} {verb} {'no longer pinned' if removed else 'pinned'} in {path}"

    def _offered(self, fleet: OpenServers, server: str, kind: PinKind, name: str) -> bool:
        """Return whether a server offers a definition of that name now, and its part is pinned at all."""
        offers = self._offers[server]
        match kind:
            case PinKind.TOOL:
                return any(name == spec.original_name for spec in fleet.hub.clients[server].snapshot())
            case PinKind.INSTRUCTIONS:
                return bool(offers.instructions)
            case PinKind.PROMPT:
                listed = offers.prompts
            case PinKind.RESOURCE:
                listed = offers.resources
            case PinKind.TEMPLATE:
                listed = offers.templates
        return listed is not None and name in listed

    def write(self) -> None:
        """Write the files that changed."""
        for path, pins in self._pins.items():
            if pins != self._before[path]:
                pins.write(path)

    def _read(self, path: Path) -> Pins:
        from toolweave.definitions import Pins

        if path not in self._pins:
            self._before[path] = self._pins[path] = Pins.read(path)
        return self._pins[path]


async def _selected(target: Target, names: Iterable[str]) -> LoadedConfig:
    """Return the servers, with the pins off: all their definitions have to be visible."""
    from toolweave.cli._targets import select  # late, as above

    chosen = tuple(dict.fromkeys((*target.server, *names)))
    loaded = await select(replace(target, server=chosen) if not target.ad_hoc else target)
    servers = {name: config.replace(pins="off") for name, config in loaded.servers.items()}
    return loaded.replace(servers=servers)


async def _offers(fleet: OpenServers) -> dict[str, OfferedDefinitions]:
    """Return the definitions beside tools of the servers that list them; the failure of another is shown."""
    return await fleet.ask(lambda connection: connection.offered_definitions())


def _split(named: str, kind: PinKind) -> tuple[str, str]:
    if kind is PinKind.INSTRUCTIONS:
        return named, ""
    server, _, name = named.partition(":")
    if not server or not name:
        raise CommandError(f"{named!r} names no server", hint="write it as SERVER:TOOL, such as github:create_issue")
    return server, name


def _hint(server: str, kind: PinKind) -> str:
    if kind is PinKind.TOOL:
        return f"toolweave tools --server {server}"
    return f"toolweave pin check {server}"


def _show_changes(found: Mapping[str, Sequence[PinChange]]) -> None:
    from toolweave.cli._render.text import safe_text  # late, as above

    for name, changes in found.items():
        answer(f"{safe_text(name)}: {counted(len(changes), 'difference')} from its pins")
        for change in changes:
            answer(f"  {safe_text(change.text)}")
            for line in change.diff():
                answer(f"    {safe_text(line)}")


def _json(found: Mapping[str, Sequence[PinChange]]) -> Json:
    return {name: list(map(_change_json, changes)) for name, changes in found.items()}


def _change_json(change: PinChange) -> Json:
    return {
        "kind": change.kind,
        "part": change.part,
        "name": change.name,
        "tool": change.tool,
        "fields": list(change.fields),
        "text": change.text,
        "before": change.before,
        "after": change.after,
    }


def _failures(fleet: OpenServers, locks: _LockFiles) -> Json:
    errors = {name: str(error) for name, error in fleet.errors.items()}
    return {"errors": errors | dict.fromkeys(locks.unreadable(fleet), "its lists could not be read")}


def _code(fleet: OpenServers, locks: _LockFiles, *, differs: bool) -> ExitCode:
    if differs:
        return ExitCode.TOOL_ERROR
    if locks.unreadable(fleet):
        return ExitCode.UNREACHABLE
    return fleet.exit_code(strict=True)


COMMAND = CommandGroup(
    _HELP,
    {
        "write": Command(write_pins, examples=_EXAMPLES["write"]),
        "check": Command(check, examples=_EXAMPLES["check"]),
        "allow": Command(allow, examples=_EXAMPLES["allow"]),
    },
    default="write",
)
