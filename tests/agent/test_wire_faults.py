"""What goes wrong between a model and its agent, on each of the three APIs: half an answer is never acted on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.agent import wires
from tests.agent.wires import WIRES, Wire, chunk, says
from tests.models import fake_openai
from tests.models.http_server import Answer, Received, error_answer, serve, stream_answer
from toolweave import Agent, Limits, ModelError, RunResult
from toolweave.agent import TextDelta, TurnRestarted
from toolweave.models import AssistantMessage, FallbackModel, Retry, ToolMessage

call = fake_openai.call
HELLO = "hello"


@dataclass
class Played:
    """What came of a run.

    Attributes:
        result: Its result, or None where it failed.
        error: What it failed with.
        ran: What the tool was called with, in order.
        bodies: What the endpoint was asked.
        shown: What whoever watches has on the screen: what a restart makes void is gone.
        restarts: How often the turn was asked for again after its first words.
        waits: Seconds that were waited for.
    """

    result: RunResult | None = None
    error: Exception | None = None
    ran: list[Any] = field(default_factory=list[Any])
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    shown: str = ""
    restarts: int = 0
    waits: list[float] = field(default_factory=list[float])

    @property
    def end(self) -> tuple[str, str, str]:
        """Status, stop reason and text."""
        assert self.result is not None, self.error
        return self.result.status, self.result.stop_reason, self.result.text

    @property
    def outcomes(self) -> list[str]:
        """What the model read of its calls."""
        assert self.result is not None, self.error
        said = [one for one in self.result.messages if isinstance(one, ToolMessage)]
        return [outcome.result.text for one in said for outcome in one.outcomes]


Play = Callable[..., Any]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return what runs an agent against scripted answers, the last of which is given for ever; waits take no time."""
    played = Played()
    sleep = anyio.sleep

    async def no_sleep(seconds: float) -> None:
        played.waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(anyio, "sleep", no_sleep)

    async def run(wire: Wire, *answers: Answer, retry: Retry | None = None, model: str = "m", **options: Any) -> Played:
        def wipe(path: str | None = None) -> str:
            """Remove a path, or everything."""
            played.ran.append(path)
            return "ok"

        async def answer(request: Received) -> Answer:
            played.bodies.append(request.json)
            return answers[min(len(played.bodies), len(answers)) - 1]

        async with serve(answer) as server, wires.model_at(wire, server.url, retry=retry, model=model) as asked:
            with anyio.fail_after(60):
                await _watched(Agent(asked, tools=[wipe], **options), played)
        return played

    return run


async def _watched(agent: Agent, played: Played) -> None:
    run = agent.send("clean the folder a")
    async for event in run:
        if isinstance(event, TextDelta):
            played.shown += event.text
        elif isinstance(event, TurnRestarted):
            played.shown, played.restarts = "", played.restarts + 1
    try:
        played.result = await run
    except ModelError as exc:
        played.error = exc


def per_wire(**answers: Sequence[Answer]) -> Any:
    """Return a case for each wire that it applies to."""
    return pytest.mark.parametrize(
        ("wire", "answers"), [pytest.param(wire, given, id=wire) for wire, given in answers.items()]
    )


every_wire = pytest.mark.parametrize("wire", WIRES)


def cut_chat(arguments: str, finish: str = "length") -> Answer:
    return wires.chat(chunk(call(0, "call_1", "wipe", arguments)), chunk({}, finish))


def cut_anthropic(arguments: str, stop: str = "max_tokens", *, closed: bool = False) -> Answer:
    return wires.anthropic(*wires.anthropic_events("wipe", arguments, closed=closed), stop=stop)


def cut_responses(arguments: str, reason: str = "max_output_tokens", status: str | None = "incomplete") -> Answer:
    return wires.responses(wires.call_item("wipe", arguments, status=status), incomplete=reason)


# calls that were cut off


