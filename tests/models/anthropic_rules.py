"""What Anthropic's Messages API refuses of a request, in its own words.

The rules are those of the public API reference and of the error messages that users report: names, roles and their
order, each call answered first in the next message, what a result may hold, schemas, thinking, the prompt cache.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import jsonschema_rs

__all__ = ["Refused", "check", "signature"]

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
MEMBERS = {
    *("cache_control", "container", "max_tokens", "messages", "metadata", "model", "output_config", "service_tier"),
    *("stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p"),
}
IMAGES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
USER_BLOCKS = {"text", "image", "document", "tool_result"}
RESULT_BLOCKS = {"text", "image", "document", "search_result", "tool_reference"}
ASSISTANT_BLOCKS = {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "tool_search_tool_result"}
FORMAT_KEYWORDS = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "allOf", "const", "default", "description", "enum", "format"),
    *("items", "minItems", "properties", "required", "title", "type"),
}


class Refused(Exception):
    """The real API answers this with 400."""


def signature(thought: str) -> str:
    """Return how the provider signs a thought."""
    return "sig" + hashlib.sha256(thought.encode()).hexdigest()[:24]


def check(body: Json) -> None:
    """Refuse what the API refuses.

    Raises:
        Refused: With the API's own words.
    """
    for name in body.keys() - MEMBERS:
        raise Refused(f"{name}: Extra inputs are not permitted")
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            raise Refused(f"{name}: Field required")
    if not 0 <= body.get("temperature", 1) <= 1:
        raise Refused("temperature: range: 0..1")
    if any(not one.strip() for one in body.get("stop_sequences", [])):
        raise Refused("stop_sequences: each stop sequence must contain non-whitespace")
    for block in body.get("system", []):
        _text(block, "system")
    _tools(body)
    _tool_choice(body)
    _messages(body["messages"])
    _thinking(body)
    _cache(body)
    if "output_config" in body:
        _closed(body["output_config"]["format"]["schema"])


def _messages(messages: list[Json]) -> None:
    if not messages:
        raise Refused("messages: at least one message is required")
    if messages[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    waiting: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        role, content = message["role"], cast("list[Json]", message["content"])
        if message.keys() != {"role", "content"} or role not in ("user", "assistant"):
            raise Refused(f"messages.{index}: Extra inputs are not permitted")
        if index and role == messages[index - 1]["role"]:
            raise Refused(f'messages: roles must alternate, but found multiple "{role}" roles in a row')
        if not content:
            raise Refused(f"messages.{index}: {role} messages must have non-empty content")
        _answers(index, content, waiting)
        allowed = USER_BLOCKS if role == "user" else ASSISTANT_BLOCKS
        for place, block in enumerate(content):
            _block(block, f"messages.{index}.content.{place}", allowed)
        waiting = [block["id"] for block in content if block["type"] == "tool_use"]
        if seen & set(waiting) or len(set(waiting)) != len(waiting):
            raise Refused(f"messages.{index}: `tool_use` ids must be unique")
        seen.update(waiting)
    if waiting:
        raise Refused(_unanswered(waiting))


def _answers(index: int, content: list[Json], waiting: list[str]) -> None:
    """Check that the results of the message before stand first."""
    answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    strays = [one for one in answered if one not in waiting]
    if strays:
        raise Refused(
            f"messages.{index}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {strays[0]}. Each "
            "`tool_result` block must have a corresponding `tool_use` block in the previous message."
        )
    first = [block.get("tool_use_id", "") for block in content[: len(waiting)]]
    if sorted(first) != sorted(waiting) or len(answered) != len(waiting):
        raise Refused(_unanswered(waiting))


def _unanswered(waiting: list[str]) -> str:
    return (
        f"messages: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(waiting)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _block(block: Json, where: str, allowed: set[str]) -> None:
    kind = block["type"]
    if kind not in allowed:
        raise Refused(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    match kind:
        case "text":
            _text(block, where)
        case "image":
            _image(block["source"], where)
        case "document":
            _document(block["source"], where)
        case "tool_use":
            _tool_use(block, where)
        case "tool_result":
            _tool_result(block, where)
        case "thinking" if block.get("signature") != signature(block["thinking"]):
            raise Refused(f"{where}: Invalid `signature` in `thinking` block")
        case _:
            pass


def _text(block: Json, where: str) -> None:
    if block.keys() - {"type", "text", "cache_control", "citations"}:
        raise Refused(f"{where}.text: Extra inputs are not permitted")
    if not block["text"]:
        raise Refused("messages: text content blocks must be non-empty")
    if not block["text"].strip():
        raise Refused("messages: text content blocks must contain non-whitespace text")


def _tool_use(block: Json, where: str) -> None:
    if block.keys() - {"type", "id", "name", "input", "cache_control"}:
        raise Refused(f"{where}.tool_use: Extra inputs are not permitted")
    if not CALL_ID.fullmatch(block["id"]):
        raise Refused(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not NAME.fullmatch(block["name"]):
        raise Refused(f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if not isinstance(block["input"], dict):
        raise Refused(f"{where}.tool_use.input: Input should be a valid dictionary")


def _tool_result(block: Json, where: str) -> None:
    if block.keys() - {"type", "tool_use_id", "content", "is_error", "cache_control"}:
        raise Refused(f"{where}.tool_result: Extra inputs are not permitted")
    content = cast("list[Json]", block.get("content", []))
    if block.get("is_error"):
        if not content:
            raise Refused(f"{where}.tool_result: content cannot be empty if `is_error` is true")
        if any(one["type"] != "text" for one in content):
            raise Refused(f"{where}.tool_result: all content must be type `text` if `is_error` is true")
    for place, one in enumerate(content):
        _block(one, f"{where}.tool_result.content.{place}", RESULT_BLOCKS)


def _image(source: Json, where: str) -> None:
    kind = source["media_type"]
    if kind not in IMAGES:
        raise Refused(
            f"{where}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or "
            "'image/webp'"
        )
    if len(source["data"]) > 5 * 1024 * 1024:
        raise Refused(f"{where}.image.source.base64: image exceeds 5 MB maximum")
    if not _decoded(source["data"], where).startswith(IMAGES[kind]):
        raise Refused(f"{where}.image.source.base64.data: Image does not match the provided media type {kind}")


def _document(source: Json, where: str) -> None:
    if source["type"] == "text":
        if source["media_type"] != "text/plain" or not source["data"]:
            raise Refused(f"{where}.document.source.text: data: String should have at least 1 character")
    elif source["media_type"] != "application/pdf" or not _decoded(source["data"], where).startswith(b"%PDF-"):
        raise Refused(f"{where}.document.source.base64.data: The PDF specified was not valid.")


def _decoded(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise Refused(f"{where}.source.base64: invalid base64 data") from None


def _tools(body: Json) -> None:
    tools = cast("list[Json]", body.get("tools", []))
    for index, tool in enumerate(tools):
        if tool.get("type", "custom") == "custom":
            _tool(tool, f"tools.{index}.custom")
        elif not re.search(r"_20\d{6}$", tool["type"]):
            raise Refused(f"tools.{index}: Input tag '{tool['type']}' found using 'type' does not match")
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        raise Refused("tools: Tool names must be unique.")
    if tools and all(tool.get("defer_loading") for tool in tools):
        raise Refused("At least one tool must have defer_loading=false.")
    used = {block["type"] for message in body["messages"] for block in message["content"]}
    if not tools and used & {"tool_use", "tool_result"}:
        raise Refused("Requests which include `tool_use` or `tool_result` blocks must define tools")


def _tool(tool: Json, where: str) -> None:
    if tool.keys() - {"type", "name", "description", "input_schema", "cache_control", "defer_loading", "strict"}:
        raise Refused(f"{where}: Extra inputs are not permitted")
    if not NAME.fullmatch(tool["name"]):
        raise Refused(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    schema = tool["input_schema"]
    if schema.get("type") != "object":
        raise Refused(f"{where}.input_schema.type: Input should be 'object'")
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        raise Refused(f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if not all(PROPERTY.fullmatch(name) for name in schema.get("properties", {})):
        raise Refused(f"{where}.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'")
    try:
        jsonschema_rs.Draft202012Validator(schema)
    except (jsonschema_rs.ValidationError, ValueError):
        raise Refused(
            f"{where}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
        ) from None


def _tool_choice(body: Json) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not body.get("tools"):
        raise Refused("tool_choice: tool_choice may only be specified while providing tools")
    if choice["type"] == "tool" and choice["name"] not in {tool["name"] for tool in body["tools"]}:
        raise Refused(f"tool_choice: Tool '{choice['name']}' not found in provided tools")
    if choice["type"] == "none" and len(choice) > 1:
        raise Refused("tool_choice.none: Extra inputs are not permitted")
    if choice["type"] in ("tool", "any") and "thinking" in body:
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")


def _thinking(body: Json) -> None:
    thinking = body.get("thinking", {"type": "disabled"})
    if thinking["type"] != "enabled":
        return
    if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("temperature", 1) != 1:
        raise Refused("`temperature` may only be set to 1 when thinking is enabled.")
    if body["messages"][-1]["content"][0]["type"] != "tool_result":
        return
    begun = body["messages"][-2]["content"][0]["type"]
    if begun not in ("thinking", "redacted_thinking"):
        raise Refused(f"Expected `thinking` or `redacted_thinking`, but found `{begun}`.")


def _cache(body: Json) -> None:
    blocks = [*body.get("tools", []), *body.get("system", [])]
    blocks += [block for message in body["messages"] for block in message["content"]]
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > 4:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}.")
    if any(block.get("defer_loading") or block.get("type") == "thinking" for block in marked):
        raise Refused("cache_control cannot be set here")


def _closed(schema: Mapping[str, Any]) -> None:
    """Check the schema of a structured output."""
    for node in _nodes(schema):
        for keyword in node.keys() - FORMAT_KEYWORDS:
            raise Refused(f"output_config.format.schema: For '{node.get('type')}' type, '{keyword}' is not supported")
        if node.get("type") == "object" and node.get("additionalProperties") is not False:
            raise Refused(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    inner = [*node.get("properties", {}).values(), *node.get("$defs", {}).values(), *node.get("anyOf", [])]
    if isinstance(node.get("items"), Mapping):
        inner.append(node["items"])
    for one in inner:
        yield from _nodes(one)
