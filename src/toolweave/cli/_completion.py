"""Shell completion: commands, options and their values, servers of the config, tools as last listed.

Starts no server and never fails: a shell that waits or prints an error is worse than no completion.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from toolweave._json_types import array_or_empty, as_object, object_or_empty
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
_MAX_NAMES = 5_000
_MAX_ARGUMENTS = 100
_LINES: Mapping[str, Callable[[str, str], str]] = {
    "bash": lambda word, _: word,
    "zsh": lambda word, text: word.replace(":", "\\:") + ":" + (text or word),
    "fish": lambda word, text: f"{word}\t{text}",
    "powershell": lambda word, text: f"{word}:::{text or word}",
}
"""Format of a completion with its help text, by shell."""

Offer = tuple[str, str]
"""A completion and its help text."""


def complete(instruction: str) -> int:
    """Print the completions for an instruction such as `complete_bash`; the exit code is 0 in any case.

    `COMP_WORDS` holds the command line as it was typed, `COMP_CWORD` the number of the word to complete; without it,
    that is the last word of the line.
    """
    shell = instruction.partition("_")[2]
    line = _LINES.get(shell)
    if line is None:
        return 0
    try:
        words, incomplete = _typed()
        start = "" if shell == "bash" else _option_before_value(incomplete)
        found = [line(start + word, text) for word, text in _offers(words, incomplete)]
    except Exception:  # boundary: completion stays silent
        return 0
    if found:
        write(sys.stdout, "\n".join(found) + "\n")
    return 0


def _typed() -> tuple[list[str], str]:
    """Return the words before the incomplete one, without the command's own name, and the incomplete one."""
    text = os.environ.get("COMP_WORDS", "")
    words = _words(text)
    number = os.environ.get("COMP_CWORD", "")
    # Not every shell gives the number, and the words before the cursor are then the whole text.
    if number.isdecimal():
        at = int(number)
    elif text[-1:].isspace():
        at = len(words)  # a new word begins
    else:
        at = len(words) - 1
    incomplete = "".join(words[at : at + 1])
    # bash takes `--name=value` apart at the sign
    if incomplete == "=":
        incomplete = ""
    return [word for word in words[1:at] if word != "="], incomplete


def _option_before_value(incomplete: str) -> str:
    """Return `--name=` of `--name=value`, whose value only bash completes as a separate word."""
    option, equals, _ = incomplete.partition("=")
    if option.startswith("-"):
        return option + equals if equals else ""
    return ""


def _words(text: str) -> list[str]:
    import shlex  # only a shell's line needs it

    split = shlex.shlex(text, posix=True)
    split.whitespace_split = True
    split.commenters = ""
    words: list[str] = []
    try:
        for word in split:
            words.append(word)  # noqa: PERF402 - words before an open quote stay
    except ValueError:  # a quote that is still open
        words.append(split.token)
    return words


def _offers(words: Sequence[str], incomplete: str) -> Iterator[Offer]:
    """Yield the completions of the incomplete word."""
    if not words:
        offered = _OWN_OPTIONS if incomplete.startswith("-") else COMMANDS.items()
        yield from _beginning(offered, incomplete)
        return
    name, *rest = words
    command = load_command(name) if name in COMMANDS else None
    if isinstance(command, CommandGroup):
        if not rest:
            yield from _beginning(command.summaries.items(), incomplete)
        command = _command_of(command, rest)
    if command is not None and "--" not in rest:  # behind it, the words are another command
        yield from _offers_of(command, rest, incomplete)


def _command_of(group: CommandGroup, words: list[str]) -> Command | None:
    """Return the command that these words name, whose name is taken off them, or the default one."""
    named = group.commands.get("".join(words[:1]))
    if named is not None:
        del words[0]
        return named
    if group.default is not None:
        return group.commands[group.default]
    return None


def _offers_of(command: Command, words: list[str], incomplete: str) -> Iterator[Offer]:
    """Yield the completions of the incomplete word, after these words of the command."""
    if incomplete.startswith("-"):
        option, equals, value = incomplete.partition("=")
        if not equals:
            yield from _beginning(_fitting_options(command, words), incomplete)
            return
        # `--option=value` is completed like `--option value`.
        words = [*words, option]
        incomplete = value
    named = _options_by_name(command)
    last = named.get(words[-1]) if words else None
    # The word before wants a value, so no other option and no positional can be here.
    if last is not None and not last.is_flag:
        yield from _values(last, incomplete)
        return
    before = [word for name, word in tokens(words, named) if not name]
    for position, (parameter, _) in enumerate(command.positionals):
        if parameter.many or position == len(before):
            yield from _values(parameter, incomplete, before)
            return


def _options_by_name(command: Command) -> dict[str, CommandParameter]:
    named: dict[str, CommandParameter] = {}
    for parameter, option in command.options:
        if not option.hidden:
            named.update(dict.fromkeys(option.names, parameter))
    return named


def _fitting_options(command: Command, words: Iterable[str]) -> Iterator[Offer]:
    """Yield the options that do not contradict one that was typed, each with its help."""
    words = {word.partition("=")[0] for word in words}
    typed: set[str] = set()
    for _, option in command.options:
        # A short name that was typed also excludes the long one.
        if not words.isdisjoint(option.names):
            typed.update(option.names)
    for _, option in command.options:
        if not option.hidden and typed.isdisjoint(option.excludes):
            for name in option.names:
                yield name, option.help
    yield _HELP_OPTION


