"""Tools that an editor's settings deny beside the entries of servers: they are never offered.

Claude Code: `permissions.deny` of its settings, such as `mcp__github__delete_repo`, `mcp__github` or `mcp__github__*`.
opencode: `tools` and `permission` of its config, such as `"github_*": false` and `"github_delete_repo": "deny"`.

A pattern is matched against the name that the program gives a tool. Its rest behind the server's part has to be a whole
name or `*`: our filters have no other patterns, and a denial that cannot be kept stops the server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from toolweave._value import Value
from toolweave.config._documents import read_document
from toolweave.config._model import ServerConfig
from toolweave.config._tool_filters import ANY_TOOL, without
from toolweave.errors import ConfigError

_OPENCODE_FILES = ("opencode.json", "opencode.jsonc")
_WILD = re.compile(r"[*?]")


class ToolRule(Value, frozen=True, kw_only=True):
    """A setting that denies or allows tools.

    Attributes:
        pattern: The name of a tool in its program, or a pattern of such names with `*` and `?`.
        allows: Whether it allows them.
        place: The setting and its file, for messages.
    """

    pattern: str
    allows: bool
    place: str


class DeniedTools(Value, frozen=True, kw_only=True):
    """The rules of a program for the tools of all its servers; a later one wins over an earlier one.

    Attributes:
        rules: The rules.
        claude: Whether they are Claude Code's; else they are opencode's.
    """

    rules: tuple[ToolRule, ...] = ()
    claude: bool = False

    def apply(self, config: ServerConfig) -> ServerConfig:
        """Return a server's config without the tools that the rules deny.

        Raises:
            ConfigError: A rule denies a part of the tools that our filters cannot name.
        """
        denies_all = False
        denied: set[str] = set()
        allowed: set[str] = set()
        for rule in self.rules:
            for rest in self._rests(rule, config.name):
                if rest == ANY_TOOL:
                    denies_all = not rule.allows
                    denied.clear()
                    allowed.clear()
                elif rule.allows:
                    denied.discard(rest)
                    allowed.add(rest)
                else:
                    denied.add(rest)
                    allowed.discard(rest)
        if not denies_all:
            if denied:
                return _without(config, sorted(denied))
            return config
        if not allowed:
            return _without(config, [ANY_TOOL])
        return _only(config, sorted(allowed))

    def _rests(self, rule: ToolRule, server: str) -> set[str]:
        """Return the tools of a server that a rule is about: their names, or `*`.

        Raises:
            ConfigError: It denies them by another pattern.
        """
        name = re.sub(r"[^A-Za-z0-9_-]", "_", server)
        if self.claude and rule.pattern == f"mcp__{name}":
            return {ANY_TOOL}
        rests = rests_of(rule.pattern, f"mcp__{name}__" if self.claude else f"{name}_")
        if any(not rest.strip(ANY_TOOL) and rest for rest in rests):
            return {ANY_TOOL}
        patterns = sorted(rest for rest in rests if _WILD.search(rest))
        if patterns and not rule.allows:
            raise ConfigError(
                f"{rule.place} denies the tools {rule.pattern!r}, which cannot be kept: only whole names and '*' of a "
                "server can. The server is not started; write the names of the tools",
                server=server,
            )
        return {rest for rest in rests if rest and not _WILD.search(rest)}


def rests_of(pattern: str, prefix: str) -> set[str]:
    """Return the rests of a pattern with `*` and `?` behind a prefix; none if it begins in another way."""
    places = _skipped(pattern, {0})
    for char in prefix:
        stepped = {place + 1 for place in places if pattern[place : place + 1] in (char, "?")}
        stayed = {place for place in places if pattern[place : place + 1] == ANY_TOOL}
        places = _skipped(pattern, stepped | stayed)
    return {pattern[place:] for place in places}


def _skipped(pattern: str, places: set[int]) -> set[int]:
    """Return the places in a pattern, and those behind a star, which may stand for nothing."""
    found: set[int] = set()
    for place in places:
        found.add(place)
        while pattern[place : place + 1] == ANY_TOOL:
            place += 1
            found.add(place)
    return found


def _without(config: ServerConfig, denied: list[str]) -> ServerConfig:
    include = without(config.include, denied)
    exclude = [*config.exclude, *denied]
    if config.include and not include and ANY_TOOL not in exclude:
        exclude.append(ANY_TOOL)
    return config.replace(include=include, exclude=exclude)


def _only(config: ServerConfig, allowed: list[str]) -> ServerConfig:
    """Return a config with these tools alone, as far as its own filters offer them."""
    if config.include:
        include = [name for name in config.include if name in allowed]
    else:
        include = allowed
    if not config.include:
        include = without(include, config.exclude)
    return config.replace(include=include, exclude=() if include else (*config.exclude, ANY_TOOL))


def rules_of_claude(project: Path, home: Path) -> DeniedTools:
    """Return the denials in Claude Code's settings.

    Raises:
        ConfigError: A file of settings cannot be read: nothing is started that it may deny.
    """
    folder = project / ".claude"
    found: list[ToolRule] = []
    for path in (home / ".claude" / "settings.json", folder / "settings.json", folder / "settings.local.json"):
        denied = _mapping(_read(path).get("permissions")).get("deny")
        place = f"'permissions.deny' in {path}"
        if isinstance(denied, list):
            rules = [rule for rule in cast("list[Any]", denied) if isinstance(rule, str)]
        else:
            rules = []
        # A rule about some arguments denies the tool: calls are not told apart by their arguments.
        patterns = [rule.partition("(")[0].strip() for rule in rules]
        found += (ToolRule(pattern=pattern, allows=False, place=place) for pattern in patterns)
    return DeniedTools(rules=tuple(found), claude=True)


def rules_of_opencode(document: Any, path: Path | None, project: Path, home: Path) -> DeniedTools:
    """Return the rules in opencode's configs: those of the user, of the project, and of this document.

    Args:
        document: The document.
        path: Its file, or None.
        project: The project.
        home: The home directory.

    Raises:
        ConfigError: A file cannot be read, or its rules are not an object.
    """
    configs = dict.fromkeys((home / ".config", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")))
    folders = (*(config / "opencode" for config in configs), project, project / ".opencode")
    if path is not None:
        files = [folder / name for folder in folders for name in _OPENCODE_FILES]
    else:
        files = []
    found: list[ToolRule] = []
    for file in files:
        if path is None or file.resolve() != path.resolve():
            found += _opencode_rules(_read(file), f" in {file}")
    found += _opencode_rules(_mapping(document), "" if path is None else f" in {path}")
    return DeniedTools(rules=tuple(found))


def _opencode_rules(document: Mapping[str, Any], place: str) -> Iterable[ToolRule]:
    """Return the rules of one document, the most general first, as opencode sorts them."""
    for key, allowing in (("tools", (True, False)), ("permission", ("allow", "deny"))):
        given = document.get(key, {})
        if isinstance(given, str):  # one permission for all
            given = {ANY_TOOL: given}
        if not isinstance(given, Mapping):
            raise ConfigError(f"{key!r} must be an object of tools", field=key)
        for pattern, value in sorted(cast("Mapping[Any, Any]", given).items(), key=lambda one: len(str(one[0]))):
            if value in allowing:
                yield ToolRule(pattern=str(pattern), allows=value == allowing[0], place=f"{key!r}{place}")


def _read(path: Path) -> Mapping[str, Any]:
    if path.is_file():
        return _mapping(read_document(path).value)
    return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}
