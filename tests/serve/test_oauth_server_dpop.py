"""Tokens of our authorization server, bound to a key of the client (RFC 9449), from the code to the refresh."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.serve.company import Company, company
from tests.serve.exchanges import Answer, call, exchange
from tests.serve.test_auth_dpop import proof, thumbprint
from tests.serve.test_sign_in import Ada
from toolweave import connect_mcp
from toolweave.oauth import MemoryTokenStore, OAuth
from toolweave.serve import Dpop

pytestmark = pytest.mark.slow
MINE = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
DEMANDED = Dpop(required=True, algorithms=["ES256"])


def at_token(world: Company, key: Any = MINE, **claims: Any) -> str:
    """Return a proof for the token endpoint."""
    return proof(f"{world.origin}/token", key=key, ath=None, **claims)


async def redeem(world: Company, client: str, code: str, **headers: str) -> Answer:
    """Redeem a code."""
    form = {"grant_type": "authorization_code", "client_id": client, "code": code, "code_verifier": world.verifier}
    return await world.post("/token", {**form, "redirect_uri": "https://client.example/callback"}, **headers)


async def refresh(world: Company, client: str, token: str, **headers: str) -> Answer:
    """Use a refresh token."""
    form = {"grant_type": "refresh_token", "client_id": client, "refresh_token": token}
    return await world.post("/token", form, **headers)


async def add(world: Company, token: str, scheme: str, **headers: str) -> int:
    """Call a tool and return the status."""
    sent = {"Authorization": f"{scheme} {token}", **headers}
    return (await call(world.url, "add", {"a": 1, "b": 2}, headers=sent)).status


@pytest.mark.parametrize("rules", [DEMANDED, Dpop(algorithms=["ES256"], nonces=True)])
async def test_our_client_signs_in_with_a_key_that_every_request_proves(rules: Dpop) -> None:
    async with company(dpop=rules) as world:
        store = MemoryTokenStore()
        auth = OAuth(store=store, user_agent=Ada(world), dpop=True)
        async with connect_mcp({"url": world.url, "auth": auth, "protocol": "2026-07-28"}) as notes:
            assert (await notes.call_tool("add", {"a": 1, "b": 2})).text == "3"
        (record,) = await store.records()
        stolen = await add(world, record.access_token, "Bearer")

    assert record.token_type == "DPoP"
    assert stolen == 401


async def test_a_token_is_bound_to_the_key_of_the_proof_and_so_is_what_refreshes_it() -> None:
    async with company(dpop=Dpop(algorithms=["ES256"])) as world:
        client = await world.client()
        made = (await redeem(world, client, await world.code(client), DPoP=at_token(world))).json()
        token = made["access_token"]
        statuses = [
            await add(world, token, "DPoP", DPoP=proof(world.url, key=MINE, token=token)),
            await add(world, token, "DPoP", DPoP=proof(world.url, key=OTHER, token=token)),
            await add(world, token, "Bearer"),
        ]
        foreign = await refresh(world, client, made["refresh_token"], DPoP=at_token(world, OTHER))
        alone = await refresh(world, client, made["refresh_token"])
        renewed = (await refresh(world, client, made["refresh_token"], DPoP=at_token(world))).json()

    assert made["token_type"] == renewed["token_type"] == "DPoP"
    assert statuses == [200, 401, 401]
    assert [one.json()["error"] for one in (foreign, alone)] == ["invalid_dpop_proof"] * 2


async def test_a_code_that_was_asked_for_with_a_key_is_redeemed_with_that_key_alone() -> None:
    async with company(dpop=Dpop(algorithms=["ES256"])) as world:
        client = await world.client()
        code = await world.code(client, dpop_jkt=thumbprint(MINE))
        refused = [
            await redeem(world, client, code),
            await redeem(world, client, code, DPoP=at_token(world, OTHER)),
        ]
        right = await redeem(world, client, code, DPoP=at_token(world))
        odd = await world.post("/authorize", {"client_id": client, "redirect_uri": "x", "dpop_jkt": "short"})

    assert [one.json()["error"] for one in refused] == ["invalid_dpop_proof"] * 2
    assert right.json()["token_type"] == "DPoP"
    assert odd.status == 400


async def test_a_proof_that_does_not_hold_redeems_nothing() -> None:
    async with company(dpop=DEMANDED) as world:
        client = await world.client()
        code = await world.code(client)
        once = at_token(world)
        refused = [
            await redeem(world, client, code),
            await redeem(world, client, code, DPoP=proof(world.url, key=MINE, ath=None)),
            await redeem(world, client, code, DPoP=at_token(world, htm="GET")),
            await redeem(world, client, code, DPoP="no proof"),
        ]
        right = await redeem(world, client, code, DPoP=once)
        replayed = await refresh(world, client, right.json()["refresh_token"], DPoP=once)

    assert [one.json()["error"] for one in (*refused, replayed)] == ["invalid_dpop_proof"] * 5
    assert right.status == 200


async def test_a_nonce_is_demanded_at_the_token_endpoint_too_where_we_say_so() -> None:
    async with company(dpop=Dpop(algorithms=["ES256"], nonces=True)) as world:
        client = await world.client()
        code = await world.code(client)
        asked = await redeem(world, client, code, DPoP=at_token(world))
        nonce = asked.headers["dpop-nonce"]
        right = await redeem(world, client, code, DPoP=at_token(world, nonce=nonce))

    assert asked.json()["error"] == "use_dpop_nonce"
    assert right.json()["token_type"] == "DPoP"


async def test_a_client_with_a_secret_may_change_its_key_and_tokens_stay_free_without_a_proof() -> None:
    async with company(dpop=Dpop(algorithms=["ES256"])) as world:
        known = (await world.register(token_endpoint_auth_method="client_secret_post")).json()
        client = known["client_id"]
        secret = {"client_secret": known["client_secret"]}
        form = {"grant_type": "authorization_code", "client_id": client, "code": await world.code(client), **secret}
        form |= {"code_verifier": world.verifier, "redirect_uri": "https://client.example/callback"}
        made = (await world.post("/token", form, DPoP=at_token(world))).json()
        again = {"grant_type": "refresh_token", "client_id": client, "refresh_token": made["refresh_token"], **secret}
        renewed = (await world.post("/token", again, DPoP=at_token(world, OTHER))).json()
        public = await world.client()
        free = (await redeem(world, public, await world.code(public))).json()

    assert (made["token_type"], renewed["token_type"], free["token_type"]) == ("DPoP", "DPoP", "Bearer")


async def test_its_metadata_say_which_proofs_it_takes() -> None:
    async with company(dpop=DEMANDED) as offered, company() as plain:
        said = [
            (await call_json(world, "/.well-known/oauth-authorization-server")).get("dpop_signing_alg_values_supported")
            for world in (offered, plain)
        ]

    assert said == [["ES256"], None]


async def call_json(world: Company, path: str) -> dict[str, Any]:
    """Get a document."""
    return (await exchange(world.origin + path, "GET")).json()
