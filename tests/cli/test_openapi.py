"""`--openapi`: the API of a document, for every command that takes a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Done
from tests.openapi.documents import PETS, operation
from tests.openapi.mock_api import MockApi, serving

Cli = Callable[..., Done]


def test_the_operations_of_a_document_are_listed_and_called(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = PETS["paths"] | {"/bad": {"get": operation(parameters=[{"$ref": "#/none"}])}}
    mock = MockApi(PETS | {"paths": broken})
    file = folder / "pets.json"
    file.write_text(json.dumps(mock.document), encoding="utf-8")

    with serving(mock) as url:
        listed = cli("tools", "--openapi", file, "--base-url", url, "--json")
        monkeypatch.setenv("KEY", "sesame")
        called = cli(
            *("call", "deletePet", "id=7", "--openapi", file, "--base-url", url, "--bearer-env", "KEY"),
            *("--header", "X-Version: 2"),
        )

    assert listed.code == 0
    assert [tool["tool"] for tool in listed.json["tools"]] == [
        "listPets", "createPet", "pets_get", "replacePet", "deletePet"
    ]  # fmt: skip
    assert "GET /bad: left out is the operation" in listed.err
    assert called.code == 0
    assert json.loads(called.out) == {"operation": "DELETE /pets/{id}"}
    assert mock.last.target == "/pets/7"
    assert (mock.last.headers["authorization"], mock.last.headers["x-version"]) == ("Bearer sesame", "2")


def test_options_that_do_not_go_together_are_refused(cli: Cli, folder: Path) -> None:
    api, server, base = ("--openapi", "a.json"), ("--url", "http://x"), ("--base-url", "http://x")
    for words in ((*api, *server), base, (*server, *base)):
        assert cli("tools", *words).code == 2
    missing = cli("tools", "--openapi", folder / "none.json")
    assert missing.code == 2
    assert "cannot be read" in missing.err
