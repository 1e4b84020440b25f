"""The commands for a gateway that runs: its servers, its keys, its config and its console, by its admin API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from toolweave._json_types import Json
from toolweave._text import counted
from toolweave.cli._command import Option, Positional, Remainder
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, VerboseOption
from toolweave.cli._render.text import safe_text
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note, show
from toolweave.cli._serve.listen import secret_in

if TYPE_CHECKING:
    from toolweave.gateway import GatewayAdmin, KeyStatus, UpstreamStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTarget:
    """The gateway that a command is for; each attribute is an option."""

    url: Annotated[
        str, Option("--url", metavar="URL", help="The address of the gateway, such as http://127.0.0.1:8000.")
    ] = "http://127.0.0.1:8000"
    admin_token_env: Annotated[
        str | None,
        Option(
            "--admin-token-env",
            metavar="VAR",
            help="The variable with its admin token; not needed for a gateway of this user on this machine.",
        ),
    ] = None
    as_json: JsonOption = False
    verbose: VerboseOption = False


def add(
    target: AdminTarget,
    name: Annotated[str, Positional("NAME", help="The name of the server.")],
    server_url: Annotated[str | None, Option("--server-url", metavar="URL", help="The URL of an HTTP server.")] = None,
    entry: Annotated[
        str | None, Option("--entry", metavar="JSON", help="The entry of the server, as in a config file.")
    ] = None,
    command: Annotated[tuple[str, ...], Remainder("COMMAND ARGS...")] = (),
) -> ExitCode:
    """Add a server to a running gateway. Its tools are available at once.

    It stays until you remove it or the gateway ends. Write a server that should stay into the config.
    """
    config = _entry(server_url, entry, command)

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = await admin.add(name, config)
        if target.as_json:
            answer_json(_json(found))
        else:
            answer(f"server {found.name!r} is {found.state}, with {counted(found.tools, 'tool')}")
            if found.only_here:
                note("warning: it is in one worker alone; the others get it when the store that they share is back")
        return ExitCode.OK

    return _with_admin(target, body)


def _entry(server_url: str | None, entry: str | None, command: tuple[str, ...]) -> Json:
    """Return the entry of a new server."""
    if sum((server_url is not None, entry is not None, bool(command))) != 1:
        raise CommandError("one of --server-url URL, --entry JSON and -- COMMAND ARGS... is expected")
    if server_url is not None:
        return {"url": server_url}
    if entry is None:
        return {"command": command[0], "args": list(command[1:])}
    import json  # late, as above

    try:
        value: Any = json.loads(entry)
    except ValueError as error:
        raise CommandError(f"--entry is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CommandError('--entry must be an object, such as \'{"command": "notes-server"}\'')
    return value  # pyright: ignore[reportUnknownVariableType]  # the gateway reads it


def remove(target: AdminTarget, name: Annotated[str, Positional("NAME", help="The name of the server.")]) -> ExitCode:
    """Remove a server from a running gateway. Its tools are gone at once, and its calls may finish.

    A server of the config file is added again at the next reload, unless you remove it from the file.
    """

    async def body(admin: GatewayAdmin) -> ExitCode:
        await admin.remove(name)
        if target.as_json:
            answer_json({"removed": name})
        else:
            answer(f"server {name!r} was removed")
        return ExitCode.OK

    return _with_admin(target, body)


def list_servers(target: AdminTarget) -> ExitCode:
    """List the servers of a running gateway, with their states."""

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = (await admin.status()).upstreams
        if target.as_json:
            answer_json({"servers": list(map(_json, found))})
        else:
            _show_servers(found)
        return ExitCode.OK

    return _with_admin(target, body)


def status(target: AdminTarget) -> ExitCode:
    """Show whether a gateway is ready, its servers, its virtual servers and the problems of its config.

    Exits with 3 while it is not ready.
    """

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = await admin.status()
        if target.as_json:
            answer_json(_json(found))
        else:
            from toolweave.cli._render.views import heading  # late, as above

            if found.draining:
                state = "draining"
            elif found.ready:
                state = "ready"
            else:
                state = "not ready"
            under_way = f"{counted(found.requests, 'request')} under way"
            show(heading(found.name, state, f"config {found.generation}", under_way))
            _show_servers(found.upstreams)
            _show_next_steps(found.upstreams)
            for one in found.virtual:
                answer(f"{one.path}  {one.tools} tools{f'  {one.title}' if one.title else ''}")
            if found.problem is not None:
                note(f"the config was not changed: {found.problem}")
            for text in found.warnings:
                note(f"warning: {text}")
        if found.ready:
            return ExitCode.OK
        return ExitCode.UNREACHABLE

    return _with_admin(target, body)


def reload(
    target: AdminTarget,
    yes: Annotated[
        bool, Option("--yes", "-y", help="Apply a config without most of the servers, or without the rules, in use.")
    ] = False,
) -> ExitCode:
    """Reload the config of a running gateway. A config with a mistake changes nothing, and the exit code is 2.

    A config that loses more than half of the servers, the section gateway or its rules is also refused, unless you
    give --yes.
    """

    async def body(admin: GatewayAdmin) -> ExitCode:
        change = await admin.reload(confirmed=yes)
        if target.as_json:
            answer_json(_json(change))
        elif change.error is None:
            for what, names in (("added", change.added), ("changed", change.changed), ("removed", change.removed)):
                if names:
                    answer(f"{what}: {', '.join(names)}")
            answer(f"unchanged: {len(change.unchanged)}")
            for text in change.failed.values():
                note(f"failed: {text}")
        if change.error is not None:
            note(f"error: the config was not changed: {change.error}")
            return ExitCode.USAGE
        if change.failed:
            return ExitCode.UNREACHABLE
        return ExitCode.OK

    return _with_admin(target, body)


def keys(target: AdminTarget) -> ExitCode:
    """List the API keys of a running gateway, with the first digits of their SHA-256."""

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = await admin.keys()
        if target.as_json:
            answer_json(_json(found))
            return ExitCode.OK
        from toolweave.cli._render.views import table  # late, as above

        rows = [
            (one.name, one.sha256, " ".join(one.scopes), _expiry(one), "revoked" if one.revoked else "valid")
            for one in found
        ]
        show(table(["client", "sha256", "scopes", "expires", "state"], rows))
        return ExitCode.OK

    return _with_admin(target, body)


def _expiry(key: KeyStatus) -> str:
    if key.expires_at is None:
        return "never"
    from datetime import UTC, datetime  # late, as above

    return datetime.fromtimestamp(key.expires_at, tz=UTC).isoformat()


def revoke(
    target: AdminTarget, name: Annotated[str, Positional("NAME", help="The name of the client that has the key.")]
) -> ExitCode:
    """Revoke the API keys of a client at a running gateway, and at every replica that shares its store.

    The keys stay refused while the config has them. To give the client another key, replace it in the config.
    """

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = await admin.revoke_key(name)
        if target.as_json:
            answer_json(_json(found))
        else:
            answer(f"{counted(found.keys, 'key')} of {found.name!r} revoked")
        if found.problem is not None:
            note(f"warning: the other replicas refuse it once the store is back: {found.problem}")
            return ExitCode.UNREACHABLE
        if not found.lasting:
            note("next: remove the key from the config, because this gateway forgets the revocation when it ends")
        return ExitCode.OK

    return _with_admin(target, body)


def console(target: AdminTarget) -> ExitCode:
    """Make a link that signs in to the console of a running gateway, once and within an hour.

    A person who opens it can call every tool and start programs on that machine.
    """

    async def body(admin: GatewayAdmin) -> ExitCode:
        link = await admin.console_link()
        if target.as_json:
            answer_json({"url": link})
        else:
            answer(link)
        return ExitCode.OK

    return _with_admin(target, body)


def _with_admin(target: AdminTarget, body: Callable[[GatewayAdmin], Awaitable[ExitCode]]) -> ExitCode:
    variable = target.admin_token_env
    if variable is None:
        token = None
    else:
        token = secret_in(variable, "--admin-token-env")

    async def opened() -> ExitCode:
        from toolweave.gateway import GatewayAdmin  # late, as above

        async with GatewayAdmin(target.url, token) as admin:
            return await body(admin)

    return run(opened, verbose=target.verbose)


def _show_servers(servers: tuple[UpstreamStatus, ...]) -> None:
    from toolweave.cli._render.views import table  # late, as above

    rows = [
        (
            one.name,
            one.state if one.pending is None else f"{one.state}, {one.pending}",
            one.protocol or "",
            str(one.tools),
            str(one.restarts),
            "added" if one.added else "",
            _problem_of(one),
        )
        for one in servers
    ]
    columns = ["server", "state", "protocol", "tools", "restarts", "from", "error"]
    show(table(columns, rows, right=("tools", "restarts")))


def _show_next_steps(servers: tuple[UpstreamStatus, ...]) -> None:
    """Show what to do about the servers that failed, on standard error."""
    for one in servers:
        if one.hint is not None:
            note(safe_text(f"hint: server {one.name!r}: {one.hint}"))
        if one.not_applied_hint is not None:
            note(safe_text(f"hint: new settings of server {one.name!r}: {one.not_applied_hint}"))


def _problem_of(one: UpstreamStatus) -> str:
    """Return the first line of an upstream's error."""
    if one.not_applied is not None:
        return f"its new settings fail, the earlier ones are in use: {one.not_applied.partition(chr(10))[0]}"
    return (one.error or "").partition("\n")[0]


def _json(value: Any) -> Any:  # any Struct
    import msgspec  # late, as above

    return msgspec.to_builtins(value)
