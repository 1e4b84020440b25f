"""The page of a tool behind a balancer: framed at one replica, it is read and answered at any other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from tests.console.browsing import Page
from tests.console.conftest import PAGED
from tests.console.test_apps import call, called, framed, place
from tests.console.test_shared_sessions import ADMIN, OPTIONS, running, signed_in_at
from tests.gateway.running import until
from tests.gateway.scale.fleet import Fleet, fleet_of
from tests.redis_server import RedisServer

pytestmark = pytest.mark.slow

BOARD = "/ui/tool?name=notes_board"
NOTES = {"notes": {"command": sys.executable, "args": [PAGED, "notes"]}}


@pytest.fixture(autouse=True)
def _admin_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_ADMIN", ADMIN)


@pytest.fixture
def fleet(tmp_path: Path, redis_url: str) -> Iterator[Fleet]:
    """Two replicas before a server with pages."""
    with fleet_of(tmp_path, redis_url, replicas=2, options=OPTIONS, more=NOTES) as found:
        yield found


def frame_ports(page: Page) -> list[str]:
    """Return the ports at which a page of the console may frame."""
    sources = page.headers["content-security-policy"].partition("; frame-src ")[2].split()
    return [str(urlsplit(one).port) for one in sources]


def test_a_page_that_one_replica_framed_is_read_and_answered_at_the_other(fleet: Fleet) -> None:
    first, second = running(fleet)
    visitor = signed_in_at(first)
    page = called(visitor, "notes_board")
    address = place(page)["data-address"]

    documents = [visitor.at(one).get(address) for one in (first, second)]
    answers = [call(visitor.at(one), page, "strike_out", number=0) for one in (first, second)]
    others = [call(visitor.at(one), page, "once") for one in (first, second)]

    assert [one.status for one in documents] == [200, 200]
    assert documents[0].body == documents[1].body
    shown = json.loads(documents[1].body)
    assert shown["result"]["structuredContent"]["at"] == "notes"
    assert shown["csp"] == {"connectDomains": ["https://api.example"]}
    assert [one["result"]["structuredContent"]["struck"] for one in answers] == ["water the plants"] * 2
    assert ["a page can only call tools of the server" in one["error"]["message"] for one in others] == [True, True]


def test_the_page_of_one_replica_may_frame_at_the_port_of_the_other(fleet: Fleet) -> None:
    first, second = running(fleet)
    visitor = signed_in_at(first)
    shown = visitor.get(BOARD)
    page = visitor.at(second).post(shown.form("/tool").action, shown.form("/tool").fields, {"hx-request": "true"})
    frame = place(page)["data-frame"]

    assert len(frame_ports(shown)) == 2
    assert str(urlsplit(frame).port) in frame_ports(shown)
    assert framed(frame).status == 200
    assert frame_ports(visitor.at(second).get(BOARD)) == frame_ports(shown)


def test_a_replica_that_has_started_since_asks_for_the_page_again(fleet: Fleet) -> None:
    first, second = running(fleet)
    visitor = signed_in_at(first)
    fleet.drain(1)
    shown = visitor.get(BOARD)
    fleet.start(1)
    second = running(fleet)[1]
    form = shown.form("/tool")
    page = visitor.at(second).post(form.action, form.fields, {"hx-request": "true"})

    assert len(frame_ports(shown)) == 1
    assert "the tool answered" in page.text
    assert "another replica of the gateway has started since this page was opened. Reload this page" in page.text
    assert "app" not in page.ids
    assert "app" in called(visitor, "notes_board").ids


def test_a_page_is_refused_to_another_session_and_after_the_sign_out_at_both(fleet: Fleet) -> None:
    replicas = running(fleet)
    visitor, other = signed_in_at(replicas[0]), signed_in_at(replicas[0])
    found = place(called(visitor, "notes_board"))
    address = found["data-address"]
    message = json.dumps({"method": "tools/call", "params": {"name": "strike_out", "arguments": {"number": 0}}})
    own = {"csrf": place(called(other, "notes_board"))["data-csrf"], "message": message}

    strangers = [other.at(one).get(address) for one in replicas]
    tried = [other.at(one).post(address, own) for one in replicas]
    unknown = [visitor.at(one).get("/ui/app?id=none") for one in replicas]
    kept = visitor.cookie
    form = visitor.at(replicas[1]).get("/ui/").form("/sign-out")
    visitor.post(form.action, form.fields)
    visitor.cookie = kept
    ended = [visitor.at(one).get(address) for one in replicas]

    assert [one.status for one in (*strangers, *tried, *unknown)] == [404] * 6
    assert "call its tool again" in strangers[1].text
    assert [one.status for one in ended] == [401, 401]


def test_the_store_has_neither_the_id_of_a_page_nor_its_content_and_not_for_ever(fleet: Fleet, redis_url: str) -> None:
    first, second = running(fleet)
    visitor = signed_in_at(first)
    found = place(called(visitor, "notes_board"))
    kind: Any = redis.Redis
    client = kind.from_url(redis_url)
    (key,) = [one for one in client.keys("*:document:*") if b"gateway-console-pages" in one]
    stored = client.get(key)
    ttl = client.ttl(key)
    client.set(key, stored[:200] + b"A" * 20 + stored[220:])
    changed = visitor.at(second).get(found["data-address"])
    client.delete(key)
    expired = visitor.get(found["data-address"])
    client.close()

    page_id = found["data-address"].partition("=")[2].encode()
    assert [one in key + stored for one in (page_id, b"water the plants", b"notes")] == [False] * 3
    assert 0 < ttl <= 12 * 3600
    assert [changed.status, expired.status] == [404, 404]


def test_a_page_that_is_too_large_to_share_is_not_shown_and_its_result_is(fleet: Fleet) -> None:
    visitor = signed_in_at(running(fleet)[0])
    shown = visitor.get(BOARD)
    form = shown.form("/tool")
    page = visitor.submit(form, **{shown.named(form, "title"): "x" * 2_500_000})

    assert "the tool answered" in page.text
    assert "larger than about 4 MiB, which the replicas of a gateway do not share" in page.text
    assert "app" not in page.ids


def test_while_the_store_is_away_a_page_is_answered_where_it_was_read_and_elsewhere_says_why_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "redis").mkdir()
    with (
        RedisServer(tmp_path / "redis", durable=True) as store,
        fleet_of(tmp_path, store.url, replicas=2, options=OPTIONS, more=NOTES) as fleet,
    ):
        first, second = running(fleet)
        visitor = signed_in_at(first)
        assert visitor.at(second).get("/ui/").status == 200  # each replica knows the session
        page = called(visitor.at(first), "notes_board")
        address = place(page)["data-address"]
        store.kill()
        for one in (first, second):
            until(lambda one=one: one.spoken("GET", "/readyz").json["shared"] == "away", "the outage")
        here, there = [visitor.at(one).get(address) for one in (first, second)]
        answer = call(visitor.at(first), page, "strike_out", number=0)

    assert (here.status, there.status) == (200, 503)
    assert "The store of the replicas cannot be reached" in there.text
    assert answer["result"]["structuredContent"]["struck"] == "water the plants"
