"""Expansion of `${VAR}` and related variables in the strings of one entry.

Knows no field and no file format. An inserted value is not expanded again, so nothing in the environment
can pull in something else.

==============================  =====================================================================
`${VAR}` `${env:VAR}`           the environment variable; unset is an error
`${VAR:-text}`                  the variable, or the text when it is unset or empty; may be nested
`${input:ID}`                   the value given for the input, or of the variable `ID`, or its default
`${workspaceFolder}`            the project's directory; also `${workspaceFolderBasename}`
`${userHome}` `~` `~/...`       the home directory; the tilde only at the start
`${pathSeparator}` `${/}`       `/`, or a backslash on Windows
`${file:PATH}`                  the text of a file, without the line break at its end (Windsurf, opencode)
`${secret:VAR}`                 the environment variable, which is never shown (Continue)
==============================  =====================================================================

Anything else, such as `$$` or `${x%%y}`, is left unchanged: it may be meant for a program. So is `$VAR`, except in
the dialects in which it is a variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from toolweave._json_types import Json, JsonObject, as_object, as_sequence, not_none, text_or_empty
from toolweave._value import Value
from toolweave.config._named_files import read_text_file
from toolweave.config._secret import Secret, looks_secret, reveal
from toolweave.errors import ConfigError

_VARIABLE = r"(?s)(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?"
_EDITOR_ONLY = r"(command|config):[\w.-]+"
_MAX_DEPTH = 20


def home_directory() -> Path:
    """Return the home directory, or `~` itself where the account has none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("~")


class Scope(Value, frozen=True, kw_only=True):
    """The values of the variables in one file.

    Attributes:
        env: The environment variables.
        inputs: Values for `${input:ID}` given by the caller.
        definitions: The file's own `inputs`, by id: `default`, `description`, `password`.
        workspace: The project's directory.
        directory: The config file's directory, the base of `${file:PATH}`.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"env", "inputs", "definitions"})
    env: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)
    inputs: JsonObject = msgspec.field(default_factory=Json)
    definitions: Mapping[str, JsonObject] = msgspec.field(default_factory=dict[str, JsonObject])
    workspace: str = ""
    directory: str = ""

    @classmethod
    def given(cls, env: Mapping[str, str] | None, inputs: JsonObject | None) -> Self:
        """Return the scope of a call: the variables of the process if none are given, and no inputs."""
        scope = cls()
        if env is not None:
            scope = scope.replace(env=env)
        if inputs is not None:
            scope = scope.replace(inputs=inputs)
        return scope

    @property
    def home(self) -> str:
        """The home directory, or `~` itself if the account has none."""
        return self.env.get("HOME") or self.env.get("USERPROFILE") or str(home_directory())

    @property
    def folder(self) -> str:
        """The project's directory, the current one when none is known."""
        return self.workspace or str(Path.cwd())