def _values(parameter: CommandParameter, incomplete: str, before: Sequence[str] = ()) -> Iterator[Offer]:
    declared = parameter.declared
    offered = parameter.choices
    if isinstance(declared, Positional) and declared.complete_after is not None:
        offered = declared.complete_after(before, incomplete)
    if isinstance(declared, Option | Positional) and declared.complete is not None:
        offered = declared.complete(incomplete)
    for value in starting_with(incomplete, offered):
        yield value, ""


def _beginning(offered: Iterable[Offer], incomplete: str) -> Iterator[Offer]:
    return ((word, text) for word, text in offered if word.startswith(incomplete))


_HELP_OPTION: Offer = (HELP_NAMES[-1], "Show this message and exit.")
_OWN_OPTIONS: Sequence[Offer] = (*((names.rpartition(" ")[2], text) for names, text in OPTIONS), _HELP_OPTION)


def starting_with(incomplete: str, words: Iterable[str]) -> list[str]:
    """Return the words that start with `incomplete`, in their order."""
    return [word for word in words if word.startswith(incomplete)]


def server_names(incomplete: str) -> list[str]:
    """Return the names of configured servers that start with `incomplete`."""
    try:
        from toolweave.config import default_config  # reads files: only when a shell asks

        loaded = default_config()
    except Exception:  # boundary: completion stays silent
        return []
    return list(filter(_PLAIN.fullmatch, starting_with(incomplete, [*loaded.servers, *loaded.errors])))


def tool_names(incomplete: str) -> list[str]:
    """Return the remembered tool names that start with `incomplete`."""
    return starting_with(incomplete, chain.from_iterable(_remembered().values()))


def argument_names(before: Sequence[str], incomplete: str) -> list[str]:
    """Return the remembered arguments of a tool that start with `incomplete` and are not given yet, each with `=`.

    Args:
        before: The words before: the tool, by any of its names, and the arguments that are given.
        incomplete: The beginning of the name.
    """
    if not before:
        return []
    tool, *given = before
    known = _arguments_of_tool(tool)
    if given and given[-1] in known:  # bash takes `name=value` apart: this is a value
        return []
    named = {re.split(r"[=:]", word, maxsplit=1)[0] for word in given}
    return [f"{name}=" for name in starting_with(incomplete, known) if name not in named]


def _arguments_of_tool(tool: str) -> Sequence[str]:
    """Return the remembered arguments of a tool by any of its names; of several tools of one name the first counts."""
    for server, tools in _remembered().items():
        for name, arguments in tools.items():
            if arguments and tool in (name, *_other_names(server, name)):
                return arguments
    return ()


def _other_names(server: str, name: str) -> tuple[str, ...]:
    """Return the names of a tool beside the one that it is listed by: its own, `server:tool` and `server/tool`."""
    own = name.removeprefix(f"{server}_")
    return own, f"{server}:{own}", f"{server}/{own}"


def remember_tools(tools: Mapping[str, Sequence[ToolSpec]]) -> None:
    """Keep the names of these servers' tools and arguments for completion, in the user's cache folder."""
    import json  # as late as the cache is written
    import tempfile

    kept: dict[str, dict[str, list[str]]] = {}
    for server, specs in tools.items():
        # Checked when it is written and when it is read: names are a server's, and a file may be changed by others.
        kept[server] = _plain({spec.name: _arguments_of(spec) for spec in specs[:_MAX_NAMES]})
    # Replaced as a whole, so that a shell that completes meanwhile reads the old names or the new ones. Of two commands
    # that end at once one loses its names until it runs again.
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

    from toolweave.config.trust import write_privately

    # The newest first, without repeats: the oldest are dropped when there are too many.
    known = dict.fromkeys([*filter(_PUBLISHED.fullmatch, names), *published_names("")])
    path = _path("published.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_privately(path, json.dumps(list(known)[:_MAX_NAMES]).encode())
    except OSError:
        return  # no cache, no completion


def published_names(incomplete: str) -> list[str]:
    """Return the remembered names of the registry that start with `incomplete`."""
    return starting_with(incomplete, _plain_names(_read_cache("published.json"), _PUBLISHED))


def _remembered() -> dict[str, dict[str, list[str]]]:
    """Return the arguments of the remembered tools, by server and tool."""
    servers = object_or_empty(_read_cache("completion.json"))
    return {server: _plain(tools) for server, tools in servers.items()}


def _read_cache(name: str) -> object:
    """Return the JSON value of a file in the user's cache folder; None if the file is missing or damaged."""
    import json  # as late as the cache is read

    try:
        return json.loads(_path(name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _plain(tools: object) -> dict[str, list[str]]:
    """Return the tools and arguments with names that a shell inserts as they are.

    A file of an earlier version holds a list of tools, without arguments.
    """
    entries = as_object(tools)
    if entries is None:
        return {name: [] for name in _plain_names(tools)}
    return {name: _plain_names(arguments) for name, arguments in entries.items() if _PLAIN.fullmatch(name)}


def _plain_names(names: object, pattern: re.Pattern[str] = _PLAIN) -> list[str]:
    return [name for name in array_or_empty(names) if isinstance(name, str) and pattern.fullmatch(name)]


def _arguments_of(spec: ToolSpec) -> list[str]:
    return list(object_or_empty(spec.input_schema.get("properties")))[:_MAX_ARGUMENTS]


def _path(name: str = "completion.json") -> Path:
    from platformdirs import user_cache_path  # only when a shell asks or tools were listed

    return user_cache_path("toolweave", appauthor=False) / name
