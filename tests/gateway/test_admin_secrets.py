"""Secrets of owners and callers, spelled in any way, and what a gateway shows of them to those who watch it."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.gateway.leaky_server import forms
from tests.serve.exchanges import Answer, call_body, exchange, modern_headers
from tests.serve.serving import served_app
from toolweave import create_mcp_server
from toolweave.gateway import GatewayManager, GatewayOptions

ADMIN = "an-admin-token-of-the-tests"
SECRET = "zqSECRET-5f83b1c0d9e7-zq"
TOKEN = "ghp_zqSECRET5f83b1c0d9e7zqABCDEFGHIJ"
KEY_OF_CI = "key-of-ci-zqSECRET-5f83b1c0d9e7"
NOWHERE = "http://127.0.0.1:1/mcp"

ENTRIES: dict[str, Any] = {
    "a variable with its value as a name": {"command": "no-such", "env": {f"API_KEY={SECRET}": ""}},
    "variables as a text": {"command": "no-such", "env": f"API_KEY={SECRET}"},
    "variables as a list": {"command": "no-such", "env": [f"API_KEY={SECRET}"]},
    "a variable that is a list": {"command": "no-such", "env": {"API_KEY": [SECRET]}},
    "a variable with a control character": {"command": "no-such", "env": {"API_KEY": f"{SECRET}\0"}},
    "a variable that is the name of its key": {"command": "no-such", "env": {TOKEN: "API_KEY"}},
    "arguments as a text": {"command": "no-such", "args": f"--token {SECRET}"},
    "an argument that is an object": {"command": "no-such", "args": [{"token": SECRET}]},
    "arguments in the command": {"command": f"no-such --token {SECRET}"},
    "variables in a command line": f"API_KEY={SECRET} no-such",
    "a command line without an end": f"no-such --header 'Authorization: Bearer {SECRET}",
    "a URL as the command": {"command": f"https://me:{SECRET}@127.0.0.1:1/mcp"},
    "an unknown key": {"command": "no-such", TOKEN: "1"},
    "an unknown key of a secret": {"command": "no-such", "apiKey": SECRET},
    "user info": f"http://me:{SECRET}@127.0.0.1:1/mcp",
    "user info before a bad port": f"http://me:{SECRET}@127.0.0.1:99999/mcp",
    "user info before a bad host": f"http://me:{SECRET}@[::1/mcp",
    "user info without a host": f"http://me:{SECRET}@/mcp",
    "user info in a URL with a space": f"http://me:{SECRET}@127.0.0.1:1/m cp",
    "user info in a URL of another scheme": {"url": f"ws://me:{SECRET}@127.0.0.1:1/mcp"},
    "a query": f"{NOWHERE}?api_key={SECRET}",
    "a fragment": f"{NOWHERE}#token={SECRET}",
    "a path": f"{NOWHERE}/{TOKEN}/x",
    "a header with its value as a name": {"url": NOWHERE, "headers": {f"X-Any: {SECRET}": ""}},
    "headers as a text": {"url": NOWHERE, "headers": f"X-Any: {SECRET}"},
    "a header of two lines": {"url": NOWHERE, "headers": {"X-Any": f"{SECRET}\r\nX: y"}},
    "a header that is the name of its value": {"url": NOWHERE, "headers": {TOKEN: "X-Any"}},
    "a header of callers with its value": {"url": NOWHERE, "forward_headers": [f"X-Any: {SECRET}"]},
    "credentials as a list": {"url": NOWHERE, "auth": [SECRET]},
    "credentials under another name": {"url": NOWHERE, "auth": {"type": "bearer", "bearer_token": SECRET}},
    "a client secret that is a list": {"url": NOWHERE, "auth": {"client_id": "x", "client_secret": [SECRET]}},
    "a timeout that is a secret": {"url": NOWHERE, "timeout": SECRET},
    "a transport that is a secret": {"url": NOWHERE, "transport": TOKEN},
    "a variable of the environment that is a secret": {"url": NOWHERE, "headers": {"X-Any": f"${{{TOKEN}}}"}},
    "a proxy": {"url": NOWHERE, "options": {"proxy": f"http://me:{SECRET}@127.0.0.1:1"}},
    "last words of a program": {
        "command": sys.executable,
        "args": ["-c", "import os, sys; print(os.environ['API_KEY']); sys.exit(os.environ['API_KEY'])"],
        "env": {"API_KEY": SECRET},
    },
}

FILES: dict[str, Any] = {
    "a key and its name swapped": {"gateway": {"auth": {"api_keys": {SECRET: "ci"}}}},
    "a key and its name swapped in an object": {"gateway": {"auth": {"api_keys": {SECRET: {"key": "ci"}}}}},
    "a list of keys": {"gateway": {"auth": {"api_keys": [SECRET]}}},
    "a key as its digest": {"gateway": {"auth": {"api_keys": {"ci": {"sha256": SECRET}}}}},
    "a key that is a list": {"gateway": {"auth": {"api_keys": {"ci": {"key": [SECRET]}}}}},
    "a key as a setting": {"gateway": {"auth": {"api_keys": {"ci": {"key": SECRET, TOKEN: 1}}}}},
    "a key of two clients": {"gateway": {"auth": {"api_keys": {"ci": SECRET, "ada": SECRET}}}},
    "an unknown setting": {"gateway": {"auth": {"jwt": {"secret": SECRET}}}},
    "a middleware that is a token": {"gateway": {"middleware": [{"name": TOKEN}]}},
    "a setting that is a token": {"gateway": {TOKEN: True}},
    "a server that is a token": {"mcpServers": {TOKEN: {"commnd": "x"}}},
    "a variable with its value as a name": {"mcpServers": {"up": ENTRIES["a variable with its value as a name"]}},
    "a text that is not JSON": f'{{"mcpServers": {{"up": {{"env": {{"API_KEY": "{SECRET}}}',
    "a server that cannot be reached": {"mcpServers": {"up": f"http://me:{SECRET}@127.0.0.1:1/mcp?key={SECRET}"}},
    "a program that fails": {"mcpServers": {"up": ENTRIES["last words of a program"]}},
}


def request(name: str = "up_who", method: str = "tools/call", **headers: str) -> dict[str, Any]:
    """Return the parts of a modern request of a caller, which may have a key in any of them."""
    key = {"authorization": f"Bearer {KEY_OF_CI}"}
    return {"headers": {**modern_headers(name, method), **key, **headers}, "body": call_body(name, method=method)}


CALLS: dict[str, dict[str, Any]] = {
    "an API key": request(),
    "a token that is not known": request(authorization=f"Bearer {SECRET}"),
    "a token without a scheme": request(authorization=SECRET),
    "a password": request(authorization=f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"),
    "a key in another header": request(**{"x-api-key": SECRET}),
    "a cookie": request(cookie=f"token={SECRET}"),
    "a key as the name of a header": request(**{SECRET: "x"}),
    "a key in the query": {**request(), "path": f"/mcp?access_token={SECRET}"},
    "a key in the path": {**request(), "path": f"/{SECRET}/mcp"},
    "user info of the host": request(Host=f"me:{SECRET}@127.0.0.1"),
    "an origin": request(origin=f"http://me:{SECRET}@127.0.0.1"),
    "a key as a tool": request(SECRET),
    "a key as a method": request("x", SECRET),
    "a key as a prompt": request(SECRET, "prompts/get"),
    "a key as a session": request(**{"mcp-session-id": SECRET}),
    "a key as a revision": request(**{"mcp-protocol-version": SECRET}),
    "a body that is a key": {**request(), "body": SECRET.encode()},
    "the admin API with another token": {
        "path": "/admin/status",
        "method": "GET",
        "headers": {"authorization": f"Bearer {SECRET}"},
    },
}


@asynccontextmanager
async def served(config: Any) -> AsyncGenerator[str]:
    """Serve a gateway with its admin API and its metrics."""
    manager = GatewayManager(config, options=GatewayOptions(metrics=True))
    async with served_app(manager.asgi_app(admin_token=ADMIN)) as base:
        yield base


async def admin(base: str, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Answer:
    """Send a request of the owner."""
    headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
    data = b"" if body is None else json.dumps(body).encode()
    return await exchange(f"{base}/admin/{path}", method, headers=headers, body=data)


async def shown(base: str) -> dict[str, str]:
    """Return everything that a gateway shows its owner."""
    pages = {path: (await admin(base, path)).body.decode() for path in ("status", "servers", "keys")}
    return {**pages, "metrics": (await exchange(f"{base}/metrics", "GET")).body.decode()}


def leaks(texts: Mapping[str, str]) -> dict[str, str]:
    """Return where one of the secrets is, as it is or in another form."""
    spelled = [one for secret in (SECRET, TOKEN, KEY_OF_CI) for one in (*forms(secret), secret.encode().hex())]
    return {name: one for name, text in texts.items() for one in spelled if one in text}


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_server_that_is_added_with_a_secret_in_any_place_shows_it_nowhere(
    entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolweave")
    async with served({}) as base:
        answer = await admin(base, "servers", "POST", {"name": "up", "config": ENTRIES[entry]})
        texts = await shown(base)

    assert answer.status in (400, 502)
    assert "server 'up'" in answer.json()["error"]["message"]
    assert leaks({**texts, "answer": answer.body.decode(), "log": caplog.text}) == {}


@pytest.mark.parametrize("file", FILES)
async def test_a_config_with_a_secret_in_any_place_shows_it_nowhere_when_it_is_read_again(
    file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolweave")
    path = tmp_path / "gateway.json"
    path.write_text('{"mcpServers": {}}')
    new = FILES[file]
    async with served(path) as base:
        path.write_text(new if isinstance(new, str) else json.dumps({"mcpServers": {}, **new}))
        answer = await admin(base, "reload", "POST", {"confirmed": True})
        texts = await shown(base)

    change = answer.json()
    assert change["error"] or change["failed"]
    assert leaks({**texts, "answer": answer.body.decode(), "log": caplog.text}) == {}


@pytest.mark.parametrize("call", CALLS)
async def test_a_key_that_a_caller_sends_in_any_place_is_shown_nowhere(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolweave")
    server = create_mcp_server(name="up", version="1", tools=[who])
    auth = {"api_keys": {"ci": KEY_OF_CI}}
    async with served({"mcpServers": {"up": {"server": server}}, "gateway": {"auth": auth}}) as base:
        parts: dict[str, Any] = {"path": "/mcp", **CALLS[call]}
        answer = await exchange(base, **parts)
        texts = await shown(base)

    assert 200 <= answer.status < 500
    assert leaks({**texts, "log": caplog.text}) == {}


def who() -> str:
    """Return a name."""
    return "up"


async def test_a_key_that_was_given_in_place_of_its_name_is_masked_in_the_error() -> None:
    async with served({}) as base:
        answers = [await admin(base, f"{kind}/{quote(TOKEN, safe='')}", "DELETE") for kind in ("keys", "servers")]

    assert [one.status for one in answers] == [404, 404]
    assert leaks({str(number): one.body.decode() for number, one in enumerate(answers)}) == {}
