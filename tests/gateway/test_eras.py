"""An upstream of both eras is spoken to in the era of each caller; only one of a single era is translated."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conformance.server_process import serving
from tests.gateway.relayed import CALLERS, EACH_CALLER, MODERN, Json, calling, gateway_to
from tests.serve.talking import Talk, talking
from toolweave import Callbacks
from toolweave.errors import RequestError
from toolweave.protocol.meta import PROTOCOL_VERSION
from toolweave.testing import MemoryServer

TEST_SECONDS = 60

HANDSHAKES = [one for one in CALLERS if one != MODERN]
SCRIPT = Path(__file__).with_name("era_server.py")
FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}}
ASKS_FORM: Json = {
    "resultType": "input_required",
    "inputRequests": {"q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM}}},
    "requestState": "s",
}


@contextmanager
def of_both_eras(carrier: str, log: Path) -> Generator[Json]:
    """Yield the config entry of a server of both eras on the official SDK."""
    if carrier == "stdio":
        yield {"command": sys.executable, "args": [str(SCRIPT)], "tool_prefix": ""}
        return
    with serving(log, command=(sys.executable, str(SCRIPT))) as url:
        yield {"type": "http", "url": url, "tool_prefix": ""}


def memory() -> MemoryServer:
    server = MemoryServer()

    @server.tool
    def f(text: str = "") -> str:
        return text

    @server.prompt
    def greet(name: str = "") -> str:
        return name

    server.resource("res://a", "one")
    return server


def before(server: MemoryServer, **settings: Any) -> Any:
    return gateway_to({"server": server, "tool_prefix": "", **settings})


def revision_of(server: MemoryServer, method: str) -> str:
    """Return the revision that the last request of a method names in its envelope; "" for a request of a session."""
    params = next(one.params for one in reversed(server.requests) if one.method == method)
    return params.get("_meta", {}).get(PROTOCOL_VERSION, "")


REQUESTS: dict[str, Json] = {
    "tools/call": {"name": "f"},
    "prompts/get": {"name": "greet"},
    "resources/read": {"uri": "res://a"},
}


@EACH_CALLER
@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("able", [{}, {"roots": {}, "elicitation": {}}], ids=["able to nothing", "able"])
async def test_a_request_reaches_an_upstream_of_both_eras_in_that_of_its_caller(
    version: str, method: str, able: Json
) -> None:
    server = memory()
    async with talking(before(server), version, able) as talk:
        await talk.ask(method, REQUESTS[method])

    assert revision_of(server, method) == (MODERN if version == MODERN else "")


@pytest.mark.parametrize("method", REQUESTS)
async def test_a_revision_that_the_config_names_is_spoken_whatever_the_callers_era(method: str) -> None:
    server = memory()
    async with talking(before(server, protocol=MODERN), "2025-11-25", {}) as talk:
        await talk.ask(method, REQUESTS[method])

    assert revision_of(server, method) == MODERN


async def test_callers_of_both_eras_use_one_upstream_at_the_same_time() -> None:
    server = memory()
    gateway = before(server)
    async with gateway.running(), talking(gateway, "2025-06-18", {}) as old, talking(gateway, MODERN, {}) as new:
        for talk, revision in [(old, ""), (new, MODERN), (old, ""), (new, MODERN)]:
            await talk.ask("tools/call", {"name": "f"})
            assert revision_of(server, "tools/call") == revision

    assert [one.method for one in server.requests].count("initialize") == 1


@pytest.mark.parametrize("version", HANDSHAKES)
async def test_a_subscription_is_made_in_the_era_of_its_caller(version: str) -> None:
    server = memory()
    async with talking(before(server), version, {}) as talk:
        await talk.ask("resources/subscribe", {"uri": "res://a"})
        server.resource("res://a", "two")
        assert await talk.received("notifications/resources/updated") == [{"uri": "res://a"}]

    assert [one.params["uri"] for one in server.requests if one.method == "resources/subscribe"] == ["res://a"]


@pytest.mark.slow
@EACH_CALLER
@pytest.mark.parametrize("carrier", ["stdio", "http"])
async def test_a_tool_that_works_in_one_era_alone_works_for_the_callers_of_it(
    version: str, carrier: str, tmp_path: Path
) -> None:
    callbacks = Callbacks(elicitation=lambda request: {"name": "Ann"})
    with of_both_eras(carrier, tmp_path / "log") as config:
        async with calling(gateway_to(config), version, callbacks=callbacks, carrier="http") as caller:
            era = (await caller.call_tool("era")).text
            asked = await caller.execute("ask")

    assert era == (MODERN if version == MODERN else "2025-11-25")
    assert asked.is_error == (version == MODERN)
    assert version == MODERN or "Ann" in asked.text


@pytest.mark.slow
@pytest.mark.parametrize("able", [Callbacks(), Callbacks(roots=[])], ids=["able to nothing", "able"])
async def test_a_change_that_is_announced_in_one_era_is_seen_by_callers_of_the_other(
    able: Callbacks, tmp_path: Path
) -> None:
    changed = anyio.Event()
    with of_both_eras("http", tmp_path / "log") as config:
        gateway = gateway_to(config)
        async with (
            gateway.running(),
            calling(gateway, MODERN, callbacks=Callbacks()) as new,
            calling(gateway, "2025-11-25", callbacks=able) as old,
        ):
            new.on("tools_changed", lambda change: changed.set() if "grown" in change.added else None)
            assert "grown" not in (await new.list_tools()).names
            await old.call_tool("grow")
            await changed.wait()
            assert (await new.call_tool("grown")).text == "grown"


# questions that a caller does not take


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_caller_that_shows_pages_only_is_not_declared_to_a_revision_that_knows_forms_only(version: str) -> None:
    server = memory()
    able: Json = {"elicitation": {"url": {}}, "roots": {}}
    async with talking(before(server, protocol="2025-06-18"), version, able) as talk:
        await talk.ask("tools/call", {"name": "f"})

    declared = [one.params["capabilities"] for one in server.requests if one.method == "initialize"]
    assert declared[-1] == {"roots": {}}


@pytest.mark.parametrize(
    ("version", "question"),
    [(version, question) for version in CALLERS for question in ("form", "page", "tools")][1:],
)  # but the first pair: callers of 2025-06-18 that declare elicitation take forms
async def test_a_question_that_a_caller_did_not_declare_does_not_reach_it(version: str, question: str) -> None:
    server = memory()
    able: Json = {"elicitation": {"form": {}} if question == "page" else {"url": {}}, "sampling": {}}
    asked: Json = {
        "form": ASKS_FORM["inputRequests"]["q"],
        "page": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "?", "url": "https://x.example", "elicitationId": "1"},
        },
        "tools": {
            "method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 1, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
        },
    }
    server.answer("tools/call", {**ASKS_FORM, "inputRequests": {"q": asked[question]}})
    async with talking(before(server, protocol=MODERN), version, able) as talk:
        outcome = await outcome_of(talk, {"name": "f"})

    assert not [one for one in talk.notifications if "id" in one]
    assert "input_required" not in str(outcome)
    assert "isError" in outcome or outcome["code"] == -32021


ASKS_ANYWAY = """
import json, sys

