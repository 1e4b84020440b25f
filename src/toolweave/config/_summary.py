"""A readable summary of a server's config: its command or URL, and the names of its secrets."""

from __future__ import annotations

from toolweave._json_types import Json
from toolweave.config._model import ServerConfig


def summary_of(config: ServerConfig) -> Json:
    """Return a server's config without its secrets: variables and headers by their names alone."""
    headers = () if callable(config.headers) else config.headers
    return {
        "transport": config.transport,
        "endpoint": config.endpoint,
        "cwd": config.cwd,
        "env": sorted(config.env),
        "headers": sorted(headers),
        "auth": None if config.auth is None else config.auth.type,
        "timeout": config.timeout.to_dict(),
        "include": list(config.include),
        "exclude": list(config.exclude),
        "confirm": [f"{name} {mode}" for name, mode in config.confirm.items()],
        "sandbox": None if config.sandbox is None else config.sandbox.type,
    }
