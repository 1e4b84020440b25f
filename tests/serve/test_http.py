"""One endpoint over HTTP: its answers, which are those of the official SDK."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS

from tests.connect.targets import Json
from tests.serve.exchanges import (
    Answer,
    call,
    call_body,
    events,
    exchange,
    handshake,
    modern_headers,
)
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_by_the_sdk, served_http
from toolweave import connect_mcp, tool
from toolweave.errors import ConfigError
from toolweave.serve import create_mcp_server
from toolweave.serve._http.limits import HttpLimits
from toolweave.serve._http.options import CompleteHttpOptions, HttpOptions
from toolweave.serve._http.response import HTTP_STATUS

GOOD = json.loads(call_body("add", {"a": 1, "b": 2}))


def altered(**members: Any) -> bytes:
    return json.dumps({**GOOD, **members}).encode()


def with_params(**params: Any) -> bytes:
    return altered(params={**GOOD["params"], **params})


def with_meta(*without: str, **meta: Any) -> bytes:
    kept = {key: value for key, value in GOOD["params"]["_meta"].items() if key.rpartition("/")[2] not in without}
    return with_params(_meta={**kept, **meta})


@pytest.mark.requirement("C4", "R91")
async def test_a_modern_call_is_answered_with_the_result_itself_in_one_json_body() -> None:
    async with served_http(doing_server()) as url:
        answer = await call(url, "add", {"a": 2, "b": 3})

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {
            "content": [{"type": "text", "text": "5"}],
            "structuredContent": 5,
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "doing", "version": "1.2.3"}},
        },
    }


@pytest.mark.slow
@pytest.mark.requirement("C14")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(call_body("add", {"a": 1, "b": "x"}), id="wrong argument"),
        pytest.param(call_body("add", {"a": 1}), id="missing argument"),
        pytest.param(call_body("nobody"), id="unknown tool"),
        pytest.param(call_body("refuse"), id="tool error"),
        pytest.param(call_body("crash"), id="crash"),
        pytest.param(call_body("echo", {"value": [1, None, "ä\u2028", 1.5, 2**70]}), id="values"),
        pytest.param(call_body("steps", meta={"progressToken": "p"}), id="progress"),
        pytest.param(call_body("steps"), id="progress that nobody asked for"),
        pytest.param(with_params(arguments=None), id="arguments null"),
        pytest.param(with_params(arguments=[1]), id="arguments a list"),
        pytest.param(with_params(_meta=None), id="no meta"),
        pytest.param(with_meta("protocolVersion"), id="no version"),
        pytest.param(with_meta("clientCapabilities"), id="no capabilities"),
        pytest.param(with_meta("clientInfo"), id="no client info"),
        pytest.param(with_meta(**{"io.modelcontextprotocol/protocolVersion": "2027-01-01"}), id="other version"),
        pytest.param(altered(method="tools/list"), id="another method"),
        pytest.param(altered(id=None), id="id null"),
        pytest.param(altered(id=True), id="id true"),
        pytest.param(altered(jsonrpc="1.0"), id="jsonrpc 1.0"),
        pytest.param(altered(extra=1), id="extra member"),
        pytest.param(b"[" + call_body("add", {"a": 1, "b": 2}) + b"]", id="a batch"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
async def test_both_ways_answer_alike(body: bytes) -> None:
    try:
        name = json.loads(body)["params"]["name"]
    except (ValueError, KeyError, TypeError, RecursionError):
        name = "add"
    head = modern_headers(str(name))
    async with served_http(doing_server()) as short, served_by_the_sdk(doing_server()) as long:
        answers = [await exchange(url, headers=head, body=body) for url in (short, long)]

    assert comparable(answers[0]) == comparable(answers[1])


async def test_revisions_that_a_server_does_not_speak_have_no_method() -> None:
    legacy = doing_server()
    modern = doing_server()
    legacy.speak("legacy")
    modern.speak("2026-07-28")

    async with served_http(legacy) as old, served_http(modern) as new:
        refused = await call(old, "add", {"a": 2, "b": 3})
        refused_too, _ = await handshake(new)
        begun, _ = await handshake(old)
        called = await call(new, "add", {"a": 2, "b": 3})

    assert (refused.status, refused.json()["error"]["code"]) == (404, -32601)
    assert "error" in (events(refused_too.body) or [refused_too.json()])[0]
    assert (begun.status, called.status) == (200, 200)


def comparable(answer: Answer) -> object:
    """Return an answer without the words of a refusal, and the id of one that was no request: each has its own."""
    said = events(answer.body) if answer.status != 406 else []
    return answer.status, [one["error"]["code"] if "error" in one else one for one in said]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Mcp-Name": "other"}, id="another name"),
        pytest.param({"Mcp-Name": "-"}, id="no name"),
        pytest.param({"Mcp-Method": "tools/list"}, id="another method"),
        pytest.param({"Mcp-Method": "-"}, id="no method"),
        pytest.param({"MCP-Protocol-Version": "2027-01-01"}, id="another version"),
        pytest.param({"Accept": "-"}, id="no accept"),
        pytest.param({"Accept": "application/json"}, id="accepts JSON only"),
        pytest.param({"Accept": "*/*"}, id="accepts everything"),
        pytest.param({"Accept": "text/event-stream;q=0.5 , application/json;q=0.9"}, id="accepts both with weights"),
        pytest.param({"Mcp-Name": "=?base64?YWRk?="}, id="base64"),
        pytest.param({"Mcp-Name": "=?base64?YWR?="}, id="broken base64"),
        pytest.param({"Mcp-Name": "=?base64?YWRk"}, id="unfinished base64"),
        pytest.param({"X-Twice": "1\r\nMcp-Name: add"}, id="the name twice"),
        pytest.param({"Mcp-Param-A": "1"}, id="a mirrored argument that nobody declared"),
    ],
)
async def test_both_ways_judge_headers_alike(headers: dict[str, str]) -> None:
    async with served_http(doing_server()) as short, served_by_the_sdk(doing_server()) as long:
        answers = [await call(url, "add", {"a": 1, "b": 2}, headers=headers) for url in (short, long)]

    assert comparable(answers[0]) == comparable(answers[1])


@pytest.mark.parametrize("name", ["nobody", "grüße", "=?base64?YWRk?=", " padded "])
async def test_a_name_in_base64_is_the_name(name: str) -> None:
    encoded = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    body = call_body(name)
    async with served_http(doing_server()) as url:
        found = await exchange(url, headers={**modern_headers("-"), "Mcp-Name": encoded}, body=body)
        other = await exchange(url, headers={**modern_headers("-"), "Mcp-Name": encoded}, body=call_body("other"))

    assert found.json()["error"]["message"] == f"Unknown tool: {name}"
    assert (other.status, other.json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (altered(id=True), -32600),
        (altered(id=None), -32600),
        (altered(id=1.5), -32600),
        (altered(jsonrpc="1.0"), -32600),
        (altered(method="tools/list"), -32020),
        (altered(params=[]), -32600),
        (with_params(name=None), -32602),
        (with_params(name="other"), -32020),
        (with_params(arguments=[1]), -32602),
        (with_params(inputResponses=[]), -32602),
        (with_params(requestState=1), -32602),
        (with_params(_meta=[]), -32602),
        (with_meta("protocolVersion"), -32602),
        (with_meta("clientCapabilities"), -32602),
        (with_meta(**{"io.modelcontextprotocol/clientCapabilities": {"sampling": 1}}), -32602),
        (with_meta(**{"io.modelcontextprotocol/clientInfo": {"name": "x"}}), -32602),
        (with_meta(**{"io.modelcontextprotocol/clientInfo": "x"}), -32602),
        (with_meta(**{"io.modelcontextprotocol/logLevel": "loud"}), -32602),
        (with_meta(progressToken=1.5), -32602),
        (with_meta(progressToken=True), -32602),
        (b"[]", -32600),
        (b"", -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
    ],
)
async def test_a_message_that_is_not_valid_is_refused_and_calls_nothing(body: bytes, code: int) -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        answer = await exchange(url, headers=modern_headers("add"), body=body)

    assert (answer.status, answer.json()["error"]["code"]) == (400, code)
    assert doings.calls == 0


async def test_a_message_with_other_members_is_valid() -> None:
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers=modern_headers("add"), body=altered(more=1))

    assert answer.json()["result"]["structuredContent"] == 3


async def test_a_tool_that_mirrors_arguments_has_its_headers_checked() -> None:
    @tool(input_schema={"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}})
    def place(arguments: dict[str, str]) -> str:
        """Say where."""
        return arguments["region"]

    async with served_http(create_mcp_server(name="s", version="1", tools=[place])) as url:
        missing = await call(url, "place", {"region": "eu"})
        wrong = await call(url, "place", {"region": "eu"}, headers={"Mcp-Param-Region": "us"})
        right = await call(url, "place", {"region": "eu"}, headers={"Mcp-Param-Region": "eu"})

    assert [one.status for one in (missing, wrong, right)] == [400, 400, 200]
    assert [one.json()["error"]["code"] for one in (missing, wrong)] == [-32020, -32020]


@pytest.mark.requirement("R83", "C21")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_one_endpoint_serves_every_revision(version: str) -> None:
    async with served_http(doing_server()) as url, connect_mcp({"url": url, "protocol": version}) as connection:
        result = await connection.call_tool("add", {"a": 20, "b": 22})

        assert result.text == "42"


@pytest.mark.requirement("C21")
async def test_a_stateless_endpoint_gives_handshake_era_clients_no_session() -> None:
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).encode()
    async with (
        served_http(doing_server(), stateless=True) as first,
        served_http(doing_server(), stateless=True) as other,
    ):
        answer, session = await handshake(first)
        elsewhere = await exchange(other, headers=session, body=body)

    assert answer.status == 200
    assert "mcp-session-id" not in answer.headers
    assert events(elsewhere.body)[-1]["result"]["content"] == [{"type": "text", "text": "3"}]


async def test_with_json_response_no_answer_is_a_stream() -> None:
    async with served_http(doing_server(), json_response=True) as url:
        modern = await call(url, "steps", meta={"progressToken": 1})
        legacy, _ = await handshake(url)

    assert modern.headers["content-type"] == legacy.headers["content-type"] == "application/json"
    assert modern.json()["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_the_health_path_says_ok_and_nothing_of_the_server() -> None:
    async with served_http(doing_server()) as url:
        health = url.removesuffix("/mcp") + "/healthz"
        answers = [await exchange(health, "GET", headers={"Host": host}) for host in ("10.0.0.7:8000", "-")]
        posted = await exchange(health, body=b"{}")

    assert (answers[0].status, answers[0].body) == (200, b"ok")
    assert posted.status == 405
    assert "doing" not in repr(answers)


async def test_other_paths_do_not_exist() -> None:
    async with served_http(doing_server(), path="/api/mcp") as url:
        statuses = [
            (await exchange(url, path=path)).status for path in ("/mcp", "/", "/api", "/api/mcp/x", "//api/mcp")
        ]
        found = await exchange(
            url, path="/api/mcp/", headers=modern_headers("add"), body=call_body("add", {"a": 1, "b": 1})
        )

    assert statuses == [404] * 5
    assert found.status == 200


async def test_middleware_stands_behind_the_guard_and_before_the_endpoint() -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        def wrap(app: Any) -> Any:
            async def noted(scope: Any, receive: Any, send: Any) -> None:
                seen.append(name)
                await app(scope, receive, send)

            return noted

        return wrap

    async with served_http(doing_server(), middleware=[noting("outer"), noting("inner")]) as url:
        await call(url, "add", {"a": 1, "b": 1}, headers={"Host": "evil.example"})
        assert seen == []
        await call(url, "add", {"a": 1, "b": 1})

    assert seen == ["outer", "inner"]


def adding(header: Any) -> Any:
    """Return middleware that adds a header to each response."""

    def wrap(app: Any) -> Any:
        async def added(scope: Any, receive: Any, send: Any) -> None:
            async def sending(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message["headers"], header]}
                await send(message)

            await app(scope, receive, sending)

        return added

    return wrap


@pytest.mark.parametrize(
    "header",
    [(b"X-Kind", b"tool"), [b"x-kind", b"tool"], (b"connection", b"close")],
    ids=["a pair", "a list", "close"],
)
@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_response_is_whole_whatever_middleware_makes_of_its_head(size: int, header: Any) -> None:
    server = create_mcp_server(name="sized", version="1", tools=[tool(sized)])
    async with served_http(server, middleware=[adding(header)]) as url:
        answer = await call(url, "sized", {"size": size})

    assert answer.status == 200
    assert answer.json()["result"]["content"][0]["text"] == "x" * size
    assert answer.headers[header[0].decode().lower()] == header[1].decode()


async def test_a_header_of_middleware_that_would_be_two_is_not_sent() -> None:
    async with served_http(doing_server(), middleware=[adding((b"x-kind", b"tool\r\nx-other: 1"))]) as url:
        answer = await call(url, "add", {"a": 1, "b": 1})

    assert answer.status == 500
    assert answer.body == b"Internal Server Error"
    assert {"x-kind", "x-other"}.isdisjoint(answer.headers)


def sized(size: int) -> str:
    """Return a text of a size."""
    return "x" * size


@pytest.mark.parametrize(
    "options",
    [
        {"path": "mcp"},
        {"path": "/healthz"},
        {"cors_origins": ["*"]},
        {"allowed_origins": ["https://app.example/"]},
        {"allowed_origins": ["app.example"]},
    ],
)
async def test_a_wrong_option_is_refused_before_anything_is_served(options: Any) -> None:
    with pytest.raises(ConfigError):
        doing_server().asgi_app(**options)


@pytest.mark.parametrize("name", ["body_bytes", "connections", "header_seconds", "sessions"])
async def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        HttpLimits(**{name: 0})


async def test_the_calls_of_one_connection_are_answered_in_turn() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url, connect_mcp({"url": url}) as connection:
        for number in range(20):
            assert (await connection.call_tool("add", {"a": number, "b": 1})).text == str(number + 1)

    assert doings.calls == 20


async def test_errors_have_the_http_status_that_the_sdk_gives_them() -> None:
    assert dict(ERROR_CODE_HTTP_STATUS) == HTTP_STATUS


async def test_the_options_and_their_defaults_name_the_same_things() -> None:
    assert HttpOptions.__annotations__.keys() == {field.name for field in dataclasses.fields(CompleteHttpOptions)}


async def test_a_websocket_is_closed() -> None:
    sent: list[Json] = []

    async def nothing() -> Json:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await doing_server().asgi_app()({"type": "websocket", "path": "/mcp"}, nothing, send)

    assert sent == [{"type": "websocket.close", "code": 1000}]
