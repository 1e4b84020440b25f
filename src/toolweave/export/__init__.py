"""A toolset in the types of other frameworks: LangChain, OpenAI, OpenAI Agents, Anthropic, Pydantic AI, functions.

Every export is live: a listing shows what the toolset offers at that moment, and a call goes to the toolset. An export
borrows: it never opens a toolset and never closes one. A framework is imported when its export is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.export._anthropic import AnthropicTools
    from toolweave.export._functions import plain_functions
    from toolweave.export._langchain import langchain_tools
    from toolweave.export._openai import OpenAIChatTools, OpenAIResponsesTools
    from toolweave.export._openai_agents import openai_agents_tools
    from toolweave.export._pydantic_ai import pydantic_ai_toolset

__all__ = [
    "AnthropicTools",
    "OpenAIChatTools",
    "OpenAIResponsesTools",
    "langchain_tools",
    "openai_agents_tools",
    "plain_functions",
    "pydantic_ai_toolset",
]

_HOMES = {
    "AnthropicTools": "_anthropic",
    "OpenAIChatTools": "_openai",
    "OpenAIResponsesTools": "_openai",
    "langchain_tools": "_langchain",
    "openai_agents_tools": "_openai_agents",
    "plain_functions": "_functions",
    "pydantic_ai_toolset": "_pydantic_ai",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
