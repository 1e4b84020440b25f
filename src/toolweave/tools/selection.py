"""Selection of tools by their definitions: globs and regular expressions of names, annotations, tags.

The one matcher of the package: rules for callers, views of a gateway and rules that shape definitions all use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any, cast

from toolweave._json_types import object_or_empty, text_entries
from toolweave.schema.problems import nearest
from toolweave.tools.names import aliases
from toolweave.tools.spec import ToolSpec

__all__ = ["check_hints", "fits", "glob_pattern", "hinted", "member_of", "names_of", "own_names", "tags_of"]

_HINTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
"""The meaning of a missing hint (MCP specification, `ToolAnnotations`)."""
_BARE_HINTS = {
    "readonly": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "openworld": "openWorldHint",
}
_TAGS = "tags"


def fits(globs: Iterable[str], text: str | None) -> bool:
    """Whether a text fits one of the globs; None fits none."""
    return text is not None and any(glob_pattern(glob).match(text) for glob in globs)


@lru_cache(maxsize=4096)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return the pattern of a glob (`*`, `?`, `[...]`), which a whole text fits; case counts."""
    return re.compile(translate(glob))


def names_of(spec: ToolSpec) -> tuple[str, ...]:
    """Return the names by which a config may mean a tool: the exposed one, the tool's own, `server:tool`."""
    if spec.server is None:
        return (spec.name, spec.original_name)
    return (spec.name, spec.original_name, *aliases(spec.server, spec.original_name))


def own_names(spec: ToolSpec) -> frozenset[str]:
    """Return a tool's names at its server: its own, and the one that a rule gave it."""
    tails = (alias.partition(":") for alias in spec.aliases)
    return frozenset((spec.original_name, *(name for _, mark, name in tails if mark)))


def check_hints(annotations: Mapping[str, object], where: str) -> None:
    """Check hints of tools as the owner of a rule or of a tool writes them.

    Other annotations are allowed, as the specification allows them; a misspelt hint would decide nothing.

    Raises:
        ValueError: One has nearly the name of a hint, or a hint is neither true nor false.
    """
    for name, value in annotations.items():
        if name in _HINTS:
            if not isinstance(value, bool):
                raise ValueError(f"{where}: {name} is true or false, not {value!r}")
            continue
        # `destructive`, `read_only` and `readonlyhint` are also meant as hints.
        letters = name.replace("_", "").replace("-", "").lower().removesuffix("hint")
        near = nearest(letters, _BARE_HINTS, n=1, cutoff=0.8)
        if near:
            raise ValueError(f"{where}: {name!r} is not a hint; did you mean {_BARE_HINTS[near[0]]!r}?")


def hinted(wanted: Mapping[str, bool], spec: ToolSpec) -> bool:
    """Whether a tool has all these hints; a missing one counts as the specification says."""
    return all(_hint(spec, name) is value for name, value in wanted.items())


def _hint(spec: ToolSpec, name: str) -> bool | None:
    """Return the effective value of a hint: a tool that only reads destroys nothing."""
    if name == "destructiveHint" and spec.hint("readOnlyHint") is True:
        return False
    said = spec.hint(name)
    if said is None:
        return _HINTS.get(name)
    return said


def tags_of(spec: ToolSpec) -> frozenset[str]:
    """Return a tool's tags: the lists `tags` in its `_meta`, and those in objects there.

    MCP has no member for tags. Servers put them below a key of their own: `_meta["example.com/tags"]`, or `tags` of an
    object as in `_meta["fastmcp"]`.
    """
    found: set[str] = set()
    for key, value in spec.meta.items():
        lists: Any = (object_or_empty(value)).get(_TAGS)
        if key == _TAGS or key.endswith(f"/{_TAGS}"):
            lists = value
        found.update(text_entries(lists))
    return frozenset(found)


def member_of(values: Any, name: str) -> Any:  # a claim, or what a state holds
    """Return a member by its name, or by the path of one inside an object, or None."""
    if isinstance(values, Mapping) and name in values:
        return cast("Mapping[str, Any]", values)[name]
    value: Any = cast("Any", values)
    for part in name.split("."):
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(part)
        # A config must not read private attributes of a state, such as `__dict__`.
        elif part.startswith("_"):
            value = None
        else:
            value = getattr(value, part, None)
    return value
