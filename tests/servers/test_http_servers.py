"""The HTTP test server does what it says, seen by a raw client."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.servers.fixtures import http_server, running
from tests.servers.raw import ENVELOPE, post

Answer = tuple[int, dict[str, str], bytes]


@contextlib.contextmanager
def event_stream(url: str, **headers: str) -> Generator[Callable[[], str]]:
    """Open an event stream; yield a function that returns the data of the next event."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as stream:

        def following() -> str:
            while (line := stream.readline()) and not line.startswith(b"data: "):
                pass
            return line[6:].decode().strip()

        yield following


def initialized(url: str) -> dict[str, str]:
    """Shake hands; return the headers of the session."""
    status, headers, _ = post(url, "initialize", protocolVersion="2025-11-25")
    assert status == 200
    return {"Mcp-Session-Id": headers["mcp-session-id"]}


def echo(url: str, *, modern: bool = True, headers: dict[str, str] | None = None) -> Answer:
    """Call echo."""
    return post(url, "tools/call", modern=modern, headers=headers, name="echo", arguments={"text": "hi"})


def result(answer: Answer) -> dict[str, Any]:
    """Return the result in a JSON answer."""
    assert answer[0] == 200
    return json.loads(answer[2])["result"]


def test_a_modern_server_checks_the_headers_against_the_body() -> None:
    with http_server("--era", "modern") as url:
        assert result(echo(url))["resultType"] == "complete"
        assert result(post(url, "server/discover", modern=True))["supportedVersions"] == ["2026-07-28"]
        for wrong in ({"Mcp-Name": "add"}, {"Mcp-Method": "tools/list"}):
            status, _, body = echo(url, headers=wrong)
            assert (status, json.loads(body)["error"]["code"]) == (400, -32020)
        assert echo(url, headers={"Mcp-Name": "=?base64?ZWNobw==?="})[0] == 200
        status, _, body = echo(url, modern=False)
        assert (status, json.loads(body)["error"]["code"]) == (400, -32602)
        assert post(url, "made/up", modern=True)[0] == 404
        with pytest.raises(urllib.error.HTTPError, match="405"), event_stream(url):
            pass


def test_a_legacy_server_keeps_sessions_and_forgets_deleted_ones() -> None:
    with http_server("--era", "legacy") as url:
        status, _, body = post(url, "server/discover", modern=True)
        assert (status, json.loads(body)["error"]["code"]) == (400, -32601)
        session = initialized(url)
        assert result(echo(url, modern=False, headers=session))["content"][0]["text"] == "hi"
        assert echo(url, modern=False)[0] == 400
        urllib.request.urlopen(urllib.request.Request(url, headers=session, method="DELETE"), timeout=5).close()
        assert echo(url, modern=False, headers=session)[0] == 404


def test_the_probe_may_be_refused_with_another_status() -> None:
    with http_server("--probe-status", 200, "--probe", "error-32602") as url:
        status, _, body = post(url, "server/discover", modern=True)
        assert (status, json.loads(body)["error"]["code"]) == (200, -32602)


def test_a_legacy_session_has_a_stream_for_changes() -> None:
    with http_server() as url:
        session = initialized(url)
        with event_stream(url, **session) as following:
            post(url, "tools/call", headers=session, name="grow", arguments={})
            assert json.loads(following())["method"] == "notifications/tools/list_changed"
    with http_server("--no-get-stream") as url:
        session = initialized(url)
        with pytest.raises(urllib.error.HTTPError, match="405"), event_stream(url, **session):
            pass


def test_a_dual_server_speaks_both_eras_at_one_address() -> None:
    with http_server("--era", "dual") as url:
        assert "resultType" in result(echo(url))
        assert "resultType" not in result(echo(url, modern=False, headers=initialized(url)))


