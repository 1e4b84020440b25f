"""Two callers of a gateway, before a server that is called as each of them."""

from __future__ import annotations

import asyncio
import json

from toolweave import CallContext, connect_mcp, create_mcp_server
from toolweave.gateway import create_gateway
from toolweave.oauth import MemoryTokenStore, OAuth, TokenKey, TokenRecord, resource_of
from toolweave.serve import ApiKey, ApiKeyAuth, BearerAuth, Identity


def whoami(ctx: CallContext) -> str:
    """Say whose account this is."""
    return str(json.loads(ctx.principal or "[null]")[0])


mail = create_mcp_server("mail", tools=[whoami])
accounts = BearerAuth(tokens={"the-token-of-ann-for-mail": "ann@mail.example"})
keys = ApiKeyAuth([ApiKey(name="ann", key="the-key-of-ann-0123"), ApiKey(name="bob", key="the-key-of-bob-0123")])
store = MemoryTokenStore()


async def main() -> None:
    loop = asyncio.get_running_loop()
    mail_at, gateway_at = loop.create_future(), loop.create_future()
    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(mail.serve_http(port=0, auth=accounts, on_started=mail_at.set_result))
        url = f"{await mail_at}/mcp"
        upstream = {"url": url, "auth": OAuth(identity="caller")}
        gateway = create_gateway({"mail": upstream}, auth=keys, token_store=store)
        other = tasks.create_task(gateway.serve_http(port=0, on_started=gateway_at.set_result))

        # Ann has signed in before
        ann = Identity(client_id="ann").principal
        key = TokenKey(issuer="https://login.example", resource=resource_of(url), principal=ann)
        await store.save(TokenRecord(key=key, access_token="the-token-of-ann-for-mail"))

        for name in ("ann", "bob"):
            caller = {"url": f"{await gateway_at}/mcp", "auth": f"the-key-of-{name}-0123"}
            async with connect_mcp(caller) as connection:
                tools = (await connection.list_tools()).names
                print(name, *tools)
                result = await connection.call_tool(tools[0])
                print(result.text.partition(" Ask ")[0])
        one.cancel()
        other.cancel()


asyncio.run(main())
