"""Each header that decides is judged on every path, whatever verdicts were kept before."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

import toolweave.serve._http
from tests.gateway.plain_callers import SECONDS, again, long_way, plain
from tests.gateway.relayed import MODERN, Json
from tests.serve.serving import served_http
from toolweave import tool
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._http.deciding_headers import COMPARED, JUDGED, ROUTING, SINGLE, JudgedHeaders, KeptVerdicts

LEGACY = "2025-11-25"
REFUSED: dict[bytes, tuple[str, dict[str, int]]] = {
    b"accept": ("text/html", {MODERN: 406, LEGACY: 406}),
    b"content-encoding": ("gzip", {MODERN: 415, LEGACY: 415}),
    b"content-length": ("9" * 17, {MODERN: 413, LEGACY: 413}),
    b"content-type": ("text/plain", {MODERN: 415, LEGACY: 415}),
    b"host": ("elsewhere.example", {MODERN: 421, LEGACY: 421}),
    b"mcp-method": ("tools/list", {MODERN: 400, LEGACY: 200}),
    b"mcp-name": ("another", {MODERN: 400, LEGACY: 200}),
    b"mcp-protocol-version": ("2099-01-01", {MODERN: 400, LEGACY: 400}),
    b"mcp-session-id": ("unknown", {MODERN: 200, LEGACY: 404}),
    b"origin": ("https://elsewhere.example", {MODERN: 403, LEGACY: 403}),
    b"transfer-encoding": ("chunked", {MODERN: 200, LEGACY: 200}),
}
"""A value of each header, and the status of a request with it, by revision."""
OTHER_REQUESTS = {
    b"access-control-request-headers": "of a CORS preflight",
    b"access-control-request-method": "of a CORS preflight",
}
"""Headers that are read, but decide nothing about a POST."""


def server() -> McpServer:
    @tool
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    return create_mcp_server(name="headers", version="1", tools=[echo])


@pytest.mark.slow
@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_each_deciding_header_is_judged_after_a_call_whose_verdict_is_kept(version: str) -> None:
    assert set(REFUSED) == {*JUDGED, *COMPARED}, "each header that decides has a request here"
    answers: list[dict[bytes, Json]] = []
    with anyio.fail_after(SECONDS):
        for wraps in ([], [long_way]):
            found: dict[bytes, Json] = {}
            async with served_http(server(), middleware=wraps) as url, plain(url, version) as first:
                body, headers = first.call("echo", {"text": "a"})
                for name, (value, _) in REFUSED.items():
                    async with again(first, url) as client:
                        good = await client.ask(body, headers)
                    async with again(first, url) as client:
                        # putheader keeps the case, and a header of the client's own is replaced by the same spelling
                        given = {known: text for known, text in headers.items() if known.lower() != name.decode()}
                        spelled = "-".join(part.capitalize() for part in name.decode().split("-"))
                        given[spelled] = value
                        sent = body
                        if spelled == "Transfer-Encoding":
                            given["Content-Length"] = None
                            sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
                        client.session = {k: v for k, v in client.session.items() if k.lower() != name.decode()}
                        refused = await client.ask(sent, given)
                    async with again(first, url) as client:
                        assert await client.ask(body, headers) == good, name
                    assert good[0] == 200, name
                    found[name] = {"status": refused[0], "answer": refused}
            answers.append(found)

    short, long = answers
    assert {name: one["status"] for name, one in short.items()} == {
        name: statuses[version] for name, (_, statuses) in REFUSED.items()
    }
    assert short == long


def test_every_header_that_a_check_of_posts_reads_is_listed() -> None:
    folder = Path(toolweave.serve._http.__file__).parent
    read: set[bytes] = set()
    for module in ("guard", "dispatcher", "fast_path", "quick_parse"):
        text = (folder / f"{module}.py").read_text()
        read |= {name.encode() for name in re.findall(r'headers"?\]?\)?\.get\(\s*b"([a-z-]+)"', text)}
        read |= {name.encode() for name in re.findall(r'b"([a-z-]+)" (?:not )?in headers', text)}
    assert len(read) > len(JUDGED)
    assert read - {*JUDGED, *COMPARED} == set(OTHER_REQUESTS)
    assert {*ROUTING, *SINGLE} - {*JUDGED, *COMPARED} == {b"authorization"}, "tokens are judged before, and not kept"


def test_a_check_whose_verdict_is_kept_cannot_read_another_header() -> None:
    headers = JudgedHeaders({b"host": b"localhost", b"x-other": b"1"})

    assert headers.get(b"host") == b"localhost"
    assert headers.get(b"origin") is None
    assert dict(headers) == {b"host": b"localhost"}
    with pytest.raises(RuntimeError, match="x-other"):
        headers.get(b"x-other")


def test_values_that_clients_choose_do_not_decide_how_many_verdicts_are_kept() -> None:
    judged: list[bytes] = []

    def judge(headers: JudgedHeaders) -> bytes:
        judged.append(headers[b"host"])
        return headers[b"host"]

    kept = KeptVerdicts(judge)

    def verdict(host: bytes) -> bytes:
        return kept[tuple(host if name == b"host" else None for name in JUDGED)]

    for _ in range(2):
        assert verdict(b"localhost") == b"localhost"
    assert judged == [b"localhost"]

    for number in range(3_000):
        assert verdict(b"h%d" % number) == b"h%d" % number
    assert len(kept) <= 1_024

    long = b"h" * 10_000
    before = len(kept)
    assert verdict(long) == long
    assert len(kept) == before
