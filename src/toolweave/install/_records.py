"""Entries of the MCP registry as values, read tolerantly: an unknown member is ignored.

Sources: `server.json` of 2025-12-11, and `/v0.1/servers` of the registry's API.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from toolweave._json_types import object_or_empty
from toolweave._text import one_line
from toolweave._value import Value
from toolweave.errors import RegistryError

ServerStatus = Literal["active", "deprecated", "deleted"]
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_NAME = re.compile(r"(?=.{3,200}\Z)[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_SHOWN = 200


def shown(text: str) -> str:
    """Return a text of a registry as it is quoted in a message: one short line, hidden characters escaped."""
    return one_line(text, _SHOWN)


class ServerInput(Value, frozen=True, kw_only=True, rename="camel"):
    """A value that a server needs: an environment variable, a header, an argument, or a variable in one of these.

    Attributes:
        name: The name of a variable, a header or a named argument, with its dashes.
        type: `positional` or `named` for an argument.
        value: The value that the publisher fixed, so that it is not asked for; `{x}` in it comes from `variables`.
        value_hint: The name of a positional argument.
        format: `string`, `number`, `boolean` or `filepath`.
        is_repeated: Whether an argument may be given several times.
    """

    name: str = ""
    type: str = ""
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    is_repeated: bool = False
    format: str = "string"
    default: str | int | float | bool | None = None
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    value: str | None = None
    value_hint: str = ""
    variables: dict[str, ServerInput] = msgspec.field(default_factory=dict[str, "ServerInput"])


class RemoteEndpoint(Value, frozen=True, kw_only=True, rename="camel"):
    """A URL where a server runs, or the transport of a package.

    Attributes:
        type: `streamable-http` or `sse`; `stdio` of a package.
        url: A template: `{x}` in it comes from `variables`.
    """

    type: str
    url: str = ""
    variables: dict[str, ServerInput] = msgspec.field(default_factory=dict[str, "ServerInput"])
    headers: tuple[ServerInput, ...] = ()


class ServerPackage(Value, frozen=True, kw_only=True, rename="camel"):
    """A package that holds a server.

    Attributes:
        registry_type: `npm`, `pypi`, `oci`, `nuget` or `mcpb`.
        identifier: Its name there; a URL for `mcpb`.
        runtime_hint: The program that is meant to run it.
        runtime_arguments: Arguments of that program.
        package_arguments: Arguments of the server.
        file_sha256: The SHA-256 of the file; a bundle has one.
    """

    registry_type: str
    identifier: str
    transport: RemoteEndpoint = RemoteEndpoint(type="stdio")
    version: str = ""
    registry_base_url: str = ""
    runtime_hint: str = ""
    runtime_arguments: tuple[ServerInput, ...] = ()
    package_arguments: tuple[ServerInput, ...] = ()
    environment_variables: tuple[ServerInput, ...] = ()
    file_sha256: str = ""


class PublishedServer(Value, frozen=True, kw_only=True, rename="camel"):
    """A version of a server in a registry.

    Every text in it is the publisher's: escape it before it is shown.

    Attributes:
        name: A reversed domain and a name, such as `io.github.ada/notes`.
        status: The publisher's own status of it.
        status_message: The publisher's reason for the status.
        published_at: The time of its publication in the registry (RFC 3339).
        is_latest: Whether the registry has no later version.
    """

    name: str
    version: str
    description: str = ""
    title: str = ""
    website_url: str = ""
    packages: tuple[ServerPackage, ...] = ()
    remotes: tuple[RemoteEndpoint, ...] = ()
    status: ServerStatus = "active"
    status_message: str = ""
    published_at: str = ""
    is_latest: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its packages and remotes, such as `npm` and `http`, in its own order."""
        kinds = ["http" if remote.type == "streamable-http" else remote.type for remote in self.remotes]
        kinds += (package.registry_type for package in self.packages)
        return tuple(dict.fromkeys(kinds))


def read_server(answer: object) -> PublishedServer:
    """Return the server of one entry of the registry's answers: `{"server": ..., "_meta": ...}`.

    Raises:
        RegistryError: The entry is not a server, or its name is not one that a registry may have.
    """
    entry = object_or_empty(answer)
    members = dict(object_or_empty(entry.get("server")))
    official = object_or_empty(object_or_empty(entry.get("_meta")).get(_OFFICIAL))
    for name in _OF_REGISTRY:  # last, so that a publisher's own `status` counts for nothing
        if official.get(name) is not None:
            members[name] = official[name]
    try:
        server = msgspec.convert(members, PublishedServer)
    except (msgspec.ValidationError, RecursionError) as exc:
        name = shown(str(members.get("name", "without a name")))
        raise RegistryError(f"the registry's entry {name!r} is not valid: {shown(str(exc))}") from None
    if not _NAME.fullmatch(server.name):
        raise RegistryError(f"the registry's entry {shown(server.name)!r} is not named by a domain, a / and a name")
    return server


_OF_REGISTRY = frozenset(
    encoded
    for name, encoded in zip(PublishedServer.__struct_fields__, PublishedServer.__struct_encode_fields__, strict=True)
    if name in ("status", "status_message", "published_at", "is_latest")
)
"""The members that the registry itself reports, and no publisher."""
