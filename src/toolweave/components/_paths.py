"""Validation and resolution of the paths in a manifest and in a lock. Reads the file system, never writes."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from toolweave.errors import ConfigError

_ODD = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]')
"""Characters that are special on some system, invisible, or not allowed in file names."""


def is_portable(path: str) -> bool:
    """Whether a path is relative, goes down only and means the same on every system."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and not _ODD.search(path)


def resolve_inside(folder: Path, path: str, *, what: str) -> Path:
    """Return a path of a manifest or a lock as a path of the file system that is certainly inside a folder.

    Args:
        folder: The folder, which need not exist.
        path: The path, relative to the folder.
        what: What the path is, for the error message.

    Raises:
        ConfigError: The path leads out of the folder, by itself or through a link, or its last part is a link.
    """
    if not is_portable(path):
        raise ConfigError(f"{what} is {path!r}; a path that stays inside {str(folder)!r} is expected")
    full_path = folder / path
    if full_path.is_symlink():
        raise ConfigError(f"{what} {path!r} is a link; put a real file or folder there")
    if not full_path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{what} {path!r} leads out of {str(folder)!r} through a link")
    return full_path
