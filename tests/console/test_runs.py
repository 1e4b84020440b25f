"""The runs of agents on the console: what waits for a person, and the answers that are given there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.cli.command import toolweave
from tests.console.browsing import Browser, Page
from tests.console.conftest import browse
from tests.console.parked import BOOK, agent_of, parked, resumed
from tests.gateway.running import gateway, until, write_gateway_config
from tests.jobs.places import working
from tests.redis_server import NO_SERVER, RedisServer
from toolweave.agent import RunStatuses
from toolweave.jobs import Backend
from toolweave.models import tool_call
from toolweave.state import SqliteStore

pytestmark = pytest.mark.slow


def status_of(folder: Path, run_id: str) -> str:
    async def look() -> str:
        async with SqliteStore(folder / "runs.db") as store:
            info = await RunStatuses(store).get(run_id)
            return "" if info is None else info.status

    return anyio.run(look)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser that is signed in to a gateway that is told of the store of its folder."""
    section = {"runs": f"sqlite:///{tmp_path / 'runs.db'}"}
    with gateway(tmp_path, write_gateway_config(tmp_path, {}, section)) as running:
        yield browse(running)


def page_of(browser: Browser, run_id: str) -> Page:
    return browser.get(f"/ui/run?id={run_id}")


def test_runs_are_listed_with_what_they_wait_for(browser: Browser, tmp_path: Path) -> None:
    assert "There is no such run." in browser.get("/ui/runs").text

    run_id = parked(tmp_path, BOOK, tool_call("delete", {"name": "x"}, id="c2"))
    page = browser.get("/ui/runs")

    assert "1 run, 1 waiting for a person" in page.text
    assert f"{run_id[:8]} waiting desk <i>" in page.text
    assert "Do it, <b>now</b>." in page.text
    assert "an answer: How many nights for <b>Ada</b>?" in page.text
    assert "a yes to delete" in page.text
    assert run_id[:8] in browser.get("/ui/runs?only=waiting").text
    assert "<b>" not in page.html
    assert browser.get("/ui/run?id=nobody").status == 404


def test_a_question_is_answered_by_a_form_made_from_its_schema(browser: Browser, tmp_path: Path) -> None:
    run_id = parked(tmp_path, BOOK)
    page = page_of(browser, run_id)
    form = page.form("/run/answer", call="c1:1")
    nights, view = page.named(form, "nights"), page.named(form, "view")

    missing = browser.submit(form, action="accept", **{nights: ""})
    wrong = browser.submit(form, action="accept", **{nights: "two"})
    small = browser.submit(form, action="accept", **{nights: "0"})
    still = status_of(tmp_path, run_id)
    done = browser.submit(form, action="accept", **{nights: "2", view: "0"})

    assert "The server asks: How many nights for <b>Ada</b>?" in page.text
    assert [missing.status, wrong.status, small.status] == [422, 422, 422]
    assert "a whole number is expected" in wrong.text
    assert wrong.form("/run/answer", call="c1:1").fields[nights] == "two"  # what was typed is not lost
    assert "has a form 'c1:1' that the answer does not fit" in small.text
    assert still == "waiting"
    assert "The call 'c1:1' is answered. The run continues when its program resumes it." in done.text
    assert resumed(tmp_path, run_id) == "booked <b>Ada</b>: 2 nights, sea"
    assert "booked <b>Ada</b>: 2 nights, sea" in page_of(browser, run_id).text
    assert (tmp_path / "effects").read_text() == "<b>Ada</b>\n"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_question_is_declined_or_dismissed(browser: Browser, tmp_path: Path, action: str) -> None:
    run_id = parked(tmp_path, BOOK)

    done = browser.submit(page_of(browser, run_id).form("/run/answer", call="c1:1"), action=action)

    assert f"The call 'c1:1' is answered: {action}." in done.text
    assert resumed(tmp_path, run_id) == f"not booked: {action}"


def test_calls_are_approved_and_denied(browser: Browser, tmp_path: Path) -> None:
    calls = [tool_call("delete", {"name": name}, id=name) for name in ("old", "thesis")]
    run_id = parked(tmp_path, *calls)
    page = page_of(browser, run_id)

    first = browser.submit(page.form("/run/approve", call="old"))
    again = browser.submit(page.form("/run/deny", call="old"), reason="no")
    last = browser.submit(page.form("/run/deny", call="thesis"), reason="it is needed")
    none = browser.submit(page.form("/run/approve", call="thesis"), call="nothing")

    assert '{ "name": "old" }' in page.text
    assert "The run waits for answers to other calls." in first.text
    assert "has an answer to call 'old' already: it was approved" in again.text
    assert "The call 'thesis' is denied." in last.text
    assert "is not waiting for an answer (status pending)" in none.text
    text = "old is deleted and the call of tool 'delete' was not allowed: it is needed"
    assert resumed(tmp_path, run_id) == text
    ended = browser.submit(page.form("/run/deny", call="thesis"))
    assert "has ended: its status is completed" in ended.text