form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
tools = [{"name": "f", "inputSchema": {"type": "object"}}]
calls = []
for line in sys.stdin:
    message = json.loads(line)
    method, key = message.get("method"), message.get("id")
    reply = {"error": {"code": -32601, "message": "Method not found"}}
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
        reply = {"result": {"protocolVersion": "2025-06-18", **about}}
    elif method == "tools/list":
        reply = {"result": {"tools": tools}}
    elif method == "tools/call":
        calls.append(key)
        key, reply = "q", {"method": "elicitation/create", "params": form}
    elif method is None:
        text = "error" if "error" in message else "asked"
        key, reply = calls.pop(), {"result": {"content": [{"type": "text", "text": text}]}}
    if key is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": key, **reply}), flush=True)
"""


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("able", [{"elicitation": {"url": {}}}, {}], ids=["pages only", "nothing"])
async def test_a_form_of_an_old_server_that_asks_anyway_does_not_reach_a_caller_that_takes_none(
    version: str, able: Json, tmp_path: Path
) -> None:
    program = tmp_path / "old.py"
    program.write_text(ASKS_ANYWAY)
    entry: Json = {"command": sys.executable, "args": [str(program)], "tool_prefix": ""}
    async with talking(gateway_to(entry), version, {**able, "roots": {}}) as talk:
        outcome = await outcome_of(talk, {"name": "f"})

    assert not [one for one in talk.notifications if "id" in one]
    assert outcome["content"][0]["text"] == "error"


async def outcome_of(talk: Talk, call: Json) -> Json:
    """Return the result of a call, or its error as an object."""
    try:
        return await talk.ask("tools/call", call)
    except RequestError as error:
        return {"code": error.code, "message": error.message, "data": error.data}


# announcements


@EACH_CALLER
@pytest.mark.parametrize(
    ("method", "listed"),
    [
        ("notifications/tools/list_changed", "toolsListChanged"),
        ("notifications/prompts/list_changed", "promptsListChanged"),
        ("notifications/resources/list_changed", "resourcesListChanged"),
    ],
)
async def test_a_gateway_that_stands_in_for_one_upstream_passes_its_announcements_on(
    version: str, method: str, listed: str
) -> None:
    server = memory()
    async with talking(before(server), version, {}) as talk:
        if version == MODERN:
            await talk.send("subscriptions/listen", {"notifications": {listed: True}})
            await talk.received("notifications/subscriptions/acknowledged")
        server.notify(method)
        assert len(await talk.received(method)) == 1


# changes of a caller


ROOTS_SERVER = """
import json, sys
noted = []
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        noted.append(method)
        continue
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "r", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "noted", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": json.dumps(noted)}]},
        "ping": {},
    }
    if method in results:
        answer = {"result": results[method]}
    else:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", HANDSHAKES)
