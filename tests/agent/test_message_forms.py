"""Histories in the forms of other libraries and APIs are sent as they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.wires import WIRES, Wire, model_at, says
from tests.models.fake_anthropic import fake_anthropic
from tests.models.fake_openai import fake_openai
from toolweave import Agent, ImageContent, TextContent
from toolweave.models import (
    AssistantMessage,
    Message,
    ProviderPart,
    PydanticAIModel,
    ScriptedModel,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.tools import ToolResult

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
Form: TypeAlias = Wire | Literal["pydantic_ai"]
FORMS: Sequence[Form] = (*WIRES, "pydantic_ai")


async def read(sent: Any) -> list[Any]:
    """Return the messages that a model is given of a history, results in a form that can be compared."""
    model = ScriptedModel(["ok"])
    await Agent(model).send(sent)
    return comparable(model.requests[0].messages)


def comparable(messages: Sequence[Message]) -> list[Any]:
    return [
        [(one.call_id, one.name, one.result.content, one.result.is_error) for one in message.outcomes]
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]


def assistant(*parts: Any) -> AssistantMessage:
    return AssistantMessage(parts=tuple(TextPart(text=one) if isinstance(one, str) else one for one in parts))


def result(key: str, text: str | None, *, failed: bool = False, name: str = "add") -> tuple[Any, ...]:
    content = () if text is None else (TextContent(text=text),)
    return (key, name, content, failed)


CALL = ToolCallPart(id="c1", name="add", arguments={"a": 1})
SECOND = ToolCallPart(id="c2", name="add", arguments={"a": None})


async def test_blocks_of_the_messages_api_are_calls_results_and_thoughts() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    search: dict[str, Any] = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "1?", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                thought,
                {"type": "thinking", "thinking": "unsigned"},
                search,
                {"type": "text", "text": "I add."},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "add", "input": {"a": None}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": True},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "text", "text": "And this?"},
            ],
        },
    ]

    assert await read(history) == [
        UserMessage.of("1?"),
        assistant(
            ThinkingPart(text="hm", raw=thought, provider="anthropic"),
            ThinkingPart(text="unsigned"),
            ProviderPart(provider="anthropic", raw=search),
            "I add.",
            CALL,
            SECOND,
        ),
        [result("c1", "3"), result("c2", None, failed=True)],
        UserMessage(content=(ImageContent(data=PNG, mime_type="image/png"), TextContent(text="And this?"))),
    ]


async def test_items_of_the_responses_api_are_one_turn_up_to_their_results() -> None:
    reasoning = {"type": "reasoning", "id": "r1", "encrypted_content": "zz", "summary": [{"text": "hm"}]}
    search = {"type": "web_search_call", "id": "w1", "status": "completed"}
    text: dict[str, Any] = {"type": "output_text", "text": "I add.", "annotations": []}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "1?"}]},
        {**reasoning, "status": None},
        search,
        {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [text]},
        {"type": "function_call", "call_id": "c1", "id": "f1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": '{"a": null}'},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "4"}]},
        {"type": "reasoning", "id": "r2", "summary": [{"type": "summary_text", "text": "not encrypted"}]},
        {"type": "message", "role": "assistant", "content": [text]},
        {"role": "user", "content": "Thanks."},
    ]

    assert await read(history) == [
        UserMessage.of("1?"),
        assistant(
            ThinkingPart(text="hm", raw=reasoning, provider="openai"),
            ProviderPart(provider="openai", raw=search),
            "I add.",
            CALL,
            SECOND,
        ),
        [result("c1", "3"), result("c2", "4")],
        assistant(ThinkingPart(text="not encrypted"), "I add."),
        UserMessage.of("Thanks."),
    ]


async def test_objects_of_the_packages_of_openai_and_anthropic_are_read_as_their_members() -> None:
    from anthropic.types import ToolUseBlock
    from openai.types.chat import ChatCompletionMessage
    from openai.types.responses import ResponseFunctionToolCall

    chat = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        }
    )
    item = ResponseFunctionToolCall(type="function_call", call_id="c1", name="add", arguments='{"a": 1}')
    block = ToolUseBlock(type="tool_use", id="c1", name="add", input={"a": 1})
    expected = [UserMessage.of("1?"), assistant(CALL), [result("c1", "3")]]

    assert await read(["1?", chat, {"role": "tool", "tool_call_id": "c1", "content": "3"}]) == expected
    assert await read(["1?", item, {"type": "function_call_output", "call_id": "c1", "output": "3"}]) == expected
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "3"}
    assert await read(["1?", {"role": "assistant", "content": [block]}, {"role": "user", "content": [answer]}]) == (
        expected
    )


async def test_messages_of_langchain_are_read_as_objects_and_as_mappings() -> None:
    from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict
    from langchain_core.messages import ToolMessage as Answer

    use = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    history = [
        HumanMessage("1?"),
        AIMessage(
            [{"type": "text", "text": "I add."}, use],
            tool_calls=[
                {"name": "add", "args": {"a": 1}, "id": "c1"},
                {"name": "add", "args": {"a": None}, "id": "c2"},
            ],
            invalid_tool_calls=[{"name": "add", "args": "{broken", "id": "c3", "error": None}],
        ),
        Answer("3", tool_call_id="c1"),
        Answer("no", tool_call_id="c2", status="error", artifact=object()),
        Answer("not JSON", tool_call_id="c3"),
        AIMessage("It is 3."),
        HumanMessage([{"type": "image", "base64": PNG, "mime_type": "image/png"}]),
    ]
    expected = [
        UserMessage.of("1?"),
        assistant("I add.", CALL, SECOND, ToolCallPart(id="c3", name="add", malformed="{broken")),
        [result("c1", "3"), result("c2", "no", failed=True), result("c3", "not JSON")],
        assistant("It is 3."),
        UserMessage(content=(ImageContent(data=PNG, mime_type="image/png"),)),
    ]

    assert await read(history) == expected
    assert await read(messages_to_dict(history)) == expected


async def test_messages_of_pydantic_ai_are_read_as_objects_and_as_mappings() -> None:
    from pydantic_ai import messages as theirs

    image = theirs.BinaryContent(data=base64.b64decode(PNG), media_type="image/png")
    thought = theirs.ThinkingPart("hm", signature="s", provider_name="anthropic")
    history: list[theirs.ModelMessage] = [
        theirs.ModelRequest(parts=[theirs.UserPromptPart(["1?", image])], instructions="Be kind."),
        theirs.ModelResponse(
            parts=[
                thought,
                theirs.TextPart("I add."),
                theirs.ToolCallPart("add", '{"a": 1}', "c1"),
                theirs.ToolCallPart("add", {"a": None}, "c2"),
            ]
        ),
        theirs.ModelRequest(
            parts=[
                theirs.ToolReturnPart("add", {"sum": 3}, "c1"),
                theirs.ToolReturnPart("add", "no", "c2", outcome="failed"),
                theirs.UserPromptPart("And?"),
            ]
        ),
    ]
    expected = [
        UserMessage(content=(TextContent(text="1?"), ImageContent(data=PNG, mime_type="image/png"))),
        assistant(
            ThinkingPart(
                text="hm",
                raw={"content": "hm", "signature": "s", "provider_name": "anthropic", "part_kind": "thinking"},
                provider="pydantic_ai",
            ),
            "I add.",
            CALL,
            SECOND,
        ),
        [result("c1", '{"sum": 3}'), result("c2", "no", failed=True)],
        UserMessage.of("And?"),
    ]

    assert await read(history) == expected
    assert await read(theirs.ModelMessagesTypeAdapter.dump_python(history, mode="json", exclude_none=True)) == expected


def system_prompt_of_pydantic_ai() -> Any:
    from pydantic_ai import messages as theirs

    return theirs.ModelRequest(parts=[theirs.SystemPromptPart("be kind")])


def system_message_of_langchain() -> Any:
    from langchain_core.messages import SystemMessage

    return SystemMessage("be kind")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": "be kind"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be kind"}]},
        system_message_of_langchain(),
        system_prompt_of_pydantic_ai(),
    ],
)
def test_a_system_message_is_refused_with_the_place_for_its_text(message: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^messages\[1\]: .* accepts no system message .* Agent\(\.\.\., system=\.\.\.\)"
    ):
        Agent(ScriptedModel(["x"])).send(["hi", message])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({}, r"'role' is None\. A message has the role"),
        ({"role": "critic", "content": "x"}, r"'role' is 'critic'\. A message has the role"),
        ({"type": "video", "url": "x"}, r"'type' is 'video'\. A message has the role"),
        ({"role": "user"}, "'content' is missing"),
        ({"role": "user", "content": [{"type": "video"}]}, r"'content' has a part of type 'video'.* parts of type"),
        ({"role": "tool", "content": "x"}, "'tool_call_id' of a message of a tool is None"),
        ({"type": "function_call", "name": "add", "arguments": "{}"}, "'call_id' of .*'function_call' is None"),
        ({"type": "function_call_output", "output": "3"}, "'call_id' of .*'function_call_output' is None"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}, "'name' of .*'tool_use' is None"),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "'tool_use_id' of .*'tool_result' is None"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}, "'tool_calls' has an entry .*'function'"),
        ({"role": "assistant", "content": None, "function_call": {"name": "f"}}, "'function_call' has no id"),
        ({"kind": "request", "parts": [{"part_kind": "smell"}]}, "'part_kind' is 'smell'"),
        (7, "content blocks, a Prompt or messages, not int"),
    ],
)
def test_a_form_that_is_not_known_is_one_error_with_its_index_and_member(message: Any, words: str) -> None:
    with pytest.raises(TypeError, match=rf"^messages\[2\]: .*{words}"):
        Agent(ScriptedModel(["x"])).send(["hi", {"role": "assistant", "content": "yes?"}, message])


texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)
arguments = st.dictionaries(texts, st.none() | st.booleans() | st.integers(0, 99) | texts, max_size=3)


@st.composite
def histories(draw: st.DrawFn, *, errors: bool) -> list[Message]:
    """Draw a history that ends with a question; errors of tools only for forms that have them."""
    made: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        made.append(UserMessage.of(draw(texts)))
        calls: list[ToolCallPart] = []
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            calls.append(ToolCallPart(id=f"call_{number}", name="add", arguments=draw(arguments)))
        made.append(assistant(draw(texts), *calls))
        if calls:
            made.append(ToolMessage(outcomes=tuple(_outcome(draw, call, errors=errors) for call in calls)))
    image = ImageContent(data=PNG, mime_type="image/png")
    made.append(UserMessage(content=(image, TextContent(text=draw(texts)))))
    return made


def _outcome(draw: st.DrawFn, call: ToolCallPart, *, errors: bool) -> ToolOutcome:
    text = draw(texts)
    failed = errors and draw(st.booleans())
    made = ToolResult.failure(text) if failed else ToolResult(content=(TextContent(text=text),))
    return ToolOutcome(call_id=call.id, name=call.name, result=made)


async def written(form: Form, history: Sequence[Message]) -> Sequence[Any]:
    """Return a history as the model of this form sends it."""
    if form == "pydantic_ai":
        return await _written_by_pydantic_ai(history)
    serve = fake_anthropic if form == "anthropic" else fake_openai
    async with serve(says(form, "ok")) as server:
        async with Agent(model_at(form, server.url)) as agent:
            await agent.send(history)
        body: Mapping[str, Any] = json.loads(json.dumps(server.checked[0]))
    return body["input"] if form == "responses" else body["messages"]


async def _written_by_pydantic_ai(history: Sequence[Message]) -> Sequence[Any]:
    from collections.abc import AsyncIterator

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    seen: list[ModelMessage] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.extend(messages)
        yield "ok"

    await Agent(PydanticAIModel(FunctionModel(stream_function=answer))).send(history)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_history_that_a_model_was_sent_is_read_back_as_it_was(form: Form) -> None:
    @given(history=histories(errors=form in ("anthropic", "pydantic_ai")))
    @settings(max_examples=25, deadline=None)
    def check(history: list[Message]) -> None:
        async def there_and_back() -> tuple[list[Any], list[Any]]:
            return comparable(history), await read(await written(form, history))

        expected, found = anyio.run(there_and_back)
        assert found == expected

    check()