def test_a_run_is_stopped(browser: Browser, tmp_path: Path) -> None:
    run_id = parked(tmp_path, BOOK)
    form = page_of(browser, run_id).form("/run/cancel")

    stopped = browser.submit(form)
    again = browser.submit(form)

    assert "The run is asked to stop." in stopped.text
    assert "The run has ended already" in again.text
    assert status_of(tmp_path, run_id) == "cancelled"


def test_a_page_to_visit_is_shown_and_taken_back(browser: Browser, tmp_path: Path) -> None:
    run_id = parked(tmp_path, tool_call("rooms_pay", id="p"))
    page = page_of(browser, run_id)

    links = [found for tag, found in page.tags if tag == "a" and found.get("href", "").startswith("https://pay")]
    done = browser.submit(page.form("/run/answer", call="p:1"), action="accept")

    assert [(one["href"], one["rel"]) for one in links] == [("https://pay.example/7", "noopener noreferrer")]
    assert "The call 'p:1' is answered." in done.text
    assert resumed(tmp_path, run_id) == "accept"


def test_the_texts_of_servers_are_escaped_and_their_state_is_not_shown(browser: Browser, tmp_path: Path) -> None:
    run_id = parked(tmp_path, tool_call("rooms_nosy", id="n"))
    page, listed = page_of(browser, run_id), browser.get("/ui/runs")

    for one in (page, listed):
        assert "alert('asked')" in one.text
        assert r"\u202e" in one.text
        assert [found for tag, found in one.tags if tag == "script" and "src" not in found] == []
    assert "requestState" not in page.html
    assert page.named(page.form("/run/answer", call="n:1"), "<i>who</i>") == "f0"


def test_a_form_without_the_token_of_its_session_answers_nothing(browser: Browser, tmp_path: Path) -> None:
    run_id = parked(tmp_path, BOOK)
    form = page_of(browser, run_id).form("/run/answer", call="c1:1")

    refused = browser.submit(form, action="decline", csrf="of another session")
    browser.cookie = None
    signed_out = browser.get(f"/ui/run?id={run_id}")

    assert (refused.status, signed_out.status) == (403, 401)
    assert "nights" not in signed_out.text
    assert status_of(tmp_path, run_id) == "waiting"


def test_without_a_store_there_is_no_page_of_runs(tmp_path: Path) -> None:
    with gateway(tmp_path, write_gateway_config(tmp_path, {})) as running:
        browser = browse(running)

        assert "Runs" not in browser.get("/ui/").text
        assert browser.get("/ui/runs").status == 404


def test_workers_go_on_with_a_run_that_was_answered(tmp_path: Path, redis_server: RedisServer | None) -> None:
    if redis_server is None:
        pytest.skip(NO_SERVER)
    url = f"{redis_server.url}?name={uuid.uuid4().hex}"

    def answer(browser: Browser) -> str:
        until(lambda: "1 waiting" in browser.get("/ui/runs").text, "the run to wait")
        [found] = [one for one in browser.get("/ui/runs").tags if one[1].get("href", "").startswith("/ui/run?id=")]
        page = browser.get(found[1]["href"])
        form = page.form("/run/answer", call="c1:1")
        return browser.submit(form, action="accept", **{page.named(form, "nights"): "2"}).text

    async def work(browser: Browser) -> tuple[str, str]:
        backend = Backend(url)
        agent = agent_of(tmp_path, BOOK, backend=backend)
        async with backend, agent, working(backend, agent):
            run = await agent.submit("Go.")
            said = await anyio.to_thread.run_sync(answer, browser)
            return said, (await run).text

    config = write_gateway_config(tmp_path, {})
    with gateway(tmp_path, config, "--runs", url) as running:
        said, text = anyio.run(work, browse(running))

    assert "The run continues." in said
    assert text == "booked <b>Ada</b>: 2 nights, yard"


@pytest.mark.parametrize(
    ("place", "said"),
    [("memory://", "the memory of one process"), ("mysql://x", "gateway.runs"), ("", "gateway.runs")],
)
def test_a_store_that_is_none_is_refused(tmp_path: Path, place: str, said: str) -> None:
    config = write_gateway_config(tmp_path, {}, {"runs": place})

    done = toolweave("gateway", "--config", config, "--http", "127.0.0.1:0")

    assert done.code != 0
    assert said in done.err
