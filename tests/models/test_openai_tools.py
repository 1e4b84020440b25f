"""Tools for OpenAI: how many, and how long their descriptions are."""

from __future__ import annotations

from typing import Any

from toolweave.models._openai import OPENAI_URL, OpenAICompatibleModel
from toolweave.tools import ToolSpec


def test_a_long_description_goes_on_where_there_is_room() -> None:
    text = "".join(f"{number} " for number in range(600))
    schema: dict[str, Any] = {"type": "object", "properties": {}, "description": "Own."}
    spec = ToolSpec(name="t", description=text, input_schema=schema)

    (written,) = OpenAICompatibleModel(OPENAI_URL, model="m").wire_tools([spec]).definitions
    (elsewhere,) = OpenAICompatibleModel("http://host/v1", model="m").wire_tools([spec]).definitions

    function = written["function"]
    head = function["description"].partition("...")[0]
    rest, _, own = function["parameters"]["description"].partition("\n")
    assert len(function["description"]) <= 1024
    assert (head + rest, own) == (text, "Own.")
    assert elsewhere["function"]["description"] == text


def test_openai_takes_128_tools_and_of_other_servers_nothing_is_known() -> None:
    assert OpenAICompatibleModel(OPENAI_URL, model="m").max_tools == 128
    assert OpenAICompatibleModel("http://host/v1", model="m").max_tools is None
