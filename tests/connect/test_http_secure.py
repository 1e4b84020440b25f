"""What HTTP connections trust and whom they tell: certificates, redirects, credentials in foreign texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.connect.proxying import certificate, serving_tls
from tests.connect.scripted import Exchange, HttpScript, answers_to, listening, modern_answer
from tests.connect.targets import Json, connected
from toolweave import ConnectError, ProtocolError, connect_mcp

TOKEN = "s3cr3t-t0k3n-0123456789"


async def test_a_server_is_trusted_by_its_certificate_and_that_of_an_own_authority_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    server = HttpScript(modern_answer)
    async with listening(server.handle, serving_tls(file)) as (url, _):
        with anyio.fail_after(20), pytest.raises(ConnectError, match=r"CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"):
            await connect_mcp(url)
        assert server.exchanges == []
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        async with connected(url) as connection:
            assert (await connection.call_tool("t")).text == "done"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_is_named_and_nothing_is_sent_there(status: int) -> None:
    elsewhere = HttpScript(modern_answer)
    async with listening(elsewhere.handle) as (there, connections):

        async def move(exchange: Exchange) -> None:
            await exchange.respond(status, location=there.replace("http://", "http://me:hidden@") + "?token=hidden")

        async with listening(move) as (url, _):
            with anyio.fail_after(20), pytest.raises(ConnectError) as refused:
                await connect_mcp({"url": url, "headers": {"Authorization": f"Bearer {TOKEN}"}})
    assert f"Redirect to {there} not followed; use that URL" in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert (connections, elsewhere.exchanges) == ([], [])


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("https://127.0.0.1/mcp", "Redirect to https://127.0.0.1/mcp not followed"),
        ("https://127.0.0.1:{port}/mcp", "Redirect to https://127.0.0.1:[0-9]+/mcp not followed"),
        ("//127.0.0.1:1/mcp", "Redirect to http://127.0.0.1:1/mcp not followed"),
        ("http://[half/", "Redirect not followed: its location is not a URL"),
        ("http://127.0.0.1:99999999/", "Redirect not followed: its location is not a URL|Redirect to http"),
    ],
)
async def test_neither_another_scheme_nor_another_port_is_the_same_origin(location: str, words: str) -> None:
    async def move(exchange: Exchange) -> None:
        port = exchange.headers["host"].rpartition(":")[2]
        await exchange.respond(308, location=location.replace("{port}", port))

    async with listening(move) as (url, _):
        with anyio.fail_after(20), pytest.raises(ConnectError, match=words):
            await connect_mcp(url)


def _fixed() -> Any:
    return {"Authorization": f"Bearer {TOKEN}"}


def _made() -> Any:
    return _fixed


@pytest.mark.parametrize("headers", [_fixed, _made])
async def test_credentials_that_a_server_says_back_are_masked(headers: Callable[[], Any]) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(500, f"cannot use {exchange.headers['authorization']} today".encode())

    async with (
        listening(HttpScript(modern_answer, special).handle) as (url, _),
        connected(url, headers=headers()) as connection,
    ):
        with pytest.raises(ProtocolError, match=r"cannot use .*today") as failure:
            await connection.call_tool("t")
    assert TOKEN not in str(failure.value)


@pytest.mark.parametrize("headers", [_fixed, _made])
async def test_credentials_in_an_error_of_the_protocol_are_masked(headers: Callable[[], Any]) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        said = f"cannot use {exchange.headers['authorization']} today"
        error = {"code": -32000, "message": said, "data": {"tried": [said, 1]}}
        await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with (
        listening(HttpScript(modern_answer, special).handle) as (url, _),
        connected(url, headers=headers()) as connection,
    ):
        with pytest.raises(ProtocolError, match=r"cannot use .*today") as failure:
            await connection.call_tool("t")
    assert TOKEN not in str(failure.value)
    assert failure.value.data == {"tried": [failure.value.message, 1]}