@pytest.mark.parametrize(
    ("wire", "cut"),
    [
        pytest.param("chat", cut_chat(""), id="chat, before its arguments"),
        pytest.param("chat", cut_chat('{"pa'), id="chat, in its arguments"),
        pytest.param("chat", cut_chat('{"path": "/"}'), id="chat, closed by a server that repairs JSON"),
        pytest.param("chat", cut_chat("", "odd"), id="chat, for an unknown reason"),
        pytest.param("chat", cut_chat("", "model_length"), id="chat, in Mistral's word"),
        pytest.param("anthropic", cut_anthropic(""), id="anthropic, before its arguments"),
        pytest.param("anthropic", cut_anthropic('{"pa'), id="anthropic, in its arguments"),
        pytest.param("anthropic", cut_anthropic("", closed=True), id="anthropic, closed all the same"),
        pytest.param("anthropic", cut_anthropic("", "model_context_window_exceeded"), id="anthropic, window full"),
        pytest.param("anthropic", cut_anthropic("", "something_new"), id="anthropic, for an unknown reason"),
        pytest.param("responses", cut_responses(""), id="responses, before its arguments"),
        pytest.param("responses", cut_responses('{"pa'), id="responses, in its arguments"),
        pytest.param("responses", cut_responses("", status=None), id="responses, from a server without a status"),
        pytest.param("responses", cut_responses("", "something_new"), id="responses, for an unknown reason"),
    ],
)
async def test_a_call_that_was_cut_off_is_not_made_and_the_model_reads_so(play: Play, wire: Wire, cut: Answer) -> None:
    played = await play(wire, cut, says(wire, HELLO))

    assert played.ran == []
    assert played.end == ("completed", "end", HELLO)
    assert len(played.bodies) == 2
    (outcome,) = played.outcomes
    assert "cut off" in outcome
    assert "not carried out" in outcome


@per_wire(chat=[cut_chat('{"pa')], anthropic=[cut_anthropic('{"pa')], responses=[cut_responses('{"pa')])
async def test_calls_that_are_cut_off_again_and_again_end_the_run_before_it_is_paid_for_twenty_times(
    play: Play, wire: Wire, answers: Sequence[Answer]
) -> None:
    played = await play(wire, *answers)

    assert played.end == ("stopped", "max_tokens", "")
    assert (played.ran, len(played.bodies)) == ([], 3)


async def test_whole_calls_before_the_one_that_was_cut_off_are_made(play: Play) -> None:
    two = [call(0, "c1", "wipe", '{"path": "a"}'), call(1, "c2", "wipe", '{"path": "b'), {}]
    chat = wires.chat(*(chunk(delta) for delta in two), chunk({}, "length"))

    played = await play("chat", chat, says("chat", HELLO))

    assert played.ran == ["a"]
    assert played.end == ("completed", "end", HELLO)
    assert played.outcomes[0] == "ok"
    assert "cut off" in played.outcomes[1]


@every_wire
async def test_a_whole_call_is_made(play: Play, wire: Wire) -> None:
    played = await play(wire, wires.calls(wire, "wipe", {"path": "a"}), says(wire, HELLO))

    assert played.ran == ["a"]
    assert played.end == ("completed", "end", HELLO)


# errors in a stream

