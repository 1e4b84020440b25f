"""The next step that a person can take after a server could not be reached."""

from __future__ import annotations

import pytest

from toolweave.config import ServerConfig
from toolweave.connect._hints import hint_for, hint_of
from toolweave.errors import AuthRequiredError, ConfigError, ConnectError, ProtocolError, RequestTimeoutError

OLD_SDK = "ImportError: cannot import name 'FastMCP' from 'mcp.server'"


@pytest.mark.parametrize(
    "error, program, expected",
    [
        (ConfigError("x"), "npx", None),
        (AuthRequiredError("x", server="s", status=401), "", "set a token"),
        (ConnectError("x", server="s", exit_code=1, stderr=OLD_SDK), "uvx", "run it with uvx --with 'mcp<2'"),
        (ConnectError("x", server="s", exit_code=1, stderr=OLD_SDK), "python", "install 'mcp<2' beside it"),
        (ConnectError("x", server="s", exit_code=1, stderr="npm error code E404"), "npx", "check the package's name"),
        (RequestTimeoutError("x", server="s", seconds=1), "npx", "the first start with npx installs the package"),
        (RequestTimeoutError("x", server="s", seconds=1), "python", "start it by hand: python"),
        (RequestTimeoutError("x", server="s", seconds=1), "", "check the host and port of the URL"),
        (ConnectError("[SSL: RECORD_LAYER_FAILURE]", server="s"), "", None),
        (ConnectError("plain HTTP request was sent to HTTPS port", server="s"), "", "write https://"),
        (ConnectError("x", server="s", exit_code=1, stderr="Please set GITHUB_TOKEN first"), "x", "GITHUB_TOKEN"),
        (ConnectError("x", server="s", exit_code=1, stderr="API_KEY environment variable not set"), "x", "API_KEY"),
        (ConnectError("x", server="s", exit_code=1, stderr="Missing required MY_DB_URL"), "x", "MY_DB_URL"),
        (ConnectError("x", server="s", stderr="env: node: No such file or directory"), "npx", "starts 'node'"),
        (
            ConnectError("x", server="s", stderr="/usr/bin/env: \u2018bun\u2019: No such file or directory"),
            "x",
            "'bun'",
        ),
        (ConnectError("x", server="s", stderr="sh: 1: uvx: not found"), "sh", "starts 'uvx'"),
        (ConnectError("x", server="s", stderr="bash: line 1: npx: command not found"), "bash", "starts 'npx'"),
        (ConnectError("x", server="s", stderr="zsh:1: command not found: deno"), "zsh", "starts 'deno'"),
        (ConnectError("x", server="s", stderr="sh: config.json: user not found"), "sh", None),
        (ConnectError("x", server="s", exit_code=1, stderr="all required options are set"), "x", None),
        (ConnectError("x", server="s", exit_code=1, stderr="Cannot connect to the Docker daemon"), "x", "start Docker"),
        (ConnectError("x", server="s", exit_code=1, stderr="Error: listen EADDRINUSE"), "node", "a port that is taken"),
        (ConnectError("refused by policy", server="s", exit_code=1), "python", None),
        (ConnectError("x", server="s", status=404), "", "most servers answer at /mcp"),
        (ConnectError("All connection attempts failed", server="s"), "", "check that the server runs"),
        (ConnectError("x", server="s"), "python", None),
        (ProtocolError("x", server="s", code=1), "", None),
    ],
)
def test_advice_says_what_to_do_where_the_message_leaves_it_open(
    error: Exception, program: str, expected: str | None
) -> None:
    advice = hint_for(error, program=program)

    assert advice == expected if expected is None else expected in (advice or "")


def test_a_service_names_settings_in_place_of_options() -> None:
    slow = RequestTimeoutError("x", server="s", seconds=1)
    fetched = ServerConfig(name="s", command="npx", args=("-y", "x"))
    refused = AuthRequiredError("x", server="s", status=401)
    remote = ServerConfig(name="s", transport="http", url="https://mcp.example/mcp")

    assert "--timeout" in (hint_of(fetched, slow) or "")
    assert '"timeout": {"connect": 300}' in (hint_of(fetched, slow, in_service=True) or "")
    assert "--bearer-env" in (hint_of(remote, refused) or "")
    assert "--" not in (hint_of(remote, refused, in_service=True) or "--")
