"""Attacks on what must not come out of an endpoint: files beside the offered ones, error texts, tokens, logs."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jwt
import pytest

from tests.serve.exchanges import call, call_body, events, exchange, handshake, modern_headers
from tests.serve.offered import SECRET, doing_server
from tests.serve.serving import served_http
from toolweave import tool
from toolweave.serve import BearerAuth, JwtAuth, create_mcp_server
from toolweave.serve._offers.files import directory
from toolweave.tools import CallContext

TOKEN = "alice-0123456789abcdef"


async def read(url: str, uri: str) -> dict[str, Any]:
    """Read a resource in both eras; the answers must agree."""
    body = call_body("", method="resources/read", uri=uri)
    headers = {**modern_headers("", "resources/read"), "Mcp-Name": uri if uri.isascii() and uri.isprintable() else "-"}
    modern = (await exchange(url, headers=headers, body=body)).json()
    _, session = await handshake(url)
    message = {"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": uri}}
    legacy = events((await exchange(url, headers=session, body=json.dumps(message).encode())).body)[-1]
    assert ("error" in modern) == ("error" in legacy)
    return modern


@pytest.mark.requirement("R101")
@pytest.mark.parametrize(
    "tail",
    [
        "../secret.txt",
        "sub/../../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        "%252e%252e%252fsecret.txt",
        "..\\secret.txt",
        "..%5csecret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "%2fetc%2fpasswd",
        "notes.txt%00.png",
        "link.txt",
        "sub/./../../secret.txt",
        "....//secret.txt",
        "C:/windows/win.ini",
    ],
)
async def test_no_uri_leads_out_of_the_offered_directory(tail: str, tmp_path: Path) -> None:
    offered = tmp_path / "offered"
    (offered / "sub").mkdir(parents=True)
    (offered / "notes.txt").write_text("fine")
    (tmp_path / "secret.txt").write_text("TOP SECRET")
    (offered / "link.txt").symlink_to(tmp_path / "secret.txt")
    server = create_mcp_server(name="files", version="1", resources=[directory(offered, uri="docs://")])
    async with served_http(server) as url:
        refused = await read(url, f"docs://{tail}")
        control = await read(url, "docs://notes.txt")

    assert refused["error"]["code"] == -32602
    assert "TOP SECRET" not in json.dumps(refused)
    assert control["result"]["contents"][0]["text"] == "fine"


@pytest.mark.requirement("R104", "C31")
async def test_what_a_crash_says_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served_http(doing_server()) as url:
        modern = await call(url, "crash")
        _, session = await handshake(url)
        message: Any = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "crash", "arguments": {}}}
        legacy = await exchange(url, headers=session, body=json.dumps(message).encode())
        meant = await call(url, "refuse")

    for answer in (modern, legacy):
        assert b"hunter2" not in answer.body
        assert b"Traceback" not in answer.body
        assert b"RuntimeError" not in answer.body
    assert modern.json()["result"]["isError"] is True
    assert "only on Mondays" in meant.body.decode(), "the message of a ToolError is sent"
    assert "hunter2" in caplog.text, "and the log of the server has the rest"


async def test_what_a_crash_says_is_told_where_that_is_wanted() -> None:
    async with served_http(doing_server(expose_errors="message")) as url:
        answer = await call(url, "crash")

    assert SECRET in answer.body.decode()
    assert "Traceback" not in answer.body.decode()


@tool
async def peek(ctx: CallContext, password: str) -> str:
    """Return all that can be seen of the caller."""
    return repr((ctx, ctx.meta))


async def test_the_most_talkative_log_holds_no_token_and_no_argument(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = create_mcp_server(name="s", version="1", tools=[peek])
    bearer = {"Authorization": f"Bearer {TOKEN}", "Cookie": "crumbs-of-a-cookie"}
    message: Any = {"name": "peek", "arguments": {"password": "argument-hunter2"}}
    legacy = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": message}).encode()
    async with served_http(server, auth=BearerAuth(tokens=[TOKEN])) as url:
        answers = [
            await call(url, "peek", {"password": "argument-hunter2"}, headers=bearer),
            await call(url, "peek", {"password": "argument-hunter2"}, headers={"Authorization": f"Bearer {TOKEN}-"}),
            await call(url, "peek", {"password": ["argument-hunter2"]}, headers=bearer),
            await call(url, "peek", {"password": "argument-hunter2"}, headers={**bearer, "Mcp-Name": "x"}),
            await call(url, "peek", {"password": "argument-hunter2"}, headers={**bearer, "Host": "evil.example"}),
        ]
        _, session = await handshake(url, bearer)
        answers.append(await exchange(url, headers=session, body=legacy))
        answers.append(await exchange(url, headers=session, body=b'{"argument-hunter2": '))

    assert answers[0].status == 200
    for secret in (TOKEN, "crumbs-of-a-cookie", "argument-hunter2"):
        assert secret not in caplog.text
    for secret in (TOKEN, "crumbs-of-a-cookie"):
        assert not any(secret in repr(answer) for answer in answers)


async def test_a_token_in_the_address_is_no_token() -> None:
    async with served_http(doing_server(), auth=BearerAuth(tokens=[TOKEN])) as url:
        for name in ("access_token", "token", "authorization"):
            path = f"/mcp?{name}={quote(f'Bearer {TOKEN}')}"
            answer = await exchange(
                url, path=path, headers=modern_headers("add"), body=call_body("add", {"a": 1, "b": 2})
            )
            assert answer.status == 401


async def test_a_token_cannot_make_us_fetch_its_own_keys() -> None:
    auth = JwtAuth(issuer="https://login.example", audience="a", key="k" * 64, algorithms=["HS256"])
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/keys"
        for header in ("jku", "x5u"):
            token = jwt.encode({"iss": "https://login.example"}, "j" * 64, "HS256", headers={header: url})
            assert await auth.identify(token) is None
        with pytest.raises(BlockingIOError):
            trap.accept()
