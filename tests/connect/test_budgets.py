"""What a server may cost its caller: the bytes of a list, the questions of a call, the time of a task."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, eventually, initialized
from toolweave import (
    Callbacks,
    ConfigError,
    ErrorKind,
    ProtocolError,
    RequestTimeoutError,
    ServerConfig,
    ToolweaveError,
    connect_mcp,
    connect_mcp_servers,
)
from toolweave.connect import ElicitationRequest, SamplingRequest
from toolweave.gateway import create_gateway

ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
TASK: Json = {"taskId": "t", "status": "working"}


def served(era: str, answer: Any, **members: Json) -> ChannelServer:
    """Return a server of an era; `answer` returns the results of requests, by their method."""

    def script(message: Json) -> Json | None:
        if message.get("method") == "server/discover":
            return {"result": {"supportedVersions": [MODERN], "capabilities": members or {"tools": {}}}}
        result = answer(message)
        return None if result is None else {"result": result}

    return ChannelServer(script if era == MODERN else initialized(script, capabilities=members or {"tools": {}}))


# lists


@ERAS
async def test_a_list_of_endless_large_pages_ends_at_its_bytes(era: str) -> None:
    pages: dict[str, int] = {"tools": 0, "prompts": 0, "resources": 0}

    def answer(message: Json) -> Json | None:
        kind = str(message.get("method")).partition("/")[0]
        if kind not in pages:
            return {}
        pages[kind] += 1
        name = f"{kind}-{pages[kind]}"
        entry = {"name": name, "uri": f"x://{name}", "description": "d" * 10_000, "inputSchema": {"type": "object"}}
        return {kind: [entry], "nextCursor": name}

    server = served(era, answer, tools={}, prompts={}, resources={})
    async with connected({"server": server, "max_list_bytes": 45_000}) as connection:
        counts = [
            len(await connection.list_tools()),
            len(await connection.list_prompts()),
            len(await connection.list_resources()),
        ]
        problems = "\n".join(connection.problems)

    assert counts == [5, 5, 5]
    assert "tools/list is too large: stopped after 5 pages and 45000 bytes; raise 'max_list_bytes'" in problems


@pytest.mark.slow
async def test_the_pages_of_a_list_are_at_most_128_mib_together_by_default() -> None:
    pages: list[Json] = []

    def answer(message: Json) -> Json | None:
        if message.get("method") != "tools/list":
            return {}
        pages.append(message)
        name = f"t{len(pages)}"
        entry = {"name": name, "inputSchema": {"type": "object"}, "_meta": {"filler": "d" * 32 * 1024 * 1024}}
        return {"tools": [entry], "nextCursor": name}

    async with connected({"server": served("legacy", answer)}, 120) as connection:
        await connection.list_tools()
        problems = "\n".join(connection.problems)

    assert len(pages) == 4
    assert "stopped after 4 pages and 134217728 bytes; raise 'max_list_bytes'" in problems


async def test_a_long_list_of_small_pages_is_read_to_its_end() -> None:
    def answer(message: Json) -> Json | None:
        if message.get("method") != "tools/list":
            return {}
        params: Json = message.get("params") or {}
        page = int(params.get("cursor", 0))
        listed: Json = {"tools": [{"name": f"t{page}", "inputSchema": {"type": "object"}}]}
        return listed if page == 200 else {**listed, "nextCursor": str(page + 1)}

    async with connected({"server": served("legacy", answer), "max_list_bytes": 1_000_000}) as connection:
        assert len(await connection.list_tools()) == 201
        assert connection.problems == ()


# questions

FLOODING = """
import json, sys

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def ask():
    form = {"mode": "form", "message": "m" * size, "requestedSchema": {"type": "object", "properties": {}}}
    send({"id": 1000 + asked, "method": "elicitation/create", "params": form})

