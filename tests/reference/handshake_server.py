"""A server by version 1 of the Python SDK, which knows no revision after 2025-11-25, for scenarios of the suite.

`handshake_server.py --port PORT`; it offers under the suite's names what the revisions before and after have in common,
and a few tools that ask. Run by the Python of a reference server that has this version.
"""

from __future__ import annotations

import base64
import json
import sys
from importlib import import_module
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
SILENCE = base64.b64encode(
    b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x02\0\0\0\0\0"
).decode()
STATIC_TEXT = "This is the content of the static text resource."


def main() -> None:
    """Serve over HTTP."""
    fastmcp, types = import_module("mcp.server.fastmcp"), import_module("mcp.types")
    prompts = import_module("mcp.server.fastmcp.prompts.base")
    server: Any = fastmcp.FastMCP("handshake", host="127.0.0.1", port=int(sys.argv[2]), log_level="ERROR")
    picture = types.ImageContent(type="image", data=PIXEL, mimeType="image/png")
    offer_content(server, types, picture)
    offer_questions(server, fastmcp.Context, types)
    offer_resources(server)
    offer_prompts(server, types, prompts.UserMessage, picture)
    server.run(transport="streamable-http")


def embedded(types: Any, uri: str, kind: str, text: str) -> Any:
    """Return a resource as a block."""
    resource = types.TextResourceContents(uri=uri, mimeType=kind, text=text)
    return types.EmbeddedResource(type="resource", resource=resource)


def offer_content(server: Any, types: Any, picture: Any) -> None:
    """Offer tools that answer with content of each kind, or fail."""
    tool = server.tool(structured_output=False)

    @tool
    def test_simple_text() -> str:
        """Do what a scenario of the suite asks for."""
        return "This is a simple text response for testing."

    @tool
    def test_image_content() -> list[Any]:
        """Do what a scenario of the suite asks for."""
        return [picture]

    @tool
    def test_audio_content() -> list[Any]:
        """Do what a scenario of the suite asks for."""
        return [types.AudioContent(type="audio", data=SILENCE, mimeType="audio/wav")]

    @tool
    def test_embedded_resource() -> list[Any]:
        """Do what a scenario of the suite asks for."""
        text = "This is an embedded resource content."
        return [embedded(types, "test://embedded-resource", "text/plain", text)]

    @tool
    def test_multiple_content_types() -> list[Any]:
        """Do what a scenario of the suite asks for."""
        data = json.dumps({"test": "data", "value": 123})
        resource = embedded(types, "test://mixed-content-resource", "application/json", data)
        return [types.TextContent(type="text", text="Multiple content types test:"), picture, resource]

    @tool
    def test_error_handling() -> str:
        """Do what a scenario of the suite asks for."""
        raise ValueError("This tool intentionally returns an error for testing")


def offer_questions(server: Any, context: Any, types: Any) -> None:
    """Offer tools that tell of their progress, or ask."""
    name: Any = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    async def test_tool_with_progress(ctx: Any) -> str:
        """Do what a scenario of the suite asks for."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
        return "Reported three times."

    async def test_input_required_result_elicitation(ctx: Any) -> str:
        """Do what a scenario of the suite asks for."""
        answer: Any = await ctx.session.elicit("What is your name?", name, related_request_id=ctx.request_id)
        return f"Hello, {answer.content['name']}!"

    async def test_input_required_result_sampling(ctx: Any) -> str:
        """Do what a scenario of the suite asks for."""
        asked = types.SamplingMessage(
            role="user", content=types.TextContent(type="text", text="What is the capital of France?")
        )
        answer = await ctx.session.create_message([asked], max_tokens=100, related_request_id=ctx.request_id)
        return answer.content.text

    async def test_input_required_result_list_roots(ctx: Any) -> str:
        """Do what a scenario of the suite asks for."""
        return f"Roots: {[str(root.uri) for root in (await ctx.session.list_roots()).roots]}"

    for function in (
        test_tool_with_progress,
        test_input_required_result_elicitation,
        test_input_required_result_sampling,
        test_input_required_result_list_roots,
    ):
        function.__annotations__["ctx"] = context
        function.__annotations__["return"] = str
        server.tool(structured_output=False)(function)


def offer_resources(server: Any) -> None:
    """Offer resources and a template."""

    @server.resource("test://static-text", name="static-text", mime_type="text/plain")
    def static_text() -> str:
        return STATIC_TEXT

    @server.resource("test://static-binary", name="static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PIXEL)

    @server.resource("test://template/{id}/data", name="template", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def offer_prompts(server: Any, types: Any, message: Any, picture: Any) -> None:
    """Offer prompts, one of them with completions."""

    @server.prompt()
    def test_simple_prompt() -> str:
        """Do what a scenario of the suite asks for."""
        return "This is a simple prompt for testing."

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """Do what a scenario of the suite asks for."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
        """Do what a scenario of the suite asks for."""
        resource = embedded(types, resourceUri, "text/plain", "Embedded resource content for testing.")
        return [message(content=resource), message(content="Please process the embedded resource above.")]

    @server.prompt()
    def test_prompt_with_image() -> list[Any]:
        """Do what a scenario of the suite asks for."""
        return [message(content=picture), message(content="Please analyze the image above.")]

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Any:
        return types.Completion(values=["paris", "park", "party"], total=3, hasMore=False)


if __name__ == "__main__":
    main()
