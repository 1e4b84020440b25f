"""Resources of a server: listed, read, changed while clients are connected, and refused without any."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from tests.connect.targets import eventually
from tests.serve.carriers import EACH_CARRIER, EACH_ERA, ERAS, connected
from tests.serve.lines import Peer
from toolweave import Callbacks, ImageContent, McpConnection, ProtocolError, TextContent, ToolError, ToolResult
from toolweave.connect import ElicitationResult, ResourceUpdated
from toolweave.errors import ErrorKind, RequestError, SchemaError
from toolweave.serve import McpServer, ResourcesChanged, create_mcp_server, resource
from toolweave.tools import AudioContent, CallContext, EmbeddedResource, File

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
Json = dict[str, Any]


def make(*resources: Any, **options: Any) -> McpServer:
    return create_mcp_server(name="library", version="1.0", resources=resources, **options)


async def answer(server: McpServer, method: str, era: str = ERAS[-1], **params: Any) -> Json:
    return await server.endpoint.answer(Peer(version=era).request(method, **params))


async def contents(server: McpServer, uri: str) -> list[Json]:
    return (await answer(server, "resources/read", uri=uri))["contents"]


async def refusal(server: McpServer, method: str, era: str = ERAS[-1], **params: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        await answer(server, method, era, **params)
    return refused.value


async def listed(connection: McpConnection, *uris: str) -> bool:
    return [one.uri for one in await connection.list_resources()] == list(uris)


@resource("notes://{id}", mime_type="text/plain")
def note(id: int) -> str:
    """A note by its number."""
    return f"note {id}"


@resource(
    "config://app",
    name="config",
    title="The configuration",
    mime_type="application/json",
    size=10,
    annotations={"audience": ["user"], "priority": 0.5},
    icons=[{"src": "https://example.org/i.png"}],
    meta={"example.org/a": 1},
)
async def config(ctx: CallContext) -> Json:
    return {"mode": ctx.state["mode"]}


@EACH_CARRIER
@pytest.mark.requirement("R101", "C29")
async def test_resources_and_templates_are_listed_and_read(carrier: str, era: str) -> None:
    server = make(note, config, state={"mode": "dark"})

    async with connected(server, carrier, era) as connection:
        (fixed,) = await connection.list_resources()
        (template,) = await connection.list_resource_templates()
        (text,) = await connection.read_resource("config://app")
        (written,) = await connection.read_resource("notes://7")

    assert fixed.raw == {
        "uri": "config://app",
        "name": "config",
        "title": "The configuration",
        "mimeType": "application/json",
        "size": 10,
        "annotations": {"audience": ["user"], "priority": 0.5},
        "icons": [{"src": "https://example.org/i.png"}],
        "_meta": {"example.org/a": 1},
    }
    assert (template.uri_template, template.name, template.description) == (
        "notes://{id}",
        "note",
        "A note by its number.",
    )
    assert (text.uri, text.mime_type, text.text) == ("config://app", "application/json", '{"mode": "dark"}')
    assert (written.uri, written.mime_type, written.text) == ("notes://7", "text/plain", "note 7")


@EACH_CARRIER
@pytest.mark.requirement("C14", "R101")
async def test_an_unknown_uri_is_refused_with_the_code_of_the_era_and_the_uri(carrier: str, era: str) -> None:
    async with connected(make(note), carrier, era) as connection:
        with pytest.raises(ProtocolError, match="notes/7") as refused:
            await connection.read_resource("notes/7")

    assert refused.value.code == (-32002 if era < "2026" else -32602)
    assert refused.value.data == {"uri": "notes/7"}


@pytest.mark.requirement("R101")
@pytest.mark.parametrize("uri", ["notes://seven", "notes://", "notes://7/8", "notes://7?x=1", "", "notes://%37%"])
async def test_a_value_that_is_none_of_the_variables_type_is_of_no_resource(uri: str) -> None:
    refused = await refusal(make(note), "resources/read", uri=uri)

    assert (refused.code, refused.data) == (-32602, {"uri": uri})


@resource("gone://{id}")
def gone(id: str) -> str | None:
    if id == "raises":
        raise ToolError("it does not exist", kind=ErrorKind.NOT_FOUND)
    return None


@pytest.mark.requirement("R101", "C14")
@pytest.mark.parametrize("uri", ["gone://none", "gone://raises"])
async def test_a_function_that_has_nothing_there_says_so_and_nobody_gets_empty_contents(uri: str) -> None:
    refused = await refusal(make(gone), "resources/read", uri=uri)

    assert (refused.code, refused.data) == (-32602, {"uri": uri})


@EACH_ERA
@pytest.mark.parametrize("params", [{}, {"uri": 1}, {"uri": None}, {"uri": ["notes://1"]}], ids=repr)
async def test_a_uri_that_is_no_text_is_refused(params: Json, era: str) -> None:
    assert (await refusal(make(note), "resources/read", era, **params)).code == -32602


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.requirement("R101", "C18")
@pytest.mark.parametrize(
    ("value", "declared", "expected"),
    [
        ("text", None, [{"mimeType": "text/plain", "text": "text"}]),
        ("<p>", "text/html", [{"mimeType": "text/html", "text": "<p>"}]),
        (PNG, None, [{"mimeType": "image/png", "blob": "iVBORw0KGgoAAAAAAAAAAA=="}]),
        (b"\0", None, [{"mimeType": "application/octet-stream", "blob": "AA=="}]),
        (b"\0", "model/gltf-binary", [{"mimeType": "model/gltf-binary", "blob": "AA=="}]),
        (b"<p>", "text/html", [{"mimeType": "text/html", "text": "<p>"}]),
        ({"a": 1}, None, [{"mimeType": "application/json", "text": '{"a": 1}'}]),
        ([1, 2], "application/x-list", [{"mimeType": "application/x-list", "text": "[1, 2]"}]),
        (Point(1), None, [{"mimeType": "application/json", "text": '{"x": 1}'}]),
        (File(b"a", mime_type="text/csv"), None, [{"mimeType": "text/csv", "text": "a"}]),
        (TextContent(text="t"), None, [{"mimeType": "text/plain", "text": "t"}]),
        (ImageContent(data="AA==", mime_type="image/x"), "a/b", [{"mimeType": "image/x", "blob": "AA=="}]),
        (AudioContent(data="AA==", mime_type="audio/x"), None, [{"mimeType": "audio/x", "blob": "AA=="}]),
        (
            [EmbeddedResource(uri="a:1", text="one", meta={"k": 1}), b"\0", "three"],
            None,
            [
                {"uri": "a:1", "text": "one", "_meta": {"k": 1}},
                {"mimeType": "application/octet-stream", "blob": "AA=="},
                {"mimeType": "text/plain", "text": "three"},
            ],
        ),
        (ToolResult.of("result"), None, [{"mimeType": "text/plain", "text": "result"}]),
    ],
    ids=repr,
)
async def test_every_value_becomes_contents_of_its_type(value: Any, declared: str | None, expected: list[Json]) -> None:
    def give() -> Any:
        return value

    server = make(resource("any://value", mime_type=declared)(give))

    assert await contents(server, "any://value") == [{"uri": "any://value"} | one for one in expected]


@pytest.mark.requirement("R104", "C31")
@pytest.mark.parametrize(
    ("expose", "headers", "message"),
    [
        (None, {}, "reading resource 'broken://a' failed: KeyError: 'hunter2'"),
        (None, {"host": "x"}, "reading resource 'broken://a' failed"),
        ("masked", {}, "reading resource 'broken://a' failed"),
        ("message", {"host": "x"}, "reading resource 'broken://a' failed: KeyError: 'hunter2'"),
    ],
)
async def test_an_unexpected_exception_is_masked_where_strangers_call(
    expose: Any, headers: dict[str, str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    @resource("broken://a")
    def broken() -> str:
        raise KeyError("hunter2")

    server = make(broken, expose_errors=expose)
    request = Peer().request("resources/read", uri="broken://a")
    request.headers = headers

    with pytest.raises(RequestError) as refused:
        await server.endpoint.answer(request)

    assert (refused.value.message, refused.value.code) == (message, -32603)
    assert "hunter2" in caplog.text  # the stack trace is in the log


async def test_what_a_function_says_to_the_client_reaches_it() -> None:
    @resource("a://{kind}")
    def not_found(kind: str) -> str:
        if kind == "tool":
            raise ToolError("the disk is full", data={"free": 0})
        raise RequestError("pay first", code=-31999, data={"price": 1})

    tool_error = await refusal(make(not_found), "resources/read", uri="a://tool")
    request_error = await refusal(make(not_found), "resources/read", uri="a://other")

    assert (tool_error.code, tool_error.message, tool_error.data) == (-32603, "the disk is full", {"free": 0})
    assert (request_error.code, request_error.message, request_error.data) == (-31999, "pay first", {"price": 1})


@EACH_CARRIER
@pytest.mark.requirement("R101")
async def test_a_resource_may_ask_its_reader(carrier: str, era: str) -> None:
    asked: list[str] = []

    def answered(question: Any) -> ElicitationResult:
        asked.append(question.message)
        return ElicitationResult.accept({"name": "Ada"})

    @resource("secret://{id}")
    async def secret(id: str, ctx: CallContext) -> str:
        given = await ctx.elicit("who reads?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"{id} for {(given.content or {})['name']}"

    async with connected(make(secret), carrier, era, callbacks=Callbacks(elicitation=answered)) as connection:
        (text,) = await connection.read_resource("secret://9")

    assert (text.text, asked) == ("9 for Ada", ["who reads?"])


@EACH_CARRIER
@pytest.mark.requirement("C9", "R93")
async def test_clients_hear_of_resources_that_come_go_and_change(carrier: str, era: str) -> None:
    server = make(note)
    updates: list[str] = []
    news = anyio.Event()

    def received(update: ResourceUpdated) -> None:
        updates.append(update.uri)
        news.set()

    async with connected(server, carrier, era) as connection:
        assert await listed(connection)

        @server.resource("late://one")
        def late() -> str:
            return "late"

        await eventually(lambda: listed(connection, "late://one"))
        await connection.subscribe_resource("late://one", received)
        server.notify_resource_updated("other://one")
        server.notify_resource_updated("late://one")
        await news.wait()
        server.resources.remove("late://one")
        await eventually(lambda: listed(connection))
        with pytest.raises(ProtocolError):
            await connection.read_resource("late://one")

    assert late() == "late"  # the function stays one
    assert set(updates) == {"late://one"}


@EACH_ERA
@pytest.mark.requirement("R93")
async def test_a_server_without_resources_declares_none_and_has_no_methods_for_them(era: str) -> None:
    server = make()
    modern = era == ERAS[-1]

    assert "resources" not in server.endpoint.capabilities(modern=modern)
    for method in ("resources/list", "resources/templates/list", "resources/read"):
        assert (await refusal(server, method, era, uri="a:b")).code == -32601

    server.resources.add(note)
    assert server.endpoint.capabilities(modern=modern)["resources"] == {"subscribe": True, "listChanged": True}
    assert (await answer(server, "resources/list", era))["resources"] == []

    server.resources.remove("notes://{id}")
    assert (await answer(server, "resources/templates/list", era))["resourceTemplates"] == []


@EACH_ERA
@pytest.mark.requirement("R98")
@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
async def test_both_lists_come_in_pages(era: str, count: int) -> None:
    def give(n: str = "") -> str:
        return n

    server = make(
        *(resource(f"fixed://{number}", name=str(number))(give) for number in range(count)),
        *(resource(f"family{number}://{{n}}", name=str(number))(give) for number in range(count)),
        page_size=3,
    )
    server.resources.add(note)

    for method, member in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")):
        found: list[str] = []
        params: Json = {}
        while True:
            result = await answer(server, method, era, **params)
            assert len(result[member]) <= 3
            found += [one["name"] for one in result[member]]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        assert [name for name in found if name != "note"] == [str(number) for number in range(count)]
        assert (await refusal(server, method, era, cursor="bad")).code == -32602


@pytest.mark.requirement("R93")
async def test_lists_and_contents_say_how_long_they_hold() -> None:
    server = make(note, ttl_ms=5000, cache_scope="public")

    for method in ("resources/list", "resources/templates/list", "resources/read"):
        result = await answer(server, method, uri="notes://1")
        assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (5000, "public", "complete")


class Shelf:
    """A source of another kind, as a hub would be: definitions and results as they came from elsewhere."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[ResourcesChanged], None]] = []
        self.broken = False

    async def resources(self) -> Sequence[Json]:
        if self.broken:
            raise RuntimeError("the shelf fell down")
        return [{"uri": "shelf://1", "name": "one", "x-unknown": [1]}, {"uri": "config://app", "name": "second"}]

    async def templates(self) -> Sequence[Json]:
        return [{"uriTemplate": "shelf://{?any}", "name": "all"}]

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        if not uri.startswith("shelf://"):
            return None
        return {"contents": [{"uri": uri, "text": "from the shelf", "x-unknown": 1}], "_meta": {"a": 1}}

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: None


