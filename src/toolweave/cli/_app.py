"""The command as a whole: its own options, the dispatch to a command, and the handling of errors.

`--version`, `--help` and shell completion import little else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from toolweave.cli._commands import COMMANDS, OPTIONS, load_command
from toolweave.cli._streams import write

if TYPE_CHECKING:
    from toolweave.cli._command import Command, CommandGroup

_HELP = """Use the tools of any MCP server, from a terminal, and serve your own.

Servers come from mcp.json, .mcp.json, [tool.toolweave] in pyproject.toml and your editors' files in this
project, such as .vscode/mcp.json and .cursor/mcp.json; if it has none, from your editors' own files. Or
name files with --config, or one server with --url URL or after --. Servers of a project's files start after you
confirm them, once for each version of a file. --trust skips the question.

Exit codes: 0 ok; 1 the tool answered with an error or its arguments do not fit; 2 wrong usage or config, or
no such tool or server; 3 no server could be reached or a deadline passed; 4 a config file of this project is
not trusted; 130 interrupted.
"""
_WRONG_USAGE = 2


def run_app(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; the words after the first `--` are a stdio server's command."""
    try:
        return _answer(argv)
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        return 0
    except Exception as error:  # boundary: expected errors end in one line and their code
        return _complained(error, argv)


def _answer(argv: Sequence[str]) -> int:
    shell = os.environ.get("_TOOLWEAVE_COMPLETE")
    if shell:
        from toolweave.cli._completion import complete  # each import is late: most command lines need one of them

        return complete(shell)
    first, *words = argv or [""]
    if first in COMMANDS:
        ours = [name for name in os.environ if name.upper().startswith("TOOLWEAVE_")]
        if ours:
            from toolweave.cli._variables import misspelt_variables  # late, as above

            for warning in misspelt_variables(ours):
                from toolweave.cli._screen import note

                note(warning)
        return _run(load_command(first), f"toolweave {first}", words)
    if first in ("-V", "--version"):
        from toolweave.version import VERSION

        return _print(f"toolweave {VERSION}")
    if first in ("--install-completion", "--show-completion"):
        from toolweave.cli._completion_scripts import install, script

        return _print(install() if first == "--install-completion" else script())
    from toolweave.cli._help import HELP_NAMES, group_help

    if first and first not in HELP_NAMES:
        raise _unknown(first, words, COMMANDS, "toolweave")
    return _print(group_help("toolweave", _HELP, COMMANDS, OPTIONS), code=0 if first else _WRONG_USAGE)


def _run(command: Command | CommandGroup, path: str, words: Sequence[str]) -> int:
    from toolweave.cli._command import CommandGroup  # late, as above
    from toolweave.cli._exit_codes import CommandError
    from toolweave.cli._help import HELP_NAMES, command_help
    from toolweave.cli._parse import parse

    group: CommandGroup | None = None
    while isinstance(command, CommandGroup):
        name, *rest = words or [""]
        is_named = name in command.commands or name in HELP_NAMES
        if command.default is not None and not is_named:
            name = command.default
            rest = list(words)
            group = command
        words = rest
        if not name or name in HELP_NAMES:
            return _print(_help_of_group(command, path), code=0 if name else _WRONG_USAGE)
        if name not in command.commands:
            raise _unknown(name, words, command.commands, path)
        command = command.commands[name]
        path = f"{path} {name}"
    try:
        values = parse(command, words)
    except CommandError as error:
        if group is not None:
            from toolweave.cli._slips import default_hint  # late, as above

            error.hint = default_hint(group, words, path) or error.hint
        if not error.hint:
            error.hint = f"{path} --help shows its options"
        raise
    if values is None:
        return _print(command_help(command, path))
    return int(command.run(values))


def _help_of_group(group: CommandGroup, path: str) -> str:
    """Return the help of a group, with the options of the command that it runs when none is named."""
    from toolweave.cli._help import group_help, option_rows  # late, as above

    if group.default is None:
        return group_help(path, group.help, group.summaries)
    return group_help(path, group.help, group.summaries, option_rows(group.commands[group.default]))


def _unknown(word: str, after: Sequence[str], known: Iterable[str], path: str) -> Exception:
    from toolweave.cli._exit_codes import CommandError  # late, as above
    from toolweave.cli._slips import command_hint, shown

    kind = "option" if word.startswith("-") else "command"
    return CommandError(f"unknown {kind} {shown([word])}", hint=command_hint(word, after, known, path))


def _print(text: str, *, code: int = 0) -> int:
    """Write text to standard output, or to standard error for a wrong command line; return the exit code."""
    write(sys.stderr if code else sys.stdout, f"{text}\n")
    return code


def _complained(error: Exception, words: Sequence[str]) -> int:
    """Report an error on standard error and, with `--json`, as a document on standard output.

    With `--http` standard output has one document, the address of a server that accepts requests. A program that waits
    for it would take an error for it.
    """
    from toolweave.cli._exit_codes import error_json, exit_code_of, is_expected  # late, as above
    from toolweave.cli._next_steps import next_step
    from toolweave.cli._screen import answer_json, complain

    if not is_expected(error):
        raise error
    complain(error)
    code = exit_code_of(error)
    own = words[: words.index("--")] if "--" in words else words
    if "--json" in own and "--http" not in own:
        answer_json({"error": error_json(error, code, next_step(error))})
    return int(code)
