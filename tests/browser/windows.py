"""Windows of the browsers that this machine has, driven in one way: Chromium, Firefox and WebKit.

Chromium is driven by Playwright, Firefox over WebDriver BiDi. WebKit is the one of GTK, driven by its
`WebKitWebDriver` over HTTP, on a display without a screen. Elements are named by XPath, which all of them understand.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.browser.firefox import opened_firefox
from tests.browser.programs import SECONDS, found_program, running_program
from tests.programs import free_port

__all__ = ["Window", "browsers", "opened_window"]

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_FIREFOX = ("firefox", "firefox-esr")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Window(Protocol):
    """One window of a browser."""

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        ...

    def click(self, xpath: str) -> None:
        """Wait for an element, and click it."""
        ...

    def write(self, xpath: str, text: str) -> None:
        """Wait for a field, and write a text into it in place of its own."""
        ...

    def wait_for(self, xpath: str) -> None:
        """Wait for an element."""
        ...

    def run(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        ...

    def resize(self, width: int, height: int) -> None:
        """Give the page this size, as far as the browser allows it."""
        ...


def browsers() -> list[str]:
    """Return the names of the browsers of this machine that tests can drive."""
    found: list[str] = []
    if found_program(_CHROMIUM) and _has_playwright():
        found.append("chromium")
    if found_program(_FIREFOX):
        found.append("firefox")
    if shutil.which("WebKitWebDriver") and shutil.which("Xvfb") and _mini_browsers():
        found.append("webkit")
    return found


@contextmanager
def opened_window(browser: str, folder: Path) -> Generator[Window]:
    """Open a window of a browser; its files are in `folder`."""
    with ExitStack() as stack:
        if browser == "webkit":
            yield stack.enter_context(_webkit(folder))
        elif browser == "firefox":
            yield stack.enter_context(opened_firefox(found_program(_FIREFOX) or "firefox", folder))
        else:
            yield stack.enter_context(_chromium())


class _Page:
    """A page of Playwright."""

    def __init__(self, page: Any) -> None:
        self._page = page
        page.set_default_timeout(SECONDS * 1000)

    def open(self, url: str) -> None:
        self._page.goto(url)

    def click(self, xpath: str) -> None:
        self._page.locator(f"xpath={xpath}").first.click()

    def write(self, xpath: str, text: str) -> None:
        self._page.locator(f"xpath={xpath}").first.fill(text)

    def wait_for(self, xpath: str) -> None:
        self._page.locator(f"xpath={xpath}").first.wait_for()

    def run(self, expression: str) -> Any:
        return self._page.evaluate(expression)

    def resize(self, width: int, height: int) -> None:
        self._page.set_viewport_size({"width": width, "height": height})


class _Session:
    """A session of WebDriver, over HTTP."""

    def __init__(self, driver: str, capabilities: dict[str, Any]) -> None:
        self._url = driver
        made = self._do("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._url = f"{driver}/session/{made['sessionId']}"
        self._do("POST", "/timeouts", {"implicit": SECONDS * 1000, "pageLoad": SECONDS * 1000})

    def open(self, url: str) -> None:
        self._do("POST", "/url", {"url": url})

    def click(self, xpath: str) -> None:
        self._do("POST", f"/element/{self._found(xpath)}/click", {})

    def write(self, xpath: str, text: str) -> None:
        element = self._found(xpath)
        self._do("POST", f"/element/{element}/clear", {})
        self._do("POST", f"/element/{element}/value", {"text": text})

    def wait_for(self, xpath: str) -> None:
        self._found(xpath)

    def run(self, expression: str) -> Any:
        return self._do("POST", "/execute/sync", {"script": f"return {expression}", "args": []})

    def resize(self, width: int, height: int) -> None:
        self._do("POST", "/window/rect", {"width": width, "height": height, "x": 0, "y": 0})

    def close(self) -> None:
        self._do("DELETE", "")

    def _found(self, xpath: str) -> str:
        return self._do("POST", "/element", {"using": "xpath", "value": xpath}, again=True)[_ELEMENT]

    def _do(self, method: str, path: str, body: Any = None, *, again: bool = False) -> Any:
        """Do a command; one that was interrupted by the next page is done once more, if `again` allows it."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._url}{path}", data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=2 * SECONDS) as response:
                return json.loads(response.read())["value"]
        except urllib.error.HTTPError as error:
            problem = error.read().decode()[:2000]
        if again and "no such frame" in problem:
            return self._do(method, path, body)
        raise AssertionError(f"{method} {path} {body}: {problem}")


@contextmanager
def _chromium() -> Generator[Window]:
    playwright: Any = importlib.import_module("playwright.sync_api")  # it need not be installed
    with playwright.sync_playwright() as driver:
        as_root = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox needs another user
        launched = driver.chromium.launch(executable_path=found_program(_CHROMIUM), args=as_root)
        yield _Page(launched.new_page())
        launched.close()


@contextmanager
def _webkit(folder: Path) -> Generator[Window]:
    environment = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    with ExitStack() as stack:
        log = stack.enter_context((folder / "webkit.log").open("wb"))
        reading, writing = os.pipe()
        display = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1400x1000x24", "-nolisten", "tcp"]
        stack.enter_context(running_program(display, log, environment, pass_fds=(writing,)))
        os.close(writing)
        with os.fdopen(reading) as told:
            environment["DISPLAY"] = f":{told.readline().strip()}"
        port = free_port()
        stack.enter_context(running_program(["WebKitWebDriver", f"--port={port}"], log, environment))
        _wait_until_open(port)
        binary = max(_mini_browsers())
        options = {"webkitgtk:browserOptions": {"binary": binary, "args": ["--automation"]}}
        session = _Session(f"http://127.0.0.1:{port}", options)
        stack.callback(session.close)
        yield session


def _wait_until_open(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the driver of the browser does not listen"
        time.sleep(0.05)


def _has_playwright() -> bool:
    return importlib.util.find_spec("playwright") is not None


def _mini_browsers() -> list[str]:
    """Return the small browsers that come with the driver of WebKit."""
    return [str(found) for found in Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser")]