async def test_another_source_is_listed_behind_our_own_and_its_results_travel_as_they_are() -> None:
    server = make(config, Shelf(), state={"mode": "dark"})

    listed = (await answer(server, "resources/list"))["resources"]
    read = await answer(server, "resources/read", uri="shelf://1")

    assert [one["name"] for one in listed] == ["config", "one"]
    assert listed[1] == {"uri": "shelf://1", "name": "one", "x-unknown": [1]}
    assert read["contents"] == [{"uri": "shelf://1", "text": "from the shelf", "x-unknown": 1}]
    assert read["_meta"]["a"] == 1
    assert (await contents(server, "config://app"))[0]["text"] == '{"mode": "dark"}'
    assert (await answer(server, "resources/templates/list"))["resourceTemplates"][0]["name"] == "all"


async def test_a_source_that_cannot_list_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf()
    shelf.broken = True

    listed = (await answer(make(config, shelf), "resources/list"))["resources"]

    assert [one["name"] for one in listed] == ["config"]
    assert "the shelf fell down" in caplog.text


async def test_a_source_alone_is_enough_and_its_changes_are_told() -> None:
    shelf = Shelf()
    server = create_mcp_server(name="a", version="1", resources=shelf)
    received: list[ResourcesChanged] = []
    leave = server.resources.subscribe(received.append)

    shelf.listeners[0](ResourcesChanged())
    shelf.listeners[0](ResourcesChanged("shelf://1"))
    leave()
    leave()
    server.notify_resource_updated("shelf://1")

    assert received == [ResourcesChanged(), ResourcesChanged("shelf://1")]
    assert "resources" in server.endpoint.capabilities(modern=True)


