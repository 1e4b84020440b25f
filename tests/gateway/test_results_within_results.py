"""Results that a strict client would not see, as a gateway gives them to its callers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.connect.scripted import HttpScript, listening, modern_answer
from tests.gateway.upstreams import LEGACY, MODERN, Json, caller
from toolweave.gateway import create_gateway

MADE: Json = {"content": [{"type": "text", "text": "made"}]}
FAILED: Json = {**MADE, "isError": True}
ROWS: Json = {"rows": [1, 2]}


async def called(version: str, result: Json) -> Json:
    """Return the result of a call through a gateway whose upstream answers so."""

    def script(message: Json) -> Json | None:
        return {"result": result} if message["method"] == "tools/call" else modern_answer(message)

    async with (
        listening(HttpScript(script).handle) as (url, _),
        caller(create_gateway({"up": {"url": url}}), version) as raw,
    ):
        answer = await raw.ask(raw.request("tools/call", {"name": "up_t", "arguments": {}}))
    return answer["result"]


@pytest.mark.parametrize("version", [MODERN, LEGACY])
@pytest.mark.parametrize(
    ("sent", "failed"),
    [
        ({"content": MADE}, False),
        ({"content": FAILED}, True),
        ({"content": MADE, "isError": True}, True),
        ({"result": MADE}, False),
        ({"result": FAILED}, True),
        ({"toolResult": FAILED}, True),
        ({"jsonrpc": "2.0", "id": 1, "result": FAILED}, True),
    ],
)
async def test_a_result_within_another_is_one_of_the_specification_for_every_client(
    version: str, sent: Json, failed: bool
) -> None:
    result = await called(version, sent)

    assert result["content"] == MADE["content"]
    assert result.get("isError", False) is failed


@pytest.mark.parametrize("version", [MODERN, LEGACY])
@pytest.mark.parametrize("sent", [ROWS, {"error": "no"}, {"status": "ok", "count": 0}])
async def test_data_without_content_is_a_text_for_every_client(version: str, sent: Any) -> None:
    result = await called(version, sent)

    assert [json.loads(block["text"]) for block in result["content"]] == [sent]
    assert not result.get("isError")
