"""Attacks on an endpoint by a web page in the victim's browser: rebinding, simple requests, reading the answers.

Each is stopped as the server comes; each gets through once the defence is switched off: the test can see the attack.
"""

from __future__ import annotations

import pytest

from tests.serve.exchanges import Answer, call, call_body, exchange, handshake, initialize_body, modern_headers
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_app, served_http
from toolweave.serve._http.origins import Origins

PAGE = "https://evil.example"
ACAO = "access-control-allow-origin"


async def knock(url: str, **headers: str) -> Answer:
    return await call(url, "add", {"a": 1, "b": 2}, headers=headers)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8000",
        "evil.example#localhost",
        "evil.example@localhost:1",
        "127.0.0.1:80:evil",
        "169.254.169.254",
        "192.168.1.5:8000",
        "localhost.",
        "",
        "-",
    ],
)
async def test_a_name_that_was_rebound_to_us_is_refused(host: str) -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        answers = [
            await knock(url, Host=host),
            await exchange(url, headers={**modern_headers("add"), "Host": host}, body=initialize_body()),
            await exchange(url, "GET", headers={"Host": host}),
        ]

    # a value that is not a host is refused by the HTTP parser already
    assert {answer.status for answer in answers} <= {421, 400}
    assert doings.calls == 0


@pytest.mark.parametrize("host", ["evil.example", "api.example:9"])
async def test_a_name_gets_through_where_every_name_is_allowed(host: str) -> None:
    async with served_http(doing_server(), allowed_hosts=["*"]) as url:
        assert (await knock(url, Host=host)).status == 200


async def test_our_own_names_get_through() -> None:
    async with served_http(doing_server(), allowed_hosts=["api.example", "other.example:8443"]) as url:
        port = url.split(":")[2].removesuffix("/mcp")
        good = [
            "localhost",
            f"LocalHost:{port}",
            "127.0.0.1",
            "[::1]:1",
            "api.example",
            "api.example:7",
            "other.example:8443",
        ]
        statuses = [(await knock(url, Host=host)).status for host in good]
        wrong = await knock(url, Host="other.example:8444")

    assert statuses == [200] * len(good)
    assert wrong.status == 421


@pytest.mark.parametrize(
    ("bound", "host", "served"),
    [
        ("127.0.0.1", "localhost:1", True),
        ("127.0.0.7", "localhost", True),
        ("::1", "[::1]", True),
        ("localhost", "127.0.0.1:9", True),
        ("0.0.0.0", "localhost:1", True),
        ("0.0.0.0", "evil.example", False),
        ("::", "evil.example", False),
        ("192.0.2.7", "192.0.2.7:8000", True),
        ("192.0.2.7", "localhost", False),
        ("192.0.2.7", "evil.example", False),
        ("2001:db8::7", "[2001:db8::7]:80", True),
        ("api.example", "API.example", True),
        ("api.example", "evil.example", False),
    ],
)
async def test_every_bind_is_guarded(bound: str, host: str, served: bool) -> None:
    app = doing_server().asgi_app(host=bound)
    async with served_app(app) as url:
        answer = await knock(url + "/mcp", Host=host)

    assert answer.status == (200 if served else 421)


async def test_two_host_headers_are_refused() -> None:
    async with served_http(doing_server()) as url:
        answer = await knock(url, **{"X-One": "1\r\nHost: evil.example"})

    assert answer.status == 400


@pytest.mark.parametrize(
    "origin",
    [
        PAGE,
        "null",
        "",
        "http://localhost.evil.example",
        "http://127.0.0.1@evil.example",
        "file://",
        "https://evil.example:443",
    ],
)
async def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        answers = [await knock(url, Origin=origin), (await handshake(url, {"Origin": origin}))[0]]

    assert [answer.status for answer in answers] == [403, 403]
    assert all(ACAO not in answer.headers for answer in answers)
    assert doings.calls == 0


