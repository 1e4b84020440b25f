"""Plain calls go a shorter way through a gateway over HTTP, and nobody can tell by the answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.connect.targets import eventually
from tests.gateway.plain_callers import (
    META,
    NOTICED,
    SECONDS,
    Plain,
    Ways,
    again,
    long_way,
    never_at_once,
    plain,
    seen_upstream,
)
from tests.gateway.relayed import MODERN, Json, upstream
from tests.gateway.running import write_gateway_config
from tests.gateway.upstreams import strange
from tests.serve.serving import STOPPING, served_app, served_http
from toolweave import Callbacks, ProtocolError, connect_mcp, create_mcp_server
from toolweave.gateway import GatewayManager, GatewayOptions, create_gateway
from toolweave.gateway._features.fast_calls import FastCalls
from toolweave.gateway._features.fitting import ArgumentFitter
from toolweave.middleware import Observers, RequestEnd
from toolweave.serve import BearerAuth, HttpLimits
from toolweave.testing.servers import stdio_server_command

TEST_SECONDS = 60

PAIRS = [(upstream, caller) for upstream in ("modern", "legacy") for caller in (MODERN, "2025-11-25", "2025-03-26")]
TOKEN = "a token of thirty-two characters, or more"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
Probe = tuple[bytes, Json, Sequence[tuple[str, str]]]
"""Body, headers and further headers of a request."""


async def passing(request: Any, call_next: Any) -> Any:
    """Pass on every request: middleware that has to see it."""
    return await call_next(request)


EACH_WAY: list[tuple[list[Any], list[Any]]] = [([], []), ([passing], []), ([], [long_way])]
"""Middleware of a gateway and of its app: plain calls go at once, through middleware, or the long way."""


def probes(client: Plain) -> dict[str, Probe]:
    """Return requests that gateways have to answer alike, by what they are."""
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    results = ("blocks", "numbers", "failed", "empty", "many", "app", "params", "internal", "own", "full", "headers")
    results = (*results, "array_meta", "text_meta", "exponent", "digits", "integer", "later")
    results = (*results, "bare", "word", "untyped", "flagged", "data_url", "listed", "said")
    made = {f"the tool {name}": client.call(name, {}) for name in results}
    made |= {
        "arguments": client.call("echo", {"a": [1, 2.5, -0.0, 2**70, "ü\n\x00\u2028"], "b": None, "": {"": [[]]}}),
        "no arguments": client.call("echo"),
        "null for arguments": client.call("echo", None),
        "arguments that are no object": client.call("echo", [1]),
        "deep arguments": client.call("echo", {"deep": deep}),
        "an id that is a text": client.call("echo", {}, key="é\n"),
        "an id that is a fraction": client.call("echo", {}, key=1.5),
        "an id that is null": client.call("echo", {}, key=None),
        "a name that is no text": (client.call("echo", {})[0].replace(b'"name": "echo"', b'"name": 7'), {}),
        "an unknown member": client.call("echo", {}, future={"a": [1]}),
        "a token of progress": client.call("echo", {}, _meta={**META, "progressToken": 1}),
        "a token of progress at a tool that reports": client.call("numbers", {}, _meta={**META, "progressToken": "p"}),
        "a token of another type": client.call("echo", {}, _meta={**META, "progressToken": 1.5}),
        "a long token": client.call("echo", {}, _meta={**META, "progressToken": "p" * 2000}),
        "a level of logs": client.call("echo", {}, _meta={**META, "io.modelcontextprotocol/logLevel": "info"}),
        "a trace context": client.call("echo", {}, _meta={**META, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}),
        "another task": client.call(
            "echo", {}, _meta={**META, "io.modelcontextprotocol/related-task": {"taskId": "t"}}
        ),
        "metadata": client.call("echo", {}, _meta={**META, "vendor.example/k": [None, 1.0, "ü\n"], "": {}}),
        "no metadata": client.call("echo", {}, _meta={}),
        "a task": client.call("echo", {}, task={"ttl": 1000}),
        "state": client.call("echo", {}, requestState="none of ours", inputResponses={}),
        "a batch": (b"[" + client.call("echo", {})[0] + b"]", client.call("echo", {})[1]),
        "no JSON": (b"{", client.call("echo", {})[1]),
        "no UTF-8": (client.call("echo", {"a": "X"})[0].replace(b"X", b"\xff"), client.call("echo", {})[1]),
        "an indented text": (
            json.dumps(json.loads(client.call("echo", {"a": {"b": 1}})[0]), indent=2).encode(),
            client.call("echo", {})[1],
        ),
    }
    body, headers = client.call("echo", {"a": 1})
    for name, changed in {
        "a foreign host": {"Host": "evil.example"},
        "a foreign origin": {"Origin": "http://evil.example"},
        "an origin of this machine": {"Origin": "http://localhost:1"},
        "another type": {"Content-Type": "text/plain"},
        "a charset": {"Content-Type": "application/json; charset=utf-8"},
        "nothing accepted": {"Accept": "text/html"},
        "one type accepted": {"Accept": "application/json"},
        "anything accepted": {"Accept": "*/*"},
        "a compressed body": {"Content-Encoding": "gzip"},
        "another tool in the header": {"Mcp-Name": "empty"},
        "an encoded name": {"Mcp-Name": "=?base64?ZWNobw==?="},
        "no name in a header": {"Mcp-Name": None},
        "another method in the header": {"Mcp-Method": "tools/list"},
        "an unknown revision": {"Mcp-Protocol-Version": "2031-01-01"},
        "no revision": {"Mcp-Protocol-Version": None},
        "an unknown session": {"Mcp-Session-Id": "none"},
        "a large header": {"X-Large": "x" * 40_000},
        "a header of some size": {"X-Large": "x" * 20_000},
        "a length that is none": {"Content-Length": "5, 5"},
    }.items():
        made[name] = body, {**headers, **changed}
    found: dict[str, Probe] = {name: (*one, ()) for name, one in made.items()}
    for header in ("Mcp-Name", "Accept", "Content-Type", "Authorization", "Mcp-Session-Id", "Mcp-Protocol-Version"):
        found[f"{header} twice"] = body, headers, [(header, "echo"), (header, "echo")][:1]
    return found


def seen_in(end: RequestEnd) -> Json:
    """Return the members of an event that do not differ from call to call."""
    facts: Json = {name: getattr(end, name) for name in ("method", "name", "server", "tool", "outcome", "error")}
    arguments = json.dumps(end.arguments)
    code = getattr(end.exception, "code", None)
    caller = (end.client.version, end.client.info, end.client.principal)
    return {**facts, "arguments": arguments, "code": code, "caller": caller, "answered": end.result is not None}


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("era", "version"), PAIRS)
@pytest.mark.slow
async def test_the_short_way_answers_as_the_long_one(era: str, version: str, transport: str) -> None:
    ways = Ways()
    answers: list[Json] = []
    events: list[list[Json]] = []
    async with strange(era, transport) as config:
        relayed = never_at_once(config)
        for entry, middleware, wraps in (
            (config, [ways], []),
            (config, [passing, ways], []),
            (config, [passing, ways], [long_way]),
            (relayed, [passing, ways], [long_way]),
        ):
            ends: list[RequestEnd] = []
            gateway = create_gateway({"up": entry}, middleware=[Observers(ends.append), *middleware])
            found: Json = {}
            async with served_http(gateway, middleware=wraps) as url, plain(url, version) as first:
                for name, (body, headers, twice) in probes(first).items():
                    async with again(first, url) as client:
                        found[name] = await client.ask(body, headers, twice)
            answers.append(found)
            events.append([seen_in(end) for end in ends])

    short, layered, unusual, long = answers
    assert short == long
    assert layered == long
    assert unusual == long
    assert [one == events[3] for one in events] == [True] * 4
    assert {one["outcome"] for one in events[0]} == {"ok", "tool_error", "error"}
    assert {"echo", "empty", "numbers", "failed", "many"} <= set(ways.fast)
    assert {"headers", "full"}.isdisjoint(ways.fast)
    assert short["arguments"][0] == 200
    assert short["arguments"][2]["result"]["structuredContent"]["arguments"]["a"][3] == 2**70
    assert [short[f"the tool {name}"][0] for name in ("array_meta", "text_meta")] == [200, 200]
    if (
        transport == "stdio"
    ):  # where the server writes numbers that are out of range: null, whichever way the call takes
        assert short["the tool exponent"][2]["result"]["extra"] is None
        assert short["the tool digits"][2]["result"]["structuredContent"] == {"n": None}
        assert short["the tool integer"][2]["result"]["structuredContent"] == {"n": None}
    assert short["the tool array_meta"][2]["result"]["content"] == [{"type": "text", "text": "m"}]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("era", "version"), PAIRS)
@pytest.mark.slow
async def test_a_call_of_any_transport_is_answered_as_the_relay_answers_it(
    era: str, version: str, transport: str
) -> None:
    calls: list[tuple[str, Json]] = [("echo", {"a": [1, 2.5, 2**70, "ü\n"], "b": None}), ("echo", {}), ("none", {})]
    calls += [(name, {}) for name in ("blocks", "numbers", "failed", "empty", "app", "own", "array_meta", "exponent")]
    answers: list[list[Json]] = []
    async with strange(era, transport) as config:
        for entry in (config, never_at_once(config)):
            found: list[Json] = []
            gateway = create_gateway({"up": entry})
            async with connect_mcp({"server": gateway, "protocol": version, "validate_output": "off"}) as caller:
                for name, arguments in calls:
                    try:
                        found.append(dict(await caller.request(*asking(name, arguments))))
                    except ProtocolError as error:
                        found.append({"code": error.code, "message": error.message, "data": error.data})
            answers.append(found)

    assert answers[0] == answers[1]
    assert answers[0][0]["structuredContent"]["arguments"]["a"][2] == 2**70


def asking(name: str, arguments: Json) -> tuple[str, Json]:
    """Return the method and the parameters of a call."""
    return "tools/call", {"name": name, "arguments": arguments}


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.slow
async def test_a_caller_gets_its_own_answer_among_many(version: str) -> None:
    ways = Ways()
    wrong: list[Any] = []

    async def calls(url: str, number: int) -> None:
        async with plain(url, version) as client:
            for turn in range(60):
                said = {"caller": number, "turn": turn}
                status, _, answer = await client.ask(*client.call("echo", said, key=turn))
                echoed = answer["result"]["structuredContent"]["arguments"]
                if (status, answer["id"], echoed) != (200, turn, said):
                    wrong.append(answer)

    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, middleware=[ways])
        async with served_http(gateway) as url, anyio.create_task_group() as tasks:
            for number in range(16):
                tasks.start_soon(calls, url, number)
            while len(ways.fast) + len(ways.long) < 16 * 60:
                await anyio.sleep(0.05)

    assert wrong == []
    assert len(ways.fast) > 16 * 60 / 2  # more may take longer than a moment, on a machine that is busy


@pytest.mark.parametrize("middleware", [[], [passing]])
@pytest.mark.parametrize("kind", ["stdio-legacy", "stdio-modern"])
@pytest.mark.slow
async def test_a_modern_caller_that_leaves_cancels_its_call_at_the_upstream_and_nobody_elses(
    kind: str, middleware: list[Any]
) -> None:
    with anyio.fail_after(NOTICED), upstream(kind) as config:
        gateway = create_gateway({"up": config}, middleware=middleware)
        async with served_http(gateway) as url, plain(url, MODERN) as other:
            async with plain(url, MODERN) as leaving:
                leaving.send(*leaving.call("hang", {}))
                await anyio.sleep(0.02)
                assert (await other.ask(*other.call("echo", {"text": "here"})))[0] == 200
            seen = await seen_upstream(other)
            while not seen.get("cancelled"):
                await anyio.sleep(0.05)
                seen = await seen_upstream(other)

    assert len(seen["cancelled"]) == 1


@pytest.mark.parametrize("middleware", [[], [passing]])
@pytest.mark.parametrize("pause", [0.0, 1.0])
@pytest.mark.slow
async def test_a_call_in_a_session_is_cancelled_by_its_client(pause: float, middleware: list[Any]) -> None:
    with upstream("stdio-modern") as config:
        gateway = create_gateway({"up": config}, middleware=middleware)
        async with served_http(gateway) as url, plain(url, "2025-11-25") as client:
            await anyio.to_thread.run_sync(lambda: client.send(*client.call("hang", {}, key=7)))
            async with again(client, url) as second:
                await anyio.sleep(pause)
                seen: Json = {}
                while not seen.get("cancelled"):
                    await second.notify("notifications/cancelled", requestId=7)
                    seen = await seen_upstream(second)
            status, _, answer = await anyio.to_thread.run_sync(client.answer)

    assert (status, answer["id"]) == (200, 7)
    assert "cancelled" in answer["error"]["message"]
    assert len(seen["cancelled"]) == 1


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.slow
async def test_a_call_that_takes_too_long_is_answered_and_cancelled(version: str) -> None:
    answers: list[Any] = []
    for middleware, wraps in EACH_WAY:
        with upstream("stdio-modern") as config:
            gateway = create_gateway({"up": {**config, "timeout": {"call": 1.0}}}, middleware=middleware)
            async with served_http(gateway, middleware=wraps) as url, plain(url, version) as client:
                answers.append(await client.ask(*client.call("hang", {})))
                seen = await seen_upstream(client)
        assert len(seen["cancelled"]) == 1

    assert answers[0] == answers[1] == answers[2]
    assert answers[0][2]["result"]["isError"]
    assert "within 1 s" in answers[0][2]["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.slow
async def test_an_upstream_that_dies_is_the_same_error_and_the_next_call_finds_the_new_one(version: str) -> None:
    answers: list[Any] = []
    for middleware, wraps in EACH_WAY:
        with upstream("stdio-legacy") as config:
            gateway = create_gateway({"up": config}, middleware=middleware)
            async with served_http(gateway, middleware=wraps) as url, plain(url, version) as client:
                crashed = await client.ask(*client.call("crash", {}))
                after = await client.ask(*client.call("echo", {"text": "back"}))
                answers.append((crashed, after))

    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0][2]["result"]["isError"]
    assert not answers[0][1][2]["result"].get("isError")


@pytest.mark.parametrize("kind", ["stdio-legacy", "stdio-modern"])
@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
@pytest.mark.slow
async def test_a_caller_that_can_be_asked_is_asked_over_http_too(kind: str, version: str) -> None:
    answered = Callbacks(elicitation=lambda request: {"name": "Ada"})
    with upstream(kind) as config:
        gateway = create_gateway({"up": config})
        target: Json = {"protocol": version}
        async with (
            served_http(gateway) as url,
            connect_mcp({"url": url, **target}, callbacks=answered) as caller,
        ):
            results = [await caller.call_tool("elicit", {}) for _ in range(2)]

    assert ["Ada" in result.text for result in results] == [True, True]


@pytest.mark.slow
async def test_middleware_that_has_to_see_every_request_sees_every_call() -> None:
    ways, seen = Ways(), list[str]()

    async def counting(request: Any, call_next: Any) -> Any:
        seen.append(request.method)
        return await call_next(request)

    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, middleware=[ways])
        async with served_http(gateway) as url, plain(url, MODERN) as client:
            await client.ask(*client.call("echo", {}))
            gateway.endpoint.use([ways, counting], gateway)  # as a reload of the config does
            await client.ask(*client.call("echo", {}))
            gateway.endpoint.use([ways], gateway)
            await client.ask(*client.call("echo", {}))

    assert (ways.fast, ways.long) == (["echo", "echo"], ["echo"])
    assert seen == ["tools/call"]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.slow
async def test_middleware_that_only_watches_is_told_who_called_what_and_what_came_of_it(version: str) -> None:
    told: list[RequestEnd] = []

    def watch(end: RequestEnd) -> None:
        if end.method == "tools/call":
            told.append(end)

    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, middleware=[Observers(watch)])
        async with served_http(gateway) as url, plain(url, version) as client:
            await client.ask(*client.call("echo", {"a": 1}))
            await client.ask(*client.call("failed", {}))

    assert [(one.server, one.tool, one.arguments, one.outcome) for one in told] == [
        ("up", "echo", {"a": 1}, "ok"),
        ("up", "failed", {}, "tool_error"),
    ]
    assert [bool(one.error) for one in told] == [False, True]
    assert all(0 < one.seconds < SECONDS and one.client.version == version for one in told)


@pytest.mark.slow
async def test_authorization_is_asked_on_the_short_way_too() -> None:
    ways = Ways()
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, middleware=[ways])
        auth = BearerAuth(tokens=[TOKEN])
        async with served_http(gateway, auth=auth) as url, plain(url, MODERN) as client:
            body, headers = client.call("echo", {"a": 1})
            statuses = [
                (await client.ask(body, {**headers, **given}))[0]
                for given in (
                    {},
                    AUTHORIZED,
                    {"Authorization": "Bearer wrong"},
                    AUTHORIZED,
                )
            ]

    assert statuses == [401, 200, 401, 200]
    assert (ways.fast, ways.long) == (["echo", "echo"], [])


@pytest.mark.slow
async def test_a_virtual_server_asks_for_its_authorization_before_the_short_way_and_each_time(tmp_path: Path) -> None:
    ways = Ways()
    async with strange("modern", "stdio") as config:

        def write(*keys: str) -> Path:
            auth = {"api_keys": {f"key{number}": key for number, key in enumerate(keys)}}
            return write_gateway_config(tmp_path, {"up": config}, {"auth": auth, "virtual": {"v": {}}})

        manager = GatewayManager(write(TOKEN, "another " + TOKEN), GatewayOptions(watch=False, middleware=(ways,)))
        async with served_app(manager.asgi_app()) as base, plain(f"{base}/mcp/v", MODERN) as client:
            body, headers = client.call("echo", {"a": 1})
            statuses = [(await client.ask(body, {**headers, **given}))[0] for given in ({}, AUTHORIZED, AUTHORIZED)]
            write("another " + TOKEN)
            assert (await manager.reload()).error is None
            statuses.append((await client.ask(body, {**headers, **AUTHORIZED}))[0])

    assert statuses == [401, 200, 200, 401]
    assert (ways.fast, ways.long) == (["echo", "echo"], [])


@pytest.mark.slow
async def test_a_revision_that_a_gateway_does_not_speak_is_not_spoken_on_the_short_way() -> None:
    answers: list[Any] = []
    for middleware, wraps in EACH_WAY:
        async with strange("modern", "stdio") as config:
            gateway = create_gateway({"up": config}, middleware=middleware)
            gateway.speak("legacy")
            async with served_http(gateway, middleware=wraps) as url, plain(url, MODERN) as client:
                answers.append(await client.ask(*client.call("echo", {})))

    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0] != 200


@pytest.mark.slow
async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    limits = HttpLimits(body_seconds=0.3, shutdown_seconds=STOPPING.shutdown_seconds)
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config})
        async with served_http(gateway, limits=limits) as url, plain(url, MODERN) as client:
            body, headers = client.call("echo", {})

            def slow() -> tuple[int, str | None, Any]:
                client.send(body[:-5], {**headers, "Content-Length": str(len(body))})
                return client.answer()

            def late() -> tuple[int, str | None, Any]:
                client.close()
                client.send(b"", {**headers, "Content-Length": str(len(body))})
                return client.answer()

            found = [await anyio.to_thread.run_sync(one) for one in (slow, late)]

    assert [status for status, _, _ in found] == [408, 408]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.slow
async def test_a_result_names_resources_by_the_uris_that_callers_are_listed_on_every_way(version: str) -> None:
    own = "strange://one?q=%C3%BC#f"
    answers: list[Any] = []
    listed: list[str] = []
    for middleware, wraps in EACH_WAY:
        async with strange("modern", "stdio") as config:
            gateway = create_gateway({"one": config, "two": {**config, "tool_prefix": "two_"}}, middleware=middleware)
            async with served_http(gateway, middleware=wraps) as url, connect_mcp({"url": url}) as lister:
                listed = [resource.uri for resource in await lister.list_resources()]
                async with plain(url, version) as client:
                    answers.append([await client.ask(*client.call(name, {})) for name in ("blocks", "two_blocks")])

    exposed = [uri for uri in listed if uri.endswith(own.removeprefix("strange://"))]
    linked = [answer["result"]["content"][3]["uri"] for _, _, answer in answers[0]]
    assert answers[0] == answers[1] == answers[2]
    assert len(set(exposed)) == 2
    assert linked == exposed
    assert linked[0] == own != linked[1]


@pytest.mark.slow
async def test_an_upstream_that_comes_back_as_a_legacy_server_gets_calls_without_the_members_of_the_modern_era(
    tmp_path: Path,
) -> None:
    ways = Ways()
    seen: list[Json] = []
    with upstream("stdio-legacy") as legacy, upstream("stdio-modern") as modern:
        commands = [[one["command"], *one["args"]] for one in (modern, legacy)]
        script = (
            "import os, pathlib\n"
            f"lives = pathlib.Path({str(tmp_path / 'lives')!r})\n"
            "is_restarted = lives.exists()\n"
            "lives.touch()\n"
            f"command = {commands!r}[is_restarted]\n"
            "os.execv(command[0], command)\n"
        )
        config = {"command": sys.executable, "args": ["-c", script], "tool_prefix": ""}
        gateway = create_gateway({"up": config}, middleware=[ways])
        async with served_http(gateway) as url, plain(url, MODERN) as client:
            for _ in commands:
                # The first call after the restart waits for it on the long way, with an event stream for an answer.
                await client.ask(*client.call("echo", {"text": "first"}))
                await client.ask(*client.call("echo", {"text": "second"}))
                seen.append(await seen_upstream(client))
                await client.ask(*client.call("crash", {}))

    assert ["initialize" in one["methods"] for one in seen] == [False, True]
    assert [one["modern"] for one in seen] == [True, False]
    assert ways.fast.count("echo") == 3


async def test_a_tool_that_is_gone_is_not_called_at_once_any_more() -> None:
    server = create_mcp_server(name="up", version="1")

    async def answer() -> str:
        return "answer"

    server.tool(name="f")(answer)
    server.tool(name="g")(answer)
    gateway = create_gateway({"up": {"server": server, "tool_prefix": ""}})
    calls = FastCalls(gateway.tools, gateway.routes, gateway.relay, gateway.endpoint, fitter=ArgumentFitter())
    async with gateway.running():
        assert [calls.takes(name) for name in ("f", "g", "h")] == [True, True, False]
        server.remove_tool("f")
        await eventually(lambda: gateway.tools.snapshot().find("f") is None)
        assert [calls.takes(name) for name in ("f", "g", "h")] == [False, True, False]


@pytest.mark.parametrize("hidden", ["".join(chr(0xE0000 + ord(letter)) for letter in "obey"), "\b", "\f", "\x7f"])
async def test_a_result_with_hidden_characters_is_noted_on_the_short_way_too(hidden: str) -> None:
    hidden = f"plain{hidden}"
    script = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if 'id' not in m: continue\n"
        "    r = {'tools/list': {'tools': [{'name': 'f', 'inputSchema': {'type': 'object'}}]},\n"
        f"         'tools/call': {{'content': [{{'type': 'text', 'text': {hidden!r}}}]}},\n"
        "         'initialize': {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}},\n"
        "                        'serverInfo': {'name': 'x', 'version': '1'}}}.get(m['method'])\n"
        "    e = {'error': {'code': -32601, 'message': 'no'}} if r is None else {'result': r}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], **e}), flush=True)\n"
    )
    config = {"command": sys.executable, "args": ["-c", script], "tool_prefix": ""}
    ways = Ways()
    gateway = create_gateway({"up": config}, middleware=[ways])
    async with served_http(gateway) as url, plain(url, MODERN) as client:
        _, _, answer = await client.ask(*client.call("f", {}))
        problems = gateway.hub.clients["up"].problems

    assert ways.fast == ["f"]
    assert answer["result"]["content"][0]["text"] == hidden
    assert problems


@pytest.mark.slow
async def test_an_idempotency_key_is_bound_to_its_principal_whichever_way_its_call_takes() -> None:
    key = "io.toolweave/idempotency-key"
    seen: list[str] = []
    for middleware, wraps in EACH_WAY:
        async with strange("modern", "stdio") as config:
            auth = BearerAuth(tokens={TOKEN: "ada"})
            gateway = create_gateway({"up": config}, middleware=middleware)
            async with served_http(gateway, middleware=wraps, auth=auth) as url, plain(url, MODERN) as client:
                body, headers = client.call("echo", {}, _meta={**META, key: "mine"})
                _, _, answer = await client.ask(body, {**headers, **AUTHORIZED})
                seen.append(answer["result"]["structuredContent"]["meta"][key])

    assert len(set(seen)) == 1
    assert seen[0] != "mine"


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_an_argument_that_the_config_sets_is_sent_with_plain_calls_and_is_not_the_callers(version: str) -> None:
    command, *args = stdio_server_command()
    rule = {"tools": "add", "arguments": {"b": {"value": 40}}}
    config = {"command": command, "args": args, "tool_prefix": "", "shape": [rule]}
    async with served_http(create_gateway({"up": config})) as url, plain(url, version) as client:
        sums = [await client.ask(*client.call("add", {"a": number})) for number in (1, 2)]
        _, _, refused = await client.ask(*client.call("add", {"a": 2, "b": 1}))

    assert [answer["result"]["structuredContent"] for _, _, answer in sums] == [{"sum": 41}, {"sum": 42}]
    assert "is set by the configuration" in refused["result"]["content"][0]["text"]
