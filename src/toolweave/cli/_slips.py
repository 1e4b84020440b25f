"""The likely meaning of words that a command line does not take: hints with the right form. Reads no file.

A person who comes from another tool types that tool's words. The tables have these, each with the form of this command;
the other functions look at the form of a word: a URL, a config file, a program, the name of a server.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from toolweave._text import alternatives
from toolweave.cli._help import HELP_NAMES
from toolweave.protocol import methods

if TYPE_CHECKING:
    from toolweave.cli._command import Command, CommandGroup

_REMAINDER = "--"
_HTTP = ("--http", "--http [HOST:]PORT")
_URL = ("--url", "--url http://HOST:PORT/mcp")
_COMMAND_LINE = (_REMAINDER, "-- COMMAND ARGS...")
_CONFIG = ("--config", "--config FILE")
_TOKEN = (("--bearer-env", "--bearer-env VAR"), ("--token-env", "--token-env VAR"))
_TRANSPORTS = (
    ("--http", "--http [HOST:]PORT for HTTP, and without it stdio"),
    ("--url", "--url URL, or -- COMMAND ARGS..."),
)
_JSON_ARGS = ("--json-args", "--json-args JSON")

_OPTIONS: Mapping[str, Sequence[tuple[str, str]]] = {
    **dict.fromkeys(("--port", "--host", "--bind", "--listen", "--address", "-p"), (_HTTP, _URL)),
    **dict.fromkeys(("--transport", "--stdio", "-t"), _TRANSPORTS),
    **dict.fromkeys(("--endpoint", "--server-url", "--uri", "--sse"), (_URL,)),
    **dict.fromkeys(("--command", "--cmd", "--exec"), (_COMMAND_LINE,)),
    **dict.fromkeys(("--env", "-e"), ((_REMAINDER, "-- env NAME=VALUE COMMAND ARGS..."),)),
    **dict.fromkeys(("--mcp-config", "--config-file", "--configuration", "--file", "-f"), (_CONFIG,)),
    **dict.fromkeys(("--token", "--bearer", "--bearer-token", "--api-key", "--auth", "--auth-token"), _TOKEN),
    **dict.fromkeys(
        ("--args", "--arguments", "--tool-args", "--tool-arg", "--arg", "--input", "--params", "--data", "-d"),
        (_JSON_ARGS,),
    ),
    **dict.fromkeys(("--output", "--format", "--output-format", "-o"), (("--json", "--json"),)),
    **dict.fromkeys(("--debug", "--log-level", "--loglevel", "--trace-log"), (("--verbose", "--verbose"),)),
    "--client": (("--install", "--install CLIENT"),),
    "--name": (("--server", "--server NAME"),),
}
"""Options of uvicorn, FastMCP, Inspector and others, each with the options of this command and their form.