OPENROUTER = chunk({"content": ""}, "error", error={"code": 502, "message": "Provider disconnected"})
LIMITED = chunk({"content": ""}, "error", error={"code": 429, "message": "slow down"})
CHOICE = {"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "gone"}}]}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
FAILED = {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error"}}}
HALF = chunk({"content": "half an ans"})


def half_anthropic(*after: dict[str, Any]) -> Answer:
    begun = json.loads(b"[" + b",".join(_data(wires.broken("anthropic", "half an ans", "end"))) + b"]")
    return wires.streamed([*begun, *after])


def half_responses(*after: dict[str, Any]) -> Answer:
    begun = json.loads(b"[" + b",".join(_data(wires.broken("responses", "half an ans", "end"))) + b"]")
    return stream_answer([*begun, *after])


def _data(answer: Answer) -> list[bytes]:
    return [piece.partition(b"data: ")[2] for piece in answer.pieces if isinstance(piece, bytes)]


@pytest.mark.parametrize(
    ("wire", "failing"),
    [
        pytest.param("chat", wires.chat(HALF, OPENROUTER), id="chat, with choices beside it"),
        pytest.param("chat", wires.chat(HALF, CHOICE), id="chat, in the choice"),
        pytest.param("chat", wires.chat(HALF, {"error": {"code": 502, "message": "gone"}}), id="chat, alone"),
        pytest.param("chat", wires.chat(HALF, chunk({}, "error")), id="chat, as a reason without more words"),
        pytest.param("chat", wires.chat(HALF, chunk({}, "insufficient_system_resource")), id="chat, DeepSeek's word"),
        pytest.param("anthropic", half_anthropic(OVERLOADED), id="anthropic"),
        pytest.param("responses", half_responses(FAILED), id="responses"),
        pytest.param("chat", wires.broken("chat", "half an ans", "drop"), id="chat, the connection breaks"),
        pytest.param("chat", wires.broken("chat", "half an ans", "end"), id="chat, the stream ends"),
        pytest.param("anthropic", wires.broken("anthropic", "half an ans", "drop"), id="anthropic, it breaks"),
        pytest.param("anthropic", wires.broken("anthropic", "half an ans", "end"), id="anthropic, it ends"),
        pytest.param("responses", wires.broken("responses", "half an ans", "drop"), id="responses, it breaks"),
        pytest.param("responses", wires.broken("responses", "half an ans", "end"), id="responses, it ends"),
    ],
)
async def test_a_turn_that_fails_after_its_first_words_is_asked_for_again_and_who_watches_is_told(
    play: Play, wire: Wire, failing: Answer
) -> None:
    played = await play(wire, failing, says(wire, HELLO))

    assert played.end == ("completed", "end", HELLO)
    assert (len(played.bodies), played.restarts, played.shown) == (2, 1, HELLO)


@pytest.mark.parametrize(
    ("wire", "failing"),
    [
        pytest.param("chat", wires.chat(LIMITED), id="chat"),
        pytest.param("anthropic", wires.streamed([OVERLOADED]), id="anthropic"),
        pytest.param("responses", stream_answer([FAILED]), id="responses"),
        pytest.param("chat", wires.broken("chat", "", "drop"), id="chat, the connection breaks"),
        pytest.param("anthropic", wires.broken("anthropic", "", "drop"), id="anthropic, the connection breaks"),
        pytest.param("responses", wires.broken("responses", "", "drop"), id="responses, the connection breaks"),
        *(pytest.param(wire, error_answer(503, {"error": {"message": "busy"}}), id=f"{wire}, 503") for wire in WIRES),
    ],
)
async def test_a_turn_that_fails_before_its_first_word_is_asked_for_again(
    play: Play, wire: Wire, failing: Answer
) -> None:
    played = await play(wire, failing, says(wire, HELLO))

    assert played.end == ("completed", "end", HELLO)
    assert (len(played.bodies), played.restarts, played.shown) == (2, 0, HELLO)


@pytest.mark.parametrize(
    ("wire", "failing"),
    [
        ("chat", wires.chat(HALF, OPENROUTER)),
        ("anthropic", half_anthropic(OVERLOADED)),
        ("responses", half_responses(FAILED)),
    ],
)
async def test_an_error_that_stays_is_the_error_of_the_run(play: Play, wire: Wire, failing: Answer) -> None:
    played = await play(wire, failing)

    assert isinstance(played.error, ModelError)
    assert played.error.kind == "overloaded"
    assert len(played.bodies) == 3


async def test_the_next_model_of_a_chain_answers_where_the_first_one_breaks_off() -> None:
    async def breaks(_: Received) -> Answer:
        return wires.chat(HALF, OPENROUTER)

    async def answers(_: Received) -> Answer:
        return says("chat", HELLO)

    async with serve(breaks) as first, serve(answers) as second:
        once = Retry(attempts=1)
        chain = FallbackModel(*(wires.model_at("chat", one.url, retry=once) for one in (first, second)))
        played = Played()
        async with chain:
            await _watched(Agent(chain), played)

    assert played.end == ("completed", "end", HELLO)
    assert (played.shown, played.restarts) == (HELLO, 1)


# why a turn ended


@per_wire(
    chat=[says("chat", "half an ans", "something_new")],
    anthropic=[says("anthropic", "half an ans", "something_new")],
    responses=[says("responses", "half an ans", "something_new")],
)
async def test_a_reason_that_nobody_knows_is_told_and_no_success(
    play: Play, wire: Wire, answers: Sequence[Answer]
) -> None:
    played = await play(wire, *answers)

    assert played.end == ("stopped", "other", "half an ans")
    assert played.result.stop_detail == "something_new"


@per_wire(
    chat=[says("chat", "half an ans", "length")],
    anthropic=[says("anthropic", "half an ans", "max_tokens")],
    responses=[says("responses", "half an ans", "max_output_tokens")],
)
async def test_a_text_that_was_cut_off_is_no_success(play: Play, wire: Wire, answers: Sequence[Answer]) -> None:
    assert (await play(wire, *answers)).end == ("stopped", "max_tokens", "half an ans")


async def test_mistrals_word_for_the_bound_on_tokens_is_known(play: Play) -> None:
    assert (await play("chat", says("chat", "half", "model_length"))).end == ("stopped", "max_tokens", "half")


@every_wire
async def test_an_empty_answer_is_asked_for_again(play: Play, wire: Wire) -> None:
    played = await play(wire, says(wire, ""), says(wire, HELLO))

    assert played.end == ("completed", "end", HELLO)
    assert len(played.bodies) == 2


@every_wire
async def test_answers_that_stay_empty_are_no_success(play: Play, wire: Wire) -> None:
    played = await play(wire, says(wire, ""), limits=Limits(turn_retries=1))

    assert played.end == ("stopped", "empty_answer", "")
    assert len(played.bodies) == 2


MALFORMED = says("chat", "", "function_call_filter: MALFORMED_FUNCTION_CALL")


async def test_a_call_that_the_provider_could_not_read_is_asked_for_again(play: Play) -> None:
    played = await play("chat", MALFORMED, wires.calls("chat", "wipe", {"path": "a"}), says("chat", HELLO))

    assert played.end == ("completed", "end", HELLO)
    assert played.ran == ["a"]


async def test_calls_that_the_provider_can_never_read_end_the_run(play: Play) -> None:
    played = await play("chat", MALFORMED)

    assert played.end == ("stopped", "malformed_call", "")
    assert len(played.bodies) == 3
    assert "MALFORMED" in str(played.result.stop_detail)


REFUSED_ITEM = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I cannot."}]}


@per_wire(
    chat=[wires.chat(chunk({"refusal": "I cannot."}), chunk({}, "stop"))],
    anthropic=[says("anthropic", "I cannot.", "refusal")],
    responses=[wires.responses(REFUSED_ITEM)],
)
async def test_a_refusal_is_told(play: Play, wire: Wire, answers: Sequence[Answer]) -> None:
    assert (await play(wire, *answers)).end == ("stopped", "refusal", "I cannot.")


# what has to go back

SIGNED = {"google": {"thought_signature": "SIG"}}
CALLER = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
PHASED = {
    "type": "message",
    "id": "m",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Let me see."}],
}


@per_wire(
    chat=[
        wires.chat(
            chunk(
                {"tool_calls": [{**call(0, "c1", "wipe", '{"path": "a"}')["tool_calls"][0], "extra_content": SIGNED}]}
            ),
            chunk({}, "tool_calls"),
        )
    ],
    anthropic=[
        wires.anthropic(*wires.anthropic_events("wipe", '{"path": "a"}', caller=CALLER), stop="tool_use"),
    ],
    responses=[wires.responses(PHASED, wires.call_item("wipe", '{"path": "a"}', namespace="files"))],
)
async def test_what_a_provider_adds_to_a_call_goes_back_to_it(
    play: Play, wire: Wire, answers: Sequence[Answer]
) -> None:
    played = await play(wire, *answers, says(wire, HELLO))

    sent = played.bodies[1]["input" if wire == "responses" else "messages"]
    assert played.end == ("completed", "end", HELLO)
    if wire == "chat":
        assert sent[1]["tool_calls"][0]["extra_content"] == SIGNED
    elif wire == "anthropic":
        assert sent[1]["content"][0]["caller"] == CALLER
    else:
        assert sent[1]["phase"] == "commentary"
        assert sent[2]["namespace"] == "files"


@pytest.mark.slow
async def test_what_one_provider_adds_to_a_call_goes_to_no_other(play: Play) -> None:
    signed = {**call(0, "c1", "wipe", "{}")["tool_calls"][0], "extra_content": SIGNED}
    played = await play(
        "chat", wires.chat(chunk({"tool_calls": [signed]}), chunk({}, "tool_calls")), says("chat", HELLO)
    )
    assert played.result is not None

    other = Played()

    async def answer(request: Received) -> Answer:
        other.bodies.append(request.json)
        return says("chat", HELLO)

    async with serve(answer) as server, wires.model_at("chat", server.url, provider="else") as model:
        await Agent(model).send([*played.result.messages, "and now?"])

    assert "SIG" not in json.dumps(other.bodies)
    assert other.bodies[0]["messages"][1]["tool_calls"][0]["function"]["name"] == "wipe"


REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SECRET-THOUGHT"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "SECRET-THOUGHT"}


@per_wire(
    chat=[
        wires.chat(
            chunk({"reasoning_content": "SECRET-THOUGHT"}),
            chunk(call(0, "c1", "wipe", '{"path": "a"}')),
            chunk({}, "tool_calls"),
        )
    ],
    anthropic=[
        wires.fake_anthropic.turn(
            THOUGHT, {"type": "tool_use", "id": "toolu_1", "name": "wipe", "input": {"path": "a"}}
        )
    ],
    responses=[wires.responses(REASONING, wires.call_item("wipe", '{"path": "a"}'))],
)
async def test_thoughts_go_back_within_the_tool_loop(play: Play, wire: Wire, answers: Sequence[Answer]) -> None:
    played = await play(wire, *answers, says(wire, HELLO))

    assert played.end == ("completed", "end", HELLO)
    assert "SECRET-THOUGHT" in json.dumps(played.bodies[1])


# odd forms of a right answer


def legacy(name: str | None, arguments: str) -> dict[str, Any]:
    return {"function_call": {"arguments": arguments, **({"name": name} if name else {})}}


@pytest.mark.parametrize(
    ("deltas", "finish", "ran"),
    [
        pytest.param([call(None, None, "wipe", '{"path": "a"}')], "tool_calls", ["a"], id="no id, no index"),
        pytest.param(
            [call(0, "c1", "wipe", '{"path": "a"}'), call(0, "c2", "wipe", '{"path": "b"}')],
            "tool_calls", ["a", "b"], id="one index, two ids",
        ),
        pytest.param([call(0, "c1", "wipe", {"path": "a"})], "tool_calls", ["a"], id="arguments as an object"),
        pytest.param([call(0, "c1", "wipe", '"{\\"path\\": \\"a\\"}"')], "tool_calls", ["a"], id="encoded twice"),
        pytest.param([call(0, "c1", "wipe", '{"path": "a"}')], "stop", ["a"], id="ends with stop"),
        pytest.param([call(0, "c1", "wipe", "")], "stop", [None], id="no arguments and a known end"),
        pytest.param([call(0, "c1", "wipe", '{"path": "a"}')], "odd", ["a"], id="whole, with an unknown end"),
        pytest.param(
            [legacy("wipe", '{"pa'), legacy(None, 'th": "a"}')], "function_call", ["a"], id="the call of old"
        ),
    ],
)  # fmt: skip
async def test_calls_in_odd_forms_are_made(play: Play, deltas: list[Any], finish: str, ran: list[Any]) -> None:
    played = await play("chat", wires.chat(*map(chunk, deltas), chunk({}, finish)), says("chat", HELLO))

    assert sorted(played.ran, key=str) == sorted(ran, key=str)
    assert played.end == ("completed", "end", HELLO)


EMPTY: dict[str, Any] = {"choices": []}
SECOND = {"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]}
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "text", "text": HELLO},
    {"type": "reference", "reference_ids": [1]},
]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([chunk({"content": PARTS}), chunk({}, "stop")], id="as parts, Mistral"),
        pytest.param([SECOND, chunk({"content": HELLO}), chunk({}, "stop")], id="beside a second choice"),
        pytest.param([EMPTY, chunk({"content": HELLO}), chunk({}, "stop")], id="after a chunk without choices"),
        pytest.param([b": ping\n\n", chunk({"content": HELLO}), b": ping\n\n", chunk({}, "stop")], id="among comments"),
    ],
)
async def test_texts_in_odd_forms_are_read(play: Play, pieces: list[Any]) -> None:
    played = await play("chat", wires.chat(*pieces))

    assert played.end == ("completed", "end", HELLO)
    assert played.shown == HELLO


