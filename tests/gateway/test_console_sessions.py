"""Links and sessions of the console by a clock: they end, are few, and are good for one browser."""

from __future__ import annotations

from collections.abc import Mapping

from tests.clocks import Clock
from toolweave.gateway._console.sessions import (
    LINK_SECONDS,
    SESSION_SECONDS,
    ConsoleSessions,
    deleting_cookie,
    sent_cookie,
    setting_cookie,
)

TOKEN = "the-admin-token-of-this"
HEADERS = {b"host": b"127.0.0.1:8000"}


def sent(cookie: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the headers of a request with a cookie that was set."""
    return {**HEADERS, b"cookie": b"other=1; " + cookie[1].partition(b";")[0]}


def begin(sessions: ConsoleSessions, headers: Mapping[bytes, bytes] = HEADERS) -> tuple[bytes, bytes]:
    """Begin a session; return the header that sets its cookie."""
    return setting_cookie(headers, "/ui", sessions.add())


def test_a_link_is_good_once_and_for_an_hour() -> None:
    clock = Clock(0.0)
    sessions = ConsoleSessions(TOKEN, clock)
    first, late = sessions.new_link(), sessions.new_link()

    assert sessions.opens(first)
    assert not sessions.opens(first)
    clock.now = LINK_SECONDS + 1
    assert not sessions.opens(late)
    links = [sessions.new_link() for _ in range(30)]
    assert [sessions.opens(one) for one in links] == [False] * 10 + [True] * 20


def test_a_session_ends_with_its_time_and_when_it_is_ended() -> None:
    clock = Clock(0.0)
    sessions = ConsoleSessions(TOKEN, clock)
    one, other = (sent(begin(sessions)) for _ in range(2))

    assert sessions.of(one) is sessions.of(one) is not sessions.of(other)
    assert sessions.of({**one, b"host": b"127.0.0.1:9000"}) is None  # of another gateway on this machine
    assert b"Max-Age=0" in deleting_cookie(one, "/ui")[1]
    sessions.forget(sent_cookie(one) or "")
    assert sessions.of(one) is None
    clock.now = SESSION_SECONDS + 1
    assert sessions.of(other) is None
    assert sessions.of(HEADERS) is None


def test_sessions_are_few_and_the_oldest_goes() -> None:
    sessions = ConsoleSessions(TOKEN)
    begun = [sent(begin(sessions)) for _ in range(51)]

    assert sessions.of(begun[0]) is None
    assert sessions.of(begun[1]) is not None


def test_guessing_the_admin_token_is_slow() -> None:
    clock = Clock(0.0)
    sessions = ConsoleSessions(TOKEN, clock)

    assert [sessions.signs_in(f"guess {number}") for number in range(10)] == [False] * 10
    assert sessions.signs_in(TOKEN) is None
    clock.now = 61
    assert sessions.signs_in(TOKEN) is True


def test_a_cookie_for_another_machine_is_kept_over_https_alone() -> None:
    sessions = ConsoleSessions(TOKEN)

    assert b"; Secure" not in begin(sessions, {b"host": b"[::1]:8000"})[1]
    assert b"; Secure" not in begin(sessions, {b"host": b"localhost"})[1]
    assert b"; Secure" in begin(sessions, {b"host": b"gateway.example"})[1]


def test_a_form_is_taken_with_the_token_of_its_session_alone() -> None:
    sessions = ConsoleSessions(TOKEN)
    one, other = (sessions.of(sent(begin(sessions))) for _ in range(2))

    assert one is not None
    assert other is not None
    assert one.takes(one.csrf)
    assert not one.takes(other.csrf)
    assert not one.takes("")
    assert not one.takes("\udcff")
