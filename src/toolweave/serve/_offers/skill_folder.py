"""The skills below a directory: each folder with a `SKILL.md` is one, wherever it is (SEP-2640).

Only files in the entry of a served skill can be read, and nothing else of the directory.
"""

# Nothing is watched: each request reads the directory again, so a change is visible at once. To read the files of all
# skills for each list would be slow, so the digest of a file is cached with its stamp (times and size), and the
# frontmatter with the digest of its text. A URI is served only in the one form that `_uri` makes of its path, so no
# other spelling, encoding or separator can lead out of the directory.

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

from toolweave._files import is_directory
from toolweave.config._frontmatter import split_frontmatter
from toolweave.errors import ToolError
from toolweave.protocol.server_features import Resource, ResourceTemplate, definition
from toolweave.protocol.skills import (
    DIRECTORY_TYPE,
    MARKDOWN_TYPE,
    MAX_SKILL_BYTES,
    MAX_SKILL_FILES,
    SKILL_MANIFEST,
    Skill,
    SkillFile,
    content_digest,
    read_skill,
)
from toolweave.serve._offers.conversion import resource_contents
from toolweave.serve._offers.folder import FileStamp, Folder, in_thread
from toolweave.serve._offers.resources import ResourcesChanged
from toolweave.serve.request import Json
from toolweave.tools import CallContext, File, Unsubscribe
from toolweave.tools.media import named_type

_log = logging.getLogger("toolweave.serve")
_SCHEME = "skill://"
_MAX_MANIFEST = 1024 * 1024


def skills(path: str | os.PathLike[str], *, prefix: str = "", hidden: bool = False) -> SkillFolder:
    """Return the skills below a directory; pass them to `resources=`.

    The directory is a skill itself, or contains skills at any depth. `billing/refunds/SKILL.md` has the URI
    `skill://billing/refunds/SKILL.md`; the name in its frontmatter must be the name of its folder, `refunds`. A skill
    inside the folder of another one is a separate skill, and its files belong to both. Files are read when a client
    requests them, so changes are visible at once. A skill with a fault is not offered, and the log has the reason.

    Only the files of skills are read: no `..` in any encoding, no symbolic link that leads out of the directory.

    Args:
        path: The directory.
        prefix: Segments before each path, such as `"acme/billing"`.
        hidden: Whether files and folders whose names begin with a dot are also offered.

    Raises:
        NotADirectoryError: The path is not a directory.
        ValueError: No skill is below it, or each has a fault, which the error names.
    """
    root = Path(path).resolve()
    if not is_directory(root):
        raise NotADirectoryError(f"{str(path)!r} is not a directory, so it has no skills to be offered")
    made = SkillFolder(root, prefix=prefix, hidden=hidden)
    if not made.found():
        faults = "".join(f"\n- {one}" for one in made.problems)
        raise ValueError(f"no skill is below {str(path)!r}: no folder has a {SKILL_MANIFEST} that is valid{faults}")
    return made


