"""Results of servers: any JSON object is one, or is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.json_strategies import OBJECTS
from toolweave import ProtocolError, ToolResult
from toolweave.tools.mcp import tool_result

DATA = "AAEC" * 30
LINES = f"{DATA[:76]}\n{DATA[76:]}"


@pytest.mark.slow
@given(OBJECTS)
def test_any_json_object_is_a_tool_result_or_a_protocol_error(value: dict[str, Any]) -> None:
    try:
        result = tool_result(value, server="any")
    except ProtocolError:
        return
    assert isinstance(result, ToolResult)
    assert isinstance(result.text, str)
    assert result.is_error == (result.error is not None)
    noted: list[str] = []
    again = tool_result(result.raw, server="any", note=noted.append)
    assert (again, noted) == (result, [])  # what the second reading makes is in the specification's form


@pytest.mark.parametrize(
    "block, data",
    [
        ({"type": "image", "data": LINES, "mimeType": "image/png"}, DATA),
        ({"type": "image", "data": f"data:image/png;base64,{DATA}"}, DATA),
        ({"type": "audio", "data": "-_-_", "mimeType": "audio/wav"}, "+/+/"),
        ({"type": "resource", "resource": {"uri": "u", "blob": LINES}}, DATA),
    ],
)
def test_data_that_is_not_plain_base64_is_read_and_noted(block: dict[str, Any], data: str) -> None:
    notes: list[str] = []
    result = tool_result({"content": [{"type": "text", "text": "x"}, block]}, server="s", note=notes.append)

    read = result.content[1]
    assert (getattr(read, "data", None) or getattr(read, "blob", None)) == data
    assert notes == ["has data that is not plain base64"]
