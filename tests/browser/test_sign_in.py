"""A person signs in: the command in a terminal, the pages of a real authorization server in a real browser."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.picturing import PICTURES, take_both
from tests.cli.command import toolweave
from tests.cli.tmux import SECONDS, Tmux, open_tmux
from tests.conformance.server_process import serving
from tests.docs.drawing import Screen, picture
from tests.reference.authorization import AuthorizationServer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCRIPT = str(Path(__file__).parent.parent / "reference" / "protected_servers.py")
OPENER = Path(__file__).with_name("opener.py")
COLUMNS, LINES = 100, 24


def opened(file: Path) -> str:
    """Wait for the address that the command opened."""
    deadline = time.monotonic() + SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, "no browser was opened"
        time.sleep(0.02)
    return file.read_text(encoding="utf-8")


def begin(terminal: Tmux, folder: Path, config: Path, file: Path) -> None:
    """Begin to sign in, at a shell in a terminal."""
    env = {
        **os.environ,
        "BROWSER": f"{sys.executable} {OPENER} {file} %s",
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "LANG": "C.UTF-8",
        "PS1": "$ ",
    }
    for name in ("NO_COLOR", "CI", "ENV", "TMUX"):
        env.pop(name, None)
    size = ("-x", str(COLUMNS), "-y", str(LINES))
    terminal.do("new-session", "-d", *size, "-c", str(config.parent), "env", "TERM=xterm-256color", "sh", env=env)
    terminal.wait_for("$")
    terminal.type(f"toolweave auth login notes --config {config.name}")


def take_terminal(chromium: Any, terminal: Tmux) -> None:
    """Take the picture of the terminal, where it is wanted."""
    if PICTURES:
        drawn = picture(Screen(terminal.screen(styled=True)), title="toolweave auth login", columns=COLUMNS)
        page = chromium.new_page(viewport={"width": 900, "height": 600})
        page.set_content(f'<body style="margin:0;background:transparent">{drawn}')
        page.locator("svg").first.screenshot(path=Path(PICTURES) / "sign-in-terminal.png", omit_background=True)
        page.close()


@contextmanager
def begun(folder: Path) -> Generator[tuple[Tmux, str, Path]]:
    """Begin to sign in to a server of ours; yield the terminal, the page that is opened, and the config."""
    work, file = folder / "work", folder / "opened"
    work.mkdir()
    config = work / "mcp.json"
    with ExitStack() as stack:
        issuer = stack.enter_context(AuthorizationServer()).issuer
        url = stack.enter_context(serving(folder / "log", command=(sys.executable, SCRIPT, "ours", issuer)))
        config.write_text(json.dumps({"mcpServers": {"notes": {"url": url, "auth": "oauth"}}}))
        terminal = stack.enter_context(open_tmux(folder))
        begin(terminal, folder, config, file)
        yield terminal, opened(file), config


def test_a_person_signs_in_with_a_real_browser_and_the_server_knows_who_calls(chromium: Any, tmp_path: Path) -> None:
    errors: list[str] = []

    def note(error: object) -> None:
        errors.append(str(error))

    with begun(tmp_path) as (terminal, address, config):
        page = chromium.new_page(viewport={"width": 900, "height": 420})
        page.on("pageerror", note)
        page.goto(address)
        page.get_by_placeholder("Enter any login").fill("ada")
        page.get_by_placeholder("and password").fill("any")
        page.get_by_role("button", name="Sign-in").click()
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("heading", name="The answer has arrived").wait_for()

        assert "Close this page" in page.inner_text("p")
        assert page.url.startswith("http://127.0.0.1:")
        assert page.evaluate("getComputedStyle(document.body).maxWidth") == "512px"  # its own style is let in
        terminal.wait_for("signed in until")
        take_both(page, "sign-in-page")
        take_terminal(chromium, terminal)
        page.close()
        data = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_STATE_HOME": str(tmp_path / "state")}
        called = toolweave("call", "notes_whoami", "--config", config, env=data)

    assert (called.code, called.out.strip()) == (0, "ada"), called.err
    assert errors == []


def test_a_person_who_refuses_is_told_so_in_the_browser_and_in_the_terminal(chromium: Any, tmp_path: Path) -> None:
    with begun(tmp_path) as (terminal, address, _):
        page = chromium.new_page()
        page.goto(address)
        page.get_by_role("link", name="Cancel").click()
        page.get_by_role("heading", name="The sign-in was refused").wait_for()
        shown = terminal.wait_for("access_denied")
        page.close()

    assert "Traceback" not in shown
