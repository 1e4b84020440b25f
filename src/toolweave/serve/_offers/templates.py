"""URI templates (RFC 6570: `{name}`, `{+name}`, `{name*}`, and `{?a,b}` at the end): matching of URIs, and values.

Matching takes linear time for any URI, and a value that could leave a directory matches nothing. Knows no resource and
no file.
"""

# A match is found without regular expressions and without going back, so that no URI is expensive. That is possible
# because at most one variable of a path matches slashes: the literals before it are searched from the left, those
# behind it from the right, and the rest is its value.

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from toolweave.errors import SchemaError
from toolweave.protocol.uris import has_parts_in_order, normal_literal, normal_uri

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"(\+?)([A-Za-z_][A-Za-z0-9_]{0,99})(\*?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_QUERY = re.compile(r"\{\?([^{}]*)\}\Z")
_MAX_URI = 8192
"""Maximum characters of a URI; a longer one matches no resource, and no HTTP server would accept it as a header."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")
"""Control characters and the backslash."""
_ENCODINGS = 4
"""Maximum levels of percent-encoding of a value; legitimate ones have at most two."""


def is_template(uri: str) -> bool:
    """Whether a URI has variables."""
    return "{" in uri or "}" in uri


def may_expand(template: str, uri: str) -> bool:
    """Whether a URI may be of a template of any form: its fixed parts occur in the URI in their order.

    All spellings of one URI give the same answer. This is for rules about templates of other servers, which may match
    more than their templates declare.
    """
    parts = [unquote(part).casefold() for part in _EXPRESSION.split(template)[::2]]
    return has_parts_in_order(unquote(uri).casefold(), parts)


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    # `{+name}` or `{name*}`: matches slashes
    whole: bool


class Template:
    """A URI template.

    Attributes:
        text: The template.
        variables: The names of its variables, in order.
        optional: The names of the variables that a URI may lack: those of a query.
    """

    __slots__ = ("_literals", "_path", "_variables", "optional", "text", "variables")

    def __init__(self, text: str) -> None:
        """Read a template.

        Raises:
            SchemaError: The template cannot be matched. The error names it and the reason.
        """
        self.text: str = text
        self._path = text
        self.optional: tuple[str, ...] = ()
        query = _QUERY.search(text)
        if query is not None:
            self._path = text[: query.start()]
            self.optional = _query_names(text, query[1])
        parts = _EXPRESSION.split(self._path)
        self._literals = tuple(normal_literal(part, first=at == 0) for at, part in enumerate(parts[::2]))
        self._variables = tuple(_variable(text, part) for part in parts[1::2])
        in_path = [variable.name for variable in self._variables]
        self.variables: tuple[str, ...] = (*in_path, *self.optional)
        self._check()

    def _check(self) -> None:
        fixed = "".join(_EXPRESSION.split(self._path)[::2])
        if self.optional and "?" in fixed:
            raise SchemaError(f"URI template {self.text!r} has two queries; name all members in {{?a,b}}")
        if "{" in fixed or "}" in fixed:
            raise SchemaError(f"URI template {self.text!r} has a brace without its partner")
        if not self.variables:
            raise SchemaError(f"URI template {self.text!r} has no variable")
        if len(set(self.variables)) < len(self.variables):
            raise SchemaError(f"URI template {self.text!r} names a variable twice")
        if not all(self._literals[1:-1]):
            raise SchemaError(f"URI template {self.text!r} has two variables with nothing between them")
        if sum(variable.whole for variable in self._variables) > 1:
            raise SchemaError(f"URI template {self.text!r} has two variables with slashes; one is possible")

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded values of the variables, or None for a URI that the template does not match.

        A value is never empty, except in a query. It cannot leave a directory that it is used in: it has no `..` as a
        segment, no leading slash, no drive, no backslash and no control character, even if it is decoded once more.
        Only `{+name}`, `{name*}` and members of a query match a slash of the URI. `%2F` is part of a value (RFC 6570,
        3.2.2), which then has a slash.

        The members of `{?a,b}` may be missing and have any order. A URI with another member, or with one of them twice,
        belongs to another resource.
        """
        if len(uri) > _MAX_URI:
            return None
        path = normal_uri(uri)
        query = ""
        if self.optional:
            path, _, query = path.partition("?")
        values = self._query_values(query)
        raw = self._split(path)
        if raw is None or values is None:
            return None
        for variable, text in zip(self._variables, raw, strict=True):
            value = _value(text, whole=variable.whole)
            if value is None:
                return None
            values[variable.name] = value
        return values

    def _query_values(self, query: str) -> dict[str, str] | None:
        """Return the decoded values of a query, or None if there is another member or an unsafe value."""
        values: dict[str, str] = {}
        for member in filter(None, query.split("&")):
            name, _, text = member.partition("=")
            # `+` stands for a space in forms; a client that follows RFC 6570 writes the character as %2B.
            value = _value(text.replace("+", " "), whole=True)
            name = unquote(name)
            if value is None or name not in self.optional or name in values:
                return None
            values[name] = value
        return values

    def _split(self, uri: str) -> list[str] | None:
        """Return the text of each variable of the path, or None if it does not match."""
        literals = self._literals
        if not self._variables:
            if uri == normal_uri(self._path):
                return []
            return None
        if not uri.startswith(literals[0]) or not uri.endswith(literals[-1]):
            return None
        start = len(literals[0])
        end = len(uri) - len(literals[-1])
        whole = self._index_of_rest()
        before: list[str] = []
        for literal in literals[1 : whole + 1]:
            # From one character later, since a value is never empty.
            found = uri.find(literal, start + 1, end)
            if found < 0:
                return None
            before.append(uri[start:found])
            start = found + len(literal)
        behind: list[str] = []
        for literal in reversed(literals[whole + 1 : -1]):
            found = uri.rfind(literal, start, end - 1)
            if found < 0:
                return None
            behind.append(uri[found + len(literal) : end])
            end = found
        if start < end:
            return [*before, uri[start:end], *reversed(behind)]
        return None

    def _index_of_rest(self) -> int:
        """Return the index of the variable with slashes, or of the last one."""
        for at, variable in enumerate(self._variables):
            if variable.whole:
                return at
        return len(self._variables) - 1

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