async def test_a_listener_that_raises_costs_nobody_else_the_change(caplog: pytest.LogCaptureFixture) -> None:
    server = make()
    received: list[ResourcesChanged] = []

    def broken(change: ResourcesChanged) -> None:
        raise RuntimeError("no")

    server.resources.subscribe(broken)
    server.resources.subscribe(received.append)
    server.resources.add(note)

    assert received == [ResourcesChanged()]
    assert "a listener for ResourcesChanged raised" in caplog.text


def test_two_resources_of_one_uri_are_refused_where_they_are_made() -> None:
    with pytest.raises(ValueError, match="notes://"):
        make(note, note)


async def test_a_resource_that_is_replaced_is_to_be_read_again_and_listed_again_only_if_its_definition_changed() -> (
    None
):
    received: list[ResourcesChanged] = []
    server = make(resource("a://x", name="x")(lambda: "old"))
    server.resources.subscribe(received.append)

    server.resources.registry.add(resource("a://x", name="x")(lambda: "new"), replace=True)
    assert (await answer(server, "resources/read", uri="a://x"))["contents"][0]["text"] == "new"
    assert received == [ResourcesChanged("a://x")]

    server.resources.registry.add(resource("a://x", name="y")(lambda: "new"), replace=True)
    assert received[1:] == [ResourcesChanged("a://x"), ResourcesChanged()]