The first that the command has is meant.
"""

_TOP = "toolweave"
_TOOLS = "toolweave tools lists the tools, toolweave config show the servers of the config"
_SERVE = "toolweave serve FILE.py, or toolweave gateway --config FILE"
_ENTRY = "toolweave install NAME writes a published server; toolweave init begins a config, which you edit"
_DOCTOR = "toolweave doctor tries each server, toolweave tools --schema lists its tools with their schemas"
_COMMANDS: Mapping[str, str] = {
    "help": "toolweave --help lists the commands, toolweave COMMAND --help the options of one",
    "version": "toolweave --version",
    "completion": "toolweave --install-completion",
    **dict.fromkeys(("list", "ls", "list-tools", "servers"), _TOOLS),
    **dict.fromkeys(("run", "start", "dev", "up", "server", "proxy"), _SERVE),
    **dict.fromkeys(("inspect", "inspector", "test", "validate", "diagnose", methods.PING), _DOCTOR),
    **dict.fromkeys(("add-json", "mcp", "add-server", "add-from-claude-desktop", "register"), _ENTRY),
    **dict.fromkeys(
        ("remove", "rm", "delete", "uninstall", "remove-server"),
        "delete the entry of the server in its file; toolweave config show names the file",
    ),
    **dict.fromkeys(("call-tool", "exec", "invoke"), "toolweave call NAME key=value"),
    **dict.fromkeys(("read", "read-resource"), "toolweave resources --read URI"),
    **dict.fromkeys(("get-prompt", "prompt"), "toolweave prompts --get NAME key=value"),
    **dict.fromkeys(("ui", "console"), "toolweave gateway console --url URL"),
}
"""Hints for the commands of other tools."""

_SYNONYMS: Mapping[str, Sequence[str]] = {
    "ls": ("list",),
    **dict.fromkeys(("rm", "del", "delete", "remove", "uninstall"), ("remove", "delete", "erase", "logout")),
    **dict.fromkeys(("get", "info", "cat", "view", "print", "describe", "status"), ("show", "status", "list")),
    **dict.fromkeys(("create", "new", "begin"), ("init", "spawn", "add", "write")),
    **dict.fromkeys(("start", "serve", "up"), ("run", "spawn")),
    **dict.fromkeys(("cancel", "kill", "abort", "down"), ("stop",)),
    **dict.fromkeys(("accept", "yes", "confirm"), ("approve", "allow")),
    **dict.fromkeys(("reject", "no", "decline"), ("deny",)),
    **dict.fromkeys(("signin", "sign-in"), ("login",)),
    **dict.fromkeys(("signout", "sign-out", "revoke"), ("logout",)),
    **dict.fromkeys(("verify", "validate", "test"), ("check",)),
    **dict.fromkeys(("refresh", "restart"), ("reload",)),
}
"""Other words for a command of a group."""

_PROGRAMS = ("npx", "uvx", "uv", "python", "python3", "node", "docker", "podman", "bunx", "bun", "deno", "pipx", "env")
_SCRIPTS = (".js", ".mjs", ".cjs", ".ts")
_ARGUMENTS = "ARGUMENTS"
"""The place of the arguments of a tool or a prompt, `key=value` each."""
_PLAIN = r"[A-Za-z0-9][\w-]*"
_QUOTED = ("'{", "'[")
_CURLY_QUOTES = "[\u201c\u201d\u201e]"
_SHELL_QUOTES = (
    "some shells take the double quotes out of '{...}': put the object into a file and write @FILE, or in cmd.exe and "
    r'PowerShell write a backslash before each, "{\"name\": 1}"'
)
_DOUBLE_QUOTES = "names and texts in JSON stand in double quotes"
_NEARLY_JSON = (
    (r"'", _SHELL_QUOTES),
    (r"\s*[{\[]\s*'", _DOUBLE_QUOTES),
    (r"\s*\{\s*[A-Za-z_]", f"{_DOUBLE_QUOTES}; {_SHELL_QUOTES}"),
    (r"\s*(?:True|False|None)\s*$", "JSON has true, false and null"),
    (r"\s*\[?\s*[A-Za-z_]", f"{_DOUBLE_QUOTES}; key=VALUE takes a text as it is"),
)
"""Beginnings of texts that are nearly JSON, each with its hint; the first that fits counts."""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint with those of the known words that look like this one, None when none does."""
    import difflib  # only a slip needs it

    close = difflib.get_close_matches(word, sorted(known), n=2, cutoff=0.75)
    if close:
        return f"did you mean {alternatives(close)}?"
    return None


def command_hint(word: str, after: Sequence[str], known: Iterable[str], path: str) -> str:
    """Return a hint for a word that is neither a command nor an option of the whole command or a group.

    Args:
        word: The word.
        after: The words after it.
        known: The commands that there are.
        path: How the group is called, such as `toolweave runs`.
    """
    for hint in _hints(word, after, tuple(known), path):
        if hint is not None:
            return hint
    return f"{path} --help lists all"


def _hints(word: str, after: Sequence[str], known: Sequence[str], path: str) -> Iterator[str | None]:
    """Yield the hints for a word, the most likely first; the later ones cost more time."""
    if word.startswith("-"):
        yield _before_command(word, after, known, path)
        return
    if path != _TOP:
        yield group_hint(word, known, path)
        return
    yield _COMMANDS.get(word)
    yield _thing(word, after)
    yield did_you_mean(word, known)
    yield _of_group(word, known)


