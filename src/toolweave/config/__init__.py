"""Config files and what users write in code, as one frozen value per server.

The room reads files and environment variables. It builds nothing live: it imports no SDK, starts
no process and opens no connection, and it does not know who will.
"""

from __future__ import annotations

from toolweave.config.auth import Auth, AuthType
from toolweave.config.model import HeadersSource, ServerConfig, Source
from toolweave.config.rules import known_transports, register_transport_name
from toolweave.config.secret import Secret, reveal
from toolweave.config.timeouts import Timeouts

__all__ = [
    "Auth",
    "AuthType",
    "HeadersSource",
    "Secret",
    "ServerConfig",
    "Source",
    "Timeouts",
    "known_transports",
    "register_transport_name",
    "reveal",
]
