"""The regular files below a directory, and nothing outside it, through any path or symbolic link."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

T = TypeVar("T")


class FileStamp(NamedTuple):
    """Values of a file that change when its content does."""

    modified_ns: int
    changed_ns: int
    size: int

    @classmethod
    def of(cls, about: os.stat_result) -> Self:
        """Return the stamp of a file."""
        return cls(about.st_mtime_ns, about.st_ctime_ns, about.st_size)


class Folder:
    """A directory whose files are offered.

    Args:
        root: The directory, resolved.
        hidden: Whether files and directories whose names begin with a dot are offered, too.
        leave_out: Whether a file or a directory of this name is not offered either; by default each is.
    """

    def __init__(self, root: Path, *, hidden: bool = False, leave_out: Callable[[str], bool] | None = None) -> None:
        self.root = root
        self._hidden = hidden
        self._leave_out = leave_out

    def files(self, below: Path | None = None) -> Iterator[tuple[Path, os.stat_result]]:
        """Return the readable files that have a URI; those that vanish or are forbidden meanwhile are left out."""
        for path, about in self.children(self.root if below is None else below):
            if about is None:
                yield from self.files(path)
            else:
                yield path, about

    def children(self, folder: Path) -> Iterator[tuple[Path, os.stat_result | None]]:
        """Return the direct children of a directory in the order of their names; a directory has no `stat_result`."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if not self._shown(entry.name) or not entry.name.isprintable():  # also a name that is no Unicode
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield path, None
            elif (about := self._regular(path)) is not None:
                yield path, about[1]

    def find(self, path: str) -> Path | None:
        """Return the real path of the file at a relative path, behind symbolic links; None if none is offered."""
        if not all(map(self._shown, path.split("/"))) or (os.name == "nt" and ":" in path):  # a stream of NTFS
            return None
        found = self._regular(self.root / path)
        if found is None:
            return None
        return found[0]

    def _shown(self, name: str) -> bool:
        if self._leave_out is not None and self._leave_out(name):
            return False
        return self._hidden or not name.startswith(".")

    def _regular(self, path: Path) -> tuple[Path, os.stat_result] | None:
        """Return the real path of a regular file below the directory, behind symbolic links; else None."""
        try:
            real = path.resolve(strict=True)
            about = real.stat()
        except (OSError, ValueError, RuntimeError):  # no such file, a name no system takes, a circle of links
            return None
        if not real.is_relative_to(self.root) or not stat.S_ISREG(about.st_mode):
            return None
        shown = all(map(self._shown, real.relative_to(self.root).parts))  # a link does not reveal hidden files
        if shown:
            return (real, about)
        return None


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function that reads files in a worker thread."""
    from anyio import to_thread  # 15 ms; a server is often made where it is not run

    return await to_thread.run_sync(function, abandon_on_cancel=True)
