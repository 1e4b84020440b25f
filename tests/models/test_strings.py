"""Models by the string that a person writes."""

from __future__ import annotations

import sys
from typing import get_args

import pytest
from pydantic_ai.models import KnownModelName

from tests.models.fake_anthropic import KEY as ANTHROPIC_KEY
from tests.models.fake_anthropic import fake_anthropic
from tests.models.fake_anthropic import said as said_by_claude
from tests.models.fake_openai import KEY, fake_openai, said
from tests.programs import ran
from toolweave import Agent
from toolweave.errors import ConfigError
from toolweave.models import CommandModel, FallbackModel, ScriptedModel, complete, model_from
from toolweave.models._base import Model, ModelRequest
from toolweave.models._messages import UserMessage

HELLO = ModelRequest(messages=[UserMessage.of("hello")])
VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST"),
    *("OPENROUTER_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY"),
)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


async def text_of(model: Model) -> str:
    async with FallbackModel(model) as closing:
        return (await complete(closing, HELLO)).message.text


async def test_a_server_is_named_by_its_url_and_the_model() -> None:
    async with fake_openai() as fake:
        model = model_from(f"{fake.url}#qwen3")

    assert model.name == f"{fake.url}#qwen3"


async def test_openai_is_asked_where_and_with_the_key_that_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_openai(said("Hello")) as fake:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)

        model = model_from("openai:gpt-5.1")

        assert model.name == "openai:gpt-5.1"
        assert await text_of(model) == "Hello"
        assert fake.checked[0]["model"] == "gpt-5.1"


async def test_claude_is_asked_where_and_with_the_key_that_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_anthropic(said_by_claude("Hello")) as fake:
        monkeypatch.setenv("ANTHROPIC_API_KEY", ANTHROPIC_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)

        model = model_from("anthropic:claude-sonnet-4-5")

        assert model.name == "anthropic:claude-sonnet-4-5"
        assert await text_of(model) == "Hello"


async def test_ollama_is_found_by_its_host_and_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_openai() as fake:
        monkeypatch.setenv("OLLAMA_HOST", fake.url.removeprefix("http://").removesuffix("/v1"))

        model = model_from("ollama:qwen3:8b")

        assert model.name == "ollama:qwen3:8b"
        with pytest.raises(Exception, match="Incorrect API key"):  # the fake wants one: it was asked
            await text_of(model)
        assert fake.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://localhost:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("box:8080", "http://box:8080/v1"),
        ("https://box/ollama/", "https://box:443/ollama/v1"),
        ("http://[::1]", "http://[::1]:11434/v1"),
    ],
)
def test_where_ollama_is_may_be_said_in_every_way_that_it_knows(
    host: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)

    assert f"{url!r}" in repr(model_from("ollama:qwen3"))


def test_openai_itself_is_asked_by_its_newer_api_and_the_older_one_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    assert model_from("openai:gpt-5.1").name == model_from("openai-chat:gpt-5.1").name == "openai:gpt-5.1"


@pytest.mark.parametrize(
    ("spec", "variable"),
    [
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5.1", "OPENAI_API_KEY"),
        ("openai-chat:gpt-5.1", "OPENAI_API_KEY"),
        ("openrouter:meta/llama", "OPENROUTER_API_KEY"),
        ("groq:llama", "GROQ_API_KEY"),
        ("mistral:large", "MISTRAL_API_KEY"),
        ("deepseek:chat", "DEEPSEEK_API_KEY"),
        ("command | openai:gpt-5.1", "OPENAI_API_KEY"),
    ],
)
def test_a_key_that_is_missing_is_named(spec: str, variable: str) -> None:
    with pytest.raises(ConfigError, match=f"set {variable}"):
        model_from(spec)


