"""The protocol of a conversation, said in raw messages: eras, ids, batches, cancellation, questions, refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from tests.serve.raw import LEGACY, MODERN, Json, Raw, raw_client
from toolweave import connect_mcp
from toolweave.errors import RequestError
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._duplex.conversation import Conversation
from toolweave.serve._endpoint import Endpoint
from toolweave.serve.request import Method, Request
from toolweave.testing import MemoryServer

VERSIONS = [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
EACH_ERA = pytest.mark.parametrize("version", [LEGACY, MODERN])


class Desk:
    """A feature with methods that wait, ask and return strange things; a client sees them under `desk/`."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.cancelled = anyio.Event()
        self.let_go = anyio.Event()
        self.running = 0
        self.result: Any = {}

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        return {
            "desk/wait": self._wait,
            "desk/stubborn": self._stubborn,
            "desk/ask": self._ask,
            "desk/give": self._give,
            "desk/who": self._who,
            "desk/refuse": self._refuse,
        }

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        return {}

    async def _wait(self, request: Request) -> Json:
        self.running += 1
        self.started.set()
        try:
            await self.let_go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        finally:
            self.running -= 1
        return {"waited": True}

    async def _stubborn(self, request: Request) -> Json:
        self.started.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
        return {"it": "came anyway"}

    async def _ask(self, request: Request) -> Json:
        return {"sent_data": await request.reply_channel.ask("roots/list", {})}

    async def _give(self, request: Request) -> Json:
        return self.result

    async def _refuse(self, request: Request) -> Json:
        raise RequestError("refused", code=-1, data=self.result)

    async def _who(self, request: Request) -> Json:
        client = request.client
        return {"version": client.version, "info": client.info, "capabilities": client.capabilities}


def serve(desk: Desk | None = None) -> McpServer:
    server = create_mcp_server(name="desk", version="1")
    server.endpoint = Endpoint({"name": "desk", "version": "1"}, features=[Desk() if desk is None else desk])
    return server


def code_of(answer: Json) -> int:
    assert "result" not in answer, answer
    return int(answer["error"]["code"])


# eras


async def test_initialize_begins_the_handshake_era_and_an_envelope_is_refused_from_then_on() -> None:
    async with raw_client(serve(), LEGACY) as raw:
        assert (await raw.ask(raw.request("ping")))["result"] == {}
        raw.version = MODERN
        answer = await raw.ask(raw.request("server/discover"))

    assert code_of(answer) == -32600


async def test_an_envelope_begins_the_stateless_era_and_initialize_is_refused_with_what_is_spoken() -> None:
    async with raw_client(serve(), MODERN) as raw:
        assert (await raw.ask(raw.request("server/discover")))["result"]["supportedVersions"] == VERSIONS
        refused = await raw.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "x"}})
        bare = await raw.ask({"jsonrpc": "2.0", "id": 2, "method": "server/discover"})

    assert refused["error"]["code"] == -32022
    assert refused["error"]["data"] == {"supported": VERSIONS, "requested": "x"}
    assert code_of(bare) == -32602


@pytest.mark.parametrize(
    ("protocol", "agreed"), [("auto", MODERN), (MODERN, MODERN), ("legacy", "2025-11-25"), ("2025-06-18", "2025-06-18")]
)
async def test_a_server_speaks_the_revisions_that_it_was_told_to(protocol: str, agreed: str) -> None:
    server = serve()
    server.speak(protocol)

    async with connect_mcp(server) as connection:
        assert connection.protocol_version == agreed


async def test_a_server_of_handshakes_only_takes_an_envelope_for_nothing() -> None:
    server = serve()
    server.speak("2025-06-18")

    async with raw_client(server) as raw:
        raw.version = MODERN
        assert code_of(await raw.ask(raw.request("server/discover"))) == -32601
        assert (await raw.shake_hands(LEGACY))["result"]["protocolVersion"] == "2025-06-18"


