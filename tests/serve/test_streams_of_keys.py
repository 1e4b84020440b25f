"""The streams of notifications of an API key end when the key is not accepted any more; those of other keys stay."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketStream

from tests.gateway.scale.replicas import OldClient
from tests.serve.exchanges import call_body, connected, head, modern_headers
from tests.serve.serving import served_http
from toolweave import create_mcp_server
from toolweave.serve import ApiKey, ApiKeys, TokenAuth

pytestmark = pytest.mark.anyio

LEAVING, STEADY = "leaving-" + "l" * 16, "steady-" + "s" * 16
ERAS = ("2025-11-25", "2026-07-28")
LISTEN = {"notifications": {"toolsListChanged": True}}


def keys(*names: str) -> list[ApiKey]:
    """Return the keys of some clients."""
    return [ApiKey(name=name, key={"leaving": LEAVING, "steady": STEADY}[name]) for name in names]


def refuse(known: ApiKeys) -> None:
    """Refuse the key of the client that leaves."""
    known.refuse([keys("leaving")[0].digest])


def replace(known: ApiKeys) -> None:
    """Accept the other keys alone."""
    known.replace(keys("steady"))


async def nobody(token: str) -> None:
    """Accept no token."""


@asynccontextmanager
async def listening(url: str, era: str, key: str) -> AsyncGenerator[SocketStream]:
    """Open a stream of notifications of an era; it has begun."""
    bearer = {"Authorization": f"Bearer {key}"}
    if era == "2026-07-28":
        body = call_body("", method="subscriptions/listen", **LISTEN)
        headers = {**modern_headers("", "subscriptions/listen"), **bearer, "Content-Length": str(len(body))}
        sent = head(url, "POST", headers) + body
        begins = b"acknowledged"
    else:
        client = OldClient(bearer)
        await client.begin(url)
        sent = head(url, "GET", client.headers)
        begins = b": open"
    async with connected(url) as stream:
        await stream.send(sent)
        received = b""
        with anyio.fail_after(20):
            while begins not in received:
                received += await stream.receive()
        yield stream


async def ends(stream: SocketStream, seconds: float) -> bool:
    """Return whether a stream ends within some seconds."""
    with anyio.move_on_after(seconds) as waiting:
        try:
            while True:
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
    return not waiting.cancelled_caught


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("end", [refuse, replace])
async def test_the_streams_of_a_key_end_with_it_and_those_of_others_stay(
    era: str, end: Callable[[ApiKeys], None]
) -> None:
    known = ApiKeys(keys("leaving", "steady"))
    server = create_mcp_server(name="s", version="1")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served_http(server, auth=TokenAuth(nobody, api_keys=known)))
        leaving = await stack.enter_async_context(listening(url, era, LEAVING))
        steady = await stack.enter_async_context(listening(url, era, STEADY))
        known.replace(keys("leaving", "steady"))  # which ends no key
        kept = not await ends(leaving, 0.2)
        end(known)
        ended = await ends(leaving, 1)
        stays = not await ends(steady, 0.2)

    assert (kept, ended, stays) == (True, True, True)


async def test_a_client_opens_a_stream_again_with_a_new_key_after_the_old_one_was_refused() -> None:
    known = ApiKeys(keys("leaving"))
    server = create_mcp_server(name="s", version="1")
    new = "another-" + "n" * 16
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served_http(server, auth=TokenAuth(nobody, api_keys=known)))
        old = await stack.enter_async_context(listening(url, ERAS[0], LEAVING))
        known.refuse([keys("leaving")[0].digest])
        ended = await ends(old, 1)
        known.replace([*keys("leaving"), ApiKey(name="leaving", key=new)])
        again = await stack.enter_async_context(listening(url, ERAS[0], new))
        known.refuse([keys("leaving")[0].digest])  # once more, as replicas do
        stays = not await ends(again, 0.2)

    assert (ended, stays) == (True, True)
