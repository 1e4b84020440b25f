"""Servers that refuse the revision that they are offered, or name none: which revision is spoken with them."""

from __future__ import annotations

import pytest

from tests.connect.scripted import Exchange, HttpScript, listening
from tests.connect.targets import ChannelServer, Json, connected, error, initialized
from toolweave import ConnectError, ProtocolError, connect_mcp

REFUSALS: dict[str, tuple[Json, str]] = {
    "the list of the specification's example": (
        error(-32602, "Unsupported protocol version", {"supported": ["2024-11-05"], "requested": "1.0.0"}),
        "2024-11-05",
    ),
    "several": (
        error(-32602, "Unsupported protocol version", {"supported": ["2024-11-05", "2025-03-26", "1999-01-01"]}),
        "2025-03-26",
    ),
    "one as a text": (error(-32022, "no", {"supported": "2025-06-18"}), "2025-06-18"),
    "in the words": (error(-32602, "Unsupported protocol version: 2025-11-25. Supported: 2024-11-05"), "2024-11-05"),
    "in other words": (error(-32600, "protocolVersion must be one of 2025-03-26, 2024-11-05"), "2025-03-26"),
    "nowhere": (error(-32602, "unsupported protocol version: 2025-11-25"), "2025-06-18"),
    "nowhere, by the code": (error(-32022, "no"), "2025-06-18"),
}


def speaking(revision: str, refusal: Json) -> ChannelServer:
    """Return a server that refuses `initialize` with any other revision."""
    greeted = initialized(lambda message: {"result": {"tools": []}}, version=revision)

    def answer(message: Json) -> Json | None:
        if message["method"] == "initialize" and message["params"]["protocolVersion"] != revision:
            return refusal
        return greeted(message)

    return ChannelServer(answer)


@pytest.mark.parametrize(("refusal", "revision"), REFUSALS.values(), ids=list(REFUSALS))
async def test_a_server_that_refuses_a_revision_is_asked_with_an_older_one(refusal: Json, revision: str) -> None:
    server = speaking(revision, refusal)
    async with connected(server) as connection:
        assert connection.protocol_version == revision
        assert connection.problems == ()
    assert server.methods().count("initialize") == 2


async def test_a_server_that_names_no_revision_in_its_refusal_is_asked_down_to_the_oldest() -> None:
    server = speaking("2024-11-05", error(-32602, "Unsupported protocol version"))
    async with connected(server) as connection:
        assert connection.protocol_version == "2024-11-05"
    assert server.methods().count("initialize") == 4


async def test_a_refusal_over_http_that_names_revisions_is_read_like_one_of_the_protocol() -> None:
    greeted = initialized(lambda message: {"result": {"tools": []}}, version="2025-06-18")

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "initialize" and message["params"]["protocolVersion"] == "2025-06-18":
            return False
        if message.get("method") not in ("initialize", "server/discover"):
            return False
        words = b"Bad Request: Unsupported protocol version (supported versions: 2025-06-18, 2025-03-26, 2024-11-05)"
        await exchange.respond(400, words)
        return True

    server = HttpScript(greeted, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        assert connection.protocol_version == "2025-06-18"


@pytest.mark.parametrize(
    "refusal",
    [error(-32602, "Invalid request parameters"), error(-32000, "not now"), error(-32603, "version 2024-11-05")],
)
async def test_a_refusal_for_another_reason_is_an_error_at_once(refusal: Json) -> None:
    server = speaking("2024-11-05", refusal)
    with pytest.raises(ConnectError):
        await connect_mcp(server)
    assert server.methods().count("initialize") == 1


async def test_a_pinned_revision_is_never_exchanged_for_an_older_one() -> None:
    server = speaking("2024-11-05", error(-32602, "Unsupported protocol version", {"supported": ["2024-11-05"]}))
    target = {"transport": "inprocess", "server": server, "protocol": "2025-11-25"}
    with pytest.raises(ConnectError, match="Unsupported protocol version"):
        await connect_mcp(target)
    assert server.methods().count("initialize") == 1


@pytest.mark.parametrize(
    "members",
    [
        {"protocolVersion": None},
        {"protocolVersion": "2024-10-07"},
        {},
        {"protocol_version": "2024-10-07"},
    ],
)
async def test_an_answer_without_a_revision_is_one_of_the_first(members: Json) -> None:
    def answer(message: Json) -> Json | None:
        if message["method"] == "initialize":
            return {"result": {"capabilities": {"tools": {}}, "serverInfo": {"name": "old"}, **members}}
        return initialized(lambda message: {"result": {"tools": []}})(message)

    async with connected(ChannelServer(answer)) as connection:
        assert connection.protocol_version == "2024-11-05"
        assert [one for one in connection.problems if "read as '2024-11-05'" in one]
    target = {"transport": "inprocess", "server": ChannelServer(answer), "repair_messages": False}
    with pytest.raises((ConnectError, ProtocolError), match="'repair_messages': true"):
        await connect_mcp(target)


@pytest.mark.parametrize("result", [{}, {"tools": []}, {"protocolVersion": None}])
async def test_what_is_no_answer_to_a_handshake_stays_an_error(result: Json) -> None:
    def answer(message: Json) -> Json | None:
        if message["method"] == "initialize":
            return {"result": result}
        return initialized(lambda message: {"result": {"tools": []}})(message)

    with pytest.raises(ConnectError, match="protocol version None"):
        await connect_mcp(ChannelServer(answer))
