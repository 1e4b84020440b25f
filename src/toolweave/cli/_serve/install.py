"""`--install` of the commands that serve: the entry in an editor's file, or only shown, and the messages about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolweave.cli._exit_codes import ExitCode
from toolweave.cli._serve.editor_config import EditorSource


def install_command(
    editor: EditorSource,
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    only_show: bool,
    as_json: bool,
) -> ExitCode:
    """Let an editor start `toolweave ARGUMENTS` under a name.

    Args:
        editor: The editor.
        name: The server's name in its file.
        arguments: The words after `toolweave`; every path is absolute, as an editor may start it in any directory.
        environment: Variables of the entry.
        only_show: Whether to print the entry and write nothing.
        as_json: Whether to print JSON.

    Raises:
        CommandError: The file cannot be changed; nothing was.
    """
    from toolweave.cli._screen import answer_json, note  # imports are late: --help imports the commands
    from toolweave.cli._serve.editor_config import entry_of, file_of, install, section_of

    entry = entry_of(editor, arguments, environment or {})
    if only_show:
        answer_json({section_of(editor): {name: entry}})
        note(f"for {file_of(editor)}")
        return ExitCode.OK
    done = install(editor, name, entry)
    if as_json:
        backup = str(done.backup) if done.backup else None
        answer_json({"path": str(done.path), "name": name, "entry": entry, "changed": done.changed, "backup": backup})
        return ExitCode.OK
    kept = f"; as it was before: {done.backup.name}" if done.backup else ""
    note(f"{name!r} is in {done.path}{kept}" if done.changed else f"{name!r} was in {done.path} already")
    note("restart the editor to see it" if done.changed else "nothing was changed")
    return ExitCode.OK
