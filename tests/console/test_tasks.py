"""The tasks of callers on the console: how they are, and a button that cancels one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.connect.targets import eventually
from tests.console.browsing import Browser, Page
from tests.console.conftest import browse
from tests.gateway.running import RunningGateway, gateway, write_gateway_config
from tests.serve.carriers import EACH_ERA
from toolweave import McpConnection, connect_mcp
from toolweave.connect import Callbacks
from toolweave.errors import ToolweaveError
from toolweave.protocol.client_requests import ElicitationRequest

pytestmark = pytest.mark.slow

BOUND = 60
TASKED = str(Path(__file__).with_name("tasked.py"))
MODERN = "2026-07-28"
KEYS = {"ada": "key-of-ada-0123456789", "grace": "key-of-grace-0123456789"}


@contextmanager
def kitchens(folder: Path, era: str) -> Generator[RunningGateway, None, None]:
    """Run a gateway before the upstream, with a virtual server, for which a call is slow after half a second."""
    servers = {"kitchen": {"command": sys.executable, "args": [TASKED, str(folder)], "protocol": era}}
    section: dict[str, Any] = {
        "auth": {"api_keys": KEYS},
        "slow_call_seconds": 0.5,
        "virtual": {"waiters": {"servers": ["kitchen"]}},
    }
    with gateway(folder, write_gateway_config(folder, servers, section)) as one:
        yield one


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    spec = getattr(request.node, "callspec", None)
    era = MODERN if spec is None else spec.params.get("era", MODERN)
    with kitchens(tmp_path, era) as one:
        yield one


@asynccontextmanager
async def calling(
    running: RunningGateway, name: str, arguments: dict[str, Any], *, era: str = MODERN, path: str = "/mcp", **more: Any
) -> AsyncGenerator[list[Any], None]:
    """Call a tool as Ada while the block runs; what came of it is in the list in the end."""
    entry = running.entry(path, auth=KEYS["ada"], protocol=era)
    outcome: list[Any] = []

    async def call(connection: McpConnection) -> None:
        try:
            outcome.append(await connection.call_tool(name, arguments))
        except ToolweaveError as error:
            outcome.append(error)

    with anyio.fail_after(BOUND):
        async with connect_mcp(entry, name="g", **more) as connection, anyio.create_task_group() as group:
            group.start_soon(call, connection)
            yield outcome
            await eventually(lambda: outcome)


async def shown(browser: Browser, text: str, query: str = "") -> Page:
    """Return the page of tasks once it says something."""
    found: list[Page] = []

    async def says() -> bool:
        found[:] = [await anyio.to_thread.run_sync(browser.get, f"/ui/tasks{query}")]
        return text in found[0].text

    try:
        await eventually(says, 20)
    except TimeoutError:
        raise AssertionError(f"no {text!r} in {found[0].text}") from None
    return found[0]


async def submit(browser: Browser, page: Page, action: str = "/tasks/cancel") -> Page:
    form = page.form(action)
    return await anyio.to_thread.run_sync(lambda: browser.submit(form))


@EACH_ERA
async def test_a_task_is_shown_while_it_runs_and_when_it_has_ended(
    era: str, running: RunningGateway, tmp_path: Path
) -> None:
    browser = await anyio.to_thread.run_sync(browse, running)
    assert "No task yet." in (await shown(browser, "0 tasks, 0 not ended")).text

    async with calling(running, "kitchen_cook", {"name": "x"}, era=era) as outcome:
        page = await shown(browser, "<b>half</b> done")
        assert "1 task, 1 not ended" in page.text
        assert f"kitchen_cook working kitchen ada {era}" in page.text
        assert "<b>" not in page.html
        assert "\u202e" not in page.html  # hidden characters are written out
        only = await shown(browser, "kitchen_cook", "?only=open")
        (tmp_path / "x").touch()
    ended = await shown(browser, "1 task, 0 not ended")

    assert outcome[0].text == "a secret dish"
    assert "Show all" in only.text
    assert f"kitchen_cook completed kitchen ada {era}" in ended.text
    assert [one.action for one in ended.forms] == ["/ui/sign-out"]  # nothing is left to be cancelled
    assert "secret" not in ended.html
    assert "No task yet." in (await shown(browser, "1 task", "?only=open")).text


@EACH_ERA
async def test_a_task_is_cancelled_there_and_its_caller_is_told(era: str, running: RunningGateway) -> None:
    browser = await anyio.to_thread.run_sync(browse, running)

    async with calling(running, "kitchen_cook", {"name": "never"}, era=era) as outcome:
        page = await shown(browser, "kitchen_cook working")
        said = await submit(browser, page)
        over = await shown(browser, "kitchen_cook cancelled")
    again = await submit(browser, page)
    other = await anyio.to_thread.run_sync(lambda: browser.submit(page.form("/tasks/cancel"), task="77"))
    odd = await anyio.to_thread.run_sync(lambda: browser.submit(page.form("/tasks/cancel"), task="²"))

    assert "Server 'kitchen' is asked to cancel 'kitchen_cook'." in said.text
    assert "1 task, 0 not ended" in over.text
    assert isinstance(outcome[0], ToolweaveError)
    assert "cancelled" in str(outcome[0])
    assert ("was not cancelled" if era != MODERN else "is asked to cancel") in again.text
    assert "The task is no longer kept." in other.text
    assert "The task is no longer kept." in odd.text


async def test_a_task_that_failed_says_why(running: RunningGateway) -> None:
    browser = await anyio.to_thread.run_sync(browse, running)

    async with calling(running, "kitchen_burn", {}) as outcome:
        pass
    page = await shown(browser, "it is <i>black</i>")

    assert outcome[0].is_error
    assert "1 task, 0 not ended" in page.text
    assert "kitchen_burn completed with an error kitchen ada" in page.text
    assert ("span", {"class": "state bad"}) in page.tags
    assert "<i>" not in page.html


async def test_a_task_that_asks_waits_for_its_caller(running: RunningGateway) -> None:
    browser, go = await anyio.to_thread.run_sync(browse, running), anyio.Event()

    async def answer(_: ElicitationRequest) -> dict[str, str]:
        await go.wait()
        return {"dish": "soup"}

    async with calling(running, "kitchen_ask", {}, callbacks=Callbacks(elicitation=answer)) as outcome:
        page = await shown(browser, "waits for its caller")
        go.set()

    assert "1 task, 1 not ended" in page.text
    assert outcome[0].text == "soup"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/waiters"])
async def test_a_slow_call_of_any_endpoint_is_a_task_there_and_can_be_cancelled(
    path: str, running: RunningGateway
) -> None:
    browser = await anyio.to_thread.run_sync(browse, running)

    async with calling(running, "kitchen_simmer", {"name": "never"}, path=path) as outcome:
        page = await shown(browser, "kitchen_simmer working kitchen ada")
        await submit(browser, page)
        await shown(browser, "kitchen_simmer cancelled")

    assert "cancelled" in str(outcome[0])


async def test_a_task_that_its_server_forgot_is_shown_as_unknown(running: RunningGateway, tmp_path: Path) -> None:
    browser = await anyio.to_thread.run_sync(browse, running)

    async with calling(running, "kitchen_cook", {"name": "never"}):
        await shown(browser, "kitchen_cook working")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # and another one begins
        page = await shown(browser, "kitchen_cook unknown")

    assert "1 task, 0 not ended" in page.text
    assert "Unknown task" in page.text


async def test_a_server_that_does_not_answer_about_a_task_keeps_no_page_waiting(
    running: RunningGateway, tmp_path: Path
) -> None:
    browser = await anyio.to_thread.run_sync(browse, running)

    async with calling(running, "kitchen_cook", {"name": "x"}):
        await shown(browser, "kitchen_cook working")
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            page = await shown(browser, "did not say how it is within 3 s")
            said = await submit(browser, page)
        finally:
            os.kill(pid, signal.SIGCONT)
            (tmp_path / "x").touch()

    assert "kitchen_cook working" in page.text  # as it was last
    assert "did not say in time whether it cancelled 'kitchen_cook'" in said.text


def test_the_page_of_tasks_wants_a_sign_in_and_a_form_of_its_own(running: RunningGateway) -> None:
    browser = browse(running)
    stranger = Browser(running.base)

    assert stranger.get("/ui/tasks").status in (401, 403)
    assert browser.post("/ui/tasks/cancel", {"task": "1", "csrf": "guessed"}).status == 403
