"""Clients that write their headers carelessly, over HTTP by hand: what can be meant in one way only is served."""

from __future__ import annotations

import pytest

from tests.serve.exchanges import BOTH, call, exchange, handshake
from tests.serve.offered import doing_server
from tests.serve.serving import served_http
from toolweave.serve import MemoryEventStore

ECHO = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"value": "x"}}}'


@pytest.mark.parametrize("name", ["  add", "add  ", "\tadd \t"])
async def test_white_space_around_a_header_is_no_part_of_its_value(name: str) -> None:
    async with served_http(doing_server()) as url:
        answer = await call(url, "add", {"a": 1, "b": 2}, headers={"Mcp-Name": name})

    assert answer.status == 200
    assert answer.json()["result"]["content"][0]["text"] == "3"


async def test_in_a_session_the_agreed_revision_holds_whatever_known_one_a_header_says() -> None:
    async with served_http(doing_server(), event_store=MemoryEventStore(), retry_interval=10) as url:
        _, session = await handshake(url)
        right = await exchange(url, headers=session, body=ECHO)
        older = await exchange(url, headers={**session, "MCP-Protocol-Version": "2025-03-26"}, body=ECHO)
        unknown = await exchange(url, headers={**session, "MCP-Protocol-Version": "1999-01-01"}, body=ECHO)

    assert (right.status, older.status, unknown.status) == (200, 200, 400)
    assert b"retry: 10" in right.body, "the client may come back for the stream"
    assert b"retry: 10" in older.body


@pytest.mark.parametrize(
    ("declared", "agreed"), [(b"[]", True), (b"null", True), (b"{}", True), (b"[1]", False), (b"5", False)]
)
async def test_a_client_may_declare_no_capabilities_as_null_or_an_empty_list(declared: bytes, agreed: bool) -> None:
    offer = b'{"protocolVersion": "2025-06-18", "clientInfo": {"name": "c", "version": "1"}, "capabilities": %b}'
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": %b}' % (offer % declared)
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers={"Content-Type": "application/json", "Accept": BOTH}, body=body)

    assert ("result" in answer.json()) is agreed


@pytest.mark.parametrize("params", [b'"params": null', b'"params": {}', b'"params": {"_meta": null}', b""])
@pytest.mark.parametrize("method", ["ping", "tools/list"])
async def test_null_as_parameters_is_none_of_them(method: str, params: bytes) -> None:
    members = b", ".join(filter(None, (b'"jsonrpc": "2.0", "id": 1, "method": "%b"' % method.encode(), params)))
    async with served_http(doing_server()) as url:
        _, session = await handshake(url)
        answer = await exchange(url, headers=session, body=b"{%b}" % members)

    assert answer.status == 200
    assert b'"result"' in answer.body
