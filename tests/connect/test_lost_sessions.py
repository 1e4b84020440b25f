"""Servers that forget a session and report that in many ways; a call goes on in a new session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.connect.scripted import Exchange, HttpScript, answers_to, legacy_answer, listening, modern_answer
from tests.connect.targets import Json, connected, initialized
from toolweave import AuthRequiredError, CallContext, ConnectionLostError, ErrorKind, ProtocolError, ToolCall
from toolweave.oauth import AuthChallenge
from toolweave.testing.servers.http_wire import WatchedReader, read_exchange

ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'
LOST = {
    "401": (401, b"Unauthorized: Session not found"),
    "401 as an error": (401, ERROR),
    "403": (403, b"Forbidden: the session has expired"),
    "404": (404, b""),
    "404 as an error": (404, ERROR),
    "400": (400, b"Bad Request: No valid session ID provided"),
    "400 as an error": (400, ERROR),
    "409": (409, b"unknown session"),
    "410": (410, b"session terminated"),
    "422": (422, b"invalid session id"),
}


class Forgetful(HttpScript):
    """Answers calls in the session of the first handshake with a refusal; `then` is whether later ones are good."""

    def __init__(self, status: int, said: bytes, *, then: bool = True, challenge: str | None = None) -> None:
        super().__init__(initialized(legacy_answer), self._special)
        self.sessions = 0
        self._refusal = (status, said)
        self._then = then
        self._challenge = {} if challenge is None else {"www_authenticate": challenge}

    async def _special(self, exchange: Exchange, message: Json) -> bool:
        status, said = self._refusal
        method = message.get("method")
        if method == "initialize":
            self.sessions += 1
            if self.sessions == 1 or self._then:
                return False
            await exchange.respond(status, b"who are you", **self._challenge)
            return True
        if method != "tools/call" or self.sessions > 1:
            return False
        await exchange.respond(status, said, **self._challenge)
        return True


class Asked:
    """A hook that has no other credentials, and counts how often it was asked for them."""

    def __init__(self) -> None:
        self.challenges: list[AuthChallenge] = []

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return {"Authorization": "Bearer t"}

    async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
        self.challenges.append(challenge)
        return None


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("case", LOST)
@pytest.mark.parametrize("auth", ["none", "hook"])
async def test_a_session_that_is_lost_with_any_status_is_opened_anew_and_the_call_made(case: str, auth: str) -> None:
    server = Forgetful(*LOST[case])
    hook = Asked()
    async with (
        listening(server.handle) as (url, _),
        connected({"url": url, "protocol": "2025-11-25"}, auth=hook if auth == "hook" else None) as connection,
    ):
        assert (await connection.call_tool("t")).text == "done"
        assert (await connection.call_tool("t")).text == "done"
    assert server.sessions == 2
    assert hook.challenges == []  # nobody signs in for a lost session


async def test_a_refusal_with_a_challenge_is_about_credentials_whatever_its_words_are() -> None:
    server = Forgetful(401, b"the session has expired", challenge='Bearer error="invalid_token"')
    hook = Asked()
    async with (
        listening(server.handle) as (url, _),
        connected({"url": url, "protocol": "2025-11-25"}, auth=hook) as connection,
    ):
        with pytest.raises(AuthRequiredError):
            await connection.call_tool("t")
    assert len(hook.challenges) >= 1


async def test_credentials_are_required_if_the_next_handshake_is_refused_as_well() -> None:
    server = Forgetful(401, b"session not found", then=False)
    async with listening(server.handle) as (url, _), connected({"url": url, "protocol": "2025-11-25"}) as connection:
        with pytest.raises(AuthRequiredError, match="who are you"):
            await connection.call_tool("t")


async def test_a_call_that_a_server_may_have_begun_is_not_repeated_in_the_next_session() -> None:
    server = Forgetful(500, b"session not found")
    async with listening(server.handle) as (url, _), connected({"url": url, "protocol": "2025-11-25"}) as connection:
        with pytest.raises(ConnectionLostError) as lost:
            await connection.call_tool("t")
        assert lost.value.sent
        assert (await connection.call_tool("t")).text == "done"
    assert server.methods().count("tools/call") == 2


@pytest.mark.parametrize("said", [b"no such file", b"the database session is fine"])
async def test_other_refusals_end_no_session(said: bytes) -> None:
    server = Forgetful(400, said)
    async with listening(server.handle) as (url, _), connected({"url": url, "protocol": "2025-11-25"}) as connection:
        with pytest.raises(ProtocolError):
            await connection.call_tool("t")
    assert server.sessions == 1


def repeatable_answer(message: Json) -> Json | None:
    """Answer as a modern server with the one tool `t`, which only reads."""
    if message["method"] == "tools/list":
        hints = {"readOnlyHint": True}
        return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "annotations": hints}]}}
    return modern_answer(message)


@pytest.mark.parametrize(("restart", "calls"), [("on_failure", 2), ("never", 1)])
async def test_a_lost_call_is_sent_again_unless_restarts_are_disabled(restart: str, calls: int) -> None:
    async def reset_once(exchange: Exchange, message: Json) -> bool:
        if script.methods().count("tools/call") > 1 or message.get("method") != "tools/call":
            return False
        await exchange.reset()
        return True

    script = HttpScript(repeatable_answer, reset_once)
    async with listening(script.handle) as (url, _), connected({"url": url, "restart": restart}) as connection:
        result = await connection.call(ToolCall(name="t", arguments={}), CallContext())

    assert script.methods().count("tools/call") == calls
    assert (result.text == "done") == (calls == 2)
    assert result.error is None or result.error.kind is ErrorKind.OUTCOME_UNKNOWN


async def test_a_repeated_call_that_finds_its_server_gone_may_have_run() -> None:
    @answers_to("tools/call")
    async def leave(exchange: Exchange, message: Json) -> None:
        server.close()
        await exchange.reset()

    script = HttpScript(repeatable_answer, leave)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, WatchedReader)
        try:
            while (exchange := await read_exchange(reader, writer)) is not None:
                await script.handle(exchange)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.get_running_loop().create_server(
        lambda: asyncio.StreamReaderProtocol(WatchedReader(), serve), "127.0.0.1", 0
    )
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with connected({"url": url}) as connection:
        with pytest.raises(ConnectionLostError) as lost:
            await connection.call_tool("t")

    assert script.methods().count("tools/call") == 1
    assert lost.value.sent
