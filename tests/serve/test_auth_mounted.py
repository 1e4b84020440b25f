"""A protected server below another application: clients find where to sign in without any route of its owner."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.oauth.world import Person, world
from tests.serve.exchanges import call, exchange
from toolweave import connect_mcp, create_mcp_server
from toolweave.oauth import MemoryTokenStore, OAuth
from toolweave.serve import BearerAuth, JwtAuth, OAuthServer, ScopeRules, Upstream
from toolweave.serve._auth.token_auth import TokenAuth
from toolweave.serve._http.app import HttpApp
from toolweave.state import MemoryStore

pytestmark = pytest.mark.slow

PAGES = (
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
    "/.well-known/oauth-protected-resource/api/mcp",
)
TOKEN = "a-long-token-of-ada"


def free_origin() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def served(app: Any, origin: str) -> AsyncGenerator[None]:
    """Serve any ASGI application at an origin for the block."""
    config = uvicorn.Config(app, host="127.0.0.1", port=int(origin.rpartition(":")[2]), log_config=None)
    runner = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.serve)
        with anyio.fail_after(30):
            while not runner.started:
                await anyio.sleep(0.01)
        try:
            yield
        finally:
            runner.should_exit = True


def echo(text: str) -> str:
    """Return the text."""
    return text


def mcp_app(auth: TokenAuth) -> HttpApp:
    return create_mcp_server("notes", tools=[echo], auth=auth).asgi_app()


def jwt_auth(url: str, **options: Any) -> JwtAuth:
    return JwtAuth(issuer="https://login.example", audience=url, key="k" * 40, algorithms=["HS256"], **options)


def oauth_server(url: str) -> OAuthServer:
    upstream = Upstream(
        client_id="u",
        client_secret="s",
        authorization_endpoint="https://idp.example/a",
        token_endpoint="https://idp.example/t",
        userinfo_endpoint="https://idp.example/me",
        scopes=("read",),
    )
    return OAuthServer(url=url, upstream=upstream, store=MemoryStore(), secret="k" * 40)


def mounted(app: HttpApp, prefix: str) -> FastAPI:
    outer = FastAPI(lifespan=app.lifespan)
    outer.mount(prefix, app)
    return outer


async def named_metadata(url: str, **headers: str) -> tuple[int, str]:
    """Return the status of a refused call, and the URL of the metadata that its challenge names."""
    refused = await call(url, "echo", {"text": "x"}, headers=headers)
    found = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
    return refused.status, "" if found is None else found[1]


@pytest.mark.parametrize("prefix", ["/api", "/a/b", ""])
@pytest.mark.parametrize("make", [jwt_auth, oauth_server])
async def test_the_metadata_are_where_the_challenge_says(make: Any, prefix: str) -> None:
    origin = free_origin()
    url = f"{origin}{prefix}/mcp"
    app = mcp_app(make(url))
    async with served(mounted(app, prefix) if prefix else app, origin):
        status, named = await named_metadata(url)
        answer = await exchange(named, "GET")

    assert (status, answer.status) == (401, 200)
    assert answer.json()["resource"] == url


@pytest.mark.parametrize("prefix", ["/api", "/a/b"])
async def test_below_an_application_without_routes_the_challenge_names_the_metadata_below_the_mount(
    prefix: str,
) -> None:
    origin = free_origin()
    url = f"{origin}{prefix}/mcp"
    app = mcp_app(jwt_auth(url))

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        """Serve the paths below the mount; like many an ASGI server, have no list of routes."""
        if scope["type"] == "lifespan" or scope["path"].startswith(f"{prefix}/"):
            await app({**scope, "root_path": prefix}, receive, send)
            return
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with served(outer, origin):
        status, named = await named_metadata(url)
        answer = await exchange(named, "GET")

    assert (status, answer.status) == (401, 200)
    assert named.startswith(f"{origin}{prefix}/.well-known/")
    assert answer.json()["resource"] == url


async def test_a_challenge_for_more_scopes_names_them_too() -> None:
    origin = free_origin()
    url = f"{origin}/api/mcp"
    auth = BearerAuth(
        tokens={TOKEN: "ada"},
        resource=url,
        authorization_servers=["https://login.example"],
        scopes=ScopeRules(tools={"echo": ["write"]}),
    )
    async with served(mounted(mcp_app(auth), "/api"), origin):
        status, named = await named_metadata(url, Authorization=f"Bearer {TOKEN}")
        answer = await exchange(named, "GET")

    assert (status, answer.status) == (403, 200)


async def test_a_path_of_a_mount_that_a_caller_chooses_writes_nothing_into_the_challenge() -> None:
    origin = free_origin()
    auth = BearerAuth(tokens=[TOKEN], resource=f"{origin}/mcp", authorization_servers=["https://login.example"])
    app = mcp_app(auth)
    outer = Starlette(routes=[Mount("/{tenant}", app)], lifespan=app.lifespan)
    async with served(outer, origin):
        refused = await call(f"{origin}/a%22%2C%20error=%22x%5C%0D%0A/mcp", "echo")

    named = refused.headers["www-authenticate"]
    assert refused.status == 401
    assert named.count('"') == 2
    assert "\\" not in named
    assert "error=" not in named.partition("resource_metadata=")[2].partition('"')[2].partition('"')[2]


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
async def test_an_authorization_server_below_an_application_answers_at_the_root_of_its_host(
    framework: str, caplog: pytest.LogCaptureFixture
) -> None:
    origin = free_origin()
    app = mcp_app(oauth_server(f"{origin}/api/mcp"))
    outer = mounted(app, "/api") if framework == "fastapi" else Starlette(routes=[Mount("/api", app)])
    if framework == "starlette":
        outer.router.lifespan_context = app.lifespan
    registration = b'{"redirect_uris": ["https://client.example/cb"], "token_endpoint_auth_method": "none"}'
    async with served(outer, origin):
        pages = [(await exchange(origin + path, "GET")).status for path in PAGES]
        headers = {"Content-Type": "application/json"}
        registered = await exchange(f"{origin}/register", headers=headers, body=registration)
        foreign = await exchange(f"{origin}/register", headers={**headers, "Host": "evil.example"}, body=registration)
        await call(f"{origin}/api/mcp", "echo")

    assert pages == [200, 200, 200]
    assert registered.status == 201
    assert foreign.status in (403, 421)
    assert "is mounted at" not in caplog.text


async def test_an_application_keeps_its_own_paths_and_learns_of_the_conflict(caplog: pytest.LogCaptureFixture) -> None:
    origin = free_origin()
    app = mcp_app(oauth_server(f"{origin}/api/mcp"))
    outer = mounted(app, "/api")

    @outer.get("/token")
    async def token() -> str:  # pyright: ignore[reportUnusedFunction]
        return "the application's own"

    async with served(outer, origin):
        answer = await exchange(f"{origin}/token", "GET")

    assert answer.json() == "the application's own"
    assert "'/token'" in caplog.text


async def test_a_lifespan_that_is_entered_twice_adds_the_routes_once() -> None:
    app = mcp_app(oauth_server("https://notes.example/api/mcp"))
    outer = mounted(app, "/api")
    counts: list[int] = []
    for _ in range(2):
        async with app.lifespan(outer):
            counts.append(len(outer.routes))

    assert counts[0] == counts[1]
    assert {*app.public_paths} <= {getattr(route, "path", None) for route in outer.routes}


async def test_an_authorization_server_that_cannot_be_reached_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    origin = free_origin()
    app = mcp_app(oauth_server(f"{origin}/api/mcp"))

    @asynccontextmanager
    async def lifespan(outer: FastAPI) -> AsyncGenerator[None]:
        async with app.lifespan():  # without the application
            yield

    outer = FastAPI(lifespan=lifespan)
    outer.mount("/api", app)
    async with served(outer, origin):
        for _ in range(2):
            await call(f"{origin}/api/mcp", "echo")

    (line,) = [one.getMessage() for one in caplog.records if "is mounted at" in one.getMessage()]
    assert "serve_at_root" in line


async def test_a_client_signs_in_to_a_server_below_fastapi() -> None:
    origin = free_origin()
    url = f"{origin}/api/mcp"
    async with world() as here:

        def verify(token: str) -> str | None:
            return "ada" if token in here.host.tokens else None

        auth = BearerAuth(verify, resource=url, authorization_servers=[here.host.issuer])
        store = MemoryTokenStore()
        target = {"url": url, "auth": OAuth(store=store, user_agent=Person())}
        async with served(mounted(mcp_app(auth), "/api"), origin), connect_mcp(target) as connection:
            answer = await connection.call_tool("echo", {"text": "hello"})

    assert answer.text == "hello"
