"""Tags and versions of tools, prompts and resources: members of `_meta` of this project, as MCP itself has neither.

A definition carries its tags and its version, and of several versions of one name the newest carries all of them. A
request names the version that it wants under the same key. The members that FastMCP writes are also read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TypeAlias

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_object,
    as_text,
    object_or_empty,
    text_or_empty,
    without_members,
)

__all__ = [
    "DEPRECATED",
    "TAGS",
    "VERSION",
    "VERSIONS",
    "VersionKey",
    "asked_version",
    "asking_for",
    "component_meta",
    "tags_in",
    "version_in",
    "version_key",
    "versioned",
    "with_versions",
]

TAGS = "io.toolweave/tags"
"""The tags of a definition: a list of texts."""
VERSION = "io.toolweave/version"
"""The version of a definition; in a request the version that is asked for."""
DEPRECATED = "io.toolweave/deprecated"
"""The deprecated names of a tool, in its definition a list of notices; in a result the notice of the called name.

A notice is an object: `name`, the deprecated name; `use`, the tool's name; `message`; and `sunset`, the day from which
on the name is refused, if there is one.
"""
VERSIONS = "io.toolweave/versions"
"""All versions that are offered under the name of a definition, newest first; there where it has several."""

_FASTMCP = ("fastmcp", "_fastmcp")
_MAX_CHARACTERS = 128
_PARTS = re.compile(r"[0-9]{1,18}|[a-z]+")

VersionKey: TypeAlias = tuple[tuple[int, int | str], ...]
"""The order of a version among others."""


def component_meta(meta: JsonObject | None, *, tags: Iterable[str] = (), version: str | None = None) -> Json:
    """Return the `_meta` of a definition with its tags and its version.

    Raises:
        ValueError: A tag or the version is not a printable text of at most 128 characters, or the version has a space
            or an `@`.
    """
    if isinstance(tags, str):
        tags = [tags]
    named = sorted({_checked("tag", tag) for tag in tags})
    made: Json = dict(meta or {})
    if named:
        made[TAGS] = named
    if version is not None:
        made[VERSION] = _checked("version", version)
        if " " in version or "@" in version:
            raise ValueError(f"{version!r} is not a version: it has no spaces and no '@', as in '1.2'")
    return made


def _checked(what: str, text: object) -> str:
    found = text_or_empty(text)
    is_text = found.strip() != "" and found.isprintable()
    if len(found) > _MAX_CHARACTERS or not is_text:
        raise ValueError(f"{text!r} is not a {what}, which is a printable text of at most {_MAX_CHARACTERS} characters")
    return found


def tags_in(meta: object) -> frozenset[str]:
    """Return the tags that a definition's `_meta` names; a server may have written anything there."""
    listed = array_or_empty(_member(meta, TAGS, "tags"))
    return frozenset(tag for tag in listed if isinstance(tag, str))


def version_in(meta: object) -> str | None:
    """Return the version that a definition's `_meta` names, or None."""
    return as_text(_member(meta, VERSION, "version")) or None


def asked_version(params: JsonObject) -> str | None:
    """Return the version that the params of a request ask for; None for the newest."""
    asked = object_or_empty(params.get("_meta")).get(VERSION)
    if asked is None:
        return None
    return str(asked)


def asking_for(version: str | None) -> Json:
    """Return the `_meta` of a request for a version; for the newest there is nothing."""
    if version is None:
        return {}
    return {VERSION: version}


def _member(meta: object, name: str, foreign: str) -> object:
    members = object_or_empty(meta)
    if name in members:
        return members[name]
    for key in _FASTMCP:
        theirs = as_object(members.get(key))
        if theirs is not None:
            return theirs.get(foreign)
    return None


def versioned(name: str, version: str) -> str:
    """Return the name of one version of something within a process, as `name@1.2`; on the wire it has none."""
    return f"{name}@{version}"


def with_versions(meta: JsonObject | None, versions: Sequence[str]) -> Json:
    """Return the `_meta` of the newest version, with all that are offered, newest first; with one there is nothing."""
    made = without_members(meta or {}, VERSIONS)
    if len(versions) > 1:
        return made | {VERSIONS: list(versions)}
    return made


def version_key(version: str) -> VersionKey:
    """Return the order of a version: numbers count as numbers, `1.0rc1` is before `1.0`, and that before `1.0.1`."""
    parts: list[str] = _PARTS.findall(version.lower().removeprefix("v"))
    release = list(takewhile(str.isdigit, parts))
    rest = parts[len(release) :]
    while len(release) > 1 and not int(release[-1]):  # 1.0 is 1
        release.pop()
    key: list[tuple[int, int | str]] = []
    for part in (*release, *rest):
        if part.isdigit():
            key.append((2, int(part)))
        else:
            key.append((0, part))
    return (*key, (1, 0))
