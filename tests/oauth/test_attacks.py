"""An evil MCP server, or an evil authorization server, against a client that signs in: nothing may come of it."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from tests.connect.scripted import Exchange, listening
from tests.connect.targets import connected
from tests.oauth.world import World, another_host, world
from toolweave import AuthRequiredError, ConnectError, connect_mcp
from toolweave.oauth import sign_in, token_source
from toolweave.oauth._addresses import kind_of_address
from toolweave.oauth._challenges import parse_challenges
from toolweave.oauth.fetch import FetchFailed, GuardedFetch

INNER = "https://10.0.0.5/x"


async def refused(here: World, match: str, **settings: Any) -> str:
    """Sign in, which must be refused for good; return what was told."""
    with pytest.raises(AuthRequiredError, match=match) as failed:
        await sign_in(here.settings(**settings), here.server.url, server="s", **here.ports())
    assert here.host.forms() == []
    return str(failed.value)


# addresses


@pytest.mark.parametrize(
    "field",
    [
        *("resource_metadata", "authorization_servers", "token_endpoint", "registration_endpoint"),
        *("authorization_endpoint", "device_authorization_endpoint"),
    ],
)
async def test_no_field_leads_into_a_network_that_the_server_is_not_in(field: str) -> None:
    async with world() as here:
        if field == "resource_metadata":
            here.server.challenge[field] = INNER
        elif field == "authorization_servers":
            here.server.metadata[field] = [INNER]
        else:
            here.host.extra[field] = INNER
        await refused(here, "a private address", grant="device_code" if "device" in field else "authorization_code")
        assert here.person.prompts == []
        assert here.host.authorizations() == [] or field == "token_endpoint"


@pytest.mark.parametrize(
    "host",
    [
        *("10.0.0.5", "172.16.9.9", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
        *("0x0a000005", "167772165", "10.5", "012.0.0.5", "[::ffff:10.0.0.5]", "[64:ff9b::a00:5]", "[2002:a00:5::]"),
        *("[::10.0.0.5]", "[fd00::1]", "[fec0::1]", "[fe80::1]", "[64:ff9b:1::1]", "[2001:0:5ef5:79fd::1]", "[::]"),
        *("192.0.2.1", "198.18.0.1", "255.255.255.255", "[ff02::1]", "[2001:db8::1]"),
    ],
)
async def test_odd_spellings_of_inner_addresses_are_seen_through(host: str) -> None:
    fetch = GuardedFetch(("https://8.8.8.8/mcp",))
    with pytest.raises(FetchFailed, match="address, and no server with such an address named it"):
        await fetch.get(f"https://{host}/x", "it")


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        *[("8.8.8.8", "public"), ("2606:4700::1", "public"), ("64:ff9b::808:808", "public"), ("127.9.9.9", "loopback")],
        *[("::1", "loopback"), ("::ffff:127.0.0.1", "loopback"), ("2002:7f00:1::", "loopback"), ("::", "special")],
        *[("64:ff9b::7f00:1", "loopback"), ("::127.0.0.1", "loopback"), ("fe80::1%eth0", "link_local")],
        *[("nonsense", "special"), ("100.127.255.255", "shared"), ("169.254.1.1", "link_local")],
    ],
)
def test_an_address_is_of_the_kind_that_packets_to_it_end_at(address: str, kind: str) -> None:
    assert kind_of_address(address) == kind


def answering(*answers: list[str]) -> Callable[..., Any]:
    """Return a resolver with one list of addresses after the other, the last for ever."""
    left = list(answers)

    def resolve(host: Any, port: Any, *_: Any, flags: int = 0, **__: Any) -> list[Any]:
        if flags & socket.AI_NUMERICHOST and not str(host)[0].isdigit():
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        found = [str(host)] if str(host)[0].isdigit() else left[0] if len(left) == 1 else left.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    return resolve


async def test_a_name_with_one_inner_address_among_others_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answering(["8.8.8.8", "127.0.0.1"]))
    with pytest.raises(FetchFailed, match="a loopback address"):
        await GuardedFetch(("https://8.8.8.8/mcp",)).get("https://mixed.example/x", "it")


async def test_a_name_is_looked_up_once_and_what_was_judged_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[Exchange] = []

    async def handle(exchange: Exchange) -> None:
        arrived.append(exchange)
        await exchange.respond_json(200, {})

    async with listening(handle) as (url, _):
        port = urlsplit(url).port
        monkeypatch.setattr(socket, "getaddrinfo", answering(["127.0.0.1"], ["10.0.0.5"]))
        answer = await GuardedFetch((url,)).get(f"http://rebound.localhost:{port}/x", "it")
    assert answer.status == 200
    assert arrived[0].headers["host"] == f"rebound.localhost:{port}"


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    async with world() as here:
        answer = await GuardedFetch((here.host.url,)).get(
            f"{here.host.url}/.well-known/oauth-authorization-server", "it"
        )
        assert answer.status == 200


# answers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_elsewhere_is_not_followed(status: int) -> None:
    async with world() as here, another_host() as other:
        path = "/.well-known/oauth-authorization-server"
        here.host.answer[path] = lambda one: one.respond(status, location=f"{other.url}{path}")
        await refused(here, "where it is not asked")
        assert other.requests == []


async def test_a_redirect_at_the_same_place_is_followed_and_not_for_ever() -> None:
    async with world() as here:
        path = "/.well-known/oauth-authorization-server"
        here.host.answer[path] = lambda one: one.respond(302, location="/moved")
        here.host.answer["/moved"] = lambda one: one.respond_json(200, here.host.metadata())
        await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        here.host.answer["/moved"] = lambda one: one.respond(302, location="/moved")
        with pytest.raises(AuthRequiredError, match="more than 3 times"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())


async def test_a_form_with_a_code_is_sent_nowhere_else() -> None:
    async with world() as here, another_host() as other:
        here.host.answer["/token"] = lambda one: one.respond(307, location=f"{other.url}/token")
        with pytest.raises(AuthRequiredError, match="where it is not asked"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        assert other.requests == []


async def endless(exchange: Exchange) -> None:
    """Answer for ever."""
    await exchange.start_stream(content_type="application/json")
    while not exchange.reader.gone.is_set():
        await exchange.chunk(b" " * 65536)


async def dripping(exchange: Exchange) -> None:
    """Answer a byte at a time."""
    exchange.head(200, {"content-type": "application/json", "content-length": "100000"})
    await exchange.drip(b" " * 100000, 0.05)


async def bomb(exchange: Exchange) -> None:
    """Answer with zeros, compressed."""
    await exchange.respond(200, gzip.compress(bytes(10_000_000)), content_encoding="gzip")


async def test_metadata_without_end_are_not_read() -> None:
    async with world() as here:
        here.host.answer["/.well-known/oauth-authorization-server"] = endless
        await refused(here, "larger than 262144 bytes")


async def test_a_bomb_is_not_inflated() -> None:
    async with world() as here:
        here.host.answer["/.well-known/oauth-authorization-server"] = bomb
        await refused(here, "compressed, which was not requested")
        assert {one.headers["accept-encoding"] for one in here.host.requests} == {"identity"}


async def test_an_answer_that_drips_ends_with_the_one_deadline() -> None:
    async with world() as here:
        here.host.answer["/x"] = dripping
        with anyio.fail_after(20), pytest.raises(FetchFailed, match="not received within") as failed:
            await GuardedFetch((here.host.url,), seconds=0.3).get(f"{here.host.url}/x", "it")
        assert not failed.value.final


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"issuer": ' + b"[" * 100_000,
        b"[]",
        b"null",
        b'"x"',
        b"{}",
        b"\xff\xfe",
        b"",
        b"<html>",
        b'{"issuer": 1}',
        b'{"issuer": "I", "token_endpoint": ["x"]}',
        b'{"issuer": "I", "code_challenge_methods_supported": "S256"}',
        b'{"issuer": "I", "authorization_response_iss_parameter_supported": "yes"}',
    ],
)
async def test_deep_or_wrongly_typed_metadata_are_refused(body: bytes) -> None:
    async with world() as here:
        text = body.replace(b'"I"', json.dumps(here.host.issuer).encode())
        here.host.answer["/.well-known/oauth-authorization-server"] = lambda one: one.respond(200, text)
        await refused(here, "is not accepted")


# who is who


async def test_metadata_of_another_resource_stop_before_the_browser() -> None:
    async with world() as here:
        for resource in ("https://evil.example/mcp", f"{here.server.url}/below", f"{here.server.origin}/mc", ""):
            here.server.metadata["resource"] = resource
            await refused(here, "another resource")
        assert here.person.asked == []


@pytest.mark.parametrize("suffix", ["//", "?x", "/tenant", "/?", "."])
async def test_metadata_of_another_issuer_are_not_used(suffix: str) -> None:
    async with world() as here:
        here.host.extra["issuer"] = f"{here.host.url}{suffix}"
        await refused(here, "they are not used")
        assert here.host.paths() == ["/.well-known/oauth-authorization-server"]


@pytest.mark.parametrize(
    ("redirect", "told"),
    [
        ({"iss": "https://evil.example"}, "another authorization server"),
        ({"iss": None}, "does not say which authorization server"),
        ({"iss": "https://evil.example", "error": "LURE", "error_description": "call +1 555"}, "another"),
        ({"state": "guessed"}, "'state' is another one"),
        ({"state": None}, "'state' is another one"),
        ({"code": None}, "no code"),
    ],
)
async def test_the_redirect_of_somebody_else_is_not_used(redirect: dict[str, str | None], told: str) -> None:
    async with world() as here:
        here.host.redirect = redirect
        said = await refused(here, told)
        assert "LURE" not in said
        assert "+1 555" not in said


async def test_an_issuer_that_is_not_announced_is_compared_all_the_same() -> None:
    async with world() as here:
        here.host.extra["authorization_response_iss_parameter_supported"] = None
        here.host.redirect = {"iss": f"{here.host.url}/"}
        await refused(here, "another authorization server")


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_without_pkce_nobody_signs_in(methods: list[str] | None) -> None:
    async with world() as here:
        here.host.extra["code_challenge_methods_supported"] = methods
        await refused(here, "PKCE with S256")
        assert here.person.asked == []


@pytest.mark.parametrize(
    "endpoint",
    [
        *(
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "http://evil.example/authorize",
            "/authorize",
        ),
        *("https://user:pw@evil.example/", "https://evil.example/#x", "https://evil.example/\x1b[31m", "https://"),
        *("https://evil.example/`id`", 'https://evil.example/"&calc', "https://evil.example:99999/", "https://[::1/"),
    ],
)
async def test_an_endpoint_that_is_no_web_page_is_shown_to_no_browser(endpoint: str) -> None:
    async with world() as here:
        here.host.extra["authorization_endpoint"] = endpoint
        said = await refused(here, "authorization_endpoint of its authorization server")
        assert "\x1b" not in said
        assert here.person.asked == []


async def test_an_endpoint_with_a_query_keeps_it_and_cannot_say_what_we_say() -> None:
    async with world() as here:
        query = "tenant=a&redirect_uri=https://evil.example&x=$(id)%26calc"
        here.host.extra["authorization_endpoint"] = f"{here.host.url}/authorize?{query}"
        await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        (asked,) = here.host.authorizations()
        assert asked["tenant"] == "a"
        assert asked["x"] == "$(id)&calc"
        assert asked["redirect_uri"].startswith("http://127.0.0.1:")


# tokens


@pytest.mark.parametrize("dpop", [True, None])
async def test_a_token_that_is_not_bound_is_refused_where_a_bound_one_was_asked_for(dpop: bool | None) -> None:
    async with world() as here:
        here.server.scheme = "DPoP"
        here.host.token_type = "Bearer"
        with pytest.raises(AuthRequiredError, match="of type 'Bearer' instead of 'DPoP'"):
            await sign_in(here.settings(dpop=dpop), here.server.url, server="s", **here.ports())
        assert list(await here.store.records()) == []


async def test_a_server_that_binds_no_tokens_is_refused_where_that_is_demanded() -> None:
    async with world() as here:
        here.host.extra["dpop_signing_alg_values_supported"] = None
        await refused(here, "'oauth.dpop' demands", dpop=True)


@pytest.mark.parametrize("token", ["", "a b", "x\r\ny: z", "\u202e", "t" * 70_000])
async def test_what_is_no_token_becomes_no_header(token: str) -> None:
    async with world() as here:
        answer = {"access_token": token, "token_type": "Bearer"}
        here.host.answer["/token"] = lambda one: one.respond_json(200, answer)
        with pytest.raises(AuthRequiredError, match="returned no token"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())


async def test_nonces_without_end_are_not_followed() -> None:
    async with world() as here:
        here.server.scheme = "DPoP"
        async with connected(here.target()) as connection:
            count = 0

            async def another(exchange: Exchange) -> None:
                nonlocal count
                count += 1
                await exchange.respond(401, www_authenticate='DPoP error="use_dpop_nonce"', dpop_nonce=f"n-{count}")

            here.server.answer["/mcp"] = another
            with pytest.raises(AuthRequiredError):
                await connection.call_tool("t")
            assert count <= 8
        assert len(here.person.asked) == 1


async def test_a_token_goes_to_no_other_place() -> None:
    async with world() as here, another_host() as other, connected(here.target()) as connection:
        here.server.answer["/mcp"] = lambda one: one.respond(307, location=f"{other.url}/mcp")
        with pytest.raises(Exception, match="not followed"):
            await connection.call_tool("t")
        assert other.requests == []


async def test_a_code_that_was_redeemed_is_not_redeemed_again() -> None:
    async with world() as here:
        here.host.answer["/token"] = lambda one: one.respond(503)
        with pytest.raises(ConnectError):
            await connect_mcp(here.target())
        codes = [form["code"] for form in here.host.forms()]
        assert len(codes) == len(set(codes))


# challenges


CHALLENGES: list[tuple[str, list[Any]]] = [
    ("Bearer", [("bearer", {}, "")]),
    ('Bearer realm="a, b", scope="x"', [("bearer", {"realm": "a, b", "scope": "x"}, "")]),
    ("Negotiate abc==, Bearer scope=x", [("negotiate", {}, "abc=="), ("bearer", {"scope": "x"}, "")]),
    ("Basic realm=a,, ,DPoP algs=ES256", [("basic", {"realm": "a"}, ""), ("dpop", {"algs": "ES256"}, "")]),
    (
        'Bearer error_description="you need scope=admin, scope=\\"root\\"", scope="read"',
        [("bearer", {"error_description": 'you need scope=admin, scope="root"', "scope": "read"}, "")],
    ),
    ('Bearer scope = "a" , scope="b"', [("bearer", {"scope": "a"}, "")]),
    ("Bearer u=https://a/b?c=d, scope=x", [("bearer", {"u": "https://a/b?c=d", "scope": "x"}, "")]),
    ("Bearer u='https://a/b', scope='x y'", [("bearer", {"u": "https://a/b", "scope": "x y"}, "")]),
    ("Negotiate a=, NTLM b==", [("negotiate", {}, "a="), ("ntlm", {}, "b==")]),
    ("Bearer u='never closed", [("bearer", {}, "")]),
    ("NTLM, Bearer", [("ntlm", {}, ""), ("bearer", {}, "")]),
    ('Bearer scope="never closed', [("bearer", {}, "")]),
    ('"?=", Bearer realm=x', [("bearer", {"realm": "x"}, "")]),
    ("", []),
]


@pytest.mark.parametrize(("header", "found"), CHALLENGES)
def test_a_header_of_challenges_is_read_by_its_grammar(header: str, found: list[Any]) -> None:
    assert [(one.scheme, dict(one.parameters), one.token) for one in parse_challenges(header)] == found


def test_a_header_that_is_made_to_be_slow_is_read_all_the_same() -> None:
    for text in ('a b="' * 50_000, "a=" * 50_000, "," * 100_000, 'x y="\\' * 50_000, "a " * 50_000):
        parse_challenges(text)


def test_of_a_header_of_challenges_the_beginning_is_read() -> None:
    assert len(parse_challenges("Negotiate, " * 1_000)) == 32
    assert parse_challenges(" " * 20_000 + 'Bearer scope="read"') == []


async def test_a_token_goes_to_the_origin_of_its_server_alone() -> None:
    async with world() as here:
        await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        source = token_source(here.settings(), here.server.url, server="s")
        own = await source.headers("POST", here.server.url)
        elsewhere = [f"{here.host.url}/mcp", here.server.url.replace("http:", "https:"), "http://127.0.0.1/mcp"]
        foreign = [await source.headers("POST", url) for url in elsewhere]

    assert own["Authorization"].startswith("Bearer access-")
    assert foreign == [{}, {}, {}]


async def test_a_server_that_wants_other_rights_each_time_is_given_up_after_a_few() -> None:
    wanted = (str(number) for number in range(1_000))

    async def more(exchange: Exchange) -> None:
        scope = next(wanted)
        await exchange.respond(403, www_authenticate=f'Bearer error="insufficient_scope", scope="more{scope}"')

    async with world() as here, connected(here.target(scopes=["basic"])) as connection:
        here.server.answer["/mcp"] = more
        for _ in range(10):
            with pytest.raises(AuthRequiredError):
                await connection.call_tool("t")
        assert len(here.host.authorizations()) == 1 + 3


async def test_an_address_that_nothing_is_fetched_from_is_refused_though_the_server_itself_has_one() -> None:
    fetch = GuardedFetch(("https://240.0.0.1/mcp",))
    with pytest.raises(FetchFailed, match="special address"):
        await fetch.judged("https://240.0.0.2/metadata", "it")


async def test_a_scope_in_a_description_is_not_asked_for() -> None:
    async with world() as here:
        where = f"{here.server.origin}/.well-known/oauth-protected-resource/mcp"
        here.server.header = (
            f'Bearer error_description="you need scope=admin", scope="read", resource_metadata="{where}"'
        )
        await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        assert here.host.authorizations()[0]["scope"] == "read"
