"""Prompts of a server: listed with their arguments, written, changed while clients are connected."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest

from tests.connect.targets import eventually
from tests.serve.carriers import EACH_CARRIER, EACH_ERA, ERAS, connected
from tests.serve.lines import Peer
from toolweave import Callbacks, ImageContent, McpConnection, ProtocolError, TextContent, ToolError
from toolweave.connect import ElicitationResult, PromptMessage
from toolweave.errors import RequestError, SchemaError
from toolweave.serve import McpServer, PromptsChanged, PromptTurn, create_mcp_server, prompt
from toolweave.tools import AudioContent, CallContext, EmbeddedResource, File, ResourceLink

PNG = b"\x89PNG\r\n\x1a\n"
Json = dict[str, Any]


def make(*prompts: Any, **options: Any) -> McpServer:
    return create_mcp_server(name="writer", version="1.0", prompts=prompts, **options)


async def answer(server: McpServer, method: str, era: str = ERAS[-1], **params: Any) -> Json:
    return await server.endpoint.answer(Peer(version=era).request(method, **params))


async def messages(server: McpServer, name: str, arguments: Json | None = None) -> list[Json]:
    return (await answer(server, "prompts/get", name=name, arguments=arguments or {}))["messages"]


async def refusal(server: McpServer, method: str, era: str = ERAS[-1], **params: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        await answer(server, method, era, **params)
    return refused.value


@prompt(title="Greeting", icons=[{"src": "https://example.org/i.png"}], meta={"example.org/a": 1})
async def greet(ctx: CallContext, name: Annotated[str, "Whom to greet."], style: str = "plain") -> str:
    """Greet somebody.

    Args:
        style: How to greet.
    """
    return f"{ctx.state['word']}, {name} ({style})"


@EACH_CARRIER
@pytest.mark.requirement("C29")
async def test_prompts_are_listed_and_written(carrier: str, era: str) -> None:
    async with connected(make(greet, state={"word": "Hi"}), carrier, era) as connection:
        (listed,) = await connection.list_prompts()
        written = await connection.get_prompt("greet", {"name": "Ada"})
        styled = await connection.get_prompt("greet", {"name": "Ada", "style": "loud"})

    assert listed.raw == {
        "name": "greet",
        "title": "Greeting",
        "description": "Greet somebody.",
        "arguments": [
            {"name": "name", "description": "Whom to greet.", "required": True},
            {"name": "style", "description": "How to greet.", "required": False},
        ],
        "icons": [{"src": "https://example.org/i.png"}],
        "_meta": {"example.org/a": 1},
    }
    assert written.description == "Greet somebody."
    assert [(one.role, one.content) for one in written.messages] == [("user", TextContent(text="Hi, Ada (plain)"))]
    assert styled.messages[0].content.render() == "Hi, Ada (loud)"


@EACH_CARRIER
@pytest.mark.requirement("C14")
async def test_an_unknown_prompt_and_a_missing_argument_are_invalid_params(carrier: str, era: str) -> None:
    async with connected(make(greet), carrier, era) as connection:
        for name, arguments, said in (
            ("great", {"name": "Ada"}, "great"),
            ("greet", {}, "'name'"),
            ("greet", {"name": "Ada", "mood": "x"}, "'mood'"),
        ):
            with pytest.raises(ProtocolError, match=said) as refused:
                await connection.get_prompt(name, arguments)
            assert refused.value.code == -32602


@EACH_ERA
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 1},
        {"name": "greet", "arguments": []},
        {"name": "greet", "arguments": None},
        {"name": "greet", "arguments": {"name": [1]}},
        {"name": "greet", "arguments": {"name": None}},
    ],
    ids=repr,
)
async def test_malformed_parameters_are_invalid_params(params: Json, era: str) -> None:
    assert (await refusal(make(greet), "prompts/get", era, **params)).code == -32602


class Colour(enum.Enum):
    RED = "red"


def _described(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"


@pytest.mark.parametrize(
    ("annotation", "text", "seen"),
    [
        (int, "5", "int 5"),
        (bool, "true", "bool True"),
        (float | None, "1.5", "float 1.5"),
        (str | None, "1", "str '1'"),
        (list[int], "[1, 2]", "list [1, 2]"),
        (dict[str, int], '{"a": 1}', "dict {'a': 1}"),
        (Literal["a", "b"], "b", "str 'b'"),
        (Colour, "red", "Colour <Colour.RED: 'red'>"),
        (Annotated[int, "a number"], "7", "int 7"),
    ],
    ids=str,
)
async def test_a_text_becomes_what_the_function_asks_for(annotation: Any, text: str, seen: str) -> None:
    def show(value: Any) -> str:
        return _described(value)

    show.__annotations__ = {"value": annotation, "return": str}

    assert (await messages(make(show), "show", {"value": text}))[0]["content"]["text"] == seen


@pytest.mark.parametrize("text", ["five", "", "[5]", "{", "5.5", "\ud800"], ids=ascii)
async def test_a_text_that_is_no_value_of_the_type_is_refused_and_not_repeated(text: str) -> None:
    def show(value: int) -> str:
        return str(value)

    refused = await refusal(make(show), "prompts/get", name="show", arguments={"value": text})

    assert refused.code == -32602
    assert refused.message.startswith("prompt 'show': argument 'value': ")
    assert len(text) < 3 or text not in refused.message


async def test_fields_of_pydantic_give_defaults_and_descriptions() -> None:
    from pydantic import Field

    @prompt
    def count(n: int = Field(default=3, description="How many.", le=5)) -> str:
        return str(n)

    server = make(count)

    assert count.definition["arguments"] == [{"name": "n", "description": "How many.", "required": False}]
    assert (await messages(server, "count"))[0]["content"]["text"] == "3"


@pytest.mark.requirement("C16")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", [("user", {"type": "text", "text": "a"})]),
        (["a", "b"], [("user", {"type": "text", "text": "a"}), ("user", {"type": "text", "text": "b"})]),
        (PromptTurn("a", role="assistant"), [("assistant", {"type": "text", "text": "a"})]),
        (PNG, [("user", {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"})]),
        (
            PromptTurn(File(b"\0", mime_type="audio/x")),
            [("user", {"type": "audio", "data": "AA==", "mimeType": "audio/x"})],
        ),
        (
            [ImageContent(data="AA==", mime_type="image/x"), AudioContent(data="AA==", mime_type="audio/x")],
            [
                ("user", {"type": "image", "data": "AA==", "mimeType": "image/x"}),
                ("user", {"type": "audio", "data": "AA==", "mimeType": "audio/x"}),
            ],
        ),
        (
            (EmbeddedResource(uri="a:b", text="t", mime_type="text/x"), ResourceLink(uri="a:b", name="n")),
            [
                ("user", {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/x", "text": "t"}}),
                ("user", {"type": "resource_link", "uri": "a:b", "name": "n"}),
            ],
        ),
        (
            [{"role": "assistant", "content": {"type": "text", "text": "raw"}}, {"role": "user", "content": "short"}],
            [("assistant", {"type": "text", "text": "raw"}), ("user", {"type": "text", "text": "short"})],
        ),
        (
            PromptMessage(role="assistant", content=TextContent(text="as a client got it")),
            [("assistant", {"type": "text", "text": "as a client got it"})],
        ),
        ({"a": 1}, [("user", {"type": "text", "text": '{"a": 1}'})]),
        ([], []),
    ],
    ids=repr,
)
async def test_every_value_becomes_messages(value: Any, expected: list[tuple[str, Json]]) -> None:
    def write() -> Any:
        return value

    found = await messages(make(write), "write")

    assert [(one["role"], one["content"]) for one in found] == expected


@EACH_CARRIER
async def test_a_prompt_may_ask_its_reader(carrier: str, era: str) -> None:
    @prompt
    async def letter(to: str, ctx: CallContext) -> list[PromptTurn]:
        given = await ctx.elicit("in which tone?", {"type": "object", "properties": {"tone": {"type": "string"}}})
        return [
            PromptTurn(f"Write to {to}"),
            PromptTurn(f"{(given.content or {})['tone']}, of course", role="assistant"),
        ]

    callbacks = Callbacks(elicitation=lambda question: ElicitationResult.accept({"tone": "warm"}))
    async with connected(make(letter), carrier, era, callbacks=callbacks) as connection:
        written = await connection.get_prompt("letter", {"to": "Ada"})

    assert [(one.role, one.content.render()) for one in written.messages] == [
        ("user", "Write to Ada"),
        ("assistant", "warm, of course"),
    ]


@pytest.mark.requirement("R104", "C31")
@pytest.mark.parametrize(
    ("raised", "masked", "message"),
    [
        (KeyError("hunter2"), True, "prompt 'broken' failed"),
        (KeyError("hunter2"), False, "prompt 'broken' failed: KeyError: 'hunter2'"),
        (ToolError("no paper"), True, "no paper"),
        (ToolError("KeyError: 'hunter2'", unexpected=True), True, "prompt 'broken' failed"),
    ],
)
async def test_what_a_function_raises_is_an_error_of_the_request(
    raised: Exception, masked: bool, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    @prompt
    def broken() -> str:
        raise raised

    refused = await refusal(make(broken, expose_errors="masked" if masked else "message"), "prompts/get", name="broken")

    assert (refused.code, refused.message) == (-32603, message)
    assert ("hunter2" in caplog.text) == ("hunter2" in str(raised))


async def named(connection: McpConnection, *names: str) -> bool:
    return [one.name for one in await connection.list_prompts()] == list(names)


@EACH_CARRIER
@pytest.mark.requirement("C9", "R93")
async def test_clients_hear_of_prompts_that_come_and_go(carrier: str, era: str) -> None:
    server = make(greet)

    async with connected(server, carrier, era) as connection:
        assert await named(connection, "greet")

        @server.prompt
        def late(text: str) -> str:
            return text

        @server.prompt(name="other", description="Another.")
        def later() -> str:
            return "x"

        await eventually(lambda: named(connection, "greet", "late", "other"))
        server.prompts.remove("late")
        await eventually(lambda: named(connection, "greet", "other"))

    assert (late("as ever"), later.definition["description"]) == ("as ever", "Another.")


@EACH_ERA
@pytest.mark.requirement("R93")
async def test_a_server_without_prompts_declares_none_and_has_no_methods_for_them(era: str) -> None:
    server = make()
    modern = era == ERAS[-1]

    assert "prompts" not in server.endpoint.capabilities(modern=modern)
    assert (await refusal(server, "prompts/list", era)).code == -32601
    assert (await refusal(server, "prompts/get", era, name="greet")).code == -32601

    server.prompts.add(greet)
    assert server.endpoint.capabilities(modern=modern)["prompts"] == {"listChanged": True}
    assert len((await answer(server, "prompts/list", era))["prompts"]) == 1


@EACH_ERA
@pytest.mark.requirement("R98")
async def test_the_list_comes_in_pages(era: str) -> None:
    def write() -> str:
        return ""

    server = make(*(prompt(name=str(number))(write) for number in range(7)), page_size=3)
    found: list[str] = []
    cursor: str | None = None
    while True:
        result = await answer(server, "prompts/list", era, **({} if cursor is None else {"cursor": cursor}))
        found += [one["name"] for one in result["prompts"]]
        cursor = result.get("nextCursor")
        if cursor is None:
            break

    assert found == [str(number) for number in range(7)]
    assert (await refusal(server, "prompts/list", era, cursor="")).code == -32602


class Drawer:
    """A source of another kind, as a hub would be."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[PromptsChanged], None]] = []

    async def prompts(self) -> Sequence[Json]:
        return [{"name": "far", "x-unknown": 1}, {"name": "greet", "title": "hidden"}]

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        return {"messages": [], "x-unknown": dict(arguments)} if name == "far" else None

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: None


