"""Schemas of strangers, for a fuzzer: only documented errors leave a target."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from toolweave.errors import SchemaError
from toolweave.providers import lower
from toolweave.schema import Validator, schema_to_model

PROFILES = ("openai", "anthropic", "gemini", "ollama", "mistral")


def schemas(data: bytes) -> None:
    """JSON Schemas of tools: lowered for models, compiled, and as pydantic models."""
    try:
        schema = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return
    if not isinstance(schema, dict):
        return
    found = cast("dict[str, Any]", schema)
    uses: list[Callable[[], object]] = [
        *(lambda profile=profile: lower(found, cast("Any", profile)) for profile in PROFILES),
        lambda: Validator(found).problems({"a": [1, "x", None, {"b": 1.5}]}),
        lambda: Validator.repaired(found),
        lambda: schema_to_model(found),
    ]
    for use in uses:
        try:
            use()
        except SchemaError:
            pass
