"""The metadata of a package that depend on where its repository is: links of the project, and of its README."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)(?P<path>[^)\s]+)")


class RepositoryMetadata(MetadataHookInterface):
    """Links to REPO_URL, so that they work on an index page; without the variable there are none."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README, and the URLs of the project if REPO_URL is set."""
        repository = os.environ.get("REPO_URL", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository:
            text = _RELATIVE.sub(lambda match: f"{repository}/{_view(match['path'])}/{match['path']}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = _urls(repository) if repository else {}


def _view(path: str) -> str:
    """Return the part of a repository's address that shows a page, or that is the picture itself."""
    is_picture = path.endswith((".svg", ".png"))
    return "raw/main" if is_picture else "blob/main"


def _urls(repository: str) -> dict[str, str]:
    """Return the links of a project."""
    return {
        "Homepage": os.environ.get("SITE_URL", repository),
        "Documentation": os.environ.get("SITE_URL", f"{repository}/tree/main/docs"),
        "Source": repository,
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
