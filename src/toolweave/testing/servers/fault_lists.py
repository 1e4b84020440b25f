"""Faults of handshakes and lists: invalid cursors, tools and schemas, capabilities that lie."""

from __future__ import annotations

from toolweave.testing.servers.fault_base import FaultServer, message_mode
from toolweave.testing.servers.toolset import Json, members

__all__: list[str] = []

OBJECT: Json = {"type": "object", "properties": {}}


def named(name: str, **more: object) -> Json:
    """Return a tool definition."""
    return {"name": name, "description": f"The tool {name}", "inputSchema": OBJECT, **more}


def cursor_of(message: Json) -> object:
    """Return the cursor of a list request, None for the first page."""
    return members(message.get("params")).get("cursor")


def list_with(server: FaultServer, **members: object) -> None:
    """Answer `tools/list` with these members."""

    def listed(message: Json) -> bool:
        server.answer(message, members)
        return True

    server.on("tools/list", listed)


@message_mode
def list_error(server: FaultServer) -> None:
    """Answer `tools/list` with -32603."""

    def listed(message: Json) -> bool:
        server.refuse(message, -32603, "cannot list: upstream is down")
        return True

    server.on("tools/list", listed)


@message_mode
def endless_cursor(server: FaultServer) -> None:
    """Every page has one more tool and a new cursor."""

    def listed(message: Json) -> bool:
        number = int(str(cursor_of(message) or "0"))
        server.answer(message, {"tools": [named(f"endless_{number}")], "nextCursor": str(number + 1)})
        return True

    server.on("tools/list", listed)


@message_mode
def cursor_loop(server: FaultServer) -> None:
    """The pages a and b point at each other."""

    def listed(message: Json) -> bool:
        cursor = cursor_of(message)
        following = "b" if cursor == "a" else "a"
        server.answer(message, {"tools": [named(f"looped_{cursor or 'first'}")], "nextCursor": following})
        return True

    server.on("tools/list", listed)


@message_mode
def cursor_empty_string(server: FaultServer) -> None:
    """The second page's cursor is the empty string."""

    def listed(message: Json) -> bool:
        if cursor_of(message) is None:
            server.answer(message, {"tools": [named("echo")], "nextCursor": ""})
        else:
            server.answer(message, {"tools": [named("add"), named("second_page")]})
        return True

    server.on("tools/list", listed)


@message_mode
def repeated_pages(server: FaultServer) -> None:
    """Three pages with new cursors that hold the same tools, then no more."""

    def listed(message: Json) -> bool:
        number = int(str(cursor_of(message) or "1"))
        more: Json = {"nextCursor": str(number + 1)} if number < 3 else {}
        server.answer(message, {"tools": [named("echo"), named("add")], **more})
        return True

    server.on("tools/list", listed)


@message_mode
def cursor_number(server: FaultServer) -> None:
    """The only page says `nextCursor: 7`."""
    list_with(server, tools=[named("echo")], nextCursor=7)


@message_mode
def cursor_null(server: FaultServer) -> None:
    """The only page says `nextCursor: null`."""
    list_with(server, tools=[named("echo")], nextCursor=None)


@message_mode
def schema_true(server: FaultServer) -> None:
    """Beside echo and add: a tool whose input schema is `true`."""
    server.add_tools(named("odd", inputSchema=True))


@message_mode
def schema_null(server: FaultServer) -> None:
    """Beside echo and add: a tool whose input schema is null."""
    server.add_tools(named("odd", inputSchema=None))


@message_mode
def schema_missing(server: FaultServer) -> None:
    """Beside echo and add: a tool without an input schema."""
    server.add_tools({"name": "odd", "description": "no schema at all"})


@message_mode
def schema_of_text(server: FaultServer) -> None:
    """Beside echo and add: a tool whose input schema describes a string."""
    server.add_tools(named("odd", inputSchema={"type": "string"}))


@message_mode
def non_object_schema(server: FaultServer) -> None:
    """Beside echo and add: tools whose input schema is not an object schema, or is missing."""
    server.add_tools(
        named("schema_true", inputSchema=True),
        named("schema_null", inputSchema=None),
        named("schema_list", inputSchema=[]),
        named("schema_text", inputSchema="object"),
        named("schema_string_type", inputSchema={"type": "string"}),
        named("schema_empty", inputSchema={}),
        {"name": "schema_missing", "description": "no schema at all"},
    )


