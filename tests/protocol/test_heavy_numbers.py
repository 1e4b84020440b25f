"""The costliest text for each decoder of JSON takes processor time in proportion to its length."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

import msgspec
import pytest

from toolweave.protocol.brackets import depth_change
from toolweave.protocol.jsonrpc import decode_strict, value_of
from toolweave.protocol.lenient_messages import answer_behind, decode_lenient, decode_raw_result, is_json

BYTES = 60_000
ENVELOPE = b'{"jsonrpc":"2.0","id":1,'
VALUES: Mapping[str, bytes] = {
    "a number near the largest": b"1e308",
    "a number with an explicit sign": b"1E+308",
    "a number near the smallest": b"1e-320",
    "a number halfway between two floats": b"9007199254740993e80",
    "digits and a large exponent": b"1.7976931348623157e308",
    "integers as long as they may be": b"1" * 4_000,
    "empty objects": b"{}",
    "nested arrays": b"[[[[[]]]]]",
    "objects with an id": b'{"id":1e308}',
    "escapes": b'"\\u0041\\ud83d\\ude00"',
    "brackets in strings": b'"[{"',
}
DECODERS: Mapping[str, Callable[[bytes], object]] = {
    "lenient": decode_lenient,
    "raw": decode_raw_result,
    "strict": decode_strict,
    "behind other text": answer_behind,
    "valid or not": is_json,
    "lines of a process": depth_change,
    "a value": lambda text: value_of(msgspec.Raw(text)),
}
SHAPES: Mapping[str, Callable[[bytes], bytes]] = {
    "a result": lambda values: ENVELOPE + b'"result":{"x":[' + values + b"]}}",
    "parameters": lambda values: (
        ENVELOPE + b'"method":"tools/call","params":{"name":"a","arguments":{"x":[' + values + b"]}}}"
    ),
    "a batch": lambda values: b"[" + values + b"]",
    "text that ends wrongly": lambda values: ENVELOPE + b'"result":[' + values + b"}",
}
TIMES = 100
"""How much longer a hostile text may take than ordinary numbers.

Without a bound `1e308` takes 1,000 times as long. With one it takes 10 to 60 times as long, by the processor.
"""


def repeated(value: bytes) -> bytes:
    return b",".join([value] * (BYTES // (len(value) + 1)))


def processor_seconds(decode: Callable[[bytes], object], text: bytes) -> float:
    """Return the least processor time of three runs, however the text is judged."""
    times: list[float] = []
    for _ in range(3):
        start = time.thread_time()
        try:
            decode(text)
        except (ValueError, RecursionError):
            pass
        times.append(time.thread_time() - start)
    return min(times)


@pytest.fixture(scope="module")
def ordinary_seconds() -> float:
    """The time in which ordinary numbers are read as a response."""
    return processor_seconds(decode_lenient, SHAPES["a result"](repeated(b"1.5")))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", VALUES)
def test_no_text_takes_much_longer_than_ordinary_numbers(value: str, shape: str, ordinary_seconds: float) -> None:
    text = SHAPES[shape](repeated(VALUES[value]))

    slow = {
        name: round(taken / ordinary_seconds)
        for name, decode in DECODERS.items()
        if (taken := processor_seconds(decode, text)) > TIMES * ordinary_seconds
    }

    assert not slow


def test_a_member_that_is_repeated_is_read_in_the_same_time(ordinary_seconds: float) -> None:
    text = b'{"jsonrpc":"2.0",' + repeated(b'"id":1e308') + b',"result":{}}'

    slow = [n for n, decode in DECODERS.items() if processor_seconds(decode, text) > TIMES * ordinary_seconds]

    assert not slow


NUMBERS = [
    "1e308",
    "-1E+308",
    "5e-324",
    "1.7976931348623157e308",
    "2.5",
    "-0.0",
    "1e22",
    "9007199254740993.0",
    "1e-400",
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("count", [1, 2_000])
def test_every_number_has_the_value_that_python_gives_it(number: str, count: int) -> None:
    text = ENVELOPE + b'"result":{"x":[' + b",".join([number.encode()] * count) + b"]}}"

    [message] = decode_lenient(text)

    assert message.result["x"] == [float(number)] * count


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 4_301, b"-" + b"9" * 100_000])
@pytest.mark.parametrize("count", [1, 2_000])
def test_a_number_out_of_range_is_null_and_not_infinity(count: int, number: bytes) -> None:
    values = b",".join([b"0.25"] * count) + b"," + number

    assert value_of(msgspec.Raw(b"[" + values + b"]")) == [*[0.25] * count, None]


@pytest.mark.parametrize("sign", ["", "-"])
def test_the_longest_whole_number_is_read_beside_one_that_is_too_long(sign: str) -> None:
    longest = sign + "9" * (4_300 - len(sign))

    assert value_of(msgspec.Raw(f"[{longest},{longest}9]".encode())) == [int(longest), None]


@pytest.mark.parametrize("id_text", ["true", "[1]", "{}", "1e999", "9" * 5_000])
def test_an_answer_whose_id_has_another_type_is_not_a_message(id_text: str) -> None:
    text = b'{"jsonrpc":"2.0","id":%s,"result":{}}' % id_text.encode()

    with pytest.raises(ValueError, match="id"):
        decode_lenient(text)


def test_an_id_that_is_a_fraction_is_kept() -> None:
    [message] = decode_lenient(b'{"jsonrpc":"2.0","id":4.0,"result":{}}')

    assert message.id == 4.0


def test_a_batch_has_a_limit_of_messages() -> None:
    batch = json.dumps([{"jsonrpc": "2.0", "method": "a"}] * 1_001).encode()

    with pytest.raises(ValueError, match="1,000 messages"):
        decode_strict(batch)
    with pytest.raises(ValueError, match="1,000 messages"):
        decode_lenient(batch)


@pytest.mark.parametrize("value", [0.1, 1.5e-05, 3.141592653589793])
def test_many_ordinary_fractions_are_read_exactly(value: float) -> None:
    [message] = decode_lenient(ENVELOPE + b'"result":{"x":%s}}' % json.dumps([value] * 5_000).encode())

    assert message.result["x"] == [value] * 5_000
