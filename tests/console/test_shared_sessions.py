"""Who signed in to the console of one replica is signed in at all of them, without sticky sessions, until the end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.console.browsing import Browser, Page
from tests.gateway.running import RunningGateway, spoken, until
from tests.gateway.scale.balancers import BALANCERS, balancer
from tests.gateway.scale.fleet import Fleet, fleet_of
from tests.programs import free_port
from tests.redis_server import RedisServer

pytestmark = pytest.mark.slow

ADMIN = "the-admin-token-of-all-replicas"
AUTHORITY = "127.0.0.1:7"
OPTIONS = ("--admin-token-env", "FLEET_ADMIN")


class Visitor(Browser):
    """A browser that a balancer leads to one replica after another, by one address."""

    def at(self, replica: RunningGateway) -> Visitor:
        """Lead its next request to this replica."""
        self.base = replica.base
        return self

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Page:
        given = {**headers, "host": AUTHORITY}
        if "origin" in given:
            given["origin"] = f"http://{AUTHORITY}"
        return super()._send(method, path, body, given)


@pytest.fixture(autouse=True)
def _admin_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_ADMIN", ADMIN)


@pytest.fixture
def fleet(tmp_path: Path, redis_url: str) -> Iterator[Fleet]:
    """Two replicas with one admin token."""
    with fleet_of(tmp_path, redis_url, replicas=2, options=OPTIONS) as found:
        yield found


def running(fleet: Fleet) -> list[RunningGateway]:
    """Return the replicas."""
    return [one for one in fleet.replicas if one is not None]


def signed_in_at(replica: RunningGateway) -> Visitor:
    """Return a browser that signed in at a replica with the admin token."""
    visitor = Visitor(replica.base)
    page = visitor.post("/ui/sign-in", {"token": ADMIN})
    assert page.status == 303, page.text
    return visitor


def link_of(replica: RunningGateway) -> str:
    """Return the path of a new link of a replica."""
    made = spoken(replica.base, "POST", "/admin/console", {}, {"authorization": f"Bearer {ADMIN}"})
    return made.json["path"]


def statuses(visitor: Visitor, replicas: list[RunningGateway]) -> list[int]:
    """Return the statuses of a page at each replica."""
    return [visitor.at(one).get("/ui/").status for one in replicas]


@pytest.mark.parametrize("kind", BALANCERS)
def test_a_browser_behind_a_balancer_signs_in_once_and_acts_at_any_replica(
    tmp_path: Path, redis_url: str, kind: str
) -> None:
    port = free_port()
    with (
        fleet_of(tmp_path, redis_url, options=OPTIONS) as fleet,
        balancer(kind, tmp_path, port, fleet.ports),
    ):
        browser = Browser(f"http://127.0.0.1:{port}")
        until(lambda: browser.get("/ui/").status == 401, "the balancer")
        assert browser.post("/ui/sign-in", {"token": ADMIN}).status == 303
        pages = [browser.get("/ui/") for _ in range(9)]
        notices = [browser.submit(browser.get("/ui/").form("/restart", name="modern")).text for _ in range(3)]
        after = browser.get("/ui/").text
        browser.submit(browser.get("/ui/").form("/sign-out"))
        gone = [browser.get("/ui/").status for _ in range(6)]

    assert [page.status for page in pages] == [200] * 9
    assert [text.count("Server 'modern' was reconnected.") for text in notices] == [1] * 3
    assert "was reconnected" not in after
    assert gone == [401] * 6


def test_signing_out_at_one_replica_ends_the_session_at_all(fleet: Fleet) -> None:
    replicas = running(fleet)
    visitor = signed_in_at(replicas[0])
    kept = visitor.cookie
    before = statuses(visitor, replicas)
    form = visitor.at(replicas[0]).get("/ui/").form("/sign-out")
    visitor.at(replicas[1]).post(form.action, form.fields)
    visitor.cookie = kept

    assert before == [200, 200]
    assert statuses(visitor, replicas) == [401, 401]


def test_a_link_of_one_replica_signs_in_at_another_and_only_once(fleet: Fleet) -> None:
    replicas = running(fleet)
    link = link_of(replicas[0])
    visitor = Visitor(replicas[1].base)
    opened = visitor.get(link)
    later = [Visitor(one.base).get(link) for one in replicas]

    assert opened.status == 200
    assert statuses(visitor, replicas) == [200, 200]
    assert [page.status for page in later] == [401, 401]
    assert all("This link was used before" in page.text for page in later)
    assert Visitor(replicas[0].base).get(link[:-3] + "abc").status == 401


def test_the_store_has_no_secret_of_a_session_and_its_writer_cannot_sign_in(fleet: Fleet, redis_url: str) -> None:
    replicas = running(fleet)
    link = link_of(replicas[0])
    visitor = Visitor(replicas[1].base)
    page = visitor.get(link)
    assert page.status == 200
    form = visitor.get("/ui/").form("/sign-out")
    kind: Any = redis.Redis
    client = kind.from_url(redis_url)
    keys = [key for key in client.keys("*:document:*") if b"gateway-console" in key]
    whole = b" ".join([*keys, *client.mget(keys)]).decode()
    (session,) = [key for key in keys if b"sessions" in key]
    stored = client.get(session)
    cookie = (visitor.cookie or "").partition("=")[2]
    ttl = client.ttl(session)

    # what a session that another browser has looks like to one who can write to the store, but has no key
    forged = Visitor(replicas[0].base)
    chosen = "f" * len(cookie)
    forged.cookie = (visitor.cookie or "").replace(cookie, chosen)
    digest = hashlib.sha256(chosen.encode()).hexdigest()
    client.set(re.sub(rb"[0-9a-f]{64}$", digest.encode(), session), stored)
    tried = forged.get("/ui/").status
    client.set(session, stored.partition(b'"')[0] + b'{"until":99999999999,"notices":[]}')
    changed = visitor.get("/ui/").status
    client.close()

    assert hashlib.sha256(cookie.encode()).hexdigest().encode() in session
    assert len(keys) == 2
    assert [one in whole for one in (cookie, form.fields["csrf"], ADMIN, link.partition("=")[2])] == [False] * 4
    assert 0 < ttl <= 12 * 3600
    assert tried == 401
    assert changed == 401


def test_a_session_outlives_its_replica_but_not_the_admin_token(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = signed_in_at(running(fleet)[0])
    fleet.drain(0)
    fleet.start(0)
    restarted = statuses(visitor, running(fleet))
    monkeypatch.setenv("FLEET_ADMIN", f"{ADMIN}-after-a-leak")
    fleet.drain(0)
    fleet.start(0)

    assert restarted == [200, 200]
    assert statuses(visitor, running(fleet)) == [401, 200]


def test_while_the_store_is_away_a_known_session_continues_and_what_changed_holds_after_its_return(
    tmp_path: Path,
) -> None:
    (tmp_path / "redis").mkdir()
    with (
        RedisServer(tmp_path / "redis", durable=True) as store,
        fleet_of(tmp_path, store.url, replicas=2, options=OPTIONS) as fleet,
    ):
        replicas = running(fleet)
        kept = signed_in_at(replicas[0])
        ended = signed_in_at(replicas[0])
        cookie = ended.cookie
        assert statuses(kept, replicas) == statuses(ended, replicas) == [200, 200]
        link = link_of(replicas[0])
        store.kill()
        for one in replicas:
            until(lambda one=one: one.spoken("GET", "/readyz").json["shared"] == "away", "the outage")
        meanwhile = statuses(kept, replicas)
        begun = signed_in_at(replicas[0])
        only_there = statuses(begun, replicas)
        form = ended.at(replicas[0]).get("/ui/").form("/sign-out")
        ended.post(form.action, form.fields)
        unchecked = Visitor(replicas[0].base).get(link)

        store.start()
        for one in replicas:
            until(lambda one=one: one.spoken("GET", "/readyz").json["shared"] == "ready", "the return")
        until(lambda: statuses(begun, replicas) == [200, 200], "the session that was begun meanwhile")
        ended.cookie = cookie
        until(lambda: statuses(ended, replicas) == [401, 401], "the end of the session")
        after = statuses(kept, replicas)

    assert meanwhile == [200, 200]
    assert only_there == [200, 401]
    assert (unchecked.status, "the link cannot be checked" in unchecked.text) == (401, True)
    assert after == [200, 200]
