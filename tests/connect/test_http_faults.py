"""Every way in which an HTTP server misbehaves, and what its user sees of it; in both eras."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.connect.targets import MODERN, connected, eventually, state_of
from tests.openapi.mock_api import MockApi, MockResponse, serving
from tests.servers.fixtures import http_server
from toolweave import (
    AuthRequiredError,
    CallContext,
    ConnectError,
    ConnectionLostError,
    ErrorKind,
    ProtocolError,
    RequestTimeoutError,
    ToolCall,
    connect_mcp,
)
from toolweave.connect import ConnectionState
from toolweave.errors import ServerError
from toolweave.testing.servers import HTTP_FAULTS


class Case(NamedTuple):
    """What one fault looks like: what its error says, and the kind of error of a call; None where nothing is lost."""

    says: str
    kind: ErrorKind | None
    connecting: type[ServerError] = ConnectError
    status: int | None = None


LOST, ODD, SLOW, AUTH = (
    ErrorKind.OUTCOME_UNKNOWN,
    ErrorKind.PROTOCOL,
    ErrorKind.TIMEOUT,
    ErrorKind.AUTH_REQUIRED,
)
LATE = Case("no answer to the call of tool 'fail' within 0.4 s|did not finish connecting", SLOW, RequestTimeoutError)
FINE = Case("", None)

CASES = {
    "accepted_202": Case("answered a request with 202 Accepted", LOST),
    "bad_json": Case("its answer is not valid JSON: {", ODD, status=200),
    "broken_sse": Case("its event stream holds an event that is not a JSON-RPC message$", ODD),
    "dropped_sse": Case("SSE stream ended without a response", LOST),
    "empty_answer": Case("its answer is not valid JSON", ODD, status=200),
    "gone_session": FINE,
    "hang_body": LATE,
    "hang_headers": LATE,
    "hang_sse": LATE,
    "html_answer": Case(r"HTTP 200 .*with a web page 'Log in' \(text/html\) where JSON", ODD, status=200),
    "redirect_other_host": Case("Redirect to http://127.0.0.2:9/mcp not followed; use that URL", ODD, status=307),
    "redirect_same_origin": FINE,
    "reset_at_once": Case(r"no answer from http://127.0.0.1:\d+/mcp: ReadError", LOST),
    "reset_mid_body": Case(r"no answer from http://127.0.0.1:\d+/mcp: ReadError", LOST),
    "status_401": Case("HTTP 401 Unauthorized: who are you[?]; set 'auth' or 'headers'", AUTH, AuthRequiredError, 401),
    "status_403": Case("HTTP 403 .*: not you; set 'auth' or 'headers'", AUTH, AuthRequiredError, 403),
    "status_404": Case("HTTP 404 .*: <h1>Not Found</h1>", ODD),
    "status_405": Case("HTTP 405", ODD),
    "status_429": Case("HTTP 429 .*: slow down", ODD, status=429),
    "status_500": Case("HTTP 500 .*: Internal Server Error: database is locked", ODD, status=500),
    "status_503": Case("HTTP 503 .*: back soon", ODD, status=503),
    "truncated_body": Case("no answer from .*peer closed connection without sending complete message body", LOST),
    "wrong_content_type": FINE,
}
FALLS_BACK = ("status_404", "status_405")
ERAS = ("2025-11-25", MODERN)
BOUNDS = {"connect": 20, "probe": 5, "list": 20, "call": 20}


@pytest.fixture(autouse=True)
def _quiet_sdk() -> Iterator[None]:
    """The SDK logs what it cannot parse; that is not what is tested here."""
    logger = logging.getLogger("mcp")
    before, logger.level = logger.level, logging.CRITICAL
    yield
    logger.level = before


def test_every_fault_has_its_expectation() -> None:
    assert set(CASES) <= set(HTTP_FAULTS)


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("mode", [mode for mode in CASES if mode != "status_401"])  # concerns every call to come
@pytest.mark.requirement("R65", "R68", "R69")
async def test_a_fault_of_one_call_costs_that_call_only(mode: str, version: str) -> None:
    case = CASES[mode]
    if mode == "status_404" and version != MODERN:
        case = Case("its session has ended: HTTP 404 .*: <h1>Not Found</h1>", ErrorKind.NOT_SENT)
    bounds = BOUNDS | ({"call": 0.4} if case is LATE else {})
    times = 1 if mode == "gone_session" else 0
    async with connected(
        http_server("--mode", mode, "--on", "tools/call", "--times", times, "--version", version),
        name="faulty",
        timeout=bounds,
    ) as connection:
        call = ToolCall(name="fail", arguments={"message": "on purpose"})
        result = await connection.call(call, CallContext())
        resources = await connection.list_resources()

        assert connection.state is ConnectionState.READY

    assert len(resources) == 3
    assert result.error is not None
    if case.kind is None:
        assert result.text == "on purpose"
        return
    assert result.error.kind == case.kind
    assert re.search(case.says, result.error.message, re.DOTALL), result.error.message
    assert result.text.startswith("MCP error: server 'faulty': ")
    if case.status is not None and case.kind is ODD:
        assert result.error.data["http_status"] == case.status


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("mode", [mode for mode in CASES if CASES[mode].kind is not None])
@pytest.mark.requirement("R59", "R69")
async def test_a_fault_of_every_answer_is_an_error_of_connecting_that_says_why(mode: str, version: str) -> None:
    case = CASES[mode]
    bounds = BOUNDS | ({"connect": 0.8, "probe": 0.2} if case is LATE else {})
    with http_server("--mode", mode, "--version", version) as url, pytest.raises(case.connecting) as failure:
        await connect_mcp(url, name="faulty", timeout=bounds)
    assert str(failure.value).startswith("server 'faulty': ")
    assert re.search(case.says, str(failure.value), re.DOTALL), str(failure.value)
    fell_back = "nor does it answer as a server of the older HTTP+SSE transport" in str(failure.value)
    assert fell_back == (mode in FALLS_BACK)
    if isinstance(failure.value, ConnectError) and mode not in FALLS_BACK:
        assert failure.value.status == case.status


@pytest.mark.parametrize("mode", ["bad_json", "status_500", "dropped_sse", "reset_mid_body", "hang_sse"])
async def test_a_fault_of_the_listing_degrades_and_the_calls_go_on(mode: str) -> None:
    bounds = BOUNDS | {"list": 0.5} if mode == "hang_sse" else BOUNDS
    async with connected(
        http_server("--mode", mode, "--on", "tools/list", "--times", 1, "--version", MODERN), timeout=bounds
    ) as connection:
        assert connection.state is ConnectionState.DEGRADED
        assert connection.error is not None
        assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"

        tools = await connection.list_tools()
        assert connection.state is ConnectionState.READY
        assert "echo" in tools


async def test_a_challenge_and_a_wait_are_told_to_the_caller() -> None:
    async with connected(http_server("--mode", "status_401", "--on", "tools/call")) as connection:
        with pytest.raises(AuthRequiredError) as refused:
            await connection.call_tool("echo", {"text": "x"})
    assert (refused.value.status, refused.value.challenge) == (401, 'Bearer realm="test", error="invalid_token"')

    async with connected(http_server("--mode", "status_429", "--on", "tools/call", "--retry-after", 7)) as connection:
        with pytest.raises(ProtocolError) as busy:  # a wait that would pass the deadline is not begun
            await connection.call_tool("echo", {"text": "x"}, timeout=3)
    assert busy.value.data == {"http_status": 429, "retry_after": "7"}


@pytest.mark.parametrize("busy", ["status_429", "status_503"])
@pytest.mark.parametrize("at", ["server/discover", "initialize", "tools/list", "tools/call"])
async def test_a_server_that_says_when_to_come_back_is_asked_again_then(busy: str, at: str) -> None:
    era = "legacy" if at == "initialize" else "modern"
    async with connected(
        http_server("--era", era, "--mode", busy, "--on", at, "--times", 2, "--retry-after", 0)
    ) as connection:
        result = await connection.call_tool("echo", {"text": "x"})
        assert result.text == "x"
        assert connection.problems == ()
        assert (await state_of(connection))["calls"]["echo"] == 1


@pytest.mark.parametrize(("times", "succeeds"), [(3, True), (4, False)])
async def test_a_call_that_is_refused_for_a_while_is_sent_again_three_times(times: int, succeeds: bool) -> None:
    refusing = ("--mode", "status_429", "--on", "tools/call", "--times", times, "--retry-after", 0)
    async with connected(http_server(*refusing)) as connection:
        if succeeds:
            assert (await connection.call_tool("echo", {"text": "x"})).text == "x"
        else:
            with pytest.raises(ProtocolError, match="HTTP 429"):
                await connection.call_tool("echo", {"text": "x"})


async def test_the_time_to_come_back_may_be_a_date_and_what_is_neither_is_no_time() -> None:
    past = "Sun, 06 Nov 1994 08:49:37 GMT"
    async with connected(
        http_server("--mode", "status_503", "--on", "tools/call", "--times", 1, "--retry-after", past)
    ) as connection:
        assert (await connection.call_tool("echo", {"text": "x"})).text == "x"

    async with connected(
        http_server("--mode", "status_503", "--on", "tools/call", "--times", 1, "--retry-after", "soon")
    ) as connection:
        with pytest.raises(ProtocolError, match="HTTP 503"):
            await connection.call_tool("echo", {"text": "x"})


async def test_a_server_that_wants_credentials_is_not_tried_again() -> None:
    connection = await connect_mcp("http://127.0.0.1:9/mcp", lazy=True)
    await connection.close()
    with http_server("--require-bearer", "sesame") as url:
        connection = await connect_mcp(url, lazy=True)
        with pytest.raises(AuthRequiredError, match="HTTP 401"):
            await connection.list_tools()
        assert connection.state is ConnectionState.AUTH_REQUIRED
        with pytest.raises(AuthRequiredError):
            await connection.call_tool("echo", {"text": "x"})
        assert connection.restarts == 0
        await connection.close()


async def test_a_port_where_nobody_listens_is_named() -> None:
    with http_server() as url:
        pass
    with pytest.raises(ConnectError, match=rf"no answer from {re.escape(url)}: ConnectError"):
        await connect_mcp(url, name="nobody")


async def test_a_server_that_went_away_is_reported_as_not_sent_and_found_again() -> None:
    with http_server("--version", MODERN) as url:
        connection = await connect_mcp(url)
    with pytest.raises(ConnectionLostError) as lost:
        await connection.call_tool("fail")
    assert not lost.value.sent
    port = int(url.rpartition(":")[2].partition("/")[0])
    with http_server("--version", MODERN, "--port", port):
        assert (await connection.call_tool("echo", {"text": "back"})).text == "back"
        await connection.close()


@pytest.mark.parametrize("use", ["list_resources", "refresh", "ping", "list_prompts"])
async def test_a_forgotten_session_costs_no_request_of_any_kind(use: str) -> None:
    async with connected(http_server("--version", "2025-11-25", "--mode", "gone_session", "--times", 1)) as connection:
        await connection.call_tool("echo", {"text": "after this the session is forgotten"})
        await getattr(connection, use)()
        assert connection.restarts == 1
        assert (await state_of(connection))["methods"].count("initialize") == 2


@pytest.mark.slow
async def test_broken_listen_streams_are_opened_again() -> None:
    async with connected(
        http_server("--version", MODERN, "--mode", "dropped_sse", "--on", "subscriptions/listen", "--times", 1)
    ) as connection:

        async def listening() -> bool:
            return (await state_of(connection))["listening"] == 1

        await eventually(listening)
        assert connection.state is ConnectionState.READY


ERROR_BODIES: dict[str, tuple[object, str]] = {
    "an empty object": ({}, "HTTP 401 Unauthorized; set 'auth'"),
    "an empty list": ([], "HTTP 401 Unauthorized; set 'auth'"),
    "null": (None, "HTTP 401 Unauthorized; set 'auth'"),
    "nothing": (b"", "HTTP 401 Unauthorized; set 'auth'"),
    "an OAuth error": (
        {"error": "invalid_token", "error_description": "it has expired"},
        "HTTP 401 Unauthorized: invalid_token: it has expired; set 'auth'",
    ),
    "a description alone": ({"error_description": "no token"}, "HTTP 401 Unauthorized: no token; set 'auth'"),
    "an error object": ({"error": {"code": 3, "message": "no key"}}, "HTTP 401 Unauthorized: no key; set 'auth'"),
    "a message": ({"message": "no key", "request": "1"}, "HTTP 401 Unauthorized: no key; set 'auth'"),
    "a detail": ({"detail": "Not authenticated"}, "HTTP 401 Unauthorized: Not authenticated; set 'auth'"),
    "words of another kind": ({"error": "denied"}, """HTTP 401 Unauthorized: {"error": "denied"}; set 'auth'"""),
    "words that are no text": ({"detail": [1]}, """HTTP 401 Unauthorized: {"detail": [1]}; set 'auth'"""),
    "half an object": (b'{"error": ', """HTTP 401 Unauthorized: {"error":; set 'auth'"""),
    "a secret": ({"message": "hunter2-hunter2 is no key"}, "HTTP 401 Unauthorized: *** is no key; set 'auth'"),
}


@pytest.mark.parametrize("body, text", ERROR_BODIES.values(), ids=list(ERROR_BODIES))
async def test_an_error_shows_the_words_of_a_body_and_nothing_of_an_empty_one(body: object, text: str) -> None:
    api = MockApi({})
    api.answers["/mcp"] = MockResponse(body, 401)
    with serving(api) as url, pytest.raises(AuthRequiredError) as refused:
        async with connect_mcp(f"{url}/mcp", name="keyed", auth="hunter2-hunter2"):
            pass

    assert str(refused.value).startswith(f"server 'keyed': {text}")
