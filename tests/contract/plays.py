"""The play of the contract tests: the same requests in the same order, by a connection of ours or by the SDK's client.

Knows the server of this folder. Returns what the caller got; what the server got is in its record.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from tests.contract.transcript import Json, Transcript, read
from tests.servers.fixtures import running
from toolweave import Callbacks, McpConnection, ToolweaveError, connect_mcp
from toolweave.connect import ElicitationRequest, ElicitationResult, LogMessage, Root, SamplingRequest, SamplingResult

__all__ = ["MODERN", "ROOT", "Stage", "play_ours", "play_the_sdk", "stage"]

HERE = Path(__file__).resolve().parent
MODERN = "2026-07-28"
PATIENCE = 60.0
ROOT = "file:///work"
CALLS: tuple[tuple[str, Json], ...] = (
    ("forecast", {"city": {"name": "Oslo"}, "days": 2}),
    ("add", {"a": 5, "b": -3}),
    ("every_kind", {}),
    ("refuse", {"reason": "not today, näh \u2028"}),
    ("boom", {}),
    ("nowhere", {"text": "\U0001f9f6"}),
    ("refuse_by_protocol", {}),
)
PROMPT = {"type": "ref/prompt", "name": "ask"}
TEMPLATE = {"type": "ref/resource", "uri": "sdk://item/{number}"}


@dataclass(slots=True)
class Stage:
    """A running server, how it is reached, and the record of what it was sent."""

    target: Any
    record: Path
    over_http: bool

    def transcript(self) -> Transcript:
        """Return what the server was sent so far."""
        return read(self.record)

    async def until(self, holds: Callable[[Transcript], bool]) -> None:
        """Wait until the record says so."""
        with anyio.fail_after(PATIENCE):
            while not holds(self.transcript()):
                await anyio.sleep(0.01)

    async def until_cancelled(self) -> None:
        """Wait until the server knows that nobody waits for a call any more."""
        await self.until(lambda seen: seen.methods()[-1] in ("hung up", "notifications/cancelled"))

    async def until_it_can_notify(self, version: str | None) -> None:
        """Wait until the stream is open on which a legacy server sends what belongs to no request."""
        if self.over_http and version != MODERN:
            await self.until(lambda seen: any(stream["method"] == "GET" for stream in seen.streams))


@contextlib.contextmanager
def stage(over_http: bool, folder: Path) -> Generator[Stage]:
    """Run the server, for HTTP, or return how to start it."""
    folder.mkdir(parents=True)
    record = folder / "record"
    command = [sys.executable, str(HERE / "server.py")]
    if over_http:
        with running([*command, "--http", "--record", str(record)], seconds=PATIENCE) as port:
            yield Stage(target={"url": f"http://127.0.0.1:{port}/mcp"}, record=record, over_http=True)
    else:
        tee = ["-S", "-E", str(HERE / "tee.py"), str(record), *command]
        yield Stage(target={"command": sys.executable, "args": tee}, record=record, over_http=False)


@dataclass(slots=True)
class Got:
    """What the caller got, step by step; an error is what it says of itself."""

    steps: Json = field(default_factory=dict[str, Any])

    async def note(self, step: str, doing: Awaitable[Any]) -> Any:
        """Wait for a step and keep what came of it."""
        try:
            value = await doing
        except (ToolweaveError, MCPError) as exc:
            told = {name: getattr(exc, name, None) for name in ("kind", "code", "message", "data")}
            self.steps[step] = {"raised": type(exc).__name__, **told}
            return None
        self.steps[step] = value
        return value


def callbacks(log: Callable[[LogMessage], None]) -> Callbacks:
    """Return callbacks that answer whatever is asked, and hand on what is logged."""

    async def elicit(request: ElicitationRequest) -> ElicitationResult:
        assert request.message == "What is your wish?"
        return ElicitationResult.accept({"colour": "blue", "loud": True})

    async def sample(request: SamplingRequest) -> SamplingResult:
        assert request.system_prompt == "Be brief."
        return SamplingResult(content="four", model="abacus")

    return Callbacks(elicitation=elicit, sampling=sample, roots=[Root(uri=ROOT, name="work")], logging=log)


async def play_ours(at: Stage, protocol: str) -> Json:
    """Play with a connection of ours; return what the caller got."""
    entry = {**at.target, "name": "contract", "protocol": protocol}
    entry["timeout"] = {"call": PATIENCE, "probe": PATIENCE}  # a server that starts slowly is asked no other question
    got = Got()
    logged: list[LogMessage] = []
    async with connect_mcp(entry, callbacks=callbacks(logged.append)) as server:
        got.steps["server"] = (server.protocol_version, server.server_info, server.capabilities, server.instructions)
        got.steps["tools"] = [tool.spec.raw for tool in await server.list_tools()]
        for name, arguments in CALLS:
            result = await got.note(name, server.call_tool(name, arguments))
            if result is not None:
                got.steps[name] = result.raw
        await _progress(server, at, got)
        await got.note("resources", server.list_resources())
        await got.note("templates", server.list_resource_templates())
        for uri in ("sdk://greeting", "sdk://item/7", "sdk://nothing"):
            await got.note(uri, server.read_resource(uri))
        await got.note("prompts", server.list_prompts())
        await got.note("prompt", server.get_prompt("ask", {"topic": "wool"}))
        await got.note("no prompt", server.get_prompt("nothing"))
        await got.note("completion", server.complete(PROMPT, "topic", "wo"))
        await got.note("completion in context", server.complete(TEMPLATE, "number", "1", context={"other": "2"}))
        await got.note("ping", server.ping())
        for name in ("wish", "think", "roots"):
            result = await got.note(name, server.call_tool(name))
            got.steps[name] = got.steps[name] if result is None else result.text
        await _change(server, at, got)
    got.steps["logged"] = logged
    return got.steps


async def _progress(server: McpConnection, at: Stage, got: Got) -> None:
    """Call with progress, and give a call up at its first progress."""
    reports: list[Any] = []
    await got.note("steps", server.call_tool("steps", {"count": 3}, on_progress=reports.append))
    got.steps["progress"] = reports
    got.steps["steps"] = got.steps["steps"].text
    async with anyio.create_task_group() as tasks:

        def give_up(_report: object) -> None:
            tasks.cancel_scope.cancel()

        tasks.start_soon(lambda: server.call_tool("forever", on_progress=give_up))
    await at.until_cancelled()


async def _change(server: McpConnection, at: Stage, got: Got) -> None:
    """Let the server offer one more tool, and take notice of it."""
    await at.until_it_can_notify(server.protocol_version)
    changed = anyio.Event()
    server.on("tools_changed", lambda _change: changed.set())
    await server.call_tool("grow")
    with anyio.fail_after(PATIENCE):
        await changed.wait()
    got.steps["tools after the change"] = [tool.name for tool in await server.list_tools()]


@asynccontextmanager
async def _sdk_client(at: Stage, mode: Any) -> AsyncGenerator[Client]:
    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "blue", "loud": True})

    async def sample(
        context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        said = types.TextContent(type="text", text="four")
        return types.CreateMessageResult(role="assistant", content=said, model="abacus", stop_reason="endTurn")

    async def roots(context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(ROOT), name="work")])

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        """Take a message that nobody reads."""

    target = at.target["url"] if at.over_http else StdioServerParameters(**at.target)
    client = Client(
        target,
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
        logging_callback=log,
        log_level="info" if mode == "auto" else None,
        client_info=types.Implementation(name="toolweave", version="0"),
        cache=None,
    )
    async with client as opened:
        yield opened


async def play_the_sdk(at: Stage, mode: str) -> None:
    """Play with the SDK's own client, as far as it has the same requests."""
    got = Got()
    async with _sdk_client(at, mode) as client:
        await client.list_tools()
        for name, arguments in CALLS:
            await got.note(name, client.call_tool(name, arguments))
        await client.call_tool("steps", {"count": 3}, progress_callback=_ignore)
        async with anyio.create_task_group() as tasks:

            async def give_up(progress: float, total: float | None, message: str | None) -> None:
                tasks.cancel_scope.cancel()

            async def wait_forever() -> None:
                await client.call_tool("forever", progress_callback=give_up)

            tasks.start_soon(wait_forever)
        await at.until_cancelled()
        await client.list_resources()
        await client.list_resource_templates()
        for uri in ("sdk://greeting", "sdk://item/7", "sdk://nothing"):
            await got.note(uri, client.read_resource(uri))
        await client.list_prompts()
        await client.get_prompt("ask", {"topic": "wool"})
        await got.note("no prompt", client.get_prompt("nothing"))
        argument = {"name": "topic", "value": "wo"}
        await client.complete(types.PromptReference(type="ref/prompt", name="ask"), argument)
        reference = types.ResourceTemplateReference(type="ref/resource", uri=TEMPLATE["uri"])
        await client.complete(reference, {"name": "number", "value": "1"}, {"other": "2"})
        if mode == "legacy":
            await client.send_ping()  # pyright: ignore[reportDeprecated] - legacy servers have it
        else:
            await client.session.send_discover(MODERN)
        for name in ("wish", "think", "roots"):
            await client.call_tool(name)
        await at.until_it_can_notify(client.protocol_version)
        await client.call_tool("grow")
        await client.list_tools()


async def _ignore(progress: float, total: float | None, message: str | None) -> None:
    """Take a report that nobody reads."""
