"""Middleware around every request of a server, on every transport and in every revision."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.exchanges import call, events, exchange, handshake
from tests.serve.lines import Peer
from tests.serve.raw import LEGACY, MODERN, raw_client
from tests.serve.serving import served_http
from tests.serve.talking import talking
from toolweave import Callbacks, ProtocolError, connect_mcp, tool
from toolweave.errors import RequestError
from toolweave.serve import (
    BearerAuth,
    CallNext,
    Identity,
    McpServer,
    Middleware,
    Request,
    create_mcp_server,
    prompt,
    resource,
)
from toolweave.tools import CallContext

Json = dict[str, Any]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def serve(*middleware: Middleware, **options: Any) -> McpServer:
    return create_mcp_server("sums", tools=[add], middleware=middleware, **options)


class Recorder:
    """Notes each request and its answer under a name."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self._name = name
        self._seen = seen

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        self._seen.append(f"{self._name} > {request.method}")
        try:
            return await call_next(request)
        finally:
            self._seen.append(f"{self._name} < {request.method}")


@EACH_CARRIER
async def test_the_first_is_outermost_and_every_request_passes_all(carrier: str, era: str) -> None:
    seen: list[str] = []
    async with connected(serve(Recorder("a", seen), Recorder("b", seen)), carrier, era) as connection:
        result = await connection.call_tool("add", {"a": 1, "b": 2})

    assert result.text == "3"
    seen = [one for one in seen if "listen" not in one]
    first = "initialize" if era == LEGACY else "server/discover"
    assert seen[:4] == [f"a > {first}", f"b > {first}", f"b < {first}", f"a < {first}"]
    assert seen[-4:] == ["a > tools/call", "b > tools/call", "b < tools/call", "a < tools/call"]
    assert "a > tools/list" in seen


@pytest.mark.slow
async def test_a_server_over_stdio_runs_its_middleware(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "from toolweave.serve import create_mcp_server\n"
        "def add(a: int, b: int) -> int:\n    return a + b\n"
        "async def ten_more(request, call_next):\n"
        "    if request.method == 'tools/call':\n"
        "        arguments = {**request.params['arguments'], 'a': 10}\n"
        "        request = request.replace(params={**request.params, 'arguments': arguments})\n"
        "    return await call_next(request)\n"
        "create_mcp_server('sums', tools=[add], middleware=[ten_more]).run()\n"
    )
    for era in (LEGACY, MODERN):
        config = {"command": sys.executable, "args": [str(program)], "protocol": era}
        async with connect_mcp(config) as connection:
            result = await connection.call_tool("add", {"a": 1, "b": 2})

        assert result.text == "12"


@EACH_CARRIER
async def test_middleware_may_change_what_is_asked(carrier: str, era: str) -> None:
    async def doubled(request: Request, call_next: CallNext) -> Json:
        if request.method != "tools/call":
            return await call_next(request)
        before = dict(request.params)
        arguments = {name: 2 * value for name, value in request.params["arguments"].items()}
        result = await call_next(request.replace(params={**request.params, "arguments": arguments}))
        assert dict(request.params) == before
        return result

    async with connected(serve(doubled), carrier, era) as connection:
        assert (await connection.call_tool("add", {"a": 1, "b": 2})).text == "6"


@EACH_CARRIER
async def test_middleware_may_answer_itself_and_the_result_becomes_that_of_the_revision(carrier: str, era: str) -> None:
    async def closed(request: Request, call_next: CallNext) -> Json:
        if request.method != "tools/call":
            return await call_next(request)
        return {"content": [{"type": "text", "text": "closed today"}], "isError": True}

    async with connected(serve(closed), carrier, era) as connection:
        result = await connection.call_tool("add", {"a": 1, "b": 2})

    assert (result.text, result.is_error) == ("closed today", True)
    raw = cast("Json", result.raw)
    assert (raw.get("resultType") == "complete") is (era == MODERN)


@EACH_CARRIER
async def test_an_error_that_middleware_raises_is_the_answer(carrier: str, era: str) -> None:
    async def refusing(request: Request, call_next: CallNext) -> Json:
        if request.method == "tools/call":
            raise RequestError("not today", code=-32050, data={"until": "tomorrow"})
        return await call_next(request)

    async with connected(serve(refusing), carrier, era) as connection:
        with pytest.raises(ProtocolError, match="not today") as caught:
            await connection.call_tool("add", {"a": 1, "b": 2})

    assert (caught.value.code, caught.value.data) == (-32050, {"until": "tomorrow"})


