"""Faults of single answers as messages: missing, wrong, double, late, and invalid results."""

from __future__ import annotations

from typing import Any

from toolweave._json_types import without_members
from toolweave.testing.servers.fault_base import FaultServer, complain, message_mode, mode
from toolweave.testing.servers.toolset import Json, members, text_result

__all__ = ["HOSTILE", "SMUGGLED"]

ESC = "\x1b"
CSI = "\x9b"
OSC_END = "\x07"
RIGHT_TO_LEFT = "\u202e"
ISOLATE = "\u2066"
ZERO_WIDTH = "\u200b\u200d\ufeff"
TAGS = "\U000e0041\U000e0042\U000e007f"
HOSTILE = {
    "esc": f"{ESC}[31mred{ESC}[0m",
    "title": f"{ESC}]0;owned{OSC_END}",
    "clear": f"{ESC}[2J{ESC}[H",
    "link": f"{ESC}]8;;http://example.com{ESC}\\click{ESC}]8;;{ESC}\\",
    "c1": f"{CSI}31m",
    "bidi": f"{RIGHT_TO_LEFT}txt.exe{ISOLATE}",
    "zero_width": f"a{ZERO_WIDTH}b",
    "tags": TAGS,
    "carriage": "safe\rEVIL\x08\x08",
}
SMUGGLED = " ".join(HOSTILE.values())
"""A text with every kind of character that must not reach a terminal raw."""


def silently(message: Json) -> bool:
    """Take a request and never answer."""
    return True


@message_mode
def hang_initialize(server: FaultServer) -> None:
    """Refuse the probe, never answer `initialize`."""
    server.on("initialize", silently)


@message_mode
def hang_list(server: FaultServer) -> None:
    """Never answer `tools/list`."""
    server.on("tools/list", silently)


@message_mode
def hang_call(server: FaultServer) -> None:
    """Never answer `tools/call`."""
    server.on("tools/call", silently)


@message_mode
def wrong_id(server: FaultServer) -> None:
    """Answer each call under an id that was never used, with another text."""
    server.for_calls(
        lambda message, answer: server.encode({**answer, "id": 987654, "result": text_result("not yours")})
    )


@message_mode
def duplicate_answer(server: FaultServer) -> None:
    """Answer each call twice, the second time with another text."""
    server.for_calls(
        lambda message, answer: server.encode(answer) + server.encode({**answer, "result": text_result("again")}),
    )


@message_mode
def id_as_string(server: FaultServer) -> None:
    """Turn the id of every answer into a string."""
    server.rewrite = lambda message, answer: server.encode({**answer, "id": str(answer["id"])})


@message_mode
def result_null(server: FaultServer) -> None:
    """Answer each call with `result: null`."""
    server.for_calls(lambda message, answer: server.encode({**answer, "result": None}))


@message_mode
def result_not_object(server: FaultServer) -> None:
    """Answer each call with a list."""
    server.for_calls(lambda message, answer: server.encode({**answer, "result": ["text"]}))


@message_mode
def result_without_content(server: FaultServer) -> None:
    """Answer each call with an object that has no content."""
    server.for_calls(lambda message, answer: server.encode({**answer, "result": {"ok": True}}))


@message_mode
def bad_blocks(server: FaultServer) -> None:
    """Answer each call with one good block among invalid blocks."""
    blocks: list[Any] = [{"type": "text"}, {"type": "hologram", "data": "x"}, "text", {"type": "text", "text": "good"}]
    server.for_calls(lambda message, answer: server.encode({**answer, "result": {"content": blocks}}))


@message_mode
def error_is_text(server: FaultServer) -> None:
    """Answer each call with `error: "text"`."""
    server.for_calls(lambda message, answer: server.encode({"jsonrpc": "2.0", "id": answer["id"], "error": "broken"}))


@message_mode
def output_schema_violated(server: FaultServer) -> None:
    """Tools `violates` and `omits` break their output schema; `add` keeps its own."""
    output: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    definition: Json = {"description": "d", "inputSchema": {"type": "object"}, "outputSchema": output}
    server.peer.tools["violates"] = (definition, lambda call: text_result("x", structuredContent={"n": "many"}))
    server.peer.tools["omits"] = (definition, lambda call: text_result("no structured content"))


@mode
def ansi_and_bidi(server: FaultServer) -> None:
    """Names, descriptions, results, errors and standard error carry terminal escapes and invisible characters."""
    server.before_start = lambda: complain(SMUGGLED)
    definition: Json = {"description": SMUGGLED, "title": SMUGGLED, "inputSchema": {"type": "object"}}
    server.peer.tools["hostile"] = (definition, lambda call: text_result(SMUGGLED, structuredContent={"x": SMUGGLED}))
    server.peer.tools["hostile_error"] = (definition, lambda call: text_result(SMUGGLED) | {"isError": True})
    server.peer.tools[f"evil{ESC}[31m{RIGHT_TO_LEFT}name"] = (definition, lambda call: text_result("called"))
    server.peer.info.update(name=f"srv{ESC}[1m", title=SMUGGLED)
    server.peer.instructions = SMUGGLED
    for listing, _ in server.peer.resources.values():
        listing["description"] = SMUGGLED


