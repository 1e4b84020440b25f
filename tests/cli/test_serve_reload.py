"""`toolweave serve --reload`: the process is replaced when its source changes, the conversation goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.command import write_config
from tests.cli.served import SERVE, serve_entry, serving
from tests.programs import ran
from toolweave import Callbacks, McpConnection, ProtocolError, ToolsChanged, connect_mcp
from toolweave.cli._serve.relay import ReloadRelay
from toolweave.cli._serve.reload import Sources
from toolweave.connect import ElicitationRequest, ListChanged, ResourceUpdated

TEST_SECONDS = 90

pytestmark = pytest.mark.slow

BOUND = 90
ERAS = ["legacy", "2026-07-28"]

SOURCE = """
import anyio
from pathlib import Path
from toolweave import CallContext, create_mcp_server

server = create_mcp_server(name="changing", version="1")

@server.tool
def {name}() -> str:
    return "{name}"

@server.tool
async def hang(file: str) -> str:
    Path(file).touch()
    await anyio.sleep_forever()
    return "never"

@server.tool
async def ask(ctx: CallContext) -> str:
    answer = await ctx.elicit("Which?", {{"type": "object", "properties": {{"x": {{"type": "string"}}}}}})
    return str(answer.content)

@server.resource("state://now")
def state() -> str:
    return "{name}"

@server.prompt
def {name}_prompt() -> str:
    return "{name}"
"""


def write(file: Path, name: str) -> None:
    """Write the source of a server with this tool; the time of the file is another one in any case."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(SOURCE.format(name=name))
    status = file.stat()
    if status.st_mtime_ns <= before:
        os.utime(file, ns=(status.st_atime_ns, before + 1_000_000))


@asynccontextmanager
async def connected(file: Path, era: str, callbacks: Callbacks | None = None) -> AsyncGenerator[McpConnection, None]:
    """Connect to the supervised server."""
    entry = serve_entry(file, "--reload", protocol=era)
    async with connect_mcp(entry, name="s", callbacks=callbacks or Callbacks()) as connection:
        yield connection


class Told:
    """Waits for the changes of a connection."""

    def __init__(self, connection: McpConnection) -> None:
        self.all: list[Any] = []
        self._news = anyio.Event()
        for event in ("tools_changed", "prompts_changed", "resource_updated"):
            connection.on(event, self.take)

    def take(self, change: ToolsChanged | ListChanged | ResourceUpdated) -> None:
        """Take one change."""
        self.all.append(change)
        self._news.set()
        self._news = anyio.Event()

    async def added(self, name: str) -> None:
        """Wait until something of this name was added."""
        while not any(name in getattr(change, "added", ()) for change in self.all):
            await self._news.wait()

    async def updated(self) -> None:
        """Wait until a resource was updated."""
        while not any(isinstance(change, ResourceUpdated) for change in self.all):
            await self._news.wait()


@pytest.mark.parametrize("era", ERAS)
async def test_a_change_of_the_source_is_a_change_of_the_lists(folder: Path, era: str) -> None:
    file = folder / "changing.py"
    write(file, "one")
    async with connected(file, era) as connection:
        told = Told(connection)
        assert "one" in (await connection.list_tools()).names
        await connection.list_prompts()
        write(file, "two")
        await told.added("two")
        await told.added("two_prompt")
        assert "one" not in (await connection.list_tools()).names
        assert (await connection.call_tool("two")).text == "two"
        assert connection.restarts == 0


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_runs_meanwhile_is_answered_with_an_error(folder: Path, era: str) -> None:
    file = folder / "changing.py"
    write(file, "one")
    started = folder / "started"
    async with connected(file, era) as connection, anyio.create_task_group() as tasks:
        failures: list[str] = []

        async def call() -> None:
            try:
                result = await connection.call_tool("hang", {"file": str(started)})
                failures.append(result.text)
            except ProtocolError as error:
                failures.append(error.message)

        tasks.start_soon(call)
        while not started.exists():
            await anyio.sleep(0.02)
        told = Told(connection)
        write(file, "two")
        await told.added("two")
        while not failures:
            await anyio.sleep(0.02)
        assert "reloaded" in failures[0] or "shutting down" in failures[0]


