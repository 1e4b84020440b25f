"""Hints for errors of connecting whose own message names no remedy."""

from __future__ import annotations

import re
import shlex

from toolweave.errors import AuthRequiredError, ConfigError, ConnectError

_OLD_SDK = r"'(?:Fast)?(?:MCP|Server)' object has no attribute|No module named 'mcp[.']|cannot import name .+ from 'mcp"
_FETCHERS = ("npx", "bunx", "uvx", "uv", "pipx", "docker")


def hint_for(error: Exception, *, program: str = "", sign_in: str = "") -> str | None:
    """Return a hint for an error of connecting, or None when its message names the remedy.

    `program` is the base name of the server's command, `""` for a server that is reached over HTTP. `sign_in` is the
    argument of `toolweave auth login` for it.
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
        how = f"run it with {program} --with 'mcp<2'" if program in ("uvx", "uv") else "install 'mcp<2' beside it"
        return f"it was written for another version of the `mcp` package: {how}"
    if isinstance(error, TimeoutError):
        if program in _FETCHERS:
            return f"the first start with {program} installs the package: try again, or give it --timeout 300"
        return None
    if isinstance(error, ConnectError):
        return _of_connecting(error, text, program)
    return None


def _of_connecting(error: ConnectError, text: str, program: str) -> str | None:
    if "E404" in text or "No solution found when resolving" in text:
        return "the package registry does not have it: check the package's name in `args`"
    if error.status == 404:
        return "check the path of the URL: most servers answer at /mcp, older ones at /sse"
    if not program and re.search(r"refused|connect(ion)? (attempts )?failed", text):
        return "check that the server runs, and its host and port"
    return None