class SkillFolder:
    """The skills of a directory, as made by `skills`; a `SkillSource`.

    Attributes:
        problems: The skills that are not offered now, with the reasons.
    """

    def __init__(self, root: Path, *, prefix: str, hidden: bool) -> None:
        self.problems: tuple[str, ...] = ()
        self._folder = Folder(root, hidden=hidden)
        self._prefix = tuple(filter(None, prefix.split("/")))
        if (root / SKILL_MANIFEST).is_file():
            self._prefix += (root.name,)
        self._files: dict[Path, tuple[FileStamp, SkillFile]] = {}
        self._frontmatters: dict[Path, tuple[str, Json]] = {}

    # a `SkillSource`

    async def skills(self) -> Sequence[Json]:
        """Return the entry of each skill, in the order of their paths."""
        return await in_thread(lambda: [skill.json() for skill in self.found()])

    async def skill(self, uri: str) -> Json | None:
        """Return the entry of the skill at a URI, or None."""
        found = await in_thread(partial(self._skill, uri))
        if found is None:
            return None
        return found.json()

    async def children(self, uri: str) -> Sequence[Json] | None:
        """Return the definitions of the direct children of a folder, or None where no skill is there."""
        return await in_thread(partial(self._children, uri))

    async def resources(self) -> Sequence[Json]:
        """Return the definition of the `SKILL.md` of each skill."""
        return await in_thread(lambda: [self._manifest(skill) for skill in self.found()])

    async def templates(self) -> Sequence[Json]:
        """Return the template for all files of skills."""
        path = "".join(f"{quote(part, safe='')}/" for part in self._prefix)
        about = "The files of skills; the manifest of each is listed."
        return (
            definition(ResourceTemplate(uri_template=f"{_SCHEME}{path}{{+path}}", name="skills", description=about)),
        )

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Return the content of a file of a skill; None for any other URI."""
        return await in_thread(partial(self._read, uri))

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Do nothing: files are not watched."""
        return lambda: None

    # URIs

    def _uri(self, path: Path) -> str:
        """Return the URI of a file or folder below the directory."""
        parts = (*self._prefix, *path.relative_to(self._folder.root).parts)
        return _SCHEME + "/".join(quote(part, safe="") for part in parts)

    def _path(self, uri: str) -> Path | None:
        """Return the path of a URI in the one form that is served, or None."""
        parts = tuple(map(unquote, uri.removeprefix(_SCHEME).split("/")))
        below = self._folder.root
        count = len(self._prefix)
        if parts[:count] != self._prefix or any(map(_is_unsafe, parts)):
            return None
        path = below.joinpath(*parts[count:])
        # a drive or a backslash leads out of the directory on Windows
        if path.is_relative_to(below) and self._uri(path) == uri:
            return path
        return None

    # the skills on disk

    def found(self) -> list[Skill]:
        """Return the skills that are served now; the faults of the others are in `problems`."""
        served = list[Skill]()
        problems = list[str]()
        for folder in self._candidates():
            try:
                served.append(self._entry(folder))
            except ValueError as exc:
                problems.append(f"skill {self._uri(folder / SKILL_MANIFEST)!r} is left out: {exc}")
            except OSError as exc:
                problems.append(f"skill {self._uri(folder / SKILL_MANIFEST)!r} is left out: {exc.strerror}")
        for problem in problems:
            # Once for each fault, as the directory is read for every list.
            if problem not in self.problems:
                _log.warning("%s", problem)
        self.problems = tuple(problems)
        return served

    def _candidates(self) -> Iterator[Path]:
        """Return the folders with a manifest."""
        for path, _ in self._folder.files():
            if path.name == SKILL_MANIFEST:
                yield path.parent

    def _skill(self, uri: str) -> Skill | None:
        """Return the skill whose manifest has this URI, if it is served."""
        path = self._path(uri)
        if path is None or path.name != SKILL_MANIFEST:
            return None
        try:
            return self._entry(path.parent)
        except (ValueError, OSError):
            return None

    def _entry(self, folder: Path) -> Skill:
        """Return the entry of the skill in a folder.

        Raises:
            ValueError: The folder has no valid skill, or it cannot be served.
            OSError: A file cannot be read.
        """
        files: list[SkillFile] = []
        size = 0
        for path, about in self._folder.files(folder):
            # Counted by the size on disk before a file is read: a skill that is too large costs no reading.
            size += about.st_size
            if len(files) == MAX_SKILL_FILES or size > MAX_SKILL_BYTES:
                limits = f"{MAX_SKILL_FILES} files and {MAX_SKILL_BYTES // 2**20} MiB"
                raise ValueError(f"it has more than {limits}, which hosts need not accept")
            files.append(self._file(path, about))
        uri = self._uri(folder / SKILL_MANIFEST)
        digest = next((file.digest for file in files if file.uri == uri), None)
        if digest is None:
            raise ValueError(f"it has no {SKILL_MANIFEST}")
        entry = {"uri": uri, "frontmatter": self._frontmatter(folder / SKILL_MANIFEST, digest), "resources": "dynamic"}
        return read_skill(entry).replace(files=tuple(files), raw={})

    def _file(self, path: Path, about: os.stat_result) -> SkillFile:
        """Return a file with the digest of its content, from the cache while it has not changed."""
        stamp = FileStamp.of(about)
        known = self._files.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        # the content may be newer than the stamp; it is then read once more the next time
        content = path.read_bytes()
        file = SkillFile(uri=self._uri(path), digest=content_digest(content), size=len(content))
        self._files[path] = stamp, file
        return file

    def _frontmatter(self, path: Path, digest: str) -> Json:
        known = self._frontmatters.get(path)
        if known is not None and known[0] == digest:
            return known[1]
        # Before it is read: the whole text is held and parsed, and the files of a folder may be of anybody.
        if path.stat().st_size > _MAX_MANIFEST:
            raise ValueError(f"its {SKILL_MANIFEST} is larger than {_MAX_MANIFEST // 2**20} MiB")
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            raise ValueError(f"its {SKILL_MANIFEST} is not UTF-8") from None
        frontmatter = split_frontmatter(text)[0]
        self._frontmatters[path] = digest, frontmatter
        return frontmatter

    def _of(self, path: Path) -> Iterator[Skill]:
        """Return the skills that a path is in, the innermost first."""
        for folder in (path, *path.parents):
            if not folder.is_relative_to(self._folder.root):
                return
            if (folder / SKILL_MANIFEST).is_file():
                found = self._skill(self._uri(folder / SKILL_MANIFEST))
                if found is not None:
                    yield found

    # answers

    def _manifest(self, skill: Skill) -> Json:
        path = self._path(skill.uri)
        annotations = None
        size = None
        if path is not None:
            about = path.stat()
            annotations = {"lastModified": _time(about)}
            size = about.st_size
        return definition(
            Resource(
                uri=skill.uri,
                name=skill.name,
                description=skill.description,
                mime_type=MARKDOWN_TYPE,
                size=size,
                annotations=annotations,
            )
        )

    def _children(self, uri: str) -> list[Json] | None:
        folder = self._path(uri)
        if folder is None or not folder.is_dir():
            return None
        # a folder above all skills has the files of all of them
        served: set[str] = set()
        for skill in list(self._of(folder)) or self.found():
            served.update(file.uri for file in skill.files or ())
        if not _has_below(served, uri):
            return None
        made: list[Json] = []
        for path, about in self._folder.children(folder):
            own = self._uri(path)
            if about is None:
                if _has_below(served, own):
                    made.append({"uri": own, "name": path.name, "mimeType": DIRECTORY_TYPE})
            elif own in served:
                entry = Resource(uri=own, name=path.name, mime_type=named_type(path), size=about.st_size)
                made.append(definition(entry))
        return made

    def _read(self, uri: str) -> Json | None:
        if not uri.startswith(_SCHEME):
            return None
        path = self._path(uri)
        if path is None or not any(skill.file(uri) for skill in self._of(path.parent)):
            return None
        # Resolved once more: a link in the path may have been changed to lead out of the directory.
        real = self._folder.find(path.relative_to(self._folder.root).as_posix())
        if real is None:
            return None
        kind = MARKDOWN_TYPE if path.name == SKILL_MANIFEST else None
        try:
            return {"contents": resource_contents(File(real, mime_type=kind), uri=uri, mime_type=None)}
        except OSError as exc:
            # without the path, which clients must not learn
            raise ToolError(f"it cannot be read: {exc.strerror}") from None


def _is_unsafe(part: str) -> bool:
    return part in ("", ".", "..") or "/" in part


def _has_below(uris: Iterable[str], folder: str) -> bool:
    return any(uri.startswith(f"{folder}/") for uri in uris)


def _time(about: os.stat_result) -> str:
    return datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
