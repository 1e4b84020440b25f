"""How a stored sign-in is, in words, without what is secret in it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oauth.token_stores import a_record
from toolweave.oauth import SignInStatus

TOKEN = "an-access-token"


@pytest.mark.parametrize(
    ("changes", "now", "state", "text"),
    [
        ({}, 5.0, "signed in", "signed in until 1970-01-01 00:00 UTC"),
        ({"expires_at": None}, 5.0, "signed in", "signed in"),
        ({"expires_at": 1e300}, 5.0, "signed in", "signed in until a time that no calendar has"),
        ({}, 20.0, "renewable", "signed in; its token is renewed at the next use"),
        ({"refresh_token": None}, 20.0, "expired", "expired since 1970-01-01 00:00 UTC"),
        ({"access_token": ""}, 5.0, "registered", "registered, not signed in"),
    ],
)
def test_a_sign_in_is_told_in_words(changes: dict[str, Any], now: float, state: str, text: str) -> None:
    status = SignInStatus.of(a_record(token=TOKEN).replace(**changes), now=now)

    assert (status.state, status.text) == (state, text)


def test_it_says_for_what_and_holds_no_secret() -> None:
    record = a_record(token=TOKEN)

    status = SignInStatus.of(record)

    assert (status.resource, status.issuer, status.scopes) == (record.key.resource, record.key.issuer, record.scopes)
    assert status.renewable
    for secret in (TOKEN, "refresh", "client-secret", "PRIVATE KEY"):
        assert secret not in repr(status)
