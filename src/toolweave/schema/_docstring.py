"""A docstring parser: the description of a function and of each parameter, in Google, NumPy and Sphinx style.

Reads prose only; knows nothing of annotations.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

from toolweave._json_types import without_empty

_PARAMETERS = frozenset({"args", "arguments", "parameters", "params", "other parameters", "keyword args"})
_DROPPED = frozenset({"returns", "return", "yields", "yield", "raises", "raise", "attributes"})
_KEPT = frozenset({"example", "examples", "note", "notes", "warning", "warnings", "see also", "references", "usage"})
_HEADINGS = _PARAMETERS | _DROPPED | _KEPT

_NAME = r"\*{0,2}([^\W\d]\w*)"
_GOOGLE = re.compile(rf"{_NAME}\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:(?:\s+(.*))?$")
_NUMPY = re.compile(rf"({_NAME}(?:\s*,\s*{_NAME})*)\s*(?::.*)?$")
_SPHINX = re.compile(rf":(param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?{_NAME}\s*:\s*(.*)$")
_FIELD = re.compile(r":(?:type|return|returns|rtype|raise|raises|yield|yields|except|exception|var|ivar|cvar)\b[^:]*:")


@dataclass(slots=True)
class Docstring:
    """A parsed docstring.

    Attributes:
        description: The text without the sections on parameters, returns and raises.
        parameters: One line of text per parameter that has any.
    """

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring; never raises, for any text."""
    lines = inspect.cleandoc(text or "").splitlines()
    kept: list[str] = []
    found: dict[str, list[str]] = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        if match := _SPHINX.match(line):
            body, position = _sphinx_body(lines, position + 1)
            found.setdefault(match[2], [match[3], *body])
        elif _FIELD.match(line):
            _, position = _sphinx_body(lines, position + 1)
        elif (section := _heading(lines, position)) is not None:
            name, underlined = section
            body, end = _section_body(lines, position + 1 + underlined, underlined=bool(underlined))
            if name in _PARAMETERS:
                _read_parameters(body, found, _NUMPY if underlined else _GOOGLE)
            elif name in _KEPT:
                kept += lines[position:end]
            position = end
        else:
            kept.append(line)
            position += 1
    parameters = {name: " ".join(" ".join(body).split()) for name, body in found.items()}
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return Docstring(description, without_empty(parameters))


def _heading(lines: list[str], position: int) -> tuple[str, int] | None:
    """Return a section's name in lower case and the number of its underline lines; None for any other line."""
    line = lines[position].strip()
    if position + 1 < len(lines):
        following = lines[position + 1]
    else:
        following = ""
    if line.lower() in _HEADINGS and re.fullmatch(r"-{3,}", following.strip()):
        return line.lower(), 1
    if line.endswith(":") and line[:-1].lower() in _HEADINGS and (not following or following[:1].isspace()):
        return line[:-1].lower(), 0
    return None


def _section_body(lines: list[str], start: int, *, underlined: bool) -> tuple[list[str], int]:
    """Return a section's lines and where the next one starts: an unindented line ends a Google section."""
    end = start
    while end < len(lines):
        line = lines[end]
        if _heading(lines, end) is not None or (line and not underlined and not line[0].isspace()):
            break
        end += 1
    return lines[start:end], end


def _sphinx_body(lines: list[str], start: int) -> tuple[list[str], int]:
    end = start
    while end < len(lines) and lines[end][:1].isspace():
        end += 1
    return lines[start:end], end


def _read_parameters(body: list[str], found: dict[str, list[str]], pattern: re.Pattern[str]) -> None:
    """Add the parameters of a section to `found`, each with the lines of its text.

    The least indented lines name parameters, and the lines below such a line are the text of all its parameters. NumPy
    style may name several (`x, y : float`) and has all of the text below. Google style names one, and its text begins
    on the same line. The text below a line that names nothing is skipped.
    """
    lines = [line for line in body if line.strip()]
    outer = min(map(_indent, lines), default=0)
    current: list[list[str]] = []
    for line in lines:
        if _indent(line) > outer:
            for text in current:
                text.append(line)
            continue
        current = []
        match = pattern.match(line.strip())
        if match is None:
            continue
        if pattern is _GOOGLE:
            text = found.setdefault(match[1], [match[2] or ""])
            current.append(text)
            continue
        for name in re.split(r"\s*,\s*", match[1]):
            text = found.setdefault(name.lstrip("*"), [])
            current.append(text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
