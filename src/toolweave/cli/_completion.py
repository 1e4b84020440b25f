"""Shell completion: commands, options and their values, servers of the config, tools as last listed.

Starts no server and never fails: a shell that waits or prints an error is worse than no completion.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolweave.cli._command import Command, CommandGroup, CommandParameter, Option, Positional
from toolweave.cli._commands import COMMANDS, OPTIONS, load_command
from toolweave.cli._help import HELP_NAMES
from toolweave.cli._parse import tokens
from toolweave.cli._streams import write

if TYPE_CHECKING:
    from toolweave.tools import ToolSpec

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""Names that are completed: a shell inserts them into a command line, so they must be plain words."""
_PUBLISHED = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,127}/[A-Za-z0-9._-]{1,128}")
"""Names of a registry: as plain."""
_MOST = 5_000
_MOST_ARGUMENTS = 100
_LINES: Mapping[str, Callable[[str, str], str]] = {
    "bash": lambda word, _: word,
    "zsh": lambda word, said: word.replace(":", "\\:") + ":" + (said or word),
    "fish": lambda word, said: f"{word}\t{said}",
    "powershell": lambda word, said: f"{word}:::{said or word}",
}
"""Format of a completion with its help text, by shell."""

Offer = tuple[str, str]
"""A completion and its help text."""


def complete(instruction: str) -> int:
    """Print the completions for an instruction such as `complete_bash`; the exit code is 0 in any case.

    `COMP_WORDS` holds the command line as it was typed, `COMP_CWORD` the number of the word to complete; without it,
    that is the last word of the line.
    """
    line = _LINES.get(instruction.partition("_")[2])
    if line is None:
        return 0
    try:
        found = [line(word, said) for word, said in _offers(*_typed())]
    except Exception:  # boundary: completion stays silent
        return 0
    if found:
        write(sys.stdout, "\n".join(found) + "\n")
    return 0


def _typed() -> tuple[list[str], str]:
    """Return the words before the one to complete, without the command's own name, and that one."""
    text = os.environ.get("COMP_WORDS", "")
    words = _words(text)
    number = os.environ.get("COMP_CWORD", "")
    if number.isdecimal():
        at = int(number)
    else:
        at = len(words) - (not text[-1:].isspace())
    incomplete = words[at] if at < len(words) else ""
    # bash takes `--name=value` apart at the sign
    return [word for word in words[1:at] if word != "="], "" if incomplete == "=" else incomplete


def _words(text: str) -> list[str]:
    import shlex  # only a shell's line needs it

    split = shlex.shlex(text, posix=True)
    split.whitespace_split = True
    split.commenters = ""
    words: list[str] = []
    try:
        for word in split:
            words.append(word)  # noqa: PERF402 - what was read before an open quote stays
    except ValueError:  # a quote that is still open
        words.append(split.token)
    return words


def _offers(words: Sequence[str], incomplete: str) -> Iterator[Offer]:
    """Yield the completions of the incomplete word."""
    if not words:
        if incomplete.startswith("-"):
            offered = _OWN_OPTIONS
        else:
            offered = COMMANDS.items()
        yield from _beginning(offered, incomplete)
        return
    name, *rest = words
    command = load_command(name) if name in COMMANDS else None
    if isinstance(command, CommandGroup):
        if not rest:
            yield from _beginning(command.summaries.items(), incomplete)
            return
        command = command.commands.get(rest.pop(0))
    if command is not None and "--" not in rest:  # what follows that is another command
        yield from _offers_of(command, rest, incomplete)


def _offers_of(command: Command, words: list[str], incomplete: str) -> Iterator[Offer]:
    """Yield the completions of the incomplete word, after these words of the command."""
    named = {name: one for one, option in command.options if not option.hidden for name in option.names}
    option, equals, value = incomplete.partition("=")
    if incomplete.startswith("-") and not equals:
        typed = _typed_options(command, words)
        fitting = [option for option in _shown(command) if typed.isdisjoint(option.excludes)]
        shown = [(name, option.help) for option in fitting for name in option.names]
        yield from _beginning([*shown, *_HELP_OPTION], incomplete)
        return
    if equals and incomplete.startswith("-"):
        words = [*words, option]
        incomplete = value
    last = named.get(words[-1]) if words else None
    if last is not None and not last.is_flag:
        yield from _values(last, incomplete)
        return
    before = [word for name, word in tokens(words, named) if not name]
    for place, (one, _) in enumerate(command.positionals):
        if one.many or place == len(before):
            yield from _values(one, incomplete, before)
            return


def _typed_options(command: Command, words: Iterable[str]) -> set[str]:
    """Return all names of the options that are among the words."""
    typed = {word.partition("=")[0] for word in words}
    return {name for _, option in command.options if not typed.isdisjoint(option.names) for name in option.names}


def _shown(command: Command) -> Iterator[Option]:
    return (option for _, option in command.options if not option.hidden)


