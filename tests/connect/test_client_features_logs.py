"""Log messages: of the wanted severity, in order, without end and without harm."""

from __future__ import annotations

import anyio
import pytest

from tests.connect.targets import (
    ASKS,
    EACH_ERA,
    EACH_WAY,
    MODERN,
    ChannelServer,
    Json,
    connected,
    error,
    eventually,
    initialized,
    serving,
)
from toolweave import Callbacks, ProtocolError
from toolweave.connect import ConnectionState, LogMessage


@EACH_WAY
async def test_log_messages_come_in_order_from_the_wanted_severity_on(kind: str, version: str) -> None:
    seen: list[LogMessage] = []
    callbacks = Callbacks(logging=seen.append, log_level="error")
    async with connected(serving(kind, version, ASKS), name="chatty", callbacks=callbacks) as connection:
        await connection.call_tool("chatter")
        await eventually(lambda: len(seen) == 4)
        await connection.set_log_level("alert")
        await connection.call_tool("chatter")
        await eventually(lambda: len(seen) == 6)

    assert [message.level for message in seen] == ["error", "critical", "alert", "emergency", "alert", "emergency"]
    assert seen[0] == LogMessage(server="chatty", level="error", logger="test", data={"said": "error"})


@EACH_ERA
async def test_async_log_callbacks_are_awaited_one_after_the_other(version: str) -> None:
    seen: list[str] = []

    async def log(message: LogMessage) -> None:
        await anyio.sleep(0)
        if message.level == "alert":
            raise ValueError("no room")
        seen.append(message.level)

    async with connected(
        serving("stdio", version, ASKS), callbacks=Callbacks(logging=log, log_level="critical")
    ) as connection:
        await connection.call_tool("chatter")
        await eventually(lambda: len(seen) == 2)

    assert seen == ["critical", "emergency"]


async def test_a_modern_server_logs_to_whom_listens_and_only_to_them() -> None:
    seen: list[LogMessage] = []
    with serving("stdio", MODERN, ASKS) as target:
        async with connected(target) as connection:
            assert (await connection.call_tool("chatter")).text == "None"
        async with connected(target, callbacks=Callbacks(logging=seen.append)) as connection:
            assert (await connection.call_tool("chatter")).text == "info"


async def test_the_wanted_severity_outlives_a_restart() -> None:
    async with connected(serving("stdio", "2025-11-25", ASKS), callbacks=Callbacks(log_level="error")) as connection:
        with pytest.raises(Exception, match="ended"):
            await connection.call_tool("crash")
        assert (await connection.call_tool("chatter")).text == "error"
        assert connection.restarts == 1


async def test_a_logging_callback_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def log(message: LogMessage) -> None:
        raise ValueError("no room")

    async with connected(serving("stdio", "2025-11-25", ASKS), callbacks=Callbacks(logging=log)) as connection:
        await connection.call_tool("log", {"message": "hello"})

    assert "the logging callback raised" in caplog.text


@pytest.mark.slow
async def test_a_server_that_logs_faster_than_it_is_heard_loses_messages_not_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go_on = anyio.Event()
    seen: list[object] = []

    async def log(message: LogMessage) -> None:
        await go_on.wait()
        seen.append(message.data)

    def script(message: Json) -> Json | None:
        if message.get("method") == "tools/list":
            for number in range(1_500):
                note = {"level": "info", "data": number}
                server.send({"jsonrpc": "2.0", "method": "notifications/message", "params": note})
            return {"result": {"tools": []}}
        return None

    server = ChannelServer(initialized(script))
    async with connected(server, callbacks=Callbacks(logging=log)):
        go_on.set()
        await eventually(lambda: len(seen) >= 1_000 and "log messages found no room" in caplog.text)

    assert seen[:1_000] == list(range(1_000))


async def test_a_log_level_the_server_refuses_costs_only_the_level(caplog: pytest.LogCaptureFixture) -> None:
    def script(message: Json) -> Json | None:
        return {"result": {"tools": []}} if message.get("method") == "tools/list" else error(-32603, "not today")

    server = ChannelServer(initialized(script, capabilities={"tools": {}, "logging": {}}))
    async with connected(server, callbacks=Callbacks(log_level="error")) as connection:
        assert connection.state is ConnectionState.READY
        with pytest.raises(ProtocolError, match="not today"):
            await connection.set_log_level("debug")

    assert "its log level stays as it is" in caplog.text