@message_mode
def invalid_schema(server: FaultServer) -> None:
    """Beside echo and add: tools whose input schema is an object but no valid JSON Schema."""
    server.add_tools(
        named("bad_type", inputSchema={"type": "object", "properties": {"a": {"type": "any"}}}),
        named("bad_ref", inputSchema={"type": "object", "properties": {"a": {"$ref": "#/components/x"}}}),
        named("bad_pattern", inputSchema={"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
    )


@message_mode
def tool_without_name(server: FaultServer) -> None:
    """Beside echo and add: tools with no name, an empty one, and one that is a number."""
    server.add_tools({"description": "nameless", "inputSchema": OBJECT}, named(""), {**named("x"), "name": 7})


@message_mode
def tool_not_object(server: FaultServer) -> None:
    """Beside echo and add: a text, a number, null and a list instead of tools."""
    server.add_tools("tool", 7, None, [named("inside")])


@message_mode
def tools_not_list(server: FaultServer) -> None:
    """`tools` is an object."""
    list_with(server, tools={"echo": named("echo")})


@message_mode
def tools_null(server: FaultServer) -> None:
    """`tools` is null."""
    list_with(server, tools=None)


@message_mode
def tools_missing(server: FaultServer) -> None:
    """The result of `tools/list` has no `tools`."""
    list_with(server, items=[])


@message_mode
def duplicate_tool_names(server: FaultServer) -> None:
    """Beside echo and add: echo once more, with another description."""
    server.add_tools(named("echo", description="The second echo"))


@message_mode
def odd_names(server: FaultServer) -> None:
    """Beside echo and add: legal but awkward names."""
    server.add_tools(
        *(named(name) for name in ("with space", "sl/ash", "dot.ted", "co:lon", "ünïcode", "n" * 300, "a__b", "-dash"))
    )


@message_mode
def schema_ref_network(server: FaultServer) -> None:
    """Beside echo and add: a tool whose schema points at http://127.0.0.1:PORT."""
    reference: Json = {"$ref": f"http://127.0.0.1:{server.port}/schema.json"}
    server.add_tools(
        named("remote_ref", inputSchema={"type": "object", "properties": {"a": reference}}),
        named("remote_output", outputSchema=reference),
        named("remote_dialect", inputSchema={**OBJECT, "$schema": f"http://127.0.0.1:{server.port}/dialect"}),
    )


@message_mode
def schema_deep(server: FaultServer) -> None:
    """Beside echo and add: a tool whose schema is nested 5,000 levels deep."""
    depth = 5_000
    deep = b'{"type":"object","properties":{"a":' * depth + b"{}" + b"}}" * depth
    server.add_tools(named("deep", inputSchema="DEEP"))
    shallow = server.rewrite

    def listing(message: Json, answer: Json) -> bytes | None:
        data = shallow(message, answer) if shallow is not None else None
        if data is None:
            return None
        return data.replace(b'"DEEP"', deep)

    server.rewrite = listing


@message_mode
def bad_annotations(server: FaultServer) -> None:
    """Beside echo and add: tools whose optional members have the wrong types."""
    server.add_tools(
        named("annotations_text", annotations="yes"),
        named("annotations_types", annotations={"title": 5, "readOnlyHint": "maybe", "destructiveHint": None}),
        named("description_number", description=5),
        named("title_list", title=["x"]),
        named("icons_text", icons="icon.png"),
        named("output_true", outputSchema=True),
        named("output_array", outputSchema={"type": "array"}),
        named("meta_text", _meta="x"),
    )


@message_mode
def bogus_version(server: FaultServer) -> None:
    """Answer `initialize` with a revision that never was."""
    server.peer.version = "2025-11-05"


@message_mode
def refuses_initialize(server: FaultServer) -> None:
    """Answer `initialize` with an error."""

    def asked(message: Json) -> bool:
        server.refuse(message, -32000, "licence expired")
        return True

    server.on("initialize", asked)


@message_mode
def lies_about_resources(server: FaultServer) -> None:
    """Advertise resources, prompts and completions; answer -32601 to all of them."""

    def unknown(message: Json) -> bool:
        server.refuse(message, -32601, "Method not found")
        return True

    methods = "resources/list resources/read resources/templates/list prompts/list prompts/get completion/complete"
    for method in methods.split():
        server.on(method, unknown)


@message_mode
def no_tools(server: FaultServer) -> None:
    """Advertise only prompts; `tools/list` is -32601."""
    server.peer.capabilities = {"prompts": {}}

    def unknown(message: Json) -> bool:
        server.refuse(message, -32601, "Method not found")
        return True

    server.on("tools/list", unknown)
    server.on("tools/call", unknown)
