"""`--install` of the commands that serve: the entry in a client's file, or only shown, and the messages about it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from toolweave._files import exists
from toolweave._json_types import Json, JsonObject, array_or_empty, as_array, as_object, object_or_empty
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._install.clients import InstallClient

if TYPE_CHECKING:
    from toolweave.config import ServerConfig
    from toolweave.install import ClientFormat, ServerLaunch

_COMMAND = ("-P", "-m", "toolweave")
_SERVING = ("serve", "gateway")
"""The commands that an entry of ours starts."""


def own_launch(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> ServerLaunch:
    """Return how a client starts `toolweave ARGUMENTS`: by this Python, by its full path.

    Clients start their servers with few variables, so `PATH` is not used; and in any directory, such as an untrusted
    project, so Python must not look for modules there (`-P`).
    """
    from toolweave.install import ServerLaunch  # imports are late: --help imports the commands

    args = tuple((word,) for word in (*_COMMAND, *arguments))
    if environment is None:
        return ServerLaunch(command=sys.executable, args=args)
    env = {name: (value,) for name, value in environment.items()}
    return ServerLaunch(command=sys.executable, args=args, env=env)


def install_command(
    client: InstallClient,
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    servers: Iterable[ServerConfig] = (),
    only_show: bool,
    force: bool,
    as_json: bool,
) -> ExitCode:
    """Let a client start `toolweave ARGUMENTS` under a name.

    Idempotent; an entry of an earlier `--install` of the same file is updated, and members that a person added to it
    stay.

    Args:
        client: The client.
        name: The server's name in its file.
        arguments: The words after `toolweave`; every path is absolute, as a client may start it in any directory.
        environment: Variables of the entry.
        servers: The servers that it starts. If their programs need this PATH, it is written into the entry.
        only_show: Whether to print the entry and write nothing.
        force: Whether to replace an entry of the name that starts another server.
        as_json: Whether to print JSON.

    Raises:
        CommandError: The file is broken or cannot be written, or another server has the name; nothing was changed.
    """
    from toolweave.cli._install.config_file import format_named  # late, as above
    from toolweave.cli._screen import note
    from toolweave.install._programs import own_path, programs_of

    form = format_named(client)
    programs = programs_of(servers)
    remarks = list(filter(None, (program.remark(client) for program in programs)))
    if any(program.needs_path for program in programs):
        given: Mapping[str, str] = {} if environment is None else environment
        environment = {**own_path(), **given}
        remarks.append("so the entry has this PATH; install it again when your PATH changes")
    entry = form.entry(own_launch(arguments, environment), {}, server=name)
    for remark in remarks:
        note(f"warning: {remark}")
    if only_show:
        return _show(form, name, entry, as_json=as_json)
    return _write(form, client, name, entry, remarks, force=force, as_json=as_json)


def _write(
    form: ClientFormat,
    client: InstallClient,
    name: str,
    entry: JsonObject,
    remarks: Sequence[str],
    *,
    force: bool,
    as_json: bool,
) -> ExitCode:
    """Write the entry into the client's file, and print the changes."""
    from toolweave.cli._install.config_file import edited, open_config  # late, as above
    from toolweave.cli._screen import answer_json, note

    config = open_config(form, None, name)
    words = _words_of(config.there)
    if config.there is not None and not force:
        _check_same(words, _words_of(entry), name, config.path)
    # members of another server's entry do not stay
    own = object_or_empty(None if words is None else config.there)
    config = edited(config, name, _merged(own, entry, form))
    backup = config.write() if config.changed else None
    if as_json:
        copy = None if backup is None else str(backup)
        written: Json = {
            "path": str(config.path),
            "name": name,
            "entry": entry,
            "changed": config.changed,
            "backup": copy,
        }
        if remarks:
            written["warnings"] = remarks
        answer_json(written)
    elif config.changed:
        kept = "" if backup is None else f"; as it was before: {backup.name}"
        note(f"{name!r} is in {config.path}{kept}")
        note(f"restart {client} to see it")
    else:
        note(f"{name!r} was in {config.path} already")
        note("nothing was changed")
    return ExitCode.OK


def _show(form: ClientFormat, name: str, entry: JsonObject, *, as_json: bool) -> ExitCode:
    """Print the entry as it is put into the client's file by hand, which is not read."""
    from toolweave.cli._install.config_file import file_of  # late, as above
    from toolweave.cli._install.toml_text import table_lines
    from toolweave.cli._screen import answer, answer_json, note

    path = file_of(form).resolve()
    keys = (*form.section, name)
    if path.suffix == ".toml" and not as_json:
        answer("\n".join(table_lines(keys, entry)))
    else:
        whole: JsonObject = entry
        for key in reversed(keys):
            whole = {key: whole}
        answer_json(whole)
    note(f"for {path}")
    return ExitCode.OK


def _words_of(entry: object) -> list[str] | None:
    """Return the words after `toolweave` in an entry of ours, None for any other entry."""
    members = object_or_empty(entry)
    command = as_array(members.get("command"))
    if command is not None:  # the program and its arguments are one list
        words = command[1:]
    else:
        words = array_or_empty(members.get("args"))
    start = len(_COMMAND)
    if tuple(words[:start]) != _COMMAND or not set(words[start : start + 1]) & set(_SERVING):
        return None
    return list(map(str, words[start:]))


def _check_same(there: Sequence[str] | None, new: Sequence[str] | None, name: str, path: Path) -> None:
    """Check that the entry of a name serves something that the new one also serves, or that is gone.

    Raises:
        CommandError: It starts another server.
    """
    hint = "--name NAME keeps both, --force replaces that one"
    if there is None:
        raise CommandError(f"{path}: there is another server {name!r}", hint=hint)
    before = _served_by(there)
    now = set[str]() if new is None else _served_by(new)
    is_other = before.isdisjoint(now) and not all(map(_is_gone, before))
    if before and is_other:
        served = ", ".join(sorted(before))
        raise CommandError(f"{path}: there is another server {name!r}, of {served}", hint=hint)


def _served_by(words: Sequence[str]) -> set[str]:
    """Return the files, folders, modules and URLs that `serve` or `gateway` serves by these words."""
    named = {after for word, after in pairwise(words) if word in ("--config", "--openapi")}
    target = "".join(words[1:2]) if words[:1] == ["serve"] else ""
    if target and not target.startswith("-"):
        file, _, path = target.rpartition(":")
        is_object = file != "" and all(map(str.isidentifier, path.split(".")))
        named.add(file if is_object else target)
    return named


def _is_gone(served: str) -> bool:
    """Return whether it is a file or a folder that is no longer there, such as that of a project that was moved."""
    path = Path(served)
    return path.is_absolute() and not exists(path)


def _merged(there: JsonObject, entry: JsonObject, form: ClientFormat) -> Json:
    merged = {**there, **entry}
    env = as_object(there.get(form.env))
    if env is not None:
        merged[form.env] = {**env, **entry.get(form.env, {})}
    return merged
