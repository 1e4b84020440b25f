"""The tools that an entry allows and denies, in our own words and in those of editors.

Editors differ from us in two ways, and an entry means what its owner's program makes of it. With `include` and
`exclude`, a tool that both name is offered, and an empty list filters nothing. In an editor's words, a denial wins, and
an empty list of allowed tools allows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

ANY_TOOL = "*"
"""Stands for every tool: in `exclude` it denies all, in `include` it allows all."""
_ALLOWED = ("enabled_tools", "include_tools", "allowed_tools", "tools", "available_tools")
_DENIED = ("disabled_tools", "exclude_tools", "excluded_tools")
_EMPTY_IS_ALL = frozenset({"available_tools"})
"""Goose writes an empty list where nothing is filtered."""
FILTER_WORDS = ("include", "exclude", *_ALLOWED, *_DENIED)
"""The keys that filter tools, in snake_case."""


def read_filters(given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return `include` and `exclude` of an entry, from all of its keys that filter tools.

    A value of a wrong type is returned as it is, for the reader of the field to refuse.

    Args:
        given: The values by key, in snake_case.
        notes: Gets the remarks for the writer of the entry.
    """
    lists: dict[str, list[Any]] = {}
    for word, value in given.items():
        names: Any = [value] if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)):
            return {"exclude" if word in _DENIED or word == "exclude" else "include": value}
        lists[word] = list(cast("list[Any]", names))
    denied = [name for word in ("exclude", *_DENIED) for name in lists.get(word, ())]
    allowed = _allowed(lists)
    if lists.keys() <= {"include", "exclude"}:
        return _in_our_words(allowed, denied, notes)
    out: dict[str, Any] = {}
    if allowed is not None:
        allowed = without(allowed, denied)
        out["include"] = allowed
    if allowed == [] and ANY_TOOL not in denied:
        denied = [*denied, ANY_TOOL]
    if denied:
        return {**out, "exclude": denied}
    return out


def without(allowed: Iterable[Any], denied: Iterable[Any]) -> list[Any]:
    """Return the allowed names that are not denied, with their server or without."""
    refused = [_own_name(name) for name in denied]  # a list: the check of types comes later, and names may be anything
    return [name for name in allowed if ANY_TOOL not in refused and _own_name(name) not in refused]


def _allowed(lists: Mapping[str, list[Any]]) -> list[Any] | None:
    """Return the names that all lists of allowed tools have; None if no list restricts them."""
    allowed: list[Any] | None = None
    for word in ("include", *_ALLOWED):
        names = lists.get(word)
        if names is None or ANY_TOOL in names or (not names and word in _EMPTY_IS_ALL):
            continue
        if word == "include" and not names:
            continue
        if allowed is None:
            allowed = names
        else:
            allowed = [name for name in allowed if name in names]
    return allowed


def _own_name(name: Any) -> Any:
    """Return a tool's name without its server: `boom` of `files:boom` and `files/boom`."""
    if isinstance(name, str):
        return re.split(r"[:/]", name)[-1]
    return name


def _in_our_words(allowed: list[Any] | None, denied: list[Any], notes: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if allowed is not None:
        out["include"] = allowed
        both = [name for name in allowed if name in denied or ANY_TOOL in denied]
        if both:
            notes.append(f"'exclude' is ignored for {', '.join(map(repr, both))}: 'include' names it and wins")
    if denied:
        out["exclude"] = denied
    return out
