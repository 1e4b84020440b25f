"""A folder as parts of a server: `folder`, and functions that join its parts with the other parts of the server."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

from toolweave._files import is_directory
from toolweave.protocol.skills import SKILL_MANIFEST
from toolweave.serve._folder.prompt_files import PromptFolder
from toolweave.serve._folder.python_files import python_parts
from toolweave.serve._offers.files import Directory
from toolweave.serve._offers.prompts import FunctionPrompt, PromptLike, PromptSource
from toolweave.serve._offers.resources import FunctionResource, ResourceLike, ResourceSource
from toolweave.serve._offers.skill_folder import SkillFolder
from toolweave.tools import FunctionTool, Tool, Toolset, ToolSource
from toolweave.tools.sources import UnopenedTools

_log = logging.getLogger("toolweave.serve")

_RESOURCES_URI = "resource://"


@final
class ServedFolder:
    """The parts of a server that the files of a folder are, as made by `folder`.

    Attributes:
        root: The folder, resolved.
        tools: The functions under `@tool`, or the public functions if the folder has nothing else.
        prompts: The functions under `@prompt`, and the Markdown files of `prompts/`.
        resources: The functions under `@resource` and `@skill`, the files of `resources/`, and the skills of `skills/`.
    """

    def __init__(self, root: Path, uri: str) -> None:
        self.root = root
        python = python_parts(root)
        self._problems = python.problems
        self.tools: Sequence[FunctionTool[..., Any]] = tuple(python.tools)
        self._prompt_files, files, self._skills = self._sources(uri, {prompt.name for prompt in python.prompts})
        self.prompts: Sequence[FunctionPrompt[..., Any] | PromptSource] = (*python.prompts, *self._prompt_files)
        self.resources: Sequence[FunctionResource[..., Any] | ResourceSource] = (
            *python.resources,
            *files,
            *self._skills,
        )
        # Only then: in a folder with decorated functions, the public ones beside them are helpers.
        if self.empty and python.modules:
            python.add_plain_functions()
            self.tools = tuple(python.tools)
        for problem in self._problems:
            _log.warning("%s", problem)

    def _sources(
        self, uri: str, prompts: Iterable[str]
    ) -> tuple[Sequence[PromptFolder], Sequence[Directory], Sequence[SkillFolder]]:
        """Return the sources of the folders `prompts/`, `resources/` and `skills/`, if they have any file."""
        markdown: list[PromptFolder] = []
        files: list[Directory] = []
        skills: list[SkillFolder] = []
        path = self._below("prompts")
        if path is not None:
            source = PromptFolder(path, taken=frozenset(prompts))
            if not source.empty:
                markdown.append(source)
        path = self._below("resources")
        if path is not None:
            directory = Directory(path, uri, leave_out=_is_code)
            if not directory.empty:
                files.append(directory)
        path = self._below("skills")
        if path is not None:
            folder = SkillFolder(path, prefix="", hidden=False)
            if folder.found() or folder.problems:
                skills.append(folder)
        return markdown, files, skills

    def _below(self, name: str) -> Path | None:
        """Return the folder of this name, if it exists and does not lead out."""
        # Resolved first, so that a symbolic link is judged by where it leads.
        path = (self.root / name).resolve()
        if not is_directory(path):
            return None
        if path.is_relative_to(self.root):
            return path
        self._problems.append(f"folder {name!r} is left out: it leads out of {self.root.name!r}")
        return None

    @property
    def problems(self) -> Sequence[str]:
        """The files that are not offered now, each with the reason."""
        found = list(self._problems)
        for source in (*self._prompt_files, *self._skills):
            found += source.problems
        return tuple(found)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to offer."""
        if self.tools:
            return False
        return not any(map(_offers, (*self.prompts, *self.resources)))

    def __repr__(self) -> str:
        return f"<ServedFolder {str(self.root)!r}, {len(self.tools)} tools, {len(self.problems)} problems>"


FolderLike: TypeAlias = str | os.PathLike[str] | ServedFolder
"""The values that `folder=` of a server accepts."""


def folder(path: str | os.PathLike[str], *, uri: str = _RESOURCES_URI) -> ServedFolder:
    r"""Return the files of a folder as parts of a server; pass it to `create_mcp_server(folder=...)`.

    - `*.py`, in the folder itself and below `tools/`, `prompts/` and `resources/`: functions under `@tool`, `@prompt`,
      `@resource` and `@skill`. The folder is one package: its files import one another by `from .other import name`.
      Names that begin with `_` or `test_`, `conftest.py` and `setup.py` are ignored. If nothing in the folder
      is decorated, and it offers nothing else, the public functions of these files are tools.
    - `prompts/**/*.md`: prompts. The frontmatter has `name`, `title`, `description`, `tags` and `arguments`;
      `{{name}}` in the text is replaced by an argument.
    - `resources/**`: every other file, as text or bytes by its media type, up to 32 MiB.
    - `skills/**/SKILL.md`: skills, as in `skills`.

    Python is imported now, other files are read when they are requested. Nothing outside the folder is read, through
    any URI or symbolic link, and nothing whose name begins with a dot. A file with a fault is not offered, and the log
    and `problems` have the reason.

    Args:
        path: The folder.
        uri: The prefix of the URIs of files in `resources/`.

    Raises:
        NotADirectoryError: The path is not a folder.
        ValueError: It has nothing to offer, or each file has a fault, which the error names.
    """
    root = Path(path).resolve()
    if not is_directory(root):
        raise NotADirectoryError(f"{str(path)!r} is not a folder, so its files cannot be served")
    made = ServedFolder(root, uri)
    if made.empty:
        faults = "".join(f"\n- {problem}" for problem in made.problems)
        raise ValueError(
            f"there is nothing to serve in {str(path)!r}: no Python file with public functions, no "
            f"prompts/*.md, no file in resources/, no skills/*/{SKILL_MANIFEST}{faults}"
        )
    return made


def parts_of(given: FolderLike | None) -> ServedFolder | None:
    """Return the parts of the folder of a server, or None for a server without a folder.

    Raises:
        NotADirectoryError, ValueError: As `folder`.
    """
    if given is None or isinstance(given, ServedFolder):
        return given
    return folder(given)


def joined_tools(given: ToolSource, parts: ServedFolder | None) -> ToolSource:
    """Return the tools of a server with those of a folder."""
    if parts is None or not parts.tools:
        return given
    if isinstance(given, (Toolset, UnopenedTools, Tool)) or callable(given):
        return [given, *parts.tools]
    return [*given, *parts.tools]


def joined_prompts(given: PromptLike | None, parts: ServedFolder | None) -> PromptLike:
    """Return the prompts of a server with those of a folder."""
    if given is None:
        given = ()
    if parts is None:
        return given
    if isinstance(given, PromptSource):
        return [given, *parts.prompts]
    return [*given, *parts.prompts]


def joined_resources(given: ResourceLike | None, parts: ServedFolder | None) -> ResourceLike:
    """Return the resources of a server with those of a folder."""
    if given is None:
        given = ()
    if parts is None:
        return given
    if isinstance(given, ResourceSource):
        return [given, *parts.resources]
    return [*given, *parts.resources]


def _offers(part: object) -> bool:
    """Return whether a part of a folder offers anything now."""
    if isinstance(part, (PromptFolder, SkillFolder)):
        return bool(part.found())
    return True


def _is_code(name: str) -> bool:
    """Return whether a name is that of a Python file, or of a compiled one."""
    return name == "__pycache__" or name.lower().endswith((".py", ".pyc", ".pyo"))