def default_hint(group: CommandGroup, words: Sequence[str], path: str) -> str | None:
    """Return a hint for a word that is nearly a command of a group, whose default command does not take it."""
    word = "".join(words[:1])
    if re.match(r"\w", word) is None:
        return None
    return group_hint(word, tuple(group.commands), path.rpartition(" ")[0])


def group_hint(word: str, known: Sequence[str], path: str) -> str | None:
    """Return a hint for a word that is not a command of a group, None if none is likely."""
    if word == "help":
        return f"{path} --help lists all"
    for name in _SYNONYMS.get(word, ()):
        if name in known:
            return f"did you mean {path} {name}?"
    close = did_you_mean(word, known)
    if close is None and len(known) == 1:
        return f"did you mean {path} {known[0]}?"
    return close


def slip_hint(command: Command, words: Sequence[str], free: Sequence[str], unknown: str = "") -> str | None:
    """Return a hint for words that a command does not take and another form would; None if none is likely.

    Args:
        command: The command.
        words: The words before `--`.
        free: Those that belong to no option, as far as the words were read.
        unknown: The option that the command does not have, if there is one.
    """
    options = {name for _, option in command.options for name in option.names}
    if command.remainder is not None:
        options.add(_REMAINDER)
    hint = _of_option(unknown, options)
    if hint is not None:
        return hint
    places = list(command.positionals)
    if any(declared.metavar == _ARGUMENTS for _, declared in places):
        return _of_arguments(unknown, words, free)
    extra = free[len(places) :]
    if not extra:
        return None
    return _of_word(extra[0], words[list(words).index(extra[0]) :], options)


def _of_option(unknown: str, options: set[str]) -> str | None:
    if unknown in ("--version", "-V"):
        return "toolweave --version"
    for known, form in _OPTIONS.get(unknown, ()):
        if known in options:
            return f"did you mean {form}?"
    return did_you_mean(unknown, options)


def _of_arguments(unknown: str, words: Sequence[str], free: Sequence[str]) -> str | None:
    """Return a hint for an option that is an argument of the tool that was named before it."""
    if not unknown:
        return None
    if not free:
        return None
    name = _typed(unknown, words).lstrip("-").partition("=")[0]
    return f"arguments of a tool have no dashes: {name}=VALUE"


def _typed(unknown: str, words: Sequence[str]) -> str:
    """Return the word in which an option was typed, since letters after one dash are options each."""
    for word in words:
        if re.match(rf"-(?!-)[^-]*{re.escape(unknown[1:])}", word):
            return word
    return unknown


def _of_word(word: str, words: Sequence[str], options: set[str]) -> str | None:
    from toolweave.config._coerce import CONFIG_SUFFIXES  # only a slip needs it

    for is_given, option, hint in (
        ("://" in word, "--url", f"the URL of a server is given by its option: --url {shown([word])}"),
        (
            PurePath(word).suffix in CONFIG_SUFFIXES,
            "--config",
            f"a config file is given by its option: --config {shlex.quote(word)}",
        ),
    ):
        if is_given and option in options:
            return hint
    by_name: str | None = None
    if "--server" in options and re.fullmatch(_PLAIN, word):
        by_name = f"a server of the config is named by its option: --server {word}"
    if word == "help":
        return None
    if _REMAINDER not in options:
        return by_name
    line = f"the command of a server stands after --: -- {shown(words)}"
    if by_name and len(words) == 1:
        return f"{by_name}; {line}"
    return line


def _before_command(word: str, after: Sequence[str], known: Sequence[str], path: str) -> str | None:
    """Return a hint for an option where a command is expected."""
    if word == _REMAINDER:
        return "toolweave tools -- COMMAND ARGS... lists the tools of one server"
    named = next(filter(known.__contains__, after), None)
    if named is not None:
        return f"options stand after the command: {path} {named} {word.partition('=')[0]}"
    if path == _TOP:
        return did_you_mean(word, ("--version", "--install-completion", "--show-completion", *HELP_NAMES))
    return did_you_mean(word, HELP_NAMES)


