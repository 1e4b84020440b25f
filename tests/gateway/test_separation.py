"""Callers are kept apart from one another, and upstreams too: states, tasks, tokens, connections and resources."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.connect.targets import eventually
from tests.gateway.plain_callers import META, Ways, plain
from tests.gateway.relayed import MODERN, Json, upstream
from tests.gateway.upstreams import strange
from tests.serve.serving import served_http
from tests.serve.talking import talking
from toolweave import Hub, connect_mcp, create_mcp_server
from toolweave.config import Secret, server_config
from toolweave.errors import RequestError, ServerError
from toolweave.gateway import Replicas, create_gateway
from toolweave.gateway._callers.hubs import CallerHubs, GatewayCaller
from toolweave.gateway._features.fast_calls import FastCalls, PlainToolCall
from toolweave.gateway._features.fitting import ArgumentFitter
from toolweave.gateway._relay.connections import AskingConnections, owner_of
from toolweave.gateway._relay.handshake_connections import HandshakeConnections
from toolweave.gateway._relay.page_visits import PageVisits
from toolweave.gateway._relay.routes import Route
from toolweave.gateway._relay.sealed_state import SealedRound, StateCipher
from toolweave.gateway._tasks.kept_tasks import NO_REPLY_CHANNEL, EndedCalls
from toolweave.oauth import MemoryTokenStore
from toolweave.protocol.content import ResourceLink
from toolweave.protocol.tasks import TASK_ID
from toolweave.serve import BearerAuth, Client, Request
from toolweave.state import MemoryStore
from toolweave.tools import ToolResult

TEST_SECONDS = 60

pytestmark = pytest.mark.anyio

KEYS = ("k" * 32,)
LEGACY = "2025-11-25"
MODERN_SERVER = """
import json, sys
NODE = {"anyOf": [{"type": "object"}, {"type": "array"}]}
LINK = {"type": "resource_link", "uri": "https://one.example", "name": "one"}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("who", "link", "list")]
TOOLS.append({"name": "node", "inputSchema": {"type": "object"}, "outputSchema": NODE})
def result_of(method, params):
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 1, "cacheScope": "public"}
    if method == "tools/list":
        return {"tools": TOOLS, "ttlMs": 1, "cacheScope": "public"}
    if params["name"] == "node":
        return {"content": [], "structuredContent": {"a": 1}}
    if params["name"] == "list":
        return {"content": [], "structuredContent": [1]}
    if params["name"] == "link":
        return {"content": [LINK]}
    name = params["_meta"]["io.modelcontextprotocol/clientInfo"]["name"]
    return {"content": [{"type": "text", "text": name}]}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"resultType": "complete", **result_of(message["method"], message["params"])}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
