"""The next step for errors of connecting whose own message names none.

A server fails in a few ways, and each shows in a line of its output or in a word of the network's error. The tables
below have these, the more particular first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from toolweave.config import ServerConfig, program_name
from toolweave.config._naming import inner_command
from toolweave.errors import AuthRequiredError, ConfigError, ConnectError, ConnectionLostError, ToolweaveError

_OLD_SDK = r"'(?:Fast)?(?:MCP|Server)' object has no attribute|No module named 'mcp[.']|cannot import name .+ from 'mcp"
_FETCHERS = ("npx", "bunx", "uvx", "uv", "pipx", "docker")
_VARIABLE = r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
_SET_VARIABLE = (
    "it needs the variable {0}: set it in `env` of its entry in a config, as an editor passes none of your shell's on"
)

_SHELL = r"\b(?:env|sh|bash|dash|ksh|busybox)"
_NOT_FOUND = r"(?:No such file or directory|command not found|not found)"
_PROCESS: Sequence[tuple[str, str]] = (
    (
        r"404[^\n]*'([^'\s]+?)@[^@'\s]*' (?:could not be found|is not in)",
        "the npm registry has no package {0!r}: check its name in `args`",
    ),
    (
        r"E404|No solution found when resolving",
        "the package registry does not have it: check the package's name in `args`",
    ),
    (
        r"can't open file '([^'\n]+)'|Cannot find module '([/.][^'\n]*)'|Module not found \"(file:[^\"\n]+)\"",
        "there is no file {0!r}: give its full path in `args`, or its folder as `cwd`",
    ),
    (
        r"No module named '?([\w.]+)'?",
        "its Python has no module {0!r}: install the package that has it into that Python, or start it with uvx",
    ),
    (
        r"Cannot find (?:module|package) '([^'/.\n][^'\n]*)'",
        "Node.js finds no package {0!r}: run `npm install` in the server's folder, or start it with npx",
    ),
    (
        (
            rf"(?m)^\S*{_SHELL}:(?: (?:line )?\d+:)? (?:exec: )?['\u2018]?([^\s:'\u2019]+)['\u2019]?: {_NOT_FOUND}$"
            r"|^zsh:\d+: command not found: (\S+)"
        ),
        (
            "it starts {0!r}, which is not on its PATH: install it, give its full path, or set PATH in `env`, "
            "as an editor may have a shorter one than your shell"
        ),
    ),
    (r"KeyError: '([A-Z][A-Z0-9_]{2,})'", _SET_VARIABLE),
    (
        _VARIABLE
        + r"[^\n]{0,60}\b(?:(?i:required|missing|undefined|unset)|not (?:set|found|defined|provided|configured)"
        r"|must be (?:set|provided))",
        _SET_VARIABLE,
    ),
    (
        r"(?i:\b(?:required|missing|not set|must set|please set|set the|provide|needs?)\b)[^\n]{0,60}" + _VARIABLE,
        _SET_VARIABLE,
    ),
    (r"(?i)cannot connect to the docker daemon", "start Docker, and try again"),
    (
        r"EADDRINUSE|(?i:address already in use)",
        "it listens on a port that is taken: if it already runs there, give its URL in place of the command",
    ),
    (
        r"(?m)^(?i:usage:)|the following arguments are required|(?i:missing required argument)",
        "it expects other arguments: compare `args` with the usage that it prints",
    ),
)
"""Patterns of a process's standard error, each with its hint; `{0}` is the first group that was found."""

_NETWORK: Sequence[tuple[str, str]] = (
    (
        r"(?i)wrong[ _]version[ _]number|record layer failure",
        "that port answers without TLS: write http:// in place of https://",
    ),
    (r"(?i)plain http request was sent to https", "that port requires TLS: write https:// in place of http://"),
    (
        r"(?s)no answer from http://.*(?:reset by peer|disconnected without)",
        "the server ended the connection: if that port wants TLS, write https:// in place of http://",
    ),
    (
        r"(?s)no answer from https://.*(?:reset by peer|disconnected without)",
        "the server ended the connection: it may want a certificate of this client, and none is sent",
    ),
    (
        r"Name or service not known|nodename nor servname|name resolution|No address associated",
        "the host's name leads nowhere from this machine: check it in the URL, and the network or VPN",
    ),
    (
        # A proxy has a page for a server that is away (502 to 504) or that limits requests: the path is right there.
        r"with a web page|text/html|HTTP (?:40[0356]|41[05]|501)\b[^\n]*: a web page",
        "the URL leads to a web page: check its path (/mcp, of old servers /sse), and if a proxy requires a sign-in",
    ),
    (
        r"(?i)refused|connect call failed|connect(?:ion)? (?:attempts )?failed",
        "check that the server runs, and its host and port",
    ),
)
"""Patterns of an error of the network, each with its hint."""


