"""Members under nearly their names, and answers without the member that they are: read as meant, and reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.connect.targets import ChannelServer, Json, connected, error, initialized
from toolweave import ImageContent, ProtocolError, ToolResult
from toolweave.tools import EmbeddedResource, ResourceLink

TEXT: Json = {"type": "text", "text": "x"}
OBJECT: Json = {"type": "object"}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ALL: Json = {"tools": {}, "prompts": {}, "resources": {}}


def server(answers: Mapping[str, Any]) -> ChannelServer:
    """Return a server that answers requests with these results, by their methods."""
    offered = {"tools/list": {"tools": [{"name": "t", "inputSchema": OBJECT}]}, **answers}

    def script(message: Json) -> Json | None:
        if message["method"] in offered:
            return {"result": offered[message["method"]]}
        return None

    return ChannelServer(initialized(script, capabilities=ALL))


async def result_of(result: Any) -> tuple[ToolResult, tuple[str, ...]]:
    """Return a tool's result as it is read, and the problems of its server."""
    async with connected(server({"tools/call": result})) as connection:
        return await connection.call_tool("t"), connection.problems


@pytest.mark.parametrize(
    "flags",
    [
        {"is_error": True},
        {"iserror": True},
        {"IsError": True},
        {"is-error": "true"},
        {"ISERROR": 1},
        {"isError": None, "is_error": True},
        {"isError": False, "is_error": True},
        {"is_error": False, "IsError": True},
        {"isError": "yes"},
        {"isError": "failed"},
        {"isError": 2},
        {"isError": {"code": 3}},
    ],
)
async def test_an_error_under_any_spelling_is_an_error(flags: Json) -> None:
    result, problems = await result_of({"content": [TEXT], **flags})

    assert (result.text, result.is_error) == ("x", True)
    assert problems


@pytest.mark.parametrize(
    "flags", [{"is_error": False}, {"IsError": "false"}, {"iserror": None}, {"isError": "no"}, {"isError": []}]
)
async def test_a_success_under_any_spelling_is_a_success(flags: Json) -> None:
    result, problems = await result_of({"content": [TEXT], **flags})

    assert (result.text, result.is_error) == ("x", False)
    assert problems


@pytest.mark.parametrize("name", ["structured_content", "structuredcontent", "StructuredContent", "structured-content"])
async def test_structured_content_in_another_spelling_is_structured_content(name: str) -> None:
    result, problems = await result_of({"content": [TEXT], name: {"a": 1}})

    assert result.structured_content == {"a": 1}
    assert problems == (f"tool 't': its result has {name!r} in place of 'structuredContent'",)


async def test_a_member_under_its_own_name_wins() -> None:
    result, problems = await result_of({"content": [TEXT], "structuredContent": {"a": 1}, "structured_content": None})

    assert result.structured_content == {"a": 1}
    assert problems == ()


@pytest.mark.parametrize("name", ["result_type", "resulttype", "ResultType"])
async def test_a_result_that_is_not_complete_under_any_spelling_is_not_read_as_complete(name: str) -> None:
    with pytest.raises(ProtocolError, match="unknown resultType 'partial'"):
        await result_of({"content": [TEXT], name: "partial"})


@pytest.mark.parametrize("name", ["mime_type", "mimetype", "MimeType"])
async def test_the_media_type_of_a_block_in_another_spelling_is_its_media_type(name: str) -> None:
    blocks: list[Json] = [
        {"type": "image", "data": "AAAA", name: "image/gif"},
        {"type": "resource", "resource": {"uri": "a://b", "text": "x", name: "text/x"}},
        {"type": "resource_link", "uri": "a://c", "name": "c", name: "text/y"},
    ]
    result, problems = await result_of({"content": blocks})

    image, resource, link = result.content
    assert isinstance(image, ImageContent)
    assert isinstance(resource, EmbeddedResource)
    assert isinstance(link, ResourceLink)
    assert [image.mime_type, resource.mime_type, link.mime_type] == ["image/gif", "text/x", "text/y"]
    assert problems == (f"tool 't': its result has {name!r} in place of 'mimeType'",)


