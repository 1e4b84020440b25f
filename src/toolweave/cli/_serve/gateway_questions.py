"""The questions of `toolweave gateway init` on a terminal: each answers one option, and Enter leaves it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from toolweave._text import alternatives
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._questions import ask_line
from toolweave.cli._screen import complain, note
from toolweave.cli._serve.gateway_plan import InitOptions, server_entry

_Answer = TypeVar("_Answer")
_TRIES = 5
_MAX_SERVERS = 100


async def ask_for_options(options: InitOptions) -> InitOptions:
    """Ask for the options that were not given; the servers are asked for first.

    Raises:
        CommandError: The input ended, or an answer was wrong too often (exit code 1).
    """
    options = replace(options, add=await _servers())
    if not options.key and options.issuer is None:
        options = await _callers(options)
    if not options.read_only and not options.deny:
        answer = await _asked("May everyone call tools that change something? [Y/n]: ", _yes)
        options = replace(options, read_only=not answer)
    if options.rate is None:
        options = replace(options, rate=await _asked("Calls a minute for each person and server [no limit]: ", _rate))
    if options.audit is None:
        audit = await _line("File of the audit log [none]: ")
        options = replace(options, audit=Path(audit) if audit else None)
    if not options.editor:
        known = ", ".join(InstallClient)
        options = replace(options, editor=await _asked(f"Editors that start it ({known}) [none]: ", _editors))
    return options


async def _servers() -> tuple[str, ...]:
    note("The servers of the gateway. Write each as NAME=COMMAND ARGS or NAME=URL.")

    def server(text: str) -> str:
        if text:
            server_entry(text)
        return text

    found: list[str] = []
    while len(found) < _MAX_SERVERS:
        ends = " [Enter: no more]" if found else ""
        text = await _asked(f"Server {len(found) + 1}{ends}: ", server)
        if text:
            found.append(text)
        elif found:
            break
        else:
            raise CommandError("a gateway needs a server", code=ExitCode.TOOL_ERROR)
    return tuple(found)


async def _callers(options: InitOptions) -> InitOptions:
    people = (await _line("People who get an API key, separated by spaces [none]: ")).split()
    if people:
        return replace(options, key=tuple(people))
    issuer = await _line("Issuer of your sign-in, a URL [none: everyone who reaches the gateway may call]: ")
    if not issuer:
        return options
    audience = await _line("URL of this gateway in its tokens, such as https://tools.example/mcp: ")
    return replace(options, issuer=issuer, audience=audience)


async def _line(question: str) -> str:
    line = await ask_line(question)
    if line is None:
        raise CommandError(
            "the input ended before every question was answered",
            code=ExitCode.TOOL_ERROR,
            hint="options answer the questions too: toolweave gateway init --help",
        )
    return line.strip()


async def _asked(question: str, read: Callable[[str], _Answer]) -> _Answer:
    for _ in range(_TRIES):
        text = await _line(question)
        try:
            return read(text)
        except CommandError as error:
            complain(error)
    raise CommandError(f"no usable answer after {_TRIES} tries", code=ExitCode.TOOL_ERROR)


def _yes(text: str) -> bool:
    word = text.lower()
    if word in ("", "y", "yes"):
        return True
    if word in ("n", "no"):
        return False
    raise CommandError("answer y or n")


def _rate(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise CommandError(f"{text!r} is not a number of calls")
    return int(text)


def _editors(text: str) -> tuple[InstallClient, ...]:
    names = text.replace(",", " ").split()
    for name in names:
        if name not in list(InstallClient):
            raise CommandError(f"{name!r} is not a known editor", hint=f"write {alternatives(list(InstallClient))}")
    return tuple(map(InstallClient, names))
