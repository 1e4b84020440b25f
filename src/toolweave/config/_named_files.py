"""Text files that an entry names: `env_file`, and `${file:PATH}`. They are small, and are read as a whole."""

from __future__ import annotations

import re
from pathlib import Path

from toolweave._files import read_file
from toolweave.errors import ConfigError

_MAX_BYTES = 1_000_000
_ASSIGNMENT = (
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.]*)\s*=\s*"""
    r"""(?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^#\n]*?))\s*(?:\#.*)?"""
)
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\"": '"', r"\\": "\\", r"\$": "$"}


def read_text_file(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ValueError: The file cannot be read, is larger than 1 MB, or is not UTF-8; the message is the reason alone.
    """
    try:
        return read_file(path, max_bytes=_MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None


def read_env_file(path: Path) -> dict[str, str]:
    """Read `NAME=value` lines; quotes, `export` and comments are understood.

    Raises:
        ConfigError: The file cannot be read, or a line is not an assignment; no value is shown.
    """
    try:
        text = read_text_file(path)
    except ValueError as error:
        raise ConfigError(f"'env_file' {str(path)!r} cannot be read: {error}", field="env_file") from None
    out: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() == "" or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(_ASSIGNMENT, line)
        if match is None:
            raise ConfigError(f"line {number} of 'env_file' {str(path)!r} is not NAME=value", field="env_file")
        out[match["name"]] = _value(match)
    return out


def _value(match: re.Match[str]) -> str:
    # Only double quotes have escapes, as in a shell. An unknown escape stays as it is written.
    if match["double"] is not None:
        return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), match["double"])
    if match["single"] is not None:
        return match["single"]
    return match["plain"]
