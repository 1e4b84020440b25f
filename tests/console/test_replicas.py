"""The consoles of three replicas that share a Redis: each shows the servers, calls, tasks and keys of all of them."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.console.browsing import Browser, Page
from tests.console.conftest import browse
from tests.console.test_tasks import KEYS, TASKED, calling, submit
from tests.gateway.running import RunningGateway, until
from tests.gateway.scale.fleet import Client, Fleet, fleet_of

pytestmark = pytest.mark.slow

MODERN = "2026-07-28"
MOODY = """
import os, pathlib, sys
from toolweave import create_mcp_server

if pathlib.Path(os.environ["PLACE"]).parent.name == "replica-1" and not pathlib.Path(sys.argv[1]).exists():
    sys.exit("the disk of this replica is full")
create_mcp_server(name="moody", version="1").run_stdio()
"""


@pytest.fixture
def fleet(tmp_path: Path, redis_url: str) -> Iterator[Fleet]:
    """Three replicas, at one of which a server fails until a file is there."""
    program = tmp_path / "moody.py"
    program.write_text(MOODY)
    moody = {
        "command": sys.executable,
        "args": [str(program), str(tmp_path / "room")],
        "env": {"PLACE": "${XDG_STATE_HOME}"},
    }
    kitchen = {"command": sys.executable, "args": [TASKED, str(tmp_path)]}
    with fleet_of(tmp_path, redis_url, keys={"ada": KEYS["ada"]}, more={"moody": moody, "kitchen": kitchen}) as found:
        yield found


def running(fleet: Fleet) -> list[RunningGateway]:
    """Return the replicas."""
    return [one for one in fleet.replicas if one is not None]


def name_of(replica: RunningGateway) -> str:
    """Return the name of a replica, as consoles show it."""
    return f"{socket.gethostname()}/{replica.process.pid}"


def content(page: Page) -> str:
    """Return the part of a page that is kept up to date, without what belongs to its session."""
    part = page.html.partition('<div id="live"')[2].partition("<footer>")[0]
    return re.sub(r'name="csrf" value="[^"]*"|seen=\w+', "", part)


def alike(browsers: list[Browser], path: str, text: str) -> list[Page]:
    """Return a page of all replicas, once it is the same at each and has a text."""
    found: list[Page] = []

    def same() -> bool:
        found[:] = [one.get(path) for one in browsers]
        return len({content(page) for page in found}) == 1 and text in found[0].text

    try:
        until(same, f"{text!r} alike")
    except AssertionError:
        raise AssertionError("\n\n".join(content(page) for page in found)) from None
    return found


async def test_the_servers_of_all_replicas_are_shown_alike_and_where_one_fails(fleet: Fleet, tmp_path: Path) -> None:
    replicas = running(fleet)
    browsers = [browse(one) for one in replicas]
    failing = name_of(replicas[1])

    pages = alike(browsers, "/ui/", "; not ready: moody")
    text = pages[0].text
    details = browsers[0].get(link_to(pages[0], "moody", failing))

    assert "3 of 4 servers ready at all 3 replicas; not ready: moody" in text
    assert f"at {failing}" in text
    assert f"ready at {name_of(replicas[0])}" in text
    assert f"ready at {name_of(replicas[2])}" in text
    assert [one in text for one in map(name_of, replicas)] == [True] * 3
    assert "the disk of this replica is full" in details.text
    assert failing in details.text

    (tmp_path / "room").touch()
    restarted = browsers[2].submit(pages[2].form("/restart", name="moody"))
    assert "Server 'moody' was reconnected." in restarted.text
    alike(browsers, "/ui/", "4 of 4 servers ready at all 3 replicas")


def link_to(page: Page, server: str, replica: str) -> str:
    """Return the link to a server at a replica."""
    for part in page.html.split("<a ")[1:]:
        body = part.partition("</a>")[0]
        if f"name={server}&amp;replica=" in body and body.endswith(f"at {replica}"):
            return body.partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    raise AssertionError(f"no link to {server!r} at {replica!r}")


async def test_the_calls_of_all_replicas_are_shown_alike(fleet: Fleet) -> None:
    replicas = running(fleet)
    browsers = [browse(one) for one in replicas]
    client = Client(fleet, MODERN)
    for number, tool in enumerate(("once", "again", "rows")):
        await client.called("modern", tool, f"call-{number}", at=number)

    page = (await anyio.to_thread.run_sync(alike, browsers, "/ui/calls", "3 calls, 0 failed"))[1]

    table = page.html.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in table.split("<tr>")[1:]]
    assert [row.split()[1] for row in rows] == ["modern_rows", "modern_again", "modern_once"]
    assert [one.endswith(name_of(replica)) for one, replica in zip(rows, reversed(replicas), strict=True)] == [True] * 3


async def test_a_task_of_one_replica_is_shown_at_all_and_cancelled_from_another(fleet: Fleet) -> None:
    replicas = running(fleet)
    browsers = [browse(one) for one in replicas]

    async with calling(replicas[0], "kitchen_cook", {"name": "never"}) as outcome:
        pages = await anyio.to_thread.run_sync(alike, browsers, "/ui/tasks", "kitchen_cook working kitchen ada")
        asked = await submit(browsers[2], pages[2])
    await anyio.to_thread.run_sync(alike, browsers, "/ui/tasks", "kitchen_cook cancelled")

    assert "Server 'kitchen' is asked to cancel 'kitchen_cook'." in asked.text
    assert "cancelled" in str(outcome[0])


async def test_keys_are_shown_alike_and_a_replica_that_ends_leaves_the_pages(fleet: Fleet) -> None:
    replicas = running(fleet)
    browsers = [browse(one) for one in replicas]
    browsers[0].submit(browsers[0].get("/ui/keys").form("/keys", name="leaving"))

    def keys(browser: Browser) -> Any:
        return browser.get("/ui/keys").text.partition("API keys.")[2]

    until(lambda: len({keys(one) for one in browsers}) == 1 and "revoked" in keys(browsers[2]), "the revoked key")
    assert all(key not in browser.get("/ui/keys").html for browser in browsers for key in KEYS.values())
    fleet.drain(2)
    alike(browsers[:2], "/ui/", "at all 2 replicas")
    assert json.dumps(name_of(replicas[2]))[1:-1] not in browsers[0].get("/ui/").html
