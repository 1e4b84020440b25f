"""A window of Firefox, driven over WebDriver BiDi, which Firefox implements itself: no driver, no Playwright."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.browser.programs import SECONDS, running_program

__all__ = ["FirefoxWindow", "opened_firefox"]

_GONE = ("no such node", "no such frame", "no such handle", "stale element reference", "move target out of bounds")
"""Errors of a command on an element or a page that the next one has replaced."""
_CAN_BE_CLICKED = """async (element) => {
    element.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
    const place = () => JSON.stringify(element.getBoundingClientRect());
    const before = place();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const {x, y, width, height} = element.getBoundingClientRect();
    const there = document.elementFromPoint(x + width / 2, y + height / 2);
    return document.readyState === "complete" && place() === before && element.contains(there);
}"""
"""Brings an element into view, and returns whether its page is loaded, it stands still and nothing covers it."""
_SELECT = "(element) => { element.focus(); element.select(); }"


class BidiError(Exception):
    """An error that Firefox returned for a command."""

    def __init__(self, method: str, code: str, message: str) -> None:
        super().__init__(f"{method}: {code}: {message}"[:2000])
        self.code = code


class FirefoxWindow:
    """The one window of a Firefox without a screen."""

    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._last_id = 0
        self.do("session.new", capabilities={})
        self._page = self.do("browsingContext.getTree")["contexts"][0]["context"]

    def open(self, url: str) -> None:
        self.do("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def click(self, xpath: str) -> None:
        def clicked() -> bool:
            element = self._find(xpath)
            if element is None or not self._call(_CAN_BE_CLICKED, element):
                return False
            middle = {"type": "pointerMove", "x": 0, "y": 0, "origin": {"type": "element", "element": element}}
            button = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
            self._act({"type": "pointer", "id": "mouse", "actions": [middle, *button]})
            return True

        self._wait(clicked, xpath)

    def write(self, xpath: str, text: str) -> None:
        self.click(xpath)
        element = self._find(xpath)
        assert element is not None, xpath
        self._call(_SELECT, element)
        keys = [{"type": kind, "value": letter} for letter in text for kind in ("keyDown", "keyUp")]
        self._act({"type": "key", "id": "keyboard", "actions": keys})

    def wait_for(self, xpath: str) -> None:
        self._wait(lambda: self._find(xpath) is not None, xpath)

    def run(self, expression: str) -> Any:
        done = self.do(
            "script.evaluate",
            expression=f"JSON.stringify({expression})",
            target={"context": self._page},
            awaitPromise=False,
        )
        return _value(done, expression)

    def resize(self, width: int, height: int) -> None:
        self.do("browsingContext.setViewport", context=self._page, viewport={"width": width, "height": height})

    def do(self, method: str, **parameters: Any) -> Any:
        """Do a command and return its result.

        Raises:
            BidiError: Firefox returned an error.
            TimeoutError: Firefox did not answer in time.
        """
        self._last_id += 1
        self._socket.send(json.dumps({"id": self._last_id, "method": method, "params": parameters}))
        while True:
            received = json.loads(self._socket.recv(timeout=2 * SECONDS))
            if received.get("id") != self._last_id:
                continue  # an event
            if received["type"] == "error":
                raise BidiError(method, received["error"], received["message"])
            return received["result"]

    def _find(self, xpath: str) -> dict[str, str] | None:
        locator = {"type": "xpath", "value": xpath}
        nodes = self.do("browsingContext.locateNodes", context=self._page, locator=locator, maxNodeCount=1)["nodes"]
        return {"sharedId": nodes[0]["sharedId"]} if nodes else None

    def _call(self, function: str, element: dict[str, str]) -> Any:
        done = self.do(
            "script.callFunction",
            functionDeclaration=f"async (element) => JSON.stringify(await ({function})(element))",
            arguments=[element],
            target={"context": self._page},
            awaitPromise=True,
        )
        return _value(done, function)

    def _act(self, source: dict[str, Any]) -> None:
        self.do("input.performActions", context=self._page, actions=[source])

    def _wait(self, done: Any, xpath: str) -> None:
        """Try until `done()` is true; a page that is replaced meanwhile is tried again."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                if done():
                    return
            except BidiError as error:
                if error.code not in _GONE:
                    raise
            assert time.monotonic() < deadline, f"the page has no element {xpath}"
            time.sleep(0.05)


@contextmanager
def opened_firefox(program: str, folder: Path) -> Generator[FirefoxWindow]:
    """Open a window of Firefox; its profile and its log are in `folder`."""
    profile = folder / "firefox"
    profile.mkdir()
    environment = {**os.environ, "HOME": str(folder)}
    command = [program, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0"]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "firefox.log").open("wb"))
        stack.enter_context(running_program(command, log, environment))
        socket = connect(_address(profile), max_size=None, open_timeout=SECONDS, proxy=None)
        window = FirefoxWindow(stack.enter_context(socket))
        yield window
        window.do("browser.close")


def _address(profile: Path) -> str:
    """Wait until Firefox has written which port it listens on, and return the address of its sessions."""
    written = profile / "WebDriverBiDiServer.json"
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            port = json.loads(written.read_bytes())["ws_port"]
        except (FileNotFoundError, ValueError):  # not yet, or not all of it
            assert time.monotonic() < deadline, "Firefox does not listen"
            time.sleep(0.05)
        else:
            return f"ws://127.0.0.1:{port}/session"


def _value(done: Any, source: str) -> Any:
    """Return what a script made, which it returned as JSON."""
    assert done["type"] == "success", f"{source}: {done['exceptionDetails']['text']}"
    text = done["result"].get("value")
    return None if text is None else json.loads(text)
