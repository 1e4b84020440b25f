"""The tools that an entry allows and denies, in our own words and in those of editors.

Editors differ from us in two ways, and an entry means what its owner's program makes of it. With `include` and
`exclude`, a tool that both name is offered, and an empty list filters nothing. In an editor's words, a denial wins, and
an empty list of allowed tools allows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from toolweave._json_types import Json, JsonObject, as_sequence

Name = TypeVar("Name")

ANY_TOOL = "*"
"""Stands for every tool: in `exclude` it denies all, in `include` it allows all."""
_ALLOWED = ("enabled_tools", "include_tools", "allowed_tools", "tools", "available_tools")
_DENIED = ("disabled_tools", "exclude_tools", "excluded_tools")
_OUR_DENIED = ("exclude", *_DENIED)
_EMPTY_IS_ALL = frozenset({"include", "available_tools"})
"""An empty `include` is the default, and Goose writes an empty list where nothing is filtered."""
FILTER_WORDS = ("include", "exclude", *_ALLOWED, *_DENIED)
"""The keys that filter tools, in snake_case."""


def read_filters(given: JsonObject, notes: list[str]) -> Json:
    """Return `include` and `exclude` of an entry, from all of its keys that filter tools.

    A value of a wrong type is returned as it is, for the reader of the field to refuse.

    Args:
        given: The values by key, in snake_case.
        notes: Gets the remarks for the writer of the entry.
    """
    # An entry is read in our words if it has no others. One word of an editor makes all of it the editor's.
    lists: dict[str, list[object]] = {}
    for word, value in given.items():
        names = [value] if isinstance(value, str) else as_sequence(value)
        if names is None:
            return {"exclude" if word in _OUR_DENIED else "include": value}
        lists[word] = list(names)
    denied: list[object] = []
    for word in _OUR_DENIED:
        denied += lists.get(word, ())
    allowed = _allowed(lists)
    if lists.keys() <= {"include", "exclude"}:
        return _in_our_words(allowed, denied, notes)
    out: Json = {}
    if allowed is not None:
        out["include"] = without(allowed, denied)
        # An empty `include` offers everything, so a list that allows none has to deny all.
        if not out["include"] and ANY_TOOL not in denied:
            denied.append(ANY_TOOL)
    if denied:
        out["exclude"] = denied
    return out


def without(allowed: Iterable[Name], denied: Iterable[object]) -> list[Name]:
    """Return the allowed names that are not denied, with their server or without."""
    # a list: the check of types comes later, and names may be anything
    refused = list(map(_own_name, denied))
    if ANY_TOOL in refused:
        return []
    return [name for name in allowed if _own_name(name) not in refused]


def _allowed(lists: Mapping[str, list[object]]) -> list[object] | None:
    """Return the names that all lists of allowed tools have; None if no list restricts them."""
    allowed: list[object] | None = None
    for word in ("include", *_ALLOWED):
        names = lists.get(word)
        if names is None or ANY_TOOL in names:
            continue
        if not names and word in _EMPTY_IS_ALL:
            continue
        if allowed is None:
            allowed = names
        else:
            allowed = [name for name in allowed if name in names]
    return allowed


def _own_name(name: object) -> object:
    """Return a tool's name without its server: `boom` of `files:boom` and `files/boom`."""
    if isinstance(name, str):
        return re.split(r"[:/]", name)[-1]
    return name


def _in_our_words(allowed: list[object] | None, denied: list[object], notes: list[str]) -> Json:
    out: Json = {}
    if allowed is not None:
        out["include"] = allowed
        both = allowed if ANY_TOOL in denied else [name for name in allowed if name in denied]
        if both:
            notes.append(f"'exclude' is ignored for {', '.join(map(repr, both))}: 'include' names it and wins")
    if denied:
        out["exclude"] = denied
    return out
