"""Entries of servers in the form of each program that starts them: its keys, and how it refers to a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolweave._value import Value
from toolweave.install._launch import LaunchWord, SecretWord, ServerLaunch, rendered


class ClientFormat(Value, frozen=True, kw_only=True):
    """The entries of one program's config.

    Attributes:
        name: The program, as it is named on the command line.
        kind: Its name among `editor_config_files`; empty for Toolweave's own.
        section: The path of the object that holds the servers.
        types: The `type` of an entry for stdio, HTTP and SSE; empty where it has none.
        urls: The key of the URL for HTTP and for SSE; empty for what the program cannot reach.
        headers: The key of the headers.
        env: The key of the variables.
        joined: Whether the program and its arguments are one list.
        file: A reference to the text of a file, with `{path}` in it; empty where the program has none.
        asks: Whether the program asks for secrets itself, by `${input:ID}`, and keeps them.
    """

    name: str
    kind: str = ""
    section: tuple[str, ...] = ("mcpServers",)
    types: tuple[str, str, str] = ("", "", "")
    urls: tuple[str, str] = ("url", "url")
    headers: str = "headers"
    env: str = "env"
    joined: bool = False
    file: str = ""
    asks: bool = False

    def reason_for_relay(self, launch: ServerLaunch) -> str:
        """Return why Toolweave has to start the server for the program, or nothing where that can do it itself."""
        if launch.transport != "stdio" and not self.urls[launch.transport == "sse"]:
            return f"{self.name} reaches no server over {launch.transport} by itself"
        if launch.secrets and not (self.file or self.asks):
            return f"{self.name} has no way to refer to a secret but to write it down"
        return ""

    def entry(self, launch: ServerLaunch, paths: Mapping[str, Path], *, server: str) -> dict[str, Any]:
        """Return the entry of a server, with references instead of its secrets.

        Args:
            launch: The server.
            paths: The files of its secrets by name; none of them is read.
            server: The server's name, for the ids of what the program asks for.
        """

        def reference(secret: SecretWord) -> str:
            if self.asks:
                return f"${{input:{self.input_id(server, secret)}}}"
            return self.file.replace("{path}", str(paths[secret.name]))

        at = {"stdio": 0, "http": 1, "sse": 2}[launch.transport]
        entry: dict[str, Any] = {"type": self.types[at]} if self.types[at] else {}
        if launch.transport == "stdio":
            args = [rendered(word, reference) for word in launch.args]
            entry |= {"command": [launch.command, *args]} if self.joined else {"command": launch.command, "args": args}
        else:
            entry[self.urls[launch.transport == "sse"]] = rendered(launch.url, reference)
        return entry | _some(self.env, launch.env, reference) | _some(self.headers, launch.headers, reference)

    def inputs(self, launch: ServerLaunch, *, server: str) -> list[dict[str, Any]]:
        """Return the definitions of the values that the program asks for, which are beside the servers."""
        if not self.asks:
            return []
        return [
            {
                "type": "promptString",
                "id": self.input_id(server, secret),
                "description": secret.description or secret.name,
                "password": True,
            }
            for secret in launch.secrets
        ]

    def input_id(self, server: str, secret: SecretWord) -> str:
        """Return the id of an input, of letters that its references may have."""
        return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "-" for char in
                       f"{server}-{secret.name.lstrip('-')}")  # fmt: skip


def _some(key: str, values: Mapping[str, LaunchWord], reference: Callable[[SecretWord], str]) -> dict[str, Any]:
    if values:
        return {key: {name: rendered(word, reference) for name, word in values.items()}}
    return {}


OWN_FORMAT = ClientFormat(name="toolweave", types=("", "http", "sse"), file="${file:{path}}")
"""Toolweave's own entries, such as those of `mcp.json`."""
_FORMATS = (
    ClientFormat(name="claude", kind="claude-desktop", urls=("", "")),
    ClientFormat(name="claude-code", kind="claude-code", types=("stdio", "http", "sse")),
    ClientFormat(name="cursor", kind="cursor"),
    ClientFormat(name="vscode", kind="vscode", section=("servers",), types=("stdio", "http", "sse"), asks=True),
    ClientFormat(name="codex", kind="codex", section=("mcp_servers",), urls=("url", ""), headers="http_headers"),
    ClientFormat(name="gemini", kind="gemini", urls=("httpUrl", "url")),
    ClientFormat(name="windsurf", kind="windsurf", urls=("serverUrl", "serverUrl"), file="${file:{path}}"),
    ClientFormat(name="cline", kind="cline", types=("stdio", "streamableHttp", "sse")),
    ClientFormat(name="zed", kind="zed", section=("context_servers",), urls=("url", "")),
    ClientFormat(
        name="opencode",
        kind="opencode",
        section=("mcp",),
        types=("local", "remote", "remote"),
        env="environment",
        joined=True,
        file="{file:{path}}",
    ),
)
CLIENT_FORMATS: Mapping[str, ClientFormat] = MappingProxyType({one.name: one for one in _FORMATS})
"""The programs whose configs are written, by name."""
