"""Pins and sign-ins on the console."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import anyio
import pytest

from tests.cli.command import toolweave
from tests.console.browsing import Browser
from tests.console.conftest import browse, served
from tests.gateway.running import gateway, write_gateway_config
from toolweave.oauth import FileTokenStore, TokenKey, TokenRecord

pytestmark = pytest.mark.slow

LOCK = "toolweave.lock"


def names(browser: Browser) -> str:
    """Return the page of the tools."""
    return browser.get("/ui/tools").text


def test_a_difference_from_the_pins_is_shown_and_allowed(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"kitchen": served("kitchen", pins="block")})
    pinned = toolweave("pin", "--config", config, cwd=tmp_path)
    assert pinned.code == 0, pinned.err
    lock = tmp_path / LOCK
    known = json.loads(lock.read_text())
    tools = known["servers"]["kitchen"]["tools"]
    del tools["who"], tools["fail"]
    lock.write_text(json.dumps(known))

    with gateway(tmp_path, config) as running:
        browser = browse(running)
        assert "kitchen_who" not in names(browser)
        page = browser.get("/ui/pins")
        assert "2 differences" in page.text
        assert "tool 'who' is not pinned" in page.text
        assert "+ Say who this is." in page.text
        assert "2 tools of it are withheld" in page.text
        assert '"description": "Say who this is."' in page.text  # all of it, as the difference may be cut

        first = page.forms[1]
        stale = browser.submit(first, seen="0" * 64)
        assert "It is another difference by now" in stale.text
        assert "who" not in json.loads(lock.read_text())["servers"]["kitchen"]["tools"]

        allowed = browser.submit(first)
        assert "this is pinned now" in allowed.text
        assert "1 difference " in allowed.text
        assert len(json.loads(lock.read_text())["servers"]["kitchen"]["tools"]) == 5
        assert "5 tools" in names(browser)

        browser.submit(browser.get("/ui/pins").forms[1])
        done = browser.get("/ui/pins")
        assert "0 differences" in done.text
        assert "U+200B" in done.text  # found by the scan, pinned or not
        missing = browser.submit(first, server="nobody")
        assert (missing.status, "Server 'nobody' was not found" in missing.text) == (404, True)

    assert toolweave("pin", "check", "--config", config, cwd=tmp_path).code == 0


@pytest.mark.parametrize("expired", [False, True])
def test_who_is_signed_in_where_is_shown_without_a_token(tmp_path: Path, expired: bool) -> None:
    record = TokenRecord(
        key=TokenKey(issuer="https://issuer.example", resource="https://mcp.example/mcp", principal="<b>ada</b>"),
        access_token="an-access-token-that-nobody-sees",
        refresh_token=None if expired else "a-refresh-token-that-nobody-sees",
        expires_at=time.time() + (-100 if expired else 10_000),
        scopes=("notes:read",),
    )
    env = {"XDG_DATA_HOME": str(tmp_path / "data"), "PYTHON_KEYRING_BACKEND": os.environ["PYTHON_KEYRING_BACKEND"]}
    anyio.run(FileTokenStore(tmp_path / "data" / "toolweave" / "tokens" / "tokens.json").save, record)
    config = write_gateway_config(tmp_path, {"kitchen": served("kitchen")})

    with gateway(tmp_path, config, env=env) as running:
        page = browse(running).get("/ui/sign-ins")

    for text in ("https://mcp.example/mcp", "<b>ada</b>", "notes:read", "https://issuer.example"):
        assert text in page.text
    assert ("expired since" if expired else "signed in until") in page.text
    assert "nobody-sees" not in page.html


def test_servers_that_are_called_as_their_callers_are_shown_with_who_is_signed_in(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/mcp"
    mail = {"url": url, "auth": {"type": "oauth", "identity": "caller"}}
    key = TokenKey(issuer="https://issuer.example", resource=url, principal='["ci","https://id.example","ada"]')
    stored = FileTokenStore(tmp_path / "data" / "toolweave" / "tokens" / "tokens.json")
    anyio.run(stored.save, TokenRecord(key=key, access_token="an-access-token"))
    env = {"XDG_DATA_HOME": str(tmp_path / "data"), "PYTHON_KEYRING_BACKEND": os.environ["PYTHON_KEYRING_BACKEND"]}
    section = {"auth": {"api_keys": {"ci": "key-of-ci-0123456789"}}}
    config = write_gateway_config(tmp_path, {"mail": mail}, section)

    with gateway(tmp_path, config, env=env) as running:
        browser = browse(running)
        servers, one, signed = (browser.get(f"/ui/{path}") for path in ("", "server?name=mail", "sign-ins"))

    assert "1 of 1 server ready" in servers.text
    assert ">per caller</span>" in servers.html
    assert "http://127.0.0.1:9/mcp" in one.text
    assert "each caller signs in by the tool mail_sign_in" in signed.text
    (row,) = (part for part in signed.html.partition("<tbody>")[2].split("<tr>") if "127.0.0.1:9" in part)
    for text in ("mail", ">ada<", "signed in", "https://issuer.example"):
        assert text in row
