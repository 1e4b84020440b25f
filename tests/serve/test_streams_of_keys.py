"""The streams of notifications of a key or a token end when it is not accepted any more; those of others stay."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from tests.gateway.scale.replicas import OldClient
from tests.serve.exchanges import call, call_body, connected, events, head, modern_headers
from tests.serve.issuer import AUDIENCE, Issuer, Page, running_issuer
from tests.serve.serving import served_http
from toolweave import CallContext, create_mcp_server
from toolweave.serve import ApiKey, ApiKeyAuth, ApiKeys, BearerAuth, Identity, IntrospectionAuth, JwtAuth, TokenAuth

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


@pytest.mark.parametrize("change", [{"expires_at": 4_000_000_000}, {"scopes": ["more"]}, {"claims": {"team": "b"}}])
async def test_the_streams_of_a_key_end_when_it_is_given_another_end_or_other_rights(change: dict[str, Any]) -> None:
    known = ApiKeys(keys("leaving", "steady"))
    server = create_mcp_server(name="s", version="1")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served_http(server, auth=TokenAuth(nobody, api_keys=known)))
        changed = await stack.enter_async_context(listening(url, ERAS[0], LEAVING))
        steady = await stack.enter_async_context(listening(url, ERAS[0], STEADY))
        known.replace([ApiKey(name="leaving", key=LEAVING, **change), *keys("steady")])
        ended = await ends(changed, 1)
        again = await stack.enter_async_context(listening(url, ERAS[0], LEAVING))
        stays = not await ends(steady, 0.2), not await ends(again, 0.1)

    assert (ended, stays) == (True, (True, True))


def by_key(issuer: Issuer, end: int) -> tuple[TokenAuth, str]:
    """Return an authorization with an API key that expires, and the key."""
    return ApiKeyAuth([ApiKey(name="leaving", key=LEAVING, expires_at=end), *keys("steady")]), LEAVING


def by_function(issuer: Issuer, end: int) -> tuple[TokenAuth, str]:
    """Return an authorization with a function of the owner, and a token that it accepts for a time."""

    def verify(token: str) -> Identity | None:
        return Identity(client_id="app", expires_at=end) if token == LEAVING else None

    return BearerAuth(verify, api_keys=keys("steady")), LEAVING


def by_jwt(issuer: Issuer, end: int) -> tuple[TokenAuth, str]:
    """Return an authorization by JWTs, which are accepted for two seconds after their `exp`, and a token."""
    issuer.publish()
    auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE, leeway_seconds=2, api_keys=keys("steady"))
    return auth, issuer.token(exp=end - 2)


def by_introspection(issuer: Issuer, end: int) -> tuple[TokenAuth, str]:
    """Return an authorization that asks the issuer about tokens, and a token."""
    issuer.pages["/introspect"] = Page({"active": True, "aud": AUDIENCE, "client_id": "app", "exp": end})
    auth = IntrospectionAuth(
        issuer=issuer.url,
        audience=AUDIENCE,
        client_id="server",
        client_secret="of the server",
        introspection_url=f"{issuer.url}/introspect",
        api_keys=keys("steady"),
    )
    return auth, LEAVING


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("credential", [by_key, by_function, by_jwt, by_introspection])
async def test_the_streams_of_a_credential_end_within_a_second_of_its_date(
    era: str, credential: Callable[[Issuer, int], tuple[TokenAuth, str]]
) -> None:
    server = create_mcp_server(name="s", version="1")
    async with AsyncExitStack() as stack:
        issuer = stack.enter_context(running_issuer())
        end = int(time.time()) + 4
        auth, token = credential(issuer, end)
        url = await stack.enter_async_context(served_http(server, auth=auth))
        leaving = await stack.enter_async_context(listening(url, era, token))
        steady = await stack.enter_async_context(listening(url, era, STEADY))
        ended = await ends(leaving, 20)
        late = time.time() - end
        stays = not await ends(steady, 0.2)
        refused = await call(url, "unknown", headers={"Authorization": f"Bearer {token}"})

    assert (ended, stays, refused.status) == (True, True, 401)
    assert 0 <= late < 1


@pytest.mark.slow
async def test_a_call_that_runs_when_its_key_expires_has_its_result() -> None:
    end = int(time.time()) + 3

    async def work(ctx: CallContext) -> str:
        await ctx.progress(1)
        while time.time() < end + 1:
            await anyio.sleep(0.1)
        return "done"

    server = create_mcp_server(name="s", version="1", tools=[work])
    bearer = {"Authorization": f"Bearer {LEAVING}"}
    auth = ApiKeyAuth([ApiKey(name="leaving", key=LEAVING, expires_at=end)])
    async with served_http(server, auth=auth) as url:
        answer = await call(url, "work", headers=bearer, meta={"progressToken": 1})

    assert [one.get("method") for one in events(answer.body)] == ["notifications/progress", None]
    assert events(answer.body)[-1]["result"]["content"][0]["text"] == "done"