@pytest.mark.parametrize("era", ERAS)
async def test_a_mistake_in_the_source_ends_nothing(folder: Path, era: str) -> None:
    file = folder / "changing.py"
    write(file, "one")
    async with connected(file, era) as connection:
        told = Told(connection)
        file.write_text("this is no Python")
        while True:
            try:
                await connection.request("tools/list")
            except ProtocolError as error:
                if "since its source changed" in error.message:
                    break
            await anyio.sleep(0.05)
        assert "SyntaxError" in connection.stderr_tail
        write(file, "two")
        await told.added("two")
        assert (await connection.call_tool("two")).text == "two"


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_goes_on_with_the_new_process(folder: Path, era: str) -> None:
    file = folder / "changing.py"
    write(file, "one")
    async with connected(file, era) as connection:
        told = Told(connection)
        await connection.subscribe_resource("state://now", told.take)
        write(file, "two")
        await told.added("two")
        if era != "legacy":  # before 2026-07-28 only the server itself can say that a resource is another one
            await told.updated()
        assert (await connection.read_resource("state://now"))[0].text == "two"


@pytest.mark.parametrize("era", ERAS)
async def test_after_a_reload_the_server_may_still_ask_the_client(folder: Path, era: str) -> None:
    def elicit(request: ElicitationRequest) -> dict[str, Any]:
        return {"x": "this"}

    file = folder / "changing.py"
    write(file, "one")
    async with connected(file, era, Callbacks(elicitation=elicit)) as connection:
        told = Told(connection)
        assert (await connection.call_tool("ask")).text == "{'x': 'this'}"
        write(file, "two")
        await told.added("two")
        assert (await connection.call_tool("ask")).text == "{'x': 'this'}"


@pytest.mark.parametrize("import_seconds", [0, 7])
def test_a_client_that_leaves_at_once_gets_its_answer_and_everything_ends(folder: Path, import_seconds: int) -> None:
    file = folder / "changing.py"
    file.write_text(f"import time\ntime.sleep({import_seconds})\n{SOURCE.format(name='one')}")
    command = [*SERVE, str(file), "--reload"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        hello: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
        out, _ = process.communicate(line.encode(), timeout=60)

    assert json.loads(out)["result"]["serverInfo"]["name"] == "changing"
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_supervisor_and_its_process(folder: Path, number: signal.Signals) -> None:
    file = folder / "changing.py"
    write(file, "one")
    with serving(file, "--reload") as (_, process):
        process.send_signal(number)
        process.communicate(timeout=60)

    assert process.returncode == 130


async def test_over_http_the_address_stays(folder: Path) -> None:
    file = folder / "changing.py"
    write(file, "one")
    with serving(file, "--reload") as (said, _), anyio.fail_after(BOUND):
        async with connect_mcp(said["url"], name="s") as connection:
            assert "one" in (await connection.list_tools()).names
        write(file, "two")
        while True:
            try:
                async with connect_mcp({"url": said["url"], "restart": "never"}, name="s") as connection:
                    if "two" in (await connection.list_tools()).names:
                        break
            except Exception:  # it is just being started
                await anyio.sleep(0.1)


async def test_a_config_is_watched_too(folder: Path) -> None:
    file = folder / "changing.py"
    write(file, "one")
    config = write_config(folder, {"a": [*SERVE, str(file)]})
    async with connect_mcp(serve_entry("--config", config, "--wait", 60, "--reload"), name="s") as connection:
        told = Told(connection)
        assert "a_one" in (await connection.list_tools()).names
        write_config(folder, {"b": [*SERVE, str(file)]})
        await told.added("b_one")


def test_only_python_outside_of_environments_and_hidden_folders_is_watched(folder: Path) -> None:
    for name in ("a.py", "sub/b.py", "sub/c.txt", ".git/d.py", "venv/e.py", "node_modules/f.py", "__pycache__/g.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "venv" / "pyvenv.cfg").touch()
    single = folder / "mcp.json"
    single.touch()

    sources = Sources([folder], [single, folder / "absent.json"])

    every = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.relative_to(folder).as_posix() for path in every if sources.includes(path)} == {
        "a.py",
        "sub/b.py",
        "mcp.json",
    }
    assert sources.includes(folder / "absent.json")
    assert not sources.includes(folder.parent / "other.py")


def test_without_what_watches_files_it_says_what_to_install(folder: Path) -> None:
    write(folder / "changing.py", "one")
    program = (
        "import sys\n"
        "sys.modules['watchfiles'] = None\n"
        "from toolweave.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = ran([sys.executable, "-c", program, "serve", "changing.py", "--reload"])

    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'toolweave[reload]'" in done.stderr


# the relay alone, a message at a time


class Wire:
    """Both ends of a relay."""

    def __init__(self) -> None:
        self.client: list[dict[str, Any]] = []
        self.server: list[dict[str, Any]] = []
        self.relay = ReloadRelay(lambda line: self.client.append(json.loads(line)))

    def start(self) -> None:
        """Begin with a new process."""
        self.server.clear()
        self.relay.attach(lambda line: self.server.append(json.loads(line)))

    def ask(self, identity: Any, method: str, **params: Any) -> None:
        self.relay.from_client(message(id=identity, method=method, params=params))

    def answer(self, identity: Any, **result: Any) -> None:
        self.relay.from_server(message(id=identity, result=result))


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def shaken() -> Wire:
    """Return a relay after a handshake."""
    wire = Wire()
    wire.start()
    wire.ask(1, "initialize", protocolVersion="2025-11-25")
    wire.answer(1, capabilities={"tools": {"listChanged": True}, "prompts": {}})
    wire.relay.from_client(message(method="notifications/initialized"))
    wire.client.clear()
    return wire


def test_a_new_process_is_told_what_the_one_before_it_was_told() -> None:
    wire = shaken()
    wire.ask(2, "logging/setLevel", level="info")
    wire.ask(3, "resources/subscribe", uri="a:b")
    wire.ask(4, "resources/subscribe", uri="c:d")
    wire.ask(5, "resources/unsubscribe", uri="c:d")
    for identity in (2, 3, 4, 5):
        wire.answer(identity)
    wire.client.clear()

    wire.relay.detach("reloaded")
    wire.start()
    assert [one["method"] for one in wire.server] == ["initialize"]
    wire.ask(6, "tools/list")
    assert len(wire.server) == 1
    wire.answer(wire.server[0]["id"], capabilities={})

    methods = [(one["method"], one.get("params", {})) for one in wire.server[1:]]
    assert methods == [
        ("notifications/initialized", {}),
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "a:b"}),
        ("tools/list", {}),
    ]
    for one in wire.server[2:4]:
        wire.answer(one["id"])
    wire.answer(6, tools=[])
    assert wire.client == [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "id": 6, "result": {"tools": []}},
    ]