def _thing(word: str, after: Sequence[str]) -> str | None:
    """Return the command for something that is given without one: a URL, a file, a program; None for another word."""
    from toolweave.config._coerce import CONFIG_SUFFIXES  # only a slip needs it

    if "://" in word:
        return f"toolweave tools --url {shown([word])}"
    suffix = PurePath(word).suffix
    if suffix == ".py":
        return f"toolweave serve {shlex.quote(word)}, or toolweave tools -- python {shlex.quote(word)}"
    if suffix in CONFIG_SUFFIXES:
        return f"toolweave tools --config {shlex.quote(word)}"
    if PurePath(word).name in _PROGRAMS or suffix in _SCRIPTS:
        return f"toolweave tools -- {shown([word, *after])}"
    return None


def _of_group(word: str, known: Sequence[str]) -> str | None:
    """Return a hint with the groups that have a command of this name."""
    from toolweave.cli._command import CommandGroup  # only a slip needs them
    from toolweave.cli._commands import load_command

    meant: list[str] = []
    for name in known:
        command = load_command(name)
        if isinstance(command, CommandGroup):
            names = command.commands.keys() & {word, *_SYNONYMS.get(word, ())}
            meant.extend(f"toolweave {name} {one}" for one in sorted(names))
    if meant and len(meant) <= 3:
        return f"did you mean {alternatives(meant)}?"
    return None


def shown(words: Sequence[str]) -> str:
    """Return words as a shell takes them, with the secrets in them masked."""
    from toolweave.config.secret_args import mask_args  # only a slip needs it

    return shlex.join(mask_args(words))


def word_hint(token: str) -> str:
    """Return the right form of a word that is not an argument of a tool."""
    if token.startswith(_QUOTED):
        return _SHELL_QUOTES
    name = re.match(r"([A-Za-z_][\w.-]*):(?!//)", token)
    if name is not None:  # as in YAML
        return f"write {name[1]}=VALUE, or {name[1]}:=JSON"
    return (
        "write key=value, key:=JSON, key=@FILE, all arguments as one JSON object '{...}', @FILE for one in a file, or "
        "- for one on standard input"
    )


def json_hint(text: str) -> str | None:
    """Return a hint for a text that is nearly JSON; None for any other text."""
    if re.search(_CURLY_QUOTES, text):
        return "JSON has straight double quotes, and this text has curly ones"
    for pattern, hint in _NEARLY_JSON:
        if re.match(pattern, text):
            return hint
    return None


def config_hint(path: Path) -> str | None:
    """Return a hint for something that is given as a config file and is another thing; None if it may be one."""
    text = str(path)
    if re.match(r"https?:/", text):
        return "the URL of a server is given by its option: --url URL"
    if path.is_dir():
        return f"name a file in the folder: --config {shlex.quote(str(path / 'mcp.json'))}"
    if path.suffix == ".py":
        return f"the command of a server stands after --: -- python {shlex.quote(text)}"
    if path.suffix in _SCRIPTS:
        return f"the command of a server stands after --: -- node {shlex.quote(text)}"
    return None


def repeated_option(name: str, values: Iterable[str]) -> list[str]:
    """Return an option with each of these values, as words of a command line: `--server a --server b`."""
    words: list[str] = []
    for value in values:
        words += [name, value]
    return words


def server_hint(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Return a hint for names of servers that a config does not have; None if none is likely."""
    if names and not known:
        return "no config with servers was found; name one: --config FILE"
    for name in names:
        if "," in name:
            several = shlex.join(repeated_option("--server", name.replace(" ", "").split(",")))
            return f"the option is repeated for each server: {several}"
        for one in known:
            if one != name and one.casefold() == name.casefold():
                return f"did you mean {one}?"
        if name not in known:
            return did_you_mean(name, known)
    return None
