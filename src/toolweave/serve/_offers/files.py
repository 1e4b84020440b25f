"""The files below a directory as resources, and nothing outside it.

Independent of the server: provides definitions and contents.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from toolweave._files import is_directory
from toolweave._option_checks import COUNT, FLAG, check_kinds
from toolweave.errors import ToolError
from toolweave.protocol.server_features import Resource, ResourceTemplate, definition
from toolweave.serve._offers.conversion import resource_contents
from toolweave.serve._offers.folder import Folder, in_thread
from toolweave.serve._offers.resources import ResourcesChanged
from toolweave.serve._offers.templates import Template
from toolweave.serve.request import Json
from toolweave.tools import CallContext, File, Unsubscribe
from toolweave.tools.media import named_type

MAX_FILES = 10_000
"""Maximum number of listed files, by default."""


def directory(
    path: str | os.PathLike[str],
    *,
    uri: str | None = None,
    description: str = "",
    hidden: bool = False,
    max_files: int = MAX_FILES,
) -> Directory:
    """Return the files below a directory, subdirectories included, as resources; pass it to `resources=`.

    A URI that leads out of the directory names no resource: no `..` in any encoding, no absolute path, no drive, no
    symbolic link that leads out. Only regular files are read.

    Args:
        path: The directory.
        uri: The prefix of the URIs, such as `"docs://"`; the directory's `file://` URI by default.
        description: The description of the template for all files.
        hidden: Whether files and directories whose names begin with a dot are also offered.
        max_files: Maximum number of listed files; others can be read nevertheless.

    Raises:
        NotADirectoryError: The path is not a directory.
        TypeError: An option has another type.
    """
    check_kinds({"hidden": hidden, "max_files": max_files}, {"hidden": FLAG, "max_files": COUNT}, owner="directory")
    root = Path(path).resolve()
    if not is_directory(root):
        raise NotADirectoryError(f"{str(path)!r} is not a directory, so its files cannot be offered as resources")
    return Directory(root, uri or f"{root.as_uri()}/", description=description, hidden=hidden, max_files=max_files)


class Directory:
    """The files of a directory, as made by `directory`; a `ResourceSource`."""

    def __init__(
        self,
        root: Path,
        uri: str,
        *,
        description: str = "",
        hidden: bool = False,
        max_files: int = MAX_FILES,
        leave_out: Callable[[str], bool] | None = None,
    ) -> None:
        self._folder = Folder(root, hidden=hidden, leave_out=leave_out)
        self._uri = uri
        self._template = Template(f"{uri}{{+path}}")
        self._description = description
        self._max_files = max_files

    @property
    def empty(self) -> bool:
        """Whether no file is offered now."""
        return next(self._folder.files(), None) is None

    async def resources(self) -> Sequence[Json]:
        """Return a definition for each file, in the order of their names."""
        return await in_thread(self._list)

    async def templates(self) -> Sequence[Json]:
        """Return the template for all files."""
        name = self._folder.root.name or "files"
        return (
            definition(ResourceTemplate(uri_template=self._template.text, name=name, description=self._description)),
        )

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Return the content of a file; None for a URI that names no file below the directory."""
        found = self._template.match(uri)
        if found is None:
            return None
        return await in_thread(functools.partial(self._read, uri, found["path"]))

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Do nothing: files are not watched."""
        return lambda: None

    def _list(self) -> Sequence[Json]:
        return [self._entry(file, about) for file, about in islice(self._folder.files(), self._max_files)]

    def _entry(self, file: Path, about: os.stat_result) -> Json:
        name = file.relative_to(self._folder.root).as_posix()
        changed = datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
        return definition(
            Resource(
                uri=f"{self._uri}{quote(name)}",
                name=name,
                mime_type=named_type(file),
                size=about.st_size,
                annotations={"lastModified": changed},
            )
        )

    def _read(self, uri: str, path: str) -> Json | None:
        found = self._folder.find(path)
        if found is None:
            return None
        try:
            return {"contents": resource_contents(File(found), uri=uri, mime_type=None)}
        except OSError as exc:
            # without the path, which clients must not learn
            raise ToolError(f"it cannot be read: {exc.strerror}") from None
