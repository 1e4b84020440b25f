"""What the APIs refuse, or skip without a word, of a schema of arguments: restated from their own pages and sources.

- OpenAI: `tests/models/openai_rules.py`.
- Anthropic: the reference of tools, the errors that users report, and the Python SDK's `transform_schema`.
- Gemini: the keywords of `parametersJsonSchema`.
- Bedrock: the troubleshooting page of Nova's tools: three members at the top; no definitions.
- Ollama: the members of a tool in its client. llama.cpp: `grammars/README.md`. vLLM: `backend_xgrammar.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import jsonschema_rs

from tests.models.openai_rules import Refused, check_chat
from toolweave.providers import SchemaProfile

__all__ = ["rules_of", "violations"]

Json = Mapping[str, Any]

ONE = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("$defs", "dependentSchemas", "patternProperties", "properties")

OF_ANTHROPIC = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum", "format", "items"),
    *("minItems", "properties", "required", "type"),
}
OF_GEMINI = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "description", "enum", "format", "items", "maxItems"),
    *("maximum", "minItems", "minimum", "prefixItems", "properties", "required", "type"),
}
OF_OLLAMA = {"anyOf", "description", "enum", "items", "properties", "required", "type"}
OF_LLAMA_CPP = {
    *OF_OLLAMA,
    *("additionalProperties", "const", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength"),
    *("maximum", "minItems", "minLength", "minimum", "pattern"),
}
VLLM_FORMATS = {
    *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer", "relative-json-pointer"),
    *("time", "uri", "uri-reference", "uri-template", "uuid"),
}


def rules_of(profile: SchemaProfile) -> str:
    """Return the name of the rules of a profile, which several have in common."""
    if profile in ("openai", "mistral"):
        return "openai"
    return "compatible-strict" if profile == "openai-strict" else profile


def violations(profile: SchemaProfile, schema: Json) -> list[str]:
    """Return what an API has against a schema of arguments, in our words."""
    found = list(_of_all(schema))
    rules: Mapping[str, Callable[[Json], Iterator[str]]] = {
        "anthropic": _of_anthropic,
        "anthropic-strict": _of_strict_anthropic,
        "gemini": _of_gemini,
        "bedrock": _of_bedrock,
        "ollama": lambda one: _unknown(one, OF_OLLAMA),
        "llama.cpp": _of_llama_cpp,
        "vllm": _of_vllm,
    }
    if profile in rules:
        found += rules[profile](schema)
    else:
        found += _of_openai(schema, strict=profile.endswith("strict"))
    if profile.startswith("gpt-oss") and "$ref" in str(schema):
        found += [f"{path}: $ref" for path, node in _nodes(schema, "#") if "$ref" in node]
    return found


def _of_all(schema: Json) -> Iterator[str]:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        yield "the arguments are no object with properties"
    if not jsonschema_rs.meta.is_valid(dict(schema)):
        yield "no valid schema"
    definitions: Json = schema.get("$defs", {})
    for path, node in _nodes(schema, "#"):
        reference = node.get("$ref")
        if reference is not None and str(reference).removeprefix("#/$defs/") not in definitions:
            yield f"{path}: {reference} leads nowhere"


def _of_openai(schema: Json, *, strict: bool) -> Iterator[str]:
    function = {"name": "f", "parameters": schema, "strict": strict}
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    try:
        check_chat({**body, "tools": [{"type": "function", "function": function}]})
    except Refused as exc:
        yield str(exc)


def _of_anthropic(schema: Json) -> Iterator[str]:
    yield from (f"#: {one}" for one in schema.keys() & {"allOf", "anyOf", "oneOf"})
    names: Json = schema.get("properties", {})
    yield from (f"#/properties: {name!r}" for name in names if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name))


def _of_strict_anthropic(schema: Json) -> Iterator[str]:
    yield from _of_anthropic(schema)
    yield from _unknown(schema, OF_ANTHROPIC)
    for path, node in _nodes(schema, "#"):
        if "object" in node.get("type", ()) and node.get("additionalProperties") is not False:
            yield f"{path}: open"
        if not node.keys() & {"$ref", "anyOf", "const", "enum", "type"}:
            yield f"{path}: no type"
        if node.get("minItems", 0) not in (0, 1):
            yield f"{path}: minItems"


def _of_gemini(schema: Json) -> Iterator[str]:
    yield from _unknown(schema, OF_GEMINI)
    for path, node in _nodes(schema, "#"):
        if any(one is None or isinstance(one, (bool, dict, list)) for one in node.get("enum", ())):
            yield f"{path}: enum {node['enum']}"


def _of_bedrock(schema: Json) -> Iterator[str]:
    yield from (f"#: {one}" for one in schema.keys() - {"properties", "required", "type"})
    yield from (f"{path}: $ref" for path, node in _nodes(schema, "#") if "$ref" in node)


def _of_llama_cpp(schema: Json) -> Iterator[str]:
    yield from _unknown(schema, OF_LLAMA_CPP)
    for path, node in _nodes(schema, "#"):
        pattern = node.get("pattern", "^$")
        if not (pattern.startswith("^") and pattern.endswith("$")) or "(?" in pattern:
            yield f"{path}: pattern {pattern}"
        if node.keys() & {"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"} and node["type"] != "integer":
            yield f"{path}: bounds of {node['type']}"
        if node.keys() >= {"properties", "anyOf"}:
            yield f"{path}: properties beside anyOf"


def _of_vllm(schema: Json) -> Iterator[str]:
    yield from (f"{path}: $ref" for path, node in _nodes(schema, "#") if "$ref" in node)
    for path, node in _nodes(schema, "#"):
        yield from (
            f"{path}: {one}" for one in node.keys() & {"multipleOf", "uniqueItems", "contains", "propertyNames"}
        )
        if node.keys() & {"format", "pattern"} and node.keys() & {"minLength", "maxLength"}:
            yield f"{path}: lengths beside a pattern or a format"
        if "format" in node and node["format"] not in VLLM_FORMATS:
            yield f"{path}: format {node['format']}"


def _unknown(schema: Json, known: set[str]) -> Iterator[str]:
    for path, node in _nodes(schema, "#"):
        yield from (f"{path}: {keyword}" for keyword in node.keys() - known)


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Json]]:
    if not isinstance(node, Mapping):
        return
    one = cast("Json", node)
    yield path, one
    for keyword in ONE:
        yield from _nodes(one.get(keyword), f"{path}/{keyword}")
    for keyword in MANY:
        for number, child in enumerate(one.get(keyword, ())):
            yield from _nodes(child, f"{path}/{keyword}/{number}")
    for keyword in NAMED:
        for name, child in one.get(keyword, {}).items():
            yield from _nodes(child, f"{path}/{keyword}/{name}")
