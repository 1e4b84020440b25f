"""What a tool's answer becomes: every kind of block, structured content, errors, and what is checked of it."""

from __future__ import annotations

import base64
import json
import logging
from contextlib import AsyncExitStack
from typing import Any, Literal

import pytest

from tests.connect.scripted import HttpScript, listening
from tests.connect.targets import ChannelServer, Json, connected, initialized
from tests.servers.fixtures import echo_command, fault_command
from toolweave import ErrorKind, ImageContent, ProtocolError, TextContent, ToolResult, connect_mcp
from toolweave.errors import ToolExecutionError
from toolweave.testing import MemoryServer
from toolweave.tools import AudioContent, EmbeddedResource, ResourceLink, UnknownContent

PLAIN = base64.b64encode(bytes(range(256))).decode()


def answering(result: Any, **definition: Any) -> ChannelServer:
    """Return a server whose tool `t` answers with `result`."""

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/list":
            return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}, **definition}]}}
        return {"result": result}

    return ChannelServer(initialized(answer))


async def result_of(result: Any, **settings: Any) -> ToolResult:
    async with connected(answering(result), name="srv", **settings) as connection:
        return await connection.call_tool("t")


def text(value: str) -> Json:
    return {"type": "text", "text": value}


@pytest.mark.requirement("R56", "R54", "D11")
async def test_every_kind_of_block_arrives_typed_and_whole() -> None:
    async with connected(echo_command()) as connection:
        mixed = await connection.call_tool("mixed")
        blob = (await connection.call_tool("embedded")).content[1]
    words, image, audio, link, embedded = mixed.content
    assert words == TextContent(text="all of them", annotations={"audience": ["user"], "priority": 0.5})
    assert isinstance(image, ImageContent)
    assert (image.mime_type, image.decode()[1:4]) == ("image/png", b"PNG")
    assert isinstance(audio, AudioContent)
    assert (audio.mime_type, audio.decode()[:4]) == ("audio/wav", b"RIFF")
    assert link == ResourceLink(uri="test://text", name="text", mime_type="text/plain")
    assert embedded == EmbeddedResource(uri="test://text", mime_type="text/plain", text="hello from a resource")
    assert isinstance(blob, EmbeddedResource)
    assert (blob.mime_type, blob.decode()[1:4]) == ("image/png", b"PNG")
    assert mixed.meta == {"example.com/note": "kept"}
    assert [block.raw for block in mixed.content] == mixed.raw["content"]


@pytest.mark.requirement("R53", "R55", "C17", "D11")
async def test_the_text_of_a_result_joins_blocks_by_newline_with_notes_for_what_is_no_text() -> None:
    async with connected(echo_command()) as connection:
        mixed = await connection.call_tool("mixed")
    assert mixed.text.split("\n") == [
        "all of them",
        "[image: image/png, 70 B]",
        "[audio: audio/wav, 46 B]",
        "text (test://text)",
        "hello from a resource",
    ]


@pytest.mark.requirement("R53", "R55")
async def test_text_blocks_are_joined_by_newline() -> None:
    assert (await result_of({"content": [text("line 1"), text("line 2")]})).text == "line 1\nline 2"


