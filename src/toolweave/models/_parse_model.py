"""Parsing of model names, such as `"anthropic:claude-sonnet-4-5"` and `"http://localhost:8080/v1#qwen3"`.

Reads API keys from the environment; sends nothing.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from toolweave.errors import ConfigError
from toolweave.models._base import Model
from toolweave.models._prices import FREE, Price


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownServer:
    """A server with an OpenAI-compatible API.

    Attributes:
        url: Its URL, if the environment has none.
        url_variable: Environment variable of its URL.
        key_variable: Environment variable of its API key; None if it needs none.
        free: Whether its tokens are free, as on the user's own machine.
    """

    url: str
    url_variable: str | None = None
    key_variable: str | None = None
    free: bool = False
    api: Literal["chat", "responses"] = "chat"


_SERVERS: Mapping[str, _KnownServer] = {
    "openai": _KnownServer(
        url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        api="responses",
    ),
    "openai-chat": _KnownServer(
        url="https://api.openai.com/v1", url_variable="OPENAI_BASE_URL", key_variable="OPENAI_API_KEY"
    ),
    "openrouter": _KnownServer(url="https://openrouter.ai/api/v1", key_variable="OPENROUTER_API_KEY"),
    "groq": _KnownServer(url="https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY"),
    "mistral": _KnownServer(url="https://api.mistral.ai/v1", key_variable="MISTRAL_API_KEY"),
    "deepseek": _KnownServer(url="https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY"),
    "ollama": _KnownServer(url="http://localhost:11434/v1", url_variable="OLLAMA_HOST", free=True),
    "lmstudio": _KnownServer(url="http://localhost:1234/v1", free=True),
    "llamacpp": _KnownServer(url="http://localhost:8080/v1", free=True),
    "vllm": _KnownServer(url="http://localhost:8000/v1", free=True),
}

_ONE_LETTER = 0.85
"""Similarity (`difflib`) of two names that differ in about one letter."""
_EXAMPLES = (
    '"anthropic:claude-sonnet-4-5", "openai:gpt-5.1", "ollama:qwen3", "http://localhost:8080/v1#qwen3", "command"'
)


def model_from(spec: str | Model) -> Model:
    """Return the model that a string names; a model is returned as it is.

    ================================  =====================================================================
    `anthropic:MODEL`                 `AnthropicModel`; `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`
    `openai:MODEL`                    OpenAI's Responses API; `OPENAI_API_KEY`, `OPENAI_BASE_URL`
    `openai-chat:MODEL`               OpenAI's Chat Completions
    `openrouter:`, `groq:`,           the same API elsewhere, with the key of that name
    `mistral:`, `deepseek:`
    `ollama:`, `lmstudio:`,           a server on this machine; `OLLAMA_HOST`
    `llamacpp:`, `vllm:`
    `http://HOST/v1#MODEL`            any server of OpenAI's shape; `https` too, without a key
    `pydantic-ai:PROVIDER:MODEL`      `PydanticAIModel`; so does a provider that is not in this list
    `command`                         `CommandModel`, which answers offline by rule
    `test:TEXT`                       a model that says TEXT
    `A | B`                           `FallbackModel`: B where A cannot answer
    ================================  =====================================================================

    Raises:
        ConfigError: The string does not name a model, or a key or a package is missing.
    """
    if not isinstance(spec, str):
        return spec
    several = [part.strip() for part in spec.split(" | ")]
    # The text of a test model may have the separator in it.
    if len(several) > 1 and not spec.startswith("test:"):
        from toolweave.models._fallback import FallbackModel

        first, *others = map(model_from, several)
        return FallbackModel(first, *others)
    if spec.startswith(("http://", "https://")):
        return _at_url(spec)
    provider, colon, model = spec.strip().partition(":")
    if provider == "command" and not model:
        return _command()
    may_be_empty = provider == "test"
    if not colon or not (model or may_be_empty):
        raise ConfigError(f"{spec!r} is not a model; write PROVIDER:MODEL, such as {_EXAMPLES}", field="model")
    return _BUILDERS.get(provider, _of_provider)(provider, model)


def _at_url(spec: str) -> Model:
    url, _, model = spec.partition("#")
    if not model:
        raise ConfigError(f"{_shown(url)!r} has no model; add it to the URL: {_shown(url)}#MODEL", field="model")
    return _openai(url, model)


def _anthropic(provider: str, model: str) -> Model:
    from toolweave.models._anthropic import AnthropicModel

    url = os.environ.get("ANTHROPIC_BASE_URL")
    if url:
        return AnthropicModel(model, _key("ANTHROPIC_API_KEY"), url)
    return AnthropicModel(model, _key("ANTHROPIC_API_KEY", wanted_by=f"{provider}:{model}"))


def _of_provider(provider: str, model: str) -> Model:
    server = _SERVERS.get(provider)
    if server is None:
        return _elsewhere(provider, model)
    url = os.environ.get(server.url_variable or "") or None
    key = None
    if server.key_variable:
        key = _key(server.key_variable, wanted_by=None if url else f"{provider}:{model}")
    if provider == "ollama" and url:
        url = _ollama_url(url)
    api = server.api if url is None else "chat"  # what every server of the kind speaks
    price = FREE if server.free else None
    name = provider.removesuffix("-chat")
    return _openai(url or server.url, model, key=key, api=api, provider=name, price=price)


def _elsewhere(provider: str, model: str) -> Model:
    """Return a model of a provider that only Pydantic AI knows; raise for a near miss of one of our own names."""
    near = difflib.get_close_matches(provider, [*_SERVERS, *_BUILDERS], n=1, cutoff=_ONE_LETTER)
    if find_spec("pydantic_ai") is None:
        also = "Pydantic AI knows others: install `toolweave[llm]`"
    elif near:
        also = f"If Pydantic AI has it, write 'pydantic-ai:{provider}:{model}'"
    else:
        return _pydantic_ai("", f"{provider}:{model}")
    raise _no_provider(f"{provider}:{model}", provider, also)


def _no_provider(spec: str, provider: str, also: str, others: Iterable[str] = ()) -> ConfigError:
    """Return the error for a provider that does not exist, with the closest that does, or all of them."""
    known = {*_SERVERS, *_BUILDERS}
    near = difflib.get_close_matches(provider, [*known, *others], n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"there are {', '.join(sorted(known))}."
    return ConfigError(f"model {spec!r}: no provider {provider!r}; {hint} {also}", field="model")


def _providers_of_pydantic_ai() -> frozenset[str]:
    """Return the providers of the installed Pydantic AI, by the files that it has for them; none if it keeps no files.

    Importing it takes half a second, so nothing is imported: a model that is never asked costs nothing.
    """
    found = find_spec("pydantic_ai")
    if found is not None:
        folders = found.submodule_search_locations
    else:
        folders = None
    names: set[str] = set()
    for folder in folders or ():
        for path in Path(folder, "providers").glob("[a-z]*.py"):
            names.add(path.stem.replace("_", "-"))
    return frozenset(names)


def _openai(
    url: str,
    model: str,
    *,
    key: str | None = None,
    api: Literal["chat", "responses"] = "chat",
    provider: str | None = None,
    price: Price | None = None,
) -> Model:
    from toolweave.models._openai import OpenAICompatibleModel

    try:
        return OpenAICompatibleModel(url, model=model, api_key=key, api=api, provider=provider, price=price)
    except ValueError as exc:
        raise ConfigError(str(exc), field="model") from exc


def _pydantic_ai(prefix: str, model: str) -> Model:
    from toolweave.models._pydantic_ai import PydanticAIModel

    known = _providers_of_pydantic_ai()
    provider, colon, _ = model.partition(":")
    # one file has several: `openai-responses`, `google-vertex`, `azure-responses`; `gateway/openai` is behind another
    named = provider.removeprefix("gateway/")
    is_known = any(f"{named}-".startswith(f"{one}-") for one in known)
    if colon and known and not is_known:
        also = f"Pydantic AI has {', '.join(sorted(known))}"
        raise _no_provider(f"{prefix}:{model}" if prefix else model, provider, also, known)
    return PydanticAIModel(model)


def _test(_: str, text: str) -> Model:
    from toolweave.models._scripted import ScriptedModel

    return ScriptedModel(lambda _: text, name=f"test:{text}")


def _command() -> Model:
    from toolweave.models._command import CommandModel

    return CommandModel()


_BUILDERS: Mapping[str, Callable[[str, str], Model]] = {
    "anthropic": _anthropic,
    "pydantic-ai": _pydantic_ai,
    "test": _test,
}


def _key(variable: str, *, wanted_by: str | None = None) -> str | None:
    value = os.environ.get(variable, "").strip() or None
    if value is None and wanted_by is not None:
        raise ConfigError(f"model {wanted_by!r} needs an API key: set {variable}", field="model")
    return value


def _ollama_url(host: str) -> str:
    """Return the URL for a value of `OLLAMA_HOST`: `0.0.0.0`, `box:11434`, `http://box:11434`."""
    parts = urlsplit(host if "://" in host else f"http://{host}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 11434)
    except ValueError as exc:
        raise ConfigError(f"OLLAMA_HOST is not a host: {exc}", field="model") from exc
    # The variable is the server's own, where 0.0.0.0 means every address. A client needs one that it can reach.
    if parts.hostname in (None, "0.0.0.0"):  # noqa: S104 - not bound, asked
        name = "127.0.0.1"
    else:
        name = parts.hostname
    shown = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{shown}:{port}{parts.path.rstrip('/').removesuffix('/v1')}/v1"


def _shown(url: str) -> str:
    """Return a URL without the parts that may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
