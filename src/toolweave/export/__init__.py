"""A toolset in the types of other frameworks: LangChain, OpenAI Agents, Pydantic AI, functions.

Every export is live: a listing shows what the toolset offers at that moment, and a call goes to the toolset. An export
borrows: it never opens a toolset and never closes one. A framework is imported when its export is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.export._approval_hints import ConfirmCalls
    from toolweave.export._functions import plain_functions
    from toolweave.export._langchain import langchain_tools
    from toolweave.export._openai_agents import openai_agents_tools
    from toolweave.export._pydantic_ai import pydantic_ai_toolset
    from toolweave.export._server_instructions import server_instructions
    from toolweave.tools.ambient import calling
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".tools.ambient": ("calling",),
            "_approval_hints": ("ConfirmCalls",),
            "_functions": ("plain_functions",),
            "_langchain": ("langchain_tools",),
            "_openai_agents": ("openai_agents_tools",),
            "_pydantic_ai": ("pydantic_ai_toolset",),
            "_server_instructions": ("server_instructions",),
        },
        moved={"providers": ("AnthropicTools", "OpenAIChatTools", "OpenAIResponsesTools")},
    )

__all__ = [
    "ConfirmCalls",
    "calling",
    "langchain_tools",
    "openai_agents_tools",
    "plain_functions",
    "pydantic_ai_toolset",
    "server_instructions",
]