def test_a_modern_listen_stream_carries_changes_until_it_is_closed() -> None:
    with http_server("--era", "modern") as url:
        host = url.removeprefix("http://").partition("/")[0]
        params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
        body = json.dumps({"jsonrpc": "2.0", "id": "listen-1", "method": "subscriptions/listen", "params": params})
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
        with contextlib.closing(http.client.HTTPConnection(host, timeout=5)) as connection:
            connection.request("POST", "/mcp", body, headers)
            stream = connection.getresponse()
            data = (json.loads(line[6:]) for line in stream if line.startswith(b"data: "))
            assert next(data)["method"] == "notifications/subscriptions/acknowledged"
            post(url, "tools/call", modern=True, name="grow", arguments={})
            assert next(data)["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "listen-1"


def test_the_old_transport_answers_on_its_stream() -> None:
    with http_server("--era", "sse", path="/sse") as url, event_stream(url) as following:
        assert post(url, "initialize")[0] == 405
        endpoint = url.removesuffix("/sse") + following()
        assert post(endpoint, "initialize")[0] == 202
        assert json.loads(following())["result"]["protocolVersion"] == "2024-11-05"


@pytest.mark.parametrize(("answers", "kind"), [("json", "application/json"), ("sse", "text/event-stream")])
def test_answers_come_as_asked(answers: str, kind: str) -> None:
    with http_server("--era", "modern", "--answers", answers) as url:
        status, headers, body = echo(url)
        assert (status, headers["content-type"]) == (200, kind)
        assert b'"text": "hi"' in body


def test_by_default_an_answer_becomes_a_stream_when_progress_comes_first() -> None:
    with http_server("--era", "modern") as url:
        token = {"progressToken": 5}
        status, headers, body = post(url, "tools/call", modern=True, name="slow", arguments={"seconds": 0}, _meta=token)
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert body.count(b'"progressToken": 5') == 4
        assert echo(url)[1]["content-type"] == "application/json"


def test_the_server_shows_what_it_received() -> None:
    with http_server("--era", "modern") as url:
        echo(url, headers={"X-Trace": "first"})
        seen = result(post(url, "tools/call", modern=True, name="seen_headers", arguments={}, headers={"X-Trace": "2"}))
        assert seen["structuredContent"]["headers"]["x-trace"] == "2"
        first = seen["structuredContent"]["requests"][0]
        assert first["headers"]["x-trace"] == "first"
        assert first["body"]["params"]["name"] == "echo"


def test_credentials_are_required_when_asked_for() -> None:
    with http_server("--era", "modern", "--require-bearer", "s3cret") as url:
        status, headers, _ = echo(url)
        assert status == 401
        assert headers["www-authenticate"].startswith("Bearer")
        assert echo(url, headers={"Authorization": "Bearer s3cret"})[0] == 200
    with http_server("--era", "modern", "--require-header", "X-Api-Key: k1") as url:
        assert echo(url)[0] == 401
        assert echo(url, headers={"X-Api-Key": "k1"})[0] == 200


STATUSES = {
    "accepted_202": 202,
    "redirect_other_host": 307,
    "redirect_same_origin": 307,
    "status_401": 401,
    "status_403": 403,
    "status_404": 404,
    "status_405": 405,
    "status_429": 429,
    "status_500": 500,
    "status_503": 503,
}
HEADERS = {
    "redirect_other_host": ("location", "http://127.0.0.2:9/mcp"),
    "redirect_same_origin": ("location", "/moved"),
    "status_401": ("www-authenticate", 'Bearer realm="test", error="invalid_token"'),
    "status_429": ("retry-after", "0"),
    "status_503": ("retry-after", "0"),
}
BODIES = {
    "bad_json": b'{"jsonrpc"',
    "broken_sse": b"event: message\r\ndata: {not json",
    "dropped_sse": b": keep-alive",
    "empty_answer": b"",
    "html_answer": b"<!doctype html>",
    "wrong_content_type": b'{"jsonrpc"',
}
FAILURES: dict[str, type[Exception]] = {
    "hang_body": TimeoutError,
    "hang_headers": TimeoutError,
    "hang_sse": TimeoutError,
    "reset_at_once": ConnectionResetError,
    "reset_mid_body": ConnectionResetError,
    "truncated_body": http.client.IncompleteRead,
}


@pytest.mark.parametrize("mode", sorted(STATUSES))
def test_a_fault_mode_answers_with_its_status(mode: str) -> None:
    with http_server("--era", "modern", "--mode", mode) as url:
        status, headers, _ = echo(url)
        assert status == STATUSES[mode]
        if mode in HEADERS:
            assert headers[HEADERS[mode][0]] == HEADERS[mode][1]


@pytest.mark.parametrize("mode", sorted(BODIES))
def test_a_fault_mode_answers_200_with_its_body(mode: str) -> None:
    with http_server("--era", "modern", "--mode", mode) as url:
        status, _, body = echo(url)
        assert status == 200
        assert body.startswith(BODIES[mode])


@pytest.mark.parametrize("mode", sorted(FAILURES))
def test_a_fault_mode_breaks_or_holds_the_exchange(mode: str) -> None:
    with http_server("--era", "modern", "--mode", mode) as url, pytest.raises(FAILURES[mode]):
        post(url, "tools/call", modern=True, name="echo", arguments={}, timeout_seconds=0.3)


def test_a_fault_can_be_limited_to_a_method_and_to_its_first_requests() -> None:
    with http_server("--era", "modern", "--mode", "status_503", "--on", "tools/call", "--times", 1) as url:
        assert post(url, "tools/list", modern=True)[0] == 200
        assert echo(url)[0] == 503
        assert echo(url)[0] == 200


def test_a_session_is_gone_after_some_calls() -> None:
    with http_server("--mode", "gone_session", "--after", 2, "--times", 1) as url:
        session = initialized(url)
        assert echo(url, modern=False, headers=session)[0] == 200
        assert echo(url, modern=False, headers=session)[0] == 200
        assert echo(url, modern=False, headers=session)[0] == 404
        again = initialized(url)
        assert [echo(url, modern=False, headers=again)[0] for _ in range(3)] == [200, 200, 200]


def test_a_redirect_to_the_same_origin_works_at_its_target() -> None:
    with http_server("--era", "modern", "--mode", "redirect_same_origin", path="/moved") as url:
        assert echo(url)[0] == 200


def test_a_held_call_is_cancelled_when_a_modern_client_closes_the_stream() -> None:
    with http_server("--era", "modern") as url:
        with pytest.raises(TimeoutError):
            post(url, "tools/call", modern=True, name="hang", arguments={}, timeout_seconds=0.2)
        cancelled: list[Any] = []
        done = threading.Event()
        while not cancelled and not done.wait(0.01):
            cancelled = result(post(url, "tools/call", modern=True, name="state", arguments={}))["structuredContent"][
                "cancelled"
            ]
        assert cancelled == [1]


def test_a_server_that_prints_no_port_is_reported_and_stopped() -> None:
    with pytest.raises(RuntimeError, match="printed no port"), running(["sh", "-c", "exit 4"]):
        pass
