"""Atomic changes of several files: all of them or none. Knows nothing of components.

Every new content is written beside its file first, and so is a copy of the content it replaces; then the files are
renamed. A failure on the way, Ctrl-C included, is undone. If the process is killed between two renames, each file is
either the old or the new one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolweave.errors import ConfigError

_PREFIX = ".toolweave-"
_NEW_FILE = 0o666


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The change of one file.

    Attributes:
        path: Path of the file.
        before: Its expected content; None for no file.
        after: Its new content; None for no file.
    """

    path: Path
    before: bytes | None
    after: bytes | None


def apply_changes(changes: Sequence[FileChange]) -> None:
    """Apply all changes; missing folders are created.

    Raises:
        ConfigError: A file is not what it was when the changes were planned; nothing was changed.
        OSError: The file system refuses; everything is as before.
    """
    for change in changes:
        if _content(change.path) != change.before:
            raise ConfigError(f"{str(change.path)!r} was changed in the meantime; do it again")
    changes = [change for change in changes if change.before != change.after]
    folders: list[Path] = []
    staged: list[Path] = []
    done: list[tuple[Path, Path | None]] = []
    try:
        pairs = [_stage(change, folders, staged) for change in changes]
        for change, (new, old) in zip(changes, pairs, strict=True):
            # Before the rename, so that Ctrl-C between the two is also undone.
            done.append((change.path, old))
            if new is not None:
                new.replace(change.path)
            else:
                change.path.unlink(missing_ok=True)
    except BaseException:
        _undo(done, staged)
        _clear(staged)
        for folder in reversed(folders):
            # Another process put a file there meanwhile.
            with suppress(OSError):
                folder.rmdir()
        raise
    _clear(staged)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _stage(change: FileChange, folders: list[Path], staged: list[Path]) -> tuple[Path | None, Path | None]:
    """Write the new content and a copy of the old one beside the file; return the two."""
    _make_folder(change.path.parent, folders)
    old = new = None
    if change.before is not None:
        old = _temporary(change.path, staged)
        shutil.copy2(change.path, old)
    if change.after is not None:
        new = _temporary(change.path, staged)
        with new.open("wb") as stream:
            stream.write(change.after)
            stream.flush()
            # Before the rename: after a power failure, the name could otherwise stand for an empty file.
            os.fsync(stream.fileno())
        if old is None:
            # Temporary files are private, and a source file has to be as readable as any other of the user's.
            new.chmod(_NEW_FILE & ~_umask())
        else:
            shutil.copymode(change.path, new)
    return new, old


def _make_folder(folder: Path, made: list[Path]) -> None:
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir()
        made.append(one)


def _temporary(path: Path, staged: list[Path]) -> Path:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_PREFIX)
    staged.append(Path(name))
    os.close(descriptor)
    return staged[-1]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _undo(done: Sequence[tuple[Path, Path | None]], staged: list[Path]) -> None:
    for path, old in reversed(done):
        try:
            if old is None:
                path.unlink(missing_ok=True)
            else:
                old.replace(path)
        except OSError:
            # The others are still put back.
            if old is not None:
                # The copy may be all there is of it: it stays.
                staged.remove(old)


def _clear(staged: Sequence[Path]) -> None:
    for path in staged:
        with suppress(OSError):  # what it was there for is done
            path.unlink(missing_ok=True)
