"""Questions of a server that the callers of its tools answer: each call has its own, one after the other if need be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from tests.connect.targets import MODERN, ChannelServer, Json, connected, eventually, initialized
from toolweave import Callbacks, CallContext, McpConnection, ToolCall
from toolweave.connect import ElicitationRequest, ask_caller
from toolweave.tools import ElicitationResult

FORM: Json = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
TOOLS: Json = {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}


class Caller:
    """The caller of one tool, who says who it is once it may.

    Attributes:
        may: Set when it answers.
    """

    def __init__(self, name: str, asked_by: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.asked_by = asked_by
        self.may = anyio.Event()

    def begin(self) -> Mapping[str, Any] | None:
        """Return the result that asked in an earlier process, if it did."""
        return self.asked_by

    def restart(self) -> bool:
        """Refuse to make the call anew."""
        return False

    async def answer(
        self, request: ElicitationRequest, *, running: bool, asked_by: Mapping[str, Any] | None
    ) -> ElicitationResult:
        """Say the name."""
        await self.may.wait()
        return ElicitationResult.accept({"who": self.name})


async def call(connection: McpConnection, caller: Caller, texts: dict[str, str]) -> None:
    """Call the tool that asks; note its text under the name of the caller."""
    made = ToolCall(name="ask", arguments={"caller": caller.name})
    texts[caller.name] = (await connection.call(made, CallContext(questions=caller))).text


def result(text: object) -> Json:
    return {"result": {"content": [{"type": "text", "text": str(text)}]}}


async def test_calls_of_a_server_whose_questions_name_no_call_are_made_one_after_the_other() -> None:
    calls: list[Json] = []

    def script(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            calls.append(message)
            return None
        return {"result": TOOLS}

    server = ChannelServer(initialized(script))

    def ask(identity: str) -> None:
        server.send({"jsonrpc": "2.0", "id": identity, "method": "elicitation/create", "params": FORM})

    def reply(identity: str) -> Json | None:
        return next((one for one in server.received if one.get("id") == identity and "method" not in one), None)

    texts: dict[str, str] = {}
    async with connected(server, callbacks=Callbacks(elicitation=ask_caller)) as connection:
        await connection.list_tools()
        async with anyio.create_task_group() as tasks:
            for name in ("ann", "bob"):
                caller = Caller(name)
                caller.may.set()
                tasks.start_soon(call, connection, caller, texts)
            for number in range(2):
                await eventually(lambda number=number: len(calls) > number)
                await anyio.wait_all_tasks_blocked()
                assert len(calls) == number + 1
                ask(f"q{number}")
                await eventually(lambda number=number: reply(f"q{number}"))
                said = (reply(f"q{number}") or {})["result"]["content"]["who"]
                server.send({"jsonrpc": "2.0", "id": calls[number]["id"], **result(said)})
        ask("later")  # of no call
        await eventually(lambda: reply("later"))
        outside = reply("later") or {}

    assert texts == {"ann": "ann", "bob": "bob"}
    assert outside["result"] == {"action": "cancel"}


def modern_script(calls: list[Json]) -> Any:
    def script(message: Json) -> Json | None:
        params: Json = message.get("params") or {}
        match message["method"]:
            case "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
            case "tools/call" if "inputResponses" in params:
                calls.append(params)
                return result(params["inputResponses"]["q"]["content"]["who"])
            case "tools/call":
                calls.append(params)
                asked = {"q": {"method": "elicitation/create", "params": FORM}}
                return {"result": {"resultType": "input_required", "inputRequests": asked, "requestState": "begun"}}
            case _:
                return {"result": TOOLS}

    return script


async def test_a_call_of_a_newer_server_waits_for_no_other_callers_answer() -> None:
    server = ChannelServer(modern_script([]))
    texts: dict[str, str] = {}
    slow, quick = Caller("slow"), Caller("quick")
    quick.may.set()
    async with (
        connected(server, callbacks=Callbacks(elicitation=ask_caller)) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(call, connection, slow, texts)
        await eventually(lambda: "tools/call" in server.methods())
        await call(connection, quick, texts)
        assert texts == {"quick": "quick"}
        slow.may.set()
    assert texts == {"quick": "quick", "slow": "slow"}


async def test_a_call_that_is_resumed_goes_on_where_it_asked_also_if_the_connection_has_a_callback_by_now() -> None:
    def elicitation(request: ElicitationRequest) -> Json:
        raise AssertionError("the caller answers what was asked before")

    calls: list[Json] = []
    server = ChannelServer(modern_script(calls))
    asked = {"q": {"method": "elicitation/create", "params": FORM}}
    caller = Caller("ann", {"resultType": "input_required", "inputRequests": asked, "requestState": "begun before"})
    caller.may.set()
    texts: dict[str, str] = {}
    async with connected(server, callbacks=Callbacks(elicitation=elicitation)) as connection:
        await call(connection, caller, texts)

    assert texts == {"ann": "ann"}
    assert [one.get("requestState") for one in calls] == ["begun before"]
