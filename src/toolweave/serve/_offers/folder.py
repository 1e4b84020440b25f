"""The regular files below a directory, and nothing outside it, through any path or symbolic link."""

# A path is checked after its symbolic links were followed, because a link inside the directory may lead out of it. The
# real path must be below the real root, and no part of it may be hidden: a link must not reveal a hidden file.

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
        hidden: Whether files and directories whose names begin with a dot are also offered.
        leave_out: Returns whether a file or a directory of this name is excluded; None excludes no other.
    """

    def __init__(self, root: Path, *, hidden: bool = False, leave_out: Callable[[str], bool] | None = None) -> None:
        self.root = root
        self._hidden = hidden
        self._leave_out = leave_out

    def files(self, below: Path | None = None) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the readable files that have a URI, without those that vanish or become forbidden meanwhile."""
        for path, about in self.children(below or self.root):
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
            # a name that is not Unicode is not printable either
            if not self._shown(entry.name) or not entry.name.isprintable():
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield path, None
            elif (about := self._regular(path)) is not None:
                yield path, about[1]

    def find(self, path: str) -> Path | None:
        """Return the real path of the file at a relative path, behind symbolic links; None if it is not offered."""
        if not all(map(self._shown, path.split("/"))):
            return None
        # a stream of NTFS
        if os.name == "nt" and ":" in path:
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
        except (OSError, ValueError, RuntimeError):
            # no such file, a name that no system accepts, or a circle of links
            return None
        if not real.is_relative_to(self.root) or not stat.S_ISREG(about.st_mode):
            return None
        if all(map(self._shown, real.relative_to(self.root).parts)):
            return (real, about)
        return None


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function that reads files in a worker thread."""
    # imported late, because it takes 15 ms: a server is often made without being run
    from anyio import to_thread

    return await to_thread.run_sync(function, abandon_on_cancel=True)
