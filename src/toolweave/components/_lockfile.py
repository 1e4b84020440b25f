"""`toolweave-components.lock`: the components copied into a project, with version, texts and their hashes.

The texts are the base of a three-way merge: without them a person's change could not be distinguished from the
catalog's. They are checked against their hashes, so that a badly merged lock changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

from toolweave.components._json_files import dump, members, read
from toolweave.components._paths import is_portable
from toolweave.errors import ConfigError

LOCK = "toolweave-components.lock"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedComponent:
    """One component as it was copied.

    Attributes:
        version: Version of Toolweave that its text is from.
        files: The text of each file, by its path in the component's folder.
    """

    version: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockFile:
    """All components as they were copied."""

    components: Mapping[str, CopiedComponent] = field(default_factory=dict[str, CopiedComponent])

    @classmethod
    def parse(cls, data: bytes | None) -> LockFile:
        """Read the file's bytes, None for no file.

        Raises:
            ConfigError: It is not a lock, it is of a newer version, or a text does not have its hash.
        """
        document = read(data, LOCK)
        if document.get("version", _FORMAT) != _FORMAT:
            message = f"format {document['version']!r} is not known here; a newer toolweave may have written it"
            raise ConfigError(message, path=LOCK)
        entries = members(document.get("components", {}), LOCK, "'components'")
        return cls(components={name: _copied(name, entry) for name, entry in entries.items()})

    def with_component(self, name: str, copied: CopiedComponent | None) -> LockFile:
        """Return the lock with this entry for a component; None, or no files, removes it."""
        components = {**self.components, name: copied}
        return LockFile(
            components={key: value for key, value in components.items() if value is not None and value.files}
        )

    def dump(self) -> bytes | None:
        """Return the file's bytes; None for no file, when nothing was copied."""
        if not self.components:
            return None
        entries = {
            name: {"version": copied.version, "files": {path: _entry(text) for path, text in copied.files.items()}}
            for name, copied in sorted(self.components.items())
        }
        return dump({"version": _FORMAT, "components": entries})


def hash_of(text: str) -> str:
    """Return the SHA-256 of a text as hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def _entry(text: str) -> dict[str, Any]:
    return {"sha256": hash_of(text), "original": text.split("\n")}


def _copied(name: str, value: Any) -> CopiedComponent:
    entry = members(value, LOCK, f"component {name!r}")
    files = members(entry.get("files", {}), LOCK, f"'files' of component {name!r}")
    return CopiedComponent(
        version=str(entry.get("version", "")),
        files={path: _original(name, path, file) for path, file in files.items()},
    )


def _original(name: str, path: str, value: Any) -> str:
    file = members(value, LOCK, f"file {path!r} of component {name!r}")
    lines = file.get("original")
    if isinstance(lines, list):
        text = "\n".join(map(str, cast("list[Any]", lines)))
    else:
        text = ""
    if not is_portable(path) or not _has_hash(text, file.get("sha256")):
        hint = "restore the lock from your version control, or delete it and run `toolweave components update`"
        raise ConfigError(f"file {path!r} of component {name!r} does not have its hash; {hint}", path=LOCK)
    return text


def _has_hash(text: str, digits: object) -> bool:
    try:
        return hash_of(text) == digits
    except UnicodeEncodeError:
        return False
