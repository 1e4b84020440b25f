"""Profiles of schemas for models: by the API, and by the model's name. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from toolweave.providers._model_apis import ToolRules, api_of, api_of_model_name
from toolweave.providers._profiles import SchemaProfile

GPT_OSS = re.compile(r"gpt-oss", re.IGNORECASE)
_NEVER_STRICT: Collection[SchemaProfile] = ("llama.cpp", "ollama", "vllm")
_WITHOUT_STRICT: Mapping[SchemaProfile, SchemaProfile] = {
    "openai-strict": "openai",
    "compatible-strict": "openai",
    "gpt-oss-strict": "gpt-oss",
    "anthropic-strict": "anthropic",
}


class ToolSchemas(NamedTuple):
    """The schemas that a model takes.

    Attributes:
        plain: Profile of its tools.
        strict: Profile of its strict tools, or None if it has none.
        always_strict: Whether all tools are strict that can be, whatever a request says.
        limits: Limits of its API on the tools of one request.
    """

    plain: SchemaProfile
    strict: SchemaProfile | None
    always_strict: bool = False
    limits: ToolRules = ToolRules()


def schemas_for(
    url: str,
    model: str,
    provider: str | None,
    chosen: SchemaProfile | ToolRules | None = None,
) -> ToolSchemas:
    """Return the schemas for a model.

    Args:
        url: URL of its server.
        model: Its name; models named gpt-oss see no definitions, wherever they run.
        provider: Name of its provider, which says more than the URL, or None.
        chosen: Profile or rules that the user chose, or None for those of the API.
    """
    api = api_of(url, provider)
    limits = api.limits
    if isinstance(chosen, ToolRules):
        limits = chosen
        chosen = chosen.schemas
    if chosen is not None and chosen in _WITHOUT_STRICT:
        return ToolSchemas(_WITHOUT_STRICT[chosen], chosen, always_strict=True, limits=limits)
    plain: SchemaProfile = chosen or api.schemas
    strict = None if plain in _NEVER_STRICT else api.strict
    if GPT_OSS.search(model) and chosen is None:
        plain = "gpt-oss" if plain == "openai" else plain
        strict = strict and "gpt-oss-strict"
    return ToolSchemas(plain, strict, limits=limits)


def schemas_of_name(name: str, chosen: ToolRules | None = None) -> ToolSchemas:
    """Return the schemas for a model of Pydantic AI by its name, such as `google:gemini-2.5-pro`."""
    api = api_of_model_name(name)
    limits = api.limits if chosen is None else chosen
    plain: SchemaProfile = limits.schemas or api.schemas
    if limits.schemas is None and plain == "openai" and GPT_OSS.search(name):
        plain = "gpt-oss"
    return ToolSchemas(plain, None, limits=limits)
