"""The place where a server was configured."""

from __future__ import annotations

from toolweave._value import Value
from toolweave.errors import ConfigError


class Source(Value, frozen=True, kw_only=True):
    """The file and line where a server was configured.

    Attributes:
        path: The file.
        line: The 1-based line of the server's entry, or None.
    """

    path: str
    line: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.path
        return f"{self.path}:{self.line}"


def error_at(source: Source | None, message: str, *, server: str | None, field: str | None) -> ConfigError:
    """Make a `ConfigError` with the file and line of a server's entry, as far as they are known."""
    if source is None:
        return ConfigError(message, server=server, field=field)
    return ConfigError(message, server=server, field=field, path=source.path, line=source.line)