async def test_thoughts_that_came_as_parts_go_back_as_parts(play: Play) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}
    more = {"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}
    pieces = [chunk({"content": [thought]}), chunk({"content": [more]}), chunk(call(0, "c1", "wipe", "{}"))]

    played = await play("chat", wires.chat(*pieces, chunk({}, "tool_calls")), says("chat", HELLO))

    assert played.bodies[1]["messages"][1]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    ]


async def test_groqs_usage_is_counted(play: Play) -> None:
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}}
    played = await play("chat", wires.chat(chunk({"content": HELLO}), chunk({}, "stop", x_groq=usage)))

    assert (played.result.usage.input_tokens, played.result.usage.output_tokens) == (5, 1)


@every_wire
async def test_an_answer_that_is_not_streamed_is_read(play: Play, wire: Wire) -> None:
    assert (await play(wire, wires.whole(wire, HELLO))).end == ("completed", "end", HELLO)


@every_wire
@pytest.mark.parametrize(("name", "arguments", "words"), [("gone", "{}", "gone"), ("wipe", "[1]", "not a JSON object")])
async def test_a_call_that_is_wrong_is_an_error_that_the_model_reads(
    play: Play, wire: Wire, name: str, arguments: str, words: str
) -> None:
    played = await play(wire, wires.calls(wire, name, arguments), says(wire, HELLO))

    assert played.ran == []
    assert played.end == ("completed", "end", HELLO)
    assert words in played.outcomes[0]