async def test_a_stateless_server_refuses_a_handshake_with_what_is_spoken() -> None:
    server = serve()
    server.speak(MODERN)

    async with raw_client(server) as raw:
        refused = await raw.shake_hands(LEGACY)
        raw.version = MODERN
        found = await raw.ask(raw.request("server/discover"))

    assert refused["error"]["code"] == -32022
    assert refused["error"]["data"] == {"supported": [MODERN], "requested": LEGACY}
    assert found["result"]["supportedVersions"] == [MODERN]


def test_a_revision_that_does_not_exist_cannot_be_spoken() -> None:
    with pytest.raises(ValueError, match="'2027-01-01' is unknown; there are auto, legacy, 2024-11-05"):
        serve().speak("2027-01-01")


async def test_an_envelope_on_initialize_does_not_make_it_stateless() -> None:
    async with raw_client(serve()) as raw:
        raw.version = MODERN
        answer = await raw.ask(raw.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}}))

    assert answer["result"]["protocolVersion"] == LEGACY


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({PROTOCOL_VERSION: "2099-01-01", CLIENT_CAPABILITIES: {}}, -32022),
        ({PROTOCOL_VERSION: LEGACY, CLIENT_CAPABILITIES: {}}, -32022),
        ({PROTOCOL_VERSION: 7, CLIENT_CAPABILITIES: {}}, -32602),
        ({PROTOCOL_VERSION: None, CLIENT_CAPABILITIES: {}}, -32602),
        ({PROTOCOL_VERSION: MODERN}, -32602),
        ({PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: None}, -32602),
        ({PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: []}, -32602),
    ],
)
async def test_an_envelope_that_is_not_whole_is_refused_and_the_next_request_is_served(meta: Json, code: int) -> None:
    async with raw_client(serve(), MODERN) as raw:
        request = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
        answer = await raw.ask(request)
        assert "result" in await raw.ask(raw.request("server/discover"))

    assert code_of(answer) == code
    if code == -32022:
        assert answer["error"]["data"] == {"supported": VERSIONS, "requested": meta[PROTOCOL_VERSION]}


async def test_before_initialize_only_ping_is_answered_and_an_unknown_method_is_called_so() -> None:
    async with raw_client(serve()) as raw:
        assert (await raw.ask(raw.request("ping")))["result"] == {}
        assert code_of(await raw.ask(raw.request("desk/who"))) == -32602
        assert code_of(await raw.ask(raw.request("server/discover"))) == -32601
        assert "result" in await raw.shake_hands(LEGACY)
        assert (await raw.ask(raw.request("desk/who")))["result"]["version"] == LEGACY


async def test_requests_sent_right_behind_initialize_find_the_handshake_made() -> None:
    async with raw_client(serve()) as raw:
        params: Json = {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}}, "clientInfo": {"name": "c"}}
        await raw.send(raw.request("initialize", params, id=1))
        await raw.send(raw.request("desk/who", id=2))
        answers = [await raw.receive(), await raw.receive()]

    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"] == {"version": "2025-06-18", "info": {"name": "c"}, "capabilities": {"roots": {}}}


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 1, "capabilities": {}}, {"protocolVersion": LEGACY}])
async def test_a_wrong_initialize_is_refused_and_can_be_said_again(params: Json) -> None:
    async with raw_client(serve()) as raw:
        assert code_of(await raw.ask(raw.request("initialize", params))) == -32602
        assert "result" in await raw.shake_hands(LEGACY)


async def test_notifications_before_the_first_request_are_taken_and_settle_nothing() -> None:
    async with raw_client(serve()) as raw:
        await raw.notify("notifications/initialized")
        await raw.notify("notifications/cancelled", requestId=4)
        await raw.notify("notifications/unknown/one")
        raw.version = MODERN
        assert "result" in await raw.ask(raw.request("server/discover"))


