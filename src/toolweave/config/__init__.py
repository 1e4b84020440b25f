"""Config files and configs from code, as one frozen value per server.

Reads files and environment variables only: imports no SDK, starts no process and opens no connection.
"""

from __future__ import annotations

from toolweave.config._auth import Auth, AuthType
from toolweave.config._coerce import parse_command, parse_server, server_config
from toolweave.config._confinement import ResourceLimits, Sandbox
from toolweave.config._dialect_rules import Dialect
from toolweave.config._discover import ConfigFile, default_config, discover_config_files, editor_config_files
from toolweave.config._entry_types import (
    McpConfig,
    McpConnectionConfig,
    McpFullConfig,
    McpHttpConfig,
    McpStdioConfig,
    McpTransport,
)
from toolweave.config._loaded import ConfigEntry, EntryStatus, LoadedConfig, LoadedFile, merge_loaded
from toolweave.config._merge import merge_config, normalize_config
from toolweave.config._model import HeadersSource, ServerConfig, known_transports, register_transport_name
from toolweave.config._naming import program_name
from toolweave.config._oauth import OAuth, OAuthGrant, OAuthIdentity, OAuthSecret
from toolweave.config._secret import Secret, looks_secret, reveal
from toolweave.config._shaping import ArgumentRule, ShapeRule
from toolweave.config._source import Source
from toolweave.config._timeouts import Timeouts
from toolweave.config.load import content_digest, load_config
from toolweave.config.secret_args import without_user_info
from toolweave.config.trust import TrustedFiles
from toolweave.config.validation import is_loopback

__all__ = [
    "ArgumentRule",
    "Auth",
    "AuthType",
    "ConfigEntry",
    "ConfigFile",
    "Dialect",
    "EntryStatus",
    "HeadersSource",
    "LoadedConfig",
    "LoadedFile",
    "McpConfig",
    "McpConnectionConfig",
    "McpFullConfig",
    "McpHttpConfig",
    "McpStdioConfig",
    "McpTransport",
    "OAuth",
    "OAuthGrant",
    "OAuthIdentity",
    "OAuthSecret",
    "ResourceLimits",
    "Sandbox",
    "Secret",
    "ServerConfig",
    "ShapeRule",
    "Source",
    "Timeouts",
    "TrustedFiles",
    "content_digest",
    "default_config",
    "discover_config_files",
    "editor_config_files",
    "is_loopback",
    "known_transports",
    "load_config",
    "looks_secret",
    "merge_config",
    "merge_loaded",
    "normalize_config",
    "parse_command",
    "parse_server",
    "program_name",
    "register_transport_name",
    "reveal",
    "server_config",
    "without_user_info",
]
