"""Definitions of one server that are about another's tools: an index that follows servers as they come and go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from toolweave.definitions._lookalikes import skeleton
from toolweave.tools import ToolSpec

_SHORTEST = 6
_SPECS_PER_STEP = 500
_ENTRIES_PER_STEP = 5_000
_WORD = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9]*+(?:[_-][A-Za-z0-9]++)++|(?<![a-z])[a-z]++(?:[A-Z][a-z0-9]++)++"
)
"""Words that are names rather than English: `read_file`, `read-file`, `readFile`; found in linear time."""

Relation: TypeAlias = tuple[str, str, str, str]
"""Server and tool that say it, tool and server that it is about."""


class ShadowIndex:
    """The names of all servers' tools, and the words in their descriptions that may be such names."""

    __slots__ = ("_by_server", "_names", "_shapes", "_words")

    def __init__(self) -> None:
        self._by_server: dict[str, list[tuple[dict[str, set[tuple[str, str]]], str, str]]] = {}
        self._names: dict[str, set[tuple[str, str]]] = {}
        self._shapes: dict[str, set[tuple[str, str]]] = {}
        self._words: dict[str, set[tuple[str, str]]] = {}

    def update(self, server: str, specs: Iterable[ToolSpec]) -> None:
        """Replace the definitions of a server; an empty list removes it."""
        for _ in self.updating(server, specs):
            pass

    def updating(self, server: str, specs: Iterable[ToolSpec]) -> Iterator[None]:
        """Replace the definitions of a server, a few with each step; an empty list removes it."""
        # The entries of a server are kept with their index, so that replacing one server of a hundred does not walk
        # over the others'.
        for count, (index, key, tool) in enumerate(self._by_server.pop(server, ())):
            if count % _ENTRIES_PER_STEP == _ENTRIES_PER_STEP - 1:
                yield
            holders = index.get(key)
            if holders is not None:
                holders.discard((server, tool))
                if not holders:
                    del index[key]
        added = self._by_server[server] = []
        for count, spec in enumerate(specs):
            if count % _SPECS_PER_STEP == _SPECS_PER_STEP - 1:
                yield
            for index, key in self._entries(spec):
                added.append((index, key, spec.original_name))
                index.setdefault(key, set()).add((server, spec.original_name))
        if not added:
            del self._by_server[server]

    def mentions(self) -> Iterator[Relation]:
        """Yield each description that speaks of a tool which another server has, and its own has not."""
        # The intersection of two key sets, not a search of every name in every description: linear in the tools of a
        # hub, where the latter would be quadratic.
        for word in sorted(self._words.keys() & self._names.keys()):
            owners = sorted(self._names[word])
            own = dict(owners)
            owner, name = owners[0]
            for server, tool in sorted(self._words[word]):
                if server not in own:
                    yield server, tool, name, owner

    def lookalikes(self) -> Iterator[Relation]:
        """Yield each name that looks like one of another server without being the same."""
        for holders in self._shapes.values():
            if len(holders) > 1:
                # The plain ASCII one is taken for the original, whichever arrived first: order of arrival is what an
                # attacker can influence.
                (owner, name), *others = sorted(holders, key=lambda one: (not one[1].isascii(), one))
                for server, tool in others:
                    if server != owner and tool.lower() != name.lower():
                        yield server, tool, name, owner

    def _entries(self, spec: ToolSpec) -> Iterator[tuple[dict[str, set[tuple[str, str]]], str]]:
        name = spec.original_name
        yield self._shapes, skeleton(name)
        # Only names that nobody would write by chance: `search` or `get` in a description means nothing.
        if len(name) >= _SHORTEST and _WORD.fullmatch(name):
            yield self._names, name
        for word in set(_WORD.findall(spec.description)):
            if len(word) >= _SHORTEST:
                yield self._words, word
