"""Opaque tokens, asked about at their issuer (RFC 7662): which count, how often it is asked, and when it is away."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from typing import Any
from urllib.parse import quote_plus

import anyio
import pytest

from tests.connect.targets import eventually
from tests.serve.exchanges import call, call_body, exchange, modern_headers
from tests.serve.issuer import AUDIENCE, Issuer, Page, running_issuer
from tests.serve.offered import doing_server
from tests.serve.serving import served_http
from toolweave.errors import ConfigError
from toolweave.serve import HttpLimits, Identity, IntrospectionAuth
from toolweave.serve._auth.refusal import IssuerUnavailable

pytestmark = pytest.mark.slow
SECRET = "s3cret: of the server"
GOOD: dict[str, Any] = {"active": True, "aud": AUDIENCE, "client_id": "app", "sub": "u-1", "scope": "read call"}


def introspecting(at: Issuer, **options: Any) -> IntrospectionAuth:
    settings: dict[str, Any] = {
        "issuer": at.url,
        "audience": AUDIENCE,
        "client_id": "notes server",
        "client_secret": SECRET,
        "introspection_url": f"{at.url}/introspect",
        **options,
    }
    return IntrospectionAuth(**settings)


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ({}, True),
        ({"aud": ["x", AUDIENCE]}, True),
        ({"token_type": "Bearer"}, True),
        ({"exp": 4_000_000_000}, True),
        ({"active": False}, False),
        ({"active": "true"}, False),
        ({"active": 1}, False),
        ({"aud": "https://other.example/mcp"}, False),
        ({"aud": AUDIENCE + "/"}, False),
        ({"aud": None}, False),
        ({"iss": "https://evil.example"}, False),
        ({"exp": 1}, False),
        ({"nbf": 4_000_000_000}, False),
        ({"token_type": "Refresh"}, False),
        ({"typ": "Refresh"}, False),
        ({"client_id": None, "sub": None}, False),
        ({"exp": "soon"}, True),
        ({"exp": 10**400}, True),
        ({"iat": 4_000_000_000}, False),
        ({"cnf": {"x5t#S256": "t"}}, False),
    ],
)
async def test_an_active_token_for_this_audience_is_let_in_and_no_other(answer: dict[str, Any], accepted: bool) -> None:
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = Page({**GOOD, **answer})

        assert (await introspecting(issuer).identify("opaque") is not None) is accepted


async def test_an_end_that_is_no_number_leaves_the_token_to_its_issuer_and_one_beyond_all_numbers_is_not_read() -> None:
    with running_issuer() as issuer:
        auth = introspecting(issuer)
        issuer.pages["/introspect"] = Page({**GOOD, "exp": "soon"})
        without_end = await auth.identify("text")
        issuer.pages["/introspect"] = Page({**GOOD, "exp": 1e300})
        far = await auth.identify("far")
        issuer.pages["/introspect"] = Page(json.dumps(GOOD).replace("{", '{"exp": 1e999, ', 1).encode())
        with pytest.raises(IssuerUnavailable):
            await auth.identify("beyond")

    assert without_end is not None
    assert without_end.expires_at is None
    assert far is not None
    assert far.expires_at == int(1e300)


async def test_answers_for_several_audiences_or_of_listed_clients_are_accepted() -> None:
    with running_issuer() as issuer:
        auth = introspecting(issuer, audience=["api://notes", AUDIENCE], client_ids=["app"], cache_seconds=0)
        accepted: list[bool] = []
        nameless = {name: value for name, value in GOOD.items() if name != "aud"}
        for answer in (GOOD, {**GOOD, "aud": "api://notes"}, nameless, {**nameless, "client_id": "other"}):
            issuer.pages["/introspect"] = Page(answer)
            accepted.append(await auth.identify("token") is not None)

    assert accepted == [True, True, True, False]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"active": False}, ("'active'", "False")),
        ({"aud": "https://other.example"}, ("'aud'", "https://other.example", AUDIENCE)),
        ({"iss": "https://evil.example"}, ("'iss'", "https://evil.example")),
        ({"exp": 1}, ("'exp'", "1")),
        ({"token_type": "Refresh"}, ("'token_type'", "Refresh")),
        ({"client_id": None, "sub": None}, ("'client_id'", "'sub'")),
    ],
)
async def test_the_log_says_why_a_token_was_refused(
    answer: dict[str, Any], words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = Page({**GOOD, **answer})
        auth = introspecting(issuer)
        for _ in range(2):
            assert await auth.identify("the-very-token") is None

    lines = [record.getMessage() for record in caplog.records if record.name.startswith("toolweave")]
    assert len(lines) == 2
    for line in lines:
        assert [word for word in words if word not in line] == []
        assert "the-very-token" not in line


async def test_the_issuer_is_asked_as_a_client_with_its_own_secret() -> None:
    asked: list[tuple[dict[str, str], str]] = []

    def answer(form: dict[str, str], headers: dict[str, str]) -> Page:
        asked.append((form, headers.get("authorization", "")))
        return Page(GOOD)

    with running_issuer() as issuer:
        issuer.pages["/introspect"] = answer
        issuer.publish(introspection_endpoint=f"{issuer.url}/introspect")
        found = await introspecting(issuer).identify("one")
        await introspecting(issuer, method="client_secret_post", introspection_url=None).identify("two")

    pair = base64.b64encode(f"{quote_plus('notes server')}:{quote_plus(SECRET)}".encode()).decode()
    assert asked[0] == ({"token": "one", "token_type_hint": "access_token"}, f"Basic {pair}")
    assert asked[1][0]["client_secret"] == SECRET
    assert asked[1][1] == ""
    assert found == Identity(client_id="app", subject="u-1", issuer=issuer.url, scopes=("read", "call"))


async def test_an_answer_is_remembered_for_a_time_and_never_beyond_the_end_of_the_token() -> None:
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = Page(GOOD)
        auth = introspecting(issuer)
        forgetful = introspecting(issuer, cache_seconds=0)
        for _ in range(3):
            await auth.identify("token")
        assert len(issuer.asked) == 1
        for _ in range(3):
            await forgetful.identify("token")
        assert len(issuer.asked) == 4

        issuer.pages["/introspect"] = Page({**GOOD, "exp": time.time() + 2})
        await auth.identify("short")
        issuer.pages["/introspect"] = Page({"active": False})
        with anyio.fail_after(10):
            while await auth.identify("short") is not None:
                await anyio.sleep(0.05)


async def test_only_so_many_answers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.serve._auth.introspection._MAX_CACHED", 2)
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = Page(GOOD)
        auth = introspecting(issuer)
        for token in ("1", "2", "3", "3", "1"):
            await auth.identify(token)

        assert len(issuer.asked) == 4


async def test_many_requests_with_one_token_ask_once() -> None:
    go = threading.Event()

    def slowly(form: dict[str, str], headers: dict[str, str]) -> Page:
        go.wait(30)
        return Page(GOOD)

    with running_issuer() as issuer:
        issuer.pages["/introspect"] = slowly
        auth = introspecting(issuer, cache_seconds=0)
        found = list[object]()

        async def ask() -> None:
            found.append(await auth.identify("token"))

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(ask)
                await eventually(lambda: len(issuer.asked) == 1)
                go.set()
        finally:
            go.set()

        assert len(found) == 30
        assert None not in found
        assert len(issuer.asked) == 1


@pytest.mark.parametrize(
    "page",
    [
        Page(status=500),
        Page(status=401, body={"error": "invalid_client"}),
        Page(status=302, headers={"Location": "/elsewhere"}),
        Page(b"x" * 1_000_000),
        Page(b"[1]"),
        Page(b"<html>"),
    ],
    ids=["broken", "refuses us", "redirect", "huge", "no object", "no JSON"],
)
async def test_an_issuer_that_gives_no_answer_is_no_reason_to_call_a_token_invalid(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = page
        async with served_http(doing_server(), auth=introspecting(issuer)) as url:
            bearer = {"Authorization": "Bearer opaque-token-of-somebody"}
            answers = [await call(url, "add", {"a": 1, "b": 2}, headers=bearer) for _ in range(3)]

        assert [answer.status for answer in answers] == [503] * 3
        assert all(1 <= int(answer.headers["retry-after"]) <= 5 for answer in answers)
        assert "www-authenticate" not in answers[0].headers
        assert len(issuer.asked) == 1
    assert "opaque-token" not in caplog.text
    assert SECRET not in caplog.text


async def test_an_issuer_that_comes_back_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.serve._auth.issuer_guard.PAUSE_SECONDS", 0)
    with running_issuer() as issuer:
        auth = introspecting(issuer)
        with pytest.raises(IssuerUnavailable):
            await auth.identify("token")
        issuer.pages["/introspect"] = Page(GOOD)

        assert await auth.identify("token") is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"introspection_url": "http://login.example/introspect"},
        {"issuer": "http://login.example", "introspection_url": None},
        {"cache_seconds": -1},
        {"method": "none"},
    ],
)
async def test_an_introspection_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with running_issuer() as issuer, pytest.raises(ConfigError):
        introspecting(issuer, **wrong)


async def test_an_endpoint_that_is_not_protected_is_not_asked() -> None:
    for endpoint in ("http://login.example/introspect", None):
        with running_issuer() as issuer:
            issuer.publish(introspection_endpoint=endpoint)
            with pytest.raises(IssuerUnavailable):
                await introspecting(issuer, introspection_url=None).identify("token")


async def test_no_secret_is_shown() -> None:
    with running_issuer() as issuer:
        assert SECRET not in repr(introspecting(issuer))


GREEDY = "127.0.0.2"
HONEST = "127.0.0.3"


async def status_of(url: str, token: str, address: str) -> tuple[int, str]:
    """Return the status of a call with a token from an address, and the `Retry-After`."""
    headers = {**modern_headers("add"), "Authorization": f"Bearer {token}"}
    answer = await exchange(url, headers=headers, body=call_body("add", {"a": 1, "b": 2}), address=address)
    return answer.status, answer.headers.get("retry-after", "")


def accepting(form: dict[str, str], headers: dict[str, str]) -> Page:
    """Accept the tokens that begin with `good`, and fail at those that begin with `crash`."""
    if form["token"].startswith("crash"):
        return Page(status=500)
    return Page(GOOD if form["token"].startswith("good") else {"active": False})


@pytest.mark.parametrize("at_once", [1, 50])
async def test_garbage_of_one_address_costs_the_issuer_few_questions_and_others_nothing(at_once: int) -> None:
    statuses: list[tuple[int, str]] = []
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = accepting
        async with served_http(doing_server(), auth=introspecting(issuer)) as url:
            before = await status_of(url, "good-0", GREEDY)

            async def send(number: int) -> None:
                statuses.append(await status_of(url, f"garbage-{number}", GREEDY))

            for first in range(0, 150, at_once):
                async with anyio.create_task_group() as tasks:
                    for number in range(first, first + at_once):
                        tasks.start_soon(send, number)
            asked = len(issuer.asked)
            honest = [await status_of(url, f"good-{number}", HONEST) for number in range(5)]
            after = await status_of(url, "good-0", GREEDY)

    refused = [status for status, _ in statuses]
    assert set(refused) == {401, 429}
    assert refused.count(401) >= 30
    assert asked - 1 == refused.count(401) < 100
    assert all(int(wait) >= 1 for status, wait in statuses if status == 429)
    assert [status for status, _ in (before, *honest, after)] == [200] * 7


async def test_a_refused_token_is_remembered_and_displaces_no_accepted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.serve._auth.introspection._MAX_CACHED", 2)
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = accepting
        auth = introspecting(issuer)
        found = [await auth.identify(token) for token in ("good", "bad-1", "bad-2", "bad-3", "bad-3", "good")]

        assert len(issuer.asked) == 4
        assert [one is not None for one in found] == [True, False, False, False, False, True]


async def test_a_token_that_the_issuer_fails_at_stops_nobody_else() -> None:
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = accepting
        async with served_http(doing_server(), auth=introspecting(issuer, cache_seconds=0)) as url:
            known = await status_of(url, "good-1", GREEDY)
            crashes = [await status_of(url, f"crash-{number}", GREEDY) for number in range(5)]
            honest = [await status_of(url, f"good-{number}", HONEST) for number in range(3)]

    assert known[0] == 200
    assert {status for status, _ in crashes} == {503}
    assert len(issuer.asked) == 1 + 1 + 3
    assert [status for status, _ in honest] == [200] * 3


async def test_an_issuer_that_fails_at_two_addresses_is_asked_by_one_request_at_a_time_until_it_is_back() -> None:
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = Page(status=500)
        auth = introspecting(issuer)
        for address in ("a", "b", "c"):
            with pytest.raises(IssuerUnavailable):
                await auth.identify("token", address)
        assert len(issuer.asked) == 3

        issuer.pages["/introspect"] = Page(GOOD)
        assert await auth.identify("token-1", "d") is not None
        assert await auth.identify("token-2", "e") is not None
        with pytest.raises(IssuerUnavailable):
            await auth.identify("token-3", "a")


async def test_requests_that_wait_for_an_answer_about_their_token_leave_room_for_another_address() -> None:
    go = threading.Event()

    def slowly(form: dict[str, str], headers: dict[str, str]) -> Page:
        if not form["token"].startswith("good"):
            go.wait(30)
        return accepting(form, headers)

    limits = HttpLimits(connections=20, shutdown_seconds=2)
    statuses: list[tuple[int, str]] = []
    honest = (0, "")
    with running_issuer() as issuer:
        issuer.pages["/introspect"] = slowly
        try:
            async with served_http(doing_server(), auth=introspecting(issuer), limits=limits) as url:

                async def send(number: int) -> None:
                    statuses.append(await status_of(url, f"garbage-{number}", GREEDY))

                async with anyio.create_task_group() as tasks:
                    for number in range(20):
                        tasks.start_soon(send, number)
                    await eventually(lambda: len(statuses) == 5)
                    honest = await status_of(url, "good-1", HONEST)
                    go.set()
        finally:
            go.set()

    assert [status for status, _ in statuses[:5]] == [429] * 5
    assert honest[0] == 200
