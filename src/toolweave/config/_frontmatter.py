"""The frontmatter of a Markdown file: YAML between two lines `---` at its start, read as JSON.

Read by YAML 1.2's core schema, as other readers of such files do: `yes`, `12:30` and dates are texts. A value that has
no form in JSON, expands to too much, or could be read in two ways is refused.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from toolweave._json_types import Json, as_object

if TYPE_CHECKING:
    import yaml

_BETWEEN = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)(?<=\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_MAX_LENGTH = 64 * 1024
_MAX_DEPTH = 32
_BASES = {"0o": 8, "0x": 16}
_CORE = (
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    (
        "float",
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+.0123456789"),
    ),
)
"""Plain scalars that are not texts (YAML 1.2.2, 10.3.2), with their first characters."""


def split_frontmatter(text: str) -> tuple[Json, str]:
    """Return the frontmatter of a text as a JSON object, and the text behind it.

    Raises:
        ValueError: The text has no frontmatter, or one that is not a YAML mapping with a form in JSON; the message
            has the reason.
    """
    found = _BETWEEN.match(text)
    if found is None:
        raise ValueError("it does not begin with YAML frontmatter between two lines '---'")
    if len(found[1]) > _MAX_LENGTH:
        raise ValueError(f"its frontmatter is longer than {_MAX_LENGTH // 1024} KiB")
    import yaml  # slow to import, and most configs are JSON

    try:
        node = cast("yaml.Node | None", yaml.compose(found[1], Loader=_core_loader()))  # pyright: ignore[reportUnknownMemberType]
        value = None if node is None else _value(node, 0, set())
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"its frontmatter is not valid YAML: {reason}") from None
    members = as_object(value)
    if members is None:
        raise ValueError("its frontmatter is not a mapping")
    return dict(members), text[found.end() :]


@cache
def _core_loader() -> type[yaml.SafeLoader]:
    import yaml  # the caller has it

    class CoreLoader(yaml.SafeLoader):
        """Resolves plain scalars by YAML 1.2's core schema."""

        yaml_implicit_resolvers: Any = {}  # noqa: RUF012 - the library's way to say so

    for name, pattern, first in _CORE:
        CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), first)  # pyright: ignore[reportUnknownMemberType]
    return CoreLoader


def _value(node: yaml.Node, depth: int, seen: set[int]) -> object:
    """Return a node as JSON."""
    import yaml  # the caller has it

    if id(node) in seen:  # an alias: few lines of them stand for billions
        raise ValueError("its frontmatter has an alias, which is not read")
    if depth > _MAX_DEPTH:
        raise ValueError(f"its frontmatter is nested deeper than {_MAX_DEPTH} levels")
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, depth, seen)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, depth + 1, seen) for item in node.value]
    return _scalar(node.tag.removeprefix("tag:yaml.org,2002:"), str(node.value))


def _mapping(node: yaml.MappingNode, depth: int, seen: set[int]) -> Json:
    made: Json = {}
    for key, value in node.value:
        name = _value(key, depth + 1, seen)
        if not isinstance(name, str):
            name = str(key.value)  # as JSON has it
        if name in made:
            raise ValueError(f"its frontmatter has the key {name[:80]!r} twice")
        made[name] = _value(value, depth + 1, seen)
    return made


def _scalar(tag: str, text: str) -> str | bool | int | float | None:
    if tag == "str":
        return text
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    if tag == "int":
        return _integer(text)
    if tag == "float" and not text.lower().endswith(("inf", "nan")):
        number = float(text)
        if math.isfinite(number):  # 1e999 is not
            return number
    raise ValueError(f"its frontmatter has a value that JSON has not: {text[:80]!r}")


def _integer(text: str) -> int:
    base = _BASES.get(text[:2])
    if base is None:
        return int(text)  # with a sign and leading zeros, which `int(text, 0)` refuses
    return int(text[2:], base)
