"""`toolweave gateway check`: each upstream started as the gateway will start it, and the tools of each caller."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from toolweave.cli._command import Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, VerboseOption
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note, show

if TYPE_CHECKING:
    from toolweave.gateway import CheckedCaller, CheckedServer, GatewayCheck

_SHOWN_NAMES = 12
_OF_A_USER = ("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


def check(
    file: Annotated[tuple[Path, ...], Positional("FILE", help="The config of the gateway; several are joined.")],
    server: Annotated[
        tuple[str, ...], Option("--server", "-s", metavar="NAME", help="Only this server of it; may be repeated.")
    ] = (),
    path: Annotated[
        str | None,
        Option("--path", metavar="PATH", help="The PATH that the gateway will have, such as that of a service."),
    ] = None,
    user: Annotated[
        str | None, Option("--user", metavar="USER", help="The user that the gateway will run as; needs root.")
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> ExitCode:
    """Start each server of a config as its gateway will, and show the tools of each caller.

    Serves nothing and calls no tool. For each server: whether it starts, its tools, its problems and the next step.
    For each API key, at the gateway and at each virtual server: how many tools it sees, and which are refused.

    An editor or a service has another PATH than your shell: --path and --user check with those. Exit codes: 2
    the config is wrong, 3 a server does not start, 1 a caller gets nothing.
    """
    if path is not None or user is not None:
        _become(path, user)

    async def body() -> ExitCode:
        from toolweave.gateway import check_gateway  # imports are late: --help imports this module

        found = await check_gateway(file, names=server)
        if as_json:
            import msgspec  # late, as above

            answer_json({"ok": found.ok, **msgspec.to_builtins(found)})
        else:
            _show(found, file)
        return _exit_code(found)

    return run(body, verbose=verbose)


def _exit_code(found: GatewayCheck) -> ExitCode:
    if not all(one.ok for one in found.servers):
        return ExitCode.UNREACHABLE
    if found.ok:
        return ExitCode.OK
    return ExitCode.TOOL_ERROR


def _become(path: str | None, user: str | None) -> None:
    """Continue this command with another PATH and as another user.

    Raises:
        CommandError: The user does not exist, or only root may become it.
    """
    environment = dict(os.environ)
    if user is not None:
        environment |= _as_user(user)
    if path is not None:
        environment["PATH"] = path
    arguments = _without_options(sys.argv[1:], ("--path", "--user"))
    # The interpreter is named by its full path, so the new PATH decides about the servers alone.
    words = [sys.executable, "-P", "-m", "toolweave", *arguments]
    try:
        os.execve(sys.executable, words, environment)  # noqa: S606  # no shell is wanted
    except OSError as error:
        hint = "install Toolweave where that user may read it"
        raise CommandError(f"this user cannot run {sys.executable}: {error.strerror or error}", hint=hint) from None


def _as_user(user: str) -> dict[str, str]:
    """Take over the rights of a user, and return the variables that differ for it."""
    if sys.platform == "win32":
        raise CommandError("--user is for POSIX; run the command as that user")
    import pwd  # not on Windows

    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise CommandError(f"--user: user {user!r} does not exist on this machine") from None
    if entry.pw_uid != os.getuid():
        try:
            # In this order: after `setuid`, the groups could no longer be changed.
            os.initgroups(user, entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
        except PermissionError:
            hint = f"sudo -u {user} {Path(sys.argv[0]).name} gateway check ... does the same"
            raise CommandError(f"--user: only root may become {user!r}", hint=hint) from None
    return {**dict.fromkeys(_OF_A_USER[3:], ""), "HOME": entry.pw_dir, "USER": user, "LOGNAME": user}


def _without_options(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the words of a command line without options that have a value."""
    left: list[str] = []
    skipped = False
    for word in words:
        if skipped:
            skipped = False
        elif word in names:
            skipped = True
        elif word.partition("=")[0] not in names:
            left.append(word)
    return left


def _show(found: GatewayCheck, files: Sequence[Path]) -> None:
    from toolweave.cli._render.views import first_line, table  # late, as above

    rows = [
        (one.name, _state(one), _tools(one), first_line(one.error or "; ".join(one.problems))) for one in found.servers
    ]
    show(table(["server", "state", "tools", "problem"], rows, right=("tools",)))
    answer("")
    callers = [(one.caller or "anyone", one.path, str(len(one.tools)), _refused(one)) for one in found.callers]
    show(table(["caller", "path", "tools", "refused"], callers, right=("tools",)))
    for one in found.servers:
        if one.next_step is not None:
            note(f"next: server {one.name!r}: {one.next_step}")
    for text in found.warnings:
        note(f"warning: {text}")
    names = " ".join(f"--config {file}" for file in files)
    if found.ok:
        note(f"next: toolweave gateway {names} --http 8000")
    else:
        failed = next((one.name for one in found.servers if not one.ok), None)
        if failed is not None:
            note(f"next: toolweave doctor {names} --server {failed}")


def _state(one: CheckedServer) -> str:
    if one.as_callers:
        return "as each caller"
    if one.ok:
        return "ready"
    return "failed"


def _tools(one: CheckedServer) -> str:
    if one.ok and not one.as_callers:
        return str(one.tools)
    return ""


def _refused(one: CheckedCaller) -> str:
    if one.error is not None:
        return one.error
    shown = ", ".join(one.refused[:_SHOWN_NAMES])
    more = len(one.refused) - _SHOWN_NAMES
    if more > 0:
        return f"{shown} and {more} more"
    return shown
