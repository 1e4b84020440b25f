"""What holds for the second reading of any message and result: it leaves what is right alone, and guesses nothing."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.connect.targets import ChannelServer, Json, connected, initialized
from tests.json_strategies import JSON, OBJECTS
from toolweave import ProtocolError
from toolweave.connect._wire.responses import result_of
from toolweave.protocol.lenient_json import mended
from toolweave.protocol.lenient_messages import LenientMessage, MendedMessage, decode_lenient
from toolweave.protocol.lenient_results import readable_result

pytestmark = pytest.mark.slow

TEXT = st.text(max_size=20)
BLOCKS = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}, optional={"_meta": OBJECTS})
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS, max_size=4)},
    optional={"structuredContent": OBJECTS, "isError": st.booleans(), "_meta": OBJECTS},
)
IDS = st.integers(-(2**53), 2**53) | TEXT
FLAWS = ["\\ud83d", "\\udc00", "\x01", "NaN", "-Infinity", "1e999"]


def message(key: Any, result: Any) -> Json:
    return {"jsonrpc": "2.0", "id": key, "result": result}


def noted(made: LenientMessage) -> tuple[Any, list[str]]:
    notes: list[str] = []
    return result_of(made, "s", notes.append), notes


@given(IDS, st.dictionaries(TEXT, JSON, max_size=5), st.booleans())
def test_a_strictly_valid_message_is_read_once_and_as_it_is(key: Any, result: Json, plain: bool) -> None:
    try:
        text = json.dumps(message(key, result), ensure_ascii=plain, allow_nan=False).encode()
    except ValueError:  # a number or a character that JSON does not have
        assume(False)
        raise
    (made,) = decode_lenient(text)

    assert not isinstance(made, MendedMessage)
    assert made.id == key
    read, notes = noted(made)
    assert notes == []
    assert json.dumps(read) == json.dumps(result)


@given(IDS, TEXT, st.sampled_from(FLAWS))
def test_a_nearly_valid_message_is_read_with_a_note_and_keeps_its_id(key: Any, around: str, flaw: str) -> None:
    quoted = f'"{flaw}"' if flaw[0] in "\\\x01" else flaw
    result = f'{{"before": {json.dumps(around)}, "flaw": {quoted}, "after": [{json.dumps(around)}]}}'
    text = f'{{"jsonrpc": "2.0", "id": {json.dumps(key)}, "result": {result}}}'.encode()
    (made,) = decode_lenient(text)

    assert isinstance(made, MendedMessage)
    assert made.id == key
    read, notes = noted(made)
    assert len(notes) == 1
    assert (read["before"], read["after"]) == (around, [around])
    assert read["flaw"] in (None, "\ufffd", "\x01")


@given(st.sampled_from(["\\ud83d", "a\\udc00", "\\ud83d\\ud83d"]))
def test_an_id_is_never_repaired(flaw: str) -> None:
    text = f'{{"jsonrpc": "2.0", "id": "{flaw}", "result": {{}}}}'.encode()

    assert mended(text) is None
    try:
        found = decode_lenient(text)
    except ValueError:
        return
    assert all(not isinstance(one.id, str) or "\ufffd" not in one.id for one in found)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: ("{" + text).encode("utf-8", "surrogatepass")))
def test_any_bytes_are_messages_or_a_value_error(text: bytes) -> None:
    try:
        for one in decode_lenient(text):
            assert isinstance(one, LenientMessage)
    except (ValueError, RecursionError):
        pass
    found = mended(text)
    assert found is None or json.loads(found) is not None or found


@pytest.mark.parametrize("flaw", FLAWS)
def test_the_second_reading_takes_memory_in_proportion_to_the_text(flaw: str) -> None:
    quoted = f'"{flaw}"' if flaw[0] in "\\\x01" else flaw
    text = ('{"a": [' + ",".join(['"some text of this size"'] * 50_000) + f'], "b": {quoted}}}').encode()
    tracemalloc.start()
    try:
        assert mended(text) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(text)


@given(RESULTS)
def test_a_valid_result_is_not_changed_by_the_second_reading_either(result: Json) -> None:
    made, changes = readable_result(result)

    assert (made, changes) == (result, ())


@given(st.dictionaries(TEXT, JSON, max_size=4) | OBJECTS)
@example({"content": [None]})
def test_the_second_reading_of_any_result_gives_a_list_of_blocks(result: Json) -> None:
    made, changes = readable_result(result)
    if made == result:
        return
    assert changes
    content: list[Any] = made.get("content", [])
    assert all(isinstance(one, dict) for one in content)


@given(OBJECTS, st.sampled_from([True, False, None, "true", "FALSE", 0, 1, "yes", [], {}, "error", "no", {"a": 1}]))
def test_a_result_with_any_flag_but_a_plain_no_is_a_failure(meta: Json, flag: Any) -> None:
    result: Json = {"content": [{"type": "text", "text": "done"}], "isError": flag, "_meta": meta}
    made, changes = readable_result(result)

    failed = made.get("isError") is True
    assert failed == (flag in (True, "true", "yes", "error", {"a": 1}))
    assert bool(changes) == (not isinstance(flag, bool) and flag is not None)


def answering(answers: dict[str, Any]) -> ChannelServer:
    """Return a server whose tool answers each call with the result of its argument `n`."""

    def script(message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                return {"result": answers[message["params"]["arguments"]["n"]]}
            case _:
                return None

    return ChannelServer(initialized(script))


@settings(max_examples=1)
@given(st.data())
async def test_valid_results_leave_no_problem_on_a_connection(data: st.DataObject) -> None:
    answers = {str(number): data.draw(RESULTS) for number in range(40)}
    async with connected(answering(answers), 60) as connection:
        for number, wanted in answers.items():
            result = await connection.call_tool("t", {"n": number})
            assert result.is_error == wanted.get("isError", False)
            assert result.raw == wanted
        assert connection.problems == ()


ODD: dict[str, tuple[Any, str, bool]] = {
    "text": ("made", "made", False),
    "number": (7, "7", False),
    "list": ([1, 2], "[1, 2]", False),
    "data": ({"count": 1}, '{"count": 1}', False),
    "one block": ({"content": {"type": "text", "text": "x"}}, "x", False),
    "error block": ({"content": [{"type": "error", "text": "no"}]}, "no", True),
    "flag as text": ({"content": [{"type": "text", "text": "no"}], "isError": "true"}, "no", True),
    "flag as number": ({"content": [{"type": "text", "text": "no"}], "isError": 1}, "no", True),
    "flag as zero": ({"content": [{"type": "text", "text": "yes"}], "isError": 0}, "yes", False),
    "flag of no meaning": ({"content": [{"type": "text", "text": "x"}], "isError": "maybe"}, "x", True),
    "null content": ({"content": None, "structuredContent": {"a": 1}}, '{"a": 1}', False),
}


@pytest.mark.parametrize("case", ODD)
async def test_a_nearly_valid_result_is_a_value_and_a_problem(case: str) -> None:
    answer, text, failed = ODD[case]
    async with connected(answering({"x": answer})) as connection:
        result = await connection.call_tool("t", {"n": "x"})
        assert (result.text, result.is_error) == (text, failed)
        (problem,) = connection.problems
        assert "tool 't': its result" in problem
        await connection.call_tool("t", {"n": "x"})
        assert connection.problems == (f"{problem} (2 times)",)


@pytest.mark.parametrize("answer", [{}, {"resultType": "complete"}, None])
async def test_a_result_that_says_nothing_is_an_error(answer: Any) -> None:
    async with connected(answering({"x": answer})) as connection:
        with pytest.raises(ProtocolError):
            await connection.call_tool("t", {"n": "x"})