async def test_a_page_gets_through_where_its_origin_is_allowed() -> None:
    async with served_http(doing_server(), allowed_origins=[PAGE]) as url:
        answer = await knock(url, Origin=PAGE)

    assert answer.status == 200
    assert ACAO not in answer.headers


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1:3000", "https://[::1]:1"])
async def test_a_page_of_this_machine_is_let_through_to_a_local_server_only(origin: str) -> None:
    async with served_http(doing_server()) as url:
        local = await knock(url, Origin=origin)
    async with served_app(doing_server().asgi_app(host="192.0.2.7")) as url:
        other = await knock(url + "/mcp", Host="192.0.2.7", Origin=origin)
        same = await knock(url + "/mcp", Host="192.0.2.7:80", Origin="http://192.0.2.7:80")

    assert (local.status, other.status, same.status) == (200, 403, 200)


@pytest.mark.parametrize("path", ["/healthz", "/nothing", "/"])
async def test_other_paths_give_a_page_nothing_of_the_server(path: str) -> None:
    async with served_http(doing_server()) as url:
        answer = await exchange(url, "GET", path=path, headers={"Host": "evil.example", "Origin": PAGE})

    assert ACAO not in answer.headers
    assert answer.body in (b"ok", b"Not Found")


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/json+x",
        "application/json; charset=utf-16",
        "",
        "-",
    ],
)
async def test_a_request_that_needs_no_preflight_is_refused(kind: str) -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        modern = await knock(url, **{"Content-Type": kind})
        legacy = await exchange(url, headers={"Content-Type": kind}, body=initialize_body())

    assert (modern.status, legacy.status) == (415, 415)
    assert doings.calls == 0


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
async def test_json_gets_through(kind: str) -> None:
    async with served_http(doing_server()) as url:
        assert (await knock(url, **{"Content-Type": kind})).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_no_other_method_runs_a_tool(method: str) -> None:
    doings = Doings()
    headers = modern_headers("add")
    async with served_http(doing_server(doings)) as url:
        answer = await exchange(url, method, headers=headers, body=call_body("add", {"a": 1, "b": 2}))

    assert answer.status == 405
    assert doings.calls == 0


def preflight(origin: str) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type, mcp-method, mcp-param-region",
    }


@pytest.mark.parametrize("origin", [PAGE, "http://localhost:6274"])
async def test_a_browser_that_asks_first_is_told_no(origin: str) -> None:
    async with served_http(doing_server()) as url:
        answer = await exchange(url, "OPTIONS", headers=preflight(origin))

    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_browser_of_an_origin_that_is_shared_with_is_told_yes_and_no_other() -> None:
    app = "https://app.example"
    async with served_http(doing_server(), cors_origins=[app]) as url:
        asked = await exchange(url, "OPTIONS", headers=preflight(app))
        answer = await knock(url, Origin=app)
        refused = await exchange(url, headers={"Content-Type": "text/plain", "Origin": app}, body=b"x")
        others = [
            await exchange(url, "OPTIONS", headers=preflight(origin))
            for origin in (
                PAGE,
                "https://app.example.evil.example",
                "https://app.example:444",
                "http://app.example",
                "null",
            )
        ]
        unread = await knock(url, Origin=PAGE)

    assert (asked.status, asked.headers[ACAO]) == (204, app)
    assert "mcp-method" in asked.headers["access-control-allow-headers"]
    assert "mcp-param-region" in asked.headers["access-control-allow-headers"]
    assert (answer.status, answer.headers[ACAO], answer.headers["vary"]) == (200, app, "Origin")
    assert refused.headers[ACAO] == app
    assert "access-control-allow-credentials" not in asked.headers
    assert {one.status for one in others} == {403}
    assert not any(ACAO in one.headers for one in [*others, unread])


async def test_the_origin_of_a_rebound_page_is_not_our_own_where_every_name_is_allowed() -> None:
    origins = Origins("127.0.0.1", hosts=["*"])

    assert origins.serves(b"evil.example")
    assert not origins.takes(b"http://evil.example", b"evil.example")
