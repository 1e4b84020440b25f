"""The config of a server for people: its command or URL, and the names of its secrets."""

from __future__ import annotations

from typing import Any

from toolweave.config._model import ServerConfig


def summary_of(config: ServerConfig) -> dict[str, Any]:
    """Return a server's config without its secrets: variables and headers by their names alone."""
    return {
        "transport": config.transport,
        "endpoint": config.endpoint,
        "cwd": config.cwd,
        "env": sorted(config.env),
        "headers": [] if callable(config.headers) else sorted(config.headers),
        "auth": config.auth.type if config.auth is not None else None,
        "timeout": config.timeout.to_dict(),
        "include": list(config.include),
        "exclude": list(config.exclude),
        "confirm": [f"{name} {mode}" for name, mode in config.confirm.items()],
        "sandbox": None if config.sandbox is None else config.sandbox.type,
    }
