"""What OpenAI's API refuses of a request, in its own words.

The rules are those of the public API reference and of the error messages that users report: names, at most 128 tools,
where a schema may not have a keyword, the subset of strict mode, roles, and each call answered once directly after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import jsonschema_rs

__all__ = ["Refused", "check_chat", "check_responses"]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INPUTS = {"input_text", "input_image", "input_file"}
STRICT_KEYWORDS = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "exclusiveMaximum"),
    *("exclusiveMinimum", "format", "items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum"),
    *("multipleOf", "pattern", "properties", "required", "title", "type"),
}
STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
CHAT_MEMBERS = {
    *("frequency_penalty", "logit_bias", "max_completion_tokens", "max_tokens", "messages", "metadata", "model"),
    *("parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "store"),
    *("stream", "stream_options", "temperature", "tool_choice", "tools", "top_p", "user"),
}
RESPONSES_MEMBERS = {
    *("include", "input", "instructions", "max_output_tokens", "metadata", "model", "parallel_tool_calls"),
    *("previous_response_id", "reasoning", "store", "stream", "temperature", "text", "tool_choice", "tools", "top_p"),
    *("truncation", "user"),
}


class Refused(Exception):
    """The real API answers this with 400."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.body = {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def check_chat(body: dict[str, Any]) -> None:
    """Refuse what Chat Completions refuses.

    Raises:
        Refused: With the API's own words.
    """
    _known_members(body, CHAT_MEMBERS)
    _check_tools(body, [one.get("function") for one in body.get("tools", [])], "tools[{}].function")
    waiting: list[str] = []
    for index, message in enumerate(body["messages"]):
        role, where = message.get("role"), f"messages.[{index}].role"
        if role not in ("developer", "system", "user", "assistant", "tool"):
            raise Refused(f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', ...", where)
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    where,
                )
            waiting.remove(message["tool_call_id"])
            _check_text(message["content"], f"messages[{index}].content")
            continue
        if waiting:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
                where,
            )
        if role == "assistant":
            waiting = _check_assistant(message, index)
        else:
            _check_parts(message["content"], {"text", "image_url", "input_audio", "file"}, f"messages[{index}].content")
    if waiting:
        raise Refused(f"The following tool_call_ids did not have response messages: {', '.join(waiting)}")
    shape = body.get("response_format", {})
    if shape.get("type") == "json_schema":
        _check_output(shape["json_schema"], "response_format")


def check_responses(body: dict[str, Any]) -> None:
    """Refuse what Responses refuses.

    Raises:
        Refused: With the API's own words.
    """
    _known_members(body, RESPONSES_MEMBERS)
    functions = [one if one["type"] == "function" else None for one in body.get("tools", [])]
    _check_tools(body, functions, "tools[{}]")
    waiting: list[str] = []
    items: list[Any] = [] if isinstance(body["input"], str) else body["input"]
    for index, item in enumerate(items):
        _check_item(body, index, item, waiting)
    if waiting:
        raise Refused(f"No tool output found for function call {waiting[0]}.", "input")
    if "reasoning.encrypted_content" in body.get("include", ()) and body["model"].startswith("gpt-4"):
        raise Refused("Encrypted content is not supported with this model.", "include")
    shape = body.get("text", {}).get("format", {})
    if shape.get("type") == "json_schema":
        _check_output(shape, "text.format")


def _check_item(body: dict[str, Any], index: int, item: dict[str, Any], waiting: list[str]) -> None:
    where = f"input[{index}]"
    match item.get("type", "message"):
        case "function_call":
            _check_name(item["name"], f"{where}.name")
            _check_arguments(item["arguments"], f"{where}.arguments")
            waiting.append(_check_id(item["call_id"], f"{where}.call_id", 64))
        case "function_call_output":
            if item["call_id"] not in waiting:
                raise Refused(f"No tool call found for function call output with call_id {item['call_id']}.", "input")
            waiting.remove(item["call_id"])
            _check_parts(item["output"], _INPUTS, f"{where}.output")
        case "message":
            if waiting:
                raise Refused(f"No tool output found for function call {waiting[0]}.", "input")
            mine = {"output_text", "refusal"} if item["role"] == "assistant" else _INPUTS
            _check_parts(item["content"], mine, f"{where}.content")
        case "reasoning":
            _check_reasoning(body, index, item)
        case "web_search_call":
            pass
        case other:
            raise Refused(f"Invalid value: '{other}'.", where)


