"""The console and the pages of the site in each browser of this machine: Chromium, Firefox and WebKit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.picturing import WIDE, take_both
from tests.browser.programs import SECONDS
from tests.browser.windows import Window, browsers, opened_window
from tests.console.conftest import link, served
from tests.docs.site import make
from tests.gateway.running import gateway, write_gateway_config

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = {"site-home": "", "site-guide": "serve/", "site-reference": "reference/connect/"}
"""Pages of the site of each kind, by the names of their pictures."""
FOUND = {
    "did not finish connecting": "troubleshooting/",
    "invalid_scope": "sign-in/",
    "already in the registry": "troubleshooting/",
    "server 'github': no answer from http://127.0.0.1:9/mcp: ConnectError": "troubleshooting/",
    "is not in the store": "messages/",
    "there is no option": "messages/",
    "sign in": "sign-in/",
    "approval": "agents/",
    "timeout": "connections/",
}
"""What a person types into the search, and the page that is among the first results."""
SEARCH = """(words) => {
    const all = [];
    const walk = (root) => {
        for (const one of root.querySelectorAll("*")) {
            all.push(one);
            if (one.shadowRoot) walk(one.shadowRoot);
        }
    };
    walk(document);
    const field = all.find((one) => one.tagName === "INPUT" && one.getRootNode() !== document);
    if (field && field.value !== words) {
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, words);
        field.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
        return [];
    }
    return all.filter((one) => one.tagName === "A" && one.href.includes("?h=")).map((one) => one.href);
}"""
"""Writes into the field of the search, which is in a shadow root, and then returns the results."""


def named(kind: str, name: str) -> str:
    """Return the path of a link, button or heading with a text."""
    return f"//{kind}[normalize-space()='{name}']"


def labelled(name: str) -> str:
    """Return the path of the field of a form with a label that begins so."""
    return f"//*[@id=//label[starts-with(normalize-space(), '{name}')]/@for]"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the whole site, built and served."""
    folder = tmp_path_factory.mktemp("site")
    done = make(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    handler = partial(_Quiet, directory=str(folder / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("browser", browsers())
def test_a_person_calls_a_tool_at_the_console(browser: str, tmp_path: Path) -> None:
    servers = {"kitchen": served("kitchen"), "gone": {"command": "no-such-program"}}
    config = write_gateway_config(tmp_path, servers, {"name": "company"})
    with gateway(tmp_path, config) as running, opened_window(browser, tmp_path) as window:
        window.open(running.base + link(running))
        window.wait_for(named("h1", "Servers"))
        window.wait_for("//*[contains(., '1 of 2 servers ready; not ready: gone')]")
        window.click(named("a", "Tools"))
        window.write("//input[@type='search']", "dish")
        window.wait_for("//*[contains(., '1 of 6 tools')]")
        window.click(named("a", "kitchen_order"))
        window.write(labelled("dish"), "soup")
        window.click(named("button", "Call kitchen_order"))
        window.wait_for("//*[@role='status'][contains(., 'the tool answered')]")

        assert '"dish": "soup"' in window.run("document.querySelector('#outcome').innerText")
        window.click(named("a", "Calls"))
        window.wait_for(named("td", "ok"))
        window.click(named("a", "Servers"))
        window.click(named("button", "Sign out"))
        window.wait_for("//*[contains(., 'Signed out')]")


@pytest.mark.parametrize("browser", browsers())
def test_pages_of_the_site_fit_a_wide_screen_and_a_narrow_one(browser: str, site: str, tmp_path: Path) -> None:
    with opened_window(browser, tmp_path) as window:
        for width in (1280, 390):
            window.resize(width, 900)
            for place in (*PAGES.values(), "messages/", "console/", "tutorial/1-connect/"):
                window.open(site + place)
                window.wait_for("//h1")

                wider = window.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wider <= 0, f"{place} at {width}"
                pictures = "[...document.querySelectorAll('article img')].filter(one => !one.naturalWidth).length"
                assert window.run(pictures) == 0, place


@pytest.mark.parametrize("browser", browsers())
def test_the_search_of_the_site_leads_from_words_and_errors_to_their_page(
    browser: str, site: str, tmp_path: Path
) -> None:
    with opened_window(browser, tmp_path) as window:
        found = {words: found_by_search(window, site, words)[:5] for words in FOUND}

    assert not {words: pages for words, pages in found.items() if FOUND[words] not in pages}


def found_by_search(window: Window, site: str, words: str) -> list[str]:
    """Return the pages that the search finds, the first result first."""
    window.open(site)
    window.click("//button[contains(@class, 'md-search__button')]")
    deadline = time.monotonic() + SECONDS
    while not (pages := window.run(f"({SEARCH})({json.dumps(words)})")):
        assert time.monotonic() < deadline, f"the search finds nothing for {words!r}"
        time.sleep(0.2)
    return [place.partition("?")[0].removeprefix(site) for place in pages]


@pytest.mark.parametrize(("scheme", "theme"), [("light", "default"), ("dark", "slate")])
def test_a_page_of_each_kind_follows_the_theme_of_the_browser(
    chromium: Any, site: str, scheme: str, theme: str
) -> None:
    page = chromium.new_page(viewport=WIDE, color_scheme=scheme)
    for name, place in PAGES.items():
        page.goto(site + place)
        page.locator(f"body[data-md-color-scheme={theme}]").wait_for()
        page.get_by_role("heading", level=1).wait_for()
        take_both(page, name, scheme)
    page.close()