# not a message


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        (b"no json", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"desk/give","params":{"a":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"desk/give","params":{"a":1e999}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"desk/give","params":{"a":-Infinity}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}', -32700, None),
        (b'{"a":' * 100_000, -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"1", -32600, None),
        (b"null", -32600, None),
        (b'"text"', -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"2.0"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":3}', -32600, 3),
        (b'{"jsonrpc":"1.0","id":3,"method":"ping"}', -32600, 3),
        (b'{"id":"k","method":"ping"}', -32600, "k"),
        (b'{"jsonrpc":2.0,"id":3,"method":"ping"}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":3,"method":7}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":"x"}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","method":1,"params":"bar"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":' + b'{"a":' * 205 + b"1" + b"}" * 206, -32600, 9),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
    ],
)
async def test_what_is_no_message_is_refused_with_its_code_and_the_next_is_served(
    text: bytes, code: int, key: Any
) -> None:
    async with raw_client(serve(), LEGACY) as raw:
        await raw.send(text)
        answer = await raw.receive()
        assert (await raw.ask(raw.request("ping")))["result"] == {}

    assert (code_of(answer), answer["id"], answer["jsonrpc"]) == (code, key, "2.0")


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":77,"result":{}}',
        b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"1.0","id":77,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":true}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    ],
)
async def test_answers_to_nothing_and_notifications_are_never_answered(text: bytes) -> None:
    async with raw_client(serve(), LEGACY) as raw:
        await raw.send(text)
        await raw.send(raw.request("ping", id="next"))
        assert (await raw.receive())["id"] == "next"


async def test_brackets_in_strings_and_lists_side_by_side_are_not_depth() -> None:
    async with raw_client(serve(), LEGACY) as raw:
        params: Json = {"text": "[{" * 500 + '\\"', "rows": [[[]]] * 500}
        assert "result" in await raw.ask(raw.request("desk/give", params))


async def test_a_byte_order_mark_and_white_space_around_a_message_are_passed_over() -> None:
    async with raw_client(serve(), LEGACY) as raw:
        await raw.send(b'\xef\xbb\xbf  {"jsonrpc":"2.0","id":1,"method":"ping"}\t\r')
        assert (await raw.receive())["id"] == 1


# ids


@EACH_ERA
@pytest.mark.parametrize("key", [0, -1, 2**53, 2**80, "", "1", "\N{SNOWMAN}" * 50, "\x00"])
async def test_ids_come_back_as_they_were_sent(version: str, key: Any) -> None:
    async with raw_client(serve(), version) as raw:
        await raw.send(raw.request("desk/who", id=key))
        answer = await raw.receive()

    assert answer["id"] == key
    assert type(answer["id"]) is type(key)


@EACH_ERA
async def test_an_id_that_is_in_use_is_refused_and_free_again_after_the_answer(version: str) -> None:
    desk = Desk()
    async with raw_client(serve(desk), version) as raw:
        await raw.send(raw.request("desk/wait", id=1))
        await desk.started.wait()
        await raw.send(raw.request("desk/who", id=1))
        assert code_of(await raw.receive()) == -32600
        assert "result" in await raw.ask(raw.request("desk/who", id="1"))
        desk.let_go.set()
        first = await raw.receive()
        assert "result" in await raw.ask(raw.request("desk/who", id=1))

    assert first["result"]["waited"] is True


# concurrency, cancellation, the end


@EACH_ERA
async def test_a_slow_request_does_not_hold_a_quick_one(version: str) -> None:
    desk = Desk()
    async with raw_client(serve(desk), version) as raw:
        await raw.send(raw.request("desk/wait", id="slow"))
        assert "result" in await raw.ask(raw.request("desk/who"))
        desk.let_go.set()
        assert (await raw.receive())["id"] == "slow"


@EACH_ERA
@pytest.mark.parametrize("method", ["desk/wait", "desk/stubborn"])
async def test_a_cancelled_request_stops_and_is_never_answered(version: str, method: str) -> None:
    desk = Desk()
    async with raw_client(serve(desk), version) as raw:
        await raw.send(raw.request(method, id=5))
        await desk.started.wait()
        await raw.notify("notifications/cancelled", requestId="5", reason="another id")
        await raw.notify("notifications/cancelled", requestId=5, reason="enough")
        await desk.cancelled.wait()
        await raw.send(raw.request("desk/who", id=6))
        assert (await raw.receive())["id"] == 6


