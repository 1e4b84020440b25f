"""A gateway before an upstream that is called as each caller, and an authorization server behind it. Judges nothing.

`python -m tests.gateway.caller_world --calls 2000` has fifty users make that many calls each, at the same time, and
tells which answers were another's.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc

from tests.connect.scripted import listening
from tests.oauth.world import AuthorizationHost
from tests.serve.company import Browser
from tests.serve.exchanges import connected, head, read_answer
from tests.serve.serving import served_app
from toolweave import CallContext, McpConnection, connect_mcp, create_mcp_server
from toolweave.gateway import GatewayManager, GatewayOptions
from toolweave.oauth import MemoryTokenStore, TokenKey, TokenRecord, resource_of
from toolweave.serve import BearerAuth, Identity

__all__ = [
    "USERS",
    "CallerWorld",
    "at_the_pages",
    "code_on",
    "crossed",
    "key_of",
    "link_in",
    "names",
    "principal_of",
    "signed_in",
    "upstream_at",
    "upstream_server",
    "world",
]

CODE = re.compile(r"<code>(\d{4} \d{4})</code>")
USERS = ("ann", "bob", "eve")


def key_of(user: str) -> str:
    return f"key-of-{user}-0123456789"


class CallerWorld:
    """An authorization server, an upstream behind it whose tools say whose token came, and a gateway before both.

    Attributes:
        host: The authorization server.
        seen: The credentials that came to the upstream.
        store: The tokens that the gateway keeps.
        base: The address of the gateway.
        gateways: Returns how many gateways of callers it has.
    """

    def __init__(self) -> None:
        self.host = AuthorizationHost()
        self.users: dict[str, str] = {}
        self.seen: list[str] = []
        self.store = MemoryTokenStore()
        self.upstream = self.base = ""
        self.manager: GatewayManager | None = None
        self.gateways: Callable[[], int] = lambda: 0

    @property
    def url(self) -> str:
        """The address of the gateway's endpoint."""
        return f"{self.base}/mcp"

    def verify(self, token: str) -> Identity | None:
        """Return whose token it is: that of whoever was signed in at the authorization server when it was issued."""
        self.seen.append(token)
        if token not in self.host.tokens:
            return None
        scopes = tuple(self.host.tokens[token].split())
        return Identity(
            client_id="gateway", subject=self.users.get(token, "nobody"), issuer=self.host.url, scopes=scopes
        )

    def signed_in_as(self, user: str) -> None:
        """Say who it was that got the tokens which are nobody's yet."""
        for token in self.host.tokens:
            self.users.setdefault(token, user)

    async def grant(self, user: str, *, scope: str = "") -> str:
        """Put a token of a user into the gateway's store, as a sign-in does; return it."""
        token = f"access-of-{user}"
        self.host.tokens[token] = scope
        self.users[token] = user
        key = TokenKey(issuer=self.host.url, resource=resource_of(self.upstream), principal=principal_of(user))
        record = TokenRecord(key=key, access_token=token, scopes=tuple(scope.split()), saved_at=time.time())
        await self.store.save(record)
        return token

    def entry(self, **oauth: Any) -> dict[str, Any]:
        """Return the config of the upstream."""
        return {"url": self.upstream, "auth": {"type": "oauth", "identity": "caller", **oauth}}

    def caller(self, user: str, **settings: Any) -> dict[str, Any]:
        """Return what a user's client connects to."""
        return {"url": self.url, "auth": key_of(user), **settings}


def principal_of(user: str) -> str:
    return json.dumps([user, None, None], separators=(",", ":"))


def whoami(ctx: CallContext) -> str:
    """Say whose token the call came with."""
    return str(json.loads(ctx.principal or "[0, 0, null]")[2])


def find(text: str) -> Any:
    """Find something that is everybody's; without an output schema, it is the same tool in both eras."""
    return f"found {text}"


def upstream_server() -> Any:
    server = create_mcp_server(name="mail", version="1", tools=[whoami])

    @server.prompt
    def greet() -> str:
        """Greet."""
        return "Hello from mail"

    @server.resource("mail://inbox", name="inbox")
    def inbox(ctx: CallContext) -> str:
        return f"the mail of {whoami(ctx)}"

    return server