@pytest.mark.requirement("C17", "D11")
async def test_structured_content_without_blocks_is_the_text_as_json() -> None:
    async with connected(echo_command()) as connection:
        result = await connection.call_tool("structured_only")
    assert result.content == ()
    assert result.structured_content == {"rows": [{"id": 1, "name": "one"}, {"id": 2, "name": None}]}
    assert result.text == '{"rows": [{"id": 1, "name": "one"}, {"id": 2, "name": null}]}'


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "data": "x", "n": [1]},
        {"type": "image", "data": None},
        {"type": "audio", "data": "x", "mimeType": 1},
        {"type": "resource_link"},
        {"type": "resource"},
        {"type": "resource", "resource": {"uri": "x:"}},
        {"type": "resource", "resource": {"text": "no uri"}},
    ],
)
async def test_a_block_that_is_unknown_or_malformed_costs_nothing_else(block: Json) -> None:
    result = await result_of({"content": [block, text("good")]})
    odd, good = result.content
    assert isinstance(odd, UnknownContent)
    assert odd.raw == block
    assert good == TextContent(text="good")
    assert result.text == f"[{block['type']}] {json.dumps(block)}\ngood"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text"}, ""),
        ({"type": "text", "text": 5}, "5"),
        ({"type": "text", "text": {"a": 1}}, '{"a": 1}'),
        ({"type": "text", "content": "words"}, "words"),
        ({"type": ["text"], "text": "x"}, "x"),
        ({"type": {"text": 1}}, '{"type": {"text": 1}}'),
        ({"type": None}, ""),
        ({"text": "x"}, "x"),
        ({"row": 1}, '{"row": 1}'),
        ("text", "text"),
        (7, "7"),
        (["x"], '["x"]'),
    ],
)
async def test_a_block_that_is_nearly_a_text_is_the_text_that_it_means(block: Any, expected: str) -> None:
    result = await result_of({"content": [block, text("good")]})

    assert result.content == (TextContent(text=expected), TextContent(text="good"))
    assert result.raw["content"][1] == text("good")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Hello, World!", "Hello, World!"),
        (text("Hello"), "Hello"),
        (["Hello,", "World!"], "Hello,\nWorld!"),
        ([None, "x", None], "x"),
        (None, ""),
        ([], ""),
        ({"rows": [1]}, '{"rows": [1]}'),
        (12.5, "12.5"),
    ],
)
async def test_content_that_is_no_list_of_blocks_is_read_as_what_it_means(content: Any, expected: str) -> None:
    result = await result_of({"content": content})

    assert result.text == expected
    assert not result.is_error


@pytest.mark.parametrize(
    "result",
    [
        {"content": {"content": [text("made")]}},
        {"content": {"content": [text("made")], "isError": False}, "_meta": {"x": 1}},
        {"content": [[text("made")]]},
        {"content": [[text("ma")], [text("de")]]},
        {"result": {"content": [text("made")]}},
        {"toolResult": {"content": [text("made")]}},
        {"jsonrpc": "2.0", "id": 5, "result": {"content": [text("made")], "isError": False}},
    ],
)
async def test_a_result_within_another_is_the_result(result: Any) -> None:
    read = await result_of(result)

    assert read.text.replace("\n", "") == "made"
    assert not read.is_error


@pytest.mark.parametrize(
    "result",
    [
        {"content": {"content": [text("no")], "isError": True}},
        {"content": {"content": [text("no")]}, "isError": True},
        {"content": {"content": [text("no")]}, "is_error": True},
        {"content": {"content": [text("no")], "is_error": "true"}},
        {"result": {"content": [text("no")], "isError": True}},
        {"toolResult": {"content": [text("no")], "isError": 1}},
        {"isError": False, "content": {"content": [text("no")], "isError": True}},
    ],
)
async def test_an_error_of_a_result_within_another_is_an_error(result: Any) -> None:
    read = await result_of(result)

    assert (read.text, read.is_error) == ("no", True)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"result": {"rows": [1]}}, '{"result": {"rows": [1]}}'),
        ({"result": {"content": "page 1"}}, '{"result": {"content": "page 1"}}'),
        ({"result": {"content": [{"type": "book"}]}}, '{"result": {"content": [{"type": "book"}]}}'),
        ({"content": {"content": "page 1"}}, "page 1"),
        ({"content": [text("a"), [text("b")]]}, 'a\n[{"type": "text", "text": "b"}]'),
        ({"content": [text("a")], "result": {"content": [text("b")]}}, "a"),
    ],
)
async def test_data_that_looks_like_a_result_stays_data(result: Any, expected: str) -> None:
    assert (await result_of(result)).text == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": [], "error": "no such page"}, '{"error": "no such page"}'),
        ({"content": [], "rows": [1, 2], "_meta": {"x": 1}}, '{"rows": [1, 2]}'),
        ({"content": [], "isError": True, "message": "no"}, '{"message": "no"}'),
        ({"content": [], "structuredContent": None, "data": {"a": 1}}, '{"data": {"a": 1}}'),
    ],
)
async def test_data_beside_an_empty_content_is_its_text(result: Any, expected: str) -> None:
    read = await result_of(result)

    assert read.text == expected
    assert read.is_error == bool(result.get("isError"))


