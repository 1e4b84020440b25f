"""Our loop beside the SDK's: the same raw messages to both, over stdio, and the same answers from both.

The SDK is the reference for the protocol; where we differ on purpose, the difference stands here as data.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from tests.serve.raw import ENVELOPE, LEGACY, MODERN, Json, Piped, running_program
from toolweave import ProtocolError, connect_mcp
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION

pytestmark = pytest.mark.slow

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY, MODERN)
LOOPS = ("ours", "sdk")
NOTHING = "no handshake"


def shown(message: Json) -> Json:
    """Return a message without what each side may word as it likes."""
    if "error" in message:
        return {"id": message["id"], "code": message["error"]["code"]}
    return {key: value for key, value in message.items() if key != "jsonrpc" and (key, value) != ("params", {})}


async def exchange(piped: Piped, *messages: Json) -> list[Json]:
    """Send requests and notifications one after the other; return the answers, and what else came meanwhile."""
    transcript: list[Json] = []
    for message in messages:
        if "id" in message:
            transcript.append(shown(await piped.ask(message)))
        else:
            await piped.send(message)
    last = await piped.ask(piped.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}, id="last"))
    transcript.append(shown(last))
    return [*transcript, *(shown(one) for one in piped.take_early())]


def work(piped: Piped) -> list[Json]:
    """Return what any client says, rightly and wrongly."""

    def request(method: str, params: Json | None = None) -> Json:
        return piped.request(method, params)

    def call(name: Any, arguments: Any, **more: Any) -> Json:
        return request("tools/call", {"name": name, "arguments": arguments, **more})

    return [
        request("tools/list"),
        request("tools/list", {"cursor": "nonsense"}),
        request("tools/list", {"cursor": 5}),
        call("add", {"a": 1, "b": 2}),
        call("add", {"a": "x"}),
        call("add", None),
        call("add", [1]),
        call(7, {}),
        call("nobody", {}),
        call("fail", {"text": "on purpose"}),
        call("nap", {"seconds": 0}, _meta={"progressToken": "p"}),
        call("nap", {"seconds": 0}, _meta={"progressToken": 5}),
        call("echo", {"text": "\N{SNOWMAN} \u2028 \x00"}),
        request("ping"),
        request("logging/setLevel", {"level": "info"}),
        request("resources/list"),
        request("prompts/get", {"name": "x"}),
        request("completion/complete", {}),
        request("no/such/method", {"a": 1}),
        request("server/discover"),
        {"jsonrpc": "2.0", "method": "notifications/unknown/one", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody's"}},
    ]


async def on_each(version: str, say: Callable[[Piped], Awaitable[list[Json]]], **capabilities: Any) -> list[Any]:
    """Say the same to both loops after the handshake, where there is one; return the transcripts."""
    transcripts: list[list[Json]] = []
    for loop in LOOPS:
        async with running_program("--loop", loop) as piped:
            hello = [] if version == NOTHING else [shown(await piped.shake_hands(version, **capabilities))]
            transcripts.append(hello + await say(piped))
    return transcripts


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.requirement("C31", "R110")
async def test_both_loops_answer_the_same_to_right_and_wrong_requests(version: str) -> None:
    async def say(piped: Piped) -> list[Json]:
        return await exchange(piped, *work(piped))

    ours, theirs = await on_each(version, say)
    assert ours == theirs
    assert any(one.get("id") == "last" and "result" in one for one in ours)


ENVELOPES: list[Any] = [
    {},
    {PROTOCOL_VERSION: MODERN},
    {PROTOCOL_VERSION: LEGACY, CLIENT_CAPABILITIES: {}},
    {PROTOCOL_VERSION: "2099-01-01", CLIENT_CAPABILITIES: {}},
    {PROTOCOL_VERSION: 5, CLIENT_CAPABILITIES: {}},
    {CLIENT_CAPABILITIES: {}},
    {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}},
    "text",
    None,
]


@pytest.mark.parametrize("opening", ["initialize", "discover", "bare", "ping", "enveloped initialize", "half envelope"])
async def test_both_loops_settle_the_era_the_same_by_the_first_request(opening: str) -> None:
    params: Json = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    modern: Json = {"_meta": ENVELOPE}
    openings: dict[str, tuple[str, Json]] = {
        "initialize": ("initialize", params),
        "discover": ("server/discover", modern),
        "bare": ("tools/list", {}),
        "ping": ("ping", {}),
        "enveloped initialize": ("initialize", {**params, **modern}),
        "half envelope": ("tools/list", {"_meta": {PROTOCOL_VERSION: MODERN}}),
    }

    async def say(piped: Piped) -> list[Json]:
        said: list[tuple[str, Json]] = [
            openings[opening],
            ("tools/list", {}),
            *(("tools/list", {"_meta": envelope}) for envelope in ENVELOPES),
            ("server/discover", modern),
            ("initialize", {"protocolVersion": LEGACY}),
            ("initialize", params),
            ("initialize", {**params, "protocolVersion": "2025-06-18"}),
            ("tools/list", {}),
        ]
        return [shown(await piped.ask(piped.request(*one))) for one in said]

    ours, theirs = await on_each(NOTHING, say)
    assert ours == theirs


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_both_loops_cancel_without_an_answer_and_keep_ids_as_they_were(version: str) -> None:
    async def say(piped: Piped) -> list[Json]:
        keys: list[Any] = [0, "0", -5, "", 2**53, "\N{SNOWMAN}"]
        answers = [shown(await piped.ask(piped.request("tools/list", {"cursor": "x"}, id=key))) for key in keys]
        for key in ("endless", 7):
            params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": key}}
            await piped.send(piped.request("tools/call", params, id=key))
            answers.append(shown(await piped.receive()))
            await piped.notify("notifications/cancelled", requestId=key)
        return answers + await exchange(piped)

    ours, theirs = await on_each(version, say)
    assert ours == theirs
    assert [one.get("method") for one in ours[-3:]] == ["notifications/progress", "notifications/progress", None]


async def test_both_loops_push_changes_and_questions_to_a_handshake_client() -> None:
    async def say(piped: Piped) -> list[Json]:
        await piped.call("grow", name="more")
        pushed = shown(await piped.receive())
        await piped.send(piped.request("tools/call", {"name": "roots", "arguments": {}}, id="r"))
        question = await piped.receive()
        await piped.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///here"}]}})
        answer = shown(await piped.receive())
        await piped.send(piped.request("tools/call", {"name": "roots", "arguments": {}}, id="s"))
        refused = await piped.receive()
        await piped.send({"jsonrpc": "2.0", "id": refused["id"], "error": {"code": -1, "message": "no"}})
        return [pushed, {"method": question["method"]}, answer, shown(await piped.receive())]

    ours, theirs = await on_each(LEGACY, say, roots={})
    assert ours == theirs
    assert ours[1] == {"method": "notifications/tools/list_changed"}
    assert "file:///here" in ours[3]["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_what_a_client_sees_does_not_depend_on_the_loop(version: str) -> None:
    seen: list[Any] = []
    for loop in LOOPS:
        config = {
            "command": sys.executable,
            "args": ["-m", "tests.serve.program", "--loop", loop],
            "protocol": version,
        }
        progress: list[Any] = []
        with anyio.fail_after(60):
            async with connect_mcp(config) as connection:
                tools = await connection.list_tools()
                added = await connection.call_tool("add", {"a": 1, "b": 2})
                failed = await connection.call_tool("fail", {"text": "on purpose"})
                napped = await connection.call_tool("nap", {"seconds": 0}, on_progress=progress.append)
                with pytest.raises(ProtocolError) as unknown:
                    await connection.call_tool("nobody", {})
                server = (connection.protocol_version, connection.server_info)
        seen.append((server, [tool.spec for tool in tools], added, failed, napped, progress, unknown.value.code))
    assert seen[0] == seen[1]