@asynccontextmanager
async def world(
    oauth: Mapping[str, Any] | None = None,
    *,
    users: tuple[str, ...] = USERS,
    upstream: Any = None,
    settings: Mapping[str, Any] | None = None,
    **section: Any,
) -> AsyncGenerator[CallerWorld]:
    """Serve all three for the block; `settings` are further members of the entry of the upstream."""
    made = CallerWorld()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(anyio.create_task_group())
        url, _ = await stack.enter_async_context(listening(made.host.handle))
        made.host.url = url.removesuffix("/mcp")
        made.upstream = await stack.enter_async_context(upstream_at(upstream or upstream_server(), made))
        everybody = create_mcp_server(name="notes", version="1", tools=[find])
        keys = {user: key_of(user) for user in users}
        config = {
            "mcpServers": {"notes": {"server": everybody}, "mail": {**made.entry(**(oauth or {})), **(settings or {})}},
            "gateway": {"auth": {"api_keys": keys}, **section},
        }
        made.manager = GatewayManager(config, GatewayOptions(token_store=made.store))
        made.base = await stack.enter_async_context(served_app(made.manager.asgi_app()))
        yield made


@asynccontextmanager
async def upstream_at(server: Any, made: CallerWorld) -> AsyncGenerator[str]:
    """Serve the upstream behind the authorization server, on a port that its metadata name."""
    async with free_port() as port:
        url = f"http://127.0.0.1:{port}/mcp"
    auth = BearerAuth(made.verify, resource=url, authorization_servers=[made.host.url])
    async with served_app(server.asgi_app(auth=auth), port=port):
        yield url


@asynccontextmanager
async def free_port() -> AsyncGenerator[int]:
    """Find a port that nobody has."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        yield listener.extra(anyio.abc.SocketAttribute.local_port)


async def at_the_pages(link: str, browser: Browser | None = None, reached: Callable[[str], str] = str) -> str:
    """Follow a link as its user does, to the end; return the last page. `reached` is where a URL leads in truth."""
    browser, link = browser or Browser(), reached(link)
    asking = (await browser.send(link)).body.decode()
    token = re.search(r'name="token" value="([^"]+)"', asking)
    assert token is not None, asking
    led = await browser.send(link, form={"token": token[1], "decision": "allow"}, site="same-origin")
    assert led.status == 303, led.body
    back = await signed_in(led.headers["location"])
    return (await browser.send(reached(back), site="cross-site")).body.decode()


async def signed_in(url: str) -> str:
    """Return where the authorization server sends whoever comes."""
    parts = urlsplit(url)
    async with connected(url) as stream:
        await stream.send(head(url, "GET", path=f"{parts.path}?{parts.query}"))
        await stream.send_eof()  # the server would keep the connection
        back = await read_answer(stream, method="GET")
    assert back.status == 302
    return back.headers["location"]


def code_on(page: str) -> str:
    found = CODE.search(page)
    assert found is not None, page
    return found[1]


def link_in(text: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+/auth/sign-in/[\w.-]+", text)
    assert found is not None, text
    return found[0]


async def names(connection: McpConnection) -> list[str]:
    return [one["name"] for one in (await connection.request("tools/list"))["tools"]]


async def crossed(made: CallerWorld, users: int, calls: int, era: str) -> list[tuple[str, str]]:
    """Have many users call at the same time; return the answers that were another's."""
    wrong: list[tuple[str, str]] = []

    async def use(user: str) -> None:
        await made.grant(user)
        chance = random.Random(user)
        async with connect_mcp(made.caller(user, protocol=era)) as caller:
            for _ in range(calls):
                if chance.random() < 0.05:
                    await anyio.sleep(chance.random() / 100)
                answer = (await caller.call_tool("mail_whoami")).text
                if answer != user:
                    wrong.append((user, answer))

    async with anyio.create_task_group() as tasks:
        for number in range(users):
            tasks.start_soon(use, f"user-{number}")
    return wrong


def main() -> None:
    """Run the program."""
    options = argparse.ArgumentParser(description="Have many users call a gateway, each as itself.")
    options.add_argument("--users", type=int, default=50)
    options.add_argument("--calls", type=int, default=2000, help="calls of each user")
    options.add_argument("--era", default="2026-07-28")
    given = options.parse_args()

    async def run() -> None:
        users = tuple(f"user-{number}" for number in range(given.users))
        async with world(users=users) as made:
            begun = time.perf_counter()
            wrong = await crossed(made, given.users, given.calls, given.era)
            seconds = time.perf_counter() - begun
        calls = given.users * given.calls
        print(f"{calls} calls of {given.users} users in {seconds:.0f} s, {calls / seconds:.0f}/s")
        print(f"crossed: {wrong or 'none'}")

    anyio.run(run)


if __name__ == "__main__":
    main()