async def test_a_request_that_is_cancelled_before_it_began_is_not_answered() -> None:
    desk = Desk()
    async with raw_client(serve(desk), LEGACY) as raw:
        await raw.send(raw.request("desk/wait", id=5))
        await raw.notify("notifications/cancelled", requestId=5)
        await raw.send(raw.request("desk/who", id=6))
        assert (await raw.receive())["id"] == 6
    assert desk.running == 0


class Kept:
    """An outlet that keeps what is written, and has room while `open` is set."""

    def __init__(self) -> None:
        self.written: list[Json] = []
        self.open = anyio.Event()

    def write(self, message: bytes) -> None:
        self.written.append(json.loads(message))

    async def room(self) -> None:
        await self.open.wait()


async def nothing() -> bytes:
    return b""


async def test_more_requests_at_once_than_the_bound_are_refused() -> None:
    desk = Desk()
    kept = Kept()
    kept.open.set()
    endpoint = Endpoint({"name": "desk", "version": "1"}, features=[desk])
    async with Conversation(endpoint, kept, max_requests=3) as conversation:
        raw = Raw(conversation.take, nothing)
        raw.version = MODERN
        for number in range(5):
            await raw.send(raw.request("desk/wait", id=number))
        assert [(one["id"], one["error"]["code"]) for one in kept.written] == [(3, -32603), (4, -32603)]
        assert kept.written[0]["error"]["data"] == {"retryable": True}
        desk.let_go.set()
        await conversation.drain()

    assert [one["id"] for one in kept.written[2:]] == [0, 1, 2]


async def test_pings_are_answered_however_many_requests_run() -> None:
    desk = Desk()
    kept = Kept()
    kept.open.set()
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    endpoint = Endpoint({"name": "desk", "version": "1"}, features=[desk])
    async with Conversation(endpoint, kept, max_requests=1) as conversation:
        raw = Raw(conversation.take, nothing)
        await raw.send(raw.request("initialize", hello, id="hello"))
        await raw.send(raw.request("desk/wait", id="waits"))
        for number in range(3):
            await raw.send(raw.request("ping", id=number))
        await anyio.wait_all_tasks_blocked()
        assert [(one["id"], one["result"]) for one in kept.written[1:]] == [(0, {}), (1, {}), (2, {})]
        desk.let_go.set()
        await conversation.drain()


async def test_a_client_of_ours_reads_that_a_refusal_is_worth_another_try() -> None:
    server = MemoryServer()

    @server.tool
    def work() -> str:
        return "done"

    server.fail_next("tools/call", "too many requests at once", code=-32603, data={"retryable": True})
    async with connect_mcp(server) as connection:
        error = (await (await connection.list_tools())["work"].execute({})).require_error()

    assert (error.code, error.retryable) == (-32603, True)
    assert len(server.calls) == 1


@pytest.mark.parametrize("text", [b"no json", b'{"jsonrpc":"2.0","id":1,"method":"ping"}'])
async def test_nothing_more_is_read_of_a_client_that_does_not_read(text: bytes) -> None:
    kept = Kept()
    taken = anyio.Event()
    conversation = Conversation(Endpoint({"name": "desk", "version": "1"}), kept)
    async with conversation, anyio.create_task_group() as tasks:

        async def read() -> None:
            await conversation.take(text)
            taken.set()

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        assert len(kept.written) == 1
        assert not taken.is_set()
        kept.open.set()
        await taken.wait()


async def test_a_question_to_a_client_that_is_gone_fails_and_nothing_more_is_written() -> None:
    kept = Kept()
    kept.open.set()
    refused: list[str] = []
    async with anyio.create_task_group() as tasks:
        conversation = Conversation(Endpoint({"name": "desk", "version": "1"}), kept)

        async def ask() -> None:
            try:
                await conversation.ask("roots/list", {})
            except RequestError as exc:
                refused.append(exc.message)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        conversation.end()
        await ask()
        await conversation.notify("notifications/message", {})

    assert refused == ["the conversation ended before the client answered"] * 2
    assert [one["method"] for one in kept.written] == ["roots/list"]


