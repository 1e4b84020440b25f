"""`--install` of the commands that serve: the entry in a client's file, or only shown, and the messages about it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._install.clients import InstallClient
from toolweave.protocol.json_types import as_object

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

    return ServerLaunch(
        command=sys.executable,
        args=tuple((word,) for word in (*_COMMAND, *arguments)),
        env={name: (value,) for name, value in (environment or {}).items()},
    )


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
    remarks = [remark for program in programs if (remark := program.remark(client))]
    if any(program.needs_path for program in programs):
        environment = {**own_path(), **(environment or {})}
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
    entry: Mapping[str, Any],
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
    own: Mapping[str, Any] = {} if words is None else cast("dict[str, Any]", config.there)
    config = edited(config, name, _merged(own, entry, form))
    changed, backup = config.changed, config.write() if config.changed else None
    if as_json:
        copy = str(backup) if backup else None
        written = {"path": str(config.path), "name": name, "entry": entry, "changed": changed, "backup": copy}
        answer_json({**written, "warnings": remarks} if remarks else written)
        return ExitCode.OK
    kept = f"; as it was before: {backup.name}" if backup else ""
    note(f"{name!r} is in {config.path}{kept}" if changed else f"{name!r} was in {config.path} already")
    note(f"restart {client} to see it" if changed else "nothing was changed")
    return ExitCode.OK


def _show(form: ClientFormat, name: str, entry: Mapping[str, Any], *, as_json: bool) -> ExitCode:
    """Print the entry as it is put into the client's file by hand, which is not read."""
    from toolweave.cli._install.config_file import file_of  # late, as above
    from toolweave.cli._install.toml_text import table_lines
    from toolweave.cli._screen import answer, answer_json, note

    path = file_of(form).resolve()
    keys = (*form.section, name)
    if path.suffix == ".toml" and not as_json:
        answer("\n".join(table_lines(keys, entry)))
    else:
        whole: Mapping[str, Any] = entry
        for key in reversed(keys):
            whole = {key: whole}
        answer_json(whole)
    note(f"for {path}")
    return ExitCode.OK


def _words_of(entry: Any) -> list[str] | None:
    """Return the words after `toolweave` in an entry of ours, None for any other entry."""
    members = as_object(entry) or {}
    command = members.get("command")
    args = members.get("args")
    words: list[Any] = []
    if isinstance(command, list):  # the program and its arguments are one list
        words = cast("list[Any]", command)[1:]
    elif isinstance(args, list):
        words = cast("list[Any]", args)
    if any(words[: len(_COMMAND) + 1] == [*_COMMAND, serving] for serving in _SERVING):
        return [str(word) for word in words[len(_COMMAND) :]]
    return None


def _check_same(there: Sequence[str] | None, new: Sequence[str] | None, name: str, path: Path) -> None:
    """Check that the entry of a name serves something that the new one serves too, or that is gone.

    Raises:
        CommandError: It starts another server.
    """
    hint = "--name NAME keeps both, --force replaces that one"
    if there is None:
        raise CommandError(f"{path}: there is another server {name!r}", hint=hint)
    before = _served_by(there)
    if before and before.isdisjoint(_served_by(new or ())) and not all(map(_is_gone, before)):
        served = ", ".join(sorted(before))
        raise CommandError(f"{path}: there is another server {name!r}, of {served}", hint=hint)


def _served_by(words: Sequence[str]) -> set[str]:
    """Return the files, folders, modules and URLs that `serve` or `gateway` serves by these words."""
    named = {after for word, after in pairwise(words) if word in ("--config", "--openapi")}
    if words[:1] == ["serve"] and len(words) > 1:
        target = words[1]
    else:
        target = ""
    if target and not target.startswith("-"):
        file, colon, path = target.rpartition(":")
        is_object = bool(colon) and all(part.isidentifier() for part in path.split("."))
        named.add(file if is_object else target)
    return named


def _is_gone(served: str) -> bool:
    """Whether it is a file or a folder that is no longer there, such as that of a project that was moved."""
    path = Path(served)
    return path.is_absolute() and not path.exists()


def _merged(there: Mapping[str, Any], entry: Mapping[str, Any], form: ClientFormat) -> dict[str, Any]:
    merged = {**there, **entry}
    env = there.get(form.env)
    if isinstance(env, dict):
        merged[form.env] = {**cast("dict[str, Any]", env), **entry.get(form.env, {})}
    return merged