async def test_another_source_is_listed_behind_our_own_and_its_results_travel_as_they_are() -> None:
    drawer = Drawer()
    server = make(greet, drawer, state={"word": "Hi"})
    received: list[PromptsChanged] = []
    server.prompts.subscribe(received.append)
    drawer.listeners[0](PromptsChanged())

    listed = (await answer(server, "prompts/list"))["prompts"]
    written = await answer(server, "prompts/get", name="far", arguments={"a": "b"})

    assert [one.get("title") for one in listed] == ["Greeting", None]
    assert listed[1] == {"name": "far", "x-unknown": 1}
    assert written["x-unknown"] == {"a": "b"}
    assert received == [PromptsChanged()]
    assert (await refusal(server, "prompts/get", name="none")).code == -32602


async def test_a_source_alone_is_enough() -> None:
    server = create_mcp_server(name="a", version="1", prompts=Drawer())

    assert len((await answer(server, "prompts/list"))["prompts"]) == 2


def test_two_prompts_of_one_name_are_refused_where_they_are_made() -> None:
    with pytest.raises(ValueError, match="greet"):
        make(greet, greet)


async def test_a_prompt_may_take_the_place_of_one_of_its_name() -> None:
    server = make(greet)
    server.prompts.registry.add(prompt(name="greet")(lambda: "hi"), replace=True)

    assert (await answer(server, "prompts/get", name="greet"))["messages"][0]["content"]["text"] == "hi"


def test_what_is_no_prompt_is_refused_where_it_is_given() -> None:
    with pytest.raises(TypeError, match="@prompt"):
        make("greet")
    with pytest.raises(SchemaError, match="lambda"):
        make(lambda: "x")
    with pytest.raises(SchemaError, match="'call'"):

        @prompt
        def impossible(call: Drawer) -> str:
            return ""
