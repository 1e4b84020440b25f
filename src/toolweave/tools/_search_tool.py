"""The tool that searches tools: its definition, and how large a catalogue is before it is offered instead of all of it.

Shared by agents, whose models load what they find, and by gateways, whose callers call it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache

from toolweave._json_types import JsonObject
from toolweave.schema import Problem, Validator
from toolweave.tools._search import ToolIndex
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import ToolSnapshot

BUDGET_TOKENS = 10_000
"""Tokens of definitions above which a model gets the search tool instead."""
MAX_TOOLS = 128
"""Maximum number of tools in one request to OpenAI; other providers take more, and models choose badly long before."""
SEARCH_NAME = "search_tools"
_MAX_FOUND = 20
_MAX_SERVERS = 40
_LINE = 200

SEARCH_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "What the tool should do, in a few words of the tool's language, or a tool's name.",
        },
        "limit": {
            "type": "integer",
            "description": "How many tools to load at most.",
            "minimum": 1,
            "maximum": _MAX_FOUND,
            "default": 5,
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def estimated_tokens(tools: Iterable[ToolSpec]) -> int:
    """Estimate the tokens of definitions: a quarter of the bytes of name, description and schema as JSON.

    Tokenizers differ by model and none of them is needed for this. Held against four of them (OpenAI's o200k and
    cl100k, and those published of Claude and of DeepSeek) on the same JSON of 5,645 definitions of 675 servers, the sum
    of all was 3 to 6 % too low and that of 9 servers in 10 within a quarter; of single definitions, more than 99 in 100
    were within a third and none more than half off.
    """
    return sum(map(_tokens, tools))


def _tokens(tool: ToolSpec) -> int:
    parts = [tool.name, tool.description, tool.input_schema]
    return len(json.dumps(parts, ensure_ascii=False, default=dict).encode("utf-8", "surrogatepass")) // 4


def exceeds_budget(tools: Collection[ToolSpec], tokens: int = BUDGET_TOKENS) -> bool:
    """Whether tools are too many, or their definitions too large, to be shown at once.

    Args:
        tools: The tools; the size of a snapshot is remembered.
        tokens: `estimated_tokens` of all definitions that are not too large.
    """
    if len(tools) > MAX_TOOLS:
        return True
    return (_tokens_of(tools) if isinstance(tools, ToolSnapshot) else estimated_tokens(tools)) > tokens


@lru_cache(maxsize=32)
def _tokens_of(snapshot: ToolSnapshot) -> int:
    # By its identity: there is a view for each run, and few snapshots.
    return estimated_tokens(snapshot)


@lru_cache(maxsize=8)
def index_of(snapshot: ToolSnapshot) -> ToolIndex:
    """Return the index of a snapshot, shared by all that search it, so never to be updated."""
    return ToolIndex(snapshot)


@cache
def _validator() -> Validator:
    return Validator(SEARCH_SCHEMA)


def search_problems(arguments: JsonObject) -> Sequence[Problem]:
    """Return the problems of a search's arguments."""
    return _validator().problems(arguments)


def named_sources(tools: Iterable[ToolSpec]) -> str:
    """Return the servers of tools with their numbers of tools, for a description: `github (40), time (2)`."""
    counts = Counter(tool.server for tool in tools)
    local = counts.pop(None, 0)
    servers = [f"{server} ({count})" for server, count in sorted(counts.items(), key=lambda item: str(item[0]))]
    if len(servers) > _MAX_SERVERS:
        more = [f"{len(servers) - _MAX_SERVERS} more servers"]
    else:
        more = []
    others = [f"no server ({local})"] if local else []
    return ", ".join([*servers[:_MAX_SERVERS], *more, *others])


def first_line(text: str) -> str:
    """Return the first line of a description, shortened."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= _LINE:
        return line
    return f"{line[: _LINE - 1]}…"
