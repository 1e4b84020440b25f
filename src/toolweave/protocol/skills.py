"""Skills of a server (`io.modelcontextprotocol/skills`, SEP-2640): entries, names, URIs and digests; to and from JSON.

A skill is a folder of files with a `SKILL.md`, whose frontmatter names and describes it; each file is a resource. An
entry has the frontmatter of the file unchanged, and the digest and size of every file. Pure.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from toolweave._json_types import (
    Json,
    JsonObject,
    as_array,
    as_integer,
    as_object,
    as_sequence,
    as_text,
    new_object,
    object_or_empty,
)
from toolweave._value import Value
from toolweave.protocol.meta import SKILLS_EXTENSION

__all__ = [
    "DIRECTORY_TYPE",
    "MARKDOWN_TYPE",
    "MAX_SKILL_BYTES",
    "MAX_SKILL_FILES",
    "SKILL_MANIFEST",
    "Skill",
    "SkillFile",
    "content_digest",
    "name_problem",
    "read_skill",
    "same_value",
    "skill_settings",
    "skills_capability",
    "with_prefix",
]


SKILL_MANIFEST = "SKILL.md"
"""The file that makes a folder a skill."""
DIRECTORY_TYPE = "inode/directory"
"""The media type of a directory resource."""
MARKDOWN_TYPE = "text/markdown"
MAX_SKILL_FILES = 512
"""Files of one skill that every host accepts, the manifest included."""
MAX_SKILL_BYTES = 16 * 1024 * 1024
"""Bytes of all files of one skill that every host accepts."""

_DYNAMIC = "dynamic"
_DIRECTORY_READ = "directoryRead"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME = 64
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class SkillFile(Value, frozen=True, kw_only=True):
    """One file of a skill.

    Attributes:
        uri: Its resource URI.
        digest: The SHA-256 digest of its bytes, as `sha256:` and 64 hexadecimal digits.
        size: Its length in bytes.
    """

    uri: str
    digest: str
    size: int


class Skill(Value, frozen=True, kw_only=True):
    """The entry of a skill: all that is known of it before it is loaded. A server wrote it; it is untrusted.

    Attributes:
        uri: The URI of its `SKILL.md`, which identifies it at its server.
        frontmatter: The frontmatter of that file as JSON, as its author wrote it.
        files: All its files; None where they are made on demand, so that nothing can be verified.
        server: The server's name; empty in an entry that is served.
        raw: The entry as it came; empty for one that was made here.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"files", "raw"})
    uri: str
    frontmatter: JsonObject
    files: tuple[SkillFile, ...] | None
    server: str = ""
    raw: JsonObject = msgspec.field(default_factory=new_object)

    @property
    def name(self) -> str:
        """Its name, a label: two skills may have the same."""
        return str(self.frontmatter["name"])

    @property
    def description(self) -> str:
        """The description of its purpose."""
        return str(self.frontmatter["description"])

    @property
    def root(self) -> str:
        """The URI of its folder, without a slash at its end."""
        return self.uri.removesuffix(f"/{SKILL_MANIFEST}")

    @property
    def size(self) -> int | None:
        """The bytes of all its files; None where these are made on demand."""
        if self.files is None:
            return None
        return sum(file.size for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A digest of its identity, its frontmatter and its set of files: an approval of the skill is bound to it."""
        if self.files is None:
            files = None
        else:
            files = sorted((file.uri, file.digest) for file in self.files)
        parts = (self.server, self.uri, dict(self.frontmatter), files)
        return content_digest(msgspec.json.encode(parts, order="deterministic"))

    def file(self, uri: str) -> SkillFile | None:
        """Return the file of a URI, or None if the skill has no such file."""
        return next((file for file in self.files or () if file.uri == uri), None)

    def json(self) -> Json:
        """Return the entry as `skills/list` and `skills/get` have it; one that came from a server unchanged."""
        if self.raw:
            return dict(self.raw)
        if self.files is None:
            files = None
        else:
            files = [msgspec.to_builtins(file) for file in self.files]
        return {
            "uri": self.uri,
            "frontmatter": dict(self.frontmatter),
            "resources": _DYNAMIC if files is None else files,
        }


def content_digest(content: bytes) -> str:
    """Return the digest of a file as entries have it."""
    import hashlib  # 1 ms; skills are rare

    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def name_problem(name: object) -> str | None:
    """Return the fault of a skill's name by the rules of Agent Skills, or None."""
    text = as_text(name)
    if not text:
        return "its frontmatter has no 'name'"
    if len(text) > _MAX_NAME or not _NAME.fullmatch(text):
        return (
            f"its name {text[:80]!r} is not made of up to {_MAX_NAME} small letters, digits and single hyphens "
            "between them"
        )
    return None


def read_skill(entry: JsonObject, *, server: str = "") -> Skill:
    """Return the entry of a skill, checked as far as that goes without its files.

    Raises:
        ValueError: A host must not load the skill; the message names the fault.
    """
    uri = as_text(entry.get("uri"))
    frontmatter = as_object(entry.get("frontmatter"))
    if not uri or frontmatter is None:
        raise ValueError("it has no 'uri', or no object 'frontmatter'")
    problem = name_problem(frontmatter.get("name"))
    if problem is not None:
        raise ValueError(problem)
    if not as_text(frontmatter.get("description")):
        raise ValueError("its frontmatter has no 'description'")
    end = f"{frontmatter['name']}/{SKILL_MANIFEST}"
    if not uri.endswith(f"/{end}"):
        raise ValueError(f"its URI does not end with '{end}', the name in its frontmatter")
    skill = Skill(uri=uri, frontmatter=frontmatter, files=None, server=server, raw=entry)
    if entry.get("resources") == _DYNAMIC:
        return skill
    return skill.replace(files=_read_files(skill, entry.get("resources")))


def _read_files(skill: Skill, given: object) -> tuple[SkillFile, ...]:
    listed = as_array(given)
    if listed is None:
        raise ValueError(f"its 'resources' are neither a list nor {_DYNAMIC!r}")
    if len(listed) > MAX_SKILL_FILES:
        raise ValueError(f"it has {len(listed):,} files, more than the {MAX_SKILL_FILES} that a skill may have")
    files: dict[str, SkillFile] = {}
    for one in listed:
        file = _read_file(skill, object_or_empty(one))
        if file.uri in files:
            raise ValueError(f"it lists {file.uri!r} twice")
        files[file.uri] = file
    if skill.uri not in files:
        raise ValueError(f"its files lack {SKILL_MANIFEST} itself")
    if sum(file.size for file in files.values()) > MAX_SKILL_BYTES:
        raise ValueError(f"its files have more than {MAX_SKILL_BYTES // 2**20} MiB together")
    return tuple(files.values())


def _read_file(skill: Skill, file: JsonObject) -> SkillFile:
    uri = as_text(file.get("uri"))
    digest = as_text(file.get("digest"))
    size = as_integer(file.get("size"))
    if not uri or not uri.startswith(f"{skill.root}/"):
        raise ValueError(f"{uri!r} is not the URI of a file in its folder")
    if digest is None or not _DIGEST.fullmatch(digest):
        raise ValueError(f"the digest of {uri!r} is not 'sha256:' and 64 hexadecimal digits")
    if size is None or size < 0:
        raise ValueError(f"the size of {uri!r} is not a number of bytes")
    return SkillFile(uri=uri, digest=digest, size=size)


def same_value(one: object, other: object) -> bool:
    """Whether two JSON values are the same: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    mine = as_object(one)
    theirs = as_object(other)
    if mine is not None and theirs is not None:
        if mine.keys() != theirs.keys():
            return False
        return all(same_value(value, theirs[name]) for name, value in mine.items())
    first = as_sequence(one)
    second = as_sequence(other)
    if first is not None and second is not None:
        if len(first) != len(second):
            return False
        return all(map(same_value, first, second))
    return one == other


def with_prefix(result: JsonObject, prefix: str) -> Json:
    """Return an entry, or the listing of a folder, whose URIs all have a prefix, as those of a gateway may."""
    made = dict(result)
    uri = as_text(made.get("uri"))
    resources = as_array(made.get("resources"))
    if uri is not None:
        made["uri"] = prefix + uri
    if resources is not None:
        made["resources"] = [_prefixed(one, prefix) for one in resources]
    return made


def _prefixed(entry: object, prefix: str) -> object:
    found = as_object(entry)
    if found is None:
        return entry
    return with_prefix(found, prefix)


# The capability


def skills_capability(*, directories: bool = True) -> Json:
    """Return the members of `ServerCapabilities` of a server with skills; `directories`: whether it lists folders."""
    return {"extensions": {SKILLS_EXTENSION: {_DIRECTORY_READ: True} if directories else {}}}


def skill_settings(capabilities: JsonObject) -> tuple[bool, bool]:
    """Return whether a server declares that it has skills, and that it lists folders."""
    settings = as_object(object_or_empty(capabilities.get("extensions")).get(SKILLS_EXTENSION))
    if settings is None:
        return False, False
    return True, settings.get(_DIRECTORY_READ) is True
