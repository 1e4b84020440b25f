"""The server that is installed: looked up in the registry, or read out of a bundle, and one of the ways to use it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.errors import ErrorKind, RegistryError

if TYPE_CHECKING:
    from toolweave.install import InstallOption, McpRegistry, PublishedServer, ServerBundle

_BUNDLES = (".mcpb", ".dxt")
_OTHERS = "toolweave search WORD finds the names of published servers"
_GENERAL = ("mcp", "server", "mcp-server", "mcp_server", "remote", "api")
"""Last words of names that say nothing about the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A server and the way to use it.

    Attributes:
        name: Its published name, or that of its bundle.
        version: Its version.
        description: The publisher's words.
        option: The way to use it.
        bundle: The bundle to unpack, or None.
        notes: Remarks for the person who installs it.
        others: The other ways to use it.
    """

    name: str
    version: str
    description: str
    option: InstallOption
    bundle: ServerBundle | None = None
    notes: list[str] = field(default_factory=list[str])
    others: list[str] = field(default_factory=list[str])


def is_bundle(target: str) -> bool:
    """Whether a target is the path of a bundle."""
    return Path(target).suffix.lower() in _BUNDLES


async def find_server(target: str, *, registry: str | None, via: str | None) -> FoundServer:
    """Look a server up, and read its bundle if that is the way to use it; nothing of it is written or started.

    Args:
        target: `NAME` or `NAME@VERSION` in the registry, or the path of a bundle.
        registry: The registry's URL, None for the usual one.
        via: The kind of package or remote; by default the first that can be used, remotes before packages.

    Raises:
        CommandError: It was deleted, or cannot be used that way.
        RegistryError: The server does not exist, the registry cannot be reached, or a bundle is refused.
    """
    from toolweave.install import McpRegistry, ServerBundle  # imports are late: --help imports the command

    if is_bundle(target):
        if via not in (None, "mcpb"):
            raise CommandError(f"{target!r} is a bundle; --via {via} is for servers of the registry")
        return _of_bundle(ServerBundle.open(Path(target)))
    name, at, version = target.partition("@")
    asked = McpRegistry(registry)
    try:
        server = await asked.server(name, version if at else "latest")
    except RegistryError as error:
        if error.kind is ErrorKind.NOT_FOUND:
            error.add_note(_OTHERS)
        raise
    if server.status == "deleted":
        if server.status_message:
            reason = f": {server.status_message}"
        else:
            reason = ""
        raise CommandError(f"{server.name} {server.version} was deleted by its publisher{reason}", hint=_OTHERS)
    return await _chosen(asked, server, via)


async def _chosen(registry: McpRegistry, server: PublishedServer, via: str | None) -> FoundServer:
    from toolweave.install import ServerBundle, install_options  # late, as above

    options, refused = install_options(server)
    fitting = [one for one in options if via in (None, one.kind)]
    if not fitting:
        if via is None:
            what = "no way to use it that can be written down"
        else:
            what = f"no {via} that can be used"
        raise CommandError(
            "\n".join((f"{server.name} {server.version} has {what}", *refused)), code=ExitCode.TOOL_ERROR
        )
    option = fitting[0]
    bundle = None
    if option.bundle is not None:
        bundle = ServerBundle(await registry.bundle(option.bundle.url, option.bundle.sha256))
        option = bundle.option()
    notes = list[str]()
    if server.status == "deprecated":
        if server.status_message:
            reason = f": {server.status_message}"
        else:
            reason = ""
        notes.append(f"its publisher calls it deprecated{reason}")
    return FoundServer(
        name=server.name,
        version=server.version,
        description=server.description,
        option=option,
        bundle=bundle,
        notes=[*notes, *(f"left out: {reason}" for reason in refused)],
        others=[f"{one.kind} {one.source}" for one in options if one is not fitting[0]],
    )


def _of_bundle(bundle: ServerBundle) -> FoundServer:
    manifest = bundle.manifest
    return FoundServer(
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        option=bundle.option(),
        bundle=bundle,
    )


def entry_name(name: str) -> str:
    """Return the name of an entry for a published server: the last word of its name that says something."""
    domain, _, last = name.rpartition("/")
    words = [last, domain.rpartition(".")[2]]
    chosen = next((word for word in words if word and word.lower() not in _GENERAL), last)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", chosen).strip("-")[:60] or "server"