@pytest.mark.parametrize(
    ("block", "mime"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "image/png"),
        ({"type": "image_url", "image_url": "data:image/jpeg;base64,AAAA"}, "image/jpeg"),
        ({"type": "input_image", "image_url": "data:image/webp;base64,AAAA"}, "image/webp"),
        ({"type": "image", "url": "data:image/gif;base64,AAAA"}, "image/gif"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, "image/png"),
        ({"type": "image", "source": {"type": "base64", "data": "data:image/gif;base64,AAAA"}}, "image/gif"),
    ],
)
async def test_an_image_in_the_form_of_a_model_api_is_an_image(block: Any, mime: str) -> None:
    image = (await result_of({"content": [block]})).content[0]

    assert isinstance(image, ImageContent)
    assert (image.data, image.mime_type) == ("AAAA", mime)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
    ],
)
async def test_an_image_at_an_address_is_shown_and_not_fetched(block: Any) -> None:
    read = await result_of({"content": [block]})

    assert not isinstance(read.content[0], ImageContent)
    assert ("example.com" in read.text) or ("file_id" in read.text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"count": 14, "results": [{"title": "Invoice"}]}, '{"count": 14, "results": [{"title": "Invoice"}]}'),
        ({"success": True, "_meta": {"x": 1}}, '{"success": true}'),
        ([{"title": "Invoice"}], '[{"title": "Invoice"}]'),
        ([{"type": "text", "text": "Invoice"}], "Invoice"),
        ("Invoice", "Invoice"),
        (3, "3"),
        (False, "false"),
    ],
)
async def test_a_result_that_is_the_data_itself_is_its_text(value: Any, expected: str) -> None:
    result = await result_of(value)

    assert (result.text, result.is_error) == (expected, False)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": [{"type": "error", "text": "Invalid number: 12x"}]}, "Invalid number: 12x"),
        ({"content": [{"type": "error", "message": "no"}], "isError": False}, "no"),
        ({"content": [{"type": "error", "error": {"code": 3}}, text("more")]}, '{"code": 3}\nmore'),
        ({"content": [text("no")], "isError": "true"}, "no"),
        ({"content": "no", "isError": 1}, "no"),
    ],
)
async def test_a_failure_that_is_reported_in_another_way_is_a_failure(result: Json, expected: str) -> None:
    read = await result_of(result)

    assert (read.text, read.is_error) == (expected, True)
    assert read.for_model().text == expected


@pytest.mark.parametrize("flag", [None, False, "false", "no", 0, "", [], {}])
async def test_a_success_stays_one_whatever_stands_in_the_flag(flag: Any) -> None:
    assert not (await result_of({"content": [text("fine")], "isError": flag})).is_error


@pytest.mark.parametrize(
    ("block", "mime_type"),
    [
        ({"type": "image", "mimeType": "image/gif", "data": f"data:image/png;base64,{PLAIN}"}, "image/gif"),
        ({"type": "image", "data": f"data:image/webp;base64,{PLAIN}"}, "image/webp"),
        ({"type": "image", "mimeType": "image/png", "data": f"{PLAIN[:8]}\r\n{PLAIN[8:]}\n"}, "image/png"),
        ({"type": "image", "data": PLAIN.replace("+", "-").replace("/", "_")}, "image/png"),
        ({"type": "audio", "data": f"data:audio/mpeg;base64,{PLAIN}"}, "audio/mpeg"),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": f"data:image/png;base64,{PLAIN}"}}, "image/png"),
    ],
)
async def test_data_in_another_form_of_base64_is_the_same_data(block: Json, mime_type: str) -> None:
    (read,) = (await result_of({"content": [block]})).content

    assert isinstance(read, (ImageContent, AudioContent, EmbeddedResource))
    assert read.decode() == base64.b64decode(PLAIN)
    assert read.mime_type == mime_type
    assert read.raw == block


