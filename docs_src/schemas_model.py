"""Tools as a model's server gets them."""

from __future__ import annotations

from toolweave.models import OpenAICompatibleModel
from toolweave.tools import ToolSpec

tools = [
    ToolSpec(
        name="price.of",
        input_schema={"type": "object", "properties": {"items": {"type": "array", "uniqueItems": True}}},
    ),
    ToolSpec(name="sum", input_schema={"type": "array"}),
]
model = OpenAICompatibleModel("http://localhost:8000/v1", model="qwen3", provider="vllm")
wire = model.wire_tools(tools)
for definition in wire.definitions:
    print(definition["function"]["name"], definition["function"]["parameters"]["properties"])
print(wire.names.exposed("price_of"))
print(wire.losses)
print(wire.quarantined)
