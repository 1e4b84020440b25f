"""An authorization server and an MCP server behind it, in the test's own event loop; both can misbehave."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import anyio
import jwt

from tests.conformance.headless import HeadlessUserAgent
from tests.connect.scripted import Exchange, HttpScript, listening, modern_answer
from tests.connect.targets import Json
from toolweave.oauth import DevicePrompt, MemoryTokenStore, OAuth

__all__ = [
    "AuthorizationHost",
    "Person",
    "ProtectedHost",
    "World",
    "another_host",
    "basic",
    "form_of",
    "nonce_of",
    "refuse",
    "world",
]


class AuthorizationHost:
    """An authorization server.

    Attributes:
        extra: Members that its metadata have besides, or instead; None takes one out.
        seconds: What its tokens live for.
        tokens: The scopes of each token that is good.
        refresh_tokens: The scopes of each refresh token that is good.
        requests: Every request to it.
        redirect: Members that its redirects have besides, or instead; None takes one out.
        answer: Answers a request to a path instead of it.
    """

    def __init__(self) -> None:
        self.url = ""
        self.extra: dict[str, Any] = {}
        self.seconds: int | None = 3600
        self.tokens: dict[str, str] = {}
        self.refresh_tokens: dict[str, str] = {}
        self.requests: list[Exchange] = []
        self.redirect: dict[str, str | None] = {}
        self.answer: dict[str, Callable[[Exchange], Any]] = {}
        self.delay = 0.0
        self.rotates = True
        self.token_type: str | None = None
        self.pending = 1
        self._codes: dict[str, dict[str, str]] = {}
        self._numbers = itertools.count(1)
        self._nonce: str | None = None

    @property
    def issuer(self) -> str:
        """Its issuer."""
        return self.url

    def paths(self) -> list[str]:
        """Return the paths that were asked for."""
        return [one.path for one in self.requests]

    def forms(self, grant: str | None = None) -> list[dict[str, str]]:
        """Return the forms that came to the token endpoint, of one grant or of all."""
        forms = [form_of(one) for one in self.requests if one.path == "/token"]
        return [form for form in forms if grant in (None, form.get("grant_type"))]

    def authorizations(self) -> list[dict[str, str]]:
        """Return the queries of authorization requests."""
        return [one.query for one in self.requests if one.path == "/authorize"]

    def metadata(self) -> Json:
        """Return its metadata."""
        out: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "device_authorization_endpoint": f"{self.url}/device",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            "dpop_signing_alg_values_supported": ["ES256"],
            **self.extra,
        }
        return {name: value for name, value in out.items() if value is not None}

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        self.requests.append(exchange)
        special = self.answer.get(exchange.path)
        if special is not None:
            await special(exchange)
            return
        match exchange.path:
            case "/.well-known/oauth-authorization-server":
                await exchange.respond_json(200, self.metadata())
            case "/register":
                asked = json.loads(exchange.body)
                secret = {} if asked["token_endpoint_auth_method"] == "none" else {"client_secret": "made"}
                await exchange.respond_json(201, {**asked, "client_id": f"client-{next(self._numbers)}", **secret})
            case "/authorize":
                await self._authorize(exchange)
            case "/token":
                await anyio.sleep(self.delay)
                await self._token(exchange, form_of(exchange))
            case "/device":
                page = {"verification_uri": f"{self.url}/page", "user_code": "WDJB-MJHT", "expires_in": 60}
                await exchange.respond_json(200, {"device_code": "d-1", "interval": 1, **page})
            case "/revoke":
                self.tokens.pop(form_of(exchange)["token"], None)
                self.refresh_tokens.pop(form_of(exchange)["token"], None)
                await exchange.respond(200)
            case _:
                await exchange.respond(404)

    async def _authorize(self, exchange: Exchange) -> None:
        code = f"code-{next(self._numbers)}"
        self._codes[code] = exchange.query
        back = {"code": code, "state": exchange.query["state"], "iss": self.issuer, **self.redirect}
        query = urlencode({name: value for name, value in back.items() if value is not None})
        await exchange.respond(302, location=f"{exchange.query['redirect_uri']}?{query}")

    async def _token(self, exchange: Exchange, form: dict[str, str]) -> None:
        match form["grant_type"]:
            case "authorization_code":
                asked = self._codes.pop(form["code"], None)
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                if asked is None or asked["code_challenge"] != challenge or asked["resource"] != form["resource"]:
                    await refuse(exchange, "invalid_grant")
                else:
                    await self._issue(exchange, asked.get("scope", ""), lasting=True)
            case "refresh_token":
                scope = self.refresh_tokens.get(form["refresh_token"])
                if scope is None:
                    await refuse(exchange, "invalid_grant")
                    return
                if self.rotates:
                    del self.refresh_tokens[form["refresh_token"]]
                await self._issue(exchange, scope, lasting=self.rotates)
            case "urn:ietf:params:oauth:grant-type:device_code":
                self.pending -= 1
                if self.pending >= 0:
                    await refuse(exchange, "authorization_pending")
                else:
                    await self._issue(exchange, form.get("scope", ""), lasting=True)
            case _:
                await self._issue(exchange, form.get("scope", ""), lasting=False)

    async def _issue(self, exchange: Exchange, scope: str, *, lasting: bool) -> None:
        number = next(self._numbers)
        proof = exchange.headers.get("dpop")
        out: dict[str, Any] = {
            "access_token": f"access-{number}-of-{urlsplit(self.url).port}",
            "token_type": self.token_type or ("Bearer" if proof is None else "DPoP"),
        }
        if scope:
            out["scope"] = scope
        if self.seconds is not None:
            out["expires_in"] = self.seconds
        if lasting:
            out["refresh_token"] = f"refresh-{number}"
            self.refresh_tokens[out["refresh_token"]] = scope
        self.tokens[out["access_token"]] = scope
        await exchange.respond_json(200, out)


class TokenHost(Protocol):
    """The part of an authorization server that the MCP server behind it uses."""

    tokens: dict[str, str]

    @property
    def issuer(self) -> str:
        """Its issuer."""
        ...


class ProtectedHost:
    """An MCP server with the tool `t` that wants a token.

    Attributes:
        challenge: Parameters of its challenge besides, or instead; None takes one out.
        scheme: The scheme of its challenge.
        needs: The scope that each method needs.
        metadata: Members that its metadata have besides, or instead; None takes one out.
        exchanges: Every request to it.
    """

    def __init__(self, host: TokenHost) -> None:
        self.url = ""
        self.host = host
        self.challenge: dict[str, str | None] = {}
        self.scheme = "Bearer"
        self.needs: dict[str, str] = {}
        self.metadata: dict[str, Any] = {}
        self.script = HttpScript(either_answer, self._special)
        self.answer: dict[str, Callable[[Exchange], Any]] = {}
        self.header: str | None = None
        self.nonce: str | None = None

    @property
    def exchanges(self) -> list[Exchange]:
        """Every request to it."""
        return self.script.exchanges

    @property
    def origin(self) -> str:
        """Its origin."""
        return self.url.removesuffix("/mcp")

    def tokens(self) -> list[str]:
        """Return the `Authorization` headers that came to the endpoint."""
        return [one.headers.get("authorization", "") for one in self.exchanges if one.path == "/mcp"]

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        special = self.answer.get(exchange.path)
        if special is None:
            await self.script.handle(exchange)
        else:
            self.exchanges.append(exchange)
            await special(exchange)

    async def _special(self, exchange: Exchange, message: Json) -> bool:
        if exchange.path == "/.well-known/oauth-protected-resource/mcp":
            named: dict[str, Any] = {"resource": self.url, "authorization_servers": [self.host.issuer], **self.metadata}
            await exchange.respond_json(200, {name: value for name, value in named.items() if value is not None})
            return True
        if exchange.path != "/mcp":
            await exchange.respond(404)
            return True
        scheme, _, token = exchange.headers.get("authorization", "").partition(" ")
        scope = self.host.tokens.get(token)
        if scope is None or (scheme == "DPoP") != ("dpop" in exchange.headers):
            await self._refuse(exchange, 401, {} if not token else {"error": "invalid_token"})
            return True
        if self.nonce is not None and nonce_of(exchange.headers["dpop"]) != self.nonce:
            await self._refuse(exchange, 401, {"error": "use_dpop_nonce"}, dpop_nonce=self.nonce)
            return True
        needed = self.needs.get(str(message.get("method")), "")
        if not set(needed.split()) <= set(scope.split()):
            await self._refuse(exchange, 403, {"error": "insufficient_scope", "scope": needed})
            return True
        return False

    async def _refuse(self, exchange: Exchange, status: int, more: Mapping[str, str], **headers: str) -> None:
        where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
        named: dict[str, str | None] = {"resource_metadata": where, **more, **self.challenge}
        parameters = ", ".join(f'{name}="{value}"' for name, value in named.items() if value is not None)
        challenge = f"{self.scheme} {parameters}" if self.header is None else self.header
        await exchange.respond(status, b"no", www_authenticate=challenge, **headers)


class Person(HeadlessUserAgent):
    """A user agent that counts, and types device codes.

    Attributes:
        asked: How often a listener was opened.
        prompts: The device codes that were shown.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.prompts: list[DevicePrompt] = []

    def listener(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, server: str, seconds: float, port: int | None = None
    ) -> Any:
        """Count, and follow the URL."""
        self.asked.append(server)
        return super().listener(server=server, seconds=seconds, port=port)

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Count."""
        self.prompts.append(prompt)


class World:
    """Both servers."""

    def __init__(self) -> None:
        self.host = AuthorizationHost()
        self.server = ProtectedHost(self.host)
        self.person = Person()
        self.store = MemoryTokenStore()

    def target(self, **settings: Any) -> dict[str, Any]:
        """Return what `connect_mcp` takes for the MCP server."""
        return {"url": self.server.url, "auth": self.settings(**settings), "protocol": "2026-07-28"}

    def ports(self) -> dict[str, Any]:
        """Return the ports of `sign_in`."""
        return {"store": self.store, "user_agent": self.person}

    def settings(self, **settings: Any) -> OAuth:
        """Return settings of a sign-in there."""
        given: dict[str, Any] = {"store": self.store, "user_agent": self.person, **settings}
        return OAuth(**given)


@asynccontextmanager
async def world() -> AsyncGenerator[World, None]:
    """Serve both for the block."""
    made = World()
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(listening(made.host.handle))
        made.host.url = url.removesuffix("/mcp")
        made.server.url, _ = await stack.enter_async_context(listening(made.server.handle))
        yield made


@asynccontextmanager
async def another_host() -> AsyncGenerator[AuthorizationHost, None]:
    """Serve another authorization server for the block."""
    host = AuthorizationHost()
    async with listening(host.handle) as (url, _):
        host.url = url.removesuffix("/mcp")
        yield host


def either_answer(message: Json) -> Json | None:
    """Answer as a server of both eras, with all that each demands."""
    if message["method"] == "initialize":
        server: Json = {"serverInfo": {"name": "protected", "version": "1"}, "capabilities": {"tools": {}}}
        return {"result": {"protocolVersion": "2025-11-25", **server}}
    answer = modern_answer(message)
    if answer is None or "result" not in answer:
        return answer
    return {"result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **answer["result"]}}


def form_of(exchange: Exchange) -> dict[str, str]:
    """Return the form in a request."""
    return {name: values[0] for name, values in parse_qs(exchange.body.decode()).items()}


def nonce_of(proof: str) -> Any:
    """Return the nonce of a proof."""
    return jwt.decode(proof, options={"verify_signature": False}).get("nonce")


async def refuse(exchange: Exchange, code: str, description: str = "no", status: int = 400, **headers: str) -> None:
    """Answer with a refusal."""
    await exchange.respond_json(status, {"error": code, "error_description": description}, **headers)


def basic(client: str, secret: str) -> str:
    """Return the header of a client with a secret."""
    pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
