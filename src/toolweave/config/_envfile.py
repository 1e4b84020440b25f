"""The variables of a `.env` file, which VS Code's entries name as `envFile`. Expands nothing in them."""

from __future__ import annotations

import re
from pathlib import Path

from toolweave.errors import ConfigError

__all__ = ["read_env_file"]

_MAX_BYTES = 1_000_000
_LINE = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.]*)\s*=\s*"""
    r"""(?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^#\n]*?))\s*(?:\#.*)?"""
)
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\"": '"', r"\\": "\\", r"\$": "$"}


def read_env_file(path: Path) -> dict[str, str]:
    """Read `NAME=value` lines; quotes, `export` and comments are understood.

    Raises:
        ConfigError: The file cannot be read, or a line is no assignment; no value is shown.
    """
    try:
        path.stat()  # a path that is not there says so
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= _MAX_BYTES else None
        text = None if data is None else data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"'env_file' {str(path)!r} cannot be read: {reason}", field="env_file") from None
    if text is None:
        raise ConfigError(f"'env_file' {str(path)!r} is no file of at most 1 MB", field="env_file")
    out: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"line {number} of 'env_file' {str(path)!r} is no NAME=value", field="env_file")
        out[match["name"]] = _value(match)
    return out


def _value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), match["double"])
    return match["single"] if match["single"] is not None else match["plain"]
