"""Tools, blocks and results in the form of OpenAI's Responses and Chat APIs: text, images, files, notes for the rest.

Content that an API does not accept becomes a visible note, and never fails the whole request. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolweave._json_types import Json
from toolweave.protocol.content import ContentBlock
from toolweave.providers._media_parts import PDF, SHOWN, SOUNDS, Media, clean, shown
from toolweave.providers._wire_tools import WireTool
from toolweave.tools import ToolResult
from toolweave.tools.visible import shown_text

_NO_OUTPUT = "(no output)"
_SILENT_FAILURE = "the tool failed and did not say why"
_HEARD = SHOWN | frozenset(SOUNDS)
_IMAGES = SHOWN - {PDF}


def responses_form(tool: WireTool) -> Json:
    """Return a tool's definition; `strict` is always set, because this API does not default to false."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": tool.strict,
    }


def chat_form(tool: WireTool) -> Json:
    """Return a tool's definition for the Chat API."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": {**function, "strict": True} if tool.strict else function}


def responses_content(result: ToolResult) -> str | list[Json]:
    """Return a result as the `output` of a `function_call_output`: a string when it is text alone.

    The API has no flag for errors, so the text of an error result says that it is one.
    """
    result = result.for_model()
    parts = responses_parts(result.content)
    if all(part["type"] == "input_text" for part in parts):
        return chat_text(result)
    if result.is_error and not _says_error(parts[0].get("text", "")):
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    return parts


def chat_text(result: ToolResult) -> str:
    """Return a result as the `content` of a tool message of the Chat API, which accepts text only; never blank."""
    result = result.for_model()
    text = clean(result.text)
    if not result.is_error:
        if text.strip():
            return text
        return _NO_OUTPUT
    if not text.strip():
        text = clean(shown_text(result.require_error().message)).strip() or _SILENT_FAILURE
    if _says_error(text):
        return text
    return f"Error: {text}"


def responses_parts(blocks: Iterable[ContentBlock]) -> list[Json]:
    """Return blocks as input parts of the Responses API; blank text is left out."""
    return list(map(_responses_part, shown(blocks)))


def chat_parts(blocks: Iterable[ContentBlock]) -> list[Json]:
    """Return blocks as parts of a user's message of the Chat API; blank text is left out."""
    return list(map(_chat_part, shown(blocks, _HEARD)))


def chat_images(results: Iterable[tuple[str, ToolResult]]) -> list[Json]:
    """Return the images of results, each with its tool's name, as parts of a user's message of the Chat API.

    They follow the messages of the results, which are text alone; of no image there are no parts.
    """
    parts: list[Json] = []
    for name, result in results:
        images = [one for one in shown(result.for_model().content, _IMAGES) if not isinstance(one, str)]
        if images:
            parts += [{"type": "text", "text": f"From the result of tool {name!r}:"}, *map(_chat_part, images)]
    return parts


def _responses_part(one: str | Media) -> Json:
    if isinstance(one, str):
        return {"type": "input_text", "text": one}
    if one.mime_type == PDF:
        return {"type": "input_file", "filename": one.name, "file_data": one.url}
    return {"type": "input_image", "image_url": one.url, "detail": "auto"}


def _chat_part(one: str | Media) -> Json:
    if isinstance(one, str):
        return {"type": "text", "text": one}
    if one.mime_type == PDF:
        return {"type": "file", "file": {"filename": one.name, "file_data": one.url}}
    if one.mime_type in SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": one.data, "format": SOUNDS[one.mime_type]}}
    return {"type": "image_url", "image_url": {"url": one.url}}


def _says_error(text: str) -> bool:
    return text.lstrip().lower().startswith(("error", "mcp error"))
