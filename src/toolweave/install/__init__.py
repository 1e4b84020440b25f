"""Servers that others publish, found in a registry or a bundle, as entries of a config. Starts none of them.

Knows the registry's API, `server.json`, `.mcpb` and what clients' configs look like; refuses to know the terminal, and
which file is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.install._bundle import (
        BundleCommand,
        BundleCompatibility,
        BundledServer,
        BundleManifest,
        BundleSetting,
        ServerBundle,
    )
    from toolweave.install._clients import CLIENT_FORMATS, OWN_FORMAT, ClientFormat
    from toolweave.install._launch import LaunchWord, SecretWord, ServerLaunch
    from toolweave.install._mcp_registry import OFFICIAL_REGISTRY, McpRegistry, RegistryPage
    from toolweave.install._options import BundleLocation, InstallOption, install_options
    from toolweave.install._questions import LaunchAnswers, LaunchQuestion
    from toolweave.install._records import PublishedServer, RemoteEndpoint, ServerInput, ServerPackage
    from toolweave.install._secrets import SecretFiles, installed_folder
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_bundle": (
                "BundleCommand",
                "BundleCompatibility",
                "BundleManifest",
                "BundleSetting",
                "BundledServer",
                "ServerBundle",
            ),
            "_clients": ("CLIENT_FORMATS", "OWN_FORMAT", "ClientFormat"),
            "_launch": ("LaunchWord", "SecretWord", "ServerLaunch"),
            "_mcp_registry": ("OFFICIAL_REGISTRY", "McpRegistry", "RegistryPage"),
            "_options": ("BundleLocation", "InstallOption", "install_options"),
            "_questions": ("LaunchAnswers", "LaunchQuestion"),
            "_records": ("PublishedServer", "RemoteEndpoint", "ServerInput", "ServerPackage"),
            "_secrets": ("SecretFiles", "installed_folder"),
        },
    )

__all__ = [
    "CLIENT_FORMATS",
    "OFFICIAL_REGISTRY",
    "OWN_FORMAT",
    "BundleCommand",
    "BundleCompatibility",
    "BundleLocation",
    "BundleManifest",
    "BundleSetting",
    "BundledServer",
    "ClientFormat",
    "InstallOption",
    "LaunchAnswers",
    "LaunchQuestion",
    "LaunchWord",
    "McpRegistry",
    "PublishedServer",
    "RegistryPage",
    "RemoteEndpoint",
    "SecretFiles",
    "SecretWord",
    "ServerBundle",
    "ServerInput",
    "ServerLaunch",
    "ServerPackage",
    "install_options",
    "installed_folder",
]
