"""Rules and callers that Hypothesis makes up. Asserts nothing."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

from tests.middleware.company import token_of
from toolweave.middleware import AccessRule

__all__ = ["CALLERS", "rules"]

_GLOBS = [
    "*",
    "f*",
    "find",
    "change",
    "wipe",
    "erase",
    "*e*",
    "greet",
    "con*",
    "notes://*",
    "notes://open/*",
    "notes://diary",
]
_OTHER_GLOBS = ["notes://secret/{name}", "notes://*/{name}", "NOTES://DIARY", "notes://open/a"]


def _some(values: list[Any]) -> SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(values), max_size=2).map(tuple)


_HINTS = st.dictionaries(
    st.sampled_from(["readOnlyHint", "destructiveHint", "idempotentHint"]), st.booleans(), max_size=1
)
_RULE = st.builds(
    AccessRule,
    effect=st.sampled_from(["allow", "deny"]),
    kinds=_some(["tools", "prompts", "resources"]),
    names=_some(_GLOBS + _OTHER_GLOBS),
    annotations=st.one_of(st.just(dict[str, bool]()), _HINTS),
    authenticated=st.sampled_from([None, None, True, False]),
    subjects=_some(["ada", "bob", "*"]),
    scopes=_some(["read", "write"]),
    claims=st.dictionaries(st.just("team"), st.sampled_from(["blue", "red"]), max_size=1),
)
CALLERS = [None, token_of("ada", "read", team="blue"), token_of("bob", "read", "write"), token_of("eve", team="red")]


def rules(*, servers: tuple[str, ...] = (), most: int = 5) -> SearchStrategy[list[AccessRule]]:
    """Return a strategy for lists of rules, which may name these servers."""

    def at(rule: AccessRule, server: str | None) -> AccessRule:
        return rule if server is None else rule.replace(servers=(server,))

    return st.lists(st.builds(at, _RULE, st.sampled_from([None, *servers])), max_size=most)
