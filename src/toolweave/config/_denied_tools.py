"""Tools that an editor's settings deny beside the entries of servers, or allow only if a person approves each call.

Claude Code: `permissions.deny` and `permissions.ask` of its settings, such as `mcp__github__delete_repo`, `mcp__github`
or `mcp__github__*`. opencode: `tools` and `permission` of its config, such as `"github_*": false`,
`"github_delete_repo": "deny"` and `"github_merge": "ask"`.

A tool that is denied is never offered; one that a person is asked about gets our `confirm`. A pattern is matched
against the name that the program gives a tool. Its rest behind the server's part has to be a whole name or `*`: our
filters have no other patterns. A denial that cannot be kept stops the server. A question about a part of the tools
becomes one about all of them, which costs a person's time and opens nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

from toolweave._json_types import JsonObject, as_array, as_number, as_object, object_or_empty
from toolweave._value import Value
from toolweave.config._documents import errors_in, read_object
from toolweave.config._model import ServerConfig
from toolweave.config._tool_filters import ANY_TOOL, without
from toolweave.config._value_readers import read_flag, read_names
from toolweave.config.validation import check_choice, check_object
from toolweave.errors import ConfigError

_OPENCODE_FILES = ("opencode.json", "opencode.jsonc")
_WILD = re.compile(r"[*?]")


Permission: TypeAlias = Literal["allow", "ask", "deny"]
_PERMISSION: Mapping[str, Permission] = {"allow": "allow", "ask": "ask", "deny": "deny"}


class ToolRule(Value, frozen=True, kw_only=True):
    """A setting that denies tools, allows them, or allows them if a person approves the call.

    Attributes:
        pattern: The name of a tool in its program, or a pattern of such names with `*` and `?`.
        permission: Whether it allows or denies them, or a person is asked.
        place: The setting and its file, for messages.
    """

    pattern: str
    permission: Permission
    place: str

    @property
    def allows(self) -> bool:
        """Whether the tools are offered."""
        return self.permission != "deny"


class DeniedTools(Value, frozen=True, kw_only=True):
    """The rules of a program for the tools of all its servers; a later one wins over an earlier one.

    Attributes:
        rules: The rules.
        claude: Whether they are Claude Code's; else they are opencode's.
    """

    rules: tuple[ToolRule, ...] = ()
    claude: bool = False

    def apply(self, config: ServerConfig) -> ServerConfig:
        """Return a server's config without the tools that the rules deny, and with approvals where they ask a person.

        Raises:
            ConfigError: A rule denies a part of the tools that our filters cannot name.
        """
        return self._confirmed(self._filtered(config))

    def _filtered(self, config: ServerConfig) -> ServerConfig:
        denies_all = False
        denied: set[str] = set()
        allowed: set[str] = set()
        # A tool is in at most one of the two sets. A rule for all tools cancels every rule before it.
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

    def _confirmed(self, config: ServerConfig) -> ServerConfig:
        """Return a config whose `confirm` has the rules that ask a person; its own `confirm` wins."""
        if "ask" not in map(attrgetter("permission"), self.rules):
            return config
        asked: dict[str, Any] = {}
        for rule in self.rules:
            is_question = rule.permission == "ask"
            if is_question:
                rests = self._asked(rule, config.name)
            else:
                rests = self._rests(rule, config.name)
            if ANY_TOOL in rests:  # it cancels every rule before it
                asked.clear()
            if is_question:
                asked |= dict.fromkeys(sorted(rests), "always")
            elif ANY_TOOL in asked:
                asked |= dict.fromkeys(sorted(rests), "never")
            else:
                for rest in rests:
                    asked.pop(rest, None)
        if not asked:
            return config
        asked.update(config.confirm)
        return config.replace(confirm=asked)

    def _asked(self, rule: ToolRule, server: str) -> set[str]:
        """Return the tools of a server that a person is asked about: their names, or `*` for a part of them."""
        rests = self._patterns(rule, server)
        if any(map(_WILD.search, rests)):
            return {ANY_TOOL}
        return rests

    def _rests(self, rule: ToolRule, server: str) -> set[str]:
        """Return the tools of a server that a rule is about: their names, or `*`.

        Raises:
            ConfigError: It denies them by another pattern.
        """
        rests = self._patterns(rule, server)
        if rests == {ANY_TOOL}:
            return rests
        names = {rest for rest in rests if _WILD.search(rest) is None}
        if names != rests and not rule.allows:
            raise ConfigError(
                f"{rule.place} denies the tools {rule.pattern!r}, which cannot be kept: only whole names and '*' of a "
                "server can. The server is not started; write the names of the tools",
                server=server,
            )
        return names

    def _patterns(self, rule: ToolRule, server: str) -> set[str]:
        """Return the rests of a rule for the tools of a server: names, patterns of names, or `*` alone."""
        name = re.sub(r"[^A-Za-z0-9_-]", "_", server)
        prefix = f"{name}_"
        if self.claude:
            prefix = f"mcp__{name}__"
            if rule.pattern == f"mcp__{name}":
                return {ANY_TOOL}
        rests = {rest for rest in rests_of(rule.pattern, prefix) if rest}
        if any(rest.strip(ANY_TOOL) == "" for rest in rests):
            return {ANY_TOOL}
        return rests


def rests_of(pattern: str, prefix: str) -> set[str]:
    """Return the rests of a pattern with `*` and `?` behind a prefix; none if it begins in another way."""
    # A pattern as a state machine: a position is a state, and each character of the prefix moves every state on.
    # There are at most as many states as characters, so it takes no longer than one times the other.
    positions = _with_skipped_stars(pattern, {0})
    for char in prefix:
        following: set[int] = set()
        for position in positions:
            wanted = pattern[position : position + 1]
            if wanted in (char, "?"):
                following.add(position + 1)
            elif wanted == ANY_TOOL:  # the star takes this character, too
                following.add(position)
        positions = _with_skipped_stars(pattern, following)
    return {pattern[position:] for position in positions}


def _with_skipped_stars(pattern: str, positions: set[int]) -> set[int]:
    """Return the positions in a pattern, and those behind a star, which may stand for nothing."""
    found: set[int] = set()
    for position in positions:
        found.add(position)
        while pattern[position : position + 1] == ANY_TOOL:
            position += 1
            found.add(position)
    return found


def _without(config: ServerConfig, denied: list[str]) -> ServerConfig:
    include = without(config.include, denied)
    exclude = [*config.exclude, *denied]
    lost_all = len(config.include) > 0 and not include
    if lost_all and ANY_TOOL not in exclude:  # an empty `include` offers everything
        exclude.append(ANY_TOOL)
    return config.replace(include=include, exclude=exclude)


def _only(config: ServerConfig, allowed: list[str]) -> ServerConfig:
    """Return a config with these tools alone, as far as its own filters offer them."""
    if config.include:
        include = [name for name in config.include if name in allowed]
    else:
        include = without(allowed, config.exclude)
    if include:
        return config.replace(include=include, exclude=())
    return config.replace(include=(), exclude=(*config.exclude, ANY_TOOL))


def rules_of_claude(project: Path, home: Path) -> DeniedTools:
    """Return the denials and the questions in Claude Code's settings.

    Raises:
        ConfigError: A file of settings cannot be read: nothing is started that it may deny.
    """
    folder = project / ".claude"
    found: dict[Permission, list[ToolRule]] = {"ask": [], "deny": []}
    # The rules of all files add up: none of them can take back another's.
    for path in (home / ".claude" / "settings.json", folder / "settings.json", folder / "settings.local.json"):
        with errors_in(path):
            permissions = check_object(read_object(path).get("permissions") or {}, "permissions")
            for permission, rules in found.items():
                key = f"permissions.{permission}"
                for rule in read_names(_without_numbers(permissions.get(permission)), key):
                    # A rule about some arguments is about the tool: calls are not distinguished by their arguments.
                    pattern = rule.partition("(")[0].strip()
                    rules.append(ToolRule(pattern=pattern, permission=permission, place=f"{key!r} in {path}"))
    # Last, since a later rule wins: what is denied is not asked about.
    return DeniedTools(rules=(*found["ask"], *found["deny"]), claude=True)


def _without_numbers(rules: object) -> object:
    """Return a list of rules without its numbers, which name no tool; anything else as it is."""
    listed = as_array(rules)
    if listed is None:
        return rules
    rules = []
    for one in listed:
        if as_number(one) is None:
            rules.append(one)
    return rules


def rules_of_opencode(document: object, path: Path | None, project: Path, home: Path) -> DeniedTools:
    """Return the rules in opencode's configs: those of the user, of the project, and of this document.

    Args:
        document: The document.
        path: Its file, or None.
        project: The project.
        home: The home directory.

    Raises:
        ConfigError: A file cannot be read, or its rules are not an object.
    """
    if path is None:
        return DeniedTools(rules=tuple(_opencode_rules(object_or_empty(document), "")))
    found: list[ToolRule] = []
    for file in _opencode_files(project, home):
        if file.resolve() != path.resolve():
            found += _opencode_rules(read_object(file), f" in {file}")
    # Last, since a later rule wins: this file is the most specific one.
    found += _opencode_rules(object_or_empty(document), f" in {path}")
    return DeniedTools(rules=tuple(found))


def _opencode_files(project: Path, home: Path) -> Iterable[Path]:
    configs = dict.fromkeys((home / ".config", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")))
    for folder in (*(config / "opencode" for config in configs), project, project / ".opencode"):
        for name in _OPENCODE_FILES:
            yield folder / name


def _opencode_rules(document: JsonObject, place: str) -> Iterable[ToolRule]:
    """Return the rules of one document, the most general first, as opencode sorts them."""
    readers: Mapping[str, Callable[[object, str], Permission | None]] = {
        "tools": _read_switch,
        "permission": _read_permission,
    }
    for key, read in readers.items():
        given = document.get(key, {})
        if isinstance(given, str):  # one permission for all
            given = {ANY_TOOL: given}
        patterns = as_object(given)
        if patterns is None:
            raise ConfigError(f"{key!r} must be an object of tools", field=key)
        for pattern, value in sorted(patterns.items(), key=lambda one: len(str(one[0]))):
            permission = read(value, f"{key}.{pattern}")
            if permission is not None:
                yield ToolRule(pattern=str(pattern), permission=permission, place=f"{key!r}{place}")


def _read_switch(value: object, field: str) -> Permission:
    """Return the permission that a switch of opencode stands for."""
    if read_flag(value, field):
        return "allow"
    return "deny"


def _read_permission(value: object, field: str) -> Permission | None:
    """Return a permission of opencode; None for one about single arguments, which tools of servers do not have.

    Raises:
        ConfigError: It is not a permission: a denial that is misspelt would offer the tool.
    """
    by_argument = as_object(value)
    if by_argument is not None:
        # A tool of a server has no arguments that patterns are for: the rule for all of them holds.
        if ANY_TOOL in by_argument:
            return _read_permission(by_argument[ANY_TOOL], f"{field}.{ANY_TOOL}")
        return None
    if isinstance(value, str):
        value = value.strip().lower()
    return _PERMISSION[check_choice(value, field, tuple(_PERMISSION))]