@pytest.mark.parametrize(
    ("kind", "read"),
    [("Text", "text"), ("TEXT", "text"), ("resourceLink", "resource_link"), ("resource-link", "resource_link")],
)
async def test_the_type_of_a_block_in_another_spelling_is_its_type(kind: str, read: str) -> None:
    result, problems = await result_of({"content": [{"type": kind, "text": "x", "uri": "a://b", "name": "n"}]})

    assert [one.type for one in result.content] == [read]
    assert problems == (f"tool 't': its result has a block of the type {kind!r} in place of {read!r}",)


@pytest.mark.parametrize("kind", ["Error", "ERROR"])
async def test_a_block_of_the_type_error_in_another_spelling_is_an_error(kind: str) -> None:
    result, _ = await result_of({"content": [{"type": kind, "text": "no"}]})

    assert (result.text, result.is_error) == ("no", True)


@pytest.mark.parametrize("names", [("input_schema", "output_schema"), ("inputschema", "OutputSchema")])
async def test_the_schemas_of_a_tool_in_another_spelling_are_its_schemas(names: tuple[str, str]) -> None:
    tool = {"name": "t", names[0]: SCHEMA, names[1]: SCHEMA}
    async with connected(server({"tools/list": {"tools": [tool]}})) as connection:
        spec = connection.snapshot().by_name["t"]
        assert (spec.input_schema, spec.output_schema) == (SCHEMA, SCHEMA)
        assert [one.partition(" in place of ")[2] for one in connection.problems] == ["'inputSchema'", "'outputSchema'"]


async def test_hints_about_effects_have_one_spelling() -> None:
    tool = {"name": "t", "inputSchema": OBJECT, "annotations": {"read_only_hint": True, "readonlyhint": True}}
    async with connected(server({"tools/list": {"tools": [tool]}})) as connection:
        assert (connection.snapshot().by_name["t"].annotations or {}).get("readOnlyHint") is None


@pytest.mark.parametrize("name", ["next_cursor", "nextcursor", "NextCursor"])
async def test_a_cursor_in_another_spelling_leads_to_the_next_page(name: str) -> None:
    def script(message: Json) -> Json | None:
        cursor = message.get("params", {}).get("cursor")
        tool = {"name": f"after {cursor}", "inputSchema": OBJECT}
        return {"result": {"tools": [tool], **({name: "c"} if cursor is None else {})}}

    async with connected(ChannelServer(initialized(script))) as connection:
        assert [spec.name for spec in connection.snapshot()] == ["after None", "after c"]
        assert connection.problems == (f"its answer to tools/list has {name!r} in place of 'nextCursor'",)


@pytest.mark.parametrize(("uri", "mime"), [("uri_template", "mime_type"), ("UriTemplate", "MimeType")])
async def test_resources_and_templates_in_another_spelling_are_listed(uri: str, mime: str) -> None:
    lists = {
        "resources/list": {"resources": [{"uri": "a://b", "name": "b", mime: "text/x"}]},
        "resources/templates/list": {"resource_templates": [{uri: "a://{x}", "name": "x", mime: "text/y"}]},
    }
    async with connected(server(lists)) as connection:
        assert [one.mime_type for one in await connection.list_resources()] == ["text/x"]
        found = await connection.list_resource_templates()
        assert [(one.uri_template, one.mime_type) for one in found] == [("a://{x}", "text/y")]
        assert len(connection.problems) == 4


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list"])
async def test_a_list_as_the_whole_answer_is_the_list(method: str) -> None:
    entries = [{"name": "n", "uri": "a://b", "inputSchema": OBJECT}]
    async with connected(server({method: entries})) as connection:
        found: Any
        if method == "tools/list":
            found = connection.snapshot()
        elif method == "prompts/list":
            found = await connection.list_prompts()
        else:
            found = await connection.list_resources()
        assert [one.name for one in found] == ["n"]
        assert connection.problems == (f"its answer to {method} has no {method.partition('/')[0]!r}",)


