"""A caller of `toolweave gateway`, a process of its own, for `player.py`. Judges nothing.

The gateway has no setting beside its servers. Before servers that want a sign-in it has one more, without which it
would ask nobody: they are called as each caller, who has an API key.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread

from tests.gateway.running import RunningGateway, gateway, write_gateway_config
from tests.serve.company import Browser
from toolweave import McpConnection, connect_mcp
from toolweave.gateway import GatewayAdmin

__all__ = ["Caller", "calling"]

KEY = "key-of-ann-0123456789"
CHECKOUT = Path(__file__).resolve().parents[2]
INNER = "from experiments.attacks.player import see_inner_addresses\n\nsee_inner_addresses()\n"
"""What every Python below runs first: inner addresses come out on this machine, for the gateway as for the player."""
LINK = re.compile(r"http://127\.0\.0\.1:\d+/auth/sign-in/[\w.-]+")
CODE = re.compile(r"<code>(\d{4} \d{4})</code>")
TOKEN = re.compile(r'name="token" value="([^"]+)"')


class Visits(Protocol):
    """Who opens a page and says where it leads to."""

    visit: Callable[[str], str]


class Caller:
    """A caller that follows the links which it is given.

    Attributes:
        connection: Its connection to the gateway.
        said: What the gateway said to whoever runs it.
    """

    def __init__(self, connection: McpConnection, running: RunningGateway, person: Visits, only: str | None) -> None:
        self.connection = connection
        self.said: list[str] = []
        self._running = running
        self._person = person
        self._only = only

    async def look(self) -> None:
        """Take the present list, once a sign-in that it asks for was made; note what the gateway says."""
        await self.connection.refresh()
        asking = f"{self._only}_sign_in"
        if asking in [tool.name for tool in await self.connection.list_tools()]:
            await self._sign_in((await self.connection.call_tool(asking)).text)
            await self.connection.refresh()
        async with GatewayAdmin(self._running.base, self._running.token) as admin:
            self.said += (await admin.status()).warnings
        self.said += self._running.log.splitlines()

    def named(self, tool: str) -> str:
        """Return the name that a server's tool has here."""
        return tool if self._only is None else f"{self._only}_{tool}"

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool of the only server; once more if it wants another sign-in.

        Raises:
            RuntimeError: It failed.
        """
        result = await self.connection.call_tool(self.named(tool), arguments)
        if LINK.search(result.text):
            await self._sign_in(result.text)
            result = await self.connection.call_tool(self.named(tool), arguments)
        if result.is_error:
            raise RuntimeError(result.text)
        return result.text

    async def _sign_in(self, text: str) -> None:
        """Go to the pages of a link, as its user does, and bring the code back."""
        link = LINK.search(text)
        if link is None:
            raise RuntimeError(text)
        browser = Browser()
        asking = (await browser.send(link[0])).body.decode()
        token = TOKEN.search(asking)
        if token is None:
            raise RuntimeError(f"no page to sign in: {asking}")
        led = await browser.send(link[0], form={"token": token[1], "decision": "allow"}, site="same-origin")
        if led.status != 303:
            raise RuntimeError(f"led nowhere: {led.status} {led.body.decode()}")
        back = await anyio.to_thread.run_sync(self._person.visit, led.headers["location"])
        page = (await browser.send(back, site="cross-site")).body.decode()
        code = CODE.search(page)
        if code is None:
            raise RuntimeError(page)
        done = await self.connection.call_tool(f"{self._only}_sign_in", {"code": code[1]})
        if done.is_error:
            raise RuntimeError(done.text)


@asynccontextmanager
async def calling(
    servers: Mapping[str, Mapping[str, Any]], sign_in: Mapping[str, str] | None, person: Visits, peaks: list[int]
) -> AsyncGenerator[Caller]:
    """Run a gateway for the block; yield its caller. `peaks` gets the most memory that it had, in megabytes.

    Raises:
        RuntimeError: A server cannot be used.
    """
    section = None if sign_in is None else {"auth": {"api_keys": {"ann": KEY}}}
    more: dict[str, Any] = {} if sign_in is None else {"auth": {"type": "oauth", "identity": "caller", **sign_in}}
    only = next(iter(servers)) if len(servers) == 1 else None
    with ExitStack() as life:
        folder = Path(life.enter_context(tempfile.TemporaryDirectory(prefix="gateway-")))
        (folder / "sitecustomize.py").write_text(INNER)
        config = write_gateway_config(folder, {name: entry(one) | more for name, one in servers.items()}, section)
        env = {"PYTHONPATH": ":".join(map(str, (folder, CHECKOUT, CHECKOUT / "src"))), "HOME": str(folder)}
        started = partial(life.enter_context, gateway(folder, config, env=env, drain=0))
        running = await anyio.to_thread.run_sync(started)
        async with GatewayAdmin(running.base, running.token) as admin:
            for one in (await admin.status()).upstreams:
                if one.error is not None and one.state != "ready" and sign_in is None:
                    raise RuntimeError(one.error)
        credentials = {} if sign_in is None else {"auth": KEY}
        async with connect_mcp(running.entry(**credentials)) as connection:
            yield Caller(connection, running, person, only)
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        peaks += [int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM:")]


def entry(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a server."""
    if "url" in server:
        return {"url": server["url"]}
    return {"command": server["command"][0], "args": server["command"][1:]}
