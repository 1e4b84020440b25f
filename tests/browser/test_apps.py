"""A page of a tool on the console, in a real browser: shown with its result, answered, and kept inside its sandbox."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.browser.accessible import problems
from tests.browser.console import sign_in
from tests.console.conftest import PAGED
from tests.gateway.running import RunningGateway, gateway, until, write_gateway_config
from tests.gateway.scale.balancers import BALANCERS, balancer
from tests.gateway.scale.fleet import fleet_of
from tests.programs import free_port

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PICTURES = os.environ.get("TOOLWEAVE_TAKE_PICTURES")
"""A folder, to take the picture of docs/apps.md anew."""


@contextmanager
def opened(chromium: Any, folder: Path, tool: str, name: str = "127.0.0.1") -> Generator[tuple[RunningGateway, Any]]:
    """Run a gateway before two servers with pages, and open the page of a tool; yield the gateway and the page.

    Args:
        chromium: The browser.
        folder: A folder for its files.
        tool: The tool.
        name: The name of the host that the browser opens the console at.
    """
    servers = {one: {"command": sys.executable, "args": [PAGED, one]} for one in ("notes", "bank")}
    with gateway(folder, write_gateway_config(folder, servers)) as running:
        page = chromium.new_page(viewport={"width": 1080, "height": 620}, color_scheme="light")
        sign_in(page, running, name)
        page.goto(f"{running.base.replace('127.0.0.1', name)}/ui/tool?name={tool}")
        yield running, page
        page.context.close()


@contextmanager
def listening() -> Generator[tuple[str, list[str]]]:
    """Run a server that notes every request; yield its address and the paths that were asked for."""
    paths: list[str] = []

    class Notes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("access-control-allow-origin", "*")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Notes) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", paths
        finally:
            server.shutdown()
            thread.join()


def call(page: Any, **arguments: str) -> Any:
    """Call the tool that is shown; return the frame of its page, inside the sandbox."""
    for name, value in arguments.items():
        page.get_by_role("textbox", name=name).fill(value)
    page.locator("#call").click()
    return page.frame_locator("#app iframe").frame_locator("iframe")


def press(inside: Any, button: str) -> Any:
    """Press a button of the page, which may be hidden; return where the page says what came of it."""
    inside.get_by_text(button, exact=True).dispatch_event("click")
    return inside.locator("#told")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_shows_the_result_and_calls_a_tool_of_its_server(chromium: Any, tmp_path: Path, name: str) -> None:
    with opened(chromium, tmp_path, "notes_board", name) as (_, page):
        inside = call(page, title="Today")

        inside.get_by_text("Today at notes").wait_for()
        assert inside.get_by_role("listitem").all_inner_texts() == ["water the plants", "call <b>Ada</b>"]
        heard = inside.locator("#heard")
        expected = "0 before, then ui/notifications/tool-input, ui/notifications/tool-result"
        until(lambda: heard.text_content() == expected, expected)
        inside.get_by_role("button", name="Strike out the first").click()
        inside.get_by_text("water the plants: struck out by notes").wait_for()
        (view,) = (one for one in page.frames if one.url == "about:srcdoc")
        until(lambda: view.evaluate("document.documentElement.scrollHeight <= innerHeight"), "the size of the content")
        if PICTURES and name == "127.0.0.1":
            page.locator("section.app").screenshot(path=Path(PICTURES) / "console-app-light.png")
        inside.get_by_role("button", name="Read all").click()
        inside.get_by_text("notes://all: all notes of notes").wait_for()
        (frame,) = (one for one in page.frames if one.parent_frame == page.main_frame)
        assert frame.url.startswith(f"http://{'localhost' if name == '127.0.0.1' else '127.0.0.1'}:")
        page.get_by_role("link", name="Calls", exact=True).click()
        page.get_by_role("row").filter(has_text="notes_strike_out").filter(has_text="ok").wait_for()


def test_a_page_is_told_of_its_host_and_of_nothing_before_it_is_ready(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, "bank_board") as (_, page):
        inside = call(page)
        inside.get_by_text("Notes at bank").wait_for()
        (view,) = (one for one in page.frames if one.url == "about:srcdoc")
        context = view.evaluate("window.host.hostContext")
        able = view.evaluate("window.host.hostCapabilities")
        page.emulate_media(color_scheme="dark")

        assert context["toolInfo"]["tool"]["name"] == "board"
        assert (context["theme"], context["displayMode"], context["platform"]) == ("light", "inline", "web")
        assert able["sandbox"] == {"permissions": {}, "csp": {"connectDomains": ["https://api.example"]}}
        heard = inside.locator("#heard")
        until(lambda: (heard.text_content() or "").endswith("ui/notifications/host-context-changed"), "the dark theme")


@pytest.mark.parametrize(
    ("button", "answer"),
    [
        ("Pay", "refused with -32602: Unknown tool: pay; a page can only call tools of the server that it is from"),
        (
            "Pay by another name",
            "refused with -32602: Unknown tool: bank_pay; a page can only call tools of the server that it is from",
        ),
        ("Ask for advice", "refused with -32602: the tool advise is not for pages: its visibility says so"),
        ("Open a script", "refused with -32000: Invalid URL"),
        ("Do magic", "refused with -32601: Method not found"),
        ("Ask for more room", "it stays inline"),
    ],
)
def test_what_a_page_may_not_do_is_refused(chromium: Any, tmp_path: Path, button: str, answer: str) -> None:
    with opened(chromium, tmp_path, "notes_board") as (_, page):
        inside = call(page)
        inside.get_by_text("Notes at notes").wait_for()

        told = press(inside, button)

        until(lambda: told.inner_text() == answer, answer)


def test_what_a_page_says_is_shown_as_text_and_its_size_is_bounded(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, "notes_board") as (_, page):
        inside = call(page)
        inside.get_by_text("Notes at notes").wait_for()
        frame = page.locator("#app iframe")

        press(inside, "Say it")
        page.get_by_text("It says to the conversation, as the user: Buy <i>milk</i>\\u{202e}").wait_for()
        press(inside, "Tell the model")
        page.get_by_text('A model would be told: {"open":2}').wait_for()
        press(inside, "Tell the model")
        press(inside, "Grow")
        until(lambda: frame.evaluate("one => one.clientHeight") == 333, "the new height")

        assert page.get_by_text("A model would be told").count() == 1  # each takes the place of the one before
        assert problems(page) == []


def test_a_link_is_opened_after_a_yes_alone(chromium: Any, tmp_path: Path) -> None:
    with listening() as (address, paths), opened(chromium, tmp_path, "notes_board") as (_, page):
        inside = call(page, link=address)
        inside.get_by_text("Notes at notes").wait_for()

        told = press(inside, "Open a link")
        page.get_by_role("alert").get_by_text(address).wait_for()
        assert problems(page) == []
        page.get_by_role("button", name="Refuse").click()
        until(lambda: told.inner_text() == "refused with -32000: Link opening denied by user", "the refusal")
        assert paths == []

        press(inside, "Open a link")
        with page.context.expect_page() as found:
            page.get_by_role("button", name="Open it").click()
        found.value.wait_for_url(f"{address}/")
        until(lambda: told.inner_text() == "opened", "the answer")
        assert "/" in paths


def test_a_page_reaches_neither_the_console_nor_anything_that_it_did_not_name(chromium: Any, tmp_path: Path) -> None:
    with listening() as (address, paths), opened(chromium, tmp_path, "notes_spy") as (running, page):
        before = page.url
        call(page, console=running.base, elsewhere=address)
        said = page.locator(".app-said li").filter(has_text="Log, info: ")
        said.wait_for()
        found = json.loads(said.inner_text().removeprefix("Log, info: "))
        navigated = [one for one in page.frames if one.url.startswith(address)]

        assert {name: found[name] for name in ("console", "console's address")} == {
            "console": "SecurityError",
            "console's address": "SecurityError",
        }
        assert found["cookies"] == "got "
        assert [found[name] for name in ("fetch", "elsewhere", "picture", "script", "loose sandbox")] == [
            "TypeError"
        ] * 5
        assert (found["eval"], found["tab"]) == ("EvalError", "got nothing")
        assert {"connect-src", "img-src", "script-src-elem"} <= set(found["violated"])
        page.get_by_role("heading", name="notes_spy").wait_for()
        assert page.url.partition("#")[0] == before
        assert navigated == []
        assert "forged" not in page.locator("#app").inner_text()
        assert len(page.context.pages) == 1
        page.goto(f"{running.base}/ui/tools")
        page.get_by_role("heading", name="Tools", exact=True).wait_for()  # still signed in
        assert paths == []


def test_a_page_is_told_before_its_tool_is_called_again(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, "notes_board") as (_, page):
        inside = call(page, title="First")
        inside.get_by_text("First at notes").wait_for()
        first = page.locator("#app iframe").get_attribute("src")

        call(page, title="Second").get_by_text("Second at notes").wait_for()

        assert page.locator("#app iframe").count() == 1
        assert page.locator("#app iframe").get_attribute("src") != first


def test_without_scripts_the_result_is_all_there_is(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, "notes_board") as (running, _):
        plain = chromium.new_page(java_script_enabled=False)
        sign_in(plain, running)
        plain.goto(f"{running.base}/ui/tool?name=notes_board")
        plain.locator("#call").click()
        plain.get_by_text("It is shown with JavaScript only").wait_for()

        assert '"at": "notes"' in plain.get_by_label("Structured content").inner_text()
        assert plain.locator("iframe").count() == 0
        plain.close()


@pytest.mark.parametrize("kind", BALANCERS)
def test_a_page_behind_a_balancer_is_shown_and_answered_whichever_replica_framed_it(
    chromium: Any, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("FLEET_ADMIN", "the-admin-token-of-all-replicas")
    notes = {"notes": {"command": sys.executable, "args": [PAGED, "notes"]}}
    port = free_port()
    with (
        fleet_of(tmp_path, redis_url, options=("--admin-token-env", "FLEET_ADMIN"), more=notes) as fleet,
        balancer(kind, tmp_path, port, fleet.ports),
    ):
        page = chromium.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"http://127.0.0.1:{port}/ui/")
        page.get_by_label("token").fill("the-admin-token-of-all-replicas")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Servers", exact=True).wait_for()
        page.goto(f"http://127.0.0.1:{port}/ui/tool?name=notes_board")
        frames: set[str] = set()
        for title in ("First", "Second", "Third"):
            inside = call(page, title=title)
            inside.get_by_text(f"{title} at notes").wait_for()
            inside.get_by_role("button", name="Strike out the first").click()
            inside.get_by_text("water the plants: struck out by notes").wait_for()
            inside.get_by_role("button", name="Read all").click()
            inside.get_by_text("notes://all: all notes of notes").wait_for()
            frames |= {one.url.rpartition("/")[0] for one in page.frames if one.parent_frame == page.main_frame}
        page.context.close()

    assert len(frames) > 1  # the calls went to several replicas, each of which framed at its own port
