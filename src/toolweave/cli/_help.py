"""The help of the whole command, of each command and of each group, for the width of the terminal. Prints nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the help of the whole command needs none of them
    from toolweave.cli._command import Command, CommandParameter, Option, Positional

_MAX_WIDTH = 110
_MIN_WIDTH = 50
_INDENT = 2
_MAX_NAME = 30
"""The text of a longer name in a list begins below it."""
HELP_NAMES = ("-h", "--help")
_HELP = (", ".join(HELP_NAMES), "Show this message and exit.")


def command_help(command: Command, path: str) -> str:
    """Return the help of a command; `path` is how it is called, such as `toolweave runs list`."""
    usage = [path, "[OPTIONS]"]
    arguments = list[tuple[str, str]]()
    for one, declared in command.positionals:
        usage.append((declared.metavar if one.required else f"[{declared.metavar}]") + "..." * one.many)
        arguments.append((declared.metavar, _text(one, declared)))
    if command.remainder is not None:
        usage.append(f"[-- {command.remainder.metavar}]")
    lists = {"Arguments": arguments, "Options": [*option_rows(command), _HELP]}
    examples = ["", "  Examples:", *(f"    {line}" for line in command.examples)]
    return "\n".join([*_page(" ".join(usage), command.help, lists), *examples])


def option_rows(command: Command) -> list[tuple[str, str]]:
    """Return the options of a command, each with its text."""
    return [(option_form(one, option), _text(one, option)) for one, option in command.options if not option.hidden]


def group_help(path: str, text: str, commands: Mapping[str, str], options: Sequence[tuple[str, str]] = ()) -> str:
    """Return the help of a group, with the first help line of each of its commands."""
    lists = {"Options": [*options, _HELP], "Commands": list(commands.items())}
    return "\n".join(_page(f"{path} [OPTIONS] COMMAND [ARGS]...", text, lists))


def _page(usage: str, text: str, lists: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[str]:
    import textwrap  # its patterns are dear, and a command that runs shows no help

    width = _width()
    yield from textwrap.wrap(f"Usage: {usage}", width, subsequent_indent=" " * len("Usage: "), break_on_hyphens=False)
    for paragraph in text.strip().split("\n\n"):
        yield ""
        yield from _filled(paragraph, width, _INDENT)
    for title, rows in lists.items():
        if rows:
            yield from ("", f"{title}:")
            yield from _list(rows, width)


def _list(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield names with their texts beside them, all beginning in one column."""
    rows = list(rows)
    column = min(max(len(name) for name, _ in rows), _MAX_NAME) + 2 * _INDENT
    for name, text in rows:
        first, *more = _filled(text, width, column) or [""]
        begun = f"{' ' * _INDENT}{name}"
        if len(begun) + _INDENT > column and text:
            yield begun
            yield first
        else:
            yield (begun.ljust(column) + first[column:]).rstrip()
        yield from more


def _filled(text: str, width: int, indent: int) -> list[str]:
    import textwrap  # as in _page

    margin = " " * indent
    return textwrap.wrap(
        text, width, initial_indent=margin, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


def option_form(one: CommandParameter, option: Option) -> str:
    """Return how an option is typed, its short name first."""
    names = ", ".join(sorted(option.names, key=len))
    if one.is_flag:
        return names
    if option.metavar:
        return f"{names} {option.metavar}"
    if one.choices:
        return f"{names} [{'|'.join(one.choices)}]"
    return f"{names} NUMBER"


def _text(one: CommandParameter, declared: Option | Positional) -> str:
    """Return the help of an option or an argument: its text, its default, its bound and its relations to others."""
    from toolweave.cli._command import Option  # late: the help of the whole command does not need it

    facts: list[str] = []
    has_value = not one.is_flag and not one.required
    if has_value and one.default:
        facts.append(f"default: {one.default}")
    if isinstance(declared, Option):
        if declared.minimum is not None:
            facts.append(f"at least {declared.minimum:g}")
        facts += (f"with {needed}" for needed in declared.needs)
        facts += (f"not with {other}" for other in declared.excludes)
    if facts:
        return f"{declared.help}  [{'; '.join(facts)}]"
    return declared.help


def _width() -> int:
    """Return the width of the terminal, within bounds; `shutil` has it too, but takes long to import."""
    given = os.environ.get("COLUMNS", "")
    try:
        if given.isdecimal():
            columns = int(given)
        else:
            columns = os.get_terminal_size().columns
    except OSError:
        columns = 80
    return max(min(columns, _MAX_WIDTH) - _INDENT, _MIN_WIDTH)
