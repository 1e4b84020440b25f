"""Entries of servers in the form of each program that starts them: its keys, and how it refers to a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from toolweave._json_types import Json
from toolweave._value import Value
from toolweave.install._launch import LaunchWord, SecretWord, ServerLaunch, rendered

_TRANSPORTS = ("stdio", "http", "sse")


class ClientFormat(Value, frozen=True, kw_only=True):
    """The entries of one program's config.

    Attributes:
        name: The program, as it is named on the command line.
        kind: Its name among `editor_config_files`; empty for Toolweave's own.
        section: The path of the object that holds the servers.
        types: The `type` of an entry for stdio, HTTP and SSE; empty for an entry without one.
        urls: The key of the URL for HTTP and for SSE; empty for a transport that the program does not have.
        headers: The key of the headers.
        env: The key of the variables.
        joined: Whether the program and its arguments are one list.
        file: A reference to the text of a file, with `{path}` in it; empty if the program has none.
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
        """Return why Toolweave has to start the server for the program; `""` if the program can do it itself."""
        if launch.transport != "stdio" and not self._url_key(launch):
            return f"{self.name} reaches no server over {launch.transport} by itself"
        can_refer = self.asks or self.file != ""
        if launch.secrets and not can_refer:
            return f"{self.name} can only refer to a secret by writing it down"
        return ""

    def _url_key(self, launch: ServerLaunch) -> str:
        http, sse = self.urls
        return sse if launch.transport == "sse" else http

    def entry(self, launch: ServerLaunch, paths: Mapping[str, Path], *, server: str) -> Json:
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

        # The order of the members is that of the programs' own documentation, since users read these files.
        entry: Json = {}
        kind = self.types[_TRANSPORTS.index(launch.transport)]
        if kind:
            entry["type"] = kind
        if launch.transport == "stdio":
            args = [rendered(word, reference) for word in launch.args]
            if self.joined:
                entry["command"] = [launch.command, *args]
            else:
                entry |= {"command": launch.command, "args": args}
        else:
            entry[self._url_key(launch)] = rendered(launch.url, reference)
        for key, values in ((self.env, launch.env), (self.headers, launch.headers)):
            if values:
                entry[key] = _rendered_values(values, reference)
        return entry

    def inputs(self, launch: ServerLaunch, *, server: str) -> list[Json]:
        """Return the definitions of the values that the program asks for, which are beside the servers."""
        if not self.asks:
            return []
        definitions: list[Json] = []
        for secret in launch.secrets:
            about = secret.description or secret.name
            name = self.input_id(server, secret)
            definitions.append({"type": "promptString", "id": name, "description": about, "password": True})
        return definitions

    def input_id(self, server: str, secret: SecretWord) -> str:
        """Return the id of an input, of letters that its references may have."""
        return re.sub("[^A-Za-z0-9_-]", "-", f"{server}-{secret.name.lstrip('-')}")


def _rendered_values(values: Mapping[str, LaunchWord], reference: Callable[[SecretWord], str]) -> dict[str, str]:
    return {name: rendered(word, reference) for name, word in values.items()}


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
CLIENT_FORMATS: Mapping[str, ClientFormat] = MappingProxyType({form.name: form for form in _FORMATS})
"""The programs whose configs are written, by name."""