@pytest.mark.parametrize("spec", ["lmstudio:m", "llamacpp:m", "vllm:m", "ollama:m"])
def test_a_server_on_this_machine_needs_no_key(spec: str) -> None:
    assert model_from(spec).name == spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "is not a model; write PROVIDER:MODEL"),
        ("gpt-5.1", "is not a model"),
        ("openai:", "is not a model"),
        ("http://localhost:8080/v1", "add it to the URL: http://localhost:8080/v1#MODEL"),
        ("http://#m", "http"),
        ("http://user:pw@localhost/v1#m", "credentials"),
    ],
)
def test_what_names_no_model_is_an_error_that_says_what_does(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        model_from(spec)

    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("opnai:gpt-5.1", "model 'opnai:gpt-5.1': no provider 'opnai'; did you mean 'openai'"),
        ("google:gemini", "no provider 'google'; there are anthropic, .*install `toolweave"),
        ("pydantic-ai:google:gemini", "install `toolweave"),
    ],
)
def test_without_pydantic_ai_a_provider_that_only_it_knows_is_an_error_that_says_so(
    spec: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)

    with pytest.raises(ConfigError, match=words):
        model_from(spec)


def test_a_host_of_ollama_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box:many")

    with pytest.raises(ConfigError, match="OLLAMA_HOST is not a host"):
        model_from("ollama:qwen3")


async def test_the_command_model_a_text_and_a_chain_have_strings_too() -> None:
    assert isinstance(model_from("command"), CommandModel)
    assert await text_of(model_from("test:Hello | there")) == "Hello | there"
    chain = model_from("command | test:Hello")
    assert isinstance(chain, FallbackModel)
    assert chain.name == "command | test:Hello"


def test_a_model_is_returned_as_it_is() -> None:
    model = ScriptedModel(["Hello"])

    assert model_from(model) is model


def test_a_provider_that_is_ours_but_for_a_letter_is_a_mistake_and_not_one_of_pydantic_ai() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'anthropic'\? If Pydantic AI has it, write 'pydantic-ai:antr"):
        model_from("antropic:claude-sonnet-4-5")

    for theirs in ("xai:grok-4", "openai-responses:gpt-5.1", "google:gemini-2.5-pro"):
        assert model_from(theirs).name == theirs


@pytest.mark.parametrize("spec", ["nosuch:model", "pydantic-ai:nosuch:model", "command | nosuch:model"])
def test_an_agent_with_a_model_of_no_provider_is_an_error_that_names_the_model_and_the_providers(spec: str) -> None:
    named = spec.removeprefix("command | ")

    with pytest.raises(ConfigError) as raised:
        Agent(spec)

    assert f"model {named!r}: no provider 'nosuch'; there are anthropic, " in str(raised.value)
    assert "Pydantic AI has alibaba, " in str(raised.value)
    assert raised.value.field == "model"


def test_a_slip_in_a_provider_of_pydantic_ai_is_an_error_that_shows_it() -> None:
    with pytest.raises(ConfigError, match="no provider 'gogle'; did you mean 'google'"):
        model_from("gogle:gemini-2.5-pro")


@pytest.mark.parametrize(
    "name",
    [
        *("google:gemini-2.5-pro", "google-vertex:gemini-2.5-pro", "bedrock:amazon.nova-pro", "xai:grok-4"),
        *("openai-responses:gpt-5.1", "azure-responses:gpt-5.1", "gateway/openai:gpt-5.1", "google-cloud:gemini"),
    ],
)
def test_a_model_of_a_provider_that_pydantic_ai_has_is_made_without_it_and_without_a_key(name: str) -> None:
    code = f"import sys; from toolweave import Agent; print(Agent({name!r}).model.name, 'pydantic_ai' in sys.modules)"

    shown = ran([sys.executable, "-c", code], check=True)

    assert shown.stdout.split() == [name, "False"]


def test_every_model_that_pydantic_ai_lists_is_of_a_known_provider() -> None:
    listed = [name for name in get_args(KnownModelName.__value__) if ":" in name]

    assert len(listed) > 100
    for name in listed:
        assert model_from(f"pydantic-ai:{name}").name == name