class Expander:
    """An expander of one entry's strings that collects the values that must not be shown.

    Attributes:
        sensitive: The values of secret-looking variables and inputs.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.sensitive: list[Secret] = []

    def value(self, value: Any, field: str) -> Any:  # Any: any JSON value in and out
        """Return the value with every string in it expanded; keys stay.

        Raises:
            ConfigError: A variable without default is unset, or an input has no value.
        """
        if isinstance(value, str):
            return self.text(value, field)
        members = as_object(value)
        if members is not None:
            return {key: self.value(item, f"{field}.{key}") for key, item in members.items()}
        items = as_sequence(value)
        if items is not None:
            return [self.value(item, f"{field}[{index}]") for index, item in enumerate(items)]
        return value

    def text(self, text: str, field: str, depth: int = 0) -> str:
        """Return the string expanded.

        Raises:
            ConfigError: As `value`.
        """
        if text == "~" or text.startswith(("~/", "~\\")):
            return self._scope.home + self._braces(text[1:], field, depth)
        return self._braces(text, field, depth)

    def variable(self, name: str, field: str) -> str:
        """Return the environment variable that a field names, such as `bearer_token_env_var`.

        Raises:
            ConfigError: It is unset.
        """
        value = self.inherited(name)
        if value is None:
            raise ConfigError(
                f"environment variable {name} is not set; {field!r} needs it: set it, or write ${{{name}:-default}}",
                field=field,
            )
        return value

    def inherited(self, name: str) -> str | None:
        """Return an environment variable, or None when it is unset."""
        value = self._scope.env.get(name)
        if value is None:
            return None
        return self._noted(name, value)

    def is_set(self, name: str) -> bool:
        """Return whether there is an environment variable of this name."""
        return name in self._scope.env

    def path(self, text: str) -> Path:
        """Resolve a path of the entry against the project's directory."""
        return Path(self._scope.folder) / text

    def _braces(self, text: str, field: str, depth: int) -> str:
        out: list[str] = []
        start = 0
        while (opening := text.find("${", start)) >= 0:
            closing = _closing(text, opening + 2)
            if closing < 0:
                break
            resolved = self._resolved(text[opening + 2 : closing], field, depth)
            if resolved is None:  # not a variable of ours: it stays as it is written
                resolved = text[opening : closing + 1]
            # The search continues behind the expression, so that an inserted value is not expanded again.
            out += (text[start:opening], resolved)
            start = closing + 1
        return "".join([*out, text[start:]])

    def _resolved(self, body: str, field: str, depth: int) -> str | None:
        # The order matters: `input:`, `file:` and `secret:` would be names of editors' commands otherwise, and a name
        # that no rule knows has to stay as it is written, since a program may expand it.
        known = self._known(body)
        if known is not None:
            return known
        kind, colon, rest = body.partition(":")
        resolve = {"input": self._input, "file": self._file, "secret": self._secret}.get(kind)
        if colon and resolve is not None:
            return resolve(rest.strip(), field)
        if re.fullmatch(_EDITOR_ONLY, body):
            raise ConfigError(f"{field!r} uses ${{{body}}}, which only an editor can resolve", field=field)
        match = re.fullmatch(_VARIABLE, body)
        if match is None:
            return None
        name, has_default, default = match.groups()
        if not has_default or self._scope.env.get(name):
            return self.variable(name, field)
        # A default may hold expressions whose defaults hold more: each level is a call of this function.
        if depth >= _MAX_DEPTH:
            raise ConfigError(f"{field!r} nests defaults more than {_MAX_DEPTH} deep", field=field)
        return self.text(default, field, depth + 1)

    def _known(self, body: str) -> str | None:
        if body in ("pathSeparator", "/"):
            return os.sep
        if body in ("workspaceFolder", "workspaceRoot"):
            return self._scope.folder
        if body == "workspaceFolderBasename":
            return Path(self._scope.folder).name
        if body == "userHome":
            return self._scope.home
        return None

    def _input(self, name: str, field: str) -> str:
        definition = self._scope.definitions.get(name, {})
        variable = re.sub(r"\W", "_", name)
        candidates = (
            self._scope.inputs.get(name),
            self._scope.env.get(variable),
            self._scope.env.get(variable.upper()),
            definition.get("default"),
        )
        given = not_none(candidates)
        if not given:
            description = text_or_empty(definition.get("description"))
            about = f" ({description})" if description else ""
            raise ConfigError(
                f"{field!r} needs the input {name!r}{about}: give it as inputs={{{name!r}: ...}},"
                f" or set the environment variable {variable.upper()}",
                field=field,
            )
        value = given[0]
        if isinstance(value, Secret):
            return self._noted("password", reveal(value))
        return self._noted("password" if definition.get("password") else name, str(value))

    def _secret(self, name: str, field: str) -> str:
        return self._noted("secret", self.variable(re.sub(r"\W", "_", name), field))

    def _file(self, name: str, field: str) -> str:
        """Return the text of a file; it is treated as a secret, which such files usually hold."""
        home = Path(self._scope.home)
        if name.startswith("~/"):
            path = home / name[2:]
        else:
            path = Path(self._scope.directory or self._scope.folder) / name
        try:
            text = read_text_file(path)
        except ValueError as error:
            raise ConfigError(
                f"{field!r} needs the file {str(path)!r}, which cannot be read: {error}", field=field
            ) from None
        return self._noted("secret", text.rstrip("\r\n"))

    def _noted(self, name: str, value: str) -> str:
        """Return a value, and remember it for masking if its name is that of a secret."""
        if value and looks_secret(name):
            self.sensitive.append(Secret(value))
        return value


def _closing(text: str, start: int) -> int:
    """Return the index of the brace that closes an expression whose body starts at `start`, or -1."""
    # A default may hold expressions, so only a `${` opens a level. A plain brace in a default, as in JSON, closes it.
    depth = 1
    for match in re.compile(r"\$\{|\}").finditer(text, start):
        depth += 1 if match[0] == "${" else -1
        if not depth:
            return match.start()
    return -1
