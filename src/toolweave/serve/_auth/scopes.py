"""Scopes of single operations: those that a call needs besides the endpoint's, and those that a token grants.

Pure decisions; knows neither tokens nor HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote

from toolweave._option_checks import FLAG, MAPPING, check_kinds, check_predicate, type_error
from toolweave.errors import ConfigError
from toolweave.serve.request import OfferKind
from toolweave.tools._scopes import scope_list

_Needs: TypeAlias = Mapping[str, Sequence[str]]
_REMEMBERED = 256
_NEEDS = ("tools", "resources", "prompts")
_KINDS = {**dict.fromkeys(_NEEDS, MAPPING), "hide": FLAG}
_DOTS = re.compile(r"[/\\]\.{1,2}(?:[/\\]|$)")


def _none() -> dict[str, Sequence[str]]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRules:
    """The scopes that tools, resources and prompts need, beside those that their own definitions name.

    A key is a name, or the beginning of names with a `*` at its end: `"github_*"`. The scopes of all matching keys are
    needed.

    Attributes:
        tools: Scopes by the names of tools.
        resources: Scopes by URIs, and by the templates of functions.
        prompts: Scopes by the names of prompts.
        includes: Returns the scopes that a scope includes: `admin` may include `write`, and that `read`.
        hide: Whether lists omit the offers for which a caller's token has no scopes. By default they are listed, so
            that a client can ask its user for more scopes.

    Raises:
        ConfigError: A scope has a character that is not allowed.
        TypeError: A value has another type.
    """

    tools: _Needs = field(default_factory=_none)
    resources: _Needs = field(default_factory=_none)
    prompts: _Needs = field(default_factory=_none)
    includes: Callable[[str], Iterable[str]] | None = None
    hide: bool = False

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS, owner="ScopeRules")
        check_predicate("ScopeRules.includes", self.includes)
        for kind in _NEEDS:
            object.__setattr__(self, kind, _needs(getattr(self, kind)))

    def required(self, kind: OfferKind, name: str, declared: Iterable[str]) -> tuple[str, ...]:
        """Return the scopes that an offer needs, in order: the declared ones, then those of the rules."""
        needs: _Needs = getattr(self, kind)
        if not needs:
            return tuple(declared)
        matches = fits_uri if kind == "resources" else fits
        found = list(declared)
        for key, scopes in needs.items():
            if matches(key, name):
                found += scopes
        return tuple(dict.fromkeys(found))


def _needs(given: _Needs) -> _Needs:
    """Return scopes by name as tuples; a single text is one scope, and not its letters."""
    found: dict[str, tuple[str, ...]] = {}
    for name, scopes in given.items():
        if not isinstance(scopes, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # given in Python
            raise type_error(f"ScopeRules for {name!r}", scopes, "a list of scopes")
        try:
            found[name] = scope_list(scopes)
        except ValueError as exc:
            raise ConfigError(f"ScopeRules for {name!r}: {exc}") from None
    return found


def fits(key: str, name: str) -> bool:
    """Whether a key, a name or the beginning of names with a `*` at its end, names something."""
    return key == name or (key.endswith("*") and name.startswith(key[:-1]))


def fits_uri(key: str, uri: str, *, odd: bool = True) -> bool:
    """Return whether a key matches a URI in any spelling: a source may read two spellings as one.

    A URI with dot segments can lead to any other: the answer for it is `odd`.
    """
    plain = unquote(uri).casefold()
    if _DOTS.search(plain) is not None:
        return odd
    return fits(unquote(key).casefold(), plain)


class Access:
    """The scopes that tokens grant, with those that they include.

    Args:
        rules: The rules of the endpoint.
    """

    def __init__(self, rules: ScopeRules) -> None:
        self.rules = rules
        self._known: dict[tuple[str, ...], frozenset[str]] = {}

    def granted(self, scopes: tuple[str, ...]) -> frozenset[str]:
        """Return the scopes of a token, and all that they include."""
        known = self._known.get(scopes)
        if known is None:
            # cleared as a whole: tokens have few different sets of scopes, so this happens only under attack
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[scopes] = self._closed(scopes)
        return known

    def _closed(self, scopes: Iterable[str]) -> frozenset[str]:
        if self.rules.includes is None:
            return frozenset(scopes)
        found: set[str] = set()
        left = list(scopes)
        while left:
            scope = left.pop()
            # Scopes may include each other in a circle.
            if scope not in found:
                found.add(scope)
                left += self.rules.includes(scope)
        return frozenset(found)
