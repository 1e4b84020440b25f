"""Config files and configs from code, as one frozen value per server.

Reads files and environment variables only: imports no SDK, starts no process and opens no connection.
"""

from __future__ import annotations

from toolweave.config.auth import Auth, AuthType
from toolweave.config.coerce import parse_command, parse_server, server_config
from toolweave.config.dialect_rules import Dialect
from toolweave.config.discover import ConfigFile, default_config, discover_config_files, editor_config_files
from toolweave.config.entry_types import (
    McpConfig,
    McpConnectionConfig,
    McpFullConfig,
    McpHttpConfig,
    McpStdioConfig,
    McpTransport,
)
from toolweave.config.load import content_digest, load_config
from toolweave.config.loaded import ConfigEntry, EntryStatus, LoadedConfig, LoadedFile, merge_loaded
from toolweave.config.merge import merge_config, normalize_config
from toolweave.config.model import HeadersSource, ServerConfig, Source, known_transports, register_transport_name
from toolweave.config.naming import program_name
from toolweave.config.secret import Secret, looks_secret, reveal, without_user_info
from toolweave.config.timeouts import Timeouts
from toolweave.config.trust import TrustedFiles
from toolweave.config.validation import is_loopback

__all__ = [
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
    "Secret",
    "ServerConfig",
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
