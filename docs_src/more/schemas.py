"""One schema under several profiles."""

from __future__ import annotations

from toolweave.errors import SchemaError
from toolweave.providers import SchemaProfile, lower

schema = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "pattern": "^(?!drop)", "minLength": 1},
        "tree": {"$ref": "#/$defs/Node"},
        "point": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False},
    },
    "required": ["query"],
    "$defs": {"Node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Node"}}}},
}
profiles: tuple[SchemaProfile, ...] = ("openai", "openai-strict", "anthropic-strict", "gemini", "bedrock")
for profile in profiles:
    try:
        lowered = lower(schema, profile)
    except SchemaError as error:
        print(f"{profile}: refused: {error}")
    else:
        print(f"{profile}: {lowered.schema['properties']['query']}")
        for loss in lowered.losses:
            print(f"  {loss}")