def test_a_listen_stream_outlives_the_process_that_would_end_it() -> None:
    wire = Wire()
    wire.start()
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
    stamp = {"_meta": {"io.modelcontextprotocol/subscriptionId": 7}}
    acknowledged = message(method="notifications/subscriptions/acknowledged", params={"notifications": wanted, **stamp})
    wire.ask(7, "subscriptions/listen", notifications=wanted)
    wire.relay.from_server(acknowledged)
    assert len(wire.client) == 1
    wire.client.clear()

    wire.relay.retire()
    wire.answer(7)  # how a server ends its streams in good order
    wire.relay.detach("reloaded")
    wire.start()
    assert [(one["id"], one["method"]) for one in wire.server] == [(7, "subscriptions/listen")]
    wire.relay.from_server(acknowledged)

    assert [(one["method"], one["params"]) for one in wire.client] == [
        ("notifications/tools/list_changed", stamp),
        ("notifications/resources/updated", {"uri": "a:b", **stamp}),
    ]


def test_a_late_answer_to_a_process_that_is_gone_goes_nowhere() -> None:
    wire = shaken()
    wire.relay.from_server(message(id="ask", method="elicitation/create"))
    wire.relay.detach("reloaded")
    wire.start()
    wire.answer(wire.server[0]["id"], capabilities={})
    before = list(wire.server)

    wire.relay.from_client(message(id="ask", result={}))

    assert wire.server == before


def test_while_nothing_runs_every_request_is_answered() -> None:
    wire = shaken()
    wire.ask(2, "tools/call", name="x")
    wire.relay.detach("why", down=True)
    wire.ask(3, "tools/list")
    wire.relay.from_client(message(method="notifications/cancelled", params={"requestId": 3}))
    wire.relay.from_client(b"no JSON")

    assert [(one["id"], one["error"]["message"]) for one in wire.client] == [(2, "why"), (3, "why")]


def test_a_handshake_that_was_not_answered_is_begun_anew() -> None:
    wire = Wire()
    wire.start()
    wire.relay.retire()
    wire.ask(1, "initialize", protocolVersion="2025-11-25")
    wire.relay.detach("reloaded")
    wire.start()
    assert [one["id"] for one in wire.server] == [1]
    wire.answer(1, capabilities={})
    assert wire.client == [{"jsonrpc": "2.0", "id": 1, "result": {"capabilities": {}}}]


def test_what_is_no_message_passes_as_it_is() -> None:
    wire = shaken()
    seen: list[bytes] = []
    wire.relay.attach(seen.append)
    wire.relay.detach("x")
    wire.relay.attach(seen.append)
    wire.answer("toolweave-reload-0", capabilities={})
    seen.clear()

    wire.relay.from_client(b"not JSON")

    assert seen == [b"not JSON"]