async def test_leaving_cancels_what_runs() -> None:
    desk = Desk()
    async with raw_client(serve(desk), MODERN) as raw:
        await raw.send(raw.request("desk/wait"))
        await desk.started.wait()
    assert desk.cancelled.is_set()


# results


@EACH_ERA
@pytest.mark.parametrize("result", [{"a": float("nan")}, {"a": [float("inf")]}, {"a": object()}])
async def test_a_result_that_is_no_json_is_an_internal_error_without_details(
    version: str, result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    desk.result = result
    async with raw_client(serve(desk), version) as raw:
        answer = await raw.ask(raw.request("desk/give"))

    assert answer["error"] == {"code": -32603, "message": "Internal error"}
    assert "desk/give" in caplog.text


@EACH_ERA
@pytest.mark.parametrize(("data", "sent_data"), [([1], [1]), (object(), None), (None, None)])
async def test_a_refusal_goes_out_even_if_its_data_is_not_json(version: str, data: Any, sent_data: Any) -> None:
    desk = Desk()
    desk.result = data
    async with raw_client(serve(desk), version) as raw:
        answer = await raw.ask(raw.request("desk/refuse"))

    assert answer["error"] == {"code": -1, "message": "refused"} | ({} if sent_data is None else {"data": sent_data})


async def test_a_result_that_is_too_deep_to_write_is_an_internal_error() -> None:
    deep: Json = {}
    for _ in range(200_000):
        deep = {"a": deep}
    desk = Desk()
    desk.result = deep
    async with raw_client(serve(desk), LEGACY) as raw:
        assert code_of(await raw.ask(raw.request("desk/give"))) == -32603


async def test_half_a_surrogate_pair_in_a_result_is_replaced_and_great_integers_are_kept() -> None:
    desk = Desk()
    desk.result = {"name": "a\udcffb", "number": 2**80, "null": None}
    async with raw_client(serve(desk), LEGACY) as raw:
        answer = await raw.ask(raw.request("desk/give"))

    assert answer["result"] == {"name": "a?b", "number": 2**80, "null": None}


# batches


def ping(key: int) -> Json:
    return {"jsonrpc": "2.0", "id": key, "method": "ping"}


async def test_a_batch_of_2025_03_26_is_answered_by_one_batch() -> None:
    async with raw_client(serve(), "2025-03-26") as raw:
        note = {"jsonrpc": "2.0", "method": "notifications/x"}
        stray: Json = {"jsonrpc": "2.0", "id": 7, "result": {}}
        await raw.send([ping(1), note, {"jsonrpc": "2.0"}, stray, raw.request("desk/none", id=2), 5])
        answers = await raw.receive()

    found = sorted((str(answer["id"]), answer.get("error", {}).get("code")) for answer in answers)
    assert found == [("1", None), ("2", -32601), ("None", -32600), ("None", -32600)]


async def test_a_batch_waits_for_its_slowest_and_leaves_out_what_was_cancelled() -> None:
    desk = Desk()
    async with raw_client(serve(desk), "2025-03-26") as raw:
        await raw.send([ping(1), raw.request("desk/wait", id=2), raw.request("desk/stubborn", id=3)])
        assert "result" in await raw.ask(ping(4))
        await raw.notify("notifications/cancelled", requestId=3)
        desk.let_go.set()
        answers = await raw.receive()

    assert sorted(answer["id"] for answer in answers) == [1, 2]


@pytest.mark.parametrize(("inner", "code"), [(b"[" * 205 + b"]" * 205, -32600), (b"[" * 5000, -32700), (b"", -32600)])
async def test_a_batch_that_is_too_deep_broken_or_empty_is_refused_as_one(inner: bytes, code: int) -> None:
    async with raw_client(serve(), "2025-03-26") as raw:
        await raw.send(b"[" + inner + b"]")
        answer = await raw.receive()
        assert "result" in await raw.ask(ping(1))

    assert (code_of(answer), answer["id"]) == (code, None)


async def test_a_batch_of_notifications_is_not_answered_and_initialize_is_no_part_of_one() -> None:
    async with raw_client(serve(), "2025-03-26") as raw:
        await raw.send([{"jsonrpc": "2.0", "method": "notifications/x"}])
        await raw.send([raw.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}}, id=1)])
        answers = await raw.receive()

    assert [code_of(answer) for answer in answers] == [-32600]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", LEGACY, MODERN, None])
