"""Pages of tools on the console, without a browser: what is framed, under which policy, and what a page may ask for."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.console.browsing import Browser, Page
from tests.console.conftest import PAGED, browse
from tests.gateway.running import RunningGateway, Spoken, gateway, write_gateway_config

TYPE = "text/html;profile=mcp-app"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, _session_home: None) -> Iterator[RunningGateway]:
    """A gateway in front of two servers with the same pages."""
    folder = tmp_path_factory.mktemp("apps")
    servers = {name: {"command": sys.executable, "args": [PAGED, name]} for name in ("notes", "bank")}
    denied = {"effect": "deny", "names": ["notes_forbidden"], "clients": ["console"]}
    rules = [{"name": "access_rules", "default": "allow", "rules": [denied]}]
    with gateway(folder, write_gateway_config(folder, servers, {"middleware": rules})) as one:
        yield one


def called(browser: Browser, tool: str) -> Page:
    """Call a tool by its form; return the page with its outcome."""
    page = browser.submit(browser.get(f"/ui/tool?name={tool}").form("/tool"))
    assert page.status == 200, page.text
    return page


def place(page: Page) -> dict[str, str]:
    """Return the element that a tool's page is put into, as the script of the console finds it."""
    return next(attributes for _, attributes in page.tags if attributes.get("id") == "app")


def framed(url: str, *, method: str = "GET", host: str | None = None) -> Spoken:
    """Ask the sandbox for a frame."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=60)
    try:
        connection.request(method, parts.path, headers={"host": host or parts.netloc})
        answer = connection.getresponse()
        return Spoken(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def asked(browser: Browser, page: Page, method: str, **params: Any) -> Any:
    """Send a request of a tool's page as the script does; return the answer."""
    found, message = place(page), {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = browser.post(found["data-address"], {"csrf": found["data-csrf"], "message": json.dumps(message)})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), answer.text
    return json.loads(answer.body)


def call(browser: Browser, page: Page, name: str, **arguments: Any) -> Any:
    """Call a tool as a tool's page; return the answer."""
    return asked(browser, page, "tools/call", name=name, arguments=arguments)


@pytest.mark.slow
def test_the_page_of_a_tool_is_framed_at_an_origin_that_shares_no_cookie(browser: Browser) -> None:
    page = called(browser, "notes_board")
    frame, console = urlsplit(place(page)["data-frame"]), urlsplit(browser.base)

    assert (console.hostname, frame.hostname) == ("127.0.0.1", "localhost")
    assert frame.port != console.port
    assert "ui://board , written by the server notes" in page.text
    assert "connectDomains: https://api.example" in page.text
    assert "It asks for what it is not given: permission: camera" in page.text
    assert "bordered" in place(page)["class"]


def test_a_page_of_the_console_frames_nothing_but_the_page_of_its_tool(browser: Browser) -> None:
    page = called(browser, "notes_board")
    shown, other = browser.get("/ui/tool?name=notes_board"), browser.get("/ui/tool?name=notes_advise")
    plain = browser.get("/ui/tool?name=notes_forbidden")
    frames = place(page)["data-frame"].rpartition("/")[0] + "/"

    for one in (page, shown, other):
        policy = one.headers["content-security-policy"]
        assert policy.endswith(f"; frame-src {frames}")
        assert policy.startswith("default-src 'none'; connect-src 'self'; img-src data:; script-src 'self';")
    assert "frame-src" not in plain.headers["content-security-policy"]
    assert [tag for tag, attributes in plain.tags if "app-host.js" in attributes.get("src", "")] == []


def test_a_frame_answers_once_under_the_policy_of_its_page(browser: Browser) -> None:
    board, spy = (place(called(browser, f"notes_{name}"))["data-frame"] for name in ("board", "spy"))

    first, again = framed(board), framed(board)
    strict = framed(spy).headers["content-security-policy"]

    assert (first.status, again.status) == (200, 404)
    policy = first.headers["content-security-policy"]
    assert "connect-src https://api.example;" in policy
    assert policy.endswith(f"frame-ancestors {browser.base}")
    assert f'data-host="{browser.base}"' in first.text
    assert "connect-src 'none';" in strict
    assert "script-src 'unsafe-inline';" in strict
    assert first.headers["cache-control"] == "no-store"
    assert "Notes" not in first.text  # the document comes by a message of its host