def leaves_directory(path: str) -> bool:
    """Whether a relative path could name something outside the directory it is used in, on any system."""
    has_drive = path[1:2] == ":" and path[0].isalpha()
    if has_drive or path[:1] in {"/", "\\"}:
        return True
    return any(map(_leads_up, path.replace("\\", "/").split("/")))


def _leads_up(part: str) -> bool:
    # Windows ignores dots and spaces at the end of a name, so `.. ` and `...` are `..` there
    return part.startswith("..") and not part.strip(". ")


def _variable(text: str, expression: str) -> _Variable:
    found = _VARIABLE.fullmatch(expression)
    if found is None:
        raise SchemaError(
            f"URI template {text!r}: {{{expression}}} is not supported; write {{name}}, {{+name}}, {{name*}}, or "
            "{?a,b} at the end"
        )
    return _Variable(found[2], bool(found[1] or found[3]))


def _query_names(text: str, names: str) -> tuple[str, ...]:
    found = tuple(names.split(","))
    for name in found:
        if _NAME.fullmatch(name) is None:
            raise SchemaError(f"URI template {text!r}: {name!r} is not a name of a variable; write {{?a,b}}")
    return found


def _value(text: str, *, whole: bool) -> str | None:
    """Return the decoded value, or None when it is unsafe for a handler."""
    if "/" in text and not whole:
        return None
    try:
        value = unquote(text, errors="strict")
        decoded = value
        for _ in range(_ENCODINGS):
            if _is_unsafe(decoded):
                return None
            # A handler, or a library that it uses, may decode the value once more: `%252e%252e` is `..` then.
            again = unquote(decoded, errors="strict")
            if again == decoded:
                return value
            decoded = again
    except UnicodeDecodeError:
        return None
    return None


def _is_unsafe(value: str) -> bool:
    if _UNSAFE.search(value) is not None:
        return True
    return leaves_directory(value)