MODERN_ENTRY: Json = {
    "command": sys.executable,
    "args": ["-c", MODERN_SERVER],
    "tool_prefix": "",
    "protocol": MODERN,
    "validate_output": "off",
}
BOTH_ERAS = """
import json, pathlib, os, sys
crash = pathlib.Path(sys.argv[1])
TOOL = {"name": "era", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
era = ""
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    method = message["method"]
    era = {"initialize": "handshake", "server/discover": "modern"}.get(method, era)
    if method == "tools/call" and crash.exists():
        crash.unlink()
        os._exit(1)
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "x", "version": "1"}},
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": era}]},
    }[method]
    if era == "modern":
        result |= {"resultType": "complete", "ttlMs": 1, "cacheScope": "public"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
ERA_SERVER = Path(__file__).with_name("era_server.py")
LOGS_AND_PID = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}},
                       "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
        "logging/setLevel": {},
    }.get(message["method"])
    answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
TASKS_ALONE = """
import json, sys
TIMES = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None, "pollInterval": 10}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    params = message.get("params") or {}
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "x", "version": "1"},
                       "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}},
        "tools/list": {"tools": [{"name": "long", "inputSchema": {"type": "object"},
                                  "execution": {"taskSupport": "required"}}]},
        "tools/call": {"task": {"taskId": "t", "status": "working", **TIMES}} if "task" in params else None,
        "tasks/get": {"taskId": "t", "status": "completed", **TIMES},
        "tasks/result": {"content": [{"type": "text", "text": "done"}]},
    }.get(message["method"])
    answer = {"error": {"code": -32601, "message": "as a task alone"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
RESULT: Json = {"content": [{"type": "text", "text": "of ann"}]}


def client(*, principal: str | None = "ann", **capabilities: Any) -> Client:
    return Client(version=MODERN, capabilities=capabilities, principal=principal)


def test_a_state_that_one_view_of_a_gateway_has_sealed_does_not_open_in_another() -> None:
    request = Request("tools/call", {"name": "f", "arguments": {}}, client(), NO_REPLY_CHANNEL, 1)
    token = StateCipher(KEYS, view="one").seal(request, SealedRound(server="up", number=1))

    assert StateCipher(KEYS, view="one").open(request, token).server == "up"
    with pytest.raises(RequestError, match="is not of this request"):
        StateCipher(KEYS, view="other").open(request, token)


def test_requests_of_one_principal_with_other_capabilities_have_other_connections() -> None:
    assert owner_of(client(elicitation={})) == owner_of(client(elicitation={}))
    assert owner_of(client(elicitation={})) != owner_of(client(sampling={}))
    assert owner_of(client(elicitation={})) != owner_of(client(principal="bob", elicitation={}))


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_call_that_is_over_is_the_task_of_its_principal_alone(is_shared: bool) -> None:
    store = MemoryStore()
    async with store:
        here = EndedCalls(Replicas(store, KEYS) if is_shared else None)
        elsewhere = EndedCalls(Replicas(store, KEYS)) if is_shared else here
        name = (await here.add("ann", RESULT))[TASK_ID]

        own = await elsewhere.find("ann", name)
        assert own is not None
        assert own["result"] == RESULT
        assert await elsewhere.find("bob", name) is None
        assert await elsewhere.find(None, name) is None


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_call_that_is_over_is_a_task_for_as_long_as_its_gateway_wants(is_shared: bool) -> None:
    store = MemoryStore()
    async with store:
        here = EndedCalls(Replicas(store, KEYS) if is_shared else None, seconds=0.2)
        task = await here.add("ann", RESULT)
        documents = await store.scan("gateway-ended-calls")
        with anyio.fail_after(10):
            while await EndedCalls(Replicas(store, KEYS)).find("ann", task[TASK_ID]) is not None:
                await anyio.sleep(0.05)

    assert task["ttlMs"] == 200
    assert len(documents) == is_shared


def test_a_token_that_was_exchanged_is_not_kept_in_the_store_of_sign_ins() -> None:
    store = MemoryTokenStore()
    oauth = {
        "type": "oauth",
        "grant": "token_exchange",
        "issuer": "https://idp.example",
        "client_id": "gateway",
        "client_secret": "secret-of-the-gateway",
    }
    config = server_config({"url": "https://mail.example/mcp", "auth": oauth}, name="mail")
    caller = GatewayCaller("ann digest", "ann", Secret("token-of-ann"))

    made = CallerHubs(Hub({}), store).of_caller(config, caller)

    assert made.auth is not None
    assert made.auth.oauth is not None
    assert made.auth.oauth.store is not store
    assert made.auth.oauth.principal == "ann digest"


@pytest.mark.slow
async def test_the_answers_to_the_questions_of_one_upstream_do_not_go_to_another() -> None:
    call: Json = {"name": "echo_state", "arguments": {"state": "s"}}
    with upstream("stdio-modern") as config:
        gateway = create_gateway({"one": config, "other": {**config, "tool_prefix": "other_"}})
        async with talking(gateway) as talk:
            asked = await talk.ask("tools/call", call)
            params = {**call, "requestState": asked["requestState"]}
            request = Request("tools/call", params, Client(version=MODERN, capabilities={}), NO_REPLY_CHANNEL, 1)
            # As if the tool had moved to the other upstream meanwhile.
            with pytest.raises(RequestError, match="is of another upstream") as refused:
                await gateway.relay.request(request, Route("other", "echo_state"), "tools/call", call)

    assert refused.value.code == -32602


async def test_a_resource_that_was_read_is_asked_for_where_it_was() -> None:
    read: dict[str, list[str]] = {"first": [], "second": []}
    servers = {name: create_mcp_server(name=name, version="1") for name in read}

    @servers["first"].resource("note://{part}", name="notes")
    def of_first(part: str) -> str:
        read["first"].append(part)
        raise RequestError("Resource not found", code=-32002)

    @servers["second"].resource("note://{part}", name="notes")
    def of_second(part: str) -> str:
        read["second"].append(part)
        return f"note {part}"

    async with talking(create_gateway({name: {"server": server} for name, server in servers.items()})) as talk:
        for _ in range(2):
            await talk.ask("resources/read", {"uri": "note://a"})

    assert read == {"first": ["a"], "second": ["a", "a"]}


async def test_a_resource_that_is_renamed_later_is_named_in_results_as_it_is_listed() -> None:
    servers = {name: create_mcp_server(name=name, version="1") for name in ("first", "second")}
    for server in servers.values():
        server.resource("note://1", name="one")(lambda: "one")

    @servers["second"].tool
    def link() -> ToolResult:
        return ToolResult(content=(ResourceLink(uri="note://2", name="two"),), structured_content=None)

    entries = {name: {"server": server, "tool_prefix": f"{name}_"} for name, server in servers.items()}
    async with talking(create_gateway(entries)) as talk:
        await talk.ask("resources/list")
        before = await talk.ask("tools/call", {"name": "second_link", "arguments": {}})
        for server in servers.values():
            server.resource("note://2", name="two")(lambda: "two")
        listed: list[str] = []
        while len(listed) < 4:
            listed = [one["uri"] for one in (await talk.ask("resources/list"))["resources"]]
            await anyio.sleep(0.02)
        after = await talk.ask("tools/call", {"name": "second_link", "arguments": {}})

    assert before["content"][0]["uri"] == "note://2"
    assert after["content"][0]["uri"] == "second+note://2"
    assert "second+note://2" in listed


@pytest.mark.slow
async def test_an_upstream_that_refused_the_other_era_is_asked_again_after_a_restart() -> None:
    handshakes = HandshakeConnections()
    with upstream("stdio-modern") as config:
        async with connect_mcp(config) as shared:
            assert handshakes.may_speak(shared)
            handshakes.refused(shared)
            assert not handshakes.may_speak(shared)
            with suppress(ServerError):
                await shared.call_tool("crash")
            await eventually(lambda: shared.restarts == 1 and handshakes.may_speak(shared))


@pytest.mark.slow
async def test_connections_to_upstreams_that_are_gone_are_closed_however_lately_they_were_used() -> None:
    server = create_mcp_server(name="up", version="1")
    config = server_config({"server": server}, name="up")
    pool = AskingConnections()
    handshakes = HandshakeConnections()

    def is_current(config: object) -> bool:
        """Return that the server is not there any more."""
        return False

    async with anyio.create_task_group() as tasks:
        async with connect_mcp({"server": server}) as shared:
            assert await handshakes.opened(shared) is not None
            async with pool.lease(config, LEGACY, {"elicitation": {}}, "ann"):
                pass
            tasks.start_soon(pool.sweep, is_current)
            tasks.start_soon(handshakes.sweep)
            await eventually(lambda: not len(pool))
            assert len(list(handshakes)) == 1
        await eventually(lambda: not list(handshakes))
        tasks.cancel_scope.cancel()


async def test_visits_of_pages_are_reported_to_handshake_callers_and_the_oldest_are_forgotten() -> None:
    pushed: list[Any] = []

    def push(method: str, params: Mapping[str, Any]) -> None:
        pushed.append(params["elicitationId"])

    def required(*ids: str) -> Json:
        pages = [{"mode": "url", "elicitationId": one, "url": "https://x.example", "message": "m"} for one in ids]
        return {"elicitations": pages}

    changes = create_mcp_server("pages").changes
    visits = PageVisits(changes)
    leave = changes.join(push, conversation="c")
    older = Client(version=LEGACY, capabilities={}, conversation="c")
    modern = Client(version=MODERN, capabilities={}, conversation="c")
    visits.note_required("up", older, required(*map(str, range(10_001))))
    visits.note_required("up", modern, required("of a modern caller"))
    for page in ("of a modern caller", "0", "1"):
        visits.note_notification("up", ("notifications/elicitation/complete", {"elicitationId": page}))
    await eventually(lambda: bool(pushed))
    leave()

    assert pushed == ["1"]


# calls that are sent at once


class Text(str):
    """A text that shows whether anything still has it."""

    __slots__ = ("__weakref__",)


class Members(dict[str, Any]):
    """An object that shows whether anything still has it."""

    __slots__ = ("__weakref__",)


async def test_the_calls_of_a_caller_that_has_its_own_process_go_there_and_those_of_others_do_not() -> None:
    ann, bob = "token-of-ann" + "a" * 20, "token-of-bob" + "b" * 20
    ways = Ways()
    config = {"command": sys.executable, "args": ["-c", LOGS_AND_PID], "tool_prefix": ""}
    gateway = create_gateway({"up": config}, middleware=[ways])
    auth = BearerAuth(tokens={ann: "ann", bob: "bob"})
    async with (
        served_http(gateway, auth=auth) as url,
        plain(url, MODERN, token=ann) as owner,
        plain(url, MODERN, token=bob) as other,
    ):

        async def process_of(caller: Any, **meta: Any) -> str:
            _, _, answer = await caller.ask(*caller.call("pid", {}, _meta={**META, **meta}))
            if isinstance(answer, bytes):  # an event stream
                answer = json.loads(answer.rpartition(b"data: ")[2])
            return answer["result"]["content"][0]["text"]

        own = await process_of(owner, **{"io.modelcontextprotocol/logLevel": "info"})
        shared = await process_of(other)
        found = [await process_of(owner), await process_of(other), await process_of(owner)]

    assert own != shared
    assert found == [own, shared, own]
    assert ways.fast == ["pid", "pid"]  # those of the other caller alone


@pytest.mark.slow
async def test_plain_calls_reach_an_upstream_of_both_eras_in_that_of_their_caller() -> None:
    ways = Ways()
    eras: list[str] = []
    config = {"command": sys.executable, "args": [str(ERA_SERVER)], "tool_prefix": ""}
    gateway = create_gateway({"up": config}, middleware=[ways])
    async with served_http(gateway) as url, plain(url, MODERN) as new, plain(url, LEGACY) as old:
        for caller in (old, new, old, old, new, new, old):
            _, _, answer = await caller.ask(*caller.call("era", {}))
            eras.append(answer["result"]["content"][0]["text"])

    assert eras == [LEGACY, MODERN, LEGACY, LEGACY, MODERN, MODERN, LEGACY]
    assert ways.fast == ["era"] * 7


async def test_a_plain_call_that_is_lost_is_repeated_in_the_era_of_its_caller(tmp_path: Path) -> None:
    ways = Ways()
    eras: list[str] = []
    crash = tmp_path / "crash"
    config = {"command": sys.executable, "args": ["-c", BOTH_ERAS, str(crash)], "tool_prefix": ""}
    gateway = create_gateway({"up": config}, middleware=[ways])
    async with served_http(gateway) as url, plain(url, MODERN) as new, plain(url, LEGACY) as old:
        for caller in (new, old, old):
            if len(eras) == 2:
                crash.touch()
            _, _, answer = await caller.ask(*caller.call("era", {}))
            eras.append(answer["result"]["content"][0]["text"])

    assert not crash.exists()
    assert eras == ["modern", "handshake", "handshake"]
    assert ways.fast == ["era", "era"]  # the third one was lost after it was sent so


async def test_an_upstream_sees_the_client_that_middleware_names_and_not_the_one_of_the_call_before() -> None:
    names = ["one", "two", "one"]
    left = list(names)
    seen: list[str] = []

    async def renamed(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            info = {"name": left.pop(0), "version": "1"}
            request = request.replace(client=dataclasses.replace(request.client, info=info))
        return await call_next(request)

    gateway = create_gateway({"up": MODERN_ENTRY}, middleware=[renamed])
    async with served_http(gateway) as url, plain(url, LEGACY) as client:
        for _ in names:
            _, _, answer = await client.ask(*client.call("who", {}))
            seen.append(answer["result"]["content"][0]["text"])

    assert seen == names


async def test_a_caller_of_an_older_revision_gets_results_in_its_form_on_the_short_way_or_not_at_all_there() -> None:
    ways = Ways()
    found: list[Json] = []
    gateway = create_gateway({"up": MODERN_ENTRY}, middleware=[ways])
    async with served_http(gateway) as url:
        for version in ("2025-03-26", "2025-06-18", MODERN):
            async with plain(url, version) as client:
                answers = [(await client.ask(*client.call(name, {})))[2]["result"] for name in ("link", "node", "list")]
                link, node, listed = answers
                structured = listed.get("structuredContent", listed["content"])
                found.append({"block": link["content"][0], "node": node["structuredContent"], "list": structured})

    link = {"type": "resource_link", "uri": "https://one.example", "name": "one"}
    text = [{"type": "text", "text": "[1]"}]
    assert found == [
        {"block": {"type": "text", "text": "one: https://one.example"}, "node": {"result": {"a": 1}}, "list": text},
        {"block": link, "node": {"result": {"a": 1}}, "list": text},
        {"block": link, "node": {"a": 1}, "list": [1]},
    ]
    assert ways.fast == ["link", "list", "link", "list", "link", "node", "list"]
    assert ways.long == ["node", "node"]


async def test_names_clients_and_metadata_that_callers_and_servers_make_up_are_forgotten() -> None:
    loop = asyncio.get_running_loop()
    done: Json = {"content": msgspec.Raw(b"[]")}
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config})
        calls = FastCalls(gateway.tools, gateway.routes, gateway.relay, gateway.endpoint, fitter=ArgumentFitter())
        async with gateway.running():

            async def meet(capabilities: Json) -> None:
                sent = calls.send(PlainToolCall(1, "echo"), Client(MODERN, capabilities), loop)
                assert sent is not None
                await sent.answer

            def pass_on(version: str, meta: bytes) -> None:
                assert calls.passed_on({**done, "_meta": msgspec.Raw(meta)}, version) is not None

            name, capabilities = Text("made up"), Members()
            version, other_version = Text(LEGACY), Text(LEGACY)
            made_up = [weakref.ref(one) for one in (name, capabilities, version)]
            long = weakref.ref(other_version)
            assert not calls.takes(name)
            await meet(capabilities)
            pass_on(version, b'{"number":-1}')
            pass_on(other_version, b'{"text":"%b"}' % (b"x" * 1024))
            del name, capabilities, version, other_version
            cached = [one() is not None for one in (*made_up, long)]
            for number in range(20_000):
                calls.takes(f"made up {number}")
            for number in range(2_048):
                await meet({"experimental": {str(number): {}}})
            for number in range(256):
                pass_on(LEGACY, b'{"number":%d}' % number)

    assert cached == [True, True, True, False]
    assert [one() for one in made_up] == [None, None, None]


async def test_a_client_that_continues_in_another_revision_is_known_by_the_new_one() -> None:
    loop = asyncio.get_running_loop()
    capabilities: Json = {}
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": {**config, "protocol": MODERN}})
        gateway.speak("legacy")
        calls = FastCalls(gateway.tools, gateway.routes, gateway.relay, gateway.endpoint, fitter=ArgumentFitter())
        async with gateway.running():
            await eventually(lambda: calls.takes("echo"))
            sent = calls.send(PlainToolCall(1, "echo"), Client("2025-11-25", capabilities), loop)
            refused = calls.send(PlainToolCall(2, "echo"), Client(MODERN, capabilities), loop)
            assert sent is not None
            await sent.answer

    assert refused is None


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_a_task_that_an_upstream_begins_unasked_has_an_id_of_the_gateway(version: str, era: str) -> None:
    async with strange(era, "stdio") as config:
        gateway = create_gateway({"up": config})
        async with served_http(gateway) as url, plain(url, version) as client:
            _, _, answer = await client.ask(*client.call("tasked", {}))

    result = answer["result"]
    task = result if version == MODERN else result["task"]
    assert task["status"] == "working"
    assert task["taskId"] not in ("t", "")
    assert "content" not in result


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_plain_call_of_a_tool_that_runs_as_a_task_alone_is_made_as_one(version: str) -> None:
    config = {"command": sys.executable, "args": ["-c", TASKS_ALONE], "tool_prefix": ""}
    async with served_http(create_gateway({"up": config})) as url, plain(url, version) as client:
        _, _, answer = await client.ask(*client.call("long", {}))

    assert answer["result"]["content"][0]["text"] == "done"
