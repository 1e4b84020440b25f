"""What is sent: texts, variables, files, context, and the prompts and resources of MCP servers."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolweave import Agent, ImageContent, Prompt, TextContent, connect_mcp, create_mcp_server, generate
from toolweave.models import AssistantMessage, Message, ScriptedModel, TextPart, ToolMessage, UserMessage
from toolweave.testing import MemoryServer
from toolweave.tools import ContentBlock, EmbeddedResource, File

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@dataclass
class Said:
    role: str
    content: ContentBlock


@dataclass
class Filled:
    messages: list[Said]


def text_of(prompt: Prompt) -> str:
    """Return the one message of a prompt as text."""
    (message,) = prompt.messages()
    assert isinstance(message, UserMessage)
    return message.text


async def sent(*what: Any) -> list[tuple[Message, ...]]:
    """Return what a model is given for each of several things that are sent."""
    model = ScriptedModel(lambda request: "ok")
    agent = Agent(model)
    for one in what:
        await agent.send(one)
    return [tuple(request.messages) for request in model.requests]


async def test_texts_blocks_and_messages_can_be_sent_alone_and_together() -> None:
    block = TextContent(text="b")
    message = UserMessage.of("m")
    said = AssistantMessage(parts=(TextPart(text="s"),))

    assert await sent("t", block, message, ["t", block], [message, said, "t", block], Prompt("p")) == [
        (UserMessage.of("t"),),
        (UserMessage.of(block),),
        (message,),
        (UserMessage.of(["t", block]),),
        (message, said, UserMessage.of(["t", block])),
        (UserMessage.of("p"),),
    ]


def test_what_is_nothing_to_send_is_refused_at_once() -> None:
    agent = Agent(ScriptedModel([]))

    with pytest.raises(TypeError, match="not int"):
        agent.send([7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not float"):
        agent.send(0.5)  # type: ignore[arg-type]


async def test_an_empty_sequence_leaves_nothing_to_answer() -> None:
    with pytest.raises(ValueError, match="nothing to answer"):
        await Agent(ScriptedModel(["x"])).send([])


def test_variables_are_filled_in_once_and_their_values_are_not_looked_at_again() -> None:
    prompt = Prompt("Tell {{ name }} about {{topic}} and {{name}}.", variables={"name": "{{topic}}", "topic": 3})

    assert text_of(prompt) == "Tell {{topic}} about 3 and {{topic}}."


def test_a_variable_without_a_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"'topic' has no value; there are name"):
        Prompt("{{topic}}", variables={"name": "x"}).messages()


def test_other_braces_are_left_alone() -> None:
    assert text_of(Prompt('{"a": {"b": 1}} {{ 1 }} {x}')) == '{"a": {"b": 1}} {{ 1 }} {x}'


def test_context_and_files_stand_before_the_text_with_their_names(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("# Notes {{not_a_variable}}")

    prompt = Prompt("Sum it up.").add_file(path).add_context("It is 1905.", name='the "year"').add_file("raw", name="r")

    assert text_of(prompt) == (
        "<context name=\"the 'year'\">\nIt is 1905.\n</context>\n"
        '<file name="notes.md">\n# Notes {{not_a_variable}}\n</file>\n'
        '<file name="r">\nraw\n</file>\n'
        "Sum it up."
    )


def test_images_and_other_binary_files_stay_blocks() -> None:
    prompt = Prompt("?").add_file(PNG, name="photo").add_file(File(b"%PDF-1", uri="file:///a.pdf"))

    (message,) = prompt.messages()
    assert isinstance(message, UserMessage)
    kinds = [type(block) for block in message.content]
    assert kinds == [TextContent, ImageContent, TextContent, EmbeddedResource, TextContent]
    assert message.content[0] == TextContent(text='<file name="photo"/>')
    assert message.content[2] == TextContent(text='<file name="file:///a.pdf"/>')


def test_a_file_that_is_not_there_is_an_error_where_it_is_added(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        Prompt("?").add_file(tmp_path / "missing")


@pytest.mark.requirement("F2")
async def test_the_messages_of_a_servers_prompt_come_first_and_a_text_after_them() -> None:
    filled = Filled(
        [
            Said("user", TextContent(text="Hi")),
            Said("assistant", TextContent(text="Hello")),
            Said("user", ImageContent(data="AA==", mime_type="image/png")),
        ]
    )

    first, second = await sent(
        Prompt.from_mcp(filled), Prompt.from_mcp(filled, "Go on, {{who}}.", variables={"who": "X"})
    )

    assert first[0] == UserMessage.of("Hi")
    assert first[1] == AssistantMessage(parts=(TextPart(text="Hello"),))
    assert second == (*first, UserMessage.of("Go on, X."))


def test_a_prompt_that_ends_with_the_model_needs_a_text() -> None:
    with pytest.raises(ValueError, match="give it a text"):
        Prompt.from_mcp(Filled([Said("assistant", TextContent(text="Hello"))])).messages()


@pytest.mark.requirement("F1", "F2")
async def test_prompts_and_resources_of_a_real_server_go_to_the_model() -> None:
    server = create_mcp_server(name="notes", version="1")

    @server.prompt
    def review(code: str) -> str:
        return f"Review {code}"

    @server.resource("note://one")
    def note() -> str:
        return "remember the milk"

    async with connect_mcp(server) as connection:
        asked = await connection.get_prompt("review", {"code": "x = 1"})
        content = await connection.read_resource("note://one")
    ((first, second),) = await sent(Prompt.from_mcp(asked, "Now.").add_file(content, name="note"))

    assert isinstance(first, UserMessage)
    assert first.text == "Review x = 1"
    assert isinstance(second, UserMessage)
    assert second.text == '<file name="note">\nremember the milk\n</file>\nNow.'


def test_several_contents_of_one_resource_are_numbered() -> None:
    parts = (EmbeddedResource(uri="a:1", text="x"), EmbeddedResource(uri="a:2", text="y"))

    assert 'name="doc (2)"' in text_of(Prompt("?").add_file(parts, name="doc"))
    assert 'name="a:2"' in text_of(Prompt("?").add_file(parts))


def test_a_tool_message_can_be_sent_as_it_is() -> None:
    run = Agent(ScriptedModel(["x"])).send(ToolMessage(outcomes=()))

    assert run.status == "new"


async def asked_with(sent: Any) -> tuple[Message, ...]:
    """Return what a model is given of what is sent."""
    model = ScriptedModel(["hello"])
    assert (await Agent(model).send(sent)).text == "hello"
    return tuple(model.requests[0].messages)


@pytest.mark.requirement("F2", "R78")
async def test_the_prompt_of_a_server_is_sent_as_it_was_got() -> None:
    server = MemoryServer()

    @server.prompt
    def greet(name: str) -> str:  # pyright: ignore[reportUnusedFunction] - the server's
        """Greet."""
        return f"say hello to {name}"

    async with connect_mcp(server) as connection:
        got = await connection.get_prompt("greet", {"name": "Ada"})
        expected = UserMessage(content=(got.messages[0].content,))

        assert await asked_with(got) == (expected,)
        assert await asked_with(got.messages) == (expected,)
        assert await asked_with(got.messages[0]) == (expected,)
        assert expected.text == "say hello to Ada"


async def test_messages_are_sent_as_other_libraries_write_them() -> None:
    data = base64.b64encode(PNG).decode()
    image = ImageContent(data=data, mime_type="image/png")
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "yes?"}]},
        {"role": "user", "content": ["look:", {"type": "image", "data": data, "mimeType": "image/png"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]},
    ]

    assert await asked_with(said) == (
        UserMessage.of("hi"),
        AssistantMessage(parts=(TextPart(text="yes?"),)),
        UserMessage(content=(TextContent(text="look:"), image)),
        UserMessage(content=(image,)),
    )
    assert await asked_with({"role": "user", "content": "hi"}) == (UserMessage.of("hi"),)
    assert (await generate(ScriptedModel(["hello"]), [{"role": "user", "content": "hi"}])).text == "hello"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "system", "content": "be kind"}, r"system="),
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, "ToolMessage"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}, "AssistantMessage"),
        ({"content": "x"}, "role"),
        ({"role": "user", "content": 3}, "content of int"),
        ({"role": "user", "content": [{"type": "video"}]}, "'video'"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}, "image_url"),
    ],
)
def test_a_message_that_is_none_is_refused_with_what_is_meant(message: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Agent(ScriptedModel(["x"])).send([message])


async def test_a_history_with_calls_of_tools_and_their_results_is_taken_as_a_chat_api_has_it() -> None:
    def called(key: str, arguments: object) -> dict[str, object]:
        return {"id": key, "type": "function", "function": {"name": "add", "arguments": arguments}}

    history = [
        {"role": "user", "content": "1 and 2?"},
        {"role": "assistant", "content": None, "tool_calls": [called("c1", '{"a": 1}'), called("c2", "{broken")]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "no JSON"}]},
        {"role": "user", "content": "Thanks."},
    ]
    model = ScriptedModel(["fine", "fine"])

    await Agent(model).send(history)
    await generate(model, history)

    for request in model.requests:
        calls = [
            call for message in request.messages if isinstance(message, AssistantMessage) for call in message.tool_calls
        ]
        outcomes = [one for message in request.messages if isinstance(message, ToolMessage) for one in message.outcomes]
        assert [(call.id, call.name, call.arguments, call.malformed) for call in calls] == [
            ("c1", "add", {"a": 1}, None),
            ("c2", "add", {}, "{broken"),
        ]
        assert [(one.call_id, one.name, one.result.text) for one in outcomes] == [
            ("c1", "add", "3"),
            ("c2", "add", "no JSON"),
        ]
