"""One server behind every transport in every protocol revision: what works over one works over all."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.connect.targets import KINDS, MATRIX, MODERN, VERSIONS, Json, connected, eventually, serving, state_of
from tests.servers.fixtures import echo_command
from tests.servers.raw import raw_stdio
from toolweave import Progress, ProtocolError, ToolsChanged
from toolweave.connect import ConnectionState
from toolweave.tools import EmbeddedResource

pytestmark = pytest.mark.slow
everywhere = pytest.mark.parametrize(("kind", "version"), MATRIX)
WITHOUT_PROGRESS = {"http-json"}
"""A JSON answer has no room for notifications before it."""


def listed_on_the_wire(version: str) -> list[Json]:
    with raw_stdio(echo_command("--version", version), modern=version == MODERN) as raw:
        if version != MODERN:
            raw.initialize(version)
        return raw.tool_list()


@everywhere
@pytest.mark.requirement("R9", "R10", "R11", "R13", "R15", "R16", "R28", "R48", "D1", "D6")
async def test_a_server_shakes_hands_lists_its_tools_and_is_called(kind: str, version: str) -> None:
    async with connected(serving(kind, version)) as connection:
        assert connection.state is ConnectionState.READY
        assert connection.protocol_version == version
        assert connection.server_info["name"] == "echo"
        assert "tools" in connection.capabilities
        assert connection.instructions == "Use echo to test."

        tools = await connection.list_tools()
        said = await tools["echo"].execute({"text": "grüße\n\u2028 1"})
        added = await connection.call_tool("add", {"a": 1, "b": 2.5})
        failed = await connection.call_tool("fail", {"message": "no such row"})
        with pytest.raises(ProtocolError, match="refused on purpose") as refused:
            await connection.call_tool("rpc_error", {"code": -32050})

    assert [dict(tool.raw) for tool in tools] == listed_on_the_wire(version)
    assert (said.text, said.is_error) == ("grüße\n\u2028 1", False)
    assert json.loads(added.text) == {"sum": 3.5}
    assert added.structured_content == ({"sum": 3.5} if version >= "2025-06-18" else None)
    assert (failed.text, failed.is_error) == ("no such row", True)
    assert refused.value.code == -32050
    assert refused.value.data == {"why": "on purpose"}


@everywhere
async def test_progress_arrives_in_order_and_before_the_answer(kind: str, version: str) -> None:
    seen: list[Progress | str] = []

    async def on_progress(progress: Progress) -> None:
        seen.append(progress)

    async with connected(serving(kind, version)) as connection:
        result = await connection.call_tool("slow", {"seconds": 0.02, "steps": 3}, on_progress=on_progress)
        seen.append(result.text)
        await connection.call_tool("echo", {"text": "afterwards"})

    reported = [
        Progress(progress=float(step), total=3.0, message=f"step {step} of 3")
        for step in (range(1, 4) if kind not in WITHOUT_PROGRESS else ())
    ]
    assert seen == [*reported, "done in 3 steps"]


@everywhere
async def test_a_cancelled_call_is_cancelled_on_the_server_and_the_connection_goes_on(kind: str, version: str) -> None:
    async with connected(serving(kind, version)) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "hang")

            async def started() -> bool:
                return "hang" in (await state_of(connection))["calls"]

            await eventually(started)
            tasks.cancel_scope.cancel()

        async def cancelled() -> bool:
            return len((await state_of(connection))["cancelled"]) == 1

        await eventually(cancelled)
        assert connection.state is ConnectionState.READY
        assert (await connection.call_tool("echo", {"text": "still here"})).text == "still here"
        assert connection.restarts == 0


@everywhere
async def test_resources_prompts_completion_and_ping_work(kind: str, version: str) -> None:
    async with connected(serving(kind, version)) as connection:
        await connection.ping()
        resources = await connection.list_resources()
        (text,) = await connection.read_resource("test://text")
        (blob,) = await connection.read_resource("test://blob")
        (template,) = await connection.list_resource_templates()
        prompts = await connection.list_prompts()
        greeting = await connection.get_prompt("greet", {"name": "Ada"})
        names = await connection.complete({"type": "ref/prompt", "name": "greet"}, "name", "al")
        with pytest.raises(ProtocolError) as missing:
            await connection.read_resource("test://nothing")

    assert [(resource.uri, resource.size) for resource in resources] == [
        ("test://text", 21),
        ("test://blob", None),
        ("test://json", None),
    ]
    assert text == EmbeddedResource(uri="test://text", mime_type="text/plain", text="hello from a resource")
    assert blob.decode().startswith(b"\x89PNG")
    assert (template.uri_template, template.name) == ("test://item/{id}", "item")
    assert [(prompt.name, [a.required for a in prompt.arguments]) for prompt in prompts] == [
        ("greet", [True, False]),
        ("plain", []),
    ]
    assert (greeting.description, greeting.messages[0].role) == ("Greet somebody", "user")
    assert greeting.messages[0].content.render() == "Please greet Ada."
    assert (names.values, names.total, names.has_more) == (("alice", "albert"), 2, False)
    assert missing.value.code == (-32602 if version == MODERN else -32002)


@everywhere
@pytest.mark.requirement("C8", "D28")
async def test_a_tool_that_comes_or_goes_later_is_seen(kind: str, version: str) -> None:
    changes: list[ToolsChanged] = []
    async with connected(serving(kind, version)) as connection:
        connection.on("tools_changed", changes.append)
        before = connection.snapshot()

        async def heard() -> bool:
            return version != MODERN or (await state_of(connection))["listening"] == 1

        await eventually(heard)
        await connection.call_tool("grow")
        await eventually(lambda: changes)
        grown = connection.snapshot()
        await connection.call_tool("shrink", {"name": "fail"})
        await eventually(lambda: len(changes) == 2)

        assert (changes[0].added, changes[0].removed) == (("grown_1",), ())
        assert (changes[1].added, changes[1].removed) == ((), ("fail",))
        assert "grown_1" not in before.by_name
        assert "fail" in grown.by_name
        assert "fail" not in connection.snapshot().by_name
        assert (await connection.call_tool("grown_1", {"text": "new"})).text == '{"text": "new"}'


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITHOUT_PROGRESS])
async def test_a_progress_callback_that_raises_costs_the_call_nothing(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def on_progress(progress: Progress) -> None:
        raise ValueError("no room on the screen")

    async with connected(serving(kind, "2025-11-25")) as connection:
        result = await connection.call_tool("slow", {"seconds": 0.02, "steps": 2}, on_progress=on_progress)

    assert result.text == "done in 2 steps"
    assert [record.message for record in caplog.records if record.exc_info] == ["a progress callback raised"] * 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_a_server_asks_of_its_client_is_answered(version: str) -> None:
    async with connected(echo_command("--version", version)) as connection:
        client = (await state_of(connection))["client"]

    info = client.get("clientInfo") or client["io.modelcontextprotocol/clientInfo"]
    assert info["name"] == "toolweave"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sdk-transport"])  # a transport connects once
@pytest.mark.parametrize("length", [10, 5_000])
async def test_a_hidden_character_is_found_in_a_text_of_any_length(kind: str, length: int) -> None:
    hidden = {"\x7f": "control", "\x1b": "control", "\u200b": "hidden", "\u202e": "direction"}
    plain = dict.fromkeys(('\t\r\n"\\', "grüße", "plain"), None)
    with serving(kind, VERSIONS[-2]) as target:
        for end, found in (hidden | plain).items():
            async with connected(target) as connection:
                said = await connection.call_tool("echo", {"text": "x" * length + end})
                assert said.text == "x" * length + end
                assert [one.kind for one in connection.findings] == ([] if found is None else [found])