def _check_reasoning(body: dict[str, Any], index: int, item: dict[str, Any]) -> None:
    if not body.get("store", True) and not item.get("encrypted_content"):
        raise Refused(f"Item with id '{item['id']}' not found. Items are not persisted.", "input")
    following = body["input"][index + 1 : index + 2]
    if not following or following[0].get("type") not in ("message", "function_call", "reasoning"):
        raise Refused(f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.")


def _known_members(body: Mapping[str, Any], known: set[str]) -> None:
    for name in body:
        if name not in known:
            raise Refused(f"Unrecognized request argument supplied: {name}")
    if not body.get("stream"):
        raise Refused("these tests stream")
    if not (body.get("messages") or body.get("input")):
        raise Refused("Invalid 'messages': empty array. Expected an array with minimum length 1.", "messages")


def _check_assistant(message: Mapping[str, Any], index: int) -> list[str]:
    calls = message.get("tool_calls", [])
    if not calls and not isinstance(message.get("content"), str):
        raise Refused("Invalid value for 'content': expected a string, got null.", f"messages.[{index}].content")
    unknown = message.keys() - {"role", "content", "tool_calls", "refusal", "name", "audio"}
    if unknown:
        raise Refused(f"Unknown parameter: 'messages[{index}].{min(unknown)}'.")
    waiting: list[str] = []
    for number, call in enumerate(calls):
        where = f"messages[{index}].tool_calls[{number}]"
        _check_name(call["function"]["name"], f"{where}.function.name")
        _check_arguments(call["function"]["arguments"], f"{where}.function.arguments")
        waiting.append(_check_id(call["id"], f"{where}.id", 40))
    if len(set(waiting)) != len(waiting):
        raise Refused("Duplicate tool_call ids")
    return waiting


def _check_no_tools(body: Mapping[str, Any]) -> None:
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body:
            raise Refused(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", name)


def _check_tools(body: Mapping[str, Any], functions: Sequence[Any], where: str) -> None:
    if "tools" not in body:
        _check_no_tools(body)
        return
    count = len(body["tools"])
    if count > 128:
        message = f"Invalid 'tools': array too long. Expected an array with maximum length 128, but got {count}."
        raise Refused(message, "tools", "array_above_max_length")
    if not count:
        raise Refused("Invalid 'tools': empty array. Expected an array with minimum length 1.", "tools")
    names: list[str] = []
    for index, function in enumerate(functions):
        if function is None:  # a tool of the provider's own
            continue
        place = where.format(index)
        _check_name(function["name"], f"{place}.name")
        names.append(function["name"])
        if len(function.get("description", "")) > 1024:
            message = f"Invalid '{place}.description': string too long. Expected a string with maximum length 1024."
            raise Refused(message, f"{place}.description", "string_above_max_length")
        _check_function(function, place)
    if len(set(names)) != len(names):
        raise Refused("Duplicate function name", "tools")
    _check_choice(body.get("tool_choice"), names)


def _check_choice(choice: Any, names: Sequence[str]) -> None:
    if isinstance(choice, dict):
        one = cast("dict[str, Any]", choice)
        wanted = one.get("name") or one.get("function", {}).get("name")
        if wanted not in names:
            raise Refused(f"Tool choice '{wanted}' not found in 'tools' parameter.", "tool_choice")
    elif choice not in (None, "auto", "none", "required"):
        raise Refused(f"Invalid value: '{choice}'.", "tool_choice")


def _check_function(function: Mapping[str, Any], place: str) -> None:
    name, schema = function["name"], function["parameters"]
    head = f"Invalid schema for function '{name}': "
    if not jsonschema_rs.meta.is_valid(schema):
        raise Refused(f"{head}{json.dumps(schema)[:80]} is not valid under any of the given schemas.", place)
    if schema.get("type") != "object":
        raise Refused(f"{head}schema must be a JSON Schema of 'type: \"object\"', got {schema.get('type')!r}.", place)
    if schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
        words = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        raise Refused(head + words, place)
    if "properties" not in schema:
        raise Refused(f"{head}In context=(), object schema missing properties.", place)
    for path, node in _schemas(schema, ()):
        kinds = node.get("type", ())
        if ("array" in kinds) and "items" not in node:
            raise Refused(f"{head}In context={path}, array schema missing items.", place)
        _check_reference(node, schema, head)
    if function.get("strict"):
        _check_strict(schema, head)


def _check_output(shape: Mapping[str, Any], where: str) -> None:
    _check_name(shape["name"], f"{where}.name")
    if shape.get("strict"):
        _check_strict(shape["schema"], f"Invalid schema for response_format '{shape['name']}': ")


def _check_strict(schema: Mapping[str, Any], head: str) -> None:
    for path, node in _schemas(schema, ()):
        context = f"{head}In context={path}, "
        for keyword in sorted(node.keys() - STRICT_KEYWORDS):
            raise Refused(f"{context}'{keyword}' is not permitted.")
        if "$ref" in node and node.keys() - {"$ref"}:
            raise Refused(f"{context}$ref cannot have keywords {sorted(node.keys() - {'$ref'})}.")
        if not node.keys() & {"type", "anyOf", "$ref"}:
            raise Refused(f"{context}schema must have a 'type' key.")
        if "format" in node and node["format"] not in STRICT_FORMATS:
            raise Refused(f"{context}'{node['format']}' is not a valid format.")
        if re.search(r"(?<!\\)\(\?<?[=!]", node.get("pattern", "")):
            raise Refused(f"{context}regex lookaround is not supported: {node['pattern']}")
        if "object" in node.get("type", ()):
            if node.get("additionalProperties") is not False:
                raise Refused(f"{context}'additionalProperties' is required to be supplied and to be false.")
            if set(node.get("required", ())) != set(node.get("properties", ())):
                raise Refused(f"{context}'required' is required to be supplied and to include every key in properties.")


def _schemas(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if not isinstance(node, dict):
        return
    members = cast("dict[str, Any]", node)
    yield path, members
    for keyword in ("properties", "$defs", "patternProperties"):
        for name, child in members.get(keyword, {}).items():
            yield from _schemas(child, (*path, keyword, name))
    for keyword in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
        yield from _schemas(members.get(keyword), (*path, keyword))
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, child in enumerate(members.get(keyword, ())):
            yield from _schemas(child, (*path, keyword, str(index)))


def _check_reference(node: Mapping[str, Any], root: Mapping[str, Any], head: str) -> None:
    reference = node.get("$ref")
    if reference is not None and reference.removeprefix("#/$defs/") not in root.get("$defs", {}):
        raise Refused(f"{head}reference can only point to definitions defined at the top level: {reference}")


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        message = f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern "
        raise Refused(f"{message}'^[a-zA-Z0-9_-]+$'.", where, "invalid_value")


def _check_id(call_id: Any, where: str, most: int) -> str:
    if not isinstance(call_id, str) or not 0 < len(call_id) <= most:
        raise Refused(f"Invalid '{where}': string too long. Expected a string with maximum length {most}.", where)
    return call_id


def _check_arguments(arguments: Any, where: str) -> None:
    if not isinstance(arguments, str):
        raise Refused(f"Invalid type for '{where}': expected a string, but got an object instead.", where)
    try:
        json.loads(arguments)
    except ValueError:
        raise Refused(f"Invalid '{where}': not valid JSON.", where) from None


def _check_text(content: Any, where: str) -> None:
    if not isinstance(content, str):
        raise Refused(f"Invalid type for '{where}': tool messages take text alone.", where)


def _check_parts(content: Any, kinds: set[str], where: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise Refused(f"Invalid type for '{where}': expected a string or an array of parts.", where)
    for part in cast("list[dict[str, Any]]", content):
        if part.get("type") not in kinds:
            raise Refused(f"Invalid value: '{part.get('type')}'. Supported values are: {sorted(kinds)}.", where)
        image = part.get("image_url")
        url = cast("dict[str, Any]", image).get("url") if isinstance(image, dict) else image
        if url is not None and not str(url).startswith("data:image/"):
            raise Refused("Invalid MIME type. Only image types are supported.", where, "invalid_image_format")
