"""The catalog: the components that this version of Toolweave offers, as texts. Knows no project.

Each is a folder below `catalog/` with its files and a `component.toml` that describes it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from toolweave.errors import ConfigError
from toolweave.version import VERSION

__all__ = ["Component", "component", "component_names"]

_ABOUT = "component.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Source code that a project can have as its own.

    Attributes:
        name: Its name, such as `mcp-server`.
        folder: Its default folder, which is a Python package: `mcp_server`.
        description: One sentence for people.
        version: Version of Toolweave that it came with.
        usage: Command lines to begin with; `{module}` stands for the package's dotted name.
        reads: Config file that it needs to run, or None.
        files: The text of each file, by its path in the folder.
    """

    name: str
    folder: str
    description: str
    version: str
    usage: tuple[str, ...]
    reads: str | None
    files: Mapping[str, str]


def component_names() -> list[str]:
    """Return the names of all components, sorted."""
    catalog = files("toolweave.components") / "catalog"
    folders = [entry.name for entry in catalog.iterdir() if (entry / _ABOUT).is_file()]
    return sorted(name.replace("_", "-") for name in folders)


def component(name: str) -> Component:
    """Return a component.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in component_names():
        raise ConfigError(f"there is no component {name!r}; there are {', '.join(component_names())}")
    folder = name.replace("-", "_")
    source = files("toolweave.components") / "catalog" / folder
    about = tomllib.loads((source / _ABOUT).read_text("utf-8"))
    return Component(
        name=name,
        folder=folder,
        description=about["description"],
        version=VERSION,
        usage=tuple(about["usage"]),
        reads=about.get("reads"),
        files={path: (source / path).read_text("utf-8") for path in about["files"]},
    )
