"""A project and its components: reads the files, plans changes, and applies them.

The only module of the package that knows both the plans and the file system.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from toolweave._files import read_file
from toolweave.components._apply import FileChange, apply_changes
from toolweave.components._json_files import dump, members, read
from toolweave.components._lockfile import LOCK, CopiedComponent, LockFile
from toolweave.components._paths import is_portable, resolve_inside
from toolweave.components._plan import SIDE, FileStep, OnConflict, Plan, plan_add, plan_remove, plan_update, text_of
from toolweave.errors import ConfigError
from toolweave.version import VERSION

_ABOUT = "component.toml"
# Of a lock file or a manifest.
_MAX_BYTES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Source code that a project can have as its own.

    Attributes:
        name: Its name, such as `mcp-server`.
        folder: Its default folder, which is a Python package: `mcp_server`.
        description: One sentence for the reader of a list.
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
            ConfigError: It is not JSON, or a folder is not inside the project.
        """
        document = read(data, MANIFEST)
        folders: dict[str, str] = {}
        for name, entry in members(document.get("components", {}), MANIFEST, "'components'").items():
            folder: Any = members(entry, MANIFEST, f"component {name!r}").get("dir")
            if not isinstance(folder, str) or not is_portable(folder):
                message = f"component {name!r}: 'dir' is {folder!r}; a folder inside the project is expected"
                raise ConfigError(message, path=MANIFEST, field=f"components.{name}.dir")
            # One name for one folder: `./x/` is `x`.
            folders[name] = str(PurePosixPath(folder))
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
        if self.folders or other:
            return dump(dict(self.document))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentChange:
    """A planned change of one component of a project.

    Attributes:
        component: Its name.
        folder: Its folder, relative to the project.
        plan: The actions on its files.
        version: Its version in the lock afterwards; None removes it from the lock.
    """

    component: str
    folder: str
    plan: Plan
    version: str | None

    @property
    def refused(self) -> tuple[FileStep, ...]:
        """The files that prevent the plan from being applied; `Project.carry_out` takes no such job."""
        return self.plan.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """One file of a component: as copied, as in the project, as in the catalog.

    Attributes:
        path: Relative to the component's folder.
        original: The copied text, or None for a file that is new in the catalog.
        mine: The text in the project, with U+FFFD for bytes that are not UTF-8, or None when it is gone.
        catalog: The catalog's text, or None when it no longer has the file.
    """

    path: str
    original: str | None
    mine: str | None
    catalog: str | None

    @property
    def edited(self) -> bool:
        """Whether it was changed or deleted in the project."""
        return self.original is not None and self.mine != self.original

    @property
    def outdated(self) -> bool:
        """Whether the catalog has a newer text."""
        return self.catalog not in (self.original, self.mine)