def test_what_is_no_resource_is_refused_where_it_is_given() -> None:
    with pytest.raises(TypeError, match="@resource"):
        make(lambda: "x")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("notes", "scheme"),
        ("notes://fixed", "'id'"),
        ("notes://{id}/{other}", "'other'"),
        ("notes://{}", "not supported"),
        ("notes://{id", "brace"),
    ],
)
def test_a_uri_that_does_not_fit_its_function_is_refused_with_the_name_at_fault(uri: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        resource(uri)(note.function)


def test_a_method_that_is_not_bound_is_refused() -> None:
    class Notes:
        def read(self, id: str) -> str:
            return id

    with pytest.raises(SchemaError, match="self"):
        resource("notes://{id}")(Notes.read)
    assert resource("notes://{id}")(Notes().read)("1") == "1"


async def test_a_fixed_uri_comes_before_a_template_and_templates_come_in_order() -> None:
    @resource("a://{x}")
    def first(x: str) -> str:
        return "first"

    @resource("a://{+x}")
    def second(x: str) -> str:
        return f"second {x}"

    @resource("a://fixed")
    def fixed() -> str:
        return "fixed"

    server = make(first, second, fixed)

    assert [(await contents(server, uri))[0]["text"] for uri in ("a://fixed", "a://other", "a://b/c")] == [
        "fixed",
        "first",
        "second b/c",
    ]


async def test_a_variable_may_have_a_default_that_no_uri_gives() -> None:
    @resource("a://{x}")
    def read(x: str, style: str = "plain") -> str:
        return f"{x} {style}"

    assert (await contents(make(read), "a://1"))[0]["text"] == "1 plain"


def test_a_resource_is_not_made_without_its_uri() -> None:
    with pytest.raises(TypeError, match="with its URI"):
        resource(lambda: "text")  # type: ignore[arg-type]  # `@resource` without parentheses
