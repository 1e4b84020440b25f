"""The project config files that the user trusts to start their servers, by path and content.

A config file that is found in a folder may have come with a checkout, and its servers are programs that run with the
user's rights. Check `TrustedFiles` before starting what `default_config` found, as the `toolweave` command does.
Does not prompt and starts nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from toolweave._files import read_file
from toolweave._json_types import object_or_empty, text_entries
from toolweave.config._loaded import PROJECT, LoadedConfig, LoadedFile

__all__ = ["TrustedFiles", "write_privately"]

_ANYWHERE = "*"
_MAX_CONTENTS_PER_FILE = 20
_MAX_FILES = 5_000
_MAX_BYTES = 10_000_000


class TrustedFiles:
    """The trusted project files, recorded in one file of the user's.

    A file is trusted with the content it has now: each change of its server entries has to be trusted again.
    Several contents of a file are remembered, so that changing branches does not ask again. The digest is that of the
    content that was loaded, not that of the file at the moment of the question, so that nobody can exchange the file in
    between.

    Args:
        path: The file of the records; by default `trusted.json` in the user's state folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file of the records."""
        if self._path is None:
            from platformdirs import user_state_path  # only where it is asked for

            self._path = user_state_path("toolweave", appauthor=False) / "trusted.json"
        return self._path

    def untrusted(self, loaded: LoadedConfig, names: Iterable[str] | None = None) -> list[LoadedFile]:
        """Return the project files that are not trusted yet, of those that hold one of these servers.

        Args:
            loaded: The config that was found.
            names: The servers that are to start; all of them when None.
        """
        wanted = set(loaded.servers if names is None else names)
        ready = [entry for entry in loaded.entries if entry.status == "ready"]
        holding = {entry.path for entry in ready if entry.name in wanted}
        found: list[LoadedFile] = []
        for file in loaded.files:
            # The user's own files need no question: who can write these can start programs anyway.
            is_project_file = file.kind == PROJECT and file.path in holding
            if is_project_file and not self.trusts(file):
                found.append(file)
        return found

    def trusts(self, file: LoadedFile) -> bool:
        """Return whether a file is trusted with the content it had when it was loaded."""
        known = self._read()
        return file.digest in known.get(_key(file.path), ()) or file.digest in known.get(_ANYWHERE, ())

    def trust(self, file: LoadedFile) -> None:
        """Trust a file with the content it had when it was loaded.

        Raises:
            OSError: The record cannot be written.
        """
        self._remember(_key(file.path), file.digest)

    def trust_content(self, digest: str) -> None:
        """Trust a content in any file, such as one that we wrote ourselves.

        Raises:
            OSError: The record cannot be written.
        """
        self._remember(_ANYWHERE, digest)

    def _remember(self, key: str, digest: str) -> None:
        known = self._read()
        # Newest last among the files and first among the contents of one: the oldest of both are forgotten.
        # Two programs that write at once lose one of the answers, and the user is asked again. Neither can make the
        # record unreadable, since it is replaced as a whole.
        others = [other for other in known.pop(key, []) if other != digest]
        kept = dict([*known.items()][-_MAX_FILES:])
        kept[key] = [digest, *others][:_MAX_CONTENTS_PER_FILE]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_privately(self.path, json.dumps({"files": kept}, indent=1).encode())

    def _read(self) -> dict[str, list[str]]:
        """Return the recorded digests by path; none if the file cannot be read, so that the user is asked again."""
        try:
            record = json.loads(read_file(self.path, max_bytes=_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        known: dict[str, list[str]] = {}
        for path, digests in object_or_empty(object_or_empty(record).get("files")).items():
            known[path] = text_entries(digests)
        return known


def write_privately(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file as a whole or not at all, readable by its owner alone unless `mode` says otherwise.

    Raises:
        OSError: It cannot be written; the previous file is unchanged.
    """
    import tempfile  # it loads every codec of archives, and hardly any run writes a file

    # In the same folder, because a rename is atomic only within one file system. `mkstemp` makes it readable by its
    # owner alone from the start, so there is no moment in which another user could open it. Synced before the rename:
    # after a power failure there is the old content or the new one, never an empty file.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _key(path: Path) -> str:
    # Where the file really is: a link that leads to another file later does not take the trust along.
    return str(path.resolve())
