"""Who is let in over HTTP, who is sent to a sign-in, and how far a token goes."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.connect.targets import eventually
from tests.serve.exchanges import call, events, exchange, handshake
from tests.serve.offered import doing_server
from tests.serve.serving import served_app, served_http
from toolweave import connect_mcp, tool
from toolweave.errors import ConfigError
from toolweave.serve import BearerAuth, Dpop, Identity, JwtAuth, ScopeRules, create_mcp_server
from toolweave.tools import CallContext

TOKEN = "alice-0123456789abcdef"
OTHER = "bobby-0123456789abcdef"
LISTED = {TOKEN: "alice", OTHER: "bob"}
ISSUER = "https://login.example"
AUDIENCE = "https://api.example/mcp"


def added(a: int) -> int:
    """Add one."""
    return a + 1


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_listed_token_is_let_in_and_no_other() -> None:
    async with served_http(doing_server(), auth=BearerAuth(tokens=LISTED)) as url:
        statuses = [
            (await call(url, "add", {"a": 1, "b": 2}, headers=headers)).status
            for headers in (
                bearer(TOKEN),
                {"Authorization": f"bearer {TOKEN}"},
                bearer(TOKEN + "x"),
                bearer(""),
                {"Authorization": TOKEN},
                {"Authorization": "Basic YTpi"},
                {},
            )
        ]

    assert statuses == [200, 200, 401, 401, 401, 401, 401]


async def test_a_server_brings_its_authorization_with_it_unless_serving_is_given_another() -> None:
    server = create_mcp_server("sums", tools=[added], auth=BearerAuth(tokens=[TOKEN]))
    sent: list[dict[str, str]] = [bearer(TOKEN), bearer(OTHER), {}]
    async with served_http(server) as own, served_http(server, auth=BearerAuth(tokens=[OTHER])) as given:
        statuses = {
            where: [(await call(url, "added", {"a": 1}, headers=headers)).status for headers in sent]
            for where, url in (("own", own), ("given", given))
        }
    async with connect_mcp(server) as connection:
        in_process = await connection.call_tool("added", {"a": 1})

    assert statuses == {"own": [200, 401, 401], "given": [401, 200, 401]}
    assert in_process.text == "2"


async def test_a_protected_server_is_not_mounted_where_its_authorization_is_not_asked() -> None:
    auth = BearerAuth(tokens=[TOKEN])
    server = create_mcp_server("sums", tools=[added], auth=auth)
    app = doing_server().asgi_app()
    with pytest.raises(ConfigError, match="has an `auth`"):
        async with app.mounted("/sums", server.http_endpoint()):
            pass
    app = doing_server().asgi_app(auth=auth)
    async with served_app(app) as url, app.mounted("/sums", server.http_endpoint()):
        answers = [await call(f"{url}/sums", "added", {"a": 1}, headers=sent) for sent in (bearer(TOKEN), {})]

    assert [answer.status for answer in answers] == [200, 401]


async def test_without_a_token_nothing_is_read_and_no_session_begins() -> None:
    async with served_http(doing_server(), auth=BearerAuth(tokens=[TOKEN])) as url:
        answers = [
            await exchange(url, headers={"Content-Type": "application/json", "Content-Length": "1000000"}),
            (await handshake(url))[0],
            await exchange(url, "GET"),
            await exchange(url, "DELETE"),
        ]

    assert [one.status for one in answers] == [401] * 4
    assert all(one.headers["www-authenticate"] == "Bearer" for one in answers)  # without a token there is no error
    needed = {"error_description": "A token is required, in the header 'Authorization: Bearer TOKEN'"}
    assert [one.json() for one in answers] == [needed] * 4
    assert not any("mcp-session-id" in one.headers for one in answers)


async def test_a_client_finds_out_where_to_sign_in() -> None:
    auth = BearerAuth(tokens=LISTED, resource=AUDIENCE, authorization_servers=[ISSUER], required_scopes=["tools:call"])
    async with served_http(doing_server(), auth=auth) as url:
        refused = await call(url, "add", {"a": 1, "b": 2})
        where = url.removesuffix("/mcp") + "/.well-known/oauth-protected-resource/mcp"
        metadata = await exchange(where, "GET", headers={"Origin": "https://anywhere.example"})
        rebound = await exchange(where, "GET", headers={"Host": "evil.example"})

    challenge = 'resource_metadata="https://api.example/.well-known/oauth-protected-resource/mcp"'
    assert challenge in refused.headers["www-authenticate"]
    assert metadata.json()["authorization_servers"] == [ISSUER]
    assert metadata.json()["resource"] == AUDIENCE
    assert metadata.json()["scopes_supported"] == ["tools:call"]
    assert rebound.status == 421


async def test_a_token_that_allows_too_little_is_told_what_it_lacks() -> None:
    def verify(token: str) -> Identity:
        return Identity(client_id="c", scopes=tuple(token.split("-")))

    auth = BearerAuth(verify, required_scopes=["read", "call"])
    async with served_http(doing_server(), auth=auth) as url:
        little = await call(url, "add", {"a": 1, "b": 2}, headers=bearer("read"))
        enough = await call(url, "add", {"a": 1, "b": 2}, headers=bearer("read-call"))

    assert (little.status, enough.status) == (403, 200)
    assert 'error="insufficient_scope"' in little.headers["www-authenticate"]
    assert "call" in little.headers["www-authenticate"]


async def test_a_verifier_may_be_asynchronous_and_its_failure_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    async def verify(token: str) -> str | None:
        if token == "broken":
            raise LookupError(f"no such token: {token}-and-its-secret")
        return "someone" if token == "good" else None

    async with served_http(doing_server(), auth=BearerAuth(verify)) as url:
        statuses = [
            (await call(url, "add", {"a": 1, "b": 2}, headers=bearer(token))).status
            for token in ("good", "bad", "broken")
        ]

    assert statuses == [200, 401, 401]
    assert "LookupError" in caplog.text
    assert "and-its-secret" not in caplog.text


async def test_an_expired_identity_is_nobody() -> None:
    def verify(token: str) -> Identity:
        return Identity(client_id="c", expires_at=int(time.time()) + int(token))

    async with served_http(doing_server(), auth=BearerAuth(verify)) as url:
        statuses = [(await call(url, "add", {"a": 1, "b": 2}, headers=bearer(token))).status for token in ("600", "-1")]

    assert statuses == [200, 401]


@tool
async def see(ctx: CallContext) -> str:
    """Return everything that a handler can see of its caller."""
    return repr((ctx, ctx.meta))


async def test_both_ways_and_both_eras_see_one_principal_and_never_the_token() -> None:
    def verify(token: str) -> Identity | None:
        return Identity(client_id="app", issuer=ISSUER, subject="u-1") if token == TOKEN else None

    seen: list[Any] = []
    server = create_mcp_server(name="s", version="1", tools=[see])
    answer = server.endpoint.answer

    async def answering(request: Any) -> Any:
        seen.append((request.client.principal, dict(request.headers)))
        return await answer(request)

    server.endpoint.answer = answering  # the port that carriers bring requests to
    message: Any = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "see", "arguments": {}}}
    async with served_http(server, auth=BearerAuth(verify)) as url:
        modern = await call(url, "see", headers=bearer(TOKEN))
        _, session = await handshake(url, bearer(TOKEN))
        legacy = await exchange(url, headers=session, body=json.dumps(message).encode())

    assert {principal for principal, _ in seen} == {f'["app","{ISSUER}","u-1"]'}
    assert TOKEN not in repr(seen)
    assert modern.status == legacy.status == 200
    assert TOKEN not in repr((modern, events(legacy.body)))


@pytest.mark.parametrize(
    "make",
    [
        BearerAuth,
        lambda: BearerAuth(lambda token: token, tokens=[TOKEN]),
        lambda: BearerAuth(tokens=["short"]),
        lambda: BearerAuth(tokens=TOKEN),
        lambda: BearerAuth(tokens=[]),
        lambda: BearerAuth(tokens=[TOKEN], resource=AUDIENCE),
        lambda: JwtAuth(issuer="http://login.example", audience="x"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", algorithms=["HS256"]),
        lambda: JwtAuth(issuer=ISSUER, audience="x", key="k" * 64, algorithms=["HS256", "RS256"]),
        lambda: JwtAuth(issuer=ISSUER, audience="x", token_type="JWT"),  # type: ignore[arg-type]
        lambda: JwtAuth(issuer=ISSUER, audience="x", required_scopes=["two words"]),
        lambda: JwtAuth(issuer=ISSUER, audience="x", dpop=Dpop(algorithms=["HS256"])),
        lambda: JwtAuth(issuer=ISSUER, audience="x", dpop=Dpop(nonce_keys=[b"short"])),
        lambda: JwtAuth(issuer=ISSUER, audience="x", dpop=Dpop(window_seconds=0)),
        lambda: JwtAuth(issuer=ISSUER, audience="x", scopes=ScopeRules(tools={"x": ['"']})),
        lambda: JwtAuth(issuer=ISSUER, audience="x", key="k", jwks_url="https://login.example/keys"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", key="k", algorithms=["none"]),
        lambda: JwtAuth(issuer=ISSUER, audience="x", key="k", algorithms=[]),
        lambda: JwtAuth(issuer=ISSUER, audience="x", jwks_url="http://login.example/keys"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", jwks_url="file:///etc/passwd"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", jwks_url="http://127.0.0.1.evil.example/keys"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", jwks_url="http://localhost.evil.example/keys"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", jwks_url="http://localhost@evil.example/keys"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", jwks_url="https://login.example@evil.example/keys"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", jwks_url="http://[::1/keys"),
        lambda: JwtAuth(issuer=ISSUER, audience="x", key="k" * 31, algorithms=["HS256"]),
    ],
)
async def test_an_authorization_that_cannot_work_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


async def test_an_authorization_shows_no_token() -> None:
    assert TOKEN not in repr(BearerAuth(tokens=LISTED))


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def signed(key: Any = KEY, algorithm: str = "RS256", key_id: str = "k1", **claims: Any) -> str:
    now = int(time.time())
    said = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": now + 600,
        "sub": "u-1",
        "client_id": "app",
        "scope": "call",
        **claims,
    }
    kept = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(kept, key, algorithm=algorithm, headers={"kid": key_id})


@contextmanager
def published(keys: list[dict[str, Any]], go: threading.Event | None = None) -> Generator[tuple[str, list[str]]]:
    """Publish keys on a port, each time when `go` is set; yield the URL and the paths that were asked for."""
    asked: list[str] = []

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps({"keys": keys}).encode()
            if go is not None:
                go.wait(30)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def as_jwk(key: Any, key_id: str) -> dict[str, Any]:
    return {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig"}


@pytest.mark.slow
async def test_a_jwt_of_the_issuer_for_this_audience_is_let_in_and_no_other() -> None:
    now = int(time.time())
    end = now + 600
    with published([as_jwk(KEY, "k1")]) as (keys, _):
        auth = JwtAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url=keys, required_scopes=["call"])
        identities = {
            "right": await auth.identify(signed(exp=end)),
            "several audiences": await auth.identify(signed(aud=["x", AUDIENCE])),
            "another audience": await auth.identify(signed(aud="https://other.example/mcp")),
            "no audience": await auth.identify(signed(aud=None)),
            "another issuer": await auth.identify(signed(iss="https://evil.example")),
            "no issuer": await auth.identify(signed(iss=None)),
            "expired": await auth.identify(signed(exp=now - 3600)),
            "for ever": await auth.identify(signed(exp=None)),
            "not yet": await auth.identify(signed(nbf=now + 3600)),
            "a stranger's signature": await auth.identify(signed(STRANGER)),
            "signed with the public key": await auth.identify(signed("s" * 64, "HS256")),
            "no signature": await auth.identify(signed(None, "none")),
            "an unknown key": await auth.identify(signed(key_id="k2")),
            "nobody's": await auth.identify(signed(sub=None, client_id=None)),
            "no token": await auth.identify("x.y.z"),
        }

    let_in = {name for name, identity in identities.items() if identity is not None}
    assert let_in == {"right", "several audiences"}
    # it is accepted for the leeway longer
    right = Identity(client_id="app", subject="u-1", issuer=ISSUER, scopes=("call",), expires_at=end + 30)
    assert identities["right"] == right


@pytest.mark.slow
async def test_keys_are_asked_for_once_however_many_unknown_ones_tokens_name() -> None:
    with published([as_jwk(KEY, "k1")]) as (keys, asked):
        auth = JwtAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url=keys)
        for number in range(20):
            await auth.identify(signed(key_id=f"made-up-{number}"))
        assert await auth.identify(signed()) is not None

    assert len(asked) == 1


@pytest.mark.slow
async def test_a_key_that_is_known_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.serve._auth.issuer_keys.PublishedKeys.PAUSE_SECONDS", 0)
    go = threading.Event()
    with published([as_jwk(KEY, "k1")], go) as (keys, asked):
        auth = JwtAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url=keys)
        go.set()
        assert await auth.identify(signed()) is not None
        go.clear()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(auth.identify, signed(key_id="made-up"))
                await eventually(lambda: len(asked) == 2)
                with anyio.fail_after(5):
                    assert await auth.identify(signed()) is not None
                go.set()
        finally:
            go.set()


async def test_while_an_issuer_cannot_be_reached_its_tokens_may_be_good_and_nobody_is_let_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth = JwtAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url="http://127.0.0.1:9/keys")

    async with served_http(doing_server(), auth=auth) as url:
        refused = await call(url, "add", {"a": 1, "b": 2}, headers=bearer(signed()))

    assert refused.status == 503
    assert refused.headers["retry-after"] == "30"
    assert "cannot be fetched" in caplog.text


async def test_an_endpoint_with_jwts_names_its_issuer() -> None:
    secret = "k" * 64
    auth = JwtAuth(issuer=ISSUER, audience=AUDIENCE, key=secret, algorithms=["HS256"])
    async with served_http(doing_server(), auth=auth) as url:
        good = await call(url, "add", {"a": 1, "b": 2}, headers=bearer(signed(secret, "HS256")))
        bad = await call(url, "add", {"a": 1, "b": 2}, headers=bearer(signed("j" * 64, "HS256")))

    assert (good.status, bad.status) == (200, 401)
    assert "oauth-protected-resource/mcp" in bad.headers["www-authenticate"]
