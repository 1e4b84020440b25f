"""`toolweave-components.json`: the components of a project and their folders.

Written by the command; a person who moves a component's folder edits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from toolweave.components._json_files import dump, members, read
from toolweave.components._paths import is_portable
from toolweave.errors import ConfigError

__all__ = ["MANIFEST", "Manifest"]

MANIFEST = "toolweave-components.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The components of a project.

    Attributes:
        folders: The folder of each component by its name, relative to the project; `/` between the parts.
        document: The file's content, unknown members included.
    """

    folders: Mapping[str, str] = field(default_factory=dict[str, str])
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def parse(cls, data: bytes | None) -> Manifest:
        """Read the file's bytes, None for no file.

        Raises:
            ConfigError: It is no JSON, or a folder is not inside the project.
        """
        document = read(data, MANIFEST)
        folders: dict[str, str] = {}
        for name, entry in members(document.get("components", {}), MANIFEST, "'components'").items():
            folder: Any = members(entry, MANIFEST, f"component {name!r}").get("dir")
            if not isinstance(folder, str) or not is_portable(folder):
                message = f"component {name!r}: 'dir' is {folder!r}; a folder inside the project is expected"
                raise ConfigError(message, path=MANIFEST, field=f"components.{name}.dir")
            folders[name] = str(PurePosixPath(folder))  # one name for one folder: `./x/` is `x`
        return cls(folders=folders, document=document)

    def with_folder(self, name: str, folder: str | None) -> Manifest:
        """Return the manifest with a component in a folder; None removes the component."""
        entries: dict[str, Any] = dict(self.document.get("components", {}))
        folders = dict(self.folders)
        if folder is None:
            entries.pop(name, None)
            folders.pop(name, None)
        else:
            entries[name] = {**entries.get(name, {}), "dir": folder}
            folders[name] = folder
        return Manifest(folders=folders, document={**self.document, "components": entries})

    def dump(self) -> bytes | None:
        """Return the file's bytes; None for no file, when it has no content."""
        other = {key for key in self.document if key != "components"}
        return dump(dict(self.document)) if self.folders or other else None
