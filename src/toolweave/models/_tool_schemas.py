"""Profiles of schemas for models: by the name of the provider, else by the URL, and by the model. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from toolweave.schema._profiles import SchemaProfile

OPENAI_HOST = "api.openai.com"

_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")

_GPT_OSS = re.compile(r"gpt-oss", re.IGNORECASE)
_OLLAMA_PORT = ":11434"
_HOSTS: Mapping[str, str] = {
    OPENAI_HOST: "openai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.x.ai": "xai",
    "openrouter.ai": "openrouter",
}
_MAX_TOOLS: Mapping[str, int] = {OPENAI_HOST: 128, "api.groq.com": 128, "api.x.ai": 1_000}
_PLAIN: Mapping[str, SchemaProfile] = {
    "llamacpp": "llama.cpp",
    "mistral": "mistral",
    "ollama": "ollama",
    "vllm": "vllm",
}
_STRICT: Mapping[str, SchemaProfile | None] = {
    "deepseek": None,  # at another URL, with rules on which its own pages disagree
    "openai": "openai-strict",
}
_PROVIDERS: Mapping[str, SchemaProfile] = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "google": "gemini",
    "mistral": "mistral",
}
_NEVER_STRICT: Collection[SchemaProfile] = ("llama.cpp", "ollama", "vllm")
_WITHOUT_STRICT: Mapping[SchemaProfile, SchemaProfile] = {
    "openai-strict": "openai",
    "compatible-strict": "openai",
    "gpt-oss-strict": "gpt-oss",
}


def has_openai_bounds(host: str, provider: str | None) -> bool:
    """Return whether a server is OpenAI, or Azure, which has the same bounds of tools; a given name is believed."""
    return provider == "openai" if provider is not None else host == OPENAI_HOST or host.endswith(_AZURE_HOSTS)


class ToolSchemas(NamedTuple):
    """The schemas that a model takes.

    Attributes:
        plain: Profile of its tools.
        strict: Profile of its strict tools, or None if it has none.
        always_strict: Whether all tools are strict that can be, whatever a request says.
        max_tools: Maximum number of tools in a request, or None if no limit is known.
    """

    plain: SchemaProfile
    strict: SchemaProfile | None
    always_strict: bool = False
    max_tools: int | None = None


def schemas_for(url: str, model: str, provider: str | None, chosen: SchemaProfile | None = None) -> ToolSchemas:
    """Return the schemas for a model.

    Args:
        url: URL of its server.
        model: Its name; models named gpt-oss see no definitions, wherever they run.
        provider: Name of its provider, which says more than the URL, or None.
        chosen: Profile that the user chose, or None for the one that fits.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    known = (
        provider
        or _HOSTS.get(host)
        or ("openai" if has_openai_bounds(host, None) else "")
        or ("ollama" if parts.netloc.endswith(_OLLAMA_PORT) else "")
    )
    most = _MAX_TOOLS.get(OPENAI_HOST if has_openai_bounds(host, provider) else host)
    if chosen is not None and chosen in _WITHOUT_STRICT:
        return ToolSchemas(_WITHOUT_STRICT[chosen], chosen, always_strict=True, max_tools=most)
    plain: SchemaProfile = chosen or _PLAIN.get(known, "openai")
    strict = None if plain in _NEVER_STRICT else _STRICT.get(known, "compatible-strict")
    if _GPT_OSS.search(model) and chosen is None:
        plain = "gpt-oss" if plain == "openai" else plain
        strict = strict and "gpt-oss-strict"
    return ToolSchemas(plain, strict, max_tools=most)


def profile_of_provider(name: str) -> SchemaProfile:
    """Return the profile for a model of Pydantic AI by its name, such as `google:gemini-2.5-pro`."""
    provider = re.split(r"[:_-]", name.removeprefix("gateway/"), maxsplit=1)[0]
    return _PROVIDERS.get(provider, "gpt-oss" if _GPT_OSS.search(name) else "openai")
