"""Servers on the console: their states, their details, and what changes them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.console.browsing import Browser, Page
from tests.console.conftest import SECRET, browse, served
from tests.gateway.running import RunningGateway, gateway, until, write_gateway_config

LOOK = {"hx-request": "true"}


def row(page: Page, server: str) -> str:
    """Return the row of a server, as a person reads it."""
    body = page.html.partition("<tbody>")[2].partition("</tbody>")[0]
    return next(one for one in body.split("<tr>") if f"name={server}" in one)


@pytest.mark.slow
def test_the_servers_are_shown_with_states_and_errors(browser: Browser) -> None:
    page = browser.get("/ui/")

    assert (page.status, "1 of 2 servers ready; not ready: gone" in page.text) == (200, True)
    assert ">ready</span>" in row(page, "kitchen")
    assert ">backoff</span>" in row(page, "gone") or ">connecting</span>" in row(page, "gone")
    assert "toolweave-test-no-such-command" in row(page, "gone")
    assert "/mcp/waiters" in page.text
    assert "For <i>waiters</i>" in page.text


SLOW_AGAIN = """
import pathlib, sys, time
from toolweave import create_mcp_server

full, waits, room = map(pathlib.Path, sys.argv[1:])
if full.exists():
    sys.exit("the disk is full")
waits.touch()
while not room.exists():
    time.sleep(0.05)
