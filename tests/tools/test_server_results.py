"""Results of servers: any JSON object is one, or is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.json_strategies import OBJECTS
from toolweave import ProtocolError, ToolResult
from toolweave.tools._mcp import tool_result

pytestmark = pytest.mark.slow


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
