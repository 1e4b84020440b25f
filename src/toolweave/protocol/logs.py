"""Log messages of a server to its client: severities, and `notifications/message` to and from JSON."""

from __future__ import annotations

from typing import Any, Literal, get_args

from toolweave._json_types import Json, JsonObject, as_text
from toolweave._value import Value

__all__ = ["LEVELS", "LogLevel", "LogMessage", "check_level", "log_message", "log_params"]

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""Severities of RFC 5424, the least severe first."""
LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""The severities, the least severe first."""


def check_level(level: str) -> None:
    """Validate a log level.

    Raises:
        ValueError: The level does not exist.
    """
    if level not in LEVELS:
        raise ValueError(f"no log level {level!r}; there are {', '.join(LEVELS)}")


class LogMessage(Value, frozen=True, kw_only=True):
    """One log message of a server (`notifications/message`); untrusted.

    Attributes:
        server: The name of the server in the client's config.
        logger: The name of the server's logger, or None.
        data: A text or any other JSON value.
    """

    server: str
    level: str
    logger: str | None = None
    data: Any = None  # any JSON value


def log_message(params: JsonObject, server: str) -> LogMessage:
    """Return the parameters of a notification as a value; a message without a level has `info`."""
    level = as_text(params.get("level"))
    logger = as_text(params.get("logger"))
    return LogMessage(server=server, level=level or "info", logger=logger, data=params.get("data"))


def log_params(level: LogLevel, data: Any, logger: str | None) -> Json:
    """Return the parameters of a notification; `data` is any JSON value."""
    params: Json = {"level": level, "data": data}
    if logger is None:
        return params
    return params | {"logger": logger}
