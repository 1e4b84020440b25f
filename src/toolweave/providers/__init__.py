"""Rules of the APIs of language models: schemas, names and content, and a toolset in the form of each.

The rules are data (`MODEL_APIS`, `SchemaProfile`), with their sources. No model is called here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.providers._anthropic import AnthropicTools
    from toolweave.providers._lowering import LoweredSchema, lower
    from toolweave.providers._model_apis import MODEL_APIS, ModelApi, ToolRules
    from toolweave.providers._openai import OpenAIChatTools, OpenAIResponsesTools
    from toolweave.providers._profiles import SchemaProfile
    from toolweave.providers._wire_tools import WireTools
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_anthropic": ("AnthropicTools",),
            "_lowering": ("LoweredSchema", "lower"),
            "_model_apis": ("MODEL_APIS", "ModelApi", "ToolRules"),
            "_openai": ("OpenAIChatTools", "OpenAIResponsesTools"),
            "_profiles": ("SchemaProfile",),
            "_wire_tools": ("WireTools",),
        },
    )

__all__ = [
    "MODEL_APIS",
    "AnthropicTools",
    "LoweredSchema",
    "ModelApi",
    "OpenAIChatTools",
    "OpenAIResponsesTools",
    "SchemaProfile",
    "ToolRules",
    "WireTools",
    "lower",
]