@message_mode
def hang_probe(server: FaultServer) -> None:
    """Never answer `server/discover`."""
    server.on("server/discover", silently)


@message_mode
def late_answer(server: FaultServer) -> None:
    """Keep the answer to a call until the next one comes, and send it before that one's."""
    late: list[bytes] = []

    def change(message: Json, answer: Json) -> bytes:
        if not late:
            late.append(server.encode({**answer, "result": text_result("late")}))
            return b""
        return late.pop() + server.encode(answer)

    server.for_calls(change)


@message_mode
def early_answer(server: FaultServer) -> None:
    """Answer each call, and at once the next three ids, which were not used yet."""

    def change(message: Json, answer: Json) -> bytes:
        number = message["id"] if isinstance(message["id"], int) else 0
        early = [{**answer, "id": number + step, "result": text_result("early")} for step in (1, 2, 3)]
        return b"".join(server.encode(one) for one in [answer, *early])

    server.for_calls(change)


@message_mode
def id_null(server: FaultServer) -> None:
    """Answer each call under the id null, with another text."""
    server.for_calls(lambda message, answer: server.encode({**answer, "id": None, "result": text_result("not yours")}))


@message_mode
def id_huge(server: FaultServer) -> None:
    """Before the answer to each call: others under a number of 1,000 digits, a text of 1 MB, a list."""

    def change(message: Json, answer: Json) -> bytes:
        ids: list[Any] = ["0" * 1_000_000, [1], 1.5, True]
        odd = b"".join(server.encode({**answer, "id": one, "result": text_result("odd")}) for one in ids)
        number = b'{"jsonrpc":"2.0","id":' + b"9" * 1_000 + b',"result":{"content":[]}}\n'
        return number + odd + server.encode(answer)

    server.for_calls(change)


@message_mode
def result_and_error(server: FaultServer) -> None:
    """Answer each call with both a result and an error."""
    error: Json = {"code": -32603, "message": "both at once"}
    server.for_calls(lambda message, answer: server.encode({**answer, "error": error}))


@message_mode
def neither_result_nor_error(server: FaultServer) -> None:
    """Answer each call with neither a result nor an error."""
    server.for_calls(lambda message, answer: server.encode({"jsonrpc": "2.0", "id": answer["id"]}))


@message_mode
def error_without_code(server: FaultServer) -> None:
    """Answer each call with an error that has a text and no code."""
    server.for_calls(
        lambda message, answer: server.encode(
            {"jsonrpc": "2.0", "id": answer["id"], "error": {"message": "quota exceeded"}}
        )
    )


@message_mode
def error_of_odd_types(server: FaultServer) -> None:
    """Answer each call with an error whose code is a text and whose message is a number."""
    server.for_calls(
        lambda message, answer: server.encode(
            {"jsonrpc": "2.0", "id": answer["id"], "error": {"code": "E_QUOTA", "message": 7}}
        )
    )


@message_mode
def no_jsonrpc_member(server: FaultServer) -> None:
    """Leave the member `jsonrpc` out of each answer to a call."""
    server.for_calls(lambda message, answer: server.encode(without_members(answer, "jsonrpc")))


@message_mode
def content_not_list(server: FaultServer) -> None:
    """Answer each call with a content that is a text."""
    server.for_calls(lambda message, answer: server.encode({**answer, "result": {"content": "text"}}))


@message_mode
def unknown_result_type(server: FaultServer) -> None:
    """Give each result of a call the resultType `hologram`."""
    server.for_calls(
        lambda message, answer: server.encode({**answer, "result": {**answer["result"], "resultType": "hologram"}})
    )


@message_mode
def missing_result_type(server: FaultServer) -> None:
    """Leave resultType, ttlMs and cacheScope out of every result."""
    modern = {"resultType", "ttlMs", "cacheScope"}

    def change(message: Json, answer: Json) -> bytes | None:
        result = members(answer.get("result"))
        bare = {**answer, "result": without_members(result, *modern)}
        if result:
            return server.encode(bare)
        return None

    server.rewrite = change


@message_mode
def batch_answer(server: FaultServer) -> None:
    """Answer each call in an array of one."""
    server.for_calls(lambda message, answer: b"[" + server.encode(answer).rstrip() + b"]\n")


@message_mode
def nan_result(server: FaultServer) -> None:
    """Answer each call with NaN and Infinity, which JSON does not have."""
    numbers = {"nan": float("nan"), "infinity": float("inf")}
    server.for_calls(
        lambda message, answer: server.encode({**answer, "result": {**answer["result"], "structuredContent": numbers}})
    )


@message_mode
def deep_answer(server: FaultServer) -> None:
    """Answer each call with structured content nested 100,000 levels deep."""
    depth = 100_000
    deep = b"[" * depth + b"]" * depth

    def change(message: Json, answer: Json) -> bytes:
        line = server.encode({**answer, "result": text_result("deep", structuredContent={"x": "DEEP"})})
        return line.replace(b'"DEEP"', deep)

    server.for_calls(change)


@message_mode
def huge_line(server: FaultServer) -> None:
    """Answer each call with a text of --size bytes (default 50 MB)."""
    server.for_calls(lambda message, answer: server.encode({**answer, "result": text_result("x" * server.size)}))
