"""Log messages to clients: nothing unless the author wants it, and then what each client asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.carriers import EACH_CARRIER, connected
from tests.serve.lines import Peer
from toolweave import Callbacks
from toolweave.connect import LogMessage
from toolweave.errors import RequestError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
LEVEL = "io.modelcontextprotocol/logLevel"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


async def talk(ctx: CallContext) -> str:
    for level in LEVELS:
        await ctx.log(level, {"at": level}, logger="mine")
    return "said"


def serve(**options: Any) -> McpServer:
    return create_mcp_server(name="talks", version="1", tools=[talk], **options)


def levels_of(peer: Peer) -> list[str]:
    return [params["level"] for method, params in peer.notifications if method == "notifications/message"]


async def set_level(server: McpServer, peer: Peer, level: Any) -> dict[str, Any]:
    return await server.endpoint.answer(peer.request("logging/setLevel", level=level))


@pytest.mark.requirement("C12", "R93")
@pytest.mark.parametrize("modern", [True, False])
async def test_logging_is_declared_only_where_it_was_asked_for(modern: bool) -> None:
    assert "logging" not in serve().endpoint.capabilities(modern=modern)
    assert serve(logging=True).endpoint.capabilities(modern=modern)["logging"] == {}


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_server_that_declares_no_logging_sends_none(version: str) -> None:
    server = serve()
    peer = Peer(version=version)

    await peer.call(server, "talk", _meta={LEVEL: "debug"})

    assert peer.notifications == []
    with pytest.raises(RequestError) as caught:
        await set_level(server, peer, "debug")
    assert caught.value.code == -32601


@pytest.mark.requirement("R88")
@EACH_CARRIER
async def test_a_client_hears_what_a_handler_logs(carrier: str, era: str) -> None:
    said: list[LogMessage] = []
    callbacks = Callbacks(logging=said.append, log_level="critical")

    async with connected(serve(logging=True), carrier, era, callbacks=callbacks) as connection:
        await connection.call_tool("talk", {})

    assert [(message.level, message.logger, message.data) for message in said] == [
        (level, "mine", {"at": level}) for level in LEVELS[5:]
    ]


@pytest.mark.parametrize("level", LEVELS)
async def test_a_modern_request_hears_its_level_and_above(level: str) -> None:
    peer = Peer()

    await peer.call(serve(logging=True), "talk", _meta={LEVEL: level})

    assert levels_of(peer) == list(LEVELS[LEVELS.index(level) :])


@pytest.mark.parametrize("meta", [{}, {LEVEL: None}, {LEVEL: "loud"}, {LEVEL: ["info"]}])
async def test_a_modern_request_without_a_level_hears_nothing(meta: dict[str, Any]) -> None:
    peer = Peer()

    await peer.call(serve(logging=True), "talk", _meta=meta)

    assert peer.notifications == []


async def test_a_handshake_era_client_hears_info_and_above_until_it_says_otherwise() -> None:
    peer = Peer(version=LEGACY, conversation="a")

    await peer.call(serve(logging=True), "talk")

    assert levels_of(peer) == list(LEVELS[1:])


async def test_a_level_holds_for_its_own_conversation() -> None:
    server = serve(logging=True)
    quiet = Peer(version=LEGACY, conversation="a")
    loud = Peer(version=LEGACY, conversation="b")

    assert await set_level(server, quiet, "emergency") == {}
    assert await set_level(server, loud, "debug") == {}
    await quiet.call(server, "talk")
    await loud.call(server, "talk")

    assert levels_of(quiet) == ["emergency"]
    assert levels_of(loud) == list(LEVELS)


async def test_a_request_of_no_conversation_sets_nobody_elses_level() -> None:
    server = serve(logging=True)
    stateless = Peer(version=LEGACY)

    await set_level(server, stateless, "emergency")
    await stateless.call(server, "talk")

    assert levels_of(stateless) == list(LEVELS[1:])


@pytest.mark.parametrize("level", ["loud", "", None, 3, ["info"], {}])
async def test_a_level_that_there_is_not_is_refused(level: Any) -> None:
    with pytest.raises(RequestError, match="level must be one of debug") as caught:
        await set_level(serve(logging=True), Peer(version=LEGACY, conversation="a"), level)

    assert caught.value.code == -32602


async def test_modern_revisions_have_no_set_level() -> None:
    with pytest.raises(RequestError) as caught:
        await set_level(serve(logging=True), Peer(), "debug")

    assert caught.value.code == -32601


async def test_a_handler_that_logs_at_no_severity_learns_it() -> None:
    async def shout(ctx: CallContext) -> None:
        level: Any = "loud"
        await ctx.log(level, "x")

    server = create_mcp_server(name="shouts", version="1", tools=[shout])

    result = await Peer().call(server, "shout")

    assert "no log level 'loud'" in result["content"][0]["text"]
