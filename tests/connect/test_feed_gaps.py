"""The stream of a legacy HTTP session that breaks off: what was told meanwhile is lost, and made up for."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, listening
from tests.connect.targets import Json, connected, eventually, initialized
from toolweave.connect import ResourceUpdated

CAPABILITIES: Json = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
CHANGED = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


class Forgetful:
    """A server whose tools change while the stream of the session is down; `event` is what it sends on that before."""

    def __init__(self, event: bytes) -> None:
        self.tools = ["old"]
        self.streams: list[str | None] = []
        self.breaks = anyio.Event()
        self.http = HttpScript(initialized(self._answer, capabilities=CAPABILITIES), self._stream)
        self._event = event

    def _answer(self, message: Json) -> Json | None:
        if message["method"] == "tools/list":
            return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]}}
        return {"result": {}}

    async def _stream(self, exchange: Exchange, message: Json) -> bool:
        if exchange.method != "GET":
            return False
        first = not self.streams
        self.streams.append(exchange.headers.get("last-event-id"))
        await exchange.start_stream()
        await exchange.chunk(self._event)
        if first:
            await self.breaks.wait()
            self.tools = ["new"]
            await exchange.end_stream()
        else:
            if self.streams[-1] is not None:  # what was missed is sent again
                await exchange.event(CHANGED)
            await exchange.reader.gone.wait()
        return True


@pytest.mark.parametrize(("event", "last_id"), [(b"retry: 1\n\n", None), (b"id: e\nretry: 1\ndata:\n\n", "e")])
@pytest.mark.requirement("D28")
async def test_what_changed_while_the_stream_was_down_is_known_when_it_is_up_again(
    event: bytes, last_id: str | None
) -> None:
    server = Forgetful(event)
    updates: list[ResourceUpdated] = []
    async with listening(server.http.handle) as (url, _), connected(url) as connection:
        await connection.subscribe_resource("file:///a", updates.append)
        await eventually(lambda: server.streams)
        assert [tool.name for tool in connection.snapshot()] == ["old"]
        server.breaks.set()
        await eventually(lambda: [tool.name for tool in connection.snapshot()] == ["new"])
    assert server.streams == [None, last_id]
    assert server.http.methods().count("tools/list") == 2
    missed = [ResourceUpdated(uri="file:///a", missed=True)]
    assert updates == (missed if last_id is None else [])
