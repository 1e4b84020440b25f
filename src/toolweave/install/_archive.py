"""A zip archive of a stranger's, unpacked within bounds.

All members are checked before any is read, and their content is counted as it inflates.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from toolweave.errors import RegistryError
from toolweave.install._records import shown

MAX_MEMBERS = 50_000
MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
_MAX_DEPTH = 40
_MAX_NAME = 1_000
_MAX_PART_BYTES = 255  # of the name of a file or a folder, on most systems
_PIECE = 256 * 1024
_ENCRYPTED = 0x1
_MAX_DIRECTORY_BYTES = 8 * 1024 * 1024
_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x07"
_END_BYTES = 22
_LOCATOR_BYTES = 20
_MAX_COMMENT = 65_535
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class BundleArchive:
    """The members of an archive, all of them checked before any is read.

    Raises:
        RegistryError: The data is not a zip archive, or has a member that is refused: a link or a device, a path that
            leads elsewhere, an encrypted one, a name that is there twice, or too many.
    """

    def __init__(self, data: bytes) -> None:
        _check_directory(data)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, RecursionError) as exc:
            raise RegistryError(f"the bundle is not a zip archive: {shown(str(exc))}") from None
        members = self._zip.infolist()
        if len(members) > MAX_MEMBERS:
            raise RegistryError(f"the bundle has {len(members):,} members; at most {MAX_MEMBERS:,} are allowed")
        self._files = _checked_files(members)

    def __contains__(self, path: str) -> bool:
        """Return whether there is a file at a path, with slashes."""
        return PurePosixPath(path) in self._files

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return a file.

        Raises:
            RegistryError: The file does not exist, is damaged, or is larger than `max_bytes`.
        """
        member = self._files.get(PurePosixPath(path))
        if member is None:
            raise RegistryError(f"the bundle has no file {path!r}")
        found = bytearray()
        for piece in self._pieces(member):
            found += piece
            if len(found) > max_bytes:
                raise RegistryError(f"{path!r} in the bundle is larger than {max_bytes:,} bytes")
        return bytes(found)

    def unpack(self, folder: Path) -> None:
        """Unpack all files into a new folder, as a whole or not at all.

        Raises:
            RegistryError: A file is damaged, or all together are too large.
            OSError: The folder cannot be written.
        """
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _new_folder(folder) as made:
            left = MAX_UNPACKED_BYTES
            for path, member in self._files.items():
                target = made.joinpath(*path.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                # Nothing else of the mode is the publisher's to give, such as setuid or write access for all.
                is_executable = (member.external_attr >> 16) & 0o111
                mode = 0o755 if is_executable else 0o644
                left -= self._write(member, target, mode, left)

    def _write(self, member: zipfile.ZipInfo, target: Path, mode: int, max_bytes: int) -> int:
        # The sizes in the archive's directory are the publisher's: only the written bytes count.
        size = 0
        # exclusive: nothing that is there is written over, and no link is followed
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            for piece in self._pieces(member):
                size += len(piece)
                if size > max_bytes:
                    raise RegistryError(f"the bundle is larger than {MAX_UNPACKED_BYTES:,} bytes when it is unpacked")
                file.write(piece)
        return size

    def _pieces(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        try:
            with self._zip.open(member) as file:
                while piece := file.read(_PIECE):
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as exc:
            name = shown(member.filename)
            raise RegistryError(f"the file {name!r} in the bundle is damaged: {shown(str(exc))}") from None


@contextmanager
def _new_folder(folder: Path) -> Generator[Path]:
    """Make a folder beside another, which it replaces at the end; after an error it is deleted."""
    # Beside it, so that `replace` stays on one file system. Two programs at once each have a folder of their own, and
    # the one that is later fails or wins as a whole: a mixture of two bundles is impossible.
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield made
        if folder.exists():
            shutil.rmtree(folder)
        made.replace(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _checked_files(members: Iterable[zipfile.ZipInfo]) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """Return the files of an archive by their paths, once all members were checked."""
    files: dict[PurePosixPath, zipfile.ZipInfo] = {}
    seen: set[str] = set()
    for member in members:
        path = _path_of(member)
        _check(member)
        if member.is_dir():
            continue
        folded = str(path).casefold()  # the same file on some systems
        if folded in seen:
            raise RegistryError(f"the bundle has the file {shown(str(path))!r} twice")
        seen.add(folded)
        files[path] = member
    for path in files:
        if not files.keys().isdisjoint(path.parents):
            raise RegistryError(f"the bundle has the file {shown(str(path))!r} inside of a file")
    return files


def _check_directory(data: bytes) -> None:
    """Bound the list of members before it is read: a value is made of each (APPNOTE.TXT of PKWARE, 4.3.16).

    Raises:
        RegistryError: The list has no end or is too long, or the archive is of the 64-bit kind.
    """
    # The last one, as `zipfile` finds it: any other would have this check judge another list.
    end = data.rfind(_END, max(0, len(data) - _END_BYTES - _MAX_COMMENT))
    is_cut_off = len(data) - end < _END_BYTES
    if end < 0 or is_cut_off:
        raise RegistryError("the bundle is not a zip archive, or it was cut off")
    # The 64-bit kind has the size of its list elsewhere, where this bound would not see it.
    if _END_64 in data[max(0, end - _LOCATOR_BYTES) :]:
        raise RegistryError("the bundle is a 64-bit zip archive, which one of its size need not be")
    if int.from_bytes(data[end + 12 : end + 16], "little") > _MAX_DIRECTORY_BYTES:
        raise RegistryError(f"the bundle has a list of members of more than {_MAX_DIRECTORY_BYTES:,} bytes")


def _path_of(member: zipfile.ZipInfo) -> PurePosixPath:
    """Return the path of a member inside.

    Raises:
        RegistryError: The path leads elsewhere, or cannot exist on every system.
    """
    # `filename` ends at a NUL, and has other separators on other systems
    name = member.orig_filename
    path = PurePosixPath(name)
    if _leads_out(path, name) or not _is_portable(path, name):
        raise RegistryError(f"the bundle has a member {shown(name)!r}, which is not a path inside of it")
    return path


def _leads_out(path: PurePosixPath, name: str) -> bool:
    """Return whether a path may lead out of its folder, on any system: a drive or a backslash does on Windows."""
    if path.is_absolute() or ".." in path.parts:
        return True
    return re.search(r"[\\:]", name) is not None


def _is_portable(path: PurePosixPath, name: str) -> bool:
    """Return whether every system can have a file of this path."""
    if not 0 < len(path.parts) <= _MAX_DEPTH:
        return False
    if len(name) > _MAX_NAME or not name.isprintable():
        return False
    return all(len(part.encode("utf-8", "surrogatepass")) <= _MAX_PART_BYTES for part in path.parts)


def _check(member: zipfile.ZipInfo) -> None:
    name = shown(member.orig_filename)
    kind = stat.S_IFMT(member.external_attr >> 16)
    # 0 is in archives that were made on Windows.
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise RegistryError(f"the bundle has a link or a device, {name!r}; only files and folders are unpacked")
    if member.flag_bits & _ENCRYPTED:
        raise RegistryError(f"the file {name!r} in the bundle is encrypted")
    if member.compress_type not in _METHODS:
        raise RegistryError(f"the file {name!r} in the bundle is compressed in a way that is not known here")