class Project:
    """A folder with components in it.

    Attributes:
        root: The folder.
        manifest: Its components and their folders.
        lock: Their copied texts.
    """

    def __init__(self, root: Path) -> None:
        """Read a project.

        Raises:
            ConfigError: Its manifest or its lock is broken.
        """
        self.root = root
        self._manifest_bytes: bytes | None = self._bytes(MANIFEST)
        self._lock_bytes: bytes | None = self._bytes(LOCK)
        self.manifest: Manifest = Manifest.parse(self._manifest_bytes)
        self.lock: LockFile = LockFile.parse(self._lock_bytes)

    @classmethod
    def at(cls, start: Path) -> Project:
        """Return the project that a folder is in: the nearest one above with a manifest, else the folder itself.

        The search ends at the root of a repository.
        """
        start = start.resolve()
        for folder in (start, *start.parents):
            if (folder / MANIFEST).exists():
                return cls(folder)
            if (folder / ".git").exists():
                break
        return cls(start)

    # what there is

    def files(self, name: str) -> list[FileState]:
        """Return the state of every file of a component.

        Raises:
            ConfigError: The project does not have it.
        """
        folder = self._folder(name)
        original = self._originals(name)
        catalog = self._catalog(name)
        paths = list(dict.fromkeys((*catalog, *original)))
        disk = self._disk(folder, paths)
        states: list[FileState] = []
        for path in paths:
            mine = _shown(disk[path]) if path in disk else None
            states.append(FileState(path=path, original=original.get(path), mine=mine, catalog=catalog.get(path)))
        return states

    # what can be done

    def add(self, name: str, folder: Path | None = None, *, overwrite: bool = False) -> ComponentChange:
        """Plan the copy of a component into a folder of the project, by default a new one in `root`.

        Raises:
            ConfigError: There is no such component, it is in another folder, or the folder is not the project's or
                is another component's.
        """
        wanted = component(name)
        there = self.manifest.folders.get(name)
        if folder is not None:
            chosen = self._relative(folder)
        else:
            chosen = there or wanted.folder
        if there is not None and there != chosen:
            hint = f"`toolweave components remove {name}` first, or move the folder and say so in {MANIFEST}"
            raise ConfigError(f"component {name!r} is in {there!r} already; {hint}")
        others = [other for other, taken in self.manifest.folders.items() if taken == chosen and other != name]
        if others:
            raise ConfigError(f"component {others[0]!r} is in {chosen!r}; give {name!r} another folder")
        originals = self._originals(name)
        disk = self._disk(chosen, (*wanted.files, *originals))
        plan = plan_add(wanted.files, originals, disk, overwrite=overwrite)
        current = plan.originals == dict(wanted.files)
        copied = self.lock.components.get(name)
        # While one file has an older text, the component counts as the older version, so that an update brings the
        # rest.
        if current or copied is None:
            version = wanted.version
        else:
            version = copied.version
        return ComponentChange(component=name, folder=chosen, plan=plan, version=version)

    def update(self, name: str, *, on_conflict: OnConflict = "refuse") -> ComponentChange:
        """Plan the update of a component to the catalog's version.

        Raises:
            ConfigError: The project does not have it, or the catalog no longer does.
        """
        folder = self._folder(name)
        wanted = component(name)
        originals = self._originals(name)
        paths = dict.fromkeys((*wanted.files, *originals))
        disk = self._disk(folder, (*paths, *(path + SIDE for path in paths)))
        label = f"toolweave {wanted.version}"
        plan = plan_update(wanted.files, originals, disk, on_conflict=on_conflict, label=label)
        return ComponentChange(component=name, folder=folder, plan=plan, version=wanted.version)

    def remove(self, name: str, *, force: bool = False) -> ComponentChange:
        """Plan the removal of a component; changed files stay, in the lock too, unless `force`.

        Raises:
            ConfigError: The project does not have it.
        """
        folder = self._folder(name)
        copied = self.lock.components.get(name)
        if copied is None and name in component_names():
            # Without a lock, a file as in the catalog has no edit.
            copied = CopiedComponent(version=component(name).version, files=component(name).files)
        originals = dict(copied.files) if copied is not None else {}
        plan = plan_remove(originals, self._disk(folder, originals), force=force)
        if copied is not None and plan.originals:
            version = copied.version
        else:
            version = None
        return ComponentChange(component=name, folder=folder, plan=plan, version=version)

    def carry_out(self, *jobs: ComponentChange) -> None:
        """Apply planned changes, all of them or none, and update manifest and lock.

        Raises:
            ConfigError: A job is refused, a file changed meanwhile, or a path leads out of its folder.
            OSError: The file system refuses; everything is as before.
        """
        manifest = self.manifest
        lock = self.lock
        changes: list[FileChange] = []
        for job in jobs:
            if job.refused:
                raise ConfigError(f"component {job.component!r}: {job.refused[0].path}: {job.refused[0].why}")
            changes += self._changes(job)
            if job.version is None:
                copied = None
            else:
                copied = CopiedComponent(version=job.version, files=job.plan.originals)
            manifest = manifest.with_folder(job.component, job.folder if copied else None)
            lock = lock.with_component(job.component, copied)
        manifest_bytes = manifest.dump()
        lock_bytes = lock.dump()
        # Together with the manifest and the lock: without its lock, a copied file would look like one of the user's.
        apply_changes(
            [
                *changes,
                FileChange(path=self.root / MANIFEST, before=self._manifest_bytes, after=manifest_bytes),
                FileChange(path=self.root / LOCK, before=self._lock_bytes, after=lock_bytes),
            ]
        )
        _tidy([change.path for change in changes if change.after is None], keep=self.root)
        self.manifest = manifest
        self._manifest_bytes = manifest_bytes
        self.lock = lock
        self._lock_bytes = lock_bytes

    # inside

    def _changes(self, job: ComponentChange) -> list[FileChange]:
        folder = resolve_inside(self.root, job.folder, what="the folder")
        what = f"a file of component {job.component!r}"
        return [
            FileChange(path=resolve_inside(folder, step.path, what=what), before=step.before, after=step.after)
            for step in job.plan.writes
        ]

    def _folder(self, name: str) -> str:
        if name not in self.manifest.folders:
            have = ", ".join(sorted(self.manifest.folders)) or "none"
            if name in component_names():
                hint = f"; `toolweave add {name}` copies it"
            else:
                hint = ""
            raise ConfigError(f"component {name!r} is not in this project, which has {have}{hint}")
        return self.manifest.folders[name]

    def _originals(self, name: str) -> dict[str, str]:
        copied = self.lock.components.get(name)
        if copied is not None:
            return dict(copied.files)
        return {}

    def _catalog(self, name: str) -> dict[str, str]:
        found: Component | None = component(name) if name in component_names() else None
        if found is not None:
            return dict(found.files)
        return {}

    def _relative(self, folder: Path) -> str:
        try:
            relative = folder.resolve().relative_to(self.root.resolve()).as_posix()
        except ValueError:
            hint = f"run the command in the folder of the other project (the one with {MANIFEST} in it, if it has one)"
            raise ConfigError(f"{str(folder)!r} is not inside the project {str(self.root)!r}; {hint}") from None
        if not is_portable(relative):
            raise ConfigError(f"{str(folder)!r} cannot be the component's folder; name one below {str(self.root)!r}")
        return relative

    def _disk(self, folder: str, paths: Iterable[str]) -> dict[str, bytes]:
        root = resolve_inside(self.root, folder, what="the folder")
        found: dict[str, bytes] = {}
        for path in paths:
            file = resolve_inside(root, path, what="the file")
            if file.is_file():
                found[path] = file.read_bytes()
            elif file.exists():
                raise ConfigError(f"{str(file)!r} is not a file, and a component needs a file there")
        return found

    def _bytes(self, name: str) -> bytes | None:
        file = resolve_inside(self.root, name, what="the file")
        try:
            if file.exists():
                return read_file(file, max_bytes=_MAX_BYTES)
            return None
        except OSError as error:
            raise ConfigError(f"the file cannot be read: {error.strerror or error}", path=str(file)) from None


def _shown(data: bytes) -> str:
    text = text_of(data)
    if text is None:
        return data.decode(errors="replace")
    return text


def _tidy(deleted: list[Path], *, keep: Path) -> None:
    """Delete the bytecode of deleted files, and the folders that are empty then."""
    for path in deleted:
        for made in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            with suppress(OSError):  # deletes no user's file
                made.unlink()
    folders: set[Path] = set()
    for path in deleted:
        folders |= {path.parent / "__pycache__", path.parent}
    folders.discard(keep)
    for place in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        # Something else is in it, or there is none.
        with suppress(OSError):
            place.rmdir()