asked, call, refused = 0, None, ""
size = int(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method is None:
        asked += 1
        if len(sys.argv) > 2:
            ask()
        elif "error" in message or asked == 300:
            refused = message.get("error", {}).get("message", "")
            text = f"{asked}: {refused}"
            send({"id": call, "result": {"content": [{"type": "text", "text": text}]}})
        else:
            ask()
    elif method == "initialize":
        info = {"serverInfo": {"name": "flooding", "version": "1"}, "capabilities": {"tools": {}}}
        result = {"protocolVersion": "2025-11-25", **info}
        send({"id": message["id"], "result": result})
    elif method == "tools/list":
        send({"id": message["id"], "result": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        call, asked = message["id"], 0
        ask()
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
"""


def flooding(folder: Path, size: int = 1000, *, goes_on: bool = False, **settings: Any) -> Json:
    """Return the entry of a legacy server that asks its user without end, with texts of `size` bytes, in each call.

    If it `goes_on`, it also asks again after a refusal.
    """
    program = folder / "flooding.py"
    program.write_text(FLOODING)
    options = ["goes on"] if goes_on else []
    return {"command": sys.executable, "args": [str(program), str(size), *options], **settings}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "most", "named"),
    [
        ({}, 100, "max_questions"),
        ({"max_questions": 7}, 7, "max_questions"),
        ({"max_question_bytes": 5_000}, 4, "max_question_bytes"),
    ],
)
async def test_a_server_that_asks_without_end_is_refused_in_each_call(
    tmp_path: Path, settings: Json, most: int, named: str
) -> None:
    asked: list[ElicitationRequest] = []
    callbacks = Callbacks(elicitation=asked.append)
    async with connected(flooding(tmp_path, **settings), 60, callbacks=callbacks) as connection:
        first = await connection.call_tool("ask")
        after_one = len(asked)
        await connection.call_tool("ask")

    assert (after_one, len(asked)) == (most, 2 * most)
    assert first.text.startswith(f"{most + 1}: ")
    assert f"raise '{named}' to allow more" in first.text


@pytest.mark.slow
@pytest.mark.parametrize("callbacks", [Callbacks(elicitation=lambda request: None), Callbacks()])
async def test_a_server_that_asks_again_after_each_refusal_does_not_keep_its_call_open(
    tmp_path: Path, callbacks: Callbacks
) -> None:
    entry = flooding(tmp_path, goes_on=True, timeout={"call": 2, "close": 1})
    async with connected(entry, 60, callbacks=callbacks) as connection:
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("ask")


@pytest.mark.slow
@ERAS
async def test_a_task_beyond_its_time_to_live_ends_at_the_timeout_that_the_call_was_given(era: str) -> None:
    members = ("ttlMs", "pollIntervalMs") if era == MODERN else ("ttl", "pollInterval")
    task = {**TASK, **dict(zip(members, (100, 50), strict=True))}
    async with connected({"server": tasking(era, task, [])}) as connection:
        with pytest.raises(RequestTimeoutError, match=r"the timeout of the call, 0.5 s"):
            await connection.call_tool("job", timeout=0.5)


@pytest.mark.slow
async def test_the_questions_of_a_call_are_at_most_32_mib_together_by_default(tmp_path: Path) -> None:
    asked: list[int] = []
    callbacks = Callbacks(elicitation=lambda question: asked.append(1))
    async with connected(flooding(tmp_path, 1024 * 1024), 120, callbacks=callbacks) as connection:
        result = await connection.call_tool("ask")

    assert len(asked) == 31  # each question is a little more than 1 MiB
    assert "questions of more than 33554432 bytes in one call; raise 'max_question_bytes'" in result.text


HUGE = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        info = {"serverInfo": {"name": "huge", "version": "1"}, "capabilities": {"tools": {}}}
        answer = {"result": {"protocolVersion": "2025-11-25", **info}}
    elif method == "tools/list":
        answer = {"result": {"tools": [{"name": "huge", "inputSchema": {"type": "object"}}]}}
    elif method == "tools/call":
        size = message["params"]["arguments"]["size"]
        answer = {"result": {"content": [{"type": "text", "text": "x" * size}]}}
    else:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "size", "limit"),
    [({}, 128 * 1024 * 1024, 134_217_728), ({"max_message_bytes": 20_000}, 20_000, 20_000)],
)
async def test_a_message_of_a_process_is_at_most_128_mib_or_the_size_that_the_entry_sets(
    tmp_path: Path, settings: Json, size: int, limit: int
) -> None:
    program = tmp_path / "huge.py"
    program.write_text(HUGE)
    entry: Json = {"command": sys.executable, "args": [str(program)], **settings}
    async with connected(entry, 120) as connection:
        with pytest.raises(ToolweaveError, match=f"more than {limit} bytes.*raise 'max_message_bytes'"):
            await connection.call_tool("huge", {"size": size})


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_gateway_asks_its_caller_no_more_than_the_budget_of_an_upstream(tmp_path: Path, version: str) -> None:
    asked: list[ElicitationRequest] = []
    gateway = create_gateway({"up": flooding(tmp_path, max_questions=3, tool_prefix="")})
    with anyio.fail_after(60):
        entry = {"server": gateway, "protocol": version}
        async with connect_mcp(entry, callbacks=Callbacks(elicitation=asked.append)) as caller:
            result = await caller.call_tool("ask")

    assert len(asked) == 3
    assert "max_questions" in result.text


async def test_a_result_that_asks_for_too_much_at_once_is_an_error_that_names_the_setting() -> None:
    asked: list[ElicitationRequest] = []
    form = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    wanted: Json = {"resultType": "input_required", "inputRequests": {f"q{number}": form for number in range(500)}}

    def answer(message: Json) -> Json:
        if message.get("method") == "tools/list":
            return {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
        return wanted

    target = {"server": served(MODERN, answer), "max_questions": 20}
    async with connected(target, callbacks=Callbacks(elicitation=asked.append)) as connection:
        with pytest.raises(ProtocolError, match="more than 20 questions in one call; raise 'max_questions'"):
            await connection.call_tool("ask")

    assert len(asked) <= 20


async def test_few_questions_of_a_server_are_put_to_the_user_at_once() -> None:
    now = most = answered = 0
    go = anyio.Event()

    async def sample(_request: SamplingRequest) -> str:
        nonlocal now, most, answered
        now += 1
        most = max(now, most)
        await go.wait()
        now -= 1
        answered += 1
        return "x"

    def answer(message: Json) -> Json | None:
        if message.get("method") == "tools/list":
            return {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
        if message.get("method") != "tools/call":
            return None
        question: Json = {"jsonrpc": "2.0", "method": "sampling/createMessage", "params": {"messages": []}}
        server.send(json.dumps([{**question, "id": f"q{number}"} for number in range(500)]).encode())
        return {"content": []}

    server = served("legacy", answer)
    async with connected(
        {"server": server, "max_questions": 1_000}, callbacks=Callbacks(sampling=sample)
    ) as connection:
        await connection.call_tool("ask")
        await eventually(lambda: now == 64)
        go.set()
        await eventually(lambda: answered == 500)

    assert most == 64


# tasks


def tasking(era: str, task: Json, methods: list[Any]) -> ChannelServer:
    """Return a server whose one tool becomes a task that works for ever."""
    created: Json = {**task, "resultType": "task"} if era == MODERN else {"task": task}

    def answer(message: Json) -> Json | None:
        methods.append(message.get("method"))
        match message.get("method"):
            case "tools/list":
                support = {"execution": {"taskSupport": "required"}}
                return {"tools": [{"name": "job", "inputSchema": {"type": "object"}, **support}]}
            case "tools/call":
                return created
            case "tasks/get":
                return task
            case _:
                return {}

    offered: Json = {} if era == MODERN else {"tasks": {"requests": {"tools": {"call": {}}}}}
    return served(era, answer, tools={}, **offered)


@pytest.mark.slow
@ERAS
async def test_a_task_that_works_beyond_its_time_to_live_ends_as_a_timeout(era: str) -> None:
    methods: list[Any] = []
    member = "ttlMs" if era == MODERN else "ttl"
    interval = "pollIntervalMs" if era == MODERN else "pollInterval"
    server = tasking(era, {**TASK, member: 100, interval: 50}, methods)
    async with connected({"server": server, "timeout": {"call": 0.5}}) as connection:
        with pytest.raises(
            RequestTimeoutError, match=r"its time to live, 0.1 s, and the timeout of the call, 0.5 s"
        ) as late:
            await connection.call_tool("job")

    assert "whether its work was done is unknown" in str(late.value)
    assert "tasks/cancel" in methods


@pytest.mark.slow
@ERAS
@pytest.mark.parametrize("ttl", [None, "soon", 10**400, True])
async def test_a_task_that_never_ends_ends_at_the_bound_of_the_config(era: str, ttl: Any) -> None:
    methods: list[Any] = []
    member = "ttlMs" if era == MODERN else "ttl"
    server = tasking(era, {**TASK, member: ttl, "pollIntervalMs": 50, "pollInterval": 50}, methods)
    async with connected({"server": server, "timeout": {"task": 0.4}}) as connection:
        with pytest.raises(RequestTimeoutError, match=r"'timeout.task', 0.4 s"):
            await connection.call_tool("job")

    assert "tasks/cancel" in methods


@pytest.mark.parametrize("name", ["max_list_bytes", "max_questions", "max_question_bytes"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many"])
def test_a_budget_that_is_not_a_number_from_one_on_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        ServerConfig(name="s", command="x", **{name: wrong})


# steps and blocks


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tool", "resource", "prompt"])
@ERAS
async def test_an_answer_of_more_parts_than_are_read_is_an_error_that_says_how_many(era: str, kind: str) -> None:
    def answer(message: Json) -> Json | None:
        match message.get("method"):
            case "tools/list":
                return {"tools": [{"name": "many", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                return {"content": [{"type": "text", "text": ""}] * 250_001}
            case "resources/read":
                return {"contents": [{"uri": "x://a", "text": ""}] * 250_001}
            case "prompts/get":
                return {"messages": [{"role": "user", "content": {"type": "text", "text": ""}}] * 250_001}
            case _:
                return {}

    server = served(era, answer, tools={}, prompts={}, resources={})
    async with connected(server, 60) as connection:
        with pytest.raises(ProtocolError, match="has 250,001 parts; at most 250,000 are read") as many:
            if kind == "tool":
                await connection.call_tool("many")
            elif kind == "resource":
                await connection.read_resource("x://a")
            else:
                await connection.get_prompt("p")

    assert many.value.kind == ErrorKind.TOO_LARGE


@pytest.mark.slow
async def test_a_long_list_is_read_named_and_compared_in_steps_between_which_others_run() -> None:
    number = 20_000

    def answer(message: Json) -> Json:
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        words = "Use other_server_tool first. " + "x" * 50
        return {"tools": [{"name": f"tool_{n}", "description": words, "inputSchema": schema} for n in range(number)]}

    def other(message: Json) -> Json:
        return {"tools": [{"name": "other_server_tool", "inputSchema": {"type": "object"}}]}

    turns = count = 0
    shadows: list[str] = []

    async def run_beside() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    servers = {"long": {"server": served("legacy", answer)}, "other": {"server": served("legacy", other)}}
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks, connect_mcp_servers(servers) as hub:
            before = turns
            tasks.start_soon(run_beside)
            await eventually(lambda: turns >= before + 40, 60)
            shadows = [str(one) for one in hub.findings if one.server == "long"]
            count = len(hub.snapshot())
            tasks.cancel_scope.cancel()

    assert count == number + 1
    assert len(shadows) == 201
    assert "speaks of 'other_server_tool', a tool of server 'other'" in shadows[0]
    assert "is the last of 19,800 more" in shadows[-1]


async def test_what_a_long_list_says_of_another_servers_tools_is_reported_before_a_short_program_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(message: Json) -> Json:
        words = ["Use other_server_tool first." if number == 1_999 else "" for number in range(2_000)]
        return {"tools": [{"name": f"tool_{n}", "description": text} for n, text in enumerate(words)]}

    def other(message: Json) -> Json:
        return {"tools": [{"name": "other_server_tool"}]}

    servers = {"long": {"server": served("legacy", answer)}, "other": {"server": served("legacy", other)}}
    async with connect_mcp_servers(servers):
        pass

    assert "tool 'tool_1999' flagged: its description speaks of 'other_server_tool'" in caplog.text


@pytest.mark.parametrize("kind", ["prompts", "resources", "resourceTemplates"])
async def test_other_long_lists_are_read_in_steps_too(kind: str) -> None:
    turns = count = 0

    def answer(message: Json) -> Json:
        method = str(message.get("method"))
        wanted = {"prompts/list": "prompts", "resources/list": "resources"}.get(method, "resourceTemplates")
        names = [f"x://{number}" for number in range(10_000)]
        return {wanted: [{"name": name, "uri": name, "uriTemplate": name} for name in names]}

    async def run_beside() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    server = served("legacy", answer, prompts={}, resources={})
    async with connected(server, 60) as connection, anyio.create_task_group() as tasks:
        read = {
            "prompts": connection.list_prompts,
            "resources": connection.list_resources,
            "resourceTemplates": connection.list_resource_templates,
        }
        tasks.start_soon(run_beside)
        await anyio.lowlevel.checkpoint()
        count = len(await read[kind]())
        tasks.cancel_scope.cancel()

    assert count == 10_000
    assert turns > 1


# what is kept of a server, without any setting

NOISY = """
import json, sys

print("n" * 300_000 + " the end", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        info = {"name": "noisy", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_of_a_long_line_on_standard_error_the_end_is_kept() -> None:
    async with connected({"command": sys.executable, "args": ["-I", "-S", "-c", NOISY]}) as connection:
        await eventually(lambda: connection.stderr_tail.endswith("the end"))

        assert len(connection.stderr_tail) <= 16 * 1024


@pytest.mark.slow
async def test_an_endless_list_ends_at_its_entries() -> None:
    pages = 0

    def answer(message: Json) -> Json | None:
        nonlocal pages
        if message.get("method") != "prompts/list":
            return {}
        pages += 1
        return {"prompts": [{"name": f"p{pages}-{one}"} for one in range(25_000)], "nextCursor": str(pages)}

    async with connected({"server": served("legacy", answer, prompts={})}) as connection:
        assert len(await connection.list_prompts()) == 100_000
        assert "prompts/list does not end: stopped after 4 pages" in "\n".join(connection.problems)
