"""Entries of the MCP registry as values, read tolerantly: a member that is not known is passed over.

Sources: `server.json` of 2025-12-11, and `/v0.1/servers` of the registry's API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

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
        name: Of a variable, a header or a named argument, with its dashes.
        type: `positional` or `named` for an argument.
        value: Fixed by the publisher, so that it is not asked for; `{x}` in it comes from `variables`.
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
        status: Whether the publisher still stands by it.
        status_message: The reason, as the publisher says it.
        published_at: When it was published, as the registry says it (RFC 3339).
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
        found = (*(one.type for one in self.remotes), *(one.registry_type for one in self.packages))
        return tuple(dict.fromkeys("http" if kind == "streamable-http" else kind for kind in found))


def read_server(answer: object) -> PublishedServer:
    """Return the server of one entry of the registry's answers: `{"server": ..., "_meta": ...}`.

    Raises:
        RegistryError: It is none, or its name is none that a registry may have.
    """
    entry = _mapping(answer)
    members = _mapping(entry.get("server"))
    official = _mapping(_mapping(entry.get("_meta")).get(_OFFICIAL))
    known = {name: value for name, value in official.items() if value is not None and name in _OF_REGISTRY}
    try:
        server = msgspec.convert({**members, **known}, PublishedServer)
    except (msgspec.ValidationError, RecursionError) as exc:
        name = shown(str(members.get("name", "without a name")))
        raise RegistryError(f"the registry's entry {name!r} is not taken: {shown(str(exc))}") from None
    if not _NAME.fullmatch(server.name):
        raise RegistryError(f"the registry's entry {shown(server.name)!r} is not named by a domain, a / and a name")
    return server


_OF_REGISTRY = frozenset(
    encoded
    for name, encoded in zip(PublishedServer.__struct_fields__, PublishedServer.__struct_encode_fields__, strict=True)
    if name in ("status", "status_message", "published_at", "is_latest")
)
"""The members that the registry itself says, which no publisher can."""


def _mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}