def _values(one: CommandParameter, incomplete: str, before: Sequence[str] = ()) -> Iterator[Offer]:
    offered = one.choices
    if isinstance(one.declared, Positional) and one.declared.complete_after is not None:
        offered = one.declared.complete_after(before, incomplete)
    if isinstance(one.declared, Option | Positional) and one.declared.complete is not None:
        offered = one.declared.complete(incomplete)
    yield from _beginning(((value, "") for value in offered), incomplete)


def _beginning(offered: Iterable[Offer], incomplete: str) -> Iterator[Offer]:
    return ((word, said) for word, said in offered if word.startswith(incomplete))


_HELP_OPTION = ((HELP_NAMES[-1], "Show this message and exit."),)
_OWN_OPTIONS = (*((names.rpartition(" ")[2], said) for names, said in OPTIONS), *_HELP_OPTION)


def server_names(incomplete: str) -> list[str]:
    """Return the names of configured servers that start with `incomplete`."""
    try:
        from toolweave.config import default_config  # reads files: only when a shell asks

        loaded = default_config()
    except Exception:  # boundary: completion stays silent
        return []
    names = [*loaded.servers, *loaded.errors]
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def tool_names(incomplete: str) -> list[str]:
    """Return the remembered tool names that start with `incomplete`."""
    return [name for names in _remembered().values() for name in names if name.startswith(incomplete)]


def argument_names(before: Sequence[str], incomplete: str) -> list[str]:
    """Return the remembered arguments of a tool that start with `incomplete` and are not given yet, each with `=`.

    Args:
        before: The words before: the tool, by any of its names, and the arguments that are given.
        incomplete: The beginning of the name.
    """
    if not before:
        return []
    tool, *given = before
    known: Sequence[str] = ()
    for server, tools in _remembered().items():
        for name, arguments in tools.items():
            if tool in (name, *_other_names(server, name)):
                known = known or arguments
    if given and given[-1] in known:  # bash takes `name=value` apart: this is a value
        return []
    named = {re.split(r"[=:]", word, maxsplit=1)[0] for word in given}
    return [f"{name}=" for name in known if name.startswith(incomplete) and name not in named]


def _other_names(server: str, name: str) -> tuple[str, ...]:
    """Return the names of a tool beside the one that it is listed by: its own, `server:tool` and `server/tool`."""
    own = name.removeprefix(f"{server}_")
    return own, f"{server}:{own}", f"{server}/{own}"


def remember_tools(tools: Mapping[str, Sequence[ToolSpec]]) -> None:
    """Keep the names of these servers' tools and arguments for completion, in the user's cache folder."""
    import json  # as late as the cache is written
    import tempfile

    kept = {server: {spec.name: _arguments_of(spec) for spec in specs[:_MOST]} for server, specs in tools.items()}
    kept = {server: _plain(names) for server, names in kept.items()}
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({**_remembered(), **kept}, file)
        Path(name).replace(path)
    except OSError:
        return  # no cache, no completion


def remember_published(names: Sequence[str]) -> None:
    """Keep names of the registry for completion, the newest first, in the user's cache folder."""
    import json  # as late as the cache is written

    from toolweave.config._trust import write_privately

    known = dict.fromkeys([*(name for name in names if _PUBLISHED.fullmatch(name)), *published_names("")])
    path = _path("published.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_privately(path, json.dumps(list(known)[:_MOST]).encode())
    except OSError:
        return  # no cache, no completion


def published_names(incomplete: str) -> list[str]:
    """Return the remembered names of the registry that start with `incomplete`."""
    import json  # as late as the cache is read

    try:
        value: Any = json.loads(_path("published.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    if isinstance(value, list):
        names = cast("list[Any]", value)
    else:
        names = []
    return [one for one in names if isinstance(one, str) and one.startswith(incomplete) and _PUBLISHED.fullmatch(one)]


def _remembered() -> dict[str, dict[str, list[str]]]:
    """Return the arguments of the remembered tools, by server and tool."""
    import json  # as late as the cache is read

    try:
        value: Any = json.loads(_path().read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    servers: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
    return {server: _plain(tools) for server, tools in servers.items()}


def _plain(tools: Any) -> dict[str, list[str]]:
    """Return the tools and arguments with names that a shell takes as they are.

    A file of an earlier version holds a list of tools, without arguments.
    """
    entries: dict[Any, Any] = {}
    if isinstance(tools, dict):
        entries = cast("dict[Any, Any]", tools)
    elif isinstance(tools, list):
        entries = {one: [] for one in cast("list[Any]", tools) if isinstance(one, str)}
    return {name: _plain_names(arguments) for name, arguments in entries.items() if _PLAIN.fullmatch(name)}


def _plain_names(names: Any) -> list[str]:
    if isinstance(names, list):
        found = cast("list[Any]", names)
    else:
        found = []
    return [name for name in found if isinstance(name, str) and _PLAIN.fullmatch(name)]


def _arguments_of(spec: ToolSpec) -> list[str]:
    properties = spec.input_schema.get("properties")
    if isinstance(properties, Mapping):
        return list(cast("Mapping[str, Any]", properties))[:_MOST_ARGUMENTS]
    return []


def _path(name: str = "completion.json") -> Path:
    from platformdirs import user_cache_path  # only when a shell asks or tools were listed

    return user_cache_path("toolweave", appauthor=False) / name