@pytest.mark.parametrize(
    "result",
    [[{"role": "user", "content": TEXT}], ["x"], "x", {"role": "user", "content": TEXT}, {"content": TEXT}],
)
async def test_a_prompt_without_the_member_for_its_messages_has_them(result: Any) -> None:
    async with connected(server({"prompts/get": result})) as connection:
        filled: Any = await connection.get_prompt("p")
        assert [(one.role, one.content.text) for one in filled.messages] == [("user", "x")]
        assert "its answer to prompts/get has no 'messages'" in connection.problems


@pytest.mark.parametrize(
    "result",
    [
        [{"uri": "a://b", "text": "x", "mime_type": "text/x"}],
        {"uri": "a://b", "text": "x", "mimetype": "text/x"},
        {"text": "x", "MimeType": "text/x"},
    ],
)
async def test_a_resource_without_the_member_for_its_contents_has_them(result: Any) -> None:
    async with connected(server({"resources/read": result})) as connection:
        (read,) = await connection.read_resource("a://b")
        assert (read.uri, read.text, read.mime_type) == ("a://b", "x", "text/x")
        assert "its answer to resources/read has no 'contents'" in connection.problems


@pytest.mark.parametrize(("method", "value"), [("prompts/get", 5), ("resources/read", True), ("resources/read", {})])
async def test_an_answer_of_no_plain_meaning_stays_an_error(method: str, value: Any) -> None:
    async with connected(server({method: value})) as connection:
        with pytest.raises(ProtocolError):
            if method == "prompts/get":
                await connection.get_prompt("p")
            else:
                await connection.read_resource("a://b")


@pytest.mark.parametrize(
    ("answer", "tools"),
    [
        ({"protocol_version": "2025-06-18", "server_info": {"name": "n", "version": "1"}, "capabilities": ALL}, True),
        ({"ProtocolVersion": "2025-06-18", "ServerInfo": {"name": "n", "version": "1"}, "Capabilities": ALL}, True),
        ({"protocolVersion": "2025-06-18", "serverInfo": {"name": "n"}, "capabilities": list(ALL)}, True),
        ({"protocolVersion": "2025-06-18", "serverInfo": {"name": "n"}, "capabilities": []}, False),
        ({"protocolVersion": "2025-06-18", "serverInfo": {"name": "n"}, "capabilities": None}, False),
    ],
)
async def test_a_handshake_in_another_spelling_is_a_handshake(answer: Json, tools: bool) -> None:
    listed: Json = {"tools": [{"name": "t", "inputSchema": OBJECT}]}

    def script(message: Json) -> Json | None:
        match message["method"]:
            case "initialize":
                return {"result": answer}
            case "server/discover":
                return error(-32601, "Method not found")
            case "tools/list":
                return {"result": listed}
            case _:
                return None

    async with connected(ChannelServer(script)) as connection:
        assert connection.server_info["name"] == "n"
        assert ("tools" in connection.capabilities) is tools
        assert all(one.startswith("its answer to initialize has ") for one in connection.problems)
        assert connection.problems


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/call", {"content": [TEXT], "is_error": True}),
        ("prompts/get", ["x"]),
        ("resources/read", {"text": "x"}),
    ],
)
async def test_an_owner_that_wants_no_repairs_gets_errors(method: str, result: Any) -> None:
    target = {"transport": "inprocess", "server": server({method: result}), "repair_messages": False}
    async with connected(target) as connection:
        with pytest.raises(ProtocolError, match="'repair_messages': true"):
            match method:
                case "tools/call":
                    await connection.call_tool("t")
                case "prompts/get":
                    await connection.get_prompt("p")
                case _:
                    await connection.read_resource("a://b")
