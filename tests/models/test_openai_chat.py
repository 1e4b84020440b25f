"""Chat Completions over a real socket, against a server that refuses what OpenAI refuses."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.models.fake_openai import KEY, FakeOpenAI, call, chat_chunk, chat_turn, fake_openai, said, usage_chunk
from tests.models.http_server import Answer, json_answer, stream_answer
from toolweave.errors import ErrorKind, ToolError
from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    ProviderTool,
    StreamedText,
    StreamedThinking,
    StreamedToolCall,
    ToolCallDelta,
    Usage,
    complete,
)
from toolweave.models._messages import (
    AssistantMessage,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._openai import OpenAICompatibleModel
from toolweave.models._retry import NO_RETRY
from toolweave.protocol.content import AudioContent, EmbeddedResource, ImageContent, TextContent
from toolweave.tools import ToolResult, ToolSpec

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
HELLO = [UserMessage.of("hello")]
ADD = ToolSpec(
    name="math.add",
    input_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    description="Adds.",
)


def model_of(fake: FakeOpenAI, **more: Any) -> OpenAICompatibleModel:
    options: dict[str, Any] = {"provider": "openai", "retry": NO_RETRY, **more}
    return OpenAICompatibleModel(fake.url, model="m", api_key=KEY, **options)


async def turn(answer: Answer, request: ModelRequest | None = None, **more: Any) -> tuple[list[ModelEvent], Finished]:
    """Return the events of one turn and its end."""
    async with fake_openai(answer) as fake, model_of(fake, **more) as model:
        events = [event async for event in model.stream(request or ModelRequest(messages=HELLO))]
    *before, last = events
    assert isinstance(last, Finished)
    return before, last


async def sent(request: ModelRequest, **more: Any) -> dict[str, Any]:
    """Return the body of a request that the API took."""
    async with fake_openai(said("ok")) as fake, model_of(fake, **more) as model:
        await complete(model, request)
        return fake.checked[0]


def answered(call_id: str, name: str, result: ToolResult) -> list[Message]:
    asked = AssistantMessage(parts=(ToolCallPart(id=call_id, name=name, arguments={"a": 1}),))
    return [*HELLO, asked, ToolMessage(outcomes=(ToolOutcome(call_id=call_id, name=name, result=result),))]


async def test_text_arrives_in_pieces_with_usage_and_the_reason_of_its_end() -> None:
    events, last = await turn(said("Hel", "lo"))

    assert events == [StreamedText(text="Hel"), StreamedText(text="lo")]
    assert last == Finished(
        message=AssistantMessage(parts=(TextPart(text="Hello"),)),
        usage=Usage(input_tokens=12, output_tokens=7, cached_tokens=4),
        stop_reason="end",
    )


@pytest.mark.requirement("R80")
async def test_tools_are_offered_under_legal_names_and_called_back_by_their_own() -> None:
    answer = chat_turn(call(0, "call_1", "math_add", '{"a"'), call(0, None, None, ": 1}"), finish="tool_calls")
    async with fake_openai(answer) as fake, model_of(fake) as model:
        events = [event async for event in model.stream(ModelRequest(messages=HELLO, tools=[ADD]))]

    (offered,) = fake.checked[0]["tools"]
    assert offered["function"]["name"] == "math_add"
    assert events[0] == StreamedToolCall(id="call_1", name="math.add")
    assert events[1:3] == [
        ToolCallDelta(id="call_1", arguments='{"a"'),
        ToolCallDelta(id="call_1", arguments=": 1}"),
    ]
    assert isinstance(events[-1], Finished)
    assert events[-1].message.tool_calls == (ToolCallPart(id="call_1", name="math.add", arguments={"a": 1}),)
    assert events[-1].stop_reason == "tool_calls"


async def test_parallel_calls_keep_their_order_and_their_pieces_apart() -> None:
    pieces = [
        call(0, "one", "math_add", ""),
        call(1, "two", "math_add", ""),
        call(1, None, None, '{"a": 2}'),
        call(0, None, None, '{"a": 1}'),
    ]
    _, last = await turn(chat_turn(*pieces, finish="tool_calls"), ModelRequest(messages=HELLO, tools=[ADD]))

    assert [(one.id, one.arguments) for one in last.message.tool_calls] == [("one", {"a": 1}), ("two", {"a": 2})]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([call(0, "x", "f", '{"n": 1}'), call(0, "y", "f", '{"n": 2}')], [1, 2]),  # Ollama: one index for all
        ([call(None, "x", "f", '{"n": 1}'), call(None, "y", "f", '{"n": 2}')], [1, 2]),  # no index
        ([call(None, None, "f", '{"n": 1}'), call(None, None, "f", '{"n": 2}')], [1, 2]),  # neither
        ([call(0, None, "f", '{"n": 1}'), call(0, None, "f", '{"n": 2}')], [1, 2]),  # one index, no ids
        ([call(0, "x", "f", '{"n"'), call(0, "x", "f", ": 1}")], [1]),  # id and name with every piece
        ([call(0, None, "f", '{"n"'), call(0, None, "f", ": 1}")], [1]),  # name with every piece
        ([call(0, "x", "f", '{"n"'), call(0, "other", None, ": 1}")], [1]),  # another id with every piece
        ([call(0, "x", "f", {"n": 1})], [1]),  # an object in place of text
    ],
)
async def test_what_other_servers_send_for_parallel_calls_is_understood(pieces: list[Any], expected: list[int]) -> None:
    _, last = await turn(chat_turn(*pieces, finish="stop"))

    calls = last.message.tool_calls
    assert [one.arguments for one in calls] == [{"n": number} for number in expected]
    assert all(one.id for one in calls)
    assert len({one.id for one in calls}) == len(calls)
    assert last.stop_reason == "tool_calls"


async def test_an_id_that_an_earlier_turn_had_is_replaced() -> None:
    messages = answered("call_0", "math.add", ToolResult.of("2"))
    _, last = await turn(
        chat_turn(call(0, "call_0", "math_add", "{"), call(0, None, None, "}"), finish="tool_calls"),
        ModelRequest(messages=messages, tools=[ADD]),
    )

    (again,) = last.message.tool_calls
    assert again.id != "call_0"
    assert again.arguments == {}
    assert again.malformed is None


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", "None", "{'a': 1}"])
async def test_arguments_that_are_no_json_object_are_kept_as_they_came(text: str) -> None:
    _, last = await turn(chat_turn(call(0, "c", "math_add", text), finish="tool_calls"))

    (malformed,) = last.message.tool_calls
    assert (malformed.arguments, malformed.malformed) == ({}, text)


async def test_a_malformed_call_in_the_history_goes_back_as_valid_json() -> None:
    asked = AssistantMessage(parts=(ToolCallPart(id="c", name="math.add", malformed="{'a': 1"),))
    failed = ToolOutcome(call_id="c", name="math.add", result=ToolResult.failure("no JSON"))

    body = await sent(ModelRequest(messages=[*HELLO, asked, ToolMessage(outcomes=(failed,))]))

    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.requirement("D17")
async def test_arguments_of_earlier_calls_go_back_as_json_text() -> None:
    arguments = {"text": "it's", "flag": True, "nothing": None, "deep": {"ü": [1.5]}}
    asked = AssistantMessage(parts=(ToolCallPart(id="c", name="t", arguments=arguments),))
    done = ToolMessage(outcomes=(ToolOutcome(call_id="c", name="t", result=ToolResult.of("ok")),))

    body = await sent(ModelRequest(messages=[*HELLO, asked, done]))

    text = body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert text == '{"text":"it\'s","flag":true,"nothing":null,"deep":{"ü":[1.5]}}'


@pytest.mark.requirement("D18")
async def test_an_error_result_says_in_its_text_that_it_is_one() -> None:
    failure = ToolResult.failure(ToolError("disk is full", kind=ErrorKind.EXECUTION_FAILED))

    body = await sent(ModelRequest(messages=answered("c", "math.add", failure)))

    assert body["messages"][2] == {"role": "tool", "tool_call_id": "c", "content": "Error: disk is full"}


@pytest.mark.requirement("C17")
async def test_an_image_in_a_result_is_a_visible_note_since_the_api_takes_text_alone() -> None:
    result = ToolResult(content=(TextContent(text="a chart"), ImageContent(data=PNG, mime_type="image/png")))

    body = await sent(ModelRequest(messages=answered("c", "math.add", result)))

    content = body["messages"][2]["content"]
    assert content.startswith("a chart\n[image: image/png")
    assert PNG not in content


async def test_images_and_files_of_the_user_are_parts_and_pure_text_stays_text() -> None:
    pdf = base64.b64encode(b"%PDF-1.7").decode()
    blocks = [
        "look",
        ImageContent(data=PNG, mime_type="image/png"),
        EmbeddedResource(uri="file:///a/report.pdf", mime_type="application/pdf", blob=pdf),
        AudioContent(data="AAAA", mime_type="audio/wav"),
    ]

    body = await sent(ModelRequest(messages=[UserMessage.of(blocks), UserMessage.of(["one", "two"])]))

    kinds = [part["type"] for part in body["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "file", "input_audio"]
    assert body["messages"][1]["content"] == "one\ntwo"


async def test_settings_choice_and_output_reach_the_body() -> None:
    settings = ModelSettings(
        temperature=0.5, max_tokens=99, top_p=0.9, stop=("END",), parallel_tool_calls=False, extra={"seed": 7}
    )
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    request = ModelRequest(
        messages=HELLO, system="Be brief.", tools=[ADD], tool_choice="math.add", output_schema=schema, settings=settings
    )

    body = await sent(request)

    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "math_add"}}
    expected = {
        "temperature": 0.5, "max_tokens": 99, "top_p": 0.9, "stop": ["END"], "parallel_tool_calls": False, "seed": 7
    }  # fmt: skip
    assert {name: body[name] for name in expected} == expected
    assert body["response_format"]["json_schema"] == {
        "name": "output",
        "strict": True,
        "schema": {**schema, "additionalProperties": False},
    }


async def test_an_output_with_optional_members_is_asked_for_without_strict_mode() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}

    body = await sent(ModelRequest(messages=HELLO, output_schema=schema))

    assert body["response_format"]["json_schema"] == {"name": "output", "strict": False, "schema": schema}


async def test_nothing_about_tools_is_sent_where_there_are_none() -> None:
    settings = ModelSettings(parallel_tool_calls=True)

    body = await sent(ModelRequest(messages=HELLO, tool_choice="required", settings=settings))

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


@pytest.mark.requirement("R51")
async def test_a_providers_own_tool_passes_through_to_that_provider_alone() -> None:
    own = ProviderTool(provider="openai", definition={"type": "web_search"})
    others = ProviderTool(provider="anthropic", definition={"type": "web_search_20260101", "name": "web_search"})

    body = await sent(ModelRequest(messages=HELLO, tools=[ADD], provider_tools=[own, others]))

    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]


async def test_a_call_that_was_never_answered_gets_an_answer_that_says_so() -> None:
    asked = AssistantMessage(parts=(ToolCallPart(id="a", name="t"), ToolCallPart(id="b", name="t")))
    half = ToolMessage(outcomes=(ToolOutcome(call_id="b", name="t", result=ToolResult.of("done")),))

    body = await sent(ModelRequest(messages=[*HELLO, asked, half, UserMessage.of("go on")]))

    assert [(one["tool_call_id"], one["content"]) for one in body["messages"] if one["role"] == "tool"] == [
        ("a", "Error: no result: the run was interrupted before this call was answered"),
        ("b", "done"),
    ]


async def test_ids_of_another_provider_are_made_fit_for_the_call_and_its_answer_alike() -> None:
    long = "toolu_" + "x" * 90

    body = await sent(ModelRequest(messages=answered(long, "math.add", ToolResult.of("2"))))

    call_id = body["messages"][1]["tool_calls"][0]["id"]
    assert len(call_id) <= 40
    assert body["messages"][2]["tool_call_id"] == call_id


async def test_thoughts_go_back_within_a_tool_loop_to_the_provider_they_came_from_and_to_no_other() -> None:
    answer = chat_turn({"reasoning_content": "hm"}, {"content": "yes"}, call(0, "c1", "f", "{}"), finish="tool_calls")
    _, last = await turn(answer, provider="deepseek")
    assert last.message.parts[0] == ThinkingPart(text="hm", raw={"reasoning_content": "hm"}, provider="deepseek")
    answered = ToolMessage(outcomes=(ToolOutcome(call_id="c1", name="f", result=ToolResult.of("1")),))

    def thoughts(provider: str, *after: Message) -> Any:
        model = OpenAICompatibleModel("http://host/v1", model="m", provider=provider)
        body = model.body(ModelRequest(messages=[*HELLO, last.message, answered, *after]))
        return body["messages"][1].get("reasoning_content")

    assert thoughts("deepseek") == "hm"
    assert thoughts("openai") is None
    assert thoughts("deepseek", *HELLO) is None  # a new question: old thoughts only cost tokens


async def test_thoughts_are_told_as_thoughts() -> None:
    details = [{"type": "reasoning.encrypted", "data": "..."}]
    events, last = await turn(chat_turn({"reasoning": "let me", "reasoning_details": details}, {"content": "4"}))

    assert events == [StreamedThinking(text="let me"), StreamedText(text="4")]
    assert last.message.parts[0] == ThinkingPart(text="let me", raw={"reasoning_details": details}, provider="openai")


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "end"), ("length", "max_tokens"), ("content_filter", "refusal"), ("odd", "other"), ("tool_calls", "end")],
)
async def test_the_reason_of_the_end_is_told_in_our_words(finish: str, reason: str) -> None:
    _, last = await turn(chat_turn({"content": "x"}, finish=finish))

    assert last.stop_reason == reason


async def test_a_refusal_is_text_and_the_reason_of_the_end() -> None:
    events, last = await turn(chat_turn({"refusal": "I cannot."}))

    assert events == [StreamedText(text="I cannot.")]
    assert (last.message.text, last.stop_reason) == ("I cannot.", "refusal")


async def test_a_stream_without_done_and_one_with_comments_are_whole_turns() -> None:
    chunks = [b": OPENROUTER PROCESSING\n\n", chat_chunk({"content": "a"}), chat_chunk({}, "stop"), usage_chunk(3, 1)]

    _, last = await turn(stream_answer(chunks))

    assert (last.message.text, last.usage.input_tokens) == ("a", 3)


async def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"},
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1, "cost": 0.002},
    }

    events, last = await turn(json_answer(whole))

    assert events == [StreamedText(text="hi")]
    assert last.usage == Usage(input_tokens=2, output_tokens=1, cost=0.002)


async def test_tools_beyond_the_number_that_the_api_takes_are_left_out() -> None:
    tools = [ToolSpec(name=f"t{number}") for number in range(129)]
    async with fake_openai(said("ok")) as fake, model_of(fake, provider="unknown") as model:
        await complete(model, ModelRequest(messages=HELLO, tools=tools))

        assert model.max_tools == 128
        assert "t128" in model.wire_tools(tools).quarantined


async def test_a_text_with_half_a_surrogate_pair_does_not_fail_the_turn() -> None:
    body = await sent(ModelRequest(messages=[UserMessage.of("a\ud83d")], system="b\ud83d"))

    assert body["messages"][0]["content"] == "b\ufffd"
    assert body["messages"][1]["content"] == "a\ufffd"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"base_url": "https://api.openai.com/v1"}, "openai:m"),
        ({"base_url": "http://localhost:11434/v1", "provider": "ollama"}, "ollama:m"),
        ({"base_url": "http://localhost:8080/v1"}, "http://localhost:8080/v1#m"),
    ],
)
async def test_a_model_is_named_by_its_provider_or_its_server(arguments: dict[str, Any], name: str) -> None:
    assert OpenAICompatibleModel(**arguments, model="m").name == name


async def test_strict_tools_are_lowered_where_they_can_be_and_their_fillers_taken_out() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string", "minLength": 2}},
        "required": ["a"],
    }
    strict, loose = (
        ToolSpec(name="s", input_schema=schema),
        ToolSpec(name="l", input_schema={"additionalProperties": {}}),
    )
    answer = chat_turn(call(0, "c", "s", '{"a": 1, "b": null}'), finish="tool_calls")
    settings = ModelSettings(strict_tools=True)
    async with fake_openai(answer) as fake, model_of(fake) as model:
        done = await complete(model, ModelRequest(messages=HELLO, tools=[strict, loose], settings=settings))

    first, second = (one["function"] for one in fake.checked[0]["tools"])
    assert first["strict"] is True
    assert first["parameters"]["required"] == ["a", "b"]
    assert "strict" not in second
    assert done.message.tool_calls[0].arguments == {"a": 1}