def test_the_sandbox_serves_nothing_else(browser: Browser) -> None:
    frame = place(called(browser, "notes_board"))["data-frame"]
    parts = urlsplit(frame)

    refused = [
        framed(frame, host=f"127.0.0.1:{parts.port}"),
        framed(frame, host="attacker.example"),
        framed(frame, method="POST"),
        framed(frame.replace("/frame/", "/")),
        framed(frame[:-1]),
        framed(f"http://{parts.netloc}/"),
    ]

    assert [one.status for one in refused] == [421, 421, 405, 404, 404, 404]
    assert {one.headers["content-security-policy"] for one in refused} == {"default-src 'none'; frame-ancestors 'none'"}
    assert framed(frame).status == 200  # none of these used it up


def test_the_document_and_what_its_host_tells_it_are_for_the_session_that_called(
    running: RunningGateway, browser: Browser
) -> None:
    page = called(browser, "bank_board")
    address = place(page)["data-address"]

    found = json.loads(browser.get(address).body)
    other, stranger = browse(running).get(address), Browser(running.base).get(address)
    gone = browser.get("/ui/app?id=none")

    assert "<title>Board</title>" in found["html"]
    assert found["csp"] == {"connectDomains": ["https://api.example"]}
    assert found["tool"]["name"] == "board"  # as its server calls it
    assert found["tool"]["_meta"]["ui"] == {"resourceUri": "ui://board"}
    assert found["arguments"] == {"title": "Notes", "link": "https://example.com"}
    assert found["result"]["structuredContent"]["at"] == "bank"
    assert "resultType" not in found["result"]
    assert (other.status, stranger.status, gone.status) == (404, 401, 404)
    assert "Board" not in other.text + stranger.text


def test_a_page_calls_the_tools_of_its_server_by_their_own_names(browser: Browser) -> None:
    notes, bank = called(browser, "notes_board"), called(browser, "bank_board")

    struck = [call(browser, page, "strike_out", number=0) for page in (notes, bank)]
    failed = call(browser, notes, "strike_out", number="x")

    assert [one["result"]["structuredContent"]["at"] for one in struck] == ["notes", "bank"]
    assert failed["result"]["isError"] is True


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pay", "Unknown tool: pay; a page can only call tools of the server that it is from"),
        ("bank_pay", "Unknown tool: bank_pay; a page can only call tools of the server that it is from"),
        ("bank:pay", "Unknown tool: bank:pay; a page can only call tools of the server that it is from"),
        ("none", "Unknown tool: none; a page can only call tools of the server that it is from"),
        ("advise", "the tool advise is not for pages"),
        ("forbidden", "Unknown tool"),
    ],
)
def test_a_page_calls_no_tool_of_another_server_none_for_models_and_none_that_rules_deny(
    browser: Browser, name: str, reason: str
) -> None:
    error = call(browser, called(browser, "notes_board"), name, amount=1)["error"]

    assert error["code"] == -32602
    assert error["message"].startswith(reason)


def test_calls_of_pages_are_kept_among_the_last_calls(browser: Browser) -> None:
    call(browser, called(browser, "notes_board"), "strike_out", number=1)

    rows = browser.get("/ui/calls").html.partition("<tbody>")[2].split("<tr>")[1:]

    mine = next(one for one in rows if "notes_strike_out" in one)
    assert "console" in mine
    assert any("resources/read" in one and "ui://board" in one for one in rows)


