"""A person at the console of a gateway, in a real browser: pages that live, forms by keyboard, light and dark."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessible import problems
from tests.browser.console import sign_in
from tests.browser.picturing import take, take_both
from tests.console.conftest import served
from tests.gateway.running import RunningGateway, gateway, until, write_gateway_config

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@contextmanager
def opened(chromium: Any, folder: Path, **context: Any) -> Generator[tuple[RunningGateway, Any, list[str]]]:
    """Run a gateway and open its console by a link; yield the gateway, the page and the errors in the browser."""
    config = write_gateway_config(
        folder,
        {"kitchen": served("kitchen"), "gone": {"command": "no-such-program"}},
        {"name": "company", "virtual": {"waiters": {"servers": ["kitchen"], "title": "For waiters"}}},
    )
    errors: list[str] = []

    def note(message: Any) -> None:
        if message.type in ("error", "warning"):
            errors.append(message.text)

    with gateway(folder, config) as running:
        page = chromium.new_page(viewport={"width": 1080, "height": 620}, **context)
        page.on("pageerror", lambda error: errors.append(str(error)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        page.on("console", note)
        sign_in(page, running)
        yield running, page, errors
        page.close()


def pid(page: Any) -> int:
    """Return the process of the first server, as the page shows it."""
    return int(page.locator("tbody tr").first.locator("td.number").nth(2).inner_text() or 0)


def test_states_live_on_the_page_and_the_focus_stays_where_it_is(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path) as (_, page, errors):
        assert "token" not in page.url
        page.get_by_text("1 of 2 servers ready; not ready: gone").wait_for()
        take_both(page, "console-servers")
        page.get_by_role("button", name="Restart kitchen").focus()
        focused = page.evaluate("document.activeElement.id")

        os.kill(before := pid(page), signal.SIGKILL)

        until(lambda: pid(page) not in (0, before), "another process")
        assert page.locator("tbody tr").first.locator("td.number").nth(1).inner_text() == "1"
        assert page.evaluate("document.activeElement.id") == focused != ""
        page.get_by_role("button", name="Read the config again").press("Enter")
        page.get_by_role("alert").get_by_text("nothing differs").wait_for()
        assert page.evaluate("document.activeElement.className") == "notices"
        assert errors == []


def test_a_tool_is_found_and_called_by_keyboard(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path) as (_, page, errors):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.get_by_role("link", name="Tools", exact=True).press("Enter")
        search = page.get_by_role("searchbox", name="Search names, descriptions and servers")
        search.press_sequentially("dish")
        page.get_by_text("1 of 6 tools").wait_for()  # without a new page
        assert page.evaluate("document.activeElement.id") == "q"
        page.get_by_role("link", name="kitchen_order").press("Enter")

        page.get_by_role("textbox", name="dish (required)").press_sequentially("soup")
        page.keyboard.press("Tab")
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("3")
        page.get_by_role("combobox", name="spicy").press("t")
        page.get_by_role("button", name="Call kitchen_order").press("Enter")

        page.get_by_role("status").get_by_text("the tool answered").wait_for()
        assert page.evaluate("document.activeElement.id") == "call"
        shown = page.get_by_label("Structured content").inner_text()
        for part in ('"dish": "soup"', '"count": 3', '"spicy": true', '"size": "small"'):
            assert part in shown
        assert page.get_by_role("textbox", name="dish (required)").input_value() == "soup"
        take_both(page, "console-tool", whole=True)
        page.get_by_role("textbox", name="extras").fill("[")
        page.get_by_role("button", name="Call kitchen_order").press("Enter")
        page.get_by_role("link", name="extras").click()
        assert page.evaluate("document.activeElement.name || document.querySelector(':target').name").startswith("f")
        page.get_by_role("link", name="Calls", exact=True).click()
        page.get_by_role("cell", name="ok").wait_for()
        take(page, "console-calls", "dark")
        assert [one for one in errors if "422" not in one] == []  # the browser notes the status of the wrong form


def test_a_server_is_removed_only_after_a_yes(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path) as (_, page, errors):
        questions: list[str] = []

        def answer(dialog: Any) -> None:
            questions.append(dialog.message)
            if len(questions) == 1:
                dialog.dismiss()
            else:
                dialog.accept()

        page.on("dialog", answer)
        page.get_by_role("button", name="Remove kitchen").click()
        page.get_by_role("link", name="kitchen").wait_for()
        page.get_by_role("button", name="Remove kitchen").click()
        page.get_by_text("Server 'kitchen' was removed.").wait_for()

    assert questions == ["Remove the server kitchen from the gateway? Its tools are gone at once."] * 2
    assert errors == []


def test_everything_works_without_scripts(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, java_script_enabled=False) as (_, page, errors):
        page.get_by_role("link", name="Tools", exact=True).click()
        page.get_by_role("searchbox").fill("dish")
        page.get_by_role("button", name="Search").click()
        page.get_by_text("1 of 6 tools").wait_for()
        page.get_by_role("link", name="kitchen_order").click()
        page.get_by_role("textbox", name="dish (required)").fill("pie")
        page.get_by_role("button", name="Call kitchen_order").click()
        page.get_by_text('"dish": "pie"').first.wait_for()
        page.get_by_role("link", name="Servers", exact=True).click()
        page.get_by_role("button", name="Remove kitchen").click()
        page.get_by_text("Server 'kitchen' was removed.").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("Signed out").wait_for()
        page.goto(page.url.replace("sign-out", "tools"))
        page.get_by_role("heading", name="Sign in").wait_for()
        assert [one for one in errors if "401" not in one] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(chromium: Any, tmp_path: Path, scheme: str) -> None:
    with opened(chromium, tmp_path, color_scheme=scheme) as (running, page, _):
        found: dict[str, list[str]] = {}
        for path in (
            "/",
            "/tools",
            "/tool?name=kitchen_order",
            "/offers",
            "/calls",
            "/tasks",
            "/pins",
            "/sign-ins",
            "/config",
        ):
            page.goto(f"{running.base}/ui{path}")
            found[path] = problems(page)
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("Signed out").wait_for()
        found["/sign-in"] = problems(page)

        assert {path: told for path, told in found.items() if told} == {}


def test_a_gateway_that_is_gone_is_said_on_the_page(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, tmp_path) as (running, page, _):
        running.process.kill()
        page.get_by_role("alert").get_by_text("The gateway does not answer").wait_for()


LINE_ENDS = """cell => {
    const ends = [];
    let before = null;
    for (const text of [...cell.childNodes].filter(node => node.nodeType === Node.TEXT_NODE)) {
        for (let at = 0; at < text.length; at++) {
            const range = document.createRange();
            range.setStart(text, at);
            range.setEnd(text, at + 1);
            const top = range.getBoundingClientRect().top;
            if (before && top > before.top + 4) ends.push(before.character);
            before = { top, character: text.data[at] };
        }
    }
    return ends;
}"""
"""The last character of each line of a cell but the last line."""


@pytest.mark.parametrize("width", [360, 390, 700, 1080])
def test_a_long_name_breaks_after_a_separator_and_no_page_moves_sideways(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    config = write_gateway_config(tmp_path, {"kitchen_of_the_whole_company_in_town": served("kitchen")})
    with gateway(tmp_path, config) as running:
        page = chromium.new_page(viewport={"width": width, "height": 800})
        sign_in(page, running)
        page.goto(f"{running.base}/ui/tool?name=kitchen_of_the_whole_company_in_town_order")
        page.get_by_role("textbox", name="dish (required)").fill("soup")
        page.get_by_role("button", name="Call kitchen_of").click()
        page.get_by_text("the tool answered").wait_for()
        page.get_by_role("link", name="Calls", exact=True).click()
        page.get_by_text("ok").wait_for()

        ends = page.locator("tbody th").first.evaluate(LINE_ENDS)
        rows = page.evaluate("[...document.querySelectorAll('nav li')].map(one => one.offsetTop)")
        inner = page.locator(".wide").evaluate("one => one.scrollWidth - one.clientWidth")

        assert set(ends) <= {"_"}
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert all(rows.count(row) > 1 for row in rows)  # no entry of the navigation is alone in its row
        assert inner == 0 or width == 700
        assert width < 1080 or len(set(rows)) == 1
