"""The tools that each model API accepts: one row an API, as data with sources. Pure; docs/model-apis.md is made of it.

The keywords of a schema that an API takes are those of its profile (`_profiles.py`). What an API refuses besides is
learnt from its errors while a program runs (`models/_tool_repairs.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolweave.providers._profiles import SchemaProfile

OPENAI_HOST = "api.openai.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """The form of tools that an API accepts, and its limits on the tools of one request; None for no limit.

    Attributes:
        schemas: Profile of the schemas, or None for the one that fits the provider and the model.
        max_tools: Maximum number of tools; the last ones are left out of a longer list.
        max_description: Maximum characters of a tool's description; the rest of a longer one is put into the schema.
        repair: Whether tools that the API refuses are sent again in another form, or left out. If not, the error of
            the API is the error of the turn.
    """

    schemas: SchemaProfile | None = None
    max_tools: int | None = None
    max_description: int | None = None
    repair: bool = True

    def __post_init__(self) -> None:
        for name in ("max_tools", "max_description"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelApi:
    """The limits and the form of tools of one API.

    Attributes:
        provider: Name of the provider, as in the name of a model.
        title: Human-readable name of the API.
        hosts: Its hosts; one that begins with a dot stands for every host below it.
        port: Port by which a server on any host is recognized, or None.
        schemas: Profile of its tools.
        strict: Profile of its strict tools, or None if it has none.
        limits: Limits on the tools of one request.
        names: The names of tools that it takes, as a regular expression.
        source: Where the limits are from.
        date: Year and month in which the source was read.
    """

    provider: str
    title: str
    hosts: tuple[str, ...] = ()
    port: int | None = None
    schemas: SchemaProfile = "openai"
    strict: SchemaProfile | None = "compatible-strict"
    limits: ToolRules = ToolRules()
    names: str = "[a-zA-Z0-9_-]{1,64}"
    source: str
    date: str


UNKNOWN = ModelApi(
    provider="",
    title="any other server of OpenAI's form",
    source="no limit is known; refusals are learnt from its errors",
    date="2026-11",
)

MODEL_APIS: tuple[ModelApi, ...] = (
    ModelApi(
        provider="openai",
        title="OpenAI, and Azure",
        hosts=(OPENAI_HOST, ".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
        strict="openai-strict",
        limits=ToolRules(max_tools=128, max_description=1024),
        source=(
            "error texts: `'tools': array too long. Expected an array with maximum length 128`, "
            "`'tools[26].function.description': string too long. Expected a string with maximum length 1024`, "
            "`regex lookaround is not supported`"
        ),
        date="2026-09",
    ),
    ModelApi(
        provider="anthropic",
        title="Anthropic's Messages API",
        hosts=("api.anthropic.com",),
        schemas="anthropic",
        strict="anthropic-strict",
        names="[a-zA-Z0-9_-]{1,128}",
        source=(
            "error text: `Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'`; "
            "the guide to structured outputs for strict tools"
        ),
        date="2026-11",
    ),
    ModelApi(
        provider="google",
        title="Gemini (`parametersJsonSchema`)",
        schemas="gemini",
        strict=None,
        limits=ToolRules(max_tools=512),
        names="[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
        source="the reference of `FunctionDeclaration` and of `Schema`",
        date="2026-11",
    ),
    ModelApi(
        provider="bedrock",
        title="Bedrock's Converse",
        schemas="bedrock",
        strict=None,
        source="the reference of `ToolInputSchema`, and the guide to tools of Nova",
        date="2026-11",
    ),
    ModelApi(
        provider="mistral",
        title="Mistral",
        hosts=("api.mistral.ai",),
        schemas="mistral",
        source="the reference of chat completions",
        date="2026-11",
    ),
    ModelApi(
        provider="groq",
        title="Groq",
        hosts=("api.groq.com",),
        limits=ToolRules(max_tools=128),
        source="the reference of chat completions: at most 128 functions",
        date="2026-11",
    ),
    ModelApi(
        provider="xai",
        title="xAI",
        hosts=("api.x.ai",),
        limits=ToolRules(max_tools=1_000),
        source="the guide to function calling",
        date="2026-11",
    ),
    ModelApi(
        provider="deepseek",
        title="DeepSeek",
        hosts=("api.deepseek.com",),
        strict=None,
        source="the guide to function calling; strict mode is at another URL, with rules on which its pages disagree",
        date="2026-11",
    ),
    ModelApi(
        provider="openrouter",
        title="OpenRouter",
        hosts=("openrouter.ai",),
        source="what the provider behind it accepts",
        date="2026-11",
    ),
    ModelApi(
        provider="ollama",
        title="Ollama",
        port=11434,
        schemas="ollama",
        strict=None,
        source="its source, `api/types.go`",
        date="2026-11",
    ),
    ModelApi(
        provider="llamacpp",
        title="llama.cpp's server",
        schemas="llama.cpp",
        strict=None,
        source="its `grammars/README.md`",
        date="2026-11",
    ),
    ModelApi(
        provider="vllm",
        title="vLLM with xgrammar",
        schemas="vllm",
        strict=None,
        source="its source, `backend_xgrammar.py`",
        date="2026-11",
    ),
)
"""The known model APIs and the tool definitions that each accepts, one row for each API."""

_BY_PROVIDER: Mapping[str, ModelApi] = {api.provider: api for api in MODEL_APIS}


def api_of(url: str, provider: str | None) -> ModelApi:
    """Return the row of a server: by the name of its provider, which is believed, else by its URL."""
    if provider is not None and provider in _BY_PROVIDER:
        return _BY_PROVIDER[provider]
    parts = urlsplit(url)
    host = parts.hostname or ""
    for api in MODEL_APIS:
        if any(host.endswith(one) if one.startswith(".") else host == one for one in api.hosts):
            return api
    if provider is not None:
        return UNKNOWN
    return next((api for api in MODEL_APIS if parts.netloc.endswith(f":{api.port}")), UNKNOWN)


def api_of_model_name(name: str) -> ModelApi:
    """Return the row for a model of Pydantic AI by its name, such as `google:gemini-2.5-pro`."""
    provider = re.split(r"[:_-]", name.removeprefix("gateway/"), maxsplit=1)[0]
    return _BY_PROVIDER.get(provider, UNKNOWN)
