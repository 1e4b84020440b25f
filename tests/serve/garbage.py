"""Strategies for what a server may be sent: messages that are nearly right, wrong ones, and no messages at all."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.serve.raw import ENVELOPE, LEGACY, MODERN, Json
from toolweave.protocol.meta import CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION

__all__ = ["TOOLS", "as_text", "ids", "messages", "texts"]

METHODS = (
    *("tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "prompts/list"),
    *("prompts/get", "completion/complete", "server/discover", "initialize", "ping", "logging/setLevel"),
    *("resources/subscribe", "resources/unsubscribe", "tasks/get", "tasks/update", "tasks/cancel", "tasks/list"),
    *("roots/list", "sampling/createMessage", "rpc.discover", "", "tools/call/", "TOOLS/LIST", "\x00", "a" * 3000),
)
ENDLESS = ("subscriptions/listen",)
NOTES = (
    *("notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/message"),
    *("notifications/roots/list_changed", "notifications/tools/list_changed", "notifications/", "x"),
)
TOOLS = ("add", "echo", "fail", "nobody")
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, -0.0, 2**31, 2**63, 2**64, 10**40, 1e308),
    *("", "0", "null", "a" * 5000, "\x00", "\u202e\ufeff", "\N{SNOWMAN}" * 50, "../../etc/passwd", "%00%ff"),
    *("${jndi:ldap://x}", "'; drop table tools; --", "<script>", "\r\nContent-Length: 0\r\n\r\n", "__proto__"),
    *([], {}, [[]], [{}], {"": ""}, {"a": {"b": {"c": []}}}, [None] * 50, {"$ref": "#"}, {"_meta": {}}),
)
NO_JSON: tuple[Any, ...] = (float("nan"), float("inf"), "\ud800", "\udfff\ud800")
"""What Python writes, and no reader of JSON takes."""


def mixed(*parts: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Return one of the strategies, each as often as its weight says."""
    return st.sampled_from([part for weight, part in parts for _ in range(weight)]).flatmap(lambda part: part)


_junk = st.binary(max_size=40)
odd = st.sampled_from(ODD) | st.text(max_size=8) | st.integers()
ids = st.one_of(st.integers(0, 40), st.sampled_from(["a", "b", "1", "", 2**53, -7, 2**70]), st.uuids().map(str))
_arguments = mixed(
    (3, st.fixed_dictionaries({"a": st.integers(), "b": st.integers()})),
    (3, st.fixed_dictionaries({"text": st.text(max_size=30)})),
    (2, st.dictionaries(st.sampled_from(["a", "b", "text", "x", "_meta", "self"]), odd, max_size=4)),
    (1, odd),
)
_versions = st.sampled_from([MODERN, LEGACY, "2099-01-01"]) | odd
_meta = mixed(
    (5, st.just(ENVELOPE)),
    (1, st.fixed_dictionaries({PROTOCOL_VERSION: _versions, CLIENT_CAPABILITIES: odd})),
    (2, st.fixed_dictionaries({"progressToken": odd, LOG_LEVEL: odd}).map(lambda more: ENVELOPE | more)),
    (1, odd),
)
_MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(TOOLS) | odd,
    "arguments": _arguments,
    "cursor": odd,
    "uri": st.sampled_from(["notes://1", "file:///etc/passwd", "", "::"]) | odd,
    "requestId": ids | odd,
    "protocolVersion": st.sampled_from(["2024-11-05", "2025-06-18", LEGACY, MODERN, "9"]) | odd,
    "capabilities": odd,
    "clientInfo": odd,
    "level": st.sampled_from(["debug", "emergency"]) | odd,
    "notifications": st.just({"toolsListChanged": True}) | odd,
    "ref": odd,
    "argument": odd,
    "inputResponses": odd,
    "requestState": odd,
    "taskId": odd,
    "task": odd,
}
_params = st.fixed_dictionaries({}, optional=_MEMBERS)


def _enveloped(modern: bool) -> st.SearchStrategy[Any]:
    made = st.tuples(_params, _meta).map(lambda pair: pair[0] | {"_meta": pair[1]}) if modern else _params
    return mixed((6, made), (1, odd))


def messages(*, modern: bool, methods: tuple[str, ...] = METHODS) -> st.SearchStrategy[Any]:
    """Return JSON values: requests, notifications and answers, most of them wrong somewhere."""
    params = _enveloped(modern)
    version = mixed((4, st.just("2.0")), (1, odd))
    request = st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "id": ids, "method": st.sampled_from(methods), "params": params}
    )
    strange = st.fixed_dictionaries(
        {}, optional={"jsonrpc": version, "id": ids | odd, "method": st.sampled_from(methods) | odd, "params": params}
    )
    note = st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "method": st.sampled_from(NOTES)}, optional={"params": params}
    )
    answer = st.fixed_dictionaries({"jsonrpc": version, "id": ids | odd}, optional={"result": odd, "error": odd})
    poisoned = st.tuples(strange, st.sampled_from(NO_JSON)).map(lambda pair: pair[0] | {"params": {"x": pair[1]}})
    call = st.builds(_call, ids, _arguments, st.sampled_from(TOOLS), st.just(modern))
    one = mixed((4, request), (4, call), (2, strange), (1, note), (1, answer))
    return mixed((16, one), (2, st.lists(one, max_size=4)), (1, poisoned), (1, odd))


def _call(key: Any, arguments: Any, name: str, modern: bool) -> Json:
    params = {"name": name, "arguments": arguments} | ({"_meta": ENVELOPE} if modern else {})
    return {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}


def as_text(value: Any, *, ascii_only: bool = True) -> bytes:
    """Return a value as JSON in one line; NaN and halves of surrogate pairs are written as they are."""
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def _cut(text: bytes, share: float) -> bytes:
    return text[: int(len(text) * share)]


def _deep(depth: int, closed: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * depth + b"1" + b"}" * closed


def texts(*, modern: bool, methods: tuple[str, ...] = METHODS) -> st.SearchStrategy[bytes]:
    """Return single lines: messages as text, whole, cut, doubled, deep and broken."""
    whole = st.tuples(messages(modern=modern, methods=methods), st.booleans()).map(
        lambda pair: as_text(pair[0], ascii_only=pair[1])
    )
    cut = st.tuples(whole, st.floats(0, 1)).map(lambda pair: _cut(*pair))
    twice = whole.map(lambda text: text[:-1] + b',"id":"twice","id":3}')  # one member more than once
    deep = st.sampled_from([_deep(10, 11), _deep(150, 151), _deep(300, 301), _deep(5000, 0), _deep(5000, 5001)])
    text = mixed((16, whole), (1, cut), (1, whole.map(lambda text: text * 2)), (1, twice), (1, deep), (1, _junk))
    return text.map(lambda text: text.replace(b"\n", b" "))
