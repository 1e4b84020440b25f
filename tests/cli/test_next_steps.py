"""An error of the network or of a registry that ends a command is followed by the next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Done
from tests.install.served import ServedRegistry

Cli = Callable[..., Done]
NOWHERE = "https://registry.invalid"
"""No name server knows a name below `invalid` (RFC 6761, 6.4)."""
NAME = "hint: the host's name leads nowhere from this machine"
PETS = """
openapi: 3.1.0
info: {title: Pets, version: "1"}
paths:
  /pets: {get: {operationId: pets, responses: {"200": {description: ok}}}}
"""


@pytest.mark.parametrize("words", [("search", "x"), ("install", "com.example/x")])
def test_without_a_way_to_the_registry_another_one_can_be_named(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli(*words, "--registry", NOWHERE)

    assert done.code == 3
    assert "was not received: the host 'registry.invalid' was not found" in done.err
    assert "proxy" not in done.err.splitlines()[0]
    assert (
        "\nhint: check the network and the proxy, or name a registry that this machine reaches: --registry" in done.err
    )


def test_a_proxy_of_the_environment_that_is_not_used_is_in_the_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    done = cli("search", "x", "--registry", NOWHERE)

    assert "(the proxy of the environment is not used here" in done.err
    assert "127.0.0.1:9" not in done.err


def test_a_name_that_the_registry_does_not_have_is_followed_by_the_search(cli: Cli, registry: ServedRegistry) -> None:
    done = cli("install", "com.example/nothing")

    assert done.code == 2
    assert "\nhint: toolweave search WORD finds the names of published servers\n" in done.err


def test_a_host_that_is_not_found_is_followed_by_the_next_step(cli: Cli) -> None:
    assert NAME in cli("auth", "login", "https://mcp.invalid/mcp").err
    assert NAME in cli("tools", "--openapi", "https://api.invalid/openapi.json").err


def test_the_json_of_an_error_has_the_next_step_too(cli: Cli) -> None:
    found = cli("search", "x", "--registry", NOWHERE, "--json").json

    assert found["error"]["hint"].startswith("check the network and the proxy")


def test_a_document_without_a_server_names_the_option(cli: Cli, folder: Path) -> None:
    (folder / "pets.yaml").write_text(PETS)

    assert "has no server URL; set base_url or --base-url" in cli("tools", "--openapi", "pets.yaml").err
