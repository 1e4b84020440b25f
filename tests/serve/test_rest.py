"""The REST view: each tool at its own path, under the same rules as over MCP, and a document about them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.connect.targets import eventually
from tests.serve.exchanges import Answer, connected, exchange, head
from tests.serve.offered import Doings
from tests.serve.serving import served_http
from toolweave import tool
from toolweave.middleware import RateLimit
from toolweave.schema import Validator
from toolweave.serve import BearerAuth, McpServer, ScopeRules, create_mcp_server
from toolweave.serve._http.app import HttpLimits
from toolweave.tools import CallContext

TOKENS = {"reader-token-0001": "reader", "writer-token-0001": "writer"}


def locate(name: str, near: dict[str, int] | None = None) -> dict[str, int]:
    """Locate something."""
    return {"x": len(name), "y": 0}


def fail() -> str:
    """Fail."""
    raise ValueError("a secret of the inside")


async def ask(ctx: CallContext) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"hello {(answer.content or {}).get('name')}"


def linked(arguments: dict[str, Any]) -> str:
    """Take what refers to itself."""
    return str(arguments)


SELF = {
    "type": "object",
    "properties": {"value": {"$ref": "#/$defs/node"}, "whole": {"$ref": "#"}},
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
}


def server() -> tuple[McpServer, Doings]:
    doings = Doings()
    made = create_mcp_server(
        name="rest",
        version="1",
        tools=[
            locate,
            fail,
            ask,
            doings.wait,
            tool(linked, input_schema=SELF),
            tool(locate, name="odd name/with {signs}"),
        ],
    )
    return made, doings


async def post(url: str, name: str, arguments: Any = None, **headers: str) -> Answer:
    body = b"" if arguments is None else json.dumps(arguments).encode()
    sent = {"content-type": "application/json", **headers}
    return await exchange(url, path=f"/tools/{name}", headers=sent, body=body)


async def test_a_tool_is_called_by_its_path_and_answers_with_its_result() -> None:
    async with served_http(server()[0], rest=True) as url:
        answer = await post(url, "locate", {"name": "abc"})
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["structuredContent"] == {"x": 3, "y": 0}
        assert set(answer.json()) == {"content", "structuredContent"}
        odd = await post(url, "odd%20name%2Fwith%20%7Bsigns%7D", {"name": "abcd"})
        assert odd.json()["structuredContent"] == {"x": 4, "y": 0}


async def test_what_goes_wrong_has_a_status_and_a_word() -> None:
    async with served_http(server()[0], rest=True, limits=HttpLimits(body_bytes=2_000, body_seconds=0.5)) as url:
        for name, arguments, status, code in (
            ("nothing", {}, 404, "not_found"),
            ("locate", {"name": 1}, 422, "invalid_arguments"),
            ("locate", None, 422, "invalid_arguments"),
            ("fail", None, 502, "tool_error"),
            ("locate", [1], 400, "invalid_request"),
            ("ask", {}, 409, "input_required"),
            ("", {}, 404, "not_found"),
        ):
            answer = await post(url, name, arguments)
            assert (answer.status, answer.json()["error"]["code"]) == (status, code), name
        assert "secret" not in (await post(url, "fail")).body.decode()
        broken = await exchange(url, path="/tools/fail", headers={"content-type": "application/json"}, body=b"{")
        assert broken.status == 400
        assert (await post(url, "locate", {"name": "x" * 3_000})).status == 413
        got = await exchange(url, "GET", path="/tools/locate")
        assert (got.status, got.headers["allow"]) == (405, "POST")
        assert (await exchange(url, path="/openapi.json", headers={"content-type": "application/json"})).status == 405


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with (
        served_http(server()[0], rest=True, limits=HttpLimits(body_seconds=0.2)) as url,
        connected(url) as stream,
    ):
        headers = {"content-type": "application/json", "content-length": "10"}
        await stream.send(head(url, headers=headers, path="/tools/locate"))
        assert b" 408 " in await stream.receive()


async def test_a_web_page_of_another_origin_cannot_call() -> None:
    async with served_http(server()[0], rest=True) as url:
        assert (await post(url, "locate", {"name": "x"}, origin="https://evil.example")).status == 403
        assert (await post(url, "locate", {"name": "x"}, Host="evil.example")).status == 421
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert (await exchange(url, path="/tools/locate", headers=form, body=b"name=x")).status == 415
        text = {"content-type": "text/plain"}
        assert (await exchange(url, path="/tools/locate", headers=text, body=b'{"name":"x"}')).status == 415


async def test_a_client_that_leaves_cancels_its_call() -> None:
    made, doings = server()
    async with served_http(made, rest=True) as url:
        async with connected(url) as stream:
            headers = {"content-type": "application/json", "content-length": "0"}
            await stream.send(head(url, headers=headers, path="/tools/wait"))
            await doings.started.wait()
        await doings.cancelled.wait()


async def test_a_call_that_runs_at_the_end_is_answered() -> None:
    made, doings = server()
    answers: list[Answer] = []
    async with anyio.create_task_group() as tasks:
        app = made.asgi_app(rest=True)
        async with app.lifespan():
            sent: list[Any] = []

            async def call() -> None:
                scope: dict[str, Any] = {
                    "type": "http",
                    "method": "POST",
                    "path": "/tools/wait",
                    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
                }
                arrived = False

                async def receive() -> dict[str, Any]:
                    nonlocal arrived
                    if arrived:
                        await anyio.sleep_forever()
                    arrived = True
                    return {"type": "http.request", "body": b"", "more_body": False}

                async def send(message: Any) -> None:
                    sent.append(message)

                await app(scope, receive, send)

            tasks.start_soon(call)
            await doings.started.wait()
            await app.drain()
            app.abort()
            await eventually(lambda: sent)
            assert sent[0]["status"] == 503
    assert answers == []


async def test_the_document_describes_the_tools_with_schemas_that_resolve() -> None:
    async with served_http(server()[0], rest=True) as url:
        document = (await exchange(url, "GET", path="/openapi.json")).json()

    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {
        "/tools/ask",
        "/tools/fail",
        "/tools/linked",
        "/tools/locate",
        "/tools/odd%20name%2Fwith%20%7Bsigns%7D",
        "/tools/wait",
    }
    post = document["paths"]["/tools/linked"]["post"]
    reference = post["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    check = Validator({**document, "$ref": reference})
    assert check.is_valid({"value": {"next": {"next": {}}}, "whole": {"value": {}}})
    assert not check.is_valid({"value": {"next": 1}})
    assert not check.is_valid({"whole": {"value": 1}})
    located = document["paths"]["/tools/locate"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert "structuredContent" in located["properties"]


async def test_a_limit_says_when_to_come_again() -> None:
    limit = RateLimit(calls=1, seconds=3_600)
    made = create_mcp_server(name="limited", version="1", tools=[locate], middleware=[limit])
    async with served_http(made, rest=True) as url:
        assert (await post(url, "locate", {"name": "x"})).status == 200
        refused = await post(url, "locate", {"name": "x"})
        assert (refused.status, refused.json()["error"]["code"]) == (429, "too_many_requests")
        assert 3_500 < int(refused.headers["retry-after"]) <= 3_600


async def test_the_ids_of_operations_depend_on_their_own_tool_alone() -> None:
    def ids(document: Any) -> dict[str, str]:
        return {path: item["post"]["operationId"] for path, item in document["paths"].items()}

    made = create_mcp_server(
        name="few", title="A few tools", version="7", tools=[tool(locate, name="odd name"), locate]
    )
    more = create_mcp_server(name="more", version="1", tools=[fail, tool(locate, name="odd name"), locate])
    documents: list[Any] = []
    for one in (made, more):
        async with served_http(one, rest=True) as url:
            documents.append((await exchange(url, "GET", path="/openapi.json")).json())

    assert ids(documents[0]).items() < ids(documents[1]).items()
    assert ids(documents[0])["/tools/locate"] == "locate"
    assert ids(documents[0])["/tools/odd%20name"].startswith("odd_name_")
    assert documents[0]["info"] == {"title": "A few tools", "version": "7"}
    assert "security" not in documents[0]


async def test_tokens_and_scopes_hold_as_they_do_over_mcp() -> None:
    scopes = ScopeRules(tools={"fail": ["write"]}, hide=True)
    made, _ = server()

    def verify(token: str) -> Any:
        from toolweave.serve import Identity

        name = TOKENS.get(token)
        return None if name is None else Identity(client_id=name, scopes=("write",) if name == "writer" else ())

    auth = BearerAuth(verify, scopes=scopes)
    async with served_http(made, rest=True, auth=auth) as url:
        assert (await post(url, "locate", {"name": "x"})).status == 401
        assert (await exchange(url, "GET", path="/openapi.json")).status == 401
        reader, writer = ({"authorization": f"Bearer {token}"} for token in TOKENS)
        assert (await post(url, "locate", {"name": "x"}, **reader)).status == 200
        refused = await post(url, "fail", {}, **reader)
        assert (refused.status, "insufficient_scope" in refused.headers["www-authenticate"]) == (403, True)
        assert (await post(url, "fail", {}, **writer)).status == 502
        for bearer, sees in ((reader, False), (writer, True)):
            document = (await exchange(url, "GET", path="/openapi.json", headers=bearer)).json()
            assert ("/tools/fail" in document["paths"]) is sees
            assert document["security"] == [{"bearer": []}]
            assert {"401", "403", "429"} < set(document["paths"]["/tools/locate"]["post"]["responses"])


async def test_there_is_no_view_unless_it_is_wanted() -> None:
    async with served_http(server()[0]) as url:
        assert (await post(url, "locate", {"name": "x"})).status == 404
        assert (await exchange(url, "GET", path="/openapi.json")).status == 404


@pytest.mark.slow
async def test_many_tools_are_listed_page_by_page() -> None:
    tools = [tool(locate, name=f"tool{number}") for number in range(230)]
    made = create_mcp_server(name="many", version="1", tools=tools, page_size=50)
    async with served_http(made, rest=True) as url:
        document = (await exchange(url, "GET", path="/openapi.json")).json()
        assert len(document["paths"]) == 230
