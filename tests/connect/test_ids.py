"""Which answer belongs to which request: ids are matched exactly, over stdio and HTTP."""

from __future__ import annotations

import json

import pytest

from tests.connect.scripted import DONE, Exchange, HttpScript, answers_to, legacy_answer, listening, modern_answer
from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave.errors import ServerError

ARABIC = str.maketrans("0123456789", "".join(chr(0x660 + digit) for digit in range(10)))
OURS = {"as it is": "{0}", "as text": '"{0}"', "a fraction": "{0}.0", "an exponent": "{0}e0"}
NOT_OURS = {
    "zeros": '"00{0}"',
    "a sign": '"+{0}"',
    "a space": '" {0}"',
    "arabic": '"{1}"',
    "a real fraction": "{0}.5",
    "another": "7000{0}",
}


def written(form: str, number: int) -> str:
    return (OURS | NOT_OURS)[form].format(number, str(number).translate(ARABIC))


def said(message: Json, number: str, result: Json = DONE) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number.encode(), json.dumps(result).encode())


def answering(form: str) -> ChannelServer:
    """Serve a tool whose answers have their id in one form."""

    def script(message: Json) -> Json | None:
        if message["method"] != "tools/call":
            return legacy_answer(message)
        server.send(said(message, written(form, message["id"])))
        return None

    server = ChannelServer(initialized(script))
    return server


@pytest.mark.parametrize("form", OURS)
async def test_an_id_that_is_the_same_number_is_ours_over_a_channel(form: str) -> None:
    async with connected({"server": answering(form)}) as connection:
        assert (await connection.call_tool("t")).text == "done"


@pytest.mark.slow
@pytest.mark.parametrize("form", NOT_OURS)
async def test_an_id_that_only_looks_like_ours_is_another_one_over_a_channel(form: str) -> None:
    async with connected({"server": answering(form)}) as connection:
        with pytest.raises(ServerError):  # at once, where nothing else can be meant
            await connection.call_tool("t", timeout=1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", [*OURS, *NOT_OURS])
async def test_ids_are_matched_exactly_over_http(form: str, stream: bool) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        text = said(message, written(form, message["id"]))
        if stream:
            text = b"data: " + text + b"\n\n"
        kind = "text/event-stream" if stream else "application/json"
        await exchange.respond(200, text, content_type=kind)

    async with listening(HttpScript(modern_answer, special).handle) as (url, _), connected(url) as connection:
        if form in OURS:
            assert (await connection.call_tool("t")).text == "done"
        else:
            with pytest.raises(ServerError):
                await connection.call_tool("t")
