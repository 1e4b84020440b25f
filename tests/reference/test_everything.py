"""The everything server, over each of its three transports: every kind of answer arrives as it was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.real.raw_wire import Era, RawListing
from toolweave import connect_mcp
from toolweave.errors import ProtocolError
from toolweave.tools import EmbeddedResource, ImageContent, Progress, ResourceLink, TextContent

pytestmark = pytest.mark.reference

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.requirement("R10", "R11", "C6", "C7")
async def test_the_handshake_lands_on_the_newest_version_the_server_speaks(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        assert conn.protocol_version == "2025-11-25"
        assert conn.server_info is not None
        assert conn.server_info["name"] == "mcp-servers/everything"
        assert conn.server_info["title"] == "Everything Reference Server"
        assert conn.capabilities["tools"] == {"listChanged": True}
        assert conn.instructions is not None
        assert conn.instructions.startswith("# Everything Server")


@pytest.mark.requirement("R28")
async def test_the_list_is_the_one_on_the_raw_wire(
    everything: dict[str, Any], raw_listing: Callable[[str, Era], RawListing]
) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        tools = await conn.list_tools()
    assert [tool.raw for tool in tools] == raw_listing("everything", "legacy").tools


async def test_a_text_answer(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("get-sum", {"a": 2, "b": 3})
    assert result.content == (TextContent(text="The sum of 2 and 3 is 5."),)
    assert not result.is_error
    assert result.structured_content is None


@pytest.mark.requirement("C10")
async def test_arguments_that_do_not_fit_are_an_error_result(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("echo", {})
    assert result.is_error
    assert result.error is not None
    assert result.error.kind == "invalid_input"
    assert "message" in result.text


async def test_a_refusal_by_the_server_itself_is_an_error_result(everything: dict[str, Any]) -> None:
    async with connect_mcp({**everything, "validate_input": False}, name="everything") as conn:
        result = await conn.call_tool("echo", {})
    assert result.is_error
    assert "Invalid arguments for tool echo" in result.text


async def test_an_unknown_tool_is_an_error_result_that_names_it(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("nope", {})
    assert result.is_error
    assert "nope" in result.text


async def test_an_image_arrives_as_its_bytes(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("get-tiny-image")
    image = result.content[1]
    assert isinstance(image, ImageContent)
    assert image.mime_type == "image/png"
    assert image.decode().startswith(PNG)


@pytest.mark.requirement("C17")
async def test_structured_content_arrives_beside_its_text(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("get-structured-content", {"location": "New York"})
    assert result.structured_content == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
    assert result.text == '{"temperature":33,"conditions":"Cloudy","humidity":82}'


async def test_a_resource_link_can_be_followed(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("get-resource-links", {"count": 2})
        blob, text = result.content[1:]
        assert isinstance(blob, ResourceLink)
        assert isinstance(text, ResourceLink)
        assert (blob.uri, blob.name) == ("demo://resource/dynamic/blob/1", "Blob Resource 1")
        assert (text.mime_type, text.description) == ("text/plain", "Resource 2: plaintext resource")
        (content,) = await conn.read_resource(text.uri)
    assert content.text is not None
    assert content.text.startswith("Resource 2: This is a plaintext resource")


@pytest.mark.parametrize("kind", ["Text", "Blob"])
async def test_an_embedded_resource_arrives_whole(everything: dict[str, Any], kind: str) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("get-resource-reference", {"resourceType": kind, "resourceId": 7})
    resource = result.content[1]
    assert isinstance(resource, EmbeddedResource)
    assert resource.uri == f"demo://resource/dynamic/{kind.lower()}/7"
    assert resource.mime_type == "text/plain"
    assert resource.decode().startswith(b"Resource 7: This is a ")
    assert (resource.blob is None) == (kind == "Text")


async def test_annotations_of_blocks_are_kept(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool("get-annotated-message", {"messageType": "error", "includeImage": True})
    text, image = result.content
    assert isinstance(text, TextContent)
    assert isinstance(image, ImageContent)
    assert text.annotations == {"audience": ["user", "assistant"], "priority": 1}
    assert image.annotations == {"audience": ["user"], "priority": 0.5}


@pytest.mark.requirement("C13")
async def test_progress_is_told_in_order_and_ends_with_the_call(everything: dict[str, Any]) -> None:
    seen: list[Progress] = []
    async with connect_mcp(everything, name="everything") as conn:
        result = await conn.call_tool(
            "trigger-long-running-operation", {"duration": 0.3, "steps": 3}, on_progress=seen.append
        )
    assert result.text == "Long running operation completed. Duration: 0.3 seconds, Steps: 3."
    assert [(step.progress, step.total) for step in seen] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.requirement("F1")
async def test_resources_and_templates_are_listed_and_read(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        resources = await conn.list_resources()
        templates = await conn.list_resource_templates()
        (page,) = await conn.read_resource("demo://resource/static/document/features.md")
        with pytest.raises(ProtocolError, match="demo://nope") as refusal:
            await conn.read_resource("demo://nope")
    assert "demo://resource/static/document/features.md" in [resource.uri for resource in resources]
    assert [template.uri_template for template in templates] == [
        "demo://resource/dynamic/text/{resourceId}",
        "demo://resource/dynamic/blob/{resourceId}",
    ]
    assert page.mime_type == "text/markdown"
    assert refusal.value.code == -32602


@pytest.mark.requirement("F2")
async def test_prompts_are_listed_filled_and_completed(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything, name="everything") as conn:
        prompts = await conn.list_prompts()
        prompt = await conn.get_prompt("args-prompt", {"city": "Oslo"})
        completion = await conn.complete({"type": "ref/prompt", "name": "completable-prompt"}, "department", "E")
    assert [prompt.name for prompt in prompts] == [
        "simple-prompt",
        "args-prompt",
        "completable-prompt",
        "resource-prompt",
    ]
    assert prompt.messages[0].content == TextContent(text="What's weather in Oslo?")
    assert completion.values == ("Engineering",)


async def test_calls_at_the_same_time_each_get_their_own_answer(everything: dict[str, Any]) -> None:
    answers: dict[int, str] = {}

    async with connect_mcp(everything, name="everything") as conn:

        async def add(number: int) -> None:
            answers[number] = (await conn.call_tool("get-sum", {"a": number, "b": 1})).text

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(add, number)
    assert answers == {number: f"The sum of {number} and 1 is {number + 1}." for number in range(20)}


async def test_a_cancelled_call_leaves_the_connection_usable(everything: dict[str, Any]) -> None:
    started = anyio.Event()

    async with connect_mcp(everything, name="everything") as conn:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:

                async def cancel_at_the_first_step() -> None:
                    await started.wait()
                    group.cancel_scope.cancel()

                group.start_soon(cancel_at_the_first_step)
                await conn.call_tool(
                    "trigger-long-running-operation",
                    {"duration": 60, "steps": 600},
                    on_progress=lambda _step: started.set(),
                )
            result = await conn.call_tool("echo", {"message": "still here"})
    assert result.text == "Echo: still here"


@pytest.mark.requirement("C6", "C7")
@pytest.mark.parametrize("everything", ["streamableHttp", "sse"], indirect=True)
async def test_which_transport_stands_behind_a_bare_url_is_found_out(everything: dict[str, Any]) -> None:
    async with connect_mcp(everything["url"], name="everything") as conn:
        result = await conn.call_tool("echo", {"message": "hi"})
    assert result.text == "Echo: hi"
