"""A company: an identity provider, a server behind it, people with browsers, and a client. Asserts nothing."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt

from tests.serve.exchanges import Answer, call, connected, head, read_answer
from tests.serve.issuer import KEY, Issuer, Page, running_issuer
from tests.serve.offered import doing_server
from tests.serve.serving import served_app
from toolweave.serve import ClientRules, McpServer, OAuthServer, Upstream
from toolweave.serve._http.app import HttpApp
from toolweave.state import MemoryStore

__all__ = ["REDIRECT", "SECRET", "Browser", "Company", "Provider", "company", "query_of"]

SECRET = "the secret of a server, thirty-two bytes or more"
REDIRECT = "https://client.example/callback"


def query_of(url: str) -> dict[str, str]:
    """Return the parameters of a URL."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


class _Form(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect hidden fields."""
        named = dict(attrs)
        if tag == "input" and named.get("type") == "hidden":
            self.fields[str(named["name"])] = str(named["value"])


class Browser:
    """A browser: keeps cookies and says where a page led it from."""

    def __init__(self) -> None:
        self.cookies: dict[str, str] = {}

    async def send(
        self, url: str, *, form: dict[str, str] | None = None, site: str = "none", origin: str | None = None
    ) -> Answer:
        """Send a request, without following redirects."""
        parts = urlsplit(url)
        headers = {"Sec-Fetch-Site": site}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        body = b""
        if form is not None:
            body = urlencode(form).encode()
            headers |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body))}
            headers["Origin"] = f"{parts.scheme}://{parts.netloc}" if origin is None else origin
        method = "GET" if form is None else "POST"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        async with connected(url) as stream:
            await stream.send(head(url, method, headers, path=target) + body)
            data = b""
            async for chunk in stream:
                data += chunk
        self._take(data)
        return await read_answer(_Replayed(data), method=method)  # type: ignore[arg-type]

    def _take(self, data: bytes) -> None:
        for line in data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n"):
            name, _, value = line.partition(": ")
            if name.lower() == "set-cookie":
                cookie, _, content = value.partition(";")[0].partition("=")
                self.cookies.pop(cookie, None)
                if "Max-Age=0" not in value:
                    self.cookies[cookie] = content


class _Replayed:
    def __init__(self, data: bytes) -> None:
        self._data = [data]

    def __aiter__(self) -> _Replayed:
        return self

    async def __anext__(self) -> bytes:
        if not self._data:
            raise StopAsyncIteration
        return self._data.pop()


class Provider:
    """The company's identity provider: every user is `person`, and signs in at once.

    Attributes:
        asked: The forms that its token endpoint got.
        person: The claims of the user.
        refuses: An error that its token endpoint answers.
        signs: The key and the algorithm of ID tokens; the published key is always the same.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.asked: list[tuple[dict[str, str], dict[str, str]]] = []
        self.person: dict[str, Any] = {"sub": "ada"}
        self.token: dict[str, Any] = {}
        self.refuses: Page | None = None
        self.signs: tuple[Any, str] = (KEY, "RS256")
        self._codes: dict[str, dict[str, str]] = {}
        issuer.publish(authorization_endpoint=f"{issuer.url}/login?tenant=t", token_endpoint=f"{issuer.url}/token")
        issuer.pages["/token"] = self._answer

    def sign_in(self, url: str) -> str:
        """Sign somebody in at the URL a browser was sent to; return where it is sent back."""
        asked = query_of(url)
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def _answer(self, form: dict[str, str], headers: dict[str, str]) -> Page:
        self.asked.append((form, headers))
        if self.refuses is not None:
            return self.refuses
        tokens = {"access_token": f"upstream-{secrets.token_hex(8)}", "token_type": "bearer", "expires_in": 3600}
        tokens |= {"refresh_token": f"upstream-refresh-{secrets.token_hex(8)}", **self.token}
        if form["grant_type"] == "refresh_token":
            return Page(tokens)
        asked = self._codes.pop(form["code"])
        made = urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        assert made == asked["code_challenge"]
        now = int(time.time())
        claims = {"iss": self.issuer.url, "aud": asked["client_id"], "iat": now, "exp": now + 60}
        claims |= {"nonce": asked.get("nonce"), **self.person}
        kept = {name: value for name, value in claims.items() if value is not None}
        return Page({**tokens, "id_token": jwt.encode(kept, *self.signs, headers={"kid": "k1"})})


class Company:
    """A protected server, its provider, and one client of it.

    Attributes:
        url: The URL of the MCP endpoint.
        origin: The issuer.
        provider: The provider.
        store: What the server keeps.
        app: The app.
    """

    app: HttpApp

    def __init__(self, url: str, provider: Provider, store: MemoryStore) -> None:
        self.url = url
        self.origin = url.removesuffix("/mcp")
        self.provider = provider
        self.store = store
        self.verifier = secrets.token_urlsafe(48)

    async def post(self, path: str, form: dict[str, str] | bytes, **headers: str) -> Answer:
        """Post a form, or bytes of JSON, as a client."""
        body = form if isinstance(form, bytes) else urlencode(form).encode()
        kind = "application/json" if isinstance(form, bytes) else "application/x-www-form-urlencoded"
        sent = {"Content-Type": kind, "Content-Length": str(len(body)), **headers}
        async with connected(self.origin) as stream:
            await stream.send(head(self.origin, "POST", sent, path=path) + body)
            return await read_answer(stream)

    async def register(self, **metadata: Any) -> Answer:
        """Register a client."""
        asked = {
            "client_name": "Client",
            "redirect_uris": [REDIRECT],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            **metadata,
        }
        return await self.post("/register", json.dumps(asked).encode())

    async def client(self, **metadata: Any) -> str:
        """Register a client; return its id."""
        return (await self.register(**metadata)).json()["client_id"]

    def authorization(self, client_id: str, **changes: str | None) -> str:
        """Return the URL that a client sends a browser to."""
        challenge = urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": REDIRECT,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "state": "client-state",
            "resource": self.url,
            **changes,
        }
        return f"{self.origin}/authorize?" + urlencode({k: v for k, v in asked.items() if v is not None})

    async def consent(self, browser: Browser, page: Answer, decision: str = "allow") -> Answer:
        """Press a button of the consent page."""
        form = _Form()
        form.feed(page.body.decode())
        return await browser.send(
            f"{self.origin}/consent", form={**form.fields, "decision": decision}, site="same-origin", origin="null"
        )

    async def code(self, client_id: str, browser: Browser | None = None, **changes: str | None) -> str:
        """Sign in all the way; return the code."""
        browser = browser or Browser()
        page = await browser.send(self.authorization(client_id, **changes))
        sent = await self.consent(browser, page) if page.status == 200 else page
        back = await browser.send(self.provider.sign_in(sent.headers["location"]), site="cross-site")
        return query_of(back.headers["location"])["code"]

    async def redeem(self, client_id: str, code: str, *, basic: str | None = None, **changes: str) -> Answer:
        """Redeem a code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": self.verifier,
            "resource": self.url,
            **({"client_id": client_id} if basic is None else {}),
            **changes,
        }
        pair = b64encode(f"{client_id}:{basic}".encode()).decode()
        return await self.post("/token", form, **({} if basic is None else {"Authorization": f"Basic {pair}"}))

    async def refresh(self, client_id: str, token: str, **changes: str) -> Answer:
        """Refresh."""
        return await self.post(
            "/token", {"grant_type": "refresh_token", "refresh_token": token, "client_id": client_id, **changes}
        )

    async def tokens(self, client_id: str, **changes: str | None) -> dict[str, Any]:
        """Sign in all the way; return the tokens."""
        return (await self.redeem(client_id, await self.code(client_id, None, **changes))).json()

    async def status(self, token: str) -> int:
        """Return the status of a call with a token."""
        return (await call(self.url, "add", {"a": 1, "b": 2}, headers={"Authorization": f"Bearer {token}"})).status


@asynccontextmanager
async def company(
    *,
    rules: ClientRules | None = None,
    upstream: dict[str, Any] | None = None,
    server: McpServer | None = None,
    root: bool = False,
    **options: Any,
) -> AsyncGenerator[Company]:
    """Run a provider and a protected server for the block, with its endpoint at `/mcp` or at the root."""
    store = options.pop("store", None) or MemoryStore()
    with running_issuer() as issuer:
        provider = Provider(issuer)
        given: dict[str, Any] = {
            "issuer": issuer.url,
            "client_id": "server",
            "client_secret": "s3cret",
            **(upstream or {}),
        }
        url = (await _free_url()).removesuffix("/mcp") + ("" if root else "/mcp")
        auth = OAuthServer(url=url, upstream=Upstream(**given), store=store, secret=SECRET, clients=rules, **options)
        app = (server or doing_server()).asgi_app(auth=auth, path="/" if root else "/mcp")
        async with served_app(app, port=urlsplit(url).port or 0) as origin:
            assert url.removesuffix("/mcp") == origin
            made = Company(url, provider, store)
            made.app = app
            yield made


async def _free_url() -> str:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