def hint_of(config: ServerConfig | None, error: Exception, *, in_service: bool = False) -> str | None:
    """Return the next step for an error of a server, or None if its message names it.

    Args:
        config: The server, or None for one whose config is not known.
        error: The error of connecting to it.
        in_service: Whether a service that runs from a config reports the error, which has no options for one server.
    """
    if config is None:
        return hint_for(error, in_service=in_service)
    program = program_name(inner_command(config.command, config.args)[0])
    return hint_for(
        error, program=program, sign_in=_login_target(config), command=config.endpoint, in_service=in_service
    )


def _login_target(config: ServerConfig) -> str:
    """Return the argument of `toolweave auth login` for a server: its name in a config file, or its URL."""
    if config.source is not None:
        return config.name
    return config.redact(config.url)


def hint_for(
    error: Exception, *, program: str = "", sign_in: str = "", command: str = "", in_service: bool = False
) -> str | None:
    """Return the next step for an error of connecting, or None if its message names it.

    Args:
        error: The error.
        program: The base name of the server's command; empty for a server that is reached over HTTP.
        sign_in: The argument of `toolweave auth login` for it.
        command: Its command line, as it may be shown.
        in_service: Whether a service that runs from a config reports the error, which has no options for one server.
    """
    text = str(error)
    if isinstance(error, ConfigError):
        return None
    if isinstance(error, AuthRequiredError):
        if "toolweave auth login" in text:
            return None
        return _of_sign_in(sign_in or str(error.server), in_service=in_service)
    if re.search(_OLD_SDK, text):
        if program in ("uvx", "uv"):
            how = f"run it with {program} --with 'mcp<2'"
        else:
            how = "install 'mcp<2' beside it"
        return f"it was written for another version of the `mcp` package: {how}"
    if isinstance(error, TimeoutError):
        return _of_timeout(program, command, in_service=in_service)
    if isinstance(error, ToolweaveError):
        return _of_connecting(error, text, program)
    return None


def _of_sign_in(target: str, *, in_service: bool) -> str:
    steps = (
        f'sign in: toolweave auth login {shlex.quote(target)}; in a config with "auth": "oauth" in its entry; or set a '
        "token: `auth` or `headers` in the config"
    )
    if in_service:
        return steps
    return f"{steps}, or --bearer-env VAR beside --url"


def _of_timeout(program: str, command: str, *, in_service: bool) -> str:
    if program in _FETCHERS and in_service:
        return f'the first start with {program} installs the package: set "timeout": {{"connect": 300}} in its entry'
    if program in _FETCHERS:
        return f"the first start with {program} installs the package: try again, or give it --timeout 300"
    if not program:
        return "check the host and port of the URL, and whether a firewall or VPN is in between"
    return (
        "it runs and answers nothing: it may wait for arguments, speak HTTP only, or not be an MCP server; start it "
        f"by hand: {command or program}"
    )


def _of_connecting(error: ToolweaveError, text: str, program: str) -> str | None:
    if isinstance(error, (ConnectError, ConnectionLostError)):
        output = error.stderr
    else:
        output = ""
    if program:
        return _first_hint(_PROCESS, output or text)
    if getattr(error, "status", None) == 404:
        return "check the path of the URL: most servers answer at /mcp, older ones at /sse"
    return network_hint(text)


def network_hint(text: str) -> str | None:
    """Return the next step for the text of an error of the network, or None."""
    return _first_hint(_NETWORK, text)


def _first_hint(table: Sequence[tuple[str, str]], text: str) -> str | None:
    for pattern, hint in table:
        found = re.search(pattern, text)
        if found is not None:
            return hint.format(next(filter(None, found.groups()), ""))
    return None
