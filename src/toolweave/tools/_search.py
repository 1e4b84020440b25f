"""Full-text search of tools: BM25 over names, descriptions and parameters of a snapshot.

Pure and deterministic: the same snapshot and query give the same answer on every machine.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

from toolweave._json_types import JsonObject
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import ToolSnapshot

_K1 = 1.2
_B = 0.5
"""BM25's length normalization `b`: less than for prose, since a long definition mostly has many parameters."""
_NAME = 3.0
_TITLE = 2.0
_SERVER = 1.0
_DESCRIPTION = 1.0
_PARAMETER = 1.0
_PARAMETER_TEXT = 0.4
_PREFIX = 0.4
"""The weight of a prefix match: `repo` for `repository`."""
_MAX_TEXT = 4000
_MAX_PARAMETERS = 300

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+"
)
"""Scripts without spaces between words, and Hangul, whose words have endings."""
_COMMON = frozenset(
    _WORD.findall(
        "a an and any are as at be by can do for from has have i if in into is it its me my of on or our should so "
        "that the their them then these this those to use used uses using want when where which will with you your"
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMatch:
    """A search result; the higher the score, the better the tool matches the query."""

    tool: ToolSpec
    score: float


class _IndexedTool(NamedTuple):
    """The words of one tool with their weights, and the sum of these."""

    spec: ToolSpec
    weights: Mapping[str, float]
    length: float


class ToolIndex:
    """A search index over a snapshot's tools.

    `update` indexes only changed definitions, so that it costs in proportion to the changes.
    """

    __slots__ = ("_documents", "_order", "_postings", "_snapshot", "_total")

    def __init__(self, snapshot: ToolSnapshot | None = None) -> None:
        self._snapshot = ToolSnapshot()
        self._documents: dict[str, _IndexedTool] = {}
        self._postings: dict[str, dict[str, float]] = {}
        self._order: dict[str, int] = {}
        self._total = 0.0
        if snapshot is not None:
            self.update(snapshot)

    def update(self, snapshot: ToolSnapshot) -> None:
        """Update the index to this snapshot."""
        if snapshot is self._snapshot:
            return
        for name, document in list(self._documents.items()):
            spec = snapshot.by_name.get(name)
            if spec is not document.spec and spec != document.spec:
                self._forget(name)
        for name, spec in snapshot.by_name.items():
            if name not in self._documents:
                self._add(name, spec)
        self._order = {name: number for number, name in enumerate(snapshot.by_name)}
        # Exact, so that the order of the tools does not change the scores.
        self._total = math.fsum(document.length for document in self._documents.values())
        self._snapshot = snapshot

    def search(self, query: str, limit: int = 5) -> list[ToolMatch]:
        """Return the tools that match the query best, best first; equals in the order of the snapshot.

        A query that is the exact name or alias of a tool finds that tool first.
        """
        exact = self._snapshot.find(query.strip())
        scores = self._scores(words(query))
        if exact is not None:
            scores[exact.name] = max(scores.values(), default=0.0) + 1.0
        best = sorted(scores, key=lambda name: (-scores[name], self._order[name]))[: max(limit, 0)]
        return [ToolMatch(tool=self._snapshot.by_name[name], score=scores[name]) for name in best]

    def __len__(self) -> int:
        return len(self._documents)

    def _scores(self, query: Iterable[str]) -> dict[str, float]:
        scores: dict[str, float] = {}
        average = self._total / max(len(self._documents), 1)
        for word in dict.fromkeys(query):
            for found, share in self._terms(word):
                postings = self._postings[found]
                rarity = math.log(1 + (len(self._documents) - len(postings) + 0.5) / (len(postings) + 0.5))
                for name, weight in postings.items():
                    length = self._documents[name].length / average
                    part = share * rarity * weight * (_K1 + 1) / (weight + _K1 * (1 - _B + _B * length))
                    scores[name] = scores.get(name, 0.0) + part
        return scores

    def _terms(self, word: str) -> Iterator[tuple[str, float]]:
        if word in self._postings:
            yield word, 1.0
        elif len(word) >= 3:
            longer = sorted(known for known in self._postings if known.startswith(word))
            for known in longer:
                yield known, _PREFIX / len(longer)

    def _add(self, name: str, spec: ToolSpec) -> None:
        weights: dict[str, float] = {}
        for text, weight in _texts(spec):
            for word, count in Counter(words(text[:_MAX_TEXT])).items():
                weights[word] = weights.get(word, 0.0) + weight * count
        self._documents[name] = _IndexedTool(spec, weights, math.fsum(weights.values()))
        for word, weight in weights.items():
            self._postings.setdefault(word, {})[name] = weight

    def _forget(self, name: str) -> None:
        for word in self._documents.pop(name).weights:
            del self._postings[word][name]
            if not self._postings[word]:
                del self._postings[word]


def words(text: str) -> list[str]:
    """Return the normalized words of a text in order: case-folded, identifiers split, endings stemmed.

    `createPullRequest` and `create_pull_request` give the same parts; text in a script without spaces gives its
    characters and its pairs of characters.
    """
    found: list[str] = []
    for run in _WORD.findall(unicodedata.normalize("NFKC", text)):
        rest = 0
        for unspaced in _UNSPACED.finditer(run):
            found += _spaced(run[rest : unspaced.start()])
            found += _pairs(unspaced.group())
            rest = unspaced.end()
        found += _spaced(run[rest:])
    return found


@lru_cache(8192)  # the definitions of a fleet say the same words over and over
def _spaced(word: str) -> tuple[str, ...]:
    parts = list(filter(None, _CAMEL.split(word)))
    if len(parts) > 1:
        parts.append(word)
    terms: list[str] = []
    for part in parts:
        folded = _folded(part)
        if folded not in _COMMON:
            terms.append(_stem(folded))
    return tuple(terms)


def _pairs(run: str) -> list[str]:
    return [*run, *(run[at : at + 2] for at in range(len(run) - 1))]


def _folded(word: str) -> str:
    if word.isascii():
        return word.lower()
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _stem(word: str) -> str:
    """Remove the commonest English endings: a plural matches its singular, and `creating` matches `create`."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    is_plural = word.endswith("s") and not word.endswith(("ss", "us", "is"))
    if is_plural and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
            break
    if len(word) > 4 and word.endswith("e"):
        return word[:-1]
    return word


def _texts(spec: ToolSpec) -> Iterator[tuple[str, float]]:
    yield spec.name, _NAME
    yield spec.title or "", _TITLE
    yield spec.server or "", _SERVER
    yield spec.description, _DESCRIPTION
    for name, text in _parameters(spec.input_schema):
        yield name, _PARAMETER
        yield text, _PARAMETER_TEXT


def _parameters(schema: JsonObject) -> list[tuple[str, str]]:
    """Return names and descriptions of the parameters, nested ones included, up to a maximum number."""
    found: list[tuple[str, str]] = []
    waiting: list[Any] = [schema]
    while waiting and len(found) < _MAX_PARAMETERS:
        part = waiting.pop(0)
        if not isinstance(part, Mapping):
            continue
        part = cast("Mapping[str, Any]", part)
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            for name, value in cast("Mapping[str, Any]", properties).items():
                if isinstance(value, Mapping):
                    text = cast("Mapping[str, Any]", value).get("description")
                else:
                    text = None
                found.append((name, text if isinstance(text, str) else ""))
                waiting.append(value)
        waiting.append(part.get("items"))
        for many in ("anyOf", "oneOf", "allOf"):
            if isinstance(choices := part.get(many), Sequence) and not isinstance(choices, str):
                waiting += cast("Sequence[Any]", choices)
    return found[:_MAX_PARAMETERS]
