"""An authorization server in front of a company's provider: the way in, and everybody who tries another."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.serve.company import REDIRECT, SECRET, Browser, company, query_of
from tests.serve.exchanges import call, exchange
from tests.serve.issuer import STRANGER, Page, running_issuer
from tests.serve.offered import doing_server
from toolweave.errors import ConfigError
from toolweave.serve import ClientRules, OAuthClient, OAuthServer, Upstream
from toolweave.state import MemoryStore

pytestmark = pytest.mark.slow
CURVE = ec.generate_private_key(ec.SECP256R1())
EVIL = "https://evil.example/callback"


async def test_a_person_consents_signs_in_at_the_provider_and_the_client_gets_in() -> None:
    async with company(required_scopes=["notes"], scopes_supported=["notes", "notes:write"]) as world:
        client = await world.client()
        browser = Browser()
        page = await browser.send(world.authorization(client, scope="notes"))
        assert page.status == 200
        sent = await world.consent(browser, page)
        assert sent.headers["location"].startswith(f"{world.provider.issuer.url}/login?tenant=t&")
        back = await browser.send(world.provider.sign_in(sent.headers["location"]), site="cross-site")
        answer = query_of(back.headers["location"])
        assert back.headers["location"].startswith(REDIRECT + "?")
        assert answer.pop("code")
        assert answer == {"state": "client-state", "iss": world.origin}
        tokens = await world.tokens(client, scope="notes")

        assert await world.status(tokens["access_token"]) == 200
        assert tokens["token_type"] == "Bearer"
        assert tokens["scope"] == "notes"
        claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        assert claims["aud"] == world.url
        assert claims["iss"] == world.origin
        assert claims["sub"] == "ada"
        assert jwt.get_unverified_header(tokens["access_token"])["typ"] == "at+jwt"


async def test_its_metadata_stand_where_clients_of_every_revision_look() -> None:
    async with company() as world:
        documents = [
            (await exchange(world.origin + path, "GET")).json()
            for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
        ]
        resource = (await exchange(world.origin + "/.well-known/oauth-protected-resource/mcp", "GET")).json()
        refused = await exchange(world.url, headers={"Content-Type": "application/json"}, body=b"{}")

    assert documents[0] == documents[1]
    assert documents[0]["issuer"] == world.origin
    assert documents[0]["code_challenge_methods_supported"] == ["S256"]
    assert documents[0]["client_id_metadata_document_supported"] is True
    assert documents[0]["authorization_response_iss_parameter_supported"] is True
    assert "none" in documents[0]["token_endpoint_auth_methods_supported"]
    assert resource["authorization_servers"] == [world.origin]
    assert resource["resource"] == world.url
    assert "resource_metadata=" in refused.headers["www-authenticate"]


@pytest.mark.requirement("C12")
async def test_nothing_of_the_provider_leaves_the_server_or_is_kept_in_the_clear() -> None:
    async with company() as world:
        tokens = await world.tokens(await world.client())
        kept = json.dumps(
            [(one.key, one.value) for name in ("grants", "codes", "refresh", "sign_ins", "clients")
             for one in await world.store.scan(f"toolweave.oauth.{name}")]
        )  # fmt: skip

    assert "upstream" not in json.dumps(tokens)
    assert "upstream" not in kept
    assert tokens["refresh_token"] not in kept
    assert tokens["access_token"] not in kept


async def test_the_provider_is_asked_as_one_client_with_a_challenge_and_a_secret() -> None:
    async with company() as world:
        await world.tokens(await world.client())
        form, headers = world.provider.asked[0]

    assert form["redirect_uri"] == f"{world.origin}/oauth/callback"
    assert "code_verifier" in form
    assert "resource" not in form
    assert headers["authorization"].startswith("Basic ")


# clients


BAD_URIS: list[Any] = [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "http://evil.example/callback",
    "http://127.0.0.1.evil.example/callback",
    "http://localhost@evil.example/callback",
    "https://client.example/callback#fragment",
    "https://user:password@client.example/callback",
    "https://*.example/callback",
    "https://client.example/call back",
    "https://client.example/\\evil",
    "https:///callback",
    "https://[::1/callback",
    "unknown://callback",
    "/callback",
    "",
    7,
    None,
    "https://client.example/" + "x" * 3000,
]


@pytest.mark.parametrize("uri", BAD_URIS)
async def test_a_redirect_uri_that_could_lead_elsewhere_is_not_registered(uri: Any) -> None:
    async with company() as world:
        answer = await world.register(redirect_uris=[REDIRECT, uri])

    assert answer.status == 400
    assert answer.json()["error"] == "invalid_redirect_uri"


@pytest.mark.parametrize(
    "metadata",
    [
        {"redirect_uris": []},
        {"redirect_uris": None},
        {"redirect_uris": [REDIRECT] * 11},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"grant_types": ["client_credentials"]},
        {"response_types": ["token"]},
    ],
)
async def test_a_client_that_wants_what_is_not_offered_is_not_registered(metadata: dict[str, Any]) -> None:
    async with company() as world:
        answer = await world.register(**metadata)
        unreadable = [await world.post("/register", body) for body in (b"[]", b"{", b"[" * 50_000, b"x" * 100_000)]

    assert answer.status == 400
    assert [one.status for one in unreadable] == [400, 400, 400, 413]


async def test_applications_on_a_device_may_be_registered_and_only_the_port_of_their_loopback_may_change() -> None:
    uris = [
        "http://127.0.0.1:1234/callback",
        "http://localhost/back?a=b",
        "com.example.app:/callback",
        "cursor://back/x",
    ]
    async with company() as world:
        client = await world.client(redirect_uris=uris)
        browser = Browser()
        accepted = [*uris, "http://127.0.0.1:50123/callback", "http://localhost:7/back?a=b"]
        for uri in accepted:
            assert (await browser.send(world.authorization(client, redirect_uri=uri))).status == 200
        for uri in (
            "http://127.0.0.1:50123/other",
            "http://127.0.0.1:50123/callback?x=1",
            "http://127.0.0.2:1234/callback",
            "http://localhost:1234/callback",
            "http://user@127.0.0.1:1234/callback",
            "https://127.0.0.1:1234/callback",
            "com.example.app:/callback/",
            "cursor://back/y",
            EVIL,
            "",
        ):
            refused = await browser.send(world.authorization(client, redirect_uri=uri))
            assert refused.status == 400
            assert "location" not in refused.headers


async def test_a_server_may_say_which_redirects_and_clients_it_accepts() -> None:
    rules = ClientRules(
        registration=False,
        documents=False,
        clients=[
            OAuthClient(client_id="ours", redirect_uris=[REDIRECT], name="Ours", client_secret="its secret"),
            OAuthClient(client_id="public", redirect_uris=[REDIRECT]),
        ],
    )
    async with company(rules=rules) as world:
        metadata = (await exchange(world.origin + "/.well-known/oauth-authorization-server", "GET")).json()
        closed = await world.register()
        unknown = await Browser().send(world.authorization("https://client.example/metadata"))
        code = await world.code("ours")
        wrong = await world.redeem("ours", code, basic="wrong")
        none = await world.redeem("ours", code)
        right = await world.redeem("ours", code, basic="its secret")
        public = await world.tokens("public")

    assert "registration_endpoint" not in metadata
    assert metadata["client_id_metadata_document_supported"] is False
    assert closed.status == 404
    assert unknown.status == 400
    assert [wrong.status, none.status, right.status] == [401, 401, 200]
    assert "access_token" in public
    assert "its secret" not in repr(rules)

    only = ClientRules(redirect_allowed=lambda uri: uri.startswith("https://client.example/"))
    async with company(rules=only) as world:
        assert (await world.register()).status == 201
        assert (await world.register(redirect_uris=[EVIL])).status == 400


async def test_a_registered_secret_is_wanted_and_kept_as_a_digest() -> None:
    async with company() as world:
        for method in ("client_secret_basic", "client_secret_post"):
            made = (await world.register(token_endpoint_auth_method=method)).json()
            client = made["client_id"]
            secret = made["client_secret"]
            code = await world.code(client)
            assert (await world.redeem(client, code)).status == 401
            assert (await world.redeem(client, code, client_secret="wrong")).status == 401
            basic = method == "client_secret_basic"
            right = await (
                world.redeem(client, code, basic=secret) if basic else world.redeem(client, code, client_secret=secret)
            )
            assert right.status == 200
            kept = json.dumps([one.value for one in await world.store.scan("toolweave.oauth.clients")])
            assert secret not in kept


@pytest.mark.parametrize(
    ("rules", "most"),
    [(ClientRules(per_minute=5, per_day=1000), 10), (ClientRules(per_minute=1000, per_day=8), 8)],
    ids=["minute", "day"],
)
async def test_a_flood_of_registrations_ends_at_the_rate(rules: ClientRules, most: int) -> None:
    async with company(rules=rules) as world:
        statuses = [(await world.register()).status for _ in range(20)]
        refused = await world.register()
        kept = await world.store.scan("toolweave.oauth.clients")

    assert 429 in statuses
    assert 0 < statuses.count(201) <= most  # a minute may have ended meanwhile
    assert len(kept) == statuses.count(201)
    assert all(one.expires_at is not None for one in kept)
    assert int(refused.headers["retry-after"]) > 0


async def test_a_client_is_forgotten_unless_somebody_consents_to_it() -> None:
    now = time.time()
    clock = [now]
    async with company(store=MemoryStore(clock=lambda: clock[0])) as world:
        unused = await world.client()
        used = await world.client()
        await world.tokens(used)
        clock[0] = now + 2 * 86_400
        page = await Browser().send(world.authorization(unused))
        again = await Browser().send(world.authorization(used))

    assert (page.status, again.status) == (400, 200)


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({}, True),
        ({"client_id": "https://client.example/other"}, False),
        ({"client_id": None}, False),
        ({"redirect_uris": [EVIL]}, False),
        ({"redirect_uris": ["javascript:alert(1)", REDIRECT]}, False),
        ({"token_endpoint_auth_method": "client_secret_basic"}, False),
        ({"client_secret": "x"}, False),
        ({"client_name": "x" * 30_000}, False),
    ],
)
async def test_a_client_may_be_named_by_the_url_of_its_document(change: dict[str, Any], accepted: bool) -> None:
    with running_issuer() as publisher:
        name = f"{publisher.url}/client.json"
        publisher.pages["/client.json"] = Page(
            {"client_id": name, "redirect_uris": [REDIRECT], "client_name": "Doc", **change}
        )
        async with company() as world:
            page = await Browser().send(world.authorization(name))
            if accepted:
                assert await world.status((await world.tokens(name))["access_token"]) == 200
                assert len(publisher.asked) == 1

    assert (page.status == 200) is accepted
    assert "location" not in page.headers
    assert not accepted or b"127.0.0.1" in page.body


async def test_a_document_is_not_fetched_from_inside_nor_through_a_redirect() -> None:
    with running_issuer() as publisher:
        publisher.pages["/moved.json"] = Page(status=302, headers={"Location": "/client.json"})
        publisher.pages["/client.json"] = Page(
            {"client_id": f"{publisher.url}/moved.json", "redirect_uris": [REDIRECT]}
        )
        async with company() as world:
            for name in (
                f"{publisher.url}/moved.json",
                "https://10.0.0.5/c.json",
                "https://169.254.169.254/latest/meta",
            ):
                assert (await Browser().send(world.authorization(name))).status == 400


# consent


async def test_the_page_names_the_client_and_where_it_leads_and_cannot_be_framed() -> None:
    async with company() as world:
        client = await world.client(
            client_name='<script>alert("x")</script>\x1b[2J', redirect_uris=["http://localhost:1/x"]
        )
        page = await Browser().send(world.authorization(client, redirect_uri="http://localhost:1/x"))

    text = page.body.decode()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert "localhost" in text
    assert "your own device" in text
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"


async def test_nobody_is_sent_to_the_provider_before_they_consent_to_this_very_client() -> None:
    async with company() as world:
        first = await world.client()
        second = await world.client(redirect_uris=[REDIRECT, EVIL])
        browser = Browser()
        await world.code(first, browser)
        known = await browser.send(world.authorization(first))
        other_client = await browser.send(world.authorization(second))
        await world.code(second, browser)
        other_address = await browser.send(world.authorization(second, redirect_uri=EVIL))
        other_browser = await Browser().send(world.authorization(first))

    assert known.status == 303
    assert [one.status for one in (other_client, other_address, other_browser)] == [200, 200, 200]


@pytest.mark.parametrize("site", ["cross-site", "same-site", ""])
async def test_a_consent_of_before_says_nothing_when_another_site_leads_here(site: str) -> None:
    async with company() as world:
        client = await world.client()
        browser = Browser()
        await world.code(client, browser)

        assert (await browser.send(world.authorization(client), site=site)).status == 200


async def test_a_consent_cannot_be_written_by_anybody_else() -> None:
    async with company() as world:
        client = await world.client()
        browser = Browser()
        await world.code(client, browser)
        consents = browser.cookies["toolweave-consents"]
        other = await world.client()
        mine = Browser()
        await world.code(other, mine)
        for forged in (consents.partition("!")[0], consents + "x", "x!" + consents.partition("!")[2], "!", ""):
            browser.cookies["toolweave-consents"] = forged
            assert (await browser.send(world.authorization(client))).status == 200


async def test_a_form_counts_from_its_own_page_in_its_own_browser_only_and_a_second_page_spoils_no_first() -> None:
    async with company() as world:
        client = await world.client()
        browser = Browser()
        attacker = Browser()
        page = await browser.send(world.authorization(client))
        await browser.send(world.authorization(client))
        foreign = await attacker.send(world.authorization(client))
        by_another = await world.consent(browser, foreign)
        elsewhere = await browser.send(
            f"{world.origin}/consent", form={"decision": "allow"}, origin="https://evil.example"
        )
        empty = await browser.send(f"{world.origin}/consent", form={"decision": "allow"})
        right = await world.consent(browser, page)

    assert [one.status for one in (by_another, elsewhere, empty, right)] == [403, 403, 403, 303]


async def test_a_person_may_say_no() -> None:
    async with company() as world:
        client = await world.client()
        browser = Browser()
        page = await browser.send(world.authorization(client))
        back = await world.consent(browser, page, "deny")

    assert query_of(back.headers["location"]) == {
        "error": "access_denied",
        "state": "client-state",
        "iss": world.origin,
    }
    assert "toolweave-consents" not in browser.cookies


async def test_whoever_comes_back_from_the_provider_is_who_consented() -> None:
    async with company() as world:
        client = await world.client()
        attacker = Browser()
        victim = Browser()
        page = await attacker.send(world.authorization(client))
        assert not any("sign-in" in name for name in attacker.cookies)  # only with the consent
        sent = await world.consent(attacker, page)
        back = world.provider.sign_in(sent.headers["location"])  # which the victim is led to
        lured = await victim.send(back, site="cross-site")
        own = await attacker.send(back, site="cross-site")
        replayed = await attacker.send(back, site="cross-site")

    assert [one.status for one in (lured, own, replayed)] == [403, 303, 403]
    assert "location" not in lured.headers


# what clients may ask


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"state": "s" * 5000}, "invalid_request"),
    ],
)
async def test_a_request_that_is_not_in_order_goes_back_to_the_client_with_our_name(
    changes: dict[str, str | None], error: str
) -> None:
    async with company(required_scopes=["notes"]) as world:
        back = await Browser().send(world.authorization(await world.client(), **changes))

    state = changes.get("state", "client-state")
    assert query_of(back.headers["location"]) == {"error": error, "state": state, "iss": world.origin}


async def test_a_request_of_nobody_is_a_page() -> None:
    async with company() as world:
        client = await world.client()
        doubled = world.authorization(client) + "&client_id=other"
        for url in (
            world.authorization("nobody"),
            world.authorization(""),
            doubled,
            f"{world.origin}/authorize?%ff=%ff",
        ):
            page = await Browser().send(url)
            assert page.status == 400
            assert "location" not in page.headers


async def test_a_code_counts_once_and_its_reuse_ends_what_it_gave() -> None:
    async with company() as world:
        client = await world.client()
        code = await world.code(client)
        tokens = (await world.redeem(client, code)).json()
        assert await world.status(tokens["access_token"]) == 200
        again = await world.redeem(client, code)

        assert again.json()["error"] == "invalid_grant"
        assert await world.status(tokens["access_token"]) == 401
        assert (await world.refresh(client, tokens["refresh_token"])).status == 400


async def test_a_code_is_for_its_client_its_address_its_verifier_and_its_resource() -> None:
    async with company() as world:
        client = await world.client()
        other = await world.client()
        code = await world.code(client)
        refused = [
            await world.redeem(other, code),
            await world.redeem(client, code, redirect_uri=EVIL),
            await world.redeem(client, code, code_verifier="x" * 43),
            await world.redeem(client, code, code_verifier=""),
            await world.redeem(client, code, resource="https://other.example/mcp"),
            await world.redeem(client, code, grant_type="password"),
            await world.redeem("nobody", code),
            await world.redeem(client, "no-code"),
            await world.post("/token", b"{}"),
        ]
        right = await world.redeem(client, code)

    assert [one.status for one in refused] == [400, 400, 400, 400, 400, 400, 401, 400, 400]
    assert refused[4].json()["error"] == "invalid_target"
    assert right.status == 200


async def test_a_server_mounted_below_is_a_resource_of_its_own_with_tokens_of_its_own() -> None:
    async with company() as world, world.app.mounted("/mcp/view", doing_server().http_endpoint()):
        view = f"{world.url}/view"
        client = await world.client()
        browser = Browser()
        whole = await world.code(client, browser)
        asked = await browser.send(world.authorization(client, resource=view), site="same-origin")
        code = await world.code(client, None, resource=view)
        refused = await world.redeem(client, code)
        tokens = (await world.redeem(client, code, resource=view)).json()
        renewed = (await world.refresh(client, tokens["refresh_token"], resource=view)).json()
        of_all = (await world.redeem(client, whole)).json()

        async def status(url: str, token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return (await call(url, "add", {"a": 1, "b": 2}, headers=headers)).status

        found = [await status(url, one["access_token"]) for one in (renewed, of_all) for url in (view, world.url)]

    assert asked.status == 200  # consent to the whole is none to it
    assert view in asked.body.decode()
    assert refused.json()["error"] == "invalid_target"
    assert found == [200, 401, 200, 200]


async def test_a_refresh_token_is_replaced_and_its_reuse_ends_everything() -> None:
    async with company() as world:
        client = await world.client()
        first = await world.tokens(client)
        second = (await world.refresh(client, first["refresh_token"])).json()
        assert await world.status(second["access_token"]) == 200
        assert second["refresh_token"] != first["refresh_token"]
        stolen = await world.refresh(client, first["refresh_token"])

        assert stolen.json()["error"] == "invalid_grant"
        assert (await world.refresh(client, second["refresh_token"])).status == 400
        assert await world.status(second["access_token"]) == 401


async def test_a_refresh_token_is_for_its_client_and_for_no_more_than_was_granted() -> None:
    async with company(scopes_supported=["a", "b"]) as world:
        client = await world.client()
        other = await world.client()
        tokens = await world.tokens(client, scope="a")
        foreign = await world.refresh(other, tokens["refresh_token"])
        more = await world.refresh(client, tokens["refresh_token"], scope="a b")
        same = await world.refresh(client, tokens["refresh_token"], scope="a")

    assert [one.status for one in (foreign, more, same)] == [400, 400, 200]


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        ("openid profile email", "a b"),
        ("claudeai", "a b"),
        ("offline_access", "a b"),
        ("", "a b"),
        ("a openid", "a"),
        ("openid b offline_access a", "b a"),
        (None, "a b"),
    ],
)
async def test_scopes_of_other_servers_are_ignored_and_the_response_names_what_was_granted(
    asked: str | None, granted: str
) -> None:
    async with company(scopes_supported=["a", "b"]) as world:
        client = await world.client(scope=asked or "")
        tokens = await world.tokens(client, scope=asked)
        again = await world.refresh(client, tokens["refresh_token"], **({} if asked is None else {"scope": asked}))

    assert tokens["scope"] == granted
    assert (again.status, again.json().get("scope")) == (200, granted)


async def test_an_endpoint_at_the_root_of_its_host_has_one_name_with_and_without_a_slash() -> None:
    async with company(root=True) as world:
        client = await world.client()
        for resource in (world.origin, f"{world.origin}/"):
            code = await world.code(client, resource=resource)
            tokens = (await world.redeem(client, code, resource=f"{world.origin}/")).json()
            again = await world.refresh(client, tokens["refresh_token"], resource=world.origin)
            assert await world.status(again.json()["access_token"]) == 200
        refused = await Browser().send(world.authorization(client, resource=f"{world.origin}/mcp"))

    assert query_of(refused.headers["location"])["error"] == "invalid_target"


async def test_a_client_without_the_grant_gets_no_refresh_token() -> None:
    async with company() as world:
        tokens = await world.tokens(await world.client(grant_types=["authorization_code"]))

    assert "refresh_token" not in tokens


async def test_a_token_is_revoked_by_its_client_alone_and_at_once() -> None:
    async with company() as world:
        client = await world.client()
        other = await world.client()
        for kind in ("access_token", "refresh_token"):
            tokens = await world.tokens(client)
            foreign = await world.post("/revoke", {"token": tokens[kind], "client_id": other})
            assert await world.status(tokens["access_token"]) == 200
            own = await world.post("/revoke", {"token": tokens[kind], "client_id": client})
            assert await world.status(tokens["access_token"]) == 401
            assert (await world.refresh(client, tokens["refresh_token"])).status == 400
            assert (foreign.status, own.status) == (200, 200)
        assert (await world.post("/revoke", {"token": "nothing", "client_id": client})).status == 200
        assert (await world.post("/revoke", {"token": "nothing", "client_id": "nobody"})).status == 401


async def test_no_other_token_is_taken_for_one_of_ours() -> None:
    async with company() as world:
        tokens = await world.tokens(await world.client())
        good = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        others = [
            jwt.encode(good, "x" * 32, "HS256", headers={"typ": "at+jwt"}),
            jwt.encode(good, SECRET, "HS256", headers={"typ": "at+jwt"}),
            jwt.encode(good, STRANGER, "RS256", headers={"typ": "at+jwt"}),
            jwt.encode(good, cast("Any", None), "none", headers={"typ": "at+jwt"}),
            world.provider.issuer.token(),
            tokens["refresh_token"],
            tokens["access_token"][:-2],
            "x.y.z",
        ]
        statuses = [await world.status(token) for token in others]

    assert statuses == [401] * len(others)


async def test_a_new_secret_signs_nobody_out() -> None:
    store = MemoryStore()
    with running_issuer() as issuer:
        upstream = Upstream.oidc(issuer.url, "server", "s")
        settings: dict[str, Any] = {"url": "https://notes.example/mcp", "upstream": upstream, "store": store}
        before = OAuthServer(secret=SECRET, **settings)
        after = OAuthServer(secret=["another secret, of thirty-two bytes or more", SECRET], **settings)
        sealed = before._keys.seal("upstream tokens", {"a": 1})

        assert after._keys.unseal("upstream tokens", sealed) == {"a": 1}
        assert after._keys.unseal("sign-ins", sealed) is None
        assert SECRET not in repr(before)


# the provider


@pytest.mark.parametrize(
    "person",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-client"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"sub": None},
        {"sub": ""},
        {"azp": "another-client"},
    ],
)
async def test_an_id_token_that_does_not_hold_signs_nobody_in(person: dict[str, Any]) -> None:
    async with company() as world:
        world.provider.person = {"sub": "ada", **person}
        browser = Browser()
        sent = await world.consent(browser, await browser.send(world.authorization(await world.client())))
        back = await browser.send(world.provider.sign_in(sent.headers["location"]), site="cross-site")

    assert query_of(back.headers["location"])["error"] == "access_denied"
    assert query_of(back.headers["location"])["iss"] == world.origin


@pytest.mark.parametrize("signs", [(STRANGER, "RS256"), (CURVE, "ES256")])
async def test_an_id_token_that_the_published_key_has_not_signed_signs_nobody_in(signs: tuple[Any, str]) -> None:
    async with company() as world:
        world.provider.signs = signs
        browser = Browser()
        sent = await world.consent(browser, await browser.send(world.authorization(await world.client())))
        back = await browser.send(world.provider.sign_in(sent.headers["location"]), site="cross-site")

    assert query_of(back.headers["location"])["error"] == "access_denied"


async def test_an_error_of_the_provider_is_told_without_its_words() -> None:
    async with company() as world:
        browser = Browser()
        sent = await world.consent(browser, await browser.send(world.authorization(await world.client())))
        state = query_of(sent.headers["location"])["state"]
        text = "error=server_error&error_description=call+0900+for+help"
        back = await browser.send(f"{world.origin}/oauth/callback?{text}&state={state}", site="cross-site")

    assert query_of(back.headers["location"]) == {
        "error": "access_denied",
        "state": "client-state",
        "iss": world.origin,
    }


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (Page({"error": "invalid_grant"}, status=400), "access_denied"),
        (Page(status=503), "temporarily_unavailable"),
        (Page(b"<html>"), "access_denied"),
        (Page({"error": "bad_verification_code"}), "access_denied"),
        (Page(b"x" * 1_000_000), "access_denied"),
    ],
)
async def test_a_provider_that_redeems_no_code_signs_nobody_in(page: Page, error: str) -> None:
    async with company() as world:
        world.provider.refuses = page
        browser = Browser()
        sent = await world.consent(browser, await browser.send(world.authorization(await world.client())))
        back = await browser.send(world.provider.sign_in(sent.headers["location"]), site="cross-site")

    assert query_of(back.headers["location"])["error"] == error


async def test_a_provider_that_is_away_is_no_reason_to_lose_a_grant_and_one_that_ends_it_is() -> None:
    async with company() as world:
        world.provider.token = {"expires_in": 1}
        client = await world.client()
        tokens = await world.tokens(client)
        world.provider.refuses = Page(status=503)
        away = await world.refresh(client, tokens["refresh_token"])
        world.provider.refuses = None
        back = await world.refresh(client, tokens["refresh_token"])
        world.provider.refuses = Page({"error": "invalid_grant"}, status=400)
        gone = await world.refresh(client, back.json()["refresh_token"])

        assert (away.status, back.status, gone.status) == (503, 200, 400)
        assert int(away.headers["retry-after"]) > 0
        assert gone.json()["error"] == "invalid_grant"
        assert await world.status(back.json()["access_token"]) == 401


async def test_a_provider_whose_metadata_are_gone_is_told_to_the_client() -> None:
    async with company() as world:
        world.provider.issuer.pages = {}
        browser = Browser()
        back = await world.consent(browser, await browser.send(world.authorization(await world.client())))

    assert query_of(back.headers["location"])["error"] == "temporarily_unavailable"


async def test_only_people_of_the_company_may_come_in() -> None:
    def allow(claims: Mapping[str, Any]) -> bool:
        return claims.get("hd") == "example.com"

    async with company(allow=allow) as world:
        client = await world.client()
        browser = Browser()
        sent = await world.consent(browser, await browser.send(world.authorization(client)))
        back = await browser.send(world.provider.sign_in(sent.headers["location"]), site="cross-site")
        world.provider.person = {"sub": "ada", "hd": "example.com"}
        tokens = await world.tokens(client)

    assert query_of(back.headers["location"])["error"] == "access_denied"
    assert "access_token" in tokens


async def test_a_provider_without_metadata_is_asked_who_signed_in() -> None:
    with running_issuer() as hub:
        authorized: list[str] = []

        def profile(form: dict[str, str], headers: dict[str, str]) -> Page:
            authorized.append(headers["authorization"])
            return Page({"id": 583231, "login": "ada"})

        hub.pages["/user"] = profile
        endpoints = {
            "issuer": "",
            "subject": "id",
            "userinfo_endpoint": f"{hub.url}/user",
            "method": "client_secret_post",
        }
        async with company() as other:
            provider = other.provider.issuer.url
            endpoints |= {"authorization_endpoint": f"{provider}/login", "token_endpoint": f"{provider}/token"}
            async with company(upstream=endpoints) as world:
                world.provider = other.provider
                tokens = await world.tokens(await world.client())
                form, headers = other.provider.asked[-1]

    assert jwt.decode(tokens["access_token"], options={"verify_signature": False})["sub"] == "583231"
    assert form["client_secret"] == "s3cret"
    assert "authorization" not in headers
    assert authorized[0].startswith("Bearer upstream-")


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        (Upstream.github("id", "s"), {"named": "https://github.com", "subject": "id", "method": "client_secret_post"}),
        (Upstream.google("id", "s"), {"issuer": "https://accounts.google.com"}),
        (Upstream.entra("t-1", "id", "s"), {"issuer": "https://login.microsoftonline.com/t-1/v2.0", "subject": "oid"}),
        (Upstream.okta("x.okta.com", "id", "s"), {"issuer": "https://x.okta.com/oauth2/default"}),
        (Upstream.okta("x.okta.com", "id", "s", server=None), {"issuer": "https://x.okta.com"}),
        (Upstream.auth0("x.auth0.com", "id", "s"), {"issuer": "https://x.auth0.com/"}),
        (Upstream.keycloak("https://k.example/", "staff", "id", "s"), {"issuer": "https://k.example/realms/staff"}),
    ],
)
async def test_the_providers_that_many_companies_have_are_named_values(
    upstream: Upstream, expected: dict[str, str]
) -> None:
    assert {name: getattr(upstream, name) for name in expected} == expected
    assert "resource" not in upstream.parameters
    assert "'s'" not in repr(upstream)
    assert upstream.with_parameters(hd="example.com").parameters["hd"] == "example.com"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Upstream.entra("common", "id", "s"),
        lambda: Upstream(client_id="id"),
        lambda: Upstream(client_id="", issuer="https://login.example"),
        lambda: Upstream.oidc("http://login.example", "id", "s"),
        lambda: Upstream.oidc("https://login.example", "id", "s", scopes=["email"]),
        lambda: OAuthServer(
            url="https://a.example/mcp", upstream=Upstream.github("i", "s"), store=MemoryStore(), secret="short"
        ),
        lambda: OAuthServer(
            url="https://a.example/token", upstream=Upstream.github("i", "s"), store=MemoryStore(), secret=SECRET
        ),
        lambda: OAuthServer(
            url="http://a.example/mcp", upstream=Upstream.github("i", "s"), store=MemoryStore(), secret=SECRET
        ),
    ],
)
def test_a_server_that_cannot_work_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_over_tls_cookies_are_bound_to_the_host() -> None:
    auth = OAuthServer(
        url="https://a.example/mcp", upstream=Upstream.github("i", "s"), store=MemoryStore(), secret=SECRET
    )
    from toolweave.serve._oauth_server.browser import BrowserCookies

    browser = BrowserCookies(auth._keys, auth.issuer).of({})
    for _, value in (*browser.form_token("x")[1], browser.consented("c", "r"), browser.begins("s")):
        text = value.decode()
        assert text.startswith("__Host-toolweave-")
        assert "; Secure" in text
        assert "; HttpOnly; SameSite=Lax" in text
        assert "; Path=/;" in text
        assert len(text) < 500


async def test_a_consent_cookie_stays_small() -> None:
    auth = OAuthServer(
        url="https://a.example/mcp", upstream=Upstream.github("i", "s"), store=MemoryStore(), secret=SECRET
    )
    from toolweave.serve._oauth_server.browser import BrowserCookies

    cookies = BrowserCookies(auth._keys, auth.issuer)
    headers: dict[bytes, bytes] = {}
    for number in range(200):
        _, value = cookies.of(headers).consented(f"client-{number}", REDIRECT)
        headers = {b"cookie": value.partition(b";")[0]}

    assert len(headers[b"cookie"]) < 2000
    assert cookies.of(headers).has_consented("client-199", REDIRECT)
    assert not cookies.of(headers).has_consented("client-0", REDIRECT)


async def test_pages_of_every_origin_may_use_the_endpoints_of_clients_and_none_that_of_people() -> None:
    async with company() as world:
        asked = {"Origin": "https://inspector.example", "Access-Control-Request-Method": "POST"}
        shared = [(await exchange(world.origin + path, "OPTIONS", headers=asked)) for path in ("/token", "/register")]
        private = await exchange(world.origin + "/consent", "OPTIONS", headers=asked)
        wrong = [(await exchange(world.origin + path, "GET")).status for path in ("/token", "/consent", "/register")]
        rebound = await exchange(world.origin + "/token", "POST", headers={"Host": "evil.example"})

    assert all(one.headers["access-control-allow-origin"] == "*" for one in shared)
    assert "access-control-allow-origin" not in private.headers
    assert wrong == [405] * 3
    assert rebound.status == 421
