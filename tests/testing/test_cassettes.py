"""Sessions that are recorded with a real server and played back without it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolweave import (
    AuthRequiredError,
    ConnectError,
    ConnectionLostError,
    McpConnection,
    ProtocolError,
    RequestTimeoutError,
    ServerConfig,
    ToolResult,
    connect_mcp,
)
from toolweave.config import Auth
from toolweave.testing import MemoryServer, Replay, http_fault_server, http_server, record, replay, stdio_server_command
from toolweave.testing._cassette import masked, read_cassette, same, write_cassette

VERSIONS = ("2025-11-25", "2026-07-28")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@contextmanager
def server_of(kind: str, version: str) -> Generator[Any]:
    match kind:
        case "stdio":
            yield stdio_server_command("--version", version)
        case _:
            with http_server("--version", version, "--answers", kind.removeprefix("http-")) as url:
                yield url


@asynccontextmanager
async def connected(target: Any, **options: Any) -> AsyncGenerator[McpConnection, None]:
    with anyio.fail_after(60):
        async with connect_mcp(target, **options) as connection:
            yield connection


async def session_with(connection: McpConnection) -> list[Any]:
    """Use everything a server has; return all that came of it."""
    seen: list[Any] = []
    grown = anyio.Event()
    results: list[Any] = [
        connection.protocol_version,
        connection.server_info,
        (await connection.list_tools()).names,
        await connection.call_tool("echo", {"text": "hi"}),
        await connection.call_tool("mixed"),
        await connection.call_tool("slow", {"seconds": 0, "steps": 3}, on_progress=seen.append),
        seen,
        await connection.list_resources(),
        await connection.read_resource("test://blob"),
        await connection.get_prompt("greet", {"name": "Ada"}),
    ]
    try:
        await connection.call_tool("rpc_error", {"code": -32011, "message": "no"})
    except ProtocolError as exc:
        results += [exc.code, exc.message, exc.data]
    connection.on("tools_changed", lambda change: (results.append(change.added), grown.set()))
    results.append(await connection.call_tool("grow"))
    await grown.wait()
    return results


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["stdio", "http-json", "http-sse"])
async def test_a_session_played_back_gives_what_the_server_gave(kind: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "echo.jsonl"
    with server_of(kind, version) as target:
        async with connected(record(target, path)) as connection:
            recorded = await session_with(connection)

    played = replay(path)
    async with connected(played) as connection:
        assert await session_with(connection) == recorded
        assert connection.name == played.name

    assert (played.unused, played.unrecorded) == ((), [])
    assert [one.name for one in path.parent.iterdir()] == ["echo.jsonl"]


async def recorded(server: MemoryServer, path: Path, use: Callable[[McpConnection], Awaitable[object]]) -> Replay:
    """Record one session and return the recording."""
    async with connected(record(server, path)) as connection:
        await use(connection)
    return replay(path)


def numbers(**options: Any) -> MemoryServer:
    server = MemoryServer(name="numbers", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    return server


async def add(connection: McpConnection, a: int, b: int) -> str:
    return (await connection.call_tool("add", {"a": a, "b": b})).text


async def test_requests_find_their_recording_in_any_order_and_by_any_order_of_their_members(tmp_path: Path) -> None:
    async def use(connection: McpConnection) -> None:
        for number in range(4):
            await add(connection, number, 1)

    played = await recorded(numbers(), tmp_path / "x.jsonl", use)

    async with connected(played) as connection:
        assert [await add(connection, number, 1) for number in (2, 0, 3)] == ["3", "1", "4"]
        assert (await connection.call_tool("add", {"b": 1, "a": 1}, meta={"x.org/any": 1})).text == "2"
    # a list may have been read twice when it was recorded, on a busy machine
    assert [one for one in played.unused if one.startswith("tools/call")] == []


async def test_answers_to_one_request_are_played_in_their_order(tmp_path: Path) -> None:
    server, texts = MemoryServer(), iter("abc")
    server.tool(name="next")(lambda: next(texts))

    async def use(connection: McpConnection) -> list[str]:
        return [(await connection.call_tool("next")).text for _ in range(2)]

    played = await recorded(server, tmp_path / "x.jsonl", use)

    async with connected(played) as connection:
        assert await use(connection) == ["a", "b"]
        with pytest.raises(ProtocolError, match="was recorded 2 times and played as often"):
            await connection.call_tool("next")
    async with connected(replay(tmp_path / "x.jsonl", repeat=True)) as connection:
        assert await use(connection) + await use(connection) == ["a", "b", "b", "b"]


async def test_what_changed_after_a_call_is_not_played_before_it(tmp_path: Path) -> None:
    server = MemoryServer(protocol="2025-11-25")
    server.resource("memo://1", "old")

    @server.tool
    def write(text: str) -> None:
        server.resource("memo://1", text)

    async def read(connection: McpConnection) -> str | None:
        return (await connection.read_resource("memo://1"))[0].text

    async def use(connection: McpConnection) -> None:
        assert await read(connection) == "old"
        await connection.call_tool("write", {"text": "new"})
        assert await read(connection) == "new"

    played = await recorded(server, tmp_path / "x.jsonl", use)

    async with connected(played) as connection:
        assert [await read(connection) for _ in range(3)] == ["old"] * 3
        await connection.call_tool("write", {"text": "new"})
        assert [await read(connection) for _ in range(3)] == ["new"] * 3


async def test_a_list_that_was_read_more_often_before_a_call_is_new_after_the_call(tmp_path: Path) -> None:
    server = MemoryServer(protocol="2025-11-25")

    def grown() -> None:
        """Do nothing."""

    @server.tool
    def grow() -> None:
        server.tool(grown)

    async def use(connection: McpConnection) -> None:
        for _ in range(3):
            await connection.refresh()
        await connection.call_tool("grow")
        await connection.refresh()

    played = await recorded(server, tmp_path / "x.jsonl", use)

    async with connected(played) as connection:
        await connection.call_tool("grow")
        await connection.refresh()
        assert (await connection.list_tools()).names == ("grow", "grown")
    assert played.unused == ()


async def test_a_request_that_was_not_recorded_is_refused_with_the_nearest_that_was(tmp_path: Path) -> None:
    async def use(connection: McpConnection) -> None:
        await add(connection, 100, 200)
        await add(connection, 7, 8)

    played = await recorded(numbers(), tmp_path / "sums.jsonl", use)

    async with connected(played) as connection:
        with pytest.raises(ProtocolError) as raised:
            await add(connection, 7, 9)
        with pytest.raises(ProtocolError, match=r"cassette 'sums.jsonl' has no resources/list .* it has only "):
            await connection.list_resources()

    assert raised.value.message == (
        'cassette \'sums.jsonl\' has no tools/call {"name": "add", "arguments": {"a": 7, "b": 9}}; '
        'the nearest that it has is tools/call {"name": "add", "arguments": {"a": 7, "b": 8}}'
    )
    assert len(played.unrecorded) == 2
    assert [text for text in played.unused if '"a": 7' in text] == [
        'tools/call {"name": "add", "arguments": {"a": 7, "b": 8}}'
    ]


async def test_true_is_not_taken_for_one() -> None:
    assert same({"a": [True, 1.0]}, {"a": [True, 1]})
    assert not same({"a": True}, {"a": 1})
    assert not same({"a": None}, {})
    assert not same([1], [1, 2])


async def test_what_the_server_said_while_a_list_was_read_does_not_wait_for_that_list(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("one", "two")]
    greeting: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x"},
    }
    lines: list[Any] = [
        {"send": {"id": 1, "method": "initialize"}},
        {"receive": {"id": 1, "result": greeting}},
        {"send": {"id": 2, "method": "tools/list", "params": {}}},
        {"receive": {"id": 2, "result": {"tools": tools[:1]}}},
        {"send": {"id": 3, "method": "tools/call", "params": {"name": "one", "arguments": {}}}},
        {"receive": {"id": 3, "result": {"content": []}}},
        {"send": {"id": 4, "method": "tools/list", "params": {}}},
        {"receive": {"method": "notifications/tools/list_changed"}},
        {"receive": {"id": 4, "result": {"tools": tools}}},
    ]
    write_cassette(path, "x", lines)

    changed = anyio.Event()
    async with connected(replay(path)) as connection:
        connection.on("tools_changed", lambda _change: changed.set())
        await connection.call_tool("one")
        assert repr(connection.config.server) == f"<Replay of 'x' from {path}>"
        await changed.wait()
        assert (await connection.list_tools()).names == ("one", "two")


async def test_a_tool_that_the_transport_refused_is_refused_again(tmp_path: Path) -> None:
    server, path = MemoryServer([same], protocol="2025-11-25"), tmp_path / "x.jsonl"
    await recorded(server, path, lambda connection: connection.list_tools())
    name, entries = read_cassette(path)
    (schema,) = (
        tool["inputSchema"] for entry in entries for tool in entry.get("receive", {}).get("result", {}).get("tools", ())
    )
    write_cassette(path, name, [*entries, {"refused": {"schema": schema, "reason": "a bad header"}}])

    async with connected(replay(path)) as connection:
        assert not await connection.list_tools()
        assert "a bad header" in connection.problems[0]


async def test_a_crash_that_was_recorded_is_played_as_a_crash_and_the_restart_too(tmp_path: Path) -> None:
    server = numbers()

    async def use(connection: McpConnection) -> None:
        server.crash(on="tools/call")
        with pytest.raises(ConnectionLostError) as raised:
            await add(connection, 1, 2)
        assert raised.value.sent
        assert await add(connection, 1, 2) == "3"
        assert connection.restarts == 1

    played = await recorded(server, tmp_path / "x.jsonl", use)
    calls = len(server.calls)
    async with connected(played) as connection:
        with pytest.raises(ConnectionLostError) as raised:
            await add(connection, 1, 2)
        assert raised.value.sent
        assert await add(connection, 1, 2) == "3"
        assert connection.restarts == 1
    assert len(server.calls) == calls


async def test_a_conversation_that_ended_by_itself_ends_again(tmp_path: Path) -> None:
    server = numbers()

    async def use(connection: McpConnection, crash: Callable[[], None] = server.crash) -> None:
        lost = anyio.Event()
        connection.on("state", lambda change: lost.set() if change.state == "backoff" else None)
        assert await add(connection, 1, 2) == "3"
        crash()
        await lost.wait()
        assert await add(connection, 3, 4) == "7"
        assert connection.restarts == 1

    played = await recorded(server, tmp_path / "x.jsonl", use)
    async with connected(played) as connection:
        await use(connection, lambda: None)


async def test_a_call_that_got_no_answer_gets_none_again(tmp_path: Path) -> None:
    server = numbers()
    server.hang()

    async def use(connection: McpConnection) -> None:
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("add", {"a": 1, "b": 2}, timeout=0.05)

    played = await recorded(server, tmp_path / "x.jsonl", use)

    async with connected(played) as connection:
        await use(connection)
    assert any("cancelled" in entry for entry in read_cassette(tmp_path / "x.jsonl")[1])


async def test_requests_of_the_server_are_asked_again(tmp_path: Path) -> None:
    server = MemoryServer(protocol="2025-11-25")

    @server.tool
    async def check() -> str:
        with pytest.raises(ProtocolError, match="no/such"):
            await server.ask("no/such")
        return json.dumps(await server.ask("ping"))

    async def use(connection: McpConnection) -> None:
        assert (await connection.call_tool("check")).text == "{}"

    played = await recorded(server, tmp_path / "x.jsonl", use)

    async with connected(played) as connection:
        await use(connection)
    asked = [entry for entry in read_cassette(tmp_path / "x.jsonl")[1] if str(entry).count("server-")]
    assert [next(iter(entry)) for entry in asked] == ["receive", "send"] * 2


async def test_a_recording_with_another_handshake_can_still_be_played(tmp_path: Path) -> None:
    async def use(connection: McpConnection) -> None:
        await add(connection, 1, 2)

    path = tmp_path / "x.jsonl"
    await recorded(numbers(protocol="2025-06-18"), path, use)

    for protocol in ("auto", "legacy", "2025-06-18"):
        async with connected({"server": replay(path), "protocol": protocol}) as connection:
            assert connection.protocol_version == "2025-06-18"
            assert await add(connection, 1, 2) == "3"


async def test_one_recording_may_be_connected_to_more_than_once(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    target = record(numbers(), path)
    for number in range(2):
        async with connected(target) as connection:
            await add(connection, number, 1)

    played = replay(path)
    for number in range(2):
        async with connected(played) as connection:
            assert await add(connection, number, 1) == str(number + 1)


async def test_what_the_connection_itself_was_told_to_do_is_kept(tmp_path: Path) -> None:
    config = ServerConfig(name="mine", server=numbers(), exclude=["add"], protocol="2025-11-25")

    async with connected(record(config, tmp_path / "x.jsonl")) as connection:
        assert (connection.name, connection.protocol_version) == ("mine", "2025-11-25")
        assert not await connection.list_tools()


async def test_a_server_that_refuses_the_credentials_is_played_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with http_fault_server("status_401") as url, pytest.raises(AuthRequiredError) as first:
        async with connected(record(url, path)):
            pass

    with pytest.raises(AuthRequiredError) as again:
        async with connected(replay(path)):
            pass
    assert again.value.message == first.value.message
    assert (again.value.status, again.value.challenge) == (first.value.status, first.value.challenge)


async def test_another_failure_is_played_as_one_of_connecting(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    failed = {"id": 1, "error": "RequestTimeoutError", "message": "too slow"}
    write_cassette(path, "x", [{"send": {"id": 1, "method": "server/discover"}}, {"failed": failed}])

    with pytest.raises(ConnectError, match="too slow"):
        async with connected(replay(path)):
            pass


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=4))
async def test_any_arguments_and_results_survive_being_recorded(
    arguments: list[dict[str, Any]], tmp_path: Path
) -> None:
    server = MemoryServer()
    server.tool(name="echo")(lambda: None)
    server.answer("tools/call", lambda params: {"content": [], "structuredContent": params["arguments"]})

    async def use(connection: McpConnection) -> list[ToolResult]:
        return [await connection.call_tool("echo", one) for one in arguments]

    path = tmp_path / "x.jsonl"
    async with connected({"server": record(server, path).server, "validate_input": False}) as connection:
        given_back = await use(connection)
    async with connected({"server": replay(path), "validate_input": False}) as connection:
        assert await use(connection) == given_back
        assert [one.structured_content for one in given_back] == arguments


# secrets and files

SECRET = "s3cr3t-0f-m1ne"


@pytest.mark.parametrize(
    "credentials",
    [
        {"headers": {"X-Token": SECRET}},
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
        {"auth": {"type": "bearer", "token": SECRET}},
    ],
    ids=["header", "authorization", "auth"],
)
async def test_no_credential_reaches_the_file_even_if_the_server_says_it(
    credentials: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    with http_server() as url:
        async with connected(record({"url": url, **credentials}, path)) as connection:
            seen = await connection.call_tool("seen_headers")
            await connection.call_tool("echo", {"text": f"token={SECRET}"})

    assert SECRET in seen.text
    assert SECRET not in path.read_text(encoding="utf-8")
    assert "token=***" in path.read_text(encoding="utf-8")
    async with connected(replay(path)) as connection:
        assert (await connection.call_tool("echo", {"text": f"token={SECRET}"})).text == "token=***"
        with pytest.raises(ProtocolError):
            await connection.call_tool("echo", {"text": f"other={SECRET}"})


async def test_no_credential_that_a_callable_gives_reaches_the_file(tmp_path: Path) -> None:
    tokens = iter(f"{SECRET}-{number}" for number in range(1000))
    given_out: list[str] = []

    async def headers() -> dict[str, str]:
        given_out.append(next(tokens))
        return {"X-Mine": f"Key {given_out[-1]}"}

    def provider() -> str:
        return "f0und-" + SECRET

    path = tmp_path / "x.jsonl"
    with http_server() as url:
        config = ServerConfig(name="x", url=url, headers=headers, auth=Auth(type="custom", provider=provider))
        async with connected(record(config, path)) as connection:
            assert SECRET in (await connection.call_tool("seen_headers")).text
            await connection.call_tool("echo", {"text": given_out[0]})

    assert len(given_out) > 1
    assert SECRET not in path.read_text(encoding="utf-8")


async def test_no_variable_and_no_named_secret_reaches_the_file(tmp_path: Path) -> None:
    command, *args = stdio_server_command()
    config = {"command": command, "args": args, "env": {"API_KEY": SECRET, "PLACE": "Oslo"}}
    path = tmp_path / "x.jsonl"

    async with connected(record(config, path, secrets=["1234-5678"])) as connection:
        await connection.call_tool("env", {"names": ["API_KEY", "PLACE"]})
        await connection.call_tool("echo", {"text": "card 1234-5678"})

    text = path.read_text(encoding="utf-8")
    assert SECRET not in text
    assert "1234-5678" not in text
    assert "Oslo" in text


def test_headers_that_carry_credentials_are_masked_by_their_name() -> None:
    said = {"headers": {"Authorization": "Bearer abc", "Cookie": "a=b", "accept": "*/*"}, "list": [{"x-api-key": "k"}]}

    assert masked(said, str) == {
        "headers": {"Authorization": "***", "Cookie": "***", "accept": "*/*"},
        "list": [{"x-api-key": "***"}],
    }


async def test_a_cassette_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    write_cassette(path, "old", [{"open": {}}])
    before = path.read_bytes()

    with pytest.raises(ValueError, match="JSON"):
        write_cassette(path, "new", [{"receive": {"id": 1, "result": float("nan")}}])

    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_cassette_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.mkdir()

    with pytest.raises(OSError, match=r"x\.jsonl"):
        write_cassette(path, "x", [])

    assert list(tmp_path.iterdir()) == [path]


def test_half_a_character_survives(tmp_path: Path) -> None:
    entries = [{"receive": {"id": 1, "result": {"text": "\ud83d \u2028 é"}}}]

    write_cassette(tmp_path / "x.jsonl", "x", entries)

    assert read_cassette(tmp_path / "x.jsonl") == ("x", entries)


async def test_each_message_is_a_line_that_people_can_read(tmp_path: Path) -> None:
    async def use(connection: McpConnection) -> None:
        await add(connection, 1, 2)

    path = tmp_path / "x.jsonl"
    await recorded(numbers(protocol="2025-11-25"), path, use)

    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == '{"cassette": 1, "server": "numbers"}'
    assert (
        '{"send": {"id": 4, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}}' in lines
    )
    result = '{"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}'
    assert f'{{"receive": {{"id": 4, "result": {result}}}}}' in lines


async def test_a_file_that_is_no_cassette_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for text, complaint in (
        ("", "this is not a cassette of format 1, but None"),
        ('{"cassette": 2}\n', "this is not a cassette of format 1, but 2"),
        ('{"cassette": 1}\nnonsense\n', "x.jsonl:2: this is not JSON"),
        ('{"cassette": 1}\n[]\n', "x.jsonl:2: a line of a cassette is an object"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=complaint):
            replay(path)
    with pytest.raises(FileNotFoundError, match=r"there is no cassette .*none.jsonl'; record one with record"):
        replay(tmp_path / "none.jsonl")