# waits

GOOGLE = {
    "error": {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "Quota exceeded.",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.Help"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36.5s"},
        ],
    }
}


@every_wire
@pytest.mark.parametrize("seconds", [1, 40, 90])
async def test_what_a_busy_provider_asks_to_wait_is_waited_for(play: Play, wire: Wire, seconds: int) -> None:
    busy = error_answer(429, {"error": {"message": "slow down"}}, retry_after=str(seconds))

    played = await play(wire, busy, says(wire, HELLO), retry=Retry())

    assert played.end == ("completed", "end", HELLO)
    assert played.waits == [seconds]


async def test_how_long_is_waited_for_can_be_set(play: Play) -> None:
    busy = error_answer(429, {"error": {"message": "slow down"}}, retry_after="40")

    played = await play("chat", busy, retry=Retry(max_retry_after=39))

    assert isinstance(played.error, ModelError)
    assert (played.error.retry_after, played.waits) == (40, [])


@pytest.mark.parametrize("body", [GOOGLE, [GOOGLE]])
async def test_googles_own_word_for_the_wait_is_read(play: Play, body: Any) -> None:
    played = await play("chat", error_answer(429, body), says("chat", HELLO), retry=Retry())

    assert played.end == ("completed", "end", HELLO)
    assert played.waits == [36.5]


# bounds


async def test_a_tool_that_only_fails_ends_the_run_where_that_is_bounded() -> None:
    def look() -> str:
        raise ValueError("no")

    async def answer(_: Received) -> Answer:
        return wires.calls("chat", "look")

    async with serve(answer) as server, wires.model_at("chat", server.url) as model:
        result = await Agent(model, tools=[look], limits=Limits(tool_failures=3)).send("q")

    assert (result.status, result.stop_reason, result.stop_detail, result.steps) == (
        "stopped",
        "tool_failures",
        "look",
        3,
    )
    assert isinstance(result.messages[-1], ToolMessage)
    assert isinstance(result.messages[-2], AssistantMessage)
