"""Secrets of a config: what is shown of a server, its errors and its start never holds one."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connect.scripted import HttpScript, legacy_answer, listening
from tests.connect.targets import connected, initialized
from toolweave import ConfigError, McpConnection, ServerConfig, connect_mcp, load_config
from toolweave.config import is_loopback
from toolweave.connect._stdio.environment import inherited_environment
from toolweave.errors import ConnectError, ServerError

ARGUMENTS = {
    "a variable of a container": ["-e", "DATABASE_URL=postgres://app:S3CR3T99@db/prod"],
    "a variable in one word": ["--env=DATABASE_URL=postgres://app:S3CR3T99@db/prod"],
    "a secret variable in one word": ["--env=MYSQL_PWD=S3CR3T99"],
    "a bare variable": ["MYSQL_PWD=S3CR3T99"],
    "a header in one word": ["--header=Authorization: Bearer S3CR3T99"],
    "a header of its own": ["--header", "Authorization: Bearer S3CR3T99"],
    "a header glued to its flag": ["-HX-Api-Key: S3CR3T99"],
    "a flag with a value": ["--token=S3CR3T99"],
    "a flag before its value": ["--token", "S3CR3T99"],
    "a URL": ["https://app:S3CR3T99@host/x"],
    "a URL behind a flag": ["--dsn-url=https://app:S3CR3T99@host/x?y=1"],
    "a secret of a query": ["https://host/x?api_key=S3CR3T99"],
    "a URL in a sentence": ["connect to postgres://app:S3CR3T99@db/prod now"],
    "a one-time password": ["--otp=S3CR3T99"],
}
REPEATS = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        said = f"bad start: {sys.argv[1:]} {os.environ.get('SOME_URL')} {os.environ.get('API_TOKEN')}"
        error = {"code": -32000, "message": said}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""


@pytest.mark.parametrize("words", ARGUMENTS.values(), ids=list(ARGUMENTS))
async def test_a_secret_among_the_arguments_is_shown_nowhere(
    words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = ServerConfig(
        name="x",
        command=sys.executable,
        args=["-c", REPEATS, *words],
        env={"API_TOKEN": "t0ken-S3CR3T99", "SOME_URL": "redis://user:S3CR3T99@cache/0"},
        protocol="legacy",
        restart="never",
    )
    assert "S3CR3T99" not in repr(config) + config.endpoint + json.dumps(config.to_dict())
    connection = McpConnection(config)
    with pytest.raises(ServerError) as failed:
        await connection.open()
    steps = [(step.name, step.detail) for step in connection.report.steps]
    assert "bad start" in str(steps)
    assert "bad start" in str(failed.value)
    for text in (
        str(failed.value),
        repr(failed.value),
        str(steps),
        str(connection.error),
        repr(connection),
        caplog.text,
    ):
        assert "S3CR3T99" not in text
    await connection.close()


def test_arguments_that_hold_no_secret_are_shown_as_they_are() -> None:
    words = (
        "-y",
        "@scope/server@1.2",
        "--name=x",
        "a=b=c",
        "/path:with",
        "https://host/path?x=1",
        "mail@host",
        "C:\\x",
    )
    config = ServerConfig(name="x", command="npx", args=words)
    assert config.to_dict()["args"] == list(words)
    assert config.redact(" ".join(words)) == " ".join(words)


def test_a_server_process_inherits_neither_secrets_nor_the_passwords_in_addresses() -> None:
    shell = {
        "PATH": "/bin",
        "UV_INDEX_URL": "https://user:pass@index.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://tok3n@a.example/simple https://u:p@b.example/simple",
        "NPM_CONFIG_REGISTRY": "https://npm.example/",
        "HTTPS_PROXY": "http://me:pw@proxy.example:3128",
        "NPM_CONFIG_OTP": "123456",
        "npm_config_key": "-----BEGIN",
        "UV_PUBLISH_PASSWORD": "x",
        "API_KEY": "y",
    }
    assert inherited_environment(shell) == {
        "PATH": "/bin",
        "UV_INDEX_URL": "https://index.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example/simple https://b.example/simple",
        "NPM_CONFIG_REGISTRY": "https://npm.example/",
        "HTTPS_PROXY": "http://proxy.example:3128",
    }


@pytest.mark.parametrize(
    ("entry", "warns"),
    [
        ({"url": "http://tools.example/mcp", "auth": "s3cr3t-token"}, True),
        ({"url": "http://tools.example/mcp", "headers": {"X-Api-Key": "k3y"}}, True),
        ({"url": "http://127.0.0.1.evil.example/mcp", "auth": "s3cr3t-token"}, True),
        ({"url": "http://localhost.evil.example/mcp", "auth": "s3cr3t-token"}, True),
        ({"url": "https://tools.example/mcp", "auth": "s3cr3t-token"}, False),
        ({"url": "http://tools.example/mcp", "headers": {"X-Team": "a"}}, False),
        ({"url": "http://localhost:8000/mcp", "auth": "s3cr3t-token"}, False),
        ({"url": "http://[::1]:8000/mcp", "auth": "s3cr3t-token"}, False),
    ],
)
def test_credentials_over_plain_http_are_warned_of(
    entry: dict[str, Any], warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"x": entry}}))
    loaded = load_config(file)
    assert any("over plain http" in warning for warning in loaded.warnings) is warns
    assert ("over plain http" in caplog.text) is warns
    assert "s3cr3t" not in caplog.text


async def test_credentials_over_plain_http_are_warned_of_where_code_gave_them(caplog: pytest.LogCaptureFixture) -> None:
    target = {"url": "http://tools.invalid/mcp", "auth": "s3cr3t-token", "restart": "never", "timeout": {"connect": 2}}
    with pytest.raises(ServerError):
        await connect_mcp(target)
    assert "over plain http" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "app.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback(f"{host}.evil.example")


@pytest.mark.parametrize(
    "auth",
    [
        "oauth",
        "OAuth",
        " oauth2 ",
        "oidc",
        {"type": "oauth"},
        {"type": "OAuth2.1"},
    ],
    ids=str,
)
async def test_the_word_for_a_sign_in_signs_in_and_is_never_sent_as_a_token(auth: Any) -> None:
    config = ServerConfig(name="x", url="https://tools.example/mcp", auth=auth)
    assert config.auth is not None
    assert config.auth.oauth is not None
    server = HttpScript(initialized(legacy_answer))
    async with listening(server.handle) as (url, _), connected({"url": url, "auth": auth}) as connection:
        await connection.call_tool("t")
    assert all("authorization" not in exchange.headers for exchange in server.exchanges)


def test_a_token_that_is_the_word_for_a_sign_in_is_refused() -> None:
    auth: Any = {"type": "bearer", "token": "oauth"}
    with pytest.raises(ConfigError, match="a token beside it"):
        ServerConfig(url="https://tools.example/mcp", auth=auth)


@pytest.mark.parametrize("auth", ["bearer", "none", "true", {"type": "api_key", "token": "API-KEY"}], ids=str)
def test_a_word_for_a_way_to_authorize_is_no_token(auth: Any) -> None:
    with pytest.raises(ConfigError, match="would be sent as a token"):
        ServerConfig(name="x", url="https://tools.example/mcp", auth=auth)


@pytest.mark.parametrize("command", ["nosuch-program --token zz-Secret-1234", "nosuch-program-ghp_zzSecret12345678"])
async def test_the_error_of_a_command_that_is_not_found_shows_no_secret_of_it(command: str) -> None:
    with pytest.raises(ConnectError, match="was not found") as caught:
        async with connect_mcp({"command": command}):
            pass

    assert "Secret" not in f"{caught.value} {caught.value!r} {caught.value.message}"
    assert "nosuch-program" in str(caught.value)


REPEATING = """
import json, os, sys

for line in sys.stdin:
    message = json.loads(line)
    answer = {"result": {"tools": []}}
    if message["method"] == "initialize":
        info = {"name": "repeating", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/call":
        text = os.environ["API_KEY"] + " is not enough"
        answer = {"error": {"code": -32000, "message": text, "data": {"key": text}}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def test_an_error_of_a_process_that_repeats_a_secret_of_the_config_shows_it_to_nobody() -> None:
    secret = "a-long-secret-value"
    target = {"command": sys.executable, "args": ["-c", REPEATING], "env": {"API_KEY": secret}, "protocol": "legacy"}
    async with connected(target) as connection:
        with pytest.raises(ServerError, match="is not enough") as refused:
            await connection.call_tool("t")
    assert secret not in f"{refused.value} {getattr(refused.value, 'data', None)}"
