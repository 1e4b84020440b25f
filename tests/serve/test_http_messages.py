"""Messages over HTTP by hand: those that contradict themselves, those that are not messages, batches, and lists."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serve.carriers import ERAS, connected
from tests.serve.exchanges import (
    BOTH,
    ENVELOPE,
    Answer,
    call_body,
    events,
    exchange,
    handshake,
    initialize_body,
    modern_headers,
)
from tests.serve.exchanges import connected as streaming
from tests.serve.exchanges import head as headed
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_by_the_sdk, served_http
from toolweave import CallContext, ToolError, create_mcp_server, tool
from toolweave.gateway import create_gateway
from toolweave.serve import McpServer

VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
LIST = call_body("", method="tools/list")
PREFIX = "io.modelcontextprotocol/"
TAKES_TASKS: dict[str, Any] = {f"{PREFIX}clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


def offering_everything() -> McpServer:
    server = doing_server(tasks={"wait": "optional"})
    server.prompt(name="a")(_constant)
    server.resource("notes://a", name="a")(_constant)
    return server


def _constant() -> str:
    return "text"


def listing(**headers: str) -> dict[str, str]:
    sent = {**modern_headers("", "tools/list"), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {name: value for name, value in sent.items() if value != "-"}


def refusal(answer: Answer) -> tuple[int, Any, int]:
    said = answer.json()
    return answer.status, said["id"], said["error"]["code"]


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "-"])
async def test_a_version_header_that_contradicts_the_body_or_is_missing_is_a_mismatch(version: str) -> None:
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers=listing(MCP_Protocol_Version=version), body=LIST)

    assert refusal(answer) == (400, 7, -32020)


@pytest.mark.parametrize("relayed", [False, True], ids=["server", "gateway"])
async def test_a_name_that_is_not_a_string_is_an_invalid_parameter(relayed: bool) -> None:
    offered = offering_everything()
    if relayed:
        offered = create_gateway({"up": {"server": offered, "tool_prefix": ""}})
    async with served_http(offered) as url:
        for method, parameter in NAMED.items():
            for value in (5, True, ["5"], {"5": 5}, None):
                for name in ("5", "-"):
                    params: dict[str, Any] = {"_meta": {**ENVELOPE, **TAKES_TASKS}, parameter: value}
                    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
                    body = json.dumps(message).encode()
                    answer = await exchange(url, headers=listing(Mcp_Method=method, Mcp_Name=name), body=body)

                    assert refusal(answer) == (400, 7, -32602), (method, value, name)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Mcp-Method": "tools/call"}, LIST),
        ({"Mcp-Method": "-"}, LIST),
        ({"MCP-Protocol-Version": "2099-01-01"}, LIST),
        ({"X-Twice": "1\r\nMcp-Method: tools/list"}, LIST),
        ({"Mcp-Method": "prompts/get", "Mcp-Name": "a"}, call_body("", method="prompts/get", name="b")),
        ({"Mcp-Method": "resources/read"}, call_body("", method="resources/read", uri="a://b")),
    ],
)
async def test_headers_that_do_not_repeat_the_body_are_a_mismatch(headers: dict[str, str], body: bytes) -> None:
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers={**listing(), **headers}, body=body)

    assert refusal(answer) == (400, 7, -32020)


@pytest.mark.parametrize("member", [{"result": {}}, {"error": {"code": 1, "message": "x"}}])
async def test_a_message_with_a_method_is_a_request_though_it_has_a_result(member: dict[str, Any]) -> None:
    request = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
    }
    async with served_http(doing_server()) as url:
        _, session = await handshake(url)
        answer = await exchange(url, headers=session, body=json.dumps({**request, **member}).encode())

    assert answer.status == 200
    assert answer.json()["result"]["content"][0]["text"] == "3"


@pytest.mark.requirement("R83")
async def test_an_unknown_revision_is_refused_with_all_that_are_served_as_discover_lists_them() -> None:
    unknown = call_body("", method="tools/list", meta={PREFIX + "protocolVersion": "2099-01-01"})
    async with served_http(doing_server()) as url:
        refused = await exchange(url, headers=listing(MCP_Protocol_Version="2099-01-01"), body=unknown)
        head = modern_headers("", "server/discover")
        found = await exchange(url, headers=head, body=call_body("", method="server/discover"))
        note = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
        refused_note = await exchange(url, headers=listing(MCP_Protocol_Version="2099-01-01"), body=note)
        taken = await exchange(url, headers=listing(), body=note)

    assert refusal(refused) == (400, 7, -32022)
    assert refused.json()["error"]["data"] == {"supported": VERSIONS, "requested": "2099-01-01"}
    assert found.json()["result"]["supportedVersions"] == VERSIONS
    assert (refused_note.status, refused_note.json()["error"]["code"], taken.status, taken.body) == (
        400,
        -32022,
        202,
        b"",
    )


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("clientCapabilities", "x"),
        ("clientCapabilities", [1]),
        ("clientCapabilities", None),
        ("clientInfo", "x"),
        ("clientInfo", {"name": "x"}),
        ("clientInfo", {"name": "x", "version": 1}),
        ("logLevel", "loud"),
        ("logLevel", []),
    ],
)
async def test_a_malformed_member_of_the_envelope_is_refused(member: str, value: Any) -> None:
    body = call_body("", method="tools/list", meta={PREFIX + member: value})
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers=listing(), body=body)

    assert refusal(answer) == (400, 7, -32602)
    assert member in answer.json()["error"]["message"]


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "-"])
@pytest.mark.parametrize(
    ("members", "key"),
    [
        ({"params": []}, 7),
        ({"method": 5}, 7),
        ({"jsonrpc": "1.0"}, 7),
        ({"jsonrpc": "1.0", "id": "a"}, "a"),
        ({"jsonrpc": "1.0", "id": 10**40}, 10**40),
        ({"id": None}, None),
        ({"id": True}, None),
        ({"id": 1.5}, None),
    ],
)
async def test_what_is_no_request_is_refused_with_its_id_where_that_can_be_read(
    members: dict[str, Any], key: Any, version: str
) -> None:
    body = json.dumps({**json.loads(LIST), **members}).encode()
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers=listing(MCP_Protocol_Version=version), body=body)

    assert refusal(answer) == (400, key, -32600)


@pytest.mark.parametrize("body", [b'{"jsonrpc": "2.0", "id": 7, "result": {}}', b'{"jsonrpc": "2.0"}', b"[]", b"5"])
async def test_what_asks_for_nothing_is_refused_in_the_stateless_era(body: bytes) -> None:
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers=listing(), body=body)

    assert refusal(answer) == (400, None, -32600)


async def test_a_content_encoding_is_refused_before_anything_is_read() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        head = {**modern_headers("add"), "Content-Encoding": "gzip"}
        answer = await exchange(url, headers=head, body=call_body("add", {"a": 1, "b": 2}))
        plain = {**modern_headers("add"), "Content-Encoding": "identity"}
        taken = await exchange(url, headers=plain, body=call_body("add", {"a": 1, "b": 2}))

    assert (answer.status, answer.body) == (415, b"Content-Encoding is not supported")
    assert taken.status == 200
    assert doings.calls == 1


# batches


def request(key: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "method": method, "params": params}


def note(method: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method}


async def began(url: str, version: str = "2025-03-26") -> dict[str, str]:
    """Begin a session as a client of 2025-03-26 does, which knows no version header; return its headers."""
    head = {"Content-Type": "application/json", "Accept": BOTH}
    answer = await exchange(url, headers=head, body=initialize_body(version))
    if "mcp-session-id" in answer.headers:
        head["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
    taken = await exchange(url, headers=head, body=json.dumps([note("notifications/initialized")]).encode())
    assert (taken.status, taken.body) == (202, b"")
    return head


async def posted(url: str, head: dict[str, str], members: list[Any]) -> Answer:
    return await exchange(url, headers=head, body=json.dumps(members).encode())


@pytest.mark.requirement("R83")
@pytest.mark.parametrize("stateless", [False, True])
async def test_a_batch_of_2025_03_26_is_answered(stateless: bool) -> None:
    members = [
        request(1, "ping"),
        note("notifications/cancelled"),
        request("two", "tools/call", name="add", arguments={"a": 1, "b": 2}),
        request(3, "tools/call", name="steps", arguments={}, _meta={"progressToken": "p"}),
        request(4, "no/such/method"),
    ]
    async with served_http(doing_server(), stateless=stateless) as url:
        head = await began(url)
        answer = await posted(url, head, members)
        said = await posted(url, {**head, "MCP-Protocol-Version": "2025-03-26"}, [request(1, "ping")])

    found = events(answer.body)
    answers = {one["id"]: one for one in found if "method" not in one}
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answers.keys() == {1, "two", 3, 4}
    assert answers["two"]["result"]["content"] == [{"type": "text", "text": "3"}]
    assert answers[4]["error"]["code"] == -32601
    assert any(one.get("method") == "notifications/progress" for one in found)
    assert events(said.body) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_a_batch_is_answered_by_an_array_where_no_answer_is_a_stream() -> None:
    async with served_http(doing_server(), json_response=True) as url:
        head = await began(url)
        answer = await posted(url, head, [request(1, "ping"), request(2, "ping"), note("notifications/x")])

    assert answer.headers["content-type"] == "application/json"
    assert sorted(one["id"] for one in json.loads(answer.body)) == [1, 2]


async def test_a_call_in_a_batch_may_ask_its_client() -> None:
    server = create_mcp_server(name="s", version="1")

    @server.tool
    async def ask(ctx: CallContext) -> str:
        """Ask for the roots."""
        return str([root.uri for root in await ctx.list_roots()])

    hello = json.loads(initialize_body("2025-03-26"))
    hello["params"]["capabilities"] = {"roots": {}}
    head = {"Content-Type": "application/json", "Accept": BOTH}
    async with served_http(server) as url:
        hi = await exchange(url, headers=head, body=json.dumps(hello).encode())
        head["Mcp-Session-Id"] = hi.headers["mcp-session-id"]
        await exchange(url, headers=head, body=json.dumps(note("notifications/initialized")).encode())

        body = json.dumps([request(5, "tools/call", name="ask", arguments={})]).encode()
        reply = {"jsonrpc": "2.0", "id": 1, "result": {"roots": [{"uri": "file:///a"}]}}
        async with streaming(url) as stream:
            await stream.send(headed(url, headers={**head, "Content-Length": str(len(body))}) + body)
            seen = b""
            while b"roots/list" not in seen:
                seen += await stream.receive()
            taken = await exchange(url, headers=head, body=json.dumps(reply).encode())
            async for chunk in stream:
                seen += chunk

    assert taken.status == 202
    assert b"['file:///a']" in seen


@pytest.mark.parametrize(
    ("version", "members"),
    [
        ("2025-11-25", [request(1, "ping")]),
        ("2026-07-28", [request(1, "ping")]),
        ("-", [request(1, "tools/list", _meta=ENVELOPE)]),
        ("-", [json.loads(initialize_body("2025-03-26"))]),
        ("-", [request(1, "ping"), 5]),
        ("-", [request(number, "ping") for number in range(101)]),
        ("-", []),
    ],
)
async def test_a_batch_that_is_none_is_refused_as_a_whole(version: str, members: list[Any]) -> None:
    async with served_http(doing_server()) as url:
        head = {**await began(url), "MCP-Protocol-Version": version}
        answer = await posted(url, head, members)

    assert refusal(answer) == (400, None, -32600)


async def test_a_batch_of_no_session_is_refused_as_its_messages_are() -> None:
    async with served_http(doing_server()) as url:
        head = {"Content-Type": "application/json", "Accept": BOTH, "Mcp-Session-Id": "unknown"}
        answer = await posted(url, head, [request(1, "ping"), request(2, "ping")])

    assert answer.status == 404


# lists


@pytest.mark.parametrize("carrier", ["http", "inprocess"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_list_that_was_listed_before_shows_what_came_and_went(carrier: str, era: str) -> None:
    server = create_mcp_server(name="s", version="1", page_size=2)
    for number in range(5):
        server.tool(tool(lambda: "x", name=f"tool_{number}", description=f"{number}"))

    async with connected(server, carrier, era) as connection:
        first = (await connection.list_tools()).names
        again = (await connection.list_tools()).names
        server.remove_tool("tool_1")
        server.tool(tool(lambda: "x", name="newest"))
        await connection.refresh()
        changed = (await connection.list_tools()).names

    assert first == again == tuple(f"tool_{number}" for number in range(5))
    assert changed == ("tool_0", "tool_2", "tool_3", "tool_4", "newest")


async def test_every_page_is_the_same_whoever_answers_and_however_often() -> None:
    server = create_mcp_server(name="s", version="1", page_size=2, ttl_ms=5)
    for number in range(3):
        server.tool(tool(lambda: "x", name=f"tool_{number}", description=f"{number}"))
    pages: list[Any] = []
    async with served_http(server) as url:
        for _ in range(2):
            first = (await exchange(url, headers=listing(), body=LIST)).json()["result"]
            more = call_body("", method="tools/list", cursor=first["nextCursor"])
            pages.append((first, (await exchange(url, headers=listing(), body=more)).json()["result"]))
        bad = await exchange(url, headers=listing(), body=call_body("", method="tools/list", cursor="bad"))

    assert pages[0] == pages[1]
    assert [[one["name"] for one in page["tools"]] for page in pages[0]] == [["tool_0", "tool_1"], ["tool_2"]]
    assert (pages[0][0]["ttlMs"], pages[0][0]["resultType"]) == (5, "complete")
    assert "nextCursor" not in pages[0][1]
    assert refusal(bad) == (400, 7, -32602)


@pytest.mark.slow
async def test_every_method_of_the_stateless_era_is_answered_alike_by_both_ways() -> None:
    def server() -> Any:
        made = create_mcp_server(name="s", version="1", logging=True)

        @made.resource("a://b")
        def one() -> str:
            return "text"

        @made.prompt
        def greet(name: str) -> str:
            if name == "nobody":
                raise ToolError("nobody is there")
            return f"hello {name}"

        @made.completion(ref="prompt:greet", argument="name")
        def names(value: str) -> list[str]:
            return [value + "x"]

        return made

    named = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "a"}}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("resources/list", "", {}),
        ("resources/templates/list", "", {}),
        ("resources/read", "a://b", {"uri": "a://b"}),
        ("resources/read", "a://c", {"uri": "a://c"}),
        ("prompts/list", "", {}),
        ("prompts/get", "greet", {"name": "greet", "arguments": {"name": "you"}}),
        ("prompts/get", "greet", {"name": "greet", "arguments": {"name": "nobody"}}),
        ("prompts/get", "", {}),
        ("completion/complete", "", named),
        ("ping", "", {}),
        ("no/such/method", "", {}),
    ]
    async with served_http(server()) as short, served_by_the_sdk(server()) as long:
        for method, name, params in asked:
            head = {**modern_headers("", method), **({"Mcp-Name": name} if name else {})}
            body = call_body("", method=method, **params)
            first, second = [await exchange(url, headers=head, body=body) for url in (short, long)]

            assert (first.status, first.json()) == (second.status, second.json()), method
