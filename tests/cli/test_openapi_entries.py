"""An OpenAPI document as a server: `toolweave serve --openapi`, and an entry of a config that names one."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, toolweave, trust
from tests.cli.served import SERVE, serve_entry
from tests.openapi.documents import document, operation
from tests.openapi.mock_api import MockApi, serving
from toolweave import connect_mcp, connect_mcp_servers
from toolweave.config import load_config, parse_server, reveal
from toolweave.errors import ConfigError

TEST_SECONDS = 90

Cli = Callable[..., Done]

SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "user": {"type": "http", "scheme": "basic"},
    "token": {"type": "http", "scheme": "bearer"},
}
API = document(
    {
        "/keyed": {"get": operation(operationId="keyed", security=[{"key": []}])},
        "/named": {"get": operation(operationId="named", security=[{"user": []}])},
        "/signed": {"get": operation(operationId="signed", security=[{"token": []}])},
    },
    components={"securitySchemes": SCHEMES},
)


@pytest.fixture
def mock() -> MockApi:
    return MockApi(API)


@pytest.fixture
def url(mock: MockApi) -> Generator[str]:
    """Where the API is."""
    with serving(mock) as url:
        yield url


@pytest.fixture
def file(folder: Path) -> Path:
    """The document as a file."""
    file = folder / "api.json"
    file.write_text(json.dumps(API))
    return file


@pytest.mark.slow
async def test_an_api_is_served_with_credentials_of_a_variable(mock: MockApi, url: str, file: Path) -> None:
    words = ["--openapi", file, "--base-url", url, "--auth-env", "KEYS", "--headers-env", "MORE", "--name", "pets"]
    env = {"KEYS": json.dumps({"key": "k1", "user": ["ada", "p:w"]}), "MORE": json.dumps({"X-Version": "2"})}
    async with connect_mcp(serve_entry(*words, env=env), name="s") as client:
        assert client.server_info["name"] == "pets"
        assert (await client.list_tools()).names == ("keyed", "named", "signed")
        await client.call_tool("keyed")
        assert (mock.last.headers["x-key"], mock.last.headers["x-version"]) == ("k1", "2")
        await client.call_tool("named")
        assert mock.last.headers["authorization"] == "Basic YWRhOnA6dw=="


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--base-url", "http://x"], "goes with --openapi"),
        (["x.py", "--auth-env", "X"], "goes with --openapi"),
        (["x.py", "--openapi", "api.json"], "one thing to serve"),
        (["--openapi", "api.json", "--reload"], "--reload does not go with --openapi"),
        (["--openapi", "none.json"], "cannot be read"),
        (["--openapi", "api.json", "--base-url", "http://x", "--auth-env", "TOOLWEAVE_NO_SUCH"], "is not set"),
        (["--openapi", "api.json", "--base-url", "http://x", "--headers-env", "HOME"], "must hold a JSON object"),
    ],
)
def test_what_cannot_be_served_is_exit_code_2_with_the_reason(file: Path, words: list[str], says: str) -> None:
    done = toolweave("serve", *words, cwd=file.parent)
    assert done.code == 2
    assert says in " ".join(done.err.split())


@pytest.mark.slow
async def test_an_entry_names_a_document_and_its_credentials(
    mock: MockApi, url: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_KEY", 'with "quotes" and \\')
    entry = {
        "openapi": "api.json",
        "baseUrl": url,
        "auth": {"key": "${PET_KEY}", "token": "t1"},
        "headers": {"X-Version": "2"},
        "exclude": ["named"],
    }
    config = file.parent / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"pets": entry}}))
    async with connect_mcp_servers(config) as hub:
        assert hub.tools.names == ("pets_keyed", "pets_signed")
        assert not (await hub.execute("pets_keyed", {})).is_error
        assert (mock.last.headers["x-key"], mock.last.headers["x-version"]) == ('with "quotes" and \\', "2")
        await hub.execute("pets_signed", {})
        assert mock.last.headers["authorization"] == "Bearer t1"


@pytest.mark.slow
def test_commands_take_such_an_entry_and_show_no_credential(mock: MockApi, url: str, file: Path) -> None:
    config = file.parent / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"pets": {"openapi": str(file), "base_url": url, "auth": "hunter2x"}}}))
    trust(config)
    listed = toolweave("tools", "--json", cwd=file.parent)
    called = toolweave("call", "signed", cwd=file.parent)
    shown = toolweave("config", "show", cwd=file.parent)
    assert [tool["tool"] for tool in listed.json["tools"]] == ["keyed", "named", "signed"]
    assert (called.code, mock.last.headers["authorization"]) == (0, "Bearer hunter2x")
    assert "hunter2x" not in shown.out + shown.err + listed.out + listed.err


@pytest.mark.slow
async def test_a_gateway_offers_such_an_entry_to_its_callers(mock: MockApi, url: str, file: Path) -> None:
    config = file.parent / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"pets": {"openapi": str(file), "base_url": url, "auth": "t2"}}}))
    entry = {"command": SERVE[0], "args": [*SERVE[1:], "--config", str(config)]}
    async with connect_mcp(entry, name="s") as client:
        await client.call_tool("pets_signed")
    assert mock.last.headers["authorization"] == "Bearer t2"


@pytest.mark.slow
async def test_a_gateway_offers_the_resources_of_such_an_entry(mock: MockApi, url: str, file: Path) -> None:
    config = file.parent / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"pets": {"openapi": str(file), "base_url": url, "auth": "t2"}}}))
    entry = {"command": SERVE[0], "args": [*SERVE[1:], "--config", str(config)]}
    async with connect_mcp(entry, name="s") as client:
        uris = [one.uri for one in await client.list_resources()]
        await client.read_resource("api://signed")
    assert uris == ["api://keyed", "api://named", "api://signed"]
    assert mock.last.headers["authorization"] == "Bearer t2"


@pytest.mark.slow
def test_the_resources_of_an_api_are_listed_and_read_on_the_line(mock: MockApi, url: str, file: Path) -> None:
    words = ["--openapi", file, "--base-url", url]
    listed = toolweave("resources", *words, "--json", cwd=file.parent)
    read = toolweave("resources", *words, "--read", "api://named", cwd=file.parent)
    assert [one["uri"] for one in listed.json["resources"]] == ["api://keyed", "api://named", "api://signed"]
    assert (read.code, mock.last.target) == (0, "/named")


@pytest.mark.slow
def test_what_an_api_leaves_out_is_shown_with_its_reason_by_every_command(folder: Path) -> None:
    broken = operation(operationId="broken", parameters=[{"name": "q", "in": "query", "schema": {"$ref": "#/none"}}])
    answers = {"200": {"description": "", "content": {"application/json": {"schema": {"$ref": "#/none"}}}}}
    source = document({"/a": {"get": broken}, "/b": {"get": operation(operationId="kept", responses=answers)}})
    (folder / "api.json").write_text(json.dumps(source))
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"pets": {"openapi": "api.json", "base_url": "http://127.0.0.1:1"}}}))
    trust(config)

    explained = toolweave("explain", "pets_broken", "--json", cwd=folder).json["tools"]
    kept = toolweave("explain", "kept", "--json", cwd=folder).json["tools"]
    examined = toolweave("doctor", cwd=folder)
    listed = toolweave("tools", cwd=folder)
    words = ("--openapi", folder / "api.json", "--base-url", "http://127.0.0.1:1")
    of_document = toolweave("explain", "broken", *words, "--json", cwd=folder)

    (one,) = explained
    assert (one["offered"], one["tool"]) == (False, "broken")
    assert one["reason"].startswith("its server leaves it out: GET /a: ")
    assert "(at /paths/~1a/get/parameters/0/schema" in one["reason"]
    assert kept[0]["offered"]
    assert "its output schema is left out by the server: GET /b: " in kept[0]["problems"][0]
    shown = " ".join(examined.out.split())
    assert "left out by the server: broken: GET /a: " in shown
    assert "kept (output schema): GET /b: " in shown
    assert "pets: 1 tool is left out by the server; toolweave doctor shows which and why" in listed.err
    assert of_document.json["tools"][0]["reason"] == one["reason"]


NUMBERED = document(
    {
        "/numbered": {
            "get": operation(
                operationId="numbered", parameters=[{"name": "n", "in": "query", "schema": {"type": "integer"}}]
            )
        }
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("repairs", [True, False])
@pytest.mark.parametrize("way", ["entry", "command"])
async def test_the_switch_for_repairs_reaches_the_program_that_serves_an_api(
    folder: Path, way: str, repairs: bool
) -> None:
    file = folder / "numbered.json"
    file.write_text(json.dumps(NUMBERED))
    mock = MockApi(NUMBERED)
    with serving(mock) as url:
        words = ["--openapi", file, "--base-url", url, *([] if repairs else ["--no-repair"])]
        entry = {"openapi": str(file), "base_url": url, "repair_arguments": repairs}
        # the client itself neither refuses nor repairs, so that the program has to
        target = entry if way == "entry" else serve_entry(*words) | {"repair_arguments": False}
        async with connect_mcp(target | {"validate_input": False}, name="s") as client:
            result = await client.call_tool("numbered", {"n": "5"})

    assert result.is_error is not repairs
    assert bool(mock.received) is repairs


def test_the_program_of_an_entry_has_no_credential_in_its_arguments() -> None:
    entry = {"openapi": "https://api.example.com/openapi.json", "auth": {"key": "hunter2x"}, "env": {"A": "b"}}
    config = parse_server("pets", entry, env={})
    assert config.transport == "stdio"
    assert config.args[-2] == "--auth-env"
    assert "hunter2x" not in " ".join(config.args) + repr(config)
    assert reveal(config.env["A"]) == "b"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"openapi": "a.json", "url": "https://x"}, "'openapi' and 'url' are two servers"),
        ({"openapi": "a.json", "command": "x"}, "'openapi' and 'command' are two servers"),
        ({"openapi": "3.1.0", "info": {}, "paths": {}}, "this is a document itself"),
        ({"openapi": "a.json", "auth": "oauth"}, "an API has no sign-in"),
        ({"openapi": "a.json", "auth": {"type": "oauth"}}, "needs 'client_id'"),
        ({"openapi": "a.json", "auth": {"client_id": "x"}}, "needs 'client_secret' or 'private_key'"),
        ({"openapi": "a.json", "auth": {"client_id": "x", "grant": "device_code"}}, "an API is given"),
        ({"openapi": "a.json", "base_url": "ftp://x"}, "base_url"),
        ({"openapi": ["a.json"]}, "'openapi' must be a string"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(entry: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_server("pets", entry, env={})


def test_one_that_is_wrong_costs_the_others_of_its_file_nothing(folder: Path) -> None:
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"bad": {"openapi": 3}, "good": {"openapi": "good.json"}}}))
    loaded = load_config(config)
    assert (list(loaded.servers), list(loaded.errors)) == (["good"], ["bad"])