@pytest.mark.parametrize("carrier", ["inprocess", "http"])
async def test_changed_roots_of_a_caller_are_announced_to_its_own_connection(
    version: str, carrier: str, tmp_path: Path
) -> None:
    (tmp_path / "server.py").write_text(ROOTS_SERVER, encoding="utf-8")
    config: Json = {"command": sys.executable, "args": [str(tmp_path / "server.py")], "tool_prefix": ""}
    gateway = gateway_to(config)
    async with (
        gateway.running(),
        calling(gateway, version, callbacks=Callbacks(roots=[]), carrier=carrier) as caller,
        calling(gateway, version, callbacks=Callbacks(roots=[]), carrier=carrier) as another,
    ):
        await caller.call_tool("noted")
        await another.call_tool("noted")
        await caller.set_roots(["file:///work"])
        while "notifications/roots/list_changed" not in (await caller.call_tool("noted")).text:
            await anyio.sleep(0.02)
        others = (await another.call_tool("noted")).text

    assert "roots" not in others


@pytest.mark.slow
@pytest.mark.parametrize("able", [{}, {"elicitation": {"url": {}}}], ids=["able to nothing", "able"])
async def test_a_caller_that_was_led_to_a_page_by_an_error_is_notified_of_the_visit_and_no_other_caller_is(
    able: Json, tmp_path: Path
) -> None:
    complete = "notifications/elicitation/complete"
    with of_both_eras("http", tmp_path / "log") as config:
        gateway = gateway_to(config)
        async with (
            gateway.running(),
            talking(gateway, "2025-11-25", able) as led,
            talking(gateway, "2025-11-25", able) as another,
        ):
            with pytest.raises(RequestError) as refused:
                await led.ask("tools/call", {"name": "page"})
            await another.ask("tools/call", {"name": "visited"})
            told = await led.received(complete)
            await another.ask("ping")

    assert refused.value.code == -32042
    assert told == [{"elicitationId": "the-page"}]
    assert another.of(complete) == []
