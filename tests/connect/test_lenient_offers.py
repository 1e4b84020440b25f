"""Lists, prompts and resources that are nearly right, read as they are plainly meant and reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave import ProtocolError

OBJECT: Json = {"type": "object"}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL: Json = {"name": "t", "inputSchema": OBJECT}
TEXT: Json = {"type": "text", "text": "x"}


def server(**answers: Any) -> ChannelServer:
    """Return a server that answers requests with these results, by their methods with `_` for `/`."""
    results = {name.replace("_", "/"): result for name, result in answers.items()}
    results.setdefault("tools/list", {"tools": []})

    def script(message: Json) -> Json | None:
        if message["method"] in results:
            return {"result": results[message["method"]]}
        return None

    return ChannelServer(initialized(script, capabilities={"tools": {}, "prompts": {}, "resources": {}}))


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({"inputSchema": True}, OBJECT),
        ({"inputSchema": []}, OBJECT),
        ({"inputSchema": '{"type": "object", "properties": {"a": {"type": "integer"}}}'}, SCHEMA),
        ({"parameters": SCHEMA}, SCHEMA),
        ({"inputSchema": None, "parameters": SCHEMA}, SCHEMA),
        ({"inputSchema": {**SCHEMA, "type": ["object", "null"]}}, SCHEMA),
        ({"inputSchema": {**SCHEMA, "type": ["null", "Object"]}}, SCHEMA),
        ({"inputSchema": {**SCHEMA, "type": "OBJECT"}}, SCHEMA),
        ({"inputSchema": {**SCHEMA, "type": None}}, SCHEMA),
    ],
)
async def test_an_input_schema_that_is_nearly_one_is_the_schema_that_is_meant(given: Json, schema: Json) -> None:
    async with connected(server(tools_list={"tools": [{"name": "t", **given}]})) as connection:
        assert connection.snapshot().by_name["t"].input_schema == schema
        assert connection.problems == ("tool 't': its definition has an 'inputSchema' that is not an object",)


@pytest.mark.parametrize(
    "schema",
    [False, 5, [1], "text", "[1]", {"type": "array"}, {"type": ["array", "string"]}, {"type": []}, {"type": ""}],
)
async def test_an_input_schema_of_no_plain_meaning_costs_its_tool(schema: Any) -> None:
    async with connected(server(tools_list={"tools": [{"name": "t", "inputSchema": schema}, TOOL]})) as connection:
        assert len(connection.snapshot()) <= 1
        assert [one for one in connection.problems if one.startswith("tool 't' left out: its inputSchema")]


@pytest.mark.parametrize(
    ("page", "names", "problem"),
    [
        ({"tools": {"t": {"inputSchema": OBJECT}}}, ["t"], "'tools' that is not a list"),
        ({"tools": TOOL}, ["t"], "'tools' that is not a list"),
        ({"tools": None}, [], "null as 'tools'"),
        ({"tools": [TOOL], "nextCursor": ""}, ["t"], "an empty 'nextCursor' on its last page"),
    ],
)
async def test_a_list_that_is_nearly_one_has_its_entries(page: Json, names: list[str], problem: str) -> None:
    async with connected(server(tools_list=page)) as connection:
        assert [spec.name for spec in connection.snapshot()] == names
        assert connection.problems == (f"its answer to tools/list has {problem}",)


@pytest.mark.parametrize("page", [{}, {"tools": "t"}, {"tools": {"t": 1}}, {"tools": 5}])
async def test_what_is_no_list_at_all_stays_an_error(page: Json) -> None:
    async with connected(server(tools_list=page)) as connection:
        with pytest.raises(ProtocolError, match="has no list 'tools'"):
            await connection.refresh()


@pytest.mark.parametrize(
    ("cursor", "kind"), [({"page": 2}, "an object"), ([2], "a list"), (True, "true or false"), (2.5, "a number")]
)
async def test_a_cursor_that_cannot_be_sent_back_is_among_the_problems(cursor: object, kind: str) -> None:
    async with connected(server(tools_list={"tools": [TOOL], "nextCursor": cursor})) as connection:
        assert [spec.name for spec in connection.snapshot()] == ["t"]
        assert connection.problems == (f"tools/list has {kind} as 'nextCursor': no further page is read",)


@pytest.mark.parametrize("cursor", [False, [], {}, None])
async def test_an_empty_value_as_cursor_is_the_end_of_a_list(cursor: object) -> None:
    async with connected(server(tools_list={"tools": [TOOL], "nextCursor": cursor})) as connection:
        assert [spec.name for spec in connection.snapshot()] == ["t"]
        assert connection.problems == ()


async def test_a_number_as_cursor_is_sent_back_as_that_number() -> None:
    def script(message: Json) -> Json | None:
        if message["method"] != "tools/list":
            return None
        cursor = message.get("params", {}).get("cursor")
        if cursor is None:
            return {"result": {"tools": [{**TOOL, "name": "first"}], "nextCursor": 2}}
        return {"result": {"tools": [{**TOOL, "name": f"after {cursor!r}"}]}}

    async with connected(ChannelServer(initialized(script))) as connection:
        assert [spec.name for spec in connection.snapshot()] == ["first", "after 2"]
        assert connection.problems == ("its answer to tools/list has a number as 'nextCursor'",)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ({"a": {"required": True}, "b": {}}, [("a", True), ("b", False)]),
        (["a"], [("a", False)]),
        ([{"name": "a", "required": "true"}, {"name": "b", "required": "no"}], [("a", True), ("b", False)]),
    ],
)
async def test_arguments_of_a_prompt_are_those_that_are_meant(arguments: Any, read: list[tuple[str, bool]]) -> None:
    async with connected(server(prompts_list={"prompts": [{"name": "p", "arguments": arguments}]})) as connection:
        (prompt,) = await connection.list_prompts()
        assert [(one.name, one.required) for one in prompt.arguments] == read
        assert len(connection.problems) == 1


@pytest.mark.parametrize("listed", [None, {}])
async def test_null_as_a_list_of_prompts_or_resources_is_none_of_them(listed: Any) -> None:
    answers: Json = {"prompts_list": {"prompts": listed}, "resources_list": {"resources": listed}}
    async with connected(server(**answers)) as connection:
        assert await connection.list_prompts() == ()
        assert await connection.list_resources() == ()


@pytest.mark.parametrize(
    ("messages", "read"),
    [
        ({"role": "user", "content": TEXT}, [("user", "x")]),
        ("x", [("user", "x")]),
        (["x"], [("user", "x")]),
        ([{"role": "assistant", "content": "x"}], [("assistant", "x")]),
        ([{"role": "user", "content": [TEXT, {"text": "y"}]}], [("user", "x"), ("user", "y")]),
        ([{"content": TEXT}, None], [("user", "x")]),
        ([{"role": "user", "content": {"a": 1}}], [("user", '{"a": 1}')]),
        ([{"role": "user", "text": "x"}], [("user", "x")]),
        (None, []),
    ],
)
async def test_messages_of_a_prompt_are_those_that_are_meant(messages: Any, read: list[tuple[str, str]]) -> None:
    async with connected(server(prompts_get={"messages": messages})) as connection:
        result: Any = await connection.get_prompt("p")
        assert [(one.role, one.content.text) for one in result.messages] == read
        assert all(one.startswith("its answer to prompts/get has ") for one in connection.problems)
        assert connection.problems


@pytest.mark.parametrize(
    ("contents", "read"),
    [
        ({"uri": "a://b", "text": "x"}, [("a://b", "x")]),
        ("x", [("a://b", "x")]),
        (["x", None], [("a://b", "x")]),
        ([{"text": "x"}], [("a://b", "x")]),
        ([{"uri": "a://c", "text": {"a": 1}}], [("a://c", '{"a": 1}')]),
        ([{"uri": "a://b", "text": None}], [("a://b", "")]),
        (None, []),
    ],
)
async def test_contents_of_a_resource_are_those_that_are_meant(contents: Any, read: list[tuple[str, str]]) -> None:
    async with connected(server(resources_read={"contents": contents})) as connection:
        assert [(one.uri, one.text) for one in await connection.read_resource("a://b")] == read
        assert all(one.startswith("its answer to resources/read has ") for one in connection.problems)
        assert connection.problems


async def test_what_is_right_is_read_without_a_report() -> None:
    right = server(
        tools_list={"tools": [TOOL, {"name": "u", "inputSchema": None}]},
        prompts_list={"prompts": [{"name": "p", "arguments": [{"name": "a", "required": True}]}, {"name": "q"}]},
        prompts_get={"messages": [{"role": "user", "content": {"type": "future", "x": 1}}]},
        resources_read={"contents": [{"uri": "a://b", "text": "", "blob": None}, {"uri": "a://b", "blob": "AA=="}]},
    )
    async with connected(right) as connection:
        await connection.list_prompts()
        await connection.get_prompt("p")
        assert [one.text for one in await connection.read_resource("a://b")] == ["", None]
        assert connection.problems == ()


@pytest.mark.parametrize(
    ("given", "structured"),
    [('{"a": 1}', {"a": 1}), ('{"a": "1"}', '{"a": "1"}'), ("text", "text")],
)
async def test_structured_content_that_is_a_text_is_its_value_if_that_fits_the_schema(
    given: str, structured: Any
) -> None:
    tool: Json = {**TOOL, "outputSchema": {**SCHEMA, "required": ["a"]}}
    answers: Json = {"tools_list": {"tools": [tool]}, "tools_call": {"content": [TEXT], "structuredContent": given}}
    async with connected(server(**answers)) as connection:
        result = await connection.call_tool("t", {})
        assert result.structured_content == structured
        assert result.is_error is (structured == given)
        assert bool(connection.problems) is not result.is_error


@pytest.mark.parametrize("method", ["get_prompt", "read_resource", "refresh"])
async def test_an_owner_that_wants_no_repairs_gets_errors(method: str) -> None:
    answers: Json = {"prompts_get": {"messages": "x"}, "resources_read": {"contents": "x"}}
    target = {
        "transport": "inprocess",
        "server": server(tools_list={"tools": None}, **answers),
        "repair_messages": False,
    }
    async with connected(target) as connection:
        with pytest.raises(ProtocolError):
            await getattr(connection, method)(*(() if method == "refresh" else ("a://b",)))