create_mcp_server(name="moody", version="1").run_stdio()
"""


@pytest.mark.slow
def test_a_server_that_failed_is_not_ready_while_it_connects_again(tmp_path: Path) -> None:
    (tmp_path / "moody.py").write_text(SLOW_AGAIN)
    full, waits, room = (tmp_path / one for one in ("full", "waits", "room"))
    full.touch()
    words = [str(one) for one in (tmp_path / "moody.py", full, waits, room)]
    config = write_gateway_config(tmp_path, {"moody": {"command": sys.executable, "args": words}})

    def status(running: RunningGateway) -> Any:
        return running.status()["upstreams"][0]

    with gateway(tmp_path, config) as running:
        browser = browse(running)
        until(lambda: status(running)["error"], "the failure")
        full.unlink()
        until(waits.exists, "an attempt that takes long")
        until(lambda: status(running)["state"] == "connecting", "its state")
        again = browser.get("/ui/")
        details = browser.get("/ui/server?name=moody")
        room.touch()
        until(lambda: status(running)["state"] == "ready", "the server")
        ready = browser.get("/ui/")

    assert "0 of 1 server ready; not ready: moody" in again.text
    assert 'class="state bad">connecting</span>' in row(again, "moody")
    assert 'class="state bad">connecting</span>' in details.html
    assert "1 of 1 server ready" in ready.text
    assert "not ready: moody" not in ready.text


@pytest.mark.slow
def test_a_server_that_failed_is_shown_with_its_next_step(tmp_path: Path) -> None:
    program = "import sys; sys.exit('ModuleNotFoundError: No module named 'tides'')"
    config = write_gateway_config(tmp_path, {"tides": {"command": sys.executable, "args": ["-c", program]}})
    with gateway(tmp_path, config) as running:
        until(lambda: running.status()["upstreams"][0]["error"], "the failure")
        browser = browse(running)

        step = "Next step: its Python has no module &#39;tides&#39;: install the package that has it"
        assert step in row(browser.get("/ui/"), "tides")
        assert step in browser.get("/ui/server?name=tides").html


def next_look(page: Page) -> str:
    """Return the address at which a page looks for changes of its part that lives."""
    return next(attributes["hx-get"] for _, attributes in page.tags if attributes.get("id") == "live")


def test_the_part_that_lives_is_sent_again_only_when_it_differs(browser: Browser) -> None:
    look = next_look(browser.get("/ui/"))

    def unchanged() -> bool:
        nonlocal look
        page = browser.get(look, LOOK)
        if page.status == 204:
            return True
        look = next_look(page)  # what was shown before does not come back: it has the time of its state
        return False

    until(unchanged, "a page that stands still")
    stale = browser.get("/ui/?seen=0", LOOK)
    whole = browser.get(look, {**LOOK, "hx-history-restore-request": "true"})

    assert stale.status == browser.get("/ui/?seen=0&self=1&path=2", LOOK).status == 200  # whatever is asked
    assert "<html" not in stale.html
    assert [attributes["hx-swap-oob"] for _, attributes in stale.tags if attributes.get("id") == "summary"] == [
        "innerHTML"
    ]
    assert "kitchen" in stale.text
    assert "<html" in whole.html


def test_a_server_is_shown_with_all_that_is_known_of_it(browser: Browser) -> None:
    page = browser.get("/ui/server?name=kitchen")
    gone = browser.get("/ui/server?name=gone")
    unknown = browser.get("/ui/server?name=%3Cb%3E")

    assert "<b>kitchen</b>" in page.text  # the name that it gives itself
    assert r"Be kind.\u202e\u200b<script>alert(1)</script>" in page.text
    assert "start the process" in page.text
    assert any(urlsplit(attributes.get("href", "")).query == "name=kitchen_order" for _, attributes in page.tags)
    assert gone.status == 200
    assert "toolweave-test-no-such-command" in gone.text
    assert (unknown.status, "Server '<b>' was not found" in unknown.text) == (404, True)


def test_no_page_shows_a_secret(browser: Browser) -> None:
    shown = [browser.get(path) for path in ("/ui/", "/ui/config", "/ui/server?name=kitchen", "/ui/server?name=gone")]

    assert [one.status for one in shown] == [200] * 4
    assert "API_TOKEN" in shown[1].text
    assert not [one.url for one in shown if SECRET in one.html]


def pid(browser: Browser, server: str) -> str:
    """Return the process of a server, as the page shows it."""
    cells = re.findall(r'<td class="number"[^>]*>(.*?)</td>', row(browser.get("/ui/"), server))
    return cells[2]


@pytest.mark.slow
def test_servers_are_added_restarted_and_removed_by_forms(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"kitchen": served("kitchen")})
    with gateway(tmp_path, config) as running:
        browser = browse(running)
        form = browser.get("/ui/").form("/add")
        added = browser.submit(form, name="bar", entry=json.dumps(served("bar")))
        assert "Server 'bar' was added, with 6 tools." in added.text
        assert ", added" in row(added, "bar")
        assert "was not added: it is not JSON" in browser.submit(form, name="x", entry="{").text
        assert "'config file has" not in browser.submit(form, name="", entry="{}").text
        assert "was not added" in browser.submit(form, name="y", entry='{"command": "toolweave-test-none"}').text

        before = pid(browser, "bar")
        os.kill(int(before), 0)
        restarted = browser.submit(browser.get("/ui/").form("/restart", name="bar"))
        assert "Server 'bar' was reconnected." in restarted.text
        until(lambda: pid(browser, "bar") not in ("", before), "another process")

        removed = browser.submit(browser.get("/ui/").form("/remove", name="bar"))
        assert "Server 'bar' was removed." in removed.text
        assert "name=bar" not in removed.html
        gone = browser.submit(form, name="bar", entry="{}")
        assert gone.status == 200
        for action in ("/restart", "/remove"):
            again = browser.submit(browser.get("/ui/").form(action, name="kitchen"), name="bar")
            assert (again.status, "Server 'bar' was not found" in again.text) == (404, True)


@pytest.mark.slow
def test_a_config_with_a_mistake_is_shown_and_changes_nothing(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"kitchen": served("kitchen")})
    with gateway(tmp_path, config, "--no-watch") as running:
        browser = browse(running)
        same = browser.submit(browser.get("/ui/").form("/reload"))
        assert "The config was read again; nothing differs." in same.text

        write_gateway_config(tmp_path, {"kitchen": served("kitchen"), "bar": {"command": "none-of-<b>those</b>"}})
        changed = browser.submit(same.form("/reload"))
        assert "added: bar" in changed.text
        assert "none-of-<b>those</b>" in changed.text

        config.write_text("{<b>")
        broken = browser.submit(changed.form("/reload"))
        assert "The config was not changed" in broken.text
        assert ">ready</span>" in row(broken, "kitchen")
        assert "The last change was refused" in browser.get("/ui/config").text


@pytest.mark.slow
def test_what_a_restart_cannot_reach_is_told(running: RunningGateway, browser: Browser) -> None:
    page = browser.submit(browser.get("/ui/").form("/restart", name="gone"))

    assert page.status == 200
    notice = page.html.partition('class="notices"')[2].partition("</div>")[0]
    assert "toolweave-test-no-such-command" in notice


@pytest.mark.slow
def test_a_config_that_lost_its_servers_is_applied_by_a_button(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"gone": {"command": "toolweave-test-no-such-command"}})
    with gateway(tmp_path, config, "--no-watch") as running:
        browser = browse(running)
        config.write_text("{}")

        refused = browser.submit(browser.get("/ui/").form("/reload"))
        assert "it has 0 of 1 server" in refused.text
        assert running.status()["needs_confirmation"] is True
        applied = browser.submit(refused.form("/reload", confirmed="yes"))

        assert "removed: gone" in applied.text
        assert running.status()["upstreams"] == []
