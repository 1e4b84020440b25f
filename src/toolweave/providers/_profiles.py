"""Profiles of the language models' APIs: the part of JSON Schema that each takes for a tool's arguments; its bounds.

Values alone; `_lowering.py` applies them. Sources: the APIs' own references and error texts, and for llama.cpp and vLLM
their `grammars/README.md` and `backend_xgrammar.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolweave.schema._json_values import JsonValue

SchemaProfile: TypeAlias = Literal[
    "openai",
    "openai-strict",
    "compatible-strict",
    "gpt-oss",
    "gpt-oss-strict",
    "anthropic",
    "anthropic-strict",
    "gemini",
    "bedrock",
    "mistral",
    "ollama",
    "llama.cpp",
    "vllm",
]
"""An API and its rules: those of function calling, or the strict ones of structured outputs.

`"compatible-strict"` is the strict mode of servers that speak like OpenAI; `"gpt-oss"` is for models of that name,
which see no definitions wherever they run; `"gemini"` is Gemini's `parametersJsonSchema`; `"bedrock"` is Bedrock's
Converse, Nova included; `"llama.cpp"` and `"vllm"` are the grammars that these make of a schema.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBounds:
    """Bounds of one request on all of its strict schemas together."""

    strict_tools: int
    optional_parameters: int
    union_parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRules:
    """The rules of one API.

    Attributes:
        keeps: Keywords that it takes, or None for all but `leaves`.
        leaves: Keywords that it refuses, or skips without a word.
        root: Keywords that the schema of the arguments itself may have, or None for the same as everywhere.
        formats: Formats that it takes, or None for any.
        pattern: Regular expression of the patterns that it takes, or None for any.
        names: Regular expression of the arguments' names, or None for any.
        plain_unions: Whether it has no `allOf` and no `oneOf`, and nothing beside a `$ref`.
        single_unions: Whether it has no `properties` beside an `anyOf`.
        inline: Whether it sees no definitions, so that they are put in the place of their references.
        plain_enums: Whether the values of an `enum` are strings and numbers alone.
        integer_bounds: Whether it bounds integers alone, and no other numbers.
        lone_lengths: Whether it takes no lengths beside a pattern or a format.
        single_items: Whether it knows `minItems` of 0 and 1 alone.
        single_types: Whether a value has one type, and no alternatives.
        shut: Whether every object takes its own members alone, every value has a type, and no schema is within itself.
        closed: Whether every object takes its own members alone, all of them required, and every value has a type.
        bounds: Bounds of one request, if it has any.
    """

    keeps: frozenset[str] | None = None
    leaves: frozenset[str] = frozenset()
    root: frozenset[str] | None = None
    formats: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    names: re.Pattern[str] | None = None
    plain_unions: bool = False
    single_unions: bool = False
    inline: bool = False
    plain_enums: bool = False
    integer_bounds: bool = False
    lone_lengths: bool = False
    single_items: bool = False
    single_types: bool = False
    shut: bool = False
    closed: bool = False
    bounds: RequestBounds | None = None

    @property
    def is_strict(self) -> bool:
        """Whether every object must be closed, and every value must have a type."""
        return self.closed or self.shut

    def takes_keyword(self, keyword: str) -> bool:
        """Return whether the API takes a keyword, with some value at least."""
        if self.keeps is not None and keyword not in self.keeps:
            return False
        return keyword not in self.leaves

    def takes_format(self, name: JsonValue) -> bool:
        """Return whether the API takes a `format` of this name."""
        return self.formats is None or name in self.formats

    def takes_patterns(self, patterns: Iterable[str]) -> bool:
        """Return whether the API takes all of several regular expressions."""
        return self.pattern is None or all(map(self.pattern.fullmatch, patterns))


_COMMON = frozenset({"$ref", "anyOf", "description", "enum", "items", "properties", "required", "type"})
_ITEMS = frozenset({"maxItems", "minItems"})
_LENGTHS = frozenset({"maxLength", "minLength"})
_NUMBERS = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"})
_STRICT = _COMMON | _ITEMS | _NUMBERS | {"additionalProperties", "const", "format", "multipleOf", "pattern"}
_STRICT_FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"},
)
REGULAR = re.compile(r"(?:[^\\(]|\\[^1-9k]|\((?!\?(?:[=!]|<[=!])))*", re.DOTALL)
"""A pattern without look-around and back-references."""
ANCHORED = re.compile(r"\^(?:[^\\(]|\\[^A-Za-z0-9]|\((?!\?))*\$", re.DOTALL)
"""A pattern for the whole text, without groups of a special kind and without classes that are letters."""
LEGAL_ARGUMENTS = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of arguments that the APIs for Claude accept, the strictest known."""

MINIMAL = SchemaRules(
    keeps=frozenset({"description", "enum", "items", "properties", "required", "type"}),
    names=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    plain_unions=True,
    inline=True,
    plain_enums=True,
    single_types=True,
)
"""The rules that every API takes; for a tool that an API refused."""

PROFILES: Mapping[SchemaProfile, SchemaRules] = {
    "openai": SchemaRules(pattern=REGULAR),
    "openai-strict": SchemaRules(
        keeps=_STRICT | _LENGTHS, formats=_STRICT_FORMATS, pattern=REGULAR, plain_unions=True, closed=True
    ),
    "compatible-strict": SchemaRules(
        keeps=_STRICT, formats=_STRICT_FORMATS, pattern=REGULAR, plain_unions=True, closed=True
    ),
    "gpt-oss": SchemaRules(inline=True, pattern=REGULAR),
    "gpt-oss-strict": SchemaRules(
        keeps=_STRICT, formats=_STRICT_FORMATS, pattern=REGULAR, plain_unions=True, closed=True, inline=True
    ),
    "anthropic": SchemaRules(names=LEGAL_ARGUMENTS),
    "anthropic-strict": SchemaRules(
        keeps=_COMMON | {"additionalProperties", "const", "default", "format", "minItems"},
        formats=_STRICT_FORMATS | {"uri"},
        names=LEGAL_ARGUMENTS,
        plain_unions=True,
        single_items=True,
        shut=True,
        bounds=RequestBounds(strict_tools=20, optional_parameters=24, union_parameters=16),
    ),
    "gemini": SchemaRules(
        keeps=_COMMON | _ITEMS | {"additionalProperties", "format", "maximum", "minimum", "prefixItems"},
        formats=frozenset({"date", "date-time", "double", "enum", "float", "int32", "int64", "time"}),
        plain_unions=True,
        plain_enums=True,
    ),
    "bedrock": SchemaRules(inline=True, pattern=REGULAR, root=frozenset({"properties", "required", "type"})),
    "mistral": SchemaRules(pattern=REGULAR),
    "ollama": SchemaRules(keeps=_COMMON, plain_unions=True, inline=True),
    "llama.cpp": SchemaRules(
        keeps=_COMMON | _ITEMS | _LENGTHS | _NUMBERS | {"additionalProperties", "const", "format", "pattern"},
        formats=frozenset({"date", "date-time", "time", "uuid"}),
        pattern=ANCHORED,
        plain_unions=True,
        single_unions=True,
        inline=True,
        integer_bounds=True,
    ),
    "vllm": SchemaRules(
        leaves=frozenset(
            {
                *("contains", "maxContains", "minContains", "multipleOf", "patternProperties", "propertyNames"),
                "uniqueItems",
            }
        ),
        formats=_STRICT_FORMATS | {"json-pointer", "relative-json-pointer", "uri", "uri-reference", "uri-template"},
        pattern=REGULAR,
        inline=True,
        lone_lengths=True,
    ),
}
