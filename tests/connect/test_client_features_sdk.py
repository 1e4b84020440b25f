"""Servers on the official SDK ask this client: both eras, every transport of theirs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from typing import Any

import pytest

from tests.connect.targets import MODERN, Json, connected, eventually
from tests.servers.fixtures import running, sdk_command
from tests.servers.sdk_asking import asking
from toolweave import Callbacks, ProtocolError
from toolweave.connect import ElicitationRequest, LogMessage, SamplingRequest, SamplingResult

pytestmark = pytest.mark.slow
MATRIX = [
    (kind, era)
    for kind in ("stdio", "http")
    for era in ("legacy", MODERN)
] + [("in process", "legacy"), ("in process", MODERN)]  # fmt: skip


@contextlib.contextmanager
def sdk_server(kind: str, era: str) -> Generator[Any, None, None]:
    more: Json = {"protocol": era}
    if kind == "stdio":
        command, *args = sdk_command("--kind", "asking")
        yield {"command": command, "args": args, **more}
    elif kind == "http":
        with running(sdk_command("--kind", "asking", "--http", 0)) as port:
            yield {"url": f"http://127.0.0.1:{port}/mcp", **more}
    else:
        yield {"server": asking(), **more}


@pytest.mark.parametrize(("kind", "era"), MATRIX)
async def test_a_server_on_the_sdk_gets_its_answers(kind: str, era: str) -> None:
    asked: list[str] = []
    logs: list[LogMessage] = []

    async def sampling(request: SamplingRequest) -> SamplingResult:
        asked.append(request.messages[0].text)
        return SamplingResult(content="Fine.", model="tiny-1")

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append(request.url or request.message)
        return {} if request.mode == "url" else {"name": "Ada"}

    callbacks = Callbacks(
        sampling=sampling,
        elicitation=elicitation,
        roots=["file:///srv"],
        logging=logs.append,
        log_level="info",
    )
    with sdk_server(kind, era) as target:
        async with connected(target, 60, callbacks=callbacks) as connection:
            version = connection.protocol_version
            answers = {
                tool: json.loads((await connection.call_tool(tool)).text)
                for tool in ("sample", "elicit", "visit", "list_roots")
            }
            await connection.call_tool("log")
            await eventually(lambda: logs)

    assert version == (MODERN if era == MODERN else "2025-11-25")
    assert asked == ["How do you do?", "Who?", "https://example.com/a"]
    assert answers["sample"]["content"] == {"type": "text", "text": "Fine."}
    assert (answers["sample"]["model"], answers["sample"]["stopReason"]) == ("tiny-1", "endTurn")
    assert answers["elicit"]["content"] == {"name": "Ada", "size": 3}
    assert (answers["visit"]["action"], answers["visit"].get("content")) == ("accept", None)
    assert answers["list_roots"]["roots"] == [{"uri": "file:///srv"}]
    assert [(log.level, log.logger, log.data) for log in logs] == [("warning", "sdk", "careful")]


@pytest.mark.parametrize(("kind", "era"), MATRIX)
async def test_a_server_on_the_sdk_is_refused_what_is_not_offered(kind: str, era: str) -> None:
    with sdk_server(kind, era) as target:
        async with connected(target, 60) as connection:
            for tool in ("sample", "elicit", "visit", "list_roots"):
                with pytest.raises(ProtocolError) as refused:
                    await connection.call_tool(tool)
                assert refused.value.code in (-32021, -32601)
            assert len(await connection.list_tools()) == 5
