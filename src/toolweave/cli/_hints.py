"""Hints for errors of connecting whose own message names no remedy.

A server fails in a few ways, and each shows in a line of its output or in a word of the network's error. The tables
below have these, the more particular first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from toolweave.errors import AuthRequiredError, ConfigError, ConnectError, ConnectionLostError, ToolweaveError

_OLD_SDK = r"'(?:Fast)?(?:MCP|Server)' object has no attribute|No module named 'mcp[.']|cannot import name .+ from 'mcp"
_FETCHERS = ("npx", "bunx", "uvx", "uv", "pipx", "docker")
_VARIABLE = r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
_SET_VARIABLE = (
    "it needs the variable {0}: set it in `env` of its entry in a config, as an editor passes none of your shell's on"
)

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
        "it wants other arguments: compare `args` with the usage that it prints",
    ),
)
"""Patterns of a process's standard error, each with its hint; `{0}` is the first group that was found."""

_NETWORK: Sequence[tuple[str, str]] = (
    (
        r"(?i)wrong[ _]version[ _]number|record layer failure",
        "that port answers without TLS: write http:// in place of https://",
    ),
    (r"(?i)plain http request was sent to https", "that port wants TLS: write https:// in place of http://"),
    (
        r"Name or service not known|nodename nor servname|name resolution|No address associated",
        "the host's name leads nowhere from this machine: check it in the URL, and the network or VPN",
    ),
    (
        r"web page|text/html",
        "the URL leads to a web page: check its path (/mcp, of old servers /sse), and whether a proxy wants a sign-in",
    ),
    (
        r"(?i)refused|connect call failed|connect(?:ion)? (?:attempts )?failed",
        "check that the server runs, and its host and port",
    ),
)
"""Patterns of an error of the network, each with its hint."""


def hint_for(error: Exception, *, program: str = "", sign_in: str = "", command: str = "") -> str | None:
    """Return a hint for an error of connecting, or None when its message names the remedy.

    `program` is the base name of the server's command, `""` for a server that is reached over HTTP. `sign_in` is the
    argument of `toolweave auth login` for it, and `command` its command line as it may be shown.
    """
    text = str(error)
    if isinstance(error, ConfigError):
        return None
    if isinstance(error, AuthRequiredError):
        if "toolweave auth login" in text:
            return None
        return (
            f"sign in: toolweave auth login {shlex.quote(sign_in or str(error.server))}; in a config with "
            '"auth": "oauth" in its entry; or set a token: `auth` or `headers` in the config, or --bearer-env VAR '
            "beside --url"
        )
    if re.search(_OLD_SDK, text):
        if program in ("uvx", "uv"):
            how = f"run it with {program} --with 'mcp<2'"
        else:
            how = "install 'mcp<2' beside it"
        return f"it was written for another version of the `mcp` package: {how}"
    if isinstance(error, TimeoutError):
        return _of_timeout(program, command)
    if isinstance(error, ToolweaveError):
        return _of_connecting(error, text, program)
    return None


def _of_timeout(program: str, command: str) -> str:
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
    return _first_hint(_NETWORK, text)


def _first_hint(table: Sequence[tuple[str, str]], text: str) -> str | None:
    for pattern, hint in table:
        found = re.search(pattern, text)
        if found is not None:
            return hint.format(next((group for group in found.groups() if group), ""))
    return None