async def test_an_odd_result_is_a_problem_that_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(answering({"content": "x"}), name="srv") as connection:
        for _ in range(3):
            await connection.call_tool("t")
        problems = connection.problems

    assert problems == (
        "tool 't': its result has 'content' that is not a list (3 times)",
        "tool 't': its result has content that is not a block (3 times)",
    )
    assert caplog.text.count("'content' that is not a list") == 1


async def test_a_result_of_the_specification_is_no_problem() -> None:
    content = [text("x"), {"type": "image", "data": PLAIN, "mimeType": "image/png"}]
    async with connected(answering({"content": content, "isError": False}), name="srv") as connection:
        result = await connection.call_tool("t")

        assert result.raw == {"content": content, "isError": False}
        assert not connection.problems


@pytest.mark.requirement("R55", "R68", "D6")
async def test_an_error_result_keeps_its_blocks_and_carries_an_error() -> None:
    result = await result_of({"content": [text("no such row"), text("try another")], "isError": True})
    assert result.is_error
    assert result.text == "no such row\ntry another"
    assert result.error is not None
    assert (result.error.kind, result.error.message) == (ErrorKind.EXECUTION_FAILED, "no such row\ntry another")


@pytest.mark.parametrize("content", [[], [text("")], None])
async def test_an_error_without_words_gets_some(content: Any) -> None:
    members = {} if content is None else {"content": content}
    result = await result_of({"isError": True, **members})
    assert result.is_error
    assert result.error is not None
    assert result.error.message == "MCP tool execution error"
    if not content:
        assert result.text == "MCP tool execution error"


@pytest.mark.requirement("C2", "D6")
async def test_a_tool_executes_without_raising_and_calls_with_raising() -> None:
    async with connected(echo_command()) as connection:
        tools = await connection.list_tools()
        assert (await tools["fail"].execute({"message": "sorry"})).is_error
        with pytest.raises(ToolExecutionError, match="sorry") as failure:
            await tools["fail"].call({"message": "sorry"})
        assert failure.value.tool == "fail"
        assert (await tools["echo"].call({"text": "fine"})).text == "fine"
        assert (await connection.call_tool("fail", {"message": "sorry"})).is_error


