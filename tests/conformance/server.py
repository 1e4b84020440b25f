"""The server under test of the official conformance suite: `server.py --port N [--stdio]`, served at `/mcp`.

It offers what the suite's scenarios ask for, under their names and with their texts, and uses the public names of the
package alone. What each scenario wants is told by the suite's own descriptions of it.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import anyio
from pydantic import Field
from server_questions import ASKING, TASKS, form, told

from toolweave import CallContext, ToolError, create_mcp_server
from toolweave.serve import MemoryEventStore, skills
from toolweave.tools import AudioContent, EmbeddedResource, ImageContent, TextContent

__all__ = ["main", "server"]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
"""A picture of one red pixel."""
SILENCE = base64.b64encode(
    b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x02\0\0\0\0\0"
).decode()
"""A sound of one sample."""
PICTURE = ImageContent(data=PIXEL, mime_type="image/png")
STEP = 0.05
"""Seconds between two steps of a tool that reports them."""

RETRY_MS = 100
"""After how many milliseconds a client comes back that lost its stream."""

server = create_mcp_server(
    name="conformance",
    version="1.0.0",
    instructions="Offers what the official conformance suite asks for.",
    resources=[skills(Path(__file__).parent / "skills")],
    tasks=TASKS,
    logging=True,
)


@server.skill
def daily_words() -> str:
    """Says what was counted today."""
    return "Nothing was counted yet."


# Content


@server.tool
def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> ImageContent:
    """Answer with a picture."""
    return PICTURE


@server.tool
def test_audio_content() -> AudioContent:
    """Answer with a sound."""
    return AudioContent(data=SILENCE, mime_type="audio/wav")


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource."""
    text = "This is an embedded resource content."
    return EmbeddedResource(uri="test://embedded-resource", mime_type="text/plain", text=text)


@server.tool
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Answer with a text, a picture and a resource."""
    text = json.dumps({"test": "data", "value": 123}, separators=(",", ":"))
    resource = EmbeddedResource(uri="test://mixed-content-resource", mime_type="application/json", text=text)
    return [TextContent(text="Multiple content types test:"), PICTURE, resource]


@server.tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
def test_header_parameter(
    region: Annotated[str, Field(description="Where to look", json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Answer with a parameter that travels as a header too."""
    return region


# Schemas

ADDRESS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(name="json_schema_2020_12_tool", input_schema=ADDRESS)
def contact(arguments: Mapping[str, Any]) -> str:
    """Tool with JSON Schema 2020-12 features."""
    return json.dumps(dict(arguments))


# News while a call runs


@server.tool
async def test_tool_with_logging(ctx: CallContext) -> str:
    """Log three times."""
    await ctx.log("info", "Tool execution started")
    await anyio.sleep(STEP)
    await ctx.log("info", "Tool processing data")
    await anyio.sleep(STEP)
    await ctx.log("info", "Tool execution completed")
    return "Logged three times."


@server.tool
async def test_logging_tool(ctx: CallContext) -> str:
    """Log once."""
    await ctx.log("info", "Only who asked for it reads this")
    return "Logged once."


@server.tool
async def test_tool_with_progress(ctx: CallContext) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, total=100)
        await anyio.sleep(STEP)
    return "Reported three times."


@server.tool
async def test_reconnection(ctx: CallContext) -> str:
    """Close the stream before there is an answer; the client comes back for it."""
    await anyio.sleep(STEP)
    await ctx.release_stream()
    await anyio.sleep(STEP)
    return "Reconnection test completed."


for asking in ASKING:
    server.tool(asking)

# Lists that change


def here() -> str:
    """Be there now and then."""
    return "here"


@server.tool
def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    try:
        server.remove_tool("test_changing_tool")
    except KeyError:
        server.tool(name="test_changing_tool")(here)
    return "The list of tools changed."


@server.tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    try:
        server.prompts.remove("test_changing_prompt")
    except KeyError:
        server.prompt(name="test_changing_prompt")(here)
    return "The list of prompts changed."


# Resources


@server.resource("test://static-text", name="static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture."""
    return base64.b64decode(PIXEL)


@server.resource("test://template/{id}/data", name="template", mime_type="application/json")
def template(id: str) -> dict[str, Any]:
    """What there is of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.resource("test://watched-resource", name="watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text that one may subscribe to."""
    return "Nothing new."


# Prompts


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(
    arg1: Annotated[str, Field(description="First test argument")],
    arg2: Annotated[str, Field(description="Second test argument")],
) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion(ref="prompt:test_prompt_with_arguments", argument="arg1")
def places(value: str) -> list[str]:
    """Return places that begin so."""
    return [place for place in ("paris", "park", "party") if place.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[EmbeddedResource | str]:
    """A prompt with a resource in it."""
    text = "Embedded resource content for testing."
    resource = EmbeddedResource(uri=resourceUri, mime_type="text/plain", text=text)
    return [resource, "Please process the embedded resource above."]


@server.prompt
def test_prompt_with_image() -> list[ImageContent | str]:
    """A prompt with a picture in it."""
    return [PICTURE, "Please analyze the image above."]


@server.prompt
async def test_input_required_result_prompt(ctx: CallContext) -> str:
    """A prompt that asks the user."""
    context = form(context={"type": "string"})
    answer = await ctx.elicit("What context should the prompt use?", context, key="user_context")
    return f"Use this context: {told(answer)}"


def main() -> None:
    """Serve, over HTTP or stdio."""
    parser = argparse.ArgumentParser(description=__doc__)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--port", type=int, metavar="N", help="serve over HTTP on this port of the loopback interface")
    way.add_argument("--stdio", action="store_true", help="serve over standard input and output")
    options = parser.parse_args()
    if options.stdio:
        server.run_stdio()
    else:
        server.run_http(port=options.port, event_store=MemoryEventStore(), retry_interval=RETRY_MS)


if __name__ == "__main__":
    main()