class Broken:
    """Fails at one method, in one way."""

    def __init__(self, method: str, how: str) -> None:
        self._method = method
        self._how = how

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        result = await call_next(request)
        if request.method == self._method:
            if self._how == "raises":
                raise ZeroDivisionError("its own secret")
            wrong: Any = {"none": None, "list": [1], "meta": {"_meta": 1}, "no json": {"a": object()}}[self._how]
            return wrong
        return result


@EACH_CARRIER
@pytest.mark.parametrize("how", ["raises", "none", "list", "meta", "no json"])
async def test_broken_middleware_costs_its_request_and_not_the_session(
    carrier: str, era: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(serve(Broken("tools/call", how)), carrier, era) as connection:
        with pytest.raises(ProtocolError, match="Internal error") as caught:
            await connection.call_tool("add", {"a": 1, "b": 2})
        listed = await connection.list_tools()

    assert caught.value.code == -32603
    assert [one.name for one in listed] == ["add"]
    if how in ("raises", "none", "list"):
        assert "'Broken'" in caplog.text
        assert "tools/call" in caplog.text


@pytest.mark.parametrize("how", ["raises", "none", "meta", "no json"])
async def test_a_handshake_that_middleware_breaks_can_be_made_again(how: str) -> None:
    broken = [True]
    inner = Broken("initialize", how)

    async def once(request: Request, call_next: CallNext) -> Json:
        if broken[0] and request.method == "initialize":
            broken[0] = False
            return await inner(request, call_next)
        return await call_next(request)

    async with raw_client(serve(once)) as raw:
        failed = await raw.shake_hands(LEGACY)
        made = await raw.shake_hands(LEGACY)
        answer = await raw.call("add", a=1, b=2)
    broken[0] = True
    async with served_http(serve(once)) as url:
        refused, _ = await handshake(url)
        accepted, _ = await handshake(url)

    assert failed["error"]["code"] == -32603
    assert made["result"]["protocolVersion"] == LEGACY
    assert answer["result"]["content"][0]["text"] == "3"
    assert json.loads(refused.body)["error"]["code"] == -32603
    assert "mcp-session-id" not in refused.headers
    assert accepted.status == 200
    assert "mcp-session-id" in accepted.headers


async def test_an_unknown_revision_in_a_handshake_is_never_agreed_to() -> None:
    async def invented(request: Request, call_next: CallNext) -> Json:
        result = await call_next(request)
        return {**result, "protocolVersion": "1999-01-01"} if request.method == "initialize" else result

    async with raw_client(serve(invented)) as raw:
        answer = await raw.shake_hands(LEGACY)

    assert answer["error"]["code"] == -32603


async def test_middleware_may_complete_a_handshake_that_lacks_something() -> None:
    async def completed(request: Request, call_next: CallNext) -> Json:
        if request.method == "initialize":
            request = request.replace(params={"capabilities": {}, **request.params})
        return await call_next(request)

    async with raw_client(serve(completed)) as raw:
        params = {"protocolVersion": LEGACY, "clientInfo": {"name": "raw", "version": "0"}}
        answer = await raw.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        raw.version = LEGACY
        called = await raw.call("add", a=1, b=2)

    assert answer["result"]["protocolVersion"] == LEGACY
    assert called["result"]["content"][0]["text"] == "3"


async def test_outer_middleware_meets_a_failure_of_an_inner_one_as_a_refusal() -> None:
    met: list[RequestError] = []

    async def outer(request: Request, call_next: CallNext) -> Json:
        try:
            return await call_next(request)
        except RequestError as exc:
            met.append(exc)
            raise

    with pytest.raises(RequestError, match="Internal error"):
        await Peer().call(serve(outer, Broken("tools/call", "raises")), "add", {"a": 1, "b": 2})

    assert [one.code for one in met] == [-32603]


@EACH_ERA
async def test_lists_are_plain_values_to_middleware(era: str) -> None:
    seen: list[Any] = []

    async def look(request: Request, call_next: CallNext) -> Json:
        result = await call_next(request)
        if request.method == "tools/list":
            seen.append([one["name"] for one in result["tools"]])
            result["tools"].clear()
        return result

    async with connected(serve(look), era=era) as connection:
        listed = await connection.list_tools()
        again = await connection.list_tools()

    assert seen[0] == ["add"]
    assert all(one == ["add"] for one in seen)  # nobody changes what the server keeps
    assert [*listed, *again] == []


async def test_every_way_through_http_passes_the_middleware() -> None:
    seen: list[str] = []

    async def note(request: Request, call_next: CallNext) -> Json:
        seen.append(f"{request.method} {request.headers.get('x-way')}")
        return await call_next(request)

    async with served_http(serve(note)) as url:
        await call(url, "add", {"a": 1, "b": 2}, headers={"x-way": "quick"})
        await call(url, "add", {"a": 1, "b": 2}, headers={"x-way": "full"}, inputResponses={})
        _, session = await handshake(url)
        body = {
            "jsonrpc": "2.0",
            "id": 5,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
        }
        await exchange(url, headers={**session, "x-way": "session"}, body=json.dumps(body).encode())
        old = {**session, "MCP-Protocol-Version": "2025-03-26", "x-way": "batch"}
        batch = await exchange(url, headers=old, body=json.dumps([body, {**body, "id": 6}]).encode())

    assert [one["id"] for one in _members(batch.body)] == [5, 6]
    assert [one for one in seen if one.startswith("tools/call")] == [
        "tools/call quick",
        "tools/call full",
        "tools/call session",
        "tools/call batch",
        "tools/call batch",
    ]


def _members(body: bytes) -> list[Json]:
    if body.startswith(b"["):
        return sorted(json.loads(body), key=lambda one: one["id"])
    flat: list[Json] = []
    for one in cast("list[Any]", events(body)):
        flat += cast("list[Json]", one) if isinstance(one, list) else [one]
    return sorted(flat, key=lambda one: one["id"])


async def test_an_app_without_sessions_passes_the_middleware_too() -> None:
    seen: list[str] = []
    async with (
        served_http(serve(Recorder("a", seen)), stateless=True) as url,
        connect_mcp({"url": url, "protocol": LEGACY}) as connection,
    ):
        await connection.call_tool("add", {"a": 1, "b": 2})

    assert "a > tools/call" in seen


@EACH_CARRIER
async def test_notifications_of_a_running_request_pass_through_its_reply_channel(carrier: str, era: str) -> None:
    @tool
    async def steps(ctx: CallContext) -> str:
        """Report progress."""
        await ctx.progress(1, 2, "half of the secret")
        return "done"

    class HalvedMessages:
        def __init__(self, channel: Any) -> None:
            self._channel = channel

        async def notify(self, method: str, params: Mapping[str, Any]) -> None:
            await self._channel.notify(method, {**params, "message": "half"})

        async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
            return await self._channel.ask(method, params)

        async def release(self) -> None:
            await self._channel.release()

    async def quiet(request: Request, call_next: CallNext) -> Json:
        return await call_next(request.replace(reply_channel=HalvedMessages(request.reply_channel)))

    messages: list[str | None] = []
    server = create_mcp_server("steps", tools=[steps], middleware=[quiet])
    async with connected(server, carrier, era) as connection:
        result = await connection.call_tool("steps", {}, on_progress=lambda one: messages.append(one.message))

    assert result.text == "done"
    assert messages == ["half"]


@EACH_CARRIER
async def test_questions_of_a_tool_pass_middleware(carrier: str, era: str) -> None:
    @tool
    async def greet(ctx: CallContext) -> str:
        """Greet."""
        answer = await ctx.elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"hello {(answer.content or {})['name']}"

    seen: list[str] = []
    server = create_mcp_server("greets", tools=[greet], middleware=[Recorder("a", seen)])
    async with connected(
        server, carrier, era, callbacks=Callbacks(elicitation=lambda _: {"name": "Ada"})
    ) as connection:
        result = await connection.call_tool("greet", {})

    assert result.text == "hello Ada"
    assert seen.count("a > tools/call") == (2 if era == MODERN else 1)


async def test_a_cancelled_request_ends_in_its_middleware() -> None:
    ended: list[str] = []
    began = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await anyio.sleep_forever()
        return ""

    async def note(request: Request, call_next: CallNext) -> Json:
        try:
            return await call_next(request)
        except anyio.get_cancelled_exc_class():
            ended.append(request.method)
            raise

    server = create_mcp_server("waits", tools=[wait], middleware=[note])
    async with raw_client(server, LEGACY) as raw:
        request = raw.request("tools/call", {"name": "wait", "arguments": {}})
        await raw.send(request)
        await began.wait()
        await raw.notify("notifications/cancelled", requestId=request["id"])
        await raw.ask(raw.request("ping"))

    assert ended == ["tools/call"]


async def test_tasks_and_subscriptions_are_requests_like_any_other() -> None:
    seen: list[str] = []

    @resource("notes://one")
    def one() -> str:
        """Read it."""
        return "1"

    server = create_mcp_server(
        "jobs", tools=[add], resources=[one], tasks={"add": "optional"}, middleware=[Recorder("a", seen)]
    )
    async with talking(server) as talk:
        created = await talk.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        await talk.ask("tasks/get", {"taskId": created["taskId"]})
        await talk.send("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["notes://one"]}})
        await talk.received("notifications/subscriptions/acknowledged")
    async with talking(server, LEGACY) as talk:
        await talk.ask("resources/subscribe", {"uri": "notes://one"})

    begun = [one.removeprefix("a > ") for one in seen if " > " in one]
    assert created["resultType"] == "task"
    assert {"tools/call", "tasks/get", "subscriptions/listen", "resources/subscribe"} <= set(begun)


async def test_an_unknown_method_reaches_middleware_which_may_answer_it() -> None:
    async def extension(request: Request, call_next: CallNext) -> Json:
        if request.method == "acme/time":
            return {"time": "noon"}
        return await call_next(request)

    async with raw_client(serve(extension), MODERN) as raw:
        known = await raw.ask(raw.request("acme/time"))
        unknown = await raw.ask(raw.request("acme/place"))

    assert known["result"]["time"] == "noon"
    assert known["result"]["resultType"] == "complete"
    assert unknown["error"]["code"] == -32601


async def test_middleware_finds_the_caller_and_what_is_offered() -> None:
    found: list[Any] = []

    @resource("notes://{name}")
    def note(name: str) -> str:
        """Read a note."""
        return name

    @prompt
    def greet() -> str:
        """Greet."""
        return "hello"

    async def look(request: Request, call_next: CallNext) -> Json:
        server = request.server
        assert server is not None
        if request.method == "tools/call":
            spec = server.find_tool(request.text("name"))
            identity = request.client.identity
            assert spec is not None
            assert identity is not None
            assert identity.principal == request.client.principal
            found.append((spec.name, identity.subject, identity.claims["team"]))
            found.append([one.name for one in server.offers_of("resources/read", {"uri": "notes://a"})])
            found.append(server.find_tool("nothing"))
        return await call_next(request)

    def verify(token: str) -> Identity:
        return Identity(client_id="app", subject=token, claims={"team": "blue"})

    server = create_mcp_server("notes", tools=[add], resources=[note], prompts=[greet], middleware=[look])
    server.alias("plus", "add")
    async with served_http(server, auth=BearerAuth(verify)) as url:
        for era in (LEGACY, MODERN):
            config = {"url": url, "protocol": era, "headers": {"Authorization": "Bearer ada"}}
            async with connect_mcp(config) as connection:
                await connection.call_tool("plus", {"a": 1, "b": 2})

    assert found == [("add", "ada", "blue"), ["notes://a", "notes://{name}"], None] * 2


async def test_middleware_is_replaced_as_a_whole() -> None:
    seen: list[str] = []
    server = serve(Recorder("old", seen))
    async with connected(server) as connection:
        server.endpoint.use([Recorder("new", seen)], server)
        seen.clear()
        await connection.call_tool("add", {"a": 1, "b": 2})
        assert seen == ["new > tools/call", "new < tools/call"]
        server.endpoint.use([], server)
        await connection.call_tool("add", {"a": 1, "b": 2})

    assert [one for one in seen if "listen" not in one] == ["new > tools/call", "new < tools/call"]


def test_what_is_no_middleware_is_refused_when_the_server_is_made() -> None:
    wrong: list[tuple[Any, str]] = [
        ([Recorder], r"give Recorder\(...\) instead of the class"),
        (["name"], "str is not middleware"),
        (Recorder("a", []), "put the one into a list"),
    ]
    for given, said in wrong:
        with pytest.raises(TypeError, match=said):
            create_mcp_server("sums", tools=[add], middleware=given)


async def test_a_request_has_no_attributes_but_its_own() -> None:
    request = Peer().request("tools/list")

    with pytest.raises(TypeError):
        request.replace(parameters={})
    assert request.replace(method="ping").method == "ping"
    assert request.method == "tools/list"


async def test_middleware_that_is_not_async_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def plain(request: Request, call_next: CallNext) -> Json:
        return {}

    wrong: Any = plain
    with caplog.at_level(logging.ERROR), pytest.raises(RequestError, match="Internal error"):
        await Peer().call(serve(wrong), "add", {"a": 1, "b": 2})

    assert "plain" in caplog.text


async def test_a_refused_prompt_is_an_error_of_the_protocol() -> None:
    @prompt
    def greet() -> str:
        """Greet."""
        return "hello"

    async def refusing(request: Request, call_next: CallNext) -> Json:
        if request.method == "prompts/get":
            raise RequestError("no prompts today", code=-32602)
        return await call_next(request)

    server = create_mcp_server("greets", prompts=[greet], middleware=[refusing])
    async with connected(server) as connection:
        with pytest.raises(ProtocolError, match="no prompts today"):
            await connection.get_prompt("greet")