async def test_batches_of_other_revisions_are_refused_as_one(version: str | None) -> None:
    async with raw_client(serve(), version) as raw:
        await raw.send([ping(1), ping(2)])
        answer = await raw.receive()

    assert (code_of(answer), answer["id"]) == (-32600, None)


# questions to the client


async def test_a_question_to_the_client_is_answered_by_its_id() -> None:
    async with raw_client(serve(), LEGACY) as raw:
        await raw.send(raw.request("desk/ask", id=1))
        question = await raw.receive()
        assert (question["method"], question["params"]) == ("roots/list", {})
        await raw.send({"jsonrpc": "2.0", "id": question["id"] + 1, "result": {"no": "question"}})
        await raw.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
        await raw.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": ["twice"]}})
        answer = await raw.receive()

    assert answer["result"] == {"sent_data": {"roots": []}}


@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        ({"error": {"code": -1, "message": "no", "data": [1]}}, -1, "no"),
        ({"error": "text"}, -32603, "the client refused"),
        ({"result": 5}, -32603, "the client's answer is not a result"),
        ({"result": None}, -32603, "the client's answer is not a result"),
    ],
)
async def test_a_client_that_refuses_fails_the_question(reply: Json, code: int, message: str) -> None:
    async with raw_client(serve(), LEGACY) as raw:
        await raw.send(raw.request("desk/ask", id=1))
        question = await raw.receive()
        await raw.send({"jsonrpc": "2.0", "id": question["id"], **reply})
        answer = await raw.receive()

    assert (answer["error"]["code"], answer["error"]["message"]) == (code, message)


async def test_a_question_whose_request_is_cancelled_is_cancelled_at_the_client_too() -> None:
    async with raw_client(serve(), LEGACY) as raw:
        await raw.send(raw.request("desk/ask", id=1))
        question = await raw.receive()
        await raw.notify("notifications/cancelled", requestId=1)
        sent_data = await raw.receive()

    assert (sent_data["method"], sent_data["params"]["requestId"]) == ("notifications/cancelled", question["id"])


async def test_a_stateless_client_cannot_be_asked() -> None:
    async with raw_client(serve(), MODERN) as raw:
        assert code_of(await raw.ask(raw.request("desk/ask"))) == -32603


# changes


async def test_a_handshake_client_hears_of_changes_after_it_said_initialized_and_not_before() -> None:
    server = create_mcp_server(name="desk", version="1")
    async with raw_client(server) as early, raw_client(server, LEGACY) as raw:
        params: Json = {"protocolVersion": LEGACY, "capabilities": {}}
        assert "result" in await early.ask(early.request("initialize", params))
        assert "result" in await raw.ask(raw.request("ping"))  # messages before it are handled by now
        server.tool(_nothing)
        assert (await raw.receive())["method"] == "notifications/tools/list_changed"
        await early.send(early.request("ping", id="next"))
        assert (await early.receive())["id"] == "next"


def _nothing() -> None:
    """Do nothing."""


# in process


async def test_a_server_is_entered_by_many_tasks_and_more_than_once_by_one() -> None:
    server = serve()

    async def visit() -> None:
        async with raw_client(server, MODERN) as one, raw_client(server, LEGACY) as two:
            assert (await one.ask(one.request("desk/who")))["result"]["version"] == MODERN
            assert (await two.ask(two.request("desk/who")))["result"]["version"] == LEGACY

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(visit)


async def test_the_client_end_says_when_the_server_is_gone() -> None:
    async with serve() as channel:
        pass
    with pytest.raises(BrokenPipeError):
        await channel.send(b"{}")
    with pytest.raises(EOFError):
        await channel.receive()