def test_a_page_reads_resources_of_its_server_under_their_own_uris(browser: Browser) -> None:
    pages = called(browser, "notes_board"), called(browser, "bank_board")

    read = [asked(browser, page, "resources/read", uri="notes://all")["result"]["contents"][0] for page in pages]
    unknown = asked(browser, pages[0], "resources/read", uri="notes://none")

    assert [one["text"] for one in read] == ["all notes of notes", "all notes of bank"]
    assert [one["uri"] for one in read] == ["notes://all"] * 2
    assert unknown["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/list", {}, -32601),
        ("sampling/createMessage", {}, -32601),
        ("ui/message", {}, -32601),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": "strike_out", "arguments": [1]}, -32602),
        ("resources/read", {"uri": 7}, -32602),
    ],
)
def test_a_page_asks_its_server_for_nothing_else(browser: Browser, method: str, params: Any, code: int) -> None:
    assert asked(browser, called(browser, "notes_board"), method, **params)["error"]["code"] == code


def test_a_request_of_a_page_needs_the_console_s_own_form(running: RunningGateway, browser: Browser) -> None:
    found = place(called(browser, "notes_board"))
    message = json.dumps({"method": "tools/call", "params": {"name": "strike_out", "arguments": {"number": 0}}})
    sent = {"csrf": found["data-csrf"], "message": message}
    sandbox = f"http://{urlsplit(found['data-frame']).netloc}"

    answers = [
        browser.post(found["data-address"], {**sent, "csrf": "wrong"}),
        browser.post(found["data-address"], sent, {"origin": sandbox, "sec-fetch-site": "cross-site"}),
        Browser(running.base).post(found["data-address"], sent),
        browse(running).post(found["data-address"], sent),
        browser.post(found["data-address"], {**sent, "message": "[1]"}),
    ]

    assert [one.status for one in answers] == [403, 403, 401, 403, 200]
    assert json.loads(answers[-1].body)["error"]["code"] == -32600


def test_what_is_no_page_is_told_and_the_result_is_there_all_the_same(browser: Browser) -> None:
    odd, elsewhere = called(browser, "notes_odd"), called(browser, "notes_elsewhere")

    assert f"is of the type 'text/html'; a page is '{TYPE}'" in odd.text
    assert "the tool answered" in odd.text
    assert "Its page" not in elsewhere.text  # notes://all is no URI of a page
    assert [one for page in (odd, elsewhere) for one in page.tags if one[1].get("id") == "app"] == []


def test_a_tool_for_its_page_alone_says_so_on_the_console(browser: Browser) -> None:
    assert "only its page may call it" in browser.get("/ui/tool?name=notes_strike_out").text
    assert "only its page may call it" not in browser.get("/ui/tool?name=notes_board").text


def without_page(browser: Browser, host: str, origin: str) -> Page:
    """Call a tool with a page at a console of another name; return the page with its outcome."""
    headers = {"host": host, "origin": origin}
    form = browser.get("/ui/tool?name=notes_board", {"host": host}).form("/tool")
    return browser.post(form.action, form.fields, headers)


def test_a_console_whose_name_no_policy_can_name_shows_the_result_alone(browser: Browser) -> None:
    host = f"[::1]:{urlsplit(browser.base).port}"

    page = without_page(browser, host, f"http://{host}")

    assert page.status == 200
    assert "the tool answered" in page.text
    assert "Open it at 127.0.0.1 or localhost." in page.text
    assert "app" not in page.ids


@pytest.mark.slow
def test_a_console_on_another_address_shows_the_result_alone(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"notes": {"command": sys.executable, "args": [PAGED, "notes"]}})
    words = ("--admin-token-env", "ADMIN", "--allow-host", "gateway.example", "--ui")
    token, host, origin = "an-admin-token-of-many-letters", "gateway.example", "https://gateway.example"
    with gateway(tmp_path, config, *words, env={"ADMIN": token}, address="0.0.0.0:0") as one:
        browser = Browser(one.base.replace("0.0.0.0", "127.0.0.1"))
        browser.post("/ui/sign-in", {"token": token}, {"host": host, "origin": origin})

        page = without_page(browser, host, origin)

    assert "the tool answered" in page.text
    assert "Open it at 127.0.0.1 or localhost." in page.text
    assert "frame-src" not in page.headers["content-security-policy"]
    assert "app" not in page.ids