@pytest.mark.requirement("C2", "R61", "R65")
async def test_a_protocol_error_is_raised_by_the_connection_and_returned_by_the_tool() -> None:
    async with connected(echo_command(), name="srv") as connection:
        with pytest.raises(ProtocolError) as failure:
            await connection.call_tool("rpc_error", {"code": -32099, "message": "nope"})
        result = await (await connection.list_tools())["rpc_error"].execute({"code": -32099, "message": "nope"})
        with pytest.raises(ProtocolError, match="Unknown tool: nothing"):
            await connection.call_tool("nothing")
    assert (failure.value.code, str(failure.value)) == (-32099, "server 'srv': nope")
    assert result.error is not None
    assert (result.error.kind, result.error.code, result.error.data) == (
        ErrorKind.PROTOCOL,
        -32099,
        {"why": "on purpose"},
    )
    assert result.text == "MCP error: server 'srv': nope"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"resultType": "input_required", "inputRequests": {}}, "asks for input without saying which"),
        ({"resultType": "later", "content": []}, "unknown resultType 'later'"),
        ({"resultType": ["complete"]}, "unknown resultType"),
        ({}, "neither 'content' nor 'structuredContent': {}"),
    ],
)
async def test_what_is_no_tool_result_is_a_protocol_error(result: Json, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        await result_of(result)


@pytest.mark.parametrize("value", [None, 0, False, "", [], [1], "text"])
async def test_structured_content_may_be_any_json_value(value: Any) -> None:
    result = await result_of({"structuredContent": value})
    assert result.structured_content == value
    assert not result.is_error


OUTPUT: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.requirement("C15")
@pytest.mark.parametrize(
    ("name", "words"), [("violates", "structured content: "), ("omits", "structured content: it is missing")]
)
@pytest.mark.parametrize("policy", ["warn", "error", "off"])
async def test_content_that_breaks_the_output_schema_is_treated_as_configured(
    name: str, words: str, policy: Literal["warn", "error", "off"], caplog: pytest.LogCaptureFixture
) -> None:
    command, *args = fault_command("output_schema_violated")
    target = {"command": command, "args": args, "validate_output": policy}
    with caplog.at_level(logging.WARNING, "toolweave"):
        async with connected(target, name="srv") as connection:
            result = await connection.call_tool(name)
            fine = await connection.call_tool("add", {"a": 1, "b": 2})
    assert fine.structured_content == {"sum": 3}
    assert result.is_error == (policy == "error")
    assert bool(caplog.messages) == (policy == "warn")
    said = caplog.text if policy == "warn" else result.error.message if result.error else ""
    if policy != "off":
        assert f"tool '{name}' broke its output schema: " in said
        assert words in said
    if policy == "error":
        assert result.error is not None
        assert result.error.kind is ErrorKind.INVALID_OUTPUT
        assert result.content


@pytest.mark.requirement("C15")
@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_by_default_content_that_breaks_the_output_schema_is_an_error_that_names_the_setting(over: str) -> None:
    broken: Json = {"content": [text("many")], "structuredContent": {"n": "many"}}
    async with AsyncExitStack() as stack:
        target: Any = answering(broken, outputSchema=OUTPUT)
        if over == "http":
            listed: Json = {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": OUTPUT}]}
            results = {"tools/list": listed, "tools/call": broken}
            script = HttpScript(initialized(lambda message: {"result": results.get(message["method"], {})}))
            target, _ = await stack.enter_async_context(listening(script.handle))
        connection = await stack.enter_async_context(connected(target))
        result = await connection.call_tool("t")
    assert result.is_error
    assert result.error is not None
    assert result.error.kind is ErrorKind.INVALID_OUTPUT
    assert result.error.data == {"problems": [{"path": "n", "message": 'expected integer, got string "many"'}]}
    assert "validate_output: 'warn' or 'off'" in result.error.message
    assert result.structured_content == {"n": "many"}
    assert result.content == (TextContent(text=result.error.message), TextContent(text="many"))


async def test_an_error_result_is_not_held_to_the_output_schema() -> None:
    server = answering({"content": [text("broken")], "isError": True}, outputSchema=OUTPUT)
    target = {"transport": "inprocess", "server": server, "validate_output": "error"}
    async with connected(target) as connection:
        result = await connection.call_tool("t")
    assert result.error is not None
    assert result.error.kind is ErrorKind.EXECUTION_FAILED


async def test_answers_of_other_requests_that_are_none_are_protocol_errors() -> None:
    def answer(message: Json) -> Json | None:
        return {"result": {"tools": []}} if message["method"] == "tools/list" else {"result": {}}

    async with connected(ChannelServer(initialized(answer))) as connection:
        with pytest.raises(ProtocolError, match="resources/read has no list 'contents'"):
            await connection.read_resource("x:")
        with pytest.raises(ProtocolError, match="prompts/get has no list 'messages'"):
            await connection.get_prompt("x")
        assert (await connection.complete({"type": "ref/prompt", "name": "x"}, "a", "")).values == ()


async def test_odd_entries_of_other_lists_are_passed_over_and_odd_parts_are_read() -> None:
    odd: list[Any] = [None, 7, {}, {"uri": 5}, {"name": 5}, {"uriTemplate": []}]
    pages: dict[str, Json] = {
        "tools/list": {"tools": []},
        "resources/list": {"resources": [*odd, {"uri": "a:", "size": "big", "mimeType": 5}]},
        "resources/templates/list": {"resourceTemplates": [*odd, {"uriTemplate": "a:{b}"}]},
        "prompts/list": {
            "prompts": [*odd, {"name": "p", "arguments": [None, {"name": "x"}]}, {"name": "q", "arguments": 1}]
        },
        "prompts/get": {"messages": [None, {"role": "user", "content": "plain"}, {"content": {}}]},
        "resources/read": {"contents": [{"uri": "a:", "text": "fine"}, {"uri": "a:"}, 5]},
        "completion/complete": {"completion": {"values": ["a", 1, None], "total": "many", "hasMore": "yes"}},
    }
    capabilities: Json = {"tools": {}, "resources": {}, "prompts": {}}
    server = ChannelServer(
        initialized(lambda message: {"result": pages.get(message["method"])}, capabilities=capabilities)
    )
    async with connected(server) as connection:
        assert [(r.uri, r.name, r.size, r.mime_type) for r in await connection.list_resources()] == [
            ("a:", "", None, None)
        ]
        assert [t.uri_template for t in await connection.list_resource_templates()] == ["a:{b}"]
        assert [(p.name, [a.name for a in p.arguments]) for p in await connection.list_prompts()] == [
            ("p", ["x"]),
            ("q", []),
        ]
        messages: list[Any] = list((await connection.get_prompt("p")).messages)
        assert [(message.role, message.content.text) for message in messages] == [("user", "plain"), ("user", "{}")]
        assert [c.text for c in await connection.read_resource("a:")] == ["fine", "", "5"]
        values = await connection.complete({"type": "ref/prompt", "name": "p"}, "x", "", context={"y": "1"})
        assert (values.values, values.total, values.has_more) == (("a", "1"), None, False)
    assert server.received[-1]["params"]["context"] == {"arguments": {"y": "1"}}


async def test_a_server_that_lies_about_what_it_offers_is_taken_at_its_answers() -> None:
    async with connected(fault_command("lies_about_resources")) as connection:
        assert await connection.list_resources() == ()
        assert await connection.list_prompts() == ()
        with pytest.raises(ProtocolError, match="Method not found"):
            await connection.read_resource("test://text")


def sending_text(schema: dict[str, Any], text: str) -> MemoryServer:
    """Return a server whose tool declares an output schema and sends only a text."""
    server = MemoryServer(protocol="2026-07-28")

    @server.tool(output_schema=schema)
    def values() -> Any:
        return None

    server.answer("tools/call", {"content": [{"type": "text", "text": text}]})
    return server


@pytest.mark.parametrize(
    ("schema", "text", "data"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "made", "made"),
        ({"type": "array", "items": {"type": "integer"}}, "[1]", [1]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}, "5", {"result": 5}),
    ],
)
async def test_structured_content_that_is_only_a_text_is_read_from_it(
    schema: dict[str, Any], text: str, data: object
) -> None:
    async with connect_mcp(sending_text(schema, text)) as server:
        result = await server.call_tool("values")
        await server.call_tool("values")

    assert not result.is_error, result.text
    assert result.structured_content == data
    assert [one for one in server.problems if "is read from its text (2 times)" in one]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "five"),
        ({"type": "object"}, "made"),
        ({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}, "five"),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, '{"b": 1}'),
    ],
)
async def test_a_text_that_does_not_fit_the_output_schema_is_no_structured_content(
    schema: dict[str, Any], text: str
) -> None:
    async with connect_mcp(sending_text(schema, text)) as server:
        result = await server.call_tool("values")

    assert result.error is not None
    assert result.error.kind is ErrorKind.INVALID_OUTPUT
    assert "structured content: it is missing" in result.text
